"""False negatives that "unknown means absent" makes, as drawn and as expected of a draw."""

from typing import Any

import numpy as np

from pipeline.labels.recipe import require_binary


def false_negative_rate(
    truth: np.ndarray, scored: np.ndarray, observed: np.ndarray, chance: np.ndarray
) -> dict[str, Any]:
    """Return counts and rates of the false negatives that "unknown means absent" makes.

    An unknown cell is a scored cell with observed label 0; a hidden positive is an unknown cell whose truth is 1. The
    expected rate is the expected number of hidden positives over the expected number of unknown cells.

    Args:
        truth: (N, C), 1 present, 0 absent.
        scored: (N, C) bool, whether the truth of the cell is known; other cells are not counted.
        observed: (N, C), 1 known positive, 0 unknown, -1 known negative.
        chance: (N, C) in [0, 1], with which chance the draw lets a cell be known; for a draw that keeps one positive a
            row it is 1/k where the row has k positives and the cell is one of them.

    Returns:
        Lists of C: `truth_positive`, `observed_positive`, `observed_negative`, `unknown`, `hidden` (counts), `rate` and
        `expected` (in [0, 1], None without an unknown cell); and `pooled` and `pooled_expected`, the same over all
        cells.

    Raises:
        ValueError: Shapes differ or `truth` is not a matrix of 0 and 1.
    """
    truth, scored, observed = require_binary(truth), np.asarray(scored, dtype=bool), np.asarray(observed)
    if not truth.shape == scored.shape == observed.shape == chance.shape:
        shapes = f"truth {truth.shape}, scored {scored.shape}, observed {observed.shape} and chance {chance.shape}"
        raise ValueError(f"{shapes} differ in shape")
    truth = truth & scored
    unknown_cells = scored & (observed == 0)
    positive, unknown, hidden = (cells.sum(axis=0) for cells in (truth, unknown_cells, unknown_cells & truth))
    expected_hidden = positive - (chance * truth).sum(axis=0)
    expected_unknown = scored.sum(axis=0) - (chance * scored).sum(axis=0)
    return {
        "truth_positive": positive.tolist(),
        "observed_positive": (scored & (observed == 1)).sum(axis=0).tolist(),
        "observed_negative": (scored & (observed == -1)).sum(axis=0).tolist(),
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
