import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pipeline.audits import beliefs
from pipeline.core import files, hdf5, seal
from pipeline.core.errors import FileError
from pipeline.labels import blocks
from pipeline.labels.table import Table
from stages.audit import audit
from tests.stages import finished_runs as finished

GROWING, STILL, ORACLE = "digits-em_apl-0-0", "digits-an-0-0", "digits-full-0-0"
VARIANT = "digits-em_apl-0-0-halved"


def prepare(root: Path, repository: Path) -> tuple[Table, dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    change: dict[str, Any] = {"dataset": "digits", "method": "em_apl", "draw": 0, "seed": 0, "start": "em_apl"}
    change["set"] = {"stage": {}, "method": {"proportion": 0.5}}
    variants = finished.no_variants(finetune={VARIANT: change})
    grid = finished.grid(linear_init=["an", "em_apl"], finetune=["full"])
    finished.write_params(root, repository, grid=grid, variants=variants, audit={"default": {"bins": 10, "missed": 50}})
    table, observed = finished.write_data(root)
    held = {
        STILL: finished.write_run(root, "linear_init", STILL, table, observed["single"], seed=1, labelled=False),
        GROWING: finished.write_run(root, "linear_init", GROWING, table, observed["single"], seed=2, labelled=True),
        ORACLE: finished.write_run(
            root, "finetune", ORACLE, table, observed["all"], seed=3, labelled=False, labels="all"
        ),
        VARIANT: finished.write_run(root, "finetune", VARIANT, table, observed["single"], seed=4, labelled=True),
    }
    # what a removed run left behind is not asked for, and must not be read
    finished.write_run(root, "finetune", "digits-gone-0-0", table, observed["single"], seed=5, labelled=True)
    return table, observed, held


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("audit")
    table, observed, held = prepare(root, repository)
    audit(root, "digits", 0, 0)
    folder = root / "analyses" / "audit" / "digits-0-0"
    return {
        "root": root,
        "table": table,
        "observed": observed,
        "held": held,
        "record": files.read_json(folder / "audit.json"),
        **{
            name: files.read_tsv(folder / f"{name}.tsv")
            for name in ("rounds", "per_class", "calibration", "missed", "missed_by_run")
        },
        "summary": (folder / "summary.md").read_text(),
    }


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> dict[str, Any]:
    """The audit of data whose labels are not exhaustive."""
    root = tmp_path_factory.mktemp("given")
    grid = finished.grid(linear_init=["an", "em_apl"])
    finished.write_params(root, repository, grid=grid, variants=finished.no_variants())
    table, labels, truth = finished.write_given(root)
    held = {
        STILL: finished.write_run(root, "linear_init", STILL, table, labels, seed=1, labelled=False),
        GROWING: finished.write_run(root, "linear_init", GROWING, table, labels, seed=2, labelled=True),
    }
    audit(root, "digits", 0, 0)
    folder = root / "analyses" / "audit" / "digits-0-0"
    return {
        "table": table,
        "labels": labels,
        "truth": truth,
        "held": held,
        "record": files.read_json(folder / "audit.json"),
        **{
            name: files.read_tsv(folder / f"{name}.tsv")
            for name in ("rounds", "per_class", "calibration", "missed", "missed_by_run")
        },
        "header": (folder / "calibration.tsv").read_text(),
        "summary": (folder / "summary.md").read_text(),
    }


def unknown_cells(result: dict[str, Any], split: str = "train", labels: str = "single") -> list[tuple[int, int, int]]:
    """(position in the split, class, truth) of each unknown cell whose truth is known."""
    table, rows = result["table"], result["table"].rows(split)
    return [
        (i, c, int(table.truth[row, c]))
        for i, row in enumerate(rows)
        for c in range(len(table.classes))
        if result["observed"][labels][row, c] == 0 and table.scored[row, c]
    ]


def test_audits_the_runs_of_the_grid_and_the_variants_in_order(result: dict[str, Any]):
    runs = [(run["stage"], run["key"], run["method"]) for run in result["record"]["runs"]]
    assert runs == [
        ("linear_init", STILL, "an"),
        ("linear_init", GROWING, "em_apl"),
        ("finetune", ORACLE, "full"),
        ("finetune", VARIANT, "em_apl"),
    ]


def test_rounds_count_cells_of_the_training_split(result: dict[str, Any]):
    cells = unknown_cells(result)
    labels = result["held"][GROWING]["pseudo_label"]
    rows = [row for row in result["rounds"] if row["key"] == GROWING]
    assert [(row["round"], row["epoch"], row["kind"], row["selected"]) for row in rows] == [
        ("1", "1", "newly_added", "0"),
        ("1", "1", "cumulative", "0"),
        ("2", "2", "newly_added", "1"),
        ("2", "2", "cumulative", "1"),
        ("3", "3", "newly_added", "0"),
        ("3", "3", "cumulative", "0"),
    ]
    hidden = sum(true for _, _, true in cells)
    for row in rows:
        number = int(row["round"]) - 1
        before = labels[number - 1] if number else np.zeros_like(labels[0])
        new = row["kind"] == "newly_added"
        chosen = [
            (i, c, t)
            for i, c, t in cells
            if labels[number, i, c] and not (new and before[i, c] == labels[number, i, c])
        ]
        negative = [t for i, c, t in chosen if labels[number, i, c] == -1]
        positive = [t for i, c, t in chosen if labels[number, i, c] == 1]
        assert int(row["unknown"]) == len(cells) and int(row["hidden_positives"]) == hidden
        assert (int(row["negatives"]), int(row["negatives_correct"])) == (len(negative), negative.count(0))
        assert (int(row["positives"]), int(row["positives_correct"])) == (len(positive), positive.count(1))
        assert float(row["baseline_all_unknown_negative"]) == pytest.approx(1 - hidden / len(cells))
        assert (
            row["accuracy"] == ""
            if not chosen
            else float(row["accuracy"]) == pytest.approx((negative.count(0) + positive.count(1)) / len(chosen))
        )
        assert (row["dropped"] == "") == (row["kind"] == "cumulative")
    assert rows[4]["dropped"] == "1"


def test_the_chosen_round_is_that_of_the_chosen_epoch(result: dict[str, Any]):
    run = next(run for run in result["record"]["runs"] if run["key"] == GROWING)
    assert run["epoch"] == finished.CHOSEN and run["reason"] is None
    assert run["chosen"] == run["rounds"][finished.CHOSEN - 1]["cumulative"]
    rows = [row for row in result["per_class"] if row["key"] == GROWING]
    assert [row["class"] for row in rows] == list(finished.CLASSES)
    labels = result["held"][GROWING]["pseudo_label"][finished.CHOSEN - 1]
    for c, row in enumerate(rows):
        column = [(labels[i, c], true) for i, k, true in unknown_cells(result) if k == c]
        assert int(row["unknown"]) == len(column)
        assert int(row["negatives_correct"]) == column.count((-1, 0))
        assert int(row["hidden_positives_recalled"]) == column.count((1, 1))
        assert int(row["epoch"]) == finished.CHOSEN


def test_runs_without_pseudo_labels_are_listed_with_the_reason(result: dict[str, Any]):
    reason = "the method labels no unknown cell"
    assert result["record"]["skipped"] == [
        {"stage": "linear_init", "key": STILL, "reason": reason},
        {"stage": "finetune", "key": ORACLE, "reason": reason},
    ]
    assert {row["key"] for row in result["rounds"]} == {GROWING, VARIANT}
    assert f"{reason}: linear_init/{STILL}, finetune/{ORACLE}" in result["summary"]


def test_calibration_sorts_unknown_cells_into_shared_bins(result: dict[str, Any]):
    quantities = (
        ("belief", "train", lambda held: held["belief"].astype(float)),
        ("probability", "val", lambda held: 1 / (1 + np.exp(-held["val"].astype(float)))),
    )
    for quantity, split, values in quantities:
        belief = values(result["held"][GROWING])
        rows = [row for row in result["calibration"] if (row["key"], row["quantity"]) == (GROWING, quantity)]
        cells = unknown_cells(result, split)
        assert sum(int(row["cells"]) for row in rows) == len(cells)
        for row in rows:
            assert float(row["upper"]) - float(row["lower"]) == pytest.approx(0.1)
            inside = [true for i, c, true in cells if float(row["lower"]) <= belief[i, c] < float(row["upper"])]
            assert (int(row["cells"]), int(row["true_positives"])) == (len(inside), sum(inside))
            assert float(row["fraction"]) == pytest.approx(sum(inside) / len(inside))
            assert row["split"] == split


def test_reference_curve_uses_the_share_of_positives_that_val_observes(result: dict[str, Any]):
    table, rows = result["table"], result["table"].rows("val")
    a = result["observed"]["single"][rows].sum() / table.truth[rows].sum()
    for row in result["calibration"]:
        if row["quantity"] == "belief":
            assert row["reference"] == "" and float(row["mean_weight"]) == pytest.approx(-0.2)
        else:
            p = float(row["mean_belief"])
            assert float(row["reference"]) == pytest.approx((1 - a) * p / (1 - a * p))
            assert row["mean_weight"] == ""


def test_an_oracle_is_audited_on_what_it_was_not_told(result: dict[str, Any]):
    run = next(run for run in result["record"]["runs"] if run["key"] == ORACLE)
    assert run["labels"] == "all"
    assert run["calibration"]["belief"] == {
        "split": "train",
        "cells": 0,
        "cells_of_weight_0": 0,
        "error": None,
        "reason": "no unknown cell of a weight in train under the labels that are given",
    }
    assert run["calibration"]["probability"]["cells"] == len(unknown_cells(result, "val"))


def test_summary_shows_the_base_rate_beside_every_run(result: dict[str, Any]):
    record = result["record"]
    base = f"{100 * record['baseline_all_unknown_negative']:.2f}"
    for key in (GROWING, VARIANT):
        line = next(line for line in result["summary"].splitlines() if f"| {key} |" in line)
        assert f"| {base} |" in line
    left_out = int((~result["table"].scored).sum())
    assert left_out > 0 and f"Left out: {left_out} cells" in result["summary"]


def test_same_inputs_same_bytes(result: dict[str, Any]):
    folder = result["root"] / "analyses" / "audit" / "digits-0-0"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert before.keys() == {
        *(
            "audit.json",
            "rounds.tsv",
            "per_class.tsv",
            "calibration.tsv",
            "missed.tsv",
            "missed_by_run.tsv",
            "summary.md",
            "manifest.json",
        )
    }
    audit(result["root"], "digits", 0, 0)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_tables_have_their_columns_even_when_no_run_labels_anything(tmp_path: Path, repository: Path):
    finished.write_params(tmp_path, repository, grid=finished.grid(), variants=finished.no_variants())
    table, observed = finished.write_data(tmp_path)
    finished.write_run(tmp_path, "linear_init", STILL, table, observed["single"], seed=1, labelled=False)
    audit(tmp_path, "digits", 0, 0)
    for name, column in (("rounds", "negative_accuracy"), ("per_class", "class")):
        lines = (tmp_path / "analyses/audit/digits-0-0" / f"{name}.tsv").read_text().splitlines()
        assert len(lines) == 1 and column in lines[0].split("\t")


def test_a_missing_run_is_an_error_that_names_it(tmp_path: Path, repository: Path):
    finished.write_params(tmp_path, repository, grid=finished.grid(), variants=finished.no_variants())
    finished.write_data(tmp_path)
    with pytest.raises(FileError, match="runs/linear_init/digits-an-0-0/logits.h5"):
        audit(tmp_path, "digits", 0, 0)


def test_a_run_on_another_table_is_refused(tmp_path: Path, repository: Path):
    finished.write_params(tmp_path, repository, grid=finished.grid(), variants=finished.no_variants())
    table, observed = finished.write_data(tmp_path)
    finished.write_run(tmp_path, "linear_init", STILL, table, observed["single"], seed=1, labelled=False)
    logits = tmp_path / "runs/linear_init" / STILL / "logits.h5"
    with hdf5.create(logits) as file:
        hdf5.write_array(file, "val", np.zeros((finished.VAL + 1, 3)), axes="image, class", units="logit")
        file.attrs["epoch"] = 1
    with pytest.raises(FileError, match="run that stage again"):
        audit(tmp_path, "digits", 0, 0)


def test_torch_is_never_imported(result: dict[str, Any], repository: Path):
    code = (
        "import sys; from pathlib import Path; from stages.audit import audit; "
        "audit(Path(sys.argv[1]), 'digits', 0, 0); sys.exit('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(result["root"])]
    assert subprocess.run(command, cwd=repository).returncode == 0


def likely_missed(held: dict[str, np.ndarray], unknown: np.ndarray) -> list[tuple[int, int]]:
    """Places of unknown training cells, by belief and then by the network's probability, the likeliest first."""
    cells = [(i, c) for i, c in np.argwhere(unknown).tolist()]
    return sorted(cells, key=lambda cell: (-held["belief"][cell], -held["train"][cell], cell))[:50]


@pytest.mark.parametrize("key", [STILL, GROWING, VARIANT])
def test_likely_missed_labels_are_named_with_their_truth(result: dict[str, Any], key: str):
    table, train = result["table"], result["table"].rows("train")
    unknown = result["observed"]["single"][train] == 0
    assert (unknown & ~table.scored[train]).any()
    rows = [row for row in result["missed_by_run"] if row["key"] == key]
    assert [int(row["rank"]) for row in rows] == list(range(1, unknown.sum() + 1))  # fewer than 50
    for row, (i, c) in zip(rows, likely_missed(result["held"][key], unknown), strict=True):
        assert (row["path"], row["class"]) == (table.paths[train[i]], table.classes[c])
        assert row["truth"] == (str(table.truth[train[i], c]) if table.scored[train[i], c] else "")
        assert float(row["belief"]) == pytest.approx(float(result["held"][key]["belief"][i, c]))
        assert float(row["probability"]) == pytest.approx(1 / (1 + np.exp(-float(result["held"][key]["train"][i, c]))))


def test_no_known_label_is_called_missed_and_what_nobody_knows_has_no_truth(given: dict[str, Any]):
    cells = [(given["table"].paths[row], given["table"].classes[c]) for row, c in np.argwhere(given["labels"] != 0)]
    for key in (STILL, GROWING):
        rows = [row for row in given["missed_by_run"] if row["key"] == key]
        assert rows and not set(cells) & {(row["path"], row["class"]) for row in rows}
        assert {row["truth"] for row in rows} == {""}


@pytest.mark.parametrize(("missed", "expected"), [(50, 50), (7, 7), (1000, 108), (0.05, 5), (0.001, 1)])
def test_as_many_missed_labels_as_asked_are_named_over_all_splits(
    tmp_path: Path, repository: Path, missed: int | float, expected: int
):
    """Of 36 images and three classes nothing is known: 108 cells; by belief in training, elsewhere by the network."""
    finished.write_params(
        tmp_path, repository, grid=finished.grid(), variants=finished.no_variants(),
        audit={"default": {"bins": 10, "missed": missed}},
    )  # fmt: skip
    table, labels, _ = finished.write_given(tmp_path)
    nothing = np.zeros_like(labels)
    with hdf5.create(tmp_path / "data/simulate/digits-0/observed.h5") as file:
        for name in ("single", "all", "negatives"):
            hdf5.write_array(file, name, nothing, axes="image, class", units="label")
    held = finished.write_run(tmp_path, "linear_init", STILL, table, nothing, seed=1, labelled=False)
    audit(tmp_path, "digits", 0, 0)
    rows = files.read_tsv(tmp_path / "analyses/audit/digits-0-0/missed_by_run.tsv")
    assert [row["rank"] for row in rows] == [str(rank) for rank in range(1, expected + 1)]
    likely = {"train": held["belief"]} | {split: 1 / (1 + np.exp(-held[split])) for split in ("val", "test")}
    cells = [
        (-likely[split][i, c], split, table.paths[row], table.classes[c])
        for split in likely
        for i, row in enumerate(table.rows(split))
        for c in range(len(table.classes))
    ]
    named = [(row["split"], row["path"], row["class"]) for row in rows]
    assert named == [cell[1:] for cell in sorted(cells)[:expected]]
    assert all((row["belief"] == "") == (row["split"] != "train") for row in rows)
    merged = files.read_tsv(tmp_path / "analyses/audit/digits-0-0/missed.tsv")
    assert [(row["split"], row["path"], row["class"]) for row in merged] == named  # there is one run


def test_missed_labels_of_all_runs_are_one_list(given: dict[str, Any]):
    every = given["missed_by_run"]
    assert {row["key"] for row in every} == {STILL, GROWING} and {row["split"] for row in every} > {"train"}
    cells: dict[tuple[str, str], list[float]] = {}
    for row in every:
        cells.setdefault((row["path"], row["class"]), []).append(float(row["belief"] or row["probability"]))
    order = sorted(cells, key=lambda cell: (-len(cells[cell]), -np.mean(cells[cell]), cell))
    assert [(row["path"], row["class"]) for row in given["missed"]] == order[: len(given["missed"])]
    assert len(given["missed"]) == max(sum(row["key"] == key for row in every) for key in (STILL, GROWING))
    for row in given["missed"]:
        mine = cells[row["path"], row["class"]]
        assert int(row["runs"]) == len(mine) and float(row["likelihood"]) == pytest.approx(np.mean(mine))


def test_a_run_that_takes_all_to_be_absent_names_nothing(tmp_path: Path, repository: Path):
    finished.write_params(tmp_path, repository, grid=finished.grid(), variants=finished.no_variants())
    table, labels, _ = finished.write_given(tmp_path)
    held = finished.write_run(tmp_path, "linear_init", STILL, table, labels, seed=1, labelled=False)
    with hdf5.create(tmp_path / "runs/linear_init" / STILL / "labels.h5") as file:
        for name in ("belief", "weight", "pseudo_label"):
            values = np.zeros_like(held[name]) if name == "belief" else held[name]
            hdf5.write_array(file, name, values, axes="image, class", units="label")
        hdf5.write_array(file, "round_epoch", np.zeros(0, np.int64), axes="round", units="epoch")
    audit(tmp_path, "digits", 0, 0)
    for name in ("missed", "missed_by_run"):
        assert files.read_tsv(tmp_path / f"analyses/audit/digits-0-0/{name}.tsv") == []


def test_without_truth_every_run_has_the_reason_and_nothing_is_measured(given: dict[str, Any]):
    record, reason = given["record"], "the labels of digits are not exhaustive: what is hidden is not known"
    train = given["table"].rows("train")
    assert record["truth"] is False and record["unknown"] == (given["labels"][train] == 0).sum()
    assert record["hidden_positives"] is None and record["baseline_all_unknown_negative"] is None
    assert [(run["key"], run["reason"]) for run in record["runs"]] == [(STILL, reason), (GROWING, reason)]
    assert [run["reason"] for run in record["skipped"]] == [reason, reason]
    for run in record["runs"]:
        for quantity, split in (("belief", "train"), ("probability", "val")):
            nothing = {"cells": None, "cells_of_weight_0": None, "error": None}
            assert run["calibration"][quantity] == {"split": split, "reason": reason, **nothing}
    assert given["calibration"] == [] and "true_positives" in given["header"].split("\t")
    lines = given["summary"].splitlines()
    assert lines[2].startswith("Not measured: hidden positives, accuracy of pseudo-labels, base rates and calibration")
    assert "the labels of digits are not exhaustive" in lines[2]


def test_without_truth_pseudo_labels_are_counted_by_class(given: dict[str, Any]):
    unknown = given["labels"][given["table"].rows("train")] == 0
    labels = given["held"][GROWING]["pseudo_label"]
    run = next(run for run in given["record"]["runs"] if run["key"] == GROWING)
    chosen = labels[finished.CHOSEN - 1][unknown].tolist()
    assert (run["chosen"]["positives"], run["chosen"]["negatives"]) == (chosen.count(1), chosen.count(-1))
    assert run["chosen"]["coverage"] == pytest.approx(1 - chosen.count(0) / len(chosen))
    assert run["chosen"]["accuracy"] is None and run["chosen"]["per_class_correct"] is None
    assert [row["class"] for row in given["per_class"]] == list(finished.CLASSES)
    for c, row in enumerate(given["per_class"]):
        column = labels[finished.CHOSEN - 1][unknown[:, c], c].tolist()
        counts = (len(column), column.count(1), column.count(-1))
        assert tuple(int(row[name]) for name in ("unknown", "positives", "negatives")) == counts
        for name in ("accuracy", "hidden_positives", "positive_precision", "negatives_correct"):
            assert row[name] == "", name
    assert len(given["rounds"]) == 2 * finished.EPOCHS and {row["accuracy"] for row in given["rounds"]} == {""}
    line = next(line for line in given["summary"].splitlines() if f"| {GROWING} | {finished.CHOSEN} |" in line)
    assert f"| {chosen.count(1)} | {chosen.count(-1)} |" in line


def test_beliefs_are_spread_over_unknown_cells_of_a_weight(tmp_path: Path, repository: Path, given: dict[str, Any]):
    unknown = given["labels"][given["table"].rows("train")] == 0
    run = next(run for run in given["record"]["runs"] if run["key"] == GROWING)
    belief = np.sort(given["held"][GROWING]["belief"][unknown].astype(float))
    assert run["beliefs"]["belief"]["cells"] == len(belief)
    assert run["beliefs"]["belief"]["mean"] == pytest.approx(belief.mean())
    assert run["beliefs"]["belief"]["likely_present"] == sum(value > 0.5 for value in belief)
    assert run["beliefs"]["belief"]["largest"] == belief[-1]
    logits = given["held"][GROWING]["train"][unknown].astype(float)
    assert run["beliefs"]["probability"]["mean"] == pytest.approx(np.mean(1 / (1 + np.exp(-logits))))
    # a method that gives no unknown cell a weight makes no claim about it
    finished.write_params(tmp_path, repository, grid=finished.grid(), variants=finished.no_variants())
    table, labels, _ = finished.write_given(tmp_path)
    finished.write_run(tmp_path, "linear_init", STILL, table, labels, seed=1, labelled=False)
    with h5py.File(tmp_path / "runs/linear_init" / STILL / "labels.h5", "r+") as file:
        file["weight"][...] = 0
    seal.append(tmp_path / "runs/linear_init" / STILL / "labels.h5")
    audit(tmp_path, "digits", 0, 0)
    found = files.read_json(tmp_path / "analyses/audit/digits-0-0/audit.json")["runs"][0]["beliefs"]
    assert found["belief"]["cells"] == 0 and found["belief"]["mean"] is None
    assert found["probability"]["cells"] == unknown.sum()


def test_an_audit_takes_little_memory(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch):
    """Table and label sets take 5 bytes a cell, logits, beliefs and weights another 12 if they were held."""
    for name, value in {"TRAIN": 6000, "VAL": 1500, "TEST": 500, "CLASSES": tuple(map(str, range(50)))}.items():
        monkeypatch.setattr(finished, name, value)
    for module in (blocks, beliefs):
        monkeypatch.setattr(module, "CELLS", 1 << 13)
    grid = finished.grid(linear_init=["em_apl"])
    finished.write_params(tmp_path, repository, grid=grid, variants=finished.no_variants())
    table, observed = finished.write_data(tmp_path)
    finished.write_run(tmp_path, "linear_init", "digits-em_apl-0-0", table, observed["single"], seed=1, labelled=True)
    tracemalloc.start()
    audit(tmp_path, "digits", 0, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak / table.truth.size < 20
