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

    def fit(self, rate: float, epochs: int | None) -> Run:
        self.made.append((rate, epochs))
        return rate, epochs

    def judge(self, run: Run) -> search.Verdict:
        if run in self.diverged:
            return search.Verdict(-math.inf, 0, self.diverged[run])
        return search.Verdict(self.scores[run[0]], 5 if run[1] is None else run[1], None)


def settings(values: list[float], epochs: int | None = None, rate: Any = "grid", extend: int = 0) -> Any:
    search = {"values": values, "epochs": epochs, "extend": extend} if rate == "grid" else None
    return tiny.training(learning_rate=rate, search=search)


def test_a_given_rate_is_trained_once() -> None:
    trials = Trials({0.5: 31.0})
    rate, run, rows = search.choose(settings([0.1, 0.2], rate=0.5), trials.fit, trials.judge)
    assert (rate, run, trials.made) == (0.5, (0.5, None), [(0.5, None)])
    assert rows == [{"learning_rate": 0.5, "epoch": 5, "score": 31.0, "chosen": 1, "diverged": None}]


def test_a_grid_keeps_the_best_run_and_every_trial() -> None:
    trials = Trials({0.1: 20.0, 0.2: 60.0, 0.4: 30.0})
    rate, run, rows = search.choose(settings([0.4, 0.1, 0.2]), trials.fit, trials.judge)
    assert trials.made == [(0.1, None), (0.2, None), (0.4, None)]  # ascending, each once
    assert (rate, run) == (0.2, (0.2, None))
    assert [(row["learning_rate"], row["score"], row["chosen"]) for row in rows] == [
        (0.1, 20.0, 0),
        (0.2, 60.0, 1),
        (0.4, 30.0, 0),
    ]


def test_the_smaller_of_equal_rates_wins() -> None:
    trials = Trials({0.1: 20.0, 0.2: 60.0, 0.4: 60.0})
    assert search.choose(settings([0.4, 0.2, 0.1]), trials.fit, trials.judge)[0] == 0.2


@pytest.mark.parametrize("scores", [{0.1: -1.0, 0.2: -3.0}, {0.1: 0.0, 0.2: -1.0}])
def test_any_score_can_win(scores: dict[float, float]) -> None:
    trials = Trials(scores)
    assert search.choose(settings([0.1, 0.2]), trials.fit, trials.judge)[0] == 0.1


def test_short_trials_are_followed_by_one_whole_run() -> None:
    trials = Trials({0.1: 20.0, 0.2: 60.0})
    rate, run, rows = search.choose(settings([0.1, 0.2], epochs=2), trials.fit, trials.judge)
    assert trials.made == [(0.1, 2), (0.2, 2), (0.2, None)]
    assert (rate, run) == (0.2, (0.2, None))
    assert [(row["epoch"], row["chosen"]) for row in rows] == [(2, 0), (2, 1)]  # what the choice was made by


@pytest.mark.parametrize(
    ("values", "rate"), [([0.1, 0.2, 0.4], 0.2), ([0.4, 0.2, 0.1], 0.2), ([0.1, 0.2], 0.1), ([1.0, 2.0, 3.0, 4.0], 2.0)]
)
@pytest.mark.parametrize("epochs", [None, 2])
def test_of_trials_that_all_tie_the_middle_rate_is_taken(values: list[float], rate: float, epochs: int | None) -> None:
    trials = Trials(dict.fromkeys(values, 7.0))
    found, run, rows = search.choose(settings(values, epochs), trials.fit, trials.judge)
    assert (found, run) == (rate, (rate, None)) and search.are_tied(rows)
    assert [row["learning_rate"] for row in rows if row["chosen"]] == [rate]


def test_a_rate_that_diverged_hides_no_tie() -> None:
    trials = Trials({0.1: 7.0, 0.2: 7.0, 0.4: 7.0, 0.8: -math.inf})
    rate, _, rows = search.choose(settings([0.1, 0.2, 0.4, 0.8]), trials.fit, trials.judge)
    assert rate == 0.2 and search.are_tied(rows)


