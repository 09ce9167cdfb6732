"""Backbones of timm, whatever their family, as one kind: maps of places, and their pooled features.

Vision transformers, hybrids and mixers answer tokens, some families channels last; and not every model takes pictures
of another size than its own. Source: ours; model code and weights are timm's.
"""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.core.errors import ConfigError

_OPTIONS: tuple[dict[str, Any], ...] = ({}, {"dynamic_img_size": True}, {"img_size": None})
"""Arguments by which models of timm take pictures of another size, in the order in which they are tried."""


def describe(model: str, size: int) -> dict[str, Any]:
    """Return how to build a model of timm for pictures of a size; nothing is downloaded, and nothing computed.

    Args:
        model: timm's name.
        size: Side of the pictures in pixels.

    Returns:
        ``source``, and the arguments of `TimmBackbone` by name.

    Raises:
        ConfigError: timm has no such model, or it takes no pictures of that size.
    """  # noqa: DOC502  raised by `_probe`
    options, own, (width, *_) = _probe(model, size)
    return {"source": "timm", "model": model, "options": dict(options), "width": width, "own_pool": own}


def map_shape(model: str, size: int) -> tuple[int, int, int]:
    """Return the (D, h, w) of the maps that a model of timm makes of pictures of a size, as `describe` does.

    Raises:
        ConfigError: As `describe`.
    """  # noqa: DOC502  raised by `_probe`
    return _probe(model, size)[2]


@cache
def _probe(model: str, size: int) -> tuple[dict[str, Any], bool, tuple[int, int, int]]:
    """Return options of `timm.create_model`, whether it pools maps itself, and their (D, h, w).

    Raises:
        ConfigError: As `describe` says.
    """
    import timm  # two seconds of imports that the small network need not pay

    try:
        with torch.device("meta"):
            timm.create_model(model, num_classes=0)
    except RuntimeError as error:
        raise ConfigError(f"backbone.model: timm has no model {model!r} ({error})") from error
    reason = ""
    for form in _OPTIONS:
        options = {name: size if value is None else value for name, value in form.items()}
        for device in ("meta", "cpu"):  # some models compute with numbers where they are built
            try:
                with torch.device(device), torch.no_grad():
                    module = TimmBackbone(model, options, 0, False).eval()
                    maps = module(torch.zeros(1, 3, size, size))
                    own = module.pools_maps(torch.zeros(1, 3, size, size))
            except Exception as error:  # each family refuses a size, or an argument, in its own way
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                continue
            return options, own, tuple(maps.shape[1:])  # pyright: ignore
    usual = timm.models.get_pretrained_cfg(model)
    if usual is None or usual.input_size[1] == size:
        raise ConfigError(f"backbone.model: {model} gives no maps of places that a head could read ({reason})")
    own = usual.input_size[1]
    raise ConfigError(f"backbone.model: {model} takes no pictures of {size} pixels; its own size is {own} ({reason})")


def ask_hub(model: str) -> str | None:
    """Ask the model hub for a model's weights, without downloading them.

    Args:
        model: timm's name.

    Returns:
        Why they cannot be had; None where they can, or lie in the hub's cache.
    """
    import huggingface_hub
    import timm

    weights = timm.models.get_pretrained_cfg(model)
    if weights is None or not weights.has_weights:
        return f"timm names no weights for {model!r}"
    if not weights.hf_hub_id:  # an address that is no hub's
        return None
    name = weights.hf_hub_filename or "model.safetensors"
    if isinstance(huggingface_hub.try_to_load_from_cache(weights.hf_hub_id, name), str):
        return None
    try:
        huggingface_hub.get_hf_file_metadata(huggingface_hub.hf_hub_url(weights.hf_hub_id, name), timeout=10)
    except Exception as error:  # the hub's client raises its own zoo of errors when it is offline
        return f"the hub does not give {model!r} ({type(error).__name__})"
    return None


class TimmBackbone(nn.Module):
    """A timm model without its classifier.

    Args:
        model: timm's model name.
        options: Arguments of `timm.create_model`, as `describe` returns them.
        width: Channels of the maps, D.
        own_pool: Whether the model pools maps to their own width, and so is asked for the features.
    """

    def __init__(self, model: str, options: dict[str, Any], width: int, own_pool: bool) -> None:
        super().__init__()
        import timm

        self.model: Any = timm.create_model(model, pretrained=False, num_classes=0, **options)
        self.width, self._own_pool = width, own_pool

    def forward(self, images: Tensor) -> Tensor:
        """Return the last maps, (B, D, h, w), of (B, 3, H, W) normalised images.

        Of a transformer with a class token D is twice its width: the token stands beside the patch at each place, so
        that the mean over places is the class token and the mean of the patches.

        Raises:
            ValueError: The model answers no square map of places.
        """
        answer = self.model.forward_features(images)
        if answer.ndim == 4:
            return answer.permute(0, 3, 1, 2) if getattr(self.model, "output_fmt", "NCHW") == "NHWC" else answer
        patches = answer[:, int(getattr(self.model, "num_prefix_tokens", None) or 0) :]
        side = math.isqrt(patches.shape[1])
        if side * side != patches.shape[1] or side < 2:
            raise ValueError(f"answers {patches.shape[1]} tokens of places, which are no square map")
        maps = patches.transpose(1, 2).unflatten(2, (side, -1))
        if getattr(self.model, "cls_token", None) is None:
            return maps
        return torch.cat([answer[:, 0, :, None, None].expand_as(maps), maps], dim=1)

    def pool(self, maps: Tensor) -> Tensor:
        """Return pooled (B, D) features: by the model's own pooling where it is one of maps, else their mean."""
        return self.model.forward_head(maps, pre_logits=True) if self._own_pool else maps.mean((2, 3))

    def pools_maps(self, images: Tensor) -> bool:
        """Return whether the model answers (B, D, h, w) maps and pools them to D features."""
        maps = self.model.forward_features(images)
        if maps.ndim != 4 or getattr(self.model, "output_fmt", "NCHW") == "NHWC":
            return False
        return self.model.forward_head(maps, pre_logits=True).shape == maps.shape[:2]
