"""Numbers of training runs and of the data: means and spreads over seeds, shares of the gap, paired comparisons.

A standard deviation is the sample's (ddof = 1) over training seeds, and None at one seed. A difference is paired: both
runs share dataset and seed. All mAP values are percent; average precision in files is in [0, 1].
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pipeline.config.params import TRAINING_STAGES
from pipeline.labels.table import SPLITS
from pipeline.report.collect import Arm, Collected, Dataset, Row, Run

BASELINE = "an"
CEILING = "full"
SECOND_STAGE = "lac"  # the stage, and the method it is named after
FIRST_NETWORK = "plc"  # the method whose network the second stage starts from

ORACLES = {"full": "sees all labels", "iun": "sees the true negatives"}
GIVEN = "against the given labels; unknown counted absent"
"""What is said wherever a score stands that is not against full labels."""

_ROUND = 4  # decimals of percent in summary.json: below what another BLAS changes, above what anyone reads


def spread(values: Iterable[float | None], nothing: str = "not defined in any run") -> Row:
    """Return mean and sample standard deviation.

    Args:
        values: One value a seed; None where a run has none.
        nothing: Why there is no mean, should every value be None.

    Returns:
        ``mean``, ``std`` (None below two values) and ``n``; ``reason`` where one of them is None.
    """
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "std": None, "n": 0, "reason": nothing}
    if len(known) == 1:
        return {"mean": known[0], "std": None, "n": 1, "reason": "one seed: the spread is not known"}
    return {"mean": float(np.mean(known)), "std": float(np.std(known, ddof=1)), "n": len(known)}


def supported_map(run: Run, classes: Sequence[str]) -> float | None:
    """Return a run's mean test average precision over the named classes, in percent; None if one has none."""
    precision = {row["class"]: row["ap_test"] for row in run.per_class}
    values = [precision.get(name) for name in classes]
    known = [value for value in values if value is not None]
    return 100 * float(np.mean(known)) if values and len(known) == len(values) else None


def _by_seed(arm: Arm, measure: str, classes: Sequence[str] = (), split: str = "test") -> dict[int, float]:
    values = {}
    for run in arm.runs:
        value = supported_map(run, classes) if measure == "supported" else run.metrics[split][measure]
        if value is not None:
            values[run.seed] = value
    return values


def gap_share(value: dict[int, float], low: dict[int, float], high: dict[int, float]) -> tuple[float | None, str]:
    """Return the share of the gap between two reference methods that a method closes.

    Args:
        value: The method's test mAP by seed.
        low: The reference that assumes every unknown label negative.
        high: The reference that sees all labels.

    Returns:
        100 * (value - low) / (high - low) of the means over the seeds that all three have, in percent (below 0: worse
        than the low reference), and why it is None.
    """
    seeds = sorted(value.keys() & low.keys() & high.keys())
    if not seeds:
        return None, "no seed for which all three values exist"
    mine, bottom, top = (float(np.mean([values[seed] for seed in seeds])) for values in (value, low, high))
    if top <= bottom:
        return None, f"there is no gap: {top:.2f} with full labels against {bottom:.2f}"
    return 100 * (mine - bottom) / (top - bottom), ""


def results(collected: Collected) -> list[Row]:
    """Return one row for each arm, in the order dataset, stage, params.yaml.

    Args:
        collected: What the stages left.

    Returns:
        Rows with identity, spreads of every mAP, share of the gap under two rules, and chosen settings by seed.
    """
    rows = []
    for dataset in collected.datasets:
        supported, truth = dataset.supported(), collected.truth(dataset.name)
        for stage in TRAINING_STAGES:
            arms = collected.of(stage, dataset.name)
            rows += [
                _result(arm, [_reference(arm, arms, name) for name in (BASELINE, CEILING)], supported, truth)
                for arm in arms
            ]
    return rows


def _reference(arm: Arm, arms: list[Arm], method: str) -> Arm | str:
    """Return the runs of a reference method that an arm compares with, or why there are none (``{}``: the method).

    Only the same head under the same protocol compares: the grid's own runs of the method, or its variant of the same
    name.
    """
    found = {item.variant: item for item in arms if item.method == method}
    if not found:
        return "no run of {} at this stage"
    same = [item for item in found.values() if (item.head, item.protocol) == (arm.head, arm.protocol)]
    names = ("", arm.variant)
    return next((item for name in names for item in same if item.variant == name), "{} has another head or protocol")


