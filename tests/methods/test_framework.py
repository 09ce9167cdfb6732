"""The general form reproduces the papers' losses: against goldens, and against plain closed forms on random batches."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.core.errors import ConfigError
from pipeline.methods.shared.base import Method, build
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import close, double, generator, golden

LOG, SOFT_Q = {"kind": "log"}, {"kind": "power", "q": 0.01}
HILL, NEGATIVE_ENTROPY = {"kind": "hill", "lamb": 1.5}, {"kind": "negative_entropy"}
NEVER, ALWAYS, ONE = ({"kind": "constant", "value": value} for value in (0.0, 1.0, 1.0))


def focal(margin: float) -> dict[str, Any]:
    return {"kind": "focal", "gamma": 2.0, "margin": margin}


def above(value: float) -> dict[str, Any]:
    return {"kind": "threshold", "value": value}


def soft(target: float | str) -> dict[str, Any]:
    return {"kind": "soft", "target": target}


AN: dict[str, Any] = {"belief": NEVER, "weight": ONE, "l1": LOG, "l2": LOG, "l3": LOG, "schedule": None}
HILL_GR = {**AN, "l3": HILL}
HILL_MLML = {**HILL_GR, "l1": focal(1.0)}
SPLC = {**AN, "belief": above(0.6), "l1": focal(1.0), "l2": focal(0.0), "l3": focal(0.0)}
EM = {**AN, "belief": ALWAYS, "weight": {"kind": "constant", "value": 0.2}, "l2": NEGATIVE_ENTROPY}
LABELLED = {**AN, "weight": {"kind": "constant", "value": 0.02}, "l3": soft(0.3)}
EM_APL = {
    **EM,
    "belief": above(0.3),
    "weight": {"kind": "threshold", "tau": 0.3, "above": 0.2, "below": 0.02},
    "l3": soft("current"),
}
GR = {
    **AN,
    "belief": {"kind": "logistic", "weight": [0, 10], "bias": [-2, -8]},
    "weight": {"kind": "gaussian", "mu": [0.5, 0.8], "sigma": [2, 0.5]},
    "l2": SOFT_Q,
    "l3": {"kind": "power", "q": 1.5},
    "schedule": "code",
}
SETTINGS: list[dict[str, Any]] = [AN, HILL_GR, SPLC, EM_APL, GR, {**GR, "schedule": "paper_last"}]


def made(settings: dict[str, Any], rows: int = 1, classes: int = 1) -> Method:
    problem = Problem(rows, ("",) * classes, torch.zeros(classes, dtype=torch.int64), None)
    return build("framework", settings, problem).double()


def random_batch(seed: int) -> tuple[Tensor, Tensor]:
    """(6, 7) logits and labels: present, unknown and absent ones."""
    logits = 3 * torch.randn(6, 7, generator=generator(seed), dtype=torch.float64)
    drawn = torch.rand(6, 7, generator=generator(seed + 100))
    return logits, (drawn < 0.3).to(torch.int8) - (drawn > 0.9).to(torch.int8)


def answer(method: Method, logits: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    leaf = logits.clone().unsqueeze(0).requires_grad_()
    risk = method(Outputs(leaf), observed, torch.arange(len(observed)))["risk"]
    risk.backward()
    assert leaf.grad is not None
    return risk.detach(), leaf.grad[0]


def assert_same(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> None:
    for one, two in zip(first, second, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


def by_closed_form(form: Callable[[Tensor, Tensor], Tensor], logits: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over cells and its gradient of a loss that is written in p, for logits where that is exact enough."""
    leaf = logits.clone().requires_grad_()
    risk = form(leaf, observed).mean()
    risk.backward()
    assert leaf.grad is not None
    return risk.detach(), leaf.grad


def by_observed(observed: Tensor, present: Tensor, unknown: Tensor, absent: Tensor) -> Tensor:
    return torch.where(observed == 1, present, torch.where(observed == 0, unknown, absent))


# ---------------------------------------------------------------------------------------------- closed forms
def an_form(z: Tensor, observed: Tensor) -> Tensor:
    p = z.sigmoid()
    return by_observed(observed, -p.log(), -(1 - p).log(), -(1 - p).log())


def hill_form(z: Tensor, observed: Tensor) -> Tensor:
    p = z.sigmoid()
    return by_observed(observed, -p.log(), (1.5 - p) * p**2, (1.5 - p) * p**2)


def splc_form(z: Tensor, observed: Tensor) -> Tensor:
    p, shifted = z.sigmoid(), (z - 1).sigmoid()
    present, absent = (1 - p) ** 2 * -p.log(), p**2 * -(1 - p).log()
    return by_observed(observed, (1 - shifted) ** 2 * -shifted.log(), torch.where(p > 0.6, present, absent), absent)


