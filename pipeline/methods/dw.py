"""DW: assumed absences count for less.

risk = -log p where observed, -weight log(1 - p) where unknown; mean over B*C.
Source: Zhou et al., "Acknowledging the Unknown for Multi-label Learning with Single Positive Labels", ECCV 2022,
supplement B.2, https://arxiv.org/abs/2203.16219.
Authors' code: none is public.
Published weight: VOC 0.1, COCO 0.1, NUS 0.1, CUB 0.02; chosen among 0.01, 0.02, 0.1, 0.2, 0.4, 0.9.
Differs: a label known to be absent, which single positives do not tell, counts in full.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_cells


class Settings(Strict):
    """Settings of DW."""

    weight: Annotated[float, Field(ge=0)]
    """Weight of an unknown cell; 1 is AN."""


class DownWeighting(Method):
    """Assume negative, with unknown cells weighted by a constant."""

    Settings = Settings

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief 0, the constant weight and log losses; arguments as in `Method.cells`."""
        return log_cells(logits, weight=self.settings.weight)


METHOD = DownWeighting
