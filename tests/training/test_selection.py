"""Choice without truth: the judge against pairs counted by hand, folds, and who wins when nothing can be told apart."""

import numpy as np
import pytest

from pipeline.audits.unlabelled import compare_with_fixed, pooled_aul, resample_rows
from pipeline.training import selection
from pipeline.training.selection import CrossFit, Judge


def ranked(strength: float, seed: int, n: int = 400, c: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return labels that were shown and logits that rank them so well."""
    generator = np.random.default_rng(seed)
    shown = np.zeros((n, c), bool)
    shown[np.arange(n), generator.integers(0, c, n)] = True
    return shown, (strength * shown + generator.normal(size=(n, c))).astype(np.float32)


def test_the_score_is_the_share_of_images_that_shown_labels_outrank() -> None:
    shown, logits = ranked(1.0, 0, n=12)
    weights = np.arange(1.0, 13)
    won = mass = 0.0
    for row, column in zip(*np.nonzero(shown), strict=True):
        others = np.delete(logits[:, column], row)
        won, mass = won + weights[row] * np.mean(logits[row, column] > others), mass + weights[row]
    assert Judge(shown, weights, 0).score(logits) == pytest.approx(100 * won / mass)


def test_nothing_shown_scores_zero() -> None:
    assert Judge(np.zeros((4, 2), bool), np.ones(4), 0).score(np.ones((4, 2), np.float32)) == 0


@pytest.mark.parametrize(("gain", "better"), [(0.6, True), (0.0, False), (-0.6, False)])
def test_only_a_clear_gain_beats_the_fixed_recipe(gain: float, better: bool) -> None:
    shown, fixed = ranked(1.0, 1)
    best = fixed + np.float32(gain) * shown
    found = Judge(shown, np.ones(len(shown)), 0).compare_epochs([best, fixed], 0)
    assert found.better == better
    assert np.sign(found.difference.value) == np.sign(gain)


def test_the_best_of_many_equal_ones_is_rarely_taken() -> None:
    taken = alone = 0
    for trial in range(40):
        shown, fixed = ranked(1.0, trial, n=200)
        judge, generator = Judge(shown, np.ones(200), 0), np.random.default_rng(trial)
        noise = generator.normal(size=(40, *fixed.shape)).astype(np.float32)
        tried = [*(fixed + 0.3 * each for each in noise), fixed + 0.3 * generator.normal(size=fixed.shape)]
        best = int(np.argmax([judge.score(each) for each in tried]))
        taken += judge.compare_epochs(tried, best).better
        alone += judge.compare_epochs([tried[best], tried[-1]], 0).better  # as if nothing else had been tried
    assert taken <= 3 < alone  # of 40, at 2.5 % for one side


def test_a_gain_of_one_alone_has_the_error_of_a_paired_bootstrap() -> None:
    shown, fixed = ranked(1.0, 5)
    best = fixed + np.float32(0.3) * ranked(1.0, 6)[1]
    weights = np.random.default_rng(0).uniform(1, 3, len(shown))
    found = Judge(shown, weights, 0).compare_epochs([best, fixed], 0).difference
    repeats = resample_rows(len(shown), 400, np.random.default_rng(1))
    drawn = [100 * pooled_aul(each, shown, weights, repeats) for each in (best, fixed)]
    assert found.value == pytest.approx(
        100 * np.diff([pooled_aul(each, shown, weights)[0] for each in (fixed, best)])[0]
    )
    assert found.error == pytest.approx((drawn[0] - drawn[1]).std(ddof=1), rel=0.15)
    assert found.high - found.low == pytest.approx(2 * 1.96 * found.error, rel=0.15)


def test_intervals_of_all_that_were_tried_hold_together() -> None:
    """Means of rows of a normal distribution, whose true differences are 0."""
    missed = 0
    for trial in range(200):
        gains = np.random.default_rng(trial).normal(size=(12, 150)) * np.arange(1, 13)[:, None]
        repeats = resample_rows(150, 200, np.random.default_rng(trial + 1000))
        found = compare_with_fixed(gains, np.zeros(150), np.ones(150), repeats, 150)
        missed += any(each.low > 0 or each.high < 0 for each in found)
    assert 2 <= missed <= 22  # of 200, at 5 %; each by itself it would be about 90


def test_nothing_that_differs_has_an_interval_of_no_width() -> None:
    repeats = resample_rows(6, 20, np.random.default_rng(0))
    (found,) = compare_with_fixed(np.ones((1, 6)), np.ones(6), np.ones(6), repeats, 6)
    assert found == (0, 0, 0, 0)


@pytest.mark.parametrize("groups", [None, np.arange(60) // 2])
@pytest.mark.parametrize("n", [1, 2, 4, 6, 12])
def test_few_shown_labels_tell_nothing_apart(n: int, groups: np.ndarray | None) -> None:
    """The best of ten that are all noise: two and a half of a hundred are taken, however few labels are shown."""
    taken = 0
    copies = 1 if groups is None else 2  # images of one group say the same
    for trial in range(80):
        shown = np.zeros((60, 2), bool)
        shown[: n * copies, 0] = True
        tried = np.random.default_rng(trial).normal(size=(10, 60 // copies, 2)).repeat(copies, axis=1)
        judge = Judge(shown, np.ones(60), 0, groups)
        found = judge.compare_epochs(list(tried), int(np.argmax([judge.score(each) for each in tried])))
        taken += found.better
        assert n >= 5 or np.isnan(found.difference.low)
    assert taken <= 6


def test_a_comparison_is_the_same_when_it_is_made_again() -> None:
    shown, logits = ranked(1.0, 3)
    judge = Judge(shown, np.ones(len(shown)), 7)
    assert judge.compare_epochs([logits, logits[::-1]], 0) == judge.compare_epochs([logits, logits[::-1]], 0)


@pytest.mark.parametrize("n", [2, 3, 10, 101])
def test_each_row_is_held_out_once(n: int) -> None:
    folds = selection.split_folds(n, seed=0)
    assert sorted(np.concatenate([own for _, own in folds])) == list(range(n))
    for others, own in folds:
        assert sorted([*others, *own]) == list(range(n))
        assert len(others)
    sizes = [len(own) for _, own in folds]
    assert max(sizes) - min(sizes) <= 1


def test_no_part_cuts_a_group() -> None:
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(20), 3))
    folds = selection.split_folds(60, 0, groups)
    assert [len(own) for _, own in folds] == [21, 21, 18]
    assert sorted(np.concatenate([own for _, own in folds])) == list(range(60))
    for others, own in folds:
        assert not set(groups[own]) & set(groups[others]) and len(own) + len(others) == 60
    assert len(selection.split_folds(4, 0, np.array([0, 0, 1, 1]))) == 2


def test_without_groups_parts_are_those_of_before_there_were_any() -> None:
    folds = [own.tolist() for _, own in selection.split_folds(11, 3)]
    assert folds == [[2, 3, 6, 7], [1, 4, 5, 9], [0, 8, 10]]


def test_images_of_one_group_count_once_in_a_comparison() -> None:
    """Of ten copies of each image the interval is as wide as of the images, not a third of it."""
    shown, logits = ranked(1.0, 5)
    n = len(shown)

    def error(copies: int, groups: np.ndarray | None) -> float:
        judge = Judge(np.tile(shown, (copies, 1)), np.ones(copies * n), 7, groups)
        epochs = [np.tile(epoch, (copies, 1)) for epoch in (logits, np.roll(logits, 1, axis=0))]
        return judge.compare_epochs(epochs, 0).difference.error

    alone = error(1, None)
    assert error(10, np.tile(np.arange(n), 10)) == pytest.approx(alone, rel=0.2)
    assert error(10, None) < 0.5 * alone


def test_parts_are_put_together_by_row() -> None:
    shown, logits = ranked(1.0, 4, n=10)
    epochs = np.stack([logits * 0, logits, -logits])  # the second ranks best
    folds = selection.split_folds(10, seed=0)
    judge = Judge(shown, np.ones(10), 0)
    found = selection.cross_fit(judge, folds, [epochs[:, own] for _, own in folds])
    assert found.epoch == 2
    assert found.best is not None and found.last is not None
    assert np.array_equal(found.best, logits)
    assert np.array_equal(found.last, -logits)
    assert found.scores == tuple(judge.score(epoch) for epoch in epochs)


def test_a_trial_that_diverged_has_no_epoch() -> None:
    assert CrossFit(diverged=3).epoch == 0
