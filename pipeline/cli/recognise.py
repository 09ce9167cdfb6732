"""Recognise how the images of a folder are labelled: by its class folders, or by the columns or keys of a file."""

import shlex
from collections.abc import Iterable
from csv import reader
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from pipeline.core import text
from pipeline.core.errors import ConfigError
from pipeline.core.faults import Faults, pluralize, preview
from pipeline.data import raw
from pipeline.data.own_data import NO_CLASS, SEPARATORS, WORDS, separates
from pipeline.sources import csv as tables
from pipeline.sources import json as objects

SAMPLE = 50  # lines of a table, which are enough to tell its delimiter
FILES = (".csv", ".tsv", ".json", ".jsonl")
"""Endings of files of labels."""
LABELS = NO_CLASS - {"image", "images"}
"""Usual names of the column of labels, compared without case."""
SPLIT = {"split", "splits", "subset", "partition"}
"""Usual names of the column of splits, compared without case."""
ABSENT = ("absent", "negatives", "negative")
"""Usual keys of the labels known not to apply."""


@dataclass(frozen=True)
class Named:
    """Columns of a table, or keys of objects, that the user names; None: to be recognised."""

    path: str | None = None
    labels: str | None = None
    split: str | None = None


def recognise(place: Path, exhaustive: bool, named: Named = Named()) -> dict[str, Any]:  # noqa: B008  it is frozen
    """Return how the images of a folder are labelled.

    Args:
        place: A folder of pictures with one CSV, TSV, JSON or JSON-lines file, or with one folder for each class; or
            that file, where there are several.
        exhaustive: Whether the labels of an image are all that apply to it.
        named: Columns or keys of that file.

    Returns:
        The block of `prepare` without `root` and `size`.

    Raises:
        ConfigError: There is no such folder, or it is not clear how its images are labelled; the message says what was
            found.
        SourceError: A folder or the file of labels cannot be read.
    """
    folder = place.parent if place.is_file() else place
    if not folder.is_dir():
        raise ConfigError(f"{place}: no such folder or file")
    if place.is_file() and place.suffix.lower() not in FILES:
        raise ConfigError(f"{place}: not a file of labels ({', '.join(FILES)})")
    if not (pictures := raw.list_pictures(folder)):
        other = f"; not read: {preview(unread)}" if (unread := raw.list_pictures(folder, raw.UNREAD)) else ""
        raise ConfigError(f"{folder}: holds no picture ({', '.join(raw.ENDINGS)}){other}")
    common: dict[str, Any] = {"bad_images": "stop", "classes": None}
    common |= {"val_fraction": 0.2, "test_fraction": 0.2, "split_seed": 0}
    file = place if place.is_file() else _find_file(folder)
    if file is None:
        return {"source": "folder", **_recognise_folders(folder, pictures, exhaustive, named), **common}
    if file.suffix.lower() in (".csv", ".tsv"):
        return {"source": "csv", **_recognise_columns(file, exhaustive, named), "exhaustive": exhaustive, **common}
    return {"source": "json", **_recognise_keys(file, named), "exhaustive": exhaustive, **common}


def _find_file(folder: Path) -> Path | None:
    """Return the file of labels of a folder, None where there is none.

    Raises:
        ConfigError: There are several.
    """
    files = sorted(path for path in folder.glob("[!.]*") if path.suffix.lower() in FILES and path.is_file())
    if len(files) > 1:
        names = ", ".join(path.name for path in files)
        raise ConfigError(
            f"{folder}: which of {names} holds the labels? name it: spml init {shlex.quote(str(files[0]))}"
        )
    return files[0] if files else None


def _recognise_folders(folder: Path, pictures: list[str], exhaustive: bool, named: Named) -> dict[str, Any]:
    """Return what class folders say.

    Raises:
        ConfigError: There are none, or they cannot be what is asked for.
    """
    tops = {picture.split("/")[0] for picture in pictures if "/" in picture}
    if not tops:
        found = pluralize(len(pictures), "picture")
        raise ConfigError(f"{folder}: {found}, but neither class folders nor a .csv or .json of labels")
    if any(astuple(named)):
        raise ConfigError(
            f"{folder}: no .csv or .json of labels whose columns or keys --path, --labels or --split name"
        )
    if exhaustive:
        raise ConfigError(f"{folder}: a folder for each class gives one label an image, which is not exhaustive")
    split = all(top.lower() in WORDS for top in tops)
    if len(tops) == 1 and not split:
        (top,) = tops
        raise ConfigError(
            f"{folder}: all folders with pictures lie in {top}, which would be the one class; if the folders of the "
            f"classes lie in it: spml init {shlex.quote(str(folder / top))}"
        )
    return {"split_folders": split, "same_name": "separate"}


