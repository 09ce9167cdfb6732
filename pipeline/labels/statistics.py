"""Statistics of a label draw: counts by split and class, false-negative rates, distance from an unbiased draw."""

import math
from typing import Any

import numpy as np

from pipeline.labels.draws import Draw
from pipeline.labels.rates import false_negative_rate
from pipeline.labels.settings import Simulate
from pipeline.labels.table import SPLITS, Objects, Table


def summarize_draw(table: Table, draw: Draw, objects: Objects | None, settings: Simulate) -> dict[str, Any]:
    """Return counts of all splits, and the rates of the training split, the only one that is learned from.

    Args:
        table: The table.
        draw: The labels of its rows that stay known.
        objects: Where its objects lie.
        settings: The settings of the draw.

    Returns:
        JSON values: `rows` by split, `classes`, `from_unbiased`, `boxes`, `false_negative_rate`,
        `expected_false_negative_rate` and `labels_per_image`; null is what cannot be measured.
    """
    train, measured = table.rows("train"), settings.protocol != "given"
    rates = false_negative_rate(table.truth[train], table.scored[train], draw.observed[train], draw.chance[train])
    distance, by_chance = distance_from_unbiased(
        np.array(rates["observed_positive"]), draw.uniform[train], settings.positives.kind == "count"
    )
    boxes = None
    if objects is not None and measured:
        boxes = _box_means(table.truth[train] == 1, draw.observed[train] == 1, objects.take(train))
    return {
        "rows": {split: _row_counts(table, draw.observed, table.rows(split)) for split in SPLITS},
        "classes": _class_counts(table, draw, rates, measured),
        "from_unbiased": {"distance": distance, "by_chance": by_chance} if measured else None,
        "boxes": boxes,
        "false_negative_rate": rates["pooled"],
        "expected_false_negative_rate": rates["pooled_expected"] if measured else None,
        "labels_per_image": float(table.truth[train].sum(axis=1).mean()) if len(train) else None,
    }


def distance_from_unbiased(observed: np.ndarray, uniform: np.ndarray, fixed: bool) -> tuple[float | None, float | None]:
    """Return how far the classes of a draw are from those of an unbiased one.

    Args:
        observed: (C,) positives that stayed known.
        uniform: (N, C) chances of an unbiased draw.
        fixed: Whether each row keeps a fixed number, so that the total is no matter of chance.

    Returns:
        The total variation distance between the classes' shares, in [0, 1]: the part of the known positives that would
        have to be of another class; and what an unbiased draw has of it by chance (mean of a normal's absolute value).
        None where nothing is known or expected.
    """
    expected = uniform.sum(axis=0)
    if not observed.sum() or not expected.sum():
        return None, None
    variance, share = (uniform * (1 - uniform)).sum(axis=0), expected / expected.sum()
    if not fixed:  # of a class's count less its share of the total, which varies with it
        variance = (1 - 2 * share) * variance + share**2 * variance.sum()
    spread = np.sqrt(2 / math.pi * variance)
    distance = np.abs(observed / observed.sum() - expected / expected.sum()).sum() / 2
    return float(distance), float(spread.sum() / expected.sum() / 2)


def _row_counts(table: Table, observed: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
    """Return the counts of one split."""
    truth, positive = table.truth[rows], observed[rows] == 1
    counts = positive.sum(axis=1)
    return {
        "images": len(rows),
        "without_positive": int((~truth.any(axis=1)).sum()),
        "without_known_positive": int((counts == 0).sum()),
        "labels_per_image": float(truth.sum(axis=1).mean()) if len(rows) else None,
        "known_positives_per_image": float(counts.mean()) if len(rows) else None,
        "known_negatives_per_image": float((observed[rows] == -1).sum(axis=1).mean()) if len(rows) else None,
        "images_by_known_positives": np.bincount(counts).tolist(),
    }


def _class_counts(table: Table, draw: Draw, rates: dict[str, Any], measured: bool) -> list[dict[str, Any]]:
    """Return the counts and rates of each class in the training split."""
    train = table.rows("train")
    unknown = rates["unknown"] if measured else (draw.observed[train] == 0).sum(axis=0).tolist()
    unbiased = draw.uniform[train]
    return [
        {
            "name": name,
            "truth_positive": rates["truth_positive"][column],
            "observed_positive": rates["observed_positive"][column],
            "expected_of_unbiased": float(unbiased[:, column].sum()) if measured else None,
            "observed_negative": rates["observed_negative"][column],
            "unknown": unknown[column],
            "hidden_positive": rates["hidden"][column] if measured else None,
            "false_negative_rate": rates["rate"][column],
            "expected_false_negative_rate": rates["expected"][column] if measured else None,
        }
        for column, name in enumerate(table.classes)
    ]


def _box_means(present: np.ndarray, known: np.ndarray, objects: Objects) -> dict[str, dict[str, float | None]]:
    """Return how large and how central known positives are on average, and all positives."""
    boxed = present & (objects.area > 0)
    return {
        name: {
            group: float(values[cells].mean(dtype=np.float64)) if cells.any() else None
            for group, cells in (("known", boxed & known), ("all", boxed))
        }
        for name, values in (("area", objects.area), ("offset", objects.offset))
    }
