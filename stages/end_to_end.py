"""Train the whole network from a fresh head: ``python -m stages.end_to_end DATASET METHOD DRAW SEED``."""

from stages import entry  # isort: split

from pathlib import Path

from pipeline.config.runs import read_run
from pipeline.networks.network import on_backbone
from pipeline.training.execute import execute
from pipeline.training.run import Start, image_inputs, image_reads


def end_to_end(root: Path, dataset: str, method: str, draw: int, seed: int, variant: str | None = None) -> None:
    """Train backbone and head on images: the papers' plain protocol, and LAC's first stage.

    Args:
        root: Project root.
        dataset: Name of a dataset.
        method: Name of a method.
        draw: Number of the label draw.
        seed: Training seed.
        variant: Key of a variant, or None for the grid's run.
    """
    run = read_run(root, "end_to_end", dataset, method, draw, seed, variant)
    backbone = root / "weights" / dataset / "backbone.pt"
    start = Start(
        lambda head: on_backbone(backbone, head.model_dump(), len(run.table.classes), ["mean"]),
        lambda network: image_inputs(run, network),
        image_reads(run, backbone),
    )
    execute(run, start)


if __name__ == "__main__":
    entry.run(end_to_end)
