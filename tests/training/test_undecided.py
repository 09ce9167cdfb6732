"""The order of hidden labels and the head behind it, against plain numpy; what it is worth: benchmarks/missed.py."""

import numpy as np
import pytest

from pipeline.core import seeds
from pipeline.labels.table import Table
from pipeline.training import undecided
from pipeline.training.undecided import rank_unknown, to_logits


def table(train: int, rest: int, classes: int) -> Table:
    n = train + 2 * rest
    names, paths = tuple(f"c{k}" for k in range(classes)), tuple(f"{row}.png" for row in range(n))
    split = np.repeat(np.array([0, 1, 2], np.uint8), [train, rest, rest])
    shape = (n, classes)
    return Table(names, paths, np.zeros(shape, np.int8), np.ones(shape, bool), split, (split == 2).astype(np.uint8))


def train_by_numpy(plain: np.ndarray, mirrored: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    """(N, C) logits of all rows, of which the first are trained on: Adam by its paper, gradients by hand, float64."""
    n = len(labels)
    scale = np.sqrt((plain[:n].astype(float) ** 2).mean())
    weights = np.zeros((labels.shape[1], plain.shape[1] + 1))
    first, second, step = np.zeros_like(weights), np.zeros_like(weights), 0
    generator = seeds.numpy_generator(seed, "undecided")
    for _ in range(undecided.EPOCHS):
        order, flips = generator.permutation(n), generator.random((n, 1)) < 0.5
        for start in range(0, n, undecided.BATCH):
            rows, step = order[start : start + undecided.BATCH], step + 1
            x = np.where(flips[rows], mirrored[rows], plain[rows]) / scale
            x = np.column_stack([x, np.ones(len(rows))])
            z, y = x @ weights.T, labels[rows]
            p = 1 / (1 + np.exp(-z))
            gradient = np.select([y == 1, y == 0], [p - 1, undecided.ALPHA * z * p * (1 - p)], p) / y.size
            gradient = gradient.T @ x
            first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
            corrected = np.sqrt(second / (1 - 0.999**step)) + 1e-8
            weights -= undecided.RATE * first / (1 - 0.9**step) / corrected
    return plain / scale @ weights[:, :-1].T + weights[:, -1]


def test_the_head_is_that_of_plain_numpy() -> None:
    generator = np.random.default_rng(0)
    plain, mirrored = (generator.normal(size=(n, 5)).astype(np.float32) for n in (40, 36))
    observed = generator.choice([-2, -1, 0, 0, 0, 1, 2], (40, 3)).astype(np.int8)
    made, belief = table(36, 2, 3), generator.random((40, 3))
    found = rank_unknown(plain, mirrored, observed, belief, (made, 7))
    logits, expected = train_by_numpy(plain, mirrored, np.sign(observed[:36]), 7), np.zeros((40, 3))
    for rows in (slice(0, 36), slice(36, 38), slice(38, 40)):
        for each in (logits[rows], np.log(belief[rows] / (1 - belief[rows]))):
            expected[rows] += each / each[observed[rows] == 0].std()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_beliefs_of_nothing_and_of_certainty_have_logits() -> None:
    given = np.array([0, 1e-300, 0.5, 1, 1 + 1e-12])
    assert to_logits(given).tolist() == [-15, -15, 0, 15, 15]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_all_is_known_or_all_alike(dtype: str) -> None:
    plain, made = np.zeros((6, 4), dtype), table(4, 1, 2)
    for observed in (np.ones((6, 2), np.int8), np.zeros((6, 2), np.int8)):
        found = rank_unknown(plain, None, observed, np.full((6, 2), 0.5), (made, 0))
        assert found.dtype == np.float32 and np.isfinite(found).all()
