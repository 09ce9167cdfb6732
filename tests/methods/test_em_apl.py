from fractions import Fraction
from typing import Any

import pytest
import torch

from pipeline.core.errors import ConfigError
from pipeline.methods.shared.base import Method, build
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import close, double, golden

DEFAULT = {
    "alpha": 0.2,
    "beta": 0.02,
    "proportion": 0.9,
    "warmup": 0.5,
    "target": "soft",
    "positive": 0.0,
    "floor": 0.0,
}
SETTINGS = [
    DEFAULT,
    DEFAULT | {"alpha": 0.01, "beta": 0.4, "proportion": 1.0, "warmup": 0.0},
    DEFAULT | {"target": "hard", "warmup": 0.25},
    DEFAULT | {"proportion": 0.6, "positive": 0.4, "warmup": 0.25},
    DEFAULT | {"proportion": 0.6, "positive": 0.4, "target": "hard", "warmup": 0.25},
]


def make(observed: torch.Tensor, **settings: Any) -> Method:
    given = {**DEFAULT, **settings}
    rows, classes = observed.shape
    return build("em_apl", given, Problem(rows, ("",) * classes, (observed == 1).sum(0), None)).double()


def run(method: Method, epochs: int, logits: torch.Tensor, observed: torch.Tensor) -> list[int]:
    """Go through a stage with the same predictions every time; the number of labels after each epoch."""
    counts = []
    for epoch in range(1, epochs + 1):
        method.begin_epoch(epoch, epochs)
        method.end_epoch(logits, observed)
        counts.append(int((method.get_buffer("since") > 0).sum()))
    return counts


def nothing_known(rows: int, classes: int = 1) -> torch.Tensor:
    return torch.zeros(rows, classes, dtype=torch.int8)


@pytest.mark.parametrize("case", golden("em_apl_loss"), ids=lambda case: case["name"])
def test_golden_loss(case):
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    method = make(observed, **case["settings"])
    method.get_buffer("since").copy_(torch.tensor(case["selected"]))
    method.get_buffer("soft").copy_(double(case["soft"]))
    logits = double([case["logits"]]).requires_grad_()
    risk = method(Outputs(logits), observed, torch.arange(len(observed)))["risk"]
    risk.backward()
    close(risk, case["expected"]["loss"])
    assert logits.grad is not None
    close(logits.grad[0], case["expected"]["grad_logits"])


@pytest.mark.parametrize("case", golden("em_apl_selection"), ids=lambda case: case["name"])
def test_golden_selection(case):
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    epochs, settings = case["settings"]["epochs"], case["settings"]
    method = make(observed, proportion=settings["proportion"], warmup=settings["warmup_epoch"] / epochs)
    for given in case["rounds"]:
        method.begin_epoch(given["epoch"], epochs)
        logits = torch.zeros(observed.shape) if given["logits"] is None else double(given["logits"])
        method.end_epoch(logits, observed)
        since, expected = method.get_buffer("since"), given["expected"]
        new = [(since[:, c] == given["epoch"]).nonzero().flatten().tolist() for c in range(observed.shape[1])]
        assert new == expected["new"]
        assert int((since > 0).sum()) == expected["total_selected"]
        if given["logits"] is not None:
            assert torch.equal((since > 0).int(), torch.tensor(expected["selected"], dtype=torch.int32))
            close(method.get_buffer("soft"), expected["soft"])


def test_shares_are_computed_from_the_decimal_in_params():
    """0.7 of 90 unknown in 7 rounds is 9 a round; the binary 0.7 times 90, in floats, is just under 63."""
    assert int(0.7 * 90 / 7) == 8
    observed = nothing_known(90)
    counts = run(make(observed, proportion=0.7, warmup=0.3), 10, torch.randn(90, 1), observed)
    assert counts == [0, 0, 9, 18, 27, 36, 45, 54, 63, 72]


@pytest.mark.parametrize(
    ("warmup", "epochs", "first"), [(0.5, 10, 5), (0.4, 10, 4), (0.3, 10, 3), (0.5, 5, 3), (0.0, 4, 1), (0.1, 3, 1)]
)
def test_warmup_is_a_rounded_share_of_the_epochs_and_at_least_one(warmup, epochs, first):
    observed = nothing_known(100)
    counts = run(make(observed, warmup=warmup), epochs, torch.randn(100, 1), observed)
    assert [count > 0 for count in counts] == [epoch >= first for epoch in range(1, epochs + 1)]


