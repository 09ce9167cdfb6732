"""Random views of packed images, each drawn from (seed, epoch, row) alone.

No worker, batch or order of images enters a draw, so a resumed run, another number of workers and another batch size
see the same views.
"""

import numpy as np
import torch
from torch import Tensor

from pipeline import seeds
from pipeline.config import StrongView


def flips(n: int, seed: int, epoch: int, view: str) -> np.ndarray:
    """Draw which images are mirrored.

    Args:
        n: Images.
        seed: The run's seed.
        epoch: Epoch, from 1.
        view: Name of the view; views flip independently.

    Returns:
        (n,) bool, true with probability 0.5.
    """
    return seeds.numpy_generator(seed, "flip", view, epoch).random(n) < 0.5


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return float images (x / 255 - mean) / std.

    Args:
        images: (B, 3, H, W) uint8.
        mean: (3, 1, 1) channel means in [0, 1].
        std: (3, 1, 1) channel deviations, above 0.

    Returns:
        (B, 3, H, W) float32.
    """
    return (images.float() / 255 - mean) / std


class StrongAugmentation:
    """Cutout, RandAugment, colour jitter and greyscale, in the order of LAC's code (Xie 2022, first_stage.py).

    Differs from the source in: operations work on the resized 8-bit image; RandAugment is torchvision's.

    Args:
        settings: Strengths and probabilities.
    """

    def __init__(self, settings: StrongView) -> None:
        from torchvision.transforms import v2  # a second of imports that most runs need not pay

        self.cutout = settings.cutout
        self.recolour = v2.Compose(
            [
                v2.RandAugment(settings.operations, settings.magnitude),
                v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], settings.jitter),
                v2.RandomGrayscale(settings.grayscale),
            ]
        )

    def __call__(self, image: Tensor, seed: int) -> Tensor:
        """Augment one image.

        Args:
            image: (3, H, W) uint8.
            seed: Seed of this image's view.

        Returns:
            (3, H, W) uint8; torch's global stream is left as it was.
        """
        stream = torch.default_generator  # torch.random.fork_rng seeds every device: a third of the view's time
        state = stream.get_state()
        stream.manual_seed(seed)
        try:
            return self.recolour(self._cut(image))
        finally:
            stream.set_state(state)

    def _cut(self, image: Tensor) -> Tensor:
        """Return a copy with one square of one random colour; its centre may lie at the border."""
        height, width = image.shape[-2:]
        half = (torch.tensor([height, width]) * self.cutout / 2).round().int().tolist()
        centre = [int(torch.randint(side, ())) for side in (height, width)]
        colour = torch.randint(0, 256, (3, 1, 1), dtype=torch.uint8)
        image = image.clone()
        rows = slice(max(centre[0] - half[0], 0), centre[0] + half[0])
        columns = slice(max(centre[1] - half[1], 0), centre[1] + half[1])
        image[:, rows, columns] = colour
        return image