# ---------------------------------------------------------------------------------------------- columns of a table
def _recognise_columns(file: Path, exhaustive: bool, named: Named) -> dict[str, Any]:
    """Return what the columns of a table say.

    Raises:
        ConfigError: A named column is not there, no column names pictures, or it is not clear which hold labels.
    """
    delimiter, values = _read_columns(file)
    _check_named(file, "column", list(values), named)
    free = [name for name in values if name not in astuple(named)]
    paths = [named.path] if named.path else [name for name in free if _has_pictures(values[name])]
    splits = [named.split] if named.split else _find_splits({name: values[name] for name in free})
    rest = [name for name in values if name not in (*paths, *splits)]
    cells = [name for name in rest if values[name] <= tables.VALUES.keys()]
    column = named.labels or _find_labels(rest, cells, values)
    if len(paths) != 1 or len(splits) > 1 or (column is None and not (rest and cells == rest)):
        found = {"picture files": paths, "train, val and test": splits, "1, 0, -1 and nothing": cells}
        found["something else"] = [name for name in rest if name not in cells]
        expected = "one of label names, or one of 1, 0, -1 and nothing for each class"
        raise ConfigError(_explain_unclear(file, "column", expected, found))
    names = {value for cell in cells for value in values[cell]}
    return {
        "file": file.name,
        "delimiter": delimiter,
        "path_column": paths[0],
        "labels": _class_columns(names, exhaustive) if column is None else _name_column(column, values[column]),
        "split_column": splits[0] if splits else None,
    }


def _read_columns(file: Path) -> tuple[str, dict[str, set[str]]]:
    """Return the delimiter of a table and the values of each named column.

    Raises:
        ConfigError: There is no row, or the first line names no columns.
    """
    delimiter = _find_delimiter(file)
    header, lines = tables.read_table(file, tables.DELIMITERS[delimiter])
    rows = [fields for _, fields in lines]
    if not rows:
        raise ConfigError(f"{file.name}: no image in it")
    if pictures := [name for name in header if name.lower().endswith(raw.ENDINGS)]:
        raise ConfigError(f"{file.name}: the first line must name the columns, and holds {pictures[0]}")
    columns = {name: column for column, name in enumerate(header) if name}
    values = {name: {row[column] for row in rows if column < len(row)} for name, column in columns.items()}
    return delimiter, values


def _find_delimiter(file: Path) -> str:
    """Return the delimiter that parts most of the first rows in as many fields as the header, at least two."""
    lines = [line for line in text.read_text(file).split("\n") if line.strip()][:SAMPLE]

    def fits(name: str) -> tuple[int, int]:
        header, *rows = [len(fields) for fields in reader(lines, delimiter=tables.DELIMITERS[name])] or [0]
        return (1 + sum(row == header for row in rows), header) if header > 1 else (0, header)

    return max(tables.DELIMITERS, key=fits)


def _find_splits(values: dict[str, set[str]]) -> list[str]:
    """Return the columns that hold splits; else those called so, unless they mark a class."""
    words = [name for name in values if _holds((value.lower() for value in values[name]), WORDS)]
    called = [name for name in values if name.lower() in SPLIT and not _holds(values[name], tables.VALUES)]
    return words or called  # the source names the values that are no splits


def _find_labels(rest: list[str], cells: list[str], values: dict[str, set[str]]) -> str | None:
    """Return the column of label names, None where there is none or it is not clear which."""
    called = [name for name in rest if name.lower() in LABELS and name not in cells]
    called = [name for name in called if name == "labels"] or called
    if len(called) == 1 and not any(_holds(values[name], tables.VALUES) for name in rest):
        return called[0]
    return rest[0] if len(rest) == 1 and not cells else None


def _name_column(column: str, values: set[str]) -> dict[str, Any]:
    """Return the settings of a column of label names: what stands between two, else a mark that is in none."""
    marks = [mark for mark in SEPARATORS if separates(mark, values)]
    marks += [mark for mark in (*SEPARATORS, "||") if not any(mark in value for value in values)]
    return {"kind": "names", "column": column, "separator": marks[0]}


