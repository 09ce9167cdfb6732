"""Beliefs about hidden labels from three closed-form fits on cached features: no truth, no density, no rate, no epochs.

1. Ridge on targets, at first the shown labels, gives each training image a score that its own label had no part in.
2. The draw's likelihood turns scores into logits, and tells how likely each hidden label is given the shown ones.
3. These beliefs are the next fit's targets. The third fit's scores are those of the head; a fourth does not help.

Lambda is the largest whose precision of shown labels, each weighted by the labels its image is expected to have, is
within a standard error of the best. In the first fit that is measured on left-out scores. Later targets were made by
earlier fits, which have seen every image's shown label: a left-out score does not forget it, and asks for far too
small a lambda. So the whole chain of fits runs again without each fold of the images, which it then scores. Scores are
compared without the mean target of a fit, which lies further from an image that it has not seen.

The beliefs that are returned come from that too, so that no image's own labels made them: left-out scores of the later
fits keep a trace of these, and are too sure where images are few. The last logits are those of images that have a
label, as each labelled one has; the others' are not, which gives more labels an image, and better targets.

Where places are given, the last fit's scores are those by places (`place_scores`), and so are the beliefs. Targets come
from pooled scores: by places they help small objects no further, and large ones less.

Images of one group know each other's labels: no fold cuts a group, and folds judge lambda from the first fit on. Where
all are of one group, there is no fit without it: folds are of images then, and nobody knows how far beliefs are off.

With all labels shown (`ShareDraw(1.0)`, one fit) it is ridge with full labels, its lambda by average precision of
left-out scores and its logits by log loss: what the features hold for a linear head.
Source: ours, 2026.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.audits.unlabelled import LEAST, Estimate, compare_precision, estimate, precision_at_shown, resample_rows
from pipeline.core import seeds
from pipeline.labels.groups import deal_folds
from pipeline.methods.shared.draw_likelihood import CountDraw, ShareDraw, posterior_of_arrays
from pipeline.training import ridge
from pipeline.training.calibrate import Calibration, calibrate, resampled_shares
from pipeline.training.place_scores import Places, calibrate_places

FITS = 3
FOLDS = 5
BOOTSTRAPS = 200


@dataclass(frozen=True)
class Fit:
    """One of the fits.

    Args:
        penalty: Lambda in units of the mean eigenvalue.
        precision: The criterion's value.
        log_likelihood: Of the shown labels under its logits, mean over the images, in nats; after the last fit, given
            that an image has a label.
        labels: Labels an image by its beliefs.
    """

    penalty: float
    precision: float
    log_likelihood: float
    labels: float


@dataclass(frozen=True)
class Beliefs:
    """What the fits say of N training images and C classes.

    Args:
        present: (N, C) chance that a label is present given the image and its shown labels: 1 where shown, 0 where
            known to be absent.
        logits: (N, C) of the image alone, by the last fit without it.
        weights: (C, D) of a linear head on the features as they were given, or on those of places.
        bias: (C,) its bias; its logits are on the scale of ``logits``.
        fits: First to last.
        labels: Labels an image.
        shares: C shares of images in which a class is present.
        unseen: Classes that show no positive: their head is 0 but for the bias, their share is a guess.
        seldom: Further classes that show fewer positives than a criterion counts and a slope is fitted to.
        everywhere: Classes that every fitted image is known to have: their share is 1, whatever the images show.
        groups: Groups of the fitted images; None where the data name none.
    """

    present: np.ndarray
    logits: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    fits: tuple[Fit, ...]
    labels: Estimate
    shares: tuple[Estimate, ...]
    unseen: tuple[int, ...]
    seldom: tuple[int, ...]
    everywhere: tuple[int, ...]
    groups: int | None


class Sampling(NamedTuple):
    """How images are dealt to folds, and drawn by the bootstrap."""

    seed: int = 0
    groups: np.ndarray | None = None
    """(N,) numbers of `number_groups`, which no fold cuts; None: there are none."""


ONE_BY_ONE = Sampling()
"""Each image for itself."""


@dataclass
class _Chain:
    """Fits that do not see some of the images."""

    rows: ridge.Decomposition
    targets: np.ndarray  # (N, C) of the next fit
    held: np.ndarray  # (H,) images without weight, which it scores


def believe(
    features: np.ndarray,
    observed: np.ndarray,
    mirrored: np.ndarray | None = None,
    draw: CountDraw | ShareDraw | None = None,
    fits: int = FITS,
    sampling: Sampling = ONE_BY_ONE,
    places: Places | None = None,
) -> Beliefs:
    """Return beliefs about every training cell, and a linear head.

    Args:
        features: (N, D) of the training images, of any float type.
        observed: (N, C) int8 labels: 1 shown, 2 present and not shown, 0 unknown, -1 absent, -2 by the rules alone. An
            image that shows nothing is believed in and not fitted, unless the draw is one of shares.
        mirrored: (N, D) features of the mirrored images, or None.
        draw: How labels came to be shown. None: as many as are shown were picked at random of those present.
        fits: Their number.
        sampling: Of the folds and the bootstrap.
        places: Those of the images, where the last fit scores by them: the head is one of that kind.

    Returns:
        The beliefs.

    Raises:
        ValueError: No label is shown, a value is not one of those, or the features cannot be fitted.
    """
    draw = draw or CountDraw()
    seen, shown = _seen(features, observed, draw), observed == 1
    apart = sampling._replace(groups=None) if _count_groups(seen, sampling) == 1 else sampling  # none without the one
    folds = _folds(seen, apart) if fits > 1 or places or apart.groups is not None else []
    chains = _chains(features, mirrored, observed, seen, folds)
    stands, done = np.ones(len(observed)), list[Fit]()  # labels that a shown one stands for
    for last in [False] * (fits - 1) + [True]:
        heads = [ridge.fit(chain.rows, chain.targets) for chain in chains]
        if folds or not done:
            tried = _try(features, chains, heads, bool(done) or apart.groups is not None)
            number, precision = _choose(tried, shown, stands, seen, apart.groups)
        scores = _scores(features, chains, heads, number, seen if last else None)
        slope, bias, *_ = calibrated = calibrate(scores, observed, draw, isinstance(draw, CountDraw) and last)
        if last and places is not None:
            raw = _place_scores(places, chains, heads, number, seen)
            slope, bias, scores, calibrated = calibrate_places(raw, calibrated, places.sharpness, observed, draw)
        present = posterior_of_arrays(calibrated.logits(scores), observed, draw)[2]
        found = precision, calibrated.log_likelihood, float(present[seen].sum(axis=1).mean())
        done.append(Fit(ridge.LAMBDAS[number], *found))
        if not last:
            _renew_targets(chains, heads, number, calibrated, observed, draw)
        if isinstance(draw, CountDraw):
            stands = _labels_unseen(chains) / np.maximum(shown.sum(axis=1), 1)
    return Beliefs(
        present,
        calibrated.logits(scores),
        heads[0].weights[number] * slope[:, None],
        heads[0].bias[number] * slope + bias,
        tuple(done),
        *_shares(scores, calibrated, isinstance(draw, CountDraw), sampling, seen),
        *_odd_classes(observed >= 1, seen),
        _count_groups(seen, sampling),
    )


def _odd_classes(known: np.ndarray, seen: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the classes that show no positive, those that show too few, and those that every fitted image has."""
    counts = known.sum(axis=0)
    odd = (counts == 0, (counts > 0) & (counts < LEAST), known[seen].all(axis=0))
    unseen, seldom, everywhere = (tuple(np.flatnonzero(each).tolist()) for each in odd)
    return unseen, seldom, everywhere


