"""What choosing the epoch of fine-tuned runs without truth costs: ``python -m benchmarks.epochs DATASET``.

Of each run of finetune that stored its validation logits by epoch, but for oracles, at the rate that it took: val mAP
by full labels of the best epoch less that of the epoch which each criterion takes, mean over runs and worst. Prints a
line a criterion. It needs the outputs of simulate, beliefs and finetune of a dataset whose val is labelled in full.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from pipeline.audits.metrics import mean_average_precision
from pipeline.core import hdf5
from pipeline.labels.beliefs import beliefs_file, read_beliefs
from pipeline.labels.observed import observed_file, read_shown
from pipeline.labels.table import Table, read_table
from pipeline.methods.shared import base
from pipeline.training.selection import Judge


def score_by_truth(logits: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return (E,) mAP of (E, N, C) logits, in percent."""
    return np.array([mean_average_precision(truth, each)["map"] for each in logits])


def take_epochs(logits: np.ndarray, shown: np.ndarray, stands_for: np.ndarray, seed: int) -> dict[str, int]:
    """Return the epoch, from 0, that each criterion takes.

    Args:
        logits: (E, N, C) of validation images by epoch.
        shown: (N, C) bool.
        stands_for: (N,) labels that a shown one of each image stands for.
        seed: Of the bootstrap.
    """
    judge, plain = Judge(shown, stands_for, seed), Judge(shown, np.ones(len(shown)), seed)
    best = int(np.argmax([judge.score(each) for each in logits]))
    last = len(logits) - 1
    return {
        "auto": best if judge.is_better(list(logits), best) else last,
        "last epoch": last,
        "weighted AUL": best,
        "AUL": int(np.argmax([plain.score(each) for each in logits])),
        "val mAP, shown labels": int(np.argmax(score_by_truth(logits, shown.astype(np.int8)))),
    }


def score_runs(dataset: str, table: Table) -> dict[str, list[float]]:
    """Return what each criterion loses of each run."""
    lost, val = defaultdict[str, list[float]](list), table.rows("val")
    for file in sorted(Path("runs/finetune").glob(f"{dataset}-*/logits.h5")):
        method, draw, seed = file.parent.name.removeprefix(f"{dataset}-").rsplit("-", 2)
        with hdf5.read(file) as stored:
            logits = stored["epochs_val"][()] if "epochs_val" in stored else None
        if logits is None or base.load(method).labels != "single":
            continue
        observed = read_shown(observed_file(Path(), dataset, int(draw)), table)
        stands_for = read_beliefs(beliefs_file(Path(), dataset, int(draw)), table).stands_for(observed)
        truth = score_by_truth(logits, table.truth[val])
        for name, epoch in take_epochs(logits, observed[val] == 1, stands_for[val], int(seed)).items():
            lost[name].append(float(truth.max() - truth[epoch]))
    return lost


def main() -> None:
    """Print what each criterion loses."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("dataset")
    dataset = parser.parse_args().dataset
    table = read_table(Path("data") / "prepare" / dataset / "table.h5")
    for name, lost in score_runs(dataset, table).items():
        print(f"{name}\t{np.mean(lost):.2f}, {np.max(lost):.2f}\t{len(lost)} runs")


if __name__ == "__main__":
    main()
