import copy
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML
from sklearn.metrics import average_precision_score

from pipeline.config import rules
from pipeline.config.params import read_params
from pipeline.config.runs import read_run
from pipeline.core import hdf5, resume, seal
from pipeline.core.errors import ConfigError, FileError, TrainingError
from pipeline.core.files import read_json, read_torch, read_tsv, write_text, write_torch
from pipeline.core.resume import Checkpoint
from pipeline.labels.beliefs import Beliefs, beliefs_file, write_beliefs
from pipeline.labels.table import Table, write_table
from pipeline.methods.shared import base
from pipeline.networks.network import restore
from pipeline.training import choice, inputs
from pipeline.training import trials as training
from pipeline.training.loop import Data, Trainer
from stages.end_to_end import end_to_end
from stages.finetune import finetune
from stages.lac import lac
from stages.linear_init import linear_init
from tests import tiny
from tests.stages import finished_runs as finished

BLOCK = tiny.BLOCK | {"batch_size": 8, "learning_rate": 0.05}
EMBEDDED = BLOCK | {
    "head": tiny.EMBEDDING,
    "strong": tiny.STRONG,
    "batch_norm": "frozen",
    "ema": {"decay": 0.9, "rule": "warmup"},
    "optimizer": "adamw",
    "momentum": 0.9,
}
METHODS = {
    "an": {"default": tiny.AN},
    "em_apl": {"default": tiny.EM_APL},
    "full": {"default": {"smoothing": 0.0} | tiny.AN},
    "iun": {"default": tiny.AN},
    "lac": {"default": tiny.LAC},
    "plc": {"default": {"threshold": 0.6, "form": "code", "weight_plc": 1.0}},
    "nowhere": {"default": {}},
    "reckon": {"default": {"weight": 0.1}},
}
FILES = {
    *("weights.pt", "method.pt", "logits.h5", "labels.h5", "epochs.tsv", "search.tsv", "per_class.tsv"),
    *("metrics.json", "provenance.json", "summary.md", "thresholds.json"),
}


class Project:
    """A root with prepared data, observed labels, features and a backbone."""

    def __init__(self, root: Path, repository: Path) -> None:
        self.root, self.repository = root, repository
        self.sections: dict[str, Any] = {
            "methods": copy.deepcopy(METHODS),
            "variants": finished.no_variants(),
            "grid": finished.grid(),
            **{stage: {"default": copy.deepcopy(BLOCK)} for stage in ("linear_init", "finetune")},
            **{stage: {"default": copy.deepcopy(EMBEDDED)} for stage in ("end_to_end", "lac")},
        }
        self.write_params()
        self.table, self.observed = finished.write_data(root)
        n = len(self.table.paths)
        signal = self.table.truth @ tiny.numbers(3, 5, seed=1)
        self.features = (signal + tiny.numbers(n, 5)).astype(np.float32)
        self.cache = root / "data" / "features" / "digits" / "features.h5"
        self.labels = root / "data" / "simulate" / "digits-0" / "observed.h5"
        self.put(self.cache, features=self.features)
        self.put(root / "data" / "prepare" / "digits" / "images.h5", pixels=tiny.pixels(n))
        source = tiny.network(on_images=True)
        assert source.backbone is not None
        self.backbone = root / "weights" / "digits" / "backbone.pt"
        write_torch(self.backbone, {"architecture": tiny.BACKBONE, "state": source.backbone.state_dict()})
        put_beliefs(self)

    def put(self, path: Path, **arrays: np.ndarray) -> None:
        with hdf5.create(path) as file:
            file.attrs["pools"] = '["mean"]'
            for name, array in arrays.items():
                hdf5.write_array(file, name, array, axes="image", units="as the test has it")

    def put_places(self, places: np.ndarray) -> None:
        """Beside the cache that is there."""
        path = self.cache.with_name("places.h5")
        hdf5.allocate(path, "places", places.shape, str(places.dtype), axes="image", units="as the test has it")
        hdf5.map_array(path, "places")[:] = places
        seal.append(path, [self.cache])

    def write_table(self, **changes: Any) -> None:
        write_table(self.root / "data" / "prepare" / "digits" / "table.h5", Table(**{**vars(self.table), **changes}))

    def write_params(self) -> None:
        finished.write_params(self.root, self.repository, **self.sections)

    def set(self, section: str, **changes: Any) -> None:
        """Change keys of a section's default block."""
        self.sections[section]["default"] |= changes
        self.write_params()

    def set_method(self, name: str, **changes: Any) -> None:
        """Change a method's settings; None removes one."""
        settings = self.sections["methods"][name]["default"] | changes
        self.sections["methods"][name]["default"] = {key: value for key, value in settings.items() if value is not None}
        self.write_params()

    def folder(self, stage: str, key: str) -> Path:
        return self.root / "runs" / stage / key

    def bytes(self, stage: str, key: str) -> dict[str, bytes]:
        """Content of the files of a run, without seals and manifest: those name the inputs."""
        files = {path.name: path for path in self.folder(stage, key).iterdir() if path.name != "manifest.json"}
        sealed = {name for name, path in files.items() if path.read_bytes()[-64:-56] == b"SPMLSEAL"}
        sizes = {name: seal.read(files[name]).size if name in sealed else None for name in files}
        return {name: path.read_bytes()[: sizes[name]] for name, path in files.items()}


@pytest.fixture
def project(tmp_path: Path, repository: Path) -> Project:
    return Project(tmp_path, repository)


@pytest.fixture(autouse=True)
def checkpoints(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Checkpoint]]:
    """Checkpoints made by stages, written after every epoch; locks fall as if the process had ended."""
    made: list[Checkpoint] = []

    def make(path: Path) -> Checkpoint:
        made.append(Checkpoint(path, 0))
        return made[-1]

    monkeypatch.setattr(training, "Checkpoint", make)
    yield made
    release(made)


def release(made: list[Checkpoint]) -> None:
    for checkpoint in made:
        checkpoint.close()


# ---------------------------------------------------------------------------------------------- what a run stores
def arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    with hdf5.read(path) as file:
        return {name: values[()] for name, values in file.items()}, dict(file.attrs)


def reference_map(truth: np.ndarray, logits: np.ndarray, scored: np.ndarray) -> list[float | None]:
    found = []
    for column in range(truth.shape[1]):
        labels, values = truth[scored[:, column], column], logits[scored[:, column], column]
        both = labels.any() and not labels.all()
        found.append(float(average_precision_score(labels, values)) if both else None)
    return found


