"""Choice without truth: the judge against pairs counted by hand, folds, and who wins when nothing can be told apart."""

import numpy as np
import pytest

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
    found = Judge(shown, np.ones(len(shown)), 0).compare(best, fixed)
    assert found.better == better
    assert np.sign(found.difference.value) == np.sign(gain)


def test_the_best_of_many_equal_ones_is_rarely_taken() -> None:
    shown, fixed = ranked(1.0, 2, n=200)
    judge = Judge(shown, np.ones(200), 0)
    taken = 0
    for trial in range(20):
        noise = np.random.default_rng(trial).normal(size=fixed.shape).astype(np.float32)
        taken += judge.compare(fixed + 0.05 * noise, fixed).better
    assert taken <= 2  # of 20, at 2.5 %


def test_a_comparison_is_the_same_when_it_is_made_again() -> None:
    shown, logits = ranked(1.0, 3)
    judge = Judge(shown, np.ones(len(shown)), 7)
    assert judge.compare(logits, logits[::-1]) == judge.compare(logits, logits[::-1])


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
    best, fixed = logits, np.roll(logits, 1, axis=0)
    alone = Judge(shown, np.ones(n), 7).compare(best, fixed).difference
    copies = [np.tile(array, (10, 1)) for array in (shown, best, fixed)]
    grouped = Judge(copies[0], np.ones(10 * n), 7, np.tile(np.arange(n), 10)).compare(*copies[1:]).difference
    assert grouped.error == pytest.approx(alone.error, rel=0.2)
    apart = Judge(copies[0], np.ones(10 * n), 7).compare(*copies[1:]).difference
    assert apart.error < 0.5 * alone.error


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
