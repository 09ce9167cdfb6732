"""Biased and partial label draws: with which chance each present label of an image stays known, and drawing by it.

A draw is two steps. The first gives each positive its chance of staying known: in proportion to a weight, as far as a
chance goes, so that they add up to what is to be kept. The second draws labels with exactly these chances. So what a
draw is expected to hide is known before it is made.
Source: ours. The weights are those of studies of how annotators choose the label that they give: Arroyo, Perona, Cole,
"Understanding Label Bias in Single Positive Multi-Label Learning", ICLR 2023 Tiny Papers (size, place, class); the
partial labels are the general missing-label setting of Zhou et al., ECCV 2022, poster, figure (b). Fixed-size draws
are systematic sampling in random order (Goodman, Kish, JASA 1950), which has the chances asked for exactly.
"""

import math
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline import seeds, single_positive
from pipeline.complaints import Faults
from pipeline.config import ConfigError, KeptByTable, KeptCount, KeptShare, Simulate
from pipeline.layout import delimited, read_text
from pipeline.table import Objects, SourceError, Table, relative_path

PARTS = ("official_train", "official_test")  # their places are the numbers of `Table.official`

LEAST = 1e-4
"""Least size or closeness that counts: a hundredth of the picture by a hundredth; that of a label without a box too."""
FAINTEST = 1e-12
"""Least weight of a label beside the heaviest of its row, so that it is not lost in rounding."""
SNAP = 1e-9  # sums of chances within this of a whole number are one


@dataclass(frozen=True)
class Draw:
    """What was drawn, and with which chances.

    Args:
        observed: (N, C) int8, 1 known positive, 0 unknown, -1 known negative.
        chance: (N, C) in [0, 1], that the label of a cell is known.
        uniform: (N, C) in [0, 1], that a positive is known after an unbiased draw of as many.
    """

    observed: np.ndarray
    chance: np.ndarray
    uniform: np.ndarray


def draw(table: Table, settings: Simulate, weights: np.ndarray) -> Draw:
    """Draw the labels that stay known.

    Each official part is drawn by itself, in row order; positives and negatives from streams of their own. Where truth
    is not known nothing is observed.

    Args:
        table: A table whose labels are exhaustive.
        settings: The settings; not of the protocol ``given``.
        weights: `bias_weights` of them.

    Returns:
        The draw.
    """
    shape = table.truth.shape
    observed, chance, uniform = np.zeros(shape, np.int8), np.zeros(shape), np.zeros(shape)
    weights, even = np.broadcast_to(weights, shape), np.ones((1, 1))
    published = settings.protocol == "literature"
    for number, part in enumerate(PARTS):
        rows = np.flatnonzero(table.official == number)
        present, scored = table.truth[rows] == 1, table.scored[rows]
        absent = ~present if published else ~present & scored
        positive = _chances(settings.positives, weights[rows], present)
        negative = _chances(settings.negatives, even, absent)
        chance[rows] = (positive + negative) * scored
        if isinstance(settings.positives, KeptByTable):
            uniform[rows] = present * (positive.sum() / max(np.count_nonzero(present), 1))
        else:
            uniform[rows] = _chances(settings.positives, even, present)
        if published:
            kept = (settings.positives, settings.negatives)
            counts = [wanted.value for wanted in kept if isinstance(wanted, KeptCount)]  # both: the schema sees to it
            observed[rows] = single_positive.literature(present, settings.seed, *counts) * scored
            continue
        if settings.plain:
            known = single_positive.seeded(present, seeds.numpy_generator(settings.draw, "simulate", part)) == 1
        else:
            known = _drawn(settings.positives, positive, settings.draw, part, "positives")
        observed[rows] = known
        if settings.negatives.value:
            observed[rows] -= _drawn(settings.negatives, negative, settings.draw, part, "negatives")
    return Draw(observed, chance, uniform)


