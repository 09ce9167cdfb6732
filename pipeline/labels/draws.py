"""Biased and partial label draws: each present label has a chance of staying known, and is drawn by it.

A draw has two steps. The first gives each positive its chance of staying known: in proportion to a weight, as far as a
chance goes, so that they add up to what is to be kept. The second draws labels with exactly these chances. So what a
draw is expected to hide is known before it is made.
Source: ours. The weights are those of studies of how annotators choose the label that they give: Arroyo, Perona, Cole,
"Understanding Label Bias in Single Positive Multi-Label Learning", ICLR 2023 Tiny Papers (size, place, class); the
partial labels are the general missing-label setting of Zhou et al., ECCV 2022, poster, figure (b). Fixed-size draws
are systematic sampling in random order (Goodman, Kish, JASA 1950), which has the chances asked for exactly.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from pipeline.core import seeds
from pipeline.core.errors import SourceError
from pipeline.labels import recipe
from pipeline.labels.blocks import row_blocks
from pipeline.labels.chances import SNAP, chances, share_chances
from pipeline.labels.implications import make_implications
from pipeline.labels.settings import KeptByTable, KeptCount, KeptShare, Simulate
from pipeline.labels.table import Objects, Table
from pipeline.labels.weights import Weights, bias_weights

PARTS = ("official_train", "official_test")
"""Names of the official parts; their positions are the numbers of `Table.official`."""


@dataclass(frozen=True)
class Draw:
    """Labels that stay known, and their chances, which are computed where they are asked for.

    Args:
        observed: (N, C) int8, 1 known positive, 0 unknown, -1 known negative.
        chances: Returns of (R,) rows, ascending, two matrices of (R, C) in [0, 1]: the chances that the label of a cell
            is known; and those that a positive is known after an unbiased draw of as many.
    """

    observed: np.ndarray
    chances: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

    def imply(self, table: Table) -> "Known":
        """Return all labels that are known: those drawn, what people answered, and what the rules imply of both."""
        drawn = _imply(table, self.observed)
        implied = None if table.rules is None else drawn != self.observed
        if table.corrected is None:
            return Known(drawn, implied, None)
        told = np.where(table.corrected != 0, table.corrected, self.observed)
        labels = drawn if np.array_equal(told, self.observed) else _imply(table, told)
        return Known(labels, implied, labels != drawn)


class Known(NamedTuple):
    """Labels that are known, and why."""

    labels: np.ndarray
    """(N, C) int8, 1 known positive, 0 unknown, -1 known negative."""
    implied: np.ndarray | None
    """(N, C) bool, labels that follow from those drawn by the rules; None without rules."""
    corrected: np.ndarray | None
    """(N, C) bool, labels that are known by what people answered, or follow from it; None without corrections."""


def _imply(table: Table, labels: np.ndarray) -> np.ndarray:
    """Return labels with all that the table's rules imply of them; as they are without rules."""
    if table.rules is None:
        return labels
    return make_implications(table.classes, table.rules).imply(labels).labels


