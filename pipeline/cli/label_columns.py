"""Recognise what the columns of a table hold: paths, splits, names of labels, or a class each."""

from collections.abc import Iterable
from csv import reader
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from pipeline.cli.label_files import (
    GROUP,
    LABELS,
    SPLIT,
    Declared,
    Named,
    check_group,
    check_named,
    explain_unclear,
    find_separator,
    has_pictures,
    names_pictures,
)
from pipeline.core import text
from pipeline.core.errors import ConfigError
from pipeline.data import disk
from pipeline.data.names import SEPARATORS, looks_like_list, read_list, separates
from pipeline.data.own_data import WORDS
from pipeline.sources import csv as tables

SAMPLE = 50  # lines of a table, which are enough to tell its delimiter
APPLIES = ("confidence", "present", "presence", "applies", "value", "score")
"""Usual names of the column that says whether the label of a row applies, compared without case."""
EXTRA = {"id", "index", "idx", "unnamed: 0", "width", "height", "filesize", "timestamp"}
"""Usual names of columns that are no labels, whatever they hold, compared without case."""


@dataclass(frozen=True)
class Sheet:
    """What a table holds.

    Args:
        file: Its name.
        delimiter: Name of its delimiter.
        values: Column -> its values, row by row.
    """

    file: Path
    delimiter: str
    values: dict[str, list[str]]


def recognise_columns(
    sheet: Sheet, found: disk.Found, exhaustive: bool, named: Named, declared: Declared
) -> dict[str, Any]:
    """Return what the columns of a table say.

    Raises:
        ConfigError: A named column is not there, or it is not clear which hold labels, or what they mean.
    """
    values = sheet.values
    check_named(sheet.file, "column", list(values), named)
    grouped = values[named.group] if named.group else []
    check_group(sheet.file, "column", named, grouped, _are_marks(grouped))
    free = [name for name in values if name not in astuple(named)]
    paths = [named.path] if named.path else _find_paths(free, values, found)
    splits = [named.split] if named.split else _find_splits({name: values[name] for name in free})
    rest = [name for name in values if name not in (*paths, *splits)]
    groups = [named.group] if named.group else _find_groups(rest, named, values)
    rest = [name for name in rest if name not in groups]
    joined = bool(paths) and len(set(values[paths[0]])) < len(values[paths[0]])
    applies = [name for name in rest if joined and name.lower() in APPLIES and name != named.labels]
    numbers = [name for name in rest if name != named.labels and _is_extra(name, values[name])]
    rest = [name for name in rest if name not in (*applies, *numbers)]
    cells = [name for name in rest if _are_cells(values[name])]
    column = named.labels or _find_labels(rest, cells, values)
    if (
        len(paths) != 1
        or max(map(len, (splits, applies, groups))) > 1
        or (column is None and not (rest and cells == rest))
    ):
        listed = {"picture files": paths, "train, val and test": splits, tables.VALUES: cells}
        listed |= {"groups": groups} if len(groups) > 1 else {}
        listed["something else"] = [name for name in rest if name not in cells] + numbers
        expected = "one of label names, or one of 1, 0, -1 and nothing for each class"
        raise ConfigError(explain_unclear(sheet.file, "column", expected, listed))
    block = {"delimiter": sheet.delimiter, "path_column": paths[0]}
    if column is not None:
        block |= {"labels": _name_column(sheet, column, joined, applies[0] if applies else None, declared)}
    else:
        block |= {"labels": _class_columns(sheet, cells, exhaustive, declared)}
        block |= {"classes": sorted(cells)} if numbers else {}
    return block | {
        "split_column": splits[0] if splits else None,
        "group_column": groups[0] if groups else None,
    }


def read_sheet(files: list[Path]) -> Sheet:
    """Return what tables of the same columns hold together.

    Raises:
        ConfigError: There is no row, or the first line names no columns.
    """
    file, delimiter = files[0], _find_delimiter(files[0])
    values: dict[str, list[str]] = {}
    for each in files:
        header, lines = tables.read_table(each, tables.DELIMITERS[delimiter])
        rows = [fields for _, fields in lines]
        if pictures := [name for name in header if name.lower().endswith(disk.ENDINGS)]:
            raise ConfigError(f"{each.name}: the first line must name the columns, and holds {pictures[0]}")
        for column, name in enumerate(header):
            if name:
                above = f"{each.parent.name}/" if len(files) > 1 else ""  # else one name in two splits were one path
                found = [row[column] for row in rows if column < len(row)]
                pictured = has_pictures(found)
                values.setdefault(name, []).extend(above + value if pictured else value for value in found)
    if not any(values.values()):
        raise ConfigError(f"{file.name}: no image in it")
    return Sheet(file, delimiter, values)


def _find_delimiter(file: Path) -> str:
    """Return the delimiter that parts most of the first rows in as many fields as the header, at least two.

    Raises:
        ConfigError: The first line names one that is not read.
    """
    named, content = text.split_mark(text.read_text(file))
    if named:
        if fitting := [name for name, mark in tables.DELIMITERS.items() if mark == named]:
            return fitting[0]
        raise ConfigError(f"{file.name}: sep={named} is none of {', '.join(tables.DELIMITERS)}")
    lines = [line for line in content.split("\n") if line.strip()][:SAMPLE]

    def fits(name: str) -> tuple[int, int]:
        header, *rows = [len(fields) for fields in reader(lines, delimiter=tables.DELIMITERS[name])] or [0]
        return (1 + sum(row == header for row in rows), header) if header > 1 else (0, header)

    return max(tables.DELIMITERS, key=fits)


