"""Thresholds, class shares and hidden labels on the page, against the synthetic project that was made of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.config.params import Params
from pipeline.core import files
from pipeline.report import analyses, frames, page
from pipeline.report.read import Collected, collect
from tests.report.project import TUNED


@pytest.fixture(scope="module")
def collected(whole: tuple[Path, Params]) -> Collected:
    return collect(*whole)


@pytest.fixture(scope="module")
def result(collected: Collected) -> frames.Results:
    return frames.measure(collected)["digits"]


@pytest.fixture(scope="module")
def built(collected: Collected) -> page.Report:
    return page.build(collected)


def test_the_table_of_f1_holds_means_over_draws(built: page.Report) -> None:
    table = built.files.tables["digits-f1"].set_index(["stage", "method", "variant"])
    row = table.loc[("finetune", "an", "")]
    assert row["matching_macro"] == pytest.approx(np.mean(TUNED["an"]))
    assert row["0.9_micro"] == pytest.approx(np.mean(TUNED["an"]) - 2 + 0.5)
    assert row["0.9_micro_std"] == pytest.approx(np.std(TUNED["an"], ddof=1))
    assert pd.isna(row["0.95_macro"])  # a rule that no class has a threshold of
    assert "65.0 / 65.5" in built.html and "F1 on test by threshold on digits" in built.html


def test_thresholds_by_class_are_in_the_order_of_the_classes(collected: Collected, built: page.Report) -> None:
    table = collected.datasets[0].table
    assert table is not None
    rows = built.files.tables["digits-thresholds"]
    mine = rows[(rows["stage"] == "finetune") & (rows["method"] == "an") & (rows["draw"] == 1)]
    assert mine["class"].tolist() == list(table.classes)
    assert mine["conformal_0.9"].tolist() == [-1.5] * len(table.classes) and mine["conformal_0.95"].isna().all()


def test_a_run_without_thresholds_is_missing(whole: tuple[Path, Params], tmp_path: Path) -> None:
    import shutil

    root = tmp_path / "copy"
    shutil.copytree(whole[0], root)
    (root / "runs/finetune/digits-em-1-0/thresholds.json").unlink()
    found = collect(root, whole[1], partial=True)
    assert [item.path for item in found.missing] == ["runs/finetune/digits-em-1-0/thresholds.json"]


def test_class_shares_are_held_against_those_of_the_training_images(result: frames.Results, built: page.Report) -> None:
    table = result.about.table
    assert table is not None
    found = analyses.believed(result, 0)
    truth = table.truth[table.rows("train")].mean(axis=0)
    np.testing.assert_allclose(found["true"], truth)
    np.testing.assert_allclose(found["share"], truth + 0.125)
    assert "off by 12.5 % of the images on average, with 5 of 6 true ones inside their interval" in built.html
    assert f"In truth there are {truth.sum():.2f}" in built.html


@pytest.mark.parametrize("shown_as", ["count", "share"])
def test_true_shares_are_of_the_images_that_estimates_are_of(result: frames.Results, shown_as: str) -> None:
    about, table = result.about, result.about.table
    assert table is not None
    truth = table.truth.copy()
    truth[table.rows("train")[:10]] = 0  # ten images without a label
    changed = replace(about, table=replace(table, truth=truth), beliefs={0: about.beliefs[0] | {"shown_as": shown_as}})
    found = analyses.believed(replace(result, about=changed), 0)
    counted = truth[table.rows("train")].sum(axis=0) / (len(table.rows("train")) - 10 * (shown_as == "count"))
    np.testing.assert_allclose(found["true"], counted)


def test_labels_that_are_named_hidden_are_counted_by_belief(whole: tuple[Path, Params], result: frames.Results) -> None:
    table = result.about.table
    assert table is not None
    counted: dict[float, list[int]] = {}
    for draw in (0, 1, 2):
        for row in files.read_tsv(whole[0] / f"data/beliefs/digits-{draw}/hidden.tsv"):
            low = max(end for end in (0.5, 0.7, 0.9) if float(row["belief"]) >= end)
            cell = table.paths.index(row["path"]), table.classes.index(row["class"])
            if table.scored[cell]:  # of the others nobody knows the truth
                counted.setdefault(low, []).append(int(table.truth[cell]))
    found = analyses.hidden_by_belief(result).set_index("low")
    assert {low: (len(values), sum(values)) for low, values in counted.items()} == {
        low: (row["named"], row["present"]) for low, row in found.iterrows()
    }
    assert len(counted) == 3


def test_named_labels_whose_truth_nobody_knows_are_not_counted_as_wrong(result: frames.Results) -> None:
    table = result.about.table
    assert table is not None
    ignored = replace(table, scored=table.scored & (table.truth == 1))
    found = analyses.hidden_by_belief(replace(result, about=replace(result.about, table=ignored)))
    before = analyses.hidden_by_belief(result)
    assert (found["named"] == found["present"]).all() and found["present"].sum() == before["present"].sum()
