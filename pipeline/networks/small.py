"""The small convolutional network of the embedded default: stride 8, so a 48 px scene gives a 6 x 6 map."""

import torch
from torch import nn


def _block(inside: int, outside: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)
    )


class SmallBackbone(nn.Module):
    """Five convolutions with batch norm.

    Args:
        width: Channels D of the last map; a multiple of 4.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.layers = nn.Sequential(
            _block(3, width // 4, 2),
            _block(width // 4, width // 2, 2),
            _block(width // 2, width // 2, 1),
            _block(width // 2, width, 2),
            _block(width, width, 1),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return (B, D, H / 8, W / 8) maps of (B, 3, H, W) normalised images."""
        return self.layers(images)

    def pool(self, maps: torch.Tensor) -> torch.Tensor:
        """Return (B, D) features: the spatial mean of (B, D, h, w) maps."""
        return maps.mean((2, 3))
