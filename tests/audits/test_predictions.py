"""Figures of predictions against scikit-learn, and against loops where cells are left out."""

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    coverage_error,
    f1_score,
    label_ranking_loss,
    precision_score,
    recall_score,
    top_k_accuracy_score,
)

from pipeline.audits import predictions
from pipeline.audits.predictions import score_predictions


def made(seed: int, n: int = 60, c: int = 6, ties: bool = True, empty: bool = True):
    generator = np.random.default_rng(seed)
    truth = (generator.random((n, c)) < [0.5, 0.3, 0.2, 0.4, 0.1, 0.6][:c]).astype(np.int8)
    truth[:2] = [np.zeros(c), np.ones(c)] if empty else truth[:2]
    scores = truth * generator.random((n, c)) + generator.random((n, c))
    scores = np.round(scores, 1) if ties else scores
    return truth, scores, scores > 0.9, np.ones(truth.shape, bool)


@pytest.mark.parametrize("seed", range(5))
def test_all_figures_are_those_of_scikit_learn(seed):
    truth, scores, chosen, scored = made(seed)
    found = score_predictions(truth, scores, chosen, scored, 0)
    each = [100 * average_precision_score(truth[:, column], scores[:, column]) for column in range(6)]
    assert [row["ap"] for row in found["classes"]] == pytest.approx(each)
    assert found["map"] == pytest.approx(np.mean(each)) == found["map_absent_zero"]
    precision = 100 * precision_score(truth, chosen, average="macro", zero_division=0)
    recall = 100 * recall_score(truth, chosen, average="macro")
    assert (found["cp"], found["cr"]) == pytest.approx((precision, recall))
    assert found["cf1"] == pytest.approx(2 * precision * recall / (precision + recall))
    assert found["op"] == pytest.approx(100 * precision_score(truth, chosen, average="micro"))
    assert found["or"] == pytest.approx(100 * recall_score(truth, chosen, average="micro"))
    assert found["of1"] == pytest.approx(100 * f1_score(truth, chosen, average="micro"))
    assert found["coverage_error"] == pytest.approx(coverage_error(truth, scores))
    assert found["ranking_loss"] == pytest.approx(label_ranking_loss(truth, scores))
    assert [row["support"] for row in found["classes"]] == truth.sum(axis=0).tolist()
    assert [row["chosen"] for row in found["classes"]] == chosen.sum(axis=0).tolist()


def test_precision_at_one_is_top_one_accuracy_of_single_labels():
    generator = np.random.default_rng(3)
    labels, scores = generator.integers(0, 4, 50), generator.random((50, 4))
    truth = np.eye(4, dtype=np.int8)[labels]
    for k in (1, 3):
        top = top_k_accuracy_score(labels, scores, k=k, labels=range(4))
        assert predictions.precision_at(truth, scores, np.ones(truth.shape, bool), k) == pytest.approx(100 * top / k)


def test_figures_by_loops_where_cells_do_not_count():
    generator = np.random.default_rng(4)
    truth, scores, chosen, _ = made(4, ties=True)
    scored = generator.random(truth.shape) < 0.7
    found = score_predictions(truth, scores, chosen, scored, 0)
    coverage, loss, at = [], [], []
    for labels, values, counts in zip(truth, scores, scored, strict=True):
        present = [value for label, value, count in zip(labels, values, counts, strict=True) if label and count]
        absent = [value for label, value, count in zip(labels, values, counts, strict=True) if not label and count]
        coverage.append(sum(value >= min(present) for value in present + absent) if present else 0)
        pairs = [below >= above for above in present for below in absent]
        loss.append(np.mean(pairs) if pairs else 0)
        ranked = sorted((-value, column) for column, value in enumerate(values) if counts[column])
        if len(ranked) >= 3:
            at.append(np.mean([labels[column] for _, column in ranked[:3]]))
    assert found["coverage_error"] == pytest.approx(np.mean(coverage))
    assert found["ranking_loss"] == pytest.approx(np.mean(loss))
    assert found["precision_at"]["3"] == pytest.approx(100 * np.mean(at))
    for column, row in enumerate(found["classes"]):
        kept = scored[:, column]
        assert row["ap"] == pytest.approx(100 * average_precision_score(truth[kept, column], scores[kept, column]))
    present = (truth == 1) & scored
    assert found["of1"] == pytest.approx(200 * (chosen & present).sum() / ((chosen & scored).sum() + present.sum()))


