"""Bottleneck head of MIME: a variational bottleneck on each label of the label-wise transformer.

(mean, raw) = project(label c), each of width ``latent``; std = exp(clamp(raw / 2, -6, 6));
z = the mean of ``samples`` draws of N(mean, std^2); logit c = w_c . z + b_c.
Source: Liu et al., "Revisiting Pseudo-Label for Single-Positive Multi-Label Learning", ICML 2023,
https://proceedings.mlr.press/v202/liu23ar.html.
Authors' code: palm-biaoliu/mime @06e15de, lib_lagc/models/LEModel.py, LEModel_VIB.
Published: latent 256, samples 10; the transformer's sizes are in label_transformer.py.
Differs: evaluation takes the expectation of z. The logit is linear in z, so that this is the expected logit, exactly;
theirs draws ten samples there too, and scores anew with other noise.
Differs: one draw of N(mean, std^2 / samples), which is how the mean of the samples is distributed.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.networks.label_transformer import LabelClassifier, LabelTransformer

LARGEST = 6.0
"""Largest log deviation, up or down."""


class BottleneckHead(nn.Module):
    """One normal distribution and one logit a label.

    Args:
        width: D, channels of the map.
        classes: C.
        latent: Width of z.
        samples: Draws of z that a training step averages.
        **sizes: Sizes of the `LabelTransformer`, which says which of them it refuses.
    """

    def __init__(self, width: int, classes: int, *, latent: int, samples: int, **sizes: Any):
        super().__init__()
        self.samples, self.latent = samples, latent
        self.transformer = LabelTransformer(width, classes, **sizes)
        d = self.transformer.dim
        self.project = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 2 * latent))
        self.classifier = LabelClassifier(classes, latent)

    def forward(self, maps: Tensor | None, pooled: Tensor | None) -> dict[str, Tensor]:
        """Classify; in training mode noise comes from torch's global stream.

        Args:
            maps: (B, D, h, w) feature maps; a ValueError where there are none.
            pooled: (B, D) pooled features, handed through.

        Returns:
            ``logits`` (B, C), ``features`` (B, D), and ``posterior`` (B, C, 2, latent), mean and raw scale of z, in
            float32 where computed in half precision.
        """
        projected = self.project(self.transformer(maps))
        projected = projected.to(torch.promote_types(projected.dtype, torch.float32))  # half's noise would be coarse
        posterior = projected.unflatten(-1, (2, self.latent))  # (B, C, 2, latent)
        z, raw = posterior.unbind(-2)
        if self.training:
            z = z + log_deviation(raw).exp() / math.sqrt(self.samples) * torch.randn_like(z)
        answer = {"logits": self.classifier(z), "posterior": posterior}
        return answer if pooled is None else {**answer, "features": pooled}


def log_deviation(raw: Tensor) -> Tensor:
    """Read a bottleneck's raw scale.

    Args:
        raw: Raw scales of any shape.

    Returns:
        log std = clamp(raw / 2, -6, 6), same shape; without gradient beyond the clamp.
    """
    return (raw / 2).clamp(-LARGEST, LARGEST)