def test_a_run_stores_what_it_found(project: Project) -> None:
    search = {"values": [0.5, 0.01, 0.1], "epochs": None, "extend": 0}
    project.set("linear_init", epochs=4, learning_rate="grid", search=search)
    linear_init(project.root, "digits", "em_apl", 0, 0)
    folder, table = project.folder("linear_init", "digits-em_apl-0-0"), project.table
    assert {path.name for path in folder.iterdir()} == {*FILES, "manifest.json"}
    rows = {split: table.rows(split) for split in ("train", "val", "test")}
    metrics = read_json(folder / "metrics.json")
    held, attrs = arrays(folder / "logits.h5")
    chosen = metrics["epoch"]
    assert attrs["epoch"] == chosen and attrs["weights"] == metrics["weights"] == "raw"
    assert json.loads(attrs["classes"]) == list(table.classes)

    # the stored network gives the stored logits of the chosen epoch
    network = restore(folder / "weights.pt")
    for split, at in rows.items():
        with torch.no_grad():
            logits = network(torch.from_numpy(project.features[at]))["logits"].numpy()
        np.testing.assert_allclose(held[split], logits, rtol=1e-5, atol=1e-6)
    assert held["epochs_val"].shape == (4, finished.VAL, 3) and held["epochs_train"].shape == (4, finished.TRAIN, 3)
    np.testing.assert_array_equal(held["epochs_val"][chosen - 1], held["val"])
    np.testing.assert_array_equal(held["epochs_train"][chosen - 1], held["train"])

    # metrics and tables follow from them
    per_class = read_tsv(folder / "per_class.tsv")
    for split in ("val", "test"):
        expected = reference_map(table.truth[rows[split]], held[split], table.scored[rows[split]])
        assert [float(row[f"ap_{split}"]) if row[f"ap_{split}"] else None for row in per_class] == pytest.approx(
            expected
        )
        present = [value for value in expected if value is not None]
        assert metrics[split] == {
            "map": pytest.approx(100 * np.mean(present)),
            "map_absent_zero": pytest.approx(100 * np.sum(present) / 3),
            "classes_present": len(present),
            "classes_without_negative": 0,
        }
    epochs = read_tsv(folder / "epochs.tsv")
    means = []
    for epoch in range(4):
        found = reference_map(table.truth[rows["val"]], held["epochs_val"][epoch], table.scored[rows["val"]])
        means.append(100 * np.mean([value for value in found if value is not None]))
        assert float(epochs[epoch]["val_map"]) == pytest.approx(means[-1])
        assert epochs[epoch]["weights"] == "raw"
    assert [row["selected"] for row in epochs] == ["1" if epoch == chosen else "0" for epoch in range(1, 5)]
    assert chosen == int(np.argmax(means)) + 1 and metrics["epochs"] == 4

    # the grid: every rate on record, the best one kept
    trials = read_tsv(folder / "search.tsv")
    assert [float(row["learning_rate"]) for row in trials] == [0.01, 0.1, 0.5]
    best = max(trials, key=lambda row: float(row["score"]))
    assert [row["chosen"] for row in trials] == ["1" if row is best else "0" for row in trials]
    assert metrics["learning_rate"] == float(best["learning_rate"])
    assert metrics["val"]["map"] == pytest.approx(float(best["score"]))

    # what the method believed during the chosen epoch; the pseudo-labels of each
    labels, _ = arrays(folder / "labels.h5")
    method = read_torch(folder / "method.pt")
    since, soft = method["since"].numpy(), method["soft"].numpy()
    probability = 1 / (1 + np.exp(-held["train"].astype(np.float64)))
    np.testing.assert_allclose(labels["belief"], np.where(since > 0, soft, probability), rtol=1e-5)
    expected_weight = np.where(since > 0, tiny.EM_APL["beta"], -tiny.EM_APL["alpha"])
    np.testing.assert_allclose(labels["weight"], expected_weight, rtol=1e-6)
    assert labels["pseudo_label"].shape == (4, finished.TRAIN, 3) and labels["round_epoch"].tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(labels["pseudo_label"][chosen - 1], -(since > 0).astype(np.int8))
    assert int(method["clock"][0]) == chosen

    reads = [project.cache, project.labels, project.root / "data/prepare/digits/table.h5"]
    inputs = {path.relative_to(project.root).as_posix(): seal.read(path).digest for path in reads}
    for name in ("weights.pt", "method.pt", "logits.h5", "labels.h5"):
        assert seal.read(folder / name).inputs == inputs
    beliefs = beliefs_file(project.root, "digits", 0)  # which its thresholds are made of
    inputs |= {beliefs.relative_to(project.root).as_posix(): seal.read(beliefs).digest}
    assert read_json(folder / "manifest.json")["inputs"] == inputs
    provenance = read_json(folder / "provenance.json")
    assert provenance["method"] == tiny.EM_APL and provenance["settings"]["search"]["values"] == search["values"]
    summary = (folder / "summary.md").read_text()
    assert f"Epoch {chosen} of 4 was chosen (clean labels)" in summary and "20 training images" in summary


def test_a_method_without_pseudo_labels_says_so(project: Project) -> None:
    linear_init(project.root, "digits", "an", 0, 0)
    labels, attrs = arrays(project.folder("linear_init", "digits-an-0-0") / "labels.h5")
    assert attrs["reason"] == "the method labels no unknown cell" and labels["pseudo_label"].shape == (0, 20, 3)
    assert (labels["belief"] == 0).all() and (labels["weight"] == 1).all()


@pytest.mark.parametrize(("method", "kind"), [("an", "single"), ("full", "all"), ("iun", "negatives")])
def test_a_method_is_given_its_label_set(
    project: Project, monkeypatch: pytest.MonkeyPatch, method: str, kind: str
) -> None:
    given = []

    def noting(network: Any, method: Any, data: Data, *rest: Any) -> Trainer:
        given.append((data.observed, method.problem))
        return Trainer(network, method, data, *rest)

    monkeypatch.setattr(training, "Trainer", noting)
    linear_init(project.root, "digits", method, 0, 0)
    expected = project.observed[kind][project.table.rows("train")]
    observed, problem = given[0]
    assert np.array_equal(observed.numpy(), expected)
    assert problem.observed_counts.tolist() == (expected == 1).sum(0).tolist()
    assert problem.observed_absences == (expected == -1).sum()
    assert (problem.n, problem.classes, problem.expected_positives) == (20, finished.CLASSES, 2.94)


