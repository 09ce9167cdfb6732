"""Every method trains on every network that gives it what it reads, and is refused by the others before a step."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.core.errors import ConfigError
from pipeline.core.resume import Checkpoint
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import Problem
from pipeline.networks.settings import HEAD_GIVES
from pipeline.training.loop import Data, Trainer
from tests import tiny
from tests.methods.cases import method_cases

N = 6
TRANSFORMER = {name: value for name, value in tiny.EMBEDDING.items() if name != "embedding"}
HEADS = {
    "linear": tiny.LINEAR,
    "places": {"kind": "places", "sharpness": 0.5},
    "boosted": {"kind": "boosted", "factor": 5.0, "scale": "none"},
    "label_embedding": tiny.EMBEDDING,
    "bottleneck": {**TRANSFORMER, "kind": "bottleneck", "latent": 4, "samples": 2},
}
FIRST = dict(reversed(method_cases()))
"""The first settings of each method."""


def test_every_kind_of_head_is_tried():
    assert HEADS.keys() == HEAD_GIVES.keys()


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("name", base.names())
def test_a_method_trains_on_images_or_is_refused(name: str, kind: str, tmp_path: Path):
    network = tiny.network(HEADS[kind], on_images=True)
    observed = tiny.observed(N)
    method = base.build(
        name,
        FIRST[name],
        Problem(N, ("a", "b", "c"), observed.sum(0, dtype=torch.int64), 1.5, 8, beliefs=torch.rand(N, 3)),
    )
    before = [each.clone() for each in network.parameters()]

    checkpoint = Checkpoint(tmp_path / "run.pt")

    def run() -> list[dict]:
        images = tiny.images(N, flip=True, crop=0.5, strong=tiny.strong())
        data = Data(images, observed, tiny.images(3, seed=9), lambda _: 0.0)
        plan = tiny.plan(tiny.training(batch_size=3), learning_rate=0.01, name=name)
        return Trainer(network, method, data, plan, checkpoint).fit().rows

    missing = set(method.needs) & {"maps", "embeddings", "posterior"} - HEAD_GIVES[kind]
    if missing:
        with pytest.raises(ConfigError, match=f"needs {', '.join(sorted(missing))}"):
            run()
        checkpoint.delete()
        return
    rows = run()
    checkpoint.delete()
    assert len(rows) == 2 and all(np.isfinite(row["loss"]) for row in rows)
    assert any(not torch.equal(one, two) for one, two in zip(before, network.parameters(), strict=True))
