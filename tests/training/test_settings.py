"""Every setting of a training stage has an effect, or is refused beside what makes it void: over the whole schema."""

from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import BaseModel, ValidationError

from pipeline.config import rules
from pipeline.core.errors import ConfigError
from pipeline.training import choice, search
from pipeline.training.inputs import FeatureInputs, ImageInputs, Inputs
from pipeline.training.loop import Data, Plan, Trainer
from pipeline.training.settings import Training
from pipeline.training.store import Trained
from tests import tiny
from tests.schema import leaves, models, others, replaced

N, VAL, EPOCHS = 6, 8, 4
BOTTLENECK = {key: value for key, value in tiny.EMBEDDING.items() if key != "embedding"}
BOTTLENECK |= {"kind": "bottleneck", "latent": 4, "samples": 2}
BASE = {"epochs": EPOCHS, "learning_rate": 0.02, "strong": tiny.STRONG, "early_stop": {"rule": "none", "amount": 0.0}}
GRID = {"learning_rate": "grid", "search": {"values": [0.002, 0.02], "epochs": 1, "extend": 0}}
CONTEXTS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": (
        "finetune",
        {
            **{"momentum": 0.5, "learning_rate": 0.5, "early_stop": {"rule": "drop", "amount": 99.0}},
            **{"flip": True, "crop": 0.5, "weight_decay": 0.01, "group_consistency": {"weight": 3.0}},
        },
    ),
    "onecycle": (
        "finetune",
        {
            **{
                "optimizer": "adamw",
                "momentum": [0.5, 0.9],
                "schedule": "onecycle",
                "warmup": 0.3,
                "ema": {"decay": 0.9, "rule": "warmup"},
            },
            **{"head": tiny.EMBEDDING, "select": "last", "freeze": ["layers.0"]},
        },
    ),
    "grid": (
        "finetune",
        {
            **{
                "optimizer": "adam",
                "momentum": 0.9,
                "head": {"kind": "boosted", "factor": 5.0, "scale": "none"},
                **GRID,
            },
            **{"batch_norm": "frozen", "ema": {"decay": 0.5, "rule": "published"}},
            "readout": {"pools": ["sqrt"], "sharpness": 0.2, "share": 1.0},
        },
    ),
    "bottleneck": (
        "finetune",
        {
            **{"optimizer": "adamax", "momentum": 0.9, "head": BOTTLENECK, "select": "clean"},
            **{"early_stop": {"rule": "patience", "amount": 1.0}},
        },
    ),
    "features": (
        "linear_init",
        {
            **{"strong": None, "flip": True, "weight_decay": [0.1, 0.9], "learning_rate": "grid"},
            "head": {"kind": "linear", "scale": ["unit", "none"]},
            "search": {"values": [0.02, 0.5], "epochs": 1, "extend": 0},  # whose trials do not tie
            **{"schedule": "onecycle", "warmup": 0.3, "momentum": 0.5},
        },
    ),
    "places": ("finetune", {"head": {"kind": "places", "sharpness": 0.5}}),
    "features_adam": (
        "linear_init",
        {"strong": None, "optimizer": "adam", "momentum": 0.9, "ema": {"decay": 0.99, "rule": "published"}},
    ),
}
"""Settings beside which each one is changed."""


# ---------------------------------------------------------------------------------------------- one tiny run
def inputs_of(stage: str, settings: Training) -> tuple[Inputs, Inputs]:
    if stage == "linear_init":
        mirrored = tiny.numbers(N, tiny.D, seed=5)
        return FeatureInputs(tiny.numbers(N, tiny.D), mirrored, settings.flip), tiny.features(VAL, seed=9)
    views = {"flip": settings.flip, "crop": settings.crop, "strong": settings.strong}
    pixels = ImageInputs(tiny.pixels(N), np.arange(N), tiny.MEAN, tiny.STD, **views)
    return pixels, tiny.images(VAL, seed=9)


