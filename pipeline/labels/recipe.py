"""Single-positive simulation: keep one positive label per image of a fully labelled set and forget the rest.

Two protocols: `literature` repeats the published recipe bit for bit, `seeded` draws one uniform positive per row from
a generator.
Source: Cole et al., "Multi-Label Learning from Single Positive Labels", CVPR 2021, section 3 and appendix; the split
rule too.
Authors' code: elijahcole/single-positive-multi-label @89152d5, preproc/generate_observed_labels.py and datasets.py.
Differs: observed labels are int8 whatever the type of the truth (theirs follows it); the numbers are the same.
"""

from typing import Any

import numpy as np


def literature(truth: np.ndarray, seed: int = 1200, positives: int = 1, negatives: int = 0) -> np.ndarray:
    """Draw observed labels by the published recipe, bit for bit.

    Rows in order: shuffle the places of the row's positives, keep the first `positives`; then shuffle the places of
    its negatives too, although by default none is kept: that shuffle moves the generator on, and without it every
    later row differs.

    Args:
        truth: (N, C), 1 present, 0 absent, of any numeric type: all rows of ONE official part, before the train/val
            split.
        seed: Seed of a fresh legacy `RandomState`; the papers use 1200, for each official part anew.
        positives: Positives to keep per row, at least 0; a row with fewer keeps all it has.
        negatives: Negatives to keep per row, at least 0.

    Returns:
        (N, C) int8, 1 known positive, -1 known negative, 0 unknown. A row without a positive has no 1.

    Raises:
        ValueError: `truth` is not a matrix of 0 and 1, or a number to keep is negative.
    """
    truth = _binary(truth)
    if positives < 0 or negatives < 0:
        raise ValueError(f"cannot keep {positives} positives and {negatives} negatives")
    observed = np.zeros(truth.shape, np.int8)
    generator = np.random.RandomState(seed)
    for row, labels in enumerate(truth):
        places = np.flatnonzero(labels)
        generator.shuffle(places)
        observed[row, places[:positives]] = 1
        places = np.flatnonzero(~labels)
        generator.shuffle(places)
        observed[row, places[:negatives]] = -1
    return observed


def seeded(truth: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draw one positive per row, each of the row's positives with the same probability, rows independently.

    Args:
        truth: (N, C), 1 present, 0 absent.
        generator: Takes one draw per row, also for a row without a positive.

    Returns:
        (N, C) int8, exactly one 1 in each row that has a positive, 0 elsewhere.

    Raises:
        ValueError: `truth` is not a matrix of 0 and 1.
    """
    truth = _binary(truth)
    counts = truth.sum(axis=1)
    chosen = generator.integers(0, np.maximum(counts, 1))  # which of the row's positives, counted from 0
    ordinal = np.cumsum(truth, axis=1) - 1
    return (truth & (ordinal == chosen[:, None])).astype(np.int8)


def label_sets(truth: np.ndarray, scored: np.ndarray, single: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Make the label sets of the two oracles: everything known, and one positive with all true negatives.

    Args:
        truth: (N, C), 1 present, 0 absent.
        scored: (N, C) bool, whether the truth of the cell is known.
        single: (N, C), the drawn labels, 1 at the observed positives.

    Returns:
        `all`: (N, C) int8, 1 present, -1 absent, 0 where not scored; `negatives`: (N, C) int8, 1 at the observed
        positive, -1 at every scored true negative, 0 elsewhere.

    Raises:
        ValueError: shapes differ, or an observed positive is not a scored positive of the truth.
    """
    truth, scored, single = _binary(truth), np.asarray(scored, dtype=bool), np.asarray(single)
    if not truth.shape == scored.shape == single.shape:
        raise ValueError(f"truth {truth.shape}, scored {scored.shape} and single {single.shape} differ in shape")
    positive = single == 1
    if (positive & ~(truth & scored)).any():
        row, column = np.argwhere(positive & ~(truth & scored))[0]
        raise ValueError(f"row {row}, class {column} is an observed positive but no known positive of the truth")
    absent = np.where(scored & ~truth, -1, 0)
    everything = np.where(scored & truth, 1, absent).astype(np.int8)
    return everything, np.where(positive, 1, absent).astype(np.int8)


def given(truth: np.ndarray, scored: np.ndarray) -> np.ndarray:
    """Take labels that are not exhaustive as what is observed.

    Args:
        truth: (N, C), 1 known present, 0 elsewhere.
        scored: (N, C) bool, whether the label is known.

    Returns:
        (N, C) int8: 1 known present, -1 known absent, 0 unknown.
    """
    return np.where(scored, np.where(_binary(truth), 1, -1), 0).astype(np.int8)


def false_negative_rate(
    truth: np.ndarray, scored: np.ndarray, observed: np.ndarray, chance: np.ndarray
) -> dict[str, Any]:
    """Count the false negatives that "unknown means absent" would make, as drawn and as expected of such a draw.

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
        ValueError: shapes differ or `truth` is not a matrix of 0 and 1.
    """
    truth, scored, observed = _binary(truth), np.asarray(scored, dtype=bool), np.asarray(observed)
    if not truth.shape == scored.shape == observed.shape == chance.shape:
        shapes = f"truth {truth.shape}, scored {scored.shape}, observed {observed.shape} and chance {chance.shape}"
        raise ValueError(f"{shapes} differ in shape")
    truth = truth & scored
    unknown = scored & (observed == 0)
    hidden = unknown & truth
    positive = truth.sum(axis=0)
    expected_hidden = positive - (chance * truth).sum(axis=0)
    expected_unknown = scored.sum(axis=0) - (chance * scored).sum(axis=0)
    return {
        "truth_positive": positive.tolist(),
        "observed_positive": (scored & (observed == 1)).sum(axis=0).tolist(),
        "observed_negative": (scored & (observed == -1)).sum(axis=0).tolist(),
        "unknown": unknown.sum(axis=0).tolist(),
        "hidden": hidden.sum(axis=0).tolist(),
        "rate": [_ratio(*pair) for pair in zip(hidden.sum(axis=0), unknown.sum(axis=0), strict=True)],
        "expected": [_ratio(*pair) for pair in zip(expected_hidden, expected_unknown, strict=True)],
        "pooled": _ratio(hidden.sum(), unknown.sum()),
        "pooled_expected": _ratio(expected_hidden.sum(), expected_unknown.sum()),
    }


def _ratio(part: Any, whole: Any) -> float | None:
    # below 1e-9 cells the expectation is zero but for rounding; a part of -1e-16 is none
    return max(float(part), 0.0) / float(whole) if whole > 1e-9 else None


def _binary(truth: np.ndarray) -> np.ndarray:
    truth = np.asarray(truth)
    if truth.ndim != 2:
        raise ValueError(f"truth has shape {truth.shape}, expected images x classes")
    present = truth == 1
    wrong = ~present & (truth != 0)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(f"truth is {truth[row, column]} at row {row}, class {column}, expected 0 or 1")
    return present
