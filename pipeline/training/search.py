"""Choice of the learning rate on validation, as in the papers' grids; every trial stays on record."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

from pipeline.training.settings import Search, Training

Run = TypeVar("Run")


def choose(
    settings: Training, fit: Callable[[float, int | None], Run], judge: Callable[[Run], tuple[float, int]]
) -> tuple[float, Run, list[dict[str, Any]]]:
    """Train at each learning rate and keep the one with the best validation score.

    Args:
        settings: The stage's settings: one learning rate, or a grid.
        fit: Trains a run at (learning rate, epochs or None for the stage's).
        judge: Returns a run's (score, chosen epoch).

    Returns:
        The learning rate, its run, and one row a trial. Equal scores: the smaller rate. Where trials are shorter than
        the run, the run is trained once more at the chosen rate.
    """
    if settings.learning_rate != "grid":
        run = fit(settings.learning_rate, None)
        return settings.learning_rate, run, [_row(settings.learning_rate, *judge(run), True)]
    return _grid(settings.search, fit, judge)


def _grid(
    search: Search, fit: Callable[[float, int | None], Run], judge: Callable[[Run], tuple[float, int]]
) -> tuple[float, Run, list[dict[str, Any]]]:
    best: tuple[float, float, Run] | None = None
    rows = []
    for rate in sorted(search.values):
        run = fit(rate, search.epochs)
        score, epoch = judge(run)
        rows.append(_row(rate, score, epoch, False))
        if best is None or score > best[0]:
            best = (score, rate, run)
    assert best is not None  # the schema asks for one value at least
    _, rate, run = best
    if search.epochs is not None:
        run = fit(rate, None)
    for row in rows:
        row["chosen"] = int(row["learning_rate"] == rate)
    return rate, run, rows


def _row(rate: float, score: float, epoch: int, chosen: bool) -> dict[str, Any]:
    shown = score if math.isfinite(score) else None  # a trial that diverged has none
    return {"learning_rate": rate, "epoch": epoch, "val_map": shown, "chosen": int(chosen)}