def test_rounds_are_counted_from_the_first_epoch_even_without_warmup():
    observed = nothing_known(100)
    assert run(make(observed, warmup=0.0), 4, torch.randn(100, 1), observed) == [30, 60, 90, 100]


@pytest.mark.parametrize(("warmup", "epochs"), [(1.0, 10), (0.5, 1)])
def test_no_round_is_left_when_the_warmup_fills_the_stage(warmup, epochs):
    observed = nothing_known(50)
    assert run(make(observed, warmup=warmup), epochs, torch.randn(50, 1), observed) == [0] * epochs


def test_ties_fall_in_row_order_even_where_probabilities_saturate():
    observed = nothing_known(6)
    method = make(observed, proportion=0.5, warmup=0.5)
    method.begin_epoch(2, 4)
    method.end_epoch(double([[-800], [-800], [-900], [-800], [-800], [-800]]), observed)  # p = 0 in all of them
    assert method.get_buffer("since").flatten().tolist() == [0, 0, 2, 0, 0, 0]
    method.begin_epoch(3, 4)
    method.end_epoch(double([[-800]] * 6), observed)
    assert method.get_buffer("since").flatten().tolist() == [3, 0, 2, 0, 0, 0]


def test_probability_zero_counts_as_labelled():
    observed = nothing_known(2)
    method = make(observed, proportion=1.0, warmup=0.5, beta=0.5)
    method.begin_epoch(1, 2)
    method.end_epoch(double([[-800], [-800]]), observed)
    assert method.get_buffer("soft").tolist() == [[0], [0]]
    labels = method.pseudo_labels(torch.zeros(2, 1), observed, torch.tensor([0, 1]))
    assert labels is not None and labels.tolist() == [[-1], [-1]]
    logits = torch.zeros(1, 2, 1, dtype=torch.float64, requires_grad=True)
    method(Outputs(logits), observed, torch.tensor([0, 1]))["risk"].backward()
    close(logits.grad, [[[0.5 * 0.5 / 2]] * 2])  # beta (p - s) over two cells; an unlabelled cell has none at 0


def test_known_cells_are_never_labelled_and_do_not_count():
    observed = torch.tensor([[1], [-1], [0], [0], [0], [0]], dtype=torch.int8)
    method = make(observed, proportion=1.0, warmup=0.5)
    counts = run(method, 4, double([[-9], [-8], [1], [2], [3], [4]]), observed)
    assert counts == [0, 2, 4, 4]  # 4 unknown in 2 rounds, then the pool is empty
    assert method.get_buffer("since").flatten().tolist() == [0, 0, 2, 2, 3, 3]
    labels = method.pseudo_labels(torch.zeros(6, 1), observed, torch.arange(6))
    assert labels is not None and labels.flatten().tolist() == [0, 0, -1, -1, -1, -1]


def test_target_stays_as_it_was_when_labelled_and_gradient_vanishes_there():
    observed = nothing_known(2)
    method = make(observed, proportion=1.0, warmup=0.5)
    method.begin_epoch(1, 2)
    then = double([[-1.3], [0.4]])
    method.end_epoch(then, observed)
    method.begin_epoch(2, 2)
    method.end_epoch(then + 5, observed)
    close(method.get_buffer("soft"), torch.sigmoid(then).tolist())
    logits = then.clone().unsqueeze(0).requires_grad_()
    method(Outputs(logits), observed, torch.tensor([0, 1]))["risk"].backward()
    torch.testing.assert_close(logits.grad, torch.zeros_like(logits), rtol=0, atol=1e-16)


def test_labels_are_read_by_row_of_the_training_split():
    observed = nothing_known(3)
    method = make(observed, proportion=0.5, warmup=0.5)
    method.begin_epoch(1, 2)
    method.end_epoch(double([[2], [-3], [1]]), observed)
    cells = method.cells(torch.zeros(3, 1), observed, torch.tensor([2, 1, 0]))
    torch.testing.assert_close(cells.weight.flatten(), torch.tensor([-0.2, 0.02, -0.2]))


