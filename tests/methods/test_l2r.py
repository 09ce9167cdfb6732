import pytest
import torch

from pipeline.methods.shared.base import build
from pipeline.networks.interface import Outputs
from tests.methods.cases import close, double, golden, problem

SETTINGS = [{"weight": 1e-3}]
WEIGHTS = ([[1.5, -2.0], [0.0, 0.25]], [[[-3.0]]])


def terms(weights, weight: float, case) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    logits = double([case["logits"]]).requires_grad_()
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    outputs = Outputs(logits, parameters=weights)
    return build("l2r", {"weight": weight}, problem())(outputs, observed, torch.arange(len(observed))), logits


@pytest.mark.parametrize("case", golden("an"), ids=lambda case: case["name"])
def test_risk_and_its_gradient_are_those_of_an(case):
    answer, logits = terms((double(WEIGHTS[0]).requires_grad_(),), 0.5, case)
    assert list(answer) == ["risk", "norm"]
    torch.stack(list(answer.values())).sum().backward()
    close(answer["risk"], case["expected"]["loss"])
    assert logits.grad is not None
    close(logits.grad[0], case["expected"]["grad_logits"])


def test_norm_and_its_gradient_are_summed_over_all_weights():
    weight = 0.5
    weights = tuple(double(value).requires_grad_() for value in WEIGHTS)
    answer, _ = terms(weights, weight, golden("an")[0])
    answer["norm"].backward()
    flat = [value for rows in WEIGHTS for value in double(rows).flatten().tolist()]
    assert sum(value * value for value in flat) == 15.3125
    close(answer["norm"], weight * 15.3125)
    gradient = torch.cat([value.grad.flatten() for value in weights if value.grad is not None])
    close(gradient, [2 * weight * value for value in flat])


def test_frozen_network_has_no_norm():
    answer, _ = terms((), 0.5, golden("an")[0])
    close(answer["norm"], 0)


def test_half_precision_weights_are_summed_in_float32():
    answer, _ = terms((torch.full((300, 300), 1.0, dtype=torch.float16),), 1.0, golden("an")[0])
    assert answer["norm"].item() == 90_000  # half precision ends at 65,504


def test_missing_weights_are_an_error():
    with pytest.raises(ValueError, match="l2r needs"):
        terms(None, 0.5, golden("an")[0])
