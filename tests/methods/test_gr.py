import math
from typing import Any

import pytest
import torch

from pipeline.core.errors import ConfigError
from pipeline.methods.shared.base import Method, build
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import close, double, golden

OFF_K, OFF_V = {"kind": "constant", "value": 0.0}, {"kind": "constant", "value": 1.0}
K = {"kind": "logistic", "weight": [0, 10], "bias": [-2, -8]}
V = {"kind": "gaussian", "mu": [0.5, 0.8], "sigma": [2, 0.5]}
TRAINABLE = {"kind": "trainable", "weight": 0.0, "bias": -2.0, "factor": 1000.0}
PUBLISHED = {"belief": K, "weight": V, "q1": 0.0, "q2": 0.01, "q3": 1.0, "schedule": "code", "hold": 0.0, "floor": 0.0}
SETTINGS: list[dict[str, Any]] = [
    PUBLISHED,
    {**PUBLISHED, "q1": 0.01, "q3": 1.5, "schedule": "paper_first", "hold": 0.5},
    {**PUBLISHED, "belief": {**K, "bias": ["statistics", -8]}, "schedule": "paper_last"},
    {**PUBLISHED, "belief": OFF_K, "weight": OFF_V, "schedule": None},
    {**PUBLISHED, "belief": TRAINABLE, "weight": OFF_V, "schedule": None},
]


def made(rows: int = 1, classes: int = 5, expected: float | None = None, **settings: Any) -> Method:
    """A method in double precision, for images with one observed label each."""
    counts = torch.tensor([rows] + [0] * (classes - 1))
    problem = Problem(rows, ("",) * classes, counts, expected)
    return build("gr", {**PUBLISHED, **settings}, problem).double()


def unknown(rows: int, classes: int) -> torch.Tensor:
    return torch.zeros(rows, classes, dtype=torch.int8)


def belief_at(method: Method, p: float) -> float:
    logits = double([[math.log(p / (1 - p))]])
    return method.cells(logits, unknown(1, 1), torch.tensor([0])).belief.flatten()[0].item()


def weight_at(method: Method, p: float) -> float:
    logits = double([[math.log(p / (1 - p))]])
    return method.cells(logits, unknown(1, 1), torch.tensor([0])).weight.flatten()[0].item()


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def power(p: float, q: float) -> float:
    return (1 - p**q) / q if q else -math.log(p)


# ---------------------------------------------------------------------------------------------- the loss
@pytest.mark.parametrize("case", golden("gr_loss"), ids=lambda case: case["name"])
def test_golden_loss(case):
    given, expected = case["settings"], case["expected"]
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    method = made(
        *observed.shape,
        belief={"kind": "logistic", "weight": [given["w"]] * 2, "bias": [given["b"]] * 2},
        weight={"kind": "gaussian", "mu": [given["mu"]] * 2, "sigma": [given["sigma"]] * 2},
        **{key: given[key] for key in ("q1", "q2", "q3")},
    )
    method.begin_epoch(1, 3)
    logits = double([case["logits"]]).requires_grad_()
    risk = method(Outputs(logits), observed, torch.arange(len(observed)))["risk"]
    risk.backward()
    close(risk, expected["loss"])
    assert logits.grad is not None
    close(logits.grad[0], expected["grad_logits"])
    cells = method.cells(logits[0], observed, torch.arange(len(observed)))
    close(torch.where(observed == 1, cells.l1, 0).mean(), expected["positive_term"])
    charged = cells.weight * (cells.belief * cells.l2 + (1 - cells.belief) * cells.l3)
    close(torch.where(observed == 1, 0, charged).mean(), expected["unknown_term"])


