import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline.labels.chances import chances, share_chances

WEIGHTS = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(1, 7)),
    elements=st.one_of(st.just(0.0), st.floats(1e-3, 1e3)),
)


def slow_chances(row: list[float], keep: float) -> list[float]:
    """Try each number of labels that are certain to be kept, the heaviest first; take the first that holds."""
    order = sorted(range(len(row)), key=lambda place: -row[place])
    order = [place for place in order if row[place] > 0]
    if keep >= len(order):
        return [float(weight > 0) for weight in row]
    for sure in range(len(order) + 1):
        rest = order[sure:]
        factor = (keep - sure) / sum(row[place] for place in rest)
        if all(factor * row[place] <= 1 + 1e-12 for place in rest):
            result = [0.0] * len(row)
            for place in order[:sure]:
                result[place] = 1.0
            for place in rest:
                result[place] = factor * row[place]
            return result
    raise AssertionError


@given(WEIGHTS, st.floats(0, 7))
def test_chances_follow_the_weights_and_add_up(weights, keep):
    found = chances(weights, keep)
    wanted = [slow_chances(row, keep) for row in weights.tolist()]
    assert found == pytest.approx(np.array(wanted), abs=1e-7)
    positive = (weights > 0).sum(axis=1)
    assert found.sum(axis=1) == pytest.approx(np.minimum(keep, positive), abs=1e-7)


def test_chances_by_hand():
    assert chances(np.array([[1, 3, 0, 4]]), 1).tolist() == [[1 / 8, 3 / 8, 0, 1 / 2]]
    # 8 of 10 at a sum of 2 is above 1: it is certain, and the other two share 1
    assert chances(np.array([[1.0, 1.0, 8.0]]), 2).tolist() == [[0.5, 0.5, 1]]
    assert chances(np.array([[1.0, 1.0, 8.0]]), np.array([3])).tolist() == [[1, 1, 1]]
    assert chances(np.array([[1e300, 1e-300, 1e-320]]), 3).tolist() == [[1, 1, 1]]
    assert chances(np.array([[1e308, 1e308, 0]]), 1).tolist() == [[0.5, 0.5, 0]]
    assert chances(np.zeros((2, 3)), 1).tolist() == [[0, 0, 0]] * 2


def of_share(weights: np.ndarray, labels: np.ndarray, share: float) -> np.ndarray:
    """Chances of a matrix, whose rows are the blocks."""
    masked = np.where(labels, weights, 0.0)
    return share_chances(lambda: iter(masked), int(labels.sum()), share)(masked)


@given(WEIGHTS, st.floats(0, 1))
def test_a_share_is_the_chances_of_one_row_that_holds_all(weights, share):
    labels = weights != weights.flat[0]  # some of weight 0, some not among the labels
    found = of_share(weights, labels, share)
    expected = chances(np.where(labels, weights, 0).reshape(1, -1), share * labels.sum()).reshape(weights.shape)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_a_share_is_of_all_labels_and_not_of_each_row():
    labels = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0]], bool)
    assert of_share(np.ones((3, 3)), labels, 0.5)[labels].tolist() == [0.5] * 3
    found = of_share(np.array([[1, 2, 9], [3, 9, 9], [9, 9, 9]]), labels, 0.5)
    assert found.tolist() == [[0.25, 0.5, 0], [0.75, 0, 0], [0, 0, 0]]
    # of four labels one is never kept, and still counts in the half
    found = of_share(np.array([[0.0, 1, 1], [1, 0, 0]]), np.array([[1, 1, 1], [1, 0, 0]], bool), 0.5)
    assert found == pytest.approx(np.array([[0, 2 / 3, 2 / 3], [2 / 3, 0, 0]]))
    assert of_share(np.ones((3, 3)), labels, 0.0).tolist() == np.zeros((3, 3)).tolist()
    assert of_share(np.ones((3, 3)), labels, 1.0).tolist() == labels.astype(float).tolist()
