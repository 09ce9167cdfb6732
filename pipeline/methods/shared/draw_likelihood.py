"""The exact likelihood of the labels that a draw shows, and what it says of those it hides.

Labels are independent given the image: class c is present with p_c = sigmoid(z_c). A draw then shows some of the
present ones. Write e for the chance that a present label j is shown by now, S_j(e) = 1 - e_j p_j for the chance that it
is not seen, O for the shown labels (m of them), A for the known absences, U for the rest:

    share  every present label is shown with its own chance e
           log P = sum_O log(e p) + sum_A log(1 - p) + sum_U log(1 - e p)
    count  m of the present labels, any set of m as likely as another
           P = prod_O p prod_A (1 - p) int_0^1 m e^(m - 1) prod_U (1 - e p_j) de
    count with weights w: one label after another, each time in proportion to the weights of those left
           P = prod_O p prod_A (1 - p) int_0^inf d/ds prod_O (1 - exp(-w_o s)) prod_U (1 - p_j (1 - exp(-w_j s))) ds

The last is a race of exponential clocks, s the time of the last shown; in t = exp(-s) and with one shown label it is
int w_s t^(w_s - 1) prod (1 - p_j (1 - t^w_j)) dt. That a cell is known to be absent is taken to tell its label alone,
and so is that one is known to be present which was not shown, but follows from one that was.
Given e, a hidden label is present with (1 - e) p / (1 - e p) = sigmoid(z + log(1 - e)): e = 1 is AN's belief, e = 0 is
p itself, and GR's calibrated k(p) is one fixed e. Given the shown labels e has the density of the integrand, and the
belief is the mean over it; by Fisher's identity d log P / dz = belief - p.
Source: ours, 2026.

All is computed in float64, whatever comes in; MPS, which lacks it, is not served.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

NODES = {1: 16, 5: 24}
MORE_NODES = 64
"""Gauss-Legendre nodes of a count draw by how many labels are shown at most. At C = 10, 8 are exact; at C = 10,000
these give 1e-10 for one label and for five, and 1e-6 for thousands."""
STEP = 0.2
"""Step of the trapezoidal rule of a weighted draw, in units of the logarithm of time."""
FALL = 34.0
"""Where the integrand has fallen by exp(-FALL), 2e-15, it ends."""
NEWTON_STEPS = 20
"""Far above the mode a step halves the distance, and the first guess is at most C times too far: 2^14 is 16,384."""
BLOCK = 1 << 21
"""Cells times nodes that are worked on at once, at most: 16 MB of float64."""
TINY = 1e-300


@dataclass(frozen=True)
class CountDraw:
    """So many labels of an image are shown; an image with fewer present labels shows all of them."""

    count: Tensor | None = None
    """(B,) labels that the draw would show, at least as many as are shown; None: as many as are shown. Where it is
    larger than the number shown, every unknown label is absent; where it is 0, unknown labels are as they were."""
    weights: Tensor | None = None
    """(C,) or (B, C) preference for each label, at least 0 and above 0 where shown; None: all labels alike."""


@dataclass(frozen=True)
class ShareDraw:
    """Every present label is shown with a chance of its own, apart from the others."""

    share: Tensor | float
    """The chance, in (0, 1]; broadcasts to (B, C)."""


@dataclass(frozen=True)
class Posterior:
    """What the shown labels of a batch say."""

    log_likelihood: Tensor
    """(B,) log P, at most 0."""
    belief: Tensor
    """(B, C) chance that the label is present: 1 where shown, 0 where known to be absent."""
    absence: Tensor
    """(B, C) 1 - belief, without the digits that the difference would lose."""
    gradient: Tensor
    """(B, C) d log P / dz, which is belief - p."""


def belief_at(logits: Tensor, share: Tensor | float) -> Tensor:
    """Return the chance that labels are present which a draw with one share has not shown.

    Args:
        logits: (B, C) logits.
        share: Chance that a present label is shown, in [0, 1]; broadcasts to (B, C).

    Returns:
        (B, C) (1 - e) p / (1 - e p), of the logits' type.
    """
    return torch.sigmoid(logits + torch.log1p(-torch.as_tensor(share, dtype=logits.dtype, device=logits.device)))


@torch.no_grad()
def posterior(logits: Tensor, observed: Tensor, draw: CountDraw | ShareDraw) -> Posterior:
    """Return the likelihood of the shown labels, and what it says of every cell.

    Args:
        logits: (B, C) logits, finite.
        observed: (B, C) labels: 1 shown, 2 known to be present without having been shown, 0 unknown, -1 known to be
            absent, or below.
        draw: How labels came to be shown.

    Returns:
        The likelihood and beliefs, without gradient, of the logits' type. A row that shows nothing under a count draw
        without ``count`` has the likelihood of its known absences and believes p.

    Raises:
        ValueError: The draw could not have shown these labels.
    """
    z = logits.double()
    if isinstance(draw, ShareDraw):
        found = _of_share(z, observed, draw)
    else:
        blocks = [_of_count(z[rows], observed[rows], part) for rows, part in _blocks(z, observed, draw)]
        found = tuple(map(torch.cat, zip(*blocks, strict=True))) if blocks else (z.sum(1), z, z)
    value, belief, absence = found
    present, absent = observed >= 1, observed < 0
    known = torch.where(present, logsigmoid(z), torch.where(absent, logsigmoid(-z), 0)).sum(1)
    belief = torch.where(present, 1, torch.where(absent, 0, belief))
    absence = torch.where(present, 0, torch.where(absent, 1, absence))
    gradient = belief * torch.sigmoid(-z) - absence * torch.sigmoid(z)
    return Posterior(*(each.to(logits.dtype) for each in (known + value, belief, absence, gradient)))


class _LogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits: Tensor, observed: Tensor, draw: CountDraw | ShareDraw) -> Tensor:  # noqa: D102
        found = posterior(logits, observed, draw)
        ctx.save_for_backward(found.gradient)
        return found.log_likelihood

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:  # noqa: D102
        return grad[:, None] * ctx.saved_tensors[0], None, None


def log_likelihood(logits: Tensor, observed: Tensor, draw: CountDraw | ShareDraw) -> Tensor:
    """Return the log-likelihood of the shown labels, with its gradient to the logits.

    Args:
        logits: (B, C) logits, finite.
        observed: (B, C) labels, as in `posterior`.
        draw: How labels came to be shown.

    Returns:
        (B,) log P, at most 0; once differentiable.
    """
    return _LogLikelihood.apply(logits, observed, draw)  # pyright: ignore[reportReturnType]


def posterior_of_arrays(
    logits: np.ndarray, observed: np.ndarray, draw: CountDraw | ShareDraw
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return `posterior` of arrays.

    Args:
        logits: (N, C) float logits, finite.
        observed: (N, C) int8 labels, as in `posterior`.
        draw: How labels came to be shown.

    Returns:
        (N,) log-likelihood, (N, C) its gradient to the logits, (N, C) beliefs; of the logits' type.
    """
    # torch wants arrays in order and writable, which a mapped file is not
    z, labels = (torch.from_numpy(np.require(each, requirements=["C", "W"])) for each in (logits, observed))
    found = posterior(z, labels, draw)
    return found.log_likelihood.numpy(), found.gradient.numpy(), found.belief.numpy()


