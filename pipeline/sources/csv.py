"""Images of one's own in a table: a path a row, and either a column of label names or one column per class.

The file has a header and is UTF-8; delimiter, columns and what 0, -1 and an empty value mean are settings. One image is
one row: a table with a row for each label is refused, since a path is there twice with different labels.
Source: ours.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, find_duplicates, is_class_name, normalize_class_name, preview
from pipeline.core.strict import Strict
from pipeline.core.text import read_rows
from pipeline.data import own_data, raw
from pipeline.data.own_data import WORDS, Content, OwnData, Row
from pipeline.data.raw import Files
from pipeline.labels.table import Dataset

DELIMITERS = {"comma": ",", "tab": "\t", "semicolon": ";"}
VALUES = {"1": "one", "1.0": "one", "0": "zero", "0.0": "zero", "-1": "minus_one", "-1.0": "minus_one", "": "empty"}
"""Values of a class's column; with a fraction as pandas writes whole numbers as soon as one of a column is missing."""
Meaning = Literal["absent", "unknown"]


class Names(Strict):
    """One column holds the names of all labels of a row."""

    kind: Literal["names"]
    column: str
    separator: Annotated[str, Field(min_length=1)]
    """What stands between two names."""


class Columns(Strict):
    """Each class has a column, 1 where it is present. With `classes: null`, every column but path and split is one."""

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
    """The table, relative to `root`."""
    delimiter: Literal["comma", "tab", "semicolon"]
    path_column: str
    """Column of the pictures' paths, relative to `root`."""
    labels: Annotated[Names | Columns, Field(discriminator="kind")]
    exhaustive: bool
    """Whether the labels of a row are all that apply: then a class that is not named is absent, and cells that are
    unknown all the same (kind `columns`) are gaps left out of metrics. Else what is not given is unknown."""
    split_column: str | None
    """Column of the words train, val and test, or nothing where a row's split is not named; null: there is none."""

    @model_validator(mode="after")
    def _values_fit_exhaustive(self) -> Self:
        if isinstance(self.labels, Columns):
            meanings = {self.labels.zero, self.labels.minus_one, self.labels.empty}
            if self.exhaustive and "absent" not in meanings:
                raise ValueError("exhaustive: true, but no value of a class's column means absent")
            if not self.exhaustive and "unknown" not in meanings:
                raise ValueError("exhaustive: false, but no value of a class's column means unknown")
        return self


@dataclass(frozen=True)
class Places:
    """Which columns of a table are read, by number.

    Args:
        path: That of the paths.
        split: That of the splits, if any.
        labels: Name -> column, of those that hold labels.
    """

    path: int
    split: int | None
    labels: dict[str, int]


def read(settings: Settings, root: Path) -> Dataset:
    """Return the dataset of a table, by the steps that `base` describes."""
    files = locate(settings, root)
    return build(files, parse(files, settings), settings)


def fingerprint(settings: Settings, root: Path) -> str:
    """Return what tells one state of a table and its pictures from another, as `base` describes."""
    return raw.digest(locate(settings, root))


def locate(settings: Settings, root: Path) -> Files:
    """Return where the table and the pictures are."""
    return own_data.locate(settings, root, settings.file)


def parse(files: Files, settings: Settings) -> Content:
    """Return what the rows of the table say."""
    (file,) = files.lists.values()
    header, lines = read_table(file, DELIMITERS[settings.delimiter])
    classes = own_data.wanted_classes(settings)
    places = _places(header, classes, settings, file.name)
    by_names = isinstance(settings.labels, Names)
    rows = [row for line in lines if (row := _row(*line, len(header), places, settings, files.faults)) is not None]
    used = {places.path, places.split, *places.labels.values()}
    return Content(
        rows=rows,
        classes=classes if by_names else tuple(places.labels),
        pictures=raw.list_pictures(files.folder),
        closed=settings.exhaustive and by_names,
        exhaustive=settings.exhaustive,
        report={
            "rows": len(rows),
            "columns_not_read": [text for place, text in enumerate(header) if place not in used and text],
        },
    )


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
    if isinstance(settings.labels, Names):
        labels = {settings.labels.column: find(settings.labels.column, "labels: column")}
    else:
        others = {text for place, text in enumerate(header) if place not in (path, split) and text}
        if classes is None and (odd := sorted(text for text in others if text.lower() in own_data.NO_CLASS)):
            raise SourceError(
                f"{file}: columns would be classes of these names: {preview(odd)}. Where such a column "
                "holds numbers of classes, write their names in it; where it marks a class, give it the name of that "
                "class; else list the columns that are classes in a profile (prepare: classes)"
            )
        labels = {label: find(label, "classes") for label in classes or sorted(others)}
    if odd := [label for label in labels if not is_class_name(label)]:
        raise SourceError(f"{file}: invalid class name of a column: {odd[0]!r}")
    return Places(path, split, labels)


def _row(number: int, fields: list[str], width: int, places: Places, settings: Settings, faults: Faults) -> Row | None:
    """Return what a row says of its image; None where it does not fit the header, which is noted."""
    where, labels = f"line {number}", settings.labels
    if any(fields[width:]):
        mark = ";" if settings.delimiter != "semicolon" else "|"
        how = f"quote a field that holds the delimiter, or part names by {mark}"
        faults.add(f"rows have more fields than the header ({how})", f"{where} ({len(fields)} for {width})")
        return None
    if len(fields) < width:
        faults.add("rows have fewer fields than the header", f"{where} ({len(fields)} for {width})")
        return None
    if isinstance(labels, Names):
        parts = fields[places.labels[labels.column]].split(labels.separator)
        present, absent = tuple(filter(None, map(normalize_class_name, parts))), ()
    else:
        present, absent = _values(labels, places.labels, fields, where, faults)
    split = None
    word = "" if places.split is None else fields[places.split]
    if word and (split := WORDS.get(word.lower())) is None:
        faults.add("values are none of train, val and test", f"{where}, column {settings.split_column}: {word!r}")
    return Row(where, fields[places.path], present, absent, split)


def _values(
    labels: Columns, columns: dict[str, int], fields: list[str], where: str, faults: Faults
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the classes that are present and absent by the values of their columns."""
    present, absent = [], []
    for label, place in columns.items():
        value = VALUES.get(fields[place])
        if value is None:
            faults.add("values are none of 1, 0, -1 and empty", f"{where}, column {label}: {fields[place]!r}")
        elif value == "one":
            present.append(label)
        elif getattr(labels, value) == "absent":
            absent.append(label)
    return tuple(present), tuple(absent)
