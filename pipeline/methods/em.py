"""EM: keep unknown labels undecided.

risk = -log p where observed, -alpha H(p) where unknown, H(p) = -p log p - (1 - p) log(1 - p); mean over B*C.
Source: Zhou et al., "Acknowledging the Unknown for Multi-label Learning with Single Positive Labels", ECCV 2022,
Eq. 3-4, https://arxiv.org/abs/2203.16219.
Authors' code: Correr-Zhou/SPML-AckTheUnknown @ae1ccaf, losses.py, loss_EM.
Published alpha: VOC 0.2, COCO 0.1, NUS 0.1, CUB 0.01.
Differs: exact log losses of the logit where ``floor`` is 0; theirs is -log(p + 1e-5).
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_cells_of


class Settings(Strict):
    """Settings of EM."""

    alpha: Annotated[float, Field(ge=0)]
    """Weight of the entropy of an unknown cell."""
    floor: Annotated[float, Field(ge=0, lt=1)]
    """What is added to p inside each logarithm: 1e-5 in the authors' code; 0: nothing, exact."""


class EntropyMaximisation(Method):
    """Entropy maximisation; the loss may be negative, down to -alpha log 2 a cell."""

    Settings = Settings

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief p, with its gradient, and weight -alpha; arguments as in `Method.cells`."""
        return log_cells_of(logits, logits, -self.settings.alpha, self.settings.floor)


METHOD = EntropyMaximisation
