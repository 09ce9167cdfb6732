"""SPLC: take confident unknown labels as present.

risk = F(z - margin) where observed; where unknown, F(z) if p > threshold, else the loss of absence, which is F(-z)
(focal) or (lamb - p) p^2 (hill); F(z) = -(1 - p)^gamma log p; mean over B*C. No unknown label is corrected during the
warm-up, and no correction outlives its batch.
Source: Zhang et al., "Simple and Robust Loss Design for Multi-Label Learning with Missing Labels", arXiv 2021,
https://arxiv.org/abs/2112.07368.
Authors' code: xinyu1205/robust-loss-mlml @dcfa4d5, src/loss_functions/losses.py, SPLC.
Published: threshold 0.6 (0.65 on COCO with three quarters of its labels), margin 1, gamma 2, negative focal,
corrected_margin false, correction from the second of 80 epochs on (the authors' code). Chen et al., GR Loss, 2024,
Eq. 25, read it with negative hill (lamb 1.5) and corrected_margin true; their settings for single positives are not
published.
Differs: mean over B*C; theirs is the sum.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, focal_present, hill_absent, rounded_share


class FocalAbsence(Strict):
    """F(-z)."""

    kind: Literal["focal"]


class HillAbsence(Strict):
    """(lamb - p) p^2."""

    kind: Literal["hill"]
    lamb: Annotated[float, Field(ge=1)]
    """lambda; from 1 on the loss is nowhere negative, from 1.5 on it nowhere falls as p grows."""


class Settings(Strict):
    """Settings of SPLC."""

    threshold: Annotated[float, Field(ge=0, le=1)]
    """Probability above which an unknown label is taken as present; 1: never."""
    warmup: Annotated[float, Field(ge=0, le=1)]
    """Epochs without correction as a fraction of the stage's; rounded, and at least one epoch unless 0."""
    margin: Annotated[float, Field(ge=0)]
    """Taken from the logit of an observed label."""
    gamma: Annotated[float, Field(ge=0)]
    """Focusing exponent."""
    negative: Annotated[FocalAbsence | HillAbsence, Field(discriminator="kind")]
    """Loss of absence."""
    corrected_margin: bool
    """Whether the margin is taken from the logit of a corrected label too."""


class SelfPacedCorrection(Method):
    """Focal losses with a margin, and confident unknown labels taken as present."""

    Settings = Settings

    def _corrected(self, logits: Tensor) -> Tensor:
        """Return a (B, C) mask of the logits that count as present now, where nothing is known."""
        warmup = rounded_share(self.settings.warmup, self.epochs)
        if self.settings.warmup > 0:
            warmup = max(1, warmup)
        return (torch.sigmoid(logits.detach()) > self.settings.threshold) & (self.epoch > warmup)

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief 1 on corrected cells and 0 elsewhere, and weight 1; arguments as in `Method.cells`."""
        margined = focal_present(logits - self.settings.margin, self.settings.gamma)
        negative = self.settings.negative
        return Cells(
            belief=self._corrected(logits).to(logits.dtype),
            weight=torch.ones_like(logits),
            l1=margined,
            l2=margined if self.settings.corrected_margin else focal_present(logits, self.settings.gamma),
            l3=hill_absent(logits, negative.lamb)
            if isinstance(negative, HillAbsence)
            else focal_present(-logits, self.settings.gamma),
        )

    def pseudo_labels(self, logits: Tensor, observed: Tensor, index: Tensor) -> Tensor:
        """Return 1 on the unknown cells that are corrected now; arguments as in `Method.pseudo_labels`."""
        return (self._corrected(logits) & (observed == 0)).to(torch.int8)


METHOD = SelfPacedCorrection
