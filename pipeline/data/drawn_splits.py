"""Splits of images of one's own that the data do not name: drawn, each class spread over them, and no group cut.

Rows are dealt class by class, from the rarest on, to the split that lacks most of that class.
Source: Sechidis, Tsoumakas, Vlahavas, "On the Stratification of Multi-Label Data", ECML PKDD 2011.
Differs: a class's shares are whole numbers, at least 1 in every split for a class of 3 rows or more, and a split that
lacks the class whole is served first; the authors' shares are fractions, which leave rare classes out of small splits.
Groups are ours.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from pipeline.core import seeds
from pipeline.core.errors import SourceError
from pipeline.core.faults import pluralize
from pipeline.labels.groups import number_groups
from pipeline.labels.table import SPLITS

MEANT = 0.05  # a drawn split may differ so much from its share by the counts of few images
SPREAD = 3  # rows of a class from which on every split gets one


def draw_splits(truth: np.ndarray, groups: Sequence[str] | None, shares: tuple[float, float], seed: int) -> np.ndarray:
    """Draw train, val and test, as `stratify` does.

    Args:
        truth: (N, C), 1 present, 0 absent or unknown.
        groups: Of each row the name of its group, empty where it is alone; None: the data name none.
        shares: Shares of val and test, each in [0, 1).
        seed: Seed of the draw.

    Returns:
        (N,) uint8, 0 train, 1 val, 2 test.

    Raises:
        SourceError: A group is larger than every split, or a split is smaller than every group.
    """
    if groups is None or not any(shares):
        return stratify(truth, *shares, seed)
    sizes, room = Counter(filter(None, groups)), _quota(len(groups), shares)
    largest = min(sizes, key=lambda name: (-sizes[name], name), default="")
    if sizes[largest] > max(room):
        raise SourceError(_too_large(largest, sizes[largest], SPLITS[room.index(max(room))], max(room), len(groups)))
    split = stratify(truth, *shares, seed, number_groups(groups))
    for part, wanted in enumerate(room):
        if wanted and sizes and not (split == part).any():
            least = min(sizes, key=lambda name: (sizes[name], name))
            raise SourceError(_too_large(least, sizes[least], SPLITS[part], wanted, len(groups), "no group fits: "))
    return split


def stratify(
    truth: np.ndarray, val_fraction: float, test_fraction: float, seed: int, groups: np.ndarray | None = None
) -> np.ndarray:
    """Draw train, val and test so that each class is spread over them.

    Classes from the rarest on; the rows of a class that no rarer one has dealt are dealt in random order, each to the
    split that has no row of the class but should, else to the one that lacks most of the class, else of all rows. Of a
    class of fewer than 3 rows one is dealt to train; what then is left, and rows without a class, fill up the splits.
    So every class is in train, and one of 3 rows or more in every split of a share above 0, unless rarer classes have
    dealt its rows otherwise.

    With groups, whole groups are dealt so, the largest first, each to a split that has room for it, or where none has
    to the one that has most; a class is as rare as the groups that show it are few.

    Args:
        truth: (N, C), 1 present, 0 absent or unknown; the rows in an order that does not depend on how they came.
        val_fraction: Share of val, in [0, 1).
        test_fraction: Share of test, in [0, 1).
        seed: Seed of the draw.
        groups: (N,) numbers of `number_groups`; None: each row is dealt by itself.

    Returns:
        (N,) uint8, 0 train, 1 val, 2 test.
    """
    unit, counts, sizes = _count_groups(truth, groups)
    labels = [[(column, int(row[column])) for column in np.flatnonzero(row).tolist()] for row in counts]
    support = (counts > 0).sum(axis=0).tolist()
    shares = (val_fraction, test_fraction)
    quota = [_quota(int(count), shares) for count in truth.sum(axis=0)]
    left = [list(parts) for parts in quota]  # of each class, rows that each split lacks
    room = _quota(len(truth), shares)
    split = np.full(len(sizes), len(SPLITS), np.uint8)  # dealt to none

    def fitting(group: int) -> list[int]:
        size = sizes[group]
        return [part for part in range(3) if size == 1 or size <= room[part]] or [room.index(max(room))]

    def deal(group: int, part: int) -> None:
        split[group] = part
        room[part] -= int(sizes[group])
        for column, count in labels[group]:
            left[column][part] -= count

    shuffled = seeds.numpy_generator(seed, "own_data", "split").permutation(len(sizes))
    shuffled = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    for column in sorted(range(len(support)), key=support.__getitem__):
        lacks, whole = left[column], quota[column]
        for group in shuffled[counts[shuffled, column] > 0].tolist():
            if split[group] < len(SPLITS):
                continue
            if support[column] >= SPREAD:
                parts = fitting(group)
                deal(group, max(parts, key=lambda part: (0 < whole[part] == lacks[part], lacks[part], room[part])))
            elif lacks[0] == whole[0]:
                deal(group, 0)
    for group in shuffled.tolist():
        if split[group] == len(SPLITS):
            deal(group, max(fitting(group), key=room.__getitem__))
    return split[unit]


def _count_groups(truth: np.ndarray, groups: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the (N,) group of each row, from 0, the (G, C) rows of each class in each, and its (G,) size."""
    if groups is None:
        return np.arange(len(truth)), truth, np.ones(len(truth), int)
    _, unit, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    counts = np.zeros((len(sizes), truth.shape[1]), np.int32)
    np.add.at(counts, unit, truth)
    return unit, counts, sizes


def _quota(count: int, shares: tuple[float, float]) -> list[int]:
    """Return how many of some rows train, val and test get: at least one in train, and from `SPREAD` on in each."""
    val, test = (max(round(share * count), int(share > 0 and count >= SPREAD)) for share in shares)
    while count and val + test >= count:
        val, test = (val - 1, test) if val >= test else (val, test - 1)
    return [count - val - test, val, test]


def doubt_split(dealt: np.ndarray, drawn: dict[str, float], counts: np.ndarray, grouped: bool = False) -> list[str]:
    """Return warnings of drawn splits that are far from what was asked: train keeps rare classes, groups stay whole."""
    rare = int(((counts > 0) & (counts < SPREAD)).sum())
    warnings = []
    for label, share in drawn.items() if len(dealt) >= 1 / MEANT else ():
        found = float((dealt == SPLITS.index(label)).mean())
        asked = f"{label} has {found:.0%} of the images, not the {share:.0%} asked for"
        if grouped and abs(found - share) > 0.2 * share + MEANT:
            warnings.append(f"{asked}: groups stay whole; name splits of your own, or ask for another share")
        elif rare and found < 0.8 * share - MEANT:
            warnings.append(
                f"{asked}: train keeps one image of each "
                f"of {rare:,} classes of fewer than {SPREAD}; name a split of your own, or join or drop rare classes"
            )
    return warnings


def _too_large(name: str, size: int, label: str, room: int, n: int, why: str = "") -> str:
    """Return the message for a group that is larger than a split."""
    how = f"{label} is to have {room} of {pluralize(n, 'image')} that are drawn"
    return (
        f"prepare: {why}the group {name!r} has {pluralize(size, 'image')}, and {how}; no split cuts a group: name "
        "splits in the data, change val_fraction or test_fraction, or read no groups (group_column or group_key: null)"
    )
