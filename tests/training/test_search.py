from typing import Any

import pytest

from pipeline.training import search
from tests import tiny

Run = tuple[float, int | None]


class Trials:
    """Fits that score by their learning rate."""

    def __init__(self, scores: dict[float, float]) -> None:
        self.scores, self.made = scores, list[Run]()

    def fit(self, rate: float, epochs: int | None) -> Run:
        self.made.append((rate, epochs))
        return rate, epochs

    def judge(self, run: Run) -> tuple[float, int]:
        return self.scores[run[0]], 5 if run[1] is None else run[1]


def settings(values: list[float], epochs: int | None = None, rate: Any = "grid") -> Any:
    return tiny.training(learning_rate=rate, search={"values": values, "epochs": epochs})


def test_a_given_rate_is_trained_once() -> None:
    trials = Trials({0.5: 31.0})
    rate, run, rows = search.choose(settings([0.1, 0.2], rate=0.5), trials.fit, trials.judge)
    assert (rate, run, trials.made) == (0.5, (0.5, None), [(0.5, None)])
    assert rows == [{"learning_rate": 0.5, "epoch": 5, "val_map": 31.0, "chosen": 1}]


def test_a_grid_keeps_the_best_run_and_every_trial() -> None:
    trials = Trials({0.1: 20.0, 0.2: 60.0, 0.4: 30.0})
    rate, run, rows = search.choose(settings([0.4, 0.1, 0.2]), trials.fit, trials.judge)
    assert trials.made == [(0.1, None), (0.2, None), (0.4, None)]  # ascending, each once
    assert (rate, run) == (0.2, (0.2, None))
    assert [(row["learning_rate"], row["val_map"], row["chosen"]) for row in rows] == [
        (0.1, 20.0, 0),
        (0.2, 60.0, 1),
        (0.4, 30.0, 0),
    ]


def test_the_smaller_of_equal_rates_wins() -> None:
    trials = Trials({0.1: 20.0, 0.2: 60.0, 0.4: 60.0})
    assert search.choose(settings([0.4, 0.2, 0.1]), trials.fit, trials.judge)[0] == 0.2


@pytest.mark.parametrize("scores", [{0.1: -1.0, 0.2: -3.0}, {0.1: 0.0, 0.2: 0.0}])
def test_any_score_can_win(scores: dict[float, float]) -> None:
    trials = Trials(scores)
    assert search.choose(settings([0.1, 0.2]), trials.fit, trials.judge)[0] == 0.1


def test_short_trials_are_followed_by_one_whole_run() -> None:
    trials = Trials({0.1: 20.0, 0.2: 60.0})
    rate, run, rows = search.choose(settings([0.1, 0.2], epochs=2), trials.fit, trials.judge)
    assert trials.made == [(0.1, 2), (0.2, 2), (0.2, None)]
    assert (rate, run) == (0.2, (0.2, None))
    assert [(row["epoch"], row["chosen"]) for row in rows] == [(2, 0), (2, 1)]  # what the choice was made by
