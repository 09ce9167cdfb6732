import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.methods.shared.base import Method, build
from pipeline.methods.shared.cells import cell_risk
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import close, double, golden

PUBLISHED = {"theta": 0.95, "beta": 1e-4, "warmup": 0.2, "floor": 0.0}
SETTINGS: list[dict[str, Any]] = [PUBLISHED, {"theta": 0.6, "beta": 0.5, "warmup": 0.0, "floor": 0.0}]
LOSSES, ROUNDS = golden("mime")[:-1], golden("mime")[-1]


def made(rows: int, classes: int, **settings: float) -> Method:
    problem = Problem(rows, ("",) * classes, torch.ones(classes, dtype=torch.int64), None)
    return build("mime", {**PUBLISHED, **settings}, problem).double()


def unknown(rows: int, classes: int) -> Tensor:
    return torch.zeros(rows, classes, dtype=torch.int8)


def run(method: Method, epochs: int, logits: Tensor, observed: Tensor) -> list[int]:
    """Go through a stage with the same predictions every time; the number of corrected cells after each epoch."""
    counts = []
    for epoch in range(1, epochs + 1):
        method.begin_epoch(epoch, epochs)
        method.end_epoch(logits, observed)
        counts.append(int((method.get_buffer("corrected") > 0).sum()))
    return counts


def divergence(mean: float, raw: float) -> float:
    """From N(mean, std^2) to N(0, 1), by the midpoint rule over ten deviations to each side."""
    std = math.exp(min(max(raw / 2, -6), 6))
    total, steps = 0.0, 4000
    for step in range(steps):
        t = 20 * (step + 0.5) / steps - 10  # x = mean + std t
        log_p = -t * t / 2 - math.log(std)
        log_q = -((mean + std * t) ** 2) / 2
        total += math.exp(-t * t / 2) / math.sqrt(2 * math.pi) * (log_p - log_q) * 20 / steps
    return total


# ---------------------------------------------------------------------------------------------- the loss
@pytest.mark.parametrize("case", LOSSES, ids=lambda case: case["name"])
def test_golden_loss(case):
    observed, expected = torch.tensor(case["observed"], dtype=torch.int8), case["expected"]
    method = made(*observed.shape, beta=case["settings"]["beta"])
    logits = double([case["logits"]]).requires_grad_()
    mean, raw = double(case["mu"]).requires_grad_(), double(case["raw_scale"]).requires_grad_()
    posterior = torch.stack([mean, raw], dim=-2).unsqueeze(0)
    terms = method(Outputs(logits, posterior=posterior), observed, torch.arange(len(observed)))
    assert list(terms) == ["risk", "kl"]
    close(terms["risk"], expected["an"])
    close(terms["kl"] / case["settings"]["beta"], expected["kl"])
    total = terms["risk"] + terms["kl"]
    total.backward()
    close(total, expected["loss"])
    assert logits.grad is not None
    close(logits.grad[0], expected["grad_logits"])
    close(mean.grad, expected["grad_mu"])
    close(raw.grad, expected["grad_raw_scale"])


@pytest.mark.parametrize(("mean", "raw"), [(0.0, 0.0), (1.5, -3.0), (-0.2, 2.0), (0.3, -11.0)])
def test_kl_is_the_divergence_by_numerical_integration(mean, raw):
    posterior = double([[[[[mean], [raw]]]]])  # (1, 1, 1, 2, 1)
    terms = made(1, 1, beta=1.0)(Outputs(torch.zeros(1, 1, 1), posterior=posterior), unknown(1, 1), torch.tensor([0]))
    assert terms["kl"].item() == pytest.approx(divergence(mean, raw), rel=1e-6, abs=1e-9)


def test_a_standard_normal_costs_nothing_and_beyond_the_clamp_only_the_mean_learns():
    posterior = double([[[[[0.0, 2.0], [0.0, 30.0]]]]]).requires_grad_()
    method = made(1, 1, beta=1.0)
    terms = method(Outputs(torch.zeros(1, 1, 1), posterior=posterior), unknown(1, 1), torch.tensor([0]))
    close(terms["kl"], (0 + (4 + math.exp(12) - 1) / 2 - 6) / 2)
    terms["kl"].backward()
    close(posterior.grad, [[[[[0.0, 1.0], [0.0, 0.0]]]]])


def test_corrected_cells_are_charged_as_present_by_their_row():
    method = made(3, 2, beta=0.0)
    method.get_buffer("corrected")[2, 1] = 4
    logits = double([[[0.3, -1.2], [0.8, 2.0]]]).requires_grad_()
    posterior = torch.zeros(1, 2, 2, 2, 1, dtype=torch.float64)
    observed = torch.tensor([[1, 0], [0, 0]], dtype=torch.int8)
    terms = method(Outputs(logits, posterior=posterior), observed, torch.tensor([2, 0]))
    terms["risk"].backward()
    p = [[1 / (1 + math.exp(-z)) for z in row] for row in ((0.3, -1.2), (0.8, 2.0))]
    close(terms["risk"], -(math.log(p[0][0]) + math.log(p[0][1]) + math.log(1 - p[1][0]) + math.log(1 - p[1][1])) / 4)
    close(logits.grad, [[[(p[0][0] - 1) / 4, (p[0][1] - 1) / 4], [p[1][0] / 4, p[1][1] / 4]]])


