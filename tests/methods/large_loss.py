"""What the tests of LL-R, LL-Ct and LL-Cp share."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.methods.shared.base import Method, build
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import close, double, golden

Chosen = Callable[[Method, Tensor, Tensor], Tensor]
"""(B, C) booleans: the cells that a method drops or corrects, given logits and labels of a batch of rows 0, 1, ..."""


def make(name: str, shape: tuple[int, ...], epoch: int, **settings: Any) -> Method:
    """A method in an epoch of ten."""
    rows, classes = shape
    problem = Problem(rows, ("",) * classes, torch.zeros(classes, dtype=torch.int64), None)
    method = build(name, settings, problem)
    method.begin_epoch(epoch, 10)
    return method


def spread(*shape: int) -> Tensor:
    """Distinct logits in a shuffled order."""
    n = math.prod(shape)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    return (order.double() / n * 8 - 4).view(shape)


def goldens(file: str, scheme: str) -> pytest.MarkDecorator:
    found = [case for case in golden(file) if case.get("settings", case)["scheme"] == scheme]
    return pytest.mark.parametrize("case", found, ids=lambda case: case["name"])


by_arithmetic = pytest.mark.parametrize(
    ("arithmetic", "key"), [("exact", "k_per_epoch"), ("running", "k_authors_floating_point")]
)


def check_golden_loss(name: str, case: dict[str, Any], chosen: Chosen, **settings: Any) -> Method:
    """Loss, logit gradient and the cells chosen by one batch; returns the method as that batch left it."""
    given, expected = case["settings"], case["expected"]
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    method = make(name, observed.shape, given["epoch"], delta=given["rate_percent"] / 100, **settings)
    logits = double([case["logits"]]).requires_grad_()
    terms = method(Outputs(logits), observed, torch.arange(len(observed)))
    assert list(terms) == ["risk"]
    terms["risk"].backward()
    close(terms["risk"], expected["loss"])
    close(terms["risk"] * observed.numel(), expected["loss_sum"])
    assert logits.grad is not None
    close(logits.grad[0], expected["grad_logits"])
    found = chosen(method, logits[0].detach(), observed)
    assert found.nonzero().tolist() == expected["modified"]
    assert int(found.sum()) == expected["modified_count"]
    if expected["threshold_loss"] is not None:
        close(torch.log1p(logits[0].detach().exp())[found].min(), expected["threshold_loss"])
    return method


def check_golden_counts(name: str, case: dict[str, Any], chosen: Chosen, arithmetic: str, key: str) -> None:
    """How many cells are chosen in each of ten epochs."""
    logits = spread(case["batch"], case["classes"])
    observed = torch.zeros(logits.shape, dtype=torch.int8)
    observed[:, 0] = 1
    method = make(name, logits.shape, 1, delta=float(f"{case['rate_percent']}e-2"), arithmetic=arithmetic)
    counts = []
    for epoch in range(1, 11):
        method.begin_epoch(epoch, 10)
        counts.append(int(chosen(method, logits, observed).sum()))
    assert counts == case["expected"][key]


def check_record(name: str, stored: Callable[..., Tensor]) -> None:
    """In eval mode a method tells of all rows what its batches of the epoch chose, not what one batch of them would."""
    rows, classes, delta = 24, 5, 0.1
    method = make(name, (rows, classes), 1, delta=delta, arithmetic="exact")
    observed = torch.zeros(rows, classes, dtype=torch.int8)
    observed[torch.arange(rows), torch.arange(rows) % classes] = 1
    every = torch.arange(rows)
    for epoch in (1, 2, 3):
        method.train()
        method.begin_epoch(epoch, 10)
        generator, expected = torch.Generator().manual_seed(epoch), set()
        order = torch.randperm(rows, generator=generator)[: rows - 2]  # the last batch is left out
        for index in order.split(6):
            logits = torch.randn(len(index), classes, generator=generator, dtype=torch.float64)
            method(Outputs(logits.unsqueeze(0)), observed[index], index)
            cells = [(logits[i, c].item(), index[i].item(), c) for i in range(len(index)) for c in range(classes)]
            ranked = sorted((cell for cell in cells if not observed[int(cell[1]), cell[2]]), reverse=True)
            expected |= {cell[1:] for cell in ranked[: math.ceil(round(len(cells) * delta * (epoch - 1), 9))]}
        method.eval()
        for last in (torch.randn(rows, classes, generator=generator), torch.zeros(rows, classes)):  # of no account
            found = stored(method, last.double(), observed, every)
            assert {tuple(cell) for cell in found.nonzero().tolist()} == expected, epoch
    assert expected
