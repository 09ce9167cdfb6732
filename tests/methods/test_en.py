import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.methods.an import AssumeNegative
from pipeline.methods.an import Settings as AnSettings
from pipeline.methods.en import ExpectedNegatives
from pipeline.methods.shared.base import build
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import close, double, generator, golden

SETTINGS = [{"decay": 0.8, "first": "assume_negative"}, {"decay": 0.0, "first": "positives_only"}]


def make(n: int, counts: list[int], settings: dict[str, Any] = SETTINGS[0], per_image: float = 1.0) -> Any:
    """A method that expects ``per_image * counts`` positives of each class among n images."""
    density = per_image * sum(counts) / n  # sum(counts) / n labels of an image are observed
    problem = Problem(n, ("",) * len(counts), torch.tensor(counts), density)
    method = build("en", settings, problem).double()
    assert isinstance(method, ExpectedNegatives)
    return method


def step(method: Any, logits: Tensor, observed: Tensor, index: Tensor) -> tuple[float, Tensor]:
    """The loss and its gradient."""
    z = logits.unsqueeze(0).clone().requires_grad_()
    terms = method(Outputs(z), observed, index)
    terms["risk"].backward()
    assert z.grad is not None and list(terms) == ["risk"]
    return terms["risk"].item(), z.grad[0]


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@pytest.mark.parametrize("parts", [[[0, 1, 2, 3, 4, 5]], [[4, 1, 0], [5, 2, 3]], [[5], [3, 0, 2], [1, 4]]])
def test_golden(parts: list[list[int]]) -> None:
    for case in golden("en"):
        observed = torch.tensor(case["observed"], dtype=torch.int8)
        settings = {"decay": case["settings"]["decay"], "first": "assume_negative"}
        method = make(len(observed), case["expected_counts"], settings)
        everything = torch.arange(len(observed))
        for number, now in enumerate(case["steps"], 1):
            expected, logits = now["expected"], double(now["logits"])
            method.begin_epoch(number, case["settings"]["epochs"])
            negatives = torch.tensor(expected["negatives"]).bool()
            if number > 1:
                chosen = torch.tensor(expected["negatives_before_protecting_observed"]).bool()
                assert torch.equal(method.past.negatives, chosen)
            labels = method.pseudo_labels(logits, observed, everything)
            assert torch.equal(labels, -negatives.to(torch.int8) if number > 1 else torch.zeros_like(observed))
            loss, gradient = 0.0, torch.zeros_like(logits)
            for rows in parts:
                index = torch.tensor(rows)
                value, slope = step(method, logits[index], observed[index], index)
                loss += value * len(rows) / len(observed)
                gradient[index] = slope * len(rows) / len(observed)
            close(torch.tensor(loss, dtype=torch.float64), expected["loss"])
            close(gradient, expected["grad_logits"])
            twin = copy.deepcopy(method)
            twin.begin_epoch(number + 1, case["settings"]["epochs"])
            close(twin.past.average, expected["ema_after"])


def test_slow_oracle_with_ties_rows_left_out_and_known_negatives() -> None:
    n, counts, epochs, draw = 11, [3, 0, 6, 20], 5, generator(3)
    observed = torch.zeros(n, 4, dtype=torch.int8)
    observed[torch.arange(n), torch.randint(4, (n,), generator=draw)] = 1
    observed[2, 3] = observed[5, 0] = -1
    method = make(n, counts, {"decay": 0.6, "first": "positives_only"}, per_image=0.7)
    method.begin_training(observed)
    expected = [min(n, math.floor(0.7 * count + 0.5)) for count in counts]  # 2.1, 0, 4.2, 14
    average: dict[int, list[float]] = {}
    for epoch in range(1, epochs + 1):
        method.begin_epoch(epoch, epochs)
        logits = torch.round(2 * torch.randn(n, 4, generator=draw, dtype=torch.float64))  # many ties
        negative = [[False] * 4 for _ in range(n)]
        for c in range(4) if average else []:
            place = {i: average[i][c] if i in average else 2.0 for i in range(n)}
            place |= {i: -1.0 for i in range(n) if observed[i, c] == -1}
            ranked = sorted(range(n), key=lambda i: (place[i], i))  # noqa: B023
            for i in ranked[: n - expected[c]]:
                negative[i][c] = True
        order = torch.randperm(n, generator=draw)[: n - 2].tolist()  # two images miss the epoch
        for rows in (order[:4], order[4:]):
            total, index = 0.0, torch.tensor(rows)
            for i in rows:
                for c in range(4):
                    z, y = float(logits[i, c]), int(observed[i, c])
                    if y == 1:
                        total += softplus(-z)
                    elif y == -1 or negative[i][c]:
                        total += softplus(z)
            value, _ = step(method, logits[index], observed[index], index)
            assert value == pytest.approx(total / (4 * len(rows)), rel=1e-12)
        for i in order:
            p = [1 / (1 + math.exp(-float(z))) for z in logits[i]]
            old = average.get(i)
            average[i] = [0.6 * a + 0.4 * q for a, q in zip(old, p, strict=True)] if old else p


@pytest.mark.parametrize("epoch", [1, 3])
def test_it_is_an_where_no_positive_is_expected_and_spares_unknown_cells_where_all_are(epoch: int) -> None:
    draw, index = generator(0), torch.arange(6)
    observed = torch.zeros(6, 3, dtype=torch.int8)
    observed[index, index % 3] = 1
    none, every = make(6, [0, 0, 0]), make(6, [9, 6, 7], SETTINGS[1])
    an = AssumeNegative(AnSettings(floor=0.0), none.problem)
    for number in range(1, epoch + 1):
        logits = torch.randn(6, 3, generator=draw, dtype=torch.float64)
        for method in (none, every):
            method.begin_epoch(number, epoch)
        values = [step(method, logits, observed, index) for method in (none, every, an)]
    assert values[0][0] == values[2][0] and torch.equal(values[0][1], values[2][1])
    close(values[1][1], torch.where(observed == 1, torch.sigmoid(logits) - 1, 0).div(18).tolist())


def test_state_after_an_epoch_is_enough_for_the_next() -> None:
    """Ends of epochs are taken in by `begin_epoch`, so a resume may fall between them."""
    draw, index = generator(1), torch.arange(8)
    observed = torch.zeros(8, 2, dtype=torch.int8)
    method = make(8, [3, 2])
    for epoch in range(1, 4):
        method.begin_epoch(epoch, 4)
        step(method, torch.randn(8, 2, generator=draw, dtype=torch.float64), observed, index)
    restored = make(8, [3, 2])
    restored.load_state_dict({name: value.clone() for name, value in method.state_dict().items()})
    for each in (method, restored):
        each.begin_epoch(4, 4)
    for name, value in method.state_dict().items():
        assert torch.equal(value, restored.state_dict()[name]), name
    assert method.past.negatives.sum(0).tolist() == [5, 6]


def test_predictions_are_noted_while_training_only() -> None:
    method = make(4, [1, 1])
    method.begin_epoch(1, 2)
    logits, observed, index = (
        torch.ones(4, 2, dtype=torch.float64),
        torch.zeros(4, 2, dtype=torch.int8),
        torch.arange(4),
    )
    method.eval()
    step(method, logits, observed, index)
    assert not method.past.met.any()
    method.train()
    step(method, logits, observed, index[:4])
    assert method.past.met.all()
    close(method.past.latest, torch.sigmoid(logits).tolist())
