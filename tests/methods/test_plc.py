import pytest
import torch

from pipeline.methods.shared.base import Method, build
from pipeline.methods.shared.consistency import confident
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import close, double, golden

SETTINGS = [{"threshold": t, "form": form, "weight_plc": 1.0} for t, form in ((0.6, "code"), (0.9, "paper"))]


def make(classes: int, **settings) -> Method:
    given = {"threshold": 0.6, "form": "code", "weight_plc": 1.0, **settings}
    return build("plc", given, Problem(9, ("",) * classes, torch.zeros(classes, dtype=torch.int64), None))


@pytest.mark.parametrize("case", golden("plc"), ids=lambda case: case["name"])
def test_golden_numbers(case):
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    expected = case["expected"]
    logits = double([case["logits"], case["logits_strong"]]).requires_grad_()
    plc = make(observed.shape[1], **case["settings"])(Outputs(logits), observed, torch.arange(len(observed)))["plc"]
    plc.backward()
    close(plc, expected["loss"])
    assert logits.grad is not None
    assert not logits.grad[0].any()
    close(logits.grad[1], expected["grad_logits_strong"])
    present, absent = confident(logits[0], observed, **case["settings"])
    assert present.int().tolist() == expected["target_positive"]
    assert absent.int().tolist() == expected["target_negative"]


def test_weak_view_alone_carries_the_labels():
    weak, strong = double([[1.0, -2.0]]), double([[0.5, 3.0]])
    logits = torch.stack([weak, strong]).requires_grad_()
    terms = make(2)(Outputs(logits), torch.tensor([[1, 0]], dtype=torch.int8), torch.tensor([0]))
    assert list(terms) == ["an", "plc"]
    terms["an"].backward()
    p = torch.sigmoid(weak)
    close(logits.grad, [[[(p[0, 0].item() - 1) / 2, p[0, 1].item() / 2]], [[0.0, 0.0]]])


def test_no_sure_cell_gives_zero_with_its_graph():
    logits = torch.zeros(2, 1, 3, dtype=torch.float64, requires_grad=True)
    terms = make(3)(Outputs(logits), torch.zeros(1, 3, dtype=torch.int8), torch.tensor([0]))
    assert terms["plc"].item() == 0
    terms["plc"].backward()
    assert logits.grad is not None and not logits.grad.any()


def test_weight_scales_the_consistency_term_only():
    logits = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    observed = torch.eye(4, dtype=torch.int8)[:3]
    one, three = (make(4, weight_plc=w)(Outputs(logits), observed, torch.arange(3)) for w in (1.0, 3.0))
    assert one["an"] == three["an"]
    close(three["plc"], 3 * one["plc"].item())


def test_pseudo_labels_are_the_sure_unknown_cells():
    observed = torch.tensor([[1, 0, 0, 0, -1]], dtype=torch.int8)
    logits = torch.tensor([[-5.0, 2.0, 0.1, -2.0, 5.0]])
    labels = make(5).pseudo_labels(logits, observed, torch.tensor([0]))
    assert labels is not None and labels.tolist() == [[0, 1, 0, -1, 0]]


def test_cells_charge_the_strong_view_as_the_term_does():
    """The term of the code's form is the weighted mean of the cells, with belief from the weak view."""
    method = make(4)
    weak, strong = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    observed = torch.zeros(3, 4, dtype=torch.int8)
    cells = method.cells(weak, observed, torch.arange(3))
    charged = cells.weight * (cells.belief * torch.log1p((-strong).exp()) + (1 - cells.belief) * strong.exp().log1p())
    terms = method(Outputs(torch.stack([weak, strong])), observed, torch.arange(3))
    close(terms["plc"], (charged.sum() / cells.weight.sum()).item())
