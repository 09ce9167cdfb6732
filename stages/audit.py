"""Audit what the runs of one dataset and seed believed of unknown cells: ``python -m stages.audit DATASET SEED``.

Reads data/prepare/<dataset>/table.h5, data/simulate/<dataset>/observed.h5 and runs/<stage>/<key>/{labels,logits}.h5 of
every run that params.yaml names; writes analyses/audit/<dataset>-<seed>/. No torch.

Where the labels of a dataset are not exhaustive there is no truth to audit against: the same files are written, with
what can be said without it, and what would need it is empty or null.
"""

from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from pipeline.audits import beliefs, calibration, pseudo_labels
from pipeline.config.params import TRAINING_STAGES, read_params
from pipeline.core import files, hdf5
from pipeline.core.errors import FileError
from pipeline.labels.table import Table, read_table
from stages import entry

KINDS = ("newly_added", "cumulative")
MISSED = 50  # cells a run that missed.tsv names


def audit(root: Path, dataset: str, seed: int) -> None:
    """Audit pseudo-labels and calibration of all runs of a dataset at one training seed.

    Args:
        root: Project root.
        dataset: Name of a dataset.
        seed: Training seed.
    """
    params = read_params(root / "params.yaml")
    bins = params.settings("audit", dataset).bins
    table = read_table(root / "data" / "prepare" / dataset / "table.h5")
    with hdf5.read(root / "data" / "simulate" / dataset / "observed.h5") as file:
        observed = {name: file[name][()] for name in ("single", "all", "negatives")}
    train = table.rows("train")
    truth, scored = _truth(table, train)
    single = observed["single"][train]
    base = pseudo_labels.figures(truth, single, np.zeros_like(single), scored)
    without = None if table.exhaustive else f"the labels of {dataset} are not exhaustive: what is hidden is not known"

    runs: list[dict[str, Any]] = []
    tables: dict[str, list[dict[str, Any]]] = {"rounds": [], "per_class": [], "calibration": [], "missed": []}
    planned = [(stage, *run) for stage in TRAINING_STAGES for run in params.keys(stage, dataset, seed)]
    for stage, key, method, _ in tqdm(planned, desc="audit", unit="run", disable=None):
        name = {"stage": stage, "key": key, "method": method}
        run, rows = _audit_run(root / "runs" / stage / key, table, observed, bins, without)
        runs.append(name | run)
        for kind, found in rows.items():
            tables[kind] += [name | row for row in found]

    record = {
        "dataset": dataset,
        "seed": seed,
        "truth": table.exhaustive,
        "bins": bins,
        "images": len(train),
        "classes": list(table.classes),
        **{field: base[field] for field in ("unknown", "hidden_positives", "baseline_all_unknown_negative")},
        "runs": runs,
        "skipped": [
            {"stage": run["stage"], "key": run["key"], "reason": run["reason"]} for run in runs if run["reason"]
        ],
    }
    folder = root / "analyses" / "audit" / f"{dataset}-{seed}"
    files.write_json(folder / "audit.json", record)
    head, counts = ["stage", "key", "method"], list(base)
    columns = {
        "rounds": [*head, "round", "epoch", "selected", "kind", *counts, "dropped", "flipped"],
        "per_class": [*head, "epoch", "class", *counts],
        "calibration": [
            *head, "quantity", "split", "bin", "lower", "upper", "cells", "true_positives", "fraction", "mean_belief",
            "mean_weight", "reference",
        ],
        "missed": [*head, "rank", "path", "class", "belief", "probability", "truth"],
    }  # fmt: skip
    for kind, rows in tables.items():
        files.write_tsv(folder / f"{kind}.tsv", rows, columns[kind])
    files.write_summary(folder / "summary.md", f"Audit of {dataset}, seed {seed}", _summary(record, table))


