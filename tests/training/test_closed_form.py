"""Heads in closed form as runs: their weights, scores and files against what the fits say."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.core import hdf5
from pipeline.core.errors import ConfigError, FileError
from pipeline.core.files import read_json, read_torch, read_tsv
from pipeline.labels.beliefs import Beliefs, beliefs_file, write_beliefs
from pipeline.labels.observed import observed_file, read_observed
from pipeline.methods.shared.draw_likelihood import ShareDraw
from pipeline.training import ridge
from pipeline.training.beliefs import believe
from pipeline.training.features import Cache
from pipeline.training.readout import closed_form
from stages.linear_init import linear_init
from tests.training.test_run import Project, asked_of

SHARES = np.array([[0.2, 0.1, 0.3]] * 3)


@pytest.fixture
def project(tmp_path: Path, repository: Path) -> Project:
    made = Project(tmp_path, repository)
    made.sections["methods"] |= {name: {"default": {}} for name in ("ridge", "ridge_full")}
    made.write_params()
    return made


def put_beliefs(project: Project, head: dict[str, np.ndarray]) -> Beliefs:
    shape = project.table.truth.shape
    belief, logits = np.random.default_rng(0).random(shape).astype(np.float32), np.zeros(shape, np.float32)
    found = Beliefs(belief, logits, 1.5, SHARES, "count", logits)
    table = project.root / "data" / "prepare" / "digits" / "table.h5"
    write_beliefs(beliefs_file(project.root, "digits", 0), found, head, [table, project.labels], asked_of(project))
    return found


def stored(project: Project, key: str) -> tuple[dict[str, Any], dict[str, np.ndarray], Path]:
    folder = project.folder("linear_init", key)
    with hdf5.read(folder / "logits.h5") as file:
        return read_json(folder / "metrics.json"), {name: values[()] for name, values in file.items()}, folder


def test_the_head_of_the_beliefs_becomes_a_run(project: Project) -> None:
    head = {"weights": np.arange(15.0).reshape(3, 5) / 10, "bias": np.array([0.5, -1.0, 2.0])}
    believed = put_beliefs(project, head)
    linear_init(project.root, "digits", "ridge", 0, 0)
    metrics, logits, folder = stored(project, "digits-ridge-0-0")
    for split in ("train", "val", "test"):
        rows = project.table.rows(split)
        assert np.allclose(logits[split], project.features[rows] @ head["weights"].T + head["bias"], atol=1e-5), split
    assert (metrics["epoch"], metrics["epochs"], metrics["learning_rate"]) == (1, 1, None)
    state = read_torch(folder / "weights.pt")["state"]
    assert torch.allclose(state["head.linear.weight"], torch.from_numpy(head["weights"]).float())
    with hdf5.read(folder / "labels.h5") as file:
        assert np.array_equal(file["belief"][()], believed.belief[project.table.rows("train")])
    (row,) = read_tsv(folder / "search.tsv")
    assert (row["learning_rate"], row["chosen"]) == ("", "1")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert any("beliefs/digits-0/beliefs.h5" in path for path in manifest["inputs"])
    assert "no rate and no epoch to choose" in (folder / "summary.md").read_text()


def test_an_oracle_is_fitted_to_all_labels(project: Project) -> None:
    linear_init(project.root, "digits", "ridge_full", 0, 0)
    _, logits, _ = stored(project, "digits-ridge_full-0-0")
    rows = project.table.rows("train")
    labels = read_observed(observed_file(project.root, "digits", 0), project.table, ["all"])["all"][rows]
    expected = believe(
        project.features[rows], labels, None, ShareDraw(1e-12), fits=3
    )  # some cells are of unknown truth
    test = ridge.score(project.features[project.table.rows("test")], expected.weights, expected.bias)
    assert np.allclose(logits["test"], test, atol=1e-4)


def test_beliefs_of_somebody_else_have_no_head(project: Project) -> None:
    put_beliefs(project, {})
    with pytest.raises(
        ConfigError,
        match=r"beliefs\.digits: a file holds no linear head; linear_init digits-ridge-0-0 needs kind: fits",
    ):
        linear_init(project.root, "digits", "ridge", 0, 0)


def test_a_head_of_other_features_is_named(project: Project) -> None:
    put_beliefs(project, {"weights": np.zeros((3, 4)), "bias": np.zeros(3)})
    with pytest.raises(
        FileError, match=r"beliefs\.h5: its linear head reads 4 features, the cache 5; run beliefs again"
    ):
        linear_init(project.root, "digits", "ridge", 0, 0)


def oracle_of(labels: np.ndarray, features: np.ndarray, mirrored: np.ndarray | None, *, flip: bool) -> np.ndarray:
    """Return the logits of the oracle's head on its training images."""
    run: Any = SimpleNamespace(
        method="ridge_full",
        table=SimpleNamespace(rows=lambda _: np.arange(len(labels)), group_numbers=lambda _: None),
        settings=SimpleNamespace(flip=flip, head=SimpleNamespace(kind="linear")),
        draw=0,
        name="run",
    )
    weights, bias, _ = closed_form(run, Cache(features, mirrored, None, ["mean"], []), labels)
    return features @ weights.T + bias


