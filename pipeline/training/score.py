"""Scores of a trained network: mAP by both rules for absent classes, and average precision of each class."""

from typing import Any

import numpy as np

from pipeline.audits.metrics import mean_average_precision
from pipeline.labels.table import Table

SHOWN = "val score by shown labels"
"""The selection score of ``select: auto``, in words: `selection.Judge`'s."""


def name_score(table: Table, select: str) -> str:
    """Return what validation is scored by in training, in words.

    Args:
        table: The dataset's table.
        select: The stage's setting.
    """
    if select == "auto":
        return SHOWN
    return "val mAP" if table.measurable("val") else "val mAP by given labels"


def score_splits(table: Table, logits: dict[str, np.ndarray]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the scores of the validation and test splits, and those of each class.

    Args:
        table: The dataset's table.
        logits: (N_split, C) float32 logits of "val" and "test".

    Returns:
        ``{"labels": {...}, "val": {...}, "test": {...}}``: what each split is scored by, ``clean`` labels or, where
        some are not known, the ``given`` ones; and of each ``map``, ``map_absent_zero`` (percent; ``map`` is None
        without a class that can be measured), ``classes_present``, those in ``map``, and ``classes_without_negative``,
        whose average precision would be 1 by any scores; and one row a class with its supports and average precisions.
    """
    labels = {split: "clean" if table.measurable(split) else "given" for split in logits}
    result: dict[str, Any] = {"labels": labels}
    rows: list[dict[str, Any]] = [{"class": name} for name in table.classes]
    for split in ("train", "val", "test"):
        truth = table.truth[table.rows(split)]
        for row, support in zip(rows, truth.sum(0), strict=True):
            row[f"support_{split}"] = int(support)
    for split, values in logits.items():
        truth, scored = table.reference(split)
        precision = mean_average_precision(truth, values, scored)
        result[split] = {
            "map": precision["map"],
            "map_absent_zero": precision["map_absent_zero"],
            "classes_present": precision["present"],
            "classes_without_negative": precision["without_negative"],
        }
        for row, value in zip(rows, precision["ap"], strict=True):
            row[f"ap_{split}"] = value
    return result, rows
