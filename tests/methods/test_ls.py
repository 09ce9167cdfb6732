import pytest
import torch

from pipeline.methods.shared.base import build
from pipeline.networks.interface import Outputs
from tests.methods.cases import B, C, check_golden, close, generator, golden, problem, single_positives

SETTINGS = [{"eps": 0.1, "half": False, "floor": 0.0}, {"eps": 0.3, "half": True, "floor": 0.0}]


@pytest.mark.parametrize("case", golden("an_ls"), ids=lambda case: case["name"])
def test_golden_numbers(case):
    settings = {key: case["settings"][key] for key in ("eps", "half")} | {"floor": 0.0}
    check_golden("ls", case, settings, torch.tensor(case["observed"], dtype=torch.int8))


@pytest.mark.parametrize("half", [False, True])
def test_smoothing_nothing_is_an(half):
    batch = Outputs(torch.randn(1, B, C, generator=generator(1))), single_positives(B), torch.arange(B)
    expected = build("an", {"floor": 0.0}, problem())(*batch)["risk"]
    assert torch.equal(build("ls", {"eps": 0.0, "half": half, "floor": 0.0}, problem())(*batch)["risk"], expected)


@pytest.mark.parametrize(("half", "present", "absent"), [(False, 0.8, 0.2), (True, 0.9, 0.1)])
def test_loss_is_stationary_where_the_prediction_is_the_target(half, present, absent):
    observed = single_positives(B)
    targets = absent + (present - absent) * observed.double()
    logits = torch.logit(targets).unsqueeze(0).requires_grad_()
    method = build("ls", {"eps": 0.2, "half": half, "floor": 0.0}, problem())
    method(Outputs(logits), observed, torch.arange(B))["risk"].backward()
    close(logits.grad, torch.zeros(1, B, C).tolist())


def test_known_absence_is_not_smoothed():
    logits = torch.zeros(1, 1, C, dtype=torch.float64, requires_grad=True)
    observed = torch.tensor([[-1, 0, 1, 0, 0]], dtype=torch.int8)
    method = build("ls", {"eps": 0.2, "half": False, "floor": 0.0}, problem())
    method(Outputs(logits), observed, torch.tensor([0]))["risk"].backward()
    assert logits.grad is not None
    close(logits.grad[0, 0, :3] * C, [0.5, 0.3, -0.3])  # p minus target 0, 0.2, 0.8
