"""Which labels are asked about first, against loops and closed forms."""

import numpy as np
import pytest

from pipeline.audits.questions import ORDERS, expected_gain, rank_cells


@pytest.fixture
def cells() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    belief = generator.random((40, 6)).astype(np.float32)
    observed = generator.integers(-1, 2, belief.shape).astype(np.int8)
    return np.where(observed == 0, belief, (observed > 0).astype(np.float32)), observed


def test_gain_is_the_squared_error_that_an_answer_takes_away(cells):
    """Drawn: labels by their beliefs, and their mean error, as a share of one more than the class's positives."""
    belief, _ = cells
    generator = np.random.default_rng(1)
    labels = generator.random((4000, *belief.shape)) < belief
    error = ((labels - belief) ** 2).mean(axis=0)
    expected = error / (1 + labels.sum(axis=1).mean(axis=0))
    assert np.allclose(expected_gain(belief), expected, atol=4e-4)


def test_sure_beliefs_gain_nothing_and_rare_classes_most():
    belief = np.array([[0.0, 1.0, 0.5, 0.5], [0.0, 1.0, 1.0, 0.0]])
    gain = expected_gain(belief)
    assert (gain[:, :2] == 0).all() and gain[0, 3] > gain[0, 2] > 0
    assert gain[0, 3] == 0.25 / 1.5


@pytest.mark.parametrize("order", ORDERS)
def test_unknown_cells_are_ranked_as_by_a_loop(order, cells):
    belief, observed = cells
    draw = np.random.default_rng(5).random(belief.shape)
    key = {"gain": expected_gain(belief), "score": belief, "random": draw}[order]
    unknown = [(row, column) for row, column in np.ndindex(belief.shape) if observed[row, column] == 0]
    expected = sorted(unknown, key=lambda cell: -key[cell])
    for count in (0, 1, 7, len(unknown), 1000):
        assert rank_cells(belief, observed, order, count, np.random.default_rng(5)) == expected[:count]


def test_equal_cells_come_in_their_order():
    ranked = rank_cells(np.full((3, 2), 0.25), np.zeros((3, 2)), "score", 4, np.random.default_rng())
    assert ranked == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("order", ORDERS)
def test_nothing_is_asked_where_all_is_known(order):
    assert rank_cells(np.ones((2, 2)), np.ones((2, 2)), order, 5, np.random.default_rng()) == []


def test_what_cannot_be_ranked_is_named():
    zeros, generator = np.zeros((2, 2)), np.random.default_rng()
    with pytest.raises(ValueError, match=r"belief \(2, 2\) and observed \(2, 3\)"):
        rank_cells(zeros, np.zeros((2, 3)), "gain", 1, generator)
    with pytest.raises(ValueError, match=r"outside \[0, 1\]"):
        rank_cells(np.array([[0.5, np.nan]]), np.zeros((1, 2)), "gain", 1, generator)
    with pytest.raises(ValueError, match="order 'best' is none of gain, score, random"):
        rank_cells(zeros, zeros, "best", 1, generator)  # pyright: ignore[reportArgumentType]
