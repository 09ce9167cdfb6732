import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from pipeline.core import seeds


def test_a_streams_seed_is_a_hash_of_seed_and_names() -> None:
    digest = hashlib.sha256(b"7\x1forder\x1f3").digest()
    assert seeds.derive_seed(7, "order", 3) == int.from_bytes(digest[:8], "little") // 2


def test_streams_differ_by_seed_name_order_and_grouping() -> None:
    streams = [(0,), (1,), (0, "a"), (0, "b"), (0, "a", "b"), (0, "b", "a"), (0, "ab"), (0, "a", 1), (0, "a1"), (0, 1)]
    found = [seeds.derive_seed(*stream) for stream in streams]
    assert len(set(found)) == len(streams) and all(0 <= value < 2**63 for value in found)


def test_a_stream_does_not_depend_on_the_process(repository: Path) -> None:
    draws = "seeds.derive_seed(3, 'x'), *seeds.numpy_generator(3, 'x').integers(0, 99, 5)"
    code = f"from pipeline.core import seeds; print({draws})"
    environment = os.environ | {"PYTHONHASHSEED": "5"}
    said = subprocess.check_output([sys.executable, "-c", code], cwd=repository, env=environment, text=True)
    here = [seeds.derive_seed(3, "x"), *seeds.numpy_generator(3, "x").integers(0, 99, 5).tolist()]
    assert list(map(int, said.split())) == here


def test_generators_repeat_and_leave_the_global_streams_alone() -> None:
    torch.manual_seed(0)
    np_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # type: ignore[index]
    for stream in ("a", "b"):
        first = seeds.numpy_generator(0, stream).random(4), torch.rand(4, generator=seeds.torch_generator(0, stream))
        again = seeds.numpy_generator(0, stream).random(4), torch.rand(4, generator=seeds.torch_generator(0, stream))
        assert np.array_equal(first[0], again[0]) and torch.equal(first[1], again[1])
    other = seeds.numpy_generator(0, "a").random(4)
    assert not np.array_equal(other, seeds.numpy_generator(0, "b").random(4))
    assert np.array_equal(np_state, np.random.get_state()[1])  # type: ignore[index]
    assert torch.equal(torch_state, torch.get_rng_state())


def test_fix_torch_repeats_the_global_stream_and_asks_for_deterministic_kernels() -> None:
    seeds.seed_torch(4, "epoch", 2)
    first = torch.rand(3)
    seeds.seed_torch(4, "epoch", 3)
    assert not torch.equal(first, torch.rand(3))
    seeds.seed_torch(4, "epoch", 2)
    assert torch.equal(first, torch.rand(3))
    assert torch.are_deterministic_algorithms_enabled() and torch.is_deterministic_algorithms_warn_only_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"]
