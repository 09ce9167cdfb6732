"""Where to cut logits into present and absent, with and without truth, and what a cut is worth.

A label is taken to be present where its logit is at least the threshold of its class. Without truth there are two:

- matching shares: as many images lie above it as the class is estimated to be present in;
- conformal: it finds a stated share of the present labels. The scores are those that shown labels have on images whose
  labels trained nothing. One of k present labels is shown with chance 1 / k, so a shown label stands for as many as its
  image is expected to have (weighted conformal prediction). The expected share found of new present labels is at least
  the stated one if new images are as these, if those expectations are right, and if no new image is expected to have
  more labels than the one of these that is expected to have most. Images of one group score alike, so there a group
  counts as one image does, and what is found is of images of new groups.

Source: Tibshirani, Barber, Candès, Ramdas, "Conformal prediction under covariate shift", NeurIPS 2019; groups as in
Lee, Barber, Willett, "Distribution-free inference with hierarchical data", 2023; that the weight is the expected number
of labels, and the match of shares, are ours.
"""

import numpy as np

FOUND = (0.8, 0.9, 0.95)
"""Shares of present labels that a conformal threshold is made for: whoever predicts takes one of them."""


def match_share(logits: np.ndarray, share: float) -> float:
    """Return the threshold that a share of images lies above, to half an image; the highest logit always does.

    Args:
        logits: (N,) finite logits of a class, N at least 1.
        share: In [0, 1].
    """
    return float(np.quantile(np.asarray(logits, np.float64), 1 - share, method="hazen"))


def find_share(scores: np.ndarray, weights: np.ndarray, found: float, groups: np.ndarray | None = None) -> float | None:
    """Return the highest threshold that finds a share of the present labels of a class in new images.

    Args:
        scores: (P,) finite logits of shown labels, of images whose labels trained nothing.
        weights: (P,) above 0, how many present labels each stands for; a new one is held for the heaviest of them.
        found: The share, in (0, 1).
        groups: (P,) numbers of the images' groups, of which each weighs as one of its labels does on average; None:
            each image by itself.

    Returns:
        One of the scores; None where there are too few: with equal weights it is the score of rank
        ceil((P + 1) found) from above, so 0.9 needs nine, or nine groups.
    """
    if not len(scores):
        return None
    heaviest = weights.max()
    if groups is not None:
        _, unit, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        weights = weights / sizes[unit]
        heaviest = np.bincount(unit, weights).max()
    order = np.argsort(-scores, kind="stable")
    mass = np.cumsum(weights[order], dtype=np.float64)
    place = int(np.searchsorted(mass, found * (mass[-1] + heaviest) * (1 - 1e-12)))
    return float(scores[order][place]) if place < len(scores) else None


def best_f1(logits: np.ndarray, truth: np.ndarray) -> float | None:
    """Return the threshold of the highest F1.

    Args:
        logits: (N,) finite logits of a class.
        truth: (N,) its labels, 1 or 0.

    Returns:
        The middle between the last logit above it and the next, the highest of equally good ones; None without a
        positive.
    """
    order = np.argsort(-logits, kind="stable")
    ranked, hits = logits[order].astype(np.float64), np.cumsum(truth[order] == 1)
    if not len(hits) or not hits[-1]:
        return None
    score = 2 * hits / (np.arange(1, len(hits) + 1) + hits[-1])
    ends = np.append(ranked[1:] != ranked[:-1], True)
    last = int(np.argmax(np.where(ends, score, -1)))
    return float(ranked[last : last + 2].mean())


def score_thresholds(
    logits: np.ndarray, thresholds: np.ndarray, truth: np.ndarray, scored: np.ndarray
) -> dict[str, float | None]:
    """Return how good a cut is, in percent.

    Args:
        logits: (N, C) logits.
        thresholds: (C,) of each class; infinite: it is nowhere present.
        truth: (N, C) labels, 1 or 0.
        scored: (N, C) bool, the cells that count.

    Returns:
        ``macro``, the mean F1 of the classes with a positive (None without one); ``micro``, that of all cells together
        (None without a positive or one that is taken to be); ``found``, the share of present labels that are found.
    """
    called, present = (logits >= thresholds) & scored, (truth == 1) & scored
    hits, sizes = (called & present).sum(axis=0), called.sum(axis=0) + present.sum(axis=0)
    has = present.any(axis=0)
    return {
        "macro": 100 * float((2 * hits[has] / sizes[has]).mean()) if has.any() else None,
        "micro": 100 * float(2 * hits.sum() / sizes.sum()) if sizes.sum() else None,
        "found": 100 * float(hits.sum() / present.sum()) if has.any() else None,
    }
