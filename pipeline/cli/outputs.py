"""Find what a stage wrote, in the work tree or as of an earlier commit, without a checkout."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.core.errors import FileError


@dataclass(frozen=True)
class Output:
    """One file that a stage wrote.

    Attributes:
        name: Its path in the project, with ``/``.
        file: Where its content lies: the same path, an object of DVC's cache, or a copy of what neither holds.
    """

    name: str
    file: Path


def find_in_work_tree(path: Path) -> list[Output]:
    """Find files of the work tree.

    Args:
        path: A file or a folder.

    Returns:
        The file, or all files under the folder, by name.

    Raises:
        FileError: There is nothing at ``path``.
    """
    if path.is_file():
        return [Output(path.as_posix(), path)]
    if not path.is_dir():
        raise FileError(f"{path}: no such file or folder; `dvc checkout` restores outputs, `dvc repro` makes them")
    return [Output(file.as_posix(), file) for file in sorted(path.rglob("*")) if file.is_file() and _shown(file)]


def find_in_commit(path: Path, revision: str, copies: Path) -> list[Output]:
    """Find files of a commit, those that DVC's cache or remote holds too.

    Args:
        path: A file or a folder, relative to the current folder.
        revision: Commit, branch or tag.
        copies: Folder for copies of what does not lie in DVC's cache.

    Returns:
        The file, or all files under the folder, by name.

    Raises:
        FileError: The revision is unknown, nothing was recorded there, it does not hold the path, or nobody has the
            content any more.
    """
    from dvc.api import DVCFileSystem  # takes a second to import
    from dvc.exceptions import DvcException
    from scmrepo.exceptions import SCMError

    if not revision.strip():
        raise FileError("--rev: names no commit")
    root = _project_root(Path.cwd())
    if not (absolute := Path(os.path.normpath(Path.cwd() / path))).is_relative_to(root):
        raise FileError(f"{path}: lies outside the project {root}")
    name = absolute.relative_to(root).as_posix()
    try:
        files = DVCFileSystem(str(root), rev=revision)
        if "dvc.lock" not in files.ls("", detail=False):  # `isfile` would hide that the revision is unknown
            raise FileError(f"--rev {revision}: this commit has no dvc.lock, so nothing was run and recorded there")
        found = sorted(file for file in files.find(name) if _shown(PurePosixPath(file)))
        if not found:
            raise FileError(f"{name}: {revision} has no such output; {_beside(files, name)}")
        return [Output(file, _fetch(files, file, revision, copies)) for file in found]
    except (DvcException, SCMError) as error:
        raise FileError(f"--rev {revision}: {error}") from error


def _project_root(path: Path) -> Path:
    """Return the nearest folder at or above ``path`` that DVC knows as a project.

    Raises:
        FileError: There is none.
    """
    for folder in (path, *path.parents):
        if (folder / ".dvc").is_dir():
            return folder
    raise FileError(f"{path}: not inside a DVC project (no folder .dvc here or above)")


def _shown(file: Path | PurePosixPath) -> bool:
    return not file.name.startswith(".")


def _beside(files: Any, name: str) -> str:
    """Return what a commit has beside a path, or at its top, for a message."""
    parent = PurePosixPath(name).parent.as_posix()
    where, folder = ("beside it: ", parent) if files.isdir(parent) and parent != "." else ("it has ", "")
    entries = [entry for entry in files.ls(folder, detail=True) if _shown(PurePosixPath(entry["name"]))]
    return where + ", ".join(sorted(entry["name"] + "/" * (entry["type"] == "directory") for entry in entries))


def _fetch(files: Any, name: str, revision: str, copies: Path) -> Path:
    """Return where the content of a commit's file lies: in DVC's cache, else in a copy.

    Raises:
        FileError: Neither Git nor DVC's cache nor a remote has it.
    """
    try:
        with files.open(name, "rb") as content:
            cached = getattr(content, "name", None)
            if isinstance(cached, str) and os.path.isfile(cached):
                return Path(cached)
            copy = copies / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            with open(copy, "wb") as file:
                shutil.copyfileobj(content, file)
            return copy
    except FileNotFoundError as error:
        digest = files.info(name).get("md5")
        raise FileError(
            f"{name} of {revision}: its content (MD5 {digest}) is not in DVC's cache. `dvc fetch --all-commits` "
            f"brings it from a remote; without one, `git checkout {revision}` and `dvc repro` make it again."
        ) from error
