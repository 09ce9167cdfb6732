import copy
import json
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from pipeline.audits import metrics
from pipeline.audits.metrics import average_precision, mean_average_precision

CASES = json.loads((Path(__file__).parents[1] / "goldens" / "map.json").read_text(encoding="utf-8"))["cases"]


def close(found: list[float | None], expected: list[float | None]) -> bool:
    """Whether values agree, and None is where None is expected."""
    nan = [[np.nan if value is None else value for value in values] for values in (found, expected)]
    return np.allclose(*nan, rtol=1e-12, atol=0, equal_nan=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden(case: dict[str, Any]) -> None:
    expected = copy.deepcopy(case["expected"])
    lone: Any = np.array(case["truth"]).all(0)  # of a class without a negative any scores give 1, which says nothing
    for key in ("ap_per_class", "ap_fraction"):
        expected[key] = [None if alone else value for value, alone in zip(expected[key], lone, strict=True)]
    values = [value for value in expected["ap_per_class"] if value is not None]
    found = mean_average_precision(np.array(case["truth"]), np.array(case["scores"]))
    absent = sorted([*expected["absent_classes"], *np.flatnonzero(lone).tolist()])
    assert [position for position, value in enumerate(found["ap"]) if value is None] == absent
    assert close(found["ap"], expected["ap_per_class"])
    exact = [value and float(Fraction(value)) for value in expected["ap_fraction"]]
    assert close(found["ap"], exact)
    if not lone.any():
        assert found["map"] == pytest.approx(expected["map_absent_skipped"], rel=1e-12)
    assert found["map"] == (pytest.approx(100 * np.mean(values), rel=1e-12) if values else None)
    assert found["map_absent_zero"] == pytest.approx(expected["map_absent_is_zero"], rel=1e-12)
    assert (found["present"], found["without_negative"]) == (len(found["ap"]) - len(absent), lone.sum())


def by_hand(truth: np.ndarray, scores: np.ndarray) -> float:
    """Sum over thresholds of the recall gained there times the precision there, in exact fractions."""
    total, before = Fraction(0), 0
    for threshold in sorted(set(scores), reverse=True):
        taken = scores >= threshold
        hits = int(truth[taken].sum())
        total += Fraction(hits - before, int(truth.sum())) * Fraction(hits, int(taken.sum()))
        before = hits
    return float(total)


def test_ties_form_one_threshold_whatever_the_order_of_rows() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        truth = generator.integers(0, 2, (12, 1))
        truth[0] = 1
        scores = generator.integers(0, 4, (12, 1)) / 4
        expected = by_hand(truth[:, 0], scores[:, 0])
        for order in (np.arange(12), generator.permutation(12)):
            assert average_precision(truth[order], scores[order])[0] == pytest.approx(expected, rel=1e-12)


def test_a_cell_that_is_not_scored_counts_neither_way() -> None:
    generator = np.random.default_rng(1)
    truth, scores = generator.integers(0, 2, (20, 3)), generator.normal(size=(20, 3))
    scored = generator.random((20, 3)) < 0.6
    scored[:, 2] = truth[:, 2] == 0  # the last class loses all its positives
    found = mean_average_precision(truth, scores, scored)
    kept = [by_hand(truth[scored[:, c], c], scores[scored[:, c], c]) for c in (0, 1)]
    assert close(found["ap"], [*kept, None])
    assert found["map"] == pytest.approx(50 * sum(kept))
    assert found["map_absent_zero"] == pytest.approx(100 / 3 * sum(kept))
    assert found["present"] == 2


def test_logits_keep_the_order_that_half_precision_probabilities_lose() -> None:
    logits = np.array([[12.0], [11.0], [10.0], [9.0]], dtype=np.float32)
    truth = np.array([[1], [0], [0], [0]])
    assert average_precision(truth, logits) == [1.0]
    assert average_precision(truth, (1 / (1 + np.exp(-logits))).astype(np.float16)) == [0.25]


def test_a_class_without_a_negative_has_no_score_for_any_model() -> None:
    truth, scored = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0]]), np.ones((3, 3), bool)
    scored[1, 1] = False  # its only negative
    for seed in range(3):
        found = mean_average_precision(truth, np.random.default_rng(seed).normal(size=(3, 3)), scored)
        assert (found["ap"], found["map"], found["present"], found["without_negative"]) == ([None] * 3, None, 0, 2)
        assert found["map_absent_zero"] == pytest.approx(200 / 3)  # the literature's code has 1, 1 and 0


def test_all_classes_at_once_are_scikit_learns_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(4)
    truth, scores = (generator.random((40, 60)) < 0.2).astype(int), generator.normal(size=(40, 60)).astype(np.float32)
    scores[:, ::2] = np.round(scores[:, ::2])  # with ties
    scored = generator.random((40, 60)) < 0.8
    expected: list[float | None] = []
    for column in range(60):
        labels, values = truth[scored[:, column], column], scores[scored[:, column], column]
        both = labels.any() and not labels.all()
        expected.append(float(average_precision_score(labels, values)) if both else None)
    for cells in (1, 500, 1 << 20):
        monkeypatch.setattr(metrics, "CELLS", cells)
        assert close(average_precision(truth, scores, scored), expected)


def test_ten_thousand_classes_take_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    truth, scores = generator.random((200, 10_000)) < 0.01, generator.normal(size=(200, 10_000)).astype(np.float32)
    start = time.process_time()
    mean_average_precision(truth.astype(np.int8), scores)
    assert time.process_time() - start < 3  # scikit-learn, class by class: 13 s


def test_no_positive_at_all() -> None:
    found = mean_average_precision(np.zeros((3, 2)), np.ones((3, 2)))
    assert found == {"map": None, "map_absent_zero": 0.0, "present": 0, "without_negative": 0, "ap": [None, None]}


@pytest.mark.parametrize(
    ("truth", "scores", "message"),
    [
        (np.ones((2, 2)), np.ones((2, 3)), r"\(2, 2\) and scores \(2, 3\)"),
        (np.ones(2), np.ones(2), r"\(N, C\)"),
        (np.array([[1, -1]]), np.ones((1, 2)), "1 and 0 only"),
        (np.array([[1, 0]]), np.array([[0.0, np.nan]]), "finite"),
        (np.array([[1, 0]]), np.array([[0.0, -np.inf]]), "finite"),
    ],
)
def test_bad_input(truth: np.ndarray, scores: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mean_average_precision(truth, scores)
