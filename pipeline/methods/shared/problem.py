"""What a method knows of its problem before training."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Problem:
    """What a method may know before the first step; nothing in it is truth about an image."""

    n: int
    """Training images; ``index`` runs over [0, n)."""
    classes: tuple[str, ...]
    """Class names, in column order."""
    observed_counts: Tensor
    """(C,) int64, observed positives of each class in the training split."""
    expected_positives: float | None
    """Labels per image as given in params, or None where nobody claims to know them."""
    width: int | None = None
    """D, width of the backbone's features; None where no network is at hand."""
    observed_absences: int = 0
    """Cells of the training split that are known to be absent."""
    beliefs: Tensor | None = None
    """(N, C) float32, the chance that each training cell is present, without truth; None where nobody asks."""

    def take(self, rows: np.ndarray, observed: np.ndarray) -> "Problem":
        """Return the problem that some of the training images pose.

        Args:
            rows: (R,) their rows.
            observed: (R, C) their labels.
        """
        problem = describe(self.classes, observed, self.expected_positives, self.width)
        return replace(problem, beliefs=None if self.beliefs is None else self.beliefs[torch.from_numpy(rows)])


def describe(
    classes: tuple[str, ...], observed: np.ndarray, expected_positives: float | None, width: int | None
) -> Problem:
    """Return the problem that the labels of a training split pose.

    Args:
        classes: Class names.
        observed: (N, C) labels of the training split as the method sees them.
        expected_positives: Labels per image where params.yaml names them, else None.
        width: D of the network's features.
    """
    counts = torch.from_numpy((observed == 1).sum(0).astype(np.int64))
    absences = int((observed == -1).sum())
    return Problem(len(observed), classes, counts, expected_positives, width, absences)
