import math
from typing import Any

import pytest
import torch

from pipeline.batch import Outputs, Problem
from pipeline.methods.base import Method, build
from tests.methods.cases import close, double, golden

SETTINGS = [
    {"delta": 0.1, "arithmetic": "exact"},
    {"delta": 0.002, "arithmetic": "running"},
    {"delta": 1.0, "arithmetic": "exact"},
]


def make(shape: tuple[int, ...], epoch: int, delta: float, arithmetic: str = "exact") -> Method:
    rows, classes = shape
    problem = Problem(rows, ("",) * classes, torch.zeros(classes, dtype=torch.int64), None)
    method = build("ll_r", {"delta": delta, "arithmetic": arithmetic}, problem)
    method.begin_epoch(epoch, 10)
    return method


def dropped(method: Method, logits: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
    return method.cells(logits, observed, torch.arange(len(logits))).weight == 0


def spread(*shape: int) -> torch.Tensor:
    """Distinct logits in a shuffled order."""
    n = math.prod(shape)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    return (order.double() / n * 8 - 4).view(shape)


@pytest.mark.parametrize("arithmetic", ["exact", "running"])
@pytest.mark.parametrize(
    "case", [c for c in golden("ll_loss") if c["settings"]["scheme"] == "LL-R"], ids=lambda case: case["name"]
)
def test_golden_loss(case, arithmetic):
    given, expected = case["settings"], case["expected"]
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    method = make(observed.shape, given["epoch"], given["rate_percent"] / 100, arithmetic)
    logits = double([case["logits"]]).requires_grad_()
    terms = method(Outputs(logits), observed, torch.arange(len(observed)))
    assert list(terms) == ["risk"]
    terms["risk"].backward()
    close(terms["risk"], expected["loss"])
    close(terms["risk"] * observed.numel(), expected["loss_sum"])
    assert logits.grad is not None
    close(logits.grad[0], expected["grad_logits"])
    chosen = dropped(method, logits[0].detach(), observed)
    assert chosen.nonzero().tolist() == expected["modified"]
    assert int(chosen.sum()) == expected["modified_count"]
    if expected["threshold_loss"] is not None:
        losses = torch.log1p(logits[0].detach().exp())
        close(losses[chosen].min(), expected["threshold_loss"])


@pytest.mark.parametrize(("arithmetic", "key"), [("exact", "k_per_epoch"), ("running", "k_authors_floating_point")])
@pytest.mark.parametrize(
    "case", [c for c in golden("ll_rates") if c["scheme"] == "LL-R"], ids=lambda case: case["name"]
)
def test_golden_counts(case, arithmetic, key):
    logits = spread(case["batch"], case["classes"])
    observed = torch.zeros(logits.shape, dtype=torch.int8)
    observed[:, 0] = 1
    method, counts = make(logits.shape, 1, float(f"{case['rate_percent']}e-2"), arithmetic), []
    for epoch in range(1, 11):
        method.begin_epoch(epoch, 10)
        counts.append(int(dropped(method, logits, observed).sum()))
    assert counts == case["expected"][key]


@pytest.mark.parametrize("case", golden("ll_rates"), ids=lambda case: case["name"])
def test_goldens_of_the_two_arithmetics_differ_where_they_say(case):
    exact, theirs = case["expected"]["k_per_epoch"], case["expected"]["k_authors_floating_point"]
    differ = [epoch for epoch, (one, other) in enumerate(zip(exact, theirs, strict=True), 1) if one != other]
    assert differ == case["expected"]["epochs_where_they_differ"]


def test_ranking_is_over_the_whole_batch_and_over_unknown_cells_only():
    logits = double([[9, 1, 2], [8, 7, 10]])
    observed = torch.tensor([[1, 0, 0], [0, 0, -1]], dtype=torch.int8)
    chosen = dropped(make((2, 3), 2, 0.5), logits, observed)  # 3 of 6 cells
    assert chosen.tolist() == [[False, False, True], [True, True, False]]


def test_ties_with_the_last_are_dropped_too():
    logits = double([[3, 1, 3], [3, 0, 0]])
    chosen = dropped(make((2, 3), 2, 1 / 8), logits, torch.zeros(2, 3, dtype=torch.int8))
    assert chosen.tolist() == [[True, False, True], [True, False, False]]


def test_when_every_unknown_cell_is_dropped_the_known_ones_remain():
    """Then it is the positive term of EPR, over all cells; the authors' code loses the observed labels here."""
    logits = double([[[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]]]).requires_grad_()
    observed = torch.tensor([[1, 0, 0], [0, 0, 1]], dtype=torch.int8)
    for delta, epoch in ((1.0, 2), (0.5, 10)):
        method = make((2, 3), epoch, delta)
        risk = method(Outputs(logits), observed, torch.arange(2))["risk"]
        close(risk, (math.log1p(math.exp(-1)) + math.log1p(math.exp(1))) / 6)
        assert dropped(method, logits[0].detach(), observed).tolist() == (observed == 0).tolist()


def test_share_is_of_the_batch_at_hand():
    """0.1 of 1 x 5 cells rounds up to one, of 4 x 5 to two."""
    for rows, k in ((1, 1), (4, 2)):
        logits = spread(rows, 5)
        assert int(dropped(make((rows, 5), 2, 0.1), logits, torch.zeros(rows, 5, dtype=torch.int8)).sum()) == k


def test_nothing_is_dropped_before_training_in_the_first_epoch_or_without_delta():
    logits, observed = spread(3, 4), torch.zeros(3, 4, dtype=torch.int8)
    for epoch, delta in ((0, 0.5), (1, 0.5), (7, 0.0)):
        assert not dropped(make((3, 4), epoch, delta), logits, observed).any()


def test_it_labels_nothing():
    logits: Any = spread(3, 4)
    assert make((3, 4), 5, 0.2).pseudo_labels(logits, torch.zeros(3, 4, dtype=torch.int8), torch.arange(3)) is None
