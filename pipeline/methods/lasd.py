"""LASD: weighted pseudo-labels and consistent views.

loss = risk + alpha * Phi. risk, on the first view: F(z; gamma_pos) where observed; where unknown, lambda_plus *
F(z; gamma_pos) if p > threshold, else lambda_minus * F(-z; gamma_neg); F(z; g) = -(1 - p)^g log p; summed over classes,
averaged over images. Phi: squared Euclidean distances of the three views' probability vectors, summed over the three
pairs, averaged over images.
Source: anonymous, "Leveraged Asymmetric Loss with Disambiguation for Multi-label Recognition with One-Positive
Annotations", under review 2023, Eq. 4 and 6-8, Theorem 5.4; no URL is known.
Authors' code: none is public.
Published (Table 4) lambda_plus, threshold, alpha: VOC 0.10, 0.90, 0.70; COCO 0.03, 0.90, 0.10; NUS 0.015, 0.95, 0.15;
CUB 0.005, 0.93, 0.03; gamma_pos 0, gamma_neg 4 and lambda_minus = (1 + lambda_plus (y - 1)) / (C - y), y labels an
image, on all sets.
Differs: lambda_minus = (m + lambda_plus (y - m)) / (C - y) with m observed labels an image, on average and at least the
theorem's 1. Of m observed by chance among y, each present label weighs m / y + lambda_plus (1 - m / y) on average and
each absent one lambda_minus: Theorem 5.4 asks that y of the former weigh what C - y of the latter do.
Differs: a label known to be absent, which single positives do not tell, counts in full beside that balance.
Published ablation (Table 3): C is alpha 0; B is threshold 1 too; A is gamma_neg 0 and lambda_minus 1 as well. By their
figures A is AN, but B is ASL (Table 2): gamma_neg 4, lambda_minus 1.
Guess: y is the dataset's mean; the paper does not say what stands in for a count that nobody observes.
Guess: the first view is the weak one, the other two are strong ones; the risk does not see them, and the gradient of
Phi flows through all three.
Guess: the three views go through one forward pass, so that batch norm in training takes its mean and variance of all
three together, and its running statistics, by which the weak view alone is evaluated, hold the strong views too.
Guess: sums over classes are averaged over images; only the sums are stated.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from pipeline.core.errors import ConfigError
from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, cell_risk, focal_present
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs


class Settings(Strict):
    """Settings of LASD."""

    lambda_plus: Annotated[float, Field(ge=0)]
    """Weight of an unknown label taken as present."""
    lambda_minus: Annotated[float, Field(ge=0)] | None
    """Weight of an unknown label taken as absent; null: what Theorem 5.4 makes it. With a number the label density is
    not read, and asked for all the same: ``needs``, by which a report marks who knows it, does not see settings."""
    threshold: Annotated[float, Field(ge=0, le=1)]
    """tau, the probability above which an unknown label is taken as present; 1: never."""
    gamma_pos: Annotated[float, Field(ge=0)]
    """Focusing exponent of presence."""
    gamma_neg: Annotated[float, Field(ge=0)]
    """Focusing exponent of absence."""
    alpha: Annotated[float, Field(ge=0)]
    """Weight of the consistency of the views."""


class LeveragedAsymmetric(Method):
    """Asymmetric loss with weighted hard pseudo-labels, and consistency of three views."""

    Settings = Settings
    views = ("weak", "strong", "strong")
    needs = {"expected_positives"}
    coupled = True

    def __init__(self, settings: Settings, problem: Problem):
        super().__init__(settings, problem)
        self.lambda_minus = settings.lambda_minus
        if self.lambda_minus is None:
            observed = max(1.0, float(problem.observed_counts.sum()) / problem.n)
            known = (self.expected_positives, len(problem.classes), observed)
            self.lambda_minus = balanced_weight(settings.lambda_plus, *known)

    def _present(self, logits: Tensor) -> Tensor:
        return torch.sigmoid(logits.detach()) > self.settings.threshold

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return hard beliefs with a weight for each, and focal losses; arguments as in `Method.cells`."""
        taken = self._present(logits)
        present = focal_present(logits, self.settings.gamma_pos)
        weights = logits.new_tensor([self.lambda_minus, self.settings.lambda_plus])
        return Cells(
            belief=taken.to(logits.dtype),
            weight=weights[taken.long()],
            l1=present,
            l2=present,
            l3=focal_present(-logits, self.settings.gamma_neg),
        )

    def forward(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Return `risk` of the first view and the weighted `consistency` of all; arguments as in `Method.forward`."""
        risk = cell_risk(self.cells(outputs.logits[0], observed, index), observed)
        first, second, third = torch.sigmoid(outputs.logits)
        apart = (first - second) ** 2 + (first - third) ** 2 + (second - third) ** 2
        return {"risk": risk.sum(1).mean(), "consistency": self.settings.alpha * apart.sum(1).mean()}

    def pseudo_labels(self, logits: Tensor, observed: Tensor, index: Tensor) -> Tensor:
        """Return 1 on the unknown cells taken as present now; arguments as in `Method.pseudo_labels`."""
        return (self._present(logits) & (observed == 0)).to(torch.int8)


def balanced_weight(lambda_plus: float, positives: float, classes: int, observed: float) -> float:
    """Weigh assumed absences so that both kinds of label weigh the same in an image (Theorem 5.4).

    Args:
        lambda_plus: Weight of an unknown label taken as present.
        positives: Labels an image, above 0.
        classes: C.
        observed: Observed ones among them, 1 in the theorem.

    Returns:
        (observed + lambda_plus (positives - observed)) / (classes - positives).

    Raises:
        ConfigError: The labels an image are not between 0 and the number of classes, or the weight is negative.
    """
    if not 0 < positives < classes:
        raise ConfigError(f"methods.lasd.lambda_minus: null needs labels an image in (0, {classes}), given {positives}")
    weight = (observed + lambda_plus * (positives - observed)) / (classes - positives)
    if weight < 0:
        raise ConfigError(f"methods.lasd.lambda_minus: null makes it {weight}; lambda_plus is too large")
    return weight


METHOD = LeveragedAsymmetric
