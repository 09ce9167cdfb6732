import itertools
import json
import math
from typing import Any

import pytest
import torch

from pipeline.core.errors import ConfigError
from pipeline.methods.shared.base import Method, build
from pipeline.methods.shared.cells import cell_risk
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import ROOT, close, double, golden

VOC: dict[str, Any] = {
    "lambda_plus": 0.1,
    "lambda_minus": None,
    "threshold": 0.9,
    "gamma_pos": 0.0,
    "gamma_neg": 4.0,
    "alpha": 0.7,
}
SETTINGS = [
    VOC,
    {**VOC, "alpha": 0.0},
    {**VOC, "alpha": 0.0, "threshold": 1.0},
    {**VOC, "alpha": 0.0, "threshold": 1.0, "gamma_neg": 0.0, "lambda_minus": 1.0},
    {**VOC, "lambda_plus": 1.0, "lambda_minus": 0.5, "threshold": 0.5, "gamma_pos": 1.0, "gamma_neg": 0.5},
]
GOLDEN = golden("lasd")
TABLE = json.loads((ROOT / "tests" / "goldens" / "lasd.json").read_text(encoding="utf-8"))


def make(classes: int, positives: float | None = 1.46, **settings: Any) -> Method:
    problem = Problem(9, ("",) * classes, torch.zeros(classes, dtype=torch.int64), positives)
    return build("lasd", {**VOC, **settings}, problem)


