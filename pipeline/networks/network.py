"""A backbone under a head, described so that a weights file is enough to rebuild it."""

from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pipeline.core import files
from pipeline.core.errors import ConfigError, FileError
from pipeline.networks import backbone as backbones
from pipeline.networks import pools
from pipeline.networks.boosted import BoostedHead
from pipeline.networks.bottleneck import BottleneckHead
from pipeline.networks.label_embedding import LabelEmbeddingHead
from pipeline.networks.linear import LinearHead
from pipeline.networks.places import PlacesHead
from pipeline.networks.settings import HEAD_GIVES, Pool


class Network(nn.Module):
    """Images (or cached features, where there is no backbone) to logits.

    Args:
        architecture: ``head`` (settings with ``kind``), ``width`` D, ``classes`` C, ``backbone`` (description with
            ``mean`` and ``std``) or None for a head on cached features, and ``pools`` (`networks.pools`) that make the
            D features of maps; ``mean`` alone where it is absent.
    """

    def __init__(self, architecture: dict[str, Any]) -> None:
        super().__init__()
        self._still: list[nn.Module] = []
        self.architecture = architecture
        description = architecture["backbone"]
        self.backbone = backbones.build(description) if description else None
        head = dict(architecture["head"])
        kind = {
            "linear": LinearHead,
            "places": PlacesHead,
            "boosted": BoostedHead,
            "label_embedding": LabelEmbeddingHead,
            "bottleneck": BottleneckHead,
        }[head.pop("kind")]
        self.head = kind(architecture["width"], architecture["classes"], **head)
        self.pools: list[Pool] = architecture.get("pools", ["mean"])

    @property
    def mean(self) -> tuple[float, ...]:
        """Channel means of the input's normalisation."""
        return tuple(self.architecture["backbone"]["mean"])

    @property
    def std(self) -> tuple[float, ...]:
        """Channel deviations of the input's normalisation."""
        return tuple(self.architecture["backbone"]["std"])

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """Return the head's answer, at least ``logits`` (B, C).

        Args:
            inputs: (B, 3, H, W) normalised images; (B, D) features, or those of places (B, D, h, w), where there is no
                backbone.

        Returns:
            Tensors by name, as `Outputs` calls them.
        """
        if self.backbone is None:
            return self.head(None, inputs) if inputs.ndim == 2 else self.head(inputs, inputs.mean((2, 3)))
        maps = self.backbone(inputs)
        pooled = pools.pool(self.backbone, maps, self.pools)
        if self.pools != ["mean"] or isinstance(self.head, PlacesHead):
            maps = pools.at_places(self.backbone, maps, self.pools)
        return self.head(maps, pooled)

    def provides(self) -> frozenset[str]:
        """Return the words of a method's ``needs`` that this network meets."""
        gives = HEAD_GIVES[self.architecture["head"]["kind"]] | {"parameters"}
        return gives if self.backbone else gives - {"maps"}

    def weights(self) -> tuple[nn.Parameter, ...]:
        """Return the weights in training: parameters of two or more axes, so neither biases nor norm layers."""
        return tuple(each for each in self.parameters() if each.requires_grad and each.ndim > 1)

    def freeze(self, modules: list[str], batch_norm: bool) -> None:
        """Take backbone modules, and batch norm, out of training: weights and running statistics stay as they are.

        Args:
            modules: Whole names of modules of the backbone; all that is in them is frozen.
            batch_norm: Whether batch norm is frozen too.

        Raises:
            ConfigError: The backbone has no module of a name.
        """
        still = self.batch_norms() if batch_norm else []
        for wanted in modules:
            named = self.backbone.named_modules() if self.backbone else ()
            found = [module for name, module in named if name and wanted in (name, name.removeprefix("model."))]
            if not found:
                raise ConfigError(f"freeze: the backbone has no module {wanted!r}")
            still += found
        for module in still:
            module.requires_grad_(False)
        self._still = [each for module in still for each in module.modules() if isinstance(each, _BatchNorm)]
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set the mode, frozen batch norm staying in eval mode.

        Args:
            mode: Whether to train.

        Returns:
            The network.
        """
        super().train(mode)
        for module in self._still:
            module.eval()
        return self

    def batch_norms(self) -> list[nn.Module]:
        """Return the batch norm modules."""
        return [module for module in self.modules() if isinstance(module, _BatchNorm)]

    @torch.no_grad()
    def fewest_rows(self, inputs: Tensor) -> int:
        """Return how many rows a training step needs: two where batch norm in training would see one value a channel.

        Args:
            inputs: (1, ...) one row, as `forward` takes it; the mode is that of training, and nothing is changed.
        """
        lonely: list[bool] = []

        def note(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            lonely.append(given[0].numel() == given[0].shape[1])

        hooks = [each.register_forward_pre_hook(note) for each in self.batch_norms() if each.training]
        if not hooks:
            return 1
        modes = [(module, module.training) for module in self.modules()]
        self.eval()  # no draw, no running statistic
        self(inputs)
        for module, training in modes:
            module.training = training
        for hook in hooks:
            hook.remove()
        return 2 if any(lonely) else 1

    def content(self) -> dict[str, Any]:
        """Return what ``weights.pt`` holds: description and state, on the CPU."""
        return {"architecture": self.architecture, "state": cpu_state(self)}


def cpu_state(module: nn.Module) -> dict[str, Tensor]:
    """Return a copy of a module's state on the CPU."""
    return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}


def on_backbone(path: str | Path, head: dict[str, Any], classes: int, pooled: list[Pool]) -> Network:
    """Put a fresh head on a stored backbone.

    Args:
        path: The backbone's file.
        head: Settings with ``kind``.
        classes: C.
        pooled: Names of the pools between the two.

    Returns:
        The network; the head is drawn from torch's global stream.
    """
    module, description = backbones.load(path)
    sizes = {"width": module.width * len(pooled), "classes": classes}
    network = Network({"backbone": description, "pools": pooled, **sizes, "head": head})
    assert network.backbone is not None
    network.backbone.load_state_dict(module.state_dict())
    return network


def restore(path: str | Path) -> Network:
    """Rebuild a trained network.

    Args:
        path: A ``weights.pt`` of a training stage.

    Returns:
        The network in eval mode.

    Raises:
        FileError: Its description lacks something, as that of an earlier version may.
    """
    content = files.read_torch(path)
    try:
        with torch.random.fork_rng(devices=[]):  # building draws weights that are overwritten at once
            network = Network(content["architecture"])
    except (KeyError, TypeError) as error:
        raise FileError(f"{path}: describes a network that cannot be built ({error}); run its stage again") from error
    network.load_state_dict(content["state"])
    return network.eval()