def observe(root: Path, table: Table, objects: Objects | None, settings: Simulate, number: int) -> Draw:
    """Return the labels that stay known: drawn, or as the data give them.

    Args:
        root: Project root, from which the name of a table of weights counts.
        table: The table of a dataset.
        objects: Where its objects lie.
        settings: The settings.
        number: Number of the draw, which the seeded protocol reads.

    Returns:
        The labels.

    Raises:
        ConfigError: The bias does not suit the data.
        SourceError: The table of weights is faulty, or no positive of the training split stays known.
    """
    if settings.protocol == "given":
        result = given(table)
    else:
        result = draw(table, settings, bias_weights(root, table, objects, settings), number)
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
    observed = np.where(table.scored, table.truth * np.int8(2) - np.int8(1), np.int8(0))
    if table.implied is not None:
        observed[table.implied] = 0  # nobody gave these
    if table.corrected is not None:
        observed[table.corrected != 0] = 0  # nor these, or something else

    def chances(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (observed[rows] != 0).astype(np.float64), (observed[rows] == 1).astype(np.float64)

    return Draw(observed, chances)


def draw(table: Table, settings: Simulate, weights: Weights, number: int) -> Draw:
    """Return the labels that stay known.

    Each official part is drawn by itself, in row order; positives and negatives from streams of their own. Where truth
    is not known nothing is observed.

    Args:
        table: A table whose labels are exhaustive.
        settings: The settings; not of the protocol ``given``.
        weights: `bias_weights` of them.
        number: Number of the draw.

    Returns:
        The draw.
    """
    observed = np.zeros(table.truth.shape, np.int8)
    parts = [_Part(table, np.flatnonzero(table.official == code), settings, weights) for code in range(len(PARTS))]
    for part, name in zip(parts, PARTS, strict=True):
        part.draw(observed, name, number)

    def chances(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        result = np.zeros((2, len(rows), len(table.classes)))
        for code, part in enumerate(parts):
            mine = table.official[rows] == code
            result[:, mine] = part.chances(rows[mine])
        return result[0], result[1]

    return Draw(observed, chances)


class _Part:
    """The labels of one official part, and the chances of its rows, block by block.

    Args:
        table: The table.
        rows: (R,) its rows, ascending.
        settings: The settings.
        weights: Weights of the table's rows.
    """

    def __init__(self, table: Table, rows: np.ndarray, settings: Simulate, weights: Weights) -> None:
        self.table, self.rows, self.settings = table, rows, settings
        even: Weights = lambda rows: np.ones((1, 1))  # noqa: E731  as short as its use
        self.positive = self._make_chances(settings.positives, weights, self.present)
        self.negative = self._make_chances(settings.negatives, even, self.absent)
        if isinstance(settings.positives, KeptByTable):
            sums = [(self.positive(part).sum(), np.count_nonzero(self.present(part))) for part in self.blocks()]
            mean = sum(total for total, _ in sums) / max(sum(count for _, count in sums), 1)
            self.uniform: Weights = lambda rows: self.present(rows) * mean
        else:
            self.uniform = self._make_chances(settings.positives, even, self.present)

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the part's rows in blocks."""
        for block in row_blocks(len(self.rows), len(self.table.classes)):
            yield self.rows[block]

    def present(self, rows: np.ndarray) -> np.ndarray:
        """Return which labels of rows are present, (R, C) bool."""
        return self.table.truth[rows] == 1

    def absent(self, rows: np.ndarray) -> np.ndarray:
        """Return which labels of rows may be drawn as absent: the published recipe takes those of unknown truth too."""
        absent = ~self.present(rows)
        return absent if self.settings.protocol == "literature" else absent & self.table.scored[rows]

    def chances(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the chances of some of the part's rows, as `Draw` has them."""
        return (self.positive(rows) + self.negative(rows)) * self.table.scored[rows], self.uniform(rows)

    def _make_chances(
        self, kept: KeptCount | KeptShare | KeptByTable, weights: Weights, labels: Callable[[np.ndarray], np.ndarray]
    ) -> Weights:
        """Return the function that gives the chances of labels to stay known, of rows of the part."""

        def weigh(rows: np.ndarray) -> np.ndarray:
            return np.where(labels(rows), weights(rows), 0.0)

        if isinstance(kept, KeptByTable):
            return weigh
        if isinstance(kept, KeptCount):
            return lambda rows: chances(weigh(rows), kept.value)
        count = sum(int(np.count_nonzero(labels(rows))) for rows in self.blocks())
        of_weights = share_chances(lambda: map(weigh, self.blocks()), count, kept.value)
        return lambda rows: of_weights(weigh(rows))

    def draw(self, observed: np.ndarray, name: str, number: int) -> None:
        """Draw the part's labels.

        Args:
            observed: (N, C) int8 labels of the whole table, 0 in the part's rows; they are set there.
            name: Name of the part, for its random streams.
            number: Number of the draw, for them too.
        """
        settings = self.settings
        if settings.protocol == "literature":
            kept = (settings.positives, settings.negatives)
            counts = [labels.value for labels in kept if isinstance(labels, KeptCount)]  # both: the schema sees to it
            observed[self.rows] = recipe.literature(self.present(self.rows), settings.seed, *counts)
            observed[~self.table.scored] = 0
            return
        if settings.plain:
            generator = seeds.numpy_generator(number, "simulate", name)
            observed[self.rows] = recipe.seeded(self.present(self.rows), generator)
        else:
            generator = seeds.numpy_generator(number, "simulate", name, "positives")
            for rows, drawn in _sampler(settings.positives)(self.blocks, self.positive, generator):
                observed[rows] = drawn
        if settings.negatives.value:
            generator = seeds.numpy_generator(number, "simulate", name, "negatives")
            for rows, drawn in _sampler(settings.negatives)(self.blocks, self.negative, generator):
                observed[rows] -= drawn


Blocks: TypeAlias = Callable[[], Iterable[np.ndarray]]


def _sampler(
    kept: KeptCount | KeptShare | KeptByTable,
) -> Callable[[Blocks, Weights, np.random.Generator], Iterator[tuple[np.ndarray, np.ndarray]]]:
    """Return the function that draws labels with their chances."""
    return draw_fixed if isinstance(kept, KeptCount) else draw_independent


def draw_fixed(
    blocks: Blocks, chance: Weights, generator: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Draw labels with given chances, in each row as many as the chances add up to.

    Args:
        blocks: Yields the rows in blocks.
        chance: Returns of rows (R, L) chances in [0, 1], each row adding up to a whole number.
        generator: Takes a draw a cell of all blocks, then one a row.

    Yields:
        The rows of a block, and (R, L) bool. A label is drawn with its chance; rows are independent.

    Raises:
        ValueError: A row does not add up to a whole number.
    """
    ahead = copy.deepcopy(generator)  # the draws of rows follow those of all cells, which no memory should hold
    for rows in blocks():
        ahead.random(chance(rows).shape)
    for rows in blocks():
        given = chance(rows)
        total = given.sum(axis=1)
        if (np.abs(total - np.rint(total)) > 1e-6).any():
            raise ValueError("chances of a row add up to no whole number")
        order = np.argsort(generator.random(given.shape), axis=1)
        ends = np.cumsum(np.take_along_axis(given, order, axis=1), axis=1)
        ends = np.where(np.abs(ends - np.rint(ends)) < SNAP * given.shape[1], np.rint(ends), ends)
        points = np.ceil(np.pad(ends, ((0, 0), (1, 0))) - ahead.random((len(given), 1)))  # of a grid of step 1
        drawn = np.zeros(given.shape, bool)
        np.put_along_axis(drawn, order, np.diff(points, axis=1) > 0, axis=1)
        yield rows, drawn


def draw_independent(
    blocks: Blocks, chance: Weights, generator: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Draw labels, each by itself with its chance.

    Args:
        blocks: Yields the rows in blocks.
        chance: Returns of rows (R, L) chances in [0, 1].
        generator: Takes a draw a cell.

    Yields:
        The rows of a block, and (R, L) bool.
    """
    for rows in blocks():
        given = chance(rows)
        yield rows, generator.random(given.shape) < given
