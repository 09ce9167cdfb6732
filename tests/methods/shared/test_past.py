from typing import Any

import pytest
import torch

from pipeline.methods.shared.past import PastPredictions


def past(counts: list[int], per_image: float, n: int, decay: float = 0.5, first: Any = "assume_negative"):
    """A memory that expects ``per_image * counts`` positives of each class among n images."""
    density = per_image * sum(counts) / n  # sum(counts) / n labels of an image are observed
    return PastPredictions(torch.tensor(counts), density, n, decay, first).double()


def logit(p: list[list[float]]) -> torch.Tensor:
    return torch.logit(torch.tensor(p, dtype=torch.float64))


def test_expected_positives_are_rounded_as_decimals_and_never_exceed_the_images():
    def expected(counts: list[int], per_image: float, n: int) -> list[int]:
        return PastPredictions(torch.tensor(counts), per_image, n, 0.5, "assume_negative").expected.tolist()

    assert expected([10, 30, 0, 3], 1.15, 43) == [12, 35, 0, 3]  # 11.5 upwards, though 1.15 is below it; 34.5
    assert expected([1, 3, 5], 0.5, 9) == [1, 2, 3]
    assert expected([3, 3], 1.9, 6) == [6, 6]  # 5.7
    assert expected([3, 5], 1.9, 8) == [6, 8]  # 5.7 and 9.5


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([4, 4, 2], [12, 12, 6]),  # one of ten images' labels each
        ([8, 8, 4], [12, 12, 6]),  # two each: the shares tell the same, and no class has more labels for it
        ([2, 2, 1], [12, 12, 6]),  # one each in half of the images
        ([12, 12, 6], [12, 12, 6]),  # all of them
        ([5, 1, 0], [25, 5, 0]),
        ([0, 0, 0], [0, 0, 0]),
    ],
)
def test_expected_positives_are_the_classs_share_of_all_labels(counts: list[int], expected: list[int]):
    """Ten images times three labels, however many of the thirty are observed."""
    made = PastPredictions(torch.tensor(counts), 3.0, 10, 0.5, "assume_negative")
    assert made.expected.tolist() == [min(10, count) for count in expected]


def test_a_known_absence_takes_no_place_of_an_expected_positive():
    """Two of five images are expected to have the class; the image predicted most surely to have it is known not to."""
    memory = past([2], 1.0, 5)
    memory.begin(torch.tensor([[0], [-1], [0], [0], [0]], dtype=torch.int8))
    memory.note(logit([[0.3], [0.9], [0.5], [0.2], [0.4]]), torch.arange(5))
    memory.renew()
    assert memory.negatives.flatten().tolist() == [True, True, False, True, False]  # 0.5 and 0.4 are left
    memory.begin(torch.tensor([[0], [-1], [-1], [-1], [-1]], dtype=torch.int8))
    memory.renew()  # more known absences than the three expected ones: no unknown cell is one
    assert memory.labels(torch.tensor([[0], [-1], [-1], [-1], [-1]]), torch.arange(5)).flatten().tolist() == [0] * 5


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
