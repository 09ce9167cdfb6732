"""WAN: assumed absences share one label's weight.

risk = -log p where observed, -w log(1 - p) where unknown; mean over B*C. ``weight``: w is 1 / (C - 1) (published), or
m / u for an image with m labels known present and u unknown, at most 1 (balanced): its assumed absences weigh as much
together as its known labels. Where one label is known, as in the papers, both are the same.
Source: Cole et al., "Multi-Label Learning from Single Positive Labels", CVPR 2021, https://arxiv.org/abs/2106.09708.
Authors' code: elijahcole/single-positive-multi-label @89152d5, losses.py, loss_wan.
Published weight, 1 / (C - 1): VOC 1/19, COCO 1/79, NUS 1/80, CUB 1/311.
Differs: exact log losses of the logit where ``floor`` is 0; theirs is -log(p + 1e-5).
Differs: ``balanced`` is ours. Without a known present label m is 1 and u one less, so that an image of which nothing is
known weighs 1 / (C - 1) as published.
Differs: a label known to be absent, which single positives do not tell, counts in full, and is not one of the u.
"""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from pipeline.core.errors import ConfigError
from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, assumed_weight, log_cells
from pipeline.methods.shared.problem import Problem


class Settings(Strict):
    """Settings of WAN."""

    weight: Literal["published", "balanced"]
    """Weight of an unknown cell: 1 / (C - 1), or m / u by what is known of its image."""

    floor: Annotated[float, Field(ge=0, lt=1)]
    """What is added to p inside each logarithm: 1e-5 in the authors' code; 0: nothing, exact."""


class WeakAssumeNegative(Method):
    """Assume negative, with the unknown cells of an image weighted down to about one label."""

    Settings = Settings

    def __init__(self, settings: Settings, problem: Problem):
        if len(problem.classes) < 2:
            raise ConfigError(f"methods.wan: 1 / (C - 1) needs two classes or more, found {len(problem.classes)}")
        super().__init__(settings, problem)

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief 0, the weight of each image and log losses; arguments as in `Method.cells`."""
        weight = assumed_weight(observed, logits.dtype, self.settings.weight)
        return log_cells(logits, weight=weight, floor=self.settings.floor)


METHOD = WeakAssumeNegative
