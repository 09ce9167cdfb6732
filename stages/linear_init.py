"""Train or fit a linear head on cached features: ``python -m stages.linear_init DATASET METHOD DRAW SEED``."""

from stages import entry  # isort: split

from pathlib import Path

import torch

from pipeline.config.runs import read_run
from pipeline.methods.shared.base import load
from pipeline.networks.network import Network
from pipeline.training.closed_form import fit_closed_form
from pipeline.training.execute import execute
from pipeline.training.features import read_features
from pipeline.training.inputs import Inputs
from pipeline.training.run import Start, feature_inputs


def linear_init(root: Path, dataset: str, method: str, draw: int, seed: int, variant: str | None = None) -> None:
    """Train a head on the feature matrix, which is held in memory and indexed; features of places stay on disk.

    Args:
        root: Project root.
        dataset: Name of a dataset.
        method: Name of a method of one view.
        draw: Number of the label draw.
        seed: Training seed.
        variant: Key of a variant, or None for the grid's run.

    Raises:
        FileError: The cache is absent, of another number of images, or not finite.
    """  # noqa: DOC502  FileError comes from `read_features`
    run = read_run(root, "linear_init", dataset, method, draw, seed, variant)
    cache = root / "data" / "features" / dataset / "features.h5"
    stored = read_features(cache, run.table, run.reads_places())
    architecture = {
        "backbone": None,
        "pools": stored.pools,
        "width": stored.plain.shape[1],
        "classes": len(run.table.classes),
    }

    def make_inputs(network: Network) -> dict[str, Inputs]:
        return feature_inputs(stored, run, network.head)

    torch.set_num_threads(1)  # a step of a linear head is too small to share; more threads wait for each other
    reads = [*stored.reads, run.observed_file]
    start = Start(lambda head: Network(architecture | {"head": head.model_dump()}), make_inputs, reads, cache=stored)
    if load(method).closed_form:
        fit_closed_form(run, start, stored)
    else:
        execute(run, start)


if __name__ == "__main__":
    entry.run(linear_init)
