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
Differs: in eval mode the cells are those that the epoch's own batches dropped, which is what audits ask for.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_cells
from pipeline.methods.shared.large_losses import large_losses
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs


class Settings(Strict):
    """Settings of LL-R."""

    delta: Annotated[float, Field(ge=0, le=1)]
    """Share of the batch's cells that each epoch after the first adds to those dropped."""
    arithmetic: Literal["exact", "running"]
    """``running``: the authors' float subtraction, whose k is 1 too high at some whole B*C * delta * (epoch - 1)."""


class LargeLossRejection(Method):
    """Assume negative without the unknown cells that a batch finds hardest.

    `dropped` (N, C) marks the cells that the epoch's batches dropped.
    """

    Settings = Settings
    coupled = True

    dropped: Tensor

    def __init__(self, settings: Settings, problem: Problem):
        super().__init__(settings, problem)
        self.register_buffer("dropped", torch.zeros(problem.n, len(problem.classes), dtype=torch.bool))

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Forget what the epoch before dropped; arguments as in `Method.begin_epoch`."""
        super().begin_epoch(epoch, epochs)
        self.dropped.zero_()

    def _dropped(self, logits: Tensor, observed: Tensor, index: Tensor) -> Tensor:
        """Return a (B, C) mask of the unknown cells that this batch drops or, in eval mode, the epoch's have."""
        if not self.training:
            return self.dropped[index] & (observed == 0)
        steps = max(0, self.epoch - 1)
        return large_losses(logits, observed == 0, self.settings.delta, steps, self.settings.arithmetic)

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief 0, and weight 0 on dropped cells; arguments as in `Method.cells`."""
        return log_cells(logits, weight=(~self._dropped(logits, observed, index)).to(logits.dtype))

    def forward(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Return the mean risk and, while training, note what is dropped; arguments as in `Method.forward`."""
        terms = super().forward(outputs, observed, index)
        if self.training:
            self.dropped[index] = self._dropped(outputs.logits[0], observed, index)
        return terms


METHOD = LargeLossRejection