def _class_columns(values: set[str], exhaustive: bool) -> dict[str, Any]:
    """Return what 0, -1 and nothing mean in the columns of classes, which hold these values."""
    unknown = "absent" if exhaustive else "unknown"
    ticks = {value.partition(".")[0] for value in values}
    labels = {"kind": "columns", "zero": unknown if "-1" in ticks else "absent", "minus_one": "absent"}
    labels["empty"] = "unknown"
    if not exhaustive and ticks <= {"1", "0"}:
        labels["zero"] = "unknown"  # what is not ticked is not known
    if exhaustive and ticks <= {"1", ""}:
        labels["empty"] = "absent"  # nothing else could say so
    return labels


# ---------------------------------------------------------------------------------------------- keys of objects
def _recognise_keys(file: Path, named: Named) -> dict[str, Any]:
    """Return what the keys of objects say.

    Raises:
        ConfigError: A named key is not there, or it is not clear which key holds what.
    """
    faults = Faults(file.name)  # the source names them, with all others
    rows = [entry for _, entry in objects.read_entries(file, faults) if isinstance(entry, dict)]
    if not rows:
        raise ConfigError(f"{file.name}: no object in it, such as one with the path of a picture and its labels")
    keys = list(dict.fromkeys(key for row in rows for key in row))
    _check_named(file, "key", keys, named)
    values = {key: [row.get(key) for row in rows] for key in keys}
    free = [key for key in keys if key not in astuple(named)]
    paths = [named.path] if named.path else [key for key in free if _has_pictures(values[key])]
    flags = [key for key in free if key.lower() in SPLIT and all(map(_is_mark, values[key]))]
    words = [key for key in free if key not in paths and all(str(value).lower() in WORDS for value in values[key])]
    called = [key for key in free if key.lower() in SPLIT and key not in flags]
    splits = [named.split] if named.split else words or called
    rest = [key for key in keys if key not in (*paths, *splits, *flags)]
    lists = [key for key in rest if any(map(_is_names, values[key]))]
    absent = [key for key in lists if key in ABSENT and key != named.labels]
    texts = [key for key in rest if key not in absent and any(isinstance(value, str) for value in values[key])]
    present = [named.labels] if named.labels else _find_label_keys(rest, lists, texts)
    if len(paths) != 1 or len(present) != 1 or len(splits) > 1 or len(absent) > 1:
        found = {"picture files": paths, "train, val and test": splits, "lists of names": lists, "text": texts}
        raise ConfigError(_explain_unclear(file, "key", "one of lists of label names, or of one name", found))
    return {
        "file": file.name,
        "path_key": paths[0],
        "labels_key": present[0],
        "absent_key": absent[0] if absent else None,
        "split_key": splits[0] if splits else None,
    }


def _find_label_keys(rest: list[str], lists: list[str], texts: list[str]) -> list[str]:
    """Return the keys of labels: lists first, then what is called so, of whatever kind, then any text."""
    present = [key for key in lists if key not in ABSENT]
    called = [key for key in rest if key.lower() in NO_CLASS]
    return (
        [key for key in present if key == "labels"]
        or present
        or [key for key in texts if key in called]
        or called
        or texts
    )


# ---------------------------------------------------------------------------------------------- both
def _check_named(file: Path, what: str, names: list[str], named: Named) -> None:
    """Raise an error where the user names what is not there.

    Raises:
        ConfigError: As said.
    """
    for option, name in vars(named).items():
        if name is not None and name not in names:
            raise ConfigError(f"--{option}: {file.name} has no {what} {name!r}; there are {preview(names)}")


def _explain_unclear(file: Path, what: str, expected: str, found: dict[str, list[str]]) -> str:
    """Return the message for a file whose columns or keys are not all recognised."""
    where = "in" if what == "column" else "under"
    listed = "; ".join(f"{kind} {where} {preview(names) or 'none'}" for kind, names in found.items())
    return (
        f"{file.name}: expected are one {what} of picture files, at most one of train, val and test, and {expected}. "
        f"Found: {listed}. Name them with --path, --labels and --split, delete the {what}s that are none of these, or "
        "write a profile"
    )


def _has_pictures(values: Iterable[Any]) -> bool:
    return any(str(value).lower().endswith(raw.ENDINGS) for value in values)


def _holds(values: Iterable[str], words: Iterable[str]) -> bool:
    """Return whether there are values other than blanks, and all of these are such words."""
    return {""} < {"", *values} <= {"", *words}


def _is_mark(value: Any) -> bool:
    return value is None or isinstance(value, bool) or str(value) in tables.VALUES


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