def _chances(kept: KeptCount | KeptShare | KeptByTable, weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return (R, C) chances of labels to stay known."""
    weights = np.where(labels, weights, 0.0)
    if isinstance(kept, KeptByTable):
        return weights
    if isinstance(kept, KeptShare):
        return share_chances(weights, labels, kept.value)
    return chances(weights, kept.value)


def _drawn(
    kept: KeptCount | KeptShare | KeptByTable, chance: np.ndarray, number: int, part: str, what: str
) -> np.ndarray:
    """Return (R, C) bool labels, drawn with their chances."""
    generator = seeds.numpy_generator(number, "simulate", part, what)
    return (draw_fixed if isinstance(kept, KeptCount) else draw_each)(chance, generator)


def bias_weights(root: Path, table: Table, objects: Objects | None, settings: Simulate) -> np.ndarray:
    """Give each cell the weight that a bias gives it.

    Args:
        root: Project root, from which the name of a table of weights counts.
        table: The table.
        objects: Where its objects lie.
        settings: The settings.

    Returns:
        Float64 weights, at least 0, broadcastable to (N, C).

    Raises:
        ConfigError: the bias goes by boxes and there are none.
        SourceError: the table of weights is faulty.
    """
    bias = settings.bias
    if bias.kind == "uniform":
        return np.ones((1, 1))
    if bias.kind == "table":
        try:
            return read_weights(bias.path(root), table, settings.positives.kind == "table")
        except SourceError as error:
            raise SourceError(f"simulate.bias: {error}") from error
    if bias.kind == "frequency":
        return by_frequency(table.truth[table.official == 0].sum(axis=0), bias.power)[None]
    if objects is None:
        remedy = "VOC has them in Annotations/, COCO in bbox; or weigh by frequency or a table"
        raise ConfigError(f"simulate.bias: {bias.kind} needs boxes, and the data gave none ({remedy})")
    return (by_size if bias.kind == "size" else by_closeness)(objects, bias.power)


def by_frequency(counts: np.ndarray, power: float) -> np.ndarray:
    """Weigh classes by how often they occur.

    Args:
        counts: (C,) positives of each class; one that has none counts as having one.
        power: Exponent.

    Returns:
        (C,) float64 weights, above 0, the largest 1.
    """
    return _powered(np.maximum(counts, 1).astype(np.float64), power)


def by_size(objects: Objects, power: float) -> np.ndarray:
    """Weigh cells by the size of the class's largest object.

    Args:
        objects: Where objects lie.
        power: Exponent.

    Returns:
        (N, C) float64 weights, above 0, the largest 1.
    """
    return _powered(np.maximum(objects.area.astype(np.float64), LEAST), power)


def by_closeness(objects: Objects, power: float) -> np.ndarray:
    """Weigh cells by how close the class's most central object lies to the picture's centre.

    Args:
        objects: Where objects lie.
        power: Exponent of the closeness, which is 1 in the centre and 0 in a corner.

    Returns:
        (N, C) float64 weights, above 0, the largest 1.
    """
    closeness = np.where(objects.area > 0, 1 - objects.offset.astype(np.float64), 0)
    return _powered(np.maximum(closeness, LEAST), power)


def _powered(values: np.ndarray, power: float) -> np.ndarray:
    """Return powers of positive values, the largest 1."""
    powers = (values / values.max()) ** power
    return powers / powers.max()


def read_weights(file: Path, table: Table, probabilities: bool = False) -> np.ndarray:
    """Read the weights of classes, or of cells, from a text with a header; commas, semicolons or tabs between fields.

    Args:
        file: Columns `class, weight`, a line for each class; or `image, class, weight`, a line for each present label
            of the table (lines of other cells are passed over).
        table: Which images and classes there are.
        probabilities: Whether the weights are to be probabilities.

    Returns:
        (N, C) float64 weights, at least 0; 0 where the label is absent.

    Raises:
        SourceError: the file is missing, has another header, a line with another number of fields, a name that is not
            in the table, a cell twice, a weight that is none, or lacks a class or a present label. All are listed.
    """
    faults = Faults(file.name)
    head = read_text(file).lstrip().partition("\n")[0]
    lines = delimited(file, max(",;\t", key=head.count))
    _, header = next(lines, (0, []))
    if header not in (["class", "weight"], ["image", "class", "weight"]):
        raise SourceError(
            f"{file.name}: columns are {', '.join(header) or 'none'}, expected class, weight or image, class, weight"
        )
    columns = {name: number for number, name in enumerate(table.classes)}
    images = {path: number for number, path in enumerate(table.paths)} if len(header) == 3 else {}
    weights = np.full((len(table.paths) if images else 1, len(columns)), np.nan)
    for number, fields in lines:
        where, row = f"line {number}", [unicodedata.normalize("NFC", field) for field in fields]
        if len(row) != len(header):
            faults.add(f"lines have another number of fields than {len(header)}", where)
            continue
        place, column, value = _image(row[0], images) if images else 0, columns.get(row[-2]), _number(row[-1])
        if place is None:
            faults.add("images are not in the dataset, whose table.h5 has the names", f"{where} {row[0]!r}")
        if column is None:
            faults.add("classes are not in the dataset", f"{where} {row[-2]!r}")
        if value is None or (probabilities and value > 1):
            faults.add(
                f"weights are {'no probabilities' if probabilities else 'below 0'} or none", f"{where} {row[-1]!r}"
            )
        if place is None or column is None or value is None:
            continue
        if not math.isnan(weights[place, column]):
            faults.add("cells are there twice", f"{where} {', '.join(row[:-1])}")
        weights[place, column] = value
    missing = np.isnan(weights) & ((table.truth == 1) if images else table.truth.any(axis=0))
    for place, column in np.argwhere(missing):
        name = f"{table.paths[place]} {table.classes[column]}" if images else table.classes[column]
        faults.add("present labels have no weight" if images else "classes have no weight", name)
    found = np.where(table.truth == 1, np.nan_to_num(weights), 0.0)
    if not faults and not found[table.official == 0].any():
        faults.add("weights of all present labels of training images are 0", "none would stay known")
    faults.raise_if_any()
    return found


def _image(text: str, images: dict[str, int]) -> int | None:
    """Return the row of an image; None where there is none of that name."""
    try:
        return images.get(relative_path(text))
    except ValueError:
        return None


def _number(text: str) -> float | None:
    """Return a weight; None where the text is no finite number from 0 on."""
    number = re.fullmatch(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", text)
    value = float(text) if number else math.inf
    return value if math.isfinite(value) else None


def chances(weights: np.ndarray, keep: np.ndarray | float) -> np.ndarray:
    """Give each label its chance of staying known: in proportion to its weight, at most 1, adding up in each row.

    Where a label's share would exceed 1 it is 1, and the rest of the row shares what is left.

    Args:
        weights: (R, L), at least 0; 0: no label there, or one that is never kept.
        keep: (R,) or one number: what the chances of a row add up to; a row with fewer labels of weight above 0 keeps
            all of these.

    Returns:
        (R, L) float64 in [0, 1].
    """
    weights = np.asarray(weights, np.float64)
    largest = weights.max(axis=1, keepdims=True, initial=0)
    ratios = np.divide(weights, largest, out=np.zeros_like(weights), where=largest > 0)  # so that sums are finite
    weights = np.where(weights > 0, np.maximum(ratios, FAINTEST), 0)
    left = np.array(np.broadcast_to(np.asarray(keep, np.float64), len(weights)))
    result, free = np.zeros(weights.shape), weights > 0
    while True:
        total = np.where(free, weights, 0).sum(axis=1)
        factor = np.divide(left, total, out=np.zeros_like(left), where=total > 0)
        shares = np.where(free, weights * factor[:, None], 0)
        full = shares >= 1 - SNAP
        if not full.any():
            return np.where(free, shares, result)
        result[full] = 1
        free &= ~full
        left = np.maximum(left - full.sum(axis=1), 0)


def share_chances(weights: np.ndarray, labels: np.ndarray, share: float) -> np.ndarray:
    """Give each label its chance of staying known, so that a share of all labels is expected to.

    Args:
        weights: (N, C), at least 0.
        labels: (N, C) bool, which cells are labels.
        share: Share of the labels, in [0, 1].

    Returns:
        (N, C) float64 in [0, 1], 0 where there is no label.
    """
    flat = np.where(labels, weights, 0).reshape(1, -1)
    return chances(flat, share * np.count_nonzero(labels)).reshape(labels.shape)


def draw_fixed(chance: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draw labels with given chances, in each row as many as the chances add up to.

    Args:
        chance: (R, L) in [0, 1], each row adding up to a whole number.
        generator: Takes L + 1 draws a row.

    Returns:
        (R, L) bool. A label is drawn with its chance; rows are independent.

    Raises:
        ValueError: a row does not add up to a whole number.
    """
    total = chance.sum(axis=1)
    if (np.abs(total - np.rint(total)) > 1e-6).any():
        raise ValueError("chances of a row add up to no whole number")
    order = np.argsort(generator.random(chance.shape), axis=1)
    ends = np.cumsum(np.take_along_axis(chance, order, axis=1), axis=1)
    ends = np.where(np.abs(ends - np.rint(ends)) < SNAP * chance.shape[1], np.rint(ends), ends)
    points = np.ceil(np.pad(ends, ((0, 0), (1, 0))) - generator.random((len(chance), 1)))  # of a grid of step 1
    drawn = np.zeros(chance.shape, bool)
    np.put_along_axis(drawn, order, np.diff(points, axis=1) > 0, axis=1)
    return drawn


def draw_each(chance: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draw each label by itself.

    Args:
        chance: (R, L) in [0, 1].
        generator: Takes a draw a cell.

    Returns:
        (R, L) bool.
    """
    return generator.random(chance.shape) < chance


def from_uniform(observed: np.ndarray, uniform: np.ndarray, fixed: bool) -> tuple[float | None, float | None]:
    """Measure how far the classes of a draw are from those of an unbiased one.

    Args:
        observed: (C,) positives that stayed known.
        uniform: (N, C) chances of an unbiased draw.
        fixed: Whether each row keeps a fixed number, so that the total is no matter of chance.

    Returns:
        The total variation distance between the classes' shares, in [0, 1]: the part of the known positives that would
        have to be of another class; and what an unbiased draw has of it by chance (mean of a normal's absolute value).
        None where nothing is known or expected.
    """
    expected = uniform.sum(axis=0)
    if not observed.sum() or not expected.sum():
        return None, None
    variance, share = (uniform * (1 - uniform)).sum(axis=0), expected / expected.sum()
    if not fixed:  # of a class's count less its share of the total, which varies with it
        variance = (1 - 2 * share) * variance + share**2 * variance.sum()
    spread = np.sqrt(2 / math.pi * variance)
    distance = np.abs(observed / observed.sum() - expected / expected.sum()).sum() / 2
    return float(distance), float(spread.sum() / expected.sum() / 2)
