import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as checks
from hypothesis import strategies as st

from pipeline.data.names import separates
from pipeline.data.own_data import _doubt_split, stratify


def shares(truth: np.ndarray, split: np.ndarray) -> list[list[int]]:
    """Of each class, rows in train, val and test."""
    return [[int(column[split == part].sum()) for part in range(3)] for column in truth.T]


def single(*counts: int) -> np.ndarray:
    """One-label rows: so many of each class."""
    return np.repeat(np.eye(len(counts), dtype=np.int8), counts, axis=0)


def test_single_labels_are_spread_exactly():
    truth = single(100, 10, 4, 3, 2, 1)
    found = shares(truth, stratify(truth, 0.1, 0.2, seed=0))
    # 10 and 20 in a hundred; from 3 rows on one each at least; one row in train at least
    assert found == [[70, 10, 20], [7, 1, 2], [2, 1, 1], [1, 1, 1], [2, 0, 0], [1, 0, 0]]


def test_a_share_of_nothing_draws_nothing():
    truth = single(5, 3)
    assert shares(truth, stratify(truth, 0.0, 0.4, seed=0)) == [[3, 0, 2], [2, 0, 1]]
    assert not stratify(truth, 0.0, 0.0, seed=0).any()
    assert len(stratify(np.zeros((0, 2), np.int8), 0.2, 0.2, seed=0)) == 0


def test_train_keeps_one_row_of_each_class():
    truth = single(1, 2, 3, 4)
    found = shares(truth, stratify(truth, 0.45, 0.5, seed=0))
    assert found == [[1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 2]]  # 4: 1.8 and 2 rounded are all of them, val gives way


def test_rows_without_a_label_fill_up():
    truth = np.zeros((20, 1), np.int8)
    truth[:5] = 1
    split = stratify(truth, 0.2, 0.2, seed=3)
    assert np.bincount(split).tolist() == [12, 4, 4]
    assert shares(truth, split) == [[3, 1, 1]]


def test_the_seed_draws_the_split():
    truth = single(30, 30)
    first = stratify(truth, 0.2, 0.2, seed=0)
    assert np.array_equal(first, stratify(truth, 0.2, 0.2, seed=0))
    assert not np.array_equal(first, stratify(truth, 0.2, 0.2, seed=1))
    assert first[:24].any() and first[24:].any()  # not the last rows of each class


def test_rare_classes_among_many_labels_reach_every_split():
    generator = np.random.default_rng(0)
    truth = (generator.random((400, 12)) < np.linspace(0.5, 0.02, 12)).astype(np.int8)
    split = stratify(truth, 0.15, 0.15, seed=1200)
    counts = np.array(shares(truth, split))
    assert truth.sum(axis=0).min() >= 3 and (counts > 0).all()
    assert abs(counts[:, 1] - 0.15 * truth.sum(axis=0)).max() < 4
    assert abs(np.bincount(split)[1] - 60) <= 10


def test_a_split_that_lacks_a_class_whole_is_served_first():
    rows = ["100", "101", "011", "011", "101", "110", "000", "001", "001", "110"]
    truth = np.array([[int(cell) for cell in row] for row in rows], np.int8)
    assert np.min(shares(truth, stratify(truth, 0.15, 0.15, seed=0))) >= 1


@checks(max_examples=50, deadline=None)
@given(
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    val=st.floats(0.01, 0.45),
    test=st.floats(0.01, 0.45),
    seed=st.integers(0, 99),
)
def test_single_labels_of_three_rows_are_in_every_split(counts, val, test, seed):
    truth = single(*counts)
    split = stratify(truth, val, test, seed)
    assert set(split.tolist()) <= {0, 1, 2}
    for count, found in zip(counts, shares(truth, split), strict=True):
        assert sum(found) == count and found[0] >= 1
        if count >= 3:
            assert min(found) >= 1


@pytest.mark.parametrize("labels", [1, 3])
def test_no_row_is_left_undealt(labels):
    truth = np.zeros((11, 5), np.int8)
    for row in range(11):
        truth[row, [(row + step) % 5 for step in range(labels)]] = 1
    assert stratify(truth, 0.3, 0.3, seed=0).max() == 2


def test_many_classes_of_two_rows_fill_val_and_test():
    truth = single(*[2] * 30)
    split = stratify(truth, 0.2, 0.2, seed=0)
    assert np.bincount(split).tolist() == [36, 12, 12]
    assert min(found[0] for found in shares(truth, split)) == 1


def parts_by_hand(mark: str, values: list[str]) -> bool:
    """Whether two texts of other parts share one, and one of them has several."""
    split = [{part.strip() for part in value.split(mark)} for value in values]
    return any(len(one) > 1 and one & other and one != other for one in split for other in split)


@checks(max_examples=200, deadline=None)
@given(values=st.lists(st.text("ab; ", max_size=6), max_size=5))
def test_a_mark_separates_where_two_texts_share_a_part(values):
    assert separates(";", values) == parts_by_hand(";", values)


def test_telling_separators_takes_time_in_proportion():
    assert not separates(";", (f"a{number}; b{number}" for number in range(100_000)))


def test_splits_that_singletons_leave_small_are_warned_of():
    shares_asked = {"val": 0.2, "test": 0.2}
    truth = single(*[1] * 80, 20)  # 80 tags of one image each, which train keeps
    split = stratify(truth, 0.2, 0.2, seed=0)
    share = (split == 1).mean()
    assert share < 0.16
    warnings = _doubt_split(split, shares_asked, truth.sum(axis=0))
    words = "of the images, not the 20% asked for: train keeps one image of each of 80 classes of fewer than 3; "
    assert [warning.partition(" has ")[0] for warning in warnings] == ["val", "test"]
    assert all(words in warning for warning in warnings) and f"val has {share:.0%} {words}" in warnings[0]
    for plain in (single(50, 50), single(*[1] * 5, 95)):
        assert _doubt_split(stratify(plain, 0.2, 0.2, seed=0), shares_asked, plain.sum(axis=0)) == []
    assert _doubt_split(np.zeros(0, np.uint8), shares_asked, np.zeros(3, int)) == []