def slow_rounds(logits: list[torch.Tensor], unknown: torch.Tensor, first: int, low: str, high: str) -> torch.Tensor:
    """By loops over classes and rounds: epoch of each label, its sign for present (+) or absent (-)."""
    rows, classes = unknown.shape
    labels = torch.zeros(rows, classes, dtype=torch.int64)
    rounds = len(logits) - first
    for c in range(classes):
        free = [i for i in range(rows) if unknown[i, c]]
        some, many = (int(Fraction(share) * len(free) / rounds) for share in (low, high))
        for epoch in range(first, len(logits) + 1):
            by_logit = sorted(free, key=lambda i: (float(logits[epoch - 1][i, c]), i))
            for i in by_logit[:some]:
                labels[i, c] = -epoch
            left = sorted(by_logit[some:], key=lambda i: (-float(logits[epoch - 1][i, c]), i))
            for i in left[:many]:
                labels[i, c] = epoch
            free = [i for i in free if labels[i, c] == 0]
    return labels


@pytest.mark.parametrize(("low", "high"), [("0.9", "0.1"), ("0.5", "0.5"), ("0", "0.3"), ("0.1", "0")])
@pytest.mark.parametrize("target", ["soft", "hard"])
def test_labels_of_both_signs_are_those_of_a_slow_loop(low, high, target):
    generator = torch.Generator().manual_seed(7)
    logits = [torch.randint(-6, 7, (41, 3), generator=generator) / double(2) for _ in range(6)]  # many ties
    observed = torch.randint(0, 9, (41, 3), generator=generator)
    observed = torch.where(observed > 1, 0, 1 - 2 * observed).to(torch.int8)
    expected = slow_rounds(logits, observed == 0, 2, low, high)
    method = make(observed, warmup=0.3, target=target, proportion=float(low), positive=float(high))
    for epoch, values in enumerate(logits, 1):
        method.begin_epoch(epoch, 6)
        method.end_epoch(values, observed)
        so_far = expected * (expected.abs() <= epoch)
        assert torch.equal(method.get_buffer("since").long(), so_far.abs())  # each cell once, and kept
        labels = method.pseudo_labels(values, observed, torch.arange(41))
        assert labels is not None and labels.dtype == torch.int8 and torch.equal(labels.long(), so_far.sign())
    at = [torch.sigmoid(values) for values in logits]
    for (i, c), label in zip(expected.nonzero().tolist(), expected[expected != 0].tolist(), strict=True):
        hard = float(label > 0)
        close(method.get_buffer("soft")[i, c], float(at[abs(label) - 1][i, c]) if target == "soft" else hard)


def test_a_hard_label_is_charged_as_a_label():
    """beta times the log loss of 0 or 1, mean over the cells; nothing is left of p."""
    observed = nothing_known(4)
    method = make(observed, proportion=0.5, positive=0.5, warmup=0.5, beta=0.3, target="hard")
    method.begin_epoch(1, 2)
    method.end_epoch(double([[-2], [3], [1], [-1]]), observed)
    logits = double([[[0.7], [-0.4], [2.5], [-3.0]]]).requires_grad_()
    risk = method(Outputs(logits), observed, torch.arange(4))["risk"]
    risk.backward()
    targets = double([[[0], [1], [1], [0]]])
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits.detach(), targets)
    close(risk, 0.3 * float(loss))
    close(logits.grad, (0.3 * (torch.sigmoid(logits.detach()) - targets) / 4).tolist())


def test_the_settings_of_a_label_change_nothing_before_there_is_one():
    observed = nothing_known(3)
    logits = double([[[0.7], [-0.4], [2.5]]])
    plain = make(observed)(Outputs(logits), observed, torch.arange(3))["risk"]
    hard = make(observed, target="hard", positive=0.1)(Outputs(logits), observed, torch.arange(3))["risk"]
    assert torch.equal(plain, hard)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"proportion": 0.9, "positive": 0.2}, "positive: 0.2 and proportion: 0.9 are more than all unknown cells"),
        ({"positive": -0.1}, "positive: .*greater than or equal to 0"),
        ({"target": "mean"}, "target: .*'soft' or 'hard'"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        make(nothing_known(2), **settings)


@pytest.mark.parametrize(
    ("logits", "message"), [(torch.zeros(4, 1), r"\(4, 1\)"), (torch.full((3, 1), torch.nan), "not finite")]
)
def test_impossible_predictions_are_refused(logits, message):
    observed = nothing_known(3)
    method = make(observed)
    method.begin_epoch(1, 2)
    with pytest.raises(ValueError, match=message):
        method.end_epoch(logits, observed)
