"""Run every packed image through the frozen backbone: ``python -m stages.features DATASET``."""

from stages import entry  # isort: split

from pathlib import Path

import numpy as np

from pipeline.config.params import read_params
from pipeline.core import hdf5
from pipeline.core.device import choose_device
from pipeline.core.manifest import write_manifest
from pipeline.core.summary import write_summary
from pipeline.data import images
from pipeline.networks import backbone as backbones
from pipeline.training.features import write_features
from pipeline.training.inputs import ImageInputs


def features(root: Path, dataset: str) -> None:
    """Write the HDF5 feature cache: one row an image, in table order, eval mode, no augmentation.

    Args:
        root: Project root.
        dataset: Name of a dataset.

    Raises:
        ConfigError: A feature does not fit float16.
    """  # noqa: DOC502  ConfigError comes from `write_features`
    settings = read_params(root / "params.yaml").settings("features", dataset)
    weights = root / "weights" / dataset / "backbone.pt"
    packed = root / "data" / "prepare" / dataset / "images.h5"
    module, description = backbones.load(weights)
    pixels = images.Pixels(packed)
    inputs = ImageInputs(pixels, np.arange(len(pixels)), description["mean"], description["std"])
    folder = root / "data" / "features" / dataset
    with hdf5.create(folder / "features.h5", [packed, weights]) as file:
        views = write_features(file, module, inputs, settings, choose_device(), dataset)
        file.attrs["mean"], file.attrs["std"] = description["mean"], description["std"]
    context = {
        "dataset": dataset,
        "images": len(pixels),
        "width": module.width,
        "dtype": settings.dtype,
        "views": views,
    }
    write_summary(folder / "summary.md", entry.TEMPLATES / "features.md.j2", context)
    write_manifest(folder, [packed, weights])


if __name__ == "__main__":
    entry.run(features)
