"""Profiles: params.yaml as committed is the default; each file of profiles/ holds what differs and is laid over it.

Mappings merge, lists and values are replaced, an empty mapping ``{}`` empties the one below it (so that a profile can
drop the variants), and the default's variants of a dataset that the profile does not run are left out. What a profile
holds under ``methods`` is laid over the methods' files. Comments and number formats of the default survive. Anchors and
merges are written out: where two keys share a mapping, ``dvc exp run -S`` alters both, or neither.

params.yaml names its profile. The default is the working tree's where that is in force, and else that of the newest
commit whose params.yaml says so. Source: ours.
"""

import contextlib
import hashlib
import io
import re
import subprocess
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import Comment, CommentedMap, CommentedSeq, Format

from pipeline.config.params import METHODS, PARAMS, Params, method_file, parse_params
from pipeline.core.errors import ConfigError
from pipeline.core.yaml import parse_yaml

DEFAULT = "default"
WRITTEN = Path(".pipeline") / "profile.sha256"
"""SHA-256 and name of each file that was last written from a profile, so that it is known when that one was edited."""


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


def _parse(text: str, name: str) -> Any:
    """Return the content of a YAML mapping, as `_yaml` reads it.

    Raises:
        ConfigError: The text is not YAML, or no mapping.
    """
    if not isinstance(parse_yaml(text, name), dict):
        raise ConfigError(f"{name}: must be a mapping")
    return _unshared(_yaml().load(text))


def _unshared(node: Any) -> Any:
    """Return a node of YAML with a copy of its own at every path: anchors, aliases and merges are written out."""
    if not isinstance(node, CommentedMap | CommentedSeq):
        return node
    if isinstance(node, CommentedMap):
        copied: Any = CommentedMap((key, _unshared(value)) for key, value in node.items())
    else:
        copied = CommentedSeq(_unshared(value) for value in node)
    for attribute in (Comment.attrib, Format.attrib):
        if hasattr(node, attribute):
            setattr(copied, attribute, getattr(node, attribute))
    return copied


