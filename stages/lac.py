"""Second stage: go on from a trained label-embedding network: ``python -m stages.lac DATASET METHOD SEED FIRST``."""

from pathlib import Path

from pipeline import storage
from pipeline.networks.network import Network
from stages import entry, training


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
        StorageError: The first stage's network is absent, or of another head than ``lac.head``.
    """
    run = training.job(root, "lac", dataset, method, seed, variant)
    weights = root / "runs" / "end_to_end" / f"{dataset}-{first}-{seed}" / "weights.pt"
    content = storage.read_torch(weights)
    asked = run.settings.head.model_dump()
    if content["architecture"]["head"] != asked:
        found = content["architecture"]["head"]
        raise storage.StorageError(f"{weights}: its head is {found}, lac.head asks for {asked}")

    def make() -> Network:
        network = Network(content["architecture"])
        network.load_state_dict(content["state"])
        return network

    reads = [
        weights,
        root / "data" / "prepare" / dataset / "images.h5",
        root / "data" / "simulate" / dataset / "observed.h5",
    ]
    training.execute(run, make, lambda network: training.image_inputs(run, network), reads)


if __name__ == "__main__":
    entry.run(lac)
