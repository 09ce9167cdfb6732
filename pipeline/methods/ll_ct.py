"""LL-Ct: correct the largest unknown losses, temporarily.

risk = AN's, but -log p on the unknown cells whose loss is among the k largest of the batch, all classes together;
k = ceil(B*C * delta * (epoch - 1)); mean over B*C. The first epoch corrects nothing; a correction lasts one step.
Source: Kim et al., "Large Loss Matters in Weakly Supervised Multi-Label Classification", CVPR 2022,
https://arxiv.org/abs/2206.03740.
Authors' code: snucml/LargeLossMatters @5025d16, losses.py and train.py.
Published: delta, here a fraction and theirs percent, VOC, COCO and NUS 0.002, CUB 0.004 (the authors, issue 4 of their
repository); 0.002 on all sets with BoostLU (Kim 2023, youngwk/BridgeGapExplanationPAMC @4a1986c, config.py).
Differs: observed labels stay as they are; theirs are inverted where k exceeds the number of unknown cells.
Differs: cells are ranked by logit, which never ties where the logits do not; theirs by loss. Ties with the k-th are
corrected in both.
Differs: in eval mode the cells are those that the epoch's own batches corrected, which is what audits ask for.
"""

import torch
from torch import Tensor

from pipeline.methods.shared.cells import Cells, log_cells
from pipeline.methods.shared.large_losses import EpochLargeLosses


class LargeLossCorrection(EpochLargeLosses):
    """Assume negative, with the unknown cells that a batch finds hardest taken as present.

    `corrected` (N, C) marks the cells that the epoch's batches corrected.
    """

    marked = "corrected"

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief 1 on corrected cells, and weight 1; arguments as in `Method.cells`."""
        return log_cells(logits, belief=self.mark(logits, observed, index).to(logits.dtype))

    def pseudo_labels(self, logits: Tensor, observed: Tensor, index: Tensor) -> Tensor:
        """Return 1 on the cells that the epoch's batches corrected; arguments as in `Method.pseudo_labels`."""
        return self.held(observed, index).to(torch.int8)


METHOD = LargeLossCorrection
