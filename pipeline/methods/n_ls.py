"""N-LS: smooth only the assumed absences.

risk = -log p where observed, (1 - e) (-log(1 - p)) + e (-log p) where unknown; mean over B*C. e = eps, or eps / 2 with
``half``.
Source: Zhou et al., "Acknowledging the Unknown for Multi-label Learning with Single Positive Labels", ECCV 2022,
supplement B.2, https://arxiv.org/abs/2203.16219.
Authors' code: none is public.
Published eps: VOC 0.3, COCO 0.1, NUS 0.1, CUB 0.1; chosen among 0.1, 0.2, 0.3.
Guess: e is eps, not eps / 2, as in the code of label smoothing for all labels (Cole et al.); the paper does not say.
Differs: a label known to be absent, which single positives do not tell, is charged without smoothing.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_cells


class Settings(Strict):
    """Settings of N-LS."""

    eps: Annotated[float, Field(ge=0, lt=1)]
    """Share of an assumed absence that smoothing moves."""
    half: bool
    """Whether presence gets only half of that share: target eps / 2."""


class NegativeLabelSmoothing(Method):
    """Assume negative with smoothed absences."""

    Settings = Settings

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief e, weight 1 and log losses; arguments as in `Method.cells`."""
        return log_cells(logits, belief=self.settings.eps / 2 if self.settings.half else self.settings.eps)


METHOD = NegativeLabelSmoothing
