import math
from typing import Any

import pytest
import torch

from pipeline.methods.shared.base import build
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import close, generator

SETTINGS = [
    {"decay": 0.8, "first": "assume_negative", "distance": "squared", "weight_consistency": 1.0},
    {"decay": 0.5, "first": "positives_only", "distance": "absolute", "weight_consistency": 0.3},
]
N, C = 7, 3


def make(name: str = "cl", **changes: Any) -> Any:
    settings = SETTINGS[0] | changes
    if name == "en":
        settings = {key: settings[key] for key in ("decay", "first")}
    return build(name, settings, Problem(N, ("",) * C, torch.tensor([2, 3, 2]), 1.5)).double()


def labels() -> torch.Tensor:
    observed = torch.zeros(N, C, dtype=torch.int8)
    observed[torch.arange(N), torch.arange(N) % C] = 1
    return observed


@pytest.mark.parametrize("distance", ["squared", "absolute"])
def test_slow_oracle(distance: str) -> None:
    """Its risk is EN's; its consistency compares with the average of the epochs before, over all B*C cells."""
    method, plain = make(distance=distance, decay=0.7, weight_consistency=2.5), make("en", decay=0.7)
    draw, observed = generator(2), labels()
    average: dict[int, list[float]] = {}
    for epoch in range(1, 5):
        for each in (method, plain):
            each.begin_epoch(epoch, 4)
        order = torch.randperm(N, generator=draw)[:-1]  # one image misses the epoch
        new: dict[int, list[float]] = {}
        for index in (order[:4], order[4:]):
            z = (3 * torch.randn(1, len(index), C, generator=draw, dtype=torch.float64)).requires_grad_()
            terms = method(Outputs(z), observed[index], index)
            assert list(terms) == ["risk", "consistency"]
            close(terms["risk"], plain(Outputs(z.detach()), observed[index], index)["risk"].item())
            terms["consistency"].backward()
            total, slopes = 0.0, [[0.0] * C for _ in index]
            for b, i in enumerate(index.tolist()):
                new[i] = [1 / (1 + math.exp(-float(value))) for value in z.detach()[0, b]]
                for c in range(C) if i in average else []:
                    gap, p = new[i][c] - average[i][c], new[i][c]
                    total += gap**2 if distance == "squared" else abs(gap)
                    outer = 2 * gap if distance == "squared" else math.copysign(1, gap)
                    slopes[b][c] = 2.5 * outer * p * (1 - p) / (len(index) * C)
            assert terms["consistency"].item() == pytest.approx(2.5 * total / (len(index) * C), rel=1e-12, abs=1e-15)
            assert z.grad is not None
            close(z.grad[0], slopes)
        for i, p in new.items():
            old = average.get(i)
            average[i] = [0.7 * a + 0.3 * q for a, q in zip(old, p, strict=True)] if old else p


def test_the_first_epoch_has_no_past_to_agree_with() -> None:
    method, index = make(), torch.arange(N)
    method.begin_epoch(1, 3)
    for _ in range(2):  # not even with itself
        terms = method(Outputs(torch.randn(1, N, C, generator=generator())), labels(), index)
        assert terms["consistency"].item() == 0
    assert method.pseudo_labels(torch.zeros(N, C), labels(), index).unique().tolist() == [0]


def test_eval_mode_compares_and_keeps_nothing() -> None:
    method, index = make(), torch.arange(N)
    logits = torch.randn(2, 1, N, C, generator=generator(), dtype=torch.float64)
    method.begin_epoch(1, 3)
    method(Outputs(logits[0]), labels(), index)
    method.begin_epoch(2, 3)
    method.eval()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    terms = method(Outputs(logits[1]), labels(), index)
    close(terms["consistency"], (torch.sigmoid(logits[1]) - torch.sigmoid(logits[0])).square().mean().item())
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())


def test_labels_are_those_of_the_negatives_in_force() -> None:
    method, observed, index = make(), labels(), torch.arange(N)
    logits = torch.randn(1, N, C, generator=generator(4), dtype=torch.float64)
    method.begin_epoch(1, 2)
    method(Outputs(logits), observed, index)
    method.begin_epoch(2, 2)
    expected = torch.zeros(N, C, dtype=torch.int8)
    for c, positives in enumerate((3, 5, 3)):  # 1.5 times 2, 3 and 2, halves upwards
        for i in logits[0, :, c].argsort().tolist()[: N - positives]:
            expected[i, c] = -1 if observed[i, c] == 0 else 0
    rows = torch.tensor([5, 0, 3])
    assert torch.equal(method.pseudo_labels(logits[0, rows], observed[rows], rows), expected[rows])
    assert (expected == -1).sum() > 3


def test_far_from_its_average_a_missed_positive_is_still_lifted() -> None:
    method, observed = make(weight_consistency=100.0), labels()
    index = torch.arange(N)
    method.begin_epoch(1, 2)
    method(Outputs(torch.full((1, N, C), -50.0)), observed, index)
    method.begin_epoch(2, 2)
    z = torch.full((1, N, C), -50.0, requires_grad=True)
    torch.stack(list(method(Outputs(z), observed, index).values())).sum().backward()
    assert z.grad is not None and (z.grad[0][observed == 1] < -0.9 / (N * C)).all()
