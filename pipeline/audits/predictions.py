"""How good predictions are against the truth: ranking, chosen labels and intervals.

Average precision is that of `metrics`. With TP_c, P_c and N_c the hits, the chosen and the present labels of class c:

    CP = mean TP_c / P_c (0 where nothing was chosen),  CR = mean TP_c / N_c,  CF1 = 2 CP CR / (CP + CR)
    OP = sum TP_c / sum P_c,  OR = sum TP_c / sum N_c,  OF1 = 2 OP OR / (OP + OR)

over the classes that are present in some image, as Wang et al. (CNN-RNN, CVPR 2016) and most after them. Precision at
k, coverage error and ranking loss go by the order of an image's classes (Tsoumakas, Katakis, Vlahavas, "Mining
Multi-label Data", 2010; scikit-learn's ``coverage_error`` and ``label_ranking_loss``).
Intervals: percentiles of a bootstrap over images (Efron, Tibshirani 1993).
"""

from typing import Any

import numpy as np

from pipeline.audits.metrics import mean_average_precision
from pipeline.audits.unlabelled import Estimate, estimate, resample_rows

AT = (1, 3, 5)
"""k of precision at k."""
LEVEL = 0.95
CELLS = 1 << 22
"""Images times resamples that are worked on at once, at most."""


def score_predictions(
    truth: np.ndarray, scores: np.ndarray, chosen: np.ndarray, scored: np.ndarray, resamples: int, seed: int = 0
) -> dict[str, Any]:
    """Return how good predictions are, in percent but for coverage error and ranking loss.

    Args:
        truth: (N, C) labels, 1 or 0; N at least 1.
        scores: (N, C) finite scores, higher means more present.
        chosen: (N, C) bool, labels that are taken to be present.
        scored: (N, C) bool, cells that count.
        resamples: Of the bootstrap; 0: no intervals.
        seed: Of the bootstrap.

    Returns:
        ``map``, ``map_absent_zero``, ``cf1``, ``of1`` with their precision and recall, ``precision_at``, by k,
        ``coverage_error``, ``ranking_loss``, ``intervals`` of the first three by name, and ``classes``, each with
        ``support``, ``chosen``, ``ap`` and ``interval``. None is what is not defined.

    Raises:
        ValueError: Shapes differ, or a value is none of those.
    """
    if not truth.shape == scores.shape == chosen.shape == scored.shape:
        raise ValueError(f"truth {truth.shape}, scores {scores.shape}, chosen {chosen.shape}, scored {scored.shape}")
    ranked = mean_average_precision(truth, scores, scored)
    counts = count_chosen(truth, chosen, scored)
    result = {key: ranked[key] for key in ("map", "map_absent_zero")} | f1_of_counts(*counts.sum(axis=0))
    result["precision_at"] = {str(k): precision_at(truth, scores, scored, k) for k in AT if k <= truth.shape[1]}
    result["coverage_error"] = coverage_error(truth, scores, scored)
    result["ranking_loss"] = ranking_loss(truth, scores, scored)
    drawn = _bootstrap(truth, scores, scored, counts, resamples, seed) if resamples else {}
    result["intervals"] = {key: _interval(drawn[key]) if drawn else None for key in ("map", "cf1", "of1")}
    hits = counts.sum(axis=0)
    result["classes"] = [
        {
            "support": int(hits[2, column]),
            "chosen": int(hits[1, column]),
            "ap": None if value is None else 100 * value,
            "interval": _interval(drawn["ap"][:, column]) if drawn and value is not None else None,
        }
        for column, value in enumerate(ranked["ap"])
    ]
    return result


