"""One linear layer on pooled features: the head of every method but those on label embeddings.

Source: Cole et al., "Multi-Label Learning from Single Positive Labels", CVPR 2021; torch's default initialisation.
"""

from torch import Tensor, nn


class LinearHead(nn.Module):
    """Linear classifier.

    Args:
        width: D, features of an image.
        classes: C.
    """

    def __init__(self, width: int, classes: int):
        super().__init__()
        self.linear = nn.Linear(width, classes)

    def forward(self, maps: Tensor | None, pooled: Tensor) -> dict[str, Tensor]:
        """Classify.

        Args:
            maps: Not read; None where only cached features are at hand.
            pooled: (B, D) pooled features.

        Returns:
            ``logits`` (B, C).
        """
        return {"logits": self.linear(pooled)}
