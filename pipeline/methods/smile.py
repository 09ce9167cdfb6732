"""SMILE: learn label distributions beside the classifier.

loss = theta * align + alpha * AN(p) + beta * AN(d) + kl_normal * KL(z) + kl_beta * KL(d), each a mean over its entries.
An estimator reads the features x: (mean, raw) = encoder(x), std = softplus(raw), z ~ N(mean, std^2);
(a, b) = softplus(decoder(z)); d ~ Beta(a, b), one for each label. align = -d log p - (1 - d) log(1 - p), with gradient
to p and d; AN(q) = -log q where observed and -log(1 - q) elsewhere; KL(z) is to N(0, 1), KL(d) to Beta(1, 1).
Form tabular: d = a / (a + b); align has the target mixing * d + (1 - mixing) * (1 where observed, else prior), without
gradient to d, and counts unknown cells with a weight of their own; KL(d), which is no divergence, is
lnGamma(s) + lnGamma(t) + (s - 1) psi(s) + (t - 1) psi(t) with s = d + 1e-6 and t = 1 - d + 1e-6.
Source: Xu et al., "One Positive Label is Sufficient: Single-Positive Multi-Label Learning with Label Enhancement",
NeurIPS 2022, https://arxiv.org/abs/2206.00517.
Authors' code: palm-biaoliu/mime @06e15de, utils/losses.py, loss_smile, and utils/models.py, MultilabelModel_smile, on
images; palm-ml/smile @8feb9b8, train_smile2.py, on tables.
Published: images: kl_normal and kl_beta 1e-5. Tables: kl_beta 1, mixing 0.01 to 0.9, prior 0.001 to 0.1, unknown 0.1 to
0.7 or 1 / (C - 1), by data set.
Guess: theta, alpha, beta, latent and factor, which no source gives for images.
Differs: exact log losses; theirs is -log(p + 1e-5), AN(d) too, which ``floor`` 1e-5 gives. A draw of Beta is made of
the logarithms of two Gamma draws, so that log d and log(1 - d) keep their gradient where d is 0 or 1 in floating point.
The draw and KL(d), whose terms cancel, are in float64.
Differs: the classifier is the network's head; theirs, on images, is a linear layer on z.
Differs: std, a and b are at least 1e-6, as a and b are in their other model of images.
Differs: the tabular form is the loss alone, on the estimator for images. A graph network over all examples and the
reconstruction of x, the labels and the graph, which theirs has on tables, have no place beside an image network.
Differs: in eval mode z and d are their means, and nothing is drawn.
Each stage starts with a fresh estimator: one carried over from LinearInit can ruin the network (docs/results.md).
MPS, which lacks float64, is not served.
"""

from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.core.errors import ConfigError
from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, assume_negative, assumed_weight, floored, log_absent, log_present
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs

FLOOR = 1e-6
"""Least std, a and b; also what the tabular form adds to d and 1 - d."""
Weight = Annotated[float, Field(ge=0)]


class Image(Strict):
    """The loss on images: classifier and estimator teach each other."""

    kind: Literal["image"]


class Tabular(Strict):
    """The loss on tables: the estimator teaches the classifier."""

    kind: Literal["tabular"]
    mixing: Annotated[float, Field(ge=0, le=1)]
    """Share of d in the target."""
    prior: Annotated[float, Field(ge=0, le=1)]
    """The rest of the target where a label is unknown."""
    unknown: Weight | Literal["published", "balanced"]
    """Weight of an unknown cell in the alignment: a number, or WAN's 1 / (C - 1) (published) or m / u (balanced)."""


class Settings(Strict):
    """Settings of SMILE."""

    form: Annotated[Image | Tabular, Field(discriminator="kind")]
    """Which alignment and which KL(d)."""
    theta: Weight
    """Weight of the alignment of prediction and distribution."""
    alpha: Weight
    """Weight of AN on the prediction."""
    beta: Weight
    """Weight of AN on the distribution."""
    kl_normal: Weight
    """Weight of KL(z)."""
    kl_beta: Weight
    """Weight of KL(d)."""
    latent: Annotated[int, Field(ge=1)]
    """Width of z."""
    factor: Annotated[float, Field(gt=0)]
    """Learning rate of the estimator, as a multiple of the stage's."""
    floor: Annotated[float, Field(ge=0, lt=1)]
    """What the authors' code adds to p and to d inside each logarithm; 0: nothing, exact."""


class Distribution(NamedTuple):
    """What the estimator says of a batch."""

    mean: Tensor
    """(B, latent) mean of z."""
    std: Tensor
    """(B, latent) standard deviation of z, positive."""
    a: Tensor
    """(B, C) first parameter of Beta, positive."""
    b: Tensor
    """(B, C) second parameter of Beta, positive."""
    present: Tensor
    """(B, C) -log d, d how present each label is: a draw, or the mean a / (a + b)."""
    absent: Tensor
    """(B, C) -log(1 - d)."""

    @property
    def d(self) -> Tensor:
        """(B, C) how present each label is, in [0, 1]."""
        return torch.exp(-self.present)


