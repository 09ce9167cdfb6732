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
    """(V, B, C, h, w) class maps, logits by place, whose mean over places is the logit (before any boost)."""
    geometry: Tensor | None = None
    """(V, B, 5) crop box (left, top, right, bottom, as fractions of the whole image's width and height, in [0, 1]) and
    whether the cropped view was mirrored, 0 or 1. The whole image is (0, 0, 1, 1, 0)."""
    posterior: Tensor | None = None
    """(V, B, C, 2, D) mean and raw scale of a bottleneck on each label."""
    parameters: tuple[Tensor, ...] | None = None
    """The network's weights in training: its parameters of two or more axes, head and backbone; no view axis."""


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
    width: int | None = None
    """D, width of the backbone's features; None where no network is at hand."""
    observed_absences: int = 0
    """Cells of the training split that are known to be absent."""
