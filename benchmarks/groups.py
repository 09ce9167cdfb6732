"""Measure consistency within groups of images: ``python -m benchmarks.groups``.

Digits, each training scene in COPIES noisy and shifted copies: one group, of which each copy shows one label. Linear
heads on features of the digits' backbone, and with ``--finetune`` whole networks, each method at each weight. Of the
rates of linear heads, and of epochs, clean val mAP chooses; networks start from the head of the middle rate. It prints
a table of test mAP, and needs params.yaml of the default profile and the outputs of the stage backbone.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from pipeline.audits.metrics import mean_average_precision
from pipeline.config.params import read_params
from pipeline.core import seeds
from pipeline.labels.recipe import seeded
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import describe
from pipeline.networks.network import Network, on_backbone
from pipeline.sources import digits
from pipeline.training.inputs import FeatureInputs, ImageInputs, Inputs, batches, predict
from pipeline.training.loop import Data, History, Plan, Trainer
from pipeline.training.settings import GroupConsistency

METHODS = ("an", "em")
WEIGHTS = (0.0, 1.0, 10.0)
COPIES, SCENES = 3, 1000
SHIFT, NOISE = 3, 8.0
"""Pixels that a copy is shifted by at most, and the standard deviation of its noise, of 255."""
BACKBONE = Path("weights") / "digits" / "backbone.pt"
CPU = torch.device("cpu")
MIDDLE = 1.0e-2


class Splits(NamedTuple):
    """Train, val and test; training rows hold the copies of a scene one after another."""

    inputs: dict[str, Inputs]
    truth: dict[str, np.ndarray]

    def score(self, split: str, logits: np.ndarray) -> float:
        """Return mAP by the truth."""
        return mean_average_precision(self.truth[split], logits)["map"]


def put_head(classes: int) -> Network:
    """Return a fresh linear head on the backbone."""
    return on_backbone(BACKBONE, {"kind": "linear", "scale": "none"}, classes, ["mean"])


def copy_scene(image: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return a shifted, noisy copy of an (S, S, 3) uint8 image."""
    moved = np.roll(image, generator.integers(-SHIFT, SHIFT + 1, 2), (0, 1))
    return (moved + generator.normal(0, NOISE, image.shape)).clip(0, 255).astype(np.uint8)


def make_scenes() -> Splits:
    """Return the images."""
    block = {"source": "digits", "train": SCENES, "val": 600, "test": 1000, "size": 48, "seed": 0}
    data = digits.read(digits.Settings.model_validate(block), Path())
    network = put_head(len(data.table.classes))
    inputs: dict[str, Inputs] = {}
    truth = {}
    for split in ("train", "val", "test"):
        rows, copies = data.table.rows(split), COPIES if split == "train" else 1
        generator = seeds.numpy_generator(0, "benchmark", "groups", split)
        pixels = np.stack([copy_scene(np.asarray(data.image(row)), generator) for row in rows for _ in range(copies)])
        inputs[split] = ImageInputs(pixels, np.arange(len(pixels)), network.mean, network.std)
        truth[split] = np.repeat(data.table.truth[rows], copies, axis=0)
    return Splits(inputs, truth)


@torch.inference_mode()
def make_features(scenes: Splits) -> Splits:
    """Return the features of the images."""
    backbone = put_head(1).eval().backbone
    assert backbone is not None
    inputs: dict[str, Inputs] = {}
    for split, images in scenes.inputs.items():
        parts = [backbone.pool(backbone(images.plain(part))).numpy() for part in batches(len(images), 250)]
        inputs[split] = FeatureInputs(np.concatenate(parts), None, False)
    return Splits(inputs, scenes.truth)


def train(network: Network, data: Splits, run: tuple[str, str, float, int], rate: float) -> tuple[History, list[float]]:
    """Train a network.

    Args:
        network: The network.
        data: What it reads.
        run: Stage, method, weight and label draw.
        rate: Learning rate.

    Returns:
        The history, and test mAP of each epoch.
    """
    stage, method, weight, draw = run
    settings, own = read_params("params.yaml", method).run(stage, "digits", method)
    consistency = GroupConsistency(weight=weight) if weight else None
    settings = settings.model_copy(update={"keep_epoch_logits": False, "group_consistency": consistency})
    observed = seeded(data.truth["train"] == 1, seeds.numpy_generator(draw, "benchmark", "groups", "labels"))
    problem = describe(tuple(map(str, range(observed.shape[1]))), observed, None, network.architecture["width"])
    tested = []

    def score(logits: np.ndarray) -> float:
        tested.append(data.score("test", predict(network, data.inputs["test"], 250, CPU)))
        return data.score("val", logits)

    groups = np.repeat(np.arange(SCENES), COPIES)
    shown = Data(data.inputs["train"], torch.from_numpy(observed), data.inputs["val"], score, groups=groups)
    plan = Plan(f"{stage} {method} {weight:g} {draw}", settings, rate, settings.epochs, 0, CPU)
    return Trainer(network, base.build(method, own, problem), shown, plan).fit(), tested


def run_once(scenes: Splits, features: Splits, method: str, weight: float, draw: int, finetune: bool) -> float:
    """Return test mAP of the choice of val."""
    search = read_params("params.yaml", method).run("linear_init", "digits", method)[0].search
    assert search is not None
    heads = {}
    for rate in [MIDDLE] if finetune else search.values:
        seeds.seed_torch(0, "network")
        network = put_head(features.truth["train"].shape[1])
        head = Network(network.architecture | {"backbone": None})
        history, tested = train(head, features, ("linear_init", method, weight, draw), rate)
        heads[rate] = history.best, tested[history.epoch - 1], history.state
    if not finetune:
        return max(heads.values(), key=lambda found: found[0])[1]
    network = put_head(features.truth["train"].shape[1])
    network.load_state_dict(heads[MIDDLE][2], strict=False)
    history, tested = train(network, scenes, ("finetune", method, weight, draw), 3.0e-4)
    return tested[history.epoch - 1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, nargs="+", default=[100, 101])
    parser.add_argument("--finetune", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    scenes = make_scenes()
    features = make_features(scenes)
    print("| weight |", " | ".join(f"`{method}`" for method in METHODS), "|")
    print("| --- |" + " --- |" * len(METHODS))
    for weight in WEIGHTS:
        cells = []
        for method in METHODS:
            values = [run_once(scenes, features, method, weight, draw, options.finetune) for draw in options.draws]
            cells.append(", ".join(f"{value:.1f}" for value in values))
        print(f"| {weight or 'null'} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
