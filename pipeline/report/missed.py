"""Which labels of training images are most likely missing, where nobody knows."""

import base64
import io
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image

from pipeline.report import analyses
from pipeline.report.analyses import Identity
from pipeline.report.blocks import box, counted, joined, paragraph, section, table_block
from pipeline.report.collect import Dataset, Row
from pipeline.report.draft import SHORT, Draft, named

_OPEN = 12  # likely missed labels that stand open on the page
_SHOWN = 36  # of these and those in a box below, all with their pictures
_EACH = 10  # of one method
_SIDE = 72  # pixels of a thumbnail


def missed(draft: Draft) -> Row:
    """Make the section of the most likely missed labels, of data whose labels are not exhaustive.

    Args:
        draft: The page as it grows.

    Returns:
        The section.
    """
    lead = "Training images that most likely show a class that they are not labelled with: look at these first."
    return section("missed", "Missed labels", "The most likely missed labels", lead, draft.each(_missed_of))


def agreed(every: Mapping[Identity, Sequence[Row]]) -> list[Row]:
    """Merge what several arms take to be missed labels.

    Args:
        every: Rows of ``analyses.missed`` by arm.

    Returns:
        One row a cell: ``path``, ``class``, ``arms`` (how many name it) and ``probability`` (the mean of theirs, in
        [0, 1]); those that most arms name first, among equals the most probable.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for rows in every.values():
        for row in rows:
            found.setdefault((row["path"], row["class"]), []).append(row["probability"])
    merged = [
        {"path": path, "class": name, "arms": len(values), "probability": float(np.mean(values))}
        for (path, name), values in found.items()
    ]
    return sorted(merged, key=lambda row: (-row["arms"], -row["probability"], row["path"], row["class"]))


def _missed_of(draft: Draft, dataset: Dataset) -> list[Row]:
    name = dataset.name
    every = analyses.missed(draft.collected, name)
    if not every or draft.collected.truth(name):
        return []
    rows = agreed(every)
    draft.files.tables[f"{name}-missed"] = [named(one) | row for one, found in every.items() for row in found]
    draft.files.tables[f"{name}-missed_agreed"] = rows
    shown = rows[:_SHOWN]
    images = _images(dataset, [row["path"] for row in shown])
    cells = [
        [
            {"text": row["path"], **image},
            row["class"],
            f"{row['arms']} of {len(every)}",
            f"{row['probability']:.2f}",
        ]
        for row, image in zip(shown, images, strict=True)
    ]
    columns = ["Image", "May show", "Named by", "Probability"]
    title = f"The most likely missed labels of {name}"
    tables = [table_block(title, columns, part, words=2, titled=False) for part in (cells[:_OPEN], cells[_OPEN:])]
    seed = next(row["seed"] for found in every.values() for row in found)
    words = (
        f"Named by: how many of {counted(len(every), 'network')} have the label among their likeliest missed ones, "
        f"seed {seed}; probability: the mean of theirs. tables/{name}-missed_agreed.tsv holds more."
    )
    return [
        tables[0],
        paragraph(words, "note"),
        *([box(f"The next {len(cells) - _OPEN}", tables[1:])] if len(cells) > _OPEN else []),
        _by_method(draft, name, every),
    ]


def _by_method(draft: Draft, dataset: str, every: dict[Identity, list[Row]]) -> Row:
    words = (
        "The method's belief decides, and where it is the same the network's probability; "
        f"tables/{dataset}-missed.tsv holds more."
    )
    inner = [paragraph(words, "note")]
    for one in draft.shown(dataset, every):
        cells = [
            [row["path"], row["class"], f"{row['belief']:.3f}", f"{row['probability']:.3f}"]
            for row in every[one][:_EACH]
        ]
        title = f"{draft.name(dataset, one)}, {SHORT[one[0]]}"
        inner.append(table_block(title, ["Image", "Class", "Belief", "Probability"], cells, words=2))
    return box(f"The most likely missed labels of {dataset}, method by method", inner)


def _images(dataset: Dataset, paths: list[str]) -> list[Row]:
    """Return for each path what its cell shows: the ``note`` of its given labels, and its ``picture`` if at hand."""
    table = dataset.table
    place = {} if table is None else {path: row for row, path in enumerate(table.paths)}
    shown: list[Row] = []
    for path in paths:
        if table is None or path not in place:  # of a partial page, whose files may be of different times
            shown.append({"note": ""})
            continue
        given = [name for name, value in zip(table.classes, table.truth[place[path]], strict=True) if value == 1]
        cell = {"note": f"labelled {joined(given)}" if given else "without a label"}
        if dataset.pictures is not None:
            cell["picture"] = _thumbnail(dataset.pictures[[place[path]]][0])
        shown.append(cell)
    return shown


def _thumbnail(pixels: np.ndarray) -> str:
    """Return (h, w, 3) uint8 pixels as the address of a small JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).resize((_SIDE, _SIDE), Image.Resampling.LANCZOS).save(buffer, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
