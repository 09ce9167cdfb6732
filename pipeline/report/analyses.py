"""Numbers of the analyses, by arm and over seeds: pseudo-labels, calibration, Wasserstein distances.

Fractions and distances are in [0, 1]. Definitions and sources are those of the analyses themselves (`pipeline.audits`).
"""

import numpy as np

from pipeline.report.collect import Analysis, Collected, Row
from pipeline.report.tables import BASELINE, spread

Identity = tuple[str, str, str]
"""(stage, method, ``<what>`` of the variant or "")."""

FIELDS = (
    "coverage",
    "accuracy",
    "negative_accuracy",
    "positive_precision",
    "hidden_positive_recall",
    "hidden_positive_miss_rate",
    "baseline_all_unknown_negative",
)


def _grouped(collected: Collected, analyses: list[Analysis], dataset: str, name: str) -> dict[Identity, list[Row]]:
    """Return the rows of one table of the analyses by arm, in the order of params.yaml; each row gains ``seed``."""
    groups: dict[Identity, list[Row]] = {}
    for analysis in analyses:
        if analysis.dataset == dataset:
            rows = analysis.record["runs"] if name == "runs" else analysis.tables[name]
            for key, (method, what) in collected.identities(dataset, analysis.seed).items():
                found = [row | {"seed": analysis.seed} for row in rows if (row["stage"], row["key"]) == key]
                groups.setdefault((key[0], method, what), []).extend(found)
    return {identity: rows for identity, rows in groups.items() if rows}


def pseudo_labels(collected: Collected, dataset: str) -> list[Row]:
    """Return the audit of the pseudo-labels of the chosen epoch.

    Args:
        collected: What the stages left.
        dataset: Name of a dataset.

    Returns:
        One row for each arm: identity, ``reason`` why there is nothing to audit (else empty), and a spread over seeds
        for each of ``FIELDS``, as fractions in [0, 1].
    """
    rows = []
    for (stage, method, what), runs in _grouped(collected, collected.audits, dataset, "runs").items():
        reasons = [run["reason"] for run in runs if run["reason"]]
        chosen = [run["chosen"] for run in runs if run["chosen"] is not None]
        if not chosen and not reasons:
            reasons = ["no pseudo-labels at the chosen epoch"]
        rows.append({
            "stage": stage,
            "method": method,
            "variant": what,
            "reason": reasons[0] if reasons else "",
            **{name: spread((entry[name] for entry in chosen), "no such label") for name in FIELDS},
        })  # fmt: skip
    return rows


def label_coverage(collected: Collected, dataset: str) -> dict[Identity, list[Row]]:
    """Return how many pseudo-labels there were in the chosen epoch.

    Args:
        collected: What the stages left.
        dataset: Name of a dataset.

    Returns:
        By arm that has pseudo-labels, whether or not there is a truth to audit them against, one row a seed: ``seed``,
        ``coverage`` (share of unknown training cells that carry a label of the chosen epoch, in [0, 1]) and
        ``labelled`` (whether any did, then or before).
    """
    rounds = _grouped(collected, collected.audits, dataset, "rounds")
    result: dict[Identity, list[Row]] = {}
    for identity, runs in _grouped(collected, collected.audits, dataset, "runs").items():
        for run in runs:
            if not run["rounds"]:
                continue
            before = [
                row["labelled"] > 0
                for row in rounds.get(identity, [])
                if (row["seed"], row["kind"]) == (run["seed"], "cumulative") and row["epoch"] <= run["epoch"]
            ]
            coverage = 0.0 if run["chosen"] is None else run["chosen"]["coverage"]
            if coverage is not None:  # None: the run has no unknown cell
                entry = {"seed": run["seed"], "coverage": coverage, "labelled": any(before)}
                result.setdefault(identity, []).append(entry)
    return result


def pseudo_rounds(collected: Collected, dataset: str) -> dict[Identity, list[Row]]:
    """Return the audit of all labels of each round, as means over seeds.

    Args:
        collected: What the stages left.
        dataset: Name of a dataset.

    Returns:
        By arm, one row a round: ``epoch``, ``selected`` (share of seeds whose chosen epoch it serves), a mean for each
        of ``FIELDS`` and its ``<field>_std``.
    """
    result: dict[Identity, list[Row]] = {}
    for identity, rows in _grouped(collected, collected.audits, dataset, "rounds").items():
        by_epoch: dict[float, list[Row]] = {}
        for row in rows:
            if row["kind"] == "cumulative":
                by_epoch.setdefault(row["epoch"], []).append(row)
        entries = []
        for epoch in sorted(by_epoch):
            same = by_epoch[epoch]
            entry: Row = {"epoch": epoch, "selected": sum(row["selected"] for row in same) / len(same)}
            for name in FIELDS:
                value = spread(row[name] for row in same)
                entry |= {name: value["mean"], f"{name}_std": value["std"]}
            entries.append(entry)
        if entries:
            result[identity] = entries
    return result


