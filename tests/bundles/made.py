"""Bundles of tiny networks with random weights."""

from pathlib import Path
from typing import Any

import torch

from pipeline.bundles.layout import Description
from pipeline.bundles.write import write_files
from pipeline.networks.network import Network
from tests import tiny

CLASSES = ["cat", "dog | wolf", "owl"]
SMALL = {name: value for name, value in tiny.BACKBONE.items() if name not in ("mean", "std")}
BOTTLENECK = {**{key: value for key, value in tiny.EMBEDDING.items() if key != "embedding"}, "kind": "bottleneck"}
BOTTLENECK |= {"latent": 4, "samples": 2}
HEADS: dict[str, dict[str, Any]] = {
    "linear": tiny.LINEAR,
    "unit": {"kind": "linear", "scale": "unit"},
    "places": {"kind": "places", "sharpness": 0.2},
    "boosted": {"kind": "boosted", "factor": 5.0, "scale": "none"},
    "label_embedding": tiny.EMBEDDING,
    "bottleneck": BOTTLENECK,
}


def content(**changes: Any) -> dict[str, Any]:
    """What model.json says of a linear head on the small backbone, thresholds 0, 1 and none."""
    classes = changes.get("classes", CLASSES)
    cuts = dict(zip(classes, (0.0, 1.0, None), strict=False)) | dict.fromkeys(classes[3:], 0.0)
    rules = {
        "matching": {"how": "by hand", "logits": cuts, "test": None},
        "zero": {"how": "one half", "logits": dict.fromkeys(classes, 0.0), "test": None},
    }
    scores: dict[str, Any] = {
        split: {"map": None, "map_absent_zero": 0.0, "labels": "given", "classes": 0} for split in ("val", "test")
    }
    scores |= {"shown_labels": {"score": 60.0, "images": "val", "val": 60.0}, "per_class": []}
    provenance = {
        "stage": "finetune",
        "run": "digits-an-0-0",
        "dataset": "digits",
        "method": "an",
        "draw": 0,
        "seed": 0,
    }
    provenance |= {"labels": "single", "backbone": "made by a test", "versions": {"spml": "0.1.0"}}
    pixels = {"size": tiny.SIDE, "resize": "bilinear", "colour": "RGB", "mean": list(tiny.MEAN), "std": list(tiny.STD)}
    return {
        "format": 1,
        "name": "finetune/digits-an-0-0",
        "classes": classes,
        "input": pixels,
        "network": {"backbone": SMALL, "pools": ["mean"], "head": tiny.LINEAR},
        "thresholds": {"chosen": "matching", "why": "by hand", "rules": rules},
        "scores": scores,
        "provenance": provenance,
        **changes,
    }


def network(about: Description) -> Network:
    torch.manual_seed(0)
    made = Network(about.architecture())
    for module in made.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()
            torch.nn.init.uniform_(module.running_var, 0.5, 2.0)  # pyright: ignore[reportArgumentType]
    return made.eval()


def bundle(folder: Path, onnx: bool = False, **changes: Any) -> Path:
    about = Description.model_validate(content(**changes))
    folder.mkdir(parents=True)
    write_files(folder, network(about), about, tiny.pixels(5) if onnx else None)
    return folder
