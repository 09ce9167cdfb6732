"""Write params.yaml from a profile: ``spml profile NAME [--root FOLDER] [--force]``.

`pipeline.config.profiles` says what a profile is. ``--root`` names the folder of the raw data.
params.yaml is left alone, with exit status 1, when it holds an edit that neither the last commit nor a profile has, and
is not what this command wrote last.
"""

import argparse
import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ruamel.yaml import YAML, YAMLError

from pipeline.cli.verbs import Verbs
from pipeline.config import profiles
from pipeline.core.errors import ConfigError
from pipeline.core.files import write_text

PARAMS = "params.yaml"
WRITTEN = Path(".pipeline") / "profile.sha256"
"""Hash of the text that was last written, so that an edited profile may replace what it wrote before."""


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
        blocks = profiles.blocks_with_root(YAML(typ="safe", pure=True).load(text))
        roots = {str(block["root"]) for block in blocks.values()}
    except (YAMLError, AttributeError):  # not YAML, or not a mapping of mappings: certainly an edit
        return False
    for name in profiles.names(root):
        for raw in (None, *roots):
            try:
                if profiles.compose(root, name, raw) == text:
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
    text = profiles.compose(root, name, raw)
    content = YAML(typ="safe", pure=True).load(text)
    for dataset, block in profiles.blocks_with_root(content).items():
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
                f"`spml profile {name} --force`, which copies them to {PARAMS}.bak first."
            )
        write_text(root / f"{PARAMS}.bak", now)
    if now != text:
        write_text(path, text)
    write_text(root / WRITTEN, f"{_hash(text)}\n")


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser("profile", help="write params.yaml from a profile")
    parser.add_argument("name", help="a file of profiles/, without .yaml")
    parser.add_argument("--root", metavar="FOLDER", help="folder of the raw data: replaces prepare.<dataset>.root")
    parser.add_argument("--force", action="store_true", help="overwrite edits, after a copy to params.yaml.bak")
    return parser


def run(options: argparse.Namespace) -> Iterator[str]:
    """Write params.yaml.

    Args:
        options: What the parser read.

    Yields:
        What was written.
    """
    apply(Path(), options.name, options.root, force=options.force)
    yield f"params.yaml: profile {options.name}" + (f", raw data in {options.root}" if options.root else "")
