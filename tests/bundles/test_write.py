"""Runs of each stage, trained for real and bundled: what the bundle says and predicts is what the run stored."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from sklearn.metrics import average_precision_score

from pipeline.bundles import write
from pipeline.bundles.choose import choose_run
from pipeline.bundles.pictures import list_pictures
from pipeline.bundles.predict import predict
from pipeline.bundles.read import read_model
from pipeline.bundles.write import describe_thresholds, write_bundle
from pipeline.core import hdf5
from pipeline.core.errors import ConfigError, FileError
from pipeline.core.files import read_json, read_torch
from pipeline.core.manifest import write_manifest
from tests.bundles import trained
from tests.training.test_run import Project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Project:
    return trained.train(tmp_path_factory.mktemp("bundles"), repository)


@pytest.fixture(scope="module")
def pictures(project: Project) -> Path:
    folder = project.root / "new pictures"
    trained.write_pictures(project, folder, "test")
    return folder


@pytest.mark.parametrize("name", trained.RUNS)
def test_predictions_score_as_the_run_does(name: str, project: Project, pictures: Path, tmp_path: Path) -> None:
    (line,) = write_bundle(project.root, name, tmp_path / "model", onnx=False)
    assert line.startswith(f"{tmp_path / 'model'}: 3 classes, ")
    shutil.move(tmp_path / "model", tmp_path / "elsewhere")
    model = read_model(tmp_path / "elsewhere")
    found = list(predict(model, list_pictures([str(pictures)]).pictures, model.thresholds(), batch=3, quiet=True))
    rows = project.table.rows("test")
    assert [Path(each.picture.path).name for each in found] == [f"{row:03}.png" for row in rows]
    scores = np.stack([each.scores for each in found if each.scores is not None])
    with hdf5.read(project.root / "runs" / name / "logits.h5") as file:
        stored = file["test"][()]
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-stored.astype(np.float64))), atol=1e-6)
    truth, scored = project.table.reference("test")
    precisions = [average_precision_score(truth[own, c], scores[own, c]) for c, own in enumerate(scored.T)]
    metrics = read_json(project.root / "runs" / name / "metrics.json")
    assert 100 * np.mean(precisions) == pytest.approx(metrics["test"]["map"], abs=1e-6)
    cuts = read_json(project.root / "runs" / name / "thresholds.json")["classes"]
    for row, each in enumerate(found):
        above = [label for c, label in enumerate(project.table.classes) if stored[row, c] >= cuts[label]["clean"]]
        assert each.labels == above and each.error is None


def test_what_a_bundle_says(project: Project, tmp_path: Path) -> None:
    write_bundle(project.root, "finetune/digits-an-0-0", tmp_path / "m", onnx=False)
    names = {path.name for path in (tmp_path / "m").iterdir()}
    assert names == {"MODEL_CARD.md", "classes.txt", "model.json", "model.safetensors", "predict.py", "SHA256SUMS"}
    assert (tmp_path / "m" / "classes.txt").read_text() == "cat\ndog | wolf\nowl\n"
    about = read_json(tmp_path / "m" / "model.json")
    run = project.root / "runs/finetune/digits-an-0-0"
    metrics = read_json(run / "metrics.json")
    assert about["scores"]["test"]["map"] == metrics["test"]["map"]
    assert about["scores"]["val"]["labels"] == "exhaustive"
    assert [row["class"] for row in about["scores"]["per_class"]] == list(project.table.classes)
    assert about["thresholds"]["chosen"] == "clean"
    assert about["provenance"]["inputs"] == read_json(run / "manifest.json")["inputs"]
    stored = read_torch(run / "weights.pt")["state"]
    held = safetensors.torch.load_file(tmp_path / "m" / "model.safetensors")
    assert held.keys() == stored.keys() and all(torch.equal(held[name], stored[name]) for name in stored)
    text = "".join(path.read_text() for path in (tmp_path / "m").iterdir() if path.suffix in (".json", ".md", ".txt"))
    assert str(project.root) not in text and str(tmp_path) not in text
    again = tmp_path / "again"
    write_bundle(project.root, "finetune/digits-an-0-0", again, onnx=False)
    assert all((again / name).read_bytes() == (tmp_path / "m" / name).read_bytes() for name in names)


def test_a_head_on_cached_features_gets_its_backbone(project: Project, tmp_path: Path) -> None:
    write_bundle(project.root, "linear_init/digits-an-0-0", tmp_path / "m", onnx=False)
    held = safetensors.torch.load_file(tmp_path / "m" / "model.safetensors")
    backbone = read_torch(project.backbone)["state"]
    assert all(torch.equal(held[f"backbone.{name}"], value) for name, value in backbone.items())


def test_nothing_but_a_bundle_is_overwritten(project: Project, tmp_path: Path) -> None:
    name, folder = "finetune/digits-an-0-0", tmp_path / "m"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(FileError, match="m: is there and is no bundle, so nothing is written; name another folder"):
        write_bundle(project.root, name, folder, onnx=False)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    (folder / "notes.txt").unlink()
    write_bundle(project.root, name, folder, onnx=False)
    (folder / "notes.txt").write_text("mine")
    write_bundle(project.root, "lac/digits-lac-0-0", folder, onnx=False)
    assert read_model(folder).about.name == "lac/digits-lac-0-0" and (folder / "notes.txt").read_text() == "mine"
    (folder / "MODEL_CARD.md").write_text("# What I know of it\n")
    with pytest.raises(FileError, match="MODEL_CARD.md: was edited since it was written"):
        write_bundle(project.root, name, folder, onnx=False)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("file", ["weights.pt", "metrics.json", "thresholds.json", "per_class.tsv", "provenance.json"])
def test_a_damaged_run_is_not_bundled(file: str, project: Project, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(project.root, root)
    path = root / "runs/finetune/digits-an-0-0" / file
    content = bytearray(path.read_bytes())
    at = len(content) // 2 if path.suffix == ".pt" else re.search(rb"\d", content).start()  # pyright: ignore
    content[at] ^= 1  # of a text: another digit, so that it is still in form
    path.write_bytes(bytes(content))
    with pytest.raises(FileError, match=re.escape(file)):
        write_bundle(root, "finetune/digits-an-0-0", tmp_path / "m", onnx=False)
    assert not (tmp_path / "m").exists()


def test_pictures_larger_than_a_bundle_may_have_are_refused(project: Project, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(write, "MAX_SIDE", 1)
    with pytest.raises(ConfigError, match=r"its pictures have \d+ pixels a side, those of a bundle at most 1$"):
        write_bundle(project.root, "finetune/digits-an-0-0", tmp_path / "m", onnx=False)
    assert not (tmp_path / "m").exists()


def test_without_the_run_or_on_another_backbone(project: Project, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="runs/finetune/digits-em-0-0: no run of a training stage lies there"):
        write_bundle(project.root, "finetune/digits-em-0-0", tmp_path / "m", onnx=False)


def test_the_best_run_is_taken_by_validation(project: Project) -> None:
    scores = {name: read_json(project.root / "runs" / name / "metrics.json")["val"]["map"] for name in trained.RUNS}
    best = max(scores, key=lambda name: scores[name])
    choice = choose_run(project.root, [*trained.RUNS, "finetune/digits-em-0-0"])
    assert choice.name == best
    said = f"{best}: val mAP by full labels {scores[best]:.2f}, the best of 4 runs; 1 not run or without a score"
    assert choice.reasons == (said,)
    with pytest.raises(FileError, match="none of the runs of params.yaml lies there"):
        choose_run(project.root, ["finetune/digits-em-0-0"])


def edit_metrics(root: Path, name: str, labels: str, val: float, shown: float, given: str) -> None:
    """Write metrics and labels of a run that has nothing else."""
    folder = root / "runs" / name
    folder.mkdir(parents=True)
    metrics = {"labels": {"val": labels}, "val": {"map": val}, "shown_labels": {"score": 1.0, "val": shown}}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    write_manifest(folder, [])
    with hdf5.create(folder / "labels.h5") as file:
        file.attrs["labels"] = given


@pytest.mark.parametrize(("labels", "best"), [("clean", "finetune/d-a-0-0"), ("given", "lac/d-b-0-0")])
def test_shown_labels_choose_where_validation_is_not_known_in_full(labels: str, best: str, tmp_path: Path) -> None:
    edit_metrics(tmp_path, "finetune/d-a-0-0", labels, 80.0, 60.0, "single")
    edit_metrics(tmp_path, "lac/d-b-0-0", labels, 70.0, 65.0, "single")
    choice = choose_run(tmp_path, ["finetune/d-a-0-0", "lac/d-b-0-0"])
    assert choice.name == best
    assert ("val score by shown labels 65.00" in choice.reasons[0]) == (labels == "given")


def test_a_run_that_saw_hidden_labels_is_said_to_have(tmp_path: Path) -> None:
    edit_metrics(tmp_path, "finetune/d-full-0-0", "clean", 80.0, 60.0, "all")
    edit_metrics(tmp_path, "finetune/d-iun-0-0", "clean", 75.0, 60.0, "negatives")
    edit_metrics(tmp_path, "finetune/d-a-0-0", "clean", 70.0, 65.0, "single")
    choice = choose_run(tmp_path, ["finetune/d-iun-0-0", "finetune/d-full-0-0", "finetune/d-a-0-0"])
    assert choice.name == "finetune/d-full-0-0"
    assert choice.reasons[1] == (
        "it was trained on all labels, also those that the label draw hides; of those that were not, "
        "finetune/d-a-0-0 is the best, with 70.00"
    )


def test_thresholds_of_a_rule_fall_back_on_matching_ones() -> None:
    def entry(matching: float | None, found: float | None, clean: float | None) -> dict:
        ends = {"value": matching, "low": matching, "high": matching}
        return {"matching": ends, "conformal": {"0.9": found, "0.95": None}, "clean": clean}

    worth = {"macro": 50.0, "micro": 60.0, "found": 91.0, "classes": 1}
    stored = {"classes": {"a": entry(1.0, None, None), "b": entry(2.0, 3.0, None)}, "test": {"0.9": worth}}
    made = describe_thresholds(stored, ["b", "a"])
    assert made["chosen"] == "matching" and set(made["rules"]) == {"matching", "conformal_0.9"}
    found = made["rules"]["conformal_0.9"]
    assert found["logits"] == {"b": 3.0, "a": 1.0} and found["test"] == {
        "macro_f1": 50.0,
        "micro_f1": 60.0,
        "found": 91.0,
    }
    assert found["how"].startswith("finds 90 % ") and found["how"].endswith(
        "; 1 of 2 classes have none of their own, of which a take that of `matching`"
    )
    assert made["rules"]["matching"]["test"] is None
    nothing = {"classes": {"a": entry(None, None, None)}, "test": None}
    assert describe_thresholds(nothing, ["a"])["rules"]["zero"]["logits"] == {"a": 0.0}
    full = {"classes": {"a": entry(1.0, None, 0.5), "b": entry(None, 3.0, None)}, "test": None}
    assert describe_thresholds(full, ["a", "b"])["rules"]["clean"]["logits"] == {"a": 0.5, "b": None}


def test_an_interrupted_bundle_leaves_nothing(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(write, "_write_sums", stop)
    with pytest.raises(KeyboardInterrupt):
        write_bundle(project.root, "finetune/digits-an-0-0", tmp_path / "m", onnx=False)
    assert list(tmp_path.iterdir()) == []
