import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core import files
from pipeline.core.errors import FileError
from stages.wasserstein import wasserstein
from tests.stages import finished_runs as finished

RUNS = {
    ("linear_init", "digits-an-0-0"): "an",
    ("linear_init", "digits-em_apl-0-0"): "em_apl",
    ("finetune", "digits-em-0-0"): "em",
    ("finetune", "digits-em-0-0-strong"): "em",
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("wasserstein")
    change: dict[str, Any] = {"dataset": "digits", "method": "em", "draw": 0, "seed": 0, "start": "em"}
    change["set"] = {"stage": {}, "method": {"alpha": 0.5}}
    variants = finished.no_variants(finetune={"digits-em-0-0-strong": change})
    grid = finished.grid(linear_init=["an", "em_apl"], finetune=["em"])
    finished.write_params(root, repository, grid=grid, variants=variants)
    table, observed = finished.write_data(root)
    held = {}
    for number, (stage, key) in enumerate(RUNS):
        keeps_epochs = key == "digits-em_apl-0-0"
        held[stage, key] = finished.write_run(
            root, stage, key, table, observed["single"], seed=number, labelled=keeps_epochs
        )
    wasserstein(root, "digits", 0, 0)
    folder = root / "analyses" / "wasserstein" / "digits-0-0"
    return {
        "root": root,
        "table": table,
        "single": observed["single"],
        "held": held,
        "record": files.read_json(folder / "wasserstein.json"),
        "per_class": files.read_tsv(folder / "per_class.tsv"),
        "epochs": files.read_tsv(folder / "epochs.tsv"),
        "class_epochs": files.read_tsv(folder / "class_epochs.tsv"),
        "summary": (folder / "summary.md").read_text(),
    }


def groups(result: dict[str, Any], logits: np.ndarray, split: str, columns: range) -> tuple[list[float], list[float]]:
    """Probabilities of hidden positives and of true negatives, cell by cell."""
    table, found = result["table"], ([], [])
    for i, row in enumerate(table.rows(split)):
        for c in columns:
            if result["single"][row, c] == 0 and table.scored[row, c]:
                found[0 if table.truth[row, c] == 1 else 1].append(float(1 / (1 + np.exp(-float(logits[i, c])))))
    return found


def area(a: list[float], b: list[float]) -> float:
    """Area between two distribution functions, by a step at every value."""
    points, total = sorted(a + b), 0.0
    for left, right in zip(points, points[1:], strict=False):
        gap = sum(v <= left for v in a) / len(a) - sum(v <= left for v in b) / len(b)
        total += abs(gap) * (right - left)
    return total


def test_every_run_split_and_class_has_its_distance(result: dict[str, Any]):
    assert [(run["stage"], run["key"]) for run in result["record"]["runs"]] == list(RUNS)
    assert result["record"]["truth"] is True
    assert len(result["per_class"]) == len(RUNS) * 2 * len(finished.CLASSES)
    for row in result["per_class"]:
        logits = result["held"][row["stage"], row["key"]][row["split"]]
        c = finished.CLASSES.index(row["class"])
        positive, negative = groups(result, logits, row["split"], range(c, c + 1))
        assert (int(row["n_pos"]), int(row["n_neg"])) == (len(positive), len(negative))
        assert float(row["distance"]) == pytest.approx(area(positive, negative), rel=1e-9)
        assert row["reason"] == "" and row["method"] == RUNS[row["stage"], row["key"]]


def test_pooled_and_mean_are_those_of_the_chosen_epoch(result: dict[str, Any]):
    for run in result["record"]["runs"]:
        assert run["epoch"] == finished.CHOSEN
        for split in ("train", "val"):
            logits = result["held"][run["stage"], run["key"]][split]
            pooled = groups(result, logits, split, range(len(finished.CLASSES)))
            assert run[split]["pooled"] == pytest.approx(area(*pooled), rel=1e-9)
            each = [area(*groups(result, logits, split, range(c, c + 1))) for c in range(len(finished.CLASSES))]
            assert run[split]["mean_over_defined"] == pytest.approx(np.mean(each), rel=1e-9)


def test_epochs_of_val_always_and_of_train_where_kept(result: dict[str, Any]):
    expected = [
        (stage, key, split, str(epoch))
        for stage, key in RUNS
        for split in ("train", "val")
        if split == "val" or key == "digits-em_apl-0-0"
        for epoch in range(1, finished.EPOCHS + 1)
    ]
    assert [(row["stage"], row["key"], row["split"], row["epoch"]) for row in result["epochs"]] == expected
    for row in result["epochs"]:
        logits = result["held"][row["stage"], row["key"]][f"epochs_{row['split']}"][int(row["epoch"]) - 1]
        pooled = groups(result, logits, row["split"], range(len(finished.CLASSES)))
        assert float(row["pooled"]) == pytest.approx(area(*pooled), rel=1e-9)
        assert row["selected"] == str(int(row["epoch"] == str(finished.CHOSEN)))
        assert row["reason"] == ""


def test_every_kept_epoch_is_measured_class_by_class(result: dict[str, Any]):
    places = [(row["stage"], row["key"], row["split"], row["epoch"]) for row in result["epochs"]]
    found = [(row["stage"], row["key"], row["split"], row["epoch"]) for row in result["class_epochs"]]
    assert found == [place for place in places for _ in finished.CLASSES]
    for row in result["class_epochs"]:
        assert list(row) == [
            "stage", "key", "method", "epoch", "split", "class", "distance", "n_positive", "n_negative", "reason"
        ]  # fmt: skip
        logits = result["held"][row["stage"], row["key"]][f"epochs_{row['split']}"][int(row["epoch"]) - 1]
        c = finished.CLASSES.index(row["class"])
        positive, negative = groups(result, logits, row["split"], range(c, c + 1))
        assert (int(row["n_positive"]), int(row["n_negative"])) == (len(positive), len(negative))
        assert float(row["distance"]) == pytest.approx(area(positive, negative), rel=1e-9)


def test_runs_are_compared_with_the_grid_runs_of_their_stage(result: dict[str, Any]):
    runs = {(run["stage"], run["key"]): run for run in result["record"]["runs"]}
    an, em_apl = runs["linear_init", "digits-an-0-0"], runs["linear_init", "digits-em_apl-0-0"]
    for split in ("train", "val"):
        pairs = list(zip(em_apl[split]["per_class"], an[split]["per_class"], strict=True))
        assert em_apl[split]["share_of_classes_above"] == {"an": sum(a > b for a, b in pairs) / len(pairs)}
        assert an[split]["share_of_classes_above"] == {"em_apl": sum(b > a for a, b in pairs) / len(pairs)}
    assert runs["finetune", "digits-em-0-0"]["val"]["share_of_classes_above"] == {}  # a variant is no yardstick
    assert set(runs["finetune", "digits-em-0-0-strong"]["val"]["share_of_classes_above"]) == {"em"}


def test_summary_shows_each_run(result: dict[str, Any]):
    for run in result["record"]["runs"]:
        values = [run[split][name] for split in ("train", "val") for name in ("pooled", "mean_over_defined")]
        assert f"| {run['stage']} | {run['key']} | 2 | " + " | ".join(f"{v:.4f}" for v in values) in result["summary"]
    assert "Warning" not in result["summary"]


def test_a_class_without_hidden_positives_is_null_with_its_reason(tmp_path: Path, repository: Path):
    finished.write_params(tmp_path, repository, grid=finished.grid(), variants=finished.no_variants())
    table, observed = finished.write_data(tmp_path)
    table.truth[:, 2] = 0
    table.truth[:, 0], table.scored[:, 0] = 1, True  # every row keeps a positive
    finished.write_table(tmp_path / "data/prepare/digits/table.h5", table)
    finished.write_run(tmp_path, "linear_init", "digits-an-0-0", table, observed["single"], seed=1, labelled=False)
    wasserstein(tmp_path, "digits", 0, 0)
    folder = tmp_path / "analyses" / "wasserstein" / "digits-0-0"
    row = next(row for row in files.read_tsv(folder / "per_class.tsv") if row["class"] == "owl")
    assert (row["distance"], row["n_pos"]) == ("", "0")
    assert row["reason"] == "no hidden positive among the unannotated cells"
    by_epoch = [row for row in files.read_tsv(folder / "class_epochs.tsv") if row["class"] == "owl"]
    assert len(by_epoch) == finished.EPOCHS  # of val; train's were not kept
    assert {(row["distance"], row["n_positive"], row["reason"]) for row in by_epoch} == {
        ("", "0", "no hidden positive among the unannotated cells")
    }
    run = files.read_json(folder / "wasserstein.json")["runs"][0]
    assert run["train"]["per_class"][2] is None and run["train"]["share_of_classes_above"] == {}
    assert "Warning: 2 classes have no distance on train" in (folder / "summary.md").read_text()


def test_an_epoch_without_a_distance_has_its_reason(tmp_path: Path, repository: Path):
    finished.write_params(tmp_path, repository, grid=finished.grid(), variants=finished.no_variants())
    table, observed = finished.write_data(tmp_path)
    table.truth[:] = observed["single"] == 1  # nothing is hidden
    finished.write_table(tmp_path / "data/prepare/digits/table.h5", table)
    finished.write_run(tmp_path, "linear_init", "digits-an-0-0", table, observed["single"], seed=1, labelled=False)
    wasserstein(tmp_path, "digits", 0, 0)
    rows = files.read_tsv(tmp_path / "analyses/wasserstein/digits-0-0/epochs.tsv")
    assert len(rows) == finished.EPOCHS
    assert {(row["pooled"], row["mean_over_defined"], row["reason"]) for row in rows} == {
        ("", "", "no hidden positive among the unannotated cells")
    }


def test_same_inputs_same_bytes(result: dict[str, Any]):
    folder = result["root"] / "analyses" / "wasserstein" / "digits-0-0"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert before.keys() == {
        "wasserstein.json",
        "per_class.tsv",
        "epochs.tsv",
        "class_epochs.tsv",
        "summary.md",
        "manifest.json",
    }
    wasserstein(result["root"], "digits", 0, 0)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_missing_run_is_an_error_that_names_it(tmp_path: Path, repository: Path):
    finished.write_params(tmp_path, repository, grid=finished.grid(), variants=finished.no_variants())
    finished.write_data(tmp_path)
    with pytest.raises(FileError, match="runs/linear_init/digits-an-0-0/logits.h5"):
        wasserstein(tmp_path, "digits", 0, 0)


def test_torch_is_never_imported(result: dict[str, Any], repository: Path):
    code = (
        "import sys; from pathlib import Path; from stages.wasserstein import wasserstein; "
        "wasserstein(Path(sys.argv[1]), 'digits', 0, 0); sys.exit('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(result["root"])]
    assert subprocess.run(command, cwd=repository).returncode == 0


def test_labels_that_are_not_exhaustive_are_skipped_with_the_reason(tmp_path: Path, repository: Path):
    grid = finished.grid(linear_init=["an"], finetune=["em"])
    finished.write_params(tmp_path, repository, grid=grid, variants=finished.no_variants())
    table, observed, _ = finished.write_given(tmp_path)
    for stage, key in (("linear_init", "digits-an-0-0"), ("finetune", "digits-em-0-0")):
        finished.write_run(tmp_path, stage, key, table, observed, seed=1, labelled=False)
    wasserstein(tmp_path, "digits", 0, 0)
    folder = tmp_path / "analyses" / "wasserstein" / "digits-0-0"
    record = files.read_json(folder / "wasserstein.json")
    reason = "the labels of digits are not exhaustive: what is hidden is not known"
    nothing = {"variant": None, "reason": reason, "train": None, "val": None}
    assert record["truth"] is False
    assert record["runs"] == [
        {"stage": "linear_init", "key": "digits-an-0-0", "method": "an"} | nothing,
        {"stage": "finetune", "key": "digits-em-0-0", "method": "em"} | nothing,
    ]
    for name, column in (("per_class", "distance"), ("epochs", "pooled"), ("class_epochs", "distance")):
        lines = (folder / f"{name}.tsv").read_text().splitlines()
        assert len(lines) == 1 and column in lines[0].split("\t"), name
    first = (folder / "summary.md").read_text().splitlines()[2]
    assert first.startswith("Not measured: the distance between hidden positives and true negatives")
    assert "the labels of digits are not exhaustive" in first
