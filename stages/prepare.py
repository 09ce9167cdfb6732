"""Bring a raw dataset into the project's one form: ``python -m stages.prepare DATASET``.

Reads what ``prepare.<dataset>`` in params.yaml names; writes data/prepare/<dataset>/: table.h5 (paths, class names,
truth, splits), images.h5 (packed pixels), report.json (what was read, skipped and why, counts) and summary.md. Nothing
is written before everything was read and found good.
"""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pipeline.config import rules
from pipeline.config.params import read_params
from pipeline.core import faults, files, resume
from pipeline.core.errors import ConfigError, SourceError
from pipeline.data import packing
from pipeline.data.images import ImageError
from pipeline.data.raw import Cut, warn_partial_labels
from pipeline.labels.table import SPLITS, Dataset, Table, write_table
from pipeline.sources.base import load
from stages import entry

SHOWN = 20  # of many images, this many are named
FEW = 10  # positives; below this a class's average precision says little
MANY = 10  # equal pictures are no mere duplicates, but what a server sends for pictures that are gone


def prepare(root: Path, dataset: str) -> None:
    """Read, check and pack one dataset.

    Args:
        root: Project root.
        dataset: Name of a dataset.

    Raises:
        ConfigError: the settings name no source, or do not suit it, or a split is empty.
        ImageError: pictures cannot be used and stop the run; the message says how to go on.
        SourceError: the raw data is not what the source expects.
    """
    source, settings = load(read_params(root / "params.yaml").settings("prepare", dataset), f"prepare.{dataset}")

    # before the lists are read: what changes meanwhile is told by the next check
    raw = source.fingerprint(settings, root)
    data = _read(source, settings, root, dataset)
    rules.raise_if_any(rules.empty_splits(dataset, data.table))
    folder = root / "data" / "prepare" / dataset
    same = {**settings.model_dump(exclude={"bad_images"}), "paths": data.table.paths}
    print_ = resume.fingerprint([same, packing.stamp(data, raw)], [])
    place = resume.scratch(root) / f"prepare-{dataset}"
    resume.sort_out(place, print_, f"prepare {dataset}")
    with resume.Checkpoint(place / print_) as point:
        try:
            packed = packing.pack(
                data,
                settings.size,
                source=settings.source,
                bad_images=getattr(settings, "bad_images", "stop"),  # a source that draws its pictures has no bad ones
                checkpoint=point,
                workers=_workers(),
            )
        except ImageError as error:
            some_are_good = not isinstance(error, packing.NothingUsable)
            raise ImageError(f"{error}\n{_remedy(dataset, some_are_good)}") from error
        kept = None if data.objects is None else data.objects.take(packed.rows)
        data = replace(data, table=data.table.take(packed.rows), objects=kept)
        rules.raise_if_any(rules.empty_splits(dataset, data.table))
        files.install(packed.file, folder / "images.h5")
        write_table(folder / "table.h5", data.table, data.objects)
        report = {"dataset": dataset, "source": settings.source, "size": settings.size, "raw_sha256": raw}
        report |= _report(data, packed, isinstance(settings, Cut))
        files.write_json(folder / "report.json", report)
        files.write_summary(folder / "summary.md", f"Dataset {dataset}", _summary(report, data.table))
        point.discard()


def _read(source: ModuleType, settings: Any, root: Path, dataset: str) -> Dataset:
    """Read lists and labels.

    Returns:
        The dataset.

    Raises:
        SourceError: They are faulty, or pictures are missing; where those alone are, the message says how to go on.
    """
    try:
        return source.read(settings, root)
    except SourceError as error:
        if getattr(settings, "bad_images", "drop") == "drop":
            raise
        try:
            source.read(settings.model_copy(update={"bad_images": "drop"}), root)
        except SourceError:
            raise error from None
        raise SourceError(f"{error}\n{_remedy(dataset, some_are_good=True)}") from error


def _remedy(dataset: str, some_are_good: bool) -> str:
    """Return what to do about pictures that cannot be used."""
    drop = f"leave them out: prepare.{dataset}.bad_images: drop; " if some_are_good else ""
    return f"{drop}see all: spml check-data {dataset}"


def _workers() -> int | None:
    """Return the number of decoding threads that the environment asks for.

    Raises:
        ConfigError: it is no whole number.
    """
    text = os.environ.get("SPML_WORKERS", "")
    if text and not text.isdecimal():
        raise ConfigError(f"SPML_WORKERS={text!r} is no whole number")
    return int(text) if text else None


