import math

import pytest
import torch

from pipeline.methods.shared.base import build
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import check_golden, double, golden

SETTINGS = [{"alpha": 0.2, "floor": 0.0}]


@pytest.mark.parametrize("case", golden("em"), ids=lambda case: case["name"])
def test_golden_numbers(case):
    check_golden("em", case, case["settings"] | {"floor": 0.0}, torch.tensor(case["observed"], dtype=torch.int8))


def unknown_gradient(z: list[float], alpha: float = 0.1) -> tuple[float, torch.Tensor]:
    method = build(
        "em",
        {"alpha": alpha, "floor": 0.0},
        Problem(1, ("",) * len(z), torch.zeros(len(z), dtype=torch.int64), None),
    )
    logits = double([[z]]).requires_grad_()
    risk = method(Outputs(logits), torch.zeros(1, len(z), dtype=torch.int8), torch.tensor([0]))["risk"]
    risk.backward()
    assert logits.grad is not None
    return risk.item(), logits.grad[0, 0] * len(z)


def test_unknown_cell_at_zero_is_at_the_bottom():
    risk, gradient = unknown_gradient([0.0])
    assert risk == pytest.approx(-0.1 * math.log(2), rel=1e-15)
    assert gradient.item() == 0


def test_gradient_of_an_unknown_cell_is_alpha_z_p_one_minus_p_and_odd():
    z = [0.3, 2.0, 11.0, 30.0]
    _, gradient = unknown_gradient(z + [-value for value in z])
    expected = [0.1 * value * math.exp(-value) / (1 + math.exp(-value)) ** 2 for value in z]
    torch.testing.assert_close(gradient, double(expected + [-value for value in expected]), rtol=1e-9, atol=1e-15)


def test_extreme_logits_of_unknown_cells_cost_nothing():
    risk, gradient = unknown_gradient([745.0, -745.0])
    assert risk == pytest.approx(0, abs=1e-15)
    assert gradient.abs().max() <= 1e-15
