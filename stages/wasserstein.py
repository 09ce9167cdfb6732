"""Measure how far runs set hidden positives apart from negatives: ``python -m stages.wasserstein DATASET SEED``.

Reads data/prepare/<dataset>/table.h5, data/simulate/<dataset>/observed.h5 and runs/<stage>/<key>/logits.h5 of every run
that params.yaml names; writes analyses/wasserstein/<dataset>-<seed>/. No torch.

Where the labels of a dataset are not exhaustive nothing can be measured: the same files say so, and tables have no row.
"""

from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from pipeline.audits import wasserstein as separate
from pipeline.config.params import TRAINING_STAGES, read_params
from pipeline.core import files, hdf5
from pipeline.core.errors import FileError
from pipeline.labels.table import Table, read_table
from stages import entry

SPLITS = ("train", "val")  # test has no simulated labels, so nothing there is "unannotated"
_NO_CLASS = "no class has both hidden positives and true negatives"


def wasserstein(root: Path, dataset: str, seed: int) -> None:
    """Measure the Wasserstein separation of all runs of a dataset at one training seed.

    Args:
        root: Project root.
        dataset: Name of a dataset.
        seed: Training seed.
    """
    params = read_params(root / "params.yaml")
    table = read_table(root / "data" / "prepare" / dataset / "table.h5")
    with hdf5.read(root / "data" / "simulate" / dataset / "observed.h5") as file:
        single = file["single"][()]
    reason = None if table.exhaustive else f"the labels of {dataset} are not exhaustive: what is hidden is not known"
    planned = [(stage, *run) for stage in TRAINING_STAGES for run in params.keys(stage, dataset, seed)]
    runs: list[dict[str, Any]] = []
    epochs: list[dict[str, Any]] = []
    class_epochs: list[dict[str, Any]] = []
    for stage, key, method, variant in tqdm(planned, desc="wasserstein", unit="run", disable=None):
        name = {"stage": stage, "key": key, "method": method}
        if reason:
            runs.append(name | {"variant": variant, "reason": reason} | dict.fromkeys(SPLITS))
            continue
        run, by_epoch = _measure(root / "runs" / stage / key / "logits.h5", table, single)
        runs.append(name | {"variant": variant} | run)
        for place, found in by_epoch:
            epochs.append(name | place | {key: found[key] for key in ("pooled", "mean_over_defined")})
            epochs[-1]["reason"] = found["pooled_reason"] or (None if found["defined"] else _NO_CLASS)
            class_epochs += [name | place | row for row in _by_class(found, table.classes)]
    if not reason:
        _compare(runs)

    record = {"dataset": dataset, "seed": seed, "truth": not reason, "classes": list(table.classes), "runs": runs}
    folder = root / "analyses" / "wasserstein" / f"{dataset}-{seed}"
    files.write_json(folder / "wasserstein.json", record)
    files.write_tsv(
        folder / "per_class.tsv",
        [row for run in runs if not reason for row in _class_rows(run, table.classes)],
        ["stage", "key", "method", "class", "split", "distance", "n_pos", "n_neg", "reason"],
    )
    files.write_tsv(
        folder / "epochs.tsv",
        epochs,
        ["stage", "key", "method", "epoch", "selected", "split", "pooled", "mean_over_defined", "reason"],
    )
    columns = ["stage", "key", "method", "epoch", "split", "class", "distance", "n_positive", "n_negative", "reason"]
    files.write_tsv(
        folder / "class_epochs.tsv", [{name: row[name] for name in columns} for row in class_epochs], columns
    )
    title = f"Wasserstein separation of {dataset}, seed {seed}"
    files.write_summary(folder / "summary.md", title, _summary(record, table))


def _measure(path: Path, table: Table, single: np.ndarray) -> tuple[dict[str, Any], list[tuple[dict, dict]]]:
    """Return a run's entry of wasserstein.json, and (``epoch``, ``selected``, ``split``; separation) of kept epochs.

    Raises:
        FileError: The run's logits do not fit the table.
    """
    run: dict[str, Any] = {}
    by_epoch = []
    with hdf5.read(path) as file:
        run["epoch"] = chosen = int(file.attrs["epoch"])
        for split in SPLITS:
            rows = table.rows(split)
            truth, known, scored = table.truth[rows], single[rows], table.scored[rows]
            logits = file[split][()]
            if logits.shape != truth.shape:
                raise FileError(
                    f"{path}: `{split}` is {logits.shape}, the table asks for {truth.shape}; run that stage again"
                )
            run[split] = separate.separation(logits, truth, known, scored)
            kept = file.get(f"epochs_{split}")
            run[split]["epochs_kept"] = 0 if kept is None else len(kept)
            for epoch, logits in enumerate(() if kept is None else kept, start=1):
                found = separate.separation(logits, truth, known, scored)
                by_epoch.append(({"epoch": epoch, "selected": int(epoch == chosen), "split": split}, found))
    return run, by_epoch


