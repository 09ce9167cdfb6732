"""Take the loss landscape around one trained network: ``python -m stages.landscape DATASET METHOD SEED``.

Reads images, labels and {weights.pt, method.pt, logits.h5} of runs/<stage>/<dataset>-<method>-<seed>/, where
<stage> is finetune; writes analyses/landscape/<dataset>-<method>-<seed>/. The loss is the method's own, with the
state that the run left in method.pt: labels that it stored enter. A norm of weights is of those that the run trained.
The images are one fixed sample of the training split, without augmentation, in row order, the same for all methods; so
are the Gaussian draws of the directions. A method of several views gets the same picture as every view.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.audits import landscape as landscapes
from pipeline.audits.settings import Landscape
from pipeline.config.params import read_params
from pipeline.core import files, hdf5, seeds
from pipeline.core.device import choose_device
from pipeline.data import images
from pipeline.labels.table import Table, read_table
from pipeline.methods.shared import base
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.problem import describe
from pipeline.networks import network as networks
from pipeline.networks.interface import Outputs
from pipeline.training import inputs
from stages import entry

STAGE = "finetune"  # whose networks are looked at; dvc.yaml depends on its runs
# The stored logits may come from another batch size, device or precision; another picture or weight is far outside.
STORED_TOLERANCE = 0.02


def landscape(root: Path, dataset: str, method: str, seed: int) -> None:
    """Evaluate the 1-D and 2-D landscapes of a trained network.

    Args:
        root: Project root.
        dataset: Name of a dataset.
        method: Name of the method that trained the network.
        seed: Training seed.
    """
    params = read_params(root / "params.yaml")
    settings = params.settings("landscape", dataset)
    training, own = params.run(STAGE, dataset, method)
    key = f"{dataset}-{method}-{seed}"
    run = root / "runs" / STAGE / key
    table = read_table(root / "data" / "prepare" / dataset / "table.h5")
    train = table.rows("train")
    device = choose_device()

    observed = _observed(root / "data" / "simulate" / dataset / "observed.h5", base.load(method).labels, train)
    network = networks.restore(run / "weights.pt").to(device)
    network.freeze(training.freeze, training.batch_norm == "frozen")  # as in training, so that the same weights count
    known = describe(table.classes, observed, params.density(dataset), network.architecture["width"])
    charged = base.build(method, own, known).to(device).eval()
    state = files.read_torch(run / "method.pt")
    charged.load_state_dict(state)

    index = sample(len(train), settings.images, settings.direction_seed, dataset)
    pixels = images.Pixels(root / "data" / "prepare" / dataset / "images.h5")
    pictures = inputs.ImageInputs(pixels, train, network.mean, network.std)
    batches = [pictures.plain(index[part]).to(device) for part in inputs.batches(len(index), settings.batch_size)]
    difference = _stored_difference(run / "logits.h5", network, batches, index)

    in_training = set(map(id, network.weights()))
    trained = [name for name, each in network.named_parameters() if id(each) in in_training]
    labels, rows = torch.from_numpy(observed[index]).to(device), torch.from_numpy(index).to(device)
    loss = own_loss(charged, labels, rows, trained)
    raw = {axis: landscapes.raw_directions(network, _stream(settings.direction_seed, axis)) for axis in ("x", "y")}
    weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
    x, y = (landscapes.filter_normalise(raw[axis], weights) for axis in ("x", "y"))
    line, plane = (landscapes.offsets(n, settings.radius) for n in (settings.points_1d, settings.points_2d))
    loss_1d = landscapes.curve(network, loss, batches, x, line)
    loss_2d = landscapes.surface(network, loss, batches, x, y, plane)
    centre = float(loss_1d[len(line) // 2])

    folder = root / "analyses" / "landscape" / key
    with hdf5.create(folder / "landscape.h5") as file:
        hdf5.put(file, "offsets_1d", line, axes="point", units="filter norms along x")
        hdf5.put(file, "loss_1d", loss_1d, axes="point", units="loss, mean over images and classes")
        hdf5.put(file, "offsets_2d", plane, axes="point", units="filter norms along x, and along y")
        hdf5.put(
            file, "loss_2d", loss_2d, axes="point along x, point along y", units="loss, mean over images and classes"
        )
        hdf5.put(file, "image_index", index, axes="image", units="row of the training split")
        file.attrs.update({"centre_loss": centre, "direction_seed": settings.direction_seed, "images": len(index)})
        file.attrs.update({"method": method, "stage": STAGE, "stored_state": ", ".join(state)})
        for axis in ("x", "y"):
            file.attrs[f"raw_direction_{axis}_sha256"] = landscapes.digest(raw[axis])
    metrics = _metrics(loss_1d, loss_2d, centre) | {"images": len(index), "stored_logits_difference": difference}
    files.write_json(folder / "metrics.json", metrics)
    lines = _summary(key, settings, table, charged, list(state), metrics)
    files.write_summary(folder / "summary.md", f"Loss landscape of {STAGE}/{key}", lines)


def sample(n: int, size: int, seed: int, dataset: str) -> np.ndarray:
    """Choose the images of a dataset's landscapes: the same ones for every method and training seed.

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


