"""The chance of each label to stay known: in proportion to a weight, adding up to what a draw keeps."""

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


def share_chances(weights: np.ndarray, labels: np.ndarray, share: float) -> np.ndarray:
    """Return the chance of each label to stay known, so that a share of all labels is expected to.

    Args:
        weights: (N, C), at least 0.
        labels: (N, C) bool, which cells are labels.
        share: Share of the labels, in [0, 1].

    Returns:
        (N, C) float64 in [0, 1], 0 where there is no label.
    """
    flat = np.where(labels, weights, 0).reshape(1, -1)
    return chances(flat, share * np.count_nonzero(labels)).reshape(labels.shape)
