import math
from typing import Any

import pytest
import torch

from pipeline.methods.shared.base import Method
from pipeline.networks.interface import Outputs
from tests.methods import large_loss
from tests.methods.cases import close, double, golden

SETTINGS = [
    {"delta": 0.1, "arithmetic": "exact"},
    {"delta": 0.002, "arithmetic": "running"},
    {"delta": 1.0, "arithmetic": "exact"},
]


def make(shape: tuple[int, ...], epoch: int, delta: float) -> Method:
    return large_loss.make("ll_r", shape, epoch, delta=delta, arithmetic="exact")


def dropped(method: Method, logits: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
    return method.cells(logits, observed, torch.arange(len(logits))).weight == 0


@pytest.mark.parametrize("arithmetic", ["exact", "running"])
@large_loss.goldens("ll_loss", "LL-R")
def test_golden_loss(case, arithmetic):
    large_loss.check_golden_loss("ll_r", case, dropped, arithmetic=arithmetic)


@large_loss.by_arithmetic
@large_loss.goldens("ll_rates", "LL-R")
def test_golden_counts(case, arithmetic, key):
    large_loss.check_golden_counts("ll_r", case, dropped, arithmetic, key)


@pytest.mark.parametrize("case", golden("ll_rates"), ids=lambda case: case["name"])
def test_goldens_of_the_two_arithmetics_differ_where_they_say(case):
    exact, theirs = case["expected"]["k_per_epoch"], case["expected"]["k_authors_floating_point"]
    differ = [epoch for epoch, (one, other) in enumerate(zip(exact, theirs, strict=True), 1) if one != other]
    assert differ == case["expected"]["epochs_where_they_differ"]


def test_ranking_is_over_the_whole_batch_and_over_unknown_cells_only():
    logits = double([[9, 1, 2], [8, 7, 10]])
    observed = torch.tensor([[1, 0, 0], [0, 0, -1]], dtype=torch.int8)
    chosen = dropped(make((2, 3), 2, 0.5), logits, observed)  # 3 of 6 cells
    assert chosen.tolist() == [[False, False, True], [True, True, False]]


def test_ties_with_the_last_are_dropped_too():
    logits = double([[3, 1, 3], [3, 0, 0]])
    chosen = dropped(make((2, 3), 2, 1 / 8), logits, torch.zeros(2, 3, dtype=torch.int8))
    assert chosen.tolist() == [[True, False, True], [True, False, False]]


def test_when_every_unknown_cell_is_dropped_the_known_ones_remain():
    """Then it is the positive term of EPR, over all cells; the authors' code loses the observed labels here."""
    logits = double([[[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]]]).requires_grad_()
    observed = torch.tensor([[1, 0, 0], [0, 0, 1]], dtype=torch.int8)
    for delta, epoch in ((1.0, 2), (0.5, 10)):
        method = make((2, 3), epoch, delta)
        risk = method(Outputs(logits), observed, torch.arange(2))["risk"]
        close(risk, (math.log1p(math.exp(-1)) + math.log1p(math.exp(1))) / 6)
        assert dropped(method, logits[0].detach(), observed).tolist() == (observed == 0).tolist()


def test_share_is_of_the_batch_at_hand():
    """0.1 of 1 x 5 cells rounds up to one, of 4 x 5 to two."""
    for rows, k in ((1, 1), (4, 2)):
        logits = large_loss.spread(rows, 5)
        assert int(dropped(make((rows, 5), 2, 0.1), logits, torch.zeros(rows, 5, dtype=torch.int8)).sum()) == k


def test_nothing_is_dropped_before_training_in_the_first_epoch_or_without_delta():
    logits, observed = large_loss.spread(3, 4), torch.zeros(3, 4, dtype=torch.int8)
    for epoch, delta in ((0, 0.5), (1, 0.5), (7, 0.0)):
        assert not dropped(make((3, 4), epoch, delta), logits, observed).any()


def test_it_labels_nothing():
    logits: Any = large_loss.spread(3, 4)
    assert make((3, 4), 5, 0.2).pseudo_labels(logits, torch.zeros(3, 4, dtype=torch.int8), torch.arange(3)) is None


def test_what_is_stored_is_what_the_epochs_batches_dropped():
    large_loss.check_record("ll_r", lambda method, *batch: method.cells(*batch).weight == 0)
