"""Cell losses against the math module and mpmath-free closed forms."""

import math
from typing import Any

import pytest
import torch

from pipeline import cells
from pipeline.cells import Cells, cell_risk, confident, confident_labels, consistency, consistency_cells, masked_mean

FAR = [-745.0, -120.0, -50.0, -20.5, -3.0, 0.0, 1e-3, 3.0, 20.5, 37.0, 120.0, 745.0]


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def value_and_gradient(function, z: list[float], dtype=torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    logits = torch.tensor(z, dtype=dtype, requires_grad=True)
    value = function(logits)
    value.sum().backward()
    assert logits.grad is not None
    return value.detach(), logits.grad


def near(actual: torch.Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-15)


def test_log_losses_are_exact_at_any_logit():
    value, gradient = value_and_gradient(cells.log_present, FAR)
    near(value, [softplus(-z) for z in FAR])
    near(gradient, [-sigmoid(-z) for z in FAR])
    value, gradient = value_and_gradient(cells.log_absent, FAR)
    near(value, [softplus(z) for z in FAR])
    near(gradient, [sigmoid(z) for z in FAR])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_missed_positive_keeps_its_whole_gradient(dtype):
    _, gradient = value_and_gradient(cells.log_present, [-50.0, -745.0], dtype)
    assert gradient.tolist() == [-1, -1]


@pytest.mark.parametrize("q", [1e-3, 0.01, 0.5, 1.0, 3.0])
def test_power_loss(q):
    value, gradient = value_and_gradient(lambda z: cells.power_present(z, q), FAR)
    near(value, [(1 - math.exp(-q * softplus(-z))) / q if q * softplus(-z) > 1e-3 else
                 softplus(-z) * (1 - q * softplus(-z) / 2 + (q * softplus(-z)) ** 2 / 6 - (q * softplus(-z)) ** 3 / 24)
                 for z in FAR])  # fmt: skip
    near(gradient, [-math.exp(-q * softplus(-z)) * sigmoid(-z) for z in FAR])


def test_power_loss_at_the_ends_of_q():
    z = torch.tensor(FAR, dtype=torch.float64)
    assert torch.equal(cells.power_present(z, 0), cells.log_present(z))
    near(cells.power_present(z, 1.0), [sigmoid(-v) for v in FAR])
    torch.testing.assert_close(cells.power_present(z, 1e-9), cells.log_present(z), rtol=1e-6, atol=0)


def test_power_loss_has_a_finite_gradient_where_the_probability_rounds_to_zero():
    """(1 - p)^q as a power of the float32 probability has gradient inf there; exp(q logsigmoid) has this one."""
    _, gradient = value_and_gradient(lambda z: cells.power_present(-z, 0.01), [17.0, 104.0], torch.float32)
    torch.testing.assert_close(gradient, torch.tensor([math.exp(-0.17), math.exp(-1.04)]), rtol=1e-5, atol=0)


def test_entropy():
    value, gradient = value_and_gradient(cells.entropy, FAR)
    near(value, [sigmoid(z) * softplus(-z) + sigmoid(-z) * softplus(z) for z in FAR])
    near(gradient, [-z * sigmoid(z) * sigmoid(-z) for z in FAR])
    assert value[FAR.index(0.0)].item() == pytest.approx(math.log(2), rel=1e-15)


def test_only_half_precision_is_promoted():
    for dtype, expected in [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.int8, torch.int8),
        (torch.bool, torch.bool),
    ]:
        assert cells.in_float32(torch.ones(2, dtype=dtype)).dtype == expected


def test_cell_risk_charges_by_what_is_known():
    observed = torch.tensor([[1, 0, -1], [0, 0, 1]], dtype=torch.int8)
    belief = torch.tensor([[0.9, 0.25, 0.9], [0.0, 1.0, 0.3]])
    weight = torch.tensor([[9.0, 2.0, 9.0], [1.0, -0.5, 9.0]])
    l1, l2, l3 = (torch.full((2, 3), value) for value in (1.0, 10.0, 100.0))
    expected = [[1, 2 * (0.25 * 10 + 0.75 * 100), 100], [100, -0.5 * 10, 1]]
    torch.testing.assert_close(cell_risk(Cells(belief, weight, l1, l2, l3), observed), torch.tensor(expected))