def test_a_class_that_is_absent_counts_by_both_rules():
    truth, scores, chosen, scored = made(5, empty=False)
    truth[:, 2] = 0
    found = score_predictions(truth, scores, chosen, scored, 0)
    assert found["map_absent_zero"] == pytest.approx(found["map"] * 5 / 6)
    assert found["classes"][2]["ap"] is None
    kept = [0, 1, 3, 4, 5]
    assert found["cr"] == pytest.approx(100 * recall_score(truth[:, kept], chosen[:, kept], average="macro"))


def test_a_resample_is_the_images_drawn():
    """The bootstrap's figures are those of tables whose rows are repeated as often."""
    truth, scores, chosen, scored = made(6, n=25)
    scored = np.random.default_rng(0).random(truth.shape) < 0.8
    counts = predictions.count_chosen(truth, chosen, scored)
    found = predictions._bootstrap(truth, scores, scored, counts, 7, seed=9)
    weights = np.random.default_rng(9).multinomial(25, np.full(25, 1 / 25), 7)
    for number, times in enumerate(weights):
        rows = np.repeat(np.arange(25), times)
        whole = score_predictions(truth[rows], scores[rows], chosen[rows], scored[rows], 0)
        ap = [np.nan if row["ap"] is None else row["ap"] for row in whole["classes"]]
        assert found["ap"][number] == pytest.approx(ap, nan_ok=True)
        assert (found["map"][number], found["cf1"][number], found["of1"][number]) == pytest.approx(
            (whole["map"], whole["cf1"], whole["of1"])
        )


def test_the_interval_of_map_is_that_of_images_or_groups_drawn(monkeypatch):
    """Of tables whose rows are repeated as often as they were drawn, groups whole."""
    truth, scores, _, _ = made(6, n=25)
    scored = np.random.default_rng(0).random(truth.shape) < 0.8
    monkeypatch.setattr(predictions, "CELLS", 60)  # several parts of the resamples
    for groups in (None, np.arange(25) // 4):
        drawn = predictions.resample_rows(25, 9, np.random.default_rng(0), groups)
        rows = [np.repeat(np.arange(25), times) for times in drawn]
        maps = [score_predictions(truth[own], scores[own], scores[own] > 0, scored[own], 0)["map"] for own in rows]
        found = predictions.estimate_map(truth, scores, scored, 9, groups)
        whole = score_predictions(truth, scores, scores > 0, scored, 0)["map"]
        assert found.value == pytest.approx(whole)
        assert (found.low, found.high) == pytest.approx(
            (min(np.quantile(maps, 0.025), whole), max(np.quantile(maps, 0.975), whole))
        )


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say():
    """OF1 of 95 % intervals over 80 samples of one population: it is known for 300,000 images."""
    generator = np.random.default_rng(7)
    truth = (generator.random((300_000, 2)) < 0.3).astype(np.int8)
    chosen = np.where(generator.random(truth.shape) < 0.8, truth == 1, generator.random(truth.shape) < 0.3)
    whole = predictions.f1_of_counts(*(part.sum(axis=0) for part in (chosen & (truth == 1), chosen, truth)))["of1"]
    covered = 0
    for start in range(0, 80 * 100, 100):
        rows = slice(start, start + 100)
        found = score_predictions(truth[rows], chosen[rows] * 1.0, chosen[rows], np.ones((100, 2), bool), 100, start)
        low, high = found["intervals"]["of1"]
        covered += low <= whole <= high
    assert 68 <= covered <= 80


def test_resamples_in_blocks_are_the_same(monkeypatch):
    case = made(8)
    whole = score_predictions(*case, resamples=50)
    monkeypatch.setattr(predictions, "CELLS", 130)
    assert score_predictions(*case, resamples=50)["intervals"] == whole["intervals"]


def test_nothing_is_defined_without_a_label():
    blank = np.zeros((4, 2))
    found = score_predictions(blank, blank, blank > 0, blank == 0, 10)
    assert found["map"] is None and found["of1"] is None and found["coverage_error"] == 0
    assert found["intervals"] == {"map": None, "cf1": None, "of1": None}


def test_shapes_that_differ_are_named():
    with pytest.raises(ValueError, match=r"truth \(2, 3\), scores \(2, 2\)"):
        score_predictions(np.zeros((2, 3)), np.zeros((2, 2)), np.zeros((2, 3)) > 0, np.ones((2, 3)) > 0, 0)
