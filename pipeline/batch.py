"""What one training step hands a method, and what a method knows of its problem before training."""

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
    """(V, B, C, h, w) class maps, logits by place."""
    geometry: Tensor | None = None
    """(V, B, 5) crop box (left, top, right, bottom, in pixels of the packed image) and flip, 0 or 1."""
    posterior: Tensor | None = None
    """(V, B, C, 2, D) mean and raw scale of a bottleneck on each label."""
    parameters: Tensor | None = None
    """(V, B, C, 2) raw parameters of a distribution over each label."""


@dataclass(frozen=True)
class Problem:
    """What a method may know before the first step; nothing in it is truth about an image."""

    n: int
    """Training images; ``index`` runs over [0, n)."""
    classes: tuple[str, ...]
    """Class names, in column order."""
    observed_counts: Tensor
    """(C,) int64, observed positives of each class in the training split."""
    expected_positives: float | None
    """Labels per image as given in params, or None where nobody claims to know them."""
