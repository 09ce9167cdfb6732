"""Groups of images of one thing (a burst, a video, a patient, a product), which no split and no fold may cut.

Source: ours.
"""

from collections.abc import Sequence

import numpy as np


def number_groups(names: Sequence[str]) -> np.ndarray:
    """Return numbers for the groups of images.

    Args:
        names: Of each image the name of its group; empty: it is alone.

    Returns:
        (N,) int64, equal where two images are of one group; an image that is alone has a number of its own.
    """
    numbers: dict[str | tuple[int], int] = {}
    return np.array([numbers.setdefault(name or (row,), len(numbers)) for row, name in enumerate(names)], np.int64)


def find_cut(names: Sequence[str], split: np.ndarray) -> tuple[int, int] | None:
    """Return the first two images that are of one group and not of one split.

    Args:
        names: As `number_groups` takes them.
        split: (N,) the split of each image.

    Returns:
        Their rows; None where no split cuts a group.
    """
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        if name and split[first.setdefault(name, row)] != split[row]:
            return first[name], row
    return None


def deal_folds(groups: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Deal whole groups to folds of sizes as equal as the groups allow: the largest first, to the smallest fold.

    Args:
        groups: (N,) numbers of `number_groups`.
        count: Folds; fewer where there are fewer groups.
        generator: Shuffles groups of one size.

    Returns:
        (N,) int64 fold of each image, from 0; none is empty.
    """
    _, unit, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    shuffled = generator.permutation(len(sizes))
    filled, fold = [0] * min(count, len(sizes)), np.empty(len(sizes), np.int64)
    for number in shuffled[np.argsort(-sizes[shuffled], kind="stable")].tolist():
        fold[number] = min(range(len(filled)), key=filled.__getitem__)
        filled[fold[number]] += int(sizes[number])
    return fold[unit]
