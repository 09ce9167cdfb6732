"""The likelihood of a label draw against every label set, exact sums over counts, and finer rules."""

import itertools
import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import roots_legendre

from pipeline.methods.shared.draw_likelihood import (
    CountDraw,
    ShareDraw,
    log_likelihood,
    posterior,
    posterior_of_arrays,
)

deterministic = settings(max_examples=40, deadline=None, derandomize=True, database=None)


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z > -700 else 0.0


@dataclass(frozen=True)
class Row:
    """One image under one draw."""

    logits: list[float]
    observed: list[int]
    count: int
    weights: list[float] | None = None
    share: list[float] | None = None

    @property
    def draw(self) -> CountDraw | ShareDraw:
        if self.share is not None:
            return ShareDraw(torch.tensor(self.share, dtype=torch.float64))
        weights = None if self.weights is None else torch.tensor(self.weights, dtype=torch.float64)
        return CountDraw(torch.tensor([self.count]), weights)

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([self.logits], dtype=torch.float64), torch.tensor([self.observed], dtype=torch.int8)


def chance_of_showing(row: Row, shown: list[int], present: list[int]) -> float:
    """How likely the draw is to show these labels of those present, as the draw is told in words."""
    if row.share is not None:
        return math.prod(row.share[j] if j in shown else 1 - row.share[j] for j in present)
    if min(row.count, len(present)) != len(shown):
        return 0.0
    if row.weights is None:
        return 1 / math.comb(len(present), len(shown))
    total = 0.0
    for order in itertools.permutations(shown):
        left, chance = list(present), 1.0
        for label in order:
            chance *= row.weights[label] / math.fsum(row.weights[other] for other in left)
            left.remove(label)
        total += chance
    return total


def by_label_sets(row: Row) -> tuple[float, list[float]]:
    """Log-likelihood and beliefs by the sum over all label sets."""
    shown = [c for c, label in enumerate(row.observed) if label == 1]
    total, present_too = 0.0, [0.0] * len(row.logits)
    for labels in itertools.product(*({1: [1], 0: [0, 1], -1: [0]}[label] for label in row.observed)):
        chance = math.prod(sigmoid(z if label else -z) for z, label in zip(row.logits, labels, strict=True))
        present = [c for c, label in enumerate(labels) if label]
        chance *= chance_of_showing(row, shown, present)
        total += chance
        for c in present:
            present_too[c] += chance
    return math.log(total), [each / total for each in present_too]


@st.composite
def rows(draw: st.DrawFn, kind: str) -> Row:
    c = draw(st.integers(1, 7 if kind == "weights" else 10))
    observed = draw(st.lists(st.sampled_from([0, 0, 0, 1, -1]), min_size=c, max_size=c))
    if kind == "weights":
        observed = [0 if sum(label == 1 for label in observed[:i]) >= 3 else label for i, label in enumerate(observed)]
    logits = draw(hnp.arrays(np.float64, c, elements=st.floats(-12, 12))).tolist()
    shown = sum(label == 1 for label in observed)
    if kind == "share":
        return Row(logits, observed, shown, share=draw(st.lists(st.floats(0.01, 1), min_size=c, max_size=c)))
    count = shown + draw(st.integers(0, 2)) if kind == "stated count" else shown
    exponents = draw(st.lists(st.floats(-7, 7), min_size=c, max_size=c))
    return Row(logits, observed, count, weights=[math.exp(x) for x in exponents] if kind == "weights" else None)


@pytest.mark.parametrize("kind", ["count", "stated count", "weights", "share"])
@given(data=st.data())
@deterministic
def test_every_label_set_is_counted(kind, data):
    row = data.draw(rows(kind))
    value, beliefs = by_label_sets(row)
    logits, observed = row.tensors()
    found = posterior(logits, observed, row.draw)
    assert found.log_likelihood.item() == pytest.approx(value, rel=1e-9, abs=1e-9)
    torch.testing.assert_close(found.belief[0], torch.tensor(beliefs, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.absence, 1 - found.belief, rtol=0, atol=1e-12)


def log_of_sum(values: np.ndarray) -> float:
    largest = values.max()
    return float(largest + np.log(np.exp(values - largest).sum()))


@cache
def exact_rule() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [0, 1] that are exact for a polynomial of degree 9,999."""
    x, w = roots_legendre(5000)
    return (1 + x) / 2, w / 2


FAR = {
    "half of them present": lambda random, c: np.where(random.random(c) < 0.5, 100, -100),
    "all present": lambda random, c: np.full(c, 100),
    "ten present": lambda random, c: np.where(np.arange(c) % 1000 == 999, 100, -100),
    "a few present, many possible": lambda random, c: np.where(random.random(c) < 0.02, 100, -1),
    "all rare": lambda random, c: np.full(c, -9),
    "any": lambda random, c: random.normal(-2, 30, c).clip(-100, 100),
}


@pytest.mark.parametrize("m", [1, 3, 40])
@pytest.mark.parametrize("kind", FAR)
def test_ten_thousand_classes_in_float32(kind, m):
    """The integrand is a polynomial in e: a rule of so many nodes that it is exact says what its integral is."""
    c = 10_000
    z = FAR[kind](np.random.default_rng(0), c).astype(np.float32)
    z[:m] = 100  # shown: their own term is 0
    observed = np.zeros((1, c), np.int8)
    observed[0, :m] = 1
    e, w = exact_rule()
    kinds, counts = np.unique(z[m:].astype(np.float64), return_counts=True)
    if len(kinds) > 10:  # nodes far beyond where anything is left are not worth their time
        e, w = e[e < 0.1], w[e < 0.1]
    p, q = 1 / (1 + np.exp(-kinds)), 1 / (1 + np.exp(kinds))
    log_f = np.log(w * m) + (m - 1) * np.log(e)
    for each, (one, other) in zip(counts, zip(p, q, strict=True), strict=True):
        log_f += each * np.log(other + one * (1 - e))
    value = log_of_sum(log_f)
    omega = np.exp(log_f - value)
    beliefs = [float((omega * one * (1 - e) / (other + one * (1 - e))).sum()) for one, other in zip(p, q, strict=True)]
    logits = torch.from_numpy(z[None]).requires_grad_()
    found = log_likelihood(logits, torch.from_numpy(observed), CountDraw())
    assert found.item() == pytest.approx(value, rel=1e-6)
    found.sum().backward()
    _, gradient, belief = posterior_of_arrays(z[None], observed, CountDraw())
    assert logits.grad is not None and torch.equal(logits.grad, torch.from_numpy(gradient))
    expected = np.asarray(beliefs)[np.searchsorted(kinds, z[m:])]
    np.testing.assert_allclose(belief[0, m:], expected, rtol=1e-6, atol=1e-30)
    assert np.isfinite(gradient).all()
