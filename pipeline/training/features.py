"""The feature cache: what a frozen backbone makes of every packed image, in eval mode and without augmentation.

The mirrored images' features are those of the training rows: no other split is augmented.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

from pipeline.core import hdf5
from pipeline.core.errors import ConfigError, FileError
from pipeline.core.progress import track
from pipeline.core.resume import Checkpoint
from pipeline.training.inputs import ImageInputs, batches

PLAIN, MIRRORED = "features", "features_mirrored"
"""Names of the arrays: one row an image, and one a training image."""


def compute_features(
    backbone: nn.Module,
    images: ImageInputs,
    rows: dict[str, np.ndarray],
    plan: tuple[str, int, torch.device],
    checkpoint: Checkpoint,
) -> dict[str, np.ndarray]:
    """Compute the features of images, or go on where an interrupted run stopped.

    Args:
        backbone: Maps images to maps and pools them; ``width`` is the number of features.
        images: The images.
        rows: Rows of ``images`` whose features each array holds, by its name, `PLAIN` or `MIRRORED`.
        plan: Name of the dataset, images a forward pass, and where to compute.
        checkpoint: Where to keep what is done.

    Returns:
        (R, width) float32 features by name; they lie on disk, in the checkpoint's folder.
    """
    dataset, batch_size, device = plan
    done = (checkpoint.load() or {}).get("done", {})
    arrays = {}
    for name, mine in rows.items():
        shape = (len(mine), int(backbone.width))  # type: ignore[arg-type]
        arrays[name] = array = hdf5.open_array(checkpoint.folder / name, shape, "float32")
        start = done.get(name, 0)
        cut = [mine[start:][part] for part in batches(len(mine) - start, batch_size)]
        parts = extract(
            backbone,
            images,
            track(cut, f"{dataset} {name}", len(mine), "image", done=start, size=len),
            device,
            name == MIRRORED,
        )
        for part in parts:
            array[start : start + len(part)] = part
            start += len(part)
            if checkpoint.due or start == len(mine):
                array.flush()
                done[name] = start
                checkpoint.save({"done": done}, at_once=True)
    return arrays


def write_features(
    path: Path, reads: list[Path], arrays: dict[str, np.ndarray], dtype: str, dataset: str, **attributes: object
) -> None:
    """Write features to an HDF5 file.

    Args:
        path: Target file.
        reads: Sealed files that they are made from.
        arrays: (R, D) float32 features by name.
        dtype: Their type in the file.
        dataset: Name of the dataset, for messages.
        attributes: Attributes of the file.

    Raises:
        ConfigError: A feature does not fit the type.
    """
    with hdf5.create(path, reads) as file:
        for name, values in arrays.items():
            array = file.create_dataset(name, values.shape, dtype, chunks=(min(len(values), 1024), values.shape[1]))
            array.attrs["axes"] = "training image, feature" if name == MIRRORED else "image, feature"
            array.attrs["units"] = "pooled activation"
            for start in range(0, len(values), 1024):
                part = values[start : start + 1024].astype(dtype)
                if not np.isfinite(part).all():
                    raise ConfigError(f"features.dtype: a feature of {dataset} does not fit {dtype}")
                array[start : start + 1024] = part
        file.attrs.update(attributes)


def read_features(path: Path, n: int, n_train: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the cached features of all images.

    Args:
        path: The cache.
        n: Images of the dataset.
        n_train: Those of its training split.

    Returns:
        (N, D) features, and those of the mirrored training images, in table order, or None.

    Raises:
        FileError: The cache is absent, of another number of images, or not finite.
    """
    with hdf5.read(path) as file:
        features = file[PLAIN][()]
        mirrored = file[MIRRORED][()] if MIRRORED in file else None
    for array, rows in ((features, n), (mirrored, n_train)):
        if array is not None and len(array) != rows:
            raise FileError(f"{path}: {len(array)} rows, the table has {rows}; run the stage features again")
        if array is not None and not np.isfinite(array).all():
            raise FileError(f"{path}: features are not finite; float16 may be too narrow for this backbone")
    return features, mirrored


def extract(
    backbone: nn.Module, images: ImageInputs, cut: Iterator[np.ndarray], device: torch.device, mirrored: bool
) -> Iterator[np.ndarray]:
    """Yield pooled features, batch by batch.

    Args:
        backbone: Maps images to maps and pools them.
        images: The images.
        cut: (B,) rows of each batch.
        device: Where to compute.
        mirrored: Whether the left-right mirrored images are read instead.

    Yields:
        (B, D) float32 features.
    """
    backbone.to(device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]  # faster on a CPU
    with torch.inference_mode():
        for index in cut:
            batch = images.plain(index).to(device)
            batch = batch.flip(3) if mirrored else batch
            maps = backbone(batch.contiguous(memory_format=torch.channels_last))
            yield backbone.pool(maps).float().cpu().numpy()  # type: ignore[operator]
