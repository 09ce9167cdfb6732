"""How many of the labels named as missed are: ``python -m benchmarks.missed DATASET [DRAW ...]``.

The unknown labels of the training images, ranked by what each of five says of them: the stage beliefs, as in
hidden.tsv; its beliefs alone; a head of `em` whose rate and epoch val chose by full labels, on the images that trained
it; and, with all labels, `full` at the rate and epoch of val and the closed form, each by heads that did not see the
image. Counted is how many of the first AT are present. benchmarks/missed.tsv keeps the rows of all datasets and draws.
It needs params.yaml of a profile of the dataset and the outputs of prepare and features; labels are drawn here as
`simulate` draws them.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch

from benchmarks.selection import Heads
from pipeline.audits.metrics import mean_average_precision
from pipeline.config.params import Params, read_params
from pipeline.core import files
from pipeline.labels import draws
from pipeline.labels.beliefs import rank_hidden
from pipeline.labels.oracles import label_sets
from pipeline.labels.table import Table, read_table
from pipeline.methods.shared.draw_likelihood import ShareDraw
from pipeline.training.beliefs import Sampling, believe
from pipeline.training.inputs import FeatureInputs, Subset
from pipeline.training.undecided import rank_unknown

AT = (50, 200)
TABLE = Path(__file__).parent / "missed.tsv"


def choose_by_val(heads: Heads, method: str, asked: np.ndarray) -> tuple[float, int, np.ndarray]:
    """Return rate and epoch (from 0) with the highest val mAP by full labels, and that head's logits of some rows."""
    table, train, best = heads.table, heads.table.rows("train"), -np.inf
    val = table.rows("val")
    rows, chosen = np.concatenate([val, asked]), (0.0, 0, np.empty(0))
    search = heads.params.run("linear_init", heads.dataset, method)[0].search
    assert search is not None
    for rate in search.values:
        logits = heads.fit(method, rate, np.arange(len(train)), FeatureInputs(heads.features[rows], None, False))
        for epoch, values in enumerate(logits):
            score = mean_average_precision(table.truth[val], values[: len(val)])["map"]
            if score is not None and score > best:
                best, chosen = score, (rate, epoch, values[len(val) :])
    return chosen


def rank_by_full(heads: Heads) -> np.ndarray:
    """Return the (N, C) logits of training images by heads that all labels of the other images trained."""
    rate, epoch, _ = choose_by_val(heads, "full", np.empty(0, int))
    result = np.empty(heads.observed.shape, np.float32)
    for others, own in heads.folds:
        result[own] = heads.fit("full", rate, others, Subset(heads.training(False), own))[epoch]
    return result


def rank_by_ridge_full(heads: Heads) -> np.ndarray:
    """Return the (N, C) logits of training images by the closed form with all labels of the other images."""
    features = heads.features[heads.table.rows("train")]
    return believe(features, heads.observed.numpy(), heads.mirrored, ShareDraw(1.0), 1).logits


def score_ranking(table: Table, observed: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Return how many in 100 of the first unknown labels are present.

    Args:
        table: The table.
        observed: (N, C) labels of the training images.
        scores: (N, C), each finite.
    """
    present = table.truth[table.rows("train")] == 1
    found = [present[cell] for cell in rank_hidden(scores, observed == 0, max(AT))]
    return {f"at_{count}": 100 * float(np.mean(found[:count])) for count in AT}


def score_draw(
    params: Params, dataset: str, table: Table, number: int, with_truth: dict[str, np.ndarray]
) -> Iterator[dict[str, Any]]:
    """Yield the figures of each ranking under a draw.

    Args:
        params: The parameters.
        dataset: Name of a dataset.
        table: Its table.
        number: Of the draw.
        with_truth: (N, C) logits of training images by name, which no draw changes.
    """
    labels = draws.observe(Path(), table, None, params.settings("simulate", dataset), number).observed
    heads, train = Heads(params, dataset, table, labels), table.rows("train")
    observed = labels[train]
    found = believe(heads.features[train], observed, heads.mirrored, sampling=Sampling(number))
    belief = np.zeros(labels.shape)
    belief[train] = found.present
    ranking = rank_unknown(heads.features, heads.mirrored, labels, belief, (table, number))[train]
    rankings = {
        "hidden.tsv": ranking,
        "beliefs": found.present,
        "em": choose_by_val(heads, "em", train)[2],
        **with_truth,
    }
    unknown = observed == 0
    chance = 100 * float((table.truth[train][unknown] == 1).mean())
    for name, scores in rankings.items():
        yield {"ranking": name, **score_ranking(table, observed, scores), "chance": chance}


def main() -> None:
    """Make the rows of one dataset anew and print their means."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("dataset")
    parser.add_argument("draws", nargs="*", type=int, default=[0, 1, 2, 3, 4], metavar="DRAW")
    options = parser.parse_args()
    torch.set_num_threads(1)
    params = read_params("params.yaml", "em", "full")
    table = read_table(Path("data") / "prepare" / options.dataset / "table.h5")
    oracle = Heads(params, options.dataset, table, label_sets(table, np.zeros_like(table.truth))["all"])
    with_truth = {"full": rank_by_full(oracle), "ridge_full": rank_by_ridge_full(oracle)}
    made = []
    for draw in options.draws:
        scored = score_draw(params, options.dataset, table, draw, with_truth)
        made += [{"dataset": options.dataset, "draw": draw, **row} for row in scored]
    asked = {(options.dataset, str(draw)) for draw in options.draws}
    kept = [
        row for row in (files.read_tsv(TABLE) if TABLE.exists() else []) if (row["dataset"], row["draw"]) not in asked
    ]
    files.write_tsv(TABLE, [*kept, *made])
    for name in dict.fromkeys(row["ranking"] for row in made):
        own = [row for row in made if row["ranking"] == name]
        cells = [[row[f"at_{count}"] for row in own] for count in AT]
        print(name, *(f"{mean(each):.1f} ± {stdev(each) if len(each) > 1 else 0:.1f}" for each in cells), sep="\t")


if __name__ == "__main__":
    main()
