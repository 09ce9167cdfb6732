from typing import Any

import numpy as np
import pytest

from pipeline.training import ridge

LAMBDAS = (0.003, 0.5, 100.0)


def problem(n: int, d: int, c: int, *, mirrored: bool = False, weighted: bool = False, seed: int = 0) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(n, d)) + 3
    return {
        "features": features,
        "mirrored": features + generator.normal(size=(n, d)) if mirrored else None,
        "weights": generator.uniform(0.2, 5, n) if weighted else None,
        "targets": (generator.random((n, c)) < 0.3).astype(float),
    }


def by_least_squares(given: dict[str, Any], penalty: float, left_out: int | None = None) -> tuple[np.ndarray, Any]:
    """Weights (D, C) and intercept by an ordinary solver on rows that carry the penalty as further equations."""
    views = [given["features"]] if given["mirrored"] is None else [given["features"], given["mirrored"]]
    views = [view.astype(float) for view in views]
    n, d = views[0].shape
    weights = np.ones(n) if given["weights"] is None else given["weights"]
    weights = weights / weights.sum() / len(views)
    kept = np.arange(n) != left_out
    left = [np.sqrt(weights[kept])[:, None] * np.hstack([np.ones((kept.sum(), 1)), view[kept]]) for view in views]
    left.append(np.sqrt(penalty) * np.hstack([np.zeros((d, 1)), np.eye(d)]))
    right = [np.sqrt(weights[kept])[:, None] * given["targets"][kept] for _ in views]
    right.append(np.zeros((d, right[0].shape[1])))
    solution = np.linalg.lstsq(np.vstack(left), np.vstack(right), rcond=None)[0]
    return solution[1:], solution[0]


def mean_eigenvalue(given: dict[str, Any]) -> float:
    views = [given["features"]] if given["mirrored"] is None else [given["features"], given["mirrored"]]
    rows = np.concatenate(views).astype(float)
    weights = None if given["weights"] is None else np.tile(given["weights"], len(views))
    return float(np.trace(np.atleast_2d(np.cov(rows.T, aweights=weights, ddof=0)))) / rows.shape[1]


def wide_collinear(given: dict[str, Any]) -> dict[str, Any]:
    """The same with a constant feature, one that is 0, and each of the others twice."""
    for name in ("features", "mirrored"):
        if given[name] is not None:
            n = len(given[name])
            given[name] = np.hstack([given[name], np.full((n, 1), 7.0), np.zeros((n, 1)), given[name]])
    return given


def narrow(given: dict[str, Any]) -> dict[str, Any]:
    given["features"] = given["features"].astype(np.float16)
    return given


