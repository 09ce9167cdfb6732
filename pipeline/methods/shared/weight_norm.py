"""AN plus a norm of the network's weights: shared by L1R and L2R."""

from abc import abstractmethod
from typing import Annotated

from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_cells
from pipeline.networks.interface import Outputs


class Settings(Strict):
    """Settings of a weight penalty."""

    weight: Annotated[float, Field(ge=0)]
    """Weight of the norm, for a loss that is a mean over B*C."""


class WeightNorm(Method):
    """Assume negative plus a norm of the trained weights."""

    Settings = Settings
    needs = {"parameters"}
    coupled = True

    @staticmethod
    @abstractmethod
    def norm(weights: Tensor) -> Tensor:
        """Return the norm of one tensor of weights, a scalar; the norm of the network is their sum."""

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
            name = type(self).__module__.rpartition(".")[2]
            raise ValueError(f"{name} needs the network's trained weights")
        norm = sum(map(self.norm, outputs.parameters), outputs.logits.new_zeros(()))
        return {**super().forward(outputs, observed, index), "norm": self.settings.weight * norm}
