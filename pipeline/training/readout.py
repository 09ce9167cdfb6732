"""Readout: the linear head of a tuned network fitted anew, in closed form, to the features that it ends with.

Training by steps stops short of what the features hold for a linear head; and other pools, and a score by places, may
hold more than those that it trained through. The fits are those of the stage beliefs, on the labels that the method was
given: shown ones, or all of them for an oracle.
Source: ours, 2026.
"""

from collections.abc import Iterator

import numpy as np
import torch
from pydantic import TypeAdapter

from pipeline.core.errors import ConfigError
from pipeline.core.progress import track
from pipeline.labels.beliefs import read_settings
from pipeline.methods.shared import base
from pipeline.methods.shared.draw_likelihood import ShareDraw
from pipeline.networks.network import Network
from pipeline.training.beliefs import FITS, Beliefs, Sampling, believe
from pipeline.training.features import PLACES, PLAIN, Extractor
from pipeline.training.inputs import ImageInputs, batches
from pipeline.training.place_scores import Places
from pipeline.training.run import Run
from pipeline.training.settings import LabelDraw, Readout
from pipeline.training.stored_beliefs import make_draw

UNTOLD = 1e-12
"""Share of the present labels that is shown, to an oracle, of cells whose truth nobody knows: they tell nothing, and
are fitted as they are believed. A share of 1 would take them to be absent."""


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
        readout: Which features, and how images are scored.
        network: The trained network; its backbone is shared with the new one.
        images: The training images.
        labels: (N, C) int8 training labels as the method was given them.

    Returns:
        The network with the new head.

    Raises:
        ConfigError: The features cannot be fitted.
    """
    assert network.backbone is not None  # the rules refuse cached features
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
    head = {"kind": "linear", "scale": "none"}
    if readout.sharpness is not None:
        head = {"kind": "places", "sharpness": readout.sharpness}
    changes = {"pools": readout.pools, "width": features.shape[1], "head": head}
    made = Network(network.architecture | changes).to(device).eval()
    made.backbone = network.backbone
    with torch.no_grad():
        made.head.linear.weight.copy_(torch.from_numpy(fitted.weights))  # pyright: ignore
        made.head.linear.bias.copy_(torch.from_numpy(fitted.bias))  # pyright: ignore
    return made.eval()


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
