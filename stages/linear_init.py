"""Train a linear head on cached features, backbone frozen: ``python -m stages.linear_init DATASET METHOD SEED``."""

from pathlib import Path

import numpy as np
import torch

from pipeline.config.runs import job
from pipeline.core import hdf5
from pipeline.core.errors import FileError
from pipeline.networks.network import Network
from pipeline.training.inputs import FeatureInputs, Inputs
from pipeline.training.run import execute
from stages import entry


def linear_init(root: Path, dataset: str, method: str, seed: int, variant: str | None = None) -> None:
    """Train a head on the feature matrix, which is held in memory and indexed.

    Args:
        root: Project root.
        dataset: Name of a dataset.
        method: Name of a method of one view.
        seed: Training seed.
        variant: Key of a variant, or None for the grid's run.

    Raises:
        FileError: The cache is absent, of another number of images, or not finite.
    """
    run = job(root, "linear_init", dataset, method, seed, variant)
    cache = root / "data" / "features" / dataset / "features.h5"
    with hdf5.read(cache) as file:
        features = file["features"][()]
        mirrored = file["features_mirrored"][()] if "features_mirrored" in file else None
    if len(features) != len(run.table.paths):
        raise FileError(f"{cache}: {len(features)} rows, the table has {len(run.table.paths)}")
    if not np.isfinite(features).all():
        raise FileError(f"{cache}: features are not finite; float16 may be too narrow for this backbone")

    def make() -> Network:
        return Network(
            {
                "backbone": None,
                "width": features.shape[1],
                "classes": len(run.table.classes),
                "head": run.settings.head.model_dump(),
            }
        )

    def inputs(_: Network) -> dict[str, Inputs]:
        return {
            split: FeatureInputs(
                features[rows := run.table.rows(split)],
                mirrored[rows] if mirrored is not None else None,
                run.settings.flip and split == "train",
            )
            for split in ("train", "val", "test")
        }

    torch.set_num_threads(1)  # a step of a linear head is too small to share; more threads wait for each other
    reads = [cache, root / "data" / "simulate" / dataset / "observed.h5"]
    execute(run, make, inputs, reads)


if __name__ == "__main__":
    entry.run(linear_init)
