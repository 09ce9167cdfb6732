"""Boosted class-map head of BoostLU: a linear layer at every place, its positive values boosted before the mean.

M = the linear layer at every place of the map; logit = the mean over places of factor * M where M > 0 and M elsewhere,
in training and evaluation.
Source: Kim et al., "Bridging the Gap between Model Explanations in Partially Annotated Multi-label Classification",
CVPR 2023, https://arxiv.org/abs/2304.01804.
Authors' code: youngwk/BridgeGapExplanationPAMC @4a1986c, models.py.
Published: factor 5, with LL-R, LL-Ct and LL-Cp. Nothing in it depends on the loss, and it serves any method.
Differs: the layer is that of the linear head, under its names, so that either starts from the other's weights; theirs
is a convolution of one place, which has the same values and the same start.
"""

import torch
from torch import Tensor, nn

from pipeline.networks.linear import class_maps, scale_features


class BoostedHead(nn.Module):
    """Linear classifier on places, with boosted positive evidence.

    Args:
        width: D, channels of the map.
        classes: C.
        factor: alpha on positive values, at least 1; 1 is the linear head where pooling is a mean.
        scale: As of the linear head.
    """

    def __init__(self, width: int, classes: int, *, factor: float, scale: str):
        super().__init__()
        self.linear = nn.Linear(width, classes)
        self.factor, self.scale = factor, scale

    def forward(self, maps: Tensor | None, pooled: Tensor) -> dict[str, Tensor]:
        """Classify.

        Args:
            maps: (B, D, h, w) feature maps.
            pooled: (B, D) pooled features, handed through.

        Returns:
            ``logits`` (B, C), ``features`` (B, D) and ``maps`` (B, C, h, w), the class maps before the boost.

        Raises:
            ValueError: There are no maps, because only pooled features are cached.
        """
        if maps is None:
            raise ValueError(
                "the boosted head reads feature maps: it boosts each place before the mean, and cached features are "
                "pooled; train it on images, from a linear head's weights if need be"
            )
        _, places = scale_features(pooled, maps, self.scale)
        assert places is not None
        plain = class_maps(places, self.linear.weight, self.linear.bias)
        boosted = torch.where(plain > 0, self.factor * plain, plain)
        return {"logits": boosted.mean((2, 3)), "features": pooled, "maps": plain}
