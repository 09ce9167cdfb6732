"""LS: smooth all labels of AN.

risk = (1 - e) (-log p) + e (-log(1 - p)) where observed, (1 - e) (-log(1 - p)) + e (-log p) where unknown; mean over
B*C. e = eps (Cole's code), or eps / 2 with ``half`` (the formula that LASD quotes).
Source: Cole et al., "Multi-Label Learning from Single Positive Labels", CVPR 2021, there AN-LS,
https://arxiv.org/abs/2106.09708.
Authors' code: elijahcole/single-positive-multi-label @89152d5, losses.py, loss_an_ls.
Published: eps 0.1 on all sets (Cole's code; Zhou 2022, supplement B.2); without ``half``, as the code. With it:
anonymous, LASD, 2023, A.2.2.
Differs: exact log losses of the logit where ``floor`` is 0; theirs is -log(p + 1e-5).
Differs: a label known to be absent, which single positives do not tell, is charged without smoothing.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_absent, log_present


class Settings(Strict):
    """Settings of LS."""

    eps: Annotated[float, Field(ge=0, lt=1)]
    """Share of a label that smoothing moves."""
    half: bool
    """Whether the opposite label gets only half of that share: targets 1 - eps / 2 and eps / 2."""
    floor: Annotated[float, Field(ge=0, lt=1)]
    """What is added to p inside each logarithm: 1e-5 in the authors' code; 0: nothing, exact."""


class LabelSmoothing(Method):
    """Assume negative with smoothed labels."""

    Settings = Settings

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief e, weight 1 and log losses, smoothed for observed labels; arguments as in `Method.cells`."""
        e = self.settings.eps / 2 if self.settings.half else self.settings.eps
        present, absent = log_present(logits, self.settings.floor), log_absent(logits, self.settings.floor)
        return Cells(
            belief=torch.full_like(logits, e),
            weight=torch.ones_like(logits),
            l1=(1 - e) * present + e * absent,
            l2=present,
            l3=absent,
        )


METHOD = LabelSmoothing
