import itertools

import numpy as np
import pytest

from pipeline.audits import unlabelled
from pipeline.audits.metrics import average_precision
from pipeline.audits.unlabelled import (
    aul,
    compare_precision,
    mean_over_classes,
    pooled_aul,
    precision_at_shown,
    weighted_precision,
)


def precision_by_hand(scores: np.ndarray, shown: np.ndarray, weights: np.ndarray) -> float:
    """Over the shown positives of one class, row by row."""
    values, masses = [], []
    for i in np.flatnonzero(shown):
        taken = scores >= scores[i]
        values.append(min(1, sum(weights[j] for j in np.flatnonzero(taken & shown)) / taken.sum()))
        masses.append(weights[i])
    return sum(v * m for v, m in zip(values, masses, strict=True)) / sum(masses) if sum(masses) else np.nan


def aul_by_hand(scores: np.ndarray, shown: np.ndarray, weights: np.ndarray) -> float:
    """Over all pairs of a shown entry and another one."""
    won, mass = 0.0, 0.0
    for i in np.flatnonzero(shown):
        others = [
            1.0 if scores[i] > scores[j] else 0.5 * (scores[i] == scores[j]) for j in range(len(scores)) if j != i
        ]
        won, mass = won + weights[i] * np.mean(others), mass + weights[i]
    return won / mass if mass else np.nan


