"""L2R: AN plus an L2 weight penalty.

loss = AN + weight * sum w^2, w over the trained weights of head and backbone; AN is its mean over B*C.
Source: Zhou et al., "Acknowledging the Unknown for Multi-label Learning with Single Positive Labels", ECCV 2022,
supplement B.2, https://arxiv.org/abs/2203.16219.
Authors' code: none is public.
Published weight: VOC 1e-6, COCO 1e-7, NUS 1e-6, CUB 1e-8; chosen among 1e-9, 1e-8, 1e-7, 1e-6, 1e-5.
Guess: which parameters and which form of the norm. The paper names neither; our reading is the norm of head and
backbone weights, biases and norm layers left out, squared and summed over weights without a factor 1/2, added to the
loss.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_cells
from pipeline.networks.interface import Outputs


class Settings(Strict):
    """Settings of L2R."""

    weight: Annotated[float, Field(ge=0)]
    """Weight of the norm, for a loss that is a mean over B*C."""


class L2Regularised(Method):
    """Assume negative plus the squared L2 norm of the trained weights."""

    Settings = Settings
    needs = {"parameters"}
    coupled = True

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return AN's cells: belief 0, weight 1 and log losses; arguments as in `Method.cells`."""
        return log_cells(logits)

    def forward(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Return AN's `risk` and the weighted `norm`.

        Args:
            outputs: Logits and trained weights; no weights at all, where everything is frozen, have norm 0.
            observed: (B, C) int8 labels.
            index: (B,) int64 rows of the training split.

        Returns:
            The two terms.

        Raises:
            ValueError: The weights are missing.
        """
        if outputs.parameters is None:
            raise ValueError("l2r needs the network's trained weights")
        norm = sum((value.square().sum() for value in outputs.parameters), outputs.logits.new_zeros(()))
        return {**super().forward(outputs, observed, index), "norm": self.settings.weight * norm}


METHOD = L2Regularised
