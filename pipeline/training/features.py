"""The feature cache: what a frozen backbone makes of every packed image, in eval mode and without augmentation."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from pipeline.training.inputs import ImageInputs, batches


def extract(
    backbone: nn.Module, images: ImageInputs, batch_size: int, device: torch.device, *, mirrored: bool, name: str
) -> Iterator[np.ndarray]:
    """Yield pooled features, batch by batch, in row order.

    Args:
        backbone: Maps images to maps and pools them.
        images: The images.
        batch_size: Images a forward pass.
        device: Where to compute.
        mirrored: Whether the left-right mirrored images are read instead.
        name: Label of the progress bar.

    Yields:
        (B, D) float32 features.
    """
    backbone.to(device).eval()
    cut = list(batches(len(images), batch_size))
    with torch.inference_mode():
        for index in tqdm(cut, name, disable=None):
            picture = images.plain(index).to(device)
            picture = picture.flip(3) if mirrored else picture
            yield backbone.pool(backbone(picture)).float().cpu().numpy()  # type: ignore[operator]
