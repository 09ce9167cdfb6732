"""Tables and settings of draws for the tests of this room."""

from pathlib import Path

import numpy as np

from pipeline.labels.draws import Draw, draw
from pipeline.labels.settings import Simulate
from pipeline.labels.table import Table
from pipeline.labels.weights import bias_weights


def table(truth, scored=None, official=None, exhaustive=True) -> Table:
    truth = np.array(truth, np.int8)
    n = len(truth)
    official = np.zeros(n, np.uint8) if official is None else np.array(official, np.uint8)
    return Table(
        classes=tuple("abcdefgh"[: truth.shape[1]]),
        paths=tuple(f"{row:03}.jpg" for row in range(n)),
        truth=truth,
        scored=np.ones(truth.shape, bool) if scored is None else np.array(scored, bool),
        split=np.where(official == 1, 2, 0).astype(np.uint8),
        official=official,
        exhaustive=exhaustive,
    )


def settings(**change) -> Simulate:
    block = {"protocol": "seeded", "seed": 1200, "empty_rows": "keep", "bias": {"kind": "uniform"}}
    block |= {"positives": {"kind": "count", "value": 1}, "negatives": {"kind": "count", "value": 0}}
    return Simulate.model_validate(block | change)


def chance_of(draw: Draw) -> np.ndarray:
    return draw.chances(np.arange(len(draw.observed)))[0]


def uniform_of(draw: Draw) -> np.ndarray:
    return draw.chances(np.arange(len(draw.observed)))[1]


def in_one(sampler, chance: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """What a sampler draws of all rows in one block."""
    ((rows, labels),) = sampler(lambda: [np.arange(len(chance))], lambda rows: chance[rows], generator)
    assert rows.tolist() == list(range(len(chance)))
    return labels


def drawn(prepared: Table, number: int = 0, **change) -> Draw:
    wanted = settings(**change)
    return draw(prepared, wanted, bias_weights(Path(), prepared, None, wanted), number)
