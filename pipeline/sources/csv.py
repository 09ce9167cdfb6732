"""Images of one's own in a table: a path a row, and the names of its labels or one column per class.

The file has a header; delimiter, columns and what 0, -1 and an empty value mean are settings. One image is one row, but
where the settings say that a row is one label (`rows`): then those of a path are joined.
Source: ours.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, find_duplicates, is_class_name, normalize_class_name, preview
from pipeline.core.strict import Strict
from pipeline.core.text import read_rows
from pipeline.data import disk, own_data
from pipeline.data.names import NO_CLASS, NO_VALUE, looks_like_list, read_list, split_names
from pipeline.data.own_data import WORDS, Content, OwnData, Row, normalize_group
from pipeline.data.raw import Files, make_reader
from pipeline.labels.table import Dataset

DELIMITERS = {"comma": ",", "tab": "\t", "semicolon": ";"}
TRUE, FALSE = {"true", "yes", "t", "y"}, {"false", "no", "f", "n"}
"""Words of a class's column, compared without case."""
VALUES = "1, 0, -1, yes, no, true, false and empty"
"""What a class's column may hold, for messages."""
Meaning = Literal["absent", "unknown"]


class Names(Strict):
    """One column holds the names of all labels of a row."""

    kind: Literal["names"]
    column: str
    separator: Annotated[str, Field(min_length=1)]
    """What stands between two names."""


class Lists(Strict):
    """One column holds a list of quoted names, as Python, numpy or JSON writes it."""

    kind: Literal["lists"]
    column: str


class Rows(Strict):
    """Each row is one label of an image; rows of one path are joined."""

    kind: Literal["rows"]
    column: str
    """Column of the label's name."""
    present: str | None
    """Column that is 1 where the label applies, and 0 where it is known not to; null: all of them apply."""


class Columns(Strict):
    """Each class has a column, 1 where it is present. With `classes: null`, every other column is one."""

    kind: Literal["columns"]
    zero: Meaning
    """What 0 means."""
    minus_one: Meaning
    """What -1 means."""
    empty: Meaning
    """What an empty value means."""


class Settings(OwnData):
    """Settings of `prepare.<dataset>` for a table of one's own."""

    source: Literal["csv"]
    file: str
    """The table, relative to `root`, from where its paths count; or a pattern such as `*/_classes.csv`: one table for
    each split, in the folder called by the split, from where its paths count."""
    delimiter: Literal["comma", "tab", "semicolon"]
    path_column: str
    """Column of the pictures' paths, relative to `root`."""
    labels: Annotated[Names | Lists | Rows | Columns, Field(discriminator="kind")]
    exhaustive: bool
    """Whether the labels of a row are all that apply: then a class that is not named is absent, and cells that are
    unknown all the same (kind `columns`) are gaps left out of metrics. Else what is not given is unknown."""
    split_column: str | None
    """Column of the words train, val and test, or nothing where a row's split is not named; null: there is none."""
    group_column: str | None
    """Column of the names of groups of images of one thing (a burst, a video, a patient, a product), which no split
    cuts; nothing: the image is alone. null: there is none."""

    @model_validator(mode="after")
    def _values_fit_exhaustive(self) -> Self:
        if isinstance(self.labels, Columns):
            meanings = {self.labels.zero, self.labels.minus_one, self.labels.empty}
            if self.exhaustive and "absent" not in meanings:
                raise ValueError("exhaustive: true, but no value of a class's column means absent")
            if not self.exhaustive and "unknown" not in meanings:
                raise ValueError("exhaustive: false, but no value of a class's column means unknown")
        return self

    @model_validator(mode="after")
    def _each_column_says_one_thing(self) -> Self:
        roles = {key: getattr(self, key) for key in ("path_column", "split_column", "group_column")}
        if isinstance(self.labels, Columns):
            roles |= {f"classes.{number}": name for number, name in enumerate(self.classes or ())}
        else:
            roles |= {"labels.column": self.labels.column, "labels.present": getattr(self.labels, "present", None)}
        own_data.check_roles(roles)
        return self


@dataclass(frozen=True)
class Places:
    """Which columns of a table are read, by number.

    Args:
        path: That of the paths.
        split: That of the splits, if any.
        labels: Name -> column, of those that hold labels.
        present: That of whether the label of a row applies, if any.
        group: That of the groups, if any.
    """

    path: int
    split: int | None
    labels: dict[str, int]
    present: int | None = None
    group: int | None = None


def locate(settings: Settings, root: Path) -> Files:
    """Return where the table and the pictures are."""
    return own_data.locate(settings, root, settings.file)


