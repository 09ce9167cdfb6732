"""Thresholds against their definitions, by loops and by draws of a world whose truth is known."""

import math

import numpy as np
import pytest

from pipeline.audits.thresholds import best_f1, find_share, match_share, score_thresholds


@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("share", [0.0, 0.013, 0.25, 0.5, 0.88, 1.0])
def test_as_many_images_lie_above_as_the_share_asks_for(n: int, share: float) -> None:
    logits = np.random.default_rng(n).normal(size=n).astype(np.float32)
    above = (logits >= match_share(logits, share)).sum()
    assert abs(above - share * n) <= 0.5 + 1e-9 or (above == 1 and share * n < 0.5)  # the highest logit itself


def test_a_larger_share_has_a_lower_threshold() -> None:
    logits = np.random.default_rng(0).normal(size=50)
    found = [match_share(logits, share) for share in np.linspace(0.02, 0.98, 40)]
    assert np.all(np.diff(found) < 0)


@pytest.mark.parametrize("n", range(1, 45))
@pytest.mark.parametrize("found", [0.8, 0.9, 0.95])
def test_equal_weights_give_the_rank_of_split_conformal_prediction(n: int, found: float) -> None:
    scores = np.random.default_rng(n).normal(size=n)
    rank = math.ceil(round((n + 1) * found, 9))
    expected = sorted(scores, reverse=True)[rank - 1] if rank <= n else None
    assert find_share(scores, np.full(n, 2.5), found) == expected
    assert (expected is None) == (n < {0.8: 4, 0.9: 9, 0.95: 19}[found])


def test_weighted_by_hand() -> None:
    scores, weights = np.array([4.0, 1.0, 3.0, 2.0]), np.array([1.0, 1.0, 2.0, 1.0])
    # masses from above: 1, 3, 4, 5 of 5 + 2
    assert find_share(scores, weights, 0.4) == 3.0  # 2.8 of 7
    assert find_share(scores, weights, 0.5) == 2.0  # 3.5 of 7
    assert find_share(scores, weights, 0.7) == 1.0  # 4.9 of 7
    assert find_share(scores, weights, 0.75) is None  # 5.25 of 7
    assert find_share(scores[:0], weights[:0], 0.5) is None


def test_shown_labels_weighted_by_counts_find_what_is_stated_where_plain_ones_do_not() -> None:
    generator, plain, weighted = np.random.default_rng(0), [], []
    for _ in range(300):
        counts = generator.choice([1, 6], size=60)  # labels of images that have the class
        scores = generator.normal(size=60) - 2 * (counts == 6)  # images of many labels score low
        shown = generator.random(60) < 1 / counts
        new = generator.choice([1, 6], size=400)
        new_scores = generator.normal(size=400) - 2 * (new == 6)
        for found, weights in ((plain, np.ones(60)), (weighted, counts.astype(float))):
            cut = find_share(scores[shown], weights[shown], 0.8)
            found.append(1.0 if cut is None else (new_scores >= cut).mean())
    assert np.mean(weighted) >= 0.8
    assert np.mean(plain) < 0.7


def test_groups_weighted_by_hand() -> None:
    scores, weights, groups = np.array([4.0, 1.0, 3.0, 2.0]), np.array([1.0, 3.0, 2.0, 1.0]), np.array([0, 7, 7, 7])
    # the second group's labels weigh 1, 2/3 and 1/3, together 2; masses from above: 1, 5/3, 2, 3 of 3 + 2
    for found, cut in ((0.2, 4.0), (0.3, 3.0), (0.4, 2.0), (0.41, 1.0), (0.6, 1.0), (0.61, None)):
        assert find_share(scores, weights, found, groups) == cut, found
    alone = np.arange(4)
    for found in (0.3, 0.5, 0.7):
        assert find_share(scores, weights, found, alone) == find_share(scores, weights, found)
    assert find_share(np.arange(100.0), np.ones(100), 0.5, np.zeros(100, int)) == 0.0  # one group tells half
    assert find_share(np.arange(100.0), np.ones(100), 0.51, np.zeros(100, int)) is None


def test_labels_of_new_groups_are_found_where_groups_count_once() -> None:
    """Large groups score high; of whichever group a new image is, it scores as that."""
    generator, plain, grouped = np.random.default_rng(0), [], []

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        level = generator.normal(size=count)
        sizes = np.where(level > 0, 20, 2)
        groups = np.repeat(np.arange(count), sizes)
        return 2 * level[groups] + generator.normal(size=len(groups)), groups

    for _ in range(300):
        scores, groups = draw(15)
        level = generator.normal(size=300)
        new = 2 * level + generator.normal(size=300)
        for found, own in ((plain, None), (grouped, groups)):
            cut = find_share(scores, np.ones(len(scores)), 0.8, own)
            found.append(1.0 if cut is None else (new >= cut).mean())
    assert np.mean(grouped) >= 0.8
    assert np.mean(plain) < 0.65


@pytest.mark.parametrize("seed", range(6))
def test_no_threshold_has_a_higher_f1(seed: int) -> None:
    generator = np.random.default_rng(seed)
    logits, truth = generator.integers(-4, 5, 25).astype(np.float32), generator.integers(0, 2, 25)

    def f1(cut: float) -> float:
        called = logits >= cut
        return 2 * (called & (truth == 1)).sum() / (called.sum() + truth.sum())

    cut = best_f1(logits, truth)
    assert cut is not None
    assert f1(cut) == max(f1(other) for other in np.arange(-5, 6, 0.25))
    assert best_f1(logits, np.zeros(25)) is None
    assert best_f1(logits[:0], truth[:0]) is None


def test_f1_by_counts_made_by_hand() -> None:
    logits = np.array([[2.0, -1.0, 0.0], [1.0, 3.0, 0.0], [-1.0, 2.0, 0.0], [0.5, 0.0, 0.0]])
    truth = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [1, 1, 0]])
    scored = np.ones((4, 3), bool)
    scored[1, 0] = False  # the one wrong call of the first class
    found = score_thresholds(logits, np.array([0.5, 1.0, np.inf]), truth, scored)
    # first class: 2 found, 1 missed: 4 / 5. second: 2 found, 1 missed: 4 / 5. third has no positive.
    assert found == {"macro": pytest.approx(80.0), "micro": pytest.approx(80.0), "found": pytest.approx(100 * 4 / 6)}
    third = score_thresholds(logits, np.array([0.5, 1.0, 0.0]), truth, scored)
    assert third["macro"] == pytest.approx(80.0)
    assert third["micro"] == pytest.approx(100 * 8 / 14)  # four more calls, all wrong


def test_nothing_to_score_is_none() -> None:
    nothing = score_thresholds(np.zeros((2, 1)), np.array([1.0]), np.zeros((2, 1)), np.ones((2, 1), bool))
    assert nothing == {"macro": None, "micro": None, "found": None}