def _result(arm: Arm, references: list[Arm | str], supported: tuple[str, ...] | None, truth: bool) -> Row:
    unsupported = "the table of labels could not be read" if supported is None else "no class has the support"
    found = [item for item in references if isinstance(item, Arm)]
    shares: Row = {}
    for name, measure in (("gap_share", "map"), ("gap_share_supported", "supported")):
        if not truth:
            share, reason = None, f"the labels of {arm.dataset} are not exhaustive, so no method saw full labels"
        elif len(found) < len(references):
            why: dict[str, list[str]] = {}
            for method, item in zip((BASELINE, CEILING), references, strict=True):
                if isinstance(item, str):
                    why.setdefault(item, []).append(method)
            share, reason = None, "; ".join(words.format(" or ".join(names)) for words, names in why.items())
        elif measure == "supported" and not supported:
            share, reason = None, unsupported
        else:
            share, reason = gap_share(*(_by_seed(item, measure, supported or ()) for item in (arm, *found)))
        shares[name], shares[f"{name}_reason"] = share, reason
    return {
        "dataset": arm.dataset,
        "stage": arm.stage,
        "method": arm.method,
        "variant": arm.variant,
        "name": arm.name,
        "note": ""
        if arm.method not in ORACLES
        else ORACLES[arm.method]
        if truth
        else "sees the given labels, as all do",
        "given": arm.given,
        "head": arm.head,
        "protocol": arm.protocol,
        "density": arm.density,
        "start": arm.start,
        "seeds": [run.seed for run in arm.runs],
        "planned": arm.planned,
        "test_maps": [run.metrics["test"]["map"] for run in arm.runs if run.metrics["test"]["map"] is not None],
        "test_map": spread(run.metrics["test"]["map"] for run in arm.runs),
        "test_map_absent_zero": spread(run.metrics["test"]["map_absent_zero"] for run in arm.runs),
        "test_map_supported": spread((supported_map(run, supported or ()) for run in arm.runs), unsupported),
        "val_map": spread(run.metrics["val"]["map"] for run in arm.runs),
        "val_map_absent_zero": spread(run.metrics["val"]["map_absent_zero"] for run in arm.runs),
        "classes": len(arm.runs[0].per_class),
        "classes_present": min(run.metrics["test"]["classes_present"] for run in arm.runs),
        "classes_supported": len(supported or ()),
        **shares,
        "learning_rate": [run.metrics["learning_rate"] for run in arm.runs],
        "epoch": [run.metrics["epoch"] for run in arm.runs],
        "epochs": [run.metrics["epochs"] for run in arm.runs],
        "edge": any(_at_edge(run) for run in arm.runs),
        "averaged": sum(run.metrics.get("weights") == "average" for run in arm.runs),
    }


def _at_edge(run: Run) -> bool:
    # of two rates one is always the edge, which says nothing
    tried = sorted({row["learning_rate"] for row in run.search})
    return len(tried) >= 3 and run.metrics["learning_rate"] in (tried[0], tried[-1])


def summary(rows: list[Row]) -> Row:
    """Return the record that Git keeps: dataset -> stage -> method -> numbers, without anything that varies by machine.

    Args:
        rows: The rows of ``results``.

    Returns:
        A nested mapping of strict JSON values; percent rounded to four decimals.
    """
    record: Row = {}
    for row in rows:
        entry = {key: _rounded(row[key]) for key in (
            "test_map", "test_map_absent_zero", "test_map_supported", "val_map", "val_map_absent_zero",
            "gap_share", "gap_share_supported", "classes", "classes_present", "classes_supported", "head", "protocol",
        )}  # fmt: skip
        entry["knows_label_density"] = row["density"]
        entry |= {"scores": dict.fromkeys(row["given"], GIVEN)} if row["given"] else {}
        for name in ("gap_share", "gap_share_supported"):
            if row[name] is None:
                entry[f"{name}_reason"] = row[f"{name}_reason"]
        for name in ("learning_rate", "epoch"):
            entry[name] = {str(seed): value for seed, value in zip(row["seeds"], row[name], strict=True)}
        record.setdefault(row["dataset"], {}).setdefault(row["stage"], {})[row["name"]] = entry
    return record


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return round(value, _ROUND) if isinstance(value, float) else value


# ---------------------------------------------------------------------------------------------- comparisons
def paired(first: dict[int, float], second: dict[int, float]) -> Row:
    """Return the difference ``first - second`` over the seeds that both have.

    Args:
        first: Value by seed.
        second: Value by seed.

    Returns:
        The keys of ``spread``, and ``ahead``: the number of seeds at which ``first`` is larger.
    """
    seeds = sorted(first.keys() & second.keys())
    differences = [first[seed] - second[seed] for seed in seeds]
    return {**spread(differences, "no seed in common"), "ahead": sum(value > 0 for value in differences)}


