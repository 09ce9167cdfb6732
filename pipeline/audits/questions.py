"""Which unknown labels to ask a person about first.

Order `gain`: expected gain of an answer. A belief p about a cell is wrong by (1 - p)^2 with chance p and by p^2 with
chance 1 - p, p (1 - p) in the mean; an answer takes that away. Classes count alike in mAP, and an error weighs as much
as the positives of its class are few:

    gain[i, c] = p[i, c] (1 - p[i, c]) / (1 + sum over images j of p[j, c])

Order `score` asks about the likeliest cells first, whose answers are mostly known before; `random` about any.
Source: ours. The first factor is uncertainty sampling by expected squared error (Roy, McCallum, "Toward Optimal Active
Learning through Sampling Estimation of Error Reduction", ICML 2001), without the effect on other cells.
"""

from typing import Literal, TypeAlias

import numpy as np

Order: TypeAlias = Literal["gain", "score", "random"]
ORDERS: tuple[Order, ...] = ("gain", "score", "random")


def expected_gain(belief: np.ndarray) -> np.ndarray:
    """Return what an answer about each cell is expected to gain.

    Args:
        belief: (N, C) chances in [0, 1] that labels are present; those of known labels are 1 and 0.

    Returns:
        (N, C) float64, at least 0; 0 where the belief is certain.
    """
    chances = belief.astype(np.float64)
    return chances * (1 - chances) / (1 + chances.sum(axis=0))


def rank_cells(
    belief: np.ndarray, observed: np.ndarray, order: Order, count: int, generator: np.random.Generator
) -> list[tuple[int, int]]:
    """Return the unknown cells to ask about.

    Args:
        belief: (N, C) chances in [0, 1] that labels are present.
        observed: (N, C) labels; 0 is unknown.
        order: Which come first.
        count: How many are returned at most.
        generator: Takes a draw a cell in the order `random`; among equal cells of other orders the first come first.

    Returns:
        Row and column of each, the first to ask about first.

    Raises:
        ValueError: Shapes differ, a belief is outside [0, 1], or the order is none.
    """
    if belief.shape != observed.shape or belief.ndim != 2:
        raise ValueError(f"belief {belief.shape} and observed {observed.shape} must be (N, C) alike")
    if belief.size and not (belief.min() >= 0 and belief.max() <= 1):  # a NaN is neither
        raise ValueError("a belief is outside [0, 1]")
    if order not in ORDERS:
        raise ValueError(f"order {order!r} is none of {', '.join(ORDERS)}")
    keys = {"gain": expected_gain, "score": np.asarray, "random": lambda chances: generator.random(chances.shape)}
    cells = np.flatnonzero(observed == 0)
    values = keys[order](belief).ravel()[cells]
    if len(cells) > count:
        least = np.partition(values, len(values) - count)[len(values) - count] if count else np.inf
        cells, values = cells[values >= least], values[values >= least]
    cells = cells[np.argsort(-values, kind="stable")][:count]
    return [divmod(int(cell), belief.shape[1]) for cell in cells]
