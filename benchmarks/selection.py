"""Compare ways to choose epochs, rates and methods without truth: ``python -m benchmarks.selection DATASET``.

Linear heads of each of METHODS are trained at each rate of the stage's search, on all training images and without each
third of them. Each criterion then chooses an epoch and rate of each method, and one head over all of them. Test mAP,
which no criterion reads, tells what that cost: the best test mAP of the method less that of the chosen head, mean and
worst over methods; the head chosen over all; and Spearman's correlation of criterion and test mAP over all heads.
benchmarks/selection.tsv keeps the rows of all datasets and draws. It needs params.yaml of a profile of the dataset and
the outputs of prepare and features; labels are drawn here: one an image, any present one as likely as another, or by
``--labels`` as `simulate` draws them (LABELS), with rows of their own.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from tqdm import tqdm

from pipeline.audits import unlabelled
from pipeline.audits.metrics import mean_average_precision
from pipeline.config.params import Params, read_params
from pipeline.core import files, seeds
from pipeline.core.strict import merge
from pipeline.labels import draws
from pipeline.labels.recipe import seeded
from pipeline.labels.settings import Simulate
from pipeline.labels.table import Table, read_table
from pipeline.methods.shared import base
from pipeline.methods.shared.draw_likelihood import ShareDraw
from pipeline.methods.shared.problem import describe
from pipeline.networks.network import Network
from pipeline.training import selection
from pipeline.training.beliefs import believe
from pipeline.training.features import read_features
from pipeline.training.inputs import FeatureInputs, Subset
from pipeline.training.loop import Data, Plan, Trainer

METHODS = ("an", "wan", "em", "gr", "ls", "focal", "epr", "role")
TABLE = Path(__file__).parent / "selection.tsv"
LABELS: dict[str, dict[str, Any]] = {
    "frequent": {"bias": {"kind": "frequency", "power": 1.0}},
    "rare": {"bias": {"kind": "frequency", "power": -1.0}},
    "share": {"positives": {"kind": "share", "value": 0.4}},
}
"""Changes of the block `simulate`: labels of frequent classes are likelier to be shown, those of rare ones, or two in
five of all are."""
SUPPORT = 10
"""Test positives of a class that counts."""


class Heads:
    """Trains heads of one dataset under one label draw.

    Args:
        params: The parameters.
        dataset: Name of a dataset.
        table: Its table.
        observed: (N, C) int8 labels of all images.
        methods: Names of methods.
    """

    def __init__(
        self, params: Params, dataset: str, table: Table, observed: np.ndarray, methods: Sequence[str] = METHODS
    ) -> None:
        self.params, self.dataset, self.table, self.methods = params, dataset, table, methods
        train = table.rows("train")
        cache = Path("data") / "features" / dataset / "features.h5"
        stored = read_features(cache, table, False)
        self.features, self.mirrored = stored.plain, stored.mirrored
        self.observed = torch.from_numpy(observed[train])
        self.folds = selection.split_folds(len(train), 0)

    def fit(self, method: str, rate: float, kept: np.ndarray, asked: FeatureInputs | Subset) -> np.ndarray:
        """Return the (epochs, R, C) logits of the rows asked for, by a head that some training images trained."""
        settings, own = self.params.run("linear_init", self.dataset, method)
        settings = settings.model_copy(update={"keep_epoch_logits": False, "select": "last"})
        labels = self.observed[torch.from_numpy(kept)]
        known = self.params.density(self.dataset)
        width = self.features.shape[1]
        density = getattr(known, "value", None)
        problem = describe(self.table.classes, labels.numpy(), density if isinstance(density, float) else None, width)
        seeds.seed_torch(0, "network")
        head = {"kind": "linear", "scale": "none"}
        network = Network({"backbone": None, "width": width, "classes": len(self.table.classes), "head": head})
        data = Data(Subset(self.training(settings.flip), kept), labels, asked, None)
        plan = Plan(f"{method} {rate:g}", settings, rate, settings.epochs, 0, torch.device("cpu"))
        return torch.stack(Trainer(network, base.build(method, own, problem), data, plan).fit().val).numpy()

    def training(self, flip: bool) -> FeatureInputs:
        """Return the training images."""
        return FeatureInputs(self.features[self.table.rows("train")], self.mirrored, flip)

    def every(self, method: str, rate: float) -> dict[str, np.ndarray]:
        """Return (epochs, R, C) logits of val and test by all images, and of train by heads without the image."""
        train, val = self.table.rows("train"), len(self.table.rows("val"))
        rest = np.concatenate([self.table.rows("val"), self.table.rows("test")])
        logits = self.fit(method, rate, np.arange(len(train)), FeatureInputs(self.features[rest], None, False))
        parts = [self.fit(method, rate, others, Subset(self.training(False), own)) for others, own in self.folds]
        out = np.empty((len(logits), len(train), logits.shape[2]), logits.dtype)
        for (_, own), values in zip(self.folds, parts, strict=True):
            out[:, own] = values
        return {"val": logits[:, :val], "test": logits[:, val:], "train": out}


def draw_labels(params: Params, dataset: str, table: Table, labels: str | None, number: int) -> np.ndarray:
    """Return (N, C) int8 labels: one an image, or those of `LABELS`."""
    if labels is None:
        return seeded(table.truth, seeds.numpy_generator(number, "benchmark", "selection"))
    block = merge(params.settings("simulate", dataset).model_dump(), {"protocol": "seeded"} | LABELS[labels])
    return draws.observe(Path(), table, None, Simulate.model_validate(block), number).observed


def score_heads(heads: Heads, observed: np.ndarray, share: float | None) -> Iterator[dict[str, Any]]:
    """Yield test mAP and every criterion of each epoch of each rate of each method.

    Args:
        heads: Trains them.
        observed: (N, C) int8 labels of all images.
        share: Of present labels that are shown, each by itself; None: one an image.
    """
    table = heads.table
    rows = {split: table.rows(split) for split in ("train", "val", "test")}
    draw = None if share is None else ShareDraw(share)
    found = believe(heads.features[rows["train"]], observed[rows["train"]], heads.mirrored, draw)
    shown = {split: observed[at] == 1 for split, at in rows.items()}
    weights = found.present.sum(axis=1) / np.maximum(shown["train"].sum(axis=1), 1)
    weights = weights if share is None else np.ones_like(weights)  # whatever else the image shows
    counted = table.truth[rows["test"]].sum(axis=0) >= SUPPORT
    for method in heads.methods:
        settings, _ = heads.params.run("linear_init", heads.dataset, method)
        assert settings.search is not None
        for rate in settings.search.values:
            logits = heads.every(method, rate)
            for epoch in range(len(logits["test"])):
                val, train, test = (logits[split][epoch] for split in ("val", "train", "test"))
                precision = unlabelled.weighted_precision(train, shown["train"], weights)
                yield {
                    "method": method, "rate": rate, "epoch": epoch,
                    "test": mean_average_precision(table.truth[rows["test"]][:, counted], test[:, counted])["map"],
                    "val mAP, full labels": mean_average_precision(table.truth[rows["val"]], val)["map"],
                    "val mAP, shown labels": mean_average_precision(shown["val"].astype(int), val)["map"],
                    "AUL on val": unlabelled.pooled_aul(val, shown["val"])[0],
                    "weighted AP, out of fold": unlabelled.mean_over_classes(precision, shown["train"])[0],
                    "AUL, out of fold": unlabelled.pooled_aul(train, shown["train"])[0],
                    "weighted AUL, out of fold": unlabelled.pooled_aul(train, shown["train"], weights)[0],
                }  # fmt: skip


def judge(scored: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what each criterion costs, and the fixed recipe: the middle rate and the last epoch."""
    by_method: dict[str, list[dict[str, Any]]] = {}
    for row in scored:
        by_method.setdefault(row["method"], []).append(row)
    best = {method: max(row["test"] for row in rows) for method, rows in by_method.items()}
    for criterion in [name for name in scored[0] if name not in ("method", "rate", "epoch", "test")]:
        chosen = {method: max(rows, key=lambda row: row[criterion]) for method, rows in by_method.items()}
        losses = [best[method] - row["test"] for method, row in chosen.items()]
        top = max(scored, key=lambda row: row[criterion])
        rank = spearmanr([row[criterion] for row in scored], [row["test"] for row in scored])[0]
        yield _row(criterion, losses) | {"over_all": top["method"], "test_map": top["test"], "spearman": rank}
    losses = []
    for method, rows in by_method.items():
        rates = sorted({row["rate"] for row in rows})
        middle = [row for row in rows if row["rate"] == rates[(len(rates) - 1) // 2]]
        losses.append(best[method] - max(middle, key=lambda row: row["epoch"])["test"])
    yield _row("fixed recipe", losses)


def _row(criterion: str, losses: list[float]) -> dict[str, Any]:
    return {"criterion": criterion, "loss_mean": float(np.mean(losses)), "loss_worst": max(losses)}


def main() -> None:
    """Make the rows of one dataset anew and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("dataset")
    parser.add_argument("draws", nargs="*", type=int, default=[0, 1, 2], metavar="DRAW")
    parser.add_argument("--labels", choices=LABELS, help="labels that are not one an image at random")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, metavar="METHOD")
    options = parser.parse_args()
    torch.set_num_threads(1)
    params = read_params("params.yaml", *METHODS)
    table = read_table(Path("data") / "prepare" / options.dataset / "table.h5")
    name = f"{options.dataset}, {options.labels}" if options.labels else options.dataset
    positives = LABELS.get(options.labels, {}).get("positives", {})
    made = []
    for draw in tqdm(options.draws, disable=None):
        observed = draw_labels(params, options.dataset, table, options.labels, draw)
        heads = Heads(params, options.dataset, table, observed, options.methods)
        scored = list(score_heads(heads, observed, positives.get("value")))
        made += [{"dataset": name, "draw": draw, **row} for row in judge(scored)]
    asked = {(name, str(draw)) for draw in options.draws}
    kept = [
        row | {"spearman": float(row["spearman"]) if row["spearman"] else None}  # a text with a sign would be quoted
        for row in (files.read_tsv(TABLE) if TABLE.exists() else [])
        if (row["dataset"], row["draw"]) not in asked
    ]
    files.write_tsv(TABLE, [*kept, *made])
    for row in made:
        print(*(f"{value:.2f}" if isinstance(value, float) else value for value in row.values()), sep="\t")


if __name__ == "__main__":
    main()
