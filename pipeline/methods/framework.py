"""Framework: a loss assembled in params.

risk = L1 where observed, v (k L2 + (1 - k) L3) where unknown, L3 where observed absent; mean over B*C. Belief k and
weight v are functions of p without gradient; L1 and L2 are element losses at the logit, L3 is one at minus the logit.
An L3 that is no loss of absence, negative_entropy or soft, is -log(1 - p) where observed absent.
With f a part's name in params and ``log`` etc. its kind, the papers' losses are
AN: belief constant 0, weight constant 1, l1 log, l3 log.
Hill: belief constant 0, weight constant 1, l1 log (GR's reading) or focal gamma 2 margin 1, l3 hill lamb 1.5.
SPLC from its change epoch: belief threshold 0.6, weight constant 1, l1 focal gamma 2 margin 1, l2 and l3 focal gamma 2
margin 0; the paper's: l2 as l1, l3 hill.
EM: belief constant 1, weight constant alpha, l1 log, l2 negative_entropy.
EM+APL in one threshold: belief threshold tau, weight threshold tau above alpha below beta, l1 log, l2 negative_entropy,
l3 soft, whose target was the stored one.
EN in one threshold: belief constant 0, weight threshold tau above 0 below 1, l1 log, l3 log.
GR: belief logistic, weight gaussian, l1 log, l2 power q2, l3 power q3.
Source: Chen et al., "Boosting Single Positive Multi-label Classification with Generalized Robust Loss", IJCAI 2024,
Eq. 4-5, 15-17 and Table 1, https://arxiv.org/abs/2405.03501.
Authors' code: yan4xi1/GRLoss @5e13f7f has GR alone.
Published: no settings beyond those of the losses above.
Differs: every sign is that of a loss to be lowered; in Table 1 some lack their minus.
Differs: an "undefined" belief or loss has to be named; one that weight 0 or belief 0 or 1 cuts off changes nothing.
Differs: a soft target is one number for all cells, or p itself; EM+APL stores one for each cell.
"""

from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import (
    Cells,
    entropy,
    focal_present,
    hill_absent,
    log_absent,
    log_present,
    power_present,
)
from pipeline.methods.shared.schedules import (
    ConstantBelief,
    ConstantWeight,
    GaussianWeight,
    Pair,
    Schedule,
    between,
    check_schedule,
)

NonNegative = Annotated[float, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, le=1)]


class LogisticBelief(Strict):
    """k = sigmoid(w p + b), with w and b by epoch."""

    kind: Literal["logistic"]
    weight: Pair
    """First and last w."""
    bias: Pair
    """First and last b."""


class ThresholdBelief(Strict):
    """k = 1 where p > value, else 0."""

    kind: Literal["threshold"]
    value: Probability
    """Threshold; a p equal to it is below."""


class ThresholdWeight(Strict):
    """One v where p > tau, another elsewhere."""

    kind: Literal["threshold"]
    tau: Probability
    """Threshold; a p equal to it is below."""
    above: float
    """v where p > tau."""
    below: float
    """v elsewhere."""


class Log(Strict):
    """-log p."""

    kind: Literal["log"]


class Focal(Strict):
    """(1 - q)^gamma (-log q) with q = sigmoid(z - margin)."""

    kind: Literal["focal"]
    gamma: NonNegative
    """Focusing exponent; its factor has a gradient."""
    margin: float
    """Shift of the logit."""


class Power(Strict):
    """(1 - p^q) / q."""

    kind: Literal["power"]
    q: NonNegative
    """Exponent: 0 is the log loss, 1 is the absolute error."""


class Hill(Strict):
    """(lamb - a) a^2 with a = 1 - p; as l3, a is the probability of presence."""

    kind: Literal["hill"]
    lamb: Annotated[float, Field(ge=1)]
    """lambda; from 1 on the loss is nowhere negative, from 1.5 on it nowhere falls as a grows."""


class NegativeEntropy(Strict):
    """p log p + (1 - p) log(1 - p), the same for all three losses."""

    kind: Literal["negative_entropy"]


class Soft(Strict):
    """-s log p - (1 - s) log(1 - p) with p and s of presence, the same for all three losses."""

    kind: Literal["soft"]
    target: Probability | Literal["current"]
    """s; ``current``: p without gradient, as Chen et al. read EM+APL, where the whole gradient is zero."""


