"""Cell losses against the math module and mpmath-free closed forms."""

import math

import pytest
import torch

from pipeline.methods.shared import base, cells
from pipeline.methods.shared.cells import Cells, cell_risk, masked_mean
from pipeline.methods.shared.problem import Problem

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


@pytest.mark.parametrize("floor", [1e-7, 1e-5, 0.3])
def test_log_losses_with_a_floor_are_bounded_and_their_gradient_fades(floor):
    value, gradient = value_and_gradient(lambda z: cells.log_present(z, floor), FAR)
    # p + floor = 1 + floor - (1 - p), whose logarithm is exact near 1
    near(value, [-math.log(sigmoid(z) + floor) if z < 0 else -math.log1p(floor - sigmoid(-z)) for z in FAR])
    near(gradient, [-sigmoid(z) * sigmoid(-z) / (sigmoid(z) + floor) for z in FAR])
    mirrored, upwards = value_and_gradient(lambda z: cells.log_absent(-z, floor), FAR)
    assert torch.equal(mirrored, value) and torch.equal(upwards, gradient)
    single, slope = value_and_gradient(lambda z: cells.log_present(z, floor), FAR, torch.float32)
    torch.testing.assert_close(single.double(), value, rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(slope.double(), gradient, rtol=1e-5, atol=1e-9)


def test_without_a_floor_the_log_loss_is_the_same_bit_for_bit():
    for dtype in (torch.float32, torch.float64):
        z = torch.tensor(FAR, dtype=dtype)
        assert torch.equal(cells.log_present(z), -torch.nn.functional.logsigmoid(z))
        assert torch.equal(cells.log_absent(z), -torch.nn.functional.logsigmoid(-z))


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


@pytest.mark.parametrize(
    ("share", "n", "expected"),
    [(0.7, 45, 32), (0.29, 50, 15), (0.05, 10, 1), (0.25, 10, 3), (0.25, 9, 2), (1e-5, 50000, 1), (1e-5, 49999, 0)],
)
def test_a_share_is_rounded_as_the_decimal_that_it_prints_as(share, n, expected):
    """Halves go up; in floats 0.7 * 45 is just under 31.5, and `round` takes halves to the even number."""
    assert cells.rounded_share(share, n) == expected
    assert cells.rounded_share(0.0, n) == cells.rounded_share(share, 0) == 0 and cells.rounded_share(1.0, n) == n


@pytest.mark.parametrize(
    ("labels", "weight"),
    [
        ([1, 0, 0, 0, 0, 0], 1 / 5),
        ([0, 0, 0, 0, 0, 0], 1 / 5),  # nothing known: as if one of six were
        ([1, 0, 1, 0, 0, 0], 2 / 4),
        ([1, -1, 0, -1, 0, 0], 1 / 3),
        ([-1, 0, 0, 0, 0, 0], 1 / 4),
        ([1, -1, 0, 1, 1, 0], 1.0),  # not 3 / 2
        ([1, -1, -1, -1, -1, 1], 1.0),  # no unknown label to weigh
        ([-1, -1, -1, -1, -1, -1], 1.0),
        ([1, 1, 1, 1, 1, 1], 1.0),
    ],
)
def test_assumed_absences_weigh_together_as_the_known_labels(labels, weight):
    beside = [1, 0, 0, 0, 0, 0]
    found = cells.assumed_weight(torch.tensor([labels, beside], dtype=torch.int8), torch.float64, "balanced")
    assert found.dtype == torch.float64 and found.tolist() == [[weight], [1 / 5]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_with_one_known_label_an_assumed_absence_weighs_as_published_bit_for_bit(dtype):
    for classes in range(2, 400):
        observed = torch.zeros(2, classes, dtype=torch.int8)
        observed[0, classes // 2] = 1
        published = torch.full((2, 1), 1 / (classes - 1), dtype=dtype)
        for rule in ("published", "balanced"):
            assert torch.equal(cells.assumed_weight(observed, dtype, rule), published)


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
    floored = cells.log_cells(logits, floor=0.1)
    assert floored.l2 is floored.l1 and torch.equal(floored.l1, cells.log_present(logits, 0.1))
    assert torch.equal(floored.l3, cells.log_absent(logits, 0.1))


@pytest.mark.parametrize("z", [-40.0, -3.0, 0.0, 9.0, 16.5, 20.0, 40.0, 80.0])
def test_a_cell_believed_as_the_network_is_sure_keeps_its_entropy_in_single_precision(z: float) -> None:
    """By closed forms in double precision: -p log p - (1 - p) log(1 - p), with the gradient -z p (1 - p)."""
    logits = torch.tensor([[z]], dtype=torch.float32, requires_grad=True)
    risk = cell_risk(cells.log_cells_of(logits, logits), torch.zeros(1, 1, dtype=torch.int8))
    risk.backward()
    far = math.exp(-abs(z))
    p, q = (1 / (1 + far), far / (1 + far)) if z >= 0 else (far / (1 + far), 1 / (1 + far))
    softplus = math.log1p(far)
    expected = p * (softplus + max(-z, 0)) + q * (softplus + max(z, 0))
    assert risk.item() == pytest.approx(expected, rel=1e-5)
    assert logits.grad is not None
    assert logits.grad.item() == pytest.approx(-z * p * q, rel=1e-4, abs=1e-30)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("em", {"alpha": 1.0, "floor": 0.0}),
        (
            "em_apl",
            {
                "alpha": 1.0,
                "beta": 0.5,
                "proportion": 0.9,
                "warmup": 0.5,
                "target": "soft",
                "positive": 0.0,
                "floor": 0.0,
            },
        ),
        ("entmin", {"weight": 1.0}),
    ],
)
def test_methods_of_entropy_push_a_sure_cell_in_single_precision(name: str, own: dict) -> None:
    method = base.build(name, own, Problem(1, ("a", "b"), torch.ones(2, dtype=torch.int64), None))
    logits = torch.tensor([[18.0, 30.0]], requires_grad=True)
    cell_risk(
        method.cells(logits, torch.zeros(1, 2, dtype=torch.int8), torch.tensor([0])), torch.zeros(1, 2)
    ).sum().backward()
    assert logits.grad is not None
    expected = torch.tensor([[z * math.exp(-z) / (1 + math.exp(-z)) ** 2 for z in (18.0, 30.0)]])
    torch.testing.assert_close(logits.grad.abs(), expected, rtol=1e-4, atol=0)
