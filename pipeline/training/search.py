"""Choice of the learning rate on validation, as in the papers' grids; every trial stays on record."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

from pipeline.training.settings import Search, Training

Trial = TypeVar("Trial")


def choose(
    settings: Training, train: Callable[[float, int | None], Trial], judge: Callable[[Trial], tuple[float, int]]
) -> tuple[float, Trial, list[dict[str, Any]]]:
    """Train at each learning rate and keep the one with the best validation score.

    Args:
        settings: The stage's settings: one learning rate, or a grid.
        train: Trains at (learning rate, epochs or None for the stage's).
        judge: Returns the (score, chosen epoch) of what was trained.

    Returns:
        The learning rate, what was trained at it, and one row a trial. Equal scores: the smaller rate. Where trials are
        shorter than the run, it is trained once more at the chosen rate.
    """
    if settings.learning_rate != "grid":
        trial = train(settings.learning_rate, None)
        return settings.learning_rate, trial, [_row(settings.learning_rate, *judge(trial), True)]
    return _search_grid(settings.search, train, judge)


def _search_grid(
    search: Search, train: Callable[[float, int | None], Trial], judge: Callable[[Trial], tuple[float, int]]
) -> tuple[float, Trial, list[dict[str, Any]]]:
    best: tuple[float, float, Trial] | None = None
    rows = []
    for rate in sorted(search.values):
        trial = train(rate, search.epochs)
        score, epoch = judge(trial)
        rows.append(_row(rate, score, epoch, False))
        if best is None or score > best[0]:
            best = (score, rate, trial)
    assert best is not None  # the schema asks for one value at least
    _, rate, trial = best
    if search.epochs is not None:
        trial = train(rate, None)
    for row in rows:
        row["chosen"] = int(row["learning_rate"] == rate)
    return rate, trial, rows


def _row(rate: float, score: float, epoch: int, chosen: bool) -> dict[str, Any]:
    shown = score if math.isfinite(score) else None  # a trial that diverged has none
    return {"learning_rate": rate, "epoch": epoch, "val_map": shown, "chosen": int(chosen)}
