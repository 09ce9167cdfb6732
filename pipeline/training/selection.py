"""Choice of learning rate and epoch where nobody has the truth: ``select: auto``.

A choice is judged by how well it ranks the labels that were shown of images that it was not trained on: the chance that
a shown positive outranks another image in its class, each weighted by the labels that its image is expected to have
(`audits.unlabelled`). Such a judge is noisy, and the best of many by a noisy judge looks better than it is. So the best
is taken only where a bootstrap over images tells it from the fixed recipe, which is the middle rate and the last epoch,
by an interval that holds for all that were tried together; elsewhere the fixed recipe is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pipeline.audits import unlabelled
from pipeline.core import seeds
from pipeline.labels.groups import deal_folds

FOLDS = 3
"""Parts of the training images; each is scored by a head that the other parts trained."""
BOOTSTRAPS = 200


class Comparison(NamedTuple):
    """The best choice against the fixed recipe."""

    difference: unlabelled.Estimate
    """In points, with its 95 % interval over bootstraps of the images, wide enough for the best of all tried."""
    better: bool
    """Whether the interval lies above 0, so that the best is taken."""

    def describe(self) -> dict[str, Any]:
        """Return what metrics.json holds of it."""
        found = {name: value if np.isfinite(value) else None for name, value in self.difference._asdict().items()}
        return {"taken": "best" if self.better else "fixed", "gain": found}


@dataclass(frozen=True)
class Judge:
    """Scores logits by the labels that were shown.

    Args:
        shown: (N, C) bool, the shown labels.
        weights: (N,) what a shown label of each image stands for: the labels it is expected to have, by those it shows.
        seed: Seed of the bootstrap.
        groups: (N,) numbers of `number_groups`, which the bootstrap draws whole; None: it draws images.
    """

    shown: np.ndarray
    weights: np.ndarray
    seed: int
    groups: np.ndarray | None = None

    def score(self, logits: np.ndarray) -> float:
        """Return the weighted, pooled AUL of (N, C) logits in percent; 0 where no label is shown."""
        value = unlabelled.pooled_aul(logits, self.shown, self.weights)[0]
        return 0.0 if np.isnan(value) else 100 * float(value)

    def gains(self, logits: np.ndarray) -> np.ndarray:
        """Return (N,) what each image adds to the weighted sum behind the score of (N, C) logits."""
        return self.weights * unlabelled.shares_outranked(logits, self.shown).sum(axis=1)

    def compare(self, gains: np.ndarray, best: int, fixed: np.ndarray) -> Comparison:
        """Compare the best of all that were tried with the fixed recipe, over the same bootstraps of the images.

        Args:
            gains: (K, N) the `gains` of each that was tried.
            best: Position of the best.
            fixed: (N,) those of the fixed recipe.

        Returns:
            How far the best ranks better.
        """
        generator = seeds.numpy_generator(self.seed, "selection")
        repeats = unlabelled.resample_rows(len(self.shown), BOOTSTRAPS, generator, self.groups)
        mass = self.weights * self.shown.sum(axis=1)
        units = np.flatnonzero(mass) if self.groups is None else np.unique(self.groups[mass > 0])
        difference = unlabelled.compare_with_fixed(100 * gains, 100 * fixed, mass, repeats, len(units))[best]
        return Comparison(difference, difference.low > 0)

    def compare_epochs(self, logits: Sequence[np.ndarray], best: int) -> Comparison:
        """Compare the best epoch with the last one.

        Args:
            logits: (N, C) of each epoch.
            best: Position of the best.

        Returns:
            How far the best ranks better.
        """
        gains = np.stack([self.gains(epoch) for epoch in logits])
        return self.compare(gains, best, gains[-1])

    def is_better(self, logits: Sequence[np.ndarray], best: int) -> bool:
        """Return whether the epoch at a position ranks better than the last one, beyond noise."""
        return self.compare_epochs(logits, best).better


@dataclass(frozen=True)
class CrossFit:
    """How one learning rate fares on images that it was not trained on."""

    scores: tuple[float, ...] = ()
    """Score of each epoch; none where training diverged."""
    best: np.ndarray | None = None
    """(N, C) logits of the epoch that scores best, each row's from the heads that its part did not train."""
    last: np.ndarray | None = None
    """Those of the last epoch."""
    gains: np.ndarray | None = None
    """(epochs, N) `Judge.gains` of each epoch."""
    diverged: int | None = None
    """Epoch in which training diverged."""

    @property
    def epoch(self) -> int:
        """The epoch that scores best, from 1, the earliest of equal ones; 0 where training diverged."""
        return int(np.argmax(self.scores)) + 1 if self.scores else 0


def split_folds(n: int, seed: int, groups: np.ndarray | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Cut training rows into parts of equal size, to one row, or to what whole groups allow.

    Args:
        n: Training images.
        seed: The run's seed.
        groups: (n,) numbers of `number_groups`, which no part cuts; None: there are none.

    Returns:
        For each part, the rows of the others and its own, ascending.
    """
    generator = seeds.numpy_generator(seed, "folds")
    part = generator.permutation(n) % min(FOLDS, n) if groups is None else deal_folds(groups, FOLDS, generator)
    return [(np.flatnonzero(part != number), np.flatnonzero(part == number)) for number in range(part.max() + 1)]


def cross_fit(judge: Judge, folds: list[tuple[np.ndarray, np.ndarray]], logits: list[np.ndarray]) -> CrossFit:
    """Put the parts together and score each epoch.

    Args:
        judge: The judge of the training images.
        folds: What `split_folds` returned.
        logits: For each part, the (epochs, part, C) logits of its rows.

    Returns:
        The scores, and the logits that may be compared.
    """
    together = np.empty((logits[0].shape[0], len(judge.shown), logits[0].shape[2]), logits[0].dtype)
    for (_, own), values in zip(folds, logits, strict=True):
        together[:, own] = values
    scores = tuple(judge.score(epoch) for epoch in together)
    gains = np.stack([judge.gains(epoch) for epoch in together])
    return CrossFit(scores, together[int(np.argmax(scores))].copy(), together[-1].copy(), gains)
