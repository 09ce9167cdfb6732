"""Write params.yaml from a profile: ``spml profile NAME [--root FOLDER] [--force]``.

`pipeline.config.profiles` says what a profile is. ``--root`` names the folder of the raw data. A method's file in
params/methods is written too where the profile changes it, or where the one in force did.
Nothing is written, with exit status 1, when one of these files holds an edit that neither a commit nor a profile has,
and is not what this command wrote last.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from pipeline.cli.verbs import Verbs
from pipeline.config import profiles
from pipeline.config.params import PARAMS
from pipeline.core.errors import ConfigError
from pipeline.core.files import write_text
from pipeline.core.yaml import parse_yaml


def is_kept_elsewhere(root: Path, file: str, text: str) -> bool:
    """Tell whether a file was written from a profile, or can be had again from a commit or its profile.

    Args:
        root: Project root.
        file: Path of params.yaml or of a method's file below the root.
        text: Its content.

    Returns:
        Whether no edit would be lost by overwriting it.
    """
    commit = profiles.default_commit(root)
    if text in (profiles.committed(root, file), commit and profiles.committed(root, file, commit)):
        return True
    whole = (root / PARAMS).read_text(encoding="utf-8") if (root / PARAMS).exists() else ""
    name = profiles.in_force(whole)
    if name == profiles.DEFAULT and file == PARAMS:  # what profiles are laid over: nothing could make it anew
        return False
    if profiles.written(root).get(file) == profiles.digest(text):
        return True
    if name in (None, profiles.DEFAULT) or file not in (PARAMS, *profiles.covered(root, name)):
        return False  # a file that the profile is not laid over is composed of itself
    try:
        blocks = profiles.blocks_with_root(parse_yaml(whole, PARAMS))
    except (ConfigError, AttributeError):  # not YAML, or not a mapping of mappings: certainly an edit
        return False
    for raw in (None, *{str(block["root"]) for block in blocks.values()}):
        try:
            if profiles.compose(root, name, raw).get(file) == text:
                return True
        except ConfigError:  # a profile that is broken, or reads no folder, holds nothing of this text
            continue
    return False


def apply(root: Path, name: str, raw: str | None = None, *, force: bool = False) -> list[str]:
    """Write params.yaml, and the methods' files that differ, from a profile.

    Args:
        root: Project root.
        name: Name of a profile.
        raw: Raw data folder, or None.
        force: Overwrite edits that are kept nowhere else, after copies to <file>.bak.

    Returns:
        Paths below the root of the files that it wrote anew.

    Raises:
        ConfigError: The profile is not valid, the folder is absent, or edits would be lost. Nothing was changed.
    """
    if raw is not None and not (root / Path(raw).expanduser()).is_dir():
        raise ConfigError(f"--root: {raw} is not a folder")
    texts = profiles.compose(root, name, raw, restore=name == profiles.DEFAULT)
    _require_root(root, name, texts[PARAMS])
    now = {file: (root / file).read_text(encoding="utf-8") for file in texts if (root / file).exists()}
    changed = [file for file, text in texts.items() if now.get(file) != text]
    edited = [file for file in changed if file in now and not is_kept_elsewhere(root, file, now[file])]
    if edited and not force:
        raise ConfigError(
            f"{' and '.join(edited)} {'holds' if len(edited) == 1 else 'hold'} edits that neither a commit nor a "
            f"profile has, and profile `{name}` would overwrite them. Keep them as profiles/<name>.yaml or commit "
            f"them; or run `spml profile {name} --force`, which copies each to <file>.bak first: {', '.join(edited)}."
        )
    for file in edited:
        write_text(_backup(root, file, now[file]), now[file])
    for file in changed:
        write_text(root / file, texts[file])
    laid = [PARAMS, *profiles.covered(root, name)]
    write_text(root / profiles.WRITTEN, "".join(f"{profiles.digest(texts[file])}  {file}\n" for file in laid))
    return changed


def _backup(root: Path, file: str, text: str) -> Path:
    """Return the first of <file>.bak, <file>.bak2, ... that is absent or holds the text already."""
    path, number = root / f"{file}.bak", 1
    while path.exists() and path.read_bytes() != text.encode():
        number += 1
        path = root / f"{file}.bak{number}"
    return path


def _require_root(root: Path, name: str, text: str) -> None:
    """Require the folders of raw data that a params.yaml names.

    Raises:
        ConfigError: One is absent.
    """
    content = parse_yaml(text, PARAMS)
    for dataset, block in profiles.blocks_with_root(content).items():
        if dataset in content["grid"]["datasets"] and not (root / Path(block["root"]).expanduser()).is_dir():
            raise ConfigError(
                f"prepare.{dataset}.root: {block['root']} is not a folder; name that of the raw data with --root "
                f"(make repro PROFILE={name} ROOT=<folder>)"
            )


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser("profile", help="write params.yaml from a profile")
    parser.add_argument("name", help="a file of profiles/, without .yaml")
    parser.add_argument("--root", metavar="FOLDER", help="folder of the raw data: replaces prepare.<dataset>.root")
    parser.add_argument("--force", action="store_true", help="overwrite edits, after a copy of each file to <file>.bak")
    return parser


def run(options: argparse.Namespace) -> Iterator[str]:
    """Write params.yaml.

    Args:
        options: What the parser read.

    Yields:
        What was written.
    """
    changed = apply(Path(), options.name, options.root, force=options.force)
    where = f", raw data in {options.root}" if options.root else ""
    yield f"profile {options.name}{where}: {'wrote ' + ', '.join(changed) if changed else 'already in force'}"
