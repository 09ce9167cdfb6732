"""The feature cache: what a frozen backbone makes of every packed image, in eval mode and without augmentation."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from pipeline.core import hdf5
from pipeline.core.errors import ConfigError, FileError
from pipeline.training.inputs import ImageInputs, batches
from pipeline.training.settings import Features


def write_features(
    file: Any, backbone: nn.Module, images: ImageInputs, settings: Features, device: torch.device, dataset: str
) -> list[str]:
    """Write the features of all images to an open HDF5 file, one array a view, one row an image.

    Args:
        file: An open file of ``hdf5.create``.
        backbone: Maps images to maps and pools them; ``width`` is the number of features.
        images: The images.
        settings: Type of the features, views and batch size.
        device: Where to compute.
        dataset: Name of the dataset, for messages.

    Returns:
        Names of the arrays.

    Raises:
        ConfigError: A feature does not fit the type.
    """
    views = {"features": False} | ({"features_mirrored": True} if settings.mirrored else {})
    n, width = len(images), int(backbone.width)  # type: ignore[arg-type]
    for name, mirrored in views.items():
        array = file.create_dataset(name, (n, width), settings.dtype, chunks=(min(n, 1024), width))
        array.attrs["axes"], array.attrs["units"] = "image, feature", "pooled activation"
        start = 0
        parts = extract(backbone, images, settings.batch_size, device, mirrored=mirrored, name=f"{dataset} {name}")
        for part in parts:
            if not np.isfinite(part.astype(settings.dtype)).all():
                raise ConfigError(f"features.dtype: a feature of {dataset} does not fit {settings.dtype}")
            array[start : start + len(part)] = part
            start += len(part)
    return list(views)


def read_features(path: Path, n: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the cached features of all images.

    Args:
        path: The cache.
        n: Images of the dataset.

    Returns:
        (N, D) features, and those of the mirrored images or None.

    Raises:
        FileError: The cache is absent, of another number of images, or not finite.
    """
    with hdf5.read(path) as file:
        features = file["features"][()]
        mirrored = file["features_mirrored"][()] if "features_mirrored" in file else None
    if len(features) != n:
        raise FileError(f"{path}: {len(features)} rows, the table has {n}")
    if not np.isfinite(features).all():
        raise FileError(f"{path}: features are not finite; float16 may be too narrow for this backbone")
    return features, mirrored


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
            batch = images.plain(index).to(device)
            batch = batch.flip(3) if mirrored else batch
            yield backbone.pool(backbone(batch)).float().cpu().numpy()  # type: ignore[operator]
