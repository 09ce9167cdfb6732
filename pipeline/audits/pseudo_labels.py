"""Pseudo-label audit: how often the labels that a method gave to unknown cells agree with the full truth.

accuracy = #{labelled cells whose pseudo-label equals the truth} / #{labelled cells}, over unknown cells of the training
split; coverage = #{labelled} / #{unknown}. Negatives are so common among unknown cells that accuracy says little alone:
the base rate "call every unknown cell negative" stands beside it, and so do precision and recall for hidden positives
(unknown cells whose truth is positive).

Source: Zhou et al., "Acknowledging the Unknown for Multi-label Learning with Single Positive Labels", ECCV 2022,
Tables 4 and 7 (definition in words; no code was published).
Differs from the source in:
- reported for every round, newly added and cumulative, and per class; the source gives one number a data set;
- a fraction without denominator is None, never 0 or NaN.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from pipeline.labels.blocks import row_blocks

Figures = dict[str, Any]

FIGURES = (
    "unknown", "labelled", "coverage", "negatives", "negatives_correct", "negative_accuracy", "positives",
    "positives_correct", "positive_precision", "accuracy", "hidden_positives", "hidden_positives_recalled",
    "hidden_positive_recall", "hidden_positives_called_negative", "hidden_positive_miss_rate",
    "baseline_all_unknown_negative",
)  # fmt: skip
"""Names of the counts and fractions of a set of pseudo-labels, in the order of tables."""
_AGAINST_TRUTH = (
    "negatives_correct", "negative_accuracy", "positives_correct", "positive_precision", "accuracy", "hidden_positives",
    "hidden_positives_recalled", "hidden_positive_recall", "hidden_positives_called_negative",
    "hidden_positive_miss_rate", "baseline_all_unknown_negative",
)  # fmt: skip
_CLASSES_AGAINST_TRUTH = ("per_class_correct", "per_class_accuracy")


def figures(
    truth: np.ndarray | None, observed: np.ndarray, labels: np.ndarray, scored: np.ndarray | None = None
) -> Figures:
    """Return how one set of pseudo-labels agrees with the truth.

    Args:
        truth: (N, C) labels, 1 or 0; None where nobody knows them, and then only ``unknown, labelled, coverage,
            negatives, positives`` are numbers and the rest is None.
        observed: (N, C) known labels: 1 positive, 0 unknown, -1 negative. Known cells are left out of every count.
        labels: (N, C) pseudo-labels: 1 positive, -1 negative, 0 none; 0 on known cells.
        scored: (N, C) bool; cells that are False are left out of every count. None: all count.

    Returns:
        Counts (``unknown, labelled, negatives, negatives_correct, positives, positives_correct, hidden_positives,
        hidden_positives_recalled, hidden_positives_called_negative``) and fractions in [0, 1], None where the
        denominator is 0: ``coverage`` (labelled of unknown), ``accuracy`` (right of labelled), ``negative_accuracy``,
        ``positive_precision``, ``hidden_positive_recall``, ``hidden_positive_miss_rate`` (called negative) and
        ``baseline_all_unknown_negative`` (share of negatives among unknown cells).

    Raises:
        ValueError: Shapes differ, a value is out of its set, or a known cell carries a pseudo-label.
    """
    return _figures(_count(truth, observed, labels, scored).sum(axis=1), truth is not None)


def _figures(counted: np.ndarray, known: bool) -> Figures:
    """Return the fields of `figures` from the six counts of `_count`; those that need the truth are None without it."""
    n_unknown, n_hidden, n_negative, n_positive, missed, recalled = counted.tolist()
    counts = {
        "unknown": n_unknown,
        "labelled": n_negative + n_positive,
        "coverage": _fraction(n_negative + n_positive, n_unknown),
        "negatives": n_negative,
        "negatives_correct": n_negative - missed,
        "negative_accuracy": _fraction(n_negative - missed, n_negative),
        "positives": n_positive,
        "positives_correct": recalled,
        "positive_precision": _fraction(recalled, n_positive),
        "accuracy": _fraction(n_negative - missed + recalled, n_negative + n_positive),
        "hidden_positives": n_hidden,
        "hidden_positives_recalled": recalled,
        "hidden_positive_recall": _fraction(recalled, n_hidden),
        "hidden_positives_called_negative": missed,
        "hidden_positive_miss_rate": _fraction(missed, n_hidden),
        "baseline_all_unknown_negative": _fraction(n_unknown - n_hidden, n_unknown),
    }
    return counts if known else counts | dict.fromkeys(_AGAINST_TRUTH)


def by_class(
    truth: np.ndarray | None, observed: np.ndarray, labels: np.ndarray, scored: np.ndarray | None = None
) -> list[Figures]:
    """Return the ``figures`` of each class alone; arguments and errors as there."""
    return [_figures(column, truth is not None) for column in _count(truth, observed, labels, scored).T]


def audit(
    truth: np.ndarray | None, observed: np.ndarray, rounds: Iterable[np.ndarray], scored: np.ndarray | None = None
) -> list[Figures]:
    """Return the audit of the pseudo-labels of each round.

    Args:
        truth: (N, C) labels, 1 or 0; None where nobody knows them, as in ``figures``.
        observed: (N, C) known labels: 1 positive, 0 unknown, -1 negative.
        rounds: R arrays (N, C) of pseudo-labels (1, -1, 0 none), in order; an
            (R, N, C) array or an open HDF5 dataset will do, of which two rounds are held at a time.
        scored: (N, C) bool; cells that are False are left out of every count. None: all count.

    Returns:
        One dict a round: ``round`` (from 1), ``cumulative`` (all its labels) and ``newly_added`` (those that the
        round before did not give the same way), each with the fields of ``figures`` and ``per_class_labelled``,
        ``per_class_correct``, ``per_class_accuracy`` (C values, None where nothing is labelled); ``dropped`` and
        ``flipped``, the cells that lost their label or changed its sign (both 0 for methods that only accumulate).

    Raises:
        ValueError: As ``figures``.
    """  # noqa: DOC502  raised by `figures`
    result, before = [], np.zeros(np.shape(observed), dtype=np.int8)
    for number, labels in enumerate(rounds, start=1):
        labels = np.asarray(labels)
        cumulative = _with_classes(_count(truth, observed, labels, scored), truth is not None)
        added, dropped, flipped = np.zeros_like(labels), 0, 0
        for rows in row_blocks(*labels.shape):
            now, old, counted = labels[rows], before[rows], True if scored is None else np.asarray(scored[rows], bool)
            np.copyto(added[rows], now, where=now != old)
            dropped += int((counted & (old != 0) & (now == 0)).sum())
            flipped += int((counted & (old * now == -1)).sum())
        newly = _with_classes(_count(truth, observed, added, scored), truth is not None)
        counts = {"newly_added": newly, "cumulative": cumulative, "dropped": dropped, "flipped": flipped}
        result.append({"round": number} | counts)
        before = labels
    return result


def _with_classes(counted: np.ndarray, known: bool) -> Figures:
    """Return `_figures` and those of each class, from the counts of `_count`."""
    whole = _figures(counted.sum(axis=1), known)
    _, _, negative, positive, missed, recalled = counted
    counts, correct = (negative + positive).tolist(), (negative - missed + recalled).tolist()
    whole |= {
        "per_class_labelled": counts,
        "per_class_correct": correct,
        "per_class_accuracy": [_fraction(part, of) for part, of in zip(correct, counts, strict=True)],
    }
    return whole if known else whole | dict.fromkeys(_CLASSES_AGAINST_TRUTH)


def _fraction(part: int, of: int) -> float | None:
    return part / of if of else None


def _count(truth: np.ndarray | None, observed: np.ndarray, labels: np.ndarray, scored: np.ndarray | None) -> np.ndarray:
    """Count cells by class; arguments as in `figures`.

    Returns:
        (6, C): unknown, hidden positives, labelled -1, labelled 1, and hidden among these two.

    Raises:
        ValueError: As `figures` says.
    """
    observed, labels = np.asarray(observed), np.asarray(labels)
    truth = None if truth is None else np.asarray(truth)
    if observed.ndim != 2 or not observed.shape == labels.shape == (observed if truth is None else truth).shape:
        shapes = f"{None if truth is None else truth.shape}, {observed.shape}, {labels.shape}"
        raise ValueError(f"truth, observed and labels must be (N, C): {shapes}")
    counts = np.zeros((6, observed.shape[1]), np.int64)
    for rows in row_blocks(*observed.shape):
        part, counted = (None if each is None else each[rows] for each in (truth, scored))
        true, _, given, unknown = _checked(part, observed[rows], labels[rows], counted)
        hidden, negative, positive = unknown & (true == 1), unknown & (given == -1), unknown & (given == 1)
        cells = (unknown, hidden, negative, positive, negative & hidden, positive & hidden)
        counts += [each.sum(axis=0) for each in cells]
    return counts


def _checked(
    truth: np.ndarray | None, observed: np.ndarray, labels: np.ndarray, scored: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the three arrays, zeros for a truth that is not known, and the mask of unknown cells that count.

    Raises:
        ValueError: As `figures` says.
    """
    truth = np.zeros_like(observed) if truth is None else truth
    if not np.isin(truth, (0, 1)).all():
        raise ValueError("truth holds values other than 1 and 0")
    if not np.isin(labels, (-1, 0, 1)).all():
        raise ValueError("pseudo-labels hold values other than 1, 0 and -1")
    if (labels[observed != 0] != 0).any():
        raise ValueError("a cell whose label is known carries a pseudo-label")
    unknown = observed == 0
    if scored is not None:
        unknown &= np.asarray(scored, dtype=bool)
    return truth, observed, labels, unknown
