"""Weights of labels for biased draws: by class frequency, size or place of objects, or from a table.

Source: the weights are those of studies of how annotators choose the label that they give: Arroyo, Perona, Cole,
"Understanding Label Bias in Single Positive Multi-Label Learning", ICLR 2023 Tiny Papers (size, place, class).
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from pipeline.core.errors import ConfigError, SourceError
from pipeline.core.faults import Faults
from pipeline.core.text import prefixed, read_rows, read_text, relative_path
from pipeline.labels.blocks import row_blocks
from pipeline.labels.settings import Simulate
from pipeline.labels.table import Objects, Table

Weights: TypeAlias = Callable[[Any], np.ndarray]
"""Gives the float64 weights of some rows of the table: (R,) row numbers or a slice -> broadcastable to (R, C)."""
LEAST = 1e-4
"""Least size or closeness that counts: a hundredth of the picture by a hundredth; that of a label without a box too."""


def bias_weights(root: Path, table: Table, objects: Objects | None, settings: Simulate) -> Weights:
    """Return the function that gives the weights of cells under a bias.

    Args:
        root: Project root, from which the name of a table of weights counts.
        table: The table.
        objects: Where its objects lie.
        settings: The settings.

    Returns:
        Function of (R,) rows of the table: float64 weights, at least 0, broadcastable to (R, C).

    Raises:
        ConfigError: The bias goes by boxes and there are none.
        SourceError: The table of weights is faulty.
    """
    bias = settings.bias
    if bias.kind == "uniform":
        return lambda rows: np.ones((1, 1))
    if bias.kind == "table":
        try:
            return read_weights(bias.path(root), table, settings.positives.kind == "table")
        except SourceError as error:
            raise SourceError(prefixed("simulate.bias", str(error))) from error
    if bias.kind == "frequency":
        of_classes = by_frequency(table.truth[table.official == 0].sum(axis=0), bias.power)
        return lambda rows: of_classes[None]
    if objects is None:
        remedy = "VOC has them in Annotations/, COCO in bbox; or weigh by frequency or a table"
        raise ConfigError(f"simulate.bias: {bias.kind} needs boxes, and the data gave none ({remedy})")
    return (by_size if bias.kind == "size" else by_closeness)(objects, bias.power)


def by_frequency(counts: np.ndarray, power: float) -> np.ndarray:
    """Return weights of classes by how often they occur.

    Args:
        counts: (C,) positives of each class; one that has none counts as having one.
        power: Exponent.

    Returns:
        (C,) float64 weights, above 0, the largest 1.
    """
    shares = np.maximum(counts, 1) / np.maximum(counts, 1).max()
    return shares**power / (shares**power).max()


def by_size(objects: Objects, power: float) -> Weights:
    """Return the function that weighs cells by the size of the class's largest object.

    Args:
        objects: Where objects lie.
        power: Exponent.

    Returns:
        Function of rows: (R, C) float64 weights, above 0, the largest of all rows 1.
    """
    return _powered(lambda rows: np.maximum(objects.area[rows].astype(np.float64), LEAST), objects, power)


def by_closeness(objects: Objects, power: float) -> Weights:
    """Return the function that weighs cells by how close the class's most central object lies to the picture's centre.

    Args:
        objects: Where objects lie.
        power: Exponent of the closeness, which is 1 in the centre and 0 in a corner.

    Returns:
        Function of rows: (R, C) float64 weights, above 0, the largest of all rows 1.
    """

    def closeness(rows: Any) -> np.ndarray:
        close = np.where(objects.area[rows] > 0, 1 - objects.offset[rows].astype(np.float64), 0)
        return np.maximum(close, LEAST)

    return _powered(closeness, objects, power)


def _powered(values: Weights, objects: Objects, power: float) -> Weights:
    """Return the function that gives powers of positive values, the largest of all rows 1."""
    ends = [(float(part.min()), float(part.max())) for part in map(values, row_blocks(*objects.area.shape))]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    largest = max((low / high) ** power, 1.0)
    return lambda rows: (values(rows) / high) ** power / largest


def read_weights(file: Path, table: Table, probabilities: bool = False) -> Weights:
    """Read the weights of classes, or of cells, from a text with a header; commas, semicolons or tabs between fields.

    Args:
        file: Columns `class, weight`, a line for each class; or `image, class, weight`, a line for each present label
            of the table (lines of other cells are passed over).
        table: Which images and classes there are.
        probabilities: Whether the weights are to be probabilities.

    Returns:
        Function of rows: (R, C) float64 weights, at least 0; 0 where the label is absent.

    Raises:
        SourceError: The file is missing, has another header, a line with another number of fields, a name that is not
            in the table, a duplicate cell, an invalid weight, or lacks a class or a present label. All are listed.
    """  # noqa: DOC502  raised by `Faults` too
    lines, header = _read_header(file)
    faults = Faults(file.name)
    columns = {name: number for number, name in enumerate(table.classes)}
    images = {path: number for number, path in enumerate(table.paths)} if len(header) == 3 else {}
    weights: dict[tuple[int, int], float] = {}
    for number, fields in lines:
        line, fields = f"line {number}", [unicodedata.normalize("NFC", field) for field in fields]
        if len(fields) != len(header):
            faults.add(f"lines have another number of fields than {len(header)}", line)
            continue
        row, column, weight = _row(fields[0], images) if images else 0, columns.get(fields[-2]), _weight(fields[-1])
        if row is None:
            faults.add("images are not in the dataset, whose table.h5 has the names", f"{line} {fields[0]!r}")
        if column is None:
            faults.add("classes are not in the dataset", f"{line} {fields[-2]!r}")
        if weight is None or (probabilities and weight > 1):
            kind = "no probabilities" if probabilities else "below 0"
            faults.add(f"weights are {kind} or none", f"{line} {fields[-1]!r}")
        if row is None or column is None or weight is None:
            continue
        if (row, column) in weights:
            faults.add("duplicate cells", f"{line} {', '.join(fields[:-1])}")
        weights[row, column] = weight
    _check_complete(weights, table, bool(images), faults)
    present = np.argwhere(table.truth == 1)  # in the order of rows
    values = np.array([weights.get((row if images else 0, column), 0.0) for row, column in present.tolist()])
    if not faults and not values[table.official[present[:, 0]] == 0].any():
        faults.add("weights of all present labels of training images are 0", "none would stay known")
    faults.raise_if_any()

    matrix: Any = csr_array((values, (present[:, 0], present[:, 1])), shape=table.truth.shape)
    return lambda rows: matrix[rows].toarray()


def _read_header(file: Path) -> tuple[Iterator[tuple[int, list[str]]], list[str]]:
    """Return the lines below the header, and the header.

    Raises:
        SourceError: The file is missing or has another header.
    """
    first = read_text(file).lstrip().partition("\n")[0]
    lines = read_rows(file, max(",;\t", key=first.count))
    _, header = next(lines, (0, []))
    if header not in (["class", "weight"], ["image", "class", "weight"]):
        expected = "expected class, weight or image, class, weight"
        raise SourceError(f"{file.name}: columns are {', '.join(header) or 'none'}, {expected}")
    return lines, header


def _check_complete(weights: dict[tuple[int, int], float], table: Table, by_image: bool, faults: Faults) -> None:
    """Add the present labels, or the classes that have any, whose weight is missing."""
    needed = np.asarray(table.truth == 1) if by_image else np.asarray(table.truth.any(axis=0))[None]
    for row, column in np.argwhere(needed).tolist():
        if (row, column) in weights:
            continue
        name = f"{table.paths[row]} {table.classes[column]}" if by_image else table.classes[column]
        faults.add("present labels have no weight" if by_image else "classes have no weight", name)


def _row(text: str, images: dict[str, int]) -> int | None:
    """Return the row of an image; None where there is none of that name."""
    try:
        return images.get(relative_path(text))
    except ValueError:
        return None


def _weight(text: str) -> float | None:
    """Return a weight; None where the text is no finite number from 0 on."""
    number = re.fullmatch(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", text)
    value = float(text) if number else math.inf
    return value if math.isfinite(value) else None