def risk(method: Method, z: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
    return method(Outputs(z.expand(3, *z.shape)), observed, torch.arange(len(z)))["risk"]


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    z = 3 * torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return z, torch.eye(5, dtype=torch.int8)[:4]


@pytest.mark.parametrize("case", [c for c in GOLDEN if "observed" in c], ids=lambda case: case["name"])
def test_golden_risk(case):
    given, expected = dict(case["settings"]), case["expected"]
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    rows, classes = observed.shape
    method = make(classes, threshold=given.pop("tau"), **given)
    logits = double([case["logits"]] * 3).requires_grad_()
    terms = method(Outputs(logits), observed, torch.arange(rows))
    assert list(terms) == ["risk", "consistency"]
    terms["risk"].backward()
    close(terms["risk"], expected["loss_per_image"])
    close(terms["risk"] / classes, expected["loss"])
    close(terms["risk"] * rows, expected["loss_sum"])
    assert logits.grad is not None
    close(logits.grad[0] / classes, expected["grad_logits"])
    assert not logits.grad[1:].any()  # the strong views do not see the labels
    z, index = logits[0].detach(), torch.arange(rows)
    each = cell_risk(method.cells(z, observed, index), observed)
    labels = method.pseudo_labels(z, observed, index)
    assert labels is not None
    unknown = observed == 0
    for name, mask in (
        ("positive_term", observed == 1),
        ("pseudo_positive_term", labels == 1),
        ("pseudo_negative_term", unknown & (labels == 0)),
    ):
        close(torch.where(mask, each, 0).sum() / rows, expected[name])


@pytest.mark.parametrize("case", [c for c in GOLDEN if "logits_aug1" in c], ids=lambda case: case["name"])
def test_golden_consistency(case):
    expected = case["expected"]
    logits = double([case["logits"], case["logits_aug1"], case["logits_aug2"]]).requires_grad_()
    rows, classes = logits.shape[1:]
    method = make(classes, alpha=0.25)
    consistency = method(Outputs(logits), torch.zeros(rows, classes, dtype=torch.int8), torch.arange(rows))[
        "consistency"
    ]
    (consistency / 0.25).backward()
    close(consistency / 0.25, expected["loss"])
    close(consistency / 0.25 * rows, expected["consistency_sum"])
    close(consistency / 0.25 / classes, expected["consistency_mean_over_entries"])
    assert logits.grad is not None
    close(logits.grad, [expected["grad_logits"], expected["grad_logits_aug1"], expected["grad_logits_aug2"]])


@pytest.mark.parametrize("row", TABLE["lambda_minus_theorem_5_4"], ids=lambda row: row["dataset"])
def test_golden_weight_of_theorem_5_4(row):
    published = TABLE["settings"]["table4"][row["dataset"]]
    assert row["lambda_plus"] == published["lambda_plus"]
    method = make(row["classes"], row["positives_per_image"], lambda_plus=row["lambda_plus"])
    z = torch.zeros(1, row["classes"], dtype=torch.float64)
    weight = method.cells(z, torch.zeros(z.shape, dtype=torch.int8), torch.tensor([0])).weight
    close(weight, [[row["expected"]["lambda_minus"]] * row["classes"]])


def test_theorem_5_4_balances_the_two_sides():
    """1 observed and y - 1 pseudo-positives weigh as much as C - y absences."""
    method = make(20, 3.0, lambda_plus=0.3)
    z = double([[9.0] * 2 + [-9.0] * 17])
    weight = method.cells(z, torch.zeros(1, 19, dtype=torch.int8), torch.tensor([0])).weight
    close(1 + weight[0, :2].sum(), weight[0, 2:].sum().item())


@pytest.mark.parametrize(("observed", "positives", "classes"), [(2, 3, 20), (3, 3, 7), (1, 3, 20)])
def test_theorem_5_4_balances_the_two_sides_of_several_observed_labels(observed, positives, classes):
    """Over all choices of the observed labels of an image whose others are taken for what they are."""
    rows = 6
    counts = torch.tensor([observed * rows] + [0] * (classes - 1))
    method = build("lasd", {**VOC, "lambda_plus": 0.3}, Problem(rows, ("",) * classes, counts, float(positives)))
    z = double([[9.0] * positives + [-9.0] * (classes - positives)])
    present = absent = 0.0
    for chosen in itertools.combinations(range(positives), observed):
        labels = torch.zeros(1, classes, dtype=torch.int8)
        labels[0, list(chosen)] = 1
        weight = torch.where(labels == 1, 1, method.cells(z, labels, torch.tensor([0])).weight)[0]
        present, absent = present + float(weight[:positives].sum()), absent + float(weight[positives:].sum())
    assert present == pytest.approx(absent, rel=1e-12)


@pytest.mark.parametrize("observed", [0, 7, 9])
def test_fewer_observed_labels_than_images_count_as_one_each(observed):
    """As the theorem has it: NUS, where a fifth of the images has none, keeps its published weight."""
    method = build("lasd", VOC, Problem(9, ("",) * 4, torch.tensor([observed, 0, 0, 0]), 1.46))
    weight = method.cells(torch.zeros(1, 4).double(), torch.zeros(1, 4, dtype=torch.int8), torch.tensor([0])).weight
    assert weight[0, 0].item() == (1 + 0.1 * (1.46 - 1)) / (4 - 1.46)


@pytest.mark.parametrize("positives", [0.0, -1.0, 5.0, 7.0])
def test_a_density_that_cannot_be_is_refused(positives):
    with pytest.raises(ConfigError, match=r"methods\.lasd\.lambda_minus: null needs labels an image in \(0, 5\)"):
        make(5, positives)
    make(5, positives, lambda_minus=0.1)


def test_a_negative_weight_is_refused():
    with pytest.raises(ConfigError, match=r"methods\.lasd\.lambda_minus: null makes it -.*too large"):
        make(5, 0.5, lambda_plus=3.0)


def test_a_missing_density_is_refused_even_where_the_weight_is_given():
    """`needs` is a fact of the method, so that a report can mark who knows the density."""
    with pytest.raises(ConfigError, match="expected_positives"):
        make(5, None, lambda_minus=0.1)


def test_threshold_is_strict_and_one_never_labels():
    z, observed = double([[0.0, 1e-300, 800.0, 1e-9]]), torch.zeros(1, 4, dtype=torch.int8)
    half = make(4, threshold=0.5).pseudo_labels(z, observed, torch.tensor([0]))
    never = make(4, threshold=1.0).pseudo_labels(z, observed, torch.tensor([0]))
    assert half is not None and half.tolist() == [[0, 0, 1, 1]]
    assert never is not None and not never.any()


# Rows of Table 3, and the special cases that the paper names, against loops over their formulas.
def test_without_any_part_it_is_an_summed_over_classes():
    z, observed = batch()
    method = make(5, threshold=1.0, gamma_neg=0.0, lambda_minus=1.0, alpha=0.0)
    total = sum(
        math.log1p(math.exp(-x if y else x))
        for row, known in zip(z.tolist(), observed.tolist(), strict=True)
        for x, y in zip(row, known, strict=True)
    )
    close(risk(method, z, observed), total / 4)


@pytest.mark.parametrize(
    ("given", "gamma", "weight"),
    [
        ({"gamma_neg": 4.0, "lambda_minus": 1.0}, 4, 1.0),  # ASL without shift: the figure of Table 3's second row
        ({"gamma_neg": 4.0, "lambda_minus": None}, 4, (1 + 0.1 * 0.46) / (5 - 1.46)),  # what that row is called
        ({"gamma_neg": 0.0, "lambda_minus": 0.25}, 0, 0.25),  # WAN
    ],
)
def test_without_disambiguation_every_unknown_label_is_weighed_as_absent(given, gamma, weight):
    z, observed = batch()
    method = make(5, threshold=1.0, alpha=0.0, **given)
    total = 0.0
    for row, known in zip(z.tolist(), observed.tolist(), strict=True):
        for x, y in zip(row, known, strict=True):
            p = 1 / (1 + math.exp(-x))
            total += -math.log(p) if y else -weight * p**gamma * math.log(1 - p)
    close(risk(method, z, observed), total / 4)


def test_with_both_weights_one_it_is_a_self_paced_correction_of_focal_losses():
    z, observed = batch()
    method = make(5, threshold=0.6, gamma_pos=2.0, gamma_neg=2.0, lambda_plus=1.0, lambda_minus=1.0, alpha=0.0)
    total = 0.0
    for row, known in zip(z.tolist(), observed.tolist(), strict=True):
        for x, y in zip(row, known, strict=True):
            p = 1 / (1 + math.exp(-x))
            total += -((1 - p) ** 2) * math.log(p) if y or p > 0.6 else -(p**2) * math.log(1 - p)
    close(risk(method, z, observed), total / 4)


def test_without_consistency_the_strong_views_do_not_matter():
    z, observed = batch()
    views = torch.stack([z, z + 1, -z]).requires_grad_()
    terms = make(5, alpha=0.0)(Outputs(views), observed, torch.arange(4))
    assert terms["consistency"].item() == 0
    torch.stack(list(terms.values())).sum().backward()
    assert views.grad is not None and not views.grad[1:].any()


def test_views_that_agree_cost_nothing():
    z, observed = batch()
    assert make(5)(Outputs(z.expand(3, 4, 5)), observed, torch.arange(4))["consistency"].item() == 0
