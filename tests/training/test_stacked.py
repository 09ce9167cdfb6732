"""Stacked heads against the product's own trainer, one after another, over every method that cached features serve."""

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

from pipeline.core import seeds
from pipeline.core.errors import ConfigError, TrainingError
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import Problem, describe
from pipeline.networks.network import Network
from pipeline.training.inputs import FeatureInputs, Inputs
from pipeline.training.loop import Data, Plan, Trainer
from pipeline.training.search import Setting
from pipeline.training.settings import Training
from pipeline.training.stacked import GIVES, TOLD, Head, Stack
from tests import tiny

N, VAL, C, D, EPOCHS = 21, 9, 4, 6, 4
CPU = torch.device("cpu")


def names() -> list[str]:
    """Methods that a stack can train."""
    given = GIVES | TOLD
    kinds = {name: base.load(name) for name in base.names()}
    return [
        name for name, kind in kinds.items() if kind.views == ("weak",) and kind.needs <= given and not kind.closed_form
    ]


class DoubleInputs(FeatureInputs):
    """Features that stay as exact as they are."""

    def views(self, index: np.ndarray, names: tuple[str, ...], seed: int, epoch: int) -> torch.Tensor:
        return self.features[torch.from_numpy(index)]

    def plain(self, index: np.ndarray) -> torch.Tensor:
        return self.features[torch.from_numpy(index)]


@cache
def own_settings(name: str) -> dict[str, Any]:
    file = Path(__file__).parents[2] / "params" / "methods" / f"{name}.yaml"
    return YAML(typ="safe", pure=True).load(file.read_text())["default"]


def labels(draw: int) -> torch.Tensor:
    """One positive a row, of two that there are."""
    generator = np.random.default_rng(draw)
    observed = np.zeros((N, C), np.int8)
    observed[np.arange(N), (np.arange(N) + generator.integers(0, 2, N)) % C] = 1
    return torch.from_numpy(observed)


def pose(observed: torch.Tensor) -> Problem:
    problem = describe(tuple("abcd"), observed.numpy(), 1.6, D)
    beliefs = torch.from_numpy(np.random.default_rng(1).random((N, C), np.float32))
    return Problem(**{**vars(problem), "beliefs": beliefs})


def settings(**changes: Any) -> Training:
    block = {"optimizer": "adam", "momentum": 0.9, "batch_size": 5, "epochs": EPOCHS, "keep_epoch_logits": False}
    return tiny.training(**{**block, "select": "last", **changes})


def numbers(rows: int, seed: int, double: bool) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, D)).astype(np.float64 if double else np.float32)


@pytest.fixture(params=[False, True], ids=["float32", "float64"])
def double(request: pytest.FixtureRequest) -> Iterator[bool]:
    torch.set_default_dtype(torch.float64 if request.param else torch.float32)
    yield request.param
    torch.set_default_dtype(torch.float32)


def inputs(double: bool, rows: int = N, seed: int = 0) -> Inputs:
    return (DoubleInputs if double else FeatureInputs)(numbers(rows, seed, double), None, False)


def train_alone(
    name: str, observed: torch.Tensor, setting: Setting, given: Training, double: bool, seed: int
) -> Trainer:
    """The product's own run."""
    seeds.seed_torch(seed, "network")
    head = {"kind": "linear", "scale": setting.scale}
    network = Network({"backbone": None, "width": D, "classes": C, "head": head})
    method = base.build(name, own_settings(name), pose(observed))
    own = given.at(*setting.company)
    data = Data(inputs(double), observed, inputs(double, VAL, 3), lambda _: 0.0)
    trainer = Trainer(network, method, data, Plan("alone", own, setting.rate, given.epochs, seed, CPU))
    trainer.fit()
    return trainer


def make_heads(names: list[str], settings: list[Setting], draws: int) -> list[Head]:
    shown = [labels(draw) for draw in range(draws)]

    def maker(name: str, observed: torch.Tensor) -> Any:
        return lambda: base.build(name, own_settings(name), pose(observed))

    every = itertools.product(names, shown, settings)
    return [Head(name, maker(name, own), own, setting) for name, own, setting in every]


def train_together(heads: list[Head], given: Training, double: bool, seed: int) -> Stack:
    stack = Stack(heads, inputs(double), given, seed, (C, D), CPU)
    plain, validation = (torch.from_numpy(numbers(rows, at, double)) for rows, at in ((N, 0), (VAL, 3)))
    for epoch in range(1, given.epochs + 1):
        stack.train_epoch(epoch)
        stack.end_epoch(epoch, plain)
        for head in stack.heads:
            stack.predict(head, validation, epoch)
    return stack


