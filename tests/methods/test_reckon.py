import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from pipeline.methods.shared.base import build
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs

SETTINGS = [{"weight": 0.1}, {"weight": 2.0}]
BELIEVED = torch.tensor([[0.9, 0.2, 0.5], [0.1, 0.6, 0.3]])


def risk(logits: torch.Tensor, observed: list[int], weight: float) -> torch.Tensor:
    method = build("reckon", {"weight": weight}, Problem(2, ("a", "b", "c"), torch.ones(3), None, beliefs=BELIEVED))
    return method(Outputs(logits[None]), torch.tensor([observed], dtype=torch.int8), torch.tensor([1]))["risk"]


def test_the_risk_is_the_formula() -> None:
    logits = torch.tensor([[0.4, -1.0, 2.0]], dtype=torch.float64)
    z, p = logits[0], torch.sigmoid(logits[0])
    expected = (-torch.log(p[0]) + 0.3 * (p[1] - BELIEVED[1, 1].double()) * z[1] - torch.log(1 - p[2])) / 3
    torch.testing.assert_close(risk(logits, [1, 0, -1], 0.3), expected)


def test_an_unknown_cell_pays_log_loss_towards_the_belief_less_entropy() -> None:
    for logit in (-30.0, -2.0, 0.0, 0.7, 12.0):
        logits = torch.full((1, 3), logit, dtype=torch.float64)
        p, q = torch.sigmoid(logits[0]), torch.sigmoid(-logits[0])
        present, absent = -torch.log(p), -torch.log(q)
        believed = BELIEVED[1].double()
        bce, entropy = believed * present + (1 - believed) * absent, p * present + q * absent
        torch.testing.assert_close(risk(logits, [0, 0, 0], 1.0), (bce - entropy).mean(), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("belief", [0.02, 0.3, 0.5, 0.9])
def test_its_minimum_lies_between_the_belief_and_indifference(belief: float) -> None:
    lowest = minimize_scalar(lambda z: (1 / (1 + np.exp(-z)) - belief) * z, bounds=(-20, 20), method="bounded").x
    p = 1 / (1 + np.exp(-lowest))
    assert min(belief, 0.5) - 1e-4 <= p <= max(belief, 0.5) + 1e-4
    logits = torch.full((1, 3), float(lowest), dtype=torch.float64, requires_grad=True)
    method = build("reckon", {"weight": 1.0}, Problem(1, ("a",), torch.ones(1), None, beliefs=torch.tensor([[belief]])))
    (value,) = method(Outputs(logits[None, :, :1]), torch.zeros(1, 1, dtype=torch.int8), torch.tensor([0])).values()
    value.backward()
    assert logits.grad is not None and abs(float(logits.grad[0, 0])) < 1e-4
