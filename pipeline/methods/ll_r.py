"""LL-R: drop the largest unknown losses.

risk = AN's, but 0 on the unknown cells whose loss is among the k largest of the batch, all classes together;
k = ceil(B*C * delta * (epoch - 1)); mean over all B*C cells. The first epoch drops nothing.
Source: Kim et al., "Large Loss Matters in Weakly Supervised Multi-Label Classification", CVPR 2022,
https://arxiv.org/abs/2206.03740.
Authors' code: snucml/LargeLossMatters @5025d16, losses.py and train.py.
Published: delta, here a fraction and theirs percent, VOC 0.002, COCO, NUS and CUB 0.004 (the authors, issue 4 of their
repository); 0.005 on all sets with BoostLU (Kim 2023, youngwk/BridgeGapExplanationPAMC @4a1986c, config.py).
Differs: observed labels are never dropped; theirs are where k exceeds the number of unknown cells.
Differs: cells are ranked by logit, which never ties where the logits do not; theirs by loss. Ties with the k-th are
dropped in both.
"""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_cells
from pipeline.methods.shared.large_losses import large_losses


class Settings(Strict):
    """Settings of LL-R."""

    delta: Annotated[float, Field(ge=0, le=1)]
    """Share of the batch's cells that each epoch after the first adds to those dropped."""
    arithmetic: Literal["exact", "running"]
    """``running``: the authors' float subtraction, whose k is 1 too high at some whole B*C * delta * (epoch - 1)."""


class LargeLossRejection(Method):
    """Assume negative without the unknown cells that a batch finds hardest."""

    Settings = Settings
    coupled = True

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief 0, and weight 0 on the cells dropped from this batch; arguments as in `Method.cells`."""
        steps = max(0, self.epoch - 1)
        dropped = large_losses(logits, observed == 0, self.settings.delta, steps, self.settings.arithmetic)
        return log_cells(logits, weight=(~dropped).to(logits.dtype))


METHOD = LargeLossRejection
