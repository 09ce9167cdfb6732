"""How well scores rank the labels that were shown, as a stand-in for average precision where nobody has the truth.

Of each image some present labels are shown and the others are unknown, so a ranking's errors cannot be counted; how far
up it puts the shown ones can. Where an image shows one of its labels at random, a present label is shown with chance
1 / (labels of the image). A shown label that is weighted by the labels its image is expected to have stands for those
that were not shown, and precision at a rank, weights above it by rows above it, is without bias until it is cut at 1.

Equal scores form one threshold in `weighted_precision`, as in `metrics`; in `aul` and `pooled_aul` they count one half.
Each function takes rows as they are, or repeated as often as a bootstrap drew them: values of two sets of scores over
the same repeats are paired.
Source: AUL is Jiang et al., "Improving positive unlabeled learning: practical AUL estimation and new training method
for extremely imbalanced data sets", 2020; the weights are ours.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

CELLS = 1 << 21
"""Repeated cells that are held at a time."""
LEAST = 5
"""Shown positives of a class that is counted in a mean."""


class Estimate(NamedTuple):
    """A value with what a bootstrap says of it; not a number where it cannot be measured.

    Args:
        value: On the rows as they are.
        error: Standard deviation over the bootstrap.
        low: Lower end of the 95 % percentile interval.
        high: Its upper end.
    """

    value: float
    error: float
    low: float
    high: float


def weighted_precision(
    scores: np.ndarray, shown: np.ndarray, weights: np.ndarray | None = None, repeats: np.ndarray | None = None
) -> np.ndarray:
    """Return the mean precision at the ranks of shown positives, both weighted.

    Args:
        scores: (N, C) finite scores, higher means more present.
        shown: (N, C) bool, the labels that were shown.
        weights: (N,) what a shown label of each image stands for: the labels it is expected to have, by those it shows.
            None: 1.
        repeats: (R, N) how often each row counts. None: once.

    Returns:
        (R, C) in [0, 1], one row without ``repeats``; not a number for a class without a shown positive among the
        repeated rows. A precision above 1, as a heavy image ranked first would have it, counts as 1: chance, not merit.

    Raises:
        ValueError: Shapes differ, or a score or weight is not finite.
    """
    weights, repeats = _checked(scores, shown, weights, repeats)
    result = np.empty((len(repeats), scores.shape[1]))
    for column in range(scores.shape[1]):
        for part, places in _places(scores[:, column], shown[:, column], repeats):
            result[part, column] = _mean(_precision(places, weights), places.repeats * weights[places.rows])
    return result


def precision_at_shown(scores: np.ndarray, shown: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the precision at the rank of each shown positive, of which `weighted_precision` is the mean.

    Args:
        scores: (N, C) finite scores.
        shown: (N, C) bool.
        weights: (N,) as in `weighted_precision`.

    Returns:
        (P,) in [0, 1], in the order of ``np.nonzero(shown)``.

    Raises:
        ValueError: Shapes differ, or a score or weight is not finite.
    """
    weights, repeats = _checked(scores, shown, weights, None)
    result = np.zeros(shown.shape)
    for column in range(shown.shape[1]):
        for _, places in _places(scores[:, column], shown[:, column], repeats):
            result[places.rows, column] = _precision(places, weights)[0]
    return result[shown]


