"""False negatives that "unknown means absent" makes, as drawn and as expected of a draw."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline.labels.blocks import row_blocks
from pipeline.labels.recipe import require_binary


def false_negative_rate(
    truth: np.ndarray,
    scored: np.ndarray,
    observed: np.ndarray,
    chance: Callable[[np.ndarray], np.ndarray],
    rows: np.ndarray | None = None,
) -> dict[str, Any]:
    """Return counts and rates of the false negatives that "unknown means absent" makes.

    An unknown cell is a scored cell with observed label 0; a hidden positive is an unknown cell whose truth is 1. The
    expected rate is the expected number of hidden positives over the expected number of unknown cells.

    Args:
        truth: (N, C), 1 present, 0 absent.
        scored: (N, C) bool, whether the truth of the cell is known; other cells are not counted.
        observed: (N, C), 1 known positive, 0 unknown, -1 known negative.
        chance: Returns of rows the (R, C) chances, in [0, 1], with which the draw lets a cell be known; for a draw that
            keeps one positive a row it is 1/k where the row has k positives and the cell is one of them.
        rows: (M,) the rows that are counted; None: all.

    Returns:
        Lists of C: `truth_positive`, `observed_positive`, `observed_negative`, `unknown`, `hidden` (counts), `rate` and
        `expected` (in [0, 1], None without an unknown cell); and `pooled` and `pooled_expected`, the same over all
        cells.

    Raises:
        ValueError: Shapes differ or `truth` is not a matrix of 0 and 1.
    """
    truth, scored, observed = np.asarray(truth), np.asarray(scored, dtype=bool), np.asarray(observed)
    if not truth.shape == scored.shape == observed.shape:
        shapes = f"truth {truth.shape}, scored {scored.shape} and observed {observed.shape}"
        raise ValueError(f"{shapes} differ in shape")
    counts = np.zeros((6, truth.shape[1]), np.int64)
    known = np.zeros((2, truth.shape[1]))  # expected numbers, of positives and of all cells
    every = np.arange(len(truth)) if rows is None else rows
    for rows in (every[block] for block in row_blocks(len(every), truth.shape[1])):
        counted, labels, given = scored[rows], require_binary(truth[rows]) & scored[rows], observed[rows]
        free = counted & (given == 0)
        kinds = (labels, counted & (given == 1), counted & (given == -1), free, free & labels, counted)
        counts += [cells.sum(axis=0) for cells in kinds]
        known += [(chance(rows) * cells).sum(axis=0) for cells in (labels, counted)]
    positive, observed_positive, observed_negative, unknown, hidden, cells = counts
    expected_hidden, expected_unknown = positive - known[0], cells - known[1]
    return {
        "truth_positive": positive.tolist(),
        "observed_positive": observed_positive.tolist(),
        "observed_negative": observed_negative.tolist(),
        "unknown": unknown.tolist(),
        "hidden": hidden.tolist(),
        "rate": [_ratio(*pair) for pair in zip(hidden, unknown, strict=True)],
        "expected": [_ratio(*pair) for pair in zip(expected_hidden, expected_unknown, strict=True)],
        "pooled": _ratio(hidden.sum(), unknown.sum()),
        "pooled_expected": _ratio(expected_hidden.sum(), expected_unknown.sum()),
    }


def _ratio(part: float, whole: float) -> float | None:
    # Below 1e-9 cells the expectation is zero but for rounding; a part of -1e-16 is none.
    return max(float(part), 0.0) / float(whole) if whole > 1e-9 else None
