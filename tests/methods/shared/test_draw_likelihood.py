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

from pipeline.methods.shared import draw_likelihood
from pipeline.methods.shared.base import build
from pipeline.methods.shared.draw_likelihood import (
    CountDraw,
    ShareDraw,
    belief_at,
    log_likelihood,
    posterior,
    posterior_of_arrays,
)
from tests.methods.cases import C, any_labels, generator, problem, single_positives

deterministic = settings(max_examples=25, deadline=None, derandomize=True, database=None)


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


def fine_rule(logits: np.ndarray, shown: list[int], weights: np.ndarray) -> tuple[float, float]:
    """Log of the race's integral over log s, and belief of the last label, by steps of 1/100 over 200 e-foldings."""
    log_s = np.arange(-130, 70, 0.01)
    value, s = log_s + np.log(0.01), np.exp(log_s)
    value += np.log(sum(weights[o] / np.expm1(np.minimum(weights[o] * s, 700)) for o in shown))
    value += sum(np.log(-np.expm1(-weights[o] * s)) for o in shown)
    p, q = np.array([sigmoid(z) for z in logits]), np.array([sigmoid(-z) for z in logits])
    for j in set(range(len(logits))) - set(shown):
        value += np.log(q[j] + p[j] * np.exp(-weights[j] * s))
    omega = np.exp(value - value.max())
    left = p[-1] * np.exp(-weights[-1] * s)
    return log_of_sum(value), float((omega * left / (q[-1] + left)).sum() / omega.sum())


@pytest.mark.parametrize("scale", [0.0, 2.0, 6.0])
@pytest.mark.parametrize("m", [1, 2, 6])
def test_weights_at_far_logits_in_float32(m, scale):
    random, c = np.random.default_rng(3), 300
    z = random.choice([-100.0, -3, 0, 17, 100], c).astype(np.float32)
    z[:m] = 100
    weights = np.exp(scale * random.normal(size=c))
    observed = torch.zeros(1, c, dtype=torch.int8)
    observed[0, :m] = 1
    value, belief = fine_rule(z.astype(np.float64), list(range(m)), weights)
    found = posterior(torch.from_numpy(z[None]), observed, CountDraw(weights=torch.from_numpy(weights)))
    assert found.log_likelihood.item() == pytest.approx(value, rel=1e-6)
    assert found.belief[0, -1].item() == pytest.approx(belief, rel=1e-6, abs=1e-30)
    assert torch.isfinite(found.gradient).all()


@given(st.integers(0, 2**31), st.sampled_from(["count", "closed", "weights", "share"]))
@settings(deterministic, max_examples=8)
def test_gradient_is_the_slope_of_the_likelihood(seed, kind):
    """By differences: Fisher's identity gives the code's gradient without differentiating anything."""
    rows, classes = 6, 5
    random = generator(seed)
    z = 3 * torch.randn(rows, classes, generator=random, dtype=torch.float64)
    labels = any_labels(rows, seed)
    weights = torch.exp(2 * torch.randn(rows, classes, generator=random, dtype=torch.float64))
    draw = {
        "count": CountDraw(),
        "closed": CountDraw(torch.full((rows,), classes)),
        "weights": CountDraw(weights=weights),
        "share": ShareDraw(torch.sigmoid(weights.log())),
    }[kind]
    given_z = z.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: log_likelihood(z, labels, draw), given_z, atol=1e-7)
    found = posterior(z, labels, draw)
    torch.testing.assert_close(found.gradient, (found.belief - torch.sigmoid(z)).detach(), rtol=0, atol=1e-14)


