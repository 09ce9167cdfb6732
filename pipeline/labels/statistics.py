"""Statistics of a label draw: counts by split and class, false-negative rates, distance from an unbiased draw."""

import math
from typing import Any

import numpy as np

from pipeline.labels.blocks import row_blocks
from pipeline.labels.draws import Draw, Known
from pipeline.labels.implications import Implied, describe_implied
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
    rates = false_negative_rate(table.truth, table.scored, draw.observed, lambda rows: draw.chances(rows)[0], train)
    expected, variance = _unbiased_moments(draw, train)
    distance, by_chance = distance_from_unbiased(
        np.array(rates["observed_positive"]), expected, variance, settings.positives.kind == "count"
    )
    splits = {split: _row_counts(table, draw.observed, table.rows(split)) for split in SPLITS}
    boxes = None
    if objects is not None and measured:
        boxes = _box_means(table.truth, draw.observed, objects, train)
    return {
        "rows": splits,
        "classes": _class_counts(table, draw, rates, expected if measured else None),
        "from_unbiased": {"distance": distance, "by_chance": by_chance} if measured else None,
        "boxes": boxes,
        "false_negative_rate": rates["pooled"],
        "expected_false_negative_rate": rates["pooled_expected"] if measured else None,
        "labels_per_image": splits["train"]["labels_per_image"],
    }


def summarize_implied(table: Table, draw: Draw, known: Known) -> dict[str, Any] | None:
    """Return how many labels are known by the table's rules, in the training split by class too.

    Args:
        table: The table.
        draw: The labels that stay known of themselves, of which `summarize_draw` tells.
        known: All that are known.

    Returns:
        JSON values, as `describe_implied` has them of the training split; `splits`, the totals of each; and what share
        of the training split's unknown cells is positive after that, null where it cannot be measured; None without
        rules.
    """
    if table.rules is None:
        return None
    rows = table.rows("train")
    labels = known.labels if known.corrected is None else np.where(known.corrected, draw.observed, known.labels)
    found = describe_implied(
        table.classes, draw.observed[rows], Implied(labels[rows], np.zeros(labels[rows].shape, bool))
    )
    splits = {split: count_implied(draw.observed, labels, table.rows(split)) for split in SPLITS}
    return found | {"splits": splits, "false_negative_rate": _rate_left(table, known)}


def count_implied(told: np.ndarray, known: np.ndarray, rows: np.ndarray) -> dict[str, int]:
    """Return how many labels of some rows the rules made present and absent.

    Args:
        told: (N, C) int8 labels before: 1 present, -1 absent, 0 unknown.
        known: (N, C) int8 labels with all that they imply.
        rows: (R,) rows.
    """
    made = known[rows] * (known[rows] != told[rows])
    return {"made_present": int((made == 1).sum()), "made_absent": int((made == -1).sum())}


def summarize_corrected(table: Table, known: Known) -> dict[str, Any] | None:
    """Return how many labels of the training split are known by what people answered.

    Args:
        table: The table.
        known: All labels that are known.

    Returns:
        JSON values: `made_present` and `made_absent`, what follows from the answers included, and what share of the
        unknown cells is positive after that, null where it cannot be measured; None without corrections.
    """
    if known.corrected is None:
        return None
    rows = table.rows("train")
    labels = np.where(known.corrected[rows], known.labels[rows], 0)
    counts = {"made_present": int((labels == 1).sum()), "made_absent": int((labels == -1).sum())}
    return counts | {"false_negative_rate": _rate_left(table, known)}


def _rate_left(table: Table, known: Known) -> float | None:
    """Return what share of the training split's unknown cells is positive; None where it cannot be measured."""
    rows = table.rows("train")
    unknown = (known.labels[rows] == 0) & table.scored[rows]
    return float((table.truth[rows] == 1)[unknown].mean()) if table.exhaustive and unknown.any() else None


