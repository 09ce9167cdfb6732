"""LL-Cp: correct the largest unknown losses, permanently.

risk = -log p where observed or corrected, -log(1 - p) elsewhere; mean over B*C. Each batch from the second epoch on
corrects the unknown cells whose loss is among its k = ceil(B*C * delta) largest, all classes together; they count as
present in that step and in every later one, and are no longer ranked.
Source: Kim et al., "Large Loss Matters in Weakly Supervised Multi-Label Classification", CVPR 2022,
https://arxiv.org/abs/2206.03740.
Authors' code: snucml/LargeLossMatters @5025d16, losses.py and train.py.
Published: delta, here a fraction and theirs percent, VOC 0.001, COCO, NUS and CUB 0.002 (the authors, issue 4 of their
repository); 0.001 on all sets with BoostLU (Kim 2023, youngwk/BridgeGapExplanationPAMC @4a1986c, config.py).
Differs: all cells at or above the k-th loss are kept corrected, as in BoostLU's code. Theirs keeps those above it, none
at k = 1, and from its command line runs LL-Ct instead; published numbers may come from either.
Differs: observed labels stay as they are; theirs are inverted where k exceeds the number of unknown cells.
Differs: cells are ranked by logit, which never ties where the logits do not; theirs by loss.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.cells import Cells, log_cells
from pipeline.methods.shared.large_losses import LargeLosses, large_losses


class Settings(Strict):
    """Settings of LL-Cp."""

    delta: Annotated[float, Field(ge=0, le=1)]
    """Share of the cells of a batch that it corrects, in every epoch after the first."""


class PermanentLargeLossCorrection(LargeLosses):
    """Assume negative, with corrections that accumulate; `corrected` (N, C) marks the cells corrected for good."""

    Settings = Settings
    marked = "corrected"

    def mark(self, logits: Tensor, observed: Tensor, index: Tensor) -> Tensor:
        """Return a (B, C) mask of the unknown cells corrected before this batch or, while training, by it."""
        kept = self.held(observed, index)
        if not self.training:
            return kept
        steps = int(self.epoch > 1)  # the share does not grow
        return kept | large_losses(logits, (observed == 0) & ~kept, self.settings.delta, steps, "exact")

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief 1 on cells corrected before or, in training mode, by this batch; as in `Method.cells`."""
        return log_cells(logits, belief=self.mark(logits, observed, index).to(logits.dtype))

    def pseudo_labels(self, logits: Tensor, observed: Tensor, index: Tensor) -> Tensor:
        """Return 1 on the unknown cells corrected for good so far; arguments as in `Method.pseudo_labels`."""
        return self.held(observed, index).to(torch.int8)


METHOD = PermanentLargeLossCorrection
