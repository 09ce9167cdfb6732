"""Predictions: what a model says of pictures, one by one in their order."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from pipeline.bundles.pictures import Picture, read_pictures
from pipeline.bundles.read import Model
from pipeline.core.progress import track
from pipeline.data.packing import count_workers


class Prediction(NamedTuple):
    """What a model says of a picture."""

    picture: Picture
    labels: list[str]
    """Classes that count as present, in the model's order."""
    error: str | None
    """Why the picture cannot be used; then there is no label and no score."""
    scores: np.ndarray | None
    """(C,) float64 probabilities, in the model's order; of logits that differ none are equal up to 30."""


def predict(
    model: Model, pictures: Sequence[Picture], thresholds: np.ndarray, batch: int = 64, quiet: bool = False
) -> Iterator[Prediction]:
    """Yield what a model says of pictures.

    Args:
        model: The model.
        pictures: The pictures.
        thresholds: (C,) logits from which classes count as present.
        batch: Pictures at a time.
        quiet: Whether to show no progress.

    Yields:
        A prediction for each picture, in order.
    """
    classes = model.about.classes
    parts = read_pictures(pictures, model.about.input.size, batch, count_workers())
    for part in track(parts, "predict", len(pictures), "image", size=len, quiet=quiet):
        usable = [pixels for _, pixels in part if isinstance(pixels, np.ndarray)]
        logits = iter(model.logits(np.stack(usable))) if usable else iter(())
        for picture, pixels in part:
            if isinstance(pixels, str):
                yield Prediction(picture, [], pixels, None)
                continue
            own = next(logits)
            labels = [classes[column] for column in np.flatnonzero(own >= thresholds)]
            yield Prediction(picture, labels, None, expit(own.astype(np.float64)))
