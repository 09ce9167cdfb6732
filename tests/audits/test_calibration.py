import numpy as np
import pytest

from pipeline.audits import calibration


def test_agrees_with_sorting_cell_by_cell():
    generator = np.random.default_rng(0)
    belief = generator.random((40, 6))
    belief[0] = [0, 1, 0.25, 0.5, 0.75, 1]
    truth, unknown = generator.integers(0, 2, (40, 6)), generator.random((40, 6)) < 0.7
    weight = generator.normal(size=(40, 6))
    rows = calibration.curve(belief, truth, unknown, bins=4, weight=weight)
    assert sum(row["cells"] for row in rows) == unknown.sum()
    for number, row in enumerate(rows):
        lower, upper = number / 4, (number + 1) / 4
        inside = [
            (belief[i, j], truth[i, j], weight[i, j])
            for i in range(40)
            for j in range(6)
            if unknown[i, j] and lower <= belief[i, j] and (belief[i, j] < upper or upper == 1)
        ]
        assert (row["bin"], row["lower"], row["upper"], row["cells"]) == (number, lower, upper, len(inside))
        assert row["true_positives"] == sum(t for _, t, _ in inside)
        assert row["fraction"] == pytest.approx(np.mean([t for _, t, _ in inside]), rel=1e-12)
        assert row["mean_belief"] == pytest.approx(np.mean([b for b, _, _ in inside]), rel=1e-12)
        assert row["mean_weight"] == pytest.approx(np.mean([w for _, _, w in inside]), rel=1e-9)


def test_bins_are_those_of_the_whole_range_not_of_the_values():
    belief = np.array([[0.31, 0.32, 0.33]])
    rows = calibration.curve(belief, np.array([[1, 0, 0]]), np.ones((1, 3), bool), bins=10)
    assert [row["cells"] for row in rows] == [0, 0, 0, 3, 0, 0, 0, 0, 0, 0]
    assert rows[3]["fraction"] == pytest.approx(1 / 3)
    assert rows[0]["fraction"] is None and rows[0]["mean_belief"] is None
    assert "mean_weight" not in rows[0]


def test_every_edge_opens_its_own_bin():
    edges = np.arange(101) / 100
    rows = calibration.curve(edges[None], np.zeros((1, 101)), np.ones((1, 101), bool), bins=100)
    assert [row["cells"] for row in rows] == [1] * 99 + [2]  # 1 belongs to the last bin


def test_known_cells_do_not_enter_even_with_impossible_beliefs():
    belief = np.array([[0.5, np.nan, 7.0]])
    rows = calibration.curve(belief, np.array([[1, 1, 1]]), np.array([[True, False, False]]), bins=2)
    assert [row["cells"] for row in rows] == [0, 1]


@pytest.mark.parametrize("value", [-1e-9, 1 + 1e-9, np.nan])
def test_impossible_beliefs_are_refused(value: float):
    with pytest.raises(ValueError, match=r"outside \[0, 1\]"):
        calibration.curve(np.array([[value]]), np.array([[1]]), np.array([[True]]), bins=2)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="shape"):
        calibration.curve(np.zeros((2, 2)), np.zeros((2, 3)), np.ones((2, 2), bool), bins=2)


def test_error_is_the_mean_gap_over_cells():
    belief = np.array([[0.1, 0.2, 0.3, 0.9]])
    rows = calibration.curve(belief, np.array([[1, 0, 0, 0]]), np.ones((1, 4), bool), bins=2)
    assert calibration.error(rows) == pytest.approx((3 * abs(1 / 3 - 0.2) + 1 * 0.9) / 4)
    assert calibration.error(calibration.curve(belief, belief, np.zeros((1, 4), bool), bins=2)) is None


@pytest.mark.parametrize("b", [0.0, 0.6])
def test_reference_is_what_dropping_positives_at_random_leaves(b: float):
    """Draw labels at rate p, know each positive with probability a and each absence with b; look at the unknown."""
    generator = np.random.default_rng(4)
    p, a, n = 0.4, 0.7, 200_000
    present = generator.random(n) < p
    unknown = generator.random(n) >= np.where(present, a, b)
    share = (present & unknown).sum() / unknown.sum()
    assert calibration.reference(p, a, b) == pytest.approx(share, abs=4 * np.sqrt(share / unknown.sum()))


@pytest.mark.parametrize(
    ("p", "a", "expected"), [(0, 0.5, 0), (1, 0.5, 1), (0.3, 1, 0), (1, 1, 0), (0.5, 1 / 2, 1 / 3)]
)
def test_reference_at_its_ends(p: float, a: float, expected: float):
    assert calibration.reference(p, a) == pytest.approx(expected, abs=1e-15)
    assert calibration.reference(p, a, 1.0) == float(p > 0 and a < 1)  # all absences are known: what is left is present


@pytest.mark.parametrize(("p", "a"), [(-0.1, 0.5), (1.1, 0.5), (0.5, 0), (0.5, 1.2)])
def test_reference_refuses_what_is_no_probability(p: float, a: float):
    with pytest.raises(ValueError, match="probability"):
        calibration.reference(p, a)


def test_reference_refuses_a_share_of_absences_that_is_none():
    with pytest.raises(ValueError, match="excluded"):
        calibration.reference(0.5, 0.5, -0.1)
