"""Fine-tune the whole network from the linear head: ``python -m stages.finetune DATASET METHOD DRAW SEED``."""

from stages import entry  # isort: split

from pathlib import Path

from pipeline.config.rules import may_start
from pipeline.config.runs import read_run
from pipeline.core import files
from pipeline.core.errors import FileError
from pipeline.networks.network import Network, on_backbone
from pipeline.networks.settings import Head, at_scale, scale_before
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

    Raises:
        FileError: The linear head is absent, or other than ``finetune.head`` can start from.
    """
    run = read_run(root, "finetune", dataset, method, draw, seed, variant)
    backbone = root / "weights" / dataset / "backbone.pt"
    first = root / "runs" / "linear_init" / f"{dataset}-{run.start}-{draw}-{seed}"
    content = files.read_torch(first / "weights.pt")
    before = content["architecture"]["head"]
    scale = scale_before(run.settings.head, before)
    if not may_start("finetune", at_scale(run.settings.head, scale).model_dump(), before):
        asked = run.settings.head.model_dump()
        raise FileError(f"{first / 'weights.pt'}: its head is {before}, finetune.head asks for {asked}")

    def make_network(head: Head) -> Network:
        network = on_backbone(backbone, head.model_dump(), len(run.table.classes), content["architecture"]["pools"])
        network.load_state_dict(content["state"], strict=False)
        return network

    reads = [*image_reads(run, backbone), first / "weights.pt"]
    inherited = first / "method.pt" if run.start == method else None  # another method's memory is its own
    execute(run, Start(make_network, lambda network: image_inputs(run, network), reads, inherited, scale))


if __name__ == "__main__":
    entry.run(finetune)
