"""Choice of the learning rate by a score, as in the papers' grids; every trial stays on record."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from pipeline.core.errors import TrainingError
from pipeline.training.settings import Search, Training

Trial = TypeVar("Trial")


class Verdict(NamedTuple):
    """What validation says of a trial."""

    score: float
    """Its best selection score; -inf where it diverged."""
    epoch: int
    """Its chosen epoch, from 1; 0 where it diverged."""
    diverged: int | None
    """The epoch in which it diverged; None where it did not."""


def choose(
    settings: Training, train: Callable[[float, int | None], Trial], judge: Callable[[Trial], Verdict]
) -> tuple[float, Trial, list[dict[str, Any]]]:
    """Train at each learning rate and keep the one with the best validation score.

    Args:
        settings: The stage's settings: one learning rate, or a grid.
        train: Trains at (learning rate, epochs or None for the stage's).
        judge: Says how what was trained fares.

    Returns:
        The learning rate, what was trained at it, and one row a trial. Equal scores: the smaller rate; all equal, so
        that validation says nothing: the middle one. Where trials are shorter than the run, it is trained once more at
        the chosen rate, and at the next best where it diverges then. Where the best rate is an edge of the grid, the
        grid is widened as `Search.extend` allows.

    Raises:
        TrainingError: Training diverged at every rate of a grid.
    """  # noqa: DOC502  raised below
    if settings.learning_rate == "grid":
        assert settings.search is not None  # the schema asks for it
        return _search_grid(settings.search, train, judge)
    trial = train(settings.learning_rate, None)
    return settings.learning_rate, trial, [_row(settings.learning_rate, judge(trial)) | {"chosen": 1}]


def middle_rate(settings: Training) -> float:
    """Return the middle one of the rates to search, the lower of two; or the one rate."""
    if settings.learning_rate != "grid":
        return settings.learning_rate
    assert settings.search is not None  # the schema asks for it
    rates = sorted(settings.search.values)
    return rates[(len(rates) - 1) // 2]


def are_tied(rows: list[dict[str, Any]]) -> bool:
    """Return whether several trials all scored the same, so that validation says nothing of their rates."""
    scores = [row["score"] for row in rows if row["score"] is not None]  # None: it diverged
    return len(scores) > 1 and len(set(scores)) == 1


def is_edge(rows: list[dict[str, Any]]) -> bool:
    """Return whether the chosen rate is the lowest or highest of at least three, so that a better one may lie outside.

    Of two rates one is always the edge.
    """
    tried = sorted(row["learning_rate"] for row in rows)
    chosen = next(row["learning_rate"] for row in rows if row["chosen"])
    return len(tried) > 2 and chosen in (tried[0], tried[-1])


def _search_grid(
    search: Search, train: Callable[[float, int | None], Trial], judge: Callable[[Trial], Verdict]
) -> tuple[float, Trial, list[dict[str, Any]]]:
    waiting = sorted(search.values)
    middle = waiting[(len(waiting) - 1) // 2]
    rows: dict[float, dict[str, Any]] = {}
    held: dict[float, Trial] = {}  # the few that may still be chosen: a trial can hold gigabytes of logits
    while waiting:
        rate = waiting.pop(0)
        trial = train(rate, search.epochs)
        rows[rate] = _row(rate, judge(trial))
        if search.epochs is None:
            held[rate] = trial
            wanted = {middle, *_ranked(rows)[:1]}
            held = {kept: trial for kept, trial in held.items() if kept in wanted}
        if not waiting and len(rows) < len(search.values) + search.extend:
            waiting = _beyond(rows)
    rows = dict(sorted(rows.items()))
    ranked = _ranked(rows)
    if are_tied(list(rows.values())):
        middle = sorted(ranked)[(len(ranked) - 1) // 2]  # of those that did not diverge
        ranked = sorted(ranked, key=lambda rate: rate != middle)
    for rate in ranked:
        trial = held[rate] if rate in held else train(rate, None)
        rows[rate]["diverged"] = judge(trial).diverged
        if rows[rate]["diverged"] is None:
            rows[rate]["chosen"] = 1
            return rate, trial, list(rows.values())
    told = ", ".join(f"{rate:g} in epoch {row['diverged']}" for rate, row in rows.items())
    raise TrainingError(f"training diverged at every rate of search.values: {told}")


def _beyond(rows: dict[float, dict[str, Any]]) -> list[float]:
    """Return the rate that follows the best one where that is the lowest or highest tried; none where it is inside."""
    ranked, tried = _ranked(rows), sorted(rows)
    if not ranked or are_tied(list(rows.values())) or ranked[0] not in (tried[0], tried[-1]):
        return []
    edge, inner = (tried[0], tried[1]) if ranked[0] == tried[0] else (tried[-1], tried[-2])
    following = float(f"{edge * (edge / inner):.6g}")  # the digits that messages and files show
    return [following] if 0 < following < math.inf and following not in rows else []


def _ranked(rows: dict[float, dict[str, Any]]) -> list[float]:
    """Return the rates that did not diverge, the best first and of equal ones the smaller."""
    finite = [rate for rate, row in rows.items() if row["score"] is not None]
    return sorted(finite, key=lambda rate: (-rows[rate]["score"], rate))


def _row(rate: float, verdict: Verdict) -> dict[str, Any]:
    shown = verdict.score if math.isfinite(verdict.score) else None  # a trial that diverged has none
    return {"learning_rate": rate, "epoch": verdict.epoch, "score": shown, "chosen": 0, "diverged": verdict.diverged}
