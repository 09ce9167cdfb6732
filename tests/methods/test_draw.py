import math

import pytest
import torch
from torch.nn.functional import logsigmoid

from pipeline.methods.shared.base import build
from pipeline.methods.shared.draw_likelihood import CountDraw, log_likelihood
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import B, C, any_labels, close, double, generator, single_positives

SETTINGS = [{}]


def risk_and_gradient(z: torch.Tensor, observed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Risk, and its gradient times B*C."""
    rows, classes = z.shape
    method = build("draw", {}, Problem(rows, ("",) * classes, observed.sum(0), None))
    logits = z[None].clone().requires_grad_()
    risk = method(Outputs(logits), observed, torch.arange(rows))["risk"]
    risk.backward()
    assert logits.grad is not None
    return risk, logits.grad[0] * z.numel()


def test_two_classes_in_closed_form():
    """One of two labels is shown: P = p_1 (1 - p_2 / 2), and the other is present with p_2 / 2 of that."""
    p1, p2 = 0.7, 0.4
    z = double([[math.log(p1 / (1 - p1)), math.log(p2 / (1 - p2))]])
    risk, gradient = risk_and_gradient(z, torch.tensor([[1, 0]], dtype=torch.int8))
    belief = (p2 / 2) / (1 - p2 / 2)
    expected = -math.log(p1) - belief * math.log(p2) - (1 - belief) * math.log(1 - p2)
    close(risk, expected / 2)
    close(gradient, [[p1 - 1, p2 - belief]])


def test_all_alike_in_closed_form():
    """C - 1 unknown labels of one p: int (1 - e p)^(C - 1) = (1 - (1 - p)^C) / (C p), and Fisher's identity."""
    p, c = 0.3, 6
    z = torch.full((1, c), math.log(p / (1 - p)), dtype=torch.float64)
    _, gradient = risk_and_gradient(z, torch.tensor([[1] + [0] * (c - 1)], dtype=torch.int8))
    slope = c * (1 - p) ** (c - 1) / (1 - (1 - p) ** c) - 1 / p  # d log of it / dp, shared by C - 1 labels
    close(gradient, [[p - 1] + [-slope * p * (1 - p) / (c - 1)] * (c - 1)])


@pytest.mark.parametrize("labels", [single_positives(40), any_labels(40)], ids=["one", "any"])
def test_its_gradient_is_that_of_the_likelihood(labels):
    z = 3 * torch.randn(40, C, generator=generator(1), dtype=torch.float64)
    _, gradient = risk_and_gradient(z, labels)
    given = z.clone().requires_grad_()
    log_likelihood(given, labels, CountDraw()).sum().backward()
    assert given.grad is not None
    torch.testing.assert_close(gradient, -given.grad, rtol=1e-10, atol=1e-12)


def test_image_without_a_known_label_is_not_pushed():
    labels = torch.zeros(B, C, dtype=torch.int8)
    labels[0, 0] = -1
    z = torch.randn(B, C, generator=generator(2), dtype=torch.float64)
    _, gradient = risk_and_gradient(z, labels)
    expected = torch.where(labels == -1, torch.sigmoid(z), 0)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-15)


def test_many_likely_labels_leave_each_its_own_belief_and_none_leave_less():
    """Between e = 0 (EPR without its count: belief p) and e = 1 (AN: belief 0)."""
    sure = torch.full((1, 2000), 3.0, dtype=torch.float64)
    labels = torch.zeros(1, 2000, dtype=torch.int8)
    labels[0, 0] = 1
    method = build("draw", {}, Problem(1, ("",) * 2000, labels.sum(0), None))
    p = torch.sigmoid(sure[0, 1])
    belief = method.cells(sure, labels, torch.arange(1)).belief[0, 1:]
    assert (belief < p).all() and (belief > p - 1e-3).all()  # e is about 1/1900
    rare = method.cells(sure - 20, labels, torch.arange(1)).belief[0, 1:]
    torch.testing.assert_close(rare, torch.exp(logsigmoid(sure[0, 1:] - 20)) / 2, rtol=1e-4, atol=0)  # e is uniform
