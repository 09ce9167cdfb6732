import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline.labels import recipe, splits
from pipeline.labels.rates import false_negative_rate

GOLDENS = Path(__file__).parents[1] / "goldens"
SMALL = json.loads((GOLDENS / "simulation_small.json").read_text())["cases"]
SPLITS = json.loads((GOLDENS / "split.json").read_text())["cases"]
TRUTHS = hnp.arrays(np.int8, st.tuples(st.integers(1, 12), st.integers(1, 6)), elements=st.integers(0, 1))


def sha256(numbers: np.ndarray) -> str:
    return hashlib.sha256(np.asarray(numbers).astype("<i4").tobytes()).hexdigest()


def chosen(observed: np.ndarray) -> np.ndarray:
    return np.where((observed == 1).any(axis=1), observed.argmax(axis=1), -1)


def without_negative_shuffle(truth: np.ndarray, seed: int) -> np.ndarray:
    generator = np.random.RandomState(seed)
    result = []
    for row in truth:
        places = np.flatnonzero(row == 1)
        generator.shuffle(places)
        result.append(places[0] if len(places) else -1)
    return np.array(result)


# ---------------------------------------------------------------------------------------------- the published recipe
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case["name"])
def test_small_goldens(case):
    truth = np.array(case["labels"], dtype=case["dtype"])
    expected = case["expected"]
    observed = recipe.literature(truth, case["seed"], case.get("num_pos", 1), case.get("num_neg", 0))
    assert observed.dtype == np.int8
    if "observed" in expected:
        assert observed.tolist() == expected["observed"]
    else:
        assert chosen(observed).tolist() == expected["chosen_class"]
        assert np.abs(observed).sum() == (np.array(expected["chosen_class"]) >= 0).sum()


@pytest.mark.parametrize(
    "case", [case for case in SMALL if "chosen_class" in case["expected"]], ids=lambda c: c["name"]
)
def test_skipping_the_negative_shuffle_is_another_recipe(case):
    truth, wrong = np.array(case["labels"]), case["expected"]["wrong_if_negative_shuffle_is_skipped"]
    assert without_negative_shuffle(truth, case["seed"]).tolist() == wrong["chosen_class"]
    assert wrong["chosen_class"] != chosen(recipe.literature(truth, case["seed"])).tolist()


@pytest.mark.parametrize("place, prefix", [(0, "COCO_train2014_"), (1, "COCO_val2014_")])
def test_coco_2014_golden(repository, place, prefix):
    file = repository.parent / "shared" / "data" / "labels" / "coco2014_labels.npz"
    if not file.exists():
        pytest.skip("the COCO 2014 label matrix is not at hand")
    expected = json.loads((GOLDENS / "simulation_coco2014.json").read_text())["cases"][place]["expected"]
    with np.load(file) as archive:
        names, labels = archive["image"], archive["labels"]
    of_part = np.char.startswith(names, prefix)
    ids = np.array([int(name[-16:-4]) for name in names[of_part]])
    order = splits.string_order(ids)
    truth = labels[of_part][order]
    assert hashlib.sha256(truth.tobytes()).hexdigest() == expected["label_matrix_uint8_sha256"]
    assert sha256(ids[order]) == expected["image_ids_int32_sha256"]

    observed = recipe.literature(truth)
    assert sha256(chosen(observed)) == expected["chosen_class_sha256"]
    assert (observed == 1).sum(axis=0).tolist() == expected["chosen_per_class"]

    wrong = chosen(recipe.literature(labels[of_part]))  # rows by number, as the file has them
    assert sha256(wrong) == expected["wrong_if_rows_sorted_numerically"]["chosen_class_sha256"]
    if "split" not in expected:
        return
    skipped = expected["wrong_if_negative_shuffle_is_skipped"]["chosen_class_first"]
    assert without_negative_shuffle(truth[: len(skipped)], 1200).tolist() == skipped
    assert skipped != chosen(observed)[: len(skipped)].tolist()
    split = expected["split"]
    train, val = splits.split_rows(len(truth))
    assert (sha256(train), sha256(val)) == (split["train_index_sha256"], split["val_index_sha256"])
    assert sha256(chosen(observed[train])) == split["chosen_class_train_split_sha256"]
    rates = false_negative_rate(
        truth[train], np.ones((len(train), 80), bool), observed[train], np.zeros((len(train), 80)).__getitem__
    )
    assert rates["observed_positive"] == split["observed_per_class_train_split"]
    assert rates["unknown"] == split["unknown_per_class_train_split"]


