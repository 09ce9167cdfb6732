"""The whole way from pixels to scores as one network, for prediction here and for ONNX."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from pipeline.networks.network import Network


class Scores(NamedTuple):
    """What is said of B pictures and C classes."""

    probabilities: Tensor
    """(B, C) in [0, 1]; large ones may be equal where their logits are not."""
    logits: Tensor
    """(B, C), by which thresholds and ranks go."""


class Scorer(nn.Module):
    """Normalises pixels and scores them.

    Args:
        network: A network on images; it is put into eval mode.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(network.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(network.std).view(3, 1, 1), persistent=False)
        self.eval()

    def forward(self, images: Tensor) -> Scores:
        """Return the scores of (B, H, W, 3) uint8 RGB pictures."""
        scaled = images.permute(0, 3, 1, 2).to(torch.float32).div(255)
        logits = self.network(scaled.sub(self.mean).div(self.std))["logits"].float()
        return Scores(torch.sigmoid(logits), logits)