class LabelEnhancement(Method):
    """Classifier beside an estimator; `estimate` (N, C) is the last mean of d of each image, 0.5 before the first."""

    Settings = Settings
    needs = {"features"}
    coupled = True
    estimate: Tensor

    def __init__(self, settings: Settings, problem: Problem):
        super().__init__(settings, problem)
        if (width := problem.width) is None:
            raise ConfigError("smile: needs the width of the features, which this problem does not tell")
        if settings.form.kind == "tabular" and settings.form.unknown == "published" and len(problem.classes) < 2:
            raise ConfigError("methods.smile.form.unknown: 1 / (C - 1) needs two classes or more, found 1")
        classes = len(problem.classes)
        self.encoder = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2 * settings.latent))
        self.decoder = nn.Linear(settings.latent, 2 * classes)
        self.register_buffer("estimate", torch.full((problem.n, classes), 0.5, dtype=torch.get_default_dtype()))

    def distribution(self, features: Tensor) -> Distribution:
        """Estimate the labels of a batch; in training mode draws come from torch's global stream.

        Args:
            features: (B, D) pooled features.

        Returns:
            The distributions of z and d, and d.
        """
        mean, raw = self.encoder(features).chunk(2, dim=-1)
        std = F.softplus(raw) + FLOOR
        z = mean + std * torch.randn_like(std) if self.training else mean
        a, b = (F.softplus(self.decoder(z)) + FLOOR).chunk(2, dim=-1)
        drawn = self.training and self.settings.form.kind == "image"
        parts = [_log_gamma(a.double()), _log_gamma(b.double())] if drawn else [a.log(), b.log()]
        whole = torch.logaddexp(*parts)
        return Distribution(mean, std, a, b, *((whole - part).to(a.dtype) for part in parts))

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return the classifier's cells, with the stored estimate as d; arguments as in `Method.cells`."""
        theta, alpha, floor = self.settings.theta, self.settings.alpha, self.settings.floor
        d = self.estimate[index].to(logits.dtype)
        target, rest, weight = self._target(d, 1 - d, observed)
        present, absent = log_present(logits, floor), log_absent(logits, floor)
        aligned = theta * (target * present + rest * absent)
        total = theta * weight + alpha
        return Cells(
            belief=theta * weight * target / total.clamp(min=torch.finfo(total.dtype).tiny),
            weight=total,
            l1=aligned + alpha * present,
            l2=present,
            l3=torch.where(observed == -1, aligned + alpha * absent, absent),
        )

    def forward(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Return the five weighted terms, and store the estimate of these images while training.

        Args:
            outputs: Logits and features of one view.
            observed: (B, C) int8 labels.
            index: (B,) int64 rows of the training split.

        Returns:
            `align`, `prediction`, `distribution`, `kl_normal` and `kl_beta`.

        Raises:
            ValueError: There are no features.
        """
        if outputs.features is None:
            raise ValueError("smile needs features")
        settings, logits, floor = self.settings, outputs.logits[0], self.settings.floor
        estimated = self.distribution(outputs.features[0])
        mean, std, a, b, d = estimated.mean, estimated.std, estimated.a, estimated.b, estimated.d
        if self.training:
            self.estimate[index] = (a / (a + b)).detach().to(self.estimate.dtype)
        target, rest, weight = self._target(d, torch.exp(-estimated.absent), observed)
        align = weight * (target * log_present(logits, floor) + rest * log_absent(logits, floor))
        distribution = floored(torch.where(observed == 1, estimated.present, estimated.absent), floor)
        divergence = (
            _beta_divergence(a.double(), b.double()) if settings.form.kind == "image" else _as_coded_on_tables(d)
        )
        return {
            "align": settings.theta * align.mean(),
            "prediction": settings.alpha * assume_negative(logits, observed, floor).mean(),
            "distribution": settings.beta * distribution.mean(),
            "kl_normal": settings.kl_normal * ((mean**2 + std**2 - 1) / 2 - std.log()).mean(),
            "kl_beta": settings.kl_beta * divergence.mean().to(d.dtype),
        }

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Return the estimator at its own rate; arguments as in `Method.parameter_groups`."""
        return super().parameter_groups(lr * self.settings.factor)

    def _target(self, d: Tensor, absence: Tensor, observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what the alignment aims at, 1 less that, and the weight of each cell in it: (B, C) each.

        ``absence`` is 1 - d, which as a difference loses its digits where d is close to 1.
        """
        form = self.settings.form
        if form.kind == "image":
            return d, absence, torch.ones_like(d)
        unknown: Tensor | float
        if form.unknown == "published" or form.unknown == "balanced":
            unknown = assumed_weight(observed, d.dtype, form.unknown)
        else:
            unknown = form.unknown
        rest = torch.where(observed == 0, form.prior, (observed == 1).to(d.dtype))
        weight = torch.where(observed == 0, unknown, torch.ones_like(d))
        mixing = form.mixing
        target = mixing * d.detach() + (1 - mixing) * rest
        return target, mixing * absence.detach() + (1 - mixing) * (1 - rest), weight


def _log_gamma(shape: Tensor) -> Tensor:
    """Draw the logarithm of a Gamma variable of scale 1, with gradient to its shape, also where the draw itself is 0.

    A draw of shape + 1 times u^(1 / shape), u uniform, is one of that shape (Marsaglia & Tsang 2000, section 6).

    Returns:
        log of the draw, of the shape of `shape`.
    """
    uniform = 1 - torch.rand_like(shape)  # (0, 1]
    raised = torch.distributions.Gamma(shape + 1, torch.ones_like(shape), validate_args=False).rsample()
    return raised.log() + uniform.log() / shape


def _beta_divergence(a: Tensor, b: Tensor) -> Tensor:
    """Return the divergence of Beta(a, b) from Beta(1, 1), element by element."""
    total = a + b
    scale = torch.lgamma(total) - torch.lgamma(a) - torch.lgamma(b)
    return scale + (a - 1) * torch.digamma(a) + (b - 1) * torch.digamma(b) - (total - 2) * torch.digamma(total)


def _as_coded_on_tables(d: Tensor) -> Tensor:
    """Return what the code for tables has in place of the divergence of Beta(d, 1 - d), element by element."""
    a, b = d + FLOOR, 1 - d + FLOOR
    return torch.lgamma(a) + torch.lgamma(b) + (a - 1) * torch.digamma(a) + (b - 1) * torch.digamma(b)


METHOD = LabelEnhancement
