"""Measure consistency within groups of images: ``python -m benchmarks.groups``.

Digits, each training scene in COPIES noisy and shifted copies: one group, of which each copy shows one label.
Linear heads on the cached features of the digits' backbone, each method at each weight; of the rates of the stage's
search, and of the epochs, clean val mAP chooses. It prints a table of test mAP, and needs params.yaml of the default
profile and the outputs of prepare and backbone.
"""

import argparse
from pathlib import Path

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
from pipeline.training.features import PLAIN, Extractor
from pipeline.training.inputs import FeatureInputs, ImageInputs, batches
from pipeline.training.loop import Data, Plan, Trainer
from pipeline.training.settings import GroupConsistency

METHODS = ("an", "em", "wan", "full")
WEIGHTS = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0)
COPIES, SCENES = 3, 1000
SHIFT, NOISE = 3, 8.0
"""Pixels that a copy is shifted by at most, and the standard deviation of its noise, of 255."""


def copy_scene(image: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return a shifted, noisy copy of an (S, S, 3) uint8 image."""
    moved = np.roll(image, generator.integers(-SHIFT, SHIFT + 1, 2), (0, 1))
    return (moved + generator.normal(0, NOISE, image.shape)).clip(0, 255).astype(np.uint8)


def make_data() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the features and the truth of the splits; training rows hold the copies of a scene one after another."""
    block = {"source": "digits", "train": SCENES, "val": 600, "test": 1000, "size": 48, "seed": 0}
    data = digits.read(digits.Settings.model_validate(block), Path())
    network = on_backbone(
        Path("weights") / "digits" / "backbone.pt",
        {"kind": "linear", "scale": "none"},
        len(data.table.classes),
        ["mean"],
    )
    assert network.backbone is not None
    extractor = Extractor(network.backbone, network.pools, 250, torch.device("cpu"), "digits")
    features, truth = {}, {}
    for split in ("train", "val", "test"):
        rows, copies = data.table.rows(split), COPIES if split == "train" else 1
        generator = seeds.numpy_generator(0, "benchmark", "groups", split)
        pixels = np.stack([copy_scene(np.asarray(data.image(row)), generator) for row in rows for _ in range(copies)])
        inputs = ImageInputs(pixels, np.arange(len(pixels)), network.mean, network.std)
        parts = extractor.extract(inputs, batches(len(pixels), 250), False)
        features[split] = np.concatenate([part[PLAIN] for part in parts])
        truth[split] = np.repeat(data.table.truth[rows], copies, axis=0)
    return features, truth


def test_map(features: dict, truth: dict, method: str, weight: float, draw: int) -> tuple[float, float]:
    """Return val and test mAP of the best rate and epoch by val."""
    params, groups = read_params("params.yaml", method), np.repeat(np.arange(SCENES), COPIES)
    settings, own = params.run("linear_init", "digits", method)
    consistency = GroupConsistency(weight=weight) if weight else None
    settings = settings.model_copy(update={"keep_epoch_logits": False, "group_consistency": consistency})
    observed = seeded(truth["train"] == 1, seeds.numpy_generator(draw, "benchmark", "groups", "labels"))
    if method == "full":
        observed = truth["train"] * np.int8(2) - np.int8(1)
    inputs = {split: FeatureInputs(values, None, False) for split, values in features.items()}
    found = []
    for rate in settings.search.values if settings.search else ():
        seeds.seed_torch(0, "network")
        width, classes = features["train"].shape[1], truth["train"].shape[1]
        network = Network(
            {"backbone": None, "width": width, "classes": classes, "head": {"kind": "linear", "scale": "none"}}
        )
        problem = describe(tuple(map(str, range(classes))), observed, None, width)
        scores: dict[str, list[float]] = {"val": [], "test": []}

        def score(logits: np.ndarray, network: Network = network, scores: dict[str, list[float]] = scores) -> float:
            own = {"val": logits, "test": network(inputs["test"].plain(np.arange(len(truth["test"]))))["logits"]}
            for split, values in own.items():
                scores[split].append(mean_average_precision(truth[split], np.asarray(values.data))["map"])
            return scores["val"][-1]

        plan = Plan(f"{method} {weight:g} {draw}", settings, rate, settings.epochs, 0, torch.device("cpu"))
        data = Data(inputs["train"], torch.from_numpy(observed), inputs["val"], score, groups=groups)
        Trainer(network, base.build(method, own, problem), data, plan).fit()
        best = int(np.argmax(scores["val"]))
        found.append((scores["val"][best], scores["test"][best]))
    return max(found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, nargs="+", default=[100, 101, 102])
    draws = parser.parse_args().draws
    torch.set_num_threads(1)
    features, truth = make_data()
    print("| weight |", " | ".join(f"`{method}`" for method in METHODS), "|")
    print("| --- |" + " --- |" * len(METHODS))
    for weight in WEIGHTS:
        cells = []
        for method in METHODS:
            values = [test_map(features, truth, method, weight, draw)[1] for draw in draws]
            cells.append(", ".join(f"{value:.1f}" for value in values))
        print(f"| {weight or 'null'} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