def test_an_oracle_does_not_take_unknown_cells_as_absent() -> None:
    """The truth of 40 % of the cells is struck out at random; the others still tell the share of images."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(600, 4))
    labels = np.where(features[:, :2] + generator.normal(size=(600, 2)) > 0, 1, -1).astype(np.int8)
    full = 1 / (1 + np.exp(-oracle_of(labels, features, None, flip=False)))
    struck = np.where(generator.random(labels.shape) < 0.4, 0, labels).astype(np.int8)
    found = 1 / (1 + np.exp(-oracle_of(struck, features, None, flip=False)))
    assert np.abs(full.mean(axis=0) - 0.5).max() < 0.05
    assert np.abs(found.mean(axis=0) - full.mean(axis=0)).max() < 0.05
    assert np.abs(found - full).mean() < 0.05


def test_mirrored_views_are_fitted_only_where_flip_asks_for_them() -> None:
    generator = np.random.default_rng(0)
    features, mirrored = generator.normal(size=(2, 60, 4))
    labels = np.where(features[:, :2] > 0, 1, -1).astype(np.int8)
    plain = oracle_of(labels, features, None, flip=False)
    assert np.array_equal(oracle_of(labels, features, mirrored, flip=False), plain)
    assert not np.allclose(oracle_of(labels, features, mirrored, flip=True), plain)


def test_a_closed_form_is_fitted_to_features_as_they_are(project: Project) -> None:
    """Beside methods that search the scale; where unit length alone is asked for, it is refused."""
    project.set("linear_init", head={"kind": "linear", "scale": ["unit", "none"]}, weight_decay=[0.0, 0.5])
    search = {"values": [0.01, 0.1], "epochs": None, "extend": 0}
    project.set("linear_init", learning_rate="grid", search=search)
    linear_init(project.root, "digits", "ridge_full", 0, 0)
    searched, logits, folder = stored(project, "digits-ridge_full-0-0")
    assert (searched["learning_rate"], searched["weight_decay"], searched["scale"]) == (None, None, "none")
    assert read_torch(folder / "weights.pt")["architecture"]["head"] == {"kind": "linear", "scale": "none"}
    project.set(
        "linear_init", head={"kind": "linear", "scale": "none"}, weight_decay=0.0, learning_rate=0.1, search=None
    )
    linear_init(project.root, "digits", "ridge_full", 0, 0)
    assert np.array_equal(stored(project, "digits-ridge_full-0-0")[1]["test"], logits["test"])
    project.set("linear_init", head={"kind": "linear", "scale": "unit"})
    with pytest.raises(ConfigError, match=r"head.scale: unit, but `ridge_full` .* fitted to features as they are"):
        linear_init(project.root, "digits", "ridge_full", 0, 0)
