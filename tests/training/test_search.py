import itertools
import math
import random
from typing import Any

import pytest

from pipeline.core.errors import TrainingError
from pipeline.training import search
from tests import tiny

Run = tuple[float, int | None]


class Trials:
    """Fits that score by their learning rate."""

    def __init__(self, scores: dict[float, float], diverged: dict[Run, int] | None = None) -> None:
        self.scores, self.made, self.diverged = scores, list[Run](), diverged or {}

    def fit(self, setting: search.Setting, epochs: int | None) -> Run:
        assert setting.company == (0.0, "none")
        self.made.append((setting.rate, epochs))
        return setting.rate, epochs

    def judge(self, run: Run) -> search.Verdict:
        if run in self.diverged:
            return search.Verdict(-math.inf, 0, self.diverged[run])
        return search.Verdict(self.scores[run[0]], 5 if run[1] is None else run[1], None)


def settings(values: list[float], epochs: int | None = None, rate: Any = "grid", extend: int = 0) -> Any:
    search = {"values": values, "epochs": epochs, "extend": extend} if rate == "grid" else None
    return tiny.training(learning_rate=rate, search=search)


def choose(given: Any, trials: Trials) -> tuple[float, Run, list[dict[str, Any]]]:
    """Search rates at one weight decay and scale."""
    setting, run, rows = search.choose(given, trials.fit, trials.judge)
    assert setting == (setting.rate, 0.0, "none")
    return setting.rate, run, rows


def test_a_given_rate_is_trained_once() -> None:
    trials = Trials({0.5: 31.0})
    rate, run, rows = choose(settings([0.1, 0.2], rate=0.5), trials)
    assert (rate, run, trials.made) == (0.5, (0.5, None), [(0.5, None)])
    tried = {"learning_rate": 0.5, "weight_decay": 0.0, "scale": "none"}
    assert rows == [{**tried, "epoch": 5, "score": 31.0, "chosen": 1, "diverged": None}]


def test_a_grid_keeps_the_best_run_and_every_trial() -> None:
    trials = Trials({0.1: 20.0, 0.2: 60.0, 0.4: 30.0})
    rate, run, rows = choose(settings([0.4, 0.1, 0.2]), trials)
    assert trials.made == [(0.1, None), (0.2, None), (0.4, None)]  # ascending, each once
    assert (rate, run) == (0.2, (0.2, None))
    assert [(row["learning_rate"], row["score"], row["chosen"]) for row in rows] == [
        (0.1, 20.0, 0),
        (0.2, 60.0, 1),
        (0.4, 30.0, 0),
    ]


def test_the_smaller_of_equal_rates_wins() -> None:
    trials = Trials({0.1: 20.0, 0.2: 60.0, 0.4: 60.0})
    assert choose(settings([0.4, 0.2, 0.1]), trials)[0] == 0.2


@pytest.mark.parametrize("scores", [{0.1: -1.0, 0.2: -3.0}, {0.1: 0.0, 0.2: -1.0}])
def test_any_score_can_win(scores: dict[float, float]) -> None:
    trials = Trials(scores)
    assert choose(settings([0.1, 0.2]), trials)[0] == 0.1


def test_short_trials_are_followed_by_one_whole_run() -> None:
    trials = Trials({0.1: 20.0, 0.2: 60.0})
    rate, run, rows = choose(settings([0.1, 0.2], epochs=2), trials)
    assert trials.made == [(0.1, 2), (0.2, 2), (0.2, None)]
    assert (rate, run) == (0.2, (0.2, None))
    assert [(row["epoch"], row["chosen"]) for row in rows] == [(2, 0), (2, 1)]  # what the choice was made by


@pytest.mark.parametrize(
    ("values", "rate"), [([0.1, 0.2, 0.4], 0.2), ([0.4, 0.2, 0.1], 0.2), ([0.1, 0.2], 0.1), ([1.0, 2.0, 3.0, 4.0], 2.0)]
)
@pytest.mark.parametrize("epochs", [None, 2])
def test_of_trials_that_all_tie_the_middle_rate_is_taken(values: list[float], rate: float, epochs: int | None) -> None:
    trials = Trials(dict.fromkeys(values, 7.0))
    found, run, rows = choose(settings(values, epochs), trials)
    assert (found, run) == (rate, (rate, None)) and search.are_tied(rows)
    assert [row["learning_rate"] for row in rows if row["chosen"]] == [rate]