def parse(files: Files, settings: Settings) -> Content:
    """Return what the rows of the table say, or of the tables where there is one for each split."""
    classes = own_data.wanted_classes(settings)
    rows: list[Row] = []
    columns: dict[str, None] = {}
    not_read: dict[str, None] = {}
    for name, file in files.lists.items():
        header, lines = read_table(file, DELIMITERS[settings.delimiter])
        places = _places(header, classes, settings, file.name)
        for number, fields in lines:
            where = f"line {number}" if len(files.lists) == 1 else f"{name} line {number}"
            if (row := _row(where, fields, len(header), places, settings, files.faults)) is not None:
                rows.append(own_data.place_row(row, name) if "*" in settings.file else row)
        used = {places.path, places.split, places.present, places.group, *places.labels.values()}
        not_read |= dict.fromkeys(text for place, text in enumerate(header) if place not in used and text)
        columns |= dict.fromkeys(places.labels)
    told = len(rows)
    if isinstance(settings.labels, Rows):
        rows = _join(rows, files.faults)
    wide = isinstance(settings.labels, Columns)
    return Content(
        rows=rows,
        classes=tuple(columns) if wide else classes,
        found=disk.scan(files.folder, settings.links),
        closed=settings.exhaustive and not wide,
        exhaustive=settings.exhaustive,
        grouped=settings.group_column is not None,
        report={"rows": told, "columns_not_read": list(not_read)}
        | ({"joined_rows": told - len(rows)} if isinstance(settings.labels, Rows) else {}),
    )


def _join(rows: list[Row], faults: Faults) -> list[Row]:
    """Return one row for all of a path and split, with the labels of all of them; rows of two groups are noted."""
    joined: dict[tuple[str, int | None], list[Row]] = {}
    for row in rows:
        of_path = joined.setdefault((row.path, row.split), [])
        of_path.append(row)
        if row.group != of_path[0].group:
            faults.add("rows of one path name different groups", f"{of_path[0].where} and {row.where} {row.path!r}")
    return [
        replace(
            group[0],
            present=tuple(dict.fromkeys(label for row in group for label in row.present)),
            absent=tuple(dict.fromkeys(label for row in group for label in row.absent)),
        )
        for group in joined.values()
    ]


def build(files: Files, content: Content, settings: Settings) -> Dataset:
    """Return the dataset, as `own_data.build` orders it.

    Raises:
        SourceError: as there; or the columns of an exhaustive table say nowhere that a class is absent.
    """
    data = own_data.build(files, content, settings)
    absent = data.table.scored & (data.table.truth == 0)
    if settings.exhaustive and isinstance(settings.labels, Columns) and not absent.any():
        raise SourceError(
            f"{files.faults.file}: exhaustive: true, but no row says that a class is absent, so every score would be "
            "100; set the value that means it (prepare: labels), or exhaustive to false"
        )
    return data


