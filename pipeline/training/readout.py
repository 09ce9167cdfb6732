"""Readout: the linear head of a trained network fitted anew, in closed form, to the features that it ends with.

Training by steps stops short of what the features hold for a linear head; and other pools, and a score by places, may
hold more than those that it trained through. The fits are those of the stage beliefs, on the labels that the method was
given: shown ones, or all of them for an oracle.

The weighted sum of the two heads is a linear head too: it lifts heads that are worse than the closed form to about its
level (docs/without-truth.md).
Source: ours, 2026.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from pydantic import TypeAdapter

from pipeline.core.errors import ConfigError, FileError
from pipeline.core.progress import track
from pipeline.labels.beliefs import read_head, read_settings
from pipeline.methods.shared import base
from pipeline.methods.shared.draw_likelihood import ShareDraw
from pipeline.networks.linear import LinearHead
from pipeline.networks.network import Network
from pipeline.networks.places import PlacesHead
from pipeline.training.beliefs import FITS, Beliefs, Sampling, believe
from pipeline.training.features import PLACES, PLAIN, Cache, Extractor
from pipeline.training.inputs import ImageInputs, batches
from pipeline.training.place_scores import Places
from pipeline.training.run import Run
from pipeline.training.settings import LabelDraw, Readout
from pipeline.training.stored_beliefs import make_draw, places_of

UNTOLD = 1e-12
"""Share of the present labels that is shown, to an oracle, of cells whose truth nobody knows: they tell nothing, and
are fitted as they are believed. A share of 1 would take them to be absent."""


class ClosedForm(NamedTuple):
    """A linear head in closed form."""

    weights: np.ndarray
    """(C, D)."""
    bias: np.ndarray
    """(C,)."""
    left_out: np.ndarray
    """(N, C) logits of training images by fits that did not see their labels."""


class _LivePlaces:
    """Features of the places of images, computed when they are asked for.

    Args:
        extractor: How.
        images: The images.
    """

    def __init__(self, extractor: Extractor, images: ImageInputs) -> None:
        self.extractor, self.images = extractor, images

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return (B, D, h, w) float32 of (B,) rows."""
        cut = (rows[part] for part in batches(len(rows), self.extractor.batch_size))
        return np.concatenate([part[PLACES] for part in self.extractor.extract(self.images, cut, False, places=True)])


def read_out(run: Run, readout: Readout, network: Network, images: ImageInputs, labels: np.ndarray) -> Network:
    """Fit a new head to the features of a trained network.

    Args:
        run: The run.
        readout: Which features, how images are scored, and what is kept of the trained head.
        network: The trained network; its backbone is shared with the new one.
        images: The training images.
        labels: (N, C) int8 training labels as the method was given them.

    Returns:
        The network with the new head.

    Raises:
        ConfigError: The features cannot be fitted.
    """
    assert network.backbone is not None  # cached features have `read_out_cached`
    device = next(network.parameters()).device
    extractor = Extractor(network.backbone, readout.pools, run.settings.batch_size * 8, device, f"{run.name} readout")
    features = _extract(extractor, images, False)
    mirrored = _extract(extractor, images, True) if run.settings.flip else None
    places = None
    if readout.sharpness is not None:
        places = Places(_LivePlaces(extractor, images), np.arange(len(images)), readout.sharpness)
    try:
        fitted = fit_labels(run, features, mirrored, labels, places)
    except ValueError as error:
        raise ConfigError(f"{run.name}: readout: {error}") from error
    weights, bias = fitted.weights, fitted.bias
    if readout.share < 1:
        weights, bias, _ = mix(readout.share, (weights, bias), network, features)
    head = {"kind": "linear", "scale": "none"}
    if readout.sharpness is not None:
        head = {"kind": "places", "sharpness": readout.sharpness}
    changes = {"pools": readout.pools, "width": features.shape[1], "head": head}
    made = Network(network.architecture | changes).to(device)
    made.backbone = network.backbone
    put_head(made, weights, bias)
    return made.eval()


def read_out_cached(
    run: Run, network: Network, cache: Cache, labels: np.ndarray, left_out: np.ndarray | None
) -> tuple[Network, np.ndarray | None]:
    """Return a head that was trained on cached features, mixed with the closed form on them.

    Args:
        run: The run; its ``readout`` is of the cache's pools, and scores as its head does (the rules refuse others).
        network: The trained head; it is left as it is.
        cache: The feature cache.
        labels: (N, C) int8 training labels as the method was given them.
        left_out: (N, C) logits of training images by heads that their labels did not train, or None.

    Returns:
        The new head, and the logits of training images by what left them out: exact for a linear head. By places, where
        a mean of scores is not the score of a mean, they rank images and are no ground for a threshold.

    Raises:
        ConfigError: As `closed_form`.
        FileError: As `closed_form`.
    """  # noqa: DOC502  raised by `closed_form`
    readout, found = run.settings.readout, closed_form(run, cache, labels)
    assert readout is not None
    features = cache.plain[run.table.rows("train")]
    weights, bias, factor = mix(readout.share, (found.weights, found.bias), network, features)
    made = Network(network.architecture).to(next(network.parameters()).device)
    put_head(made, weights, bias)
    if left_out is not None:
        left_out = readout.share * found.left_out + (1 - readout.share) * factor * left_out
    return made.eval(), left_out


