"""Hill: spare unknown labels predicted present.

risk = (lamb - p) p^2 where unknown; where observed, with focal_margin -(1 - p_m)^gamma log p_m, p_m = sigmoid(z -
margin), or with log -log p; mean over B*C. At lamb 1.5 the gradient of an unknown cell is 3 p^2 (1 - p)^2: largest at
p = 1/2, gone where the prediction is sure of either side.
Source: Zhang et al., "Simple and Robust Loss Design for Multi-Label Learning with Missing Labels", arXiv 2021,
https://arxiv.org/abs/2112.07368.
Authors' code: xinyu1205/robust-loss-mlml @dcfa4d5, src/loss_functions/losses.py, Hill.
Published: lamb 1.5, focal_margin with margin 1 and gamma 2 (the authors' code); lamb 1.5, log (Chen et al., GR Loss,
2024, Eq. 24 and their code, yan4xi1/GRLoss @5e13f7f).
Differs: mean over B*C; the authors' is the sum.
Differs: exact log loss of the logit where ``floor`` is 0; GR's code has -log(p + 1e-7).
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, focal_present, hill_absent, log_present


class FocalMargin(Strict):
    """-(1 - p_m)^gamma log p_m with p_m = sigmoid(z - margin)."""

    kind: Literal["focal_margin"]
    margin: Annotated[float, Field(ge=0)]
    """Taken from the logit."""
    gamma: Annotated[float, Field(ge=0)]
    """Focusing exponent."""


class Log(Strict):
    """-log p."""

    kind: Literal["log"]
    floor: Annotated[float, Field(ge=0, lt=1)]
    """What is added to p inside the logarithm: 1e-7 in GR's code; 0: nothing, exact."""


class Settings(Strict):
    """Settings of Hill."""

    lamb: Annotated[float, Field(ge=1)]
    """lambda; from 1 on the loss is nowhere negative, from 1.5 on it nowhere falls as p grows."""
    positive: Annotated[FocalMargin | Log, Field(discriminator="kind")]
    """Loss of an observed label."""


class Hill(Method):
    """Assume negative with a loss of absence whose gradient falls off on both sides."""

    Settings = Settings

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief 0, weight 1, the loss of presence and the hill; arguments as in `Method.cells`."""
        positive = self.settings.positive
        if isinstance(positive, Log):
            present = log_present(logits, positive.floor)
        else:
            present = focal_present(logits - positive.margin, positive.gamma)
        return Cells(
            belief=torch.zeros_like(logits),
            weight=torch.ones_like(logits),
            l1=present,
            l2=present,
            l3=hill_absent(logits, self.settings.lamb),
        )


METHOD = Hill
