"""Inputs of a network: cached features or packed images, as training views or as they are.

Both kinds answer the same two questions: ``views`` for a training batch and ``plain`` for evaluation.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.core import seeds
from pipeline.core.errors import ConfigError
from pipeline.training import augment
from pipeline.training.settings import StrongView


class Rows(Protocol):
    """An array by row, in memory or on disk, as packed pixels and features of places are."""

    def __getitem__(self, rows: np.ndarray, /) -> np.ndarray:
        """Return a copy of (B,) row numbers, in their order."""
        ...


class Inputs(Protocol):
    """The images of one split, as a network reads them."""

    @property
    def provides(self) -> frozenset[str]:
        """Words of a method's ``needs`` that these inputs meet."""
        ...

    def __len__(self) -> int:
        """Return the number of images."""
        ...

    def views(self, index: np.ndarray, names: tuple[str, ...], seed: int, epoch: int) -> Tensor:
        """Return the views of a batch, all of the first view, then all of the second: (V*B, ...)."""
        ...

    def geometry(self, index: np.ndarray, names: tuple[str, ...], seed: int, epoch: int) -> Tensor:
        """Return where those views lie in the whole image, (V, B, 5); see `Outputs`."""
        ...

    def plain(self, index: np.ndarray) -> Tensor:
        """Return the images of a batch without augmentation: (B, ...)."""
        ...


class Picked:
    """Some rows of an array.

    Args:
        array: The array.
        rows: (N,) row numbers.
    """

    def __init__(self, array: Rows, rows: np.ndarray) -> None:
        self._array, self._rows = array, rows

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        """Return a copy of (B,) of these rows."""
        return self._array[self._rows[index]]