def test_a_rate_that_diverged_hides_no_tie() -> None:
    trials = Trials({0.1: 7.0, 0.2: 7.0, 0.4: 7.0, 0.8: -math.inf})
    rate, _, rows = choose(settings([0.1, 0.2, 0.4, 0.8]), trials)
    assert rate == 0.2 and search.are_tied(rows)


def test_two_of_three_that_tie_are_no_tie() -> None:
    trials = Trials({0.1: 5.0, 0.2: 7.0, 0.4: 7.0})
    rate, _, rows = choose(settings([0.1, 0.2, 0.4]), trials)
    assert rate == 0.2 and not search.are_tied(rows)
    assert not search.are_tied(choose(settings([0.1]), trials)[2])


def test_the_next_best_rate_is_trained_where_the_best_trial_diverges_later() -> None:
    trials = Trials({0.1: 20.0, 0.2: 40.0, 0.4: 60.0}, {(0.4, None): 3})
    rate, run, rows = choose(settings([0.1, 0.2, 0.4], epochs=2), trials)
    assert trials.made == [(0.1, 2), (0.2, 2), (0.4, 2), (0.4, None), (0.2, None)]
    assert (rate, run) == (0.2, (0.2, None))
    found = [(row["learning_rate"], row["score"], row["chosen"], row["diverged"]) for row in rows]
    assert found == [(0.1, 20.0, 0, None), (0.2, 40.0, 1, None), (0.4, 60.0, 0, 3)]


def test_a_trial_that_diverged_is_not_trained_again() -> None:
    trials = Trials({0.1: 20.0, 0.2: 40.0}, {(0.2, 2): 1})
    rate, _, rows = choose(settings([0.1, 0.2], epochs=2), trials)
    assert rate == 0.1 and trials.made == [(0.1, 2), (0.2, 2), (0.1, None)]
    assert (rows[1]["score"], rows[1]["epoch"], rows[1]["diverged"]) == (None, 0, 1)


@pytest.mark.parametrize("epochs", [None, 2])
def test_every_rate_that_diverged_is_told_with_its_epoch(epochs: int | None) -> None:
    trials = Trials({0.1: 20.0, 0.2: 40.0}, {(0.1, epochs): 1, (0.2, epochs): 2, (0.2, None): 2, (0.1, None): 1})
    with pytest.raises(TrainingError, match=r"at every rate of search.values: 0.1 in epoch 1, 0.2 in epoch 2$"):
        choose(settings([0.1, 0.2], epochs), trials)


