import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pipeline.audits import landscape

GOLDEN = json.loads((Path(__file__).resolve().parents[1] / "goldens" / "landscape.json").read_text())["cases"]


class Named(nn.Module):
    """A module that answers as networks do: a dict of tensors."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.inner(images)}


def small_network(seed: int = 0) -> nn.Module:
    """Convolution, batch norm with statistics that are not its initial ones, linear layer; in eval mode."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(4 * 9, 5)]
    network = Named(nn.Sequential(*layers))
    network(torch.randn(8, 3, 5, 5))  # train mode: moves the running statistics
    return network.eval()


def batches(seed: int = 1) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, 3, 5, 5, generator=generator) for size in (4, 3)]


def mean_softplus(outputs: dict[str, torch.Tensor], _: dict[str, torch.Tensor]) -> float:
    return float(nn.functional.softplus(outputs["logits"]).mean())


def directions(network: nn.Module, seed: int) -> dict[str, torch.Tensor]:
    raw = landscape.raw_directions(network, torch.Generator().manual_seed(seed))
    return landscape.filter_normalise(raw, {name: value.detach() for name, value in network.named_parameters()})


@pytest.mark.parametrize("case", GOLDEN[:2], ids=lambda case: case["name"])
def test_filter_normalisation_agrees_with_the_golden(case: dict):
    weights, raw = (
        {name: torch.tensor(value, dtype=torch.float64) for name, value in case[key].items()}
        for key in ("weights", "raw_direction")
    )
    found = landscape.filter_normalise(raw, weights)
    for name, expected in case["expected"]["direction"].items():
        torch.testing.assert_close(found[name], torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)
    for name, expected in case["expected"]["direction_norm_per_filter"].items():
        norms = [float(found[name][f].pow(2).sum().sqrt()) for f in range(len(expected))]
        assert norms == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", ["em", "an"])
def test_landscape_of_a_linear_model_agrees_with_the_golden(kind: str):
    case = GOLDEN[2]
    expected, alpha = case["expected"], case["settings"]["alpha"]
    linear = nn.Linear(3, 4).double()
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(case["weight"], dtype=torch.float64))
        linear.bias.copy_(torch.tensor(case["bias"], dtype=torch.float64))
    network = Named(linear).eval()
    observed = torch.tensor(case["observed"])
    weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
    axes = {}
    for axis in ("x", "y"):
        raw = {"inner.weight": torch.tensor(case[f"raw_direction_{axis}"], dtype=torch.float64)}
        raw["inner.bias"] = torch.ones(4, dtype=torch.float64)
        axes[axis] = landscape.filter_normalise(raw, weights)
        wanted = torch.tensor(expected[f"direction_{axis}"], dtype=torch.float64)
        torch.testing.assert_close(axes[axis]["inner.weight"], wanted, rtol=1e-9, atol=1e-12)

    def loss(outputs: dict[str, torch.Tensor], _: dict[str, torch.Tensor]) -> float:
        p = torch.sigmoid(outputs["logits"])
        entropy = -(p * p.log() + (1 - p) * (1 - p).log())
        unknown = -alpha * entropy if kind == "em" else -(1 - p).log()
        return float(torch.where(observed == 1, -p.log(), unknown).mean())

    features = torch.tensor(case["features"], dtype=torch.float64)
    line, plane = landscape.offsets(21, 1.0), landscape.offsets(5, 1.0)
    assert line == pytest.approx(case["settings"]["grid_1d"], abs=1e-15)
    assert plane == pytest.approx(case["settings"]["grid_2d"], abs=1e-15)
    curve = landscape.curve(network, loss, [features[:2], features[2:]], axes["x"], line)
    surface = landscape.surface(network, loss, [features], axes["x"], axes["y"], plane)
    assert curve == pytest.approx(expected[f"{kind}_1d"], rel=1e-9)
    assert surface == pytest.approx(np.array(expected[f"{kind}_2d"]), rel=1e-9)
    assert curve[10] == pytest.approx(expected[f"{kind}_centre"], rel=1e-12)
    assert surface[2, 2] == pytest.approx(expected[f"{kind}_centre"], rel=1e-12)


def test_points_are_networks_whose_weights_were_moved_by_hand():
    network, x, y = small_network(), directions(small_network(), 3), directions(small_network(), 4)
    grid = landscape.offsets(3, 0.7)
    surface = landscape.surface(network, mean_softplus, batches(), x, y, grid)
    line = landscape.curve(network, mean_softplus, batches(), x, grid)
    for i, a in enumerate(grid):
        for j, b in enumerate(grid):
            other = small_network()
            with torch.no_grad():
                for name, parameter in other.named_parameters():
                    parameter += a * x[name] + b * y[name]
                logits = other(torch.cat(batches()))["logits"]
            assert surface[i, j] == pytest.approx(float(nn.functional.softplus(logits).mean()), rel=1e-5)
        assert line[i] == pytest.approx(surface[i, 1], rel=1e-6)
    assert len({round(value, 4) for value in surface.flatten()}) == 9  # the axes are told apart, and nothing is flat


