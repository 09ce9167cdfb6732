"""The device to compute on: a setting of the environment, not of params.yaml."""

import os
import re
from typing import TYPE_CHECKING

from pipeline.core.errors import ConfigError

if TYPE_CHECKING:
    import torch


def choose_device() -> "torch.device":
    """Choose where to compute: SPML_DEVICE, else the first GPU, else the CPU; use SPML_THREADS threads.

    Returns:
        The torch device.

    Raises:
        ConfigError: A variable is set to what it cannot be, or names a device that this machine lacks.
    """
    import torch

    if threads := os.environ.get("SPML_THREADS"):
        if not re.fullmatch("[1-9][0-9]{0,3}", threads):
            raise ConfigError(f"SPML_THREADS: must be a number of threads, 1 or more (given: {threads!r})")
        torch.set_num_threads(int(threads))
    if not (name := os.environ.get("SPML_DEVICE")):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # there and back: the device `meta` keeps no values
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # no such kind, no such card, no driver
        reason = " ".join(str(error).split()).partition(". ")[0]
        raise ConfigError(f"SPML_DEVICE: {name!r} is no device of this machine ({reason})") from error
    return device
