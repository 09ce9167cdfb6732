"""Properties of every method on problems of any shape, with any labels and past, and logits up to 100 either way."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from pipeline.methods.shared import base
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import D, method_cases, outputs, problem

EXTREME = 100.0
BY_CLASS = ("logits", "embeddings", "maps", "posterior")
"""Fields of Outputs with an axis of classes, the third."""
Order = Tensor | slice
CASES = method_cases()
METHODS = {name: base.load(name) for name in base.names()}
deterministic = settings(max_examples=8, deadline=None, derandomize=True, database=None)


@dataclass(frozen=True)
class Scene:
    """A method's settings and all that it is asked about."""

    settings: dict[str, Any]
    labels: Tensor
    """(N, C) int8."""
    past: Tensor
    """(2, 3, N, C) logits of two epochs and three views."""
    logits: Tensor
    """(3, B, C)."""
    index: Tensor
    """(B,) rows."""
    density: float
    """Labels per image, between the observed and the possible ones."""
    seed: int
    """Of what else a network answers."""


@st.composite
def scenes(draw: st.DrawFn, name: str) -> Scene:
    n, c = draw(st.integers(1, 7)), draw(st.integers(2, 5))
    index = draw(st.permutations(range(n)))[: draw(st.integers(1, n))]
    elements = st.floats(-EXTREME, EXTREME, width=32)
    logits = draw(hnp.arrays(np.float64, (3, len(index), c), elements=elements))
    random = np.random.default_rng(seed := draw(st.integers(0, 2**32 - 1)))
    past = random.uniform(-1, 1, (2, 3, n, c)) * draw(st.sampled_from([1.0, 5.0, EXTREME]))
    labels = draw(hnp.arrays(np.int8, (n, c), elements=st.sampled_from([0, 1, -1])))
    labels[-1, -1] = 0  # so that some density fits
    observed, possible = (labels == 1).sum() / n, (labels != -1).sum() / n
    return Scene(
        settings=draw(st.sampled_from([variant for known, variant in CASES if known == name])),
        labels=torch.from_numpy(labels),
        past=torch.from_numpy(past),
        logits=torch.from_numpy(logits),
        index=torch.tensor(index),
        density=observed + (possible - observed) * draw(st.floats(0.1, 0.9)),
        seed=seed,
    )


def changed(answer: Outputs, change: Callable[[str, Tensor], Tensor]) -> Outputs:
    """The answer with its tensors changed, as leaves."""
    fields: dict[str, Any] = {name: value for name, value in vars(answer).items() if value is not None}
    for name in fields.keys() - {"parameters"}:
        fields[name] = change(name, fields[name].detach()).requires_grad_(fields[name].requires_grad)
    return Outputs(**fields)


def answer_of(method: base.Method, logits: Tensor, seed: int, classes: Order = slice(None)) -> Outputs:
    """What a network answers, its logits given, the rest drawn and then brought to an order of the classes."""
    return changed(
        outputs(method, logits, seed), lambda name, value: value[:, :, classes] if name in BY_CLASS else value
    )


def trained(name: str, scene: Scene, folder: str, classes: Order = slice(None)) -> base.Method:
    """The method in the third of four epochs, after two on all rows."""
    labels = scene.labels[:, classes]
    positives, absences = (labels == 1).sum(0, dtype=torch.int64), int((labels == -1).sum())
    torch.manual_seed(0)
    n, c = labels.shape
    beliefs = torch.rand(scene.labels.shape, generator=torch.Generator().manual_seed(n))[:, classes]
    known = Problem(n, ("",) * c, positives, scene.density, D, absences, beliefs)
    method = base.build(name, scene.settings, known).double()
    method.begin_training(labels)
    if "disk" in method.needs:
        method.open_disk(Path(folder))
    for epoch, logits in enumerate(scene.past, 1):
        method.begin_epoch(epoch, 4)
        answer = answer_of(method, logits, epoch, classes)
        with torch.no_grad():
            method(answer, labels, torch.arange(n))
        if "epoch_logits" in method.needs:
            method.end_epoch(answer.logits[0].detach(), labels)
        method.flush()
    method.begin_epoch(3, 4)
    return method


