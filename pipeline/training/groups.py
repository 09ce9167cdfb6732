"""Consistency within groups of images of one thing: batches that hold a group together, and the term of the loss.

The term is the mean over the batch's groups of how far its images' predictions lie from their mean,

    (1 / G) sum_g (1 / |g|) sum_{i in g} (1 / C) sum_c (p_ic - p_gc)^2,    p_gc = mean over i in g of p_ic,

over the groups of which the batch holds two images or more, p = sigmoid of the logits of the first view. Its gradient
reaches every image of a group. It is at most 1/4, and 0 where a batch holds no two images of a group.
Source: ours. That consistency among the clips of one recording helps methods for single positive labels is reported by
Sun, Maji, Van Horn, "Merlin L48 Spectrogram Dataset", NeurIPS 2025.
"""

from collections import defaultdict

import numpy as np
import torch
from torch import Tensor

from pipeline.methods.shared.cells import in_float32


def deviation_within(logits: Tensor, groups: Tensor) -> Tensor:
    """Return how far predictions lie from the mean of their group.

    Args:
        logits: (B, C) logits.
        groups: (B,) int64 numbers of the images' groups.

    Returns:
        The term above, a scalar.
    """
    p = torch.sigmoid(in_float32(logits))
    _, unit, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
    member = torch.nn.functional.one_hot(unit, len(sizes)).to(p.dtype)  # (B, G)
    means = member.T @ p / sizes[:, None]
    far = (p - member @ means).square().mean(dim=1)  # (B,)
    several = sizes > 1
    return (member.T @ far / sizes)[several].sum() / several.sum().clamp(min=1)


def batch_groups(groups: np.ndarray, size: int, fewest: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Return shuffled rows in batches that hold the images of a group together.

    A group of more images than a batch is cut into batches of its own and a rest. How many batches there are and how
    full they are depends on the sizes of groups alone, so that all epochs have as many steps.

    Args:
        groups: (N,) numbers of the images' groups.
        size: Rows a batch.
        fewest: Rows that a step needs; a smaller batch joins another, which then has more than `size`.
        generator: Shuffles groups, their rows and the batches.

    Returns:
        Batches of rows, each row in one.
    """
    order = generator.permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    ends = np.flatnonzero(np.diff(groups[order])) + 1
    pieces = [piece for group in np.split(order, ends) for piece in np.split(group, range(size, len(group), size))]
    pieces = [pieces[number] for number in generator.permutation(len(pieces))]
    batches: list[list[np.ndarray]] = []
    open_by_room: dict[int, list[int]] = defaultdict(list)  # best fit, the largest first
    for piece in sorted(pieces, key=len, reverse=True):
        room = next((room for room in range(len(piece), size + 1) if open_by_room[room]), size)
        if open_by_room[room]:
            number = open_by_room[room].pop()
        else:
            number = len(batches)
            batches.append([])
        batches[number].append(piece)
        open_by_room[room - len(piece)].append(number)
    joined = sorted(map(np.concatenate, batches), key=len)
    if len(joined) > 1 and len(joined[0]) < min(fewest, size):
        joined[1] = np.concatenate(joined[:2])
        del joined[0]
    return [joined[number] for number in generator.permutation(len(joined))]
