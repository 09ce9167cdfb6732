"""One linear layer on pooled features: the head of the papers' plain protocol.

Source: Cole et al., "Multi-Label Learning from Single Positive Labels", CVPR 2021; torch's default initialisation.
"""

import torch
from torch import Tensor, nn


class LinearHead(nn.Module):
    """Linear classifier.

    Args:
        width: D, features of an image.
        classes: C.
    """

    def __init__(self, width: int, classes: int):
        super().__init__()
        self.linear = nn.Linear(width, classes)

    def forward(self, maps: Tensor | None, pooled: Tensor) -> dict[str, Tensor]:
        """Classify.

        Args:
            maps: (B, D, h, w) feature maps, or None where only cached features are at hand.
            pooled: (B, D) pooled features.

        Returns:
            ``logits`` (B, C), ``features`` (B, D) and, where there are maps, ``maps`` (B, C, h, w): the layer at each
            place, whose mean is the logit where pooling is a mean.
        """
        answer = {"logits": self.linear(pooled), "features": pooled}
        return answer if maps is None else {**answer, "maps": class_maps(maps, self.linear.weight, self.linear.bias)}


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