def _compare(runs: list[dict[str, Any]]) -> None:
    """Add to each run, by split, the share of classes that it separates better than each grid method of its stage."""
    for run in runs:
        others = [
            other for other in runs if other["variant"] is None and other["stage"] == run["stage"] and other is not run
        ]
        for split in SPLITS:
            mine = run[split]["per_class"]
            run[split]["share_of_classes_above"] = {
                other["method"]: separate.share_above(mine, other[split]["per_class"]) for other in others
            }


def _class_rows(run: dict[str, Any], classes: tuple[str, ...]) -> list[dict[str, Any]]:
    name = {key: run[key] for key in ("stage", "key", "method")}
    return [
        name
        | {
            "class": row["class"],
            "split": split,
            "distance": row["distance"],
            "n_pos": row["n_positive"],
            "n_neg": row["n_negative"],
            "reason": row["reason"],
        }
        for split in SPLITS
        for row in _by_class(run[split], classes)
    ]


def _by_class(found: dict[str, Any], classes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return what ``separation`` found as one row a class."""
    return [
        {
            "class": label,
            "distance": found["per_class"][c],
            "n_positive": found["counts_positive"][c],
            "n_negative": found["counts_negative"][c],
            "reason": found["reason"][c],
        }
        for c, label in enumerate(classes)
    ]


def _summary(record: dict[str, Any], table: Table) -> list[str]:
    if not record["truth"]:
        return [
            f"Not measured: the distance between hidden positives and true negatives; the labels of"
            f" {record['dataset']} are not exhaustive, so nobody knows which unannotated cells are which.",
            f"{len(record['runs'])} runs of the grid and the variants at this seed were skipped. The tables have no"
            " row; `wasserstein.json` names the runs.",
        ]
    lines = [
        f"{len(record['runs'])} runs of the grid and the variants at this seed, {len(table.classes)} classes.",
        "Distance between the probabilities of hidden positives and of true negatives among unannotated cells, in"
        " [0, 1]; larger is better. Val's unannotated cells are those of its simulated single positives.",
    ]
    left_out = int((~table.scored).sum())
    if left_out:
        lines.append(f"Left out: {left_out} cells of the whole table whose truth is not known (`scored` is False).")
    header = ["stage", "run", "epoch", *(f"{split}, {how}" for split in SPLITS for how in ("pooled", "class mean"))]
    lines += ["", f"| {' | '.join(header)} |", "|" + " --- |" * len(header)]
    for run in record["runs"]:
        values = [run[split][name] for split in SPLITS for name in ("pooled", "mean_over_defined")]
        shown = ["-" if value is None else f"{value:.4f}" for value in values]
        lines.append(f"| {run['stage']} | {run['key']} | {run['epoch']} | {' | '.join(shown)} |")
    for split in SPLITS:
        number = len(table.classes) - min(run[split]["defined"] for run in record["runs"])
        if number:
            lines.append(f"\nWarning: {number} classes have no distance on {split}; `per_class.tsv` has the reasons.")
    return [
        *lines,
        "",
        "## Files",
        "",
        "- `per_class.tsv`: at the chosen epoch; `n_pos` and `n_neg` are the cells of the two groups. An empty distance"
        " has its reason.",
        "- `epochs.tsv`: every epoch of val, and of train where the run kept them; `selected` marks the chosen epoch."
        " An empty value has its `reason`.",
        "- `class_epochs.tsv`: the same epochs by class.",
        "- `wasserstein.json`: the same at the chosen epoch, and `share_of_classes_above`: the share of classes, of"
        " those defined in both, that the run separates better than each method of the grid at the same stage.",
    ]


if __name__ == "__main__":
    entry.run(wasserstein)
