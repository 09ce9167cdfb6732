from typing import Any

import pytest
import torch

from pipeline.parts.past import PastPredictions


def past(counts: list[int], per_image: float, n: int, decay: float = 0.5, first: Any = "assume_negative"):
    return PastPredictions(torch.tensor(counts), per_image, n, decay, first).double()


def logit(p: list[list[float]]) -> torch.Tensor:
    return torch.logit(torch.tensor(p, dtype=torch.float64))


def test_expected_positives_are_rounded_as_decimals_and_never_exceed_the_images():
    assert past([10, 30, 0, 3], 1.15, 20).expected.tolist() == [12, 20, 0, 3]  # 11.5 upwards, though 1.15 is below it
    assert past([1, 3, 5], 0.5, 20).expected.tolist() == [1, 2, 3]


def test_the_lowest_averages_are_negative_equal_ones_by_row_and_unseen_ones_last():
    memory = past([2, 0, 5], 1.0, 5)
    memory.note(logit([[0.5, 0.1, 0.1], [0.3, 0.1, 0.1], [0.5, 0.1, 0.1], [0.5, 0.1, 0.1]]), torch.tensor([4, 1, 2, 3]))
    memory.renew()
    assert memory.seen.tolist() == [False, True, True, True, True]
    assert memory.negatives.T.tolist() == [
        [False, True, True, True, False],  # three of five; 2 and 3 before 4, and 0 was not met
        [True] * 5,
        [False] * 5,
    ]


def test_an_epochs_predictions_wait_for_its_end_and_a_row_left_out_keeps_its_average():
    memory = past([1], 1.0, 3, decay=0.75)
    memory.note(logit([[0.2], [0.4]]), torch.tensor([0, 1]))
    assert not memory.average.any() and not memory.seen.any()
    memory.renew()
    assert memory.average.flatten().tolist() == pytest.approx([0.2, 0.4, 0.0], rel=1e-12)
    before = memory.negatives.clone()
    memory.note(logit([[0.6], [0.1]]), torch.tensor([1, 2]))
    assert memory.average.flatten().tolist() == pytest.approx([0.2, 0.4, 0.0], rel=1e-12)
    assert torch.equal(memory.negatives, before)
    memory.renew()
    assert memory.average.flatten().tolist() == pytest.approx([0.2, 0.75 * 0.4 + 0.25 * 0.6, 0.1], rel=1e-12)
    memory.renew()  # nothing was met in between
    assert memory.average.flatten().tolist() == pytest.approx([0.2, 0.45, 0.1], rel=1e-12)
    assert memory.negatives.flatten().tolist() == [True, False, True]


@pytest.mark.parametrize(("first", "negative"), [("assume_negative", True), ("positives_only", False)])
def test_the_first_epoch_charges_all_unknown_cells_or_none_and_labels_none(first: str, negative: bool):
    memory, index = past([1, 1], 1.0, 2, first=first), torch.arange(2)
    observed = torch.tensor([[1, 0], [0, -1]])
    for _ in range(2):
        assert (memory.cells(torch.zeros(2, 2), index).weight == float(negative)).all()
        assert memory.labels(observed, index).tolist() == [[0, 0], [0, 0]]
        memory.renew()  # no prediction has been made
    memory.note(logit([[0.1, 0.2], [0.3, 0.1]]), index)
    memory.renew()
    assert memory.cells(torch.zeros(2, 2), index).weight.tolist() == [[1, 0], [0, 1]]
    assert memory.labels(observed, index).tolist() == [[0, 0], [0, 0]]  # both negatives are known
    assert memory.labels(torch.zeros(2, 2), index).tolist() == [[-1, 0], [0, -1]]
    assert memory.labels(observed, index).dtype == torch.int8
