"""Pools: what makes one feature vector of the places of a backbone's map, and what each place is worth alone.

``mean`` is the backbone's own pooling, the mean over places unless a model brings another; ``sqrt`` is the mean of the
signed roots sign(x) (sqrt(|x| + 1e-4) - 0.01), which counts how often a channel answers more than how strongly, and
``top4`` the mean of the four largest values of a channel. Several are concatenated.
Source: ours; signed square roots of pooled features are those of Perronnin et al., ECCV 2010 (power normalisation).
"""

from typing import Protocol

import torch
from torch import Tensor

from pipeline.networks.settings import Pool

ROUNDING = 1e-4
"""What is added inside the root: without it the slope at 0 has no bound, and a network cannot train through it."""
LARGEST = 4
"""Places that ``top4`` averages; all of them where a map has fewer."""


class Pooling(Protocol):
    """A backbone, as far as pooling goes."""

    def pool(self, maps: Tensor) -> Tensor:
        """Return (B, D) features of (B, D, h, w) maps."""
        ...


def pool(backbone: Pooling, maps: Tensor, pools: list[Pool]) -> Tensor:
    """Return the features of images.

    Args:
        backbone: Has the pooling of its own that ``mean`` stands for.
        maps: (B, D, h, w) maps.
        pools: Names, at least one.

    Returns:
        (B, D * len(pools)) features.
    """
    return torch.cat([_one(backbone, maps, name) for name in pools], dim=1)


def at_places(backbone: Pooling, maps: Tensor, pools: list[Pool]) -> Tensor:
    """Return what the pools make of each place alone, as of a map of one place.

    Args:
        backbone: As in `pool`.
        maps: (B, D, h, w) maps.
        pools: Names, at least one.

    Returns:
        (B, D * len(pools), h, w) features of places.
    """
    places = maps.permute(0, 2, 3, 1).flatten(0, 2)[..., None, None]  # (B*h*w, D, 1, 1)
    return pool(backbone, places, pools).unflatten(0, (maps.shape[0], *maps.shape[2:])).permute(0, 3, 1, 2)


def _one(backbone: Pooling, maps: Tensor, name: Pool) -> Tensor:
    """Return (B, D) features by one pool."""
    if name == "mean":
        return backbone.pool(maps)
    if name == "sqrt":
        return (maps.sign() * ((maps.abs() + ROUNDING).sqrt() - ROUNDING**0.5)).mean((2, 3))
    flat = maps.flatten(2)
    return flat.topk(min(LARGEST, flat.shape[2]), dim=2).values.mean(2)
