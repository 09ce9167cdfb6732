"""Ridge regression in closed form: linear heads for many penalties at once, and scores of rows that were left out.

Rows x_i with weights w_i (sum 1), targets t_i, an intercept b that is not penalised:

    sum_i w_i |t_i - b - W x_i|^2 + lambda |W|^2

One eigendecomposition of the weighted covariance S, or of the Gram matrix where that is smaller, serves all lambdas and
all targets. Where an image has a mirrored view, the two are rows of half its weight, and one is never fitted without
the other. Leaving an image out keeps the other images' weights w_i and lambda as they are, so that the penalty of a sum
over images stays what it was.
Source: Allen, "The relationship between variable selection and data augmentation", Technometrics 1974 (the identity
behind `leave_one_out`); blocks and weights are ours.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import linalg

LAMBDAS = tuple(float(value) for value in np.geomspace(0.003, 100, 19))
"""Penalties in units of the mean eigenvalue of the covariance, four a decade."""
BLOCK = 4096
"""Rows that are held in float64 at a time."""


@dataclass(frozen=True)
class Decomposition:
    """What the rows say of every fit, whatever the targets.

    Args:
        views: The features as they were given, (N, D) each: plain and, where there is one, mirrored.
        weights: (N,) weight of each image, sum 1; an image of weight 0 is scored and not fitted.
        mean: (D,) weighted mean of the features over all views.
        vectors: (D, R) eigenvectors of the covariance whose eigenvalue is not 0 beside the largest.
        values: (R,) their eigenvalues.
        lambdas: (L,) penalties, in the units of the covariance.
        leverage: (L, V, V, N) how much the fitted score of an image's one view moves with the target of its other one.
    """

    views: tuple[np.ndarray, ...]
    weights: np.ndarray
    mean: np.ndarray
    vectors: np.ndarray
    values: np.ndarray
    lambdas: np.ndarray
    leverage: np.ndarray


@dataclass(frozen=True)
class Heads:
    """Linear heads, one a penalty; the scores of features x are ``x @ weights[l].T + bias[l]``.

    Args:
        weights: (L, C, D).
        bias: (L, C).
    """

    weights: np.ndarray
    bias: np.ndarray


def decompose(
    features: np.ndarray,
    mirrored: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    lambdas: tuple[float, ...] = LAMBDAS,
) -> Decomposition:
    """Decompose the covariance of features, with what leaving an image out takes.

    Args:
        features: (N, D), of any float type.
        mirrored: (N, D) features of the mirrored images, or None.
        weights: (N,) weights of the images, not negative, in any unit. None: equal ones.
        lambdas: Penalties above 0, in units of the mean eigenvalue of the covariance.

    Returns:
        What `fit` and `leave_one_out` take.

    Raises:
        ValueError: A shape is wrong, a value is not finite, fewer than two images have weight, or no feature varies.
    """
    views = (features,) if mirrored is None else (features, mirrored)
    shares = _shares(views, weights)
    mean = sum((shares @ _wide(view) for view in views), np.zeros(features.shape[1])) / len(views)
    vectors, values = _eigen(views, shares, mean)
    penalties = np.asarray(lambdas) * values.sum() / features.shape[1]
    return Decomposition(
        views, shares, mean, vectors, values, penalties, _leverage(views, shares, mean, (vectors, values, penalties))
    )


def fit(rows: Decomposition, targets: np.ndarray) -> Heads:
    """Fit a linear head for each penalty.

    Args:
        rows: The decomposed features.
        targets: (N, C), of any values.

    Returns:
        The heads.
    """
    centre = rows.weights @ targets
    moments = np.zeros((len(rows.mean), targets.shape[1]))
    for view in rows.views:
        for part, block in _blocks(view, rows.mean):
            moments += block.T @ (rows.weights[part, None] * (targets[part] - centre)) / len(rows.views)
    turned = rows.vectors.T @ moments  # (R, C)
    weights = np.stack([(rows.vectors @ (turned / (rows.values + penalty)[:, None])).T for penalty in rows.lambdas])
    return Heads(weights, centre - weights @ rows.mean)


def leave_one_out(
    rows: Decomposition, heads: Heads, targets: np.ndarray, number: int, steady: bool = False
) -> np.ndarray:
    """Return the score that each image's plain view has from the other images.

    Args:
        rows: The decomposed features.
        heads: What `fit` returned for these targets.
        targets: (N, C).
        number: Position of the penalty.
        steady: Whether the mean target is that of all images. Without an image the mean lies further from its target,
            and where the penalty is large, so that scores hardly differ, that alone ranks positives last.

    Returns:
        (N, C) scores, exactly those of fits without the image, but for the mean where it is ``steady``.
    """
    missed = [targets - score(view, heads.weights[number], heads.bias[number]) for view in rows.views]
    own = rows.leverage[number][..., None]  # (V, V, N, 1)
    if len(missed) == 1:
        result = targets - missed[0] / (1 - own[0, 0])
    else:
        determinant = (1 - own[0, 0]) * (1 - own[1, 1]) - own[0, 1] ** 2
        result = targets - ((1 - own[1, 1]) * missed[0] + own[0, 1] * missed[1]) / determinant
    if steady:
        result += (rows.weights / (1 - rows.weights))[:, None] * (targets - rows.weights @ targets)
    return result


def score(features: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return the scores of a linear head, computed in float64.

    Args:
        features: (N, D), of any float type.
        weights: (C, D).
        bias: (C,).

    Returns:
        (N, C).
    """
    result = np.empty((len(features), len(bias)))
    for part, block in _blocks(features):
        result[part] = block @ weights.T + bias
    return result