def estimate_map(
    truth: np.ndarray, scores: np.ndarray, scored: np.ndarray, resamples: int, groups: np.ndarray | None = None
) -> Estimate:
    """Return mAP over the classes that can be ranked, in percent, with its interval over images.

    Args:
        truth: (N, C) labels, 1 or 0.
        scores: (N, C) finite scores, higher means more present.
        scored: (N, C) bool, cells that count; a class has both labels among them.
        resamples: Of the bootstrap.
        groups: (N,) numbers of groups of images, which are drawn whole; None: images are.
    """
    weights = resample_rows(len(truth), resamples, np.random.default_rng(0), groups)
    step = max(1, CELLS // len(truth))
    columns = _columns(truth, scores, scored)
    drawn = [
        np.stack([_weighted_ap(*column, weights[start : start + step]) for column in columns], 1)
        for start in range(0, resamples, step)
    ]
    return estimate(mean_average_precision(truth, scores, scored)["map"], _mean_of_defined(np.concatenate(drawn)))


def count_chosen(truth: np.ndarray, chosen: np.ndarray, scored: np.ndarray) -> np.ndarray:
    """Return (N, 3, C) int64: hits, chosen and present labels of each image and class among the cells that count."""
    present = (truth == 1) & scored
    return np.stack([present & chosen, chosen & scored, present], axis=1).astype(np.int64)


def f1_of_counts(hits: np.ndarray, chosen: np.ndarray, present: np.ndarray) -> dict[str, float | None]:
    """Return F1 with precision and recall, by class (c) and overall (o), in percent.

    Args:
        hits: (C,) chosen labels that are present.
        chosen: (C,) chosen labels.
        present: (C,) present labels; a class without one does not count by class.

    Returns:
        ``cp``, ``cr``, ``cf1``, ``op``, ``or``, ``of1``; None without a present label.
    """
    has = present > 0
    names = ("cp", "cr", "cf1", "op", "or", "of1")
    if not has.any():
        return dict.fromkeys(names)
    by_class = (hits / np.maximum(chosen, 1))[has].mean(), (hits[has] / present[has]).mean()
    overall = hits.sum() / max(chosen.sum(), 1), hits.sum() / present.sum()
    values = []
    for precision, recall in (by_class, overall):
        values += [precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0]
    return {name: 100 * float(value) for name, value in zip(names, values, strict=True)}


def precision_at(truth: np.ndarray, scores: np.ndarray, scored: np.ndarray, k: int) -> float | None:
    """Return the share of present labels among the k highest scores of an image, in percent, mean over the images.

    Args:
        truth: (N, C) labels, 1 or 0.
        scores: (N, C) scores; of equal ones the first class comes first.
        scored: (N, C) bool, cells that count; images with fewer than k do not.
        k: How many, at most C.

    Returns:
        The mean; None without an image that counts.
    """
    enough = scored.sum(axis=1) >= k
    if not enough.any():
        return None
    best = np.argsort(np.where(scored, -scores, np.inf)[enough], axis=1, kind="stable")[:, :k]
    return 100 * float(np.take_along_axis(truth[enough], best, axis=1).mean())


def coverage_error(truth: np.ndarray, scores: np.ndarray, scored: np.ndarray) -> float:
    """Return how far down the ranking of classes one has to go to meet all present labels of an image, on average.

    Args:
        truth: (N, C) labels, 1 or 0.
        scores: (N, C) scores; equal ones are all passed.
        scored: (N, C) bool, cells that count.

    Returns:
        Mean number of classes, at best the mean number of labels; an image without a label adds 0.
    """
    lowest = np.where((truth == 1) & scored, scores, np.inf).min(axis=1, keepdims=True)
    return float(((scores >= lowest) & scored).sum(axis=1).mean())


def ranking_loss(truth: np.ndarray, scores: np.ndarray, scored: np.ndarray) -> float:
    """Return the share of pairs of a present and an absent label of an image that are ranked wrongly, on average.

    Args:
        truth: (N, C) labels, 1 or 0.
        scores: (N, C) scores; an equal pair is wrong.
        scored: (N, C) bool, cells that count.

    Returns:
        In [0, 1]; an image without a pair adds 0.
    """
    losses = np.zeros(len(truth))
    for row, (labels, values, counts) in enumerate(zip(truth, scores, scored, strict=True)):
        present, absent = values[counts & (labels == 1)], np.sort(values[counts & (labels == 0)])
        if len(present) and len(absent):
            above = len(absent) - np.searchsorted(absent, present, side="left")
            losses[row] = above.sum() / (len(present) * len(absent))
    return float(losses.mean())


def _bootstrap(
    truth: np.ndarray, scores: np.ndarray, scored: np.ndarray, counts: np.ndarray, resamples: int, seed: int
) -> dict[str, np.ndarray]:
    """Return figures of resampled images, in percent: ``ap`` (B, C), NaN where undefined; ``map``, ``cf1``, ``of1``."""
    generator, n = np.random.default_rng(seed), len(truth)
    parts: dict[str, list[np.ndarray]] = {"ap": [], "cf1": [], "of1": []}
    step = max(1, CELLS // n)
    for start in range(0, resamples, step):
        weights = generator.multinomial(n, np.full(n, 1 / n), min(step, resamples - start))
        parts["ap"].append(np.stack([_weighted_ap(*column, weights) for column in _columns(truth, scores, scored)], 1))
        flat = (weights @ counts.reshape(n, -1)).reshape(-1, *counts.shape[1:])
        found = [f1_of_counts(*drawn) for drawn in flat]
        for key in ("cf1", "of1"):
            parts[key].append(np.array([np.nan if each[key] is None else each[key] for each in found]))
    result = {key: np.concatenate(values) for key, values in parts.items()}
    result["map"] = _mean_of_defined(result["ap"])
    return result


def _mean_of_defined(values: np.ndarray) -> np.ndarray:
    """Return (B,) means over the columns that are numbers; NaN where none is."""
    defined = ~np.isnan(values)
    sums = np.where(defined, values, 0).sum(axis=1)
    return np.where(defined.any(axis=1), sums / np.maximum(defined.sum(axis=1), 1), np.nan)


def _columns(truth: np.ndarray, scores: np.ndarray, scored: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return of each class the labels and the scores, whose unscored cells are NaN."""
    return [
        (truth[:, column], np.where(scored[:, column], scores[:, column], np.nan)) for column in range(truth.shape[1])
    ]


def _weighted_ap(labels: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return (B,) average precision of a class in percent, image i counted weights[b, i] times; NaN where undefined."""
    rows = np.flatnonzero(~np.isnan(scores))
    rows = rows[np.argsort(-scores[rows], kind="stable")]
    if not len(rows):
        return np.full(len(weights), np.nan)
    taken = weights[:, rows]
    ends = np.append(scores[rows][1:] != scores[rows][:-1], True)  # the last place of each threshold
    seen = np.cumsum(taken, axis=1)[:, ends]
    hits = np.cumsum(taken * (labels[rows] == 1), axis=1)[:, ends]
    total = hits[:, -1]
    gained = np.diff(hits, axis=1, prepend=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = 100 * np.where(gained > 0, gained * hits / seen, 0).sum(axis=1) / total
    return np.where((total > 0) & (total < seen[:, -1]), values, np.nan)


def _interval(values: np.ndarray) -> list[float] | None:
    """Return the percentiles that hold `LEVEL` of the values, those that are undefined left out."""
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    return [float(end) for end in np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])]