@pytest.mark.parametrize(
    ("k_on", "v_on", "l_on"), [(k, v, robust) for k in (0, 1) for v in (0, 1) for robust in (0, 1)]
)
def test_every_row_of_the_ablation_is_a_matter_of_settings(k_on, v_on, l_on):
    """Table 3, by a loop over cells; a cross is k = 0, v = 1 or all q = 0.01."""
    q1, q2, q3 = (0.0, 0.2, 1.5) if l_on else (0.01, 0.01, 0.01)
    parts = {"belief": K if k_on else OFF_K, "weight": V if v_on else OFF_V, "q1": q1, "q2": q2, "q3": q3}
    method = made(2, 3, **parts, schedule="code" if k_on or v_on else None)
    method.begin_epoch(3, 4)  # w, b half-way and mu, sigma three quarters of the way
    w, b, mu, sigma = 5.0, -5.0, 0.725, 0.875
    z, observed = [[0.4, -2.0, 3.1], [1.0, -0.3, -5.0]], [[1, 0, 0], [0, 0, -1]]
    total = 0.0
    for row, labels in zip(z, observed, strict=True):
        for value, label in zip(row, labels, strict=True):
            p = sigmoid(value)
            k = sigmoid(w * p + b) if k_on else 0.0
            v = math.exp(-((p - mu) ** 2) / (2 * sigma**2)) if v_on else 1.0
            if label == 1:
                total += power(p, q1)
            elif label == 0:
                total += v * (k * power(p, q2) + (1 - k) * power(1 - p, q3))
            else:
                total += power(1 - p, q3)
    risk = method(Outputs(double([z])), torch.tensor(observed, dtype=torch.int8), torch.arange(2))["risk"]
    assert risk.item() == pytest.approx(total / 6, rel=1e-12)


def test_nothing_on_is_assume_negative():
    """With q = 0 exactly, and nearly so with the 0.01 of Table 3's crosses."""
    logits = double([[1.3, -0.2, 4.0, -7.0, 0.0]])
    observed = torch.tensor([[1, 0, 0, 0, -1]], dtype=torch.int8)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, (observed == 1).double()).item()
    for q, tolerance in ((0.0, 1e-14), (1e-9, 1e-7), (0.01, 0.02)):
        method = made(belief=OFF_K, weight=OFF_V, q1=q, q2=q, q3=q, schedule=None)
        method.begin_epoch(1, 2)
        risk = method(Outputs(logits.unsqueeze(0)), observed, torch.tensor([0]))["risk"]
        assert risk.item() == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize(("q2", "q3"), [(0.01, 1.0), (0.01, 1.5), (0.5, 0.2)])
def test_gradient_of_an_unknown_cell_is_equation_29_times_the_weight(q2, q3):
    z = [-120.0, -40.0, -3.0, -0.2, 0.0, 1.7, 6.0, 40.0, 120.0]
    method = made(1, len(z), q2=q2, q3=q3)
    method.begin_epoch(2, 4)
    logits = double([[z]]).requires_grad_()
    method(Outputs(logits), unknown(1, len(z)), torch.tensor([0]))["risk"].backward()
    expected = []
    for value in z:
        p, absent = math.exp(min(value, 0)) / (1 + math.exp(-abs(value))), 1 / (1 + math.exp(value))
        k, v = sigmoid(2.5 * p - 3.5), math.exp(-((p - 0.65) ** 2) / (2 * 1.25**2))
        expected.append(v * ((1 - k) * absent**q3 * p - k * p**q2 * absent) / len(z))
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad[0, 0], double(expected), rtol=1e-11, atol=1e-16)


def test_observed_positive_counts_in_full_wherever_the_weight_is_low():
    narrow = {"kind": "gaussian", "mu": [0.0, 0.0], "sigma": [0.01, 0.01]}
    method = made(1, 1, weight=narrow)
    method.begin_epoch(1, 2)
    risk = method(Outputs(double([[[2.0]]])), torch.ones(1, 1, dtype=torch.int8), torch.tensor([0]))["risk"]
    assert risk.item() == pytest.approx(math.log1p(math.exp(-2)), rel=1e-14)


# ---------------------------------------------------------------------------------------------- schedules
PRESETS = {
    "voc": {"w": [0, 2], "b": [-2, -2], "mu": [0.5, 0.8], "sigma": [2, 0.5]},
    "coco_nus_cub": {"w": [0, 10], "b": [-2, -8], "mu": [0.5, 0.8], "sigma": [2, 0.5]},
}
SCHEDULES = golden("gr_schedule")