Loss = Annotated[Log | Focal | Power | Hill | NegativeEntropy | Soft, Field(discriminator="kind")]


class Settings(Strict):
    """Settings of the framework."""

    belief: Annotated[ConstantBelief | LogisticBelief | ThresholdBelief, Field(discriminator="kind")]
    """k: how present an unknown cell is taken to be."""
    weight: Annotated[ConstantWeight | GaussianWeight | ThresholdWeight, Field(discriminator="kind")]
    """v: how much an unknown cell counts."""
    l1: Loss
    """Loss of an observed positive."""
    l2: Loss
    """Loss of an unknown cell taken as present."""
    l3: Loss
    """Loss of an unknown cell taken as absent, and of a cell observed absent unless it is ``negative_entropy`` or
    ``soft``."""
    schedule: Schedule | None
    """Fraction of the way from first to last in epoch e of T. ``code``: (e - 1) / T for the belief, e / T for the
    weight, as in GR's code; ``paper_first``, ``paper_last``: (e - 1) / T or e / T for both; null where none
    moves."""

    @model_validator(mode="after")
    def _schedule_of_what_moves(self) -> Self:
        check_schedule(
            self.schedule, isinstance(self.belief, LogisticBelief) or isinstance(self.weight, GaussianWeight)
        )
        return self


class AssembledLoss(Method):
    """Any loss of the form of Eq. 4-5."""

    Settings = Settings

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return the parts that params name, as of this epoch; arguments as in `Method.cells`."""
        p = torch.sigmoid(logits.detach())
        absent = _charge(self.settings.l3, logits, present=False)
        if isinstance(self.settings.l3, NegativeEntropy | Soft):
            absent = torch.where(observed == -1, log_absent(logits), absent)
        return Cells(
            belief=self._belief(p),
            weight=self._weight(p),
            l1=_charge(self.settings.l1, logits, present=True),
            l2=_charge(self.settings.l2, logits, present=True),
            l3=absent,
        )

    def pseudo_labels(self, logits: Tensor, observed: Tensor, index: Tensor) -> Tensor | None:
        """Return 1 on the unknown cells above a threshold of belief; arguments as in `Method.pseudo_labels`.

        None where belief has no threshold, and so labels nothing.
        """
        if not isinstance(self.settings.belief, ThresholdBelief):
            return None
        return (self._belief(torch.sigmoid(logits.detach())) * (observed == 0)).to(torch.int8)

    def _belief(self, p: Tensor) -> Tensor:
        belief = self.settings.belief
        if isinstance(belief, ConstantBelief):
            return torch.full_like(p, belief.value)
        if isinstance(belief, ThresholdBelief):
            return (p > belief.value).to(p.dtype)
        way = self._way(self.settings.schedule != "paper_last")
        return torch.sigmoid(between(belief.weight, way) * p + between(belief.bias, way))

    def _weight(self, p: Tensor) -> Tensor:
        weight = self.settings.weight
        if isinstance(weight, ConstantWeight):
            return torch.full_like(p, weight.value)
        if isinstance(weight, ThresholdWeight):
            return torch.where(p > weight.tau, weight.above, torch.full_like(p, weight.below))
        way = self._way(self.settings.schedule == "paper_first")
        return torch.exp(-(((p - between(weight.mu, way)) / between(weight.sigma, way)) ** 2) / 2)

    def _way(self, one_behind: bool) -> float:
        """Return the fraction of the way from first to last in this epoch; 0 before training."""
        return max(self.epoch - one_behind, 0) / max(self.epochs, 1)


def _charge(loss: Loss, logits: Tensor, present: bool) -> Tensor:
    """Return the element loss of a label that is present, or absent."""
    z = logits if present else -logits
    if isinstance(loss, Focal):
        return focal_present(z - loss.margin, loss.gamma)
    if isinstance(loss, Power):
        return power_present(z, loss.q)
    if isinstance(loss, Hill):
        return hill_absent(-z, loss.lamb)
    if isinstance(loss, NegativeEntropy):
        return -entropy(logits)
    if isinstance(loss, Soft):
        if loss.target == "current":
            now = logits.detach()
            return torch.sigmoid(now) * log_present(logits) + torch.sigmoid(-now) * log_absent(logits)
        return loss.target * log_present(logits) + (1 - loss.target) * log_absent(logits)
    return log_present(z)


METHOD = AssembledLoss