def _shares(views: tuple[np.ndarray, ...], weights: np.ndarray | None) -> np.ndarray:
    """Return (N,) weights of sum 1, after a look at all that was given.

    Raises:
        ValueError: As `decompose` says.
    """
    for name, view in zip(("features", "mirrored"), views, strict=False):
        if view.ndim != 2 or view.shape != views[0].shape:
            raise ValueError(f"{name} {view.shape} must have the shape (N, D) of the features {views[0].shape}")
        if not np.isfinite(view).all():
            row, column = np.argwhere(~np.isfinite(view))[0]
            raise ValueError(f"{name}: {view[row, column]} at row {row}, feature {column}; they must be finite")
    given = np.ones(len(views[0])) if weights is None else np.asarray(weights, dtype=np.float64)
    if given.shape != (len(views[0]),) or not np.isfinite(given).all() or (given < 0).any():
        raise ValueError(f"weights {given.shape} must be one finite number for each of {len(views[0])} rows, 0 or more")
    if np.count_nonzero(given) < 2:
        raise ValueError("a fit needs two rows with weight: what one row says is unknown once it is left out")
    return given / given.sum()


def _eigen(views: tuple[np.ndarray, ...], shares: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvectors (D, R) and eigenvalues (R,) of the covariance, from its smaller side.

    Raises:
        ValueError: No feature varies.
    """
    rows, width = len(views) * len(shares), len(mean)
    if width <= rows:
        covariance = np.zeros((width, width))
        for view in views:
            for part, block in _blocks(view, mean):
                covariance += (block * (shares[part, None] / len(views))).T @ block
        values, vectors = linalg.eigh(covariance, driver="evd", overwrite_a=True)
        kept = values > values[-1] * np.finfo(np.float64).eps * max(rows, width)
        values, vectors = values[kept], vectors[:, kept]
    else:
        scaled = np.concatenate([(_wide(view) - mean) * np.sqrt(shares / len(views))[:, None] for view in views])
        values, sides = linalg.eigh(scaled @ scaled.T, driver="evd", overwrite_a=True)
        kept = values > values[-1] * np.finfo(np.float64).eps * max(rows, width)
        values, vectors = values[kept], scaled.T @ (sides[:, kept] / np.sqrt(values[kept]))
    largest = max(float(np.abs(view).max()) for view in views)
    if not len(values) or values[-1] <= (np.finfo(np.float64).eps * largest) ** 2 * rows:
        raise ValueError("no feature varies among the rows with weight: there is nothing to fit")
    return vectors, values


def _leverage(
    views: tuple[np.ndarray, ...],
    shares: np.ndarray,
    mean: np.ndarray,
    spectrum: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> np.ndarray:
    """Return the (L, V, V, N) leverage of each image's views, the intercept's part included."""
    vectors, values, penalties = spectrum
    inverse = 1 / (values[:, None] + penalties)  # (R, L)
    result = np.empty((len(penalties), len(views), len(views), len(shares)))
    for start in range(0, len(shares), BLOCK):
        part = slice(start, start + BLOCK)
        turned = [(_wide(view[part]) - mean) @ vectors for view in views]
        for one in range(len(views)):
            for other in range(one + 1):
                form = 1 + (turned[one] * turned[other]) @ inverse  # (B, L)
                result[:, one, other, part] = result[:, other, one, part] = form.T * shares[part] / len(views)
    return result


def _wide(view: np.ndarray) -> np.ndarray:
    return view.astype(np.float64, copy=False)


def _blocks(view: np.ndarray, mean: np.ndarray | None = None) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield rows in float64, less a mean, with where they lie."""
    for start in range(0, len(view), BLOCK):
        part = slice(start, start + BLOCK)
        block = _wide(view[part])
        yield part, block if mean is None else block - mean