def scheduled(case: dict[str, Any], schedule: str) -> Method:
    preset, epochs = PRESETS[case["preset"]], case["epochs"]
    return made(
        1,
        1,
        belief={"kind": "logistic", "weight": preset["w"], "bias": preset["b"]},
        weight={"kind": "gaussian", "mu": preset["mu"], "sigma": preset["sigma"]},
        schedule=schedule,
        hold=case.get("linear_init", 0) / epochs,
    )


def check_values(method: Method, expected: dict[str, float]) -> None:
    """w and b, mu and sigma, seen through belief and weight at two predictions each."""
    for p in (0.25, 0.9):
        assert belief_at(method, p) == pytest.approx(sigmoid(expected["w"] * p + expected["b"]), rel=1e-12)
        exponent = -((p - expected["mu"]) ** 2) / (2 * expected["sigma"] ** 2)
        assert weight_at(method, p) == pytest.approx(math.exp(exponent), rel=1e-12)


@pytest.mark.parametrize("case", SCHEDULES, ids=lambda case: case["name"])
def test_golden_schedule(case):
    if case["schedule"] == "code":
        method = scheduled(case, "code")
        for expected in case["expected"]:
            method.begin_epoch(expected["epoch"], case["epochs"])
            check_values(method, expected)
    else:
        first, last = scheduled(case, "paper_first"), scheduled(case, "paper_last")
        for expected in case["expected"]:
            if expected["t"] < case["epochs"]:
                first.begin_epoch(expected["t"] + 1, case["epochs"])
                check_values(first, expected)
            if expected["t"] > 0:
                last.begin_epoch(expected["t"], case["epochs"])
                check_values(last, expected)


@pytest.mark.parametrize("schedule", ["code", "paper_first", "paper_last"])
def test_first_values_hold_before_training(schedule):
    check_values(scheduled(SCHEDULES[0], schedule), {"w": 0, "b": -2, "mu": 0.5, "sigma": 2})


def test_hold_leaves_an_epoch_to_the_schedule():
    method = made(1, 1, hold=0.99)
    method.begin_epoch(2, 2)
    check_values(method, {"w": 0, "b": -2, "mu": 0.8, "sigma": 0.5})


# ---------------------------------------------------------------------------------------------- first b by statistics
@pytest.mark.parametrize(
    ("positives", "classes", "k0", "b0"),
    [
        (1.46, 20, 0.02421052631578947, -3.6964593496367057),
        (2.94, 80, 0.024556962025316455, -3.681896366122775),
        (1.89, 81, 0.011125, -4.487373105289256),
        (31.4, 312, 0.09774919614147909, -2.2224875592561846),
    ],
)
def test_first_b_by_remark_1(positives, classes, k0, b0):
    """The figures are those of the goldens' settings, from the label counts of GR's Table 5."""
    assert sigmoid(b0) == pytest.approx(k0, rel=1e-12)
    method = made(4, classes, positives, belief={**K, "bias": ["statistics", b0 - 2]})
    method.begin_epoch(1, 2)
    assert belief_at(method, 0.3) == pytest.approx(k0, rel=1e-9)
    method.begin_epoch(2, 2)
    assert belief_at(method, 0.5) == pytest.approx(sigmoid(5 * 0.5 + b0 - 1), rel=1e-9)


def test_first_b_is_the_share_of_present_ones_among_what_is_unknown():
    """Ten images, five classes: 16 of 25 positives and 8 of 25 absences are known, so 9 of 26 unknown cells present."""
    counts = torch.tensor([5, 3, 0, 4, 4])
    belief = {**K, "bias": ["statistics", -8]}
    known = Problem(10, ("",) * 5, counts, 2.5, observed_absences=8)
    method = build("gr", {**PUBLISHED, "belief": belief}, known).double()
    method.begin_epoch(1, 2)
    assert belief_at(method, 0.3) == pytest.approx(9 / 26, rel=1e-12)
    with pytest.raises(ConfigError, match="between the 1.6 observed labels per image and the 2.5 that may be present"):
        build("gr", {**PUBLISHED, "belief": belief}, Problem(10, ("",) * 5, counts, 2.5, observed_absences=25))


