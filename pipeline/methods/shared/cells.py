"""The risk of one (image, class) cell, and the element losses and arithmetic that methods share.

    risk = l1                                        where observed = 1
         = weight * (belief * l2 + (1 - belief) * l3)    where observed = 0
         = l3                                        where observed = -1

Element losses are functions of the logit z, never of a probability: a log loss is a softplus and keeps its gradient on
a label missed by any margin. "Present" charges a low z; "absent" is the same loss at -z.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor, log
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Cells:
    """One method's answer for a batch of cells; every field broadcasts to (B, C)."""

    belief: Tensor
    """How present an unknown cell is taken to be, in [0, 1]; with gradient where the method wants one."""
    weight: Tensor
    """How much an unknown cell counts; negative where the method pushes the other way."""
    l1: Tensor
    """Loss where the label is observed present."""
    l2: Tensor
    """Loss of an unknown cell taken as present."""
    l3: Tensor
    """Loss of an unknown cell taken as absent, and of a cell observed absent."""
    absence: Tensor | None = None
    """1 - belief where the method has it exactly, as sigmoid(-z) of a belief sigmoid(z); None: as it is subtracted."""


def cell_risk(cells: Cells, observed: Tensor) -> Tensor:
    """Charge every cell by what is known of it.

    Args:
        cells: A method's answer, each field broadcastable to (B, C).
        observed: (B, C) labels: 1 present, 0 unknown, -1 absent.

    Returns:
        (B, C) risk, not reduced.
    """
    absence = 1 - cells.belief if cells.absence is None else cells.absence
    unknown = cells.weight * (cells.belief * cells.l2 + absence * cells.l3)
    return torch.where(observed == 1, cells.l1, torch.where(observed == 0, unknown, cells.l3))


def log_cells_of(logits: Tensor, believed: Tensor, weight: Tensor | float = 1.0, floor: float = 0.0) -> Cells:
    """Answer for cells that are charged by the log loss and believed sigmoid(b) present.

    Args:
        logits: (B, C) logits.
        believed: (B, C) logits b of the belief: those of the network itself, for one that is as sure.
        weight: As in `log_cells`.
        floor: As in `log_present`.

    Returns:
        The cells, whose 1 - belief is sigmoid(-b): in float32 the difference loses its digits from b of 10 on, and is 0
        from 17 on.
    """
    return replace(log_cells(logits, torch.sigmoid(believed), weight, floor), absence=torch.sigmoid(-believed))


def log_cells(logits: Tensor, belief: Tensor | float = 0.0, weight: Tensor | float = 1.0, floor: float = 0.0) -> Cells:
    """Answer for cells that are charged by the log loss.

    Args:
        logits: (B, C) logits.
        belief: Belief in unknown cells, one for all or (B, C); 0 takes them as absent.
        weight: Their weight, one for all or (B, C).
        floor: As in `log_present`.

    Returns:
        The cells.
    """
    given = (each if isinstance(each, Tensor) else torch.full_like(logits, each) for each in (belief, weight))
    present = log_present(logits, floor)
    return Cells(*given, l1=present, l2=present, l3=log_absent(logits, floor))


def rounded_share(share: float, n: int | Fraction) -> int:
    """Take a share of n, rounded to a whole number, halves upwards.

    Args:
        share: A share as params hold it, at least 0. It counts as the decimal that it prints as: 0.7 of 45 is 32,
            though in floats their product is a little less than 31.5.
        n: A count, or a mean of counts, at least 0.

    Returns:
        floor(share n + 1/2).
    """
    return floor(Fraction(str(share)) * n + Fraction(1, 2))


def assumed_weight(observed: Tensor, dtype: torch.dtype, rule: Literal["published", "balanced"]) -> Tensor:
    """Weigh the unknown labels of each image.

    Args:
        observed: (B, C) labels: 1 present, 0 unknown, -1 absent; C at least 2.
        dtype: Type of the answer.
        rule: ``published``: 1 / (C - 1), whatever is known (Cole 2021); ``balanced``: such that together they count as
            much as the image's known present ones.

    Returns:
        (B, 1) weight in (0, 1]. Balanced it is m / (C - m - a), at most 1, with m labels known present and a known
        absent, so that one known label makes it the published one; an image without a present one is weighed as if one
        of its unknown labels were.
    """
    if rule == "published":
        return torch.ones(len(observed), 1, dtype=dtype, device=observed.device) / (observed.shape[1] - 1)
    present = (observed == 1).sum(1, keepdim=True).clamp(min=1)
    unknown = observed.shape[1] - present - (observed == -1).sum(1, keepdim=True)
    return (present.to(dtype) / unknown.clamp(min=1)).clamp(max=1)


