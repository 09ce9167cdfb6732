"""Average precision from logits, with both rules for classes that have no positive.

Scores are ranked as they are: pass float32 or float64 logits, never half-precision probabilities, whose ties change
the result. Equal scores form one threshold (step-wise, no interpolation; scikit-learn's definition, as in Cole et al.
2021, metrics.py).
"""

import numpy as np
from sklearn.metrics import average_precision_score


def average_precision(truth: np.ndarray, scores: np.ndarray, scored: np.ndarray | None = None) -> list[float | None]:
    """Return the average precision of each class.

    Args:
        truth: (N, C) labels, 1 or 0.
        scores: (N, C) finite scores, higher means more present; unbounded.
        scored: (N, C) bool; cells that are False are left out. None: all count.

    Returns:
        C values in [0, 1]; None for a class without a positive among its scored cells.

    Raises:
        ValueError: Shapes differ, a label is neither 1 nor 0, or a score is not finite.

    Examples:
        >>> average_precision(np.array([[1, 0], [0, 0], [1, 0]]), np.array([[3.0, 1.0], [2.0, 0.0], [1.0, 5.0]]))
        [0.8333333333333333, None]
    """
    truth, scores = np.asarray(truth), np.asarray(scores)
    if truth.shape != scores.shape or truth.ndim != 2:
        raise ValueError(f"truth {truth.shape} and scores {scores.shape} must have one shape (N, C)")
    if not np.isin(truth, (0, 1)).all():
        raise ValueError("truth must hold 1 and 0 only")
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite: NaN has no rank")
    result: list[float | None] = []
    for column in range(truth.shape[1]):
        rows = slice(None) if scored is None else np.asarray(scored)[:, column]
        labels = truth[rows, column]
        result.append(float(average_precision_score(labels, scores[rows, column])) if labels.any() else None)
    return result


def mean_average_precision(truth: np.ndarray, scores: np.ndarray, scored: np.ndarray | None = None) -> dict:
    """Return the mean of the classes' average precisions, in percent, by both rules for absent classes.

    Args:
        truth: (N, C) labels, 1 or 0.
        scores: (N, C) finite scores.
        scored: (N, C) bool; cells that are False are left out. None: all count.

    Returns:
        ``map`` over the classes with a positive (None where there is none), ``map_absent_zero`` over all classes with
        absent ones counted 0 (the SPML literature's rule), ``present`` the number of classes with a positive, and
        ``ap`` the per-class values in [0, 1].

    Examples:
        >>> mean_average_precision(np.array([[1, 0], [0, 0]]), np.array([[1.0, 0.0], [0.0, 0.0]]))
        {'map': 100.0, 'map_absent_zero': 50.0, 'present': 1, 'ap': [1.0, None]}
    """
    ap = average_precision(truth, scores, scored)
    values = [value for value in ap if value is not None]
    return {
        "map": 100 * float(np.mean(values)) if values else None,
        "map_absent_zero": 100 * float(np.sum(values)) / len(ap),
        "present": len(values),
        "ap": ap,
    }