def loss(method: base.Method, answer: Outputs, labels: Tensor, index: Tensor) -> tuple[float, Tensor]:
    """The loss and its gradient at the logits, (V, B, C)."""
    torch.manual_seed(0)
    total = torch.stack(list(method(answer, labels, index).values())).sum()
    total.backward()
    assert answer.logits.grad is not None
    return total.item(), answer.logits.grad


def equal(one: tuple[float, Tensor], two: tuple[float, Tensor]) -> None:
    assert two[0] == pytest.approx(one[0], rel=1e-9, abs=1e-11)
    torch.testing.assert_close(two[1], one[1], rtol=1e-9, atol=1e-12)


def has_parameters(method: type[base.Method]) -> bool:
    name, variant = next((name, variant) for name, variant in CASES if METHODS[name] is method)
    return any(True for _ in base.build(name, variant, problem()).parameters())


def every(condition: Callable[[type[base.Method]], bool]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [name for name, method in METHODS.items() if condition(method)])


@every(lambda method: True)
@deterministic
@given(data=st.data())
def test_loss_and_gradients_are_finite(name: str, data: st.DataObject):
    scene = data.draw(scenes(name))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    with tempfile.TemporaryDirectory() as folder:
        method = trained(name, scene, folder).to(dtype)
        answer = answer_of(method, scene.logits.to(dtype), scene.seed)
        value, slope = loss(method, answer, scene.labels[scene.index], scene.index)
    given_ = [value for value in vars(answer).values() if isinstance(value, Tensor)]
    slopes = [slope, *(leaf.grad for leaf in [*given_, *(answer.parameters or ()), *method.parameters()])]
    assert np.isfinite(value) and all(torch.isfinite(each).all() for each in slopes if each is not None)


@every(lambda method: True)
@deterministic
@given(data=st.data())
def test_order_of_the_rows_does_not_matter(name: str, data: st.DataObject):
    """In eval mode: noise goes to places of a batch, and a queue remembers its order."""
    scene = data.draw(scenes(name))
    order = torch.tensor(data.draw(st.permutations(range(len(scene.index)))))
    with tempfile.TemporaryDirectory() as folder:
        method = trained(name, scene, folder).eval()
    straight = answer_of(method, scene.logits, scene.seed)
    shuffled = changed(straight, lambda _, value: value[:, order])
    labels, index = scene.labels[scene.index], scene.index
    value, slope = loss(method, straight, labels, index)
    equal((value, slope[:, order]), loss(method, shuffled, labels[order], index[order]))


@every(lambda method: "embeddings" not in method.needs and not has_parameters(method))
@deterministic
@given(data=st.data())
def test_order_of_the_classes_does_not_matter(name: str, data: st.DataObject):
    """Where nothing starts at random and no queue goes by class."""
    scene = data.draw(scenes(name))
    order = torch.tensor(data.draw(st.permutations(range(scene.labels.shape[1]))))
    found = []
    for classes in (slice(None), order):
        with tempfile.TemporaryDirectory() as folder:
            method = trained(name, scene, folder, classes)
            answer = answer_of(method, scene.logits, scene.seed, classes)
            found.append(loss(method, answer, scene.labels[scene.index][:, classes], scene.index))
    (value, slope), other = found
    equal((value, slope[..., order]), other)


@every(lambda method: not method.coupled)
@deterministic
@given(data=st.data())
def test_a_doubled_batch_has_the_same_mean(name: str, data: st.DataObject):
    scene = data.draw(scenes(name))
    method = trained(name, scene, "")
    rows = scene.index.repeat(2)
    once = loss(method, answer_of(method, scene.logits, 0), scene.labels[scene.index], scene.index)
    twice = loss(method, answer_of(method, scene.logits.repeat(1, 2, 1), 0), scene.labels[rows], rows)
    equal((once[0], once[1].repeat(1, 2, 1) / 2), twice)
