"""What is believed of the labels that nobody has shown, and its file; the stage ``beliefs`` writes it.

Source: ours.
"""

import json
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core import hdf5
from pipeline.core.errors import FileError, SourceError
from pipeline.core.faults import Faults, preview
from pipeline.core.text import read_rows, read_text
from pipeline.labels.table import Table


@dataclass(frozen=True)
class Beliefs:
    """Beliefs of all images of a dataset, in the table's rows and columns.

    Args:
        belief: (N, C) float32, the chance in [0, 1] that the label is present, given what is shown of the image: 1
            where it is shown, 0 where it is known to be absent. No training image's own labels trained the scores
            behind it.
        logits: (N, C) float32, what is believed before the image's labels are looked at.
        labels_per_image: Labels that a training image is estimated to have on average.
        shares: (C, 3) share of training images that each class is estimated to be present in, with the lower and upper
            end of its interval; ends that nobody knows are not a number.
        draw: How labels are taken to have come to be shown: ``count``, as many as are shown were picked of those
            present, and ``shares`` are of images that show one; ``share``, each was shown with one chance.
        ranking: (N, C) float32, the higher, the likelier an unknown label is present, of all classes of a split.
    """

    belief: np.ndarray
    logits: np.ndarray
    labels_per_image: float
    shares: np.ndarray
    draw: str
    ranking: np.ndarray

    def expected_labels(self) -> np.ndarray:
        """Return (N,) labels that each image is expected to have."""
        return self.belief.sum(axis=1, dtype=np.float64)

    def stands_for(self, observed: np.ndarray) -> np.ndarray:
        """Return (N,) how many present labels each shown label of an image stands for.

        Args:
            observed: (N, C) labels of all images: 1 where shown.

        Returns:
            The labels that the image is expected to have, by those that it shows; 1 where each label was shown with one
            chance, whatever the others.
        """
        if self.draw == "share":
            return np.ones(len(self.belief))
        return self.expected_labels() / np.maximum((observed == 1).sum(axis=1), 1)


def beliefs_file(root: Path, dataset: str, draw: int) -> Path:
    """Return where the beliefs of a dataset and label draw lie."""
    return root / "data" / "beliefs" / f"{dataset}-{draw}" / "beliefs.h5"


def write_beliefs(
    path: Path, beliefs: Beliefs, head: dict[str, np.ndarray], reads: list[Path], settings: dict[str, Any]
) -> None:
    """Write the beliefs of a dataset.

    Args:
        path: The file.
        beliefs: The beliefs.
        head: ``weights`` (C, D) and ``bias`` (C,) of the linear head behind the logits; empty where there is none.
        reads: Sealed files that they are made from.
        settings: How they were made.
    """
    with hdf5.create(path, reads) as file:
        file.attrs["settings"] = json.dumps(settings, ensure_ascii=False)
        units = "chance that the label is present, given what is shown"
        hdf5.write_array(file, "belief", beliefs.belief, axes="image, class", units=units, compress=True)
        hdf5.write_array(file, "logits", beliefs.logits, axes="image, class", units="logit")
        units = "the higher, the likelier an unknown label is present"
        hdf5.write_array(file, "ranking", beliefs.ranking, axes="image, class", units=units)
        hdf5.write_array(file, "shares", beliefs.shares, axes="class, value and interval", units="share of images")
        file.attrs["labels_per_image"] = beliefs.labels_per_image
        file.attrs["draw"] = beliefs.draw
        for name, axes in (("weights", "class, feature"), ("bias", "class")):
            if name in head:
                hdf5.write_array(file, name, head[name], axes=axes, units="logit")


def read_beliefs(path: Path, table: Table) -> Beliefs:
    """Return the beliefs of a dataset.

    Args:
        path: The file.
        table: The dataset's table.

    Returns:
        The beliefs.

    Raises:
        FileError: The file is absent or damaged, lacks an array, or holds one that does not fit the table, or a belief
            outside [0, 1].
    """
    with hdf5.read(path) as file:
        try:
            arrays = {name: file[name][()] for name in ("belief", "logits", "shares", "ranking")}
            labels, draw = float(file.attrs["labels_per_image"]), str(file.attrs["draw"])
        except KeyError as error:
            raise FileError(f"{path}: lacks an array; run beliefs again") from error
    beliefs = Beliefs(arrays["belief"], arrays["logits"], labels, arrays["shares"], draw, arrays["ranking"])
    for name in ("belief", "logits", "ranking"):
        array = arrays[name]
        if array.shape != table.truth.shape:
            raise FileError(f"{path}: rows or classes of `{name}` are not the table's; run beliefs again")
        if not np.isfinite(array).all():
            raise FileError(f"{path}: `{name}` holds a value that is not finite; run beliefs again")
    if beliefs.belief.min() < 0 or beliefs.belief.max() > 1:
        raise FileError(f"{path}: `belief` holds a value outside [0, 1]; run beliefs again")
    if beliefs.shares.shape != (len(table.classes), 3) or not (np.abs(beliefs.shares[:, 0] - 0.5) <= 0.5).all():
        raise FileError(f"{path}: `shares` is not one row a class of shares in [0, 1]; run beliefs again")
    return beliefs