def _report(data: Dataset, packed: packing.Packed, published: bool) -> dict[str, Any]:
    """Return what report.json says beside the settings, of data whose labels papers draw or of others."""
    table = data.table
    splits, warnings = {}, [*data.report.get("warnings", []), *warn_partial_labels(table)]
    support = {}
    for name in SPLITS:
        rows = table.rows(name)
        labels = table.truth[rows].sum(axis=1)
        support[name] = table.truth[rows].sum(axis=0)
        splits[name] = {
            "images": len(rows),
            "official_train": int((table.official[rows] == 0).sum()),
            "labels_per_image": float(labels.mean()),
            "images_by_labels": np.bincount(labels).tolist(),
            "without_positive": int((labels == 0).sum()),
            "classes_present": int((support[name] > 0).sum()),
            "cells_unscored": int((~table.scored[rows]).sum()),
        }
        if absent := [table.classes[column] for column in np.flatnonzero(support[name] == 0)]:
            warnings.append(
                f"{name} has no positive of {', '.join(absent)}: their average precision is undefined there"
            )
        if bare := splits[name]["without_positive"]:
            warnings.append(f"{name}: {faults.pluralize(bare, 'image')} without a positive label")
    if packed.unusable:
        left = f"{faults.pluralize(len(packed.unusable), 'image')} left out, since files cannot be used"
        others = "; a published draw of labels is that of the whole list, so these labels are others"
        warnings.append(left + others if published else left)
    duplicates = _duplicates(table, packed.duplicates)
    if duplicates["across_splits"]:
        across = faults.pluralize(duplicates["across_splits"], "group")
        warnings.append(f"{across} of equal pictures across splits: test is not unseen")
    if duplicates["with_different_labels"]:
        differ = faults.pluralize(duplicates["with_different_labels"], "group")
        warnings.append(f"{differ} of equal pictures with different labels")
    many = sorted((group for group in packed.duplicates if len(group) >= MANY), key=len, reverse=True)
    warnings += [
        f"{len(group)} pictures are equal to {table.paths[group[0]]}: a placeholder of pictures that are gone?"
        for group in many[:SHOWN]
    ]
    for note, words in packing.ODD.items():
        if found := packed.notes.get(note):
            warnings.append(f"{faults.pluralize(len(found), 'picture')} {words}")
    return {
        "read": {key: value for key, value in data.report.items() if key != "warnings"},
        "exhaustive": table.exhaustive,
        "unusable": {"count": len(packed.unusable), "first": list(packed.unusable.values())[:SHOWN]},
        "splits": splits,
        "classes": [
            {"name": name}
            | {split: int(support[split][column]) for split in SPLITS}
            | {"unscored": int((~table.scored[:, column]).sum())}
            for column, name in enumerate(table.classes)
        ],
        "images": {
            side: {"least": int(values.min()), "median": float(np.median(values)), "most": int(values.max())}
            for side, values in (("height", packed.sizes[:, 0]), ("width", packed.sizes[:, 1]))
        },
        "notes": {note: _named(table, rows) for note, rows in packed.notes.items()},
        "duplicates": duplicates,
        "warnings": warnings,
    }


def _named(table: Table, rows: list[int]) -> dict[str, Any]:
    return {"count": len(rows), "first": [table.paths[row] for row in rows[:SHOWN]]}


def _duplicates(table: Table, groups: list[list[int]]) -> dict[str, Any]:
    """Return counts of groups of equal pictures, those that matter named first."""
    across = [len(set(table.split[rows].tolist())) > 1 for rows in groups]
    differ = [bool((table.truth[rows] != table.truth[rows[0]]).any()) for rows in groups]
    order = sorted(range(len(groups)), key=lambda group: not (across[group] or differ[group]))
    return {
        "groups": len(groups),
        "across_splits": sum(across),
        "with_different_labels": sum(differ),
        "first": [[table.paths[row] for row in groups[group][:SHOWN]] for group in order[:SHOWN]],
    }


def _summary(report: dict[str, Any], table: Table) -> list[str]:
    size, sides = report["size"], report["images"]
    least = {row["name"]: min(row[split] for split in SPLITS) for row in report["classes"]}
    few = [name for name, count in least.items() if count < FEW]
    return [
        f"{len(table.paths)} images and {len(table.classes)} classes from the source `{report['source']}`, packed as"
        f" {size} x {size} pixels (aspect ratio not kept).",
        f"Before that: height {sides['height']['least']} to {sides['height']['most']}, width"
        f" {sides['width']['least']} to {sides['width']['most']} pixels.",
        "",
        "## Warnings",
        "",
        *([f"- {text}" for text in report["warnings"]] or ["- none"]),
        "",
        "## Splits",
        "",
        *_table(
            (
                "split",
                "images",
                f"labels per image{'' if table.exhaustive else ' (given)'}",
                "without a positive",
                "classes present",
                "cells of unknown truth",
            ),
            (
                (
                    name,
                    row["images"],
                    f"{row['labels_per_image']:.3f}",
                    row["without_positive"],
                    row["classes_present"],
                    row["cells_unscored"],
                )
                for name, row in report["splits"].items()
            ),
        ),
        "",
        "## Positives by class",
        "",
        f"{len(few)} classes have fewer than {FEW} positives in some split" + (f": {', '.join(few)}." if few else "."),
        "",
        *_table(("class", *SPLITS), ((row["name"], *(row[split] for split in SPLITS)) for row in report["classes"])),
        "",
        "## What was read",
        "",
        *_nested(report["read"]),
        "",
        "## Pictures",
        "",
        *([f"- {note}: {found['count']}" for note, found in report["notes"].items()] or ["- nothing odd"]),
        f"- groups of equal pictures: {report['duplicates']['groups']}",
        *(f"- left out: {reason}" for reason in report["unusable"]["first"]),
        "",
        "## Files",
        "",
        "- `table.h5`: `paths`, `classes`, `truth` (image, class), `scored` (False: truth not known, left out of"
        " metrics), `split` (0 train, 1 val, 2 test), `official` (0 official training part, 1 official test part).",
        "- `images.h5`: `pixels` (image, height, width, RGB) uint8, in the same row order.",
        "- `report.json`: these figures and the names behind them.",
    ]


def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> list[str]:
    cells = [head, ("---",) * len(head), *rows]
    return ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in cells]


def _nested(content: dict[str, Any], indent: str = "") -> list[str]:
    """Return a nested mapping as a Markdown list."""
    lines = []
    for key, value in content.items():
        if isinstance(value, dict):
            lines += [f"{indent}- {key}:", *_nested(value, indent + "  ")]
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list) else value
            lines.append(f"{indent}- {key}: {text if text != '' else 'none'}")
    return lines


if __name__ == "__main__":
    entry.run(prepare)
