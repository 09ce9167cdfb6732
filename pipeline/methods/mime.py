"""MIME: keep confident positives under a bottleneck.

loss = AN on the current labels + beta * KL; AN is the mean over B*C of -log p where observed or corrected and of
-log(1 - p) elsewhere; KL is the mean over B*C*D of (mu^2 + std^2 - 1) / 2 - log std, from N(mu, std^2) to N(0, 1), with
the head's log std = clamp(raw / 2, -6, 6). After every epoch e >= T_w, each unknown cell with p > theta counts as
present, for good, from e + 1 on.
Source: Liu et al., "Revisiting Pseudo-Label for Single-Positive Multi-Label Learning", ICML 2023,
https://proceedings.mlr.press/v202/liu23ar.html.
Authors' code: palm-biaoliu/mime @06e15de, train_mime.py and utils/losses.py, loss_VIB.
Published: theta 0.95 and beta 1e-4 on all; T_w of 10 epochs: VOC, COCO and NUS 2, CUB 5. ``warmup`` is T_w / 10.
Differs: exact log losses of the logit; theirs is -log(p + 1e-5), which ``floor`` 1e-5 gives.
Differs: predictions are the expected logits of all training images, unflipped. Theirs come from ten samples of z and
keep the random flip; each pass leaves out the images that do not fill a batch.
Differs: a corrected cell is marked by its epoch in ``corrected``; theirs is written into the label matrix.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, in_float32, log_cells, rounded_share
from pipeline.methods.shared.problem import Problem
from pipeline.networks.bottleneck import log_deviation
from pipeline.networks.interface import Outputs


class Settings(Strict):
    """Settings of MIME."""

    theta: Annotated[float, Field(ge=0, le=1)]
    """Probability above which an unknown cell becomes present; 1: none does."""
    beta: Annotated[float, Field(ge=0)]
    """Weight of the divergence of the bottleneck from a standard normal."""
    warmup: Annotated[float, Field(ge=0, le=1)]
    """T_w as a fraction of the stage's epochs, rounded."""
    floor: Annotated[float, Field(ge=0, lt=1)]
    """What the authors' code adds to p inside each logarithm; 0: nothing, exact."""


class ConfidentPositives(Method):
    """AN with positives that accumulate; cells are corrected by the epoch in `corrected`, 0 where they are not."""

    Settings = Settings
    needs = {"posterior", "epoch_logits"}
    coupled = True

    corrected: Tensor

    def __init__(self, settings: Settings, problem: Problem):
        super().__init__(settings, problem)
        self.register_buffer("corrected", torch.zeros(problem.n, len(problem.classes), dtype=torch.int16))

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return belief 1 where corrected and 0 elsewhere, weight 1 and log losses; arguments as in `Method.cells`."""
        belief = (self.corrected[index] > 0).to(logits.dtype)
        return log_cells(logits, belief, floor=self.settings.floor)

    def forward(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Return `risk`, and `kl` with its weight.

        Args:
            outputs: Logits and posterior of one view.
            observed: (B, C) int8 labels.
            index: (B,) int64 rows of the training split.

        Returns:
            Both terms.

        Raises:
            ValueError: The head has no bottleneck.
        """
        if outputs.posterior is None:
            raise ValueError("mime needs the posterior of a bottleneck")
        mean, raw = outputs.posterior[0].unbind(-2)  # (B, C, D) each
        scale = log_deviation(raw)
        divergence = (mean**2 + torch.expm1(2 * scale)) / 2 - scale
        return {**super().forward(outputs, observed, index), "kl": self.settings.beta * divergence.mean()}

    def end_epoch(self, logits: Tensor, observed: Tensor) -> None:
        """Correct the unknown cells that are sure, once the warm-up is over; arguments as in `Method.end_epoch`."""
        super().end_epoch(logits, observed)
        if self.epoch < rounded_share(self.settings.warmup, self.epochs):
            return
        sure = (torch.sigmoid(in_float32(logits.detach())) > self.settings.theta) & (observed == 0)
        self.corrected.masked_fill_(sure.to(self.corrected.device) & (self.corrected == 0), self.epoch)

    def pseudo_labels(self, logits: Tensor, observed: Tensor, index: Tensor) -> Tensor:
        """Return 1 on the unknown cells corrected so far; arguments as in `Method.pseudo_labels`."""
        return ((self.corrected[index] > 0) & (observed == 0)).to(torch.int8)


METHOD = ConfidentPositives
