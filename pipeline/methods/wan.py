"""WAN: assumed absences share one label's weight.

risk = -log p where observed, -log(1 - p) / (C - 1) where unknown; mean over B*C.
Source: Cole et al., "Multi-Label Learning from Single Positive Labels", CVPR 2021, https://arxiv.org/abs/2106.09708.
Authors' code: elijahcole/single-positive-multi-label @89152d5, losses.py, loss_wan.
Published weight, by its formula: VOC 1/19, COCO 1/79, NUS 1/80, CUB 1/311.
Differs: exact log losses of the logit where ``floor`` is 0; theirs is -log(p + 1e-5).
Differs: a label known to be absent, which single positives never hold, counts in full.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from pipeline.batch import Problem
from pipeline.cells import Cells, log_cells
from pipeline.config import ConfigError, Strict
from pipeline.methods.base import Method


class Settings(Strict):
    """Settings of WAN; its weight follows from the number of classes."""

    floor: Annotated[float, Field(ge=0, lt=1)]
    """What is added to p inside each logarithm: 1e-5 in the authors' code; 0: nothing, exact."""


class WeakAssumeNegative(Method):
    """Assume negative, with unknown cells weighted 1 / (C - 1)."""

    Settings = Settings

    def __init__(self, settings: Settings, problem: Problem):
        if len(problem.classes) < 2:
            raise ConfigError(f"methods.wan: 1 / (C - 1) needs two classes or more, found {len(problem.classes)}")
        super().__init__(settings, problem)

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief 0, weight 1 / (C - 1) and log losses; arguments as in `Method.cells`."""
        return log_cells(logits, weight=1 / (len(self.problem.classes) - 1), floor=self.settings.floor)


METHOD = WeakAssumeNegative
