"""Beliefs about unknown cells, with no truth to hold them against: how they spread, and the likeliest cells.

Where the given labels are not exhaustive, nobody knows which unknown cells are present; how present a method takes them
to be, and which it takes to be present first of all, can still be said.
Source: ours.
"""

from typing import Any

import numpy as np

QUANTILES = (0.5, 0.9, 0.99)


def spread(values: np.ndarray) -> dict[str, Any]:
    """Return how beliefs spread.

    Args:
        values: (n,) beliefs that a cell is present, in [0, 1]; their order is lost.

    Returns:
        ``cells`` (n), ``mean``, ``quantile_0.5``, ``quantile_0.9``, ``quantile_0.99``, ``largest``, and
        ``likely_present``, the number of cells above 0.5; all but ``cells`` are None without a cell.

    Raises:
        ValueError: A belief is outside [0, 1].
    """
    values = np.asarray(values, dtype=np.float64)
    if values.size and not (values.min() >= 0 and values.max() <= 1):  # a NaN fails too
        raise ValueError("a belief on an unknown cell is outside [0, 1]")
    names = ("mean", *(f"quantile_{share}" for share in QUANTILES), "largest", "likely_present")
    if not values.size:
        return {"cells": 0, **dict.fromkeys(names)}
    mean, largest, likely = float(values.mean()), float(values.max()), int(np.count_nonzero(values > 0.5))
    quantiles = np.quantile(values, QUANTILES, overwrite_input=True).tolist()
    return {"cells": int(values.size), **dict(zip(names, (mean, *quantiles, largest, likely), strict=True))}


def likeliest(belief: np.ndarray, logits: np.ndarray, unknown: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Return the unknown cells that are taken to be present first of all.

    A method that rounds its beliefs believes the same of many cells; of these the network's logit decides, and of equal
    ones the position in the matrix.

    Args:
        belief: (N, C) belief that a cell is present, in [0, 1].
        logits: (N, C) the network's logits.
        unknown: (N, C) bool, the cells to choose from.
        most: Number of cells to return, at least 1; fewer where there are not as many.

    Returns:
        (row, column) of each, the likeliest first.
    """
    sure, tied = _split_at(belief, unknown, most)
    if tied.any():
        above, level = _split_at(logits, tied, most - int(np.count_nonzero(sure)))
        sure |= above | level
    rows, columns = np.nonzero(sure)  # in the order of the matrix, which lexsort keeps for equal keys
    order = np.lexsort((-logits[rows, columns], -belief[rows, columns]))[:most]
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))


def _split_at(values: np.ndarray, cells: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells above the value of the last of the ``most`` highest, and those at it; two (N, C) bool."""
    chosen = values[cells]
    if len(chosen) <= most:
        return cells.copy(), np.zeros_like(cells)
    place = len(chosen) - most
    chosen.partition(place)
    return cells & (values > chosen[place]), cells & (values == chosen[place])