def test_two_of_three_that_tie_are_no_tie() -> None:
    trials = Trials({0.1: 5.0, 0.2: 7.0, 0.4: 7.0})
    rate, _, rows = search.choose(settings([0.1, 0.2, 0.4]), trials.fit, trials.judge)
    assert rate == 0.2 and not search.are_tied(rows)
    assert not search.are_tied(search.choose(settings([0.1]), trials.fit, trials.judge)[2])


def test_the_next_best_rate_is_trained_where_the_best_trial_diverges_later() -> None:
    trials = Trials({0.1: 20.0, 0.2: 40.0, 0.4: 60.0}, {(0.4, None): 3})
    rate, run, rows = search.choose(settings([0.1, 0.2, 0.4], epochs=2), trials.fit, trials.judge)
    assert trials.made == [(0.1, 2), (0.2, 2), (0.4, 2), (0.4, None), (0.2, None)]
    assert (rate, run) == (0.2, (0.2, None))
    found = [(row["learning_rate"], row["score"], row["chosen"], row["diverged"]) for row in rows]
    assert found == [(0.1, 20.0, 0, None), (0.2, 40.0, 1, None), (0.4, 60.0, 0, 3)]


def test_a_trial_that_diverged_is_not_trained_again() -> None:
    trials = Trials({0.1: 20.0, 0.2: 40.0}, {(0.2, 2): 1})
    rate, _, rows = search.choose(settings([0.1, 0.2], epochs=2), trials.fit, trials.judge)
    assert rate == 0.1 and trials.made == [(0.1, 2), (0.2, 2), (0.1, None)]
    assert (rows[1]["score"], rows[1]["epoch"], rows[1]["diverged"]) == (None, 0, 1)


@pytest.mark.parametrize("epochs", [None, 2])
def test_every_rate_that_diverged_is_told_with_its_epoch(epochs: int | None) -> None:
    trials = Trials({0.1: 20.0, 0.2: 40.0}, {(0.1, epochs): 1, (0.2, epochs): 2, (0.2, None): 2, (0.1, None): 1})
    with pytest.raises(TrainingError, match=r"at every rate of search.values: 0.1 in epoch 1, 0.2 in epoch 2$"):
        search.choose(settings([0.1, 0.2], epochs), trials.fit, trials.judge)


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
                search.choose(grid, trials.fit, trials.judge)
            continue
        rate, run, rows = search.choose(grid, trials.fit, trials.judge)
        assert [row["learning_rate"] for row in rows] == [rates[at] for at in tried], (curve, size, extend)
        assert (rate, run) == (rates[chosen], (rates[chosen], None))
        assert search.is_edge(rows) == (len(tried) > 2 and chosen in (tried[0], tried[-1]))


@pytest.mark.parametrize(
    ("sign", "tried"),
    [(1, [0.003, 0.01, 0.03, 0.09, 0.27]), (-1, [0.00027, 0.0009, 0.003, 0.01, 0.03])],
)
def test_added_rates_go_on_in_the_ratio_of_the_outermost_two(sign: int, tried: list[float]) -> None:
    trials = Trials({rate: sign * math.log(rate) for rate in tried})
    rate, _, rows = search.choose(settings([0.003, 0.01, 0.03], extend=2), trials.fit, trials.judge)
    assert [row["learning_rate"] for row in rows] == tried and rate == tried[sign * -1 if sign > 0 else 0]
    assert search.is_edge(rows)
    assert [made for made, _ in trials.made[:3]] == [0.003, 0.01, 0.03]  # the grid first


@pytest.mark.parametrize(("values", "sign"), [([1e308, 1e306], 1), ([1e-323, 1e-300], -1), ([0.001, 0.0009999999], 1)])
def test_a_grid_is_not_widened_beyond_numbers_and_their_digits(values: list[float], sign: int) -> None:
    trials = Trials({value: sign * math.log(value) for value in values})
    rate, _, rows = search.choose(settings(values, extend=4), trials.fit, trials.judge)
    assert rate == values[0] and len(rows) == 2
