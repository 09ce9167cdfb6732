import pytest
import torch

from tests.methods.cases import check_golden, golden

SETTINGS = [{"floor": 0.0}]


@pytest.mark.parametrize("case", golden("an"), ids=lambda case: case["name"])
def test_golden_numbers(case):
    check_golden("an", case, SETTINGS[0], torch.tensor(case["observed"], dtype=torch.int8))
