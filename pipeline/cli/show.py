"""``spml show``: show what a stage wrote, also as of an earlier commit; files become lines of text."""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from pipeline.cli.outputs import Output, find_in_commit, find_in_work_tree
from pipeline.cli.verbs import Verbs, align
from pipeline.core import hdf5, seal
from pipeline.core.arguments import whole_number
from pipeline.core.errors import FileError
from pipeline.core.files import load_torch, read_json, read_tsv

COLUMNS = 8
"""Values shown of a row; the rest is counted."""


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser(
        "show",
        help="show a stage's output: arrays, tables, weights",
        description="Show a stage's output file or folder: the tree of an HDF5 file with shapes, axes, units, first "
        "rows and counts by class; tables, JSON and summaries; names and shapes of weights.",
    )
    parser.add_argument("path", type=Path, help="file or folder, such as runs/finetune/digits-em-0-0")
    parser.add_argument("--rev", metavar="REV", help="show it as of this commit, from DVC's cache, without a checkout")
    parser.add_argument(
        "--rows", metavar="N", type=whole_number(0), default=5, help="first rows to show (default: %(default)s)"
    )
    return parser


def run(options: argparse.Namespace) -> Iterator[str]:
    """Show a file, or list a folder and show its summary.

    Args:
        options: What the parser read.

    Yields:
        Lines of text.
    """
    with tempfile.TemporaryDirectory(prefix="spml-") as copies:
        if options.rev is None:
            outputs = find_in_work_tree(options.path)
            alone = options.path.is_file()
        else:
            outputs = find_in_commit(options.path, options.rev, Path(copies))
            alone = len(outputs) == 1
        if alone:
            yield from describe(outputs[0], options.rows)
            return
        for output in outputs:
            yield f"{_size(output.file.stat().st_size):>10}  {output.name}"
        summaries = [output for output in outputs if PurePosixPath(output.name).name == "summary.md"]
        if len(summaries) == 1:
            yield ""
            yield from describe(summaries[0], options.rows)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


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
        return hdf5.read_strings(file["classes"])
    text = file.attrs.get("classes")
    try:
        return [str(name) for name in json.loads(text)] if isinstance(text, str) else None
    except (ValueError, TypeError, RecursionError):  # no list: the attribute is shown as it is
        return None


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
    return [f"    counts by class{last}:", *align(rows, indent="      ")]


def hdf5_lines(path: Path, rows: int) -> Iterator[str]:
    """Describe an HDF5 file: attributes; each dataset's shape, type, axes, units, first rows and counts by class.

    Args:
        path: The file.
        rows: First rows to show of each dataset.

    Yields:
        Lines of text.
    """
    with hdf5.read(path, anywhere=True) as file:
        for name, value in file.attrs.items():
            yield f"@{name} = {_value(value)}"
        names = _class_names(file)
        datasets: list[Any] = []
        file.visititems(lambda _, item: datasets.append(item) if hasattr(item, "shape") else None)
        for dataset in datasets:
            yield from _dataset_lines(dataset, rows)
            yield from _class_counts(dataset, names)


def _dataset_lines(dataset: Any, rows: int) -> Iterator[str]:
    """Yield a dataset's shape, type, axes and units, its other attributes, and its first rows."""
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
    yield from align([list(table[0]), *(list(row.values()) for row in table[:rows])])
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
    rows = list(_tensor_rows(load_torch(path, seal.verify(path).size), ""))
    yield from align(rows) if rows else ["(empty)"]


def describe(output: Output, rows: int) -> Iterator[str]:
    """Describe one file by its kind.

    Args:
        output: The file.
        rows: First rows to show of tables and arrays.

    Yields:
        Lines of text.

    Raises:
        FileError: The file is damaged; the message names it.
    """
    try:
        yield from _describe(output.file, PurePosixPath(output.name).suffix, rows)
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{output.name}: cannot be shown ({error})") from error
    except FileError as error:
        if output.file.as_posix() == output.name:
            raise
        raise FileError(f"{output.name}: {error}") from error


def _describe(file: Path, kind: str, rows: int) -> Iterator[str]:
    """Yield the lines of a file of a kind, which its suffix tells."""
    if kind == ".h5":
        yield from hdf5_lines(file, rows)
    elif kind == ".json":
        yield from json.dumps(read_json(file), indent=2, ensure_ascii=False).splitlines()
    elif kind == ".tsv":
        yield from tsv_lines(file, rows)
    elif kind == ".pt":
        yield from torch_lines(file)
    elif kind == ".png":
        from pipeline.data import images  # loads torch

        yield images.header(file)
    elif kind == ".html":
        yield f"page of {_size(file.stat().st_size)}; open it in a browser"
    elif kind in (".md", ".txt", ".yaml", ".csv"):
        yield from file.read_text(encoding="utf-8").splitlines()
    else:
        yield _size(file.stat().st_size)
