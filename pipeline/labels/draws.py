"""Biased and partial label draws: each present label has a chance of staying known, and is drawn by it.

A draw has two steps. The first gives each positive its chance of staying known: in proportion to a weight, as far as a
chance goes, so that they add up to what is to be kept. The second draws labels with exactly these chances. So what a
draw is expected to hide is known before it is made.
Source: ours. The weights are those of studies of how annotators choose the label that they give: Arroyo, Perona, Cole,
"Understanding Label Bias in Single Positive Multi-Label Learning", ICLR 2023 Tiny Papers (size, place, class); the
partial labels are the general missing-label setting of Zhou et al., ECCV 2022, poster, figure (b). Fixed-size draws
are systematic sampling in random order (Goodman, Kish, JASA 1950), which has the chances asked for exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.core import seeds
from pipeline.core.errors import SourceError
from pipeline.labels import recipe
from pipeline.labels.chances import SNAP, chances, share_chances
from pipeline.labels.settings import KeptByTable, KeptCount, KeptShare, Simulate
from pipeline.labels.table import Objects, Table
from pipeline.labels.weights import bias_weights

PARTS = ("official_train", "official_test")
"""Names of the official parts; their positions are the numbers of `Table.official`."""


@dataclass(frozen=True)
class Draw:
    """Labels that stay known, and their chances.

    Args:
        observed: (N, C) int8, 1 known positive, 0 unknown, -1 known negative.
        chance: (N, C) in [0, 1], that the label of a cell is known.
        uniform: (N, C) in [0, 1], that a positive is known after an unbiased draw of as many.
    """

    observed: np.ndarray
    chance: np.ndarray
    uniform: np.ndarray


def observe(root: Path, table: Table, objects: Objects | None, settings: Simulate) -> Draw:
    """Return the labels that stay known: drawn, or as the data give them.

    Args:
        root: Project root, from which the name of a table of weights counts.
        table: The table of a dataset.
        objects: Where its objects lie.
        settings: The settings.

    Returns:
        The labels.

    Raises:
        ConfigError: The bias does not suit the data.
        SourceError: The table of weights is faulty, or no positive of the training split stays known.
    """
    if settings.protocol == "given":
        result = given(table)
    else:
        result = draw(table, settings, bias_weights(root, table, objects, settings))
    if not (result.observed[table.rows("train")] == 1).any():
        raise SourceError("simulate: no positive is known in the training split: nothing could be learned")
    return result


def given(table: Table) -> Draw:
    """Return labels that are not exhaustive as what is observed: nothing is drawn.

    Args:
        table: A table whose labels are not exhaustive.

    Returns:
        The labels: 1 known present, -1 known absent, 0 unknown.
    """
    observed = np.where(table.scored, np.where(table.truth == 1, 1, -1), 0).astype(np.int8)
    return Draw(observed, (observed != 0).astype(np.float64), (observed == 1).astype(np.float64))


def draw(table: Table, settings: Simulate, weights: np.ndarray) -> Draw:
    """Return the labels that stay known.

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
    result = Draw(np.zeros(shape, np.int8), np.zeros(shape), np.zeros(shape))
    weights = np.broadcast_to(weights, shape)
    for number, part in enumerate(PARTS):
        rows = np.flatnonzero(table.official == number)
        drawn = _draw_part(table.truth[rows] == 1, table.scored[rows], weights[rows], settings, part)
        result.observed[rows], result.chance[rows], result.uniform[rows] = drawn.observed, drawn.chance, drawn.uniform
    return result


def _draw_part(present: np.ndarray, scored: np.ndarray, weights: np.ndarray, settings: Simulate, part: str) -> Draw:
    """Return the labels of one official part that stay known; ``present`` and ``scored`` are (R, C) bool."""
    published, even = settings.protocol == "literature", np.ones((1, 1))
    absent = ~present if published else ~present & scored
    positive = _chances(settings.positives, weights, present)
    negative = _chances(settings.negatives, even, absent)
    if isinstance(settings.positives, KeptByTable):
        uniform = present * (positive.sum() / max(np.count_nonzero(present), 1))
    else:
        uniform = _chances(settings.positives, even, present)
    if published:
        kept = (settings.positives, settings.negatives)
        counts = [labels.value for labels in kept if isinstance(labels, KeptCount)]  # both: the schema sees to it
        observed = recipe.literature(present, settings.seed, *counts) * scored
    else:
        observed = _draw_labels(present, positive, negative, settings, part)
    return Draw(observed, (positive + negative) * scored, uniform)


def _draw_labels(
    present: np.ndarray, positive: np.ndarray, negative: np.ndarray, settings: Simulate, part: str
) -> np.ndarray:
    """Return (R, C) int8 observed labels of the seeded protocol, from the chances of positives and of negatives."""
    if settings.plain:
        observed = recipe.seeded(present, seeds.numpy_generator(settings.draw, "simulate", part))
    else:
        generator = seeds.numpy_generator(settings.draw, "simulate", part, "positives")
        observed = _sampler(settings.positives)(positive, generator).astype(np.int8)
    if settings.negatives.value:
        generator = seeds.numpy_generator(settings.draw, "simulate", part, "negatives")
        observed -= _sampler(settings.negatives)(negative, generator)
    return observed


def _chances(kept: KeptCount | KeptShare | KeptByTable, weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return (R, C) chances of labels to stay known."""
    weights = np.where(labels, weights, 0.0)
    if isinstance(kept, KeptByTable):
        return weights
    if isinstance(kept, KeptShare):
        return share_chances(weights, labels, kept.value)
    return chances(weights, kept.value)


def _sampler(
    kept: KeptCount | KeptShare | KeptByTable,
) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """Return the function that draws labels with their chances."""
    return draw_fixed if isinstance(kept, KeptCount) else draw_independent


def draw_fixed(chance: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return labels drawn with given chances, in each row as many as the chances add up to.

    Args:
        chance: (R, L) in [0, 1], each row adding up to a whole number.
        generator: Takes L + 1 draws a row.

    Returns:
        (R, L) bool. A label is drawn with its chance; rows are independent.

    Raises:
        ValueError: A row does not add up to a whole number.
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


def draw_independent(chance: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return labels each drawn by itself with its chance.

    Args:
        chance: (R, L) in [0, 1].
        generator: Takes a draw a cell.

    Returns:
        (R, L) bool.
    """
    return generator.random(chance.shape) < chance
