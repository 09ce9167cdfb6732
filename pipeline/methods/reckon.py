"""Reckon: undecided, pulled towards believed labels.

risk = -log p where observed, weight (p - B) z where unknown, -log(1 - p) where known absent; mean over B*C.
B = how likely the label is present given what is shown (stage beliefs), by fits that did not see the image's labels.
(p - B) z is the log loss towards B less the entropy of p: EM's loss, whose unknown labels are undecided, and a pull of
equal weight. It charges nothing but confidence that the beliefs do not share.
Source: ours, 2026; docs/without-truth.md.
Authors' code: this file.
Assumes the label draw that ``beliefs.draw`` names, whatever ``simulate`` did.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_absent, log_cells


class Settings(Strict):
    """Settings of Reckon."""

    weight: Annotated[float, Field(gt=0)]
    """Weight of an unknown cell."""


class Reckon(Method):
    """Entropy maximisation with a pull towards stored beliefs; the loss may be negative."""

    Settings = Settings
    needs = frozenset({"beliefs"})

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return the stored beliefs B, the weight, and losses that add up to (p - B) z; arguments as in `Method.cells`.

        The losses of an unknown cell are z (p - 1) taken as present and z p taken as absent; a known one pays log loss.
        """
        belief = self.beliefs[index.to(self.beliefs.device)].to(logits)
        known = log_cells(logits, belief, self.settings.weight)
        absent = torch.where(observed == -1, log_absent(logits), logits * torch.sigmoid(logits))
        return Cells(belief, known.weight, l1=known.l1, l2=-logits * torch.sigmoid(-logits), l3=absent)


METHOD = Reckon
