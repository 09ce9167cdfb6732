import pytest
import torch

from pipeline.methods.shared.base import build
from pipeline.networks.interface import Outputs
from tests.methods.cases import B, C, check_golden, close, generator, golden, problem, single_positives

SETTINGS = [{"gamma": 2.0, "alpha": 0.75}, {"gamma": 2.0, "alpha": None}, {"gamma": 0.5, "alpha": 0.75}]


@pytest.mark.parametrize("case", golden("focal"), ids=lambda case: case["name"])
def test_golden_numbers(case):
    check_golden("focal", case, case["settings"], torch.tensor(case["observed"], dtype=torch.int8))


@pytest.mark.parametrize("case", golden("fan"), ids=lambda case: case["name"])
def test_golden_numbers_without_balance(case):
    settings = {**case["settings"], "alpha": None}
    check_golden("focal", case, settings, torch.tensor(case["observed"], dtype=torch.int8))


@pytest.mark.parametrize(("alpha", "factor"), [(None, 1), (0.5, 0.5)])
def test_without_focus_it_is_an(alpha, factor):
    batch = Outputs(torch.randn(1, B, C, generator=generator(1))), single_positives(B), torch.arange(B)
    expected = factor * build("an", {"floor": 0.0}, problem())(*batch)["risk"]
    torch.testing.assert_close(build("focal", {"gamma": 0.0, "alpha": alpha}, problem())(*batch)["risk"], expected)


def test_alpha_weights_the_observed_label_and_the_rest_of_it_all_others():
    observed = torch.tensor([[1, 0, -1, 0, 0]], dtype=torch.int8)
    logits = torch.zeros(1, 1, C, dtype=torch.float64, requires_grad=True)
    method = build("focal", {"gamma": 0.0, "alpha": 0.75}, problem())
    method(Outputs(logits), observed, torch.tensor([0]))["risk"].backward()
    assert logits.grad is not None
    close(logits.grad[0] * C, [[-0.375, 0.125, 0.125, 0.125, 0.125]])