def own_loss(method: Method, observed: Tensor, index: Tensor, trained: Sequence[str]) -> landscapes.Loss:
    """Return the method's loss over all images at once, of outputs and parameters.

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


def _observed(path: Path, labels: str, rows: np.ndarray) -> np.ndarray:
    with hdf5.read(path) as file:
        return file[labels][()][rows]


def _stream(seed: int, axis: str) -> torch.Generator:
    return seeds.torch_generator(seed, "landscape", "direction", axis)


def _stored_difference(path: Path, network: nn.Module, batches: list[Tensor], index: np.ndarray) -> float:
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
        found = torch.cat([network(batch)["logits"] for batch in batches]).double().cpu().numpy()
    gap = np.abs(found - stored)
    if not gap.mean() <= STORED_TOLERANCE * (1 + np.abs(stored).mean()):
        raise landscapes.LandscapeError(
            f"{path}: stored logits of train differ from those of weights.pt by {gap.mean():.3g} on average"
        )
    return float(gap.max())


def _metrics(loss_1d: np.ndarray, loss_2d: np.ndarray, centre: float) -> dict[str, Any]:
    """Return what metrics.json holds; null where a loss overflowed."""
    result: dict[str, Any] = {"centre_loss": centre}
    for name, values in (("1d", loss_1d), ("2d", loss_2d)):
        finite = values[np.isfinite(values)]
        result[f"min_{name}"], result[f"max_{name}"] = float(finite.min()), float(finite.max())  # the centre is finite
        result[f"points_{name}"] = int(values.size)
        result[f"not_finite_{name}"] = int(values.size - finite.size)
        result[f"below_centre_{name}"] = int((finite < centre).sum())
    ends = (loss_1d[0] + loss_1d[-1]) / 2
    result["rise_at_radius_1d"] = float(ends - centre) if np.isfinite(ends) else None
    result["reason"] = None if np.isfinite(ends) else "the loss at an end of the curve is not finite"
    return result


def _summary(
    key: str, settings: Landscape, table: Table, method: Method, state: list[str], metrics: dict[str, Any]
) -> list[str]:
    lines = [
        f"Network: runs/{STAGE}/{key}/weights.pt, in eval mode; batch-norm statistics stay those of the run.",
        f"Images: {metrics['images']} of {len(table.rows('train'))} of the training split, without augmentation, the"
        f" same for every method (`image_index`). Labels given to the method: `{method.labels}`.",
        "Loss: the method's own, as the run left it, over all images at once. What it stored enters:"
        f" {', '.join(f'`{name}`' for name in state) or 'nothing'}.",
        f"Directions: Gaussian, seed {settings.direction_seed}, scaled filter by filter to this network's weights; the"
        " raw draws are equal for networks of one architecture. Biases and norm layers do not move.",
    ]
    if len(method.views) > 1:
        lines.append(f"The method compares {len(method.views)} views; each is the same picture without augmentation.")
    if method.coupled:
        lines.append(
            "Warning: the method's loss is not a mean over cells, so it depends on how many images are taken at once;"
            " its height is not that of the training log."
        )
    for name in ("1d", "2d"):
        if metrics[f"not_finite_{name}"]:
            lines.append(f"Warning: {metrics[f'not_finite_{name}']} points of the {name} grid are not finite.")
    rise = metrics["rise_at_radius_1d"]
    return [
        *lines,
        "",
        f"Loss at the trained weights {metrics['centre_loss']:.6f}; along x {metrics['min_1d']:.6f} to"
        f" {metrics['max_1d']:.6f}, on the plane {metrics['min_2d']:.6f} to {metrics['max_2d']:.6f}; mean rise at"
        f" offset {settings.radius:g} along x {'-' if rise is None else f'{rise:.6f}'}.",
        f"Largest difference between the logits of the restored network and those that the run stored:"
        f" {metrics['stored_logits_difference']:.3g}.",
        "",
        "## Files",
        "",
        "- `landscape.h5`: `offsets_1d`, `loss_1d`; `offsets_2d`, `loss_2d` [i, j] at offset i along x and j along y."
        " Heights of different methods are different losses: compare shapes, not levels.",
        "- `metrics.json`: extremes, the number of points below the centre, the mean rise at both ends of the curve.",
    ]


if __name__ == "__main__":
    entry.run(landscape)
