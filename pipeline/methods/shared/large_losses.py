"""Which unknown cells a batch finds hardest: shared by the three large-loss methods."""

from fractions import Fraction
from math import ceil
from typing import Literal

import torch
from torch import Tensor


def large_losses(
    logits: Tensor, unknown: Tensor, delta: float, steps: int, arithmetic: Literal["exact", "running"]
) -> Tensor:
    """Find the unknown cells whose loss as absent is among the k largest of a batch (Kim 2022).

    Args:
        logits: (B, C) logits; they rank as the losses do, and no gradient is kept.
        unknown: (B, C) booleans, the cells that are ranked, all classes together.
        delta: Share of the B*C cells that a step adds, in [0, 1].
        steps: How many steps have been made, at least 0.
        arithmetic: ``exact``: k = ceil(B*C * steps * delta), delta being the decimal that it prints as; ``running``: as
            the authors' code, which takes delta from 1 in floats, step by step, and may round k one too high.

    Returns:
        (B, C) booleans: unknown cells whose logit is at least the k-th largest, so that ties may exceed k; all of them
        where they are fewer than k, and none where k is 0.
    """
    share: Fraction | float = steps * Fraction(str(delta))
    if arithmetic == "running":
        kept = 1.0
        for _ in range(steps):
            kept -= float(100 * Fraction(str(delta))) / 100  # theirs is given in percent
        share = 1 - kept
    ranked = logits.detach()[unknown]
    k = min(ceil(logits.numel() * share), len(ranked))
    if k == 0:
        return torch.zeros_like(unknown)
    return unknown & (logits.detach() >= ranked.topk(k).values[-1])
