"""Full labels: oracle, every label known.

risk = (1 - s) (-log p) + s (-log(1 - p)) on present labels and its mirror image on absent ones; mean over B*C.
Source: Cole et al., "Multi-Label Learning from Single Positive Labels", CVPR 2021, https://arxiv.org/abs/2106.09708.
Authors' code: elijahcole/single-positive-multi-label @89152d5, losses.py, loss_bce (s = 0) and loss_bce_ls (s = 0.1).
Differs: exact log losses of the logit where ``floor`` is 0; theirs is -log(p + 1e-5).
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_absent, log_present


class Settings(Strict):
    """Settings of BCE with all labels."""

    smoothing: Annotated[float, Field(ge=0, lt=1)]
    """s, the share of each label that is given to its opposite: 0 for plain BCE."""
    floor: Annotated[float, Field(ge=0, lt=1)]
    """What is added to p inside each logarithm: 1e-5 in the authors' code; 0: nothing, exact."""


class Full(Method):
    """Binary cross-entropy on what is known; a cell whose truth nobody knows (coded 0) is left out."""

    Settings = Settings
    labels = "all"

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return smoothed log losses, and weight 0 for cells that are not known; arguments as in `Method.cells`."""
        s = self.settings.smoothing
        present, absent = log_present(logits, self.settings.floor), log_absent(logits, self.settings.floor)
        return Cells(
            belief=torch.zeros_like(logits),
            weight=torch.zeros_like(logits),
            l1=(1 - s) * present + s * absent,
            l2=(1 - s) * present + s * absent,
            l3=(1 - s) * absent + s * present,
        )


METHOD = Full
