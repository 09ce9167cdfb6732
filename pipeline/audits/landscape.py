"""Loss landscape around trained weights along filter-normalised random directions.

curve(a) = loss(w + a d), surface(a, b) = loss(w + a x + b y), with d, x, y Gaussian per parameter and rescaled slice by
slice along dimension 0 (a filter, an output neuron): d_f <- d_f ||w_f|| / (||d_f|| + 1e-10). Parameters with at most
one dimension (biases, batch-norm scale and shift) do not move.

Source: Li et al., "Visualizing the Loss Landscape of Neural Nets", NeurIPS 2018, https://arxiv.org/abs/1712.09913; used
in Zhou et al., ECCV 2022, Figure 5.
Authors' code: tomgoldstein/loss-landscape @64ef4d5, net_plotter.py, norm='filter', ignore='biasbn', dir_type='weights'.
Differs from the source in:
- the network is never written to (torch.func.functional_call); its running statistics stay those of the trained point
  and it is evaluated in eval mode;
- the loss is taken over all images at once, not averaged over batches, so that losses that are not a mean over cells
  have one meaning whatever the batch size;
- an even number of points, or a centre that is not the trained loss, is an error.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from pipeline.core.errors import LandscapeError
from pipeline.core.progress import track

EPSILON = 1e-10  # the authors' constant; keeps a raw slice of zeros at zero
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}  # kernels may sum in another order from call to call

Tensors = dict[str, Tensor]
Loss = Callable[[Tensors, Tensors], float]
"""(network outputs over all images, parameters) -> loss."""


def raw_directions(network: nn.Module, generator: torch.Generator) -> Tensors:
    """Draw one Gaussian tensor for each parameter, in the order of ``named_parameters``.

    Args:
        network: The trained network; only names, shapes, types and devices of its parameters are read.
        generator: CPU generator. Equal generators give equal draws for networks of one architecture.

    Returns:
        Standard normal tensors by parameter name, of each parameter's shape, type and device.
    """
    return {
        name: torch.randn(parameter.shape, generator=generator).to(parameter)
        for name, parameter in network.named_parameters()
    }


def filter_normalise(raw: Tensors, parameters: Tensors) -> Tensors:
    """Give each slice of a direction the norm of the weights that it moves.

    Args:
        raw: Direction by parameter name.
        parameters: Trained parameters by name, of the same shapes, without gradient.

    Returns:
        Directions whose slices along dimension 0 have the Frobenius norm of the parameter's slice (0 for a zero filter
        and for a zero raw slice); zero for parameters with at most one dimension.
    """
    result = {}
    for name, weight in parameters.items():
        if weight.ndim < 2:
            result[name] = torch.zeros_like(weight)
            continue
        direction = raw[name]
        scale = weight.flatten(1).norm(dim=1) / (direction.flatten(1).norm(dim=1) + EPSILON)  # (filters,)
        result[name] = direction * scale.reshape(-1, *[1] * (weight.ndim - 1))
    return result


def digest(tensors: Tensors) -> str:
    """Return the hexadecimal SHA-256 of tensors and their names: equal for equal draws."""
    result = hashlib.sha256()
    for name, tensor in tensors.items():
        result.update(name.encode())
        result.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return result.hexdigest()


def offsets(points: int, radius: float) -> np.ndarray:
    """Return an evenly spaced symmetric grid with 0 in its middle.

    Args:
        points: Odd number of points.
        radius: Largest offset, > 0.

    Returns:
        (points,) float64, ascending from -radius to radius.

    Raises:
        ValueError: ``points`` is even, so that no point would be the trained network.
    """
    if points < 1 or points % 2 == 0:
        raise ValueError(f"{points} points: an odd number is needed, so that the trained weights lie on the grid")
    half = points // 2
    return radius * np.arange(-half, half + 1) / max(half, 1)


def evaluate(network: nn.Module, parameters: Tensors, batches: Iterable[Tensor]) -> Tensors:
    """Run the network with other parameters, leaving it as it is.

    Args:
        network: Network in eval mode that returns a dict of tensors with the batch in front.
        parameters: Parameters by name, instead of its own.
        batches: Input batches (B, ...), in order.

    Returns:
        The network's outputs over all batches, concatenated, without gradient.
    """
    with torch.no_grad():
        parts = [functional_call(network, parameters, (images,)) for images in batches]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def trained_loss(network: nn.Module, loss: Loss, batches: Sequence[Tensor]) -> float:
    """Return the loss of the network as it is, by an ordinary call.

    Args:
        network: Network in eval mode.
        loss: The loss.
        batches: Input batches, in order.

    Returns:
        The loss over all images.
    """
    with torch.no_grad():
        parts = [network(images) for images in batches]
    outputs = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return float(loss(outputs, _weights(network)))


def curve(
    network: nn.Module, loss: Loss, batches: Sequence[Tensor], direction: Tensors, grid: np.ndarray
) -> np.ndarray:
    """Evaluate the loss along one direction.

    Args:
        network: Trained network in eval mode; not altered.
        loss: The loss over all images, of outputs and parameters.
        batches: Input batches, in order.
        direction: Direction by parameter name.
        grid: (n,) offsets with 0 in the middle (see ``offsets``).

    Returns:
        (n,) float64 losses.

    Raises:
        ValueError: The grid has no 0 in its middle, or a module is in training mode.
        LandscapeError: The loss at 0 is not the trained loss.
    """  # noqa: DOC502  LandscapeError comes from `_check_centre`
    _check(network, grid)
    weights = _weights(network)
    values = np.empty(len(grid))
    for i, offset in enumerate(track(grid.tolist(), "curve", len(grid), "point")):
        moved = _moved(weights, direction, offset)
        values[i] = loss(evaluate(network, moved, batches), moved)
    _check_centre(values[len(grid) // 2], network, loss, batches)
    return values


def surface(
    network: nn.Module, loss: Loss, batches: Sequence[Tensor], x: Tensors, y: Tensors, grid: np.ndarray
) -> np.ndarray:
    """Evaluate the loss on the plane that two directions span (they are not made orthogonal).

    Args:
        network: Trained network in eval mode; not altered.
        loss: The loss over all images, of outputs and parameters.
        batches: Input batches, in order.
        x: Direction of the first axis.
        y: Direction of the second axis.
        grid: (n,) offsets along both, with 0 in the middle (see ``offsets``).

    Returns:
        (n, n) float64 losses; entry [i, j] at ``grid[i]`` along ``x`` and ``grid[j]`` along ``y``.

    Raises:
        ValueError: The grid has no 0 in its middle, or a module is in training mode.
        LandscapeError: The loss at (0, 0) is not the trained loss.
    """  # noqa: DOC502  LandscapeError comes from `_check_centre`
    _check(network, grid)
    weights = _weights(network)
    values = np.empty((len(grid), len(grid)))
    row: Tensors = {}
    for i, j in track(np.ndindex(values.shape), "surface", values.size, "point"):
        if j == 0:
            row = _moved(weights, x, float(grid[i]))
        moved = _moved(row, y, float(grid[j]))
        values[i, j] = loss(evaluate(network, moved, batches), moved)
    _check_centre(values[len(grid) // 2, len(grid) // 2], network, loss, batches)
    return values


def _weights(network: nn.Module) -> Tensors:
    return {name: parameter.detach() for name, parameter in network.named_parameters()}


def _moved(weights: Tensors, direction: Tensors, offset: float) -> Tensors:
    return {name: torch.add(weight, direction[name], alpha=offset) for name, weight in weights.items()}


def _check(network: nn.Module, grid: np.ndarray) -> None:
    if len(grid) % 2 == 0 or grid[len(grid) // 2] != 0:
        raise ValueError(f"the grid must have 0 in its middle: {grid.tolist()}")
    training = [name or "network" for name, module in network.named_modules() if module.training]
    if training:
        raise ValueError(f"the landscape is taken in eval mode; in training mode: {', '.join(training[:3])}")


def _check_centre(centre: float, network: nn.Module, loss: Loss, batches: Sequence[Tensor]) -> None:
    trained = trained_loss(network, loss, batches)
    dtype = next(network.parameters()).dtype
    if not abs(centre - trained) <= TOLERANCE.get(dtype, 1e-5) * max(1.0, abs(trained)):  # a NaN fails too
        raise LandscapeError(f"the loss at the centre is {centre!r}, the trained network's is {trained!r}")