def test_a_run_repeats_its_bytes_and_another_seed_differs(project: Project) -> None:
    linear_init(project.root, "digits", "em_apl", 0, 0)
    first = project.bytes("linear_init", "digits-em_apl-0-0")
    torch.manual_seed(77)
    linear_init(project.root, "digits", "em_apl", 0, 0)
    assert project.bytes("linear_init", "digits-em_apl-0-0") == first
    linear_init(project.root, "digits", "em_apl", 0, 1)
    assert project.bytes("linear_init", "digits-em_apl-0-1")["weights.pt"] != first["weights.pt"]


def test_a_run_learns_from_the_labels_of_its_draw(project: Project) -> None:
    other = np.zeros_like(project.table.truth)  # the last present label of each row is shown
    last = project.table.truth.shape[1] - 1 - project.table.truth[:, ::-1].argmax(axis=1)
    other[np.arange(len(other)), last] = 1
    project.put(project.labels.parents[1] / "digits-1" / "observed.h5", single=other)
    put_beliefs(project, draw=1)
    for draw in (0, 1):
        linear_init(project.root, "digits", "an", draw, 0)
    first, second = (project.bytes("linear_init", f"digits-an-{draw}-0") for draw in (0, 1))
    assert first["weights.pt"] != second["weights.pt"]
    assert "label draw 1, seed 0" in (project.folder("linear_init", "digits-an-1-0") / "summary.md").read_text()
    inputs = read_json(project.folder("linear_init", "digits-an-1-0") / "manifest.json")["inputs"]
    assert {name for name in inputs if "simulate" in name} == {"data/simulate/digits-1/observed.h5"}


def test_test_images_and_their_labels_decide_nothing(project: Project) -> None:
    linear_init(project.root, "digits", "em_apl", 0, 0)
    first = project.bytes("linear_init", "digits-em_apl-0-0")
    at = project.table.rows("test")
    features, truth = project.features.copy(), project.table.truth.copy()
    features[at] = 100 * tiny.numbers(len(at), 5, seed=8)
    truth[at] = np.where(project.table.scored[at], 1 - truth[at], 0)
    project.put(project.cache, features=features)
    project.write_table(truth=truth)
    linear_init(project.root, "digits", "em_apl", 0, 0)
    second = project.bytes("linear_init", "digits-em_apl-0-0")
    same = {name for name in FILES if first[name] == second[name]}
    assert same >= {"weights.pt", "method.pt", "labels.h5", "epochs.tsv", "search.tsv"}
    assert not same & {"logits.h5", "metrics.json", "per_class.tsv"}


def test_truth_of_the_training_images_is_for_the_log_only(project: Project) -> None:
    linear_init(project.root, "digits", "an", 0, 0)
    first = project.bytes("linear_init", "digits-an-0-0")
    at, truth = project.table.rows("train"), project.table.truth.copy()
    truth[at] = np.where(project.table.scored[at], 1 - truth[at], 0)
    project.write_table(truth=truth)
    linear_init(project.root, "digits", "an", 0, 0)
    second = project.bytes("linear_init", "digits-an-0-0")
    assert {name for name in FILES if first[name] != second[name]} == {
        "epochs.tsv",
        "per_class.tsv",
    }  # train_map, support


def test_a_variant_lies_beside_the_run_it_varies(project: Project) -> None:
    change = {"stage": {"epochs": 3}, "method": {"alpha": 0.9}}
    variant = {"dataset": "digits", "method": "em_apl", "draw": 0, "seed": 0, "set": change}
    project.sections["variants"]["linear_init"] = {"digits-em_apl-0-0-long": variant}
    project.write_params()
    linear_init(project.root, "digits", "em_apl", 0, 0)
    linear_init(project.root, "digits", "em_apl", 0, 0, "digits-em_apl-0-0-long")
    runs = [project.folder("linear_init", key) for key in ("digits-em_apl-0-0", "digits-em_apl-0-0-long")]
    assert [read_json(run / "metrics.json")["epochs"] for run in runs] == [2, 3]
    assert [read_json(run / "provenance.json")["method"]["alpha"] for run in runs] == [0.2, 0.9]


# ---------------------------------------------------------------------------------------------- what a run starts from
def states(project: Project, stage: str, key: str) -> dict[str, torch.Tensor]:
    return read_torch(project.folder(stage, key) / "weights.pt")["state"]