# ---------------------------------------------------------------------------------------------- widening the grid
def widen_slowly(curve: dict[int, float], size: int, extend: int) -> tuple[list[int], int | None]:
    """Positions on a ladder of rates that a search tries, and the chosen one; None where all diverged.

    The grid is 0 to size - 1. Of all intervals that hold it and at most ``extend`` rates more, each is searched on its
    own for its best; the one that is reached is the first, by length, whose best no neighbour outside continues.
    """

    def best(low: int, high: int) -> int | None:
        found = [(-curve[at], at) for at in range(low, high + 1) if curve[at] > -math.inf]
        return min(found)[1] if found else None

    def tied(low: int, high: int) -> bool:
        found = [curve[at] for at in range(low, high + 1) if curve[at] > -math.inf]
        return len(found) > 1 and min(found) == max(found)

    reached = {(0, size - 1)}
    ends = itertools.product(range(-extend, 1), range(size - 1, size + extend))
    for low, high in sorted(ends, key=lambda pair: pair[1] - pair[0]):
        up, down = (low, high - 1), (low + 1, high)
        came = (high >= size and up in reached and best(*up) == high - 1 and not tied(*up)) or (
            low < 0 and down in reached and best(*down) == low + 1 and not tied(*down)
        )
        reached |= {(low, high)} if came and high - low + 1 <= size + extend else set()
    low, high = max(reached, key=lambda pair: pair[1] - pair[0])
    finite = [at for at in range(low, high + 1) if curve[at] > -math.inf]
    middle = finite[(len(finite) - 1) // 2] if tied(low, high) else best(low, high)
    return list(range(low, high + 1)), middle


KINDS = {
    "peak": lambda at, where, stream: 50.0 - (at - where) ** 2,
    "rising": lambda at, where, stream: float(at),
    "falling": lambda at, where, stream: float(-at),
    "noise": lambda at, where, stream: stream.uniform(0, 100),
    "few values": lambda at, where, stream: float(stream.randint(0, 2)),
    "flat": lambda at, where, stream: 3.0,
}


@pytest.mark.parametrize("epochs", [None, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_grid_is_widened_while_its_edge_is_best(kind: str, epochs: int | None) -> None:
    stream = random.Random(kind)
    for _ in range(150):
        size, extend, limit = stream.randint(2, 4), stream.randint(0, 4), stream.choice([99, 99, 2, 3, -9])
        where = stream.randint(-3, 6)
        curve = {at: KINDS[kind](at, where, stream) if at < limit else -math.inf for at in range(-4, 9)}
        if stream.random() < 0.2:
            curve[stream.randint(-4, 8)] = -math.inf
        rates = {at: float(f"{0.01 * 2.0**at:.6g}") for at in curve}
        scores = {rates[at]: score for at, score in curve.items()}
        diverged = {(rate, epochs): 1 for rate, score in scores.items() if score == -math.inf}
        trials = Trials(scores, diverged)
        grid = settings([rates[at] for at in range(size)], epochs, extend=extend)
        tried, chosen = widen_slowly(curve, size, extend)
        if chosen is None:
            with pytest.raises(TrainingError, match="at every rate"):
                choose(grid, trials)
            continue
        rate, run, rows = choose(grid, trials)
        assert [row["learning_rate"] for row in rows] == [rates[at] for at in tried], (curve, size, extend)
        assert (rate, run) == (rates[chosen], (rates[chosen], None))
        assert search.is_edge(rows) == (len(tried) > 2 and chosen in (tried[0], tried[-1]))


@pytest.mark.parametrize(
    ("sign", "tried"),
    [(1, [0.003, 0.01, 0.03, 0.09, 0.27]), (-1, [0.00027, 0.0009, 0.003, 0.01, 0.03])],
)
def test_added_rates_go_on_in_the_ratio_of_the_outermost_two(sign: int, tried: list[float]) -> None:
    trials = Trials({rate: sign * math.log(rate) for rate in tried})
    rate, _, rows = choose(settings([0.003, 0.01, 0.03], extend=2), trials)
    assert [row["learning_rate"] for row in rows] == tried and rate == tried[sign * -1 if sign > 0 else 0]
    assert search.is_edge(rows)
    assert [made for made, _ in trials.made[:3]] == [0.003, 0.01, 0.03]  # the grid first


@pytest.mark.parametrize(("values", "sign"), [([1e308, 1e306], 1), ([1e-323, 1e-300], -1), ([0.001, 0.0009999999], 1)])
def test_a_grid_is_not_widened_beyond_numbers_and_their_digits(values: list[float], sign: int) -> None:
    trials = Trials({value: sign * math.log(value) for value in values})
    rate, _, rows = choose(settings(values, extend=4), trials)
    assert rate == values[0] and len(rows) == 2


# ---------------------------------------------------------------------------------------------- decays and scales
class Surface:
    """Trials that score by rate, decay and scale: 3 points less for each factor of 10 from the best rate."""

    def __init__(self, best: dict[Any, tuple[float, float]]) -> None:
        self.best, self.made = best, list[search.Setting]()

    def fit(self, setting: search.Setting, epochs: int | None) -> search.Setting:
        self.made.append(setting)
        return setting

    def judge(self, setting: search.Setting) -> search.Verdict:
        rate, score = self.best[setting.decay, str(setting.scale)]
        return search.Verdict(score - 3 * abs(math.log10(setting.rate / rate)), 4, None)


def grid(extend: int = 0, **changes: Any) -> Any:
    head = {"kind": "linear", "scale": changes.pop("scale", ["none", "unit"])}
    block = {"weight_decay": [0.0, 0.1], "learning_rate": "grid", "head": head} | changes
    return tiny.training(search={"values": [0.1, 0.01, 1.0], "epochs": None, "extend": extend}, **block)


def test_each_rate_is_tried_with_each_decay_and_scale() -> None:
    peaks = {
        (0.0, "none"): (0.1, 10.0),
        (0.0, "unit"): (0.1, 20.0),
        (0.1, "none"): (1.0, 15.0),
        (0.1, "unit"): (0.1, 18.0),
    }
    surface = Surface(peaks)
    setting, run, rows = search.choose(grid(), surface.fit, surface.judge)
    whole = list(itertools.product((0.0, 0.1), ("none", "unit"), (0.01, 0.1, 1.0)))
    assert [(made.decay, made.scale, made.rate) for made in surface.made] == whole
    assert [(row["weight_decay"], row["scale"], row["learning_rate"]) for row in rows] == whole
    assert setting == run == (0.1, 0.0, "unit") and [row["chosen"] for row in rows].index(1) == 4
    assert sum(row["chosen"] for row in rows) == 1 and not search.is_edge(rows)


def test_a_grid_is_widened_in_its_rates_at_the_decay_and_scale_of_the_best_alone() -> None:
    peaks = {
        (0.0, "none"): (0.1, 10.0),
        (0.0, "unit"): (1e3, 25.0),
        (0.1, "none"): (1.0, 15.0),
        (0.1, "unit"): (0.1, 13.0),
    }
    surface = Surface(peaks)
    setting, _, rows = search.choose(grid(extend=2), surface.fit, surface.judge)
    assert surface.made[12:] == [(10.0, 0.0, "unit"), (100.0, 0.0, "unit")] and len(rows) == 14
    assert setting == (100.0, 0.0, "unit") and search.is_edge(rows)
    told = [row["learning_rate"] for row in rows if (row["weight_decay"], row["scale"]) == (0.0, "unit")]
    assert told == [0.01, 0.1, 1.0, 10.0, 100.0]
    peaks[0.1, "none"] = (1.0, 24.0)  # above what (0.0, unit) reaches at 10, but not at 100
    surface = Surface(peaks | {(0.0, "unit"): (100.0, 25.0)})
    setting, _, rows = search.choose(grid(extend=1), surface.fit, surface.judge)
    assert setting == (1.0, 0.1, "none") and not search.is_edge(rows)
    assert surface.made[12:] == [(10.0, 0.1, "none")]


@pytest.mark.parametrize(
    ("own", "others", "edge"),
    [
        ((0.001, 0.01, 0.1), (0.01, 1.0), True),  # the highest at its own decay
        ((0.01, 0.1, 1.0), (0.1, 0.001), False),
        ((0.01, 0.1), (0.001, 0.01, 0.1), False),  # of two rates one is always the edge
    ],
)
def test_rates_of_another_decay_make_no_edge(own: tuple[float, ...], others: tuple[float, ...], edge: bool) -> None:
    rows = [
        {"learning_rate": rate, "weight_decay": decay, "scale": None, "chosen": int((rate, decay) == (0.1, 0.5))}
        for decay, rates in ((0.0, others), (0.5, own))
        for rate in rates
    ]
    assert search.is_edge(rows) == edge


def test_equal_scores_take_the_smaller_rate_then_what_is_named_first() -> None:
    tops = dict.fromkeys(itertools.product((0.0, 0.1), ("none", "unit")), (0.1, 20.0))
    surface = Surface(tops)
    assert search.choose(grid(), surface.fit, surface.judge)[0] == (0.1, 0.0, "none")
    surface = Surface(tops)
    turned = grid(weight_decay=[0.1, 0.0], scale=["unit", "none"])
    assert search.choose(turned, surface.fit, surface.judge)[0] == (0.1, 0.1, "unit")
    surface = Surface(tops | {(0.0, "none"): (0.01, 20.0)})
    assert search.choose(turned, surface.fit, surface.judge)[0] == (0.01, 0.0, "none")


def test_of_all_that_tie_the_middle_rate_is_taken_with_what_is_named_first() -> None:
    surface = Surface({})
    flat = search.Verdict(7.0, 1, None)
    setting, _, rows = search.choose(grid(extend=3, weight_decay=[0.1, 0.0]), surface.fit, lambda _: flat)
    assert setting == (0.1, 0.1, "none") == search.fixed_setting(grid(weight_decay=[0.1, 0.0]))
    assert search.are_tied(rows) and len(rows) == 12

    def judge(setting: search.Setting) -> search.Verdict:  # the first decay and scale diverge at every rate
        return search.Verdict(-math.inf, 0, 1) if setting.company == (0.1, "none") else flat

    setting, *_ = search.choose(grid(weight_decay=[0.1, 0.0]), surface.fit, judge)
    assert setting == (0.1, 0.1, "unit")


def test_all_that_diverged_are_told_with_decay_and_scale() -> None:
    surface = Surface({})
    with pytest.raises(TrainingError, match=r"search.values: 0.01 wd 0 in epoch 1, .*, 1 wd 0.1 in epoch 1$"):
        search.choose(grid(scale="none"), surface.fit, lambda _: search.Verdict(-math.inf, 0, 1))
    with pytest.raises(TrainingError, match=r"search.values: 0.01 wd 0 scale none in epoch 1, "):
        search.choose(grid(), surface.fit, lambda _: search.Verdict(-math.inf, 0, 1))