def in_float32(tensor: Tensor) -> Tensor:
    """Promote half precision.

    Args:
        tensor: Any tensor.

    Returns:
        float16 and bfloat16 as float32; every other dtype as it is.
    """
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def log_present(logits: Tensor, floor: float = 0.0) -> Tensor:
    """Return -log p, with p = sigmoid(z).

    Args:
        logits: Logits z of any shape.
        floor: What is added to p inside the logarithm, as the code of Cole et al. does, in [0, 1).

    Returns:
        softplus(-z), same shape, in [0, inf); with a floor it stays between -log(1 + floor) and -log floor, and its
        gradient fades where p is below the floor.
    """
    # not F.softplus: above its threshold of 20 it returns z, and a gradient of 1 that is wrong in the ninth digit
    return floored(-F.logsigmoid(logits), floor)


def floored(loss: Tensor, floor: float) -> Tensor:
    """Return -log(p + floor) of a log loss -log p.

    Args:
        loss: -log p of any shape, in [0, inf).
        floor: What is added to p, in [0, 1); 0: nothing.

    Returns:
        The loss, same shape.
    """
    # summed in logarithms: 1 - p as such is lost in float32 from a logit of 17 on
    return -torch.logaddexp(-loss, loss.new_full((), log(floor))) if floor else loss


def log_absent(logits: Tensor, floor: float = 0.0) -> Tensor:
    """Return -log(1 - p), with p = sigmoid(z).

    Args:
        logits: Logits z of any shape.
        floor: What is added to 1 - p inside the logarithm, in [0, 1).

    Returns:
        `log_present` at -z.
    """
    return log_present(-logits, floor)


def power_present(logits: Tensor, q: float, floor: float = 0.0) -> Tensor:
    """Return the power loss (1 - p^q) / q of a present label; at ``-logits`` it is that of an absent one.

    Args:
        logits: Logits z of any shape.
        q: Exponent, at least 0: 0 is the log loss, 1 is 1 - p.
        floor: That of the log loss, as in `log_present`; a q above 0 does not read it.

    Returns:
        -expm1(q logsigmoid(z)) / q, same shape, in [0, 1/q); the power is never taken of a probability, whose gradient
        at 0 is infinite for q < 1.
    """
    if q == 0:
        return log_present(logits, floor)
    return -torch.expm1(q * F.logsigmoid(logits)) / q


def entropy(logits: Tensor) -> Tensor:
    """Return the binary entropy of p = sigmoid(z), in nats.

    Args:
        logits: Logits z of any shape.

    Returns:
        p softplus(-z) + (1 - p) softplus(z), same shape, in [0, log 2]; 0 in both tails, where 1 - p is sigmoid(-z).
    """
    return torch.sigmoid(logits) * log_present(logits) + torch.sigmoid(-logits) * log_absent(logits)


def assume_negative(logits: Tensor, observed: Tensor, floor: float = 0.0) -> Tensor:
    """Charge every label that is not observed present as absent.

    Args:
        logits: (B, C) logits.
        observed: (B, C) labels: 1 present, 0 unknown, -1 absent.
        floor: As in `log_present`.

    Returns:
        (B, C) log loss, not reduced.
    """
    return torch.where(observed == 1, log_present(logits, floor), log_absent(logits, floor))


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Average the values under a mask.

    Args:
        values: Values of any shape, finite.
        mask: Booleans of the same shape.

    Returns:
        Scalar mean over the true cells; 0 with its graph where there is none, never 0/0.
    """
    return torch.where(mask, values, 0).sum() / mask.sum().clamp(min=1)


def focal_present(logits: Tensor, gamma: float, detach_weight: bool = False) -> Tensor:
    """Return the focal loss (1 - p)^gamma (-log p) of a present label; at ``-logits`` it is that of an absent one.

    Args:
        logits: Logits z of any shape.
        gamma: Focusing exponent, at least 0: 0 is the log loss.
        detach_weight: Whether the factor (1 - p)^gamma is a constant to the gradient.

    Returns:
        exp(gamma logsigmoid(-z)) softplus(-z), same shape, in [0, inf); no power of a probability is taken, whose
        gradient at 0 is infinite for gamma < 1.
    """
    weight = torch.exp(gamma * F.logsigmoid(-logits))
    return (weight.detach() if detach_weight else weight) * log_present(logits)


def hill_absent(logits: Tensor, lamb: float) -> Tensor:
    """Return the hill loss (lamb - p) p^2 of an absent label, with p = sigmoid(z).

    Args:
        logits: Logits z of any shape.
        lamb: lambda, at least 1: where the loss would fall to 0; from 1.5 on it nowhere falls as p grows.

    Returns:
        (lamb - p) p^2, same shape, at least 0 and below lamb.
    """
    p, q = torch.sigmoid(logits), torch.sigmoid(-logits)
    # the same polynomial in q = 1 - p: in p, the terms of its gradient cancel to noise as p nears 1
    mirrored = (lamb - 1) + q * ((3 - 2 * lamb) + q * ((lamb - 3) + q))
    return torch.where(logits < 0, (lamb - p) * p**2, mirrored)
