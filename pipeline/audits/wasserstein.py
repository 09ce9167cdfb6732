"""Wasserstein-1 separation between hidden positives and true negatives among the cells without a label.

distance = integral over [0, 1] of |F_positive(p) - F_negative(p)| dp, where F is the empirical distribution of the
probabilities p = sigmoid(logit) of one group; in [0, 1], and 1 where all hidden positives have p = 1 and all
negatives 0.

Source: Zhou et al., ECCV 2022, Figure 4a (per class) and Chen et al. (GR Loss), IJCAI 2024, Figure 3a (pooled).
Authors' code: yan4xi1/GRLoss @5e13f7f, instrumentation.py `prob_stat`.
Differs from the source in:
- raw probabilities are compared; the helper `cal` of the authors' file takes histogram counts as if they were samples;
- a group without cells makes the distance None, with the reason.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from scipy.stats import wasserstein_distance


def distance(
    a: ArrayLike, b: ArrayLike, weights_a: ArrayLike | None = None, weights_b: ArrayLike | None = None
) -> float | None:
    """Return the Wasserstein-1 distance between two samples of numbers.

    Args:
        a: (n,) values.
        b: (m,) values.
        weights_a: (n,) weights >= 0, e.g. the counts of a histogram whose bin centres are ``a``; None: all equal.
        weights_b: (m,) likewise.

    Returns:
        The distance in the values' unit; None where a sample is empty.

    Raises:
        ValueError: A value is not finite.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if not a.size or not b.size:
        return None
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("a distance between samples that hold NaN or infinity is not defined")
    return float(wasserstein_distance(a, b, weights_a, weights_b))


def separation(
    logits: np.ndarray, truth: np.ndarray, observed: np.ndarray, scored: np.ndarray | None = None
) -> dict[str, Any]:
    """Measure how far a network sets hidden positives apart from true negatives.

    Args:
        logits: (N, C) finite logits.
        truth: (N, C) labels, 1 or 0.
        observed: (N, C) known labels; only cells that are 0 (unannotated) enter.
        scored: (N, C) bool; cells that are False are left out. None: all enter.

    Returns:
        ``per_class`` (C distances in [0, 1] or None), ``reason`` (C texts, None where the distance is defined),
        ``counts_positive`` and ``counts_negative`` (C numbers of cells), ``pooled`` (all classes' cells together) with
        ``pooled_reason``, ``mean_over_defined`` (mean of the defined classes, or None) and ``defined`` (their number).

    Raises:
        ValueError: Shapes differ, or a logit is not finite.
    """
    logits, truth, observed = np.asarray(logits, dtype=np.float64), np.asarray(truth), np.asarray(observed)
    if logits.ndim != 2 or not logits.shape == truth.shape == observed.shape:
        raise ValueError(f"logits, truth and observed must be (N, C): {logits.shape}, {truth.shape}, {observed.shape}")
    if not np.isfinite(logits).all():
        raise ValueError("a logit is not finite")
    unknown = observed == 0
    if scored is not None:
        unknown &= np.asarray(scored, dtype=bool)
    positive, negative = unknown & (truth == 1), unknown & (truth == 0)
    probability = expit(logits)
    values, reasons = [], []
    for c in range(logits.shape[1]):
        values.append(distance(probability[positive[:, c], c], probability[negative[:, c], c]))
        reasons.append(_reason(bool(positive[:, c].any()), bool(negative[:, c].any())))
    defined = [value for value in values if value is not None]
    return {
        "per_class": values,
        "reason": reasons,
        "counts_positive": positive.sum(axis=0).tolist(),
        "counts_negative": negative.sum(axis=0).tolist(),
        "pooled": distance(probability[positive], probability[negative]),
        "pooled_reason": _reason(bool(positive.any()), bool(negative.any())),
        "mean_over_defined": float(np.mean(defined)) if defined else None,
        "defined": len(defined),
    }


def share_above(values: list[float | None], others: list[float | None]) -> float | None:
    """Return the share of classes that one run separates better than another.

    Args:
        values: C distances, None where undefined.
        others: C distances of the other run.

    Returns:
        Share in [0, 1] of the classes defined in both whose distance is strictly larger; None where there is none.
    """
    pairs = [(a, b) for a, b in zip(values, others, strict=True) if a is not None and b is not None]
    return sum(a > b for a, b in pairs) / len(pairs) if pairs else None


def _reason(has_positive: bool, has_negative: bool) -> str | None:
    missing = [
        name for name, present in (("hidden positive", has_positive), ("true negative", has_negative)) if not present
    ]
    return f"no {' and no '.join(missing)} among the unannotated cells" if missing else None
