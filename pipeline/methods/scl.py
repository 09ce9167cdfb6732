"""SCL: expected negatives, consistent place by place.

loss = EN + weight_consistency * mean over B*C*h*w of (q - r)^2, or of |q - r|: q = sigmoid of the class map, r what
past epochs saw there, without gradient; 0 at a place that no earlier epoch covered, so in the first one. Each image has
a ``size`` x ``size`` grid of heat of each class over its whole area. r is that grid, bilinear, under the view's crop
and flip. A step writes decay * old + (1 - decay) * q, q bilinear, into the cells whose centre the crop covers; a cell
covered for the first time takes q, one outside the crop stays.
EN: -log p where observed; -log(1 - p) on the expected negatives of the epoch, 0 on other unknown cells; mean over B*C.
Before an epoch, the N - N_c images of class c with the lowest average become its expected negatives, hard and anew each
time; observed positives among them stay positive. average = decay * average + (1 - decay) * p, once an epoch, with the
p of that epoch's training step; it starts as the first epoch's p.
Source: Verelst et al., "Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label Annotations",
WACV 2023, https://arxiv.org/abs/2203.06127.
Authors' code: none is public.
The paper's text was not at hand: EN is that of Chen et al., IJCAI 2024, Appendix B, Eq. 20; the consistency loss is
written from the abstract.
Published: no constant is known. The paper trains on random resized crops, of unknown size.
Guess: weight_consistency 1, the square, size, bilinear sampling of heat in [0, 1], one decay for heat and average;
decay 0.8; N_c = k N n_c / m, rounded, at most N, with n_c observed positives of class c, m of all classes and k labels
per image, so k n_c where every image has one; p of the augmented view in training mode; where the average starts; the
first epoch, in which every unknown cell is negative (or none, by ``first``).
Differs: an image known to lack the class, which single positives do not tell, is among the first to be chosen.
Outside training there is no heat at hand: the consistency term is 0 in an audit or a loss landscape.
"""

import shutil
from math import prod
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from tqdm import tqdm

from pipeline.core import hdf5
from pipeline.core.errors import ConfigError
from pipeline.methods.shared.expected_negatives import ConsistencySettings, ExpectedNegatives
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs

UNCOVERED = 0.0
"""Heat of a cell that no crop has covered; a new file is full of it."""
LOWEST = float(np.finfo(np.float32).tiny)  # so that heat is never taken for UNCOVERED
CHUNK = 1024  # rows copied at once; 64 MB at 20 classes on 28 x 28


class Settings(ConsistencySettings):
    """Settings of SCL; the heat has the decay of the average."""

    size: Annotated[int, Field(ge=1)]
    """Side of the stored grid; two files of N*C*size*size numbers of 4 bytes."""


