import math

import pytest
import torch

from pipeline.methods.shared.base import Method, build
from pipeline.networks.interface import Outputs
from tests.methods.cases import B, C, check_golden, double, generator, golden, problem, single_positives

FOCAL = {"lamb": 1.5, "positive": {"kind": "focal_margin", "margin": 1.0, "gamma": 2.0}}
LOG = {"lamb": 1.5, "positive": {"kind": "log", "floor": 0.0}}
SETTINGS = [FOCAL, LOG, {**FOCAL, "lamb": 2.0}]
FAR = [-745.0, -120.0, -30.0, -3.0, -0.1, 0.0, 0.1, 3.0, 17.0, 30.0, 120.0, 745.0]


@pytest.mark.parametrize("case", golden("hill_mlml"), ids=lambda case: case["name"])
def test_golden_numbers_with_focal_margin(case):
    given = case["settings"]
    positive = {"kind": given["positive"], "margin": given["margin"], "gamma": given["gamma"]}
    settings = {"lamb": given["lamb"], "positive": positive}
    check_golden("hill", case, settings, torch.tensor(case["observed"], dtype=torch.int8))


@pytest.mark.parametrize("case", golden("hill_gr"), ids=lambda case: case["name"])
def test_golden_numbers_with_log(case):
    settings = {"lamb": case["settings"]["lamb"], "positive": {"kind": case["settings"]["positive"], "floor": 0.0}}
    check_golden("hill", case, settings, torch.tensor(case["observed"], dtype=torch.int8))


def hill(z: list[float], lamb: float, dtype: torch.dtype) -> tuple[list[float], list[float]]:
    method: Method = build("hill", {**LOG, "lamb": lamb}, problem())
    logits = torch.tensor([z], dtype=dtype, requires_grad=True)
    value = method.cells(logits, torch.zeros(1, len(z)), torch.tensor([0])).l3
    value.sum().backward()
    assert logits.grad is not None
    return value[0].tolist(), logits.grad[0].tolist()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_hill_and_its_slope_are_exact_on_both_sides(dtype, tolerance):
    values, slopes = hill(FAR, 1.5, dtype)
    for z, value, slope in zip(FAR, values, slopes, strict=True):
        p, q = 1 / (1 + math.exp(min(-z, 700))), 1 / (1 + math.exp(min(z, 700)))
        assert value == pytest.approx((1.5 - p) * p**2, rel=tolerance, abs=1e-40)
        assert slope == pytest.approx(3 * p**2 * q**2, rel=tolerance, abs=1e-37)


@pytest.mark.parametrize("lamb", [1.0, 1.2, 2.0, 3.0])
def test_other_lambda(lamb):
    near = FAR[3:8]
    values, slopes = hill(near, lamb, torch.float64)
    p = torch.sigmoid(double(near))
    torch.testing.assert_close(double(values), (lamb - p) * p**2, rtol=1e-13, atol=0)
    torch.testing.assert_close(double(slopes), p * (2 * lamb - 3 * p) * p * (1 - p), rtol=1e-12, atol=0)


def test_focal_margin_without_margin_and_focus_is_log():
    batch = Outputs(torch.randn(1, B, C, generator=generator(1))), single_positives(B), torch.arange(B)
    plain = build("hill", {**FOCAL, "positive": {"kind": "focal_margin", "margin": 0.0, "gamma": 0.0}}, problem())(
        *batch
    )["risk"]
    torch.testing.assert_close(plain, build("hill", LOG, problem())(*batch)["risk"])