def test_second_derivative_is_refused():
    z = torch.zeros(1, 2, requires_grad=True)
    value = log_likelihood(z, torch.tensor([[1, 0]], dtype=torch.int8), CountDraw())
    (slope,) = torch.autograd.grad((value**2).sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


# ---------------------------------------------------------------------------------------------- what it contains
Z = torch.tensor([[-40.0, -3.0, 0.0, 2.0, 30.0]], dtype=torch.float64)


def test_a_share_of_one_is_an_and_none_leaves_p():
    assert torch.equal(belief_at(Z, 1.0), torch.zeros_like(Z))
    assert torch.equal(belief_at(Z, 0.0), torch.sigmoid(Z))
    everything = posterior(Z, torch.tensor([[0, 1, 0, -1, 0]]), ShareDraw(1.0))
    loss = build("an", {"floor": 0.0}, problem()).cells(Z, torch.zeros(1, 5), torch.tensor([0]))
    expected = -(loss.l1[0, 1] + loss.l3[0, [0, 2, 3, 4]].sum())
    assert everything.log_likelihood.item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("a", [0.1, 0.5, 0.97])
def test_a_fixed_share_is_the_calibrated_belief_of_gr(a):
    p = torch.sigmoid(Z)
    calibrated = (1 - a) * p / (1 - a * p)
    torch.testing.assert_close(belief_at(Z, a), calibrated, rtol=1e-12, atol=0)
    found = posterior(Z, torch.zeros(1, 5), ShareDraw(a))
    torch.testing.assert_close(found.belief, calibrated, rtol=1e-12, atol=0)
    assert found.log_likelihood.item() == pytest.approx(torch.log1p(-a * p).sum().item(), rel=1e-12)


def test_equal_weights_are_no_weights_whatever_their_scale():
    z, labels = 3 * torch.randn(60, C, generator=generator(5), dtype=torch.float64), any_labels(60)
    plain = posterior(z, labels, CountDraw())
    for weights in (torch.ones(C), 1e-200 * torch.ones(60, C, dtype=torch.float64), torch.full((C,), 1e30)):
        weighted = posterior(z, labels, CountDraw(weights=weights))
        torch.testing.assert_close(weighted.log_likelihood, plain.log_likelihood, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(weighted.belief, plain.belief, rtol=1e-9, atol=1e-9)


def test_label_of_no_weight_is_believed_as_before():
    labels = torch.tensor([[0, 1, 0, 0, 0]], dtype=torch.int8)
    found = posterior(Z, labels, CountDraw(weights=torch.tensor([1.0, 2.0, 0.0, 1.0, 0.0])))
    assert found.belief[0, [2, 4]].tolist() == pytest.approx(torch.sigmoid(Z[0, [2, 4]]).tolist(), rel=1e-12)


def test_row_that_shows_nothing():
    labels = torch.tensor([[0, 0, -1, 0, 0]], dtype=torch.int8)
    silent = posterior(Z, labels, CountDraw())
    assert silent.log_likelihood.item() == pytest.approx(math.log(0.5), rel=1e-12)
    assert torch.equal(silent.belief[labels == 0], torch.sigmoid(Z)[labels == 0])
    told = posterior(Z, labels, CountDraw(torch.tensor([1])))  # it had been shown if there were any
    assert told.log_likelihood.item() == pytest.approx(-sum(math.log1p(math.exp(z)) for z in Z[0].tolist()), rel=1e-12)
    assert told.belief.tolist() == [[0.0] * 5]


def test_blocks_are_rows_of_their_own(monkeypatch):
    z, labels = torch.randn(30, C, generator=generator(6), dtype=torch.float64), any_labels(30)
    weights = torch.rand(30, C, generator=generator(7), dtype=torch.float64) + 0.1
    for draw in (CountDraw(labels.eq(1).sum(1) + torch.arange(30) % 2), CountDraw(weights=weights)):
        whole = posterior(z, labels, draw)
        with monkeypatch.context() as patch:
            patch.setattr(draw_likelihood, "BLOCK", 1)
            single = posterior(z, labels, draw)
        for field in ("log_likelihood", "belief", "absence", "gradient"):
            torch.testing.assert_close(getattr(single, field), getattr(whole, field), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_types(rows, dtype):
    for draw in (CountDraw(), CountDraw(weights=torch.ones(C)), ShareDraw(0.4)):
        found = posterior(torch.zeros(rows, C, dtype=dtype), single_positives(rows), draw)
        assert found.log_likelihood.shape == (rows,)
        assert all(each.shape == (rows, C) for each in (found.belief, found.absence, found.gradient))
        assert all(each.dtype == dtype for each in vars(found).values())


def test_arrays_of_a_mapped_file():
    z, labels = torch.randn(7, C, generator=generator(8)), single_positives(7)
    whole = posterior(z, labels, CountDraw())
    turned = z.numpy()[::-1], labels.numpy()[::-1]
    for each in turned:
        each.flags.writeable = False
    value, gradient, belief = posterior_of_arrays(*turned, CountDraw())
    for found, expected in ((value, whole.log_likelihood), (gradient, whole.gradient), (belief, whole.belief)):
        np.testing.assert_allclose(found[::-1], expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (CountDraw(torch.tensor([0])), "count: a row shows more"),
        (CountDraw(weights=torch.tensor([0.0, 1, 1, 1, 1])), "weights: .*above 0 where a label is shown"),
        (CountDraw(weights=torch.tensor([1.0, -1, 1, 1, 1])), "weights: "),
        (CountDraw(weights=torch.tensor([1.0, math.nan, 1, 1, 1])), "weights: "),
        (CountDraw(weights=torch.tensor([1.0, math.inf, 1, 1, 1])), "weights: "),
        (ShareDraw(0.0), "share: "),
        (ShareDraw(1.5), "share: "),
        (ShareDraw(math.nan), "share: "),
    ],
)
def test_impossible_draws_are_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        posterior(Z, torch.tensor([[1, 0, 0, 0, 0]], dtype=torch.int8), draw)


def test_beliefs_add_up_to_the_labels_that_all_label_sets_expect():
    row = Row([0.3, -1.0, 2.0, 0.5, -0.2], [0, 1, 0, -1, 0], 1)
    _, beliefs = by_label_sets(row)
    logits, observed = row.tensors()
    assert posterior(logits, observed, row.draw).belief.sum().item() == pytest.approx(sum(beliefs))


@pytest.mark.parametrize("draw", [CountDraw(), ShareDraw(0.3)])
def test_what_is_known_without_having_been_shown_tells_its_label_alone(draw: CountDraw | ShareDraw) -> None:
    """The likelihood without that class, times its p; so is that of a known absence, times 1 - p."""
    z = torch.randn(30, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    observed = torch.zeros(30, 6, dtype=torch.int8)
    observed[:, 0], observed[:, 1] = 1, 2
    found, without = posterior(z, observed, draw), posterior(z[:, [0, 2, 3, 4, 5]], observed[:, [0, 2, 3, 4, 5]], draw)
    torch.testing.assert_close(found.log_likelihood, without.log_likelihood + torch.sigmoid(z[:, 1]).log())
    torch.testing.assert_close(found.belief[:, 2:], without.belief[:, 1:])
    assert (found.belief[:, 1] == 1).all() and (found.absence[:, 1] == 0).all()
    torch.testing.assert_close(found.gradient[:, 1], 1 - torch.sigmoid(z[:, 1]))
    shown = posterior(z, observed.clamp(max=1), draw)  # as if the draw had picked it too
    assert (shown.belief[:, 2:] < found.belief[:, 2:]).all() or isinstance(draw, ShareDraw)
