import math

import pytest
import torch

from pipeline.methods.shared.base import Method
from pipeline.networks.interface import Outputs
from tests.methods import large_loss
from tests.methods.cases import close, double

SETTINGS = [
    {"delta": 0.1, "arithmetic": "exact"},
    {"delta": 0.002, "arithmetic": "running"},
]


def make(shape: tuple[int, ...], delta: float) -> Method:
    """In the second epoch."""
    return large_loss.make("ll_ct", shape, 2, delta=delta, arithmetic="exact")


def corrected(method: Method, logits: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
    """By a batch of these rows, in training mode."""
    return (method.cells(logits, observed, torch.arange(len(logits))).belief == 1) & (observed == 0)


@pytest.mark.parametrize("arithmetic", ["exact", "running"])
@large_loss.goldens("ll_loss", "LL-Ct")
def test_golden_loss(case, arithmetic):
    large_loss.check_golden_loss("ll_ct", case, corrected, arithmetic=arithmetic)


@large_loss.by_arithmetic
@large_loss.goldens("ll_rates", "LL-Ct")
def test_golden_counts(case, arithmetic, key):
    large_loss.check_golden_counts("ll_ct", case, corrected, arithmetic, key)


def test_observed_labels_stay_when_every_unknown_cell_is_corrected():
    """The authors' code inverts the observed label and the known absence here."""
    z = [1.0, -2.0, 0.5]
    observed = torch.tensor([[1, 0, -1]], dtype=torch.int8)
    method = make((1, 3), 1.0)
    risk = method(Outputs(double([[z]])), observed, torch.tensor([0]))["risk"]
    close(risk, (math.log1p(math.exp(-1)) + math.log1p(math.exp(2)) + math.log1p(math.exp(0.5))) / 3)
    assert corrected(method, double([z]), observed).tolist() == [[False, True, False]]


def test_correction_lasts_one_step():
    """The same rows with other logits are ranked anew."""
    method, observed = make((1, 4), 0.25), torch.zeros(1, 4, dtype=torch.int8)
    for place in (2, 0, 3):
        logits = torch.zeros(1, 4, dtype=torch.float64)
        logits[0, place] = 1
        method(Outputs(logits.unsqueeze(0)), observed, torch.tensor([0]))
        assert corrected(method, logits, observed).nonzero().tolist() == [[0, place]]


def test_what_is_stored_is_what_the_epochs_batches_corrected():
    large_loss.check_record("ll_ct", lambda method, *batch: method.pseudo_labels(*batch) == 1)
    large_loss.check_record("ll_ct", lambda method, *batch: method.cells(*batch).belief == 1)