def test_finetune_starts_from_backbone_and_head(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    inherited: list[dict[str, torch.Tensor]] = []
    monkeypatch.setattr(base.Method, "inherit", lambda self, state: inherited.append(state))
    with torch.no_grad():  # features of the stored backbone, so that the head fits it
        source = tiny.network(on_images=True).eval().backbone
        assert source is not None
        pixels = inputs.ImageInputs(tiny.pixels(36), np.arange(36), tiny.MEAN, tiny.STD)
        project.put(project.cache, features=source.pool(source(pixels.plain(np.arange(36)))).numpy())
    linear_init(project.root, "digits", "an", 0, 0)
    assert inherited == []
    head = project.folder("linear_init", "digits-an-0-0")
    project.set("finetune", learning_rate=1e-30, batch_norm="frozen", epochs=1)
    finetune(project.root, "digits", "an", 0, 0)
    assert [state["clock"].tolist() for state in inherited] == [[read_json(head / "metrics.json")["epoch"], 2]]
    first, whole = states(project, "linear_init", "digits-an-0-0"), states(project, "finetune", "digits-an-0-0")
    backbone = read_torch(project.backbone)["state"]
    expected = first | {f"backbone.{name}": value for name, value in backbone.items()}
    assert expected.keys() == whole.keys()
    assert all(torch.equal(value, expected[name]) for name, value in whole.items())
    logits = [arrays(project.folder(stage, "digits-an-0-0") / "logits.h5")[0] for stage in ("linear_init", "finetune")]
    for split in ("train", "val", "test"):
        np.testing.assert_allclose(logits[0][split], logits[1][split], rtol=1e-4, atol=1e-5)


def test_lac_goes_on_from_the_first_stage(project: Project) -> None:
    end_to_end(project.root, "digits", "plc", 0, 0)
    project.set("lac", learning_rate=1e-30, epochs=1, ema=None, weight_decay=0.0)
    lac(project.root, "digits", "lac", 0, 0)
    first, second = states(project, "end_to_end", "digits-plc-0-0"), states(project, "lac", "digits-lac-0-0")
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    queue = read_torch(project.folder("lac", "digits-lac-0-0") / "method.pt")["queue_labels"]
    assert len(queue) == 7 and (queue > 0).any()


# ---------------------------------------------------------------------------------------------- checkpoints
class Killed(Exception):
    """The process is killed."""


@pytest.mark.parametrize("after", [1, 5, 7, 11])
def test_a_run_that_was_killed_is_resumed(
    project: Project, monkeypatch: pytest.MonkeyPatch, checkpoints: list[Checkpoint], after: int
) -> None:
    """Killed in the first or second trial of the grid, which has two epochs of three steps; or in the run after it."""
    project.set("linear_init", learning_rate="grid", search={"values": [0.01, 0.1], "epochs": 2, "extend": 0}, epochs=3)
    project.set(
        "linear_init",
        early_stop={"rule": "first_dip", "amount": 0.0},
        ema={"decay": 0.9, "rule": "warmup"},
        optimizer="adam",
        momentum=0.9,
    )
    linear_init(project.root, "digits", "em_apl", 0, 0)
    expected = project.bytes("linear_init", "digits-em_apl-0-0")
    folder = project.root / ".pipeline" / "checkpoints"
    assert list(folder.iterdir()) == []
    shutil.rmtree(project.folder("linear_init", "digits-em_apl-0-0"))

    steps = []
    views = inputs.FeatureInputs.views

    def killing(*arguments: Any) -> Any:
        if len(steps) == after:
            raise Killed
        steps.append(1)
        return views(*arguments)

    monkeypatch.setattr(inputs.FeatureInputs, "views", killing)
    with pytest.raises(Killed):
        linear_init(project.root, "digits", "em_apl", 0, 0)
    assert not project.folder("linear_init", "digits-em_apl-0-0").exists()
    release(checkpoints)
    monkeypatch.setattr(inputs.FeatureInputs, "views", views)
    linear_init(project.root, "digits", "em_apl", 0, 0)
    assert project.bytes("linear_init", "digits-em_apl-0-0") == expected
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("select", ["clean", "auto"])
def test_rates_that_print_alike_have_resume_points_of_their_own(
    project: Project, checkpoints: list[Checkpoint], select: str
) -> None:
    put_beliefs(project)
    rates = [0.1, 0.1 + 1e-9]
    project.set("linear_init", select=select, learning_rate="grid")
    project.set("linear_init", search={"values": rates, "epochs": None, "extend": 0})
    linear_init(project.root, "digits", "an", 0, 0)
    names = [checkpoint.path.name for checkpoint in checkpoints]
    found = read_tsv(project.folder("linear_init", "digits-an-0-0") / "search.tsv")
    assert [float(row["learning_rate"]) for row in found] == rates
    assert len(set(names)) == len(names) == (2 if select == "clean" else 7)  # three parts a rate, and all images


def test_a_checkpoint_is_of_these_settings_and_files_only(
    project: Project, checkpoints: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = project.root / "elsewhere"
    monkeypatch.setenv("SPML_SCRATCH", str(scratch))

    def name() -> str:
        linear_init(project.root, "digits", "em_apl", 0, 0)
        path = checkpoints[-1].path
        assert path.parents[2] == scratch and path.parent.name == "linear_init-digits-em_apl-0-0"
        return path.name

    first = name()
    assert first.endswith("-0.05-0.0-none-None") and name() == first

    def features() -> None:
        project.put(project.cache, features=project.features + 1)

    def labels() -> None:
        project.put(project.labels, **project.observed | {"single": project.observed["single"][::-1].copy()})
        put_beliefs(project)

    def table() -> None:
        scored = project.table.scored.copy()
        scored[project.table.rows("val")[0]] = True
        scored[project.table.rows("val")[1], project.table.truth[project.table.rows("val")[1]] == 0] = False
        project.write_table(scored=scored)

    def density() -> None:
        project.sections["expected_positives"] = {"digits": {"value": 1.5, "source": "a test"}}
        project.write_params()

    changes: list[Callable[[], None]] = [
        lambda: project.set("linear_init", momentum=0.5),
        lambda: project.set("linear_init", learning_rate=0.06),
        lambda: project.set_method("em_apl", alpha=0.3),
        features,
        labels,
        table,
        density,
    ]
    seen = {first}
    for number, change in enumerate(changes, start=2):
        change()
        seen.add(name())
        assert len(seen) == number


def test_a_rate_that_diverged_is_tried_again_after_an_interruption(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    checkpoints: list[Checkpoint],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Killed in the second of three epochs of the run itself, after a trial that diverged in its second."""
    project.set(
        "linear_init", learning_rate="grid", search={"values": [0.05, 7e37], "epochs": 2, "extend": 0}, epochs=3
    )
    epochs: list[int] = []
    views = inputs.FeatureInputs.views
    last = 99

    def noting(self: Any, index: Any, names: Any, seed: int, epoch: int) -> Any:
        if len(epochs) == last:
            raise Killed
        epochs.append(epoch)
        return views(self, index, names, seed, epoch)

    monkeypatch.setattr(inputs.FeatureInputs, "views", noting)
    linear_init(project.root, "digits", "an", 0, 0)
    assert "lr 7e+37: epoch 2: loss is not finite" in capsys.readouterr().out
    expected = project.bytes("linear_init", "digits-an-0-0")
    diverging = epochs[6:-9]
    assert epochs == [1, 1, 1, 2, 2, 2, *diverging, 1, 1, 1, 2, 2, 2, 3, 3, 3] and diverging[:4] == [1, 1, 1, 2]
    shutil.rmtree(project.folder("linear_init", "digits-an-0-0"))

    last = len(epochs) - 4
    epochs.clear()
    with pytest.raises(Killed):
        linear_init(project.root, "digits", "an", 0, 0)
    release(checkpoints)
    last = 99
    epochs.clear()
    linear_init(project.root, "digits", "an", 0, 0)
    assert epochs == [*diverging, 2, 2, 2, 3, 3, 3]
    assert project.bytes("linear_init", "digits-an-0-0") == expected
    assert list((project.root / ".pipeline" / "checkpoints").iterdir()) == []


# ---------------------------------------------------------------------------------------------- what is abandoned
def killed(project: Project, monkeypatch: pytest.MonkeyPatch, made: list[Checkpoint], seed: int = 0) -> Path:
    """The folder that a run leaves which is killed in its second epoch."""

    def killing(self: Any, index: Any, names: Any, seed: int, epoch: int) -> Any:
        if epoch == 2:
            raise Killed
        return views(self, index, names, seed, epoch)

    views = inputs.FeatureInputs.views
    with monkeypatch.context() as patch:
        patch.setattr(inputs.FeatureInputs, "views", killing)
        with pytest.raises(Killed):
            linear_init(project.root, "digits", "an", 0, seed)
    release(made)
    (made[-1].folder / "heat").write_bytes(np.random.default_rng(0).bytes(5 << 20))
    return made[-1].path


def test_a_run_tells_and_deletes_what_its_own_key_cannot_resume(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    checkpoints: list[Checkpoint],
    capsys: pytest.CaptureFixture[str],
) -> None:
    variant = {"dataset": "digits", "method": "an", "draw": 0, "seed": 0, "set": {"stage": {"epochs": 3}, "method": {}}}
    project.sections["variants"]["linear_init"] = {"digits-an-0-0-x": variant}
    project.write_params()
    left, other = killed(project, monkeypatch, checkpoints), killed(project, monkeypatch, checkpoints, seed=1)
    capsys.readouterr()
    linear_init(project.root, "digits", "an", 0, 0, "digits-an-0-0-x")  # of another key
    project.set("linear_init", momentum=0.5)
    assert left.is_dir() and "interrupted" not in capsys.readouterr().out
    linear_init(project.root, "digits", "an", 0, 0)
    told = [line for line in capsys.readouterr().out.splitlines() if "interrupted" in line]
    assert len(told) == 1 and "linear_init digits-an-0-0: deleting 5." in told[0] and "0.0 hours ago" in told[0]
    assert list((project.root / ".pipeline" / "checkpoints").iterdir()) == [other.parent]
    assert list(other.parent.iterdir()) == [other]


def test_a_run_tells_what_it_goes_on_with(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    checkpoints: list[Checkpoint],
    capsys: pytest.CaptureFixture[str],
) -> None:
    left = killed(project, monkeypatch, checkpoints)
    capsys.readouterr()
    linear_init(project.root, "digits", "an", 0, 0)
    out = capsys.readouterr().out
    assert "linear_init digits-an-0-0: going on with an interrupted run (5." in out and "epoch 1/2" not in out
    assert not left.parent.exists()


def test_what_another_process_is_training_stays(project: Project, checkpoints: list[Checkpoint]) -> None:
    other = Checkpoint(project.root / ".pipeline/checkpoints/linear_init-digits-an-0-0/0123456789abcdef-0.1-None", 0)
    (other.folder / "heat").write_bytes(b"hot")
    linear_init(project.root, "digits", "an", 0, 0)
    assert (other.path / "disk" / "heat").exists()
    other.delete()


def test_a_run_that_diverged_leaves_nothing_to_resume(project: Project) -> None:
    project.set("linear_init", learning_rate=7e37)
    with pytest.raises(TrainingError, match="epoch 2"):
        linear_init(project.root, "digits", "an", 0, 0)
    assert list((project.root / ".pipeline" / "checkpoints").iterdir()) == []


# ---------------------------------------------------------------------------------------------- whose code
def test_the_code_of_a_run_is_what_the_graph_says(repository: Path) -> None:
    stages = YAML(typ="safe", pure=True).load((repository / "dvc.yaml").read_text())["stages"]
    for stage in ("linear_init", "finetune", "end_to_end", "lac"):
        found = {path.relative_to(repository).as_posix() for path in training.source_files(stage, "em_apl")}
        declared = {str(dep).replace("${item.method}", "em_apl") for dep in stages[stage]["deps"]}
        folders = [repository / dep for dep in declared if (repository / dep).is_dir() and dep.startswith("pipeline")]
        files = {dep for dep in declared if dep.endswith(".py")}
        files |= {path.relative_to(repository).as_posix() for folder in folders for path in folder.rglob("*.py")}
        assert found <= files
        rest = {file for file in files - found if not file.endswith("__init__.py")}
        config = {f"pipeline/config/{name}.py" for name in ("params", "plan", "rules", "runs")}
        assert rest == config | {"pipeline/audits/settings.py"}


def test_an_edit_of_another_methods_code_leaves_a_run_resumable(
    project: Project, monkeypatch: pytest.MonkeyPatch, checkpoints: list[Checkpoint], tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    for package in ("pipeline", "stages"):
        shutil.copytree(project.repository / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(training, "__file__", str(folder / "pipeline" / "training" / "trials.py"))
    monkeypatch.setattr(resume, "__file__", str(folder / "pipeline" / "core" / "resume.py"))

    def name() -> str:
        linear_init(project.root, "digits", "an", 0, 0)
        return checkpoints[-1].path.name

    first = name()
    for other in ("methods/em.py", "methods/em_apl.py", "report/page.py", "audits/landscape.py"):
        (folder / "pipeline" / other).write_text("# edited\n")
        assert name() == first
    seen = {first}
    for number, own in enumerate(
        ("methods/an.py", "methods/shared/base.py", "core/seeds.py", "training/loop.py"), start=2
    ):
        (folder / "pipeline" / own).write_text("# edited\n")
        seen.add(name())
        assert len(seen) == number


# ---------------------------------------------------------------------------------------------- choice by which labels
def scorer(project: Project, select: str, **table: Any) -> Callable[[np.ndarray], float]:
    project.set("finetune", select=select)
    project.write_table(**table)
    run = read_run(project.root, "finetune", "digits", "an", 0, 0, None)
    score = choice.make_scorer(run)
    assert score is not None
    return score


def test_epochs_are_scored_by_full_labels_of_val(project: Project) -> None:
    at = project.table.rows("val")
    logits = tiny.numbers(len(at), 3, seed=4)
    for select, truth, scored in (
        ("clean", project.table.truth[at], project.table.scored[at]),
        ("last", project.table.truth[at], project.table.scored[at]),
    ):
        found = [value for value in reference_map(truth, logits, scored) if value is not None]
        assert scorer(project, select)(logits) == pytest.approx(100 * np.mean(found)), select
    assert not np.array_equal(project.table.truth[at], project.observed["single"][at])
    assert not project.table.scored[at].all()


def test_labels_that_are_not_exhaustive_are_no_clean_ones(project: Project) -> None:
    at = project.table.rows("val")
    assert not project.table.scored[at].all()
    with pytest.raises(ConfigError, match=r"finetune\.default\.select: clean, but .* not exhaustive"):
        scorer(project, "clean", exhaustive=False)
    logits = tiny.numbers(len(at), 3, seed=4)
    truth, every = project.table.truth[at], np.ones_like(project.table.scored[at])
    found = [value for value in reference_map(truth, logits, every) if value is not None]
    assert scorer(project, "last", exhaustive=False)(logits) == pytest.approx(100 * np.mean(found))
    scored = project.table.scored.copy()
    scored[at] = True  # a val split that is known whole
    assert scorer(project, "clean", exhaustive=False, scored=scored)(logits) == pytest.approx(100 * np.mean(found))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fits": 2}, "made with fits: 3, and params.yaml asks for fits: 2"),
        ({"draw": {"kind": "share", "value": 0.5}}, r"made with draw: \{.*count.*\}, and .* for draw: \{.*share.*\}"),
        ({"sharpness": 4.0}, r"made with sharpness: null, and params.yaml asks for sharpness: 4\.0"),
        ({"kind": "file", "file": "x.csv", "fits": ..., "sharpness": ...}, r"made with kind: \"fits\", file: null"),
    ],
)
def test_beliefs_that_were_made_otherwise_are_made_anew(
    project: Project, change: dict[str, Any], words: str, repository: Path
) -> None:
    block = finished.shipped(repository)["beliefs"]["default"] | change
    project.sections["beliefs"] = {"default": {key: value for key, value in block.items() if value is not ...}}
    project.write_params()
    with pytest.raises(FileError, match=rf"beliefs\.h5: {words}.*; run python -m stages\.beliefs digits 0$"):
        linear_init(project.root, "digits", "an", 0, 0)
    put_beliefs(project)
    project.set("linear_init", epochs=1)
    linear_init(project.root, "digits", "an", 0, 0)


@pytest.mark.parametrize("method", ["full", "iun", "ridge_full"])
def test_an_oracle_is_not_trained_on_labels_that_nobody_knows(project: Project, method: str) -> None:
    project.sections["methods"]["ridge_full"] = {"default": {}}
    project.set("linear_init", select="last", epochs=1)
    project.write_table(exhaustive=False, scored=project.table.truth == 1)
    with pytest.raises(ConfigError, match=rf"^grid\.linear_init: `{method}` is an oracle, .* take it out"):
        linear_init(project.root, "digits", method, 0, 0)
    assert not project.folder("linear_init", f"digits-{method}-0-0").exists()


@pytest.mark.parametrize(
    ("known", "words"),
    [((), "Scores"), (("test",), "Scores of val"), (("val",), "Scores of test"), (("val", "test"), None)],
)
def test_scores_say_by_split_whether_they_are_against_given_labels(
    project: Project, known: tuple[str, ...], words: str | None
) -> None:
    project.set("linear_init", select="last", epochs=1)
    scored = project.table.truth == 1  # what is not given is not known
    for split in known:
        scored[project.table.rows(split)] = True
    project.write_table(exhaustive=False, scored=scored)
    linear_init(project.root, "digits", "an", 0, 0)
    folder = project.folder("linear_init", "digits-an-0-0")
    labels = read_json(folder / "metrics.json")["labels"]
    assert labels == {split: "clean" if split in known else "given" for split in ("val", "test")}
    compared = read_json(folder.with_name("digits-an-0-0.json"))
    names = {f"{split}_map" if split in known else f"{split}_map_by_given_labels" for split in ("val", "test")}
    assert set(compared) == names | ({"val_score_by_shown_labels"} if len(known) < 2 else set())
    lines = (folder / "summary.md").read_text().splitlines()
    assert any("is the val mAP" in line and ("given labels" in line) == ("val" not in known) for line in lines)
    said = [line.partition(" are against the given labels, which are not exhaustive")[0] for line in lines]
    assert [start for start, line in zip(said, lines, strict=True) if start != line] == ([words] if words else [])


# ---------------------------------------------------------------------------------------------- bad input
def no_positive_in_val(project: Project) -> None:
    truth = project.table.truth.copy()
    truth[project.table.rows("val")] = 0
    project.write_table(truth=truth)


def put_beliefs(project: Project, draw: int = 0, **changes: np.ndarray) -> np.ndarray:
    """Write beliefs that know the features; return them."""
    shape = project.table.truth.shape
    logits = changes.get("logits", 4 * (project.table.truth - 0.5) + tiny.numbers(*shape, seed=6)).astype(np.float32)
    belief = np.maximum(1 / (1 + np.exp(-logits)), project.observed["single"] == 1).astype(np.float32)
    belief[project.observed["single"] < 0] = 0
    shares = belief.mean(axis=0)[:, None] * [1.0, 0.9, 1.1]
    found = Beliefs(belief, logits.astype(np.float32), float(belief.sum(axis=1).mean()), shares, "count", belief)
    labels = project.labels.parents[1] / f"digits-{draw}" / "observed.h5"
    write_beliefs(beliefs_file(project.root, "digits", draw), found, {}, [labels], asked_of(project))
    return belief


def asked_of(project: Project) -> dict[str, Any]:
    """Settings of the beliefs that the project's params.yaml asks for."""
    return read_params(project.root / "params.yaml").settings("beliefs", "digits").model_dump()


def nothing_observed_in_val(project: Project) -> None:
    project.set("linear_init", select="auto")
    single = project.observed["single"].copy()
    single[project.table.rows("val")] = 0
    project.put(project.labels, **project.observed | {"single": single})
    put_beliefs(project)


def with_nan(project: Project) -> None:
    features = project.features.copy()
    features[3, 1] = np.nan
    project.put(project.cache, features=features)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


FAULTS: dict[str, tuple[str, Callable[[Project], Any], type[Exception], str]] = {
    "unknown stage key": (
        "an",
        lambda p: p.set("linear_init", momentun=0.9),
        ConfigError,
        "linear_init.default.momentun: Extra inputs",
    ),
    "impossible value": ("an", lambda p: p.set("linear_init", epochs=0), ConfigError, "linear_init.default.epochs"),
    "unknown method key": (
        "an",
        lambda p: p.set_method("an", alpha=0.2),
        ConfigError,
        "params/methods/an.yaml: alpha: Extra inputs",
    ),
    "missing method key": (
        "em_apl",
        lambda p: p.set_method("em_apl", beta=None),
        ConfigError,
        "params/methods/em_apl.yaml: beta: Field required",
    ),
    "method without section": ("em", lambda p: None, ConfigError, "params/methods/em.yaml: cannot be read"),
    "method without code": (
        "nowhere",
        lambda p: None,
        ConfigError,
        "unknown method: no file pipeline/methods/nowhere.py",
    ),
    "need unmet": (
        "lac",
        lambda p: None,
        ConfigError,
        "grid.linear_init: `lac` needs embeddings, which linear_init.default.head `linear` does",
    ),
    "two views of features": (
        "plc",
        lambda p: None,
        ConfigError,
        "`plc` compares 2 views of an image; cached features hold no views",
    ),
    "head on features": (
        "an",
        lambda p: p.set("linear_init", head=tiny.EMBEDDING),
        ConfigError,
        "linear_init.default.head: `label_embedding` reads maps",
    ),
    "flip without mirrored features": (
        "an",
        lambda p: p.set("linear_init", flip=True),
        ConfigError,
        "linear_init.default.flip: needs the mirrored view",
    ),
    "freeze without backbone": (
        "an",
        lambda p: p.set("linear_init", freeze=["layer1"]),
        ConfigError,
        "linear_init.default.freeze: concerns images or backbone",
    ),
    "rows": (
        "an",
        lambda p: p.put(p.cache, features=p.features[:-1]),
        FileError,
        "features.h5: 35 rows, the table has 36",
    ),
    "not finite": ("an", with_nan, FileError, "features.h5: features are not finite"),
    "no features": ("an", lambda p: p.cache.unlink(), FileError, "features.h5: no such file"),
    "cut features": ("an", lambda p: cut(p.cache), FileError, "features.h5: no sound seal"),
    "no labels": ("an", lambda p: p.labels.unlink(), FileError, "observed.h5: no such file"),
    "labels of another table": (
        "an",
        lambda p: p.put(p.labels, **{name: labels[:-1] for name, labels in p.observed.items()}),
        FileError,
        "observed.h5: rows or classes of `single` are not the table's",
    ),
    "no table": (
        "an",
        lambda p: (p.root / "data/prepare/digits/table.h5").unlink(),
        FileError,
        "table.h5: no such file",
    ),
    "no positive in val": (
        "an",
        no_positive_in_val,
        ConfigError,
        "prepare.digits: no val image has a positive label, so no epoch can be chosen by it",
    ),
    "nothing observed in val": (
        "an",
        nothing_observed_in_val,
        ConfigError,
        "linear_init.select: auto ranks shown labels, and the val split",
    ),
    "diverged": (
        "an",
        lambda p: p.set("linear_init", learning_rate=3e38),
        TrainingError,
        r"linear_init digits-an-0-0 lr 3e\+38: epoch 1",
    ),
    "no params": ("an", lambda p: (p.root / "params.yaml").unlink(), ConfigError, "params.yaml: cannot be read"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_input_is_named_and_earlier_outputs_stay(project: Project, fault: str) -> None:
    method, spoil, error, message = FAULTS[fault]
    folder = project.folder("linear_init", f"digits-{method}-0-0")
    for name in FILES:
        write_text(folder / name, f"an earlier {name}")
    before = project.bytes("linear_init", f"digits-{method}-0-0")
    spoil(project)
    with pytest.raises(error, match=message):
        linear_init(project.root, "digits", method, 0, 0)
    assert project.bytes("linear_init", f"digits-{method}-0-0") == before


def test_more_logits_than_a_run_may_keep(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "BUDGET", 2 * (finished.TRAIN + finished.VAL) * 3 - 1)
    words = "linear_init.default.keep_epoch_logits: 2 epochs of 32 x 3 logits.*false for digits"
    with pytest.raises(ConfigError, match=words):
        linear_init(project.root, "digits", "an", 0, 0)
    project.set("linear_init", keep_epoch_logits=False)
    linear_init(project.root, "digits", "an", 0, 0)
    assert "epochs_train" not in arrays(project.folder("linear_init", "digits-an-0-0") / "logits.h5")[0]


def test_consistency_within_groups_wants_groups_before_anything_is_trained(project: Project) -> None:
    project.set("linear_init", group_consistency={"weight": 1.0})
    with pytest.raises(ConfigError, match="linear_init.default.group_consistency: is set, and digits names no groups"):
        linear_init(project.root, "digits", "an", 0, 0)
    project.write_table(groups=tuple(f"{row}" for row in range(len(project.table.paths))))
    with pytest.raises(ConfigError, match="is set, and no two training images of digits are of one group; set it to"):
        linear_init(project.root, "digits", "an", 0, 0)


def test_every_stage_trains_with_consistency_within_groups(project: Project) -> None:
    names = [""] * len(project.table.paths)
    for place, row in enumerate(project.table.rows("train")):
        names[row] = f"burst {place // 3}"
    project.write_table(groups=tuple(names))
    project.put(project.cache, features=tiny.numbers(len(names), 8))  # as wide as the backbone that finetune continues
    for stage in ("linear_init", "finetune", "end_to_end", "lac"):
        project.set(stage, group_consistency={"weight": 2.0})
    runs = {"linear_init": (linear_init, "an"), "finetune": (finetune, "an")}
    runs |= {"end_to_end": (end_to_end, "plc"), "lac": (lac, "lac")}
    for stage, (train, method) in runs.items():
        train(project.root, "digits", method, 0, 0)
        rows = read_tsv(project.folder(stage, f"digits-{method}-0-0") / "epochs.tsv")
        assert all(float(row["group"]) > 0 for row in rows), stage


def test_a_validation_split_that_tells_nothing_chooses_nothing_and_the_run_says_so(
    project: Project, capsys: pytest.CaptureFixture
) -> None:
    truth, scored = project.table.truth.copy(), project.table.scored.copy()
    at = project.table.rows("val")
    truth[at], scored[at] = 1, True  # every class everywhere: no network can be told from another
    project.write_table(truth=truth, scored=scored)
    search = {"values": [0.5, 0.01, 0.1], "epochs": None, "extend": 0}
    project.set("linear_init", epochs=3, learning_rate="grid", search=search)
    linear_init(project.root, "digits", "an", 0, 0)
    folder, told = project.folder("linear_init", "digits-an-0-0"), capsys.readouterr().out
    metrics = read_json(folder / "metrics.json")
    assert (metrics["learning_rate"], metrics["epoch"]) == (0.1, 3)
    assert (metrics["val"]["map"], metrics["val"]["classes_without_negative"]) == (None, 3)
    assert (
        "linear_init digits-an-0-0: val mAP is the same at every rate, so it chose none: 0.1 is the middle one" in told
    )
    assert "linear_init digits-an-0-0: val mAP is the same at every epoch, so it chose none: 3 is the last" in told
    summary = (folder / "summary.md").read_text()
    assert "so the middle one was taken. Validation scored every epoch alike, so the last one was taken." in summary


def test_rates_that_a_search_adds_are_on_record_and_an_edge_is_said(project: Project) -> None:
    folder = project.folder("linear_init", "digits-an-0-0")
    edges = set()
    for extend, values in ((0, [0.01, 0.1, 0.5]), (1, [0.01, 0.1])):
        search = {"values": values, "epochs": None, "extend": extend}
        project.set("linear_init", epochs=3, learning_rate="grid", search=search)
        linear_init(project.root, "digits", "an", 0, 0)
        trials = read_tsv(folder / "search.tsv")
        rates = [float(row["learning_rate"]) for row in trials]
        best = max(
            (row for row in trials if float(row["learning_rate"]) in values), key=lambda row: float(row["score"])
        )
        beyond = {values[0]: values[0] ** 2 / values[1], values[-1]: values[-1] ** 2 / values[-2]}
        added = beyond.get(float(best["learning_rate"])) if extend else None
        assert rates == pytest.approx(sorted([*values, *([added] if added else [])]))
        edge = read_json(folder / "metrics.json")["learning_rate"] in (rates[0], rates[-1])
        said = (
            "The rate is the lowest or highest tried; a better one may lie outside."
            in (folder / "summary.md").read_text()
        )
        assert said == edge
        edges.add((len(rates) - len(values), edge))
    assert len(edges) > 1  # some trial was added, and not all are edges alike


def test_the_next_best_rate_is_the_run_where_the_best_diverges_later(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    step = Trainer._step

    def late(self: Trainer, index: np.ndarray, epoch: int) -> dict[str, float]:
        if self.plan.epochs == 3 and self.plan.learning_rate == best and epoch == 2:
            raise TrainingError(f"{self.plan.name}: epoch 2: loss is not finite: {{'risk': nan}}")
        return step(self, index, epoch)

    search = {"values": [0.5, 0.01, 0.1], "epochs": 1, "extend": 0}
    project.set("linear_init", epochs=3, learning_rate="grid", search=search)
    linear_init(project.root, "digits", "an", 0, 0)
    folder = project.folder("linear_init", "digits-an-0-0")
    trials = read_tsv(folder / "search.tsv")
    best, second = (
        float(row["learning_rate"])
        for row in sorted(trials, key=lambda row: (-float(row["score"]), float(row["learning_rate"])))[:2]
    )
    monkeypatch.setattr(Trainer, "_step", late)
    linear_init(project.root, "digits", "an", 0, 0)
    assert read_json(folder / "metrics.json")["learning_rate"] == second
    rows = {float(row["learning_rate"]): row for row in read_tsv(folder / "search.tsv")}
    assert (rows[best]["diverged"], rows[best]["chosen"], rows[second]["chosen"]) == ("2", "0", "1")
    assert f"digits-an-0-0 lr {best:g}: epoch 2: loss is not finite" in capsys.readouterr().out
    assert ", then diverged in epoch 2" in (folder / "summary.md").read_text()


def test_finetune_without_what_it_starts_from(project: Project) -> None:
    def refused(error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            finetune(project.root, "digits", "an", 0, 0)
        assert not project.folder("finetune", "digits-an-0-0").exists()

    refused(FileError, "runs/linear_init/digits-an-0-0/weights.pt: no such file; run the stage that makes it")
    project.put(project.cache, features=tiny.numbers(36, 8))
    linear_init(project.root, "digits", "an", 0, 0)
    project.set("finetune", head=tiny.EMBEDDING)
    refused(FileError, "digits-an-0-0/weights.pt: its head is .*, finetune.head asks for .*'label_embedding'")
    project.set("finetune", head=tiny.LINEAR, freeze=["layer1"])
    refused(ConfigError, "freeze: the backbone has no module 'layer1'")
    project.set("finetune", freeze=[])
    (project.root / "data/prepare/digits/images.h5").unlink()
    refused(FileError, "images.h5: no such file")
    project.backbone.write_bytes(b"")
    refused(FileError, "backbone.pt: no sound seal")


def test_lac_without_what_it_starts_from(project: Project) -> None:
    with pytest.raises(FileError, match="runs/end_to_end/digits-plc-0-0/weights.pt: no such file"):
        lac(project.root, "digits", "lac", 0, 0)
    end_to_end(project.root, "digits", "plc", 0, 0)
    project.set("lac", head=tiny.EMBEDDING | {"heads": 4})
    with pytest.raises(FileError, match="digits-plc-0-0/weights.pt: its head is .*'heads': 2.* asks for .*'heads': 4"):
        lac(project.root, "digits", "lac", 0, 0)
    project.set("lac", head=tiny.EMBEDDING, strong=None)
    with pytest.raises(ConfigError, match="strong: is null, and `lac` .* asks for a strong view"):
        lac(project.root, "digits", "lac", 0, 0)
    assert not project.folder("lac", "digits-lac-0-0").exists()


# ---------------------------------------------------------------------------------------------- decays and scales
def test_rates_are_searched_with_decays_and_scales(project: Project) -> None:
    """Each trial of the search is the run at its setting alone, and the best is kept."""
    search = {"values": [0.1, 0.5], "epochs": None, "extend": 0}
    tried = {"weight_decay": [0.0, 0.3], "head": tiny.LINEAR | {"scale": ["unit", "none"]}}
    project.set("linear_init", epochs=3, learning_rate="grid", search=search, **tried)
    linear_init(project.root, "digits", "an", 0, 0)
    folder = project.folder("linear_init", "digits-an-0-0")
    rows, metrics = read_tsv(folder / "search.tsv"), read_json(folder / "metrics.json")
    stored, told = read_torch(folder / "weights.pt"), (folder / "summary.md").read_text()
    found = [(float(row["weight_decay"]), row["scale"], float(row["learning_rate"])) for row in rows]
    assert found == [(decay, scale, rate) for decay in (0.0, 0.3) for scale in ("unit", "none") for rate in (0.1, 0.5)]
    alone = []
    for decay, scale, rate in found:
        head = tiny.LINEAR | {"scale": scale}
        project.set("linear_init", learning_rate=rate, search=None, weight_decay=decay, head=head)
        linear_init(project.root, "digits", "an", 0, 0)
        alone.append((read_json(folder / "metrics.json"), read_torch(folder / "weights.pt")))
    assert [float(row["score"]) for row in rows] == [each["val"]["map"] for each, _ in alone]
    ends = [each["state"]["head.linear.weight"] for _, each in alone]
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(ends, 2))  # each has its effect
    best = max(range(8), key=lambda at: (alone[at][0]["val"]["map"], -found[at][2], -at))
    assert [int(row["chosen"]) for row in rows] == [int(at == best) for at in range(8)]
    assert metrics == alone[best][0]
    assert (metrics["weight_decay"], metrics["scale"], metrics["learning_rate"]) == found[best]
    assert stored["architecture"]["head"] == {"kind": "linear", "scale": found[best][1]}
    assert all(torch.equal(value, alone[best][1]["state"][name]) for name, value in stored["state"].items())
    assert "(val mAP by setting: 0.1 wd 0 scale unit: " in told and ", 0.5 wd 0.3 scale none: " in told
    scale = "scaled to unit mean square" if found[best][1] == "unit" else "as they are"
    assert f"; learning rate {found[best][2]:g}, weight decay {found[best][0]:g}, features {scale} (" in told
