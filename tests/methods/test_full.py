import pytest
import torch

from pipeline.methods.shared.base import build
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import check_golden, double, golden

SETTINGS = [{"smoothing": 0.0, "floor": 0.0}, {"smoothing": 0.1, "floor": 0.0}]


@pytest.mark.parametrize("case", golden("bce_full"), ids=lambda case: case["name"])
def test_golden_numbers(case):
    """Absent labels are coded 0 in the goldens and -1 in the label set `all`."""
    labels = torch.tensor(case["observed"], dtype=torch.int8)
    settings = {"smoothing": case["settings"].get("smoothing", 0.0), "floor": 0.0}
    check_golden("full", case, settings, torch.where(labels == 1, 1, -1).to(torch.int8))


def test_a_cell_whose_truth_nobody_knows_counts_for_nothing():
    method = build("full", SETTINGS[0], Problem(1, ("a", "b", "c"), torch.tensor([1, 0, 0]), None))
    logits = double([[[0.3, -1.2, 5.0]]]).requires_grad_()
    risk = method(Outputs(logits), torch.tensor([[1, -1, 0]], dtype=torch.int8), torch.tensor([0]))["risk"]
    p = torch.sigmoid(double([0.3, -1.2]))
    torch.testing.assert_close(risk.detach(), -(p[0].log() + (1 - p[1]).log()) / 3)
    risk.backward()
    assert logits.grad is not None and logits.grad[0, 0, 2] == 0


def test_smoothing_moves_the_stationary_point():
    """With s = 0.1 an absent label is content at p = 0.1 and a present one at 0.9."""
    method = build("full", SETTINGS[1], Problem(1, ("a", "b"), torch.tensor([1, 0]), None))
    logits = double([[[0.9, 0.1]]]).logit().requires_grad_()
    method(Outputs(logits), torch.tensor([[1, -1]], dtype=torch.int8), torch.tensor([0]))["risk"].backward()
    torch.testing.assert_close(logits.grad, torch.zeros_like(logits), rtol=0, atol=1e-15)
