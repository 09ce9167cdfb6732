"""What every method must do on label draws with several positives a row, none, or known negatives; no method named."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.methods.shared import base
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import C, D, N, any_labels, case_id, generator, make, method_cases, outputs

LABELS = any_labels(N)
ROWS = torch.arange(N)
KNOWN_ABSENT = LABELS == -1
CASES = method_cases()
every_case = pytest.mark.parametrize("case", CASES, ids=case_id)


def cases_where(condition) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [case for case in CASES if condition(make(*case))], ids=case_id)


def logits_of(seed: int, views: int = 3) -> Tensor:
    return 3 * torch.randn(views, N, C, generator=generator(seed), dtype=torch.float64)


def trained(case: tuple[str, dict[str, Any]], order: Any = slice(None), shift: float = 0.0) -> base.Method:
    """A method in the third of four epochs that has seen all rows in each one before, with these labels.

    Args:
        case: Its name and settings.
        order: Order of the classes.
        shift: Added to all past logits of known absences.
    """
    observed = LABELS[:, order]
    positives, absences = (observed == 1).sum(0), int((observed == -1).sum())
    beliefs = torch.rand(N, C, generator=generator(7))
    problem = Problem(N, ("",) * C, positives, 3.0, D, absences, beliefs)  # 3: more than the observed ones
    torch.manual_seed(0)
    method = base.build(*case, problem).double()
    method.begin_training(observed)
    if "disk" in method.needs:
        method.open_disk(Path(tempfile.mkdtemp()))
    for epoch in (1, 2):
        method.begin_epoch(epoch, 4)
        logits = torch.where(KNOWN_ABSENT, logits_of(epoch) + shift, logits_of(epoch))[..., order]
        with torch.no_grad():
            method(outputs(method, logits, seed=epoch, requires_grad=False), observed, ROWS)
        if "epoch_logits" in method.needs:
            method.end_epoch(logits[0], observed)
        method.flush()
    method.begin_epoch(3, 4)
    return method


def slopes(method: base.Method, logits: Tensor, observed: Tensor = LABELS) -> tuple[dict[str, float], Tensor]:
    """Terms of the loss, and the gradient of their sum at the logits of the first view."""
    answer = outputs(method, logits)
    torch.manual_seed(1)
    terms = method(answer, observed, ROWS)
    torch.stack(list(terms.values())).sum().backward()
    assert answer.logits.grad is not None
    return {name: term.item() for name, term in terms.items()}, answer.logits.grad[0]


def test_the_labels_here_are_of_every_kind():
    positives, absences = (LABELS == 1).sum(1), (LABELS == -1).sum(1)
    assert {0, 1, 2, 3} <= set(positives.tolist()) and {0, 1, 2, 3} <= set(absences.tolist())
    assert ((positives > 1) & (absences > 0) & (positives + absences < C)).any()
    assert (positives + absences).max() == C and (positives + absences).min() == 0


@every_case
def test_loss_and_gradients_are_finite(case):
    method = trained(case)
    everywhere = [torch.full((3, N, C), value, dtype=torch.float64) for value in (90.0, -90.0)]
    for training, logits in ((False, logits_of(7)), *((True, logits) for logits in (logits_of(7), *everywhere))):
        method.train(training).zero_grad()
        terms, slope = slopes(method, logits)
        assert all(value == value and abs(value) < float("inf") for value in terms.values()), terms
        assert torch.isfinite(slope).all()
        assert all(torch.isfinite(p.grad).all() for p in method.parameters() if p.grad is not None)


@every_case
def test_known_cells_are_pulled_to_what_is_known(case):
    """Present ones up and absent ones down, while the prediction says the contrary and nothing of unknown cells."""
    method = trained(case)
    _, slope = slopes(method, -LABELS.double().expand(3, N, C))
    assert (slope[LABELS == 1] < 0).all()
    assert (slope[KNOWN_ABSENT] > 0).all()


@cases_where(lambda method: not method.coupled)
def test_risk_of_a_known_cell_falls_towards_what_is_known(case):
    """Up to a probability of 0.8, beyond which smoothed labels turn."""
    method, grid = trained(case), torch.linspace(-30, 30, 601, dtype=torch.float64)
    risks = []
    for z in grid:
        cells = method.cells(z.expand(N, C), LABELS, ROWS)
        risks.append(torch.where(LABELS == 1, cells.l1, cells.l3))
    rise = torch.stack(risks).diff(dim=0)  # (600, N, C)
    assert (rise[grid[1:] <= 1.4][:, LABELS == 1] < 0).all()
    assert (rise[grid[:-1] >= -1.4][:, KNOWN_ABSENT] > -1e-12).all()


@every_case
def test_predictions_of_known_absences_decide_nothing_elsewhere(case):
    """No known absence is ranked, counted or remembered as if it were unknown."""
    method, other = trained(case), trained(case, shift=20.0)
    for each in (method, other):
        each.eval()
    z, unknown = logits_of(8), LABELS == 0
    first, second = slopes(method, z)[1], slopes(other, z)[1]
    torch.testing.assert_close(first[unknown], second[unknown], rtol=1e-12, atol=1e-15)
    labels = [each.pseudo_labels(z[0], LABELS, ROWS) for each in (method, other)]
    labels.append(method.pseudo_labels(torch.where(KNOWN_ABSENT, z[0] + 20, z[0]), LABELS, ROWS))
    for found in labels[1:]:
        assert (labels[0] is None) == (found is None)
        assert labels[0] is None or found is None or torch.equal(labels[0], found)


@every_case
def test_known_cells_get_no_pseudo_label(case):
    method = trained(case, shift=5.0)
    for logits in (logits_of(9)[0], torch.full((N, C), 30.0).double(), torch.full((N, C), -30.0).double()):
        labels = method.pseudo_labels(logits, LABELS, ROWS)
        assert labels is None or not labels[LABELS != 0].any()


@cases_where(
    lambda method: not list(method.parameters()) and set(method.needs) <= {"epoch_logits", "expected_positives"}
)
def test_order_of_the_classes_does_not_matter(case):
    """Also with a past; where it starts at random or reads more than logits, there is no order to compare."""
    order, z = torch.tensor([3, 1, 4, 0, 2]), logits_of(11)
    terms, slope = slopes(trained(case), z)
    shuffled, shuffled_slope = slopes(trained(case, order), z[..., order], LABELS[:, order])
    assert shuffled == pytest.approx(terms, rel=1e-12, abs=1e-15)
    torch.testing.assert_close(shuffled_slope, slope[:, order], rtol=1e-12, atol=1e-15)


@every_case
def test_order_of_the_rows_does_not_matter(case):
    method, order = trained(case).eval(), torch.randperm(N, generator=generator(12))
    answer = outputs(method, logits_of(12), requires_grad=False)
    fields = {name: value for name, value in vars(answer).items() if value is not None and name != "parameters"}
    shuffled = Outputs(**{name: value[:, order] for name, value in fields.items()}, parameters=answer.parameters)
    first, second = method(answer, LABELS, ROWS), method(shuffled, LABELS[order], ROWS[order])
    for term in first:
        torch.testing.assert_close(first[term], second[term], rtol=1e-12, atol=1e-14)
