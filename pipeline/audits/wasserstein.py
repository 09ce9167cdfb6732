"""Wasserstein-1 separation between hidden positives and true negatives among the cells without a label.

distance = integral over [0, 1] of |F_positive(p) - F_negative(p)| dp, where F is the empirical distribution of the
probabilities p = sigmoid(logit) of one group; in [0, 1], and 1 where all hidden positives have p = 1 and all
negatives 0.

Source: Zhou et al., ECCV 2022, Figure 4a (per class) and Chen et al. (GR Loss), IJCAI 2024, Figure 3a (pooled).
Authors' code: yan4xi1/GRLoss @5e13f7f, instrumentation.py `prob_stat`.
Differs from the source in:
- raw probabilities are compared; the helper `cal` of the authors' file takes histogram counts as if they were samples;
- a group without cells makes the distance None, with the reason.
"""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from scipy.stats import wasserstein_distance

from pipeline.audits.runs import raise_if_other_shape
from pipeline.core import hdf5
from pipeline.labels.table import Table

Row = dict[str, Any]
MANY = 1 << 18
"""Values whose distance is computed at a time."""
SPLITS = ("train", "val")
"""Splits that are measured; test has no simulated labels, so nothing there is "unannotated"."""
_RUN = ("stage", "key", "method")
COLUMNS = {
    "per_class": [*_RUN, "class", "split", "distance", "n_pos", "n_neg", "reason"],
    "epochs": [*_RUN, "epoch", "selected", "split", "pooled", "mean_over_defined", "reason"],
    "class_epochs": [*_RUN, "epoch", "split", "class", "distance", "n_positive", "n_negative", "reason"],
}
"""Tables of the separation of runs and their columns."""


