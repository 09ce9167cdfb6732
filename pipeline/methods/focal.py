"""Focal: AN that dwells on hard cells.

risk = -alpha (1 - p)^gamma log p where observed, -(1 - alpha) p^gamma log(1 - p) where unknown; mean over B*C.
``alpha: null`` leaves both factors out, which is LASD's FAN. The focal weight carries gradient.
Source: Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017, Eq. 4-5, https://arxiv.org/abs/1708.02002.
Authors' code: none is public.
Published: gamma 2, alpha 0.75 on all sets (Zhou 2022, supplement B.2, alpha chosen among 0.25, 0.5, 0.75); gamma 2 and
no alpha (FAN: anonymous, LASD, 2023, A.2.2).
Guess: alpha weights the observed positive and 1 - alpha the rest, as Lin has it; Zhou does not say.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, focal_present


class Settings(Strict):
    """Settings of the focal loss."""

    gamma: Annotated[float, Field(ge=0)]
    """Focusing exponent; 0 is AN."""
    alpha: Annotated[float, Field(ge=0, le=1)] | None
    """Weight of observed labels, 1 - alpha that of the rest; null: both 1."""


class Focal(Method):
    """Assume negative with the binary focal loss."""

    Settings = Settings

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief 0, weight 1 and focal losses with their balance factors; arguments as in `Method.cells`."""
        alpha = self.settings.alpha
        observed_factor, other_factor = (1, 1) if alpha is None else (alpha, 1 - alpha)
        present = observed_factor * focal_present(logits, self.settings.gamma)
        return Cells(
            belief=torch.zeros_like(logits),
            weight=torch.ones_like(logits),
            l1=present,
            l2=present,
            l3=other_factor * focal_present(-logits, self.settings.gamma),
        )


METHOD = Focal
