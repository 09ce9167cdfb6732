"""Ridge, full labels: oracle, every label known, closed form.

Linear head: ridge regression on all labels, its penalty by the average precision of left-out scores; cells whose truth
nobody knows (coded 0) are fitted as the fit before believes them, in three fits. On images it is
FULL without smoothing: risk = -log p on present labels, -log(1 - p) on absent ones; mean over B*C.
Source: ours, 2026; the fit in pipeline/training/beliefs.py.
Authors' code: this file.
"""

from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_cells


class Settings(Strict):
    """Ridge with full labels has no settings."""


class RidgeFull(Method):
    """Binary cross-entropy on what is known; a cell whose truth nobody knows (coded 0) is left out."""

    Settings = Settings
    labels = "all"
    closed_form = True

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return log losses, and weight 0 for cells that are not known; arguments as in `Method.cells`."""
        return log_cells(logits, weight=(logits * 0).detach())


METHOD = RidgeFull
