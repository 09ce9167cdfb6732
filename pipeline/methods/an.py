"""AN: unknown means absent.

risk = -log p where observed, -log(1 - p) elsewhere; mean over B*C.
Source: Cole et al., "Multi-Label Learning from Single Positive Labels", CVPR 2021, https://arxiv.org/abs/2106.09708.
Authors' code: elijahcole/single-positive-multi-label @89152d5, losses.py, loss_an.
Differs: exact log losses of the logit where ``floor`` is 0; theirs is -log(p + 1e-5), whose gradient fades on a label
missed by far.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_cells


class Settings(Strict):
    """Settings of AN."""

    floor: Annotated[float, Field(ge=0, lt=1)]
    """What is added to p inside each logarithm: 1e-5 in the authors' code; 0: nothing, exact."""


class AssumeNegative(Method):
    """Binary cross-entropy with unknown taken as absent."""

    Settings = Settings

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief 0, weight 1 and log losses; arguments as in `Method.cells`."""
        return log_cells(logits, floor=self.settings.floor)


METHOD = AssumeNegative
