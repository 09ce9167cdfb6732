"""EN: charge the lowest averages as absent.

risk = -log p where observed; v (-log(1 - p)) where unknown, v = 1 on the expected negatives of the epoch, else 0; mean
over B*C. Before an epoch, the N - N_c images of class c with the lowest average become its expected negatives, hard and
anew each time; observed positives among them stay positive. average = decay * average + (1 - decay) * p, once an epoch,
with the p of that epoch's training step; it starts as the first epoch's p.
Source: Verelst et al., "Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label Annotations",
WACV 2023, https://arxiv.org/abs/2203.06127.
Authors' code: none is public.
The paper's text was not at hand: the loss is that of Chen et al., IJCAI 2024, Appendix B, Eq. 20, which quotes it.
Published: no constant is known. The paper trains on random resized crops, of unknown size.
Guess: decay 0.8; N_c = k N n_c / m, rounded, at most N, with n_c observed positives of class c, m of all classes and
k labels per image, so k n_c where every image has one; p of the augmented view in training mode; where the average
starts; the first epoch, in which every unknown cell is negative (or none, by ``first``); equal averages go by row; an
image that no epoch has met is the last to be chosen.
Differs: an image known to lack the class, which single positives do not tell, is among the first to be chosen.
"""

from pipeline.methods.shared.expected_negatives import ExpectedNegatives


class OnlyExpectedNegatives(ExpectedNegatives):
    """Observed positives against expected negatives, without another term."""


METHOD = OnlyExpectedNegatives
