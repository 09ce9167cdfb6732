"""What a method remembers of past epochs' predictions: shared by EN, CL and SCL."""

from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor, nn

from pipeline.methods.shared.cells import Cells, log_cells, rounded_share


class PastPredictions(nn.Module):
    """Moving average over epochs of what was predicted for each training cell, and the negatives expected by it.

    While an epoch runs, ``average`` (N, C) and ``seen`` (N,) tell of the epochs before it; what it predicts itself
    waits in ``latest`` (N, C), for the rows ``met`` (N,), until `renew`. ``negatives`` (N, C) marks the expected
    negatives in force, known cells among them. Source: Verelst et al. 2023, as quoted in Chen et al. 2024, Eq. 20.

    The N images have k N labels in all. If the m observed ones are a fair sample of them, class c has its share n_c / m
    of them too, so N_c = k N n_c / m positives: k n_c where every image has one observed label, and as many however
    many labels are observed.

    Args:
        observed_counts: (C,) int64 observed positives n_c of each class.
        per_image: k, labels per image; class c has N_c = k N n_c / m positives, rounded, at most N.
        n: N, training images.
        decay: Share of the average that an epoch leaves, in [0, 1).
        first: Unknown cells until there is an average: ``assume_negative``, all of them; ``positives_only``, none.
    """

    average: Tensor
    latest: Tensor
    seen: Tensor
    met: Tensor
    negatives: Tensor
    expected: Tensor
    absent: Tensor

    def __init__(
        self,
        observed_counts: Tensor,
        per_image: float,
        n: int,
        decay: float,
        first: Literal["assume_negative", "positives_only"],
    ) -> None:
        super().__init__()
        self.decay = decay
        counts: list[int] = observed_counts.tolist()
        m = max(sum(counts), 1)
        expected = [min(n, rounded_share(per_image, Fraction(n * count, m))) for count in counts]
        self.register_buffer("expected", torch.tensor(expected), persistent=False)
        for name in ("average", "latest"):
            self.register_buffer(name, torch.zeros(n, len(expected), dtype=torch.get_default_dtype()))
        for name in ("seen", "met"):
            self.register_buffer(name, torch.zeros(n, dtype=torch.bool))
        self.register_buffer("negatives", torch.full((n, len(expected)), first == "assume_negative"))
        self.register_buffer("absent", torch.zeros(n, len(expected), dtype=torch.bool), persistent=False)

    def begin(self, observed: Tensor) -> None:
        """Note the known absences, which are negatives whatever is predicted, before the first epoch of a run.

        Args:
            observed: (N, C) labels: 1 present, 0 unknown, -1 absent.
        """
        self.absent.copy_(observed == -1)

    def renew(self) -> None:
        """Take the epoch that has ended into the average, and choose the negatives of the next one.

        Of class c they are the N - N_c images with the lowest average; equal ones go by row, and an image that no epoch
        has met yet is the last to be chosen. An image known to lack the class is among the first: it holds no place of
        an expected positive. A row that the epoch left out keeps its average.
        """
        known, met = self.seen.unsqueeze(1), self.met.unsqueeze(1)
        renewed = torch.where(known, torch.lerp(self.latest, self.average, self.decay), self.latest)
        self.average.copy_(torch.where(met, renewed, self.average))
        self.seen |= self.met
        self.met.zero_()
        if self.seen.any():
            ranked = self.average.masked_fill(~self.seen.unsqueeze(1), torch.inf).masked_fill(self.absent, -torch.inf)
            order = ranked.argsort(dim=0, stable=True)
            places = torch.arange(len(order), device=order.device).unsqueeze(1).expand_as(order)
            rank = torch.empty_like(order).scatter_(0, order, places)  # (N, C), 0 for the lowest average
            self.negatives.copy_(rank < len(order) - self.expected)

    @torch.no_grad()
    def note(self, logits: Tensor, index: Tensor) -> None:
        """Keep what is predicted now for the next `renew`.

        Args:
            logits: (B, C) logits; no gradient is kept.
            index: (B,) rows.
        """
        self.latest[index] = torch.sigmoid(logits).to(self.latest.dtype)
        self.met[index] = True

    def cells(self, logits: Tensor, index: Tensor) -> Cells:
        """Answer for cells: charge unknown ones as absent where they are expected negatives, and not at all elsewhere.

        Args:
            logits: (B, C) logits.
            index: (B,) rows.

        Returns:
            Belief 0, weight 1 on expected negatives and 0 elsewhere, log losses.
        """
        return log_cells(logits, weight=self.negatives[index].to(logits.dtype))

    def labels(self, observed: Tensor, index: Tensor) -> Tensor:
        """Label the unknown cells that are expected negatives; none until there is an average.

        Args:
            observed: (B, C) labels: 1 present, 0 unknown, -1 absent.
            index: (B,) rows.

        Returns:
            (B, C) int8: -1 absent, 0 none and on every known cell.
        """
        return -(self.negatives[index] & (observed == 0) & self.seen.any()).to(torch.int8)
