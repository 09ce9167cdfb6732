"""The feature cache: what a frozen backbone makes of every packed image, in eval mode and without augmentation.

The mirrored images' features are those of the training rows: no other split is augmented. Beside the pooled features of
an image those of each of its places may be kept, by which beliefs and heads can score it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from pipeline.core import hdf5
from pipeline.core.errors import ConfigError, FileError
from pipeline.core.progress import track
from pipeline.core.resume import Checkpoint
from pipeline.labels.table import Table
from pipeline.networks import pools
from pipeline.networks.settings import Pool
from pipeline.training.inputs import ImageInputs, batches
from pipeline.training.settings import Features

PLAIN, MIRRORED, PLACES = "features", "features_mirrored", "places"
"""Names of the arrays: one row an image, a training image, and an image again."""
CHUNK = 1 << 20
"""Values that are written at a time."""
AXES = {PLAIN: "image, feature", MIRRORED: "training image, feature", PLACES: "image, feature, row, column"}


class Cache(NamedTuple):
    """What a feature cache holds of a dataset."""

    plain: np.ndarray
    """(N, D) features of all images, in table order."""
    mirrored: np.ndarray | None
    """(N_train, D) features of the mirrored training images, in table order."""
    places: np.ndarray | None
    """(N, D, h, w) features of the places of all images; None where there are none, or nobody asked."""
    pools: list[Pool]
    """What made features of maps."""


class Extractor(NamedTuple):
    """How features are computed."""

    backbone: nn.Module
    """Maps images to maps and pools them; ``width`` is the channels of its maps."""
    pools: list[Pool]
    batch_size: int
    """Images a forward pass."""
    device: torch.device
    dataset: str
    """Name of the dataset, for messages."""

    def shapes(self, images: ImageInputs, places: bool) -> dict[str, tuple[int, ...]]:
        """Return the shape of an image's features, by the name of the array."""
        width = int(self.backbone.width) * len(self.pools)  # type: ignore[arg-type]
        if not places:
            return {PLAIN: (width,)}
        (one,) = self.extract(images, iter([np.arange(1)]), False, True)
        return {name: part.shape[1:] for name, part in one.items()}

    def extract(
        self, images: ImageInputs, cut: Iterator[np.ndarray], mirrored: bool, places: bool = False
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield features, batch by batch.

        Args:
            images: The images.
            cut: (B,) rows of each batch.
            mirrored: Whether the left-right mirrored images are read instead.
            places: Whether those of places are wanted too.

        Yields:
            (B, D) float32 features as `PLAIN` and, where wanted, (B, D, h, w) as `PLACES`.
        """
        backbone: Any = self.backbone
        backbone.to(self.device, memory_format=torch.channels_last).eval()  # faster on a CPU
        wanted = {PLAIN: pools.pool} | ({PLACES: pools.at_places} if places else {})
        with torch.inference_mode():
            for index in cut:
                batch = images.plain(index).to(self.device)
                batch = batch.flip(3) if mirrored else batch
                maps = backbone(batch.contiguous(memory_format=torch.channels_last))
                yield {name: make(backbone, maps, self.pools).float().cpu().numpy() for name, make in wanted.items()}


def compute_features(
    extractor: Extractor, images: ImageInputs, mirrored: np.ndarray | None, places: bool, checkpoint: Checkpoint
) -> dict[str, np.ndarray]:
    """Compute the features of images, or go on where an interrupted run stopped.

    Args:
        extractor: How.
        images: The images.
        mirrored: (N_train,) rows of the images that are mirrored too, or None.
        places: Whether features of places are wanted.
        checkpoint: Where to keep what is done.

    Returns:
        (N, D) float32 features as `PLAIN`, and those asked for as `MIRRORED` (N_train, D) and `PLACES` (N, D, h, w);
        they lie on disk, in the checkpoint's folder.
    """
    done: dict[str, int] = (checkpoint.load() or {}).get("done", {})
    shapes = extractor.shapes(images, places)
    every = np.arange(len(images))
    arrays = {}
    for name, rows in ((PLAIN, every), (MIRRORED, mirrored)):
        if rows is None:
            continue
        mine = {name: shapes[PLAIN]} | ({PLACES: shapes[PLACES]} if places and name == PLAIN else {})
        filled = {
            each: hdf5.open_array(checkpoint.folder / each, (len(rows), *shape), "float32")
            for each, shape in mine.items()
        }
        arrays |= filled
        start = done.get(name, 0)
        cut = [rows[start:][part] for part in batches(len(rows) - start, extractor.batch_size)]
        told = track(cut, f"{extractor.dataset} {name}", len(rows), "image", done=start, size=len)
        for parts in extractor.extract(images, told, name == MIRRORED, PLACES in mine):
            stop = start + len(parts[PLAIN])
            for array, part in zip(filled.values(), parts.values(), strict=True):
                array[start:stop] = part
            start = stop
            if checkpoint.due or start == len(rows):
                for array in filled.values():
                    array.flush()
                done[name] = start
                checkpoint.save({"done": done}, at_once=True)
    return arrays


def write_features(
    path: Path, reads: list[Path], arrays: dict[str, np.ndarray], settings: Features, dataset: str, **attributes: object
) -> None:
    """Write features to an HDF5 file.

    Args:
        path: Target file.
        reads: Sealed files that they are made from.
        arrays: (R, D) float32 features by name, or those of places.
        settings: Says their type in the file, and what made them.
        dataset: Name of the dataset, for messages.
        attributes: Attributes of the file.

    Raises:
        ConfigError: A feature does not fit the type.
    """
    with hdf5.create(path, reads) as file:
        for name, values in arrays.items():
            rows = max(1, min(len(values), CHUNK // values[0].size))
            array = file.create_dataset(name, values.shape, settings.dtype, chunks=(rows, *values.shape[1:]))
            array.attrs["axes"], array.attrs["units"] = (
                AXES[name],
                "activation of a place" if name == PLACES else "pooled activation",
            )
            for start in range(0, len(values), rows):
                part = values[start : start + rows].astype(settings.dtype)
                if not np.isfinite(part).all():
                    raise ConfigError(f"features.dtype: a feature of {dataset} does not fit {settings.dtype}")
                array[start : start + rows] = part
        file.attrs.update({"pools": json.dumps(settings.pools), **attributes})


def read_features(path: Path, table: Table, places: bool) -> Cache:
    """Return the cached features of all images.

    Args:
        path: The cache.
        table: The dataset's table.
        places: Whether features of places are read, where there are some: they take many times the memory.

    Returns:
        The cache.

    Raises:
        FileError: The cache is absent, of another number of images, or not finite.
    """
    n = len(table.paths)
    expected = {PLAIN: n, MIRRORED: len(table.rows("train"))} | ({PLACES: n} if places else {})
    with hdf5.read(path) as file:
        arrays = {name: file[name][()] if name in file else None for name in expected}
        pooled = file.attrs.get("pools")
    for name, array in arrays.items():
        if array is not None and len(array) != expected[name]:
            raise FileError(f"{path}: {len(array)} rows, the table has {expected[name]}; run the stage features again")
        if array is not None and not np.isfinite(array).all():
            raise FileError(f"{path}: features are not finite; float16 may be too narrow for this backbone")
    plain = arrays[PLAIN]
    if plain is None or pooled is None:
        raise FileError(f"{path}: holds no `{PLAIN if plain is None else 'pools'}`; run the stage features again")
    return Cache(plain, arrays[MIRRORED], arrays.get(PLACES), json.loads(str(pooled)))