def against_own_head(collected: Collected, dataset: str) -> list[Row]:
    """Compare fine-tuned networks with the linear heads that they started from.

    Args:
        collected: What the stages left.
        dataset: Name of a dataset.

    Returns:
        One row for each arm whose head has runs: ``method``, ``variant``, ``start`` (another method, whose head it was,
        or empty), and the paired differences ``test`` and ``val`` in points of mAP.
    """
    heads = {arm.method: arm for arm in collected.of("linear_init", dataset) if not arm.variant}
    return [
        {"method": arm.method, "variant": arm.variant, "start": arm.start}
        | {
            split: paired(_by_seed(arm, "map", split=split), _by_seed(heads[first], "map", split=split))
            for split in ("test", "val")
        }
        for arm in collected.of("finetune", dataset)
        if (first := arm.start or arm.method) in heads
    ]


def side_by_side(rows: list[Row], collected: Collected, dataset: str) -> list[Row]:
    """Set linear heads and fine-tuned networks side by side.

    Args:
        rows: The rows of ``results``.
        collected: What the stages left.
        dataset: Name of a dataset.

    Returns:
        One row for each arm of either stage: ``method``, ``variant``, ``linear_init`` and ``finetune`` (its rows of
        ``results``, None where it has none) and ``gain`` (paired difference to the head that it started from, in points
        of test mAP; None where there is none). Best fine-tuned first, then best linear head; none where one of the
        stages has no runs.
    """
    found: dict[tuple[str, str], Row] = {}
    for stage in ("linear_init", "finetune"):
        mine = ranked(rows, dataset, stage)
        if not mine:
            return []
        for row in mine:
            identity = (row["method"], row["variant"])
            empty = {"method": identity[0], "variant": identity[1], "linear_init": None, "finetune": None, "gain": None}
            found.setdefault(identity, empty)[stage] = row
    for row in against_own_head(collected, dataset):
        found[row["method"], row["variant"]]["gain"] = row["test"]

    def order(row: Row) -> tuple[bool, float, bool, float]:
        values = [row[stage] and row[stage]["test_map"]["mean"] for stage in ("finetune", "linear_init")]
        return (values[0] is None, -(values[0] or 0), values[1] is None, -(values[1] or 0))

    return sorted(found.values(), key=order)


def second_stage(collected: Collected, dataset: Dataset) -> list[Row]:
    """Compare every arm of the second stage's method with its rivals at the same seeds.

    The rivals are the other methods of that stage (the first method trained on) with their variants; for the grid's own
    arm also its own variants and the network that it started from.

    Args:
        collected: What the stages left.
        dataset: A dataset.

    Returns:
        One row for each pair: ``subject`` and ``rival`` (names), ``subject_variant``, the rival's ``method`` and
        ``variant``, ``start`` (1 for the network that the stage started from), the paired differences ``test``,
        ``supported`` and ``val`` in points of mAP; ``epochs`` and ``thresholds``, the values of both sides (no
        threshold where none was recorded).
    """
    arms = collected.of(SECOND_STAGE, dataset.name)
    others = [arm for arm in arms if arm.method != SECOND_STAGE]
    starts = [arm for arm in collected.of("end_to_end", dataset.name) if arm.name == FIRST_NETWORK]
    pairs: list[tuple[Arm, Arm]] = []
    for subject in (arm for arm in arms if arm.method == SECOND_STAGE):
        own = [] if subject.variant else [arm for arm in arms if arm.method == SECOND_STAGE and arm is not subject]
        pairs += [(subject, arm) for arm in [*others, *own, *([] if subject.variant else starts)]]
    classes = dataset.supported() or ()
    return [
        {
            "subject": subject.name,
            "subject_variant": subject.variant,
            "rival": arm.name,
            "method": arm.method,
            "variant": arm.variant,
            "start": int(arm in starts),
            "test": paired(_by_seed(subject, "map"), _by_seed(arm, "map")),
            "supported": paired(_by_seed(subject, "supported", classes), _by_seed(arm, "supported", classes)),
            "val": paired(_by_seed(subject, "map", split="val"), _by_seed(arm, "map", split="val")),
            "epochs": [sorted({run.metrics["epochs"] for run in item.runs}) for item in (subject, arm)],
            "thresholds": [_thresholds(item) for item in (subject, arm)],
        }
        for subject, arm in pairs
    ]


def _thresholds(arm: Arm) -> list[float]:
    values = {run.provenance.get("method", {}).get("threshold") for run in arm.runs}
    return sorted(value for value in values if value is not None)