# ---------------------------------------------------------------------------------------------- shares
def _at(z: Tensor, observed: Tensor, log_left: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return log prod_U (1 - e p), belief and absence at one e; ``log_left`` is log(1 - e)."""
    left = z + log_left
    value = logsigmoid(-z) - logsigmoid(-left)
    return torch.where(observed == 0, value, 0).sum(1), torch.sigmoid(left), torch.sigmoid(-left)


def _of_share(z: Tensor, observed: Tensor, draw: ShareDraw) -> tuple[Tensor, Tensor, Tensor]:
    share = torch.as_tensor(draw.share, dtype=z.dtype, device=z.device)
    if not ((share > 0) & (share <= 1)).all():
        raise ValueError("share: a draw shows a share in (0, 1]")
    value, belief, absence = _at(z, observed, torch.log1p(-share))
    return value + torch.where(observed == 1, share.log(), 0).sum(1), belief, absence


# ---------------------------------------------------------------------------------------------- counts
def _blocks(z: Tensor, observed: Tensor, draw: CountDraw) -> Iterator[tuple[slice, CountDraw]]:
    """Yield rows in blocks, with their part of the draw.

    Args:
        z: (B, C) logits.
        observed: (B, C) labels.
        draw: The draw.

    Yields:
        The rows of a block, and the draw with their counts and weights.

    Raises:
        ValueError: The draw could not have shown these labels.
    """
    shown = (observed == 1).sum(1)
    if draw.count is not None and (draw.count < shown).any():
        raise ValueError("count: a row shows more labels than the draw would show")
    weights = None if draw.weights is None else draw.weights.to(z).broadcast_to(z.shape)
    if weights is not None and not (torch.isfinite(weights) & (weights >= 0) & ((weights > 0) | (observed != 1))).all():
        raise ValueError("weights: must be finite, at least 0, and above 0 where a label is shown")
    rows = max(1, BLOCK // ((MORE_NODES if weights is None else 2 * MORE_NODES) * max(1, z.shape[1])))
    for start in range(0, len(z), rows):
        part = slice(start, start + rows)
        count = shown if draw.count is None else draw.count
        yield part, CountDraw(count[part], None if weights is None else weights[part])


def _of_count(z: Tensor, observed: Tensor, draw: CountDraw) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log of the integral, belief and absence of a block."""
    assert draw.count is not None
    shown, unknown = observed == 1, observed == 0
    m = shown.sum(1)
    p, q = torch.where(unknown, torch.sigmoid(z), 0), torch.where(unknown, torch.sigmoid(-z), 1)
    if draw.weights is None:
        kept, log_weight = _count_nodes(p, m)
        factor = torch.addcmul(q[:, None], p[:, None], 1 - kept[:, :, None])  # (B, n, C)
    else:
        left, log_weight = _weighted_nodes(p, shown, draw.weights)
        factor = torch.addcmul(q[:, None], p[:, None], left)
    log_weight = log_weight + factor.clamp_(min=TINY).log().sum(2)
    value = log_weight.logsumexp(1)
    omega = torch.exp(log_weight - value[:, None])
    inverse = factor.reciprocal_()
    absence = q * torch.einsum("bn,bnc->bc", omega, inverse)
    if draw.weights is None:
        belief = p * torch.einsum("bn,bnc->bc", omega * (1 - kept), inverse)
    else:
        belief = p * torch.einsum("bn,bnc->bc", omega, inverse * left)
    # one e holds for a row that shows nothing, or that has shown all its labels
    settled = (m == 0) | (draw.count > m)
    log_left = torch.where(draw.count > m, -torch.inf, 0.0)[:, None].to(z)
    fixed = _at(z, observed, log_left)
    return (
        torch.where(settled, fixed[0], value),
        torch.where(settled[:, None], fixed[1], belief),
        torch.where(settled[:, None], fixed[2], absence),
    )


def _count_nodes(p: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """Return (B, n) nodes e and the logarithms of their weights times m e^(m - 1).

    The integrand is log-concave in e. With Newton's mode and bounds on how fast it falls beside it, the nodes lie where
    it counts, however many labels are shown or present.
    """
    more = (m.to(p) - 1).clamp(min=0)
    mode = _mode(p, more) if (more > 0).any() else torch.zeros_like(more)
    slope = (p / (1 - mode[:, None] * p)).sum(1).clamp(min=TINY)  # of -log prod_U at the mode
    classes = (p > 0).sum(1).to(p)
    wide, wider = (2 * FALL * classes).sqrt(), (2 * FALL * more).sqrt()
    high = (mode + torch.minimum(wider + FALL, wide) / slope).clamp(max=1)
    high = torch.where(classes > 0, high, 1)
    spare = (more - slope * mode).clamp(min=0)  # above 0 where the integrand still rises at e = 1
    steep = mode * 2 * FALL / (spare + (spare**2 + wider**2).sqrt()).clamp(min=TINY)
    low = (mode - torch.minimum(steep, (wide + FALL) / slope)).clamp(min=0)
    nodes = next((n for most, n in NODES.items() if (more < most).all()), MORE_NODES)
    x, w = (torch.from_numpy(each).to(p) for each in np.polynomial.legendre.leggauss(nodes))
    half = (high - low)[:, None] / 2
    kept = low[:, None] + half * (1 + x)
    return kept, w.log() + half.log() + (more + 1).log()[:, None] + more[:, None] * kept.log()


def _mode(p: Tensor, more: Tensor) -> Tensor:
    """Return (B,) the e in [0, 1] that maximises e^more prod (1 - e p)."""
    total, largest = p.sum(1), p.amax(1)
    # above the maximum, by Jensen and by the largest term; from there Newton in log e falls towards it, never past it
    bounds = (
        more / (total * (1 + more / (p > 0).sum(1).clamp(min=1))).clamp(min=TINY),
        more / (largest * (more + 1)).clamp(min=TINY),
    )
    e = torch.minimum(*bounds).clamp(max=1)
    for _ in range(NEWTON_STEPS):
        odds = e[:, None] * p / (1 - e[:, None] * p)
        excess, curvature = more - odds.sum(1), (odds * (1 + odds)).sum(1).clamp(min=TINY)
        e = (e * torch.exp((excess / curvature).clamp(max=1))).clamp(max=1)
    return e


def _weighted_nodes(p: Tensor, shown: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return (B, n, C) exp(-w s) at n times s, and the (B, n) logarithms of their weights times the density of s.

    The trapezoidal rule in v, log s = v - exp(-v) - log(rate): double exponential towards s = 0, and exp(-w s) sees to
    the other end. Between the rate of all labels and the least weight shown steps are even in log s, whatever scales
    the weights have.
    """
    weights = weights / weights.amax(1, keepdim=True).clamp(min=TINY)
    least = torch.where(shown, weights, 1).amin(1)
    rate = torch.maximum(torch.where(shown, weights, weights * p).sum(1), least)  # below it where nothing is shown
    most = int(shown.sum(1).amax().clamp(min=1))
    start = -np.log(FALL)
    end = (FALL * rate / least).log()
    n = 1 + int(torch.ceil((end.amax() - start) * most**0.5 / STEP))
    step = (end - start) / (n - 1)
    v = start + step[:, None] * torch.arange(n).to(p)  # (B, n)
    log_s = v - torch.exp(-v) - rate.log()[:, None]
    exponent = -weights[:, None] * log_s.exp()[:, :, None]  # (B, n, C)
    left = exponent.exp()
    kept = torch.where(shown[:, None], -torch.expm1(exponent), 1).clamp(min=TINY)
    pace = torch.where(shown[:, None], weights[:, None] * left / kept, 0).sum(2).clamp(min=TINY)
    log_density = kept.log().sum(2) + pace.log()
    return left, log_density + log_s + torch.log1p(torch.exp(-v)) + step.log()[:, None]
