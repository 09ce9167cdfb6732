import itertools

import numpy as np
import pytest
import torch
from scipy import optimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from pipeline.methods.shared.draw_likelihood import CountDraw, ShareDraw, posterior_of_arrays
from pipeline.training.calibrate import calibrate, resampled_shares


def sample(n: int, slope: list[float], bias: list[float], seed: int, shown: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Scores, and labels of which so many are shown; images without a label show none."""
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(n, len(slope)))
    truth = generator.random(scores.shape) < expit(scores * slope + bias)
    observed = np.zeros(scores.shape, np.int8)
    for row, labels in zip(observed, truth, strict=True):
        present = np.flatnonzero(labels)
        row[generator.permutation(present)[:shown]] = 1
    return scores, observed


def log_likelihood_by_enumeration(logits: np.ndarray, observed: np.ndarray) -> float:
    """Over all label sets of each row that shows one label of those present."""
    sets = np.array(list(itertools.product([0, 1], repeat=logits.shape[1])))
    total = 0.0
    for z, row in zip(logits, observed, strict=True):
        if not (row == 1).any():
            continue
        (s,) = np.flatnonzero(row == 1)
        p = expit(z)
        kept = sets[sets[:, s] == 1]
        total += np.log(sum(np.prod(np.where(y, p, 1 - p)) / y.sum() for y in kept))
    return total


@pytest.mark.parametrize("given_one", [False, True])
def test_it_is_the_maximum_of_the_enumerated_likelihood(given_one: bool) -> None:
    scores, observed = sample(300, [2.5, 3.0, 2.0], [-0.5, 0, 0], 0)
    kept = observed.any(axis=1)
    scores, observed = (scores * [3.0, 0.1, 1.0] + [2.0, 0.0, -1.0])[kept], observed[kept]

    def likelihood(point: np.ndarray) -> float:
        logits = scores * point[:3] + point[3:]
        value = log_likelihood_by_enumeration(logits, observed)
        return value - 0.95 * given_one * np.log(1 - (1 - expit(logits)).prod(1)).sum()

    found = calibrate(scores, observed, CountDraw(), given_one)
    point = np.concatenate([found.slope, found.bias])
    assert found.log_likelihood * len(scores) == pytest.approx(likelihood(point), abs=1e-6)
    slope = optimize.approx_fprime(point, likelihood, 1e-6)
    assert np.abs(slope / [3.0, 0.1, 1.0, 1, 1, 1]).max() < 0.02  # of some 300, each pulled by up to 1


@pytest.mark.parametrize("shown", [1, 3])
def test_slopes_and_biases_that_drew_the_labels_come_back(shown: int) -> None:
    slope, bias = [2.0, 3.0, 1.5, 2.5], [-1.0, -0.5, -1.5, -2.0]
    scores, observed = sample(12_000, slope, bias, 1, shown)
    kept = observed.any(axis=1)
    count = CountDraw(torch.full((kept.sum(),), shown))  # whoever shows fewer has no more
    found = calibrate(scores[kept], observed[kept], CountDraw() if shown == 1 else count, given_one=True)
    assert found.slope == pytest.approx(slope, rel=0.12)
    assert found.bias == pytest.approx(bias, abs=0.35)  # a twentieth of P(a label) stays in


def test_with_all_labels_it_is_logistic_regression() -> None:
    slope, bias = [1.0, 2.0, 0.5, 1.5], [-1.0, 0.5, -0.5, -2.0]
    scores, observed = sample(500, slope, bias, 2, shown=4)
    found = calibrate(scores, observed, ShareDraw(1.0))
    for c in range(4):
        fit = LogisticRegression(C=np.inf, tol=1e-10).fit(scores[:, [c]], observed[:, c])
        assert found.slope[c] == pytest.approx(fit.coef_[0, 0], rel=1e-3)
        assert found.bias[c] == pytest.approx(fit.intercept_[0], rel=1e-3, abs=1e-3)


def test_a_share_that_is_shown_is_made_up_for() -> None:
    scores, observed = sample(20_000, [1.0, 2.0], [-1.0, 0.5], 3, shown=2)
    observed[np.random.default_rng(0).random(observed.shape) < 0.5] = 0
    found = calibrate(scores, observed, ShareDraw(0.5))
    assert found.slope == pytest.approx([1.0, 2.0], abs=0.2)
    assert found.bias == pytest.approx([-1.0, 0.5], abs=0.2)


def test_beliefs_and_p_have_one_mean() -> None:
    scores, observed = sample(300, [1.0, 2.0, 0.5], [0.0, -1.0, 0.5], 4)
    found = calibrate(scores, observed, CountDraw())
    logits = found.logits(scores)
    belief = posterior_of_arrays(logits, observed, CountDraw())[2]
    assert belief.mean(0) == pytest.approx(expit(logits).mean(0), abs=1e-4)


def test_units_of_scores_do_not_matter() -> None:
    scores, observed = sample(200, [1.0, 2.0, 0.5], [0.0, -1.0, 0.5], 5)
    one = calibrate(scores, observed, CountDraw())
    other = calibrate(scores * 1e-6 + 40, observed, CountDraw())
    assert np.allclose(one.logits(scores), other.logits(scores * 1e-6 + 40), atol=1e-4)
    assert np.allclose(one.pull[:, 0], other.pull[:, 0] * 1e-6, rtol=1e-3, atol=1e-6)


def test_a_slope_is_above_zero() -> None:
    scores, observed = sample(300, [-2.0, 1.0, 1.0], [1.0, 1.0, 1.0], 6)
    found = calibrate(scores, observed, CountDraw())
    assert 0 < found.slope[0] * scores[:, 0].std() < 2e-3
    assert (found.slope[1:] > 0.3).all()


def test_a_class_that_shows_nothing_or_little_has_a_stated_slope() -> None:
    scores, observed = sample(200, [2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0], 7)
    observed = np.hstack([observed, np.zeros((200, 2), np.int8)])
    observed[:4, 5] = 1
    scores = np.hstack([scores, np.random.default_rng(0).normal(size=(200, 2))])
    scores[:, 3] = 0.25
    found = calibrate(scores, observed, CountDraw())
    assert found.slope[3] == 0  # its scores are all the same
    assert expit(found.bias[3]) > 0.2
    assert found.slope[4] == 0
    assert expit(found.bias[4]) == pytest.approx(0.5 / (observed.any(axis=1).sum() + 1))
    assert found.slope[5] * scores[observed.any(axis=1), 5].std() == pytest.approx(1)
    assert not found.pull[:, :, 4].any()


@pytest.mark.parametrize("shown", [0, 3, 9])
def test_one_class(shown: int) -> None:
    observed = (np.arange(9)[:, None] < shown).astype(np.int8)
    found = calibrate(np.arange(9.0)[:, None], observed, CountDraw())
    assert np.isfinite(found.logits(np.arange(9.0)[:, None])).all()
    assert (expit(found.bias[0]) > 0.9) == (shown > 0)  # whoever is labelled shows the only class there is


@pytest.mark.parametrize("given_one", [False, True])
def test_rows_that_show_nothing_do_not_count_under_a_count_draw(given_one: bool) -> None:
    scores, observed = sample(200, [1.0, 2.0, 0.5], [1.0, 1.0, 0.5], 8)
    kept = observed.any(axis=1)
    alone = calibrate(scores[kept], observed[kept], CountDraw(), given_one)
    scores[~kept] += 9
    found = calibrate(scores, observed, CountDraw(), given_one)
    assert np.allclose(found[:2], alone[:2], rtol=0, atol=1e-6)


def test_intervals_of_shares_hold_the_truth() -> None:
    slope, bias = np.array([2.0, 3.0, 1.5]), np.array([-1.0, -0.5, -1.5])
    logits = np.random.default_rng(0).normal(size=(100_000, 3)) * slope + bias
    share = expit(logits).mean(0) / (1 - (1 - expit(logits)).prod(1)).mean()  # of the images that have a label
    held = []
    for seed in range(12):
        scores, observed = sample(500, slope.tolist(), bias.tolist(), seed)
        kept = observed.any(axis=1)
        scores, observed = scores[kept], observed[kept]
        found = calibrate(scores, observed, CountDraw(), given_one=True)
        repeats = np.random.default_rng(seed).multinomial(len(scores), np.full(len(scores), 1 / len(scores)), 100)
        low, high = np.quantile(resampled_shares(scores, found, repeats, given_one=True), (0.025, 0.975), axis=0)
        held.append((low <= share) & (share <= high))
    assert 0.8 <= np.mean(held) <= 1


def test_a_step_is_near_the_calibration_of_the_drawn_rows() -> None:
    scores, observed = sample(2000, [2.0, 3.0, 1.5], [-1.0, -0.5, -1.5], 9)
    scores = scores / 7 + 5
    scores, observed = scores[observed.any(axis=1)], observed[observed.any(axis=1)]
    found = calibrate(scores, observed, CountDraw(), given_one=True)
    before = resampled_shares(scores, found, np.ones((1, len(scores))), given_one=True)[0]
    moved, stepped = [], []
    for seed in range(4):
        generator = np.random.default_rng(seed)
        counts = np.bincount(generator.integers(len(scores), size=len(scores)), minlength=len(scores))
        again = np.repeat(np.arange(len(scores)), counts)
        exact = calibrate(scores[again], observed[again], CountDraw(), given_one=True)
        moved.append(resampled_shares(scores[again], exact, np.ones((1, len(again))), given_one=True)[0] - before)
        stepped.append(resampled_shares(scores, found, counts[None], given_one=True)[0] - before)
    assert np.corrcoef(np.ravel(moved), np.ravel(stepped))[0, 1] > 0.9
    assert np.std(stepped) == pytest.approx(np.std(moved), rel=0.35)


def test_known_absences_do_not_empty_images_that_are_known_to_have_a_label() -> None:
    scores, observed = sample(600, [2.0, 2.0, 2.0, 2.0, 2.0], [-1.0] * 5, 10)
    kept = observed.any(axis=1)
    scores, observed = scores[kept], observed[kept]
    generator = np.random.default_rng(0)
    observed[(observed == 0) & (scores < 0.5) & (generator.random(observed.shape) < 0.2)] = -1
    logits = calibrate(scores, observed, CountDraw(), given_one=True).logits(scores)
    assert 1 < posterior_of_arrays(logits, observed, CountDraw())[2].sum(1).mean() < 2.5  # 1.8 in truth


@pytest.mark.parametrize("scores", [np.full((3, 2), np.nan), np.zeros((3, 1)), np.zeros(3)])
def test_scores_that_are_none_are_an_error(scores: np.ndarray) -> None:
    with pytest.raises(ValueError, match="finite, of the shape"):
        calibrate(scores, np.ones((3, 2), np.int8), CountDraw())
