"""The authors' code adds a constant to p inside its logarithms: as `floor`, it gives their numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pipeline.core.errors import ConfigError
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import ROOT, close, double, golden, problem
from tests.schema import models

APL = {"proportion": 0.9, "warmup": 0.5, "target": "soft", "positive": 0.0}


def gr(given: dict[str, Any]) -> dict[str, Any]:
    pairs = {key: [given[key]] * 2 for key in ("w", "b", "mu", "sigma")}
    return {
        "belief": {"kind": "logistic", "weight": pairs["w"], "bias": pairs["b"]},
        "weight": {"kind": "gaussian", "mu": pairs["mu"], "sigma": pairs["sigma"]},
        **{key: given[key] for key in ("q1", "q2", "q3")},
        "schedule": "code",
        "hold": 0.0,
    }


READERS: dict[str, tuple[str, Callable[[dict[str, Any], float], dict[str, Any]]]] = {
    "an": ("an", lambda given, floor: {"floor": floor}),
    "an_ls": ("ls", lambda given, floor: {"eps": given["eps"], "half": given["half"], "floor": floor}),
    "bce_full": ("full", lambda given, floor: {"smoothing": given.get("smoothing", 0.0), "floor": floor}),
    "em": ("em", lambda given, floor: given | {"floor": floor}),
    "em_apl_loss": ("em_apl", lambda given, floor: given | APL | {"floor": floor}),
    "epr": ("epr", lambda given, floor: {"weight": 1.0, "floor": floor}),
    "gr_loss": ("gr", lambda given, floor: gr(given) | {"floor": floor}),
    "hill_gr": ("hill", lambda given, floor: {"lamb": given["lamb"], "positive": {"kind": "log", "floor": floor}}),
    "iun": ("iun", lambda given, floor: {"floor": floor}),
    "role": ("role", lambda given, floor: {"factor": 10.0, "floor": floor}),
    "wan": ("wan", lambda given, floor: {"weight": "published", "floor": floor}),
}
"""Golden file: the method, and its settings from those of a case and the authors' constant."""
STATE = {"theta": "guess", "soft": "soft", "selected": "since"}
"""Input of a case: what the method calls it."""
FILES = {
    path.stem: cases
    for path in (ROOT / "tests" / "goldens").glob("*.json")
    if (cases := [case for case in golden(path.stem) if "author_eps" in case.get("expected", {})])
}


def test_every_golden_file_with_the_authors_constant_is_read():
    text = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "goldens").glob("*.json")}
    assert {name: text[name].count('"author_eps"') for name in text if '"author_eps"' in text[name]} == {
        name: len(FILES[name]) for name in READERS
    }


def test_no_other_method_has_a_floor():
    parts = {name: models(base.load(name).Settings) for name in base.names()}
    having = {name for name in parts if any("floor" in model.model_fields for model in parts[name])}
    assert having == {method for method, _ in READERS.values()} | {"mime", "smile"}  # goldens of these have no constant


@pytest.mark.parametrize(
    ("name", "case"),
    [(name, case) for name in sorted(FILES) for case in FILES[name]],
    ids=lambda value: value["name"] if isinstance(value, dict) else value,
)
def test_golden_numbers_of_the_authors_code(name: str, case: dict[str, Any]):
    method_name, settings = READERS[name]
    given, expected = case.get("settings", {}), case["expected"]["author_eps"]
    observed = torch.tensor(case["observed"], dtype=torch.int8)
    if name == "bce_full":
        observed = torch.where(observed == 1, 1, -1).to(torch.int8)
    if name == "iun":
        observed = torch.where(torch.tensor(case["truth"]) == 0, -1, observed).to(torch.int8)
    rows, classes = observed.shape
    known = Problem(rows, ("",) * classes, observed.sum(0), given.get("expected_positives"))
    method = base.build(method_name, settings(given, expected["eps"]), known).double()
    state = method.state_dict()
    for key in STATE.keys() & case.keys():
        state[STATE[key]].copy_(double(case[key]))
    logits = double([case["logits"]]).requires_grad_()
    loss = torch.stack(list(method(Outputs(logits), observed, torch.arange(rows)).values())).sum()
    loss.backward()
    assert logits.grad is not None
    found = {"eps": expected["eps"], "loss": loss, "grad_logits": logits.grad[0]}
    if "grad_theta" in expected:
        found["grad_theta"] = method.get_parameter("guess").grad
    assert found.keys() == expected.keys()
    for key in found.keys() - {"eps"}:
        close(found[key], expected[key])


@pytest.mark.parametrize("floor", [-1e-5, 1.0])
@pytest.mark.parametrize("name", sorted(READERS))
def test_a_floor_outside_zero_and_one_is_refused_by_key(name: str, floor: float):
    method, settings = READERS[name]
    with pytest.raises(ConfigError, match=rf"params/methods/{method}\.yaml: (positive\.log\.)?floor: "):
        base.build(method, settings(FILES[name][0].get("settings", {}), floor), problem())