def em_form(z: Tensor, observed: Tensor) -> Tensor:
    p = z.sigmoid()
    entropy = -p * p.log() - (1 - p) * (1 - p).log()
    return by_observed(observed, -p.log(), -0.2 * entropy, -(1 - p).log())


def labelled_form(z: Tensor, observed: Tensor) -> Tensor:
    p = z.sigmoid()
    charged = -0.3 * p.log() - 0.7 * (1 - p).log()
    return by_observed(observed, -p.log(), 0.02 * charged, -(1 - p).log())


def em_apl_form(z: Tensor, observed: Tensor) -> Tensor:
    """GR's reading of EM+APL, its Eq. 21-23, with a threshold in place of the ranking."""
    p, fixed = z.sigmoid(), z.detach().sigmoid()
    entropy = -p * p.log() - (1 - p) * (1 - p).log()
    charged = -fixed * p.log() - (1 - fixed) * (1 - p).log()
    return by_observed(observed, -p.log(), torch.where(p > 0.3, -0.2 * entropy, 0.02 * charged), -(1 - p).log())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("settings", "form"),
    [
        pytest.param(AN, an_form, id="AN"),
        pytest.param(HILL_GR, hill_form, id="Hill"),
        pytest.param(SPLC, splc_form, id="SPLC"),
        pytest.param(EM, em_form, id="EM"),
        pytest.param(LABELLED, labelled_form, id="EM+APL, labelled cells"),
        pytest.param(EM_APL, em_apl_form, id="EM+APL by threshold"),
    ],
)
def test_assembled_loss_is_the_papers(settings, form, seed):
    logits, observed = random_batch(seed)
    assert_same(answer(made(settings, 6, 7), logits, observed), by_closed_form(form, logits, observed))


@pytest.mark.parametrize("epoch", [1, 2, 3, 4, 5])
def test_assembled_gr_follows_its_schedule(epoch):
    logits, observed = random_batch(epoch)
    belief_way, weight_way = (epoch - 1) / 5, epoch / 5

    def form(z: Tensor, observed: Tensor) -> Tensor:
        p, fixed = z.sigmoid(), z.detach().sigmoid()
        k = (10 * belief_way * fixed - 2 - 6 * belief_way).sigmoid()
        v = (-((fixed - 0.5 - 0.3 * weight_way) ** 2) / (2 * (2 - 1.5 * weight_way) ** 2)).exp()
        present, absent = (1 - p**0.01) / 0.01, (1 - (1 - p) ** 1.5) / 1.5
        return by_observed(observed, -p.log(), v * (k * present + (1 - k) * absent), absent)

    method = made(GR, 6, 7)
    method.begin_epoch(epoch, 5)
    assert_same(answer(method, logits, observed), by_closed_form(form, logits, observed))


@pytest.mark.parametrize(
    ("schedule", "belief_way", "weight_way"),
    [("code", 0.5, 0.75), ("paper_first", 0.5, 0.5), ("paper_last", 0.75, 0.75)],
)
def test_schedules_differ_by_where_an_epoch_stands(schedule, belief_way, weight_way):
    method = made({**GR, "schedule": schedule})
    method.begin_epoch(3, 4)
    cells = method.cells(double([[0.0]]), torch.zeros(1, 1, dtype=torch.int8), torch.tensor([0]))
    close(cells.belief, [[1 / (1 + math.exp(2 + 6 * belief_way - 5 * belief_way))]])
    close(cells.weight, [[math.exp(-((0.3 * weight_way) ** 2) / (2 * (2 - 1.5 * weight_way) ** 2))]])


def test_first_values_hold_before_training():
    cells = made(GR).cells(double([[0.4]]), torch.zeros(1, 1, dtype=torch.int8), torch.tensor([0]))
    close(cells.belief, [[1 / (1 + math.exp(2))]])
    close(cells.weight, [[math.exp(-((1 / (1 + math.exp(-0.4)) - 0.5) ** 2) / 8)]])


# ---------------------------------------------------------------------------------------------- the methods' own files
FOCAL = {"margin": 1.0, "gamma": 2.0}
RIVALS = [
    ("an", {"floor": 0.0}, AN),
    ("hill", {"lamb": 1.5, "positive": {"kind": "log", "floor": 0.0}}, HILL_GR),
    ("hill", {"lamb": 1.5, "positive": {"kind": "focal_margin", **FOCAL}}, HILL_MLML),
    (
        "splc",
        {**FOCAL, "threshold": 0.6, "warmup": 0.0, "negative": {"kind": "focal"}, "corrected_margin": False},
        SPLC,
    ),
    (
        "splc",
        {**FOCAL, "threshold": 0.6, "warmup": 0.0, "negative": HILL, "corrected_margin": True},
        {**SPLC, "l2": focal(1.0), "l3": HILL},
    ),
    ("em", {"alpha": 0.2, "floor": 0.0}, EM),
    ("entmin", {"weight": 0.3}, {**EM, "weight": {"kind": "constant", "value": -0.3}}),
    (
        "gr",
        {
            "belief": GR["belief"],
            "weight": GR["weight"],
            "q1": 0.0,
            "q2": 0.01,
            "q3": 1.5,
            "schedule": "code",
            "hold": 0.0,
            "floor": 0.0,
        },
        GR,
    ),
]


