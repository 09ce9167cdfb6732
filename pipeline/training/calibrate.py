"""Turn the scores of a linear fit into logits: a slope above 0 and a bias for each class, by the draw's likelihood.

    z_c = slope_c score_c + bias_c

The gradient of the likelihood of the shown labels to z is belief - p, so that at its maximum the beliefs of a class and
its p have one mean, the share of images that show or hide the class.

Where only images with a label are labelled, the likelihood that they show a label at all tells nothing; divided by it,
1 - prod (1 - p), what is left finds fewer labels where images have few, and closer to their number; but hardly anything
holds the level of all p there, so that a twentieth of it stays.
Source: ours, 2026.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg, optimize, special

from pipeline.methods.shared.draw_likelihood import CountDraw, ShareDraw, posterior_of_arrays

SLOPES = (1e-3, 20.0)
"""Bounds of a slope, in units of the standard deviation of its class's scores."""
BIASES = (-30.0, 30.0)
"""Bounds of the logit of an image whose score is the mean of its class."""
LEAST = 5
"""A class that shows fewer positives keeps the slope 1 in those units: so few decide for certainty, or for none."""
GIVEN = 0.95
"""The part of log P(an image has a label) that is taken out where each image is known to have one."""
STEPS = 300
"""Steps of L-BFGS at most; 20 to 80 are usual."""
TOLERANCE = 1e-9
"""It stops where a step gains less than this part of the whole."""


class Calibration(NamedTuple):
    """What makes logits of scores.

    Args:
        slope: (C,) above 0; 0 for a class whose scores are all the same, and for one that shows no positive.
        bias: (C,).
        log_likelihood: Of the shown labels, mean over the images, in nats.
        pull: (N, 2, C) how far an image that is counted once more moves the slopes and the biases, to first order.
    """

    slope: np.ndarray
    bias: np.ndarray
    log_likelihood: float
    pull: np.ndarray

    def logits(self, scores: np.ndarray) -> np.ndarray:
        """Return (N, C) logits of (N, C) scores."""
        return scores * self.slope + self.bias