def read_table(file: Path, delimiter: str) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the columns' names, in NFC, empty where one has none, and the rows that are not blank, to be read once.

    A row is its line number and its fields, without blanks around them.

    Raises:
        SourceError: the file is empty, or a column is there twice; or, from the rows, quotes do not pair.
    """
    lines = read_rows(file, delimiter)
    try:
        _, header = next(lines)
    except StopIteration:
        raise SourceError(f"{file.name} is empty") from None
    header = [normalize_class_name(text) for text in header]
    if twice := find_duplicates(filter(None, header)):
        raise SourceError(f"{file.name}: duplicate columns: {preview(twice)}")
    return header, lines


def _places(header: list[str], classes: tuple[str, ...] | None, settings: Settings, file: str) -> Places:
    """Return which columns are read.

    Raises:
        SourceError: a column is missing, or its name cannot be that of a class.
    """

    def find(name: str, setting: str) -> int:
        if normalize_class_name(name) not in header:
            there = preview([text for text in header if text])
            raise SourceError(f"{file}: no column {name!r} (prepare: {setting}); there are: {there}")
        return header.index(normalize_class_name(name))

    path = find(settings.path_column, "path_column")
    split = None if settings.split_column is None else find(settings.split_column, "split_column")
    group = None if settings.group_column is None else find(settings.group_column, "group_column")
    present = None
    if not isinstance(settings.labels, Columns):
        labels = {settings.labels.column: find(settings.labels.column, "labels: column")}
        if isinstance(settings.labels, Rows) and settings.labels.present is not None:
            present = find(settings.labels.present, "labels: present")
    else:
        others = {text for place, text in enumerate(header) if place not in (path, split, group) and text}
        if classes is None and (odd := sorted(text for text in others if text.lower() in NO_CLASS)):
            raise SourceError(
                f"{file}: columns would be classes of these names: {preview(odd)}. Where such a column "
                "holds numbers of classes, write their names in it; where it marks a class, give it the name of that "
                "class; else list the columns that are classes in a profile (prepare: classes)"
            )
        labels = {label: find(label, "classes") for label in classes or sorted(others)}
    if odd := [label for label in labels if not is_class_name(label)]:
        raise SourceError(f"{file}: invalid class name of a column: {odd[0]!r}")
    return Places(path, split, labels, present, group)


def _row(where: str, fields: list[str], width: int, places: Places, settings: Settings, faults: Faults) -> Row | None:
    """Return what a row says of its image; None where it does not fit the header, which is noted."""
    labels = settings.labels
    if any(fields[width:]):
        mark = ";" if settings.delimiter != "semicolon" else "|"
        how = f"quote a field that holds the delimiter, or part names by {mark}"
        faults.add(f"rows have more fields than the header ({how})", f"{where} ({len(fields)} for {width})")
        return None
    if len(fields) < width:
        faults.add("rows have fewer fields than the header", f"{where} ({len(fields)} for {width})")
        return None
    if isinstance(labels, Columns):
        present, absent = _values(labels, places.labels, fields, where, faults)
    else:
        present, absent = _names(labels, fields[places.labels[labels.column]], where, faults), ()
        if isinstance(labels, Rows) and places.present is not None:
            present, absent = _applies(labels, present, fields[places.present], where, faults)
    split = None
    word = "" if places.split is None else fields[places.split]
    if word and (split := WORDS.get(word.lower())) is None:
        faults.add("values are none of train, val and test", f"{where}, column {settings.split_column}: {word!r}")
    group = "" if places.group is None else normalize_group(fields[places.group])
    return Row(where, fields[places.path], present, absent, split, group)


def _names(labels: Names | Lists | Rows, cell: str, where: str, faults: Faults) -> tuple[str, ...]:
    """Return the names in a cell; one that cannot be read is noted."""
    if isinstance(labels, Lists):
        if (parts := read_list(cell)) is None:
            faults.add("values are no lists of quoted names", f"{where}, column {labels.column}: {cell!r}")
    elif looks_like_list(cell):
        how = f"labels: {{kind: lists, column: {labels.column}}}"
        faults.add(f"values are lists written as text ({how})", f"{where}, column {labels.column}: {cell!r}")
        parts = None
    else:
        parts = split_names(cell, labels.separator) if isinstance(labels, Names) else [cell]
    return tuple(filter(None, map(normalize_class_name, parts or ())))


def _applies(
    labels: Rows, names: tuple[str, ...], cell: str, where: str, faults: Faults
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the label of a row as present or as absent, by the column that says which."""
    value = read_value(cell)
    if value not in ("one", "zero"):
        how = "1 where the label applies, 0 where it is known not to; delete rows that are not sure"
        faults.add(f"values are none of 1 and 0 ({how})", f"{where}, column {labels.present}: {cell!r}")
    return ((), names) if value == "zero" else (names, ())


@lru_cache(maxsize=1024)
def read_value(cell: str) -> str | None:
    """Return what a value of a class's column is: `one`, `zero`, `minus_one` or `empty`; None where it is none of them.

    Numbers may have a fraction of zeros, as pandas writes whole numbers as soon as one of a column is missing.
    """
    word = cell.strip().casefold()
    if not word or word in NO_VALUE:
        return "empty"
    if word in TRUE or word in FALSE:
        return "one" if word in TRUE else "zero"
    match = re.fullmatch(r"([+-]?)0*([01])(?:[.,]0*)?", word)
    if match is None:
        return None
    return "zero" if match[2] == "0" else "minus_one" if match[1] == "-" else "one"


def _values(
    labels: Columns, columns: dict[str, int], fields: list[str], where: str, faults: Faults
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the classes that are present and absent by the values of their columns."""
    present, absent = [], []
    for label, place in columns.items():
        value = read_value(fields[place])
        if value is None:
            how = "a column that is no class: delete it, or list the classes: prepare: classes"
            faults.add(f"values are none of {VALUES} ({how})", f"{where}, column {label}: {fields[place]!r}")
        elif value == "one":
            present.append(label)
        elif getattr(labels, value) == "absent":
            absent.append(label)
    return tuple(present), tuple(absent)


read, fingerprint = make_reader(locate, parse, build)
