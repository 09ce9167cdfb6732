"""Random views of packed images, each drawn from (seed, epoch, row) alone.

No worker, batch or order of images enters a draw, so a resumed run, another number of workers and another batch size
see the same views.
"""

import numpy as np
import torch
from torch import Tensor

from pipeline.core import seeds
from pipeline.training.settings import StrongView


def draw_flips(n: int, seed: int, epoch: int, view: str) -> np.ndarray:
    """Return which images are mirrored, at random.

    Args:
        n: Images.
        seed: The run's seed.
        epoch: Epoch, from 1.
        view: Name of the view; views flip independently.

    Returns:
        (n,) bool, true with probability 0.5.
    """
    return seeds.numpy_generator(seed, "flip", view, epoch).random(n) < 0.5


def draw_boxes(n: int, height: int, width: int, smallest: float, seed: int, epoch: int, view: str) -> np.ndarray:
    """Return random crop boxes, as in random resized cropping.

    Area, aspect ratio in [3/4, 4/3] and place are drawn one after the other. Differs from torchvision's: where a side
    would be longer than the image's, the aspect ratio gives way and the area stays; theirs draws both again.

    Args:
        n: Images.
        height: H, pixels.
        width: W, pixels.
        smallest: Smallest area as a fraction of the image's, in (0, 1].
        seed: The run's seed.
        epoch: Epoch, from 1.
        view: Name of the view; views are cropped independently.

    Returns:
        (n, 4) int64 boxes (left, top, right, bottom; right and bottom exclusive), of at least one pixel, within the
        image; sides are rounded.
    """
    area, ratio, x, y = seeds.numpy_generator(seed, "crop", view, epoch).random((4, n))
    area = (smallest + (1 - smallest) * area) * height * width
    ratio = (4 / 3) ** (2 * ratio - 1)  # width over height, uniform in its logarithm
    ratio = np.clip(ratio, area / height**2, width**2 / area)
    wide = np.clip(np.round(np.sqrt(area * ratio)), 1, width).astype(np.int64)
    high = np.clip(np.round(np.sqrt(area / ratio)), 1, height).astype(np.int64)
    left, top = (x * (width - wide + 1)).astype(np.int64), (y * (height - high + 1)).astype(np.int64)
    return np.column_stack([left, top, left + wide, top + high])


def crop_and_resize(images: Tensor, boxes: np.ndarray) -> Tensor:
    """Return a box of each image, resized to the images' size, bilinearly, with antialiasing.

    Args:
        images: (B, 3, H, W) uint8.
        boxes: (B, 4) boxes as `draw_boxes` returns them.

    Returns:
        (B, 3, H, W) uint8.
    """
    from torchvision.transforms.v2 import functional  # a second of imports that most runs need not pay

    size = list(images.shape[2:])
    crops = [
        functional.resized_crop(image, int(top), int(left), int(bottom - top), int(right - left), size)
        for image, (left, top, right, bottom) in zip(images, boxes, strict=True)
    ]
    return torch.stack(crops)


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return float images (x / 255 - mean) / std.

    Args:
        images: (B, 3, H, W) uint8.
        mean: (3, 1, 1) channel means in [0, 1].
        std: (3, 1, 1) channel deviations, above 0.

    Returns:
        (B, 3, H, W) float32.
    """
    # in place: at 448 pixels each new array of floats costs more than its arithmetic
    return images.to(torch.float32, copy=True).div_(255).sub_(mean).div_(std)


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
        """Return an augmented copy of one image.

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
