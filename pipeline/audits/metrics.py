"""Average precision from logits, with both rules for classes that have no positive.

Scores are ranked as they are: pass float32 or float64 logits, never half-precision probabilities, whose ties change
the result. Equal scores form one threshold (step-wise, no interpolation; scikit-learn's definition, as in Cole et al.
2021, metrics.py). A training run asks for it once an epoch on val, twice with averaged weights, and at its end once
more for each epoch on val, and on train where its logits are kept, and once on val and on test.
"""

import numpy as np

CELLS = 1 << 20
"""Cells that are ranked at a time: some 40 MB."""


def average_precision(truth: np.ndarray, scores: np.ndarray, scored: np.ndarray | None = None) -> list[float | None]:
    """Return the average precision of each class.

    Args:
        truth: (N, C) labels, 1 or 0.
        scores: (N, C) finite scores, higher means more present; unbounded.
        scored: (N, C) bool; cells that are False are left out. None: all count.

    Returns:
        C values in [0, 1]; None for a class without a positive among its scored cells, and for one without a negative,
        for which any scores would give 1.

    Raises:
        ValueError: Shapes differ, a label is neither 1 nor 0, or a score is not finite.

    Examples:
        >>> average_precision(np.array([[1, 0], [0, 0], [1, 0]]), np.array([[3.0, 1.0], [2.0, 0.0], [1.0, 5.0]]))
        [0.8333333333333333, None]
    """
    truth, scores = np.asarray(truth), np.asarray(scores)
    if truth.shape != scores.shape or truth.ndim != 2:
        raise ValueError(f"truth {truth.shape} and scores {scores.shape} must have one shape (N, C)")
    if not ((truth == 0) | (truth == 1)).all():
        raise ValueError("truth must hold 1 and 0 only")
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite: NaN has no rank")
    counted = np.ones(truth.shape, bool) if scored is None else np.asarray(scored, bool)
    both, _ = measurable(truth, counted)
    result: list[float | None] = [None] * truth.shape[1]
    columns = np.flatnonzero(both)
    for part in np.array_split(columns, max(1, -(-len(columns) * len(truth) // CELLS))):
        values = _rank(truth[:, part] * counted[:, part], np.where(counted[:, part], scores[:, part], -np.inf))
        for column, value in zip(part, values, strict=True):
            result[column] = float(value)
    return result


def measurable(truth: np.ndarray, scored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which classes have both a positive and a negative among their scored cells, and which positives alone.

    Args:
        truth: (N, C) labels, 1 or 0.
        scored: (N, C) bool, the cells that count.

    Returns:
        (C,) bool, twice.
    """
    positive, negative = ((truth == 1) & scored).any(0), ((truth == 0) & scored).any(0)
    return positive & negative, positive & ~negative


def _rank(truth: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return (C,) average precisions of (N, C) labels with a positive in each column; -inf is ranked after all."""
    order = np.argsort(-scores.T, axis=1)
    ranked = np.take_along_axis(scores.T, order, 1)
    hits = np.cumsum(np.take_along_axis(truth.T, order, 1), axis=1, dtype=np.int64)  # at or above each place
    ends = np.ones(ranked.shape, bool)  # the last place of each threshold
    ends[:, :-1] = ranked[:, 1:] != ranked[:, :-1]
    reached = np.where(ends, hits, 0)
    before = np.zeros_like(reached)
    before[:, 1:] = np.maximum.accumulate(reached, axis=1)[:, :-1]
    gained = np.where(ends, hits - before, 0)
    return (gained * (hits / np.arange(1, len(truth) + 1))).sum(1) / hits[:, -1]


def mean_average_precision(truth: np.ndarray, scores: np.ndarray, scored: np.ndarray | None = None) -> dict:
    """Return the mean of the classes' average precisions, in percent, by both rules for absent classes.

    Args:
        truth: (N, C) labels, 1 or 0.
        scores: (N, C) finite scores.
        scored: (N, C) bool; cells that are False are left out. None: all count.

    Returns:
        ``map`` over the classes with a positive and a negative (None where there is none), ``map_absent_zero`` over all
        classes with absent ones counted 0 and those without a negative 1 (the SPML literature's rule), ``present`` the
        number of classes in ``map``, ``without_negative`` that of classes with positives alone, and ``ap`` the
        per-class values in [0, 1].

    Examples:
        >>> mean_average_precision(np.array([[1, 0], [0, 0]]), np.array([[1.0, 0.0], [0.0, 0.0]]))
        {'map': 100.0, 'map_absent_zero': 50.0, 'present': 1, 'without_negative': 0, 'ap': [1.0, None]}
    """
    ap = average_precision(truth, scores, scored)
    values = [value for value in ap if value is not None]
    counted = np.ones(np.shape(truth), bool) if scored is None else np.asarray(scored, bool)
    without_negative = int(measurable(np.asarray(truth), counted)[1].sum())
    return {
        "map": 100 * float(np.mean(values)) if values else None,
        "map_absent_zero": 100 * (float(np.sum(values)) + without_negative) / len(ap),
        "present": len(values),
        "without_negative": without_negative,
        "ap": ap,
    }
