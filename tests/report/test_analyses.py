from pathlib import Path

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from pipeline.config.params import Params
from pipeline.core import hdf5
from pipeline.labels.table import Table, read_table
from pipeline.report import analyses
from pipeline.report.collect import Collected, collect


@pytest.fixture(scope="module")
def collected(whole: tuple[Path, Params]) -> Collected:
    return collect(*whole)


@pytest.fixture(scope="module")
def table(whole: tuple[Path, Params]) -> Table:
    return read_table(whole[0] / "data/prepare/digits/table.h5")


def _unknown(table: Table) -> np.ndarray:
    """(40, C) unknown and scored cells of the training rows, where the first positive of a row is shown."""
    truth, scored = table.truth[:40], table.scored[:40]
    shown = np.zeros_like(truth)
    shown[np.arange(40), truth.argmax(axis=1)] = 1
    return (shown == 0) & scored


def test_pseudo_labels_at_the_chosen_epoch(whole: tuple[Path, Params], collected: Collected, table: Table) -> None:
    found = {
        (row["stage"], row["method"]): row for row in analyses.pseudo_labels(collected, "digits") if not row["variant"]
    }
    unknown, coverage, accuracy = _unknown(table), [], []
    for seed in range(3):
        with hdf5.read(whole[0] / f"runs/finetune/digits-em_apl-{seed}/labels.h5") as file:
            labels = file["pseudo_label"][1]  # pyright: ignore  the chosen epoch is the second
        labelled = right = 0
        for i, c in zip(*np.nonzero(unknown), strict=True):
            labelled += labels[i, c] != 0
            right += labels[i, c] == -1 and table.truth[i, c] == 0
        coverage.append(labelled / unknown.sum())
        accuracy.append(right / labelled)
    row = found["finetune", "em_apl"]
    assert row["coverage"]["mean"] == pytest.approx(np.mean(coverage))
    assert row["accuracy"]["mean"] == pytest.approx(np.mean(accuracy))
    assert row["accuracy"]["std"] == pytest.approx(np.std(accuracy, ddof=1))
    base = (table.truth[:40][unknown] == 0).mean()
    assert row["baseline_all_unknown_negative"]["mean"] == pytest.approx(base)
    assert row["positive_precision"]["mean"] is None  # it calls nothing present
    assert "labels no unknown cell" in found["finetune", "an"]["reason"]
    rounds = analyses.pseudo_rounds(collected, "digits")["finetune", "em_apl", ""]
    assert [entry["epoch"] for entry in rounds] == [1, 2, 3, 4, 5, 6]
    assert [entry["selected"] for entry in rounds] == [0, 1, 0, 0, 0, 0]
    assert rounds[1]["accuracy"] == pytest.approx(row["accuracy"]["mean"])
    assert rounds[1]["accuracy_std"] == pytest.approx(row["accuracy"]["std"])


def test_classes_sum_the_seeds(collected: Collected, table: Table) -> None:
    rows = {row["class"]: row for row in analyses.pseudo_classes(collected, "digits")["finetune", "em_apl", ""]}
    unknown = _unknown(table)
    for column, name in enumerate(table.classes):
        assert rows[name]["unknown"] == 3 * unknown[:, column].sum()
        assert rows[name]["hidden_positives"] == 3 * (unknown[:, column] & (table.truth[:40, column] == 1)).sum()
    assert rows["<script>alert('x')</script>"]["accuracy"] in (None, 1.0)  # the first positive is never hidden


def test_calibration_pools_seeds_and_merges_bins(collected: Collected, table: Table) -> None:
    found = analyses.calibration(collected, "digits")["finetune", "an", ""]
    assert sum(row["cells"] for row in found["belief"]) == 3 * _unknown(table).sum()
    assert len(found["belief"]) == 1  # it believes every unknown label absent
    hidden = (table.truth[:40][_unknown(table)] == 1).mean()
    assert found["belief"][0]["fraction"] == pytest.approx(hidden)
    bins = found["probability"]
    merged = analyses.coarse(bins)
    assert 1 < len(merged) <= 10 < len(bins)
    assert sum(row["cells"] for row in merged) == sum(row["cells"] for row in bins)
    tenth = [row for row in bins if row["upper"] <= 0.1 + 1e-9]
    assert merged[0]["fraction"] == pytest.approx(
        sum(row["true_positives"] for row in tenth) / sum(row["cells"] for row in tenth)
    )


def test_distances_are_means_over_seeds(whole: tuple[Path, Params], collected: Collected, table: Table) -> None:
    unknown, column = _unknown(table), table.classes.index("zebra")
    values = []
    for seed in range(3):
        with hdf5.read(whole[0] / f"runs/finetune/digits-em-{seed}/logits.h5") as file:
            p = 1 / (1 + np.exp(-file["train"][:, column].astype(float)))  # pyright: ignore
        cells, positive = unknown[:, column], table.truth[:40, column] == 1
        values.append(wasserstein_distance(p[cells & positive], p[cells & ~positive]))
    found = analyses.distances(collected, "digits", "train")["finetune", "em", ""]
    assert found["zebra"] == pytest.approx(np.mean(values))
    assert "<script>alert('x')</script>" not in found  # none of its positives is hidden


def test_separations_count_the_classes_above_the_baseline(collected: Collected) -> None:
    rows = {(row["stage"], row["method"], row["variant"]): row for row in analyses.separations(collected, "digits")}
    every = analyses.distances(collected, "digits", "train")
    mine, base = every["finetune", "full", ""], every["finetune", "an", ""]
    row = rows["finetune", "full", ""]
    assert row["of"] == len(base) == 4
    assert row["above"] == sum(mine[name] > base[name] for name in base)
    assert rows["finetune", "an", ""]["above"] is None
    assert rows["lac", "lac", ""]["above"] is None  # the baseline does not run there
    epochs = analyses.distance_epochs(collected, "digits", "val")["finetune", "full", ""]
    assert [entry["epoch"] for entry in epochs if entry["selected"]] == [2]
    assert epochs[1]["mean"] == pytest.approx(row["val"]["mean"])
