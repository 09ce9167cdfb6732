"""Store the frozen starting weights of a dataset: ``python -m stages.backbone DATASET``."""

from stages import entry  # isort: split

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pipeline.config.params import read_params
from pipeline.core import files
from pipeline.core.device import choose_device
from pipeline.core.manifest import write_manifest
from pipeline.core.summary import write_summary
from pipeline.networks import backbone as backbones
from pipeline.networks import timm_backbone
from pipeline.networks.settings import DigitsBackbone, TimmBackbone
from pipeline.sources import digits
from pipeline.training import pretrain


def backbone(root: Path, dataset: str) -> None:
    """Take the backbone from timm, a file or a package, or pretrain the small one on single digits.

    Args:
        root: Project root.
        dataset: Name of a dataset.
    """
    params = read_params(root / "params.yaml")
    settings = params.settings("backbone", dataset)
    if isinstance(settings, DigitsBackbone):
        module, architecture, facts = _pretrain_on_digits(settings)
    else:
        size = params.settings("prepare", dataset)["size"]
        module, architecture, facts = _load_from_timm(root, settings, size)
    state = module.state_dict()
    facts |= {
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "width": module.width,
        "weights_sha256": backbones.digest(state),
        "normalisation": {"mean": architecture["mean"], "std": architecture["std"]},
        "versions": {"torch": torch.__version__},
    }
    folder = root / "weights" / dataset
    files.write_torch(folder / "backbone.pt", {"architecture": architecture, "state": state})
    files.write_json(folder / "provenance.json", facts)
    context = {"dataset": dataset, "facts": facts}
    write_summary(folder / "summary.md", entry.TEMPLATES / "backbone.md.j2", context)
    write_manifest(folder, [])


def _pretrain_on_digits(settings: DigitsBackbone) -> tuple[nn.Module, dict[str, Any], dict[str, Any]]:
    """Return the small network, its architecture and where it comes from."""
    pictures = partial(digits.single, settings.images, settings.size, settings.seed)
    module, accuracy = pretrain.pretrain(settings, pictures, choose_device())
    architecture = {"source": "small", "width": settings.width, "mean": pretrain.MEAN, "std": pretrain.STD}
    return module, architecture, {"origin": "pretrained on single digits", "single_digit_accuracy": accuracy}


def _load_from_timm(root: Path, settings: TimmBackbone, size: int) -> tuple[nn.Module, dict[str, Any], dict[str, Any]]:
    """Return a network of timm for pictures of a size, its architecture and where its weights come from."""
    file = str(root / settings.file) if settings.file else None
    described = timm_backbone.describe(settings.model, size)
    module, _ = backbones.pretrained(described, settings.weights, file)
    usual = backbones.normalisation(settings.model)
    architecture = described | {"mean": settings.mean or usual[0], "std": settings.std or usual[1]}
    facts = {"origin": f"timm {settings.model}, weights from {Path(file).name if file else settings.weights}"}
    return module, architecture, facts | ({"file_sha256": files.sha256(file)} if file else {})


if __name__ == "__main__":
    entry.run(backbone)
