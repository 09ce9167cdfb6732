"""EPR: match the expected number of labels.

loss = mean over B*C of -log p where observed, 0 elsewhere; plus weight ((sum of all p) / B - k)^2 / C^2, k the expected
number of labels of an image: a fact about the full labels, so the method knows the label density.
Source: Cole et al., "Multi-Label Learning from Single Positive Labels", CVPR 2021, https://arxiv.org/abs/2106.09708.
Authors' code: elijahcole/single-positive-multi-label @89152d5, losses.py, loss_epr.
Published: weight 1; k VOC 1.5, COCO 2.9, NUS 1.9, CUB 31.4 (the code's train.py).
Differs: exact log losses of the logit where ``floor`` is 0; theirs is -log(p + 1e-5).
Differs: k is `expected_positives`, which the profiles set to the mean of the training labels (VOC 1.46, COCO 2.94, NUS
1.89), one figure for all methods that know it; the code rounds it.
Differs: anonymous, LASD, 2023, A.2.2 writes a factor lambda, and the positive term as a sum over classes; our weight is
lambda / C then.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_cells
from pipeline.networks.interface import Outputs


class Settings(Strict):
    """Settings of EPR."""

    weight: Annotated[float, Field(ge=0)]
    """Weight of the squared deviation of a batch's label count, which is divided by C^2."""
    floor: Annotated[float, Field(ge=0, lt=1)]
    """What is added to p inside each logarithm: 1e-5 in the authors' code; 0: nothing, exact."""


class ExpectedPositives(Method):
    """Log loss on observed labels, and a count of predicted labels that is right on average over the batch."""

    Settings = Settings
    needs = {"expected_positives"}
    coupled = True

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return weight 0 on unknown cells, and log losses; arguments as in `Method.cells`."""
        return log_cells(logits, weight=0.0, floor=self.settings.floor)

    def forward(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Return `risk` of the known cells and the weighted `count` term; arguments as in `Method.forward`."""
        p = torch.sigmoid(outputs.logits[0])
        excess = (p.sum() / len(p) - self.expected_positives) / p.shape[1]
        return {**super().forward(outputs, observed, index), "count": self.settings.weight * excess**2}


METHOD = ExpectedPositives