def test_cell_risk_broadcasts_and_keeps_each_gradient_apart():
    observed = torch.tensor([[1, 0, -1]], dtype=torch.int8)
    logits = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    belief = torch.tensor(0.25, dtype=torch.float64, requires_grad=True)
    risk = cell_risk(Cells(belief, torch.tensor(2.0), 3 * logits, 5 * logits, 7 * logits + 1), observed)
    assert risk.shape == (1, 3)
    risk.sum().backward()
    assert logits.grad is not None and belief.grad is not None
    near(logits.grad[0], [3, 2 * (0.25 * 5 + 0.75 * 7), 7])
    assert belief.grad.item() == 2 * (0 - 1)


def test_assume_negative():
    z = torch.tensor([[0.5, 0.5, 0.5]], dtype=torch.float64)
    risk = cells.assume_negative(z, torch.tensor([[1, 0, -1]], dtype=torch.int8))
    near(risk[0], [softplus(-0.5), softplus(0.5), softplus(0.5)])


def test_masked_mean():
    values = torch.tensor([1.0, 5.0, 30.0], requires_grad=True)
    assert masked_mean(values, torch.tensor([True, True, False])).item() == 3
    nothing = masked_mean(values, torch.zeros(3, dtype=torch.bool))
    nothing.backward()
    assert nothing.item() == 0
    assert values.grad is not None and values.grad.tolist() == [0, 0, 0]


HALF = torch.zeros(1, 3)  # p = 0.5 exactly
LABELS = torch.tensor([[1, 0, -1]], dtype=torch.int8)


def test_threshold_of_the_code_is_strict_below_and_sees_known_labels():
    present, absent = confident(HALF, LABELS, 0.5, "code")
    assert (present.tolist(), absent.tolist()) == ([[True, True, False]], [[False, False, True]])
    present, absent = confident(torch.tensor([[9.0, -9.0, 9.0]]), LABELS, 0.9, "code")
    assert (present.tolist(), absent.tolist()) == ([[True, False, False]], [[False, True, True]])


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


@pytest.mark.parametrize("gamma", [0, 0.3, 1, 2, 4])
def test_focal_loss_and_its_gradient_with_and_without_that_of_the_weight(gamma):
    weights = [math.exp(-gamma * softplus(z)) for z in FAR]
    value, gradient = value_and_gradient(lambda z: cells.focal_present(z, gamma), FAR)
    near(value, [weight * softplus(-z) for weight, z in zip(weights, FAR, strict=True)])
    near(gradient, [-weight * (sigmoid(-z) + gamma * sigmoid(z) * softplus(-z))
                    for weight, z in zip(weights, FAR, strict=True)])  # fmt: skip
    detached, gradient = value_and_gradient(lambda z: cells.focal_present(z, gamma, detach_weight=True), FAR)
    assert torch.equal(detached, value)
    near(gradient, [-weight * sigmoid(-z) for weight, z in zip(weights, FAR, strict=True)])


def test_focal_loss_of_a_missed_positive_keeps_its_gradient():
    _, gradient = value_and_gradient(lambda z: cells.focal_present(z, 2.0), [-50.0, -745.0], torch.float32)
    assert gradient.tolist() == [-1, -1]


@pytest.mark.parametrize("lamb", [1.0, 1.5, 2.0])
def test_hill_loss_and_its_gradient(lamb):
    value, gradient = value_and_gradient(lambda z: cells.hill_absent(z, lamb), FAR)
    near(value, [(lamb - sigmoid(z)) * sigmoid(z) ** 2 for z in FAR])
    near(gradient, [((2 * lamb - 3) * sigmoid(z) + 3 * sigmoid(z) * sigmoid(-z)) * sigmoid(z) * sigmoid(-z)
                    for z in FAR])  # fmt: skip


