import json
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from pipeline.audits import wasserstein

GOLDEN = json.loads((Path(__file__).resolve().parents[1] / "goldens" / "wasserstein.json").read_text())["cases"]
MATRICES = [case for case in GOLDEN if "probabilities" in case]
SAMPLES = [case for case in GOLDEN if "values_a" in case]


def exact(a: list[float], b: list[float]) -> float:
    """Integrate |F_a - F_b| between neighbouring values, in rational numbers."""
    points = sorted(set(map(Fraction, a)) | set(map(Fraction, b)))
    total = Fraction(0)
    for left, right in zip(points, points[1:], strict=False):
        gap = Fraction(sum(Fraction(v) <= left for v in a), len(a)) - Fraction(
            sum(Fraction(v) <= left for v in b), len(b)
        )
        total += abs(gap) * (right - left)
    return float(total)


@pytest.mark.parametrize("case", MATRICES, ids=lambda case: case["name"])
def test_agrees_with_the_golden_matrices(case: dict):
    p = np.array(case["probabilities"])
    found = wasserstein.separation(np.log(p / (1 - p)), np.array(case["truth"]), np.array(case["observed"]))
    expected = case["expected"]
    for value, wanted in zip(found["per_class"], expected["per_class"], strict=True):
        assert value == (None if wanted is None else pytest.approx(wanted, rel=1e-12))
    for name in ("pooled", "mean_over_defined"):
        assert found[name] == (None if expected[name] is None else pytest.approx(expected[name], rel=1e-12))
    assert found["counts_positive"] == expected["counts_positive"]
    assert found["counts_negative"] == expected["counts_negative"]


@pytest.mark.parametrize("case", SAMPLES, ids=lambda case: case["name"])
def test_agrees_with_the_golden_samples(case: dict):
    weights = case.get("weights_a"), case.get("weights_b")
    found = wasserstein.distance(case["values_a"], case["values_b"], *weights)
    wanted = case["expected"]["distance"]
    assert found == (None if wanted is None else pytest.approx(wanted, rel=1e-12, abs=1e-15))


def test_agrees_with_rational_integration_cell_by_cell():
    generator = np.random.default_rng(2)
    logits = np.round(generator.normal(size=(30, 4)) * 2, 1)  # rounded, so that there are ties
    truth = generator.integers(0, 2, (30, 4))
    observed = truth * (generator.random((30, 4)) < 0.3)
    scored = generator.random((30, 4)) < 0.8
    found = wasserstein.separation(logits, truth, observed, scored)
    pooled: dict[int, list[float]] = {0: [], 1: []}
    for c in range(4):
        groups: dict[int, list[float]] = {0: [], 1: []}
        for i in range(30):
            if observed[i, c] == 0 and scored[i, c]:
                groups[int(truth[i, c])].append(float(1 / (1 + np.exp(-logits[i, c]))))
        assert (found["counts_negative"][c], found["counts_positive"][c]) == (len(groups[0]), len(groups[1]))
        assert found["per_class"][c] == pytest.approx(exact(groups[1], groups[0]), rel=1e-12)
        pooled = {label: pooled[label] + groups[label] for label in pooled}
    assert found["pooled"] == pytest.approx(exact(pooled[1], pooled[0]), rel=1e-12)
    assert found["mean_over_defined"] == pytest.approx(np.mean(found["per_class"]), rel=1e-12)
    assert found["defined"] == 4 and found["reason"] == [None] * 4 and found["pooled_reason"] is None


def test_an_undefined_class_says_why():
    truth = np.array([[1, 0, 1, 0], [1, 0, 0, 1], [0, 0, 1, 1]])
    observed = np.array([[1, 0, 0, 0], [1, 0, 0, -1], [0, 0, 0, 1]])
    found = wasserstein.separation(np.zeros((3, 4)), truth, observed)
    assert found["per_class"] == [None, None, 0.0, None]
    assert found["reason"][0] == "no hidden positive among the unannotated cells"
    assert found["defined"] == 1 and found["mean_over_defined"] == 0.0
    everything_known = wasserstein.separation(np.zeros((1, 2)), np.array([[1, 0]]), np.array([[1, -1]]))
    assert everything_known["pooled"] is None
    assert everything_known["pooled_reason"] == "no hidden positive and no true negative among the unannotated cells"
    only_positives = wasserstein.separation(np.zeros((2, 1)), np.array([[1], [1]]), np.array([[0], [0]]))
    assert only_positives["reason"] == ["no true negative among the unannotated cells"]


def test_extreme_logits_separate_fully_without_a_warning():
    logits = np.array([[745.0], [-745.0], [1e30], [-1e30]], dtype=np.float32)
    found = wasserstein.separation(logits, np.array([[1], [0], [1], [0]]), np.zeros((4, 1)))
    assert found["per_class"] == [1.0]


def test_single_precision_logits_are_promoted_first():
    """In float32 both probabilities would round to 1 and the distance to 0."""
    logits = np.array([[18.0], [19.0]], dtype=np.float32)
    found = wasserstein.separation(logits, np.array([[1], [0]]), np.zeros((2, 1)))
    assert found["pooled"] == pytest.approx(1 / (1 + np.exp(18.0)) - 1 / (1 + np.exp(19.0)), rel=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_refused(value: float):
    with pytest.raises(ValueError, match="not finite"):
        wasserstein.separation(np.array([[value, 0.0]]), np.array([[1, 0]]), np.array([[0, 0]]))
    with pytest.raises(ValueError, match="NaN or infinity"):
        wasserstein.distance([0.1, value], [0.2])


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"\(N, C\)"):
        wasserstein.separation(np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 3)))


def test_share_above_counts_classes_defined_in_both():
    assert wasserstein.share_above([0.3, 0.2, None, 0.4, 0.1], [0.1, 0.2, 0.1, 0.5, None]) == pytest.approx(1 / 3)
    assert wasserstein.share_above([None], [0.2]) is None


@pytest.mark.parametrize("many", [1, 3, 50, 10**6])
def test_the_pooled_distance_in_pieces_is_that_of_scipy(monkeypatch: pytest.MonkeyPatch, many: int):
    monkeypatch.setattr(wasserstein, "MANY", many)
    random = np.random.default_rng(0)
    samples = [random.normal(shift, 1, n).round(digits) for shift, n, digits in
               ((0, 200, 9), (3, 7, 9), (-9, 40, 9), (0, 300, 1), (0, 1, 0), (40, 5, 0))]  # fmt: skip
    for a in samples:
        for b in samples:
            expected = wasserstein_distance(a, b)
            assert wasserstein._distance_of_many(a.copy(), b.copy()) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_a_run_is_measured_in_little_memory(monkeypatch: pytest.MonkeyPatch):
    """Beside the logits and labels themselves, which take 7 bytes a cell; a matrix of float64 would take 8 each."""
    monkeypatch.setattr(wasserstein, "MANY", 1000)
    random = np.random.default_rng(0)
    logits, truth = random.normal(size=(3000, 100)).astype(np.float32), random.random((3000, 100)) < 0.03
    tracemalloc.start()
    wasserstein.separation(logits, truth.astype(np.int8), np.zeros_like(truth, np.int8), np.ones_like(truth))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak / logits.size < 20
