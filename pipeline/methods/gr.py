"""GR: predicted soft labels under robust losses.

risk = L1 where observed, v (k L2 + (1 - k) L3) where unknown, L3 where observed absent; mean over B*C;
k = sigmoid(w p + b), v = exp(-(p - mu)^2 / (2 sigma^2)), both without gradient through p;
L1 = (1 - p^q1) / q1, L2 = (1 - p^q2) / q2, L3 = (1 - (1 - p)^q3) / q3, and q = 0 is the log loss.
w, b, mu and sigma run linearly from their first to their last value over the T epochs, e = 1..T, by ``schedule``:
code: w and b at (e - 1) / T, whose last value is never reached, mu and sigma at e / T, whose first is never used;
paper_first, paper_last (Eq. 9-13 say t / T, not which epoch has t): all four at (e - 1) / T, or at e / T.
Source: Chen et al., "Boosting Single Positive Multi-label Classification with Generalized Robust Loss", IJCAI 2024,
Eq. 4-14, https://arxiv.org/abs/2405.03501.
Authors' code: yan4xi1/GRLoss @5e13f7f, losses.py, GR_loss, models.py and train.py.
Published q2, q3, last (w, b), last (mu, sigma): VOC 0.01, 1, (2, -2), (0.8, 0.5); COCO and NUS 0.01, 1, (10, -8),
(0.8, 0.5); CUB 0.01, 1.5, (10, -8), (0.8, 0.5). First values (0, -2), (0.5, 2) are the code's for VOC; for the others
none is published. q1 is 0 in the code, 0.01 in the paper. The paper's Remark 1 takes the first b from label statistics.
Ablation (Table 3): no k is ``belief: {kind: constant, value: 0}``, no v ``weight: {kind: constant, value: 1}``, no
L1-L3 is q1 = q2 = q3 = 0.01; its last row is ``belief: {kind: trainable, ...}``.
Differs: exact log loss of the logit where ``floor`` is 0; theirs is -log(p + 1e-7). Powers are taken of the logit's
logsigmoid.
Differs: a trainable k is trained by the stage's optimiser at ``factor`` times its learning rate; theirs has an SGD of
its own, learning rate 0.1, momentum 0.9, weight decay 1e-3. As in their code, v keeps its schedule.
Differs: their first ``linear_init`` epochs hold the schedule and freeze the backbone; ``hold`` does the former only.
"""

from math import isfinite, log
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from pipeline.core.errors import ConfigError
from pipeline.core.strict import Strict, given
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, power_present, rounded_share
from pipeline.methods.shared.problem import Problem
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


class Logistic(Strict):
    """k = sigmoid(w p + b), with w and b by epoch."""

    kind: Literal["logistic"]
    weight: Pair
    """First and last w."""
    bias: Annotated[tuple[float | Literal["statistics"], float], Field(strict=False)]
    """First and last b. ``statistics``: sigmoid(b) is the share of present ones among unknown cells (Remark 1), which
    needs `expected_positives`."""


class Trainable(Strict):
    """k = sigmoid(w p + b), with w and b of each class trained by the gradient."""

    kind: Literal["trainable"]
    weight: float
    """Initial w: 0 in the code."""
    bias: float
    """Initial b: -2 in the code."""
    factor: Annotated[float, Field(gt=0)]
    """Learning rate of w and b, as a multiple of the stage's."""


class NonNegativeWeight(ConstantWeight):
    """The same v for all unknown cells, at least 0."""

    value: NonNegative


class Settings(Strict):
    """Settings of GR."""

    belief: Annotated[Logistic | Trainable | ConstantBelief, Field(discriminator="kind")]
    """k: how present an unknown cell is taken to be."""
    weight: Annotated[GaussianWeight | NonNegativeWeight, Field(discriminator="kind")]
    """v: how much an unknown cell counts."""
    q1: NonNegative
    """Exponent of the loss of an observed positive; 0 is the log loss."""
    q2: NonNegative
    """Exponent of the loss of an unknown cell taken as present."""
    q3: NonNegative
    """Exponent of the loss of an unknown cell taken as absent: 1 is the absolute error."""
    schedule: Schedule | None
    """Which fraction of the way from first to last an epoch has; null where neither belief nor weight moves."""
    hold: Annotated[float, Field(ge=0, lt=1)]
    """Fraction of the stage's epochs, rounded, that keeps the first values; the schedule runs over the others."""
    floor: Annotated[float, Field(ge=0, lt=1)]
    """What is added to p inside the logarithm of an observed positive (q1 = 0): 1e-7 in the authors' code; 0: nothing,
    exact, and so where q1 is above 0."""

    @model_validator(mode="after")
    def _each_value_has_an_effect(self) -> Self:
        check_schedule(self.schedule, isinstance(self.belief, Logistic) or isinstance(self.weight, GaussianWeight))
        if self.schedule is None and self.hold:
            raise ValueError(f"hold: has no effect where nothing moves; set it to 0.0 {given(self.hold)}")
        if self.q1 and self.floor:
            raise ValueError(f"floor: has no effect where q1 is above 0; set it to 0.0 {given(self.floor)}")
        return self


