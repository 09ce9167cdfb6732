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
from dataclasses import dataclass

import numpy as np

from pipeline.core import seeds
from pipeline.labels import recipe
from pipeline.labels.settings import KeptByTable, KeptCount, KeptShare, Simulate
from pipeline.labels.table import Table

PARTS = ("official_train", "official_test")  # their places are the numbers of `Table.official`


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
            observed[rows] = recipe.literature(present, settings.seed, *counts) * scored
            continue
        if settings.plain:
            known = recipe.seeded(present, seeds.numpy_generator(settings.draw, "simulate", part)) == 1
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