def outcome(stage: str, settings: Training) -> bytes:
    """All that a run stores of its training, as bytes; ConfigError where a rule or a part refuses the settings."""
    name = "an" if stage == "linear_init" else "plc"
    kinds = {"an": tiny.AN, "plc": {"threshold": 0.5, "form": "code", "weight_plc": 1.0}}
    features = SimpleNamespace(settings=lambda *_: SimpleNamespace(mirrored=True, places=False, pools=["sqrt"]))
    asked = {"stage": stage, "dataset": "digits", "where": "here", "origin": str, "params": features, "method": name}
    asked["closed_form"] = False
    planned: Any = SimpleNamespace(
        settings=settings, views=("weak", "strong")[: 1 + (name == "plc")], needs=frozenset(), **asked
    )
    rules.raise_if_any(rules.training_run(planned))
    truth = np.random.default_rng(2).integers(0, 2, (VAL, tiny.C)).astype(np.int8)
    table = SimpleNamespace(reference=lambda _: (truth, np.ones_like(truth, bool)), rows=lambda _: np.arange(VAL))
    score = choice.make_scorer(SimpleNamespace(table=table, **vars(planned)))  # type: ignore[arg-type]
    assert score is not None
    train, validation = inputs_of(stage, settings)

    def fit(setting: search.Setting, epochs: int | None) -> Trained:
        calls = (call for call in count() for _ in range(2 if settings.ema else 1))
        own = settings.at(*setting.company)
        network = tiny.network(own.head.model_dump(), on_images=stage != "linear_init")
        method = tiny.method(name, N, kinds[name])
        # the second epoch is the best, so that a rule stops in the third and a trial of two differs from one of one
        plan = Plan("run", own, setting.rate, epochs or settings.epochs, 0, torch.device("cpu"))
        score_call: Any = lambda logits: score(logits) - 200 * abs(next(calls) - 1)  # noqa: E731
        data = Data(train, tiny.observed(N), validation, score_call, groups=np.arange(N) // 2)
        return Trained(network, method, Trainer(network, method, data, plan).fit())

    setting, trained, rows = search.choose(settings, fit, choice.judge_trained)
    history = trained.history
    held = [*history.state.values(), *history.train, *history.val]
    return repr((setting, rows, history.rows)).encode() + b"".join(each.numpy().tobytes() for each in held)


# ---------------------------------------------------------------------------------------------- the schema
BLOCKS = [
    tiny.LINEAR,
    tiny.STRONG,
    {"kind": "places", "sharpness": 0.5},
    {"kind": "boosted", "factor": 5.0, "scale": "none"},
    tiny.EMBEDDING,
    BOTTLENECK,
    {"values": [0.05], "epochs": None, "extend": 0},
    {"decay": 0.3, "rule": "warmup"},
    {"weight": 5.0},
    {"rule": "none", "amount": 0.0},
    {"rule": "drop", "amount": 99.0},
]
"""Whole blocks, which take the place of another one or of null."""
NOT_HERE = {
    ("protocol",): "params.yaml resolves it before a stage reads its block (tests/config/test_params.py)",
    ("head", "kind"): "whole blocks stand for it",
    ("early_stop", "rule"): "whole blocks stand for it",
    ("readout",): "fitted after training (tests/training/test_readout.py)",
    ("readout", "pools"): "as the readout",
    ("readout", "sharpness"): "as the readout",
    ("readout", "share"): "as the readout",
    ("strong",): "its parts stand for it; null is refused beside a method of two views",
}


def changes(settings: Training) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each setting with other values."""
    for path, kind, value in leaves(settings):
        if path in NOT_HERE:
            continue
        blocks = [block for block in BLOCKS for model in models(kind) if set(block) == set(model.model_fields)]
        current = value.model_dump() if isinstance(value, BaseModel) else value
        for other in [*others(kind, value), *(block for block in blocks if block != current)]:
            if other != current:
                yield path, other


def of_contexts(*stages: str) -> list[str]:
    return [name for name, (stage, _) in CONTEXTS.items() if stage in stages]


@pytest.mark.parametrize(
    "context",
    [*of_contexts("linear_init"), *(pytest.param(name, marks=pytest.mark.slow) for name in of_contexts("finetune"))],
)
def test_a_changed_setting_changes_the_outcome_or_is_refused(context: str) -> None:
    stage, change = CONTEXTS[context]
    settings = Training.model_validate(tiny.BLOCK | BASE | change)
    before = outcome(stage, settings)
    assert outcome(stage, settings) == before
    effect: dict[tuple[str, ...], bool] = {}
    for path, value in changes(settings):
        if effect.get(path):
            continue  # one value with an effect is enough: patience of 4 or 8 is the same in four epochs
        try:
            changed = Training.model_validate(replaced(settings.model_dump(), path, value))
            effect[path] = outcome(stage, changed) != before
        except (ValidationError, ConfigError):
            continue
    assert [path for path, changed in effect.items() if not changed] == []
    EFFECTIVE[context] = set(effect)


EFFECTIVE: dict[str, set[tuple[str, ...]]] = {}
"""Settings that changed the outcome, by context; the others were refused."""


@pytest.mark.slow
def test_every_setting_has_an_effect_somewhere() -> None:
    for context in CONTEXTS.keys() - EFFECTIVE.keys():
        test_a_changed_setting_changes_the_outcome_or_is_refused(context)
    asked = {
        path
        for _, change in CONTEXTS.values()
        for path, *_ in leaves(Training.model_validate(tiny.BLOCK | BASE | change))
    }
    assert asked - NOT_HERE.keys() == set().union(*EFFECTIVE.values())


def test_every_block_of_the_schema_is_in_a_context() -> None:
    settings = [Training.model_validate(tiny.BLOCK | BASE | change) for _, change in CONTEXTS.values()]
    found = {type(value) for each in settings for *_, value in leaves(each) if isinstance(value, BaseModel)}
    assert found == {model for field in Training.model_fields.values() for model in models(field.annotation)}
