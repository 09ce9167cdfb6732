"""Scores of images by their places: the log-mean-exp of what a linear head makes of each (`pipeline.networks.places`).

Pooled features of a small object are mostly of the rest of the picture. A head that was fitted to them still finds it,
where each place is scored alone; so do beliefs about an image's hidden labels.
Source: ours, 2026.
"""

from typing import NamedTuple

import numpy as np
import torch

from pipeline.methods.shared.draw_likelihood import CountDraw, ShareDraw
from pipeline.networks import places as heads
from pipeline.training.calibrate import Calibration, calibrate
from pipeline.training.inputs import Rows

BATCH = 128
"""Images whose places are in memory at a time."""
ROUNDS = 20
"""Calibrations at most. The sharpness is in units of logits, so that a slope changes scores too; 2 to 7 are usual."""
NEAR = 0.01
"""A round whose slopes are as near to 1, and its biases to 0, ends them."""


class Places(NamedTuple):
    """The places of images, and how an image is scored by them."""

    features: Rows
    """(M, D, h, w), of any float type."""
    rows: np.ndarray
    """(N,) row numbers of the images in ``features``."""
    sharpness: float
    """k of the log-mean-exp, in units of one by logit."""

    def logits(self, index: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Return what a linear head makes of each place.

        Args:
            index: (R,) images, as positions in ``rows``.
            weights: (C, D) of the head.
            bias: (C,) of the head.

        Returns:
            (R, C, P) float32.
        """
        parts = []
        for start in range(0, len(index), BATCH):
            places = self.features[self.rows[index[start : start + BATCH]]].astype(np.float32, copy=False)
            flat = places.reshape(*places.shape[:2], -1)
            parts.append(np.matmul(weights.astype(np.float32), flat) + bias.astype(np.float32)[:, None])
        return np.concatenate(parts)

    def scores(self, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Return the (N, C) scores of all images by a head of (C, D) weights and (C,) bias."""
        cut = np.array_split(np.arange(len(self.rows)), max(1, len(self.rows) // BATCH))
        return np.concatenate([log_mean_exp(self.logits(index, weights, bias), self.sharpness) for index in cut])


def log_mean_exp(logits: np.ndarray, sharpness: float) -> np.ndarray:
    """Return the (R, C) log-mean-exp over the last axis of (R, C, P) logits, in float64."""
    places = torch.from_numpy(logits.astype(np.float64))[..., None]
    return heads.log_mean_exp(places, sharpness).numpy()


class Calibrated(NamedTuple):
    """A calibration under which scores by places are logits.

    Args:
        slope: (C,) on the logits of places.
        bias: (C,) on them.
        scores: (N, C) log-mean-exp of places under slope and bias.
        last: What is left to calibrate of these scores, near to nothing.
    """

    slope: np.ndarray
    bias: np.ndarray
    scores: np.ndarray
    last: Calibration


def calibrate_places(
    raw: np.ndarray,
    start: Calibration,
    sharpness: float,
    observed: np.ndarray,
    draw: CountDraw | ShareDraw,
) -> Calibrated:
    """Return slopes and biases of a head whose scores by places are logits by the draw's likelihood.

    Under a draw of so many labels, images are known to have one, those that show none left aside.

    Args:
        raw: (N, C, P) scores of places, each of an image that was left out.
        start: The calibration of pooled scores.
        sharpness: k.
        observed: (N, C) int8 labels.
        draw: How labels came to be shown.

    Returns:
        The calibration.
    """
    given_one = isinstance(draw, CountDraw)
    slope, bias = start.slope.copy(), start.bias.copy()
    for _ in range(ROUNDS):
        scores = _score(raw, slope, bias, sharpness)
        found = calibrate(scores, observed, draw, given_one)
        free = found.slope > 0  # a class that is not has its bias for a logit, whatever the scores
        moved = np.where(free, bias * found.slope + found.bias, found.bias)
        wanted = np.where(free, slope * found.slope, 0)
        near = np.where(free, np.abs(found.slope - 1), wanted != slope) < NEAR
        near &= np.where(free, np.abs(found.bias), np.abs(moved - bias)) < NEAR
        if near.all():
            break
        slope, bias = wanted, moved
    scores = _score(raw, slope, bias, sharpness)
    return Calibrated(slope, bias, scores, calibrate(scores, observed, draw, given_one))


def _score(raw: np.ndarray, slope: np.ndarray, bias: np.ndarray, sharpness: float) -> np.ndarray:
    """Return the (N, C) scores of calibrated places, few of which are in memory in float64 at a time."""
    parts = (raw[start : start + BATCH] for start in range(0, len(raw), BATCH))
    return np.concatenate([log_mean_exp(part * slope[:, None] + bias[:, None], sharpness) for part in parts])
