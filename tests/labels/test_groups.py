import numpy as np
from hypothesis import given
from hypothesis import settings as checks
from hypothesis import strategies as st

from pipeline.labels.groups import deal_folds, find_cut, number_groups

NAMES = st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=12)


@given(names=NAMES)
def test_images_share_a_number_where_they_share_a_name(names):
    numbers = number_groups(names)
    assert numbers.dtype == np.int64
    for one in range(len(names)):
        for other in range(len(names)):
            assert (numbers[one] == numbers[other]) == (one == other or names[one] == names[other] != "")


@given(names=NAMES, data=st.data())
def test_a_cut_group_is_found(names, data):
    split = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(names), max_size=len(names))), int)
    of = {name: {split[row] for row in range(len(names)) if names[row] == name} for name in set(names) - {""}}
    cut = find_cut(names, split)
    assert (cut is not None) == any(len(found) > 1 for found in of.values())
    if cut:
        assert names[cut[0]] == names[cut[1]] != "" and split[cut[0]] != split[cut[1]]


@checks(max_examples=200, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12), count=st.integers(1, 5), seed=st.integers(0, 9))
def test_folds_hold_whole_groups_and_are_as_equal_as_these_allow(sizes, count, seed):
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)) * 7, sizes))
    fold = deal_folds(groups, count, np.random.default_rng(seed))
    assert all(len(set(fold[groups == group].tolist())) == 1 for group in set(groups.tolist()))
    filled = np.bincount(fold, minlength=min(count, len(sizes)))
    assert len(filled) == min(count, len(sizes)) and filled.min() > 0
    assert filled.max() - filled.min() <= max(sizes)  # else the last group dealt to the fullest fold was dealt wrong


def test_chance_deals_groups_of_one_size():
    groups = np.repeat(np.arange(30), 2)
    first, again, other = (deal_folds(groups, 3, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert np.bincount(first).tolist() == [20, 20, 20]
