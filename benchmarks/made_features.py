"""COCO's real labels on features that are made: ``python -m benchmarks.made_features LABELS``.

LABELS is an .npz of the real label matrix: `image` file names, `labels` (N, 80), `category`. Of its images IMAGES are
taken, those of test from COCO's validation part, and features made of their labels y_i (`make_features`):

    x_i = max(0, sum_c y_ic s_ic v_c + sum_k n_ik u_k + NOISE e_i)

v_c is a prototype of each class, s_ic how large the object is in the picture, u_k are FACTORS directions that have
nothing to do with labels, e_i is noise; all is divided by one number, so
that the mean square is 1. Such features obey a model of ours, no photograph; labels, their numbers and
which go together are real. NOISE was set on val alone, so that `full` has 60 to 75 mAP.

Under each label draw heads of METHODS are trained by a stack (`pipeline.training.stacked`) at RATES, with the epochs,
batches and optimiser of params.yaml, and each chooses rate and epoch three ways: by val mAP with full labels
(``clean``), by ``select: auto``, and by no choice (``fixed``: the middle rate, the last epoch). `ridge` is the
closed form on the beliefs, `ridge_full` that with all labels. ``--settings`` prints what settings val prefers on draws
that are not reported. benchmarks/made_features.tsv keeps the rows of all draws. Nothing is chosen by test labels.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import t
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from pipeline.audits.metrics import mean_average_precision
from pipeline.config.params import read_params
from pipeline.core import files, seeds
from pipeline.core.strict import merge
from pipeline.labels.beliefs import Beliefs
from pipeline.labels.oracles import label_sets
from pipeline.labels.recipe import seeded
from pipeline.labels.table import Table
from pipeline.methods.shared.draw_likelihood import ShareDraw
from pipeline.training import ridge, selection
from pipeline.training.beliefs import Sampling, believe
from pipeline.training.features import Cache
from pipeline.training.inputs import Subset
from pipeline.training.settings import SettingsSearch
from pipeline.training.settings_search import Candidate, Draw, Task, search_settings
from pipeline.training.stacked import Stack

IMAGES = {"train": 4000, "val": 1000, "test": 4000}
WIDTH, FACTORS, NOISE = 256, 30, 3.0
"""Features of an image; directions that say nothing of labels; size of the noise."""
METHODS = ("an", "em", "gr", "epr", "role", "full")
"""With their settings for data without published ones, which val prefers on `CHOSEN_ON`."""
RATES = (1.0e-3, 3.0e-3, 1.0e-2)
CHOSEN_ON = (100,)
TRIED: dict[str, list[dict[str, Any]]] = {
    "an": [{}],
    "em": [{}],
    "gr": [
        {},
        {
            "belief": {"kind": "logistic", "weight": [0.0, 10.0], "bias": [-2.0, -8.0]},
            "weight": {"kind": "gaussian", "mu": [0.5, 0.8], "sigma": [2.0, 0.5]},
        },
    ],
    "epr": [{}],
    "role": [{}, {"factor": 10.0}],
    "full": [{}],
}
"""What ``--settings`` compares: those settings, and the ones published for COCO."""
TRIED_RATES, TRIED_DECAYS = (3.0e-4, 1.0e-3, 3.0e-3, 1.0e-2, 3.0e-2), (0.0, 1.0e-4)
SUPPORT = 10
"""Test positives of a class that counts."""
TABLE = Path(__file__).parent / "made_features.tsv"


def read_table_of(labels: Path) -> Table:
    """Return the table of the images that are taken.

    Args:
        labels: The .npz file.
    """
    with np.load(labels) as archive:
        every, truth, classes = archive["image"], archive["labels"], archive["category"]
    generator, parts = np.random.default_rng(0), []
    for name, count in (("train", IMAGES["train"] + IMAGES["val"]), ("val", IMAGES["test"])):
        here = np.flatnonzero(np.char.startswith(every, f"COCO_{name}2014_"))
        parts.append(generator.permutation(here)[:count])
    rows = np.concatenate(parts)
    split = np.repeat(np.arange(3), list(IMAGES.values())).astype(np.uint8)
    return Table(
        classes=tuple(str(name) for name in classes),
        paths=tuple(str(name) for name in every[rows]),
        truth=truth[rows].astype(np.int8),
        scored=np.ones((len(rows), len(classes)), bool),
        split=split,
        official=(split == 2).astype(np.uint8),
    )


def make_features(truth: np.ndarray, noise: float = NOISE) -> np.ndarray:
    """Return the (N, WIDTH) float32 features of images with (N, C) labels.

    Args:
        truth: The labels.
        noise: Size of the noise.
    """
    generator = np.random.default_rng(1)
    prototypes = generator.standard_normal((truth.shape[1], WIDTH))
    directions = generator.standard_normal((FACTORS, WIDTH))
    sizes = np.exp(0.5 * generator.standard_normal(truth.shape))
    factors = generator.standard_normal((len(truth), FACTORS))
    signal = (truth * sizes) @ prototypes + factors @ directions
    features = np.maximum(signal + noise * generator.standard_normal(signal.shape), 0)
    return (features / np.sqrt(np.square(features).mean())).astype(np.float32)


def make_draw(table: Table, number: int) -> Draw:
    """Return a label draw, whose labels an image are told as they are, and of which nothing is believed.

    Args:
        table: The table.
        number: Of the draw.
    """
    observed = seeded(table.truth, seeds.numpy_generator(number, "benchmark", "made_features"))
    told = float(table.truth[table.rows("train")].sum(axis=1).mean())
    return Draw(number, label_sets(table, observed), observed == 1, None, told)


def believe_draw(table: Table, features: np.ndarray, draw: Draw) -> tuple[Draw, np.ndarray]:
    """Return a draw with its beliefs, and the test logits of `ridge`.

    Args:
        table: The table.
        features: (N, D).
        draw: The draw.
    """
    train = table.rows("train")
    found = believe(features[train], draw.labels["single"][train], sampling=Sampling(draw.number))
    logits = ridge.score(features, found.weights, found.bias).astype(np.float32)
    belief = np.zeros(table.truth.shape, np.float32)
    belief[train], logits[train] = found.present, found.logits
    shares = np.array([[share.value, share.low, share.high] for share in found.shares])
    beliefs = Beliefs(belief, logits, found.labels.value, shares, "count", logits)
    return replace(draw, beliefs=beliefs), logits[table.rows("test")]


def make_task(table: Table, features: np.ndarray, drawn: list[Draw], tried: SettingsSearch) -> Task:
    """Return what a stack trains: each method with each change of its settings, at each rate, under each draw."""
    params = read_params("params.yaml", *tried.methods)
    candidates = [
        Candidate(name, change, merge(params.method(name, "default"), change))
        for name, changes in tried.methods.items()
        for change in changes
    ]
    settings, cache = params.settings("linear_init", "default"), Cache(features, None, None, ["mean"], [])
    return Task("made features", table, cache, settings, tried, candidates, drawn, torch.device("cpu"))


def make_search(
    methods: dict[str, list[dict[str, Any]]], rates: tuple[float, ...], decays: tuple[float, ...], draws: list[int]
) -> SettingsSearch:
    """Return what is tried."""
    return SettingsSearch(
        methods=methods,
        learning_rates=list(rates),
        weight_decays=list(decays),
        scales=["none"],
        draws=draws,
        seeds=[0],
        scores=["clean"],
    )


def test_map(table: Table, logits: np.ndarray) -> float:
    """Return mAP over the classes of `SUPPORT`, in points."""
    truth = table.truth[table.rows("test")]
    counted = truth.sum(axis=0) >= SUPPORT
    found = mean_average_precision(truth[:, counted], logits[:, counted])["map"]
    assert found is not None
    return found


class Taken(NamedTuple):
    """What a way to choose takes."""

    head: int
    epoch: int


def score_out_of_fold(task: Task) -> list[np.ndarray]:
    """Return (epochs, N) what each image adds to the score of each head, by heads without the image."""
    (draw,), every, train = task.draws, task.train_inputs(), task.of_split("train")
    assert draw.beliefs is not None
    rows = task.table.rows("train")
    judge = selection.Judge(draw.shown[rows], draw.beliefs.stands_for(draw.shown)[rows], 0)
    folds = selection.split_folds(len(every), 0)
    shape, stacks = (len(task.table.classes), train.shape[1]), list[Stack]()
    heads = [task.make_heads(others) for others, _ in folds]
    for parts, (others, _) in zip(heads, folds, strict=True):
        stacks.append(Stack(parts, Subset(every, others), task.training, 0, shape, task.device))
    gains: list[list[np.ndarray]] = [[] for _ in heads[0]]
    together = np.empty((len(train), shape[0]), np.float32)
    for epoch in tqdm(range(1, task.training.epochs + 1), "out of fold", disable=None):
        for stack, (others, _) in zip(stacks, folds, strict=True):
            stack.train_epoch(epoch)
            stack.end_epoch(epoch, train[others])
        for number, parts in enumerate(zip(*heads, strict=True)):
            for stack, head, (_, own) in zip(stacks, parts, folds, strict=True):
                together[own] = _sound(stack.predict(head, train[own], epoch)).numpy()
            gains[number].append(judge.gains(together))
    return [np.stack(each) for each in gains]


def _sound(logits: Tensor | None) -> Tensor:
    assert logits is not None, "a head diverged: name lower RATES"
    return logits


def choose(task: Task, gains: list[np.ndarray], vals: np.ndarray) -> dict[str, dict[str, Taken]]:
    """Return which head and epoch each method takes, by way to choose.

    Args:
        task: The heads of one draw.
        gains: What `score_out_of_fold` returned, by head.
        vals: (heads, epochs) val mAP.
    """
    rows, (draw,) = task.table.rows("train"), task.draws
    assert draw.beliefs is not None
    judge, taken = selection.Judge(draw.shown[rows], draw.beliefs.stands_for(draw.shown)[rows], 0), {}
    trials = task.trials()
    for method in METHODS:
        own = [number for number, (each, _, _) in enumerate(trials) if each.method == method]
        fixed = Taken(own[(len(own) - 1) // 2], task.training.epochs)
        epochs = task.training.epochs
        best = int(np.argmax(vals[own]))
        tried = np.concatenate([gains[number] for number in own])
        top = int(np.argmax(tried.sum(axis=1)))
        better = judge.compare(tried, top, gains[fixed.head][-1]).better
        auto = Taken(own[top // epochs], top % epochs + 1) if better else fixed
        taken[method] = {"clean": Taken(own[best // epochs], best % epochs + 1), "auto": auto, "fixed": fixed}
    return taken


def score_draw(table: Table, features: np.ndarray, number: int) -> Iterator[dict[str, Any]]:
    """Yield test mAP of every method under a draw, by way to choose."""
    draw, logits = believe_draw(table, features, make_draw(table, number))
    yield {
        "method": "ridge",
        "select": "none",
        "learning_rate": None,
        "epoch": None,
        "test_map": test_map(table, logits),
    }
    task = make_task(table, features, [draw], make_search({name: [{}] for name in METHODS}, RATES, (0.0,), [number]))
    gains = score_out_of_fold(task)
    heads, train = task.make_heads(None), task.of_split("train")
    stack = Stack(heads, task.train_inputs(), task.training, 0, (len(table.classes), train.shape[1]), task.device)
    val, truth, weights = task.of_split("val"), table.truth[table.rows("val")], []
    maps = np.empty((len(heads), task.training.epochs))
    for epoch in tqdm(range(1, task.training.epochs + 1), f"draw {number}", disable=None):
        stack.train_epoch(epoch)
        stack.end_epoch(epoch, train)
        weights.append([tuple(part.clone() for part in stack.weights(head)) for head in heads])
        for place, head in enumerate(heads):
            maps[place, epoch - 1] = mean_average_precision(truth, _sound(stack.predict(head, val, epoch)).numpy())[
                "map"
            ]
    test = task.of_split("test")
    for method, ways in choose(task, gains, maps).items():
        for way, (head, epoch) in ways.items():
            logits = F.linear(test, *weights[epoch - 1][head]).numpy()
            row = {"method": method, "select": way, "learning_rate": heads[head].setting.rate, "epoch": epoch}
            yield row | {"test_map": test_map(table, logits)}


def score_ridge_full(table: Table, features: np.ndarray) -> float:
    """Return test mAP of the closed form with all labels."""
    train = table.rows("train")
    labels = np.where(table.truth[train] == 1, 1, -1).astype(np.int8)
    found = believe(features[train], labels, None, ShareDraw(1.0), 1)
    return test_map(table, ridge.score(features[table.rows("test")], found.weights, found.bias))


def print_settings(table: Table, features: np.ndarray, numbers: list[int]) -> None:
    """Print the mean val mAP of each setting at each rate over draws that are not reported."""
    drawn = [make_draw(table, number) for number in numbers]
    rows = search_settings(make_task(table, features, drawn, make_search(TRIED, TRIED_RATES, TRIED_DECAYS, numbers)))
    for arm in dict.fromkeys(
        (row["method"], row["settings"], row["weight_decay"], row["learning_rate"]) for row in rows
    ):
        own = [
            row for row in rows if (row["method"], row["settings"], row["weight_decay"], row["learning_rate"]) == arm
        ]
        scores = [row["clean_score"] for row in own]
        print(*arm, f"{mean(scores):.2f}", [row["clean_epoch"] for row in own], sep="\t")


def print_means(rows: list[dict[str, Any]]) -> None:
    """Print mean and standard deviation over draws, and the shares of the gaps closed with their 95 % t intervals."""
    draws = sorted({row["draw"] for row in rows})

    def values(method: str, way: str) -> np.ndarray:
        found = {row["draw"]: float(row["test_map"]) for row in rows if (row["method"], row["select"]) == (method, way)}
        return np.array([found[draw] for draw in draws])

    start = values("an", "clean")
    for method, way in dict.fromkeys((row["method"], row["select"]) for row in rows):
        own, cells = values(method, way), []
        for top in (values("full", "clean"), values("ridge_full", "none")):
            share = 100 * (own - start) / (top - start)
            reach = t.ppf(0.975, len(draws) - 1) * stdev(share) / math.sqrt(len(draws)) if len(draws) > 1 else math.nan
            cells.append(f"{share.mean():.1f} [{share.mean() - reach:.1f}, {share.mean() + reach:.1f}]")
        spread = f"{stdev(own):.2f}" if len(draws) > 1 else "-"
        print(method, way, f"{mean(own):.2f} ± {spread}", *cells, sep="\t")


def main() -> None:
    """Make the rows of the draws anew and print their means."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("labels", type=Path, help="the .npz file")
    parser.add_argument("draws", nargs="*", type=int, metavar="DRAW")
    parser.add_argument("--settings", action="store_true", help="compare settings on draws that are not reported")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = read_table_of(options.labels)
    features = make_features(table.truth)
    if options.settings:
        print_settings(table, features, options.draws or list(CHOSEN_ON))
        return
    top = score_ridge_full(table, features)
    for draw in options.draws or range(5):
        made = [{"draw": draw, **row} for row in score_draw(table, features, draw)]
        made.append({"draw": draw, "method": "ridge_full", "select": "none", "learning_rate": None, "epoch": None})
        made[-1]["test_map"] = top
        rows = [row for row in (files.read_tsv(TABLE) if TABLE.exists() else []) if row["draw"] != str(draw)]
        files.write_tsv(TABLE, [*rows, *made])
    print_means(files.read_tsv(TABLE))


if __name__ == "__main__":
    main()
