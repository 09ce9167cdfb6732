import math
import statistics

import numpy as np
import pytest
import scipy.stats

from pipeline.audits.paired import compare_paired, spread_runs, tells_apart

DRAWS = np.array([0, 0, 1, 1, 1, 4, 4])
VALUES = np.array([1.0, 3.0, 5.0, 6.0, 7.0, 9.0, 9.5])
MEANS = (2.0, 6.0, 9.25)


def test_a_draw_counts_once_however_many_seeds_were_trained_on_it() -> None:
    found = spread_runs(DRAWS, VALUES)
    assert found["mean"] == pytest.approx(statistics.mean(MEANS)) != pytest.approx(VALUES.mean())
    assert found["std_draws"] == found["std"] == pytest.approx(statistics.stdev(MEANS))
    # within draws: 2 * 1^2 with one freedom, 2 * 1^2 with two, 2 * 0.25^2 with one
    assert found["std_seeds"] == pytest.approx(math.sqrt((2 + 2 + 0.125) / 4))
    assert (found["n"], found["draws"]) == (7, 3)


def test_the_spread_that_is_known_stands_for_both() -> None:
    one_draw = spread_runs(np.zeros(3, int), np.array([1.0, 2.0, 4.0]))
    assert one_draw["std"] == one_draw["std_seeds"] == pytest.approx(statistics.stdev([1, 2, 4]))
    assert np.isnan(one_draw["std_draws"])
    one_seed = spread_runs(np.arange(3), np.array([1.0, 2.0, 4.0]))
    assert one_seed["std"] == one_seed["std_draws"] == pytest.approx(statistics.stdev([1, 2, 4]))
    assert np.isnan(one_seed["std_seeds"])


@pytest.mark.parametrize("values", [[], [np.nan], [5.0], [np.nan, 5.0]])
def test_what_is_not_defined_is_nan(values: list[float]) -> None:
    found = compare_paired(np.arange(len(values)), np.array(values))
    known = [value for value in values if value == value]
    assert (found["n"], found["draws"], found["won"]) == (len(known),) * 3
    assert found["mean"] == 5.0 if known else np.isnan(found["mean"])
    assert np.isnan([found[name] for name in ("std", "std_draws", "std_seeds", "low", "high")]).all()


@pytest.mark.parametrize("draws", [3, 4, 12])
def test_the_interval_is_that_of_a_paired_t_test(draws: int) -> None:
    generator = np.random.default_rng(draws)
    first, second = generator.normal(size=(2, draws)) * 3
    found = compare_paired(np.arange(draws), first - second)
    expected = scipy.stats.ttest_rel(first, second)
    low, high = expected.confidence_interval(0.95)
    assert (found["low"], found["high"]) == (pytest.approx(low), pytest.approx(high))
    assert found["won"] == (first > second).sum()
    assert tells_apart(found["low"], found["high"]) == (expected.pvalue < 0.05)


def test_seeds_are_averaged_before_draws_are_paired() -> None:
    found = compare_paired(DRAWS, VALUES - 6.0)
    low, high = scipy.stats.ttest_1samp(np.array(MEANS) - 6.0, 0).confidence_interval(0.95)
    assert (found["low"], found["high"]) == (pytest.approx(low), pytest.approx(high))
    assert found["won"] == 1  # the mean of draw 1 is level


@pytest.mark.parametrize("draws", [np.zeros(5, int), np.array([0, 0, 0, 1, 1])])
def test_one_or_two_draws_tell_nothing_apart(draws: np.ndarray) -> None:
    found = compare_paired(draws, np.full(5, 40.0))
    assert np.isnan([found["low"], found["high"]]).all() and not tells_apart(found["low"], found["high"])


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        found = compare_paired(np.arange(3), generator.normal(1.5, 2.0, 3))
        covered += found["low"] <= 1.5 <= found["high"]
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("low, high, told", [(0.1, 1, True), (-1, -0.1, True), (-0.1, 1, False), (0.0, 0.0, False)])
def test_an_interval_that_holds_zero_tells_nothing_apart(low: float, high: float, told: bool) -> None:
    assert tells_apart(low, high) == told
