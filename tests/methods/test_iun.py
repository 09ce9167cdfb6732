import pytest
import torch

from tests.methods.cases import check_golden, golden

SETTINGS = [{"floor": 0.0}]


@pytest.mark.parametrize("case", golden("iun"), ids=lambda case: case["name"])
def test_golden_numbers(case):
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    known = torch.where(torch.tensor(case["truth"]) == 0, -1, observed).to(torch.int8)
    check_golden("iun", case, SETTINGS[0], known)
