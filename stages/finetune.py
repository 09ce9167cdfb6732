"""Fine-tune the whole network from the linear head: ``python -m stages.finetune DATASET METHOD SEED``."""

from pathlib import Path

from pipeline.config.runs import job
from pipeline.core import files
from pipeline.core.errors import FileError
from pipeline.networks.network import Network, on_backbone
from pipeline.training.run import execute, image_inputs
from stages import entry


def finetune(root: Path, dataset: str, method: str, seed: int, variant: str | None = None) -> None:
    """Train backbone and head on images, from the head of linear_init.

    Args:
        root: Project root.
        dataset: Name of a dataset.
        method: Name of a method.
        seed: Training seed.
        variant: Key of a variant, or None for the grid's run.
    """
    run = job(root, "finetune", dataset, method, seed, variant)
    weights = root / "weights" / dataset / "backbone.pt"
    start = run.params.variants.finetune[variant].start if variant else method
    first = root / "runs" / "linear_init" / f"{dataset}-{start}-{seed}"
    head = files.read_torch(first / "weights.pt")["state"]

    def make() -> Network:
        network = on_backbone(weights, run.settings.head.model_dump(), len(run.table.classes))
        network.load_state_dict(head, strict=False)
        if set(head) != {f"head.{name}" for name in network.head.state_dict()}:
            raise FileError(f"{first / 'weights.pt'}: not a head of kind {run.settings.head.kind!r}")
        return network

    reads = [
        weights,
        first / "weights.pt",
        root / "data" / "prepare" / dataset / "images.h5",
        root / "data" / "simulate" / dataset / "observed.h5",
    ]
    inherited = first / "method.pt" if start == method else None
    execute(run, make, lambda network: image_inputs(run, network), reads, inherited)


if __name__ == "__main__":
    entry.run(finetune)
