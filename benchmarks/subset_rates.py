"""Which rates and epochs suit how many images: ``python -m benchmarks.subset_rates [--root FOLDER]``.

Linear heads on cached features of subsets of the training images, digits and photographs (profile voc_photos), on the
label draws of `benchmarks.method_settings`, which says what has to be there. Each subset is a part of the next. A head
is trained at the rates of the profile's grid and at those around it, for as many epochs as make the steps of the
largest subset, at most 100. No test label is read. benchmarks/subset_rates.tsv holds, of each head, the best val mAP of
an epoch, within the profile's epochs (`first`) and within all (`whole`). Since the best of more is higher even where
nothing is learned, it also holds what the epoch that one half of val chooses scores on the other half.

Printed is, for each subset and method, the mean over draws of: the score of a search with and without `extend`, what it
lies below the best rate of all, and what epochs after the profile's gain on the half that did not choose.
"""

import argparse
import math
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.method_settings import DRAWS, HERE, PROFILES, WORK, draw_labels, read_content
from pipeline.audits.metrics import mean_average_precision
from pipeline.config.params import PARAMS, KnownDensity, Params, parse_params, read_params
from pipeline.core import files, seeds
from pipeline.labels.observed import observed_file, read_observed
from pipeline.labels.table import Table, read_table
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import describe
from pipeline.networks.network import Network
from pipeline.training import search
from pipeline.training.features import read_features
from pipeline.training.inputs import FeatureInputs
from pipeline.training.loop import Data, Plan, Trainer
from pipeline.training.settings import Training

TABLE = HERE / "subset_rates.tsv"
SUBSETS = {"digits": (300, 1000, 3000), "voc_photos": (100, 250, 528)}
"""Training images, by dataset."""
BATCHES = (16, 64)
LADDERS = {
    "digits": (2.7e-4, 9e-4, 3e-3, 1e-2, 3e-2, 9e-2, 2.7e-1),
    "voc_photos": (9e-5, 3e-4, 1e-3, 3e-3, 9e-3, 2.7e-2, 8.1e-2),
}
"""The rates of each profile's grid and some that a search may add; another counts as one that diverges."""
METHODS = ("an", "em")
"""One method that is told wrong labels, and one that is not."""
PLACE = ("dataset", "images", "batch", "method")
CHOICES = ("val", "even", "odd")
"""What chooses an epoch: all of val, or the rows of one half."""


def read_subset(
    dataset: str, draw: int, images: int, settings: Training
) -> tuple[Table, np.ndarray, FeatureInputs, FeatureInputs]:
    """Read table, observed labels and features, those of training for the first of the shuffled training images.

    Args:
        dataset: Name of the dataset.
        draw: Label draw.
        images: Training images.
        settings: The stage's settings.

    Returns:
        Table, (images, C) labels, and inputs of training and validation.
    """
    root = WORK / dataset
    table = read_table(root / "data" / "prepare" / dataset / "table.h5")
    rows = table.rows("train")
    features, mirrored = read_features(Path("data/features") / dataset / "features.h5", table, False)[:2]
    kept = np.random.default_rng(0).permutation(len(rows))[:images]
    labels = read_observed(observed_file(root, dataset, draw), table)["single"][rows][kept]
    train = FeatureInputs(features[rows][kept], None if mirrored is None else mirrored[kept], settings.flip)
    return table, labels, train, FeatureInputs(features[table.rows("val")], None, False)


