"""Draws of single positive labels: one positive label of each image stays known, the rest is forgotten.

Two protocols: `literature` repeats the published recipe bit for bit, `seeded` draws one uniform positive per row from
a generator.
Source: Cole et al., "Multi-Label Learning from Single Positive Labels", CVPR 2021, section 3 and appendix.
Authors' code: elijahcole/single-positive-multi-label @89152d5, preproc/generate_observed_labels.py and datasets.py.
Differs: observed labels are int8 whatever the type of the truth (theirs follows it); the numbers are the same.
"""

import numpy as np

from pipeline.labels.blocks import row_blocks


def literature(truth: np.ndarray, seed: int = 1200, positives: int = 1, negatives: int = 0) -> np.ndarray:
    """Return observed labels drawn by the published recipe, bit for bit.

    Rows in order: shuffle the columns of the row's positives, keep the first `positives`; then shuffle the columns of
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
    truth = require_binary(truth)
    if positives < 0 or negatives < 0:
        raise ValueError(f"cannot keep {positives} positives and {negatives} negatives")
    observed = np.zeros(truth.shape, np.int8)
    generator = np.random.RandomState(seed)
    for row, labels in enumerate(truth):
        columns = np.flatnonzero(labels)
        generator.shuffle(columns)
        observed[row, columns[:positives]] = 1
        columns = np.flatnonzero(~labels)
        generator.shuffle(columns)
        observed[row, columns[:negatives]] = -1
    return observed


def seeded(truth: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return one positive per row, each of the row's positives with the same probability, rows independently.

    Args:
        truth: (N, C), 1 present, 0 absent.
        generator: Takes one draw per row, also for a row without a positive.

    Returns:
        (N, C) int8, exactly one 1 in each row that has a positive, 0 elsewhere.

    Raises:
        ValueError: `truth` is not a matrix of 0 and 1.
    """  # noqa: DOC502  raised by `require_binary`
    truth = require_binary(truth)
    counts = truth.sum(axis=1)
    chosen = generator.integers(0, np.maximum(counts, 1))  # which of the row's positives, counted from 0
    observed = np.zeros(truth.shape, np.int8)
    for block in row_blocks(*truth.shape):
        ordinal = np.cumsum(truth[block], axis=1) - 1
        observed[block] = truth[block] & (ordinal == chosen[block, None])
    return observed


def require_binary(truth: np.ndarray) -> np.ndarray:
    """Return a matrix of labels as booleans.

    Args:
        truth: (N, C), 1 present, 0 absent, of any numeric type.

    Returns:
        (N, C) bool.

    Raises:
        ValueError: It is not a matrix of 0 and 1.
    """
    truth = np.asarray(truth)
    if truth.ndim != 2:
        raise ValueError(f"truth has shape {truth.shape}, expected images x classes")
    present = truth == 1
    if truth.dtype != bool and (wrong := ~present & (truth != 0)).any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(f"truth is {truth[row, column]} at row {row}, class {column}, expected 0 or 1")
    return present
