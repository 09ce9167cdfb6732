"""Show what a stage wrote, also as of an earlier commit: files become lines of text.

An earlier commit's output is found through that commit's dvc.lock in DVC's cache and read in place; the work tree and
the cache stay as they are.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from ruamel.yaml import YAML, YAMLError

from pipeline.core import hdf5
from pipeline.core.errors import FileError
from pipeline.core.files import read_json, read_torch, read_tsv

COLUMNS = 8
"""Values shown of a row; the rest is counted."""


@dataclass(frozen=True)
class Output:
    """One file that a stage wrote.

    Attributes:
        name: Its path in the project, with ``/``.
        place: Where its content lies: the same path, or an object of DVC's cache.
        content: The content itself where Git holds it; None: read ``place``.
    """

    name: str
    place: Path
    content: bytes | None = None


# ---------------------------------------------------------------------------------------------- where it lies
def project_root(path: Path) -> Path:
    """Return the nearest folder at or above ``path`` that DVC knows as a project.

    Raises:
        FileError: There is none.
    """
    for folder in (path, *path.parents):
        if (folder / ".dvc").is_dir():
            return folder
    raise FileError(f"{path}: not inside a DVC project (no folder .dvc here or above)")


def in_work_tree(path: Path) -> list[Output]:
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
    files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
    return [Output(file.as_posix(), file) for file in files]


def _git_show(root: Path, revision: str, name: str) -> bytes | None:
    """Return a file of a commit, None where the commit has no such file.

    Raises:
        FileError: Git does not know the revision.
    """

    def git(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["git", *words], cwd=root, capture_output=True)

    if git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", "--").returncode:
        raise FileError(f"--rev {revision}: Git knows no such commit, branch or tag here")
    shown = git("show", f"{revision}:./{name}")
    return None if shown.returncode else shown.stdout


def _locked(root: Path, revision: str) -> dict[str, str]:
    """Return path -> MD5 of all outs in a commit's dvc.lock.

    Raises:
        FileError: The commit has no dvc.lock, or one that does not parse.
    """
    text = _git_show(root, revision, "dvc.lock")
    if text is None:
        raise FileError(f"--rev {revision}: this commit has no dvc.lock, so nothing was run and recorded there")
    try:
        lock = YAML(typ="safe", pure=True).load(text.decode())
        return {out["path"]: out["md5"] for stage in lock["stages"].values() for out in stage.get("outs", [])}
    except (YAMLError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"--rev {revision}: its dvc.lock is damaged ({error!r})") from error


def in_commit(root: Path, name: str, revision: str) -> list[Output]:
    """Find the outputs of a commit in DVC's cache.

    Args:
        root: Project root.
        name: Path of a file or a folder relative to ``root``.
        revision: Commit, branch or tag.

    Returns:
        The file, or all files under the folder that stages had made, by name.

    Raises:
        FileError: The revision is unknown, its dvc.lock does not know the path, or the cache lacks the content.
    """
    from dvc.repo import Repo

    with Repo(str(root)) as repo:
        cache = Path(repo.cache.local.path)

    def place(digest: str, path: str) -> Path:
        found = cache / digest[:2] / digest[2:]
        if not found.is_file():
            raise FileError(
                f"{path} of {revision}: its content (MD5 {digest}) is not in DVC's cache. `dvc fetch --all-commits` "
                f"brings it from a remote; without one, `git checkout {revision}` and `dvc repro` make it again."
            )
        return found

    wanted = PurePosixPath(name)
    found = {}
    locked = _locked(root, revision)
    for path, digest in locked.items():
        out = PurePosixPath(path)
        if out == wanted or wanted in out.parents or out in wanted.parents:
            if not digest.endswith(".dir"):
                found[path] = digest
                continue
            for entry in json.loads(place(digest, path).read_bytes()):
                file = out / entry["relpath"]
                if wanted in (file, *file.parents):
                    found[file.as_posix()] = entry["md5"]
    if found:
        outputs = []
        for path, digest in sorted(found.items()):
            tracked = None if (cache / digest[:2] / digest[2:]).is_file() else _git_show(root, revision, path)
            outputs.append(Output(path, root / path if tracked is not None else place(digest, path), tracked))
        return outputs
    beside = sorted(path for path in locked if PurePosixPath(path).parent == wanted.parent)
    tops = sorted({path.split("/")[0] + "/" * ("/" in path) for path in locked})
    raise FileError(
        f"{name}: dvc.lock of {revision} has no such output; "
        + (f"beside it: {', '.join(beside)}" if beside else f"it has {', '.join(tops)}")
    )


# ---------------------------------------------------------------------------------------------- what it holds
def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _columns(rows: list[list[str]], indent: str = "") -> list[str]:
    """Return rows as aligned columns."""
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(max(map(len, rows)))]
    return [
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))).rstrip()
        for row in rows
    ]


def _value(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    return str(value)


def _row(array: np.ndarray) -> str:
    flat = array.reshape(-1)
    shown = " ".join(_value(value) for value in flat[:COLUMNS])
    return shown + (f" … {flat.size - COLUMNS} more" if flat.size > COLUMNS else "")


def _class_names(file: Any) -> list[str] | None:
    """Return the class names that an HDF5 file carries, as a dataset or as JSON in an attribute."""
    if "classes" in file:
        return hdf5.strings(file["classes"])
    text = file.attrs.get("classes")
    return [str(name) for name in json.loads(text)] if isinstance(text, str) else None


def _class_counts(dataset: Any, names: list[str] | None) -> list[str]:
    """Return a table of label counts by class; nothing where the dataset is no label matrix."""
    axes = str(dataset.attrs.get("axes", "")).split(", ")
    if axes[-1] != "class" or dataset.ndim < 2 or dataset.dtype.kind not in "iub" or not dataset.size:
        return []
    labels = np.asarray(dataset[()]) if dataset.ndim == 2 else np.asarray(dataset[-1])
    labels = labels.reshape(-1, labels.shape[-1]).astype(np.int64)
    values = [value for value in (1, 0, -1) if (labels == value).any()]
    if not np.isin(labels, values).all():
        return []
    names = names if names is not None and len(names) == labels.shape[1] else [str(c) for c in range(labels.shape[1])]
    rows = [["class", *(str(value) for value in values), "share of 1"]]
    for c, name in enumerate(names):
        counts = [int((labels[:, c] == value).sum()) for value in values]
        rows.append([name, *map(str, counts), f"{(labels[:, c] == 1).mean():.4f}"])
    last = f" of the last {axes[0]}" if dataset.ndim > 2 else ""
    return [f"    counts by class{last}:", *_columns(rows, indent="      ")]


def hdf5_lines(path: Path, rows: int) -> Iterator[str]:
    """Describe an HDF5 file: attributes; each dataset's shape, type, axes, units, first rows and counts by class.

    Args:
        path: The file.
        rows: First rows to show of each dataset.

    Yields:
        Lines of text.
    """
    with hdf5.read(path) as file:
        for name, value in file.attrs.items():
            yield f"@{name} = {_value(value)}"
        names = _class_names(file)
        found: list[Any] = []
        file.visititems(lambda _, item: found.append(item) if hasattr(item, "shape") else None)
        for dataset in found:
            axes, units = dataset.attrs.get("axes"), dataset.attrs.get("units")
            kind = "text" if dataset.dtype.kind == "O" else str(dataset.dtype)
            notes = f"  [{axes}]" * (axes is not None) + f"  in {units}" * (units is not None)
            yield f"{dataset.name[1:]}  {tuple(dataset.shape)}  {kind}{notes}"
            for name, value in dataset.attrs.items():
                if name not in ("axes", "units"):
                    yield f"    @{name} = {_value(value)}"
            head = np.atleast_1d(dataset[()] if dataset.ndim == 0 else dataset[:rows])
            for number, row in enumerate(head):
                yield f"    {number}: {_row(np.asarray(row))}"
            hidden = (dataset.shape[0] if dataset.ndim else 1) - len(head)
            if hidden > 0:
                yield f"    … {hidden} more"
            yield from _class_counts(dataset, names)


def tsv_lines(path: Path, rows: int) -> Iterator[str]:
    """Lay out a table of tab-separated values.

    Args:
        path: The file.
        rows: First rows to show.

    Yields:
        Lines of text.
    """
    table = read_tsv(path)
    if not table:
        yield "(no rows)"
        return
    yield from _columns([list(table[0]), *(list(row.values()) for row in table[:rows])])
    if len(table) > rows:
        yield f"… {len(table) - rows} more rows"


def _tensor_rows(value: Any, name: str) -> Iterator[list[str]]:
    """Yield name, shape and type of each leaf of what torch saved."""
    shape, kind = getattr(value, "shape", None), getattr(value, "dtype", "")
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _tensor_rows(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and any(hasattr(item, "shape") for item in value):
        for number, item in enumerate(value):
            yield from _tensor_rows(item, f"{name}[{number}]")
    elif shape is not None:
        yield [name, str(tuple(shape)), str(kind).removeprefix("torch.")]
    else:
        yield [name, "", repr(value)]


def torch_lines(path: Path) -> Iterator[str]:
    """List the tensors that a torch file holds, by name and shape; nothing else is unpickled.

    Args:
        path: The file.

    Yields:
        Lines of text.
    """
    rows = list(_tensor_rows(read_torch(path), ""))
    yield from _columns(rows) if rows else ["(empty)"]


def _picture_lines(path: Path) -> Iterator[str]:
    from pipeline.data import images

    yield images.header(path)


def file_lines(output: Output, rows: int) -> Iterator[str]:
    """Describe one file by its kind.

    Args:
        output: The file.
        rows: First rows to show of tables and arrays.

    Yields:
        Lines of text.

    Raises:
        FileError: The file is damaged; the message names it.
    """
    kind = PurePosixPath(output.name).suffix
    try:
        if output.content is not None:
            yield from output.content.decode("utf-8", "replace").splitlines()
        elif kind == ".h5":
            yield from hdf5_lines(output.place, rows)
        elif kind == ".json":
            yield from json.dumps(read_json(output.place), indent=2, ensure_ascii=False).splitlines()
        elif kind == ".tsv":
            yield from tsv_lines(output.place, rows)
        elif kind == ".pt":
            yield from torch_lines(output.place)
        elif kind == ".png":
            yield from _picture_lines(output.place)
        elif kind == ".html":
            yield f"page of {_size(output.place.stat().st_size)}; open it in a browser"
        elif kind in (".md", ".txt", ".yaml", ".csv"):
            yield from output.place.read_text(encoding="utf-8").splitlines()
        else:
            yield _size(output.place.stat().st_size)
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{output.name}: cannot be shown ({error})") from error
    except FileError as error:
        if output.place.as_posix() == output.name:
            raise
        raise FileError(f"{output.name}: {error}") from error


def show(path: Path, revision: str | None = None, rows: int = 5) -> Iterator[str]:
    """Show a stage's output file or folder.

    Args:
        path: File or folder, relative to the current folder.
        revision: Commit whose output is meant; None: the work tree.
        rows: First rows to show of tables and arrays.

    Yields:
        Lines of text: of a folder its files and its summary, of a file what it holds.

    Raises:
        FileError: There is no such output, or it cannot be read.
    """
    if revision is None:
        outputs = in_work_tree(path)
    else:
        root = project_root(Path.cwd())
        if not (place := Path(os.path.normpath(Path.cwd() / path))).is_relative_to(root):
            raise FileError(f"{path}: lies outside the project {root}")
        outputs = in_commit(root, place.relative_to(root).as_posix(), revision)
    if len(outputs) == 1 and (revision is not None or path.is_file()):
        yield from file_lines(outputs[0], rows)
        return
    for output in outputs:
        size = len(output.content) if output.content is not None else output.place.stat().st_size
        yield f"{_size(size):>10}  {output.name}"
    summaries = [output for output in outputs if PurePosixPath(output.name).name == "summary.md"]
    if len(summaries) == 1:
        yield ""
        yield from file_lines(summaries[0], rows)
