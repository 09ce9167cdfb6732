"""PLC: strong view follows sure weak view.

loss = AN(weak) + weight_plc * PLC; PLC is the log loss of the strong view on sure cells, with hard targets:
code: t = p_weak + observed, present where t >= threshold, absent where t < 1 - threshold, mean over those cells;
paper (Eq. 4): unknown cells only, p_weak >= threshold or p_weak <= 1 - threshold, sum over the number of images.
Source: Xie et al., "Label-Aware Global Consistency for Multi-Label Learning with Single Positive Labels", NeurIPS 2022,
Eq. 2 and 4.
Authors' code: milkxie/SPML-LAC @a630052, first_stage.py.
Published: threshold COCO 0.6, CUB 0.5, elsewhere unpublished (searched over 0.5 to 0.9); weight_plc 1; form code.
Differs: images are normalised as the backbone's pretraining did; theirs are not.
Differs: half precision is promoted; theirs thresholds half-precision probabilities under autocast.
Guess: both views go through one forward pass, so that batch norm, where it is trained, takes its statistics of the two
together; the published recipe freezes it.
"""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, assume_negative
from pipeline.methods.shared.consistency import confident_labels, consistency, consistency_cells
from pipeline.networks.interface import Outputs


class Settings(Strict):
    """Settings of PLC."""

    threshold: Annotated[float, Field(ge=0.5, le=1)]
    """Probability from which the weak view is sure of a label."""
    form: Literal["code", "paper"]
    """Which cells take part, and what the sum is divided by."""
    weight_plc: Annotated[float, Field(ge=0)]
    """Weight of the consistency term."""


class PseudoLabelConsistency(Method):
    """Assume negative plus consistency of two views."""

    Settings = Settings
    views = ("weak", "strong")
    coupled = True

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return the consistency term's cells at weak logits; arguments as in `Method.cells`."""
        return consistency_cells(logits, observed, self.settings.threshold, self.settings.form)

    def forward(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Return `an` on the weak view and `plc` on the strong one; arguments as in `Method.forward`."""
        weak, strong = outputs.logits
        plc = consistency(weak, strong, observed, self.settings.threshold, self.settings.form)
        return {"an": assume_negative(weak, observed).mean(), "plc": self.settings.weight_plc * plc}

    def pseudo_labels(self, logits: Tensor, observed: Tensor, index: Tensor) -> Tensor:
        """Return the labels that these logits are sure of; arguments as in `Method.pseudo_labels`."""
        return confident_labels(logits, observed, self.settings.threshold, self.settings.form)


METHOD = PseudoLabelConsistency