def _count_groups(seen: np.ndarray, sampling: Sampling) -> int | None:
    """Return how many groups the fitted images are of; None where there are none."""
    return None if sampling.groups is None else len(np.unique(sampling.groups[seen]))


def _renew_targets(
    chains: list[_Chain],
    heads: list[ridge.Heads],
    number: int,
    calibrated: Calibration,
    observed: np.ndarray,
    draw: CountDraw | ShareDraw,
) -> None:
    """Take what each chain believes of its images as its next targets."""
    centre = chains[0].rows.weights @ chains[0].targets
    for chain, fitted in zip(chains, heads, strict=True):
        own = ridge.leave_one_out(chain.rows, fitted, chain.targets, number, steady=True)
        own += centre - chain.rows.weights @ chain.targets  # logits are those of scores about that mean
        chain.targets = posterior_of_arrays(calibrated.logits(own), observed, draw)[2]


def _seen(features: np.ndarray, observed: np.ndarray, draw: CountDraw | ShareDraw) -> np.ndarray:
    """Return (N,) bool, the images whose labels say something.

    Raises:
        ValueError: As `believe` says.
    """
    if observed.ndim != 2 or len(observed) != len(features):
        raise ValueError(f"observed {observed.shape} must be (N, C), of the {len(features)} rows of the features")
    wrong = ~np.isin(observed, (-2, -1, 0, 1, 2))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"observed: {observed[row, column]} at row {row}, class {column}; it must be 2, 1, 0, -1 or -2"
        )
    shows = (observed == 1).any(axis=1)
    if not shows.any():
        raise ValueError("observed: no label is shown, there is nothing to learn from")
    return shows if isinstance(draw, CountDraw) else np.ones(len(observed), bool)