def _truth(table: Table, rows: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the truth of some rows, None where nobody knows it, and the mask of cells that count."""
    if table.exhaustive:
        return table.truth[rows], table.scored[rows]
    return None, np.ones((len(rows), len(table.classes)), dtype=bool)


def _audit_run(
    folder: Path, table: Table, observed: dict[str, np.ndarray], bins: int, without: str | None
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Return a run's entry of audit.json and its rows of the tables; ``without`` says why there is no truth, if so."""
    train, val = table.rows("train"), table.rows("val")
    logits = {}
    with hdf5.read(folder / "logits.h5") as file:
        chosen = int(file.attrs["epoch"])
        for split, index in (("val", val), ("train", train)):
            logits[split] = file[split][()]
            _check_shape(folder / "logits.h5", split, logits[split].shape, (len(index), len(table.classes)))
    rows: dict[str, list[dict[str, Any]]] = {"rounds": [], "per_class": [], "calibration": [], "missed": []}
    with hdf5.read(folder / "labels.h5") as file:
        given = str(file.attrs.get("labels", "single"))
        belief, weight, stored = file["belief"][()], file["weight"][()], file["pseudo_label"]
        _check_shape(folder / "labels.h5", "belief", belief.shape, (len(train), len(table.classes)))
        (truth, scored), known = _truth(table, train), observed[given][train]
        reason, rounds, epochs = None, [], file["round_epoch"][()].tolist()
        if not stored.shape[0]:
            reason = str(stored.attrs.get("reason", file.attrs.get("reason", "the run stored no pseudo-labels")))
        else:
            _check_shape(folder / "labels.h5", "pseudo_label", stored.shape[1:], belief.shape)
            rounds = pseudo_labels.audit(truth, known, stored, scored)
        in_force = [number for number, epoch in enumerate(epochs) if epoch <= chosen]
        selected = in_force[-1] if in_force else None
        if selected is not None:
            classes = pseudo_labels.by_class(truth, known, stored[selected], scored)
            rows["per_class"] = [
                {"epoch": epochs[selected], "class": name, **counts}
                for name, counts in zip(table.classes, classes, strict=True)
            ]
    for position, entries in enumerate(rounds):
        entries |= {"epoch": epochs[position], "selected": int(position == selected)}
        place = {name: entries[name] for name in ("round", "epoch", "selected")}
        for kind in KINDS:
            counts = {name: value for name, value in entries[kind].items() if not name.startswith("per_class_")}
            changes = {name: entries[name] for name in ("dropped", "flipped")} if kind == "newly_added" else {}
            rows["rounds"].append(place | {"kind": kind} | counts | changes)

    probability = {split: _probability(values) for split, values in logits.items()}
    unknown = known == 0  # those too whose truth is not known: they may well be missed labels
    rows["missed"] = _missed(table, train, belief, probability["train"], unknown)
    claimed = unknown & (weight != 0)  # of a cell of weight 0 the method says nothing: its belief is no claim
    run = {
        "epoch": chosen,
        "labels": given,
        "reason": without or reason,
        "rounds": rounds,
        "chosen": rounds[selected]["cumulative"] if selected is not None else None,
        "beliefs": {
            "belief": beliefs.spread(belief[claimed]),
            "probability": beliefs.spread(probability["train"][unknown]),
        },
    }
    if truth is None:
        empty = {"cells": None, "cells_of_weight_0": None, "error": None, "reason": without}
        splits = {"belief": "train", "probability": "val"}
        return run | {"calibration": {name: {"split": split} | empty for name, split in splits.items()}}, rows

    left_out = {"belief": int((unknown & scored & ~claimed).sum()), "probability": 0}
    curves = {
        "belief": ("train", calibration.curve(belief, truth, claimed & scored, bins=bins, weight=weight)),
        "probability": ("val", _val_curve(probability["val"], table, observed["single"], bins)),
    }
    summaries = {}
    for quantity, (split, bars) in curves.items():
        cells = sum(bar["cells"] for bar in bars)
        summaries[quantity] = {
            "split": split,
            "cells": cells,
            "cells_of_weight_0": left_out[quantity],
            "error": calibration.error(bars),
            "reason": None if cells else f"no unknown cell of a weight in {split} under the labels that are given",
        }
        rows["calibration"] += [{"quantity": quantity, "split": split, **bar} for bar in bars if bar["cells"]]
    return run | {"calibration": summaries}, rows


def _probability(logits: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp(-z) of a very negative logit is infinite, and 1 / inf the right 0
        return 1 / (1 + np.exp(-logits.astype(np.float64)))


def _missed(
    table: Table, train: np.ndarray, belief: np.ndarray, probability: np.ndarray, unknown: np.ndarray
) -> list[dict[str, Any]]:
    """Return the unknown training cells that are most likely missed labels, with the truth where it is known."""
    rows = []
    for rank, (i, c) in enumerate(beliefs.likeliest(belief, probability, unknown, MISSED), start=1):
        rows.append({
            "rank": rank,
            "path": table.paths[train[i]],
            "class": table.classes[c],
            "belief": float(belief[i, c]),
            "probability": float(probability[i, c]),
            "truth": int(table.truth[train[i], c]) if table.scored[train[i], c] else None,
        })  # fmt: skip
    return rows


def _val_curve(probability: np.ndarray, table: Table, single: np.ndarray, bins: int) -> list[dict[str, Any]]:
    """Return the calibration of probabilities on val's unannotated cells, with k(p) beside."""
    val = table.rows("val")
    truth, known, scored = table.truth[val], single[val], table.scored[val]
    positives, absences = (int(((truth == value) & scored).sum()) for value in (1, 0))
    labelled = float(((known == 1) & scored).sum() / positives) if positives else None
    excluded = float(((known == -1) & scored).sum() / absences) if absences else 0.0
    bars = calibration.curve(probability, truth, (known == 0) & scored, bins=bins)
    for bar in bars:
        bar["reference"] = None
        if labelled and bar["cells"]:
            bar["reference"] = calibration.reference(bar["mean_belief"], labelled, excluded)
    return bars


def _check_shape(path: Path, name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if found != wanted:
        raise FileError(f"{path}: `{name}` is {found}, the table asks for {wanted}; run that stage again")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def _summary(record: dict[str, Any], table: Table) -> list[str]:
    return (_measured if record["truth"] else _unmeasured)(record, table)


def _unmeasured(record: dict[str, Any], table: Table) -> list[str]:
    """Return what can be said without truth."""
    lines = [
        f"Not measured: hidden positives, accuracy of pseudo-labels, base rates and calibration; the labels of"
        f" {record['dataset']} are not exhaustive, so nobody knows which unknown cells are present.",
        f"{len(record['runs'])} runs of the grid and the variants at this seed. Training split: {record['images']}"
        f" images, {len(table.classes)} classes, {record['unknown']} unknown cells.",
        "",
        "## Pseudo-labels of the chosen epoch",
        "",
        "| stage | run | epoch | labelled | coverage (percent) | called present | called absent |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for run in record["runs"]:
        found = run["chosen"]
        counts = ("labelled", "coverage", "positives", "negatives")
        values = [None if found is None else found[name] for name in counts]
        shown = ["-" if value is None else _percent(value) if isinstance(value, float) else str(value)
                 for value in values]  # fmt: skip
        lines.append(f"| {run['stage']} | {run['key']} | {run['epoch']} | {' | '.join(shown)} |")
    lines += [
        "",
        "## Beliefs about unknown training cells",
        "",
        "How present they are taken to be, from 0 to 1: by the method, and by the network's probability.",
        "",
        "| stage | run | of | cells | mean | half below | 90 % below | 99 % below | largest | above 0.5 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for run in record["runs"]:
        for quantity, found in run["beliefs"].items():
            shown = ["-" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
                     for value in found.values()]  # fmt: skip
            lines.append(f"| {run['stage']} | {run['key']} | {quantity} | {' | '.join(shown)} |")
    return [
        *lines,
        "",
        "## Files",
        "",
        "An empty field, and null in JSON, is what could not be measured.",
        "",
        "- `missed.tsv`: for each run the unknown training cells that are most likely missed labels, most likely first:"
        " by the method's belief, and where that is equal by the network's probability.",
        "- `rounds.tsv`: the number of labels in each round; `per_class.tsv`: those of the chosen epoch by class.",
        "- `calibration.tsv`: has no row.",
        "- `audit.json`: the same by run.",
    ]


def _measured(record: dict[str, Any], table: Table) -> list[str]:
    audited = [run for run in record["runs"] if not run["reason"]]
    lines = [
        f"{len(record['runs'])} runs of the grid and the variants at this seed; {len(audited)} with pseudo-labels.",
        f"Training split: {record['images']} images, {len(table.classes)} classes, {record['unknown']} unknown cells,"
        f" {record['hidden_positives']} of them hidden positives.",
        f"Base rate: calling every unknown cell negative is right in"
        f" {_percent(record['baseline_all_unknown_negative'])} % of them. Read every accuracy against it.",
    ]
    left_out = int((~table.scored).sum())
    if left_out:
        lines.append(f"Left out: {left_out} cells of the whole table whose truth is not known (`scored` is False).")
    lines += [
        "",
        "## Pseudo-labels of the chosen epoch (percent)",
        "",
        "A method that stores its labels was trained by these; of one that makes them anew at each step, they are what"
        " the epoch's last weights would label.",
        "",
        "| stage | run | epoch | coverage | negatives right | base rate | positives right | hidden positives found |"
        " hidden positives called negative |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    fields = (
        "coverage", "negative_accuracy", "baseline_all_unknown_negative",
        "positive_precision", "hidden_positive_recall", "hidden_positive_miss_rate",
    )  # fmt: skip
    for run in audited:
        values = [_percent(None if run["chosen"] is None else run["chosen"][field]) for field in fields]
        lines.append(f"| {run['stage']} | {run['key']} | {run['epoch']} | {' | '.join(values)} |")
    lines += ["", "## Calibration error (mean over unknown cells, 0 is best)", ""]
    lines += ["| stage | run | belief, train | probability, val |", "| --- | --- | --- | --- |"]
    for run in record["runs"]:
        errors = [run["calibration"][name]["error"] for name in ("belief", "probability")]
        shown = ["-" if value is None else f"{value:.4f}" for value in errors]
        lines.append(f"| {run['stage']} | {run['key']} | {' | '.join(shown)} |")
    lines += ["", "## Runs without pseudo-labels", ""]
    reasons: dict[str, list[str]] = {}
    for run in record["skipped"]:
        reasons.setdefault(run["reason"], []).append(f"{run['stage']}/{run['key']}")
    lines += [f"- {reason}: {', '.join(keys)}" for reason, keys in reasons.items()] or ["- none"]
    return [
        *lines,
        "",
        "## Files",
        "",
        "- `rounds.tsv`: one row for each run, round and kind. `cumulative` counts all labels of the round,"
        " `newly_added` those that the round before did not give the same way; `dropped` and `flipped` count cells that"
        " lost their label or changed its sign. `selected` marks the last round up to the chosen epoch.",
        "- `per_class.tsv`: the selected round by class. Fractions are in [0, 1]; an empty field had no denominator.",
        "- `missed.tsv`: for each run the unknown training cells that are most likely missed labels, most likely first:"
        " by the method's belief, and where that is equal by the network's probability. `truth` says whether they are.",
        "- `calibration.tsv`: share of true positives among unknown cells by belief, in equal bins of [0, 1]; bins"
        " without cells are left out. `belief` is the method's own at the chosen epoch on train, `probability` the"
        " network's on val; `reference` is the share that a calibrated probability would imply,"
        " k(p) = (1 - a) p / (1 - a p).",
        "- `audit.json`: the same by run; every round also has its counts by class.",
    ]


if __name__ == "__main__":
    entry.run(audit)
