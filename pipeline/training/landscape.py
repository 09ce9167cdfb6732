"""What a loss landscape needs of a finished run: its network, its images, and its method's own loss.

The images are one fixed sample of the training split, without augmentation, in row order, the same for all methods; so
are the Gaussian draws of the directions. A method of several views gets the same image as every view, and that of a
head which scores by places the pooled logits that it was trained on. A norm of weights is of those that the run
trained. What a stage adds to the loss of every method, weight decay and consistency within groups, is left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.audits import landscape
from pipeline.audits.settings import Landscape
from pipeline.core import files, hdf5, seeds
from pipeline.core.errors import LandscapeError
from pipeline.data import images
from pipeline.labels.observed import read_observed
from pipeline.methods.shared import base
from pipeline.methods.shared.base import Method
from pipeline.networks import network as networks
from pipeline.networks.interface import Outputs
from pipeline.networks.network import Network
from pipeline.networks.places import PlacesHead
from pipeline.training.features import read_features
from pipeline.training.inputs import FeatureInputs, ImageInputs, Inputs, Picked, batches
from pipeline.training.run import Run

STORED_TOLERANCE = 0.02
"""The stored logits may come from another batch size, device or precision; another image or weight is far outside."""


@dataclass(frozen=True)
class Point:
    """A trained network in eval mode, with the sample of images on which its loss is taken."""

    network: Network
    method: Method
    state: dict[str, Tensor]
    """State of the method, as the run stored it."""
    index: np.ndarray
    """Sampled rows of the training split, ascending."""
    batches: list[Tensor]
    """The sampled images, normalised, or their cached features."""
    loss: landscape.Loss
    """The method's own loss."""
    stored_difference: float
    """Largest difference to the logits that the run stored."""