def read_head(path: Path, table: Table) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the linear head behind the beliefs of a dataset.

    Args:
        path: The file.
        table: The dataset's table.

    Returns:
        Weights (C, D) and bias (C,); None where the beliefs are somebody else's, who gave no head.

    Raises:
        FileError: The file is absent or damaged, or its head is not of the table's classes.
    """
    with hdf5.read(path) as file:
        if "weights" not in file:
            return None
        weights, bias = file["weights"][()], file["bias"][()]
    if not len(weights) == len(bias) == len(table.classes) or not np.isfinite(weights).all():
        raise FileError(f"{path}: its linear head is not of the table's classes; run beliefs again")
    return weights, bias


def read_settings(path: Path) -> dict[str, Any]:
    """Return how the beliefs of a dataset were made, as the block beliefs of params.yaml said then.

    Args:
        path: The file.

    Raises:
        FileError: The file is absent or damaged, or does not say.
    """
    with hdf5.read(path) as file:
        if "settings" not in file.attrs:
            raise FileError(f"{path}: lacks its settings; run beliefs again")
        return json.loads(str(file.attrs["settings"]))


def check_settings(path: Path, asked: dict[str, Any]) -> None:
    """Compare how beliefs were made with how they are asked for: DVC makes them anew, by hand nobody does.

    Args:
        path: The file.
        asked: The settings that count now, as JSON values.

    Raises:
        FileError: The file is absent or damaged, or its beliefs were made otherwise.
    """
    stored = read_settings(path)
    differ = [key for key in asked | stored if (key in asked, asked.get(key)) != (key in stored, stored.get(key))]
    if differ:
        then, now = (", ".join(f"{key}: {json.dumps(each.get(key))}" for key in differ) for each in (stored, asked))
        anew = " ".join(path.parent.name.rsplit("-", 1))
        raise FileError(
            f"{path}: made with {then}, and params.yaml asks for {now}; run python -m stages.beliefs {anew}"
        )


def rank_hidden(ranking: np.ndarray, unknown: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Return the unknown labels that are most likely present.

    Args:
        ranking: (N, C), the higher, the likelier.
        unknown: (N, C) bool, which labels are ranked.
        most: How many are returned at most.

    Returns:
        Row and class of each, the likeliest first; equal ones by row, then class.
    """
    cells = np.flatnonzero(unknown)
    values = ranking.ravel()[cells]
    most = min(most, len(cells))
    if not most:
        return []
    least = np.partition(values, len(values) - most)[len(values) - most]
    cells, values = cells[values >= least], values[values >= least]
    cells = cells[np.argsort(-values, kind="stable")][:most]
    return [(int(cell // ranking.shape[1]), int(cell % ranking.shape[1])) for cell in cells]


def read_given(file: Path, table: Table) -> np.ndarray:
    """Return what somebody else believes of every image and class: a second backbone, a foundation model, a person.

    Args:
        file: A table of text: a header of ``image`` and the names of all classes, in any order, and a line for each
            image, in any order, with chances from 0 to 1.
        table: Which images and classes there are.

    Returns:
        (N, C) float64 chances, in the table's rows and columns.

    Raises:
        SourceError: The file is missing, or its header or a line is faulty; all faults are listed.
    """  # noqa: DOC502  raised by `Faults`
    first = read_text(file).lstrip().partition("\n")[0]
    lines = read_rows(file, max(",;\t", key=first.count))
    faults = Faults(file.name)
    _, header = next(lines, (0, []))
    columns = [unicodedata.normalize("NFC", name) for name in header]
    expected = ["image", *table.classes]
    if sorted(columns) != sorted(expected):
        lacks, more = set(expected) - set(columns), set(columns) - set(expected)
        said = [f"lacks {preview(sorted(lacks))}"] * bool(lacks) + [f"has {preview(sorted(more))} too"] * bool(more)
        raise SourceError(f"{file.name}: its header {' and '.join(said) or 'names a column twice'}")
    order = [columns.index(name) for name in table.classes]
    rows = {path: number for number, path in enumerate(table.paths)}
    chances = np.full(table.truth.shape, np.nan)
    for number, fields in lines:
        _read_chances(f"line {number}", fields, (columns.index("image"), order), (rows, chances), faults)
    for row in np.flatnonzero(np.isnan(chances).any(axis=1)).tolist():
        if not faults:
            faults.add("images have no line", table.paths[row])
    faults.raise_if_any()
    return chances


def _read_chances(
    line: str,
    fields: list[str],
    columns: tuple[int, list[int]],
    into: tuple[dict[str, int], np.ndarray],
    faults: Faults,
) -> None:
    """Read one line into its image's row, or add what is wrong with it."""
    (image, order), (rows, chances) = columns, into
    if len(fields) != chances.shape[1] + 1:
        faults.add(f"lines have another number of fields than {chances.shape[1] + 1}", line)
        return
    row = rows.get(unicodedata.normalize("NFC", fields[image]).replace("\\", "/"))
    if row is None:
        faults.add("images are not in the dataset, whose table.h5 has the names", f"{line} {fields[image]!r}")
        return
    if not np.isnan(chances[row]).all():
        faults.add("images have two lines", f"{line} {fields[image]!r}")
    for column, place in enumerate(order):
        number = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", fields[place])
        value = float(fields[place]) if number else np.inf
        if value > 1:
            faults.add("chances are no number from 0 to 1", f"{line} {fields[place]!r}")
        chances[row, column] = value
