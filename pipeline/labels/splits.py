"""The published split of the official training part, and the published order of rows.

Source: Cole et al., "Multi-Label Learning from Single Positive Labels", CVPR 2021; elijahcole/
single-positive-multi-label @89152d5, datasets.py.
"""

from collections.abc import Sequence

import numpy as np


def split_rows(n: int, fraction: float = 0.2, seed: int = 1200) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the official training part that are train and val by the published rule.

    Args:
        n: Number of rows.
        fraction: Share of the rows that goes to val, in [0, 1]; the number of val rows is rounded half to even.
        seed: Seed of a fresh legacy `RandomState`; the papers use 1200.

    Returns:
        Train rows and val rows, int64, each ascending.

    Raises:
        ValueError: `fraction` is outside [0, 1] or `n` is negative.
    """
    if n < 0 or not 0 <= fraction <= 1:
        raise ValueError(f"cannot split {n} rows with a val fraction of {fraction}")
    order = np.random.RandomState(seed).permutation(n).astype(np.int64)
    n_train = n - int(np.round(fraction * n))
    return np.sort(order[:n_train]), np.sort(order[n_train:])


def string_order(ids: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the published row order of COCO: image ids sorted as strings ("10" before "9").

    A numeric sort gives every row another draw and another split under the same seeds.

    Args:
        ids: N whole numbers.

    Returns:
        (N,) int64, positions in `ids`: `np.asarray(ids)[string_order(ids)]` is sorted.
    """
    texts = [str(int(number)) for number in ids]
    return np.array(sorted(range(len(texts)), key=texts.__getitem__), dtype=np.int64)
