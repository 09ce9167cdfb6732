from dataclasses import replace

import pytest
import torch

from pipeline.core.errors import ConfigError
from pipeline.methods.shared.base import build
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import B, C, close, double, generator, golden, problem, single_positives

SETTINGS = [{"weight": 1.0, "floor": 0.0}, {"weight": 0.2, "floor": 0.0}]


@pytest.mark.parametrize("weight", [1.0, 0.3])
@pytest.mark.parametrize("case", golden("epr"), ids=lambda case: case["name"])
def test_golden_numbers(case, weight):
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    rows, classes = observed.shape
    known = Problem(rows, ("",) * classes, observed.sum(0), case["settings"]["expected_positives"])
    logits = double([case["logits"]]).requires_grad_()
    terms = build("epr", {"weight": weight, "floor": 0.0}, known)(Outputs(logits), observed, torch.arange(rows))
    assert list(terms) == ["risk", "count"]
    expected = case["expected"]
    close(terms["risk"], expected["positive_term"])
    close(terms["count"], weight * expected["regulariser"])
    if weight == 1:
        (terms["risk"] + terms["count"]).backward()
        close(terms["risk"] + terms["count"], expected["loss"])
        assert logits.grad is not None
        close(logits.grad[0], expected["grad_logits"])


def test_count_is_that_of_the_batch_not_of_each_image():
    """Five labels and one label are three an image: nothing to mend."""
    logits = torch.full((1, 2, C), 800.0, dtype=torch.float64)
    logits[0, 1, 1:] = -800
    method = build("epr", SETTINGS[0], replace(problem(), expected_positives=3.0))
    close(method(Outputs(logits), single_positives(2), torch.arange(2))["count"], 0)


def test_count_pushes_every_probability_alike():
    logits = torch.randn(1, B, C, generator=generator(1), dtype=torch.float64, requires_grad=True)
    count = build("epr", {"weight": 0.5, "floor": 0.0}, problem())(
        Outputs(logits), single_positives(B), torch.arange(B)
    )["count"]
    count.backward()
    p = torch.sigmoid(logits.detach())
    assert logits.grad is not None
    push = 2 * 0.5 * (p.sum(-1).mean().item() - 1.5) / C**2 / B  # towards the 1.5 labels of the problem
    close(logits.grad / (p * (1 - p)), torch.full((1, B, C), push, dtype=torch.float64).tolist())


def test_unknown_cells_cost_nothing_themselves():
    logits = 9 * torch.ones(1, B, C)
    method = build("epr", {"weight": 0.0, "floor": 0.0}, problem())
    terms = method(Outputs(logits), torch.zeros(B, C, dtype=torch.int8), torch.arange(B))
    assert torch.stack(list(terms.values())).tolist() == [0, 0]


def test_unknown_density_is_refused():
    unknown = replace(problem(), expected_positives=None)
    with pytest.raises(ConfigError, match=r"expected_positives.*`epr` needs it"):
        build("epr", SETTINGS[0], unknown)
