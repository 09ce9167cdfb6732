"""Heads fitted anew to the features of a trained network, against fits by hand to features computed by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.core import hdf5
from pipeline.core.errors import ConfigError
from pipeline.core.files import read_json, read_tsv
from pipeline.labels.observed import read_observed
from pipeline.methods.shared.draw_likelihood import ShareDraw
from pipeline.networks.network import Network, restore
from pipeline.training.beliefs import believe
from pipeline.training.place_scores import Places, log_mean_exp
from pipeline.training.run import image_inputs
from stages.finetune import finetune
from stages.linear_init import linear_init
from tests import tiny
from tests.training.test_run import Project

POOLS = ["sqrt", "mean"]


@pytest.fixture
def project(tmp_path: Path, repository: Path) -> Project:
    """A project with linear heads, whose fine-tuning changes no weight to speak of."""
    made = Project(tmp_path, repository)
    made.put(made.cache, features=tiny.numbers(36, 8))
    made.set("finetune", learning_rate=1e-30, batch_norm="frozen", epochs=1)
    return made


def features_by_hand(project: Project, network: Network) -> np.ndarray:
    """(N, 16, P) features of places of all images: signed roots, then the maps themselves."""
    run: Any = type("Run", (), {"root": project.root, "dataset": "digits", "table": project.table})
    run.settings = type("Settings", (), {"flip": False, "crop": 1.0, "strong": None})
    found = np.empty((36, 16, 4))
    for split, inputs in image_inputs(run, network).items():
        rows = project.table.rows(split)
        with torch.no_grad():
            assert network.backbone is not None
            maps = network.backbone.eval()(inputs.plain(np.arange(len(rows)))).flatten(2).double().numpy()
        found[rows] = np.concatenate([np.sign(maps) * (np.sqrt(np.abs(maps) + 1e-4) - 0.01), maps], axis=1)
    return found


@pytest.mark.parametrize("sharpness", [None, 0.4])
@pytest.mark.parametrize("method", ["an", "full"])
def test_the_run_is_the_network_under_the_fitted_head(project: Project, method: str, sharpness: float | None) -> None:
    linear_init(project.root, "digits", method, 0, 0)
    finetune(project.root, "digits", method, 0, 0)
    plain = read_json(project.folder("finetune", f"digits-{method}-0-0") / "metrics.json")
    project.set("finetune", readout={"pools": POOLS, "sharpness": sharpness, "share": 1.0})
    finetune(project.root, "digits", method, 0, 0)
    folder = project.folder("finetune", f"digits-{method}-0-0")
    network, train = restore(folder / "weights.pt"), project.table.rows("train")
    features = features_by_hand(project, network)
    pooled, places = features.mean(axis=2), None
    if sharpness is not None:
        places = Places(features[..., None], train, sharpness)
    name = "all" if method == "full" else "single"
    labels = read_observed(project.labels, project.table, [name])[name][train]
    draw = None if method == "an" else ShareDraw(1e-12)  # the truth of some cells is not known
    expected = believe(pooled[train], labels, draw=draw, places=places)
    with hdf5.read(folder / "logits.h5") as file:
        for split in ("train", "val", "test"):
            own = features[project.table.rows(split)]
            logits = np.einsum("ndp,cd->ncp", own, expected.weights) + expected.bias[:, None]
            wanted = logits.mean(axis=2) if sharpness is None else log_mean_exp(logits, sharpness)
            np.testing.assert_allclose(file[split][()], wanted, atol=2e-3, err_msg=split)  # pyright: ignore
    metrics = read_json(folder / "metrics.json")
    assert plain["before_readout"] is None
    assert metrics["before_readout"] == {split: plain[split]["map"] for split in ("val", "test")}
    assert metrics["epoch"] == plain["epoch"] and len(read_tsv(folder / "epochs.tsv")) == 1
    assert network.architecture["pools"] == POOLS and network.architecture["width"] == 16


def test_features_that_cannot_be_fitted_are_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    linear_init(project.root, "digits", "an", 0, 0)
    project.set("finetune", readout={"pools": ["mean"], "sharpness": None, "share": 1.0})
    flat = lambda *_: np.ones((20, 8), np.float32)  # noqa: E731
    monkeypatch.setattr("pipeline.training.readout._extract", lambda _, images, __: flat()[: len(images)])
    with pytest.raises(ConfigError, match=r"^finetune digits-an-0-0: readout: no feature varies"):
        finetune(project.root, "digits", "an", 0, 0)
    assert not project.folder("finetune", "digits-an-0-0").exists()
