"""Base of every settings schema: strict pydantic models, errors in words, one mapping laid over another."""

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

SHOWN = 60
"""Characters of a value that a message shows; a longer one is a whole block."""


NAME = re.compile(r"[a-z][a-z0-9_]*")


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
        key = ".".join(str(part) for part in (prefix, *fault["loc"]) if part != "" and not str(part).startswith("["))
        if fault["type"] == "value_error":
            reason = str(fault.get("ctx", {})["error"])
            lines.append(f"{key}{'.' if re.match('[a-z0-9_.]+: ', reason) else ': '}{reason}")
            continue
        given = repr(fault["input"])
        hidden = fault["type"] == "missing" or len(given) > SHOWN
        lines.append(f"{key}: {fault['msg']}{'' if hidden else f' (given: {given})'}")
    return "\n".join(lines)
