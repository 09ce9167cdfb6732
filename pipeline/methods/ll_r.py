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

from torch import Tensor

from pipeline.methods.shared.cells import Cells, log_cells
from pipeline.methods.shared.large_losses import EpochLargeLosses


class LargeLossRejection(EpochLargeLosses):
    """Assume negative without the unknown cells that a batch finds hardest.

    `dropped` (N, C) marks the cells that the epoch's batches dropped.
    """

    marked = "dropped"

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief 0, and weight 0 on dropped cells; arguments as in `Method.cells`."""
        return log_cells(logits, weight=(~self.mark(logits, observed, index)).to(logits.dtype))


METHOD = LargeLossRejection
