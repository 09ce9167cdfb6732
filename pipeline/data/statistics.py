"""Statistics of a prepared dataset: counts by split and class, sizes, odd and equal pictures, warnings."""

from typing import Any

import numpy as np

from pipeline.core.faults import SHOWN, pluralize
from pipeline.data.packing import ODD, Packed
from pipeline.data.raw import warn_partial_labels
from pipeline.labels.table import SPLITS, Dataset, Table

FEW = 10
"""Positives; below this a class's average precision says little."""
MANY = 10
"""Equal pictures; as many are no mere duplicates, but what a server sends for pictures that are gone."""


def summarize_dataset(data: Dataset, packed: Packed, published: bool) -> dict[str, Any]:
    """Return counts and warnings of a dataset that is packed.

    Args:
        data: The dataset, of the packed rows.
        packed: Its packed pictures.
        published: Whether papers draw labels of these data.

    Returns:
        JSON values: `read`, the source's report; `corrections`, None without any; `exhaustive`, `unusable`, `splits`,
        `classes`, `images`, `notes`, `duplicates` and `warnings`.
    """
    table = data.table
    absent = {split: _absences(table, table.rows(split)) for split in SPLITS}
    support = {split: table.truth[table.rows(split)].sum(axis=0) for split in SPLITS}
    splits = {split: _split_counts(table, table.rows(split)) for split in SPLITS}
    duplicates = _duplicate_counts(table, packed.duplicates)
    return {
        "read": {key: value for key, value in data.report.items() if key not in ("warnings", "corrections")},
        "corrections": data.report.get("corrections"),
        "exhaustive": table.exhaustive,
        "unusable": {"count": len(packed.unusable), "first": list(packed.unusable.values())[:SHOWN]},
        "splits": splits,
        "classes": [
            {"name": name}
            | {split: int(support[split][column]) for split in SPLITS}
            | {"unscored": int((~table.scored[:, column]).sum())}
            for column, name in enumerate(table.classes)
        ],
        "images": {
            side: {"least": int(values.min()), "median": float(np.median(values)), "most": int(values.max())}
            for side, values in (("height", packed.sizes[:, 0]), ("width", packed.sizes[:, 1]))
        },
        "notes": {
            note: {"count": len(rows), "first": [table.paths[row] for row in rows[:SHOWN]]}
            for note, rows in packed.notes.items()
        },
        "duplicates": duplicates,
        "warnings": [
            *data.report.get("warnings", []),
            *warn_partial_labels(table),
            *_label_warnings(table.classes, support, absent, splits),
            *_unusable_warnings(len(packed.unusable), published),
            *_duplicate_warnings(table, duplicates, packed.duplicates),
            *(f"{pluralize(len(packed.notes[note]), 'picture')} {words}" for note, words in ODD.items()
              if packed.notes.get(note)),
        ],
    }  # fmt: skip


def rare_classes(report: dict[str, Any]) -> list[str]:
    """Return the classes that have fewer than `FEW` positives in some split.

    Args:
        report: What `summarize_dataset` returned.
    """
    return [row["name"] for row in report["classes"] if min(row[split] for split in SPLITS) < FEW]


def _split_counts(table: Table, rows: np.ndarray) -> dict[str, Any]:
    """Return the counts of one split."""
    labels = table.truth[rows].sum(axis=1)
    return {
        "images": len(rows),
        "official_train": int((table.official[rows] == 0).sum()),
        "labels_per_image": float(labels.mean()),
        "images_by_labels": np.bincount(labels).tolist(),
        "without_positive": int((labels == 0).sum()),
        "classes_present": int(table.truth[rows].any(axis=0).sum()),
        "cells_unscored": int((~table.scored[rows]).sum()),
    } | _implied_counts(table, rows)


def _implied_counts(table: Table, rows: np.ndarray) -> dict[str, int]:
    """Return how many labels of a split stand there by the rules; nothing where there are none."""
    if table.implied is None:
        return {}
    present = table.truth[rows] == 1
    by_rules = table.implied[rows]
    return {"made_present": int((by_rules & present).sum()), "made_absent": int((by_rules & ~present).sum())}


def _duplicate_counts(table: Table, groups: list[list[int]]) -> dict[str, Any]:
    """Return counts of groups of equal pictures, and the paths of some: first those that matter."""
    across = [len(set(table.split[rows].tolist())) > 1 for rows in groups]
    differ = [bool((table.truth[rows] != table.truth[rows[0]]).any()) for rows in groups]
    order = sorted(range(len(groups)), key=lambda group: not (across[group] or differ[group]))
    return {
        "groups": len(groups),
        "across_splits": sum(across),
        "with_different_labels": sum(differ),
        "first": [[table.paths[row] for row in groups[group][:SHOWN]] for group in order[:SHOWN]],
    }


def _absences(table: Table, rows: np.ndarray) -> np.ndarray:
    """Return (C,) how many images of a split count as without each class: cells nobody knows do not, or all do."""
    return ((table.truth[rows] == 0) & (table.scored[rows] | (not table.exhaustive))).sum(axis=0)


def _label_warnings(
    classes: tuple[str, ...],
    support: dict[str, np.ndarray],
    absent: dict[str, np.ndarray],
    splits: dict[str, dict[str, Any]],
) -> list[str]:
    warnings = []
    for split in SPLITS:
        for kind, counts in (("positive", support[split]), ("negative", absent[split])):
            if names := [classes[column] for column in np.flatnonzero(counts == 0)] * bool(splits[split]["images"]):
                undefined = "their average precision is undefined there"
                warnings.append(f"{split} has no {kind} of {', '.join(names)}: {undefined}")
        if bare := splits[split]["without_positive"]:
            warnings.append(f"{split}: {pluralize(bare, 'image')} without a positive label")
    return warnings


def _unusable_warnings(count: int, published: bool) -> list[str]:
    if not count:
        return []
    others = "; a published draw of labels is that of the whole list, so these labels are others" if published else ""
    return [f"{pluralize(count, 'image')} left out, since files cannot be used{others}"]


def _duplicate_warnings(table: Table, duplicates: dict[str, Any], groups: list[list[int]]) -> list[str]:
    warnings = []
    if count := duplicates["across_splits"]:
        warnings.append(f"{pluralize(count, 'group')} of equal pictures across splits: test is not unseen")
    if count := duplicates["with_different_labels"]:
        warnings.append(f"{pluralize(count, 'group')} of equal pictures with different labels")
    many = sorted((group for group in groups if len(group) >= MANY), key=len, reverse=True)
    for group in many[:SHOWN]:
        first = table.paths[group[0]]
        warnings.append(f"{len(group)} pictures are equal to {first}: a placeholder of pictures that are gone?")
    return warnings