def _unbiased_moments(draw: Draw, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of the known positives of each class, after an unbiased draw of as many."""
    classes = draw.observed.shape[1]
    moments = np.zeros((2, classes))
    for block in row_blocks(len(rows), classes):
        uniform = draw.chances(rows[block])[1]
        moments += uniform.sum(axis=0), (uniform * (1 - uniform)).sum(axis=0)
    return moments[0], moments[1]


def distance_from_unbiased(
    observed: np.ndarray, expected: np.ndarray, variance: np.ndarray, fixed: bool
) -> tuple[float | None, float | None]:
    """Return how far the classes of a draw are from those of an unbiased one.

    Args:
        observed: (C,) positives that stayed known.
        expected: (C,) mean of the positives that stay known after an unbiased draw.
        variance: (C,) their variance.
        fixed: Whether each row keeps a fixed number, so that the total is no matter of chance.

    Returns:
        The total variation distance between the classes' shares, in [0, 1]: the part of the known positives that would
        have to be of another class; and what an unbiased draw has of it by chance (mean of a normal's absolute value).
        None where nothing is known or expected.
    """
    if not observed.sum() or not expected.sum():
        return None, None
    share = expected / expected.sum()
    if not fixed:  # of a class's count less its share of the total, which varies with it
        variance = (1 - 2 * share) * variance + share**2 * variance.sum()
    spread = np.sqrt(2 / math.pi * variance)
    distance = np.abs(observed / observed.sum() - expected / expected.sum()).sum() / 2
    return float(distance), float(spread.sum() / expected.sum() / 2)


def _row_counts(table: Table, observed: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
    """Return the counts of one split."""
    blocks = [rows[block] for block in row_blocks(len(rows), observed.shape[1])] or [rows]
    present, known, absent = (
        np.concatenate([np.count_nonzero(array[block] == value, axis=1) for block in blocks])
        for array, value in ((table.truth, 1), (observed, 1), (observed, -1))
    )
    return {
        "images": len(rows),
        "without_positive": int((present == 0).sum()),
        "without_known_positive": int((known == 0).sum()),
        "labels_per_image": float(present.mean()) if len(rows) else None,
        "known_positives_per_image": float(known.mean()) if len(rows) else None,
        "known_negatives_per_image": float(absent.mean()) if len(rows) else None,
        "images_by_known_positives": np.bincount(known).tolist(),
    }


def _class_counts(table: Table, draw: Draw, rates: dict[str, Any], expected: np.ndarray | None) -> list[dict[str, Any]]:
    """Return the counts and rates of each class in the training split; ``expected`` is None where nothing is drawn."""
    train, measured = table.rows("train"), expected is not None
    unknown = rates["unknown"] if measured else _count_unknown(draw.observed, train)
    return [
        {
            "name": name,
            "truth_positive": rates["truth_positive"][column],
            "observed_positive": rates["observed_positive"][column],
            "expected_of_unbiased": None if expected is None else float(expected[column]),
            "observed_negative": rates["observed_negative"][column],
            "unknown": unknown[column],
            "hidden_positive": rates["hidden"][column] if measured else None,
            "false_negative_rate": rates["rate"][column],
            "expected_false_negative_rate": rates["expected"][column] if measured else None,
        }
        for column, name in enumerate(table.classes)
    ]


def _count_unknown(observed: np.ndarray, rows: np.ndarray) -> list[int]:
    """Return how many labels of some rows are not known, by class."""
    counts = np.zeros(observed.shape[1], np.int64)
    for block in row_blocks(len(rows), len(counts)):
        counts += (observed[rows[block]] == 0).sum(axis=0)
    return counts.tolist()


def _box_means(
    truth: np.ndarray, observed: np.ndarray, objects: Objects, rows: np.ndarray
) -> dict[str, dict[str, float | None]]:
    """Return how large and how central known positives of some rows are on average, and all positives."""
    place, columns = np.nonzero((truth == 1) & (objects.area > 0))
    mine = np.isin(place, rows)
    place, columns = place[mine], columns[mine]
    known = observed[place, columns] == 1
    return {
        name: {
            group: float(values[cells].mean(dtype=np.float64)) if cells.any() else None
            for group, cells in (("known", known), ("all", np.ones_like(known)))
        }
        for name, values in (("area", objects.area[place, columns]), ("offset", objects.offset[place, columns]))
    }
