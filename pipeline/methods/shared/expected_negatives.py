"""Observed positives against the negatives that past epochs lead to expect: EN, and what CL and SCL add a term to."""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells
from pipeline.methods.shared.past import PastPredictions
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs


class Settings(Strict):
    """Settings of EN."""

    decay: Annotated[float, Field(ge=0, lt=1)]
    """Share of the average that an epoch leaves."""
    first: Literal["assume_negative", "positives_only"]
    """Unknown cells of the first epoch: all negative, or none."""


class ConsistencySettings(Settings):
    """Settings of EN with a consistency term."""

    distance: Literal["squared", "absolute"]
    """How the distance of a prediction to past ones is charged."""
    weight_consistency: Annotated[float, Field(ge=0)]
    """Weight of the consistency term."""


class ExpectedNegatives(Method):
    """Observed positives against expected negatives; `past` holds averages and the negatives in force."""

    Settings = Settings
    needs = {"expected_positives"}

    def __init__(self, settings: Settings, problem: Problem):
        super().__init__(settings, problem)
        known = (problem.observed_counts, self.expected_positives, problem.n)
        self.past = PastPredictions(*known, settings.decay, settings.first)

    def begin_training(self, observed: Tensor) -> None:
        """Note the known absences; arguments as in `Method.begin_training`."""
        self.past.begin(observed)

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Choose the epoch's expected negatives; arguments as in `Method.begin_epoch`."""
        super().begin_epoch(epoch, epochs)
        self.past.renew()

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief 0, weight 1 on expected negatives, and log losses; arguments as in `Method.cells`."""
        return self.past.cells(logits, index)

    def forward(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Return the mean risk and, while training, keep the predictions; arguments as in `Method.forward`."""
        if self.training:
            self.past.note(outputs.logits[0], index)
        return super().forward(outputs, observed, index)

    def pseudo_labels(self, logits: Tensor, observed: Tensor, index: Tensor) -> Tensor:
        """Return -1 on the unknown cells that are expected negatives now; arguments as in `Method.pseudo_labels`."""
        return self.past.labels(observed, index)
