"""What a weak view is sure of, charged to a strong one: shared by PLC and LAC.

Source: Xie et al., 2022, Eq. 4; the authors' code, of which the forms differ, is named in `pipeline/methods/plc.py`.
"""

from typing import Literal

import torch
from torch import Tensor

from pipeline.methods.shared.cells import Cells, log_absent, log_present, masked_mean


def confident(
    logits: Tensor, observed: Tensor, threshold: float, form: Literal["code", "paper"]
) -> tuple[Tensor, Tensor]:
    """Find the cells that a prediction is sure of (Xie 2022, Eq. 4 and the authors' code).

    Args:
        logits: (B, C) logits; no gradient is kept.
        observed: (B, C) labels: 1 present, 0 unknown, -1 absent.
        threshold: Probability t in [0.5, 1] from which a cell is sure.
        form: ``code``: present where p + observed >= t, else absent where p + observed < 1 - t, and known cells always;
            ``paper``: unknown cells only, present where p >= t, absent where p <= 1 - t.

    Returns:
        Two (B, C) masks: surely present, surely absent. They overlap only in the paper's form, at p = t = 0.5.
    """
    score = torch.sigmoid(logits.detach())
    if form == "code":
        score = score + observed
        return score >= threshold, (score < 1 - threshold) | (observed == -1)  # p - 1 < 0 fails at t = 1 and p = 1
    unknown = observed == 0
    return unknown & (score >= threshold), unknown & (score <= 1 - threshold)


def consistency(
    weak: Tensor, strong: Tensor, observed: Tensor, threshold: float, form: Literal["code", "paper"]
) -> Tensor:
    """Charge the strong view with what the weak view is sure of (PLC, Xie 2022, Eq. 4).

    Args:
        weak: (B, C) logits of the weak view, without gradient.
        strong: (B, C) logits of the strong view.
        observed: (B, C) labels: 1 present, 0 unknown, -1 absent.
        threshold: As in `confident`.
        form: As in `confident`.

    Returns:
        Scalar log loss of the strong view on the sure cells: their mean (``code``), or their sum over the number of
        images (``paper``); 0 with its graph where no cell is sure.
    """
    present, absent = confident(weak, observed, threshold, form)
    loss = torch.where(present, log_present(strong), 0) + torch.where(absent, log_absent(strong), 0)
    if form == "code":
        return masked_mean(loss, present | absent)
    return loss.sum() / len(loss)


def consistency_cells(logits: Tensor, observed: Tensor, threshold: float, form: Literal["code", "paper"]) -> Cells:
    """Answer for cells as a consistency loss does whose weak view has these logits.

    Args:
        logits: (B, C) logits.
        observed: (B, C) labels: 1 present, 0 unknown, -1 absent.
        threshold: As in `confident`.
        form: As in `confident`.

    Returns:
        Belief 1 on surely present cells and 0 elsewhere, weight 1 on sure cells and 0 elsewhere, log losses.
    """
    present, absent = (mask.to(logits.dtype) for mask in confident(logits, observed, threshold, form))
    weight = present + absent
    loss = log_present(logits)
    return Cells(present / weight.clamp(min=1), weight, l1=loss, l2=loss, l3=log_absent(logits))


def confident_labels(logits: Tensor, observed: Tensor, threshold: float, form: Literal["code", "paper"]) -> Tensor:
    """Label the unknown cells that a prediction is sure of.

    Args:
        logits: (B, C) logits.
        observed: (B, C) labels: 1 present, 0 unknown, -1 absent.
        threshold: As in `confident`.
        form: As in `confident`.

    Returns:
        (B, C) int8: 1 present, -1 absent, 0 not sure or not unknown.
    """
    present, absent = confident(logits, observed, threshold, form)
    return torch.where(observed == 0, present.to(torch.int8) - absent.to(torch.int8), 0).to(torch.int8)
