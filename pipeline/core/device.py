"""The device to compute on: a setting of the environment, not of params.yaml."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def choose_device() -> "torch.device":
    """Return the torch device: SPML_DEVICE, else the first GPU, else the CPU; use SPML_THREADS threads."""
    import torch

    if threads := os.environ.get("SPML_THREADS"):
        torch.set_num_threads(int(threads))
    return torch.device(os.environ.get("SPML_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu"))
