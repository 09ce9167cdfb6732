"""The risk of one (image, class) cell, and the element losses that several methods share.

    risk = l1                                        where observed = 1
         = weight * (belief * l2 + (1 - belief) * l3)    where observed = 0
         = l3                                        where observed = -1

Element losses are functions of the logit z, never of a probability: a log loss is a softplus and keeps its gradient on
a label missed by any margin. "Present" charges a low z; "absent" is the same loss at -z.
"""

from dataclasses import dataclass
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


def cell_risk(cells: Cells, observed: Tensor) -> Tensor:
    """Charge every cell by what is known of it.

    Args:
        cells: A method's answer, each field broadcastable to (B, C).
        observed: (B, C) labels: 1 present, 0 unknown, -1 absent.

    Returns:
        (B, C) risk, not reduced.
    """
    unknown = cells.weight * (cells.belief * cells.l2 + (1 - cells.belief) * cells.l3)
    return torch.where(observed == 1, cells.l1, torch.where(observed == 0, unknown, cells.l3))


def in_float32(tensor: Tensor) -> Tensor:
    """Promote half precision.

    Args:
        tensor: Any tensor.

    Returns:
        float16 and bfloat16 as float32; every other dtype as it is.
    """
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def log_present(logits: Tensor) -> Tensor:
    """Return -log p, with p = sigmoid(z).

    Args:
        logits: Logits z of any shape.

    Returns:
        softplus(-z), same shape, in [0, inf).
    """
    # not F.softplus: above its threshold of 20 it returns z, and a gradient of 1 that is wrong in the ninth digit
    return -F.logsigmoid(logits)


def log_absent(logits: Tensor) -> Tensor:
    """Return -log(1 - p), with p = sigmoid(z).

    Args:
        logits: Logits z of any shape.

    Returns:
        softplus(z), same shape, in [0, inf).
    """
    return -F.logsigmoid(-logits)


def power_present(logits: Tensor, q: float) -> Tensor:
    """Return the power loss (1 - p^q) / q of a present label; at ``-logits`` it is that of an absent one.

    Args:
        logits: Logits z of any shape.
        q: Exponent, at least 0: 0 is the log loss, 1 is 1 - p.

    Returns:
        -expm1(q logsigmoid(z)) / q, same shape, in [0, 1/q); the power is never taken of a probability, whose gradient
        at 0 is infinite for q < 1.
    """
    if q == 0:
        return log_present(logits)
    return -torch.expm1(q * F.logsigmoid(logits)) / q


def entropy(logits: Tensor) -> Tensor:
    """Return the binary entropy of p = sigmoid(z), in nats.

    Args:
        logits: Logits z of any shape.

    Returns:
        p softplus(-z) + (1 - p) softplus(z), same shape, in [0, log 2]; 0 in both tails, where 1 - p is sigmoid(-z).
    """
    return torch.sigmoid(logits) * log_present(logits) + torch.sigmoid(-logits) * log_absent(logits)


def assume_negative(logits: Tensor, observed: Tensor) -> Tensor:
    """Charge every label that is not observed present as absent.

    Args:
        logits: (B, C) logits.
        observed: (B, C) labels: 1 present, 0 unknown, -1 absent.

    Returns:
        (B, C) log loss, not reduced.
    """
    return torch.where(observed == 1, log_present(logits), log_absent(logits))


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Average the values under a mask.

    Args:
        values: Values of any shape, finite.
        mask: Booleans of the same shape.

    Returns:
        Scalar mean over the true cells; 0 with its graph where there is none, never 0/0.
    """
    return torch.where(mask, values, 0).sum() / mask.sum().clamp(min=1)


def confident(
    logits: Tensor, observed: Tensor, threshold: float, form: Literal["code", "paper"]
) -> tuple[Tensor, Tensor]:
    """Find the cells that a prediction is sure of (Xie 2022, Eq. 4 and the authors' code).

    Args:
        logits: (B, C) logits; no gradient is kept.
        observed: (B, C) labels: 1 present, 0 unknown, -1 absent.
        threshold: Probability t in [0.5, 1] from which a cell is sure.
        form: ``code``: present where p + observed >= t, else absent where p + observed < 1 - t, known cells included;
            ``paper``: unknown cells only, present where p >= t, absent where p <= 1 - t.

    Returns:
        Two (B, C) masks: surely present, surely absent. They overlap only in the paper's form, at p = t = 0.5.
    """
    score = torch.sigmoid(logits.detach())
    if form == "code":
        score = score + observed
        return score >= threshold, score < 1 - threshold
    unknown = observed == 0
    return unknown & (score >= threshold), unknown & (score <= 1 - threshold)


def consistency(
    weak: Tensor, strong: Tensor, observed: Tensor, threshold: float, form: Literal["code", "paper"]
) -> Tensor:
    """Charge the strong view with what the weak view is sure of (PLC, Xie 2022, Eq. 4).

    Args:
        weak: (B, C) logits of the weak view, without gradient.
        strong: (B, C) logits of the strong view.
        observed: (B, C) labels: 1 present, 0 unknown, -1 absent.
        threshold: As in `confident`.
        form: As in `confident`.

    Returns:
        Scalar log loss of the strong view on the sure cells: their mean (``code``), or their sum over the number of
        images (``paper``); 0 with its graph where no cell is sure.
    """
    present, absent = confident(weak, observed, threshold, form)
    loss = torch.where(present, log_present(strong), 0) + torch.where(absent, log_absent(strong), 0)
    if form == "code":
        return masked_mean(loss, present | absent)
    return loss.sum() / len(loss)


def consistency_cells(logits: Tensor, observed: Tensor, threshold: float, form: Literal["code", "paper"]) -> Cells:
    """Answer for cells as a consistency loss does whose weak view has these logits.

    Args:
        logits: (B, C) logits.
        observed: (B, C) labels: 1 present, 0 unknown, -1 absent.
        threshold: As in `confident`.
        form: As in `confident`.

    Returns:
        Belief 1 on surely present cells and 0 elsewhere, weight 1 on sure cells and 0 elsewhere, log losses.
    """
    present, absent = (mask.to(logits.dtype) for mask in confident(logits, observed, threshold, form))
    weight = present + absent
    loss = log_present(logits)
    return Cells(present / weight.clamp(min=1), weight, l1=loss, l2=loss, l3=log_absent(logits))


def confident_labels(logits: Tensor, observed: Tensor, threshold: float, form: Literal["code", "paper"]) -> Tensor:
    """Label the unknown cells that a prediction is sure of.

    Args:
        logits: (B, C) logits.
        observed: (B, C) labels: 1 present, 0 unknown, -1 absent.
        threshold: As in `confident`.
        form: As in `confident`.

    Returns:
        (B, C) int8: 1 present, -1 absent, 0 not sure or not unknown.
    """
    present, absent = confident(logits, observed, threshold, form)
    return torch.where(observed == 0, present.to(torch.int8) - absent.to(torch.int8), 0).to(torch.int8)
