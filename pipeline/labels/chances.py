"""The chance of each label to stay known: in proportion to a weight, adding up to what a draw keeps."""

import math
from collections.abc import Callable, Iterable

import numpy as np

FAINTEST = 1e-12
"""Least weight of a label beside the heaviest of its row, so that it is not lost in rounding."""
SNAP = 1e-9
"""Sums of chances within this of a whole number are taken for it."""


def chances(weights: np.ndarray, keep: np.ndarray | float) -> np.ndarray:
    """Return the chance of each label to stay known: in proportion to its weight, at most 1, adding up in each row.

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


def share_chances(
    blocks: Callable[[], Iterable[np.ndarray]], count: int, share: float
) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that gives labels their chances to stay known, so that a share of all is expected to.

    Args:
        blocks: Yields the weights of all cells, at least 0 and 0 where there is no label, in matrices of any shape; it
            is called several times.
        count: Labels, those of weight 0 included.
        share: Share of the labels, in [0, 1].

    Returns:
        Function of weights of cells: their chances, float64 in [0, 1]. It is `chances` of one row that holds all cells.
    """
    largest = max((float(block.max(initial=0)) for block in blocks()), default=0.0)
    certain, left = math.inf, share * count  # weights from `certain` on have a chance of 1

    def scale(weights: np.ndarray) -> np.ndarray:
        ratios = weights / largest if largest > 0 else np.zeros_like(weights)
        return np.where(weights > 0, np.maximum(ratios, FAINTEST), 0)

    while True:
        total = sum(float(scaled[scaled < certain].sum()) for scaled in map(scale, blocks()))
        factor = left / total if total > 0 else 0.0
        number, least = 0, certain
        for scaled in map(scale, blocks()):
            full = scaled[(scaled < certain) & (scaled * factor >= 1 - SNAP)]
            number, least = number + full.size, min(least, float(full.min(initial=math.inf)))
        if not number:
            return lambda weights: np.where(scale(weights) >= certain, 1.0, scale(weights) * factor)
        certain, left = least, max(left - number, 0.0)
