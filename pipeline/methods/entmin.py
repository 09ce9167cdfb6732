"""EntMin: push unknown labels to be certain.

risk = -log p where observed, weight H(p) where unknown, H(p) = -p log p - (1 - p) log(1 - p); mean over B*C. This is
the cell of EM with the opposite sign: the gradient of an unknown cell is -weight z p (1 - p), away from 0.
Source: Zhou et al., "Acknowledging the Unknown for Multi-label Learning with Single Positive Labels", ECCV 2022,
supplement B.2, after Grandvalet and Bengio's entropy minimisation, https://arxiv.org/abs/2203.16219.
Authors' code: none is public.
Published weight: VOC 0.01, COCO 0.9, NUS 0.4, CUB 0.4; chosen among 0.01, 0.02, 0.1, 0.2, 0.4, 0.9.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_cells_of


class Settings(Strict):
    """Settings of EntMin."""

    weight: Annotated[float, Field(ge=0)]
    """Weight of the entropy of an unknown cell."""


class EntropyMinimisation(Method):
    """Entropy minimisation of the unknown cells."""

    Settings = Settings

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief p, with its gradient, and the constant weight; arguments as in `Method.cells`."""
        return log_cells_of(logits, logits, self.settings.weight)


METHOD = EntropyMinimisation