def _folds(seen: np.ndarray, sampling: Sampling) -> list[np.ndarray]:
    """Return (H,) images of each fold; none where there are too few, and the first lambda is kept."""
    seed, groups = sampling
    generator = seeds.numpy_generator(seed, "beliefs", "folds")
    if groups is not None:
        fold = np.zeros(len(seen), int)  # an image without weight is in no fit anyway
        fold[seen] = deal_folds(groups[seen], FOLDS, generator)
        return [np.flatnonzero(fold == number) for number in range(fold.max() + 1)]
    if seen.sum() < 2 * FOLDS:
        return []
    order = generator.permutation(len(seen))
    return [order[fold::FOLDS] for fold in range(FOLDS)]


def _chains(
    features: np.ndarray,
    mirrored: np.ndarray | None,
    observed: np.ndarray,
    seen: np.ndarray,
    folds: list[np.ndarray],
) -> list[_Chain]:
    """Return the chain of fits of all images, and one without each fold."""
    chains = []
    for held in (np.array([], int), *folds):
        weights = seen.astype(np.float64)
        weights[held] = 0
        rows = ridge.decompose(features, mirrored, weights)
        chains.append(_Chain(rows, (observed >= 1).astype(np.float64), held))
    return chains


def _scores(
    features: np.ndarray, chains: list[_Chain], heads: list[ridge.Heads], number: int, seen: np.ndarray | None
) -> np.ndarray:
    """Return (N, C) scores that an image's own labels had no part in: left-out ones, or those of chains without it.

    Args:
        features: (N, D).
        chains: That of all images first.
        heads: Theirs.
        number: Position of the lambda.
        seen: (N,) bool, the images that were fitted; None: left-out scores are enough.
    """
    rows, targets = chains[0].rows, chains[0].targets
    if seen is None or len(chains) == 1:
        return ridge.leave_one_out(rows, heads[0], targets, number, steady=True)
    scores = _held_out_at(features, chains[1:], heads[1:], number, targets.shape) + rows.weights @ targets
    scores[~seen] = ridge.score(features[~seen], heads[0].weights[number], heads[0].bias[number])
    return scores