def test_a_head_without_bottleneck_is_refused():
    with pytest.raises(ValueError, match="posterior"):
        made(1, 1)(Outputs(torch.zeros(1, 1, 1)), unknown(1, 1), torch.tensor([0]))


# ---------------------------------------------------------------------------------------------- the labels
def test_golden_accumulation():
    observed, epochs = torch.tensor(ROUNDS["observed"], dtype=torch.int8), 10
    settings = ROUNDS["settings"]
    method = made(*observed.shape, theta=settings["theta"], warmup=settings["warmup_epoch"] / epochs)
    index, before = torch.arange(len(observed)), unknown(*observed.shape).bool()
    for given in ROUNDS["rounds"]:
        method.begin_epoch(given["epoch"], epochs)
        logits = double(given["logits"])
        method.end_epoch(logits, observed)
        labels = method.pseudo_labels(logits, observed, index)
        assert labels is not None
        current = observed + labels
        assert current.tolist() == given["expected"]["labels_after"]
        assert int((current == 1).sum()) == given["expected"]["positives"]
        since, now = method.get_buffer("corrected"), labels > 0
        assert (since[now & ~before] == given["epoch"]).all() and ((since > 0) == now).all()
        before = now


@pytest.mark.parametrize(
    ("warmup", "epochs", "first"), [(0.2, 10, 2), (0.5, 10, 5), (0.3, 5, 2), (0.0, 3, 1), (0.2, 2, 1), (1.0, 3, 3)]
)
def test_warmup_is_a_rounded_share_of_the_epochs(warmup, epochs, first):
    counts = run(made(4, 1, warmup=warmup), epochs, torch.full((4, 1), 9.0), unknown(4, 1))
    assert counts == [4 if epoch >= first else 0 for epoch in range(1, epochs + 1)]


def test_the_decimal_counts_not_the_binary_number():
    """0.29 of 50 epochs is 14.5 and rounds up; the binary product is just under it."""
    assert 0.29 * 50 < 14.5
    counts = run(made(1, 1, warmup=0.29), 50, torch.full((1, 1), 9.0), unknown(1, 1))
    assert counts.index(1) == 14


def test_only_unknown_cells_strictly_above_theta_are_corrected():
    observed = torch.tensor([[1], [-1], [0], [0], [0]], dtype=torch.int8)
    method = made(5, 1, theta=0.5, warmup=0.0)
    run(method, 1, double([[9], [9], [0], [1e-9], [-9]]), observed)
    assert method.get_buffer("corrected").flatten().tolist() == [0, 0, 0, 1, 0]
    labels = method.pseudo_labels(torch.zeros(5, 1), observed, torch.arange(5))
    assert labels is not None and labels.flatten().tolist() == [0, 0, 0, 1, 0]


def test_a_corrected_cell_stays_so_and_keeps_its_epoch():
    method = made(1, 1, warmup=0.0)
    for epoch, z in ((1, 0.0), (2, 9.0), (3, -9.0), (4, 9.0)):
        method.begin_epoch(epoch, 4)
        method.end_epoch(double([[z]]), unknown(1, 1))
        assert method.get_buffer("corrected").item() == (0 if epoch == 1 else 2)


def test_theta_one_corrects_nothing_even_at_saturation():
    assert run(made(1, 1, theta=1.0, warmup=0.0), 2, double([[800]]), unknown(1, 1)) == [0, 0]


@pytest.mark.parametrize(
    ("logits", "message"), [(torch.zeros(4, 1), r"\(4, 1\)"), (torch.full((3, 1), torch.nan), "not finite")]
)
def test_impossible_predictions_are_refused(logits, message):
    method = made(3, 1)
    method.begin_epoch(1, 2)
    with pytest.raises(ValueError, match=message):
        method.end_epoch(logits, unknown(3, 1))


def test_the_floor_is_what_the_authors_code_adds():
    """-log(p + floor) where observed, -log(1 - p + floor) elsewhere."""
    method = made(1, 2, floor=0.01)
    logits, observed = double([[-30.0, 3.0]]), torch.tensor([[1, 0]], dtype=torch.int8)
    risk = cell_risk(method.cells(logits, observed, torch.tensor([0])), observed)
    p = torch.sigmoid(logits)
    close(risk, [[-math.log(p[0, 0].item() + 0.01), -math.log(1 - p[0, 1].item() + 0.01)]])
