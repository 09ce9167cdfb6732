"""What the stage beliefs stores: fits on cached features, or somebody else's chances, as beliefs of all images."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.core import files
from pipeline.labels.beliefs import Beliefs, read_given
from pipeline.labels.table import Table
from pipeline.methods.shared.draw_likelihood import CountDraw, ShareDraw, posterior_of_arrays
from pipeline.training import ridge
from pipeline.training.beliefs import believe
from pipeline.training.settings import BeliefFits, GivenBeliefs

FARTHEST = 30.0
"""Logit of a chance that somebody gives as 0 or 1."""


class Found(NamedTuple):
    """What the stage writes."""

    beliefs: Beliefs
    head: dict[str, np.ndarray]
    """``weights`` (C, D) and ``bias`` (C,) of the linear head behind the beliefs; empty where there is none."""
    report: dict[str, Any]
    """Content of report.json."""


def fit_beliefs(
    settings: BeliefFits,
    features: tuple[np.ndarray, np.ndarray | None],
    table: Table,
    observed: np.ndarray,
    seed: int,
) -> Found:
    """Return beliefs from cached features.

    Args:
        settings: How many fits, and how labels came to be shown.
        features: (N, D) of all images and (N_train, D) of the mirrored training images, or None.
        table: The dataset's table.
        observed: (N, C) int8 labels: 1 shown, 0 unknown, -1 known to be absent.
        seed: Of the folds and the bootstrap.

    Returns:
        The beliefs; a training image is judged by fits that did not see its labels.

    Raises:
        ValueError: The features cannot be fitted.
    """  # noqa: DOC502  raised by `believe`
    rows, shown_as = table.rows("train"), _draw(settings)
    fitted = believe(features[0][rows], observed[rows], features[1], shown_as, settings.fits, seed)
    logits = ridge.score(features[0], fitted.weights, fitted.bias)
    logits[rows] = fitted.logits  # each by fits that did not see its labels
    belief = posterior_of_arrays(logits, observed, shown_as)[2]
    head = {"weights": fitted.weights, "bias": fitted.bias}
    shares = np.array([share[:1] + share[2:] for share in fitted.shares])  # without the standard error
    shares[list(fitted.unseen), 1:] = np.nan  # of a guess there is no interval
    report = {
        "kind": settings.kind,
        "fits": [vars(each) for each in fitted.fits],
        "labels_per_image": _interval(fitted.labels._asdict()),
        "shares": {
            name: _interval(dict(zip(("value", "low", "high"), share, strict=True)))
            for name, share in zip(table.classes, shares, strict=True)
        },
        "classes_unseen": [table.classes[column] for column in fitted.unseen],
        "classes_seldom": [table.classes[column] for column in fitted.seldom],
    }
    arrays = (belief.astype(np.float32), logits.astype(np.float32))
    return Found(Beliefs(*arrays, fitted.labels.value, shares, settings.draw.kind), head, report)


def take_given(root: Path, settings: GivenBeliefs, table: Table, observed: np.ndarray) -> Found:
    """Return what somebody else believes, without a head.

    Args:
        root: Project root.
        settings: Where their table lies, and how labels came to be shown.
        table: The dataset's table.
        observed: (N, C) int8 labels.

    Returns:
        Their chances, and what the shown labels make of them.

    Raises:
        SourceError: Their table is faulty.
    """  # noqa: DOC502  raised by `read_given`
    file = settings.path(root)
    chances = read_given(file, table)
    with np.errstate(divide="ignore"):
        logits = np.clip(np.log(chances) - np.log1p(-chances), -FARTHEST, FARTHEST)
    belief = posterior_of_arrays(logits, observed, _draw(settings))[2]
    train = belief[table.rows("train")]
    if settings.draw.kind == "count" and (shows := (observed[table.rows("train")] == 1).any(axis=1)).any():
        train = train[shows]
    labels = float(train.sum(axis=1).mean())
    report = {
        "kind": settings.kind,
        "file": settings.file,
        "file_sha256": files.sha256(file),
        "fits": [],
        "labels_per_image": {"value": labels, "low": None, "high": None},
        "shares": {
            name: {"value": float(share), "low": None, "high": None}
            for name, share in zip(table.classes, train.mean(axis=0), strict=True)
        },
        "classes_unseen": [],
        "classes_seldom": [],
    }
    shares = np.column_stack([train.mean(axis=0), np.full((len(table.classes), 2), np.nan)])
    arrays = (belief.astype(np.float32), logits.astype(np.float32))
    return Found(Beliefs(*arrays, labels, shares, settings.draw.kind), {}, report)


def _draw(settings: BeliefFits | GivenBeliefs) -> CountDraw | ShareDraw:
    return CountDraw() if settings.draw.kind == "count" else ShareDraw(settings.draw.value)


def _interval(estimate: dict[str, float]) -> dict[str, float | None]:
    """Return value and 95 % interval as JSON values."""
    return {name: float(estimate[name]) if np.isfinite(estimate[name]) else None for name in ("value", "low", "high")}
