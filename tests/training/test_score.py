from dataclasses import replace

import numpy as np
import pytest

from pipeline.labels.table import Table
from pipeline.training import score

NONE = {"classes_without_negative": 0}
CLASSES = ("cat", "dog", "owl")
SPLIT = np.array([2, 0, 1, 2, 0, 1, 2, 1], dtype=np.uint8)
TRUTH = np.array(
    [[1, 0, 0], [1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 1, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=np.int8
)


def table(scored: np.ndarray | None = None, truth: np.ndarray = TRUTH) -> Table:
    scored = np.ones(truth.shape, bool) if scored is None else scored
    paths = tuple(f"{row}.png" for row in range(len(truth)))
    return Table(CLASSES, paths, truth, scored, SPLIT, (SPLIT == 2).astype(np.uint8))


VAL = np.array([[1.0, 0.5, 0.0], [2.0, 1.0, 0.0], [0.0, 2.0, 1.0]], dtype=np.float32)  # rows 2, 5, 7
TEST = np.array([[3.0, 0.0, 1.0], [2.0, 1.0, 0.0], [1.0, 2.0, 2.0]], dtype=np.float32)  # rows 0, 3, 6


def test_scores_of_both_rules_and_of_each_class() -> None:
    found, rows = score.score_splits(table(), {"val": VAL, "test": TEST})
    # val: cat is second of three, dog second of three, no owl; test: cat first and third, dog second of three
    assert found["val"] == pytest.approx({"map": 50.0, "map_absent_zero": 100 / 3, "classes_present": 2, **NONE})
    expected = {
        "map": 100 * (5 / 6 + 1 / 2) / 2,
        "map_absent_zero": 100 * (5 / 6 + 1 / 2) / 3,
        "classes_present": 2,
        **NONE,
    }
    assert found["test"] == pytest.approx(expected)
    assert [row["class"] for row in rows] == list(CLASSES)
    assert [[row[f"support_{split}"] for split in ("train", "val", "test")] for row in rows] == [
        [1, 1, 2],
        [2, 1, 1],
        [1, 0, 0],
    ]
    assert [row["ap_val"] for row in rows] == pytest.approx([0.5, 0.5, None])
    assert [row["ap_test"] for row in rows] == pytest.approx([5 / 6, 0.5, None])
    assert "ap_train" not in rows[0]


def test_cells_that_are_not_scored_are_left_out() -> None:
    scored = np.ones(TRUTH.shape, bool)
    scored[5, 0] = False  # the one that stood above the only cat of val
    found, rows = score.score_splits(table(scored), {"val": VAL})
    assert rows[0]["ap_val"] == 1.0 and found["val"]["map"] == pytest.approx(75.0)


def test_a_class_of_positives_alone_is_counted_and_not_scored() -> None:
    truth = TRUTH.copy()
    truth[SPLIT == 1, 1] = 1  # every val image has a dog
    found, rows = score.score_splits(table(truth=truth), {"val": VAL})
    assert rows[1]["ap_val"] is None and rows[1]["support_val"] == 3
    expected = {"map": 50.0, "map_absent_zero": 50.0, "classes_present": 1, "classes_without_negative": 1}
    assert found["val"] == pytest.approx(expected)


def test_a_split_without_positives_has_no_mean() -> None:
    truth = TRUTH.copy()
    truth[SPLIT == 2] = 0
    found, rows = score.score_splits(table(truth=truth), {"test": TEST})
    assert found["test"] == {"map": None, "map_absent_zero": 0.0, "classes_present": 0, **NONE}
    assert [row["ap_test"] for row in rows] == [None] * 3


def test_labels_that_are_not_exhaustive_are_what_is_scored_by() -> None:
    """Unknown cells count as absent, and the scores say so; a split that is known whole is scored as ever."""
    scored = TRUTH == 1  # positives alone are known
    partial = replace(table(scored), exhaustive=False)
    found, _ = score.score_splits(partial, {"val": VAL, "test": TEST})
    whole, _ = score.score_splits(table(), {"val": VAL, "test": TEST})
    assert found.pop("labels") == {"val": "given", "test": "given"}
    assert whole.pop("labels") == {"val": "clean", "test": "clean"}
    assert found == whole
    for known, labels in (
        ([1], {"val": "clean", "test": "given"}),
        ([2], {"val": "given", "test": "clean"}),
        ([1, 2], {"val": "clean", "test": "clean"}),
    ):
        partial = replace(table(scored | np.isin(SPLIT, known)[:, None]), exhaustive=False)
        found, _ = score.score_splits(partial, {"val": VAL, "test": TEST})
        assert found.pop("labels") == labels and found == whole