def calibrate(
    scores: np.ndarray, observed: np.ndarray, draw: CountDraw | ShareDraw, given_one: bool = False
) -> Calibration:
    """Return the slopes and biases that make the shown labels likeliest.

    Args:
        scores: (N, C) finite scores, each of an image that was left out.
        observed: (N, C) int8 labels: 1 shown, 2 known to be present without having been shown, 0 unknown, -1 known to
            be absent, -2 by the rules.
        draw: How labels came to be shown.
        given_one: Whether images are known to have a label, those that show none left aside.

    Returns:
        The calibration. A class that shows no positive is taken to be present in half an image of these and one more:
        the likelihood alone would rule it out. Images that show nothing do not count under a draw of so many labels.

    Raises:
        ValueError: Shapes differ, or a score is not finite.
    """
    if scores.shape != observed.shape or scores.ndim != 2 or not np.isfinite(scores).all():
        raise ValueError(f"scores {scores.shape} must be finite, of the shape (N, C) of observed {observed.shape}")
    shown, shows, labels = (observed >= 1).sum(axis=0), (observed == 1).any(axis=1), _as_drawn(observed, draw)
    counted = shows if isinstance(draw, CountDraw) and shows.any() else np.ones(len(scores), bool)
    centre, spread = scores[counted].mean(axis=0), scores[counted].std(axis=0)
    flat = (spread <= 1e-12 * np.abs(scores).max(axis=0, initial=0)) | (shown == 0)
    standard = np.where(flat, 0, scores - centre) / np.where(flat, 1, spread)
    start, bounds = _start(shown, int(counted.sum()), flat)
    ease = np.sqrt(shown + 1.0)  # the curvature of a parameter grows as the labels that its class shows

    def likelihood(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, gradient, _ = posterior_of_arrays(logits, labels, draw)
        if given_one:
            some = has_one(logits)
            value = value - GIVEN * np.where(shows, np.log(some), 0)
            gradient = gradient - GIVEN * np.where(shows, (1 - some) / some, 0)[:, None] * special.expit(logits)
        return value, gradient

    def negative(point: np.ndarray) -> tuple[float, np.ndarray]:
        slope, bias = point.reshape(2, -1) / ease
        value, gradient = likelihood(standard * slope + bias)
        descent = -np.stack([(gradient * standard).sum(axis=0), gradient.sum(axis=0)]) / ease
        return -float(value.sum()), descent.ravel()

    scale = np.tile(ease, 2)
    found = optimize.minimize(
        negative,
        start.ravel() * scale,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds.reshape(-1, 2) * scale[:, None],
        options={"maxiter": STEPS, "ftol": TOLERANCE, "gtol": 1e-4},
    )
    slope, bias = found.x.reshape(2, -1) / ease
    fixed = (np.stack([slope, bias]) <= bounds[..., 0]) | (np.stack([slope, bias]) >= bounds[..., 1])
    _, gradient = likelihood(standard * slope + bias)
    pull = _pull(standard, gradient, fixed)
    slope = np.where(flat, 0, slope / np.where(flat, 1, spread))
    pull[:, 0] /= np.where(flat, np.inf, spread)
    pull[:, 1] -= pull[:, 0] * centre
    return Calibration(slope, bias - slope * centre, -float(found.fun) / max(1, len(scores)), pull)


def _as_drawn(observed: np.ndarray, draw: CountDraw | ShareDraw) -> np.ndarray:
    """Return labels as the draw left them: what rules made known is unknown, but in a class that shows none itself.

    A rule tells of a parent only where it is present, and of a class that excludes another only where it is absent.
    Counted as known there and as unknown elsewhere, the one would be believed in far too often, the other too seldom.
    So it is with absences that somebody gives beside a count of labels, and thinks of where a class is likely: whatever
    made him give them, that the draw has not shown these labels is true. An image that is labelled in full stays so.
    """
    passed = (observed == -2) | ((observed == 2) & (observed == 1).any(axis=0))
    if isinstance(draw, CountDraw):
        passed = passed | ((observed == -1) & (observed == 0).any(axis=1, keepdims=True))
    return np.where(passed, 0, np.minimum(observed, 1)).astype(np.int8)


def has_one(logits: np.ndarray) -> np.ndarray:
    """Return the (N,) chance that an image with these (N, C) logits has a label, above 0."""
    return np.maximum(-np.expm1(-np.logaddexp(0, logits).sum(axis=1)), np.finfo(np.float64).tiny)


def resampled_shares(
    scores: np.ndarray, calibrated: Calibration, repeats: np.ndarray, given_one: bool = False
) -> np.ndarray:
    """Return the share of images that each class is present in, by calibrations on rows as a bootstrap drew them.

    Each is one Newton step away from the calibration at hand, whose beliefs have the mean of p.

    Args:
        scores: (N, C) those that were calibrated.
        calibrated: What `calibrate` returned for them.
        repeats: (R, N) how often each row was drawn; rows of ones give the calibration's own shares.
        given_one: Whether each image is known to have a label.

    Returns:
        (R, C) mean p, given a label where that is known.
    """
    result = np.empty((len(repeats), scores.shape[1]))
    steps = np.tensordot(repeats - 1.0, calibrated.pull, axes=1)  # (R, 2, C)
    for row, counts, (slope, bias) in zip(result, repeats, steps, strict=True):
        logits = scores * np.maximum(calibrated.slope + slope, 0) + calibrated.bias + bias
        p = special.expit(logits) / (has_one(logits)[:, None] if given_one else 1)
        row[:] = counts @ p / counts.sum()
    return result


def _start(shown: np.ndarray, rows: int, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (2, C) slopes and biases to start from, and (2, C, 2) bounds; equal bounds hold a parameter."""
    share = (shown + 0.5) / (rows + 1)
    start = np.stack([np.ones(len(shown)), np.log(share / (1 - share)).clip(*BIASES)])
    bounds = np.empty((2, len(shown), 2))
    bounds[0], bounds[1] = SLOPES, BIASES
    bounds[0][flat | (shown < LEAST)] = 1
    bounds[1][shown == 0] = start[1, shown == 0, None]
    return start, bounds


def _pull(standard: np.ndarray, gradient: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """Return (N, 2, C) steps of slopes and biases, by the information that the rows' gradients hold."""
    rows = np.stack([gradient * standard, gradient], axis=1) * ~fixed  # (N, 2, C)
    flat = rows.reshape(len(rows), -1)
    return (flat @ linalg.pinvh(flat.T @ flat)).reshape(rows.shape)
