import pytest
import torch

from pipeline.methods.shared.base import build
from pipeline.networks.interface import Outputs
from tests.methods.cases import B, C, check_golden, generator, golden, problem, single_positives

SETTINGS = [{"weight": 0.1}, {"weight": 0.0}]


@pytest.mark.parametrize("case", golden("dw"), ids=lambda case: case["name"])
def test_golden_numbers(case):
    check_golden("dw", case, case["settings"], torch.tensor(case["observed"], dtype=torch.int8))


@pytest.mark.parametrize(("weight", "same"), [(1.0, "an"), (1 / (C - 1), "wan"), (0.0, "iun")])
def test_special_weights_are_other_methods(weight, same):
    outputs = Outputs(torch.randn(1, B, C, generator=generator(1)))
    batch = outputs, single_positives(B), torch.arange(B)
    own = {"floor": 0.0} | ({"weight": "published"} if same == "wan" else {})
    expected = build(same, own, problem())(*batch)["risk"]
    torch.testing.assert_close(build("dw", {"weight": weight}, problem())(*batch)["risk"], expected)
