"""A linear head that leaves unknown labels undecided, to say which of them are present first of all.

Beliefs judge an image by fits that did not see its labels. That is right for a chance; a list of missing labels may
know what each image shows. Of photographs that might show either of two look-alikes, beliefs name both. A head that was
trained on the images themselves names fewer of these, and ranked beside the beliefs fewer still (benchmarks/missed.py).

The loss is that of entropy maximisation, Zhou et al., ECCV 2022, Eq. 3-4; features are scaled to a mean square of 1.
Source: the ranking is ours, 2026.
"""

import numpy as np
import torch

from pipeline.core import seeds
from pipeline.labels.table import SPLITS, Table
from pipeline.methods.shared.cells import cell_risk, log_cells_of
from pipeline.training.inputs import batches

ALPHA = 0.1
"""Weight of the entropy of an unknown label."""
RATE = 5e-4
"""Of Adam."""
EPOCHS = 20
BATCH = 16
STEPS = 500
"""Of an epoch at most: beyond, batches grow."""
FARTHEST = 15.0
"""Logit beyond which a belief is no surer."""


def rank_unknown(
    plain: np.ndarray, mirrored: np.ndarray | None, observed: np.ndarray, belief: np.ndarray, at: tuple[Table, int]
) -> np.ndarray:
    """Return in which order unknown labels are likely to be present.

    Args:
        plain: (N, D) features of all images.
        mirrored: (N_train, D) features of the mirrored training images, or None.
        observed: (N, C) int8 labels: above 0 present, 0 unknown, below 0 absent.
        belief: (N, C) chance that a label is present, by what did not see the image's labels.
        at: The table, and the seed of the order in which images are trained on.

    Returns:
        (N, C) float32: the logit of the belief and that of the undecided head, each by its standard deviation over the
        unknown labels of the split. The higher, the likelier the label is present.
    """
    table, seed = at
    logits = _undecided(plain, mirrored, np.sign(observed), (table.rows("train"), seed))
    believed = to_logits(belief)
    ranking = np.zeros(observed.shape, np.float32)
    for split in SPLITS:
        rows = table.rows(split)
        unknown = observed[rows] == 0
        for each in (logits[rows], believed[rows]):
            spread = each[unknown].std() if unknown.any() else 0.0
            ranking[rows] += each / spread if spread > 0 else 0.0
    return ranking


def to_logits(belief: np.ndarray) -> np.ndarray:
    """Return the logits of (N, C) chances, none beyond `FARTHEST`."""
    chance = np.clip(belief.astype(np.float64), 0, 1)  # a posterior may pass 1 by a rounding
    with np.errstate(divide="ignore"):
        return np.clip(np.log(chance) - np.log1p(-chance), -FARTHEST, FARTHEST)


def _undecided(
    plain: np.ndarray, mirrored: np.ndarray | None, observed: np.ndarray, at: tuple[np.ndarray, int]
) -> np.ndarray:
    """Return the (N, C) logits of a head that was trained on some rows, which are ``at[0]``, by the seed ``at[1]``."""
    rows, seed = at
    scale = float(np.sqrt(np.mean(np.square(plain[rows], dtype=np.float64)))) or 1.0
    views = [torch.from_numpy(view.astype(np.float32) / scale) for view in (plain[rows], mirrored) if view is not None]
    labels, generator = torch.from_numpy(observed[rows]), seeds.numpy_generator(seed, "undecided")
    weight = torch.zeros(observed.shape[1], plain.shape[1], requires_grad=True)
    bias = torch.zeros(observed.shape[1], requires_grad=True)
    optimizer = torch.optim.Adam([weight, bias], RATE)
    size = max(BATCH, -(-len(rows) // STEPS))
    for _ in range(EPOCHS):
        order, flips = generator.permutation(len(rows)), torch.from_numpy(generator.random((len(rows), 1)) < 0.5)
        for index in batches(len(rows), size, order):
            chosen = torch.where(flips[index], views[-1][index], views[0][index])
            logits = chosen @ weight.T + bias
            loss = cell_risk(log_cells_of(logits, logits, -ALPHA), labels[index]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return plain.astype(np.float32) @ (weight.numpy().T / scale) + bias.numpy()