class GeneralizedRobust(Method):
    """GR Loss; with a trainable belief `slope` and `bias` (C,) are w and b of each class."""

    Settings = Settings

    slope: nn.Parameter
    bias: nn.Parameter
    biases: tuple[float, float]
    """First and last b of a logistic belief."""

    def __init__(self, settings: Settings, problem: Problem):
        super().__init__(settings, problem)
        belief = settings.belief
        if isinstance(belief, Trainable):
            classes = len(problem.classes)
            self.slope = nn.Parameter(torch.full((classes,), belief.weight, dtype=torch.get_default_dtype()))
            self.bias = nn.Parameter(torch.full((classes,), belief.bias, dtype=torch.get_default_dtype()))
        elif isinstance(belief, Logistic):
            first, last = belief.bias
            self.biases = (self._bias_from_statistics() if first == "statistics" else first, last)

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return k, v and power losses as of this epoch; arguments as in `Method.cells`."""
        p = torch.sigmoid(logits.detach())
        return Cells(
            belief=self._belief(p),
            weight=self._weight(p),
            l1=power_present(logits, self.settings.q1, self.settings.floor),
            l2=power_present(logits, self.settings.q2),
            l3=power_present(-logits, self.settings.q3),
        )

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Return the parameters of a trainable belief; arguments as in `Method.parameter_groups`."""
        belief = self.settings.belief
        return super().parameter_groups(lr * belief.factor if isinstance(belief, Trainable) else lr)

    def _bias_from_statistics(self) -> float:
        """Return logit of (positives that are not observed) / (cells that are unknown), all images and classes.

        Raises:
            ConfigError: Nobody told the label density, or it leaves no such share in (0, 1).
        """
        if (expected := self.problem.expected_positives) is None:
            raise ConfigError("methods.gr.belief.bias: `statistics` needs `expected_positives`, which has no entry")
        possible = len(self.problem.classes) - self.problem.observed_absences / self.problem.n  # labels per image
        observed = float(self.problem.observed_counts.sum()) / self.problem.n
        present, absent = expected - observed, possible - expected
        if not (present > 0 and absent > 0 and isfinite(present)):
            raise ConfigError(
                "methods.gr.belief.bias: `statistics` needs `expected_positives` between the "
                f"{observed:g} observed labels per image and the {possible:g} that may be present, found {expected:g}"
            )
        return log(present / absent)

    def _belief(self, p: Tensor) -> Tensor:
        belief = self.settings.belief
        if isinstance(belief, ConstantBelief):
            return torch.full_like(p, belief.value)
        if isinstance(belief, Trainable):
            return torch.sigmoid(self.slope * p + self.bias)
        way = self._way(self.settings.schedule != "paper_last")
        return torch.sigmoid(between(belief.weight, way) * p + between(self.biases, way))

    def _weight(self, p: Tensor) -> Tensor:
        weight = self.settings.weight
        if isinstance(weight, ConstantWeight):
            return torch.full_like(p, weight.value)
        way = self._way(self.settings.schedule == "paper_first")
        return torch.exp(-(((p - between(weight.mu, way)) / between(weight.sigma, way)) ** 2) / 2)

    def _way(self, one_behind: bool) -> float:
        """Return the fraction of the way from first to last in this epoch; 0 before training."""
        hold = min(rounded_share(self.settings.hold, self.epochs), self.epochs - 1)
        return max(self.epoch - hold - one_behind, 0) / (self.epochs - hold) if self.epochs else 0.0


METHOD = GeneralizedRobust