def _find_paths(names: list[str], values: dict[str, list[str]], found: disk.Found) -> list[str]:
    """Return the columns that hold pictures' files; where none does, those of the names of pictures without ending."""
    paths = [name for name in names if has_pictures(values[name])]
    return paths or [name for name in names if names_pictures(values[name], found.pictures)]


def _find_splits(values: dict[str, list[str]]) -> list[str]:
    """Return the columns that hold splits; else those called so, unless they mark a class."""
    words = [name for name in values if _holds((value.lower() for value in values[name]), WORDS)]
    called = [name for name in values if name.lower() in SPLIT and not _are_marks(values[name])]
    return words or called  # the source names the values that are no splits


def _find_groups(rest: list[str], named: Named, values: dict[str, list[str]]) -> list[str]:
    """Return the columns called as groups are, unless they mark a class or nothing else could hold the labels."""
    called = [name for name in rest if name.lower() in GROUP and name != named.labels and not _are_marks(values[name])]
    others = [name for name in rest if name not in called and not _is_extra(name, values[name])]
    return called if others or named.labels else []


def _find_labels(rest: list[str], cells: list[str], values: dict[str, list[str]]) -> str | None:
    """Return the column of label names, None where there is none or it is not clear which."""
    called = [name for name in rest if name.lower() in LABELS and name not in cells]
    called = [name for name in called if name == "labels"] or called
    if len(called) == 1 and not any(_are_marks(values[name]) for name in rest):
        return called[0]
    return rest[0] if len(rest) == 1 and not cells else None


def _name_column(sheet: Sheet, column: str, joined: bool, applies: str | None, declared: Declared) -> dict[str, Any]:
    """Return the settings of a column of label names: lists, one label a row, or names with what stands between two.

    Raises:
        ConfigError: It is not clear what stands between names.
    """
    values = {value for value in sheet.values[column] if value}
    if values and all(looks_like_list(value) and read_list(value) is not None for value in values):
        return {"kind": "lists", "column": column}
    if joined and declared.separator is None and not any(separates(mark, values) for mark in SEPARATORS):
        return {"kind": "rows", "column": column, "present": applies}
    if applies is not None:
        raise ConfigError(
            f"{sheet.file.name}: rows of one image and a column {applies}, but several labels in {column}"
        )
    mark = find_separator(sheet.file, values, declared)
    free = [mark for mark in (*SEPARATORS, "||") if not any(mark in value for value in values)]
    return {"kind": "names", "column": column, "separator": mark or free[0]}


def _class_columns(sheet: Sheet, cells: list[str], exhaustive: bool, declared: Declared) -> dict[str, Any]:
    """Return what 0, -1 and nothing mean in the columns of classes.

    Raises:
        ConfigError: 0 and -1 are both there, of which either may be the one that is not known, and nobody says which.
    """
    values = {tables.read_value(value) for cell in cells for value in sheet.values[cell]}
    labels: dict[str, Any] = {"kind": "columns", "zero": "absent", "minus_one": "absent", "empty": "unknown"}
    if not exhaustive and values <= {"one", "zero"}:
        labels["zero"] = "unknown"  # what is not ticked is not known
    if exhaustive and values <= {"one", "empty"}:
        labels["empty"] = "absent"  # nothing else could say so
    said = {key: value for key in ("zero", "minus_one", "empty") if (value := getattr(declared, key)) is not None}
    if {"zero", "minus_one"} <= values:
        needed = [key for key in ("zero", "minus_one", "empty") if key in values and key not in said]
        if needed:
            options = " ".join(f"--{key.replace('_', '-')} absent|unknown" for key in needed)
            too = " and nothing" if "empty" in values else ""
            raise ConfigError(
                f"{sheet.file.name}: the columns of classes hold 0 and -1{too}, and which"
                f" of them means absent is not written there; say it: {options} (CheXpert: --zero absent "
                "--minus-one unknown --empty unknown)"
            )
    return labels | said


def _are_cells(values: Iterable[str]) -> bool:
    return all(tables.read_value(value) is not None for value in set(values))


def _are_marks(values: Iterable[str]) -> bool:
    """Return whether there are values other than blanks, and all of these are what the column of a class holds."""
    found = {tables.read_value(value) for value in set(values)} - {"empty"}
    return bool(found) and None not in found


def _is_extra(name: str, values: Iterable[str]) -> bool:
    """Return whether a column is no label by its name, or holds numbers most of which no class does, such as widths.

    Shares between 0 and 1 may be those of a class, and are left for the user to explain.
    """
    if name.lower() in EXTRA or name.lower() in LABELS:
        return name.lower() in EXTRA
    cells = {value for value in values if value}
    odd = [value for value in cells if tables.read_value(value) is None]
    try:
        return 2 * len(odd) > len(cells) and any(not 0 <= value <= 1 for value in [*map(float, cells)])
    except ValueError:
        return False


def _holds(values: Iterable[str], words: Iterable[str]) -> bool:
    """Return whether there are values other than blanks, and all of these are such words."""
    return {""} < {"", *values} <= {"", *words}