def train_ladder(dataset: str, images: int, batch: int, method: str, draw: int) -> list[dict[str, Any]]:
    """Train a head at each rate of the ladder.

    Args:
        dataset: Name of the dataset.
        images: Training images.
        batch: Batch size.
        method: Name of the method.
        draw: Label draw.

    Returns:
        One row of the table a rate.
    """
    torch.set_num_threads(1)
    params = read_params(WORK / dataset / PARAMS, method)
    given = params.settings("linear_init", dataset)
    steps = -(-SUBSETS[dataset][-1] // batch) * given.epochs
    epochs = min(100, -(-steps // -(-images // batch)))
    changed = {"batch_size": batch, "epochs": epochs, "learning_rate": 0.1, "search": None, "keep_epoch_logits": False}
    settings = Training.model_validate(given.model_dump() | changed)
    table, labels, train, val = read_subset(dataset, draw, images, settings)
    truth, scored = table.reference("val")
    width = train.features.shape[1]
    density = params.density(dataset)
    known = density.value if isinstance(density, KnownDensity) else None
    problem = describe(table.classes, labels, known, width)
    rows = []
    for rate in LADDERS[dataset]:
        seeds.seed_torch(0, "network")
        network = Network(
            {
                "backbone": None,
                "width": width,
                "classes": len(table.classes),
                "head": {"kind": "linear", "scale": "none"},
            }
        )
        built = base.build(method, params.method(method, "default"), problem)
        plan = Plan("subset", settings, rate, epochs, 0, torch.device("cpu"))
        data = Data(train, torch.from_numpy(labels), val, None)
        logits = [each.numpy() for each in Trainer(network, built, data, plan).fit().val]
        halves = {"val": slice(None), "even": slice(0, None, 2), "odd": slice(1, None, 2)}
        curves = {
            name: np.array([mean_average_precision(truth[at], each[at], scored[at])["map"] for each in logits])
            for name, at in halves.items()
        }
        row = dict(
            zip((*PLACE, "draw", "rate", "epochs"), (dataset, images, batch, method, draw, rate, epochs), strict=True)
        )
        for (name, end), choice in product((("first", given.epochs), ("whole", epochs)), CHOICES):
            epoch = int(np.argmax(curves[choice][:end]))
            other = {"even": "odd", "odd": "even", "val": "val"}[choice]
            row |= {f"{name}_{choice}": curves[choice][epoch], f"{name}_{choice}_told": curves[other][epoch]}
        rows.append(row | {"first_epoch": 1 + int(np.argmax(curves["val"][: given.epochs]))})
    return rows


def find_rate(curve: dict[float, float], block: dict[str, Any], extend: int) -> float:
    """Return the rate that a search ends with.

    Args:
        curve: Score of each rate.
        block: A training stage's settings, whose grid is where it starts.
        extend: Rates that it may add.
    """
    settings = Training.model_validate(block | {"search": block["search"] | {"extend": extend}})
    known = {f"{rate:.3g}": (score, rate) for rate, score in curve.items()}

    def judge(trial: tuple[float, float] | None) -> search.Verdict:
        return search.Verdict(-math.inf, 0, 1) if trial is None else search.Verdict(trial[0], 1, None)

    _, trial, _ = search.choose(settings, lambda setting, _: known.get(f"{setting.rate:.3g}"), judge)
    assert trial is not None  # the grid itself is on the ladder
    return trial[1]


def summarise(rows: list[dict[str, str]], params: dict[str, Params]) -> Iterator[str]:
    """Yield what a table says of each subset and method.

    Args:
        rows: The table.
        params: Checked parameters of each dataset.

    Yields:
        A heading, and one line of figures for each.
    """
    yield " ".join((*PLACE, "plain", "extended", "best", "rates", "epochs", "gain"))
    for place in dict.fromkeys(tuple(row[key] for key in PLACE) for row in rows):
        block = params[place[0]].settings("linear_init", place[0]).model_dump()
        draws = [
            {float(row["rate"]): row for row in rows if (*(row[key] for key in PLACE), row["draw"]) == (*place, draw)}
            for draw in map(str, DRAWS)
        ]

        def score(draw: dict[float, dict[str, str]], extend: int, kept: str, told: str, block: Any = block) -> float:
            rate = find_rate({rate: float(row[kept]) for rate, row in draw.items()}, block, extend)
            return float(draw[rate][told])

        plain, extended = (mean(score(draw, extend, "first_val", "first_val") for draw in draws) for extend in (0, 3))
        best = mean(max(float(row["first_val"]) for row in draw.values()) for draw in draws)
        rates = [find_rate({rate: float(row["first_val"]) for rate, row in draw.items()}, block, 3) for draw in draws]
        gain = mean(
            score(draw, 3, f"whole_{half}", f"whole_{half}_told")
            - score(draw, 3, f"first_{half}", f"first_{half}_told")
            for draw in draws
            for half in CHOICES[1:]
        )
        epochs = next(iter(draws[0].values()))["epochs"]
        told = " and ".join(f"{rate:g}" for rate in rates)
        yield f"{' '.join(place)} {plain:.2f} {extended:.2f} {best:.2f} ({told}) {epochs} {gain:+.2f}"


def main() -> None:
    """Train on all subsets and print what they say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--root", metavar="FOLDER", help="folder of the photographs, which holds VOCdevkit/VOC2012")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="heads side by side, one thread each")
    parser.add_argument("--show", action="store_true", help="only print what the table holds")
    arguments = parser.parse_args()
    params = {}
    for dataset in PROFILES:
        content = read_content(dataset, arguments.root)
        params[dataset] = parse_params(content, {})
        draw_labels(dataset, content, DRAWS, METHODS)
    if not arguments.show:
        jobs = [
            (dataset, images, *rest)
            for dataset, subsets in SUBSETS.items()
            for images, *rest in product(subsets, BATCHES, METHODS, DRAWS)
        ]
        with ProcessPoolExecutor(arguments.jobs) as pool:
            found = list(tqdm(pool.map(train_ladder, *zip(*jobs, strict=True)), total=len(jobs), disable=None))
        files.write_tsv(TABLE, [row for rows in found for row in rows])
    for line in summarise(files.read_tsv(TABLE), params):
        print(line)


if __name__ == "__main__":
    main()
