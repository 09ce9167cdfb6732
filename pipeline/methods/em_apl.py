"""EM+APL: EM, then softly label surest absences.

risk = -log p where observed; beta (-s log p - (1 - s) log(1 - p)) where pseudo-labelled with s; -alpha H(p) elsewhere;
mean over B*C. After every epoch e >= T_w, the n_c unknown cells of class c with the lowest p that have no pseudo-label
get s = p, for good, used from e + 1 on; n_c = floor(proportion * unknown cells of c / (epochs - T_w)).
Ablation: ``target: hard`` stores s = 0 instead; with ``positive`` above 0 the floor(positive * unknown cells of c /
(epochs - T_w)) cells with the highest p that are left after that get s = p too, or s = 1 if hard, in the same rounds.
Source: Zhou et al., "Acknowledging the Unknown for Multi-label Learning with Single Positive Labels", ECCV 2022,
Eq. 7-8 and Alg. 1, https://arxiv.org/abs/2203.16219.
Authors' code: Correr-Zhou/SPML-AckTheUnknown @ae1ccaf, main.py (aysmmetric_pseudo_labeling) and losses.py, loss_EM_APL.
Published alpha, beta, T_w of 10 epochs: VOC 0.2, 0.02, 5; COCO 0.1, 0.9, 5; NUS 0.1, 0.2, 4; CUB 0.01, 0.4, 3;
proportion 0.9, target soft, positive 0 on all. ``warmup`` is T_w / 10. Ablation on CUB (Table 3), one at a time:
proportion 0.1; target hard; beta 1; positive 0.1.
Differs: exact log losses of the logit where ``floor`` is 0; theirs is -log(p + 1e-5).
Differs: a pseudo-label is marked by its epoch in ``since``. Theirs is a negative number in the label matrix, so that
p = 0 stays unknown.
Differs: cells are ranked by logit, equal ones by row; they rank p, whose ties at saturation fall as the sort has it.
Differs: predictions are on unflipped images; theirs keep the random flip.
Guess: a positive pseudo-label weighs beta and is soft as a negative one ("in the same way"); no code for it is public.
"""

from fractions import Fraction
from math import floor
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, in_float32, log_absent, log_present, rounded_share
from pipeline.methods.shared.problem import Problem


class Settings(Strict):
    """Settings of EM+APL."""

    alpha: Annotated[float, Field(ge=0)]
    """Weight of the entropy of an unknown cell."""
    beta: Annotated[float, Field(ge=0)]
    """Weight of a pseudo-labelled cell."""
    proportion: Annotated[float, Field(ge=0, le=1)]
    """Share of a class's unknown cells that has a negative pseudo-label after the last epoch."""
    warmup: Annotated[float, Field(ge=0, le=1)]
    """T_w as a fraction of the stage's epochs; rounded, and at least one epoch."""
    target: Literal["soft", "hard"]
    """What a cell is labelled with: p at that moment, or 0 (1 where ``positive``)."""
    positive: Annotated[float, Field(ge=0, le=1)]
    """Share of a class's unknown cells that has a positive pseudo-label after the last epoch: 0 as published."""
    floor: Annotated[float, Field(ge=0, lt=1)]
    """What is added to p inside each logarithm: 1e-5 in the authors' code; 0: nothing, exact."""

    @model_validator(mode="after")
    def _no_cell_is_labelled_twice(self) -> Self:
        if self.proportion + self.positive > 1 + 1e-9:
            raise ValueError(
                f"positive: {self.positive} and proportion: {self.proportion} are more than all unknown cells"
            )
        return self


class AsymmetricPseudoLabelling(Method):
    """EM with pseudo-labels that accumulate.

    `since` holds the epoch at which a cell was labelled, 0 where it is not; `soft` its target; `present` whether the
    label says that the class is there.
    """

    Settings = Settings
    needs = {"epoch_logits"}

    soft: Tensor
    since: Tensor
    present: Tensor

    def __init__(self, settings: Settings, problem: Problem):
        super().__init__(settings, problem)
        shape = (problem.n, len(problem.classes))
        self.register_buffer("soft", torch.zeros(shape, dtype=torch.get_default_dtype()))
        self.register_buffer("since", torch.zeros(shape, dtype=torch.int16))
        self.register_buffer("present", torch.zeros(shape, dtype=torch.bool))

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return EM's cells, or the stored target and beta where labelled; arguments as in `Method.cells`."""
        labelled = self.since[index] > 0
        soft, present = self.soft[index].to(logits.dtype), log_present(logits, self.settings.floor)
        return Cells(
            belief=torch.where(labelled, soft, torch.sigmoid(logits)),
            weight=torch.where(labelled, self.settings.beta, torch.full_like(logits, -self.settings.alpha)),
            l1=present,
            l2=present,
            l3=log_absent(logits, self.settings.floor),
            absence=torch.where(labelled, 1 - soft, torch.sigmoid(-logits)),  # the difference loses its digits
        )

    def end_epoch(self, logits: Tensor, observed: Tensor) -> None:
        """Label the next share of each class, once the warm-up is over.

        Args:
            logits: (N, C) eval-mode logits of the training images, in row order, finite.
            observed: (N, C) int8 labels of the training split.

        Raises:
            ValueError: Another shape than (N, C), or a logit that is not finite.
        """
        super().end_epoch(logits, observed)
        warmup = max(1, rounded_share(self.settings.warmup, self.epochs))
        rounds = self.epochs - warmup
        if self.epoch < warmup or rounds <= 0:
            return
        logits, observed = in_float32(logits.detach()).to(self.soft.device), observed.to(self.soft.device)
        unknown = observed == 0
        pool = unknown & (self.since == 0)
        counts = unknown.sum(0).tolist()
        absent = _lowest(logits, pool, self._share(self.settings.proportion, rounds, counts))
        present = _lowest(-logits, pool & ~absent, self._share(self.settings.positive, rounds, counts))
        soft = torch.sigmoid(logits) if self.settings.target == "soft" else present
        self.soft.copy_(torch.where(absent | present, soft.to(self.soft.dtype), self.soft))
        self.since.masked_fill_(absent | present, self.epoch)
        self.present |= present

    def _share(self, proportion: float, rounds: int, unknown: list[int]) -> Tensor:
        """Return (C,) how many cells of each class one round labels."""
        share = Fraction(str(proportion)) / rounds  # the decimal that was written: 0.9 is nine tenths, exactly
        return torch.tensor([floor(share * count) for count in unknown], device=self.since.device)

    def pseudo_labels(self, logits: Tensor, observed: Tensor, index: Tensor) -> Tensor:
        """Return -1 or 1 on the unknown cells labelled so far; arguments as in `Method.pseudo_labels`."""
        labelled = (self.since[index] > 0) & (observed == 0)
        return torch.where(self.present[index], 1, -1).to(torch.int8) * labelled


def _lowest(values: Tensor, pool: Tensor, counts: Tensor) -> Tensor:
    """Return (N, C) bool: in each column the ``counts`` cells of the pool with the lowest values, equal ones by row."""
    order = values.masked_fill(~pool, torch.inf).argsort(dim=0, stable=True)
    places = torch.arange(len(order), device=pool.device).unsqueeze(1).expand_as(order)
    rank = torch.empty_like(order).scatter_(0, order, places)
    return pool & (rank < counts)


METHOD = AsymmetricPseudoLabelling
