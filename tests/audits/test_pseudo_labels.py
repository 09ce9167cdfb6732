import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline.audits import pseudo_labels


def golden(repository: Path) -> dict:
    return json.loads((repository / "tests/goldens/pseudo_label_audit.json").read_text())["cases"][0]


def problem(seed: int, n: int = 12, c: int = 5, rounds: int = 4) -> tuple[np.ndarray, ...]:
    """Truth, single positives, rounds whose labels come, change sign and go, and a mask of scored cells."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, 2, (n, c)).astype(np.int8)
    observed = np.zeros_like(truth)
    for row in range(n):
        if truth[row].any():
            observed[row, generator.choice(np.flatnonzero(truth[row]))] = 1
    labels = generator.integers(-1, 2, (rounds, n, c)).astype(np.int8) * (observed == 0)
    return truth, observed, labels, generator.random((n, c)) < 0.8


@pytest.mark.parametrize("seed", range(3))
def test_without_truth_only_labels_are_counted(seed: int):
    truth, observed, rounds, scored = problem(seed)
    counted = {"unknown", "labelled", "coverage", "negatives", "positives", "per_class_labelled"}
    found = pseudo_labels.audit(None, observed, rounds, scored)
    for mine, full in zip(found, pseudo_labels.audit(truth, observed, rounds, scored), strict=True):
        for kind in ("cumulative", "newly_added"):
            assert mine[kind] == {name: value if name in counted else None for name, value in full[kind].items()}
        assert (mine["dropped"], mine["flipped"]) == (full["dropped"], full["flipped"])
    by_class = pseudo_labels.by_class(None, observed, rounds[-1])
    for c, row in enumerate(by_class):
        cells = [rounds[-1][i, c] for i in range(len(observed)) if observed[i, c] == 0]
        assert (row["unknown"], row["positives"], row["negatives"]) == (len(cells), cells.count(1), cells.count(-1))
        assert row["hidden_positives"] is None and row["baseline_all_unknown_negative"] is None


def count_by_loops(truth, observed, now, before, scored):
    """Every count of one round, cell by cell; `before` None counts all labels."""
    counts = dict.fromkeys(("unknown", "negatives", "negatives_correct", "positives", "positives_correct", "hidden"), 0)
    counts |= {"missed": 0}
    for i in range(len(truth)):
        for j in range(len(truth[0])):
            if observed[i][j] != 0 or not scored[i][j]:
                continue
            counts["unknown"] += 1
            counts["hidden"] += int(truth[i][j] == 1)
            label = now[i][j]
            if label == 0 or (before is not None and before[i][j] == label):
                continue
            if label < 0:
                counts["negatives"] += 1
                counts["negatives_correct"] += int(truth[i][j] == 0)
                counts["missed"] += int(truth[i][j] == 1)
            else:
                counts["positives"] += 1
                counts["positives_correct"] += int(truth[i][j] == 1)
    return counts


def test_agrees_with_the_golden_in_every_field(repository: Path):
    case = golden(repository)
    rounds = [entry["pseudo_labels"] for entry in case["rounds"]]
    found = pseudo_labels.audit(np.array(case["truth"]), np.array(case["observed"]), np.array(rounds, dtype=np.int8))
    assert len(found) == len(case["rounds"])
    for entry, expected in zip(found, case["rounds"], strict=True):
        assert entry["round"] == expected["round"]
        assert (entry["dropped"], entry["flipped"]) == (0, 0)
        for kind in ("newly_added", "cumulative"):
            assert entry[kind].keys() == expected["expected"][kind].keys()
            for field, wanted in expected["expected"][kind].items():
                got = entry[kind][field]
                pairs = zip(got, wanted, strict=True) if isinstance(wanted, list) else [(got, wanted)]
                assert all(value == (None if w is None else pytest.approx(w, rel=1e-15)) for value, w in pairs), field


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("with_mask", [False, True])
def test_agrees_with_counting_cell_by_cell(seed: int, with_mask: bool):
    truth, observed, labels, mask = problem(seed)
    scored = mask if with_mask else np.ones_like(mask)
    found = pseudo_labels.audit(truth, observed, labels, mask if with_mask else None)
    for number, entry in enumerate(found):
        before = labels[number - 1] if number else np.zeros_like(labels[0])
        for kind, past in (("cumulative", None), ("newly_added", before)):
            counts = count_by_loops(truth.tolist(), observed.tolist(), labels[number].tolist(), past, scored)
            got = entry[kind]
            assert got["unknown"] == counts["unknown"]
            assert got["hidden_positives"] == counts["hidden"]
            assert (got["negatives"], got["negatives_correct"]) == (counts["negatives"], counts["negatives_correct"])
            assert (got["positives"], got["positives_correct"]) == (counts["positives"], counts["positives_correct"])
            assert got["hidden_positives_called_negative"] == counts["missed"]
            assert got["labelled"] == counts["negatives"] + counts["positives"] == sum(got["per_class_labelled"])
            right = counts["negatives_correct"] + counts["positives_correct"]
            assert sum(got["per_class_correct"]) == right
            assert got["accuracy"] == right / got["labelled"]
            assert got["coverage"] == got["labelled"] / counts["unknown"]
            assert got["hidden_positive_recall"] == counts["positives_correct"] / counts["hidden"]
            assert got["baseline_all_unknown_negative"] == pytest.approx(1 - counts["hidden"] / counts["unknown"])


def test_counts_labels_that_go_or_change_sign():
    truth = np.array([[1, 0, 0, 1]])
    observed = np.array([[1, 0, 0, 0]])
    rounds = [[[0, 1, -1, -1]], [[0, 0, 1, -1]], [[0, -1, 1, 0]]]
    found = pseudo_labels.audit(truth, observed, np.array(rounds))
    assert [(entry["dropped"], entry["flipped"]) for entry in found] == [(0, 0), (1, 1), (1, 0)]
    assert [entry["newly_added"]["labelled"] for entry in found] == [3, 1, 1]
    unscored = pseudo_labels.audit(truth, observed, np.array(rounds), np.array([[True, False, False, True]]))
    assert [(entry["dropped"], entry["flipped"]) for entry in unscored] == [(0, 0), (0, 0), (1, 0)]


def test_a_fraction_without_denominator_is_none():
    everything_known = pseudo_labels.figures(np.array([[1, 0]]), np.array([[1, -1]]), np.zeros((1, 2), int))
    assert everything_known["unknown"] == 0
    fractions = ["coverage", "accuracy", "negative_accuracy", "positive_precision", "hidden_positive_recall"]
    fractions += ["hidden_positive_miss_rate", "baseline_all_unknown_negative"]
    assert all(everything_known[name] is None for name in fractions)
    no_label = pseudo_labels.figures(np.array([[1, 1]]), np.array([[1, 0]]), np.zeros((1, 2), int))
    assert (no_label["coverage"], no_label["accuracy"], no_label["hidden_positive_recall"]) == (0.0, None, 0.0)


def test_classes_add_up_to_the_whole():
    truth, observed, labels, mask = problem(7)
    whole = pseudo_labels.figures(truth, observed, labels[0], mask)
    classes = pseudo_labels.by_class(truth, observed, labels[0], mask)
    assert len(classes) == truth.shape[1]
    for name in ("unknown", "labelled", "negatives_correct", "positives", "hidden_positives"):
        assert sum(entry[name] for entry in classes) == whole[name]
    alone = pseudo_labels.figures(truth[:, 2:3], observed[:, 2:3], labels[0][:, 2:3], mask[:, 2:3])
    assert classes[2] == alone


def test_reads_rounds_from_an_open_file(tmp_path: Path):
    truth, observed, labels, _ = problem(3)
    with h5py.File(tmp_path / "rounds.h5", "w") as file:
        file["rounds"] = labels
        assert pseudo_labels.audit(truth, observed, file["rounds"]) == pseudo_labels.audit(truth, observed, labels)


def test_inputs_stay_as_they_are():
    inputs = problem(1)
    copies = [array.copy() for array in inputs]
    pseudo_labels.audit(*inputs)
    assert all((array == copy).all() for array, copy in zip(inputs, copies, strict=True))


@pytest.mark.parametrize(
    ("truth", "observed", "labels", "message"),
    [
        ([[1, 0]], [[1, 0]], [[1, 0]], "known"),
        ([[1, 0]], [[0, -1]], [[0, -1]], "known"),
        ([[1, 2]], [[1, 0]], [[0, 0]], "truth"),
        ([[1, 0]], [[1, 0]], [[0, 3]], "pseudo-labels"),
        ([[1, 0]], [[1, 0, 0]], [[0, 1]], r"\(N, C\)"),
        ([1, 0], [1, 0], [0, 1], r"\(N, C\)"),
    ],
)
def test_impossible_labels_are_refused(truth, observed, labels, message: str):
    with pytest.raises(ValueError, match=message):
        pseudo_labels.figures(np.array(truth), np.array(observed), np.array(labels))
