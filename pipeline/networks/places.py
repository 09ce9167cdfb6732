"""Linear layer that is trained on pooled features and scores an image by its places.

Trained: logit = the layer on the pooled features. Evaluated: the log-mean-exp of the layer's logits z_p at P places,

    (1 / k) log (1 / P) sum_p exp(k z_p),

between their mean (k = 0) and the largest. A small object fills few places: pooled features are mostly of the rest.
Source: log-mean-exp pooling of Pinheiro and Collobert, "From Image-level to Pixel-level Labeling with Convolutional
Networks", CVPR 2015, there in training too; scoring alone by it is ours.
"""

import math

import torch
from torch import Tensor, nn

from pipeline.networks.linear import class_maps


class PlacesHead(nn.Module):
    """Linear classifier that scores by places.

    Args:
        width: D, features of an image, and of a place.
        classes: C.
        sharpness: k, in units of one by logit.
    """

    def __init__(self, width: int, classes: int, *, sharpness: float):
        super().__init__()
        self.linear = nn.Linear(width, classes)
        self.sharpness = sharpness

    def forward(self, maps: Tensor | None, pooled: Tensor) -> dict[str, Tensor]:
        """Classify.

        Args:
            maps: (B, D, h, w) features of places, or None where only pooled features are at hand.
            pooled: (B, D) pooled features.

        Returns:
            ``logits`` (B, C), pooled ones in training and where there are no maps, ``features`` (B, D) and, where there
            are maps, ``maps`` (B, C, h, w), the logits of places.
        """
        if maps is None:
            return {"logits": self.linear(pooled), "features": pooled}
        places = class_maps(maps, self.linear.weight, self.linear.bias)
        logits = self.linear(pooled) if self.training else log_mean_exp(places, self.sharpness)
        return {"logits": logits, "features": pooled, "maps": places}


def log_mean_exp(places: Tensor, sharpness: float) -> Tensor:
    """Return the (B, C) log-mean-exp of (B, C, h, w) logits of places.

    Args:
        places: The logits.
        sharpness: k above 0.
    """
    flat = places.flatten(2)
    return (torch.logsumexp(sharpness * flat, dim=2) - math.log(flat.shape[2])) / sharpness
