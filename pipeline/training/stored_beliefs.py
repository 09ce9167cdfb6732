"""What the stage beliefs stores: fits on cached features, or somebody else's chances, as beliefs of all images."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.core import files
from pipeline.core.errors import ConfigError
from pipeline.labels.beliefs import Beliefs, read_given
from pipeline.labels.table import Table
from pipeline.methods.shared.draw_likelihood import CountDraw, ShareDraw, posterior_of_arrays
from pipeline.training import ridge
from pipeline.training.beliefs import Beliefs as Fitted
from pipeline.training.beliefs import Sampling, believe
from pipeline.training.features import Cache
from pipeline.training.place_scores import Places
from pipeline.training.settings import BeliefFits, GivenBeliefs, LabelDraw
from pipeline.training.undecided import rank_unknown, to_logits

FARTHEST = 30.0
"""Logit of a chance that somebody gives as 0 or 1."""


class Found(NamedTuple):
    """What the stage writes."""

    beliefs: Beliefs
    head: dict[str, np.ndarray]
    """``weights`` (C, D) and ``bias`` (C,) of the linear head behind the beliefs; empty where there is none."""
    report: dict[str, Any]
    """Content of report.json."""


class Labels(NamedTuple):
    """Labels of a dataset under one draw."""

    table: Table
    observed: np.ndarray
    """(N, C) int8 labels of `read_shown`."""
    draw: int
    """Number of the draw."""


def make_beliefs(root: Path, dataset: str, settings: BeliefFits | GivenBeliefs, cache: Cache, labels: Labels) -> Found:
    """Return beliefs as settings ask for them.

    Args:
        root: Project root.
        dataset: Name of the dataset.
        settings: Whose beliefs, and how they are made.
        cache: The feature cache.
        labels: The labels.

    Raises:
        ConfigError: The features cannot be fitted.
        SourceError: The table of somebody's beliefs is faulty.
    """  # noqa: DOC502  raised by the functions below
    if isinstance(settings, GivenBeliefs):
        return take_given(root, settings, labels.table, labels.observed)
    try:
        return fit_beliefs(settings, cache, *labels)
    except ValueError as error:
        raise ConfigError(f"beliefs.{dataset}: {error}") from error


def fit_beliefs(settings: BeliefFits, cache: Cache, table: Table, observed: np.ndarray, seed: int) -> Found:
    """Return beliefs from cached features.

    Args:
        settings: How many fits, how labels came to be shown, and how images are scored.
        cache: The feature cache.
        table: The dataset's table.
        observed: (N, C) int8 labels of `read_shown`.
        seed: Of the folds and the bootstrap.

    Returns:
        The beliefs; a training image is judged by fits that did not see its labels.

    Raises:
        ValueError: The features cannot be fitted, or images are to be scored by places that are not cached.
    """
    rows, shown_as = table.rows("train"), make_draw(settings.draw)
    fitted = _fit(settings, cache, Labels(table, observed, seed), slice(None))
    if (places := places_of(cache, np.arange(len(cache.plain)), settings.sharpness)) is None:
        logits = ridge.score(cache.plain, fitted.weights, fitted.bias)
    else:
        logits = places.scores(fitted.weights, fitted.bias)
    logits[rows] = fitted.logits  # each by fits that did not see its labels
    belief = posterior_of_arrays(logits, observed, shown_as)[2]
    head = {"weights": fitted.weights, "bias": fitted.bias}
    shares = np.array([share[:1] + share[2:] for share in fitted.shares])  # without the standard error
    shares[list(fitted.unseen), 1:] = np.nan  # of a guess there is no interval
    report = {
        "kind": settings.kind,
        "shown_as": settings.draw.kind,
        "fits": [vars(each) for each in fitted.fits],
        "groups": fitted.groups,
        "labels_per_image": _interval(fitted.labels._asdict()),
        "shares": {
            name: _interval(dict(zip(("value", "low", "high"), share, strict=True)))
            for name, share in zip(table.classes, shares, strict=True)
        },
        "classes_unseen": [table.classes[column] for column in fitted.unseen],
        "classes_seldom": [table.classes[column] for column in fitted.seldom],
        "classes_everywhere": [table.classes[column] for column in fitted.everywhere],
    }
    arrays = (belief.astype(np.float32), logits.astype(np.float32))
    ranking = rank_unknown(cache.plain, cache.mirrored, observed, arrays[0], (table, seed))
    return Found(Beliefs(*arrays, fitted.labels.value, shares, settings.draw.kind, ranking), head, report)


def fit_beliefs_of(settings: BeliefFits, cache: Cache, labels: Labels, part: np.ndarray) -> np.ndarray:
    """Return beliefs about some training images from themselves alone, as if there were no others.

    Args:
        settings: As in `fit_beliefs`.
        cache: The feature cache.
        labels: The labels of all images.
        part: (R,) rows of the training split, ascending.

    Returns:
        (R, C) float32 chances, of each image by fits that did not see its labels.

    Raises:
        ConfigError: The images show too little.
    """
    try:
        return _fit(settings, cache, labels, part).present.astype(np.float32)
    except ValueError as error:
        raise ConfigError(
            f"auto judges a part of the training images by what is learned from the {len(part)} others, "
            f"and beliefs cannot be fitted to these: {error}; choose by `last` or `clean`"
        ) from error


def _fit(settings: BeliefFits, cache: Cache, labels: Labels, part: np.ndarray | slice) -> Fitted:
    """Return the fits to a part of the training images; arguments as in `fit_beliefs_of`."""
    rows, groups = labels.table.rows("train")[part], labels.table.group_numbers("train")
    mirrored = None if cache.mirrored is None else cache.mirrored[part]
    sampling = Sampling(labels.draw, None if groups is None else groups[part])
    places, draw = places_of(cache, rows, settings.sharpness), make_draw(settings.draw)
    return believe(cache.plain[rows], labels.observed[rows], mirrored, draw, settings.fits, sampling, places)


def places_of(cache: Cache, rows: np.ndarray, sharpness: float | None) -> Places | None:
    """Return the places of some images, or None where images are scored by pooled features.

    Args:
        cache: The feature cache.
        rows: (R,) rows of the images.
        sharpness: Of the score by places, or None.

    Raises:
        ValueError: The cache holds no places.
    """
    if sharpness is None:
        return None
    if cache.places is None:
        raise ValueError("sharpness: scores images by places, and the cache holds none (features.places)")
    return Places(cache.places, rows, sharpness)


def take_given(root: Path, settings: GivenBeliefs, table: Table, observed: np.ndarray) -> Found:
    """Return what somebody else believes, without a head.

    Args:
        root: Project root.
        settings: Where their table lies, and how labels came to be shown.
        table: The dataset's table.
        observed: (N, C) int8 labels of `read_shown`.

    Returns:
        Their chances, and what the shown labels make of them.

    Raises:
        SourceError: Their table is faulty.
    """  # noqa: DOC502  raised by `read_given`
    file = settings.path(root)
    chances = read_given(file, table)
    with np.errstate(divide="ignore"):
        logits = np.clip(np.log(chances) - np.log1p(-chances), -FARTHEST, FARTHEST)
    belief = posterior_of_arrays(logits, observed, make_draw(settings.draw))[2]
    train = belief[table.rows("train")]
    if settings.draw.kind == "count" and (shows := (observed[table.rows("train")] == 1).any(axis=1)).any():
        train = train[shows]
    labels = float(train.sum(axis=1).mean())
    report = {
        "kind": settings.kind,
        "shown_as": settings.draw.kind,
        "file": settings.file,
        "file_sha256": files.sha256(file),
        "fits": [],
        "groups": None,
        "labels_per_image": {"value": labels, "low": None, "high": None},
        "shares": {
            name: {"value": float(share), "low": None, "high": None}
            for name, share in zip(table.classes, train.mean(axis=0), strict=True)
        },
        "classes_unseen": [],
        "classes_seldom": [],
        "classes_everywhere": [],
    }
    shares = np.column_stack([train.mean(axis=0), np.full((len(table.classes), 2), np.nan)])
    arrays = (belief.astype(np.float32), logits.astype(np.float32))
    ranking = to_logits(belief).astype(np.float32)  # theirs may have seen the labels, or the truth: nothing is added
    return Found(Beliefs(*arrays, labels, shares, settings.draw.kind, ranking), {}, report)


def make_draw(draw: LabelDraw) -> CountDraw | ShareDraw:
    """Return the likelihood of a draw that params.yaml describes."""
    return CountDraw() if draw.kind == "count" else ShareDraw(draw.value)


def _interval(estimate: dict[str, float]) -> dict[str, float | None]:
    """Return value and 95 % interval as JSON values."""
    return {name: float(estimate[name]) if np.isfinite(estimate[name]) else None for name in ("value", "low", "high")}
