import math

import pytest
import torch

from pipeline.methods.shared.cells import cell_risk
from pipeline.methods.shared.consistency import confident, confident_labels, consistency, consistency_cells


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


HALF = torch.zeros(1, 3)  # p = 0.5 exactly
LABELS = torch.tensor([[1, 0, -1]], dtype=torch.int8)


def test_threshold_of_the_code_is_strict_below_and_sees_known_labels():
    present, absent = confident(HALF, LABELS, 0.5, "code")
    assert (present.tolist(), absent.tolist()) == ([[True, True, False]], [[False, False, True]])
    present, absent = confident(torch.tensor([[9.0, -9.0, 9.0]]), LABELS, 0.9, "code")
    assert (present.tolist(), absent.tolist()) == ([[True, False, False]], [[False, True, True]])
    for z in (-99.0, 99.0):  # p = 0 and p = 1 exactly
        present, absent = confident(torch.full((1, 3), z), LABELS, 1.0, "code")
        assert (present[0, 0], absent[0, 2]) == (True, True) and not present[0, 2] and not absent[0, 0]


def test_threshold_of_the_paper_is_inclusive_and_sees_unknown_cells_only():
    present, absent = confident(HALF, LABELS, 0.5, "paper")
    assert present.tolist() == absent.tolist() == [[False, True, False]]
    present, absent = confident(HALF, LABELS, 0.6, "paper")
    assert not present.any() and not absent.any()


def test_consistency_of_a_hand_computed_batch():
    weak = torch.tensor([[3.0, -3.0, 0.1], [0.0, 3.0, 0.0]], dtype=torch.float64)
    strong = torch.tensor([[1.0, 2.0, 9.0], [-1.0, -2.0, 9.0]], dtype=torch.float64)
    observed = torch.tensor([[0, 0, 0], [1, 0, 0]], dtype=torch.int8)
    sure = softplus(-1) + softplus(2) + softplus(2)
    assert consistency(weak, strong, observed, 0.9, "code").item() == pytest.approx((sure + softplus(1)) / 4)
    assert consistency(weak, strong, observed, 0.9, "paper").item() == pytest.approx(sure / 2)


def test_consistency_cells_hold_both_targets_where_the_paper_has_both():
    answer = consistency_cells(HALF, torch.zeros(1, 3, dtype=torch.int8), 0.5, "paper")
    risk = cell_risk(answer, torch.zeros(1, 3, dtype=torch.int8))
    torch.testing.assert_close(risk, torch.full((1, 3), 2 * math.log(2)))
    labels = confident_labels(HALF, torch.zeros(1, 3, dtype=torch.int8), 0.5, "paper")
    assert labels.dtype == torch.int8 and labels.tolist() == [[0, 0, 0]]


def test_consistency_cells_ignore_what_is_not_sure():
    logits = torch.tensor([[4.0, 0.0, -4.0]])
    answer = consistency_cells(logits, torch.zeros(1, 3, dtype=torch.int8), 0.9, "code")
    assert (answer.belief.tolist(), answer.weight.tolist()) == ([[1, 0, 0]], [[1, 0, 1]])
