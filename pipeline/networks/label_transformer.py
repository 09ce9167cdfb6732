"""Label-wise transformer: one learned query a class looks at the feature map and becomes that label's vector.

tokens = encoder(maps + position); label c = norm(decoder(query c, tokens)), the decoder without self-attention.
Source: Xie et al., "Label-Aware Global Consistency for Multi-Label Learning with Single Positive Labels", NeurIPS 2022;
the layers are those of Liu et al., "Query2Label", 2021, https://arxiv.org/abs/2107.10834.
Authors' code: milkxie/SPML-LAC @a630052, lib.
Published: dim null (no input projection, 2048), 4 heads, feedforward 8192, 1 encoder and 2 decoder layers, dropout 0.1.
The paper speaks of one self-attention and one cross-attention block; the numbers come from the code.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.core.errors import ConfigError


class LabelTransformer(nn.Module):
    """Transformer from a feature map to one vector a label.

    Args:
        width: D, channels of the map.
        classes: C.
        dim: d, width of the transformer, a multiple of 4 and of ``heads``; None takes the map as it is, d = D.
        heads: Attention heads.
        feedforward: Hidden width of the feed-forward blocks.
        encoder_layers: Self-attention layers over the map.
        decoder_layers: Cross-attention layers from the queries to the map; without self-attention.
        dropout: Probability in attention, feed-forward and residual branches.

    Raises:
        ConfigError: d does not fit the heads or the position code.
    """

    def __init__(
        self,
        width: int,
        classes: int,
        *,
        dim: int | None,
        heads: int,
        feedforward: int,
        encoder_layers: int,
        decoder_layers: int,
        dropout: float,
    ):
        super().__init__()
        self.dim = d = width if dim is None else dim
        if d % 4 or d % heads:
            key = "dim: null takes the backbone's width, which" if dim is None else "dim"
            raise ConfigError(f"head.{key} must be a multiple of 4 and of heads ({heads}); it is {d}")
        self.reduce = nn.Identity() if dim is None else nn.Conv2d(width, d, 1)
        self.encoder = nn.ModuleList(_Layer(d, heads, feedforward, dropout) for _ in range(encoder_layers))
        self.decoder = nn.ModuleList(_Layer(d, heads, feedforward, dropout) for _ in range(decoder_layers))
        self.norm = nn.LayerNorm(d)
        for part in (self.encoder, self.decoder):
            for parameter in part.parameters():
                if parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter)
        self.queries = nn.Parameter(torch.randn(classes, d))

    def forward(self, maps: Tensor | None) -> Tensor:
        """Look at a map once for each label.

        Args:
            maps: (B, D, h, w) feature maps.

        Returns:
            (B, C, d) label vectors.

        Raises:
            ValueError: There are no maps, because only pooled features are cached.
        """
        if maps is None:
            raise ValueError("a label-wise transformer reads feature maps; cached features are pooled")
        reduced = self.reduce(maps)
        place = position_code(reduced)
        tokens = reduced.flatten(2).transpose(1, 2)  # (B, h*w, d)
        for layer in self.encoder:
            placed = tokens + place
            tokens = layer(tokens, placed, placed, tokens)
        placed = tokens + place
        queries = self.queries.to(tokens.dtype).expand(tokens.shape[0], -1, -1)  # (B, C, d)
        labels = torch.zeros_like(queries)
        for layer in self.decoder:
            labels = layer(labels, labels + queries, placed, tokens)
        return self.norm(labels)


class LabelClassifier(nn.Module):
    """A linear classifier of its own for each label's vector.

    Args:
        classes: C.
        width: d, length of a vector.
    """

    def __init__(self, classes: int, width: int):
        super().__init__()
        bound = 1 / math.sqrt(width)
        self.weight = nn.Parameter(torch.empty(classes, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(classes).uniform_(-bound, bound))

    def forward(self, labels: Tensor) -> Tensor:
        """Return (B, C) logits of (B, C, d) label vectors."""
        return (labels * self.weight).sum(-1) + self.bias


class _Layer(nn.Module):
    """Attention and a feed-forward block, each followed by its residual sum and norm."""

    def __init__(self, d: int, heads: int, feedforward: int, dropout: float):
        super().__init__()
        self.attention = nn.MultiheadAttention(d, heads, dropout=dropout, batch_first=True)
        self.norm1 = nn.LayerNorm(d)
        self.widen = nn.Linear(d, feedforward)
        self.narrow = nn.Linear(feedforward, d)
        self.norm2 = nn.LayerNorm(d)
        self.dropout = nn.Dropout(dropout)

    def forward(self, target: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the target (B, T, d) after it has looked from query (B, T, d) at key and value (B, S, d)."""
        seen, _ = self.attention(query, key, value, need_weights=False)
        target = self.norm1(target + self.dropout(seen))
        hidden = self.dropout(F.relu(self.widen(target)))
        return self.norm2(target + self.dropout(self.narrow(hidden)))


def position_code(maps: Tensor) -> Tensor:
    """Return the fixed sine code of every place of a map.

    Args:
        maps: (B, d, h, w), d a multiple of 4; its sizes, dtype and device are read.

    Returns:
        (h*w, d), row-major, in [-1, 1]: the row's half of the code, then the column's. Row or column k of n has the
        angle 2 pi k / n, k from 1, divided by 10000^(2 floor(i/2) / (d/2)) at entry i of its half; even entries are
        sines, odd ones cosines.
    """
    d, height, width = maps.shape[1:]
    rate = 10000 ** (torch.arange(0, d // 2, 2, dtype=torch.float64) / (d // 2))

    def code(n: int) -> Tensor:
        phase = 2 * math.pi * torch.arange(1, n + 1, dtype=torch.float64)[:, None] / n / rate  # (n, d/4)
        return torch.stack([phase.sin(), phase.cos()], dim=2).flatten(1).to(maps)

    rows = code(height)[:, None].expand(-1, width, -1)
    columns = code(width)[None].expand(height, -1, -1)
    return torch.cat([rows, columns], dim=2).flatten(0, 1)
