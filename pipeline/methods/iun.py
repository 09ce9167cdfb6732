"""IUN: oracle, leave out hidden positives.

risk = -log p on observed positives, -log(1 - p) on known negatives, 0 on unknown cells; mean over B*C, the left-out
cells included in the count.
Source: Cole et al., "Multi-Label Learning from Single Positive Labels", CVPR 2021, https://arxiv.org/abs/2106.09708.
Authors' code: Correr-Zhou/SPML-AckTheUnknown @ae1ccaf, losses.py, loss_iun.
Differs: exact log losses of the logit where ``floor`` is 0; theirs is -log(p + 1e-5).
Differs: negatives come as -1 in the label set ``negatives``; the code first published (elijahcole @89152d5) tests a 0/1
matrix for -1 and so never uses a negative, which the later code above mended.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_cells


class Settings(Strict):
    """Settings of IUN."""

    floor: Annotated[float, Field(ge=0, lt=1)]
    """What is added to p inside each logarithm: 1e-5 in the authors' code; 0: nothing, exact."""


class IgnoreUnobservedNegatives(Method):
    """Binary cross-entropy on the observed positives and the known negatives."""

    Settings = Settings
    labels = "negatives"

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return weight 0 on unknown cells, and log losses; arguments as in `Method.cells`."""
        return log_cells(logits, weight=0.0, floor=self.settings.floor)


METHOD = IgnoreUnobservedNegatives
