"""DRAW: likelihood of the label drawn.

Labels are independent given the image, present with p, and the known present ones are a uniform draw of those present:
    log P = sum of log p where observed + sum of log(1 - p) where known absent
            + log int_0^1 m e^(m - 1) prod over the unknown of (1 - e p) de,    m labels known present, published: one.
Charged as cells whose loss has the gradient of -log P, by Fisher's identity:
    risk = -log p where observed, -b log p - (1 - b) log(1 - p) where unknown, -log(1 - p) where known absent,
    b = mean of (1 - e) p / (1 - e p) over the density of e, without gradient: how likely it is present, given what is
    shown; mean over B*C.
AN is e = 1, EPR without its count e = 0, and GR's calibrated k(p) one fixed e for all images.
Source: ours, 2026; formulas in pipeline/methods/shared/draw_likelihood.py.
Authors' code: this file.
Assumes the published draw, whatever ``simulate`` did: where several are known present, that the draw shows so many; an
image without one, and known absences, tell nothing of the unknown labels, so b = p there.
"""

from dataclasses import replace

from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, log_cells
from pipeline.methods.shared.draw_likelihood import CountDraw, posterior


class Settings(Strict):
    """DRAW has no settings."""


class DrawLikelihood(Method):
    """Log losses towards the posterior of a uniform draw of the labels; needs float64, which MPS lacks."""

    Settings = Settings

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return the posterior belief, weight 1 and log losses; arguments as in `Method.cells`."""
        found = posterior(logits, observed, CountDraw())
        return replace(log_cells(logits, found.belief), absence=found.absence)


METHOD = DrawLikelihood
