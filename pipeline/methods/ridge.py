"""Ridge: closed-form fits on believed labels.

Linear head: ridge regression on targets, at first the known labels, then what the fit before makes the draw's
likelihood believe of the unknown ones; the last of ``beliefs.fits`` fits, as the stage beliefs has it. On images the
network is trained towards these beliefs:
    risk = -log p where observed, -B log p - (1 - B) log(1 - p) where unknown, -log(1 - p) where known absent,
    B = how likely the label is present given what is shown, by fits that did not see the image's labels; mean over B*C.
Source: ours, 2026; the fits in pipeline/training/beliefs.py.
Authors' code: this file.
Assumes the label draw that ``beliefs.draw`` names, whatever ``simulate`` did.
"""

from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_cells


class Settings(Strict):
    """Ridge has no settings of its own: its fits are those of the stage beliefs."""


class Ridge(Method):
    """Log losses towards the beliefs of closed-form fits."""

    Settings = Settings
    needs = frozenset({"beliefs"})
    closed_form = True

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return the stored beliefs, weight 1 and log losses; arguments as in `Method.cells`."""
        return log_cells(logits, self.beliefs[index.to(self.beliefs.device)].to(logits))


METHOD = Ridge