@pytest.mark.parametrize("epoch", [1, 3, 4])
@pytest.mark.parametrize(
    ("name", "own", "assembled"), RIVALS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_assembled_loss_is_the_one_in_the_methods_file(name, own, assembled, epoch):
    logits, observed = random_batch(20 + epoch)
    rival = build(name, own, Problem(6, ("",) * 7, torch.ones(7, dtype=torch.int64), None)).double()
    method = made(assembled, 6, 7)
    for each in (rival, method):
        each.begin_epoch(epoch, 4)
    assert_same(answer(method, logits, observed), answer(rival, logits, observed))


def test_assembled_cells_are_those_of_em_apl_where_labelled_and_where_not():
    logits, observed = random_batch(30)
    apl = {
        "alpha": 0.2,
        "beta": 0.02,
        "proportion": 0.9,
        "warmup": 0.5,
        "target": "soft",
        "positive": 0.0,
        "floor": 0.0,
    }
    rival = build("em_apl", apl, Problem(6, ("",) * 7, torch.ones(7, dtype=torch.int64), None)).double()
    assert_same(answer(made(EM, 6, 7), logits, observed), answer(rival, logits, observed))
    rival.get_buffer("since").fill_(1)
    rival.get_buffer("soft").fill_(0.3)
    observed = observed.clamp(min=0)  # a cell observed absent is no business of APL
    assert_same(answer(made(LABELLED, 6, 7), logits, observed), answer(rival, logits, observed))


# ---------------------------------------------------------------------------------------------- goldens
def check(settings: dict[str, Any], case: dict[str, Any]) -> None:
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    risk, gradient = answer(made(settings, *observed.shape), double(case["logits"]), observed)
    close(risk, case["expected"]["loss"])
    close(gradient, case["expected"]["grad_logits"])


@pytest.mark.parametrize(
    ("name", "settings"),
    [("an", AN), ("hill_gr", HILL_GR), ("hill_mlml", HILL_MLML)],
    ids=["an", "hill_gr", "hill_mlml"],
)
def test_golden_numbers_without_settings(name, settings):
    for case in golden(name):
        check(settings, case)


@pytest.mark.parametrize("case", golden("splc"), ids=lambda case: case["name"])
def test_golden_splc(case):
    """All readings: before its change epoch SPLC corrects nothing."""
    given = case["settings"]
    late = given["epoch"] >= given["change_epoch"]
    check(
        {
            **SPLC,
            "belief": above(given["tau"]) if late else NEVER,
            "l2": focal(given["margin"] if given["corrected_margin"] else 0.0),
            "l3": HILL if given["negative"] == "hill" else focal(0.0),
        },
        case,
    )


@pytest.mark.parametrize("case", golden("em"), ids=lambda case: case["name"])
def test_golden_em(case):
    check({**EM, "weight": {"kind": "constant", "value": case["settings"]["alpha"]}}, case)


@pytest.mark.parametrize("case", golden("gr_loss"), ids=lambda case: case["name"])
def test_golden_gr(case):
    given = case["settings"]
    pairs = {key: [given[key]] * 2 for key in ("w", "b", "mu", "sigma")}
    check(
        {
            "belief": {"kind": "logistic", "weight": pairs["w"], "bias": pairs["b"]},
            "weight": {"kind": "gaussian", "mu": pairs["mu"], "sigma": pairs["sigma"]},
            **{f"l{i}": {"kind": "power", "q": given[f"q{i}"]} for i in (1, 2, 3)},
            "schedule": "code",
        },
        case,
    )


# ---------------------------------------------------------------------------------------------- parts
FAR = [-745.0, -120.0, -50.0, 50.0, 120.0, 745.0]


@pytest.mark.parametrize(
    "loss", [LOG, focal(1.0), SOFT_Q, HILL, NEGATIVE_ENTROPY, soft(0.3), soft("current")], ids=lambda loss: loss["kind"]
)
@pytest.mark.parametrize("place", ["l1", "l2", "l3"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_every_loss_bears_far_logits_in_every_place(loss, place, dtype):
    settings = {**AN, place: loss, "belief": {"kind": "constant", "value": 0.5}}
    for label in (1, 0, -1):
        observed = torch.full((1, len(FAR)), label, dtype=torch.int8)
        risk, gradient = answer(made(settings, 1, len(FAR)), torch.tensor([FAR], dtype=dtype), observed)
        assert torch.isfinite(risk) and torch.isfinite(gradient).all()


def test_a_loss_of_absence_is_that_of_presence_at_minus_the_logit():
    z, index = torch.linspace(-4, 4, 9, dtype=torch.float64).unsqueeze(0), torch.tensor([0])
    observed = torch.zeros(1, 9, dtype=torch.int8)
    for loss in (LOG, focal(0.7), SOFT_Q, HILL, NEGATIVE_ENTROPY):
        method = made({**AN, "l2": loss, "l3": loss})
        close(method.cells(z, observed, index).l3, method.cells(-z, observed, index).l2.tolist())


def test_soft_target_speaks_of_presence_on_both_sides():
    cells = made({**AN, "l2": soft(0.3), "l3": soft(0.3)}).cells(double([[2.0]]), torch.zeros(1, 1), torch.tensor([0]))
    expected = 0.3 * math.log1p(math.exp(-2)) + 0.7 * math.log1p(math.exp(2))
    close(cells.l2, [[expected]])
    close(cells.l3, [[expected]])


def test_thresholds_are_strict_and_carry_no_gradient():
    settings = {**AN, "belief": above(0.5), "weight": {"kind": "threshold", "tau": 0.5, "above": 3.0, "below": -2.0}}
    z = double([[0.0, 1e-9, -1.0]]).requires_grad_()
    cells = made(settings).cells(z, torch.zeros(1, 3), torch.tensor([0]))
    assert cells.belief.tolist() == [[0, 1, 0]] and cells.weight.tolist() == [[-2, 3, -2]]
    assert not cells.belief.requires_grad and not cells.weight.requires_grad


def test_a_threshold_of_belief_labels_the_unknown_cells_above_it():
    z = double([[0.5, 0.4, 0.5, -2.0, 3.0, 0.5]])
    observed = torch.tensor([[0, 0, 1, 0, 0, -1]], dtype=torch.int8)
    labels = made({**AN, "belief": above(0.6)}, 1, 6).pseudo_labels(z, observed, torch.tensor([0]))  # logit 0.405...
    assert labels is not None and labels.dtype == torch.int8 and labels.tolist() == [[1, 0, 0, 0, 1, 0]]
    edge = made({**AN, "belief": above(0.5)}).pseudo_labels(double([[0.0]]), observed[:, :1], torch.tensor([0]))
    assert edge is not None and edge.tolist() == [[0]]


@pytest.mark.parametrize("belief", [NEVER, ALWAYS, GR["belief"]], ids=["0", "1", "logistic"])
def test_a_belief_without_threshold_labels_nothing(belief):
    method = made({**AN, "belief": belief, "schedule": "code" if belief is GR["belief"] else None})
    assert method.pseudo_labels(double([[50.0]]), torch.zeros(1, 1, dtype=torch.int8), torch.tensor([0])) is None


def test_labels_are_those_of_splc_past_its_warmup():
    logits, observed = random_batch(40)
    splc = {**FOCAL, "threshold": 0.6, "warmup": 0.0, "negative": {"kind": "focal"}, "corrected_margin": False}
    rival = build("splc", splc, Problem(6, ("",) * 7, torch.ones(7, dtype=torch.int64), None)).double()
    rival.begin_epoch(1, 4)
    found, expected = (each.pseudo_labels(logits, observed, torch.arange(6)) for each in (made(SPLC, 6, 7), rival))
    assert found is not None and expected is not None and expected.any() and torch.equal(found, expected)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"belief": {"kind": "gaussian", "mu": [0, 1], "sigma": [1, 1]}}, "belief"),
        ({"belief": {"kind": "constant", "value": 1.5}}, "belief.constant.value"),
        ({"weight": {"kind": "threshold", "tau": 0.5, "above": 1.0}}, "weight.threshold.below"),
        ({"weight": {"kind": "gaussian", "mu": [0, 1], "sigma": [1, 0]}}, "weight.gaussian.sigma"),
        ({"l1": {"kind": "focal", "gamma": 2.0}}, "l1.focal.margin"),
        ({"l2": {"kind": "hill", "lamb": 1.5, "q": 1.0}}, "l2.hill.q"),
        ({"l3": {"kind": "soft", "target": "stored"}}, "l3.soft.target"),
        ({"l3": {"q": 1.0}}, "l3"),
    ],
)
def test_parts_that_mean_nothing_are_refused_by_key(change, key):
    with pytest.raises(ConfigError, match=rf"framework\.yaml: {key}"):
        made({**AN, **change})
