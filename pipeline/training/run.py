"""What a training run is: its place in the project and its settings, and what its stage gives to it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from pipeline.core.errors import FileError
from pipeline.data import images
from pipeline.labels.beliefs import Beliefs, beliefs_file, check_settings, read_beliefs
from pipeline.labels.observed import observed_file, read_shown
from pipeline.labels.table import Table
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import Problem, describe
from pipeline.networks.network import Network
from pipeline.networks.places import PlacesHead
from pipeline.networks.settings import Head, Scale
from pipeline.training.features import Cache
from pipeline.training.inputs import FeatureInputs, ImageInputs, Inputs, Picked
from pipeline.training.settings import Training

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Run:
    """One training run, resolved from params.yaml."""

    root: Path
    stage: str
    dataset: str
    method: str
    draw: int
    """Number of the label draw."""
    seed: int
    """Training seed."""
    key: str
    settings: Training
    """The stage's settings."""
    method_settings: dict[str, Any]
    expected_positives: float | None
    """Labels per image, where params.yaml names them or has them estimated for a method that needs them."""
    estimated: bool
    """Whether that is the estimate of the stage beliefs."""
    start: str
    """Method whose linear head fine-tuning starts from, or whose network lac goes on from."""
    believing: dict[str, Any]
    """Settings of the stage beliefs, as JSON values."""
    table: Table

    @property
    def name(self) -> str:
        """Name of the run in messages."""
        return f"{self.stage} {self.key}"

    @property
    def table_file(self) -> Path:
        """File of the table."""
        return self.root / "data" / "prepare" / self.dataset / "table.h5"

    @property
    def observed_file(self) -> Path:
        """File of the observed labels."""
        return observed_file(self.root, self.dataset, self.draw)

    @property
    def beliefs_file(self) -> Path:
        """File of the beliefs about hidden labels."""
        return beliefs_file(self.root, self.dataset, self.draw)

    @cached_property
    def beliefs(self) -> Beliefs:
        """Beliefs about hidden labels; a `FileError` where they are absent, damaged, or not those asked for."""
        check_settings(self.beliefs_file, self.believing)
        return read_beliefs(self.beliefs_file, self.table)

    @cached_property
    def single(self) -> np.ndarray:
        """(N, C) int8 labels that the draw shows; a `FileError` where they are absent or not those of the table."""
        return read_shown(self.observed_file, self.table)

    @property
    def folder(self) -> Path:
        """Folder where the run is stored."""
        return self.root / "runs" / self.stage / self.key

    def reads_beliefs(self) -> bool:
        """Return whether the outputs of the stage beliefs decide the run, beside its thresholds."""
        fits_shown = self.settings.readout is not None and base.load(self.method).labels == "single"
        return (
            fits_shown or self.settings.select == "auto" or self.estimated or "beliefs" in base.load(self.method).needs
        )

    def reads_places(self) -> bool:
        """Return whether cached features of places decide a linear head: by its kind, or by beliefs fitted anew."""
        refits = self.settings.select == "auto" and "beliefs" in base.load(self.method).needs
        return self.settings.head.kind == "places" or (refits and self.believing.get("sharpness") is not None)

    def describe_problem(self, observed: np.ndarray, width: int) -> Problem:
        """Return what the method may know before training.

        Args:
            observed: (N, C) labels of the training split as the method sees them.
            width: D of the network's features.

        Returns:
            The problem, with beliefs where the method needs them.

        Raises:
            FileError: The beliefs are absent, damaged, or not those of the table.
        """  # noqa: DOC502  raised by `beliefs`
        problem = describe(self.table.classes, observed, self.expected_positives, width)
        if "beliefs" not in base.load(self.method).needs:
            return problem
        beliefs = self.beliefs.belief[self.table.rows("train")]
        return replace(problem, beliefs=torch.from_numpy(beliefs))


@dataclass(frozen=True)
class Start:
    """What a stage gives to a run."""

    make_network: Callable[[Head], Network]
    """Builds the network before training, by the settings of its head; called for each trial, from the same random
    stream."""
    make_inputs: Callable[[Network], dict[str, Inputs]]
    """Returns the three splits as the network reads them."""
    reads: list[Path]
    """Files that decide the result, for the fingerprint of resume points and for provenance."""
    inherited: Path | None = None
    """State dict of the method in an earlier stage, whose ``carries`` this run takes over."""
    scale: Scale | None = None
    """Scale of the features in the head that the run goes on from; None: as its own settings say."""
    cache: Cache | None = None
    """The feature cache, where the network is a head on it. Such a head trains in seconds, so that ``select:
    auto`` can train it anew without a part of the images."""


def feature_inputs(cache: Cache, run: Run, head: nn.Module) -> dict[str, Inputs]:
    """Return cached features of the three splits, with those of places for a head that scores by them.

    Args:
        cache: The cache.
        run: The run.
        head: The head.

    Raises:
        FileError: The cache holds none of places, and the head scores by them.
    """
    scored = isinstance(head, PlacesHead)
    if scored and cache.places is None:
        raise FileError(f"data/features/{run.dataset}: holds no features of places; run the stage features again")
    inputs: dict[str, Inputs] = {}
    for split in SPLITS:
        rows = run.table.rows(split)
        views = (cache.mirrored, run.settings.flip) if split == "train" else (None, False)
        places = Picked(cache.places, rows) if scored and cache.places is not None else None
        inputs[split] = FeatureInputs(cache.plain[rows], *views, places)
    return inputs


def image_inputs(run: Run, network: Network) -> dict[str, Inputs]:
    """Return packed images of the three splits, normalised as the network's backbone wants them."""
    pixels = images.Pixels(run.root / "data" / "prepare" / run.dataset / "images.h5")
    random_views = {"flip": run.settings.flip, "crop": run.settings.crop, "strong": run.settings.strong}
    return {
        split: ImageInputs(
            pixels, run.table.rows(split), network.mean, network.std, **(random_views if split == "train" else {})
        )
        for split in SPLITS
    }


def image_reads(run: Run, weights: Path) -> list[Path]:
    """Return the files that decide a run on images.

    Args:
        run: The run.
        weights: File of the weights that it starts from.

    Returns:
        Weights, images and labels.
    """
    return [weights, run.table_file.with_name("images.h5"), run.observed_file]