PROBLEMS = {
    "more rows": problem(30, 6, 4),
    "more features": problem(12, 40, 4),
    "as many": problem(12, 12, 4),
    "mirrored": problem(20, 6, 3, mirrored=True),
    "mirrored, more features": problem(10, 40, 3, mirrored=True),
    "weighted": problem(20, 6, 3, weighted=True),
    "weighted, more features": problem(10, 40, 3, weighted=True),
    "mirrored and weighted": problem(14, 20, 3, mirrored=True, weighted=True),
    "collinear": wide_collinear(problem(30, 6, 4)),
    "collinear, more features": wide_collinear(problem(8, 20, 4, mirrored=True, weighted=True)),
    "float16": narrow(problem(20, 6, 3)),
    "float16, more features": narrow(problem(10, 40, 3)),
    "fewer rows than classes": problem(5, 3, 9),
    "one class": problem(15, 4, 1),
    "two rows": problem(2, 3, 2),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_heads_and_left_out_scores_are_those_of_explicit_fits(name: str) -> None:
    given = PROBLEMS[name]
    rows = ridge.decompose(given["features"], given["mirrored"], given["weights"], LAMBDAS)
    assert rows.lambdas == pytest.approx(np.array(LAMBDAS) * mean_eigenvalue(given), rel=1e-10)
    heads = ridge.fit(rows, given["targets"])
    for number, penalty in enumerate(rows.lambdas):
        weights, bias = by_least_squares(given, penalty)
        assert np.allclose(heads.weights[number].T, weights, rtol=0, atol=1e-8)
        assert np.allclose(heads.bias[number], bias, rtol=0, atol=1e-8)
        found = ridge.leave_one_out(rows, heads, given["targets"], number)
        for i, row in enumerate(given["features"].astype(float)):
            weights, bias = by_least_squares(given, penalty, left_out=i)
            assert np.allclose(found[i], row @ weights + bias, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["more rows", "mirrored and weighted"])
def test_steady_scores_keep_the_mean_of_all_images(name: str) -> None:
    given = PROBLEMS[name]
    rows = ridge.decompose(given["features"], given["mirrored"], given["weights"], LAMBDAS)
    found = ridge.leave_one_out(rows, ridge.fit(rows, given["targets"]), given["targets"], 2, steady=True)
    shares = np.ones(len(found)) if given["weights"] is None else given["weights"]
    for i, row in enumerate(given["features"]):
        weights, bias = by_least_squares(given, rows.lambdas[2], left_out=i)
        kept = np.arange(len(found)) != i
        moved = np.average(given["targets"][kept], axis=0, weights=shares[kept])
        mean = np.average(given["targets"], axis=0, weights=shares)
        assert np.allclose(found[i], row @ weights + bias - moved + mean, rtol=0, atol=1e-8)


def test_the_target_of_an_image_does_not_move_its_left_out_score() -> None:
    given = problem(12, 30, 3, mirrored=True, weighted=True)
    rows = ridge.decompose(given["features"], given["mirrored"], given["weights"])
    before = ridge.leave_one_out(rows, ridge.fit(rows, given["targets"]), given["targets"], 4)
    given["targets"][5] += 100
    after = ridge.leave_one_out(rows, ridge.fit(rows, given["targets"]), given["targets"], 4)
    assert np.allclose(before[5], after[5], atol=1e-8)
    assert not np.allclose(before[6], after[6], atol=1e-2)


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_row_without_weight_is_scored_and_not_fitted(mirrored: bool) -> None:
    given = problem(12, 30, 3, mirrored=mirrored)
    weights = np.ones(12)
    weights[[2, 7]] = 0
    rows = ridge.decompose(given["features"], given["mirrored"], weights)
    found = ridge.leave_one_out(rows, heads := ridge.fit(rows, given["targets"]), given["targets"], 3)
    kept = weights > 0
    fewer = ridge.decompose(given["features"][kept], None if not mirrored else given["mirrored"][kept])
    same = ridge.fit(fewer, given["targets"][kept])
    assert np.allclose(heads.weights, same.weights, atol=1e-9)
    assert np.allclose(found[kept], ridge.leave_one_out(fewer, same, given["targets"][kept], 3), atol=1e-9)
    assert np.allclose(found[2], ridge.score(given["features"][2:3], same.weights[3], same.bias[3])[0], atol=1e-9)


def test_many_rows_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem(23, 5, 2, mirrored=True, weighted=True)

    def run() -> np.ndarray:
        rows = ridge.decompose(given["features"], given["mirrored"], given["weights"], LAMBDAS)
        return ridge.leave_one_out(rows, ridge.fit(rows, given["targets"]), given["targets"], 1)

    whole = run()
    monkeypatch.setattr(ridge, "BLOCK", 4)
    assert np.allclose(run(), whole, rtol=0, atol=1e-12)


def test_units_of_weights_and_features_do_not_matter() -> None:
    given = problem(15, 6, 2, weighted=True)

    def run(scale: float, unit: float) -> np.ndarray:
        rows = ridge.decompose(given["features"] * scale, None, given["weights"] * unit)
        return ridge.leave_one_out(rows, ridge.fit(rows, given["targets"]), given["targets"], 5)

    assert np.allclose(run(1, 1), run(1e-4, 1e3), atol=1e-9)


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "nan": ({"features": np.array([[1.0, 2.0], [3.0, np.nan]])}, "features: nan at row 1, feature 1"),
    "inf": (
        {"features": np.ones((2, 1)), "mirrored": np.array([[1.0], [np.inf]])},
        "mirrored: inf at row 1, feature 0",
    ),
    "shape": ({"features": np.ones((2, 3)), "mirrored": np.ones((2, 2))}, r"mirrored \(2, 2\)"),
    "flat": ({"features": np.ones(3)}, r"features \(3,\)"),
    "constant": ({"features": np.full((5, 3), 0.1)}, "no feature varies"),
    "constant, more features": ({"features": np.full((3, 5), 0.1)}, "no feature varies"),
    "one row": ({"features": np.ones((1, 3))}, "two rows"),
    "one row with weight": ({"features": np.eye(3), "weights": np.array([0, 1.0, 0])}, "two rows"),
    "no row": ({"features": np.ones((0, 3))}, "two rows"),
    "negative": ({"features": np.eye(3), "weights": np.array([-1, 1.0, 1])}, "weights"),
    "weights of others": ({"features": np.eye(3), "weights": np.ones(4)}, r"weights \(4,\)"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_fitted_is_an_error(name: str) -> None:
    given, message = FAULTS[name]
    with pytest.raises(ValueError, match=message):
        ridge.decompose(**given)
