"""What a network answers for one batch; methods read it."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Outputs:
    """What the network answered for one batch; every view went through the same forward pass.

    The first axis is the view, in the order of the method's ``views``. ``logits`` is always there; another field may be
    None unless the method's ``needs`` names it.
    """

    logits: Tensor
    """(V, B, C) logits, unbounded."""
    features: Tensor | None = None
    """(V, B, D) pooled backbone features."""
    embeddings: Tensor | None = None
    """(V, B, C, E) label embeddings of unit length."""
    maps: Tensor | None = None
    """(V, B, C, h, w) class maps, logits by place, whose mean over places is the logit (before any boost)."""
    geometry: Tensor | None = None
    """(V, B, 5) crop box (left, top, right, bottom, as fractions of the whole image's width and height, in [0, 1]) and
    whether the cropped view was mirrored, 0 or 1. The whole image is (0, 0, 1, 1, 0)."""
    posterior: Tensor | None = None
    """(V, B, C, 2, D) mean and raw scale of a bottleneck on each label."""
    parameters: tuple[Tensor, ...] | None = None
    """The network's weights in training: its parameters of two or more axes, head and backbone; no view axis."""
