"""Profiles: profiles/default.yaml is complete, every other one holds what differs and is laid over it.

Mappings merge, lists and values are replaced, an empty mapping ``{}`` empties the one below it (so that a profile can
drop the variants), and the default's variants of a dataset that the profile does not run are left out. Comments,
anchors and number formats of the default survive. Source: ours.
"""

import contextlib
import copy
import io
import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, YAMLError
from ruamel.yaml.comments import CommentedMap

from pipeline.config.params import Params, parse_params
from pipeline.core.errors import ConfigError

DEFAULT = "default"


def _yaml() -> YAML:
    """Return a reader and writer of YAML 1.2 that keeps comments, number formats and the order of keys."""
    yaml = YAML()
    yaml.width = 4096  # never breaks a line that its author did not break
    yaml.preserve_quotes = True
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.representer.add_representer(
        type(None), lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    return yaml


def _read(root: Path, name: str) -> tuple[str, Any]:
    """Return a profile's text and content.

    Raises:
        ConfigError: There is no such file, or it is not a YAML mapping.
    """
    path = root / "profiles" / f"{name}.yaml"
    if not path.is_file():
        there = ", ".join(names(root)) or "none"
        raise ConfigError(f"profile `{name}`: no file profiles/{name}.yaml; there are: {there}")
    try:
        text = path.read_text(encoding="utf-8")
        content = _yaml().load(text)
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise ConfigError(f"profiles/{name}.yaml: not YAML 1.2: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"profiles/{name}.yaml: must be a mapping of params sections")
    return text, content


def names(root: Path) -> list[str]:
    """List the profiles.

    Args:
        root: Project root.

    Returns:
        Their names, the default first.
    """
    found = sorted(path.stem for path in (root / "profiles").glob("*.yaml"))
    return sorted(found, key=lambda name: name != DEFAULT)


def overlay(base: Any, change: Any) -> None:
    """Lay a mapping over another, in place.

    Args:
        base: The full mapping, altered.
        change: What differs. A mapping merges, unless it is empty or names another ``kind`` or ``source``: then, as
            for a list or a value, it replaces what was there. What others share through a YAML anchor, or merge, stays
            as it is for them.
    """
    _overlay(base, change, _shared(base))


def _overlay(base: Any, change: Any, shared: set[int]) -> None:
    for key, value in change.items():
        old = base.get(key)
        mergeable = isinstance(value, dict) and isinstance(old, dict) and len(value) > 0
        if mergeable and all(value.get(tag, old.get(tag)) == old.get(tag) for tag in ("kind", "source")):
            if id(old) in shared:
                old = base[key] = copy.deepcopy(old)
            _overlay(old, value, shared)
        else:
            base[key] = value


def _shared(content: Any) -> set[int]:
    """Return the ids of the mappings that have an anchor, or that more than one path leads to."""
    seen: set[int] = set()
    shared: set[int] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if id(node) in seen or (isinstance(node, CommentedMap) and node.anchor.value):
                shared.add(id(node))
            seen.add(id(node))
            for value in node.values():
                walk(value)

    walk(content)
    return shared


def blocks_with_root(content: Any) -> dict[str, Any]:
    """Find the datasets of the grid that read a raw data folder.

    Args:
        content: Content of a params file.

    Returns:
        Their ``prepare`` blocks, by dataset.
    """
    prepare, grid = content.get("prepare"), content.get("grid")
    if not isinstance(prepare, dict) or not isinstance(grid, dict):
        return {}
    blocks = {name: prepare.get(name) for name in grid.get("datasets") or []}
    return {name: block for name, block in blocks.items() if isinstance(block, dict) and "root" in block}


def _leave_out_variants(content: Any, change: Any) -> None:
    """Delete variants that the default has and the change has not, of datasets that the grid does not run."""
    datasets, own = content["grid"]["datasets"], change.get("variants") or {}
    for stage, variants in content["variants"].items():
        for key in [key for key in variants if key not in (own.get(stage) or {})]:
            if variants[key]["dataset"] not in datasets:
                del variants[key]


def compose(root: Path, name: str, raw: str | None = None) -> str:
    """Return the text of params.yaml that a profile stands for.

    Args:
        root: Project root.
        name: Name of a profile.
        raw: Raw data folder that replaces ``prepare.<dataset>.root``; None: as the profile says.

    Returns:
        The text.

    Raises:
        ConfigError: The profile is unknown or not valid, or its datasets do not all read one folder (``raw``).
    """
    text, content = _read(root, DEFAULT)
    if name != DEFAULT:
        change = _read(root, name)[1]
        overlay(content, change)
        with contextlib.suppress(AttributeError, KeyError, TypeError):  # what is no mapping is named below
            _leave_out_variants(content, change)
    if raw is not None:
        blocks = blocks_with_root(content)
        if len({str(block["root"]) for block in blocks.values()}) != 1:
            found = ", ".join(f"{dataset} {block['root']}" for dataset, block in blocks.items()) or "none"
            raise ConfigError(f"--root: profile `{name}` must name one folder as prepare.<dataset>.root; has {found}")
        for block in blocks.values():
            block["root"] = raw
    if name != DEFAULT or raw is not None:
        buffer = io.StringIO()
        _yaml().dump(content, buffer)
        text = _spaced(buffer.getvalue())
    parse_params(YAML(typ="safe", pure=True).load(text), f"profile `{name}`")
    return text


def params(root: Path, name: str, raw: str | None = None) -> Params:
    """Return the parameters that a profile stands for.

    Args:
        root: Project root.
        name: Name of a profile.
        raw: As in `compose`.

    Returns:
        The checked parameters.

    Raises:
        ConfigError: As `compose`.
    """
    return parse_params(YAML(typ="safe", pure=True).load(compose(root, name, raw)), f"profile `{name}`")


def _spaced(text: str) -> str:
    """Return YAML with one blank line before each section and none before a block, where new blocks moved them."""
    if re.search(r"[:-] [|>][+-]?\d?[+-]?$", text, re.MULTILINE):  # a text of several lines may hold blank ones
        return text
    lines: list[str] = []
    for line in text.splitlines():
        if re.match(r"\w", line):
            start = len(lines)
            while start and lines[start - 1].startswith("#"):
                start -= 1
            if start and lines[start - 1]:
                lines.insert(start, "")
        elif re.match(r" +[^ #]", line) and lines and not lines[-1]:
            lines.pop()
        if line or (lines and lines[-1]):
            lines.append(line)
    return "\n".join(lines) + "\n"
