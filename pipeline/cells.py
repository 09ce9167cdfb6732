"""The risk of one (image, class) cell, and the element losses that several methods share.

    risk = l1                                        where observed = 1
         = weight * (belief * l2 + (1 - belief) * l3)    where observed = 0
         = l3                                        where observed = -1

Element losses are functions of the logit z, never of a probability: a log loss is a softplus and keeps its gradient on
a label missed by any margin. "Present" charges a low z; "absent" is the same loss at -z.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Literal

import torch
from torch import Tensor, nn
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


def log_cells(logits: Tensor, belief: Tensor | float = 0.0, weight: Tensor | float = 1.0) -> Cells:
    """Answer for cells that are charged by the log loss.

    Args:
        logits: (B, C) logits.
        belief: Belief in unknown cells, one for all or (B, C); 0 takes them as absent.
        weight: Their weight, one for all or (B, C).

    Returns:
        The cells.
    """
    given = (each if isinstance(each, Tensor) else torch.full_like(logits, each) for each in (belief, weight))
    present = log_present(logits)
    return Cells(*given, l1=present, l2=present, l3=log_absent(logits))


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


class PastPredictions(nn.Module):
    """Moving average over epochs of what was predicted for each training cell, and the negatives expected by it.

    While an epoch runs, ``average`` (N, C) and ``seen`` (N,) tell of the epochs before it; what it predicts itself
    waits in ``latest`` (N, C), for the rows ``met`` (N,), until `renew`. ``negatives`` (N, C) marks the expected
    negatives in force, known cells among them. Source: Verelst et al. 2023, as quoted in Chen et al. 2024, Eq. 20.

    Args:
        observed_counts: (C,) int64 observed positives n_c of each class.
        per_image: k, labels per image; class c has N_c = k n_c positives, rounded, at most N.
        n: N, training images.
        decay: Share of the average that an epoch leaves, in [0, 1).
        first: Unknown cells until there is an average: ``assume_negative``, all of them; ``positives_only``, none.
    """

    average: Tensor
    latest: Tensor
    seen: Tensor
    met: Tensor
    negatives: Tensor
    expected: Tensor

    def __init__(
        self,
        observed_counts: Tensor,
        per_image: float,
        n: int,
        decay: float,
        first: Literal["assume_negative", "positives_only"],
    ) -> None:
        super().__init__()
        self.decay = decay
        share = Fraction(str(per_image))  # the decimal that was written
        expected = [min(n, floor(share * count + Fraction(1, 2))) for count in observed_counts.tolist()]
        self.register_buffer("expected", torch.tensor(expected), persistent=False)
        for name in ("average", "latest"):
            self.register_buffer(name, torch.zeros(n, len(expected), dtype=torch.get_default_dtype()))
        for name in ("seen", "met"):
            self.register_buffer(name, torch.zeros(n, dtype=torch.bool))
        self.register_buffer("negatives", torch.full((n, len(expected)), first == "assume_negative"))

    def renew(self) -> None:
        """Take the epoch that has ended into the average, and choose the negatives of the next one.

        Of class c they are the N - N_c images with the lowest average; equal ones go by row, and an image that no epoch
        has met yet is the last to be chosen. A row that the epoch left out keeps its average.
        """
        known, met = self.seen.unsqueeze(1), self.met.unsqueeze(1)
        renewed = torch.where(known, torch.lerp(self.latest, self.average, self.decay), self.latest)
        self.average.copy_(torch.where(met, renewed, self.average))
        self.seen |= self.met
        self.met.zero_()
        if self.seen.any():
            order = self.average.masked_fill(~self.seen.unsqueeze(1), torch.inf).argsort(dim=0, stable=True)
            places = torch.arange(len(order), device=order.device).unsqueeze(1).expand_as(order)
            rank = torch.empty_like(order).scatter_(0, order, places)  # (N, C), 0 for the lowest average
            self.negatives.copy_(rank < len(order) - self.expected)

    @torch.no_grad()
    def note(self, logits: Tensor, index: Tensor) -> None:
        """Keep what is predicted now for the next `renew`.

        Args:
            logits: (B, C) logits; no gradient is kept.
            index: (B,) rows.
        """
        self.latest[index] = torch.sigmoid(logits).to(self.latest.dtype)
        self.met[index] = True

    def cells(self, logits: Tensor, index: Tensor) -> Cells:
        """Answer for cells: charge unknown ones as absent where they are expected negatives, and not at all elsewhere.

        Args:
            logits: (B, C) logits.
            index: (B,) rows.

        Returns:
            Belief 0, weight 1 on expected negatives and 0 elsewhere, log losses.
        """
        return log_cells(logits, weight=self.negatives[index].to(logits.dtype))

    def labels(self, observed: Tensor, index: Tensor) -> Tensor:
        """Label the unknown cells that are expected negatives; none until there is an average.

        Args:
            observed: (B, C) labels: 1 present, 0 unknown, -1 absent.
            index: (B,) rows.

        Returns:
            (B, C) int8: -1 absent, 0 none and on every known cell.
        """
        return -(self.negatives[index] & (observed == 0) & self.seen.any()).to(torch.int8)
