"""One class is a problem too: a method learns it, or says why it cannot."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.core.errors import ConfigError
from pipeline.methods.shared.base import build, names
from pipeline.methods.shared.cells import cell_risk
from pipeline.methods.shared.problem import Problem
from tests.methods.cases import B, Batch, D, N, case_id, generator, loss, method_cases, outputs

REFUSED = {"wan": r"methods\.wan: 1 / \(C - 1\) needs two classes or more"}
"""Method: what it says of one class."""
OBSERVED = torch.tensor([[1], [0]] * (N // 2), dtype=torch.int8)
ONE = Problem(N, ("only",), OBSERVED.sum(0, dtype=torch.int64), 0.75, D, beliefs=torch.full((N, 1), 0.6))


CASES = method_cases()


def test_every_method_is_asked():
    assert {name for name, _ in CASES} == set(names())


@pytest.mark.parametrize("case", [case for case in CASES if case[0] in REFUSED], ids=case_id)
def test_one_class_is_refused_with_a_reason(case: tuple[str, dict[str, Any]]):
    with pytest.raises(ConfigError, match=REFUSED[case[0]]):
        build(*case, ONE)


@pytest.mark.parametrize("case", [case for case in CASES if case[0] not in REFUSED], ids=case_id)
def test_one_class_is_borne(case: tuple[str, dict[str, Any]], tmp_path: Path):
    torch.manual_seed(0)
    method = build(*case, ONE).double()
    method.begin_training(OBSERVED)
    if "disk" in method.needs:
        method.open_disk(tmp_path)
    index = torch.tensor([7, 0, 10, 3])
    observed = OBSERVED[index]
    for epoch in range(1, 5):
        method.begin_epoch(epoch, 4)
        for labels in (observed, torch.zeros_like(observed), torch.ones_like(observed), -torch.ones_like(observed)):
            logits = 3 * torch.randn(3, B, 1, generator=generator(epoch), dtype=torch.float64)
            logits[:, 1] = -50.0
            answer = outputs(method, logits)
            value = loss(method, answer, Batch("", logits, labels, index))
            value.backward()
            assert torch.isfinite(value) and answer.logits.grad is not None
            assert torch.isfinite(answer.logits.grad).all()
            if labels[1] == 1:
                assert answer.logits.grad[0, 1, 0] < -0.4 / B  # a positive missed by far is lifted
            risk = cell_risk(method.cells(logits[0], labels, index), labels)
            assert risk.shape == (B, 1) and torch.isfinite(risk).all()
        if "epoch_logits" in method.needs:
            method.end_epoch(torch.randn(N, 1, generator=generator(10 + epoch), dtype=torch.float64), OBSERVED)
        found = method.pseudo_labels(torch.zeros(B, 1, dtype=torch.float64), observed, index)
        assert found is None or (found.shape == (B, 1) and not found[observed != 0].any())