def test_hill_loss_rises_all_the_way_at_its_published_lambda():
    _, gradient = value_and_gradient(lambda z: cells.hill_absent(z, 1.5), [-17.0, -2.0, 0.0, 2.0, 17.0])
    assert (gradient > 0).all() and gradient.argmax() == 2
    assert gradient[2].item() == pytest.approx(3 / 16, rel=1e-15)


def test_large_losses_are_counted_exactly_or_as_the_authors_do():
    """Five steps of 0.005 of 320 cells are 8; the floats' running difference says a little more."""
    logits = torch.linspace(-1, 1, 320, dtype=torch.float64).view(16, 20)
    everything = torch.ones(16, 20, dtype=torch.bool)
    assert math.ceil(320 * (1 - (1 - 0.005 - 0.005 - 0.005 - 0.005 - 0.005))) == 9
    exact = cells.large_losses(logits, everything, 0.005, 5, "exact")
    running = cells.large_losses(logits, everything, 0.005, 5, "running")
    assert exact.flatten().nonzero().flatten().tolist() == list(range(312, 320))
    assert running.flatten().nonzero().flatten().tolist() == list(range(311, 320))


def test_large_losses_are_ranked_among_unknown_cells_with_ties():
    logits = torch.tensor([[2.0, 5.0, 2.0], [-1.0, 2.0, 3.0]])
    unknown = torch.tensor([[True, False, True], [True, False, True]])
    found = [cells.large_losses(logits, unknown, 1 / 6, steps, "exact").tolist() for steps in range(7)]
    top = [[False, False, False], [False, False, True]]
    tied = [[True, False, True], [False, False, True]]
    assert found == [[[False] * 3] * 2, top, tied, tied] + [unknown.tolist()] * 3
    assert not cells.large_losses(logits, torch.zeros(2, 3, dtype=torch.bool), 1.0, 1, "exact").any()


# ---------------------------------------------------------------------------------------------- expected negatives
def past(counts: list[int], per_image: float, n: int, decay: float = 0.5, first: Any = "assume_negative"):
    return cells.PastPredictions(torch.tensor(counts), per_image, n, decay, first).double()


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
    near(memory.average.flatten(), [0.2, 0.4, 0.0])
    before = memory.negatives.clone()
    memory.note(logit([[0.6], [0.1]]), torch.tensor([1, 2]))
    near(memory.average.flatten(), [0.2, 0.4, 0.0])
    assert torch.equal(memory.negatives, before)
    memory.renew()
    near(memory.average.flatten(), [0.2, 0.75 * 0.4 + 0.25 * 0.6, 0.1])
    memory.renew()  # nothing was met in between
    near(memory.average.flatten(), [0.2, 0.45, 0.1])
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


def test_log_cells_are_an_log_loss_with_any_belief_and_weight():
    logits = torch.tensor([[-2.0, 0.5], [3.0, -120.0]], dtype=torch.float64)
    p = torch.tensor([[0.11920292202211755, 0.6224593312018546], [0.9525741268224334, 0.0]], dtype=torch.float64)
    found = cells.log_cells(logits, p, 0.25)
    assert found.belief is p and torch.equal(found.weight, torch.full_like(logits, 0.25))
    expected = torch.tensor([[-math.log(p[0, 0]), -math.log(p[0, 1])], [-math.log(p[1, 0]), 120.0]]).double()
    torch.testing.assert_close(found.l1, expected, rtol=1e-6, atol=0)
    assert found.l2 is found.l1
    torch.testing.assert_close(found.l3, found.l1 + logits, rtol=1e-12, atol=1e-15)
    assert not cells.log_cells(logits).belief.any() and (cells.log_cells(logits).weight == 1).all()
