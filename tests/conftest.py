"""What every test shares: one compute thread, the repository root."""

import os
from pathlib import Path

# Before numpy or torch is imported: same thread count, same bytes; and parallel test workers share the cores.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "SPML_THREADS"):
    os.environ[_name] = "1"
os.environ["SPML_DEVICE"] = "cpu"
os.environ["MPLBACKEND"] = "agg"

import pytest  # noqa: E402  the environment comes first


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout under test."""
    return Path(__file__).resolve().parent.parent
