"""Run every packed image through the frozen backbone: ``python -m stages.features DATASET``."""

from pathlib import Path

import numpy as np

from pipeline.config.params import read_params
from pipeline.core import files, hdf5
from pipeline.core.device import choose_device
from pipeline.core.errors import ConfigError
from pipeline.data import images
from pipeline.networks import backbone as backbones
from pipeline.training import features as cache
from pipeline.training.inputs import ImageInputs
from stages import entry


def features(root: Path, dataset: str) -> None:
    """Write the HDF5 feature cache: one row an image, in table order, eval mode, no augmentation.

    Args:
        root: Project root.
        dataset: Name of a dataset.

    Raises:
        ConfigError: A feature does not fit float16.
    """
    settings = read_params(root / "params.yaml").settings("features", dataset)
    weights = root / "weights" / dataset / "backbone.pt"
    packed = root / "data" / "prepare" / dataset / "images.h5"
    module, description = backbones.load(weights)
    pixels = images.Pixels(packed)
    inputs = ImageInputs(pixels, np.arange(len(pixels)), description["mean"], description["std"])
    folder = root / "data" / "features" / dataset
    views = {"features": False} | ({"features_mirrored": True} if settings.mirrored else {})
    with hdf5.create(folder / "features.h5") as file:
        for name, mirrored in views.items():
            shape = (len(pixels), module.width)
            dataset_ = file.create_dataset(name, shape, settings.dtype, chunks=(min(len(pixels), 1024), module.width))
            dataset_.attrs["axes"], dataset_.attrs["units"] = "image, feature", "pooled activation"
            start = 0
            device = choose_device()
            for part in cache.extract(
                module, inputs, settings.batch_size, device, mirrored=mirrored, name=f"{dataset} {name}"
            ):
                if not np.isfinite(part.astype(settings.dtype)).all():
                    raise ConfigError(f"features.dtype: a feature of {dataset} does not fit {settings.dtype}")
                dataset_[start : start + len(part)] = part
                start += len(part)
        file.attrs["backbone_sha256"] = files.sha256(weights)
        file.attrs["images_sha256"] = files.sha256(packed)
        file.attrs["mean"], file.attrs["std"] = description["mean"], description["std"]
    lines = [
        f"{len(pixels)} images, {module.width} features each, {settings.dtype}; views: {', '.join(views)}.",
        "",
        "Rows follow `table.h5`. Eval mode, no augmentation; the attributes name backbone and images by hash.",
        f"Read it with `spml show data/features/{dataset}/features.h5`.",
    ]
    files.write_summary(folder / "summary.md", f"Features {dataset}", lines)


if __name__ == "__main__":
    entry.run(features)
