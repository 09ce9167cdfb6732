"""Second stage: go on from a trained label-embedding network: ``python -m stages.lac DATASET METHOD DRAW SEED``."""

from stages import entry  # isort: split

from pathlib import Path

from pipeline.config.rules import may_start
from pipeline.config.runs import read_run
from pipeline.core import files
from pipeline.core.errors import FileError
from pipeline.networks.network import Network
from pipeline.networks.settings import Head, at_scale, scale_before
from pipeline.training.execute import execute
from pipeline.training.run import Start, image_inputs, image_reads


def lac(root: Path, dataset: str, method: str, draw: int, seed: int, variant: str | None = None) -> None:
    """Train on from the network of ``grid.lac_start`` with a fresh optimiser, schedule, average and queue.

    Args:
        root: Project root.
        dataset: Name of a dataset.
        method: Name of a method: LAC, or its rival trained on for as long.
        draw: Number of the label draw.
        seed: Training seed.
        variant: Key of a variant, or None for the grid's run.

    Raises:
        FileError: The first stage's network is absent, or of another head than ``lac.head``.
    """
    run = read_run(root, "lac", dataset, method, draw, seed, variant)
    weights = root / "runs" / "end_to_end" / f"{dataset}-{run.start}-{draw}-{seed}" / "weights.pt"
    content = files.read_torch(weights)
    before = content["architecture"]["head"]
    scale = scale_before(run.settings.head, before)
    if not may_start("lac", at_scale(run.settings.head, scale).model_dump(), before):
        raise FileError(f"{weights}: its head is {before}, lac.head asks for {run.settings.head.model_dump()}")

    def make_network(_: Head) -> Network:
        network = Network(content["architecture"])
        network.load_state_dict(content["state"])
        return network

    reads = image_reads(run, weights)
    execute(run, Start(make_network, lambda network: image_inputs(run, network), reads, scale=scale))


if __name__ == "__main__":
    entry.run(lac)