def compare_precision(
    precision: np.ndarray,
    shown: np.ndarray,
    weights: np.ndarray,
    least: int = LEAST,
    groups: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compare sets of scores by their weighted precision, each with the best of them.

    Args:
        precision: (L, P) of `precision_at_shown` for each set.
        shown: (N, C) bool.
        weights: (N,) those of the precision.
        least: Shown positives of a class that counts.
        groups: (N,) numbers of groups of images, which err together; None: each image by itself.

    Returns:
        (L,) means over classes, and (L,) standard errors of how far each stays behind the best, over the images with
        their precisions as they are. Ranked anew for each sample, precisions would move too, and errors be up to twice
        these.
    """
    rows, columns = np.nonzero(shown)
    kept = np.flatnonzero(shown.sum(axis=0) >= least)
    mass = np.where(np.isin(columns, kept), weights[rows], 0.0)
    mass /= np.bincount(columns, mass, shown.shape[1])[columns].clip(min=np.finfo(np.float64).tiny) * max(1, len(kept))
    means = precision @ mass
    unit = np.arange(len(shown)) if groups is None else groups
    errors = []
    for behind in precision[np.argmax(means)] - precision:
        centre = np.bincount(columns, behind * mass, shown.shape[1]) * len(kept)
        moved = np.bincount(unit[rows], mass * (behind - centre[columns]), len(shown))
        errors.append(np.sqrt(np.square(moved).sum()))
    return means, np.array(errors)


def aul(
    scores: np.ndarray, shown: np.ndarray, weights: np.ndarray | None = None, repeats: np.ndarray | None = None
) -> np.ndarray:
    """Return the probability that a shown positive outranks another image, for each class.

    Args:
        scores: (N, C) finite scores.
        shown: (N, C) bool.
        weights: (N,) as in `weighted_precision`.
        repeats: (R, N) how often each row counts. None: once.

    Returns:
        (R, C) in [0, 1], one row without ``repeats``; not a number for a class without a shown positive.

    Raises:
        ValueError: Shapes differ, or a score or weight is not finite.
    """
    weights, repeats = _checked(scores, shown, weights, repeats)
    result = np.empty((len(repeats), scores.shape[1]))
    for column in range(scores.shape[1]):
        result[:, column] = _outranked(scores[:, column], shown[:, column], weights, repeats)
    return result


def pooled_aul(
    scores: np.ndarray, shown: np.ndarray, weights: np.ndarray | None = None, repeats: np.ndarray | None = None
) -> np.ndarray:
    """Return the probability that a shown positive outranks another image in its class, over those of all classes.

    Args:
        scores: (N, C) finite scores; classes are not compared with each other.
        shown: (N, C) bool.
        weights: (N,) as in `weighted_precision`.
        repeats: (R, N) how often each row counts. None: once.

    Returns:
        (R,) in [0, 1], one value without ``repeats``; not a number without a shown positive.

    Raises:
        ValueError: Shapes differ, or a score or weight is not finite.
    """
    weights, repeats = _checked(scores, shown, weights, repeats)
    mass = (repeats * weights) @ shown
    return _mean(np.where(mass > 0, aul(scores, shown, weights, repeats), 0), mass)


def shares_outranked(scores: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Return the share of other images that each shown positive outranks in its class, of which AUL is the mean.

    Args:
        scores: (N, C) finite scores.
        shown: (N, C) bool.

    Returns:
        (N, C) in [0, 1], ties counted one half; 0 where nothing is shown.

    Raises:
        ValueError: Shapes differ, or a score is not finite.
    """
    _, repeats = _checked(scores, shown, None, None)
    result = np.zeros(shown.shape)
    for column in range(shown.shape[1]):
        for _, places in _places(scores[:, column], shown[:, column], repeats):
            result[places.rows, column] = _outranked_by(places, repeats)[0]
    return result


def compare_with_fixed(
    gains: np.ndarray, fixed: np.ndarray, mass: np.ndarray, repeats: np.ndarray, units: int
) -> list[Estimate]:
    """Compare several weighted means over rows with a fixed one, so that the best may be picked.

    Args:
        gains: (K, N) what each row adds to the sum of each of them.
        fixed: (N,) the same of the fixed one.
        mass: (N,) the row's weight, in all.
        repeats: (R, N) how often a bootstrap drew each row.
        units: Rows that carry mass, or groups of them that were drawn whole.

    Returns:
        K differences; of fewer units than `LEAST` without an interval: one alone would be sure of what it says. Their
        95 % intervals hold together: in 95 of 100 samples none of the true differences lies outside of its interval,
        whichever is looked at (the largest of the K studentised deviations bounds all; few units make it wider, as
        Student's t is wider than a normal distribution). The rows keep what they add: ranked anew in each sample it
        would move a little too.
    """
    behind = gains - fixed
    values = behind.sum(axis=1) / mass.sum()
    drawn = repeats @ mass
    moved = (repeats @ behind.T)[drawn > 0] / drawn[drawn > 0, None] - values
    if len(moved) < 2 or units < LEAST:
        return [Estimate(float(value), np.nan, np.nan, np.nan) for value in values]
    spread = moved.std(axis=0, ddof=1)
    counted = spread > 1e-12
    farthest = (np.abs(moved[:, counted]) / spread[counted]).max(axis=1, initial=0)
    errors = spread * np.sqrt(units / (units - 1))
    reach = np.quantile(farthest, 0.95) * errors * stdtrit(units - 1, 0.975) / ndtri(0.975)
    ends = zip(values, errors, values - reach, values + reach, strict=True)
    return [Estimate(*map(float, each)) for each in ends]


def mean_over_classes(values: np.ndarray, shown: np.ndarray, least: int = LEAST) -> np.ndarray:
    """Return the mean over the classes that show enough positives.

    Args:
        values: (R, C) of `weighted_precision` or `aul`.
        shown: (N, C) bool, of the rows as they are: a bootstrap does not change which classes count.
        least: Shown positives that are enough.

    Returns:
        (R,); a class without a value in one repeat is left out there, and without any class it is not a number.
    """
    kept = values[:, shown.sum(axis=0) >= least]
    known = ~np.isnan(kept)
    return _mean(np.where(known, kept, 0), known)


def resample_rows(n: int, times: int, generator: np.random.Generator, groups: np.ndarray | None = None) -> np.ndarray:
    """Return how often each row is drawn by a bootstrap.

    Args:
        n: Rows, as many as are drawn.
        times: Bootstraps.
        generator: Where chance comes from.
        groups: (n,) numbers of groups, which are drawn whole: rows of one are alike, and tell less than as many others.
            As many groups are drawn as there are, so the rows vary in number. None: rows are drawn.

    Returns:
        (times, n) int32.
    """
    unit = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    units = int(unit.max(initial=-1)) + 1
    drawn = [np.bincount(generator.integers(units, size=units), minlength=units) for _ in range(times)]
    return np.stack(drawn).astype(np.int32)[:, unit]


def estimate(value: float, bootstrap: np.ndarray) -> Estimate:
    """Return a value with its standard error and interval.

    Args:
        value: A criterion of one set of scores, or the difference of two.
        bootstrap: (R,) the same over the same repeats.

    Returns:
        The value with both; repeats in which it is not a number are left out. The interval holds the value, also where
        the bootstrap of a few rows lies to one side of it.
    """
    known = bootstrap[~np.isnan(bootstrap)]
    if len(known) < 2:
        return Estimate(float(value), np.nan, np.nan, np.nan)
    low, high = np.quantile(known, (0.025, 0.975))
    return Estimate(float(value), float(known.std(ddof=1)), float(min(low, value)), float(max(high, value)))


class _Places(NamedTuple):
    """Where the P shown positives of a class stand, best first, over R repeats."""

    rows: np.ndarray  # (P,)
    repeats: np.ndarray  # (R, P) of them
    last: np.ndarray  # (P,) position, among the shown, of the last one of the same score
    reached: np.ndarray  # (R, P) repeated rows of their score or a higher one
    higher: np.ndarray  # (R, P) repeated rows of a higher score


def _places(scores: np.ndarray, shown: np.ndarray, repeats: np.ndarray):
    """Yield the places of a class, for a slice of the repeats at a time."""
    order = np.argsort(-scores, kind="stable")
    ranked, places = -scores[order], np.flatnonzero(shown[order])
    starts = np.searchsorted(ranked, ranked[places], "left")
    ends = np.searchsorted(ranked, ranked[places], "right")
    last = np.searchsorted(places, ends, "left") - 1
    step = max(1, CELLS // max(1, len(order)))
    for start in range(0, len(repeats), step):
        part = slice(start, start + step)
        drawn = repeats[part][:, order]
        counts = np.zeros((len(drawn), len(order) + 1), np.int64)
        np.cumsum(drawn, axis=1, out=counts[:, 1:])
        yield part, _Places(order[places], drawn[:, places], last, counts[:, ends], counts[:, starts])


def _precision(places: _Places, weights: np.ndarray) -> np.ndarray:
    """Return the (R, P) precision at each place."""
    above = np.cumsum(places.repeats * weights[places.rows], axis=1)[:, places.last]
    return np.minimum(above / np.maximum(places.reached, 1), 1)


def _outranked(scores: np.ndarray, shown: np.ndarray, weights: np.ndarray, repeats: np.ndarray) -> np.ndarray:
    """Return (R,) shares of other images that shown ones outrank, ties counted one half."""
    result = np.empty(len(repeats))
    for part, places in _places(scores, shown, repeats):
        result[part] = _mean(_outranked_by(places, repeats[part]), places.repeats * weights[places.rows])
    return result


def _outranked_by(places: _Places, repeats: np.ndarray) -> np.ndarray:
    """Return the (R, P) shares of other images that the image at each place outranks, ties counted one half."""
    total = repeats.sum(axis=1, keepdims=True)
    ties = places.reached - places.higher - 1  # without itself
    return (total - places.reached + ties / 2) / np.maximum(total - 1, 1)


def _mean(values: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Return (R,) means of (R, P) values that carry mass, not a number where there is none."""
    total = mass.sum(axis=1)
    return np.where(total > 0, (values * mass).sum(axis=1) / np.where(total > 0, total, 1), np.nan)


def _checked(
    scores: np.ndarray, shown: np.ndarray, weights: np.ndarray | None, repeats: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and repeats, after a look at all that was given.

    Raises:
        ValueError: As the functions say.
    """
    if scores.ndim != 2 or scores.shape != shown.shape or shown.dtype != np.bool_:
        raise ValueError(f"scores {scores.shape} and shown {shown.shape} must be (N, C), and shown bool")
    weights = np.ones(len(scores)) if weights is None else np.asarray(weights, dtype=np.float64)
    repeats = np.ones((1, len(scores)), np.int32) if repeats is None else repeats
    if weights.shape != (len(scores),) or repeats.ndim != 2 or repeats.shape[1] != len(scores):
        raise ValueError(f"weights {weights.shape} and repeats {repeats.shape} must have {len(scores)} rows")
    if not (np.isfinite(scores).all() and np.isfinite(weights).all()):
        raise ValueError("scores and weights must be finite: NaN has no rank")
    return weights, repeats
