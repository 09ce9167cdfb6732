import math
from typing import Any

import pytest
import torch

from pipeline.methods.shared.base import Method, build
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import check_golden, close, double, golden

PUBLISHED: dict[str, Any] = {
    "threshold": 0.6,
    "warmup": 0.0125,
    "margin": 1.0,
    "gamma": 2.0,
    "negative": {"kind": "focal"},
    "corrected_margin": False,
}
HILL = {"kind": "hill", "lamb": 1.5}
SETTINGS = [
    PUBLISHED,
    {**PUBLISHED, "negative": HILL, "corrected_margin": True},
    {**PUBLISHED, "negative": HILL, "warmup": 0.0},
    {**PUBLISHED, "threshold": 0.5, "corrected_margin": True, "warmup": 0.5, "gamma": 0.5},
]


def make(classes: int, epoch: int = 2, epochs: int = 10, **settings: Any) -> Method:
    problem = Problem(9, ("",) * classes, torch.zeros(classes, dtype=torch.int64), None)
    method = build("splc", {**PUBLISHED, **settings}, problem)
    method.begin_epoch(epoch, epochs)
    return method


def nothing_known(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int8)


@pytest.mark.parametrize("case", golden("splc"), ids=lambda case: case["name"])
def test_golden_numbers(case):
    given, expected = case["settings"], case["expected"]
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    settings = {key: given[key] for key in ("margin", "gamma", "corrected_margin")}
    hill = given["negative"] == "hill"
    settings["negative"] = {"kind": given["negative"], **({"lamb": given["lamb"]} if hill else {})}
    settings |= {"threshold": given["tau"], "warmup": given["change_epoch"] / 10}
    method = make(observed.shape[1], epoch=given["epoch"] + 1, **settings)  # theirs are counted from 0
    logits = double([case["logits"]]).requires_grad_()
    terms = method(Outputs(logits), observed, torch.arange(len(observed)))
    assert list(terms) == ["risk"]
    terms["risk"].backward()
    close(terms["risk"], expected["loss"])
    close(terms["risk"] * observed.numel(), expected["loss_sum"])
    assert logits.grad is not None
    close(logits.grad[0], expected["grad_logits"])


@pytest.mark.parametrize(
    ("warmup", "epochs", "first"),
    [
        (0.0125, 80, 2),
        (0.0125, 4, 2),
        (0.0, 4, 1),
        (0.5, 4, 3),
        (0.25, 10, 4),
        (0.24, 10, 3),
        (0.3, 5, 3),
        (0.0125, 1, 2),
    ],
)
def test_warmup_is_a_rounded_share_of_the_epochs_and_at_least_one_unless_zero(warmup, epochs, first):
    """0.25 and 0.3 of 10 and 5 epochs are half an epoch more than a whole number, and round up."""
    logits, observed = double([[9.0]]), nothing_known(1, 1)
    for epoch in range(1, epochs + 1):
        method = make(1, epoch, epochs, warmup=warmup)
        labels = method.pseudo_labels(logits, observed, torch.tensor([0]))
        assert labels is not None and labels.tolist() == [[int(epoch >= first)]]


def test_before_the_correction_it_is_the_focal_margin_loss():
    z = [-2.0, 0.3, 4.0]
    observed = torch.tensor([[1, 0, 0]], dtype=torch.int8)
    risk = make(3, epoch=1)(Outputs(double([[z]])), observed, torch.tensor([0]))["risk"]
    p = [1 / (1 + math.exp(1 - z[0])), *(1 / (1 + math.exp(-value)) for value in z[1:])]
    close(risk, (-((1 - p[0]) ** 2) * math.log(p[0]) - sum(q**2 * math.log(1 - q) for q in p[1:])) / 3)


def test_threshold_one_never_corrects_and_a_tie_is_not_corrected():
    index = torch.tensor([0])
    far = double([[800.0, 0.0, 1e-300, -800.0]])
    never = make(4, threshold=1.0).pseudo_labels(far, nothing_known(1, 4), index)
    assert never is not None and not never.any()
    half = make(4, threshold=0.5).pseudo_labels(far, nothing_known(1, 4), index)
    assert half is not None and half.tolist() == [[1, 0, 0, 0]]


def test_threshold_is_on_the_probability_without_margin_whichever_logit_is_charged():
    """p = 0.64 is above 0.6, though sigmoid(z - 1) is not."""
    z = math.log(0.64 / 0.36)
    for corrected_margin, charged in ((False, z), (True, z - 1)):
        method = make(1, corrected_margin=corrected_margin)
        p = 1 / (1 + math.exp(-charged))
        risk = method(Outputs(double([[[z]]])), nothing_known(1, 1), torch.tensor([0]))["risk"]
        close(risk, -((1 - p) ** 2) * math.log(p))


def test_known_labels_are_never_corrected():
    observed = torch.tensor([[1, -1, 0]], dtype=torch.int8)
    method, logits = make(3), double([[5.0, 5.0, 5.0]])
    labels = method.pseudo_labels(logits, observed, torch.tensor([0]))
    assert labels is not None and labels.tolist() == [[0, 0, 1]]
    p, m = 1 / (1 + math.exp(-5)), 1 / (1 + math.exp(-4))
    risk = method(Outputs(logits.unsqueeze(0)), observed, torch.tensor([0]))["risk"]
    close(risk, (-((1 - m) ** 2) * math.log(m) - p**2 * math.log1p(-p) - (1 - p) ** 2 * math.log(p)) / 3)


@pytest.mark.parametrize("case", golden("hill_mlml"), ids=lambda case: case["name"])
def test_hill_losses_without_correction_are_those_of_hill(case):
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    given = case["settings"]
    own = {"margin": given["margin"], "gamma": given["gamma"], "negative": {"kind": "hill", "lamb": given["lamb"]}}
    settings = {**PUBLISHED, **own, "threshold": 1.0}
    check_golden("splc", case, settings, observed)