def _place_scores(
    places: Places, chains: list[_Chain], heads: list[ridge.Heads], number: int, seen: np.ndarray
) -> np.ndarray:
    """Return the (N, C, P) scores of places, on the scale of `_scores`.

    Without folds they are those of the fit to all images, its own labels included: there are ten images at most.
    """
    centre = chains[0].rows.weights @ chains[0].targets
    every = np.arange(len(seen))
    result = places.logits(every[:1], heads[0].weights[number], heads[0].bias[number]).repeat(len(seen), axis=0)
    for chain, fitted in zip(chains[1:] or chains, heads[1:] or heads, strict=True):
        held = chain.held[seen[chain.held]] if len(chains) > 1 else every
        if not len(held):
            continue  # where few images show a label, a fold may have none of them
        bias = fitted.bias[number] + centre - chain.rows.weights @ chain.targets
        result[held] = places.logits(held, fitted.weights[number], bias)
    if len(chains) > 1 and not seen.all():
        result[~seen] = places.logits(every[~seen], heads[0].weights[number], heads[0].bias[number])
    return result


def _try(features: np.ndarray, chains: list[_Chain], heads: list[ridge.Heads], by_folds: bool) -> Iterator[np.ndarray]:
    """Yield the (N, C) scores of each lambda, by chains that do not see an image where there are any, or left-out."""
    for number in range(len(ridge.LAMBDAS)):
        if by_folds and len(chains) > 1:
            yield _held_out_at(features, chains[1:], heads[1:], number, chains[0].targets.shape)
        else:
            yield ridge.leave_one_out(chains[0].rows, heads[0], chains[0].targets, number, steady=True)


def _held_out_at(
    features: np.ndarray, chains: list[_Chain], heads: list[ridge.Heads], number: int, shape: tuple[int, ...]
) -> np.ndarray:
    """Return the (N, C) scores of one lambda, each less the mean target of its chain."""
    scores = np.empty(shape)
    for chain, fitted in zip(chains, heads, strict=True):
        centre = chain.rows.weights @ chain.targets
        scores[chain.held] = ridge.score(features[chain.held], fitted.weights[number], fitted.bias[number]) - centre
    return scores


def _choose(
    tried: Iterator[np.ndarray], shown: np.ndarray, stands: np.ndarray, seen: np.ndarray, groups: np.ndarray | None
) -> tuple[int, float]:
    """Return the largest lambda whose scores are within a standard error of the best, and their weighted precision.

    Where no class shows enough positives for the criterion, those count that show most.
    """
    least = min(LEAST, int(shown.sum(axis=0).max()))
    shown, stands = shown[seen], stands[seen]
    precision = np.stack([precision_at_shown(scores[seen], shown, stands) for scores in tried])
    means, errors = compare_precision(precision, shown, stands, least, None if groups is None else groups[seen])
    number = int(np.flatnonzero(means.max() - means <= errors + 1e-12)[-1])
    return number, float(means[number])


def _labels_unseen(chains: list[_Chain]) -> np.ndarray:
    """Return the (N,) labels each image is expected to have, by the chain that does not see it where there is one."""
    labels = chains[0].targets.sum(axis=1)
    for chain in chains[1:]:
        labels[chain.held] = chain.targets[chain.held].sum(axis=1)
    return labels


def _shares(
    scores: np.ndarray,
    calibrated: Calibration,
    given_one: bool,
    sampling: Sampling,
    seen: np.ndarray,
) -> tuple[Estimate, tuple[Estimate, ...]]:
    """Return labels an image that was seen, and the share of these images of each class."""
    scores, calibrated = scores[seen], calibrated._replace(pull=calibrated.pull[seen])
    once, generator = np.ones((1, len(scores))), seeds.numpy_generator(sampling.seed, "beliefs", "bootstrap")
    groups = None if sampling.groups is None else sampling.groups[seen]
    repeats = resample_rows(len(scores), BOOTSTRAPS, generator, groups)
    (point,) = resampled_shares(scores, calibrated, once, given_one)
    if len(scores if groups is None else np.unique(groups)) < LEAST:
        repeats = repeats[:0]  # so few are drawn nearly the same each time: they would be sure of what they say
    drawn = resampled_shares(scores, calibrated, repeats, given_one)
    shares = tuple(estimate(value, column) for value, column in zip(point, drawn.T, strict=True))
    return estimate(point.sum(), drawn.sum(axis=1)), shares
