"""ASL: discount easy absences more than presences.

risk = -(1 - p)^gamma_pos log p where observed, -p_m^gamma_neg log(1 - p_m) where unknown, p_m = max(p - shift, 0); mean
over B*C. An unknown cell with p <= shift costs nothing.
Source: Ridnik et al., "Asymmetric Loss for Multi-Label Classification", ICCV 2021,
https://openaccess.thecvf.com/content/ICCV2021/html/Ridnik_Asymmetric_Loss_for_Multi-Label_Classification_ICCV_2021_paper.html.
Authors' code: Alibaba-MIIL/ASL @8c9e0bd, src/loss_functions/losses.py, AsymmetricLoss.
Published for single positives: gamma_pos 0 always; gamma_neg 2, shift 0.2 on VOC, COCO, NUS and gamma_neg 1, shift 0
on CUB (Zhou 2022, supplement B.2, chosen among 1, 2 and 0, 0.05, 0.2); gamma_neg 4, shift 0 on all sets, and with shift
0.05 as ASL-PS (anonymous, LASD, 2023, A.2.2). detach_weight: true by default in the authors' code; neither paper says.
Differs: mean over B*C; theirs is the sum.
Differs: exact logarithms of the logit; theirs clamps their arguments at 1e-8.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, focal_present, log_absent


class Settings(Strict):
    """Settings of ASL."""

    gamma_pos: Annotated[float, Field(ge=0)]
    """Focusing exponent of observed labels."""
    gamma_neg: Annotated[float, Field(ge=0)]
    """Focusing exponent of assumed absences."""
    shift: Annotated[float, Field(ge=0, lt=1)]
    """m, the probability up to which an assumed absence costs nothing."""
    detach_weight: bool
    """Whether the focal weights are constants to the gradient."""


class Asymmetric(Method):
    """Assume negative with focal losses of two exponents and a shifted probability of absence."""

    Settings = Settings

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief 0, weight 1 and the two focal losses; arguments as in `Method.cells`."""
        detach = self.settings.detach_weight
        present = focal_present(logits, self.settings.gamma_pos, detach)
        return Cells(
            belief=torch.zeros_like(logits),
            weight=torch.ones_like(logits),
            l1=present,
            l2=present,
            l3=_shifted_absent(logits, self.settings.gamma_neg, self.settings.shift, detach),
        )


def _shifted_absent(logits: Tensor, gamma: float, shift: float, detach_weight: bool) -> Tensor:
    """Return p_m^gamma (-log(1 - p_m)) for logits of any shape, same shape, in [0, -log shift)."""
    if shift == 0:
        return focal_present(-logits, gamma, detach_weight)
    absent = torch.relu(log_absent(logits, shift))  # 1 - p_m = (1 - p) + shift
    # a power below 1 has an infinite slope at p_m = 0; relu lets no gradient through there
    weight = (-torch.expm1(-absent)) ** gamma
    return (weight.detach() if detach_weight else weight) * absent


METHOD = Asymmetric