def test_the_network_is_never_written_to():
    network = small_network()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    x, y = directions(network, 3), directions(network, 4)
    landscape.curve(network, mean_softplus, batches(), x, landscape.offsets(5, 2.0))
    landscape.surface(network, mean_softplus, batches(), x, y, landscape.offsets(3, 2.0))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


def test_only_weights_of_two_or_more_dimensions_move():
    network = small_network()
    found = directions(network, 0)
    assert found.keys() == dict(network.named_parameters()).keys()  # no running statistic among them
    for name, parameter in network.named_parameters():
        if parameter.ndim < 2:
            assert not found[name].any()
            continue
        for weight, direction in zip(parameter.detach(), found[name], strict=True):
            assert float(direction.norm()) == pytest.approx(float(weight.norm()), rel=1e-5)


def test_a_zero_filter_and_a_zero_draw_stay_zero():
    weights = {"w": torch.tensor([[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]])}
    found = landscape.filter_normalise({"w": torch.tensor([[0.0, 2.0], [1.0, 1.0], [0.0, 0.0]])}, weights)["w"]
    torch.testing.assert_close(found, torch.tensor([[0.0, 5.0], [0.0, 0.0], [0.0, 0.0]]))


def test_raw_draws_are_those_of_the_architecture_and_the_seed():
    one, other = small_network(0), small_network(9)
    draws = [landscape.raw_directions(network, torch.Generator().manual_seed(5)) for network in (one, other)]
    assert landscape.digest(draws[0]) == landscape.digest(draws[1])
    assert landscape.digest(draws[0]) != landscape.digest(directions(one, 5))
    assert landscape.digest(draws[0]) != landscape.digest(
        landscape.raw_directions(one, torch.Generator().manual_seed(6))
    )
    assert not torch.equal(directions(one, 5)["inner.0.weight"], directions(other, 5)["inner.0.weight"])
    values = torch.cat([draw.flatten() for draw in draws[0].values()])
    assert float(values.mean()) == pytest.approx(0, abs=0.2) and float(values.std()) == pytest.approx(1, abs=0.2)


def test_batching_does_not_change_the_loss():
    network, grid = small_network(), landscape.offsets(3, 1.0)
    x = directions(network, 1)
    whole = torch.cat(batches())
    together = landscape.curve(network, mean_softplus, [whole], x, grid)
    one_by_one = landscape.curve(network, mean_softplus, list(whole.split(1)), x, grid)
    assert together == pytest.approx(one_by_one, rel=1e-5)


def test_the_loss_sees_the_moved_parameters():
    network = small_network()
    x = directions(network, 1)

    def squares(_: dict[str, torch.Tensor], parameters: dict[str, torch.Tensor]) -> float:
        return float(sum(value.pow(2).sum() for value in parameters.values()))

    found = landscape.curve(network, squares, batches(), x, landscape.offsets(3, 1.0))
    weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
    by_hand = [sum(float((w + a * x[name]).pow(2).sum()) for name, w in weights.items()) for a in (-1, 0, 1)]
    assert found == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("points", [0, 2, 20])
def test_an_even_number_of_points_is_refused(points: int):
    with pytest.raises(ValueError, match="odd"):
        landscape.offsets(points, 1.0)


def test_one_point_is_the_trained_network():
    assert landscape.offsets(1, 3.0).tolist() == [0.0]
    assert landscape.offsets(5, 3.0).tolist() == [-3.0, -1.5, 0.0, 1.5, 3.0]


def test_a_grid_without_the_trained_network_is_refused():
    network = small_network()
    for grid in (np.array([-1.0, 1.0]), np.array([-1.0, 0.1, 1.0])):
        with pytest.raises(ValueError, match="0 in its middle"):
            landscape.curve(network, mean_softplus, batches(), directions(network, 0), grid)


def test_training_mode_is_refused():
    network = small_network()
    network.get_submodule("inner.1").train()
    with pytest.raises(ValueError, match=r"training mode: inner\.1"):
        landscape.curve(network, mean_softplus, batches(), directions(network, 0), landscape.offsets(3, 1.0))


def test_a_centre_that_is_not_the_trained_loss_is_an_error():
    network = small_network()
    calls = []

    def drifting(outputs: dict[str, torch.Tensor], parameters: dict[str, torch.Tensor]) -> float:
        calls.append(1)
        return mean_softplus(outputs, parameters) + 1e-3 * len(calls)

    x, y = directions(network, 0), directions(network, 1)
    with pytest.raises(landscape.LandscapeError, match="centre"):
        landscape.curve(network, drifting, batches(), x, landscape.offsets(3, 1.0))
    with pytest.raises(landscape.LandscapeError, match="centre"):
        landscape.surface(network, drifting, batches(), x, y, landscape.offsets(3, 1.0))
    broken = {name: torch.full_like(value, torch.nan) for name, value in x.items()}
    with pytest.raises(landscape.LandscapeError, match="nan"):
        landscape.curve(network, mean_softplus, batches(), broken, landscape.offsets(3, 1.0))
