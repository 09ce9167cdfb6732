import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as checks
from hypothesis import strategies as st

from pipeline.core.errors import SourceError
from pipeline.data.drawn_splits import _quota, doubt_split, draw_splits, stratify


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


def test_splits_that_singletons_leave_small_are_warned_of():
    shares_asked = {"val": 0.2, "test": 0.2}
    truth = single(*[1] * 80, 20)  # 80 tags of one image each, which train keeps
    split = stratify(truth, 0.2, 0.2, seed=0)
    share = (split == 1).mean()
    assert share < 0.16
    warnings = doubt_split(split, shares_asked, truth.sum(axis=0))
    words = "of the images, not the 20% asked for: train keeps one image of each of 80 classes of fewer than 3; "
    assert [warning.partition(" has ")[0] for warning in warnings] == ["val", "test"]
    assert all(words in warning for warning in warnings) and f"val has {share:.0%} {words}" in warnings[0]
    for plain in (single(50, 50), single(*[1] * 5, 95)):
        assert doubt_split(stratify(plain, 0.2, 0.2, seed=0), shares_asked, plain.sum(axis=0)) == []
    assert doubt_split(np.zeros(0, np.uint8), shares_asked, np.zeros(3, int)) == []


# ---------------------------------------------------------------------------------------------- groups
def test_without_groups_splits_are_those_of_before_there_were_any():
    """Stored from the algorithm that dealt rows alone."""
    generator = np.random.default_rng(0)
    few = (generator.random((40, 5)) < np.linspace(0.6, 0.05, 5)).astype(np.int8)
    assert "".join(map(str, stratify(few, 0.2, 0.2, 7))) == "0102022011201201000200000022200201100000"
    many = (generator.random((2000, 12)) < np.linspace(0.5, 0.002, 12)).astype(np.int8)
    found = hashlib.sha256(stratify(many, 0.15, 0.25, 1).tobytes()).hexdigest()
    assert found == "18ba7fcd775e2d6a1980ef51146eba636692221e1b56a90b2cb6568bea4f11e4"


TRUTH = st.integers(1, 40).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 1), min_size=3, max_size=3), min_size=n, max_size=n)
)
SHARE = st.sampled_from([0.0, 0.1, 0.2, 0.4])


@checks(max_examples=200, deadline=None)
@given(truth=TRUTH, val=SHARE, test=SHARE, seed=st.integers(0, 99))
def test_images_that_are_alone_are_dealt_as_without_groups(truth, val, test, seed):
    rows = np.array(truth, np.int8)
    alone = stratify(rows, val, test, seed, np.arange(len(rows)))
    assert np.array_equal(stratify(rows, val, test, seed), alone)


@checks(max_examples=300, deadline=None)
@given(truth=TRUTH, val=SHARE, test=SHARE, seed=st.integers(0, 99), data=st.data())
def test_no_group_is_cut_and_each_goes_where_it_fits(truth, val, test, seed, data):
    rows, n = np.array(truth, np.int8), len(truth)
    names = data.draw(st.lists(st.sampled_from(["", "", "a", "b", "c", "d"]), min_size=n, max_size=n))
    room = _quota(n, (val, test))
    try:
        split = draw_splits(rows, names, (val, test), seed)
    except SourceError as error:
        assert any(f"the group {name!r} has" in str(error) for name in set(names))
        assert max(room) < n  # something was to be drawn
        return
    assert set(split.tolist()) <= {0, 1, 2}
    for name in set(names) - {""}:
        assert len({split[row] for row in range(n) if names[row] == name}) == 1
    sizes = [names.count(name) for name in set(names) - {""}]
    if val or test:
        assert max(sizes, default=0) <= max(room)
        assert all((split == part).any() for part in range(3) if room[part] and sizes)


def test_classes_are_spread_over_splits_as_groups_allow():
    """60 groups of three images, each of one class of four."""
    kind = np.repeat(np.arange(60) % 4, 3)
    truth = np.eye(4, dtype=np.int8)[kind]
    split = stratify(truth, 0.2, 0.2, 0, np.repeat(np.arange(60), 3))
    assert shares(truth, split) == [[27, 9, 9]] * 4


def test_large_groups_come_first_so_that_single_images_fill_what_they_leave():
    names = ["big"] * 19 + ["small"] * 8 + [""] * 73
    split = draw_splits(np.ones((100, 1), np.int8), names, (0.2, 0.2), 0)
    assert np.bincount(split).tolist() == [60, 20, 20]


def test_drawn_splits_that_groups_leave_far_from_their_share_are_warned_of():
    names = [f"{number // 30}" for number in range(120)]
    truth = np.ones((120, 1), np.int8)
    split = draw_splits(truth, names, (0.26, 0.26), 0)
    assert np.bincount(split).tolist() == [60, 30, 30]
    assert doubt_split(split, {"val": 0.26, "test": 0.26}, truth.sum(axis=0), grouped=True) == []
    (found,) = doubt_split(split, {"val": 0.15}, truth.sum(axis=0), grouped=True)
    assert found == (
        "val has 25% of the images, not the 15% asked for: groups stay whole; name splits of your own, or ask for "
        "another share"
    )
