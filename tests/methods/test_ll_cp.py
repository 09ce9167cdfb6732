import math

import pytest
import torch

from pipeline.methods.shared.base import Method
from pipeline.networks.interface import Outputs
from tests.methods import large_loss
from tests.methods.cases import close, double, golden

SETTINGS = [{"delta": 0.1}, {"delta": 0.002}]


def make(shape: tuple[int, ...], epoch: int, delta: float) -> Method:
    return large_loss.make("ll_cp", shape, epoch, delta=delta)


def kept(method: Method) -> torch.Tensor:
    return method.get_buffer("corrected")


def step(method: Method, z: torch.Tensor, observed: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return method(Outputs(z.unsqueeze(0)), observed, index)["risk"]


@large_loss.goldens("ll_loss", "LL-Cp")
def test_golden_loss(case):
    expected, observed = case["expected"], torch.tensor(case["observed"])
    method = large_loss.check_golden_loss("ll_cp", case, lambda method, logits, observed: kept(method))
    assert ((observed == 1) | kept(method)).int().tolist() == expected["observed_after"]
    if expected["threshold_loss"] is not None:
        losses = torch.log1p(double(case["logits"]).exp())
        strict = kept(method) & (losses > losses[kept(method)].min())
        assert strict.nonzero().tolist() == expected["flipped_by_authors_strict_test"]


@large_loss.goldens("ll_rates", "LL-Cp")
def test_golden_counts(case):
    """The share does not grow, and each batch corrects that many more."""
    n = case["batch"] * case["classes"]
    logits = torch.linspace(-4, 4, n, dtype=torch.float64).view(case["batch"], case["classes"])
    observed, counts = torch.zeros(logits.shape, dtype=torch.int8), [0]
    method = make(logits.shape, 1, float(f"{case['rate_percent']}e-2"))
    for epoch in range(1, 11):
        method.begin_epoch(epoch, 10)
        step(method, logits, observed, torch.arange(case["batch"]))
        counts.append(int(kept(method).sum()))
    new = [after - before for before, after in zip(counts, counts[1:], strict=False)]
    assert new == case["expected"]["k_per_epoch"] == case["expected"]["k_authors_floating_point"]


@pytest.mark.parametrize("case", golden("ll_cp_sequence"), ids=lambda case: case["name"])
def test_golden_sequence(case):
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    method = make(observed.shape, 1, 0.1)
    for given in case["steps"]:
        expected, index = given["expected"], torch.tensor(given["index"])
        method.begin_epoch(given["epoch"], 10)
        before = kept(method).clone()
        logits = double(given["logits"]).requires_grad_()
        risk = step(method, logits, observed[index], index)
        risk.backward()
        close(risk, expected["loss"])
        close(logits.grad, expected["grad_logits"])
        new = kept(method) & ~before
        assert new[index].nonzero().tolist() == expected["modified"]
        assert int(new.sum()) == expected["k"]
        assert ((observed == 1) | kept(method)).int().tolist() == expected["labels_after"]


def test_corrections_are_kept_by_row_of_the_training_split_and_stay_when_the_prediction_turns():
    method, observed = make((5, 3), 2, 0.25), torch.zeros(5, 3, dtype=torch.int8)
    index = torch.tensor([4, 1])
    step(method, double([[0, 3, 0], [2, 0, 0]]), observed[index], index)  # two of six cells
    assert kept(method).nonzero().tolist() == [[1, 0], [4, 1]]
    labels = method.pseudo_labels(double([[-9.0] * 3] * 3), observed[:3], torch.tensor([0, 1, 4]))
    assert labels is not None and labels.tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    cells = method.cells(double([[-9, -9, 5]]), observed[:1], torch.tensor([1]))
    assert cells.belief.tolist() == [[1, 0, 1]]  # kept, and the one that this batch would add


def test_a_batch_of_one_cell_to_correct_corrects_it():
    """The authors' strict test would keep none."""
    method = make((1, 20), 2, 0.001)
    step(
        method,
        torch.arange(20.0, dtype=torch.float64).view(1, 20),
        torch.zeros(1, 20, dtype=torch.int8),
        torch.tensor([0]),
    )
    assert kept(method).nonzero().tolist() == [[0, 19]]


def test_only_training_corrects_and_eval_mode_charges_what_is_kept():
    z, observed, index = double([[1, 3, 0]]), torch.zeros(1, 3, dtype=torch.int8), torch.tensor([0])
    method = make((1, 3), 2, 0.25).eval()
    risk = step(method, z, observed, index)
    close(risk, (math.log1p(math.exp(1)) + math.log1p(math.exp(3)) + math.log(2)) / 3)
    assert not kept(method).any() and not method.cells(z, observed, index).belief.any()
    corrected = (math.log1p(math.exp(1)) + math.log1p(math.exp(-3)) + math.log(2)) / 3
    close(step(method.train(), z, observed, index), corrected)
    assert kept(method).tolist() == [[False, True, False]]
    close(step(method.eval(), z, observed, index), corrected)
    assert kept(method).tolist() == [[False, True, False]]


def test_known_labels_are_never_corrected_however_many_are_asked_for():
    observed = torch.tensor([[1, 0, -1]], dtype=torch.int8)
    method, z = make((1, 3), 2, 1.0), double([[1.0, -2.0, 0.5]])
    for _ in range(2):  # the second finds nothing left to correct
        risk = step(method, z, observed, torch.tensor([0]))
        close(risk, (math.log1p(math.exp(-1)) + math.log1p(math.exp(2)) + math.log1p(math.exp(0.5))) / 3)
    assert kept(method).tolist() == [[False, True, False]]


def test_every_epoch_goes_on_from_what_the_last_one_kept():
    method, observed = make((1, 4), 1, 0.25), torch.zeros(1, 4, dtype=torch.int8)
    z, index = double([[4, 3, 2, 1]]), torch.tensor([0])
    counts = []
    for epoch in range(1, 8):
        method.begin_epoch(epoch, 7)
        step(method, z, observed, index)
        counts.append(int(kept(method).sum()))
    assert counts == [0, 1, 2, 3, 4, 4, 4]
