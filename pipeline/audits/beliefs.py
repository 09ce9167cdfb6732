"""Beliefs about unknown cells, with no truth to hold them against: how they spread, and the likeliest cells.

Where the given labels are not exhaustive, nobody knows which unknown cells are present; how present a method takes them
to be, and which it takes to be present first of all, can still be said.
Source: ours.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline.labels.blocks import CELLS, row_blocks

QUANTILES = (0.5, 0.9, 0.99)


def spread(values: np.ndarray, belief_of: Callable[[np.ndarray], np.ndarray] | None = None) -> dict[str, Any]:
    """Return how beliefs spread.

    Args:
        values: (n,) beliefs that a cell is present, in [0, 1], or what they are made of; their order is lost.
        belief_of: Makes float64 beliefs of values, which it must not reorder; None: the values are beliefs.

    Returns:
        ``cells`` (n), ``mean``, ``quantile_0.5``, ``quantile_0.9``, ``quantile_0.99``, ``largest``, and
        ``likely_present``, the number of cells above 0.5; all but ``cells`` are None without a cell.

    Raises:
        ValueError: A belief is outside [0, 1].
    """
    values, n = np.asarray(values), np.size(values)
    make = belief_of or (lambda part: part.astype(np.float64))
    names = ("mean", *(f"quantile_{share}" for share in QUANTILES), "largest", "likely_present")
    if not n:
        return {"cells": 0, **dict.fromkeys(names)}
    lowest, largest = make(np.array([values.min(), values.max()])).tolist()  # a NaN is both
    if not (lowest >= 0 and largest <= 1):
        raise ValueError("a belief on an unknown cell is outside [0, 1]")
    mean = _sum(values, make) / n
    likely = sum(int(np.count_nonzero(make(values[at : at + CELLS]) > 0.5)) for at in range(0, n, CELLS))
    places = [share * (n - 1) for share in QUANTILES]
    below = [int(place) for place in places]
    above = [min(place + 1, n - 1) for place in below]
    values.partition(sorted({*below, *above}))
    pairs = [make(values[[low, high]]) for low, high in zip(below, above, strict=True)]
    quantiles = [float(np.quantile(pair, place % 1)) for pair, place in zip(pairs, places, strict=True)]
    return {"cells": n, **dict(zip(names, (mean, *quantiles, largest, likely), strict=True))}


def _sum(values: np.ndarray, make: Callable[[np.ndarray], np.ndarray]) -> float:
    """Return the sum that numpy gives of all values in float64, making a block of them at a time.

    It halves as numpy's pairwise sum does, so that no bit differs.
    """
    if len(values) <= CELLS:
        return float(make(values).sum())
    half = len(values) // 2
    half -= half % 8
    return _sum(values[:half], make) + _sum(values[half:], make)


def gather(values: Any, cells: np.ndarray) -> np.ndarray:
    """Return the values of some cells, in the order of the matrix, read by blocks of rows.

    Args:
        values: (N, C), an array or an open HDF5 dataset.
        cells: (N, C) bool.
    """
    found, at = np.empty(int(np.count_nonzero(cells)), values.dtype), 0
    for rows in row_blocks(*cells.shape):
        part = values[rows][cells[rows]]
        found[at : at + len(part)] = part
        at += len(part)
    return found


def likeliest(belief: Any, logits: Any, unknown: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Return the unknown cells that are taken to be present first of all.

    A method that rounds its beliefs believes the same of many cells; of these the network's logit decides, and of equal
    ones the position in the matrix.

    Args:
        belief: (N, C) belief that a cell is present, in [0, 1]; an array or an open HDF5 dataset.
        logits: (N, C) the network's logits, likewise.
        unknown: (N, C) bool, the cells to choose from.
        most: Number of cells to return, at least 1; fewer where there are not as many.

    Returns:
        (row, column) of each, the likeliest first.
    """
    sure, tied = _split_at(belief, unknown, most)
    if tied.any():
        above, level = _split_at(logits, tied, most - int(np.count_nonzero(sure)))
        sure |= above
        sure |= level
    rows, columns = np.nonzero(sure)  # in the order of the matrix, which lexsort keeps for equal keys
    order = np.lexsort((-gather(logits, sure), -gather(belief, sure)))[:most]
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))


def _split_at(values: Any, cells: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells above the value of the last of the ``most`` highest, and those at it; two (N, C) bool."""
    chosen = gather(values, cells)
    above, level = np.zeros_like(cells), np.zeros_like(cells)
    if len(chosen) <= most:
        return cells.copy(), level
    place = len(chosen) - most
    chosen.partition(place)
    for rows in row_blocks(*cells.shape):
        part = values[rows]
        above[rows], level[rows] = cells[rows] & (part > chosen[place]), cells[rows] & (part == chosen[place])
    return above, level
