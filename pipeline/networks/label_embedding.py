"""Label embedding head of LAC: a logit and a unit vector for each label of the label-wise transformer.

logit c = w_c . label c + b_c; embedding c = project(label c) / |project(label c)|.
Source: Xie et al., "Label-Aware Global Consistency for Multi-Label Learning with Single Positive Labels", NeurIPS 2022.
Authors' code: milkxie/SPML-LAC @a630052, lib.
Published: embedding 128; the transformer's sizes are in label_transformer.py.
Differs: the projection to embeddings is part of the head from the start. Where no loss reads the embeddings no gradient
reaches it and the optimiser leaves it alone, so that a second stage finds it at the seeded random values of the first;
theirs draws it anew there.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.networks.label_transformer import LabelClassifier, LabelTransformer


class LabelEmbeddingHead(nn.Module):
    """One embedding and one logit a label.

    Args:
        width: D, channels of the map.
        classes: C.
        embedding: E, width of the contrastive embedding.
        **sizes: Sizes of the `LabelTransformer`, which says which of them it refuses.
    """

    def __init__(self, width: int, classes: int, *, embedding: int, **sizes: Any):
        super().__init__()
        self.transformer = LabelTransformer(width, classes, **sizes)
        d = self.transformer.dim
        self.classifier = LabelClassifier(classes, d)
        self.project = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, embedding))

    def forward(self, maps: Tensor | None, pooled: Tensor | None) -> dict[str, Tensor]:
        """Classify and embed.

        Args:
            maps: (B, D, h, w) feature maps; a ValueError where there are none.
            pooled: (B, D) pooled features, handed through.

        Returns:
            ``logits`` (B, C), ``features`` (B, D), and ``embeddings`` (B, C, E) of unit length, in float32 where
            computed in half precision.
        """
        labels = self.transformer(maps)
        projected = self.project(labels)
        # a norm in half precision overflows or vanishes; not cells.in_float32, on which cached features must not depend
        projected = projected.to(torch.promote_types(projected.dtype, torch.float32))
        answer = {"logits": self.classifier(labels), "embeddings": F.normalize(projected, dim=-1)}
        return answer if pooled is None else {**answer, "features": pooled}
