"""CL: expected negatives, consistent with past epochs.

loss = EN + weight_consistency * mean over B*C of (p - average)^2, or of |p - average|, without gradient through the
average, which is that of the epochs before; 0 for an image that no earlier epoch has met, so in the first one.
EN: -log p where observed; -log(1 - p) on the expected negatives of the epoch, 0 on other unknown cells; mean over B*C.
Before an epoch, the N - N_c images of class c with the lowest average become its expected negatives, hard and anew each
time; observed positives among them stay positive. average = decay * average + (1 - decay) * p, once an epoch, with the
p of that epoch's training step; it starts as the first epoch's p.
Source: Verelst et al., "Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label Annotations",
WACV 2023, https://arxiv.org/abs/2203.06127.
Authors' code: none is public.
The paper's text was not at hand: EN is that of Chen et al., IJCAI 2024, Appendix B, Eq. 20; the consistency loss is
written from the abstract.
Published: no constant is known. The paper trains on random resized crops, of unknown size.
Guess: weight_consistency 1, the square, and that all cells count, observed ones too; decay 0.8; N_c = k N n_c / m,
rounded, at most N, with n_c observed positives of class c, m of all classes and k labels per image, so k n_c where
every image has one; p of the augmented view in training mode; where the average starts; the first epoch, in which every
unknown cell is negative (or none, by ``first``).
Differs: an image known to lack the class, which single positives do not tell, is among the first to be chosen.
"""

import torch
from torch import Tensor

from pipeline.methods.shared.expected_negatives import ConsistencySettings, ExpectedNegatives
from pipeline.networks.interface import Outputs


class ConsistentPredictions(ExpectedNegatives):
    """Expected negatives plus consistency with the average; `past` holds both."""

    Settings = ConsistencySettings
    coupled = True

    def forward(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Return `risk` and `consistency` and, while training, keep the predictions.

        Args:
            outputs: Logits of one view.
            observed: (B, C) int8 labels.
            index: (B,) int64 rows of the training split.

        Returns:
            The mean risk of EN, and the weighted mean distance to the average.
        """
        logits = outputs.logits[0]
        gap = torch.sigmoid(logits) - self.past.average[index].to(logits.dtype)
        charged = gap.abs() if self.settings.distance == "absolute" else gap**2
        consistency = torch.where(self.past.seen[index].unsqueeze(1), charged, 0).mean()
        return {
            **super().forward(outputs, observed, index),
            "consistency": self.settings.weight_consistency * consistency,
        }


METHOD = ConsistentPredictions
