"""One linear layer on pooled features: the head of the papers' plain protocol.

Source: Cole et al., "Multi-Label Learning from Single Positive Labels", CVPR 2021; torch's default initialisation.
Differs: features may be scaled to unit mean square first, image by image (``scale``), which the papers do not.
"""

from math import sqrt

import torch
from torch import Tensor, nn


class LinearHead(nn.Module):
    """Linear classifier.

    Args:
        width: D, features of an image.
        classes: C.
        scale: ``none``, or ``unit``: see `scale_features`.
    """

    def __init__(self, width: int, classes: int, *, scale: str):
        super().__init__()
        self.linear = nn.Linear(width, classes)
        self.scale = scale

    def forward(self, maps: Tensor | None, pooled: Tensor) -> dict[str, Tensor]:
        """Classify.

        Args:
            maps: (B, D, h, w) feature maps, or None where only cached features are at hand.
            pooled: (B, D) pooled features.

        Returns:
            ``logits`` (B, C), ``features`` (B, D) as they are pooled and, where there are maps, ``maps`` (B, C, h, w):
            the layer at each place, whose mean is the logit where pooling is a mean.
        """
        scaled, places = scale_features(pooled, maps, self.scale)
        answer = {"logits": self.linear(scaled), "features": pooled}
        if places is None:
            return answer
        return {**answer, "maps": class_maps(places, self.linear.weight, self.linear.bias)}


def scale_features(pooled: Tensor, maps: Tensor | None, scale: str) -> tuple[Tensor, Tensor | None]:
    """Scale the features of each image, and its maps by the same factor.

    Args:
        pooled: (B, D) pooled features.
        maps: (B, D, h, w) feature maps, or None.
        scale: ``none``: as they are; ``unit``: by sqrt(D) / |pooled|, so that the features have a mean square of 1 and
            steps of the weights move logits as far as on features of that size; those of length 0 stay 0.

    Returns:
        Features and maps.
    """
    if scale == "none":
        return pooled, maps
    length = torch.linalg.vector_norm(pooled, dim=1, keepdim=True)
    nought = length <= torch.finfo(length.dtype).tiny
    factor = sqrt(pooled.shape[1]) / torch.where(nought, sqrt(pooled.shape[1]), length)
    return pooled * factor, None if maps is None else maps * factor[:, :, None, None].to(maps.dtype)


def class_maps(maps: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply a linear layer at every place of a feature map.

    Args:
        maps: (B, D, h, w) feature maps.
        weight: (C, D) weights.
        bias: (C,) biases.

    Returns:
        (B, C, h, w) class maps.
    """
    return torch.einsum("bdhw,cd->bchw", maps, weight.to(maps.dtype)) + bias.view(-1, 1, 1).to(maps.dtype)
