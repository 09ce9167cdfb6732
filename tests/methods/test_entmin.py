import math

import pytest
import torch

from pipeline.methods.shared.base import build
from pipeline.methods.shared.cells import entropy
from pipeline.networks.interface import Outputs
from tests.methods.cases import B, C, check_golden, double, generator, golden, problem

SETTINGS = [{"weight": 0.01}, {"weight": 0.9}]
UNKNOWN = torch.zeros(B, C, dtype=torch.int8)


@pytest.mark.parametrize("case", golden("entmin"), ids=lambda case: case["name"])
def test_golden_numbers(case):
    settings = {"weight": case["settings"]["w"]}
    check_golden("entmin", case, settings, torch.tensor(case["observed"], dtype=torch.int8))


def test_unknown_cells_are_those_of_em_with_the_opposite_sign():
    logits = 4 * torch.randn(1, B, C, generator=generator(1), dtype=torch.float64)
    risks = []
    for name, settings in (("entmin", {"weight": 0.4}), ("em", {"alpha": 0.4, "floor": 0.0})):
        method = build(name, settings, problem())
        risks.append(method(Outputs(logits), UNKNOWN, torch.arange(B))["risk"].item())
    assert risks[0] == pytest.approx(-risks[1], rel=1e-14)
    assert risks[0] == pytest.approx(0.4 * entropy(logits).mean().item(), rel=1e-13)


def test_gradient_of_an_unknown_cell_leads_away_from_zero():
    z = double([-30.0, -2.0, 0.3, 2.0, 11.0])
    logits = z.repeat(1, B, 1).requires_grad_()
    build("entmin", {"weight": 0.4}, problem())(Outputs(logits), UNKNOWN, torch.arange(B))["risk"].backward()
    assert logits.grad is not None
    expected = [-0.4 * x * math.exp(-abs(x)) / (1 + math.exp(-abs(x))) ** 2 for x in z.tolist()]
    torch.testing.assert_close(logits.grad[0, 0] * B * C, double(expected), rtol=1e-9, atol=1e-15)