@dataclass(frozen=True)
class Curves:
    """A landscape along one direction and over a plane."""

    offsets_1d: np.ndarray
    loss_1d: np.ndarray
    offsets_2d: np.ndarray
    loss_2d: np.ndarray
    digests: dict[str, str]
    """SHA-256 of the raw direction of each axis, "x" and "y"."""

    @property
    def centre(self) -> float:
        """Loss at the trained weights."""
        return float(self.loss_1d[len(self.loss_1d) // 2])


def read_point(run: Run, settings: Landscape, device: torch.device) -> Point:
    """Restore the network and the method of a finished run.

    Args:
        run: The run.
        settings: How many images, and the seed of the sample.
        device: Where to compute.

    Returns:
        Network, method, images and loss.
    """
    train = run.table.rows("train")
    labels = base.load(run.method).labels
    observed = read_observed(run.observed_file, run.table, [labels])[labels][train]
    network = networks.restore(run.folder / "weights.pt").to(device)
    problem = run.describe_problem(observed, network.architecture["width"])
    method = base.build(run.method, run.method_settings, problem).to(device).eval()
    state = files.read_torch(run.folder / "method.pt")
    method.load_state_dict(state)

    index = sample_images(len(train), settings.images, settings.direction_seed, run.dataset)
    inputs, parts = (
        _read_inputs(run, network, train),
        [index[part] for part in batches(len(index), settings.batch_size)],
    )
    scored = (inputs.plain(part).to(device) for part in parts)
    difference = compare_with_stored(run.folder / "logits.h5", network, scored, index)
    network = _score_as_trained(network).to(device)
    network.freeze(run.settings.freeze, run.settings.batch_norm == "frozen")  # so that the same weights count
    sampled = [inputs.views(part, ("weak",), 0, 1).to(device) for part in parts]  # nothing augments them
    trained = set(map(id, network.weights()))
    names = [name for name, parameter in network.named_parameters() if id(parameter) in trained]
    labels, rows = torch.from_numpy(observed[index]).to(device), torch.from_numpy(index).to(device)
    return Point(network, method, state, index, sampled, make_loss(method, labels, rows, names), difference)


def _read_inputs(run: Run, network: Network, train: np.ndarray) -> Inputs:
    """Return the training images as the network reads them: packed, or as cached features where it is a head alone."""
    if network.architecture["backbone"] is None:
        cache = run.root / "data" / "features" / run.dataset / "features.h5"
        stored = read_features(cache, run.table, isinstance(network.head, PlacesHead))
        places = None if stored.places is None else Picked(stored.places, train)
        return FeatureInputs(stored.plain[train], None, False, places)
    pixels = images.Pixels(run.root / "data" / "prepare" / run.dataset / "images.h5")
    return ImageInputs(pixels, train, network.mean, network.std)


def _score_as_trained(network: Network) -> Network:
    """Return a network whose logits are those that it was trained on: pooled ones of a head that scores by places."""
    if not isinstance(network.head, PlacesHead):
        return network
    made = Network(network.architecture | {"head": {"kind": "linear", "scale": "none"}})
    made.load_state_dict(network.state_dict())
    return made.eval()


def compute_curves(point: Point, settings: Landscape) -> Curves:
    """Evaluate the loss along one random direction and over the plane of two.

    Args:
        point: The trained network.
        settings: Grids and seed of the directions.

    Returns:
        Offsets and losses.

    Raises:
        LandscapeError: The loss overflows everywhere but at the trained weights.
    """
    network = point.network
    raw = {
        axis: landscape.raw_directions(
            network, seeds.torch_generator(settings.direction_seed, "landscape", "direction", axis)
        )
        for axis in ("x", "y")
    }
    weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
    x, y = (landscape.filter_normalise(raw[axis], weights) for axis in ("x", "y"))
    line, plane = (landscape.offsets(n, settings.radius) for n in (settings.points_1d, settings.points_2d))
    loss_1d = landscape.curve(network, point.loss, point.batches, x, line)
    loss_2d = landscape.surface(network, point.loss, point.batches, x, y, plane)
    if len(line) > 1 and np.isfinite(loss_1d).sum() == 1:
        around = "the loss overflows everywhere but at the trained weights; choose a smaller one"
        raise LandscapeError(f"landscape.radius: {settings.radius:g}: {around}")
    return Curves(line, loss_1d, plane, loss_2d, {axis: landscape.digest(draw) for axis, draw in raw.items()})


def sample_images(n: int, size: int, seed: int, dataset: str) -> np.ndarray:
    """Return the images of a dataset's landscapes: the same ones for every method and training seed.

    Args:
        n: Training images.
        size: Images wanted; all of them where there are fewer.
        seed: Seed of the directions.
        dataset: Name of the dataset.

    Returns:
        (min(n, size),) int64 rows of the training split, ascending.
    """
    generator = seeds.numpy_generator(seed, "landscape", "images", dataset)
    return np.sort(generator.choice(n, size=min(n, size), replace=False)).astype(np.int64)


def make_loss(method: Method, observed: Tensor, index: Tensor, trained: Sequence[str]) -> landscape.Loss:
    """Return the method's loss over all images at once, as a function of outputs and parameters.

    Args:
        method: The method in eval mode, with its trained state. Each evaluation starts from that state and from the
            same random stream, whatever the method writes or draws while it is called.
        observed: (B, C) labels that the method was given.
        index: (B,) rows of the training split.
        trained: Names of the weights that the method is given where it asks for parameters: those in training.

    Returns:
        The loss for the landscape.
    """
    state = {name: value.detach().clone() for name, value in method.state_dict().items()}
    views = len(method.views)
    whole = torch.tensor([0.0, 0, 1, 1, 0], device=observed.device)

    def loss(outputs: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> float:
        method.load_state_dict(state)
        given: dict[str, Any] = {name: tensor.expand(views, *tensor.shape) for name, tensor in outputs.items()}
        given["parameters"] = tuple(parameters[name] for name in trained)
        if "geometry" in method.needs:
            given["geometry"] = whole.expand(views, len(index), 5)
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            terms = method(Outputs(**given), observed, index)
        return float(sum(terms.values()))

    return loss


def compare_with_stored(path: Path, network: nn.Module, batches: Iterable[Tensor], index: np.ndarray) -> float:
    """Return the largest difference to the logits that the run stored.

    Args:
        path: The run's logits.h5.
        network: The restored network.
        batches: The sampled images.
        index: Their rows of the training split.

    Returns:
        Largest absolute difference, in logits.

    Raises:
        LandscapeError: The restored network is not the one whose logits were stored.
    """
    with hdf5.read(path) as file:
        stored = file["train"][()][index].astype(np.float64)
    with torch.no_grad():
        restored = torch.cat([network(batch)["logits"] for batch in batches]).double().cpu().numpy()
    gap = np.abs(restored - stored)
    if not gap.mean() <= STORED_TOLERANCE * (1 + np.abs(stored).mean()):
        raise LandscapeError(
            f"{path}: stored logits of train differ from those of weights.pt by {gap.mean():.3g} on average"
        )
    return float(gap.max())


def write_landscape(path: Path, inputs: list[Path], point: Point, curves: Curves, attributes: dict[str, Any]) -> None:
    """Write a landscape to an HDF5 file.

    Args:
        path: Target file, ``landscape.h5``.
        inputs: Sealed files that it is made from.
        point: The trained network.
        curves: Its landscape.
        attributes: Further attributes of the file, after the loss at the centre.
    """
    unit = "loss, mean over images and classes"
    with hdf5.create(path, inputs) as file:
        hdf5.write_array(file, "offsets_1d", curves.offsets_1d, axes="point", units="filter norms along x")
        hdf5.write_array(file, "loss_1d", curves.loss_1d, axes="point", units=unit)
        hdf5.write_array(file, "offsets_2d", curves.offsets_2d, axes="point", units="filter norms along x, and along y")
        hdf5.write_array(file, "loss_2d", curves.loss_2d, axes="point along x, point along y", units=unit)
        hdf5.write_array(file, "image_index", point.index, axes="image", units="row of the training split")
        file.attrs.update({"centre_loss": curves.centre, **attributes})
        for axis, digest in curves.digests.items():
            file.attrs[f"raw_direction_{axis}_sha256"] = digest


def summarise_curves(curves: Curves) -> dict[str, Any]:
    """Return the figures of a landscape; null where a loss overflowed.

    Args:
        curves: The landscape.

    Returns:
        Extremes, counts of points, and the mean rise at both ends of the curve.
    """
    centre, loss_1d = curves.centre, curves.loss_1d
    figures: dict[str, Any] = {"centre_loss": centre}
    for name, values in (("1d", loss_1d), ("2d", curves.loss_2d)):
        finite = values[np.isfinite(values)]
        figures[f"min_{name}"], figures[f"max_{name}"] = float(finite.min()), float(finite.max())  # centre is finite
        figures[f"points_{name}"] = int(values.size)
        figures[f"not_finite_{name}"] = int(values.size - finite.size)
        figures[f"below_centre_{name}"] = int((finite < centre).sum())
    ends = (loss_1d[0] + loss_1d[-1]) / 2
    figures["rise_at_radius_1d"] = float(ends - centre) if np.isfinite(ends) else None
    figures["reason"] = None if np.isfinite(ends) else "the loss at an end of the curve is not finite"
    return figures
