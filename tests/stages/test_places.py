"""Heads that score by places, from the cache to the stored run and on to fine-tuning."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.core import hdf5
from pipeline.core.errors import FileError
from pipeline.core.files import read_torch
from pipeline.networks.network import restore
from pipeline.training.place_scores import log_mean_exp
from stages.finetune import finetune
from stages.linear_init import linear_init
from tests import tiny
from tests.stages import finished_runs as finished
from tests.training.test_run import Project, states

HEAD = {"kind": "places", "sharpness": 0.7}


@pytest.fixture
def project(tmp_path: Path, repository: Path) -> Project:
    made = Project(tmp_path, repository)
    made.sections["features"] = {"default": finished.shipped(repository)["features"]["default"] | {"places": True}}
    made.set("linear_init", head=HEAD, select="last")
    made.set("finetune", head=HEAD, learning_rate=1e-30, batch_norm="frozen", epochs=1)
    places = 3 * tiny.numbers(36, 8, 2, 2)
    made.put(made.cache, features=places.mean(axis=(2, 3)), places=places)
    return made


def test_all_splits_are_scored_by_places_and_pooled_features_train(project: Project) -> None:
    linear_init(project.root, "digits", "an", 0, 0)
    state = states(project, "linear_init", "digits-an-0-0")
    weights, bias = (state[f"head.linear.{name}"].double().numpy() for name in ("weight", "bias"))
    with hdf5.read(project.cache) as file:
        places = file["places"][()].reshape(36, 8, 4)  # pyright: ignore
    expected = log_mean_exp(np.einsum("ndp,cd->ncp", places, weights) + bias[:, None], 0.7)
    with hdf5.read(project.folder("linear_init", "digits-an-0-0") / "logits.h5") as file:
        for split in ("train", "val", "test"):
            np.testing.assert_allclose(file[split][()], expected[project.table.rows(split)], atol=1e-4)  # pyright: ignore
    project.set("linear_init", head=tiny.LINEAR)
    linear_init(project.root, "digits", "an", 0, 0)
    assert all(torch.equal(states(project, "linear_init", "digits-an-0-0")[name], state[name]) for name in state)


def test_fine_tuning_goes_on_from_such_a_head_with_its_pools(project: Project) -> None:
    with hdf5.read(project.cache) as file:
        arrays = {name: file[name][()] for name in ("features", "places")}  # pyright: ignore
    with hdf5.create(project.cache) as file:
        file.attrs["pools"] = '["sqrt"]'
        for name, array in arrays.items():
            hdf5.write_array(file, name, array, axes="image", units="as the test has it")
    linear_init(project.root, "digits", "an", 0, 0)
    finetune(project.root, "digits", "an", 0, 0)
    weights = project.folder("finetune", "digits-an-0-0") / "weights.pt"
    assert read_torch(weights)["architecture"]["pools"] == ["sqrt"]
    network, images = restore(weights), tiny.images(4).plain(np.arange(4))
    assert network.backbone is not None
    with torch.no_grad():
        maps = network.backbone(images).flatten(2)
        roots = (maps.sign() * ((maps.abs() + 1e-4).sqrt() - 0.01)).double().numpy()
        head = states(project, "linear_init", "digits-an-0-0")
        logits = np.einsum("ndp,cd->ncp", roots, head["head.linear.weight"].double().numpy())
        logits += head["head.linear.bias"].double().numpy()[:, None]
        np.testing.assert_allclose(network(images)["logits"].numpy(), log_mean_exp(logits, 0.7), atol=1e-4)


def test_a_cache_without_places_is_named(project: Project) -> None:
    project.put(project.cache, features=tiny.numbers(36, 8))
    with pytest.raises(FileError, match="^data/features/digits: holds no features of places; run the stage features"):
        linear_init(project.root, "digits", "an", 0, 0)
