"""Calibration: how present a method takes unknown cells to be, against how often they are present.

Unknown cells are sorted by belief p into equal bins of one shared range [0, 1]; each bin holds the fraction of true
positives, P(y = 1 | p, s = 0). Where p is a calibrated P(y = 1 | x) and each positive is kept with probability a, that
fraction is k(p) = (1 - a) p / (1 - a p); where each absence is kept with probability b too, it is
(1 - a) p / ((1 - a) p + (1 - b) (1 - p)).

Source: Chen et al., "Boosting Single Positive Multi-label Classification with Generalized Robust Loss", IJCAI 2024,
Appendix E.3 and Figure 5. Authors' code: yan4xi1/GRLoss @5e13f7f, instrumentation.py.
Differs from the source in:
- bins over [0, 1] for all groups; the authors' histogram takes each group's own minimum and maximum as its range, so
  that numerator and denominator of a ratio count different intervals;
- empty bins are None, not 0/0.
"""

from typing import Any

import numpy as np

from pipeline.labels.blocks import row_blocks


def curve(
    belief: Any, truth: np.ndarray, unknown: np.ndarray, *, bins: int, weight: Any = None
) -> list[dict[str, Any]]:
    """Return the share of true positives among unknown cells, by belief.

    Args:
        belief: (N, C) belief that the cell is present, in [0, 1]; an array or an open HDF5 dataset, read by blocks.
        truth: (N, C) labels, 1 or 0.
        unknown: (N, C) bool, the cells that count.
        bins: Number of equal bins of [0, 1]; the last one includes 1.
        weight: (N, C) weight of each cell in the method's risk, any sign, likewise; None: not reported.

    Returns:
        One dict a bin: ``bin`` (from 0), ``lower``, ``upper``, ``cells``, ``true_positives``, ``fraction`` (true
        positives of cells), ``mean_belief`` and, with ``weight``, ``mean_weight``; these are None in an empty bin.

    Raises:
        ValueError: Shapes differ or a belief on an unknown cell is outside [0, 1].
    """
    truth, unknown = np.asarray(truth), np.asarray(unknown, dtype=bool)
    if not belief.shape == truth.shape == unknown.shape or (weight is not None and weight.shape != belief.shape):
        raise ValueError(f"belief, truth, unknown and weight differ in shape: {belief.shape}, {truth.shape}")
    edges = np.arange(bins + 1) / bins
    cells, true = np.zeros((2, bins), np.int64)
    sums = {name: np.zeros(bins) for name in ("mean_belief", *(("mean_weight",) if weight is not None else ()))}
    for rows in row_blocks(*belief.shape):
        counted = unknown[rows]
        values, positive = belief[rows][counted].astype(np.float64), truth[rows][counted] == 1
        if not ((values >= 0) & (values <= 1)).all():  # a NaN fails too
            raise ValueError("a belief on an unknown cell is outside [0, 1]")
        position = np.minimum(np.searchsorted(edges, values, side="right") - 1, bins - 1)
        cells += np.bincount(position, minlength=bins)
        true += np.bincount(position[positive], minlength=bins)
        sums["mean_belief"] += np.bincount(position, weights=values, minlength=bins)
        if weight is not None:
            weights = weight[rows][counted].astype(np.float64)
            sums["mean_weight"] += np.bincount(position, weights=weights, minlength=bins)
    return [
        {
            "bin": b,
            "lower": float(edges[b]),
            "upper": float(edges[b + 1]),
            "cells": int(cells[b]),
            "true_positives": int(true[b]),
            "fraction": float(true[b] / cells[b]) if cells[b] else None,
            **{name: float(total[b] / cells[b]) if cells[b] else None for name, total in sums.items()},
        }
        for b in range(bins)
    ]


def error(rows: list[dict[str, Any]]) -> float | None:
    """Return the expected calibration error of a ``curve``.

    Args:
        rows: The bins of ``curve``.

    Returns:
        Mean over cells of |fraction - mean belief| of the cell's bin, in [0, 1]; None where no cell counts.
    """
    full = [row for row in rows if row["cells"]]
    if not full:
        return None
    gap = sum(row["cells"] * abs(row["fraction"] - row["mean_belief"]) for row in full)
    return float(gap / sum(row["cells"] for row in full))


def reference(probability: float, labelled: float, excluded: float = 0.0) -> float:
    """Return k(p), the share of true positives among unknown cells that a calibrated probability implies.

    Args:
        probability: P(y = 1 | x), in [0, 1].
        labelled: Probability that a positive label is observed, a in (0, 1]; 1 / (labels per image) for single
            positives.
        excluded: Probability that an absence is observed, b in [0, 1]; 0 for single positives.

    Returns:
        (1 - a) p / ((1 - a) p + (1 - b) (1 - p)), in [0, 1]; 0 where no cell is unknown.

    Raises:
        ValueError: An argument is outside its range.
    """
    if not 0 <= probability <= 1 or not 0 < labelled <= 1 or not 0 <= excluded <= 1:
        given = f"{probability}, {labelled}, {excluded}"
        raise ValueError(f"probability and excluded must be in [0, 1] and labelled in (0, 1]: {given}")
    hidden, absent = (1 - labelled) * probability, (1 - excluded) * (1 - probability)
    return hidden / (hidden + absent) if hidden + absent else 0.0


def curve_with_reference(
    probability: np.ndarray, truth: np.ndarray, known: np.ndarray, scored: np.ndarray, bins: int
) -> list[dict[str, Any]]:
    """Return the `curve` of a network's probabilities on unknown cells, with k(p) in each bin.

    Args:
        probability: (N, C) the network's probability, in [0, 1].
        truth: (N, C) labels, 1 or 0.
        known: (N, C) labels that stay known: 1 positive, 0 unknown, -1 negative.
        scored: (N, C) bool, the cells that count.
        bins: Number of equal bins of [0, 1].

    Returns:
        The bins of `curve`, each with ``reference``: k(p) of its mean probability, by the shares of the positives and
        absences that stay known; None in an empty bin, or where no positive stays known.
    """
    positives, absences = (int(((truth == value) & scored).sum()) for value in (1, 0))
    labelled = float(((known == 1) & scored).sum() / positives) if positives else None
    excluded = float(((known == -1) & scored).sum() / absences) if absences else 0.0
    bars = curve(probability, truth, (known == 0) & scored, bins=bins)
    for bar in bars:
        bar["reference"] = None
        if labelled and bar["cells"]:
            bar["reference"] = reference(bar["mean_belief"], labelled, excluded)
    return bars