def case(seed: int, n: int = 13, c: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores with many ties, labels of which the last class shows none, and weights."""
    generator = np.random.default_rng(seed)
    shown = generator.random((n, c)) < 0.3
    shown[:, -1] = False
    return generator.integers(0, 5, (n, c)) / 4, shown, generator.uniform(1, 4, n)


@pytest.mark.parametrize("seed", range(10))
def test_each_criterion_equals_its_definition(seed: int) -> None:
    scores, shown, weights = case(seed)
    columns = range(scores.shape[1])
    expected = [precision_by_hand(scores[:, c], shown[:, c], weights) for c in columns]
    assert np.allclose(weighted_precision(scores, shown, weights)[0], expected, equal_nan=True)
    expected = [aul_by_hand(scores[:, c], shown[:, c], weights) for c in columns]
    assert np.allclose(aul(scores, shown, weights)[0], expected, equal_nan=True)
    masses = [sum(weights[shown[:, c]]) for c in columns]
    pooled = sum(value * mass for value, mass in zip(expected, masses, strict=True) if mass) / sum(masses)
    assert pooled_aul(scores, shown, weights) == pytest.approx(pooled)


@pytest.mark.parametrize("criterion", [weighted_precision, aul, pooled_aul])
@pytest.mark.parametrize("cells", [1, 40, 1 << 21])
def test_repeated_rows_count_as_if_they_were_written_again(
    criterion, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unlabelled, "CELLS", cells)
    scores, shown, weights = case(3)
    repeats = unlabelled.resample_rows(len(scores), 6, np.random.default_rng(0))
    found = criterion(scores, shown, weights, repeats)
    for values, counts in zip(found, repeats, strict=True):
        again = np.repeat(np.arange(len(scores)), counts)
        assert np.allclose(values, criterion(scores[again], shown[again], weights[again])[0], equal_nan=True)


@pytest.mark.parametrize("criterion", [weighted_precision, aul, pooled_aul])
def test_the_order_of_rows_does_not_matter(criterion) -> None:
    scores, shown, weights = case(5)
    order = np.random.default_rng(0).permutation(len(scores))
    expected = criterion(scores, shown, weights)
    assert np.allclose(criterion(scores[order], shown[order], weights[order]), expected, equal_nan=True)


def test_with_all_labels_shown_it_is_average_precision() -> None:
    generator = np.random.default_rng(0)
    scores, shown = generator.integers(0, 9, (40, 3)) / 2, generator.random((40, 3)) < 0.3
    expected = np.array(average_precision(shown.astype(int), scores), float)
    assert np.allclose(weighted_precision(scores, shown)[0], expected)


def test_precision_at_a_rank_is_without_bias_over_all_label_draws() -> None:
    truth = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1]])
    rank, counts = 3, truth.sum(1)
    total = np.zeros(3)
    draws = list(itertools.product(*[np.flatnonzero(row) for row in truth]))
    chance = 1 / len(draws)
    for draw in draws:  # each is as likely as any other: an image picks uniformly and by itself
        shown = np.zeros(truth.shape, bool)
        shown[np.arange(4), list(draw)] = True
        total += chance * (shown[:rank] * counts[:rank, None]).sum(0) / rank
    assert total == pytest.approx(truth[:rank].sum(0) / rank)


def test_the_mean_counts_classes_with_enough_shown_positives() -> None:
    shown = np.zeros((9, 3), bool)
    shown[:5, 0], shown[:4, 1], shown[:, 2] = True, True, True
    values = np.array([[0.2, 0.9, 0.6], [0.2, 0.9, np.nan], [np.nan] * 3])
    assert np.allclose(mean_over_classes(values, shown), [0.4, 0.2, np.nan], equal_nan=True)
    assert np.isnan(mean_over_classes(values, shown, least=10)).all()


def test_the_precision_of_each_shown_positive() -> None:
    scores, shown, weights = case(2)
    found = precision_at_shown(scores, shown, weights)
    for value, i, c in zip(found, *np.nonzero(shown), strict=True):
        taken = scores[:, c] >= scores[i, c]
        assert value == pytest.approx(min(1, (weights * shown[:, c])[taken].sum() / taken.sum()))


def test_precisions_are_compared_with_the_error_of_a_paired_bootstrap() -> None:
    generator = np.random.default_rng(0)
    n = 1500
    shown, weights = generator.random((n, 3)) < [0.1, 0.1, 0.002], generator.uniform(1, 2, n)
    one = generator.normal(size=(n, 3)) + 1.5 * shown
    sets = [one, one + 0.3 * generator.normal(size=(n, 3)), generator.normal(size=(n, 3)) + 1.4 * shown]
    terms = np.stack([precision_at_shown(scores, shown, weights) for scores in sets])
    means, errors = compare_precision(terms, shown, weights)
    assert shown[:, 2].sum() < 5
    assert means == pytest.approx([weighted_precision(s, shown, weights)[0, :2].mean() for s in sets])
    rows, columns = np.nonzero(shown)
    drawn = []
    for counts in unlabelled.resample_rows(n, 300, generator):
        mass = (counts * weights)[rows]
        drawn.append([[np.average(each[columns == c], weights=mass[columns == c]) for c in (0, 1)] for each in terms])
    drawn = np.array(drawn).mean(2)  # (300, 3)
    best = int(np.argmax(means))
    assert errors[best] == 0
    for number in {0, 1, 2} - {best}:
        assert errors[number] == pytest.approx((drawn[:, best] - drawn[:, number]).std(), rel=0.15)
    assert compare_precision(terms, shown, weights, least=1000)[0].tolist() == [0, 0, 0]


def test_images_of_one_group_err_together() -> None:
    generator = np.random.default_rng(1)
    shown, weights = generator.random((300, 2)) < 0.2, generator.uniform(1, 2, 300)
    sets = [generator.normal(size=(300, 2)) + more * shown for more in (1.5, 1.2)]

    def errors(copies: int, groups: np.ndarray | None) -> np.ndarray:
        rows = np.tile(np.arange(300), copies)  # three copies of each image say what the images do
        terms = np.stack([precision_at_shown(scores, shown, weights)[:] for scores in sets])
        return compare_precision(np.tile(terms, copies), np.tile(shown, (copies, 1)), weights[rows], groups=groups)[1]

    alone = errors(1, None)
    assert alone[1] > 0
    assert errors(3, np.tile(np.arange(300), 3)) == pytest.approx(alone)
    assert errors(3, None) == pytest.approx(alone / np.sqrt(3))


def test_groups_are_drawn_whole() -> None:
    groups = np.array([4, 0, 4, 4, 2, 0])
    repeats = unlabelled.resample_rows(6, 400, np.random.default_rng(0), groups)
    assert repeats.shape == (400, 6)
    assert np.array_equal(repeats[:, 0], repeats[:, 2]) and np.array_equal(repeats[:, 1], repeats[:, 5])
    assert (repeats[:, [0, 1, 4]].sum(axis=1) == 3).all()  # as many groups as there are
    plain = unlabelled.resample_rows(6, 2, np.random.default_rng(0))
    by_hand = np.random.default_rng(0)
    assert np.array_equal(plain, [np.bincount(by_hand.integers(6, size=6), minlength=6) for _ in range(2)])


def test_a_bootstrap_finds_the_error_of_a_paired_difference() -> None:
    generator = np.random.default_rng(0)
    n = 2000
    shown = generator.random((n, 2)) < 0.1
    one = generator.normal(size=(n, 2)) + shown
    other = one + 0.01 * generator.normal(size=(n, 2))  # all but the same: far more alike than two samples are
    repeats = unlabelled.resample_rows(n, 200, generator)
    values = [aul(scores, shown, None, repeats).mean(1) for scores in (one, other)]
    point = [float(aul(scores, shown).mean()) for scores in (one, other)]
    alone = unlabelled.estimate(point[0], values[0])
    paired = unlabelled.estimate(point[0] - point[1], values[0] - values[1])
    assert alone.low < alone.value < alone.high
    assert alone.value == pytest.approx(0.9 * 0.76 + 0.1 * 0.5, abs=0.03)  # P(N(1, 2) > 0) = 0.76
    ranks = (one[:, None] > one[None]).mean(1)  # (N, 2) images below: a mean over the positives, all but independent
    assert alone.error == pytest.approx(ranks[shown].std() / np.sqrt(shown.sum()), rel=0.2)
    assert paired.error < alone.error / 20
    assert paired.low < paired.value < paired.high


def test_an_estimate_without_values_is_not_a_number() -> None:
    found = unlabelled.estimate(0.5, np.array([np.nan, 0.4]))
    assert found.value == 0.5
    assert np.isnan(found[1:]).all()


def test_an_interval_holds_its_value() -> None:
    found = unlabelled.estimate(0.29, np.linspace(0.4, 1, 50))
    assert (found.low, found.value) == (0.29, 0.29) and found.high > 0.9
    assert unlabelled.estimate(1.5, np.linspace(0.4, 1, 50)).high == 1.5


def test_what_cannot_be_ranked_is_an_error() -> None:
    scores, shown, weights = case(0)
    for arguments, message in (
        ((scores[:-1], shown), "must be"),
        ((scores, shown.astype(int)), "bool"),
        ((np.where(scores == 1, np.nan, scores), shown), "NaN"),
        ((scores, shown, weights[:-1]), "rows"),
        ((scores, shown, weights * np.inf), "finite"),
        ((scores, shown, weights, np.ones((2, 3), int)), "rows"),
    ):
        for criterion in (weighted_precision, aul, pooled_aul, precision_at_shown):
            if criterion is precision_at_shown and len(arguments) == 4:
                continue
            with pytest.raises(ValueError, match=message):
                criterion(*arguments)


def test_one_row_and_one_class_are_ranked() -> None:
    one = np.ones((1, 1))
    assert weighted_precision(one, one == 1)[0, 0] == 1
    assert aul(one, one == 1)[0, 0] == 0  # there is no other image