def falls(collected: Collected, stage: str, dataset: str) -> list[Row]:
    """Return how far each method's val mAP falls from its best epoch to its last.

    Args:
        collected: What the stages left.
        stage: A training stage.
        dataset: Name of a dataset.

    Returns:
        One row for each arm: identity, ``best`` and ``last`` val mAP, ``fall`` (all spreads, percent points), and
        ``best_epoch``, the median of the seeds'.
    """
    rows = []
    for arm in collected.of(stage, dataset):
        best, last, epochs = [], [], []
        for run in arm.runs:
            curve = [(row["epoch"], row["val_map"]) for row in run.epochs if row["val_map"] is not None]
            if curve:
                top = max(curve, key=lambda point: point[1])
                best.append(top[1])
                epochs.append(top[0])
                last.append(curve[-1][1])
        if best:
            rows.append({
                "method": arm.method,
                "variant": arm.variant,
                        "best": spread(best),
                "last": spread(last),
                "fall": spread([high - low for high, low in zip(best, last, strict=True)]),
                "best_epoch": float(np.median(epochs)),
                "epochs": max(len(run.epochs) for run in arm.runs),
            })  # fmt: skip
    return rows


def over_epochs(arm: Arm, column: str) -> list[Row]:
    """Return one column of the per-epoch tables as means over seeds.

    Args:
        arm: Runs that differ in the seed.
        column: Column of ``epochs.tsv``.

    Returns:
        One row an epoch that any seed reached: ``epoch``, ``mean``, ``std``, ``n``; a run that stopped early no longer
        counts after its last epoch.
    """
    by_epoch: dict[float, list[float | None]] = {}
    for run in arm.runs:
        for row in run.epochs:
            by_epoch.setdefault(row["epoch"], []).append(row.get(column))
    rows = []
    for epoch in sorted(by_epoch):
        value = spread(by_epoch[epoch])
        rows.append({"epoch": epoch, "mean": value["mean"], "std": value["std"], "n": value["n"]})
    return rows


# ---------------------------------------------------------------------------------------------- the data
def splits(dataset: Dataset) -> list[Row]:
    """Count images and labels in each split.

    Args:
        dataset: A dataset whose table was read.

    Returns:
        One row for each split: images, official training and test images, labels per image, images without a
        positive, classes present, cells whose truth is not known.
    """
    table = dataset.table
    if table is None:
        return []
    rows = []
    for name in SPLITS:
        index = table.rows(name)
        truth, scored = table.truth[index], table.scored[index]
        positive = (truth == 1) & scored
        rows.append({
            "split": name,
            "images": len(index),
            "official_train": int((table.official[index] == 0).sum()),
            "official_test": int((table.official[index] == 1).sum()),
            "labels_per_image": float(positive.sum(axis=1).mean()) if len(index) else None,
            "without_positive": int((~positive.any(axis=1)).sum()),
            "classes_present": int(positive.any(axis=0).sum()),
            "cells_unscored": int((~scored).sum()),
        })  # fmt: skip
    return rows


def classes(dataset: Dataset) -> list[Row]:
    """Return support and simulated labels of each class.

    Args:
        dataset: A dataset.

    Returns:
        One row for each class: positives in the splits and official lists, observed positives, unknown cells, and the
        share of unknown training cells that are positive.
    """
    table = dataset.table
    if table is None:
        return []
    positive = (table.truth == 1) & table.scored
    simulated = {row["name"]: row for row in (dataset.simulate or {}).get("classes", [])}
    supported = dataset.supported() or ()
    rows = []
    for column, name in enumerate(table.classes):
        row: Row = {"class": name}
        row |= {f"support_{split}": int(positive[table.rows(split), column].sum()) for split in SPLITS}
        for code, part in ((0, "train"), (1, "test")):
            row[f"support_official_{part}"] = int(positive[table.official == code, column].sum())
        row["supported"] = int(name in supported)
        for key in ("observed_positive", "unknown", "false_negative_rate"):
            row[key] = simulated.get(name, {}).get(key)
        rows.append(row)
    return rows


def ranked(rows: list[Row], dataset: str, stage: str) -> list[Row]:
    """Return the results of one stage, best mean test mAP first.

    Args:
        rows: The rows of ``results``.
        dataset: Name of a dataset.
        stage: A training stage.

    Returns:
        Its rows; those without a value last.
    """
    mine = [row for row in rows if (row["dataset"], row["stage"]) == (dataset, stage)]
    known = [row for row in mine if row["test_map"]["mean"] is not None]
    unknown = [row for row in mine if row["test_map"]["mean"] is None]
    return sorted(known, key=lambda row: -row["test_map"]["mean"]) + unknown
