"""Label sets of the oracles, which know more than the methods: all labels, and one positive with all true negatives."""

import numpy as np

from pipeline.labels.table import Table


def label_sets(table: Table, single: np.ndarray) -> dict[str, np.ndarray]:
    """Return what the methods and the two oracles know.

    Args:
        table: The table.
        single: (N, C) int8, the labels that stay known, 1 at the observed positives.

    Returns:
        (N, C) int8, 1 known positive, 0 unknown, -1 known negative, by name: `single`; `all`, every label whose truth
        is known; `negatives`, the observed positives and every known true negative. All are `single` where the labels
        are not exhaustive: nobody knows more.

    Raises:
        ValueError: Shapes differ, or an observed positive is not a scored positive of the truth.
    """
    if not table.exhaustive:
        return {"single": single, "all": single, "negatives": single}
    truth, scored = table.truth == 1, table.scored
    if truth.shape != single.shape:
        raise ValueError(f"truth {truth.shape} and single {single.shape} differ in shape")
    positive = single == 1
    if (positive & ~(truth & scored)).any():
        row, column = np.argwhere(positive & ~(truth & scored))[0]
        raise ValueError(f"row {row}, class {column} is an observed positive but no known positive of the truth")
    absent = np.where(scored & ~truth, -1, 0)
    return {
        "single": single,
        "all": np.where(scored & truth, 1, absent).astype(np.int8),
        "negatives": np.where(positive, 1, absent).astype(np.int8),
    }
