"""The feature cache: what a frozen backbone makes of every packed image, in eval mode and without augmentation.

The mirrored images' features are those of the training rows: no other split is augmented. Beside the pooled features of
an image those of each of its places may be kept, by which beliefs and heads can score it: in a file of their own, that
is written and read by blocks of rows, since they take as many times the room as a map has places.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from pipeline.core import hdf5
from pipeline.core.errors import ConfigError, FileError
from pipeline.core.files import unwritable
from pipeline.core.progress import track
from pipeline.core.resume import Checkpoint
from pipeline.labels.table import Table
from pipeline.networks import pools
from pipeline.networks.settings import Pool
from pipeline.training.inputs import ImageInputs, Rows, batches
from pipeline.training.settings import SMALLER_PLACES, Features

PLAIN, MIRRORED, PLACES = "features", "features_mirrored", "places"
"""Names of the arrays: one row an image, a training image, and an image again."""
FILE, PLACES_FILE = "features.h5", "places.h5"
"""Names of the files: the second, where there are places, holds them alone."""
CHUNK = 1 << 20
"""Values that are written at a time."""
AXES = {PLAIN: "image, feature", MIRRORED: "training image, feature", PLACES: "image, feature, row, column"}


class Cache(NamedTuple):
    """What a feature cache holds of a dataset."""

    plain: np.ndarray
    """(N, D) features of all images, in table order."""
    mirrored: np.ndarray | None
    """(N_train, D) features of the mirrored training images, in table order."""
    places: Rows | None
    """(N, D, h, w) features of the places of all images, on disk; None where there are none, or nobody asked."""
    pools: list[Pool]
    """What made features of maps."""
    reads: list[Path]
    """Files that these were read from."""


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
        """Return the shape of an image's features, by the name of the array.

        Raises:
            ConfigError: Places are wanted, and there is one.
        """  # noqa: DOC502  raised by `raise_if_one_place`
        width = int(self.backbone.width) * len(self.pools)  # type: ignore[arg-type]
        if not places:
            return {PLAIN: (width,)}
        (one,) = self.extract(images, iter([np.arange(1)]), False, True)
        raise_if_one_place(self.dataset, one[PLACES].shape[1:])
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


def raise_if_one_place(dataset: str, shape: tuple[int, ...]) -> None:
    """Refuse to keep places of (D, h, w) maps that have one.

    Raises:
        ConfigError: So it is.
    """
    if math.prod(shape[1:]) == 1:
        remedy = f"set it to false, heads of `places` to linear and beliefs.{dataset}.sharpness to null"
        one = "the backbone's maps have one place at this size of the pictures, which pooled features are"
        raise ConfigError(f"features.{dataset}.places: true, but {one}; {remedy}, or take larger pictures")


def compute_features(
    extractor: Extractor, images: ImageInputs, mirrored: np.ndarray | None, settings: Features, checkpoint: Checkpoint
) -> dict[str, np.ndarray]:
    """Compute the features of images, or go on where an interrupted run stopped.

    Args:
        extractor: How.
        images: The images.
        mirrored: (N_train,) rows of the images that are mirrored too, or None.
        settings: Whether features of places are wanted, and their type.
        checkpoint: Where to keep what is done.

    Returns:
        (N, D) float32 features as `PLAIN`, and, where mirrored, (N_train, D) as `MIRRORED`; they lie on disk, in the
        checkpoint's folder, and so does `PLACES_FILE`, where places are wanted: of (N, D, h, w), without a seal.

    Raises:
        ConfigError: A feature does not fit the type.
        FileError: The disk has too little room.
    """  # noqa: DOC502  raised by the functions below
    shapes, arrays = extractor.shapes(images, settings.places), {}
    wanted = {PLAIN: np.arange(len(images))} | ({} if mirrored is None else {MIRRORED: mirrored})
    fresh = False
    for name, rows in wanted.items():
        path = checkpoint.folder / name
        fresh |= not path.exists()
        arrays[name] = hdf5.open_array(path, (len(rows), *shapes[PLAIN]), "float32")
    if settings.places:
        path = checkpoint.folder / PLACES_FILE
        fresh |= not path.exists()
        places = _open_places(path, (len(images), *shapes[PLACES]), settings)
    done: dict[str, int] = {} if fresh else (checkpoint.load() or {}).get("done", {})
    for name, rows in wanted.items():
        filled = {name: arrays[name]} | ({PLACES: places} if settings.places and name == PLAIN else {})
        start = done.get(name, 0)
        cut = [rows[start:][part] for part in batches(len(rows) - start, extractor.batch_size)]
        told = track(cut, f"{extractor.dataset} {name}", len(rows), "image", done=start, size=len)
        for parts in extractor.extract(images, told, name == MIRRORED, PLACES in filled):
            stop = start + len(parts[PLAIN])
            for array, part in zip(filled.values(), parts.values(), strict=True):
                array[start:stop] = _narrow(part, array.dtype, extractor.dataset)
                hdf5.release(array)
            start = stop
            if checkpoint.due or start == len(rows):
                for array in filled.values():
                    array.flush()
                done[name] = start
                checkpoint.save({"done": done}, at_once=True)
    return arrays


def _open_places(path: Path, shape: tuple[int, ...], settings: Features) -> np.memmap:
    """Return the features of places in the making, (N, D, h, w); they lie in a file that is made where there is none.

    Raises:
        FileError: The disk has too little room.
    """
    if not path.exists():
        about = {"axes": AXES[PLACES], "units": "activation of a place", "pools": json.dumps(settings.pools)}
        try:
            hdf5.allocate(path, PLACES, shape, settings.dtype, **about)
        except OSError as error:
            size = math.prod(shape) * np.dtype(settings.dtype).itemsize
            raise FileError(f"{unwritable(path, size, error)}; {SMALLER_PLACES}") from error
    return hdf5.map_array(path, PLACES)


def _narrow(part: np.ndarray, dtype: np.dtype | str, dataset: str) -> np.ndarray:
    """Return float32 features in the type of the cache.

    Raises:
        ConfigError: A feature does not fit it.
    """
    with np.errstate(over="ignore"):  # named below
        narrow = part.astype(dtype, copy=False)
    if not np.isfinite(narrow).all():
        raise ConfigError(f"features.dtype: a feature of {dataset} does not fit {np.dtype(dtype)}")
    return narrow


def write_features(
    path: Path, reads: list[Path], arrays: dict[str, np.ndarray], settings: Features, dataset: str, **attributes: object
) -> None:
    """Write pooled features to an HDF5 file.

    Args:
        path: Target file.
        reads: Sealed files that they are made from.
        arrays: (R, D) float32 features by name.
        settings: Says their type in the file, and what made them.
        dataset: Name of the dataset, for messages.
        attributes: Attributes of the file.

    Raises:
        ConfigError: A feature does not fit the type.
    """  # noqa: DOC502  raised by `_narrow`
    with hdf5.create(path, reads) as file:
        for name, values in arrays.items():
            rows = max(1, min(len(values), CHUNK // values[0].size))
            array = file.create_dataset(name, values.shape, settings.dtype, chunks=(rows, *values.shape[1:]))
            array.attrs["axes"], array.attrs["units"] = AXES[name], "pooled activation"
            for start in range(0, len(values), rows):
                array[start : start + rows] = _narrow(values[start : start + rows], settings.dtype, dataset)
        file.attrs.update({"pools": json.dumps(settings.pools), **attributes})


def read_features(path: Path, table: Table, places: bool) -> Cache:
    """Return the cached features of all images.

    Args:
        path: The cache.
        table: The dataset's table.
        places: Whether features of places are wanted, where there are some.

    Returns:
        The cache.

    Raises:
        FileError: The cache is absent, of another number of images, or not finite.
    """
    expected = {PLAIN: len(table.paths), MIRRORED: len(table.rows("train"))}
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
    made = json.loads(str(pooled))
    beside = path.with_name(PLACES_FILE)
    if not places or not beside.is_file():
        return Cache(plain, arrays[MIRRORED], None, made, [path])
    mapped = hdf5.Mapped(beside, PLACES)
    if mapped.shape[:2] != plain.shape:
        raise FileError(
            f"{beside}: {mapped.shape} places, the features are {plain.shape}; run the stage features again"
        )
    return Cache(plain, arrays[MIRRORED], mapped, made, [path, beside])
