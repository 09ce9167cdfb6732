"""Fine-tune the whole network from the linear head: ``python -m stages.finetune DATASET METHOD DRAW SEED``."""

from stages import entry  # isort: split

from pathlib import Path

from pipeline.config.runs import read_run
from pipeline.core import files
from pipeline.core.errors import FileError
from pipeline.networks.network import Network, on_backbone
from pipeline.training.execute import execute
from pipeline.training.run import Start, image_inputs, image_reads


def finetune(root: Path, dataset: str, method: str, draw: int, seed: int, variant: str | None = None) -> None:
    """Train backbone and head on images, from the head of linear_init.

    Args:
        root: Project root.
        dataset: Name of a dataset.
        method: Name of a method.
        draw: Number of the label draw.
        seed: Training seed.
        variant: Key of a variant, or None for the grid's run.
    """
    run = read_run(root, "finetune", dataset, method, draw, seed, variant)
    backbone = root / "weights" / dataset / "backbone.pt"
    first = root / "runs" / "linear_init" / f"{dataset}-{run.start}-{draw}-{seed}"
    content = files.read_torch(first / "weights.pt")
    head, pools = content["state"], content["architecture"]["pools"]

    def make_network() -> Network:
        network = on_backbone(backbone, run.settings.head.model_dump(), len(run.table.classes), pools)
        network.load_state_dict(head, strict=False)
        if set(head) != {f"head.{name}" for name in network.head.state_dict()}:
            raise FileError(f"{first / 'weights.pt'}: not a head of kind {run.settings.head.kind!r}")
        return network

    reads = [*image_reads(run, backbone), first / "weights.pt"]
    inherited = first / "method.pt" if run.start == method else None  # another method's memory is its own
    execute(run, Start(make_network, lambda network: image_inputs(run, network), reads, inherited))


if __name__ == "__main__":
    entry.run(finetune)
