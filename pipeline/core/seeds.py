"""Named random streams: one independent generator for each purpose, derived from one seed.

A stream is named, e.g. ``numpy_generator(0, "digits", "train")``: adding a stream never shifts another, and no two
purposes share one. Names and seed are hashed, so the stream does not depend on the order in which streams are made.
"""

import hashlib
import os
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive_seed(seed: int, *names: str | int) -> int:
    """Return the stream's seed, in [0, 2**63).

    Args:
        seed: The run's seed.
        names: What the stream is for, from general to special.
    """
    text = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return numpy's generator of the named stream."""
    return np.random.Generator(np.random.PCG64(derive_seed(seed, *names)))


def torch_generator(seed: int, *names: str | int) -> "torch.Generator":
    """Return torch's CPU generator of the named stream."""
    import torch

    return torch.Generator().manual_seed(derive_seed(seed, *names))


def seed_torch(seed: int, *names: str | int) -> None:
    """Seed torch's global streams (layer initialisation, dropout) and choose deterministic kernels."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.manual_seed(derive_seed(seed, *names))
    torch.use_deterministic_algorithms(True, warn_only=True)
