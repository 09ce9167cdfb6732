import math
from itertools import product

import pytest
import torch

from pipeline.methods.shared.base import build
from pipeline.networks.interface import Outputs
from tests.methods.cases import B, C, check_golden, generator, golden, problem, single_positives

SETTINGS = [
    {"gamma_pos": 0.0, "gamma_neg": 2.0, "shift": 0.2, "detach_weight": True},
    {"gamma_pos": 0.0, "gamma_neg": 4.0, "shift": 0.05, "detach_weight": False},
    {"gamma_pos": 1.0, "gamma_neg": 4.0, "shift": 0.0, "detach_weight": True},
    {"gamma_pos": 0.0, "gamma_neg": 0.5, "shift": 0.5, "detach_weight": False},
]
FAR = [-745.0, -120.0, -50.0, -3.0, -1.5, 0.0, 1.0, 5.0, 17.0, 30.0, 50.0, 120.0, 745.0]


def make(gamma_pos: float, gamma_neg: float, shift: float, detach_weight: bool = False):
    settings = {"gamma_pos": gamma_pos, "gamma_neg": gamma_neg, "shift": shift, "detach_weight": detach_weight}
    return build("asl", settings, problem())


@pytest.mark.parametrize("case", golden("asl") + golden("asl_ps"), ids=lambda case: case["name"])
def test_golden_numbers(case):
    settings = {key: case["settings"][key] for key in ("gamma_pos", "gamma_neg", "detach_weight")}
    settings["shift"] = case["settings"]["clip"]
    check_golden("asl", case, settings, torch.tensor(case["observed"], dtype=torch.int8))


@pytest.mark.parametrize(
    ("gamma", "name", "settings"),
    [(0, "an", {"floor": 0.0}), (2, "focal", {"gamma": 2.0, "alpha": None})],
    ids=["an", "fan"],
)
def test_equal_exponents_without_shift_are_other_methods(gamma, name, settings):
    batch = Outputs(torch.randn(1, B, C, generator=generator(1))), single_positives(B), torch.arange(B)
    torch.testing.assert_close(
        make(gamma, gamma, 0.0)(*batch)["risk"], build(name, settings, problem())(*batch)["risk"]
    )


def absent(z: float, gamma: float, shift: float, detach: bool) -> tuple[float, float]:
    """Loss of an assumed absence and its slope, from 1 - p and p without cancellation."""
    p, q = 1 / (1 + math.exp(min(-z, 700))), 1 / (1 + math.exp(min(z, 700)))
    if p <= shift:
        return 0.0, 0.0
    left = q + shift  # 1 - p_m
    shifted = p - shift if p < 0.5 else 1 - left
    log_left = math.log1p(-shifted) if p < 0.5 else (math.log(left) if shift else -z - math.log1p(math.exp(-z)))
    slope = shifted**gamma * p * q / left if left else shifted**gamma
    if not detach and gamma:
        slope += gamma * shifted ** (gamma - 1) * p * q * -log_left
    return shifted**gamma * -log_left, slope


@pytest.mark.parametrize(("gamma", "shift", "detach"), [*product([0, 0.5, 1, 4], [0, 0.05, 0.2], [False, True])])
def test_assumed_absence_is_exact_at_any_logit(gamma, shift, detach):
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
        z = torch.tensor([FAR], dtype=dtype, requires_grad=True)
        loss = make(0, gamma, shift, detach).cells(z, torch.zeros(1, len(FAR)), torch.tensor([0])).l3
        loss.sum().backward()
        assert z.grad is not None
        for value, slope, at in zip(loss[0].tolist(), z.grad[0].tolist(), FAR, strict=True):
            expected = absent(at, gamma, shift, detach)
            assert (value, slope) == pytest.approx(expected, rel=tolerance, abs=1e-18)


def test_absence_costs_nothing_up_to_the_shift_and_something_above():
    shift = 0.2
    edge = math.log(shift / (1 - shift))
    z = torch.tensor([[edge - 1, edge - 1e-6, edge + 1e-6, edge + 1]], dtype=torch.float64, requires_grad=True)
    loss = make(0, 0.5, shift).cells(z, torch.zeros(1, 4), torch.tensor([0])).l3
    loss.sum().backward()
    assert z.grad is not None
    assert (loss[0] > 0).tolist() == [False, False, True, True]
    assert (z.grad[0] > 0).tolist() == [False, False, True, True]


@pytest.mark.parametrize("gamma", [0.5, 1, 2])
def test_gradient_is_finite_at_the_edge_of_the_shift(gamma):
    z = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)  # p = 1/2 = shift
    loss = make(0, gamma, 0.5).cells(z, torch.zeros(1, 1), torch.tensor([0])).l3
    loss.sum().backward()
    assert loss.item() == pytest.approx(0, abs=1e-15)
    assert z.grad is not None and z.grad.item() == pytest.approx(0, abs=1e-7)
