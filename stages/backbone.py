"""Store the frozen starting weights of a dataset: ``python -m stages.backbone DATASET``."""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from pipeline.config.params import read_params
from pipeline.core import files
from pipeline.core.device import choose_device
from pipeline.networks import backbone as backbones
from pipeline.networks.settings import DigitsBackbone
from pipeline.sources import digits
from pipeline.training import pretrain
from stages import entry


def backbone(root: Path, dataset: str) -> None:
    """Take the backbone from timm, a file or a package, or pretrain the small one on single digits.

    Args:
        root: Project root.
        dataset: Name of a dataset.
    """
    settings = read_params(root / "params.yaml").settings("backbone", dataset)
    facts: dict[str, Any]
    if isinstance(settings, DigitsBackbone):
        pictures = partial(digits.single, settings.images, settings.size, settings.seed)
        module, accuracy = pretrain.pretrain(settings, pictures, choose_device())
        architecture = {"source": "small", "width": settings.width, "mean": pretrain.MEAN, "std": pretrain.STD}
        facts = {"origin": "pretrained on single digits", "single_digit_accuracy": accuracy}
    else:
        file = str(root / settings.file) if settings.file else None
        module, _ = backbones.pretrained(settings.model, settings.weights, file)
        usual = backbones.normalisation(settings.model)
        architecture = {
            "source": "timm",
            "model": settings.model,
            "mean": settings.mean or usual[0],
            "std": settings.std or usual[1],
        }
        facts = {"origin": f"timm {settings.model}, weights from {Path(file).name if file else settings.weights}"}
        if file:
            facts["file_sha256"] = files.sha256(file)
    state = module.state_dict()
    facts |= {
        "parameters": sum(each.numel() for each in module.parameters()),
        "width": module.width,
        "weights_sha256": backbones.digest(state),
        "normalisation": {"mean": architecture["mean"], "std": architecture["std"]},
        "versions": {"torch": torch.__version__},
    }
    folder = root / "weights" / dataset
    files.write_torch(folder / "backbone.pt", {"architecture": architecture, "state": state})
    files.write_json(folder / "provenance.json", facts)
    lines = [
        f"Backbone of `{dataset}`: {facts['origin']}; {facts['parameters']:,} parameters, {facts['width']} features.",
        "",
        f"- SHA-256 over names and values: `{facts['weights_sha256']}`",
        f"- input: RGB in [0, 1], minus {architecture['mean']}, over {architecture['std']}",
    ]
    if "single_digit_accuracy" in facts:
        lines.append(f"- names single digits on fresh pictures of the same handwriting: {accuracy:.1%}")
    files.write_summary(folder / "summary.md", f"Backbone {dataset}", lines)


if __name__ == "__main__":
    entry.run(backbone)
