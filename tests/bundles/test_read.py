"""Bundles that cannot be read: each fault is one line that names the file and says what to do."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from pipeline.bundles.layout import SUMS, Description
from pipeline.bundles.read import read_model
from pipeline.core.errors import ConfigError, FileError
from tests import tiny
from tests.bundles import made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made.bundle(tmp_path / "m")


def sign(folder: Path) -> None:
    """Write the sums anew, as if the files that lie there had been written so."""
    names = [name.partition("  ")[2] for name in (folder / SUMS).read_text().splitlines()]
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / SUMS).write_text("".join(lines))


def edit(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Return what changes model.json, and signs it."""

    def act(folder: Path) -> None:
        about = json.loads((folder / "model.json").read_text())
        change(about)
        (folder / "model.json").write_text(json.dumps(about))
        sign(folder)

    return act


def damage(name: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 4
        (folder / name).write_bytes(bytes(content))

    return act


def cut(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:100])
    sign(folder)


def take_weights_of_four(folder: Path) -> None:
    other = made.bundle(folder.parent / "other", classes=["a", "b", "c", "d"])
    (folder / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes())


def four_weights(folder: Path) -> None:
    take_weights_of_four(folder)
    sign(folder)


def drop_tensor(folder: Path) -> None:
    state = safetensors.torch.load_file(folder / "model.safetensors")
    del state["head.linear.bias"]
    safetensors.torch.save_file(state, folder / "model.safetensors")
    sign(folder)


FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "later format": (
        edit(lambda about: about.update(format=2)),
        "model.json: format 2, and this version reads 1; use spml 0.1.0, which wrote it, or bundle the run again",
    ),
    **{
        f"later format that holds {found}": (
            edit(lambda about, found=found: about.update(format=2, provenance=found)),
            "model.json: format 2, and this version reads 1; use the version of spml that wrote it, or bundle the run",
        )
        for found in ([], None, "x", {}, {"versions": None}, {"versions": ["spml"]}, {"versions": {"spml": 3}})
    },
    **{
        f"pictures of {size} pixels": (
            edit(lambda about, size=size: about["input"].update(size=size)),
            "model.json: model.input.size: Input should be",
        )
        for size in (0, 4097, 100_000)
    },
    "no format": (edit(lambda about: about.pop("format")), "model.json: not of a bundle (it names no `format`)"),
    "no JSON": (lambda folder: ((folder / "model.json").write_text("{"), sign(folder)), "model.json: not JSON"),
    "head of no kind": (
        edit(lambda about: about["network"]["head"].update(kind="capsule")),
        "model.network.head: Input tag 'capsule' found using 'kind' does not match any of the expected tags",
    ),
    "head without a setting": (
        edit(lambda about: about["network"]["head"].pop("scale")),
        "model.json: model.network.head.linear.scale: Field required; bundle the run again",
    ),
    "timm from the hub": (
        edit(
            lambda about: about["network"].update(
                backbone={"source": "timm", "model": "hf-hub:x/y", "options": {}, "width": 8, "own_pool": False}
            )
        ),
        "model.network.backbone.timm.model: String should match pattern",
    ),
    "timm's pickles": (
        edit(
            lambda about: about["network"].update(
                backbone={
                    "source": "timm",
                    "model": "test_resnet",
                    "options": {"checkpoint_path": 1},
                    "width": 8,
                    "own_pool": False,
                }
            )
        ),
        "model.network.backbone.timm.options.checkpoint_path",
    ),
    "timm without such a model": (
        edit(
            lambda about: about["network"].update(
                backbone={"source": "timm", "model": "resnet_0", "options": {}, "width": 8, "own_pool": False}
            )
        ),
        "model.json: its network cannot be built here (Unknown model (resnet_0))",
    ),
    "thresholds of other classes": (
        edit(lambda about: about["thresholds"]["rules"]["zero"]["logits"].pop("owl")),
        "thresholds.rules.zero: its classes are not those of `classes`",
    ),
    "no such rule": (
        edit(lambda about: about["thresholds"].update(chosen="best")),
        "thresholds.chosen: 'best' is none of thresholds.rules",
    ),
    "a class twice": (edit(lambda about: about.update(classes=["cat", "cat", "owl"])), "names an entry twice"),
    "weights of more classes": (
        four_weights,
        "model.safetensors: head.linear.weight is (4, 8), and the network of model.json, of 3 classes, has (3, 8)",
    ),
    "a tensor less": (
        drop_tensor,
        "model.safetensors: head.linear.bias is absent, and the network of model.json, of 3 classes, has (3,)",
    ),
    "weights of another bundle": (take_weights_of_four, "model.safetensors: damaged, edited or another bundle's"),
    "damaged weights": (damage("model.safetensors"), "model.safetensors: damaged, edited or another bundle's"),
    "damaged description": (damage("model.json"), "model.json: damaged, edited or another bundle's"),
    "short weights": (cut, "model.safetensors: no safetensors file"),
    "no weights": (
        lambda folder: (folder / "model.safetensors").unlink(),
        "model.safetensors: cannot be read (No such file or directory)",
    ),
    "no sums": (lambda folder: (folder / SUMS).unlink(), "m: no bundle of a model (it has no SHA256SUMS"),
    "sums of something else": (
        lambda folder: (folder / SUMS).write_text(f"{'0' * 64}  linux.iso\n"),
        "SHA256SUMS: names other files than a bundle has",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(fault: str, folder: Path) -> None:
    act, message = FAULTS[fault]
    act(folder)
    with pytest.raises(FileError, match=re.escape(message)) as error:
        read_model(folder)
    assert len(str(error.value).splitlines()) == 1


def test_what_is_no_bundle_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "runs/finetune/digits-an-0-0").mkdir(parents=True)
    (tmp_path / "runs/finetune/digits-an-0-0/weights.pt").touch()
    for path, reason in {
        "runs/finetune/digits-an-0-0": "it is a run: spml model finetune/digits-an-0-0 bundles it",
        "m/model.json": "a file; name the folder that `spml model` wrote",
        "nowhere": "there is no such folder; `spml model` writes one",
        ".": "it has no SHA256SUMS",
    }.items():
        with pytest.raises(FileError, match=re.escape(f"{tmp_path / path}: no bundle of a model ({reason}")):
            read_model(tmp_path / path)


