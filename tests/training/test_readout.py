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
from tests.stages import finished_runs as finished
from tests.training.test_closed_form import put_beliefs
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


def cache_places(project: Project) -> None:
    """Places beside the cache, and beliefs that score by them."""
    project.put_places(tiny.numbers(36, 8, 2, 2))
    project.sections |= {
        "features": {"default": finished.shipped(project.repository)["features"]["default"] | {"places": True}},
        "beliefs": {"default": {"kind": "fits", "fits": 3, "draw": {"kind": "count"}, "sharpness": 0.4}},
    }
    project.write_params()
    put_beliefs(project, {})


def stored_logits(project: Project, stage: str, method: str) -> dict[str, np.ndarray]:
    with hdf5.read(project.folder(stage, f"digits-{method}-0-0") / "logits.h5") as file:
        return {split: file[split][()].astype(np.float64) for split in ("train", "val", "test")}  # pyright: ignore


@pytest.mark.parametrize("method", ["an", "full"])
def test_a_head_on_cached_features_is_mixed_with_the_closed_form(project: Project, method: str) -> None:
    """The logits are the weighted mean of both, the trained ones on the scale of the others."""
    project.set("linear_init", select="last", head={"kind": "linear", "scale": "none"})
    linear_init(project.root, "digits", method, 0, 0)
    trained = stored_logits(project, "linear_init", method)
    with hdf5.read(project.cache) as file:
        features = file["features"][()].astype(np.float64)  # pyright: ignore
    train, name = project.table.rows("train"), "all" if method == "full" else "single"
    labels = read_observed(project.labels, project.table, [name])[name][train]
    if method == "full":
        fitted = believe(features[train].astype(np.float32), labels, draw=ShareDraw(1e-12))
        weights, bias = fitted.weights, fitted.bias
    else:
        weights, bias = tiny.numbers(3, 8, seed=4).astype(np.float64), np.array([0.1, -0.2, 0.3])
        put_beliefs(project, {"weights": weights, "bias": bias})
    project.set("linear_init", readout={"pools": ["mean"], "sharpness": None, "share": 0.25})
    linear_init(project.root, "digits", method, 0, 0)
    closed = {split: features[project.table.rows(split)] @ weights.T + bias for split in trained}
    factor = closed["train"].std() / trained["train"].std()
    for split, logits in stored_logits(project, "linear_init", method).items():
        expected = 0.25 * closed[split] + 0.75 * factor * trained[split]
        np.testing.assert_allclose(logits, expected, rtol=2e-3, atol=2e-3, err_msg=split)
    metrics = read_json(project.folder("linear_init", f"digits-{method}-0-0") / "metrics.json")
    assert metrics["before_readout"]["val"] is not None


def test_on_images_the_network_keeps_its_share(project: Project) -> None:
    project.set("linear_init", head={"kind": "places", "sharpness": 0.4}, select="last")
    project.set("finetune", head={"kind": "places", "sharpness": 0.4})
    cache_places(project)
    linear_init(project.root, "digits", "an", 0, 0)
    heads = []
    for share in (None, 1.0, 0.25):
        readout = None if share is None else {"pools": ["mean"], "sharpness": 0.4, "share": share}
        project.set("finetune", readout=readout)
        finetune(project.root, "digits", "an", 0, 0)
        network = restore(project.folder("finetune", "digits-an-0-0") / "weights.pt")
        heads.append([array.detach().double().numpy() for array in network.head.parameters()])
    (trained, fitted, mixed), pooled = heads, features_by_hand(project, network)[:, 8:].mean(axis=2)
    spreads = [np.std(pooled[project.table.rows("train")] @ weights.T + bias) for weights, bias in (trained, fitted)]
    for before, closed, found in zip(trained, fitted, mixed, strict=True):
        np.testing.assert_allclose(found, 0.25 * closed + 0.75 * spreads[1] / spreads[0] * before, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("places", [False, True])
def test_logits_that_left_images_out_are_mixed_too_and_by_places_no_threshold_comes_of_them(
    project: Project, places: bool
) -> None:
    head = {"kind": "places", "sharpness": 0.4} if places else {"kind": "linear", "scale": "none"}
    if places:
        cache_places(project)
    put_beliefs(project, {"weights": tiny.numbers(3, 8, seed=4), "bias": np.zeros(3, np.float32)})
    readout = {"pools": ["mean"], "sharpness": 0.4 if places else None, "share": 0.5}
    project.set("linear_init", head=head, select="auto", readout=readout)
    linear_init(project.root, "digits", "an", 0, 0)
    folder = project.folder("linear_init", "digits-an-0-0")
    assert read_json(folder / "metrics.json")["shown_labels"]["images"] == "train"
    conformal = read_json(folder / "thresholds.json")["images"]["conformal"]
    assert conformal["train"] == (0 if places else len(project.table.rows("train")))
