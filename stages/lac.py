"""Second stage: go on from a trained label-embedding network: ``python -m stages.lac DATASET METHOD SEED FIRST``."""

from pathlib import Path

from pipeline.config.runs import job
from pipeline.core import files
from pipeline.core.errors import FileError
from pipeline.networks.network import Network
from pipeline.training.run import execute, image_inputs
from stages import entry


def lac(root: Path, dataset: str, method: str, seed: int, first: str, variant: str | None = None) -> None:
    """Train on from the first stage's network with a fresh optimiser, schedule, average and queue.

    Args:
        root: Project root.
        dataset: Name of a dataset.
        method: Name of a method: LAC, or its rival trained on for as long.
        seed: Training seed.
        first: Method of the first stage (PLC in Xie 2022, section 3.3).
        variant: Key of a variant, or None for the grid's run.

    Raises:
        FileError: The first stage's network is absent, or of another head than ``lac.head``.
    """
    run = job(root, "lac", dataset, method, seed, variant)
    weights = root / "runs" / "end_to_end" / f"{dataset}-{first}-{seed}" / "weights.pt"
    content = files.read_torch(weights)
    asked = run.settings.head.model_dump()
    if content["architecture"]["head"] != asked:
        found = content["architecture"]["head"]
        raise FileError(f"{weights}: its head is {found}, lac.head asks for {asked}")

    def make() -> Network:
        network = Network(content["architecture"])
        network.load_state_dict(content["state"])
        return network

    reads = [
        weights,
        root / "data" / "prepare" / dataset / "images.h5",
        root / "data" / "simulate" / dataset / "observed.h5",
    ]
    execute(run, make, lambda network: image_inputs(run, network), reads)


if __name__ == "__main__":
    entry.run(lac)