def pseudo_classes(collected: Collected, dataset: str) -> dict[Identity, list[Row]]:
    """Return the audit by class at the chosen epoch: counts summed over seeds, fractions of the sums.

    Args:
        collected: What the stages left.
        dataset: Name of a dataset.

    Returns:
        By arm, one row a class: ``class``, ``unknown``, ``labelled``, ``negatives``, ``positives``, ``coverage``, and,
        None where nobody knows the truth, ``accuracy``, ``base`` (share of negatives among unknown cells),
        ``hidden_positives``, ``called_negative``, ``found``.
    """
    result: dict[Identity, list[Row]] = {}
    for identity, rows in _grouped(collected, collected.audits, dataset, "per_class").items():
        totals: dict[str, dict[str, float]] = {}
        for row in rows:
            total = totals.setdefault(row["class"], {})
            for key, value in row.items():
                if key not in ("stage", "key", "method", "class", "epoch", "seed") and value is not None:
                    total[key] = total.get(key, 0) + value
        result[identity] = [
            {
                "class": name,
                "unknown": int(total["unknown"]),
                "labelled": int(total["labelled"]),
                "negatives": int(total["negatives"]),
                "positives": int(total["positives"]),
                "coverage": _ratio(total["labelled"], total["unknown"]),
                **_against_truth(total),
            }
            for name, total in totals.items()
        ]
    return result


def _against_truth(total: dict[str, float]) -> Row:
    if "hidden_positives" not in total:
        return dict.fromkeys(("accuracy", "base", "hidden_positives", "called_negative", "found"))
    return {
        "accuracy": _ratio(total["negatives_correct"] + total["positives_correct"], total["labelled"]),
        "base": _ratio(total["unknown"] - total["hidden_positives"], total["unknown"]),
        "hidden_positives": int(total["hidden_positives"]),
        "called_negative": int(total["hidden_positives_called_negative"]),
        "found": int(total["hidden_positives_recalled"]),
    }


def _ratio(part: float, of: float) -> float | None:
    return part / of if of else None


def without_truth(collected: Collected, dataset: str) -> list[Row]:
    """Return what can be said of pseudo-labels and beliefs at the chosen epoch without knowing what is present.

    Args:
        collected: What the stages left.
        dataset: Name of a dataset.

    Returns:
        One row for each arm: identity, and spreads over seeds of ``unknown`` (training cells without a label),
        ``present`` and ``absent`` (shares of these with such a pseudo-label, in [0, 1]), ``belief`` and ``probability``
        (means over unknown training cells, in [0, 1]) and ``believed`` (share of them with a belief above 0.5).
    """
    rows = []
    for (stage, method, what), runs in _grouped(collected, collected.audits, dataset, "runs").items():
        values: Row = {name: [] for name in ("unknown", "present", "absent", "belief", "probability", "believed")}
        for run in runs:
            chosen, beliefs = run["chosen"], run["beliefs"]
            cells = beliefs["probability"]["cells"]
            values["unknown"].append(cells)
            for name, count in (("present", "positives"), ("absent", "negatives")):
                values[name].append(None if chosen is None else _ratio(chosen[count], cells))
            for name in ("belief", "probability"):
                values[name].append(beliefs[name]["mean"])
            likely = beliefs["belief"]["likely_present"]
            values["believed"].append(None if likely is None else _ratio(likely, cells))
        identity = {"stage": stage, "method": method, "variant": what}
        rows.append(identity | {name: spread(found, "no such label") for name, found in values.items()})
    return rows


def missed(collected: Collected, dataset: str) -> dict[Identity, list[Row]]:
    """Return the unknown training cells that each arm takes to be missed labels first of all, at its lowest seed.

    Args:
        collected: What the stages left.
        dataset: Name of a dataset.

    Returns:
        By arm, one row a cell, the likeliest first: ``seed``, ``rank``, ``path``, ``class``, ``belief``,
        ``probability`` (in [0, 1]) and ``truth`` (1, 0, or None where it is not known).
    """
    found = _grouped(collected, collected.audits, dataset, "missed")
    return {
        identity: [row for row in rows if row["seed"] == min(row["seed"] for row in rows)]
        for identity, rows in found.items()
    }


