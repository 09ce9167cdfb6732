import pytest
import torch

from pipeline.batch import Outputs
from pipeline.config import ConfigError
from pipeline.methods.base import build
from tests.methods.cases import B, C, check_golden, close, double, golden, problem, single_positives

SETTINGS = [{"floor": 0.0}]


@pytest.mark.parametrize("case", golden("wan"), ids=lambda case: case["name"])
def test_golden_numbers(case):
    check_golden("wan", case, SETTINGS[0], torch.tensor(case["observed"], dtype=torch.int8))


def test_assumed_absences_of_an_image_pull_as_hard_as_its_one_label():
    logits = torch.zeros(1, B, C, dtype=torch.float64, requires_grad=True)
    build("wan", SETTINGS[0], problem())(Outputs(logits), single_positives(B), torch.arange(B))["risk"].backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad.sum(-1), torch.zeros(1, B).double(), rtol=0, atol=1e-17)


def test_known_absence_counts_in_full():
    logits = torch.zeros(1, 1, C, dtype=torch.float64, requires_grad=True)
    observed = torch.tensor([[1, -1, 0, 0, 0]], dtype=torch.int8)
    build("wan", SETTINGS[0], problem())(Outputs(logits), observed, torch.tensor([0]))["risk"].backward()
    close(logits.grad, (double([[[-4, 4, 1, 1, 1]]]) / 8 / C).tolist())  # p = 1/2, weight 1/4


def test_one_class_is_refused():
    one = type(problem())(3, ("only",), torch.tensor([3]), None)
    with pytest.raises(ConfigError, match=r"methods\.wan.*two classes"):
        build("wan", SETTINGS[0], one)