@cache
def stack_of_all(double: bool) -> tuple[list[tuple[str, Head]], Stack, Training]:
    """Every method at two settings and draws, in one stack."""
    tried = [Setting(0.03, 0.0, "none"), Setting(0.1, 0.01, "unit")]  # a team of two, where a method can be shared
    heads = make_heads(names(), tried, 2)
    own = settings()
    stack = train_together(heads, own, double, 5)
    return [(head.recipe, head) for head in heads], stack, own


def test_every_kind_of_method_can_be_stacked_or_says_why() -> None:
    left = set(base.names()) - set(names())
    assert left == {"lac", "lasd", "plc", "scl", "mime", "ridge", "ridge_full"}


@pytest.mark.parametrize("name", names())
def test_a_stacked_head_is_the_one_that_is_trained_alone(name: str, double: bool) -> None:
    heads, stack, own = stack_of_all(double)
    mine = [head for other, head in heads if other == name]
    assert len(mine) == 4 and not any(head.diverged for head in mine)
    tolerance: Any = {"rtol": 1e-10, "atol": 1e-10} if double else {"rtol": 1e-5, "atol": 1e-5}
    for head in mine:
        alone = train_alone(name, head.observed, head.setting, own, double, 5)
        weight, bias = stack.weights(head)
        layer: Any = alone.network.head.linear
        torch.testing.assert_close(weight, layer.weight.detach(), **tolerance)
        torch.testing.assert_close(bias, layer.bias.detach(), **tolerance)
        found = stack.predict(head, torch.from_numpy(numbers(VAL, 3, double)), EPOCHS)
        torch.testing.assert_close(found, alone.history.val[-1], rtol=1e-5, atol=1e-5)
        state = alone.method.state_dict()
        assert head.method.state_dict().keys() == state.keys()
        for key, value in head.method.state_dict().items():
            torch.testing.assert_close(value, state[key], **tolerance)


def test_a_stack_of_an_is_adam_by_hand(double: bool) -> None:
    """AN: dL/dz = (sigmoid(z) - y) / (B C); Adam with L2 decay, as in Kingma and Ba, of each head by itself."""
    tried = [Setting(0.03, 0.0, "none"), Setting(0.1, 0.01, "unit")]
    heads = make_heads(["an"], tried, 2)
    own = settings()
    starts = []
    for _ in heads:
        seeds.seed_torch(5, "network")
        layer = torch.nn.Linear(D, C)
        starts.append([value.detach().double().numpy().copy() for value in (layer.weight, layer.bias)])
    stack = train_together(heads, own, double, 5)
    for head, (weight, bias) in zip(heads, starts, strict=True):
        features = numbers(N, 0, double).astype(np.float64)
        if head.setting.scale == "unit":
            features /= np.sqrt(np.mean(features**2, axis=1, keepdims=True))
        truth, step = head.observed.numpy().astype(np.float64), 0
        moments = [[np.zeros_like(each), np.zeros_like(each)] for each in (weight, bias)]
        for epoch in range(1, EPOCHS + 1):
            order = seeds.numpy_generator(5, "order", epoch).permutation(N)
            for rows in (order[start : start + 5] for start in range(0, N, 5)):
                step += 1
                error = 1 / (1 + np.exp(-(features[rows] @ weight.T + bias))) - truth[rows]
                error /= len(rows) * C
                gradients = (error.T @ features[rows], error.sum(0))
                for value, gradient, moment in zip((weight, bias), gradients, moments, strict=True):
                    gradient = gradient + head.setting.decay * value
                    moment[0] = 0.9 * moment[0] + 0.1 * gradient
                    moment[1] = 0.999 * moment[1] + 0.001 * gradient**2
                    first, second = moment[0] / (1 - 0.9**step), moment[1] / (1 - 0.999**step)
                    value -= head.setting.rate * first / (np.sqrt(second) + 1e-8)
        tolerance = 1e-10 if double else 2e-5
        for found, expected in zip(stack.weights(head), (weight, bias), strict=True):
            np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)


BY_OPTIMIZER = {
    "adamw, onecycle": {"optimizer": "adamw", "schedule": "onecycle", "warmup": 0.3, "momentum": [0.85, 0.95]},
    "sgd": {"optimizer": "sgd", "momentum": 0.5},
    "adamax, head factor": {"optimizer": "adamax", "head_factor": 3.0},
}


