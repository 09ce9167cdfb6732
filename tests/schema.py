"""What a schema of settings admits, so that tests can change each setting of any block."""

import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

Path = tuple[str, ...]


def models(kind: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation admits, with those of their parts."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
        for field in kind.model_fields.values():
            yield from models(field.annotation)
    for each in get_args(kind):
        yield from models(each)


def leaves(block: BaseModel, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """Path, annotation and value of each setting of a block, those of its parts included."""
    for key, field in type(block).model_fields.items():
        value = getattr(block, key)
        yield (*path, key), field.annotation, value
        if isinstance(value, BaseModel):
            yield from leaves(value, (*path, key))


def others(kind: Any, value: Any) -> list[Any]:
    """Values of another kind or far from the given one that an annotation admits, or may."""
    if get_origin(kind) is Literal:
        return [each for each in get_args(kind) if each != value]
    if get_origin(kind) in (Union, types.UnionType):
        parts = [each for each in get_args(kind) if each is not type(None)]
        found = [each for part in parts for each in others(part, value) if each != value]
        return [*found, *([None] if value is not None and type(None) in get_args(kind) else [])]
    if get_origin(kind) is tuple:
        return [[0.1, 0.6]]
    if get_args(kind) and hasattr(kind, "__metadata__"):
        return others(get_args(kind)[0], value)
    if kind is bool:
        return [not value]
    if kind is int:
        return [2 * value, value // 2] if isinstance(value, int) and value else [4]  # of heads and widths some fit
    if kind is float:
        return [value / 4, 4 * value, (value + 1) / 2] if isinstance(value, float) and value else [0.5]
    if get_origin(kind) is list:
        kinds = {(str,): [["layers.1"], []], (Literal["none", "unit"],): [["none", "unit"], ["unit", "none"]]}
        return kinds.get(get_args(kind), [[0.05], [0.05, 0.3]])
    return []


def replaced(block: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """A block with one setting changed."""
    return block | {path[0]: replaced(block[path[0]], path[1:], value) if len(path) > 1 else value}
