"""Write params.yaml from a profile: ``python -m stages.profile NAME [--root FOLDER] [--force]``.

profiles/default.yaml is complete. Every other profile holds what differs and is laid over it: mappings merge, lists
and values are replaced, an empty mapping ``{}`` empties the one below it (so that a profile can drop the variants), and
the default's variants of a dataset that the profile does not run are left out. Comments, anchors and number formats of
the default survive. ``--root`` names the folder of the raw data.
params.yaml is left alone, with exit status 1, when it holds an edit that neither the last commit nor a profile has, and
is not what this command wrote last.
"""

import argparse
import contextlib
import copy
import hashlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, YAMLError
from ruamel.yaml.comments import CommentedMap

from pipeline.config import ConfigError, parse
from pipeline.storage import write_text

PARAMS = "params.yaml"
DEFAULT = "default"
WRITTEN = Path(".pipeline") / "profile.sha256"
"""Hash of the text that was last written, so that an edited profile may replace what it wrote before."""


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
        names = ", ".join(profiles(root)) or "none"
        raise ConfigError(f"profile `{name}`: no file profiles/{name}.yaml; there are: {names}")
    text = path.read_text(encoding="utf-8")
    try:
        content = _yaml().load(text)
    except YAMLError as error:
        raise ConfigError(f"profiles/{name}.yaml: not YAML 1.2: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"profiles/{name}.yaml: must be a mapping of params sections")
    return text, content


def profiles(root: Path) -> list[str]:
    """Return the names of the profiles under ``root``, the default first."""
    names = sorted(path.stem for path in (root / "profiles").glob("*.yaml"))
    return sorted(names, key=lambda name: name != DEFAULT)


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


def _blocks_with_root(content: Any) -> dict[str, Any]:
    """Return the ``prepare`` blocks of the grid's datasets that read a raw data folder, by dataset."""
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
        blocks = _blocks_with_root(content)
        if len({str(block["root"]) for block in blocks.values()}) != 1:
            found = ", ".join(f"{dataset} {block['root']}" for dataset, block in blocks.items()) or "none"
            raise ConfigError(f"--root: profile `{name}` must name one folder as prepare.<dataset>.root; has {found}")
        for block in blocks.values():
            block["root"] = raw
    if name != DEFAULT or raw is not None:
        buffer = io.StringIO()
        _yaml().dump(content, buffer)
        text = buffer.getvalue()
    parse(YAML(typ="safe", pure=True).load(text), f"profile `{name}`")
    return text


def _committed(root: Path) -> str | None:
    """Return params.yaml of the last commit; None without a commit or Git."""
    try:
        shown = subprocess.run(["git", "show", f"HEAD:./{PARAMS}"], cwd=root, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return shown.stdout.decode()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _is_as_written(root: Path, text: str) -> bool:
    """Tell whether a params file was written here.

    Returns:
        Whether it is the last text that was written.
    """
    path = root / WRITTEN
    return path.is_file() and path.read_text(encoding="utf-8").strip() == _hash(text)


def is_kept_elsewhere(root: Path, text: str) -> bool:
    """Tell whether a params file was made from a profile, or can be had again from the last commit or a profile.

    Args:
        root: Project root.
        text: Content of the params file.

    Returns:
        Whether no edit would be lost by overwriting it.
    """
    if _is_as_written(root, text) or text == _committed(root):
        return True
    try:
        roots = {str(block["root"]) for block in _blocks_with_root(YAML(typ="safe", pure=True).load(text)).values()}
    except (YAMLError, AttributeError):  # not YAML, or not a mapping of mappings: certainly an edit
        return False
    for name in profiles(root):
        for raw in (None, *roots):
            try:
                if compose(root, name, raw) == text:
                    return True
            except ConfigError:  # a profile that is broken, or reads no folder, holds nothing of this text
                continue
    return False


def apply(root: Path, name: str, raw: str | None = None, *, force: bool = False) -> None:
    """Write params.yaml from a profile.

    Args:
        root: Project root.
        name: Name of a profile.
        raw: Raw data folder, or None.
        force: Overwrite edits that are kept nowhere else, after a copy to params.yaml.bak.

    Raises:
        ConfigError: The profile is not valid, the folder is absent, or edits would be lost. Nothing was changed.
    """
    if raw is not None and not (root / Path(raw).expanduser()).is_dir():
        raise ConfigError(f"--root: {raw} is not a folder")
    text = compose(root, name, raw)
    content = YAML(typ="safe", pure=True).load(text)
    for dataset, block in _blocks_with_root(content).items():
        if dataset in content["grid"]["datasets"] and not (root / Path(block["root"]).expanduser()).is_dir():
            raise ConfigError(
                f"prepare.{dataset}.root: {block['root']} is not a folder; name that of the raw data with --root "
                f"(make repro PROFILE={name} ROOT=<folder>)"
            )
    path = root / PARAMS
    now = path.read_text(encoding="utf-8") if path.exists() else None
    if now != text and now is not None and not is_kept_elsewhere(root, now):
        if not force:
            raise ConfigError(
                f"{PARAMS} holds edits that neither the last commit nor a profile has, and profile `{name}` would "
                f"overwrite them. Keep them as profiles/<name>.yaml or commit them; or run "
                f"`python -m stages.profile {name} --force`, which copies them to {PARAMS}.bak first."
            )
        write_text(root / f"{PARAMS}.bak", now)
    if now != text:
        write_text(path, text)
    write_text(root / WRITTEN, f"{_hash(text)}\n")


def main(argv: list[str] | None = None) -> int:
    """Return the exit status of the command line."""
    parser = argparse.ArgumentParser(prog="python -m stages.profile", description="Write params.yaml from a profile.")
    parser.add_argument("name", help="a file of profiles/, without .yaml")
    parser.add_argument("--root", metavar="FOLDER", help="folder of the raw data: replaces prepare.<dataset>.root")
    parser.add_argument("--force", action="store_true", help=f"overwrite edits, after a copy to {PARAMS}.bak")
    options = parser.parse_args(argv)
    try:
        apply(Path("."), options.name, options.root, force=options.force)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{PARAMS}: profile {options.name}" + (f", raw data in {options.root}" if options.root else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
