"""Audit of what runs believe of unknown cells: pseudo-labels by round, likely missed labels, calibration.

Where the labels of a dataset are not exhaustive there is no truth to audit against: what can be said without it is,
and the rest is None, with the reason.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.audits import beliefs, calibration, pseudo_labels
from pipeline.audits.runs import Run, known_truth
from pipeline.audits.settings import Audit
from pipeline.labels.blocks import row_blocks
from pipeline.labels.table import SPLITS, Table

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
    "missed_by_run": [*_RUN, "rank", "split", "path", "class", "belief", "probability", "truth"],
}  # fmt: skip
"""Tables of the audits of runs, and their columns."""
MISSED_COLUMNS = ["rank", "split", "path", "class", "runs", "likelihood", "truth"]
"""Columns of the list that merges those of all runs."""


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
    name: Row, run: Run, table: Table, observed: dict[str, np.ndarray], settings: Audit, without_truth: str | None
) -> RunAudit:
    """Return the audit of a run.

    Args:
        name: Stage, key and method of the run.
        run: What it left.
        table: The table.
        observed: (N, C) label sets of the whole table, by name.
        settings: Number of bins of belief, and of likely missed labels.
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
    claimed = _nonzero(run.weight)  # of weight 0 a belief is no claim
    claimed &= unknown
    curves = {} if without_truth else _curves(run, claimed & scored, table, observed, settings.bins)
    entry = {
        "epoch": run.epoch,
        "labels": run.labels,
        "reason": without_truth or run.reason,
        "rounds": rounds,
        "chosen": None if selected is None else rounds[selected]["cumulative"],
        "beliefs": {
            "belief": beliefs.spread(beliefs.gather(run.belief, claimed)),
            "probability": beliefs.spread(beliefs.gather(run.logits["train"], unknown), _sigmoid),
        },
        "calibration": _summarize_calibration(curves, unknown & scored & ~claimed, without_truth),
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
        "missed_by_run": _list_missed(run, table, observed[run.labels], settings.missed),
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
    run: Run, claimed: np.ndarray, table: Table, observed: dict[str, np.ndarray], bins: int
) -> dict[str, list[Row]]:
    """Return the calibration of the method's beliefs on train, and of the network's probabilities on val."""
    train, val = table.rows("train"), table.rows("val")
    belief = calibration.curve(run.belief, table.truth[train], claimed, bins=bins, weight=run.weight)
    single, probability = observed["single"][val], _sigmoid(run.logits["val"][()])
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


def _list_missed(run: Run, table: Table, known: np.ndarray, most: int | float) -> list[Row]:
    """Return the unknown cells that a run takes to be missed labels first of all, with the truth where it is known.

    They are of the training split, and where the labels are given, not drawn, of val and test too. In training the
    method's belief says how likely they are, elsewhere the network's probability. A run whose method takes every
    unknown cell to be absent, as AN does, claims nothing.

    Args:
        run: The run.
        table: The table.
        known: (N, C) the labels that the run was given, of the whole table.
        most: Cells to name, or their share of the unknown ones.
    """
    claimed = _nonzero(run.belief)
    claimed &= known[table.rows("train")] == 0
    if not claimed.any():
        return []
    splits = ("train",) if table.exhaustive else SPLITS
    unknown = {split: claimed if split == "train" else known[table.rows(split)] == 0 for split in splits}
    if isinstance(most, float):
        most = max(1, round(most * sum(int(np.count_nonzero(known[table.rows(split)] == 0)) for split in splits)))
    rows = []
    for split in splits:
        logits, place = run.logits[split], table.rows(split)
        belief = run.belief if split == "train" else logits
        for row, column in beliefs.likeliest(belief, logits, unknown[split], most):
            probability = float(_sigmoid(logits[row : row + 1, column])[0])
            rows.append({
                "split": split,
                "path": table.paths[place[row]],
                "class": table.classes[column],
                "belief": float(belief[row, column]) if split == "train" else None,
                "probability": probability,
                "truth": int(table.truth[place[row], column]) if table.scored[place[row], column] else None,
            })  # fmt: skip
    rows.sort(key=lambda row: (-likelihood(row), -row["probability"]))
    return [{"rank": rank} | row for rank, row in enumerate(rows[:most], start=1)]


def likelihood(row: Row) -> float:
    """Return how likely a run takes a cell to be a missed label: its method's belief, else its network's probability.

    Args:
        row: A row of ``missed_by_run``.
    """
    return row["probability"] if row["belief"] is None else row["belief"]


def merge_missed(audits: list[RunAudit]) -> list[Row]:
    """Return the likely missed labels of all runs in one list: those that most runs name first, then the likeliest.

    Args:
        audits: Those of the runs.

    Returns:
        Rows of `MISSED_COLUMNS`, as many as the longest list of a run: in how many runs' lists a cell is, and the mean
        of their likelihoods.
    """
    lists = [audit.tables["missed_by_run"] for audit in audits]
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in itertools.chain.from_iterable(lists):
        cells.setdefault((row["path"], row["class"]), []).append(row)
    merged = [
        {name: rows[0][name] for name in ("split", "path", "class", "truth")}
        | {"runs": len(rows), "likelihood": sum(map(likelihood, rows)) / len(rows)}
        for rows in cells.values()
    ]
    merged.sort(key=lambda row: (-row["runs"], -row["likelihood"], row["path"], row["class"]))
    most = max(map(len, lists), default=0)
    return [{"rank": rank} | row for rank, row in enumerate(merged[:most], start=1)]


def _nonzero(values: Any) -> np.ndarray:
    """Return (N, C) bool: which values of an open HDF5 dataset are not 0."""
    found = np.empty(values.shape, bool)
    for rows in row_blocks(*values.shape):
        np.not_equal(values[rows], 0, out=found[rows])
    return found


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    result = logits.astype(np.float64)
    np.negative(result, out=result)
    with np.errstate(over="ignore"):  # exp(-z) of a very negative logit is infinite, and 1 / inf the right 0
        np.exp(result, out=result)
    result += 1
    return np.reciprocal(result, out=result)
