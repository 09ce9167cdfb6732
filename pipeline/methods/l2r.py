"""L2R: AN plus an L2 weight penalty.

loss = AN + weight * sum w^2, w over the trained weights of head and backbone; AN is its mean over B*C.
Source: Zhou et al., "Acknowledging the Unknown for Multi-label Learning with Single Positive Labels", ECCV 2022,
supplement B.2, https://arxiv.org/abs/2203.16219.
Authors' code: none is public.
Published weight: VOC 1e-6, COCO 1e-7, NUS 1e-6, CUB 1e-8; chosen among 1e-9, 1e-8, 1e-7, 1e-6, 1e-5.
Guess: which parameters and which form of the norm. The paper names neither; our reading is the norm of head and
backbone weights, biases and norm layers left out, squared and summed over weights without a factor 1/2, added to the
loss.
"""

from torch import Tensor

from pipeline.methods.shared.weight_norm import WeightNorm


class L2Regularised(WeightNorm):
    """Assume negative plus the squared L2 norm of the trained weights."""

    @staticmethod
    def norm(weights: Tensor) -> Tensor:
        """Return the sum of squares."""
        return weights.square().sum()


METHOD = L2Regularised
