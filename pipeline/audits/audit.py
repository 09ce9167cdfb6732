"""Audit of what runs believe of unknown cells: pseudo-labels by round, likely missed labels, calibration.

Where the labels of a dataset are not exhaustive there is no truth to audit against: what can be said without it is,
and the rest is None, with the reason.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.audits import beliefs, calibration, pseudo_labels
from pipeline.audits.runs import Run, known_truth
from pipeline.labels.table import Table

Row = dict[str, Any]

_RUN = ("stage", "key", "method")
_COUNTS = pseudo_labels.FIGURES
COLUMNS = {
    "rounds": [*_RUN, "round", "epoch", "selected", "kind", *_COUNTS, "dropped", "flipped"],
    "per_class": [*_RUN, "epoch", "class", *_COUNTS],
    "calibration": [
        *_RUN, "quantity", "split", "bin", "lower", "upper", "cells", "true_positives", "fraction", "mean_belief",
        "mean_weight", "reference",
    ],
    "missed": [*_RUN, "rank", "path", "class", "belief", "probability", "truth"],
}  # fmt: skip
"""Tables of an audit and their columns."""
MISSED = 50
"""Cells of a run that the table ``missed`` names."""


@dataclass(frozen=True)
class RunAudit:
    """The audit of one run.

    Args:
        entry: Its entry of audit.json.
        tables: Its rows, by the names of `COLUMNS`.
    """

    entry: dict[str, Any]
    tables: dict[str, list[Row]]


def audit_run(
    name: Row, run: Run, table: Table, observed: dict[str, np.ndarray], bins: int, without_truth: str | None
) -> RunAudit:
    """Return the audit of a run.

    Args:
        name: Stage, key and method of the run.
        run: What it left.
        table: The table.
        observed: (N, C) label sets of the whole table, by name.
        bins: Number of equal bins of belief.
        without_truth: Why the truth is not known; None where it is.

    Returns:
        The audit.
    """
    train, selected = table.rows("train"), run.selected
    truth, scored = known_truth(table, "train")
    known = observed[run.labels][train]
    unknown = known == 0  # those too whose truth is not known: they may well be missed labels
    rounds = pseudo_labels.audit(truth, known, run.pseudo_labels, scored)
    for number, entry in enumerate(rounds):
        entry |= {"epoch": run.round_epochs[number], "selected": int(number == selected)}
    per_class: list[Row] = []
    if selected is not None:
        counts = pseudo_labels.by_class(truth, known, run.pseudo_labels[selected], scored)
        epoch = run.round_epochs[selected]
        per_class = [{"epoch": epoch, "class": label} | row for label, row in zip(table.classes, counts, strict=True)]
    probability = {split: _sigmoid(logits) for split, logits in run.logits.items()}
    curves = {} if without_truth else _curves(run, probability["val"], table, observed, bins)
    entry = {
        "epoch": run.epoch,
        "labels": run.labels,
        "reason": without_truth or run.reason,
        "rounds": rounds,
        "chosen": None if selected is None else rounds[selected]["cumulative"],
        "beliefs": {
            "belief": beliefs.spread(run.belief[unknown & (run.weight != 0)]),  # of weight 0 a belief is no claim
            "probability": beliefs.spread(probability["train"][unknown]),
        },
        "calibration": _summarize_calibration(curves, unknown & scored & (run.weight == 0), without_truth),
    }
    tables = {
        "rounds": _round_rows(rounds),
        "per_class": per_class,
        "calibration": [
            {"quantity": quantity, "split": _SPLITS[quantity], **bar}
            for quantity, bars in curves.items()
            for bar in bars
            if bar["cells"]
        ],
        "missed": _missed_rows(table, run.belief, probability["train"], unknown),
    }
    return RunAudit(name | entry, {kind: [name | row for row in rows] for kind, rows in tables.items()})


def summarize_audits(audits: list[RunAudit], table: Table, single: np.ndarray) -> dict[str, Any]:
    """Return what audit.json says of all runs, and the base rate beside which to read them.

    Args:
        audits: Those of the runs.
        table: The table.
        single: (N, C) labels that stay known.

    Returns:
        JSON values.
    """
    truth, scored = known_truth(table, "train")
    known = single[table.rows("train")]
    base = pseudo_labels.figures(truth, known, np.zeros_like(known), scored)
    runs = [audit.entry for audit in audits]
    return {
        "truth": table.exhaustive,
        "images": len(known),
        "classes": list(table.classes),
        **{field: base[field] for field in ("unknown", "hidden_positives", "baseline_all_unknown_negative")},
        "runs": runs,
        "skipped": [{key: run[key] for key in ("stage", "key", "reason")} for run in runs if run["reason"]],
    }


_SPLITS = {"belief": "train", "probability": "val"}
"""Quantities whose calibration is measured, and on which split."""


def _curves(
    run: Run, probability: np.ndarray, table: Table, observed: dict[str, np.ndarray], bins: int
) -> dict[str, list[Row]]:
    """Return the calibration of the method's beliefs on train, and of the network's probabilities on val."""
    train, val = table.rows("train"), table.rows("val")
    claimed = (observed[run.labels][train] == 0) & (run.weight != 0) & table.scored[train]
    belief = calibration.curve(run.belief, table.truth[train], claimed, bins=bins, weight=run.weight)
    single = observed["single"][val]
    reference = calibration.curve_with_reference(probability, table.truth[val], single, table.scored[val], bins)
    return {"belief": belief, "probability": reference}


def _summarize_calibration(
    curves: dict[str, list[Row]], weightless: np.ndarray, without_truth: str | None
) -> dict[str, Row]:
    """Return the calibration error of each quantity; ``weightless`` are the training cells that make no claim."""
    summary: dict[str, Row] = {}
    for quantity, split in _SPLITS.items():
        if without_truth:
            nothing = dict.fromkeys(("cells", "cells_of_weight_0", "error"))
            summary[quantity] = {"split": split, **nothing, "reason": without_truth}
            continue
        cells = sum(bar["cells"] for bar in curves[quantity])
        summary[quantity] = {
            "split": split,
            "cells": cells,
            "cells_of_weight_0": int(weightless.sum()) if quantity == "belief" else 0,
            "error": calibration.error(curves[quantity]),
            "reason": None if cells else f"no unknown cell of a weight in {split} under the labels that are given",
        }
    return summary


def _round_rows(rounds: list[Row]) -> list[Row]:
    """Return two rows a round: the labels it added, and all of them."""
    rows = []
    for entry in rounds:
        for kind in ("newly_added", "cumulative"):
            counts = {name: value for name, value in entry[kind].items() if not name.startswith("per_class_")}
            changes = {name: entry[name] for name in ("dropped", "flipped")} if kind == "newly_added" else {}
            rows.append(
                {name: entry[name] for name in ("round", "epoch", "selected")} | {"kind": kind} | counts | changes
            )
    return rows


def _missed_rows(table: Table, belief: np.ndarray, probability: np.ndarray, unknown: np.ndarray) -> list[Row]:
    """Return the unknown training cells that are most likely missed labels, with the truth where it is known."""
    train = table.rows("train")
    return [
        {
            "rank": rank,
            "path": table.paths[train[row]],
            "class": table.classes[column],
            "belief": float(belief[row, column]),
            "probability": float(probability[row, column]),
            "truth": int(table.truth[train[row], column]) if table.scored[train[row], column] else None,
        }
        for rank, (row, column) in enumerate(beliefs.likeliest(belief, probability, unknown, MISSED), start=1)
    ]


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp(-z) of a very negative logit is infinite, and 1 / inf the right 0
        return 1 / (1 + np.exp(-logits.astype(np.float64)))