def mix(
    share: float, fitted: tuple[np.ndarray, np.ndarray], network: Network, features: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the weighted sum of two linear heads.

    Args:
        share: Of the closed form, below 1.
        fitted: Its (C, D) weights and (C,) bias.
        network: The trained network, whose head is linear on the same features.
        features: (N, D) pooled features of the training images.

    Returns:
        (C, D) weights, (C,) bias, and the factor by which the trained head's logits were scaled: all of them by one, to
        the standard deviation that the closed form's have over images and classes.
    """
    (weights, bias), (trained, offset) = fitted, _linear(network)
    spread = float(np.std(features @ trained.T + offset))
    factor = float(np.std(features @ weights.T + bias)) / spread if spread > 0 else 0.0
    kept = (1 - share) * factor
    return share * weights + kept * trained, share * bias + kept * offset, factor


def put_head(network: Network, weights: np.ndarray, bias: np.ndarray) -> None:
    """Put (C, D) weights and (C,) bias into the linear head of a network."""
    assert isinstance(network.head, LinearHead | PlacesHead)
    with torch.no_grad():
        network.head.linear.weight.copy_(torch.from_numpy(weights))
        network.head.linear.bias.copy_(torch.from_numpy(bias))


def _linear(network: Network) -> tuple[np.ndarray, np.ndarray]:
    """Return the (C, D) weights and (C,) bias of a linear head, in float64."""
    assert isinstance(network.head, LinearHead | PlacesHead)  # the rules refuse others
    weight, bias = network.head.linear.weight, network.head.linear.bias
    return weight.detach().cpu().double().numpy(), bias.detach().cpu().double().numpy()


def closed_form(run: Run, cache: Cache, labels: np.ndarray) -> ClosedForm:
    """Return the closed form on cached features: that of the stage beliefs, or of all labels for an oracle.

    Args:
        run: The run.
        cache: The feature cache.
        labels: (N, C) int8 training labels as the method was given them.

    Raises:
        ConfigError: The features cannot be fitted, or the beliefs come from a file that holds no head.
        FileError: The head of the beliefs reads features of another width.
    """
    if base.load(run.method).labels == "single":
        head = read_head(run.beliefs_file, run.table)
        if head is None:
            raise ConfigError(f"beliefs.{run.dataset}: a file holds no linear head; {run.name} needs kind: fits")
        if head[0].shape[1] != cache.plain.shape[1]:
            widths = f"{head[0].shape[1]} features, the cache {cache.plain.shape[1]}"
            raise FileError(f"{run.beliefs_file}: its linear head reads {widths}; run beliefs again")
        return ClosedForm(*head, run.beliefs.logits[run.table.rows("train")])
    rows, kind = run.table.rows("train"), run.settings.head
    places = places_of(cache, rows, kind.sharpness if kind.kind == "places" else None)
    views = cache.mirrored if run.settings.flip else None
    try:
        fitted = fit_labels(run, cache.plain[rows], views, labels, places)
    except ValueError as error:
        raise ConfigError(f"{run.name}: {error}") from error
    return ClosedForm(fitted.weights, fitted.bias, fitted.logits)


def fit_labels(
    run: Run, features: np.ndarray, mirrored: np.ndarray | None, labels: np.ndarray, places: Places | None
) -> Beliefs:
    """Fit a linear head to the labels that a run's method is given.

    Args:
        run: The run.
        features: (N, D) of the training images.
        mirrored: (N, D) of the mirrored ones, or None.
        labels: (N, C) int8 training labels as the method was given them.
        places: Those of the images, or None.

    Returns:
        The fits to shown labels, by the draw that the stage beliefs takes them to come from; or to all labels.

    Raises:
        ValueError: The features cannot be fitted.
    """  # noqa: DOC502  raised by `believe`
    rows = run.table.rows("train")
    sampling = Sampling(run.draw, run.table.group_numbers("train"))
    if base.load(run.method).labels == "all":
        draw, fits = (ShareDraw(1.0), 1) if labels.all() else (ShareDraw(UNTOLD), FITS)
        return believe(features, labels, mirrored, draw, fits, sampling, places)
    draw = make_draw(TypeAdapter(LabelDraw).validate_python(read_settings(run.beliefs_file)["draw"]))
    single = run.single[rows]
    shown = np.where(np.abs(single) == 2, single, labels)  # known by the rules alone
    return believe(features, shown, mirrored, draw, FITS, sampling, places)


def _extract(extractor: Extractor, images: ImageInputs, mirrored: bool) -> np.ndarray:
    """Return (N, D) features of all images."""
    cut: Iterator[np.ndarray] = batches(len(images), extractor.batch_size)
    told = track(list(cut), extractor.dataset, len(images), "image", size=len)
    return np.concatenate([part[PLAIN] for part in extractor.extract(images, told, mirrored)])
