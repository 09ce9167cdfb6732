"""Label sets of the oracles, which know more than the methods: all labels, and one positive with all true negatives."""

import numpy as np

from pipeline.labels.blocks import row_blocks
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
    if table.truth.shape != single.shape:
        raise ValueError(f"truth {table.truth.shape} and single {single.shape} differ in shape")
    sets = {"single": single} | {name: np.zeros_like(single) for name in ("all", "negatives")}
    for rows in row_blocks(*single.shape):
        truth, scored, positive = table.truth[rows] == 1, table.scored[rows], single[rows] == 1
        if (positive & ~(truth & scored)).any():
            row, column = np.argwhere(positive & ~(truth & scored))[0] + (rows.start, 0)
            raise ValueError(f"row {row}, class {column} is an observed positive but no known positive of the truth")
        absent = -(scored & ~truth).astype(np.int8)
        sets["all"][rows] = np.where(scored & truth, 1, absent)
        sets["negatives"][rows] = np.where(positive, 1, absent)
    return sets
