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
        values: (n,) beliefs that a cell is present, in [0, 1].

    Returns:
        ``cells`` (n), ``mean``, ``quantile_0.5``, ``quantile_0.9``, ``quantile_0.99``, ``largest``, and
        ``likely_present``, the number of cells above 0.5; all but ``cells`` are None without a cell.

    Raises:
        ValueError: A belief is outside [0, 1].
    """
    values = np.asarray(values, dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():  # a NaN fails too
        raise ValueError("a belief on an unknown cell is outside [0, 1]")
    names = ("mean", *(f"quantile_{share}" for share in QUANTILES), "largest", "likely_present")
    if not values.size:
        return {"cells": 0, **dict.fromkeys(names)}
    quantiles = np.quantile(values, QUANTILES).tolist()
    figures = (float(values.mean()), *quantiles, float(values.max()), int((values > 0.5).sum()))
    return {"cells": int(values.size), **dict(zip(names, figures, strict=True))}


def likeliest(belief: np.ndarray, probability: np.ndarray, unknown: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Return the unknown cells that are taken to be present first of all.

    A method that rounds its beliefs, or takes every unknown cell to be absent, believes the same of many cells; of
    these the network's probability decides, and of equal ones the position in the matrix.

    Args:
        belief: (N, C) belief that a cell is present, in [0, 1].
        probability: (N, C) the network's probability, in [0, 1].
        unknown: (N, C) bool, the cells to choose from.
        most: Number of cells to return, at least 1; fewer where there are not as many.

    Returns:
        (row, column) of each, the likeliest first.
    """
    rows, columns = np.nonzero(unknown)  # in the order of the matrix, which lexsort keeps for equal keys
    order = np.lexsort((-probability[rows, columns], -belief[rows, columns]))[:most]
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))