class FeatureInputs:
    """Cached features, held in memory and indexed, those of places on disk; half precision is promoted when read.

    Args:
        features: (N, D) features.
        mirrored: (N, D) features of the mirrored images, or None.
        flip: Whether a training view takes the mirrored features with probability 0.5.
        places: (N, D, h, w) features of places, which are read for evaluation, batch by batch; or None.

    Raises:
        ConfigError: ``flip`` without mirrored features.
    """

    def __init__(
        self, features: np.ndarray, mirrored: np.ndarray | None, flip: bool, places: Rows | None = None
    ) -> None:
        if flip and mirrored is None:
            raise ConfigError("linear_init.flip: needs the mirrored view in the cache (features.mirrored: true)")
        self.features = torch.from_numpy(features)
        self.mirrored = torch.from_numpy(mirrored) if flip and mirrored is not None else None
        self.evaluated: Rows = features if places is None else places

    provides: frozenset[str] = frozenset()

    def __len__(self) -> int:
        """Return N."""
        return len(self.features)

    def geometry(self, index: np.ndarray, names: tuple[str, ...], seed: int, epoch: int) -> Tensor:
        """Raise an error: a feature has no place in an image.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError("cached features have no geometry: train this method on images")

    def views(self, index: np.ndarray, names: tuple[str, ...], seed: int, epoch: int) -> Tensor:
        """Return (B, D) features; see `Inputs`.

        Args:
            index: (B,) rows.
            names: Views; the cache has the weak one only.
            seed: The run's seed.
            epoch: Epoch, from 1.

        Returns:
            (B, D) float32.

        Raises:
            ConfigError: A view other than the weak one is asked for.
        """
        if names != ("weak",):
            raise ConfigError(f"cached features have no view {names}: train this method on images")
        rows = torch.from_numpy(index)
        features = self.features[rows]
        if self.mirrored is not None:
            flip = torch.from_numpy(augment.draw_flips(len(self), seed, epoch, "weak"))[rows, None]
            features = torch.where(flip, self.mirrored[rows], features)
        return features.float()

    def plain(self, index: np.ndarray) -> Tensor:
        """Return (B, D) float32 features of (B,) rows, or (B, D, h, w) of their places."""
        return torch.from_numpy(self.evaluated[index]).float()


class ImageInputs:
    """Packed images of one split.

    Args:
        pixels: Packed pixels, by table row.
        rows: (N,) table rows of the split.
        mean: Channel means of the normalisation, in [0, 1].
        std: Channel deviations.
        flip: Whether views are mirrored with probability 0.5.
        crop: Smallest area of the weak view's random crop, as a fraction of the image's; 1: none.
        strong: Settings of the strong view, or None.
    """

    def __init__(
        self,
        pixels: Rows,
        rows: np.ndarray,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        *,
        flip: bool = False,
        crop: float = 1.0,
        strong: StrongView | None = None,
    ) -> None:
        self.pixels, self.rows, self.flip = pixels, rows, flip
        self.crop = {"weak": crop, "strong": strong.crop if strong else 1.0}
        self.mean, self.std = torch.tensor(mean).view(3, 1, 1), torch.tensor(std).view(3, 1, 1)
        self.strong = augment.StrongAugmentation(strong) if strong else None
        self._boxes_drawn: dict[tuple, np.ndarray] = {}

    provides: frozenset[str] = frozenset({"geometry"})

    def __len__(self) -> int:
        """Return N."""
        return len(self.rows)

    def _read(self, index: np.ndarray) -> Tensor:
        return torch.from_numpy(self.pixels[self.rows[index]]).permute(0, 3, 1, 2).contiguous()  # (B, 3, H, W)

    def plain(self, index: np.ndarray) -> Tensor:
        """Return (B, 3, H, W) normalised images of (B,) rows."""
        return augment.normalise(self._read(index), self.mean, self.std)

    def views(self, index: np.ndarray, names: tuple[str, ...], seed: int, epoch: int) -> Tensor:
        """Return normalised views; see `Inputs`.

        Args:
            index: (B,) rows of the split.
            names: Views: "weak" (flip) or "strong".
            seed: The run's seed.
            epoch: Epoch, from 1.

        Returns:
            (V*B, 3, H, W) float32.

        Raises:
            ConfigError: An unknown view, or a strong one without settings.
        """
        images = self._read(index)
        views = []
        for position, name in enumerate(names):
            stream = f"{name}_{position}"
            view = images
            if self._crops(name):
                view = augment.crop_and_resize(view, self._boxes(images.shape, index, name, position, seed, epoch))
            if self.flip:
                mirrored = torch.from_numpy(augment.draw_flips(len(self), seed, epoch, stream)[index])
                view = torch.where(mirrored.view(-1, 1, 1, 1), view.flip(3), view)
            if name == "strong":
                if self.strong is None:
                    raise ConfigError("strong: a method of two views needs the settings of the strong view")
                own_seeds = [seeds.derive_seed(seed, stream, epoch, int(row)) for row in index]
                view = torch.stack([self.strong(image, own) for image, own in zip(view, own_seeds, strict=True)])
            elif name != "weak":
                raise ConfigError(f"no view is called {name!r}; there are weak and strong")
            views.append(view)
        return augment.normalise(torch.cat(views), self.mean, self.std)

    def geometry(self, index: np.ndarray, names: tuple[str, ...], seed: int, epoch: int) -> Tensor:
        """Return where the views of a batch lie in the whole image.

        Args:
            index: (B,) rows of the split.
            names: Views, as given to `views`.
            seed: The run's seed.
            epoch: Epoch, from 1.

        Returns:
            (V, B, 5) float32: crop box (left, top, right, bottom, as fractions of the image's width and height), then
            whether the cropped view was mirrored, 0 or 1.
        """
        height, width = self.pixels[self.rows[:1]].shape[1:3]
        shape, whole = (len(index), 3, height, width), np.array([width, height, width, height])
        geometry = []
        for position, name in enumerate(names):
            boxes = self._boxes(shape, index, name, position, seed, epoch)
            mirrored = np.zeros(len(index), bool)
            if self.flip:
                mirrored = augment.draw_flips(len(self), seed, epoch, f"{name}_{position}")[index]
            geometry.append(torch.from_numpy(np.column_stack([boxes / whole, mirrored]).astype(np.float32)))
        return torch.stack(geometry)

    def _crops(self, name: str) -> bool:
        return self.crop.get(name, 1.0) < 1

    def _boxes(
        self, shape: tuple[int, ...], index: np.ndarray, name: str, position: int, seed: int, epoch: int
    ) -> np.ndarray:
        """Return the (B, 4) crop boxes of one view of (B, 3, H, W) images."""
        height, width = shape[2:]
        if not self._crops(name):
            return np.tile(np.array([0, 0, width, height]), (len(index), 1))
        draw = (len(self), height, width, self.crop[name], seed, epoch, f"{name}_{position}")
        if (
            draw not in self._boxes_drawn
        ):  # of this epoch alone: a split's boxes take milliseconds, and every batch asks
            self._boxes_drawn = {key: boxes for key, boxes in self._boxes_drawn.items() if key[5] == epoch}
            self._boxes_drawn[draw] = augment.draw_boxes(*draw)
        return self._boxes_drawn[draw][index]


class Subset:
    """Some rows of other inputs.

    Args:
        inputs: The other inputs.
        rows: (N,) rows of them.
    """

    def __init__(self, inputs: Inputs, rows: np.ndarray) -> None:
        self.inputs, self.rows = inputs, rows

    @property
    def provides(self) -> frozenset[str]:
        """What the other inputs provide."""
        return self.inputs.provides

    def __len__(self) -> int:
        """Return N."""
        return len(self.rows)

    def views(self, index: np.ndarray, names: tuple[str, ...], seed: int, epoch: int) -> Tensor:
        """Return the views that the other inputs give of these rows; see `Inputs`."""
        return self.inputs.views(self.rows[index], names, seed, epoch)

    def geometry(self, index: np.ndarray, names: tuple[str, ...], seed: int, epoch: int) -> Tensor:
        """Return where those views lie; see `Inputs`."""
        return self.inputs.geometry(self.rows[index], names, seed, epoch)

    def plain(self, index: np.ndarray) -> Tensor:
        """Return these rows without augmentation; see `Inputs`."""
        return self.inputs.plain(self.rows[index])


def batches(n: int, batch_size: int, order: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Yield an order of rows, cut into batches.

    Args:
        n: Rows.
        batch_size: Rows a batch; the last one may be smaller.
        order: (n,) permutation; None: ascending.

    Yields:
        (B,) int64 rows.
    """
    order = np.arange(n) if order is None else order
    for start in range(0, n, batch_size):
        yield order[start : start + batch_size]


@torch.inference_mode()
def predict(network: nn.Module, inputs: Inputs, batch_size: int, device: torch.device) -> np.ndarray:
    """Return eval-mode logits of a whole split; the network is left in the mode in which it came.

    Args:
        network: Answers a dict with ``logits``.
        inputs: The split.
        batch_size: Images a forward pass.
        device: Where the network is.

    Returns:
        (N, C) float32 logits, in row order.
    """
    modes = [(module, module.training) for module in network.modules()]  # frozen batch norm differs from the rest
    network.eval()
    parts = []
    for index in batches(len(inputs), batch_size):
        parts.append(network(inputs.plain(index).to(device))["logits"].float().cpu())
    for module, training in modes:
        module.training = training
    return torch.cat(parts).numpy()
