"""Messages about settings: values as YAML has them, what they are about once."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from pipeline.config.params import _SECTIONS
from pipeline.core.strict import explain, show_value
from pipeline.core.text import prefixed
from pipeline.methods.shared import base
from tests import tiny
from tests.methods.cases import method_cases

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -3,
    0.0,
    1.5,
    1e-5,
    1e22,
    2.5e-7,
    float("inf"),
    "an",
    "a b",
    "null",
    "true",
    "",
]
VALUES += [
    "1e-5",
    "a: b",
    "#x",
    "-",
    "it's",
    'say "no"',
    "é\n",
    [1.0, None],
    (True, "x y"),
    {"kind": "log", "floor": 0.0},
    {},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_is_shown_as_yaml_reads_it(value: Any) -> None:
    text = show_value(value)
    assert "\n" not in text
    read = YAML(typ="safe", pure=True).load(f"x: {text}")["x"]
    expected = list(value) if isinstance(value, tuple) else value
    assert read == expected and type(read) is type(expected)


def messages() -> dict[str, str]:
    """What every schema says of every key given a value of each kind."""
    named: list[tuple[str, Any, dict[str, Any]]] = [("finetune", _SECTIONS["finetune"].validate_python, tiny.BLOCK)]
    named += [(name, base.load(name).Settings.model_validate, block) for name, block in method_cases()]
    found = {}
    for name, validate, block in named:
        for key in block:
            for value in (None, True, "no such word", [1.0, None], {"a": True}, -7.5, float("inf")):
                try:
                    validate(block | {key: value})
                except ValidationError as error:
                    found[f"{name}.{key}: {value!r}"] = explain(error, name)
    return found


def test_no_message_speaks_python() -> None:
    found = messages()
    assert len(found) > 500
    assert {
        case: text for case, text in found.items() if re.search(r"\b(None|True|False)\b|dictionary|tuple|'\]", text)
    } == {}


def test_rules_of_ours_show_values_so_too(repository: Path) -> None:
    """Beside those of the environment and of docstrings, which are no YAML."""
    other = {"pipeline/core/device.py", "pipeline/cli/methods.py", "pipeline/core/strict.py"}
    other.add("pipeline/training/tracking.py")
    found = {
        path.relative_to(repository).as_posix()
        for path in (repository / "pipeline").rglob("*.py")
        if re.search(r"\(given: \{", path.read_text(encoding="utf-8"))
    }
    assert found - other == set()


@pytest.mark.parametrize(
    ("prefix", "text", "expected"),
    [
        ("linear_init", "linear_init.default.search: x", "linear_init.default.search: x"),
        ("audit", "digits: x", "audit: digits: x"),
        ("lac", "lac_start: x", "lac: lac_start: x"),
        ("params/methods/em.yaml", "params/methods/em.yaml: x", "params/methods/em.yaml: x"),
        ("simulate", "simulate@digits: x", "simulate@digits: x"),
    ],
)
def test_a_message_names_what_it_is_about_once(prefix: str, text: str, expected: str) -> None:
    assert prefixed(prefix, text) == expected
