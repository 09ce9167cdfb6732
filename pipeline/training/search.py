"""Choice of learning rate, weight decay and scale of features by a score, as in the papers' grids of rates.

Every trial stays on record.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from pipeline.core.errors import TrainingError
from pipeline.networks.settings import Scale, list_scales
from pipeline.training.settings import Search, Training

Trial = TypeVar("Trial")


class Setting(NamedTuple):
    """What a trial trains at."""

    rate: float
    """Learning rate."""
    decay: float
    """Weight decay."""
    scale: Scale | None
    """Scale of the features in the head; None of a head that has none."""

    @property
    def company(self) -> tuple[float, Scale | None]:
        """What the rate is tried with."""
        return self.decay, self.scale


class Verdict(NamedTuple):
    """What validation says of a trial."""

    score: float
    """Its best selection score; -inf where it diverged."""
    epoch: int
    """Its chosen epoch, from 1; 0 where it diverged."""
    diverged: int | None
    """The epoch in which it diverged; None where it did not."""


def list_company(settings: Training) -> list[tuple[float, Scale | None]]:
    """Return each weight decay with each scale of features, in the order of the settings."""
    decays = settings.weight_decay if isinstance(settings.weight_decay, list) else [settings.weight_decay]
    return list(itertools.product(decays, list_scales(settings.head)))


def choose(
    settings: Training, train: Callable[[Setting, int | None], Trial], judge: Callable[[Trial], Verdict]
) -> tuple[Setting, Trial, list[dict[str, Any]]]:
    """Train at each setting and keep the one with the best validation score.

    Args:
        settings: The stage's settings: one learning rate, or a grid.
        train: Trains at (setting, epochs or None for the stage's).
        judge: Says how what was trained fares.

    Returns:
        The setting, what was trained at it, and one row a trial. Equal scores: the smaller rate, then what is named
        first; all equal, so that validation says nothing: the middle rate with the weight decay and scale that are
        named first. Where trials are shorter than the run, it is trained once more at the chosen setting, and at the
        next best where it diverges then. Where the best rate is an edge of those tried at its decay and scale, the grid
        is widened as `Search.extend` allows.

    Raises:
        TrainingError: Training diverged at every setting of a grid.
    """  # noqa: DOC502  raised below
    if settings.learning_rate == "grid":
        return _search_grid(settings, train, judge)
    setting = fixed_setting(settings)
    trial = train(setting, None)
    return setting, trial, [_row(setting, judge(trial)) | {"chosen": 1}]


def fixed_setting(settings: Training) -> Setting:
    """Return the middle one of the rates to search, the lower of two, with the decay and scale that are named first."""
    rates = [settings.learning_rate] if settings.learning_rate != "grid" else _searched(settings).values
    return Setting(sorted(rates)[(len(rates) - 1) // 2], *list_company(settings)[0])


def are_tied(rows: list[dict[str, Any]]) -> bool:
    """Return whether several trials all scored the same, so that validation says nothing of their settings."""
    scores = [row["score"] for row in rows if row["score"] is not None]  # None: it diverged
    return len(scores) > 1 and len(set(scores)) == 1


def is_edge(rows: list[dict[str, Any]]) -> bool:
    """Return whether the chosen rate is the lowest or highest of at least three, so that a better one may lie outside.

    Of two rates one is always the edge. Rates that were tried at another weight decay or scale do not count.
    """
    chosen = next(row for row in rows if row["chosen"])
    company = [chosen[key] for key in ("weight_decay", "scale")]
    tried = sorted(row["learning_rate"] for row in rows if [row["weight_decay"], row["scale"]] == company)
    return len(tried) > 2 and chosen["learning_rate"] in (tried[0], tried[-1])


def name_setting(setting: Setting, settings: Training) -> str:
    """Return a setting in messages: the rate, and what else is searched."""
    decay = f" wd {setting.decay:g}" if isinstance(settings.weight_decay, list) else ""
    scale = f" scale {setting.scale}" if len(list_scales(settings.head)) > 1 else ""
    return f"{setting.rate:g}{decay}{scale}"


def _searched(settings: Training) -> Search:
    assert settings.search is not None  # the schema asks for it
    return settings.search


def _search_grid(
    settings: Training, train: Callable[[Setting, int | None], Trial], judge: Callable[[Trial], Verdict]
) -> tuple[Setting, Trial, list[dict[str, Any]]]:
    search = _searched(settings)
    waiting = [Setting(rate, *each) for each in list_company(settings) for rate in sorted(search.values)]
    most, fixed = len(waiting) + search.extend, fixed_setting(settings)
    rows: dict[Setting, dict[str, Any]] = {}
    held: dict[Setting, Trial] = {}  # the few that may still be chosen: a trial can hold gigabytes of logits
    while waiting:
        setting = waiting.pop(0)
        trial = train(setting, search.epochs)
        rows[setting] = _row(setting, judge(trial))
        if search.epochs is None:
            held[setting] = trial
            wanted = {fixed, *_ranked(rows)[:1]}
            held = {kept: trial for kept, trial in held.items() if kept in wanted}
        if not waiting and len(rows) < most:
            waiting = _beyond(rows)
    company = list_company(settings)
    rows = dict(sorted(rows.items(), key=lambda item: (company.index(item[0].company), item[0].rate)))
    ranked = _ranked(rows)
    if are_tied(list(rows.values())):
        first = next(setting.company for setting in rows if setting in ranked)  # of those that did not diverge
        rates = [setting for setting in rows if setting in ranked and setting.company == first]
        middle = rates[(len(rates) - 1) // 2]
        ranked = sorted(ranked, key=lambda setting: setting != middle)
    for setting in ranked:
        trial = held[setting] if setting in held else train(setting, None)
        rows[setting]["diverged"] = judge(trial).diverged
        if rows[setting]["diverged"] is None:
            rows[setting]["chosen"] = 1
            return setting, trial, list(rows.values())
    told = ", ".join(f"{name_setting(each, settings)} in epoch {row['diverged']}" for each, row in rows.items())
    raise TrainingError(f"training diverged at every rate of search.values: {told}")


def _beyond(rows: dict[Setting, dict[str, Any]]) -> list[Setting]:
    """Return the rate that follows the best one where that is the lowest or highest tried; none where it is inside.

    Rates count that were tried at the best one's weight decay and scale, and the next one is tried at these.
    """
    ranked = _ranked(rows)
    if not ranked or are_tied(list(rows.values())):
        return []
    best = ranked[0]
    tried = sorted(setting.rate for setting in rows if setting.company == best.company)
    if len(tried) < 2 or best.rate not in (tried[0], tried[-1]):
        return []
    edge, inner = (tried[0], tried[1]) if best.rate == tried[0] else (tried[-1], tried[-2])
    following = float(f"{edge * (edge / inner):.6g}")  # the digits that messages and files show
    return [best._replace(rate=following)] if 0 < following < math.inf and following not in tried else []


def _ranked(rows: dict[Setting, dict[str, Any]]) -> list[Setting]:
    """Return the settings that did not diverge, the best first, of equal ones the smaller rate, then the first."""
    finite = [setting for setting, row in rows.items() if row["score"] is not None]
    return sorted(finite, key=lambda setting: (-rows[setting]["score"], setting.rate))


def _row(setting: Setting, verdict: Verdict) -> dict[str, Any]:
    shown = verdict.score if math.isfinite(verdict.score) else None  # a trial that diverged has none
    tried = {"learning_rate": setting.rate, "weight_decay": setting.decay, "scale": setting.scale}
    return {**tried, "epoch": verdict.epoch, "score": shown, "chosen": 0, "diverged": verdict.diverged}