@pytest.mark.parametrize("change", BY_OPTIMIZER.values(), ids=BY_OPTIMIZER)
def test_every_optimiser_and_schedule_is_that_of_a_head_alone(change: dict[str, Any]) -> None:
    own = settings(**change)
    heads = make_heads(["em", "role"], [Setting(0.03, 0.02, "none"), Setting(0.1, 0.0, "none")], 2)
    stack = train_together(heads, own, False, 1)
    for head in heads:
        alone: Any = train_alone(head.recipe, head.observed, head.setting, own, False, 1).network.head
        torch.testing.assert_close(stack.weights(head)[0], alone.linear.weight.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "high"), [("an", 2e37), ("em_apl", 2e37)])
def test_a_head_that_diverges_stops_alone(name: str, high: float) -> None:
    tried = [Setting(0.03, 0.0, "none"), Setting(high, 0.0, "none"), Setting(0.1, 0.0, "none")]
    heads, own = make_heads([name], tried, 2), settings()
    stack = train_together(heads, own, False, 2)
    for head in heads:
        if head.setting.rate == high:
            with pytest.raises(TrainingError, match=f"alone: epoch {head.diverged}: "):
                train_alone(name, head.observed, head.setting, own, False, 2)
            assert stack.predict(head, torch.full((1, D), torch.nan), EPOCHS) is None
            continue
        assert head.diverged is None and head in stack.heads
        alone: Any = train_alone(name, head.observed, head.setting, own, False, 2).network.head
        torch.testing.assert_close(stack.weights(head)[0], alone.linear.weight.detach(), rtol=1e-5, atol=1e-5)
    assert len(stack.heads) == 4


def test_a_stack_whose_heads_all_diverged_goes_on_idly() -> None:
    heads = make_heads(["an"], [Setting(2e37, 0.0, "none"), Setting(3e37, 0.0, "none")], 1)
    stack = train_together(heads, settings(), False, 2)
    assert [head.diverged for head in heads] == [1, 1] and stack.heads == []


@pytest.mark.parametrize(("name", "need"), [("scl", "disk, geometry, maps"), ("mime", "posterior")])
def test_what_cached_features_do_not_give_is_refused_before_a_step(name: str, need: str) -> None:
    heads = make_heads([name], [Setting(0.1, 0.0, "none")], 1)
    with pytest.raises(ConfigError, match=f"^{name}: needs {need}, which this stage and its network do not give$"):
        Stack(heads, inputs(False), settings(), 0, (C, D), CPU)


def test_a_method_is_shared_by_heads_of_its_settings_and_labels_where_it_remembers_nothing() -> None:
    """Sharing is read of what a method declares: its state, and whether its loss is a mean over cells."""
    heads, stack, _ = stack_of_all(False)
    shared = {head.recipe for team in stack.teams if len(team) > 1 for head in team}
    assert {"an", "em", "gr", "focal"} <= shared
    assert not shared & {"role", "em_apl", "ll_cp", "epr", "cl", "l1r", "smile", "en"}
    assert all(len({(head.recipe, id(head.observed)) for head in team}) == 1 for team in stack.teams)
    assert sum(map(len, stack.teams)) == len(heads)


def test_flipped_views_are_those_of_a_head_alone() -> None:
    plain, mirrored = numbers(N, 0, False), numbers(N, 8, False)
    own, setting = settings(flip=True), Setting(0.1, 0.0, "none")
    heads = make_heads(["an"], [setting], 2)
    stack = Stack(heads, FeatureInputs(plain, mirrored, True), own, 3, (C, D), CPU)
    for epoch in range(1, EPOCHS + 1):
        stack.train_epoch(epoch)
    for head in heads:
        seeds.seed_torch(3, "network")
        network = Network({"backbone": None, "width": D, "classes": C, "head": {"kind": "linear", "scale": "none"}})
        data = Data(FeatureInputs(plain, mirrored, True), head.observed, inputs(False, VAL, 3), lambda _: 0.0)
        method = base.build("an", own_settings("an"), pose(head.observed))
        Trainer(network, method, data, Plan("alone", own, 0.1, EPOCHS, 3, CPU)).fit()
        layer: Any = network.head.linear
        torch.testing.assert_close(stack.weights(head)[0], layer.weight.detach(), rtol=1e-5, atol=1e-5)
