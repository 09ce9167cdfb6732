"""The embedded default: scenes composed of real handwritten digits, several classes each.

scikit-learn's ``load_digits`` (1,797 grey images of 8 x 8, classes 0 to 9) is split by image into three pools, so that
no handwriting is shared between splits, nor between the backbone's pretraining and val or test: no seed moves the
pools. A scene shows 1 to 5 distinct digits on a jittered 3 x 3 grid, coloured, under
noise and small clutter. Digits are drawn at rates from 0.45 (digit 0) to 0.16 (digit 9), again where there are none or
more than 5, so that classes have 0.44 to 0.15. Every scene is drawn from a stream named by its split and row.
"""

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from pipeline.core import seeds
from pipeline.core.strict import Strict
from pipeline.labels.table import Dataset, Table

CLASSES = tuple(f"digit_{value}" for value in range(10))
RATES = np.linspace(0.45, 0.16, 10)
MOST = 5  # digits a scene
PARTITION = 0
"""Seed of the stream that cuts the source images into pools. Fixed: prepare and backbone have seeds of their own, and
pools that moved with them would let the backbone see handwriting of the test scenes."""
POOLS = {"train": (0.0, 0.6), "val": (0.6, 0.75), "test": (0.75, 1.0)}  # shares of the source images


class Settings(Strict):
    """How many scenes are drawn, and from which seed."""

    source: Literal["digits"]
    train: Annotated[int, Field(ge=20)]
    """Scenes of each split."""
    val: Annotated[int, Field(ge=20)]
    test: Annotated[int, Field(ge=20)]
    size: Annotated[int, Field(ge=24)]
    """Side of a scene in pixels."""
    seed: Annotated[int, Field(ge=0)]