class ConsistentMaps(ExpectedNegatives):
    """Expected negatives plus consistency with stored heat; `past` holds averages and the negatives in force.

    Heat lies in two files: an epoch reads the one of the epoch before and writes its own, by parity. So whatever an
    interrupted epoch wrote, the state after the last checkpointed one is whole, and resuming repeats the epoch.
    """

    Settings = Settings
    needs = {"maps", "geometry", "disk", "expected_positives"}
    coupled = True

    def __init__(self, settings: Settings, problem: Problem):
        super().__init__(settings, problem)
        self.heat: list[np.memmap] = []

    def open_disk(self, folder: Path) -> None:
        """Open the two files of heat, after saying what they take.

        Args:
            folder: Folder of the run's own, which may hold them.

        Raises:
            ConfigError: The disk has too little room.
        """
        shape = (self.problem.n, len(self.problem.classes), self.settings.size, self.settings.size)
        paths = [folder / f"heat_{parity}.f32" for parity in (0, 1)]
        need, free = 2 * prod(shape) * 4, shutil.disk_usage(folder).free
        held = sum(path.stat().st_blocks * 512 for path in paths if path.exists())  # a new file is sparse
        sizes = " x ".join(map(str, (2, *shape, 4)))
        line = f"heat maps: {sizes} bytes are {need / 1e9:.3g} GB in {folder}, which has {free / 1e9:.3g} GB free"
        if need - held > free:
            raise ConfigError(f"{line}; set SPML_SCRATCH to a larger disk, or lower `size`")
        tqdm.write(line)
        self.heat = [hdf5.open_array(path, shape, "float32") for path in paths]

    def flush(self) -> None:
        """Carry over the heat of rows that the epoch left out, and write its file through."""
        if not self.heat:
            return
        before, now = self._files()
        left_out = np.flatnonzero(~self.past.met.cpu().numpy())
        for start in range(0, len(left_out), CHUNK):
            rows = left_out[start : start + CHUNK]
            now[rows] = before[rows]
        now.flush()

    def forward(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Return `risk` and `consistency` and, while training, keep predictions and heat.

        Args:
            outputs: Logits, class maps and geometry of one view.
            observed: (B, C) int8 labels.
            index: (B,) int64 rows of the training split.

        Returns:
            The mean risk of EN, and the weighted mean distance to the heat: 0 in eval mode and without a disk.
        """
        consistency = outputs.logits.new_zeros(())
        if self.training and self.heat:
            assert outputs.maps is not None and outputs.geometry is not None  # `needs` asks for them
            consistency = self._consistency(torch.sigmoid(outputs.maps[0]), outputs.geometry[0], index)
        return {
            **super().forward(outputs, observed, index),
            "consistency": self.settings.weight_consistency * consistency,
        }

    def _files(self) -> tuple[np.memmap, np.memmap]:
        """Return the heat after the epoch before, and that of this one."""
        return self.heat[(self.epoch + 1) % 2], self.heat[self.epoch % 2]

    def _consistency(self, maps: Tensor, geometry: Tensor, index: Tensor) -> Tensor:
        """Compare (B, C, h, w) heat with what is stored, and store it.

        Args:
            maps: (B, C, h, w) heat in [0, 1], with gradient.
            geometry: (B, 5) crop boxes and flips.
            index: (B,) rows.

        Returns:
            Scalar mean distance.
        """
        before, now = self._files()
        size, (height, width) = self.settings.size, maps.shape[2:]
        rows, places = index.cpu().numpy(), geometry.cpu().double()
        # a row that no epoch has met has no heat, whatever an abandoned run left in the files
        seen = self.past.seen[index].view(-1, 1, 1, 1)
        old = torch.from_numpy(np.asarray(before[rows])).to(maps) * seen
        covered = old[:, :1] > UNCOVERED
        sample = [weights.to(maps) for weights in view_of_grid(places, height, width, size)]
        target = resample(old, *sample)
        known = resample(covered.to(maps.dtype), *sample) > 0.999  # all four neighbours have heat
        gap = maps - target
        charged = gap.abs() if self.settings.distance == "absolute" else gap**2
        with torch.no_grad():
            spread = [weights.to(maps) for weights in grid_of_view(places, size, height, width)]
            fresh = resample(maps, *spread).clamp(min=LOWEST)
            down, across = (weights.sum(2) > 0 for weights in spread)
            inside = down.view(-1, 1, size, 1) & across.view(-1, 1, 1, size)
            renewed = torch.where(covered, torch.lerp(fresh, old, self.settings.decay).clamp(min=LOWEST), fresh)
            now[rows] = torch.where(inside, renewed, old).float().cpu().numpy()
        return torch.where(known, charged, 0).mean()


def resample(maps: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Mix the rows and the columns of maps.

    Args:
        maps: (B, C, h, w) maps.
        rows: (B, h', h) weights.
        columns: (B, w', w) weights.

    Returns:
        (B, C, h', w') maps.
    """
    return torch.einsum("bih,bchw,bjw->bcij", rows, maps, columns)


def view_of_grid(geometry: Tensor, height: int, width: int, size: int) -> tuple[Tensor, Tensor]:
    """Return the weights that take the grid of the whole image to the map of a view.

    Args:
        geometry: (B, 5) crop boxes in fractions of the image, and flips.
        height: h of the view's map.
        width: w of the view's map.
        size: Side of the grid.

    Returns:
        (B, h, size) and (B, w, size) bilinear weights, each row summing to 1; beyond the outermost centres of the grid
        its border holds.
    """
    left, top, right, bottom, flip = geometry.unsqueeze(2).unbind(1)  # (B, 1) each
    across = _centres(width, geometry)
    across = torch.where(flip > 0, 1 - across, across)
    return (
        _linear(top + _centres(height, geometry) * (bottom - top), size),
        _linear(left + across * (right - left), size),
    )


def grid_of_view(geometry: Tensor, size: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the weights that lay the map of a view on the grid of the whole image.

    Args:
        geometry: (B, 5) crop boxes in fractions of the image, and flips.
        size: Side of the grid.
        height: h of the view's map.
        width: w of the view's map.

    Returns:
        (B, size, h) and (B, size, w) bilinear weights, each row summing to 1, or to 0 where the crop does not cover the
        centre of the grid's row or column.
    """
    left, top, right, bottom, flip = geometry.unsqueeze(2).unbind(1)  # (B, 1) each
    down = (_centres(size, geometry) - top) / (bottom - top)
    across = (_centres(size, geometry) - left) / (right - left)
    mirrored = torch.where(flip > 0, 1 - across, across)
    return (
        _linear(down, height) * ((down >= 0) & (down < 1)).unsqueeze(2),
        _linear(mirrored, width) * ((across >= 0) & (across < 1)).unsqueeze(2),
    )


def _centres(n: int, like: Tensor) -> Tensor:
    """Return the (1, n) centres of n equal parts of [0, 1]."""
    return ((torch.arange(n, dtype=like.dtype) + 0.5) / n).unsqueeze(0)


def _linear(places: Tensor, n: int) -> Tensor:
    """Return the (B, m, n) weights of linear interpolation at (B, m) places of [0, 1] between the n centres."""
    at = (places * n - 0.5).clamp(0, n - 1)
    return (1 - (at.unsqueeze(2) - torch.arange(n, dtype=places.dtype)).abs()).clamp(min=0)


METHOD = ConsistentMaps
