import itertools

import numpy as np
import pytest

from pipeline.labels.rates import false_negative_rate


def one_of(truth: np.ndarray) -> np.ndarray:
    """Chances of a draw that keeps one positive a row."""
    return np.array([[cell / max(sum(row), 1) for cell in row] for row in truth.tolist()])


def test_false_negative_rate_by_hand():
    truth = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0]])
    observed = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]])
    scored = np.ones((4, 3), bool)
    scored[3, 0] = False
    rates = false_negative_rate(truth, scored, observed, one_of(truth).__getitem__)
    assert rates["truth_positive"] == [3, 2, 0]
    assert rates["observed_positive"] == [2, 1, 0]
    assert rates["unknown"] == [1, 3, 4]  # the cell that is not scored is not unknown
    assert rates["hidden"] == [1, 1, 0]
    assert rates["rate"] == pytest.approx([1, 1 / 3, 0])
    # class 0 keeps 1/2 + 1 + 1/2 of its 3 positives and 3 scored cells, class 1 keeps 1/2 + 1/2 of 2 and 4
    assert rates["expected"] == pytest.approx([(3 - 2) / (3 - 2), (2 - 1) / (4 - 1), 0])
    assert rates["pooled"] == pytest.approx(2 / 8)
    assert rates["pooled_expected"] == pytest.approx(2 / 8)


def test_expected_rate_is_the_mean_over_all_draws():
    truth = np.random.default_rng(5).integers(0, 2, (6, 4))
    truth[0] = 0
    scored = np.ones_like(truth, dtype=bool)
    places = [np.flatnonzero(row).tolist() or [None] for row in truth]
    hidden, unknown = np.zeros(4), np.zeros(4)
    for draw in itertools.product(*places):  # all equally likely: each row's positive is chosen uniformly
        observed = np.zeros_like(truth)
        for row, column in enumerate(draw):
            if column is not None:
                observed[row, column] = 1
        hidden += ((observed == 0) & (truth == 1)).sum(axis=0)
        unknown += (observed == 0).sum(axis=0)
    rates = false_negative_rate(truth, scored, np.zeros_like(truth), one_of(truth).__getitem__)
    assert rates["expected"] == pytest.approx((hidden / unknown).tolist())
    assert rates["pooled_expected"] == pytest.approx(hidden.sum() / unknown.sum())


def test_a_class_without_unknown_cells_has_no_rate():
    truth, observed = np.array([[1, 0]]), np.array([[1, -1]])
    rates = false_negative_rate(truth, np.ones((1, 2), bool), observed, one_of(truth).__getitem__)
    assert rates["rate"] == [None, None] and rates["pooled"] is None
    assert rates["expected"] == [None, 0.0]
    assert (rates["observed_positive"], rates["observed_negative"]) == ([1, 0], [0, 1])


def test_rates_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="differ in shape"):
        false_negative_rate(np.ones((2, 2)), np.ones((2, 3), bool), np.ones((2, 2)), np.ones((2, 2)).__getitem__)


def test_only_the_rows_asked_for_are_counted():
    random = np.random.default_rng(1)
    truth, observed = random.integers(0, 2, (9, 3)), random.integers(-1, 2, (9, 3))
    scored, rows = random.random((9, 3)) < 0.8, np.array([1, 2, 6])
    alone = false_negative_rate(truth[rows], scored[rows], observed[rows], one_of(truth[rows]).__getitem__)
    assert false_negative_rate(truth, scored, observed, one_of(truth).__getitem__, rows) == alone
