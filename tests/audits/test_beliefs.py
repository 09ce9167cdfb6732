import numpy as np
import pytest

from pipeline.audits import beliefs


def test_spread_by_hand():
    found = beliefs.spread(np.array([0.0, 0.2, 0.4, 0.6, 1.0], np.float32))
    assert found["cells"] == 5 and found["likely_present"] == 2
    # numpy's linear rule: 0.9 of the way over 4 steps is place 3.6, 0.99 is place 3.96
    assert [found[name] for name in ("mean", "quantile_0.5", "quantile_0.9", "quantile_0.99", "largest")] == (
        pytest.approx([0.44, 0.4, 0.6 + 0.6 * 0.4, 0.6 + 0.96 * 0.4, 1.0])
    )


def test_one_half_is_not_likely_and_no_cell_is_no_number():
    assert beliefs.spread(np.array([0.5]))["likely_present"] == 0
    empty = beliefs.spread(np.zeros(0))
    assert empty.pop("cells") == 0 and set(empty.values()) == {None} and "mean" in empty


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_belief_outside_its_range_is_refused(value: float):
    with pytest.raises(ValueError, match="outside"):
        beliefs.spread(np.array([0.5, value]))


@pytest.mark.parametrize("most", [1, 7, 100])
def test_likeliest_by_belief_then_probability_then_place(most: int):
    generator = np.random.default_rng(4)
    belief = generator.integers(0, 3, (8, 5)) / 2  # many are equal
    probability = generator.integers(0, 4, (8, 5)) / 4
    unknown = generator.random((8, 5)) < 0.7
    cells = [(i, c) for i in range(8) for c in range(5) if unknown[i, c]]
    cells.sort(key=lambda cell: (-belief[cell], -probability[cell], cell))
    assert beliefs.likeliest(belief, probability, unknown, most) == cells[:most]


def test_likeliest_of_many_ties_is_what_sorting_all_gives() -> None:
    random = np.random.default_rng(0)
    for levels in (1, 2, 5, 10**6):
        belief = random.integers(0, levels, (40, 7)) / levels
        logits = random.integers(-3, 4, (40, 7)).astype(np.float32)
        unknown = random.random((40, 7)) < 0.8
        cells = sorted(np.argwhere(unknown).tolist(), key=lambda cell: (-belief[*cell], -logits[*cell], cell))
        for most in (1, 2, 50, 1000):
            found = beliefs.likeliest(belief, logits, unknown, most)
            assert found == [tuple(cell) for cell in cells[:most]]


def plain_spread(values: np.ndarray) -> dict[str, float]:
    """All values in float64 at once."""
    quantiles = np.quantile(values, (0.5, 0.9, 0.99)).tolist()
    numbers = [float(values.mean()), *quantiles, float(values.max()), int((values > 0.5).sum())]
    names = ("mean", "quantile_0.5", "quantile_0.9", "quantile_0.99", "largest", "likely_present")
    return {"cells": len(values), **dict(zip(names, numbers, strict=True))}


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 127, 129, 1000, 4096, 4097, 99_991])
def test_spread_in_blocks_is_that_of_all_at_once_to_the_last_bit(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    monkeypatch.setattr(beliefs, "CELLS", 1 << 8)
    random = np.random.default_rng(n)
    values = random.random(n).astype(np.float32)
    expected = plain_spread(values.astype(np.float64))
    assert beliefs.spread(values.copy()) == expected
    logits = (10 * random.normal(size=n)).astype(np.float32)
    made = 1 / (1 + np.exp(-logits.astype(np.float64)))
    assert beliefs.spread(logits.copy(), lambda part: 1 / (1 + np.exp(-part.astype(np.float64)))) == plain_spread(made)