def _read(root: Path, name: str) -> Any:
    """Return the content of a profile's file; nothing differs in the default.

    Raises:
        ConfigError: There is no such file, or it is not a YAML mapping.
    """
    if name == DEFAULT:
        if (root / "profiles" / f"{DEFAULT}.yaml").exists():
            raise ConfigError(
                f"profiles/{DEFAULT}.yaml: the default is {PARAMS} as committed; give what differs a name of its own"
            )
        return {}
    path = root / "profiles" / f"{name}.yaml"
    if name not in names(root):  # no path that leads elsewhere, either
        raise ConfigError(f"profile `{name}`: no file profiles/{name}.yaml; there are: {', '.join(names(root))}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"profiles/{name}.yaml: not YAML 1.2: {error}") from error
    return _parse(text, f"profiles/{name}.yaml")


def names(root: Path) -> list[str]:
    """List the profiles.

    Args:
        root: Project root.

    Returns:
        Their names, the default first.
    """
    return [DEFAULT, *sorted({path.stem for path in (root / "profiles").glob("*.yaml")} - {DEFAULT})]


def covered(root: Path, name: str) -> list[str]:
    """List the methods' files that a profile is laid over.

    Args:
        root: Project root.
        name: Name of a profile.

    Returns:
        Their paths below the root.
    """
    methods = _read(root, name).get("methods")
    return [method_file(method) for method in methods] if isinstance(methods, dict) else []


# ---------------------------------------------------------------------------------------------- the default
def digest(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def written(root: Path) -> dict[str, str]:
    """Read which files were last written from a profile.

    Args:
        root: Project root.

    Returns:
        SHA-256 of what was written, by path below the root.
    """
    path = root / WRITTEN
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {file: sha for sha, _, file in (line.partition("  ") for line in lines)}


def in_force(text: str) -> str | None:
    """Return the name of the profile that a params.yaml says it was written from; None where it says none."""
    match = re.search(r"""^\{?["']?profile["']?:[ \t]*["']?([^\s"',}#]+)""", text, re.MULTILINE)  # JSON is YAML too
    return match[1] if match else None


def _git(root: Path, *words: str) -> str | None:
    """Return what a Git command prints, None where it fails or there is no Git."""
    try:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError, UnicodeDecodeError):
        return None


def committed(root: Path, file: str, commit: str = "HEAD") -> str | None:
    """Return a file of a commit.

    Args:
        root: Project root.
        file: Path of the file below the root.
        commit: The commit.

    Returns:
        The text; None where the commit lacks it, or there is no Git.
    """
    return _git(root, "show", f"{commit}:./{file}")


def default_commit(root: Path) -> str | None:
    """Find the newest commit whose params.yaml is the default.

    Args:
        root: Project root.

    Returns:
        A name of it for Git; None where there is none.
    """
    newest = "HEAD"
    for commit in (_git(root, "log", "--format=%H", "--", PARAMS) or "").split():
        if in_force(committed(root, PARAMS, commit) or "") == DEFAULT:
            still = in_force(committed(root, PARAMS, newest) or "") == DEFAULT  # not so where branches were merged
            return newest if still else commit
        newest = f"{commit}^"
    return None


def _texts(root: Path) -> dict[str, str]:
    """Return params.yaml and the methods' files of the working tree, by path below the root.

    Raises:
        ConfigError: One cannot be read.
    """
    files = [root / PARAMS, *sorted((root / METHODS).glob("*.yaml"))]
    try:
        return {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files if file.exists()}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{PARAMS} or a file of {METHODS} cannot be read: {error}") from error


def default_texts(root: Path, *, restore: bool = False) -> dict[str, str]:
    """Return the files that profiles are laid over.

    Args:
        root: Project root.
        restore: Whether params.yaml is that of a commit also where the working tree's says that it is the default.

    Returns:
        Texts of params.yaml and of the methods' files, by path below the root. Methods' files are the working tree's,
        but for those that the profile in force is laid over.

    Raises:
        ConfigError: A profile is in force and no commit has the default.
    """
    texts = _texts(root)
    now = in_force(texts.get(PARAMS, ""))
    hidden = {file for file, sha in written(root).items() if file in texts and digest(texts[file]) == sha} - {PARAMS}
    with contextlib.suppress(ConfigError):  # a profile that is gone or broken covers what was last written
        hidden |= {*covered(root, now or DEFAULT)}
    if now == DEFAULT and not hidden and not restore:
        return texts
    if (commit := default_commit(root)) is None:
        if now == DEFAULT and not hidden:
            return texts
        raise ConfigError(
            f"no commit has a {PARAMS} that says `profile: {DEFAULT}`, which profiles are laid over: get the history "
            f"of a shallow clone by `git fetch --unshallow`, or put the project's own {PARAMS} and {METHODS} here"
        )
    replaced = hidden if now == DEFAULT and not restore else hidden | {PARAMS}
    there = {file for file in replaced if file in texts or committed(root, file, commit) is not None}
    return texts | {file: _before(root, file, commit) for file in there}


def _before(root: Path, file: str, commit: str) -> str:
    """Return a file as it was before a profile was laid over it: that of the default's commit, or of the newest.

    Raises:
        ConfigError: No commit has it.
    """
    if (text := committed(root, file, commit)) is not None:
        return text
    newest = committed(root, file)  # of a method that is newer than the default's commit
    if newest is None or digest(newest) == written(root).get(file):
        kept = f"put it back from {file}.bak and " if (root / f"{file}.bak").is_file() else ""
        raise ConfigError(f"{file}: a profile is laid over it and no commit has it as it was before: {kept}commit that")
    return newest


# ---------------------------------------------------------------------------------------------- a profile over it
def overlay(base: Any, change: Any) -> None:
    """Lay a mapping over another, in place.

    Args:
        base: The full mapping, altered.
        change: What differs. A mapping merges, unless it is empty or names another ``kind`` or ``source``: then, as
            for a list or a value, it replaces what was there.
    """
    for key, value in change.items():
        old = base.get(key)
        mergeable = isinstance(value, dict) and isinstance(old, dict) and len(value) > 0
        if mergeable and all(value.get(tag, old.get(tag)) == old.get(tag) for tag in ("kind", "source")):
            overlay(old, value)
        else:
            base[key] = value


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


def compose(root: Path, name: str, raw: str | None = None, *, restore: bool = False) -> dict[str, str]:
    """Return the texts of params.yaml and of the methods' files that a profile stands for.

    Args:
        root: Project root.
        name: Name of a profile.
        raw: Raw data folder that replaces ``prepare.<dataset>.root``; None: as the profile says.
        restore: As in `default_texts`.

    Returns:
        The texts, by path below the root.

    Raises:
        ConfigError: The profile is unknown or not valid, or its datasets do not all read one folder (``raw``).
    """
    change = _read(root, name)
    texts = default_texts(root, restore=restore)
    content = _parse(texts[PARAMS], PARAMS)
    methods = change.pop("methods", None) or {}
    for key, block in {"methods": methods, **(methods if isinstance(methods, dict) else {})}.items():
        if not isinstance(block, dict):
            where = key if key == "methods" else f"methods.{key}"
            raise ConfigError(f"profiles/{name}.yaml: {where}: must be a mapping")
    if name != DEFAULT:
        overlay(content, change | {"profile": name})
        with contextlib.suppress(AttributeError, KeyError, TypeError):  # what is no mapping is named below
            _leave_out_variants(content, change)
    if raw is not None:
        _set_root(content, name, raw)
    if name != DEFAULT or raw is not None:
        texts[PARAMS] = _spaced(_dump(content))
    for method in methods:
        file = method_file(method)
        if file not in texts:
            raise ConfigError(f"profiles/{name}.yaml: methods.{method}: there is no {file} to lay it over")
        own = _parse(texts[file], file)
        overlay(own, methods[method])
        texts[file] = _dump(own)
    try:
        _checked(texts, name)
    except ConfigError as error:
        laid = tuple(f"{method_file(method)}:" for method in methods)
        lines = [f"{line} (profiles/{name}.yaml lies over it)" if line.startswith(laid) else line
                 for line in str(error).splitlines()]  # fmt: skip
        raise ConfigError("\n".join(lines)) from error
    return texts


def _set_root(content: Any, name: str, raw: str) -> None:
    blocks = blocks_with_root(content)
    if len({str(block["root"]) for block in blocks.values()}) != 1:
        found = ", ".join(f"{dataset} {block['root']}" for dataset, block in blocks.items()) or "none"
        raise ConfigError(f"--root: profile `{name}` must name one folder as prepare.<dataset>.root; has {found}")
    for block in blocks.values():
        block["root"] = raw


def _dump(content: Any) -> str:
    buffer = io.StringIO()
    _yaml().dump(content, buffer)
    return buffer.getvalue()


def _checked(texts: dict[str, str], name: str) -> Params:
    """Return the parameters that the texts hold.

    Raises:
        ConfigError: They are not valid.
    """
    plain = {file: parse_yaml(text, file) for file, text in texts.items()}
    methods = {Path(file).stem: content for file, content in plain.items() if file != PARAMS}
    return parse_params(plain[PARAMS], methods, f"profile `{name}`", whole=True)


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
    return _checked(compose(root, name, raw), name)


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