@pytest.mark.parametrize("kind", made.HEADS)
def test_a_network_comes_back(kind: str, tmp_path: Path) -> None:
    network = {"backbone": made.SMALL, "pools": ["mean", "top4"], "head": made.HEADS[kind]}
    model = read_model(made.bundle(tmp_path / "m", network=network))
    wanted = made.network(Description.model_validate(made.content(network=network)))
    pixels = tiny.pixels(4, seed=3)
    images = tiny.ImageInputs(pixels, np.arange(4), tiny.MEAN, tiny.STD).plain(np.arange(4))
    with torch.no_grad():
        logits = wanted(images)["logits"].numpy()
    np.testing.assert_allclose(model.logits(pixels), logits, atol=1e-6)


def test_a_network_of_timm_comes_back(tmp_path: Path) -> None:
    backbone = {"source": "timm", "model": "test_resnet", "options": {}, "width": 96, "own_pool": False}
    network = {"backbone": backbone, "pools": ["mean"], "head": tiny.LINEAR}
    model = read_model(made.bundle(tmp_path / "m", network=network))
    assert model.logits(tiny.pixels(2)).shape == (2, 3)


def test_thresholds(folder: Path) -> None:
    model = read_model(folder)
    np.testing.assert_array_equal(model.thresholds(), [0.0, 1.0, np.inf])
    np.testing.assert_array_equal(model.thresholds("zero"), [0.0, 0.0, 0.0])
    np.testing.assert_allclose(model.thresholds(0.8), [np.log(4)] * 3)
    with pytest.raises(ConfigError, match=r"--threshold: .*m has none called 'clean'; it has matching, zero"):
        model.thresholds("clean")
    for wrong in (0.0, 1.0, -2.0, np.nan):
        with pytest.raises(ConfigError, match="is no probability between 0 and 1"):
            model.thresholds(float(wrong))
