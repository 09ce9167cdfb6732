"""ROLE: estimate training labels beside the classifier.

loss = ((positives(p) + cross(y, p) + count(p)) + (positives(y) + cross(p, y) + count(y))) / 2 with y = sigmoid(guess),
one guess for each training cell, and for a prediction q and a target t without gradient:
positives(q) = mean over B*C of -log q where observed; cross(t, q) = mean over B*C of -t log q - (1 - t) log(1 - q),
observed cells too; count(q) = (labels per image that q expects, mean over the batch, - expected_positives)^2 / C^2.
guess starts uniform in +-logit(0.6), at logit(0.995) where observed present and at logit(0.005) where observed absent;
after LinearInit it starts where that stage left it, with y clipped to [1e-5, 1 - 1e-5].
Source: Cole et al., "Multi-Label Learning from Single Positive Labels", CVPR 2021, the section on ROLE,
https://arxiv.org/abs/2106.09708.
Authors' code: elijahcole/single-positive-multi-label @89152d5, losses.py, loss_role, and models.py, LabelEstimator.
Published: factor 10 on all; expected_positives VOC 1.5, COCO 2.9, NUS 1.9, CUB 31.4.
Differs: expected_positives is one figure for all methods that know it, in the profiles the mean of the training labels
(VOC 1.46, COCO 2.94, NUS 1.89); the code rounds it.
Differs: exact log losses of the logit where ``floor`` is 0; theirs are -log(p + 1e-5).
Differs: the optimiser's weight decay leaves guess alone, which is no weight; theirs has none at all.
Differs: positives(q) has -log(1 - q) too, where observed absent: single positives do not tell absences, and theirs
would hold such a label by its start alone.
"""

from dataclasses import replace
from math import log
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_absent, log_cells_of, log_present
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs

SPREAD = log(0.6 / 0.4)
PINNED = log(0.995 / 0.005)
CLIP = log((1 - 1e-5) / 1e-5)


class Settings(Strict):
    """Settings of ROLE."""

    factor: Annotated[float, Field(gt=0)]
    """Learning rate of the estimates, as a multiple of the stage's."""
    floor: Annotated[float, Field(ge=0, lt=1)]
    """What is added to p, or to y, inside each logarithm: 1e-5 in the authors' code; 0: nothing, exact."""


class OnlineLabelEstimation(Method):
    """Classifier and estimates teach each other; `guess` (N, C) holds the logits of the estimates."""

    Settings = Settings
    needs = {"expected_positives"}
    coupled = True
    carries = ("guess",)

    def __init__(self, settings: Settings, problem: Problem):
        super().__init__(settings, problem)
        chance = torch.rand(problem.n, len(problem.classes), dtype=torch.get_default_dtype())
        self.guess = nn.Parameter(SPREAD * (2 * chance - 1))

    @torch.no_grad()
    def begin_training(self, observed: Tensor) -> None:
        """Start the estimates of known cells near what is known; arguments as in `Method.begin_training`."""
        known = observed != 0
        self.guess.copy_(torch.where(known, PINNED * observed.to(self.guess.dtype), self.guess))

    @torch.no_grad()
    def inherit(self, state: dict[str, Tensor]) -> None:
        """Start from the estimates of an earlier stage, clipped; arguments and errors as in `Method.inherit`."""
        super().inherit(state)
        self.guess.clamp_(-CLIP, CLIP)

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return the estimates as belief, weight 1 and the classifier's log losses; arguments as in `Method.cells`.

        Their mean risk is that of the classifier's positive and cross terms before these are halved; the count is left
        out. A known cell is charged for what is known and by its estimate.
        """
        guess = self.guess.detach()[index].to(logits.dtype)
        own = log_cells_of(logits, guess, floor=self.settings.floor)
        cross = _cross(guess, logits, self.settings.floor)
        return replace(own, l1=own.l1 + cross, l3=torch.where(observed == -1, own.l3 + cross, own.l3))

    def forward(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Return three terms of the classifier and three of the estimator, each halved.

        Args:
            outputs: Logits of one view.
            observed: (B, C) int8 labels.
            index: (B,) int64 rows of the training split.

        Returns:
            ``<side>_positive``, which has the known absences too, ``<side>_cross`` and ``<side>_regulariser`` of both
            sides.
        """
        classifier = outputs.logits[0]
        estimator = self.guess[index].to(classifier.dtype)
        floor, terms = self.settings.floor, {}
        for side, own, other in (("classifier", classifier, estimator), ("estimator", estimator, classifier)):
            known = torch.where(observed == -1, log_absent(own, floor), 0)
            terms[f"{side}_positive"] = torch.where(observed == 1, log_present(own, floor), known).mean() / 2
            terms[f"{side}_cross"] = _cross(other.detach(), own, floor).mean() / 2
            excess = torch.sigmoid(own).sum(1).mean() - self.expected_positives
            terms[f"{side}_regulariser"] = (excess / own.shape[1]) ** 2 / 2
        return terms

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Return the estimates at their rate, without weight decay; arguments as in `Method.parameter_groups`."""
        return [{**group, "weight_decay": 0.0} for group in super().parameter_groups(lr * self.settings.factor)]


def _cross(target: Tensor, logits: Tensor, floor: float) -> Tensor:
    """Return the log loss of logits against sigmoid(target), cell by cell."""
    return torch.sigmoid(target) * log_present(logits, floor) + torch.sigmoid(-target) * log_absent(logits, floor)


METHOD = OnlineLabelEstimation