def pool(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the source digits of one split.

    Args:
        split: "train", "val" or "test".

    Returns:
        (n, 8, 8) float32 ink in [0, 1] and (n,) classes 0 to 9.
    """
    from sklearn.datasets import load_digits  # a second of imports that other stages need not pay

    source = load_digits()
    order = seeds.numpy_generator(PARTITION, "digits", "pools").permutation(len(source.target))
    low, high = (int(round(share * len(order))) for share in POOLS[split])
    rows = np.sort(order[low:high])
    return source.images[rows].astype(np.float32) / 16, source.target[rows]


@cache
def _stretch(side: int) -> np.ndarray:
    """Return the (side, 8) matrix of bilinear enlargement along one axis."""
    at = (np.arange(side) + 0.5) * 8 / side - 0.5
    low = np.clip(np.floor(at).astype(int), 0, 6)
    share = np.clip(at - low, 0, 1).astype(np.float32)
    weight = np.zeros((side, 8), np.float32)
    weight[np.arange(side), low] = 1 - share
    weight[np.arange(side), low + 1] += share
    return weight


def _enlarge(ink: np.ndarray, side: int) -> np.ndarray:
    """Return (8, 8) ink resized to (side, side), in [0, 1] still."""
    return _stretch(side) @ ink @ _stretch(side).T


def _paint(canvas: np.ndarray, ink: np.ndarray, top: int, left: int, colour: np.ndarray) -> None:
    """Blend ink of one colour into the canvas, cut at the border."""
    side = canvas.shape[0]
    rows = slice(max(top, 0), min(top + ink.shape[0], side))
    columns = slice(max(left, 0), min(left + ink.shape[1], side))
    part = ink[rows.start - top : rows.stop - top, columns.start - left : columns.stop - left, None]
    canvas[rows, columns] += part * (colour - canvas[rows, columns])


def compose(
    digits: np.ndarray, labels: np.ndarray, classes: np.ndarray, size: int, generator: np.random.Generator
) -> np.ndarray:
    """Draw one scene.

    Args:
        digits: (n, 8, 8) source ink in [0, 1].
        labels: (n,) their classes.
        classes: Distinct classes to show, at most 9.
        size: Side of the scene in pixels.
        generator: The scene's stream.

    Returns:
        (size, size, 3) uint8.
    """
    cell = size / 3
    canvas = np.broadcast_to(generator.uniform(0.0, 0.30, 3), (size, size, 3)).astype(np.float32)
    for _ in range(generator.poisson(3)):  # clutter: pieces of strokes that belong to no class
        ink = digits[generator.integers(len(digits))]
        row, column = generator.integers(0, 5, 2)
        piece = _enlarge(ink, round(cell * 0.8))[row : row + 5, column : column + 5]
        top, left = generator.integers(-2, size - 2, 2)
        _paint(canvas, piece, int(top), int(left), generator.uniform(0.2, 1.0, 3))
    places = generator.permutation(9)[: len(classes)]
    for place, value in zip(places, classes, strict=True):
        ink = digits[generator.choice(np.flatnonzero(labels == value))]
        side = int(round(cell * generator.uniform(0.85, 1.1)))
        corner = np.array(divmod(int(place), 3)) * cell + (cell - side) / 2 + generator.uniform(-0.12, 0.12, 2) * cell
        colour = generator.uniform(0.55, 1.0, 3)
        top, left = np.rint(corner).astype(int)
        _paint(canvas, _enlarge(ink, side), int(top), int(left), colour)
    canvas += generator.normal(0, 0.05, canvas.shape).astype(np.float32)
    return np.rint(np.clip(canvas, 0, 1) * 255).astype(np.uint8)


def _classes(generator: np.random.Generator) -> np.ndarray:
    """Return the digits that a scene shows: each by its rate, drawn again until there are 1 to 5."""
    while True:
        shown = np.flatnonzero(generator.random(10) < RATES)
        if 1 <= len(shown) <= MOST:
            return shown


def single(count: int, size: int, seed: int, *names: str | int) -> tuple[np.ndarray, np.ndarray]:
    """Draw pictures of one digit each, from the training pool, for the backbone's pretraining.

    Args:
        count: Number of pictures.
        size: Side in pixels.
        seed: Seed of the pictures.
        names: Further names of the stream, e.g. the epoch.

    Returns:
        (count, size, size, 3) uint8 and (count,) classes 0 to 9.
    """
    digits, labels = pool("train")
    generator = seeds.numpy_generator(seed, "digits", "single", *names)
    shown = generator.integers(0, 10, count)
    return np.stack([compose(digits, labels, shown[i : i + 1], size, generator) for i in range(count)]), shown


def fingerprint(settings: Settings, root: Path) -> None:
    """Return None: there is no raw data that could change, since the digits come with scikit-learn."""


def read(settings: Settings, root: Path) -> Dataset:
    """Return all training scenes, then val, then test, each drawn when it is asked for."""
    counts = {split: getattr(settings, split) for split in POOLS}
    splits = [(split, row) for split, count in counts.items() for row in range(count)]
    pools = {split: pool(split) for split in POOLS}

    def stream(split: str, row: int) -> np.random.Generator:
        return seeds.numpy_generator(settings.seed, "digits", split, row)

    truth = np.zeros((len(splits), 10), np.int8)
    for position, (split, row) in enumerate(splits):
        truth[position, _classes(stream(split, row))] = 1

    def image(position: int) -> np.ndarray:
        split, row = splits[position]
        generator = stream(split, row)
        shown = _classes(generator)
        digits, labels = pools[split]
        return compose(digits, labels, shown, settings.size, generator)

    code = np.repeat(np.arange(3, dtype=np.uint8), list(counts.values()))
    table = Table(
        classes=CLASSES,
        paths=tuple(f"{split}/{row:05d}" for split, row in splits),
        truth=truth,
        scored=np.ones_like(truth, dtype=bool),
        split=code,
        official=(code == 2).astype(np.uint8),
    )
    report = {"source": "scikit-learn load_digits", "source_images": {split: len(pools[split][1]) for split in POOLS}}
    return Dataset(table=table, image=image, report=report)
