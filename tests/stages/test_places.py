"""Heads that score by places, from the cache to the stored run and on to fine-tuning."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.core import hdf5
from pipeline.core.errors import ConfigError, FileError
from pipeline.core.files import read_json, read_torch
from pipeline.networks.network import restore
from pipeline.training.place_scores import log_mean_exp
from stages.finetune import finetune
from stages.landscape import landscape
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
    made.put(made.cache, features=places.mean(axis=(2, 3)))
    made.put_places(places)
    return made


def test_all_splits_are_scored_by_places_and_pooled_features_train(project: Project) -> None:
    linear_init(project.root, "digits", "an", 0, 0)
    state = states(project, "linear_init", "digits-an-0-0")
    weights, bias = (state[f"head.linear.{name}"].double().numpy() for name in ("weight", "bias"))
    with hdf5.read(project.cache.with_name("places.h5")) as file:
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
        features = file["features"][()]  # pyright: ignore
    with hdf5.create(project.cache) as file:
        file.attrs["pools"] = '["sqrt"]'
        hdf5.write_array(file, "features", features, axes="image", units="as the test has it")
    project.put_places(3 * tiny.numbers(36, 8, 2, 2))
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
    project.cache.with_name("places.h5").unlink()
    with pytest.raises(FileError, match="^data/features/digits: holds no features of places; run the stage features"):
        linear_init(project.root, "digits", "an", 0, 0)


@pytest.mark.parametrize("stage", ["linear_init", "finetune"])
def test_the_landscape_is_of_the_loss_that_was_trained(project: Project, stage: str) -> None:
    """That of pooled logits, whatever scores the images."""
    about = {"images": 9, "points_1d": 3, "points_2d": 3, "radius": 0.5, "direction_seed": 1, "batch_size": 4}
    project.sections |= {"landscape": {"default": about}}
    project.sections["grid"]["landscape_stage"] = stage
    project.write_params()
    found = []
    for head in (HEAD, tiny.LINEAR):
        project.set("linear_init", head=head)
        project.set("finetune", head=head)
        linear_init(project.root, "digits", "an", 0, 0)
        if stage == "finetune":
            finetune(project.root, "digits", "an", 0, 0)
        landscape(project.root, "digits", "an", 0, 0)
        found.append(read_json(project.root / "analyses" / "landscape" / "digits-an-0-0" / "metrics.json"))
    differences = [each.pop("stored_logits_difference") for each in found]
    assert [each.pop("reason") for each in found] == [None, None]
    assert found[0] == pytest.approx(found[1], rel=1e-5) and max(differences) < 1e-4


def test_no_landscape_of_a_head_that_was_fitted_anew(project: Project) -> None:
    project.set("finetune", readout={"pools": ["sqrt"], "sharpness": None, "share": 1.0})
    with pytest.raises(ConfigError, match=r"^finetune.default.readout: fits the head of grid.finetune anew, and"):
        landscape(project.root, "digits", "an", 0, 0)


def test_only_heads_that_score_by_places_read_them(project: Project) -> None:
    """And they read them as they come: damage is told by the first read of what is damaged."""
    project.set("linear_init", head=tiny.LINEAR)
    path = project.cache.with_name("places.h5")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    linear_init(project.root, "digits", "an", 0, 0)
    project.set("linear_init", head=HEAD)
    with pytest.raises(FileError, match=r"places\.h5: damaged between bytes"):
        linear_init(project.root, "digits", "an", 0, 0)


@pytest.mark.parametrize("width", [7, 9])
def test_places_of_other_features_are_refused(project: Project, width: int) -> None:
    project.put(project.cache, features=tiny.numbers(36, 8, seed=5))
    with pytest.raises(FileError, match=r"places\.h5: made from another data/features/digits/features\.h5 than lies"):
        linear_init(project.root, "digits", "an", 0, 0)
    project.put_places(tiny.numbers(36, width, 2, 2))
    with pytest.raises(FileError, match=rf"places\.h5: \(36, {width}, 2, 2\) places, the features are \(36, 8\); run"):
        linear_init(project.root, "digits", "an", 0, 0)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_block_by_block_gives_what_all_in_memory_gives(
    project: Project, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain oracle holds the whole array; batches of the mapped one give the same."""
    places = 3 * tiny.numbers(36, 8, 2, 2)
    project.put_places(places.astype(dtype))
    logits = []
    for mapped in (hdf5.Mapped, lambda *_: places.astype(dtype)):
        monkeypatch.setattr(hdf5, "Mapped", mapped)
        linear_init(project.root, "digits", "an", 0, 0)
        with hdf5.read(project.folder("linear_init", "digits-an-0-0") / "logits.h5") as file:
            logits.append(np.concatenate([file[split][()] for split in ("train", "val", "test")]))  # pyright: ignore
    np.testing.assert_allclose(*logits, rtol=0, atol=1e-6)
