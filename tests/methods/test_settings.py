"""Every setting of a method has an effect, or is refused beside what makes it void: over the schemas of all methods."""

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import BaseModel
from torch import Tensor

from pipeline.core.errors import ConfigError
from pipeline.methods.shared import base
from tests import schema
from tests.methods.cases import B, C, N, any_labels, generator, method_cases, outputs, problem, single_positives

EPOCHS = 4
RUNNING = {"delta": 0.05, "arithmetic": "exact"}
FURTHER: dict[str, list[dict[str, Any]]] = {"ll_r": [RUNNING], "ll_ct": [RUNNING]}
ROUNDING = {("ll_r", ("arithmetic",)), ("ll_ct", ("arithmetic",))}
"""Its values differ at some deltas alone: 1 - 0.95 is more than 0.05 in floats, and so makes two cells of 20."""


def contexts(name: str) -> list[BaseModel]:
    """Settings beside which each one is changed: those that the shared suite tries, as the schema reads them."""
    blocks = [*(settings for known, settings in method_cases() if known == name), *FURTHER.get(name, [])]
    return [base.load(name).Settings.model_validate(block) for block in blocks]


def outcome(name: str, settings: dict[str, Any]) -> bytes:
    """All that a method gives the trainer in four epochs, on single positives and on labels of every kind, as bytes."""
    return b"".join(
        each.detach().numpy().tobytes()
        for labels in (single_positives(N), any_labels(N))
        for each in answers(name, settings, labels)
    )


def answers(name: str, settings: dict[str, Any], labels: Tensor) -> list[Tensor]:
    torch.manual_seed(0)
    method, given = base.build(name, settings, problem()).double(), []
    method.begin_training(labels)
    if "disk" in method.needs:
        method.open_disk(Path(tempfile.mkdtemp()))
    groups = method.parameter_groups(0.1)
    given += [torch.tensor([group["lr"] for group in groups])]
    for epoch in range(1, EPOCHS + 1):
        method.begin_epoch(epoch, EPOCHS)
        drawn = 3 * torch.randn(len(method.views), N, C, generator=generator(epoch), dtype=torch.float64)
        for index in torch.arange(N).split(B):
            answer = outputs(method, drawn[:, index], seed=epoch)
            terms = method(answer, labels[index], index)
            leaves = [each for group in groups for each in group["params"]]
            leaves += [each for each in vars(answer).values() if isinstance(each, Tensor) and each.requires_grad]
            slopes = torch.autograd.grad(torch.stack(list(terms.values())).sum(), leaves, allow_unused=True)
            given += [*terms.values(), *(each for each in slopes if each is not None)]
        if "epoch_logits" in method.needs:
            method.end_epoch(drawn[0], labels)
        method.flush()
        named = method.pseudo_labels(drawn[0], labels, torch.arange(N))
        given += [*([] if named is None else [named]), *method.state_dict().values()]
    return given


def changes(name: str, settings: BaseModel) -> list[tuple[schema.Path, Any]]:
    """Each setting with other values: others of its kind, and what it is in another context of the method."""
    held = [{path: value for path, _, value in schema.leaves(each)} for each in contexts(name)]
    found: list[tuple[schema.Path, Any]] = []
    for path, kind, value in schema.leaves(settings):
        if path[-1] == "kind":
            continue  # whole blocks stand for it
        values = [*schema.others(kind, value), *(each[path] for each in held if path in each)]
        found += [(path, dump(other)) for other in values if other != value]
    return found


def dump(value: Any) -> Any:
    return value.model_dump() if isinstance(value, BaseModel) else value


def effect(name: str, block: dict[str, Any], before: bytes, change: tuple[schema.Path, Any]) -> bool | None:
    """Whether a changed setting changes the outcome; None where it is refused, by a message that names it."""
    try:
        return outcome(name, schema.replaced(block, *change)) != before
    except ConfigError as error:
        assert change[0][-1] in str(error)
        return None


def is_void_by_a_number(name: str, settings: BaseModel, change: tuple[schema.Path, Any]) -> bool:
    """Whether it has an effect once a number at the end of its range, a weight of 0, say, is moved inside."""
    ends = [path for path, kind, value in schema.leaves(settings) if kind is not bool and value in (0, 1)]
    for path, middle in ((path, middle) for path in ends if path != change[0] for middle in (0.5, 0.05, 7)):
        inside = schema.replaced(settings.model_dump(), path, middle)
        with suppress(ConfigError):
            if effect(name, inside, outcome(name, inside), change):
                return True
    return False


@pytest.mark.parametrize("name", base.names())
def test_a_changed_setting_changes_the_outcome_or_is_refused(name: str) -> None:
    effective: set[schema.Path] = set()
    void = []
    for settings in contexts(name):
        block = settings.model_dump()
        before, tried = outcome(name, block), changes(name, settings)
        assert outcome(name, block) == before
        for path in dict.fromkeys(path for path, _ in tried):
            values, found = [change for change in tried if change[0] == path], set()
            for change in values:  # one value with an effect is enough
                found.add(effect(name, block, before, change))
                if True in found:
                    effective.add(path)
                    break
            if found <= {False, None} and False in found and (name, path) not in ROUNDING:
                void += [(block, path)] * (not any(is_void_by_a_number(name, settings, each) for each in values))
    assert void == []
    parts = [leaf for settings in contexts(name) for leaf in schema.leaves(settings)]
    assert {path for path, *_ in parts if path[-1] != "kind"} == effective
    blocks = {type(value) for *_, value in parts} | {base.load(name).Settings}
    assert set(schema.models(base.load(name).Settings)) <= blocks