def test_each_part_starts_from_a_fresh_generator():
    truth = np.random.default_rng(0).integers(0, 2, (20, 6))
    first = recipe.literature(truth)
    assert np.array_equal(first, recipe.literature(truth))
    assert np.array_equal(first[:5], recipe.literature(truth[:5]))


@pytest.mark.parametrize("truth, words", [([[0, 2]], "2 at row 0, class 1"), ([[0.5]], "0.5"), ([1, 0], "shape")])
def test_a_matrix_that_is_no_truth_is_refused(truth, words):
    for draw in (recipe.literature, lambda t: recipe.seeded(t, np.random.default_rng(0))):
        with pytest.raises(ValueError, match=words):
            draw(np.array(truth))


def test_a_negative_number_to_keep_is_refused():
    with pytest.raises(ValueError, match="-1 positives"):
        recipe.literature(np.ones((1, 1)), positives=-1)


# ---------------------------------------------------------------------------------------------- the seeded draw
@given(TRUTHS, st.integers(0, 3))
def test_seeded_keeps_exactly_one_true_label(truth, seed):
    observed = recipe.seeded(truth, np.random.default_rng(seed))
    assert observed.dtype == np.int8
    assert (observed <= truth).all() and (observed >= 0).all()
    assert observed.sum(axis=1).tolist() == truth.any(axis=1).astype(int).tolist()


def test_seeded_is_uniform_over_the_positives():
    truth = np.tile(np.array([1, 0, 1, 0, 1]), (30_000, 1))
    counts = recipe.seeded(truth, np.random.default_rng(7)).sum(axis=0)
    deviation = np.sqrt(30_000 * (1 / 3) * (2 / 3))  # of a binomial count
    assert counts[[1, 3]].tolist() == [0, 0]
    assert (np.abs(counts[[0, 2, 4]] - 10_000) < 4.5 * deviation).all()


def test_seeded_draws_rows_independently():
    truth = np.tile(np.array([1, 1]), (30_000, 1))
    first = recipe.seeded(truth, np.random.default_rng(3))[:, 0].astype(int)
    together = (first[:-1] == first[1:]).mean()
    assert abs(together - 0.5) < 4.5 * 0.5 / np.sqrt(29_999)


def test_seeded_repeats_with_its_generator_and_changes_with_it():
    truth = np.ones((50, 4), np.int8)
    draws = [recipe.seeded(truth, np.random.default_rng(seed)) for seed in (0, 0, 1)]
    assert np.array_equal(draws[0], draws[1]) and not np.array_equal(draws[0], draws[2])


# ---------------------------------------------------------------------------------------------- the split and the order
@pytest.mark.parametrize("case", SPLITS, ids=lambda case: case["name"])
def test_split_goldens(case):
    train, val = splits.split_rows(case["N"], case.get("frac", 0.2), case.get("seed", 1200))
    expected = case["expected"]
    assert (len(train), len(val)) == (expected["n_train"], expected["n_val"])
    assert sorted([*train, *val]) == list(range(case["N"]))
    if "train_sha256" in expected:
        assert (sha256(train), sha256(val)) == (expected["train_sha256"], expected["val_sha256"])
        assert train[: len(expected["train_first"])].tolist() == expected["train_first"]


@given(st.integers(0, 300), st.floats(0, 1), st.integers(0, 5))
def test_split_is_a_partition_in_order(n, fraction, seed):
    train, val = splits.split_rows(n, fraction, seed)
    assert train.dtype == val.dtype == np.int64
    assert sorted(train) == train.tolist() and sorted(val) == val.tolist()
    assert sorted([*train, *val]) == list(range(n))
    assert abs(len(val) - fraction * n) <= 0.5


@pytest.mark.parametrize("n, fraction", [(-1, 0.2), (5, -0.1), (5, 1.5), (5, float("nan"))])
def test_an_impossible_split_is_refused(n, fraction):
    with pytest.raises(ValueError, match="cannot split"):
        splits.split_rows(n, fraction)


def test_ids_are_ordered_as_strings():
    ids = np.array([9, 100, 25, 1, 10])
    assert ids[splits.string_order(ids)].tolist() == [1, 10, 100, 25, 9]
    assert splits.string_order([]).tolist() == []