@pytest.mark.parametrize("positives", [0.0, 1.0, 5.0, 7.0, math.inf, math.nan])
def test_statistics_that_cannot_be_are_refused_by_key(positives):
    made(expected=positives)
    with pytest.raises(ConfigError, match=r"methods\.gr\.belief\.bias.*expected_positives"):
        made(expected=positives, belief={**K, "bias": ["statistics", -8]})


def test_only_statistics_ask_for_the_label_density():
    made(expected=None)
    with pytest.raises(ConfigError, match=r"methods\.gr\.belief\.bias: `statistics` needs `expected_positives`"):
        made(expected=None, belief={**K, "bias": ["statistics", -8]})


# ---------------------------------------------------------------------------------------------- trainable belief
def test_trainable_belief_starts_as_a_constant_and_learns_the_cheaper_side():
    """dL/dk = v (L2 - L3) / (B C), then the chain rule through sigmoid(w p + b); nothing through p."""
    method = made(2, 2, belief=TRAINABLE)
    method.begin_epoch(4, 4)
    z = [[1.5, -2.0], [0.3, -1.0]]
    observed = torch.tensor([[0, 0], [1, 0]], dtype=torch.int8)
    logits = double([z]).requires_grad_()
    method(Outputs(logits), observed, torch.arange(2))["risk"].backward()
    slope, bias = [0.0, 0.0], [0.0, 0.0]
    k = sigmoid(-2)
    for row, labels in zip(z, observed.tolist(), strict=True):
        for c, value in enumerate(row):
            p = sigmoid(value)
            if labels[c] == 0:
                v = math.exp(-((p - 0.8) ** 2) / 0.5)
                pull = v * (power(p, 0.01) - power(1 - p, 1)) * k * (1 - k) / 4
                slope[c], bias[c] = slope[c] + pull * p, bias[c] + pull
    close(method.get_parameter("slope").grad, slope)
    close(method.get_parameter("bias").grad, bias)
    assert belief_at(method, 0.7) == pytest.approx(k, rel=1e-14)


def test_trainable_belief_passes_no_gradient_through_the_prediction():
    method = made(1, 1, belief={**TRAINABLE, "weight": 3.0, "bias": -1.0})
    method.begin_epoch(4, 4)
    logits = double([[[0.4]]]).requires_grad_()
    method(Outputs(logits), unknown(1, 1), torch.tensor([0]))["risk"].backward()
    p = sigmoid(0.4)
    k, v = sigmoid(3 * p - 1), math.exp(-((p - 0.8) ** 2) / 0.5)
    close(logits.grad, [[[v * ((1 - k) * (1 - p) * p - k * p**0.01 * (1 - p))]]])


def test_only_a_trainable_belief_has_parameters_and_their_rate_is_a_multiple():
    assert made().parameter_groups(0.5) == []
    method = made(1, 3, belief=TRAINABLE)
    (group,) = method.parameter_groups(0.5)
    assert group["lr"] == 500
    assert {p.shape for p in group["params"]} == {(3,)} and len(group["params"]) == 2


# ---------------------------------------------------------------------------------------------- settings
@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"belief": {"kind": "logistic", "weight": [0, 2]}}, "belief.logistic.bias"),
        ({"belief": {**K, "bias": ["guess", -2]}}, "belief.logistic.bias"),
        ({"belief": {**K, "weight": [0, 1, 2]}}, "belief.logistic.weight"),
        ({"belief": {"kind": "threshold", "value": 0.5}}, "belief"),
        ({"weight": {**V, "sigma": [2, 0]}}, "weight.gaussian.sigma"),
        ({"weight": {"kind": "constant", "value": -1.0}}, "weight.constant.value"),
        ({"q3": -1.0}, "q3"),
        ({"hold": 1.0}, "hold"),
    ],
)
def test_settings_that_mean_nothing_are_refused_by_key(change, key):
    with pytest.raises(ConfigError, match=rf"gr\.yaml: {key}"):
        made(**change)


def test_nothing_is_labelled_for_good():
    assert made(1, 2).pseudo_labels(torch.zeros(1, 2), unknown(1, 2), torch.tensor([0])) is None
