import pytest
import torch

from pipeline.methods.shared.base import build
from pipeline.networks.interface import Outputs
from tests.methods.cases import B, C, check_golden, close, generator, golden, problem, single_positives

SETTINGS = [{"eps": 0.3, "half": False}, {"eps": 0.1, "half": True}]


@pytest.mark.parametrize("case", golden("n_ls"), ids=lambda case: case["name"])
def test_golden_numbers(case):
    check_golden("n_ls", case, case["settings"], torch.tensor(case["observed"], dtype=torch.int8))


@pytest.mark.parametrize("half", [False, True])
def test_smoothing_nothing_is_an(half):
    batch = Outputs(torch.randn(1, B, C, generator=generator(1))), single_positives(B), torch.arange(B)
    expected = build("an", {"floor": 0.0}, problem())(*batch)["risk"]
    torch.testing.assert_close(build("n_ls", {"eps": 0.0, "half": half}, problem())(*batch)["risk"], expected)


@pytest.mark.parametrize(("half", "target"), [(False, 0.2), (True, 0.1)])
def test_only_unknown_cells_rest_at_the_smoothed_target(half, target):
    observed = single_positives(B)
    logits = torch.logit(torch.full((1, B, C), target, dtype=torch.float64)).requires_grad_()
    method = build("n_ls", {"eps": 0.2, "half": half}, problem())
    method(Outputs(logits), observed, torch.arange(B))["risk"].backward()
    close(logits.grad, ((target - 1) * observed.double() / (B * C)).unsqueeze(0).tolist())
