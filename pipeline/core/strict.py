"""Base of every settings schema: strict pydantic models, errors in words, one mapping laid over another."""

import json
import re
from math import isfinite
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

SHOWN = 60
"""Characters of a value that a message shows; a longer one is a whole block."""


NAME = re.compile(r"[a-z][a-z0-9_]*")


PLAIN = re.compile(r"(?!(?:null|true|false)$)[A-Za-z_][\w./+-]*(?: [\w./+-]+)*", re.ASCII)
"""Texts that YAML takes as they are; others are quoted."""


BRANCH = re.compile(r"|\[.*\]|(constrained-|literal\[|function-|tuple\[|list\[|dict\[).*|float|int|str|bool")
"""What pydantic puts into a key for the kind of value that it tried."""


PYTHON = {
    r"\bNone\b": "null",
    r"\bTrue\b": "true",
    r"\bFalse\b": "false",
    r"a valid dictionary( or object to extract fields from| or instance of \w+)?$": "a block of keys",
    r"a valid (tuple|list)$": "a list",
    r"\b(Tuple|List|Dictionary) should have": "It should have",
}
"""What pydantic calls by Python's names, and YAML's word."""


Fraction = Annotated[float, Field(ge=0, le=1)]


Positive = Annotated[float, Field(gt=0)]


Count = Annotated[int, Field(ge=1)]


class Strict(BaseModel):
    """Base of every settings block: unknown keys, missing keys and silent type changes are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Overlay one mapping on another: mappings merge, everything else is replaced; neither is altered.

    Args:
        base: The full mapping.
        change: What differs. A mapping whose ``kind`` or ``source`` differs replaces the base's whole.

    Returns:
        The merged mapping.
    """
    result = dict(base)
    for key, value in change.items():
        old = result.get(key)
        result[key] = value
        if isinstance(old, dict) and isinstance(value, dict):
            if all(value.get(tag, old.get(tag)) == old.get(tag) for tag in ("kind", "source")):
                result[key] = merge(old, value)
    return result


def explain(error: ValidationError, prefix: str) -> str:
    """Return a pydantic error in words.

    Args:
        error: What a schema raised. A fault of several keys, which a validator of ours found, says itself which key it
            is about and what was given: ``key: reason``.
        prefix: Dotted path of what was checked.

    Returns:
        One line a fault: its key, the reason, and the value that was given where it is short.
    """
    lines = []
    for fault in error.errors():
        key = ".".join(str(part) for part in (prefix, *fault["loc"]) if not BRANCH.fullmatch(str(part)))
        if fault["type"] == "value_error":
            reason = str(fault.get("ctx", {})["error"])
            lines.append(f"{key}{'.' if re.match('[a-z0-9_.]+: ', reason) else ': '}{reason}")
            continue
        hidden = fault["type"] == "missing" or len(show_value(fault["input"])) > SHOWN
        lines.append(f"{key}: {_in_words(fault['msg'])}{'' if hidden else ' ' + given(fault['input'])}")
    return "\n".join(lines)


def given(value: Any) -> str:
    """Return the end of a message about a setting: what was given, as YAML has it."""
    return f"(given: {show_value(value)})"


def each_once(values: list[Any]) -> list[Any]:
    """Return a list whose entries differ, as a validator of lists does.

    Args:
        values: Its entries.

    Raises:
        ValueError: Two are equal.
    """
    if any(values.count(value) > 1 for value in values):
        raise ValueError(f"names an entry twice {given(values)}")
    return values


def show_value(value: Any) -> str:
    """Return a setting as YAML has it on one line, as it stands or might stand in params.yaml."""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{show_value(key)}: {show_value(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(show_value, value))}]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, float) and isfinite(value):
        digits = repr(value)  # 1e-05 would be no number to other readers of YAML
        return digits if "." in digits or "e" not in digits else digits.replace("e", ".0e")
    if isinstance(value, float):
        return {"inf": ".inf", "-inf": "-.inf"}.get(str(value), ".nan")
    text = str(value)
    return text if not isinstance(value, str) or PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _in_words(message: str) -> str:
    """Return a message of pydantic without words of Python."""
    for python, word in PYTHON.items():
        message = re.sub(python, word, message)
    return message
