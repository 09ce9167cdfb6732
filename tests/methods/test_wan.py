import pytest
import torch

from pipeline.core.errors import ConfigError
from pipeline.methods.shared.base import build
from pipeline.networks.interface import Outputs
from tests.methods.cases import B, C, check_golden, close, double, golden, problem, single_positives

SETTINGS = [{"weight": "published", "floor": 0.0}, {"weight": "balanced", "floor": 0.0}]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings["weight"])
@pytest.mark.parametrize("case", golden("wan"), ids=lambda case: case["name"])
def test_golden_numbers(case, settings):
    check_golden("wan", case, settings, torch.tensor(case["observed"], dtype=torch.int8))


@pytest.mark.parametrize("labels", [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [1, -1, -1, 0, 0]])
def test_the_published_weight_is_one_of_the_classes_alone(labels):
    logits = torch.zeros(1, 1, C, dtype=torch.float64, requires_grad=True)
    observed = torch.tensor([labels], dtype=torch.int8)
    build("wan", SETTINGS[0], problem())(Outputs(logits), observed, torch.tensor([0]))["risk"].backward()
    assert logits.grad is not None  # p = 1/2, C = 5: -1/2 where known present, 1/2 where absent, 1/8 where unknown
    close(logits.grad, [[[{1: -0.5, -1: 0.5, 0: 0.125}[label] / C for label in labels]]])


def test_assumed_absences_of_an_image_pull_as_hard_as_its_one_label():
    logits = torch.zeros(1, B, C, dtype=torch.float64, requires_grad=True)
    build("wan", SETTINGS[0], problem())(Outputs(logits), single_positives(B), torch.arange(B))["risk"].backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad.sum(-1), torch.zeros(1, B).double(), rtol=0, atol=1e-17)


@pytest.mark.parametrize("labels", [[1, 1, 0, 0, 0], [0, 1, 0, 1, 0], [1, 1, -1, 0, 0], [1, -1, 0, 0, -1]])
def test_they_pull_as_hard_as_all_its_labels_together(labels):
    logits = torch.zeros(1, 1, C, dtype=torch.float64, requires_grad=True)
    observed = torch.tensor([labels], dtype=torch.int8)
    build("wan", SETTINGS[1], problem())(Outputs(logits), observed, torch.tensor([0]))["risk"].backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad[0][observed != -1].sum(), double(0.0), rtol=0, atol=1e-16)
    close(logits.grad[0][observed == -1], [1 / 2 / C] * labels.count(-1))


@pytest.mark.parametrize(
    ("labels", "weight"),
    [([0, 0, 0, 0, 0], 1 / 4), ([-1, 0, 0, 0, 0], 1 / 3), ([1, 1, 1, 0, 0], 1.0), ([1, -1, -1, -1, 0], 1.0)],
)
def test_an_image_without_labels_weighs_as_published_and_no_absence_more_than_in_full(labels, weight):
    observed = torch.tensor([labels], dtype=torch.int8)
    cells = build("wan", SETTINGS[1], problem()).cells(torch.zeros(1, C).double(), observed, torch.tensor([0]))
    close(cells.weight, [[weight]])


def test_known_absence_counts_in_full():
    logits = torch.zeros(1, 1, C, dtype=torch.float64, requires_grad=True)
    observed = torch.tensor([[1, -1, 0, 0, 0]], dtype=torch.int8)
    build("wan", SETTINGS[1], problem())(Outputs(logits), observed, torch.tensor([0]))["risk"].backward()
    close(logits.grad, (double([[[-3, 3, 1, 1, 1]]]) / 6 / C).tolist())  # p = 1/2, weight 1/3


def test_one_class_is_refused():
    one = type(problem())(3, ("only",), torch.tensor([3]), None)
    with pytest.raises(ConfigError, match=r"methods\.wan.*two classes"):
        build("wan", SETTINGS[0], one)
