"""Settings, data and networks so small that a test trains them in milliseconds."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.core.strict import merge
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import Problem
from pipeline.networks.network import Network
from pipeline.training.inputs import FeatureInputs, ImageInputs
from pipeline.training.loop import Plan
from pipeline.training.settings import StrongView, Training

C, D, SIDE = 3, 4, 16
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)
BACKBONE = {"source": "small", "width": 8, "mean": MEAN, "std": STD}
LINEAR = {"kind": "linear", "scale": "none"}
EMBEDDING = {"kind": "label_embedding", "dim": 8, "heads": 2, "feedforward": 8, "encoder_layers": 1}
EMBEDDING |= {"decoder_layers": 1, "dropout": 0.2, "embedding": 6}
STRONG = {"crop": 1.0, "cutout": 0.5, "operations": 2, "magnitude": 9, "jitter": 0.8, "grayscale": 0.2}
LAC = {"threshold": 0.6, "temperature": 0.5, "queue_size": 7, "form": "code", "wrap": "ring"}
LAC |= {"weight_plc": 1.0, "weight_lac": 1.0}
AN = {"floor": 0.0}
EM_APL = {"alpha": 0.2, "beta": 0.5, "proportion": 0.9, "warmup": 0.25, "target": "soft", "positive": 0.0} | AN

BLOCK: dict[str, Any] = {
    "protocol": "common",
    "head": LINEAR,
    "epochs": 2,
    "batch_size": 4,
    "optimizer": "sgd",
    "momentum": 0.0,
    "weight_decay": 0.0,
    "learning_rate": 0.1,
    "search": None,
    "group_consistency": None,
    "head_factor": 1.0,
    "schedule": "constant",
    "warmup": 0.0,
    "batch_norm": "train",
    "freeze": [],
    "ema": None,
    "early_stop": {"rule": "none", "amount": 0.0},
    "select": "clean",
    "flip": False,
    "crop": 1.0,
    "strong": None,
    "readout": None,
    "keep_epoch_logits": True,
}
"""A training stage: SGD on a linear head, two epochs, nothing else."""


def training(**changes: Any) -> Training:
    return Training.model_validate(merge(BLOCK, changes))


def plan(settings: Training, learning_rate: float = 0.1, seed: int = 0, name: str = "run", epochs: int = 0) -> Plan:
    """How to train on the CPU; 0 epochs: the stage's."""
    return Plan(name, settings, learning_rate, epochs or settings.epochs, seed, torch.device("cpu"))


def strong() -> StrongView:
    return StrongView.model_validate(STRONG)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def features(n: int, seed: int = 0) -> FeatureInputs:
    return FeatureInputs(numbers(n, D, seed=seed), None, False)


def pixels(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, SIDE, SIDE, 3), dtype=np.uint8)


def images(n: int, seed: int = 0, **options: Any) -> ImageInputs:
    return ImageInputs(pixels(n, seed), np.arange(n), MEAN, STD, **options)


def observed(n: int) -> Tensor:
    """One positive a row."""
    labels = torch.zeros(n, C, dtype=torch.int8)
    labels[torch.arange(n), torch.arange(n) % C] = 1
    return labels


def network(head: dict[str, Any] = LINEAR, on_images: bool = False, seed: int = 0) -> Network:
    torch.manual_seed(seed)
    backbone = BACKBONE if on_images else None
    return Network({"backbone": backbone, "width": 8 if on_images else D, "classes": C, "head": head})


def problem(n: int) -> Problem:
    return Problem(n, ("a", "b", "c"), observed(n).sum(0, dtype=torch.int64), None, D)


def method(name: str, n: int, settings: dict[str, Any] | None = None) -> base.Method:
    return base.build(name, settings or AN, problem(n))
