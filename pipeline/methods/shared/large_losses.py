"""Which unknown cells a batch finds hardest: shared by the three large-loss methods."""

from fractions import Fraction
from math import ceil
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs


class Settings(Strict):
    """Settings of a share that grows by the epoch."""

    delta: Annotated[float, Field(ge=0, le=1)]
    """Share of the batch's cells that each epoch after the first adds to those with the largest losses."""
    arithmetic: Literal["exact", "running"]
    """``running``: the authors' float subtraction, whose k is 1 too high at some whole B*C * delta * (epoch - 1)."""


class LargeLosses(Method):
    """A method that marks the unknown cells which a batch finds hardest; `marked` names its (N, C) buffer of them."""

    marked: ClassVar[str]
    coupled = True

    def __init__(self, settings: Any, problem: Problem):
        super().__init__(settings, problem)
        self.register_buffer(self.marked, torch.zeros(problem.n, len(problem.classes), dtype=torch.bool))

    def mark(self, logits: Tensor, observed: Tensor, index: Tensor) -> Tensor:
        """Find the cells of a batch; arguments as in `Method.cells`.

        Returns:
            (B, C) booleans: those of this batch or, in eval mode, those that the buffer holds.
        """
        if not self.training:
            return self.held(observed, index)
        steps = max(0, self.epoch - 1)
        return large_losses(logits, observed == 0, self.settings.delta, steps, self.settings.arithmetic)

    def held(self, observed: Tensor, index: Tensor) -> Tensor:
        """Return the (B, C) unknown cells that the buffer holds; arguments as in `Method.cells`."""
        return self.get_buffer(self.marked)[index] & (observed == 0)

    def forward(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Return the mean risk and, while training, note the cells; arguments as in `Method.forward`."""
        terms = super().forward(outputs, observed, index)
        if self.training:
            self.get_buffer(self.marked)[index] = self.mark(outputs.logits[0], observed, index)
        return terms


class EpochLargeLosses(LargeLosses):
    """One that forgets them at the next epoch, and whose share grows by the epoch."""

    Settings = Settings

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Forget the cells of the epoch before; arguments as in `Method.begin_epoch`."""
        super().begin_epoch(epoch, epochs)
        self.get_buffer(self.marked).zero_()


def large_losses(
    logits: Tensor, unknown: Tensor, delta: float, steps: int, arithmetic: Literal["exact", "running"]
) -> Tensor:
    """Find the unknown cells whose loss as absent is among the k largest of a batch (Kim 2022).

    Args:
        logits: (B, C) logits; they rank as the losses do, and no gradient is kept.
        unknown: (B, C) booleans, the cells that are ranked, all classes together.
        delta: Share of the B*C cells that a step adds, in [0, 1].
        steps: How many steps have been made, at least 0.
        arithmetic: ``exact``: k = ceil(B*C * steps * delta), delta being the decimal that it prints as; ``running``: as
            the authors' code, which takes delta from 1 in floats, step by step, and may round k one too high.

    Returns:
        (B, C) booleans: unknown cells whose logit is at least the k-th largest, so that ties may exceed k; all of them
        where they are fewer than k, and none where k is 0.
    """
    share: Fraction | float = steps * Fraction(str(delta))
    if arithmetic == "running":
        kept = 1.0
        for _ in range(steps):
            kept -= float(100 * Fraction(str(delta))) / 100  # theirs is given in percent
        share = 1 - kept
    ranked = logits.detach()[unknown]
    k = min(ceil(logits.numel() * share), len(ranked))
    if k == 0:
        return torch.zeros_like(unknown)
    return unknown & (logits.detach() >= ranked.topk(k).values[-1])