def calibration(collected: Collected, dataset: str) -> dict[Identity, dict[str, list[Row]]]:
    """Return calibration curves, with the cells of all seeds in one histogram.

    Args:
        collected: What the stages left.
        dataset: Name of a dataset.

    Returns:
        By arm and quantity (``belief`` of the method on train, ``probability`` of the network on val), one row for each
        bin that holds cells: ``lower``, ``upper``, ``cells``, ``true_positives``, ``fraction``, ``mean_belief`` and
        ``reference`` (what a calibrated probability would give, or None).
    """
    result: dict[Identity, dict[str, list[Row]]] = {}
    for identity, rows in _grouped(collected, collected.audits, dataset, "calibration").items():
        bins: dict[tuple[str, float], list[Row]] = {}
        for row in rows:
            if row["cells"]:
                bins.setdefault((row["quantity"], row["bin"]), []).append(row)
        for (quantity, _), same in sorted(bins.items()):
            cells, true = (int(sum(row[key] for row in same)) for key in ("cells", "true_positives"))
            reference = [row["reference"] for row in same if row["reference"] is not None]
            result.setdefault(identity, {}).setdefault(quantity, []).append({
                "lower": same[0]["lower"],
                "upper": same[0]["upper"],
                "cells": cells,
                "true_positives": true,
                "fraction": true / cells,
                "mean_belief": sum(row["cells"] * row["mean_belief"] for row in same) / cells,
                "reference": float(np.mean(reference)) if reference else None,
            })  # fmt: skip
    return result


def coarse(rows: list[Row], bins: int = 10) -> list[Row]:
    """Merge the bins of a calibration curve, so that a figure shows no noise of nearly empty ones.

    Args:
        rows: Bins of ``calibration``, ascending.
        bins: Number of equal bins of [0, 1] to keep.

    Returns:
        ``cells``, ``mean_belief`` and ``fraction`` of each bin that holds cells.
    """
    groups: dict[int, list[Row]] = {}
    for row in rows:
        middle = (row["lower"] + row["upper"]) / 2
        groups.setdefault(min(int(middle * bins), bins - 1), []).append(row)
    merged = []
    for _, same in sorted(groups.items()):
        cells = sum(row["cells"] for row in same)
        belief = sum(row["cells"] * row["mean_belief"] for row in same) / cells
        fraction = sum(row["true_positives"] for row in same) / cells
        merged.append({"cells": cells, "mean_belief": belief, "fraction": fraction})
    return merged


def distances(collected: Collected, dataset: str, split: str) -> dict[Identity, dict[str, float]]:
    """Return the Wasserstein distance of each class at the chosen epoch, as a mean over seeds.

    Args:
        collected: What the stages left.
        dataset: Name of a dataset.
        split: ``train`` or ``val``.

    Returns:
        By arm, distance in [0, 1] by class; classes without one are left out.
    """
    result: dict[Identity, dict[str, float]] = {}
    for identity, rows in _grouped(collected, collected.wasserstein, dataset, "per_class").items():
        values: dict[str, list[float]] = {}
        for row in rows:
            if row["split"] == split and row["distance"] is not None:
                values.setdefault(row["class"], []).append(row["distance"])
        result[identity] = {name: float(np.mean(found)) for name, found in values.items()}
    return result


def distance_epochs(collected: Collected, dataset: str, split: str) -> dict[Identity, list[Row]]:
    """Return the pooled Wasserstein distance after each epoch.

    Args:
        collected: What the stages left.
        dataset: Name of a dataset.
        split: ``train`` or ``val``.

    Returns:
        By arm, one row an epoch: ``epoch``, ``mean``, ``std`` (over seeds), ``selected`` (whether any seed chose it).
    """
    result: dict[Identity, list[Row]] = {}
    for identity, rows in _grouped(collected, collected.wasserstein, dataset, "epochs").items():
        by_epoch: dict[float, list[Row]] = {}
        for row in rows:
            if row["split"] == split and row["pooled"] is not None:
                by_epoch.setdefault(row["epoch"], []).append(row)
        entries = []
        for epoch in sorted(by_epoch):
            value = spread(row["pooled"] for row in by_epoch[epoch])
            chosen = any(row["selected"] for row in by_epoch[epoch])
            entries.append({"epoch": epoch, "mean": value["mean"], "std": value["std"], "selected": chosen})
        if entries:
            result[identity] = entries
    return result


def separations(collected: Collected, dataset: str) -> list[Row]:
    """Return pooled distances and the share of classes separated better than by the baseline.

    Args:
        collected: What the stages left.
        dataset: Name of a dataset.

    Returns:
        One row for each arm: identity, spreads ``train`` and ``val`` of the pooled distance in [0, 1], and ``above``
        and ``of``: the classes that it separates further than the baseline of its stage, on train, of those defined.
        No row where the labels of the dataset are not exhaustive.
    """
    if not collected.truth(dataset):
        return []
    classes_of = distances(collected, dataset, "train")
    rows = []
    for identity, runs in _grouped(collected, collected.wasserstein, dataset, "runs").items():
        stage, method, what = identity
        base, mine = classes_of.get((stage, BASELINE, ""), {}), classes_of.get(identity, {})
        common = [name for name in mine if name in base]
        is_base = (method, what) == (BASELINE, "")
        rows.append({
            "stage": stage,
            "method": method,
            "variant": what,
            **{split: spread(run[split]["pooled"] for run in runs) for split in ("train", "val")},
            "above": None if is_base or not common else sum(mine[name] > base[name] for name in common),
            "of": len(common),
        })  # fmt: skip
    return rows
