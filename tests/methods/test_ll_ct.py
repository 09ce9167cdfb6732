import math

import pytest
import torch

from pipeline.batch import Outputs, Problem
from pipeline.methods.base import Method, build
from tests.methods.cases import close, double, golden

SETTINGS = [
    {"delta": 0.1, "arithmetic": "exact"},
    {"delta": 0.002, "arithmetic": "running"},
]


def make(shape: tuple[int, ...], epoch: int, delta: float, arithmetic: str = "exact") -> Method:
    rows, classes = shape
    problem = Problem(rows, ("",) * classes, torch.zeros(classes, dtype=torch.int64), None)
    method = build("ll_ct", {"delta": delta, "arithmetic": arithmetic}, problem)
    method.begin_epoch(epoch, 10)
    return method


def corrected(method: Method, logits: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
    labels = method.pseudo_labels(logits, observed, torch.arange(len(logits)))
    assert labels is not None
    return labels


@pytest.mark.parametrize("arithmetic", ["exact", "running"])
@pytest.mark.parametrize(
    "case", [c for c in golden("ll_loss") if c["settings"]["scheme"] == "LL-Ct"], ids=lambda case: case["name"]
)
def test_golden_loss(case, arithmetic):
    given, expected = case["settings"], case["expected"]
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    method = make(observed.shape, given["epoch"], given["rate_percent"] / 100, arithmetic)
    logits = double([case["logits"]]).requires_grad_()
    terms = method(Outputs(logits), observed, torch.arange(len(observed)))
    assert list(terms) == ["risk"]
    terms["risk"].backward()
    close(terms["risk"], expected["loss"])
    close(terms["risk"] * observed.numel(), expected["loss_sum"])
    assert logits.grad is not None
    close(logits.grad[0], expected["grad_logits"])
    labels = corrected(method, logits[0].detach(), observed)
    assert labels.nonzero().tolist() == expected["modified"]
    assert int(labels.sum()) == expected["modified_count"]
    if expected["threshold_loss"] is not None:
        losses = torch.log1p(logits[0].detach().exp())
        close(losses[labels == 1].min(), expected["threshold_loss"])


@pytest.mark.parametrize(("arithmetic", "key"), [("exact", "k_per_epoch"), ("running", "k_authors_floating_point")])
@pytest.mark.parametrize(
    "case", [c for c in golden("ll_rates") if c["scheme"] == "LL-Ct"], ids=lambda case: case["name"]
)
def test_golden_counts(case, arithmetic, key):
    n = case["batch"] * case["classes"]
    logits = torch.linspace(-4, 4, n, dtype=torch.float64).view(case["batch"], case["classes"])
    observed = torch.zeros(logits.shape, dtype=torch.int8)
    counts = []
    for epoch in range(1, 11):
        method = make(logits.shape, epoch, float(f"{case['rate_percent']}e-2"), arithmetic)
        counts.append(int(corrected(method, logits, observed).sum()))
    assert counts == case["expected"][key]


def test_observed_labels_stay_when_every_unknown_cell_is_corrected():
    """The authors' code inverts the observed label and the known absence here."""
    z = [1.0, -2.0, 0.5]
    observed = torch.tensor([[1, 0, -1]], dtype=torch.int8)
    method = make((1, 3), 2, 1.0)
    risk = method(Outputs(double([[z]])), observed, torch.tensor([0]))["risk"]
    close(risk, (math.log1p(math.exp(-1)) + math.log1p(math.exp(2)) + math.log1p(math.exp(0.5))) / 3)
    assert corrected(method, double([z]), observed).tolist() == [[0, 1, 0]]


def test_correction_lasts_one_step():
    """The same rows with other logits are ranked anew."""
    method, observed = make((1, 4), 2, 0.25), torch.zeros(1, 4, dtype=torch.int8)
    for place in (2, 0, 3):
        logits = torch.zeros(1, 4, dtype=torch.float64)
        logits[0, place] = 1
        method(Outputs(logits.unsqueeze(0)), observed, torch.tensor([0]))
        assert corrected(method, logits, observed).nonzero().tolist() == [[0, place]]
    assert set(method.state_dict()) == {"clock"}