def distance(
    a: ArrayLike, b: ArrayLike, weights_a: ArrayLike | None = None, weights_b: ArrayLike | None = None
) -> float | None:
    """Return the Wasserstein-1 distance between two samples of numbers.

    Args:
        a: (n,) values.
        b: (m,) values.
        weights_a: (n,) weights >= 0, e.g. the counts of a histogram whose bin centres are ``a``; None: all equal.
        weights_b: (m,) likewise.

    Returns:
        The distance in the values' unit; None where a sample is empty.

    Raises:
        ValueError: A value is not finite.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if not a.size or not b.size:
        return None
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("a distance between samples that hold NaN or infinity is not defined")
    return float(wasserstein_distance(a, b, weights_a, weights_b))


def separation(
    logits: np.ndarray, truth: np.ndarray, observed: np.ndarray, scored: np.ndarray | None = None
) -> dict[str, Any]:
    """Return how far a network sets hidden positives apart from true negatives.

    Args:
        logits: (N, C) finite logits.
        truth: (N, C) labels, 1 or 0.
        observed: (N, C) known labels; only cells that are 0 (unannotated) enter.
        scored: (N, C) bool; cells that are False are left out. None: all enter.

    Returns:
        ``per_class`` (C distances in [0, 1] or None), ``reason`` (C texts, None where the distance is defined),
        ``counts_positive`` and ``counts_negative`` (C numbers of cells), ``pooled`` (all classes' cells together) with
        ``pooled_reason``, ``mean_over_defined`` (mean of the defined classes, or None) and ``defined`` (their number).

    Raises:
        ValueError: Shapes differ, or a logit is not finite.
    """
    logits, truth, observed = np.asarray(logits), np.asarray(truth), np.asarray(observed)
    if logits.ndim != 2 or not logits.shape == truth.shape == observed.shape:
        raise ValueError(f"logits, truth and observed must be (N, C): {logits.shape}, {truth.shape}, {observed.shape}")
    if not np.isfinite(logits).all():
        raise ValueError("a logit is not finite")
    unknown = observed == 0
    if scored is not None:
        unknown &= np.asarray(scored, dtype=bool)
    positive, negative = unknown & (truth == 1), unknown & (truth == 0)
    values, reasons = [], []
    for c in range(logits.shape[1]):
        values.append(distance(*(_probabilities(logits[cells[:, c], c]) for cells in (positive, negative))))
        reasons.append(_reason(bool(positive[:, c].any()), bool(negative[:, c].any())))
    defined = [value for value in values if value is not None]
    return {
        "per_class": values,
        "reason": reasons,
        "counts_positive": positive.sum(axis=0).tolist(),
        "counts_negative": negative.sum(axis=0).tolist(),
        "pooled": _distance_of_many(*(_probabilities(logits[cells]) for cells in (positive, negative))),
        "pooled_reason": _reason(bool(positive.any()), bool(negative.any())),
        "mean_over_defined": float(np.mean(defined)) if defined else None,
        "defined": len(defined),
    }


def _probabilities(logits: np.ndarray) -> np.ndarray:
    """Return float64 probabilities of logits."""
    probabilities = logits.astype(np.float64)
    return expit(probabilities, out=probabilities)


def _distance_of_many(a: np.ndarray, b: np.ndarray) -> float | None:
    """Return the `distance` of two samples, which are sorted in place: beside them it takes memory for `MANY` values.

    The integral of |F - G| is taken piece by piece, between every so many values of the larger sample.
    """
    if not a.size or not b.size:
        return None
    few, many = sorted((a, b), key=len)
    few.sort()
    many.sort()
    low, high = min(few[0], many[0]), max(few[-1], many[-1])
    edges = [low, *many[MANY::MANY], high]
    total = 0.0
    for start, stop in itertools.pairwise(edges):
        inside = [sample[slice(*np.searchsorted(sample, (start, stop)))] for sample in (few, many)]
        points = np.sort(np.concatenate([[start], *inside, [stop]]))
        shares = [np.searchsorted(sample, points[:-1], side="right") / len(sample) for sample in (few, many)]
        total += float((np.abs(shares[0] - shares[1]) * np.diff(points)).sum())
    return total


def share_above(values: list[float | None], others: list[float | None]) -> float | None:
    """Return the share of classes that one run separates better than another.

    Args:
        values: C distances, None where undefined.
        others: C distances of the other run.

    Returns:
        Share in [0, 1] of the classes defined in both whose distance is strictly larger; None where there is none.
    """
    pairs = [(a, b) for a, b in zip(values, others, strict=True) if a is not None and b is not None]
    return sum(a > b for a, b in pairs) / len(pairs) if pairs else None


def measure_run(path: Path, table: Table, single: np.ndarray) -> tuple[Row, list[Row]]:
    """Return how far a run sets hidden positives apart from true negatives, at the chosen epoch and at all it kept.

    Args:
        path: Its logits.h5.
        table: The table that it was trained on.
        single: (N, C) labels that stay known.

    Returns:
        Its entry of wasserstein.json: ``epoch`` and, by split, `separation` with ``epochs_kept``; and one row for each
        split and epoch kept: ``epoch``, ``selected``, ``split`` and all that `separation` returns.

    Raises:
        FileError: The file is absent, damaged or incomplete, or does not fit the table.
    """  # noqa: DOC502  raised by the functions below
    run, epochs = {}, []
    with hdf5.read(path) as file:
        run["epoch"] = chosen = int(file.attrs["epoch"])
        for split in SPLITS:
            rows = table.rows(split)
            labels = table.truth[rows], single[rows], table.scored[rows]
            logits, kept = file[split][()], file.get(f"epochs_{split}", ())
            raise_if_other_shape(path, split, logits.shape, labels[0].shape)
            run[split] = separation(logits, *labels) | {"epochs_kept": len(kept)}
            for epoch, logits in enumerate(kept, start=1):
                head = {"epoch": epoch, "selected": int(epoch == chosen), "split": split}
                epochs.append(head | separation(logits, *labels))
    return run, epochs


def compare_runs(runs: list[Row]) -> None:
    """Add to each run, by split, the share of classes that it separates better than each grid method of its stage.

    Args:
        runs: Entries of wasserstein.json, with ``stage``, ``method`` and ``variant``; ``share_of_classes_above`` is
            added to each split.
    """
    for run in runs:
        others = [
            other for other in runs if other["variant"] is None and other["stage"] == run["stage"] and other is not run
        ]
        for split in SPLITS:
            values = run[split]["per_class"]
            run[split]["share_of_classes_above"] = {
                other["method"]: share_above(values, other[split]["per_class"]) for other in others
            }


def tabulate(runs: list[Row], epochs: list[Row], classes: tuple[str, ...]) -> dict[str, list[Row]]:
    """Return the rows of each table of `COLUMNS`.

    Args:
        runs: Measured entries of wasserstein.json.
        epochs: What `measure_run` returned of their epochs, each with the run's ``stage``, ``key`` and ``method``.
        classes: Names of the classes.
    """
    chosen = [{name: run[name] for name in _RUN} | {"split": split} | run[split] for run in runs for split in SPLITS]
    by_class = [row | {"n_pos": row["n_positive"], "n_neg": row["n_negative"]} for row in _by_class(chosen, classes)]
    tables = {
        "per_class": by_class,
        "epochs": [row | {"reason": _epoch_reason(row)} for row in epochs],
        "class_epochs": _by_class(epochs, classes),
    }
    return {name: [{key: row[key] for key in COLUMNS[name]} for row in rows] for name, rows in tables.items()}


def _by_class(rows: list[Row], classes: tuple[str, ...]) -> list[Row]:
    """Return rows of `separation` as one row a class."""
    return [
        row
        | {
            "class": name,
            "distance": row["per_class"][column],
            "n_positive": row["counts_positive"][column],
            "n_negative": row["counts_negative"][column],
            "reason": row["reason"][column],
        }
        for row in rows
        for column, name in enumerate(classes)
    ]


def _epoch_reason(row: Row) -> str | None:
    """Return why an epoch has no distance, or no mean of those of classes."""
    without = None if row["defined"] else "no class has both hidden positives and true negatives"
    return row["pooled_reason"] or without


def _reason(has_positive: bool, has_negative: bool) -> str | None:
    missing = [
        name for name, present in (("hidden positive", has_positive), ("true negative", has_negative)) if not present
    ]
    return f"no {' and no '.join(missing)} among the unannotated cells" if missing else None
