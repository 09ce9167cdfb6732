"""Images of one's own in a table: a path a row, and either a column of label names or one column per class.

The file has a header and is UTF-8; delimiter, columns and what 0, -1 and an empty value mean are settings. One image is
one row: a table with a row for each label is refused, since a path is there twice with different labels.
Source: ours.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, class_name, some, usable
from pipeline.core.strict import Strict
from pipeline.core.text import delimited
from pipeline.data import own_data, raw
from pipeline.data.own_data import WORDS, OwnData, Row
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


def read(settings: Settings, root: Path) -> Dataset:
    """Read a table; pictures are looked up, not opened.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        The dataset, as `own_data.dataset` orders it.

    Raises:
        SourceError: the file, a column or a picture is missing, or rows are faulty, the message names line and column;
            or the columns of an exhaustive table say nowhere that a class is absent.
    """
    folder = raw.raw_folder(settings, root)
    file = folder / settings.file
    header, lines = table(file, DELIMITERS[settings.delimiter])

    def column(name: str, setting: str) -> int:
        if class_name(name) not in header:
            there = some([text for text in header if text])
            raise SourceError(f"{file.name}: no column {name!r} (prepare: {setting}); there are: {there}")
        return header.index(class_name(name))

    path_at = column(settings.path_column, "path_column")
    split_at = None if settings.split_column is None else column(settings.split_column, "split_column")
    labels, classes = settings.labels, own_data.wanted(settings)
    if isinstance(labels, Names):
        columns = {labels.column: column(labels.column, "labels: column")}
    else:
        others = {text for place, text in enumerate(header) if place not in (path_at, split_at) and text}
        if classes is None and (odd := sorted(text for text in others if text.lower() in own_data.NO_CLASS)):
            raise SourceError(
                f"{file.name}: columns would be classes of these names: {some(odd)}. Where such a column "
                "holds numbers of classes, write their names in it; where it marks a class, give it the name of that "
                "class; else list the columns that are classes in a profile (prepare: classes)"
            )
        classes = classes or tuple(sorted(others))
        columns = {label: column(label, "classes") for label in classes}
    if odd := [label for label in columns if not usable(label)]:
        raise SourceError(f"{file.name}: column {odd[0]!r} is no name")

    faults = Faults(file.name)
    mark = ";" if settings.delimiter != "semicolon" else "|"
    long = f"rows have more fields than the header (quote a field that holds the delimiter, or part names by {mark})"
    rows: list[Row] = []
    for number, fields in lines:
        where = f"line {number}"
        if any(fields[len(header) :]):
            faults.add(long, f"{where} ({len(fields)} for {len(header)})")
            continue
        if len(fields) < len(header):
            faults.add("rows have fewer fields than the header", f"{where} ({len(fields)} for {len(header)})")
            continue
        if isinstance(labels, Names):
            text = fields[columns[labels.column]]
            present = tuple(label for part in text.split(labels.separator) if (label := class_name(part)))
            absent = ()
        else:
            present, absent = _values(labels, columns, fields, where, faults)
        split = None
        word = "" if split_at is None else fields[split_at]
        if word and (split := WORDS.get(word.lower())) is None:
            value = f"{where}, column {settings.split_column}: {word!r}"
            faults.add("values are none of train, val and test", value)
        rows.append(Row(where, fields[path_at], present, absent, split))
    data = own_data.dataset(
        settings,
        folder,
        rows,
        faults,
        classes=classes,
        found=raw.pictures(folder),
        closed=settings.exhaustive and isinstance(labels, Names),
        exhaustive=settings.exhaustive,
    )
    if settings.exhaustive and isinstance(labels, Columns) and not (data.table.scored & (data.table.truth == 0)).any():
        raise SourceError(
            f"{file.name}: exhaustive: true, but no row says that a class is absent, so every score would be 100; set "
            "the value that means it (prepare: labels), or exhaustive to false"
        )
    used = {path_at, split_at, *columns.values()}
    data.report["rows"] = len(rows)
    data.report["columns_not_read"] = [text for place, text in enumerate(header) if place not in used and text]
    return data


def fingerprint(settings: Settings, root: Path) -> str:
    """Tell one state of the raw data from another without opening a picture.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        SHA-256 over the table and the names and sizes of all picture files below the root; where it lies does not
        count.

    Raises:
        SourceError: the folder or the table is missing.
    """
    folder = raw.raw_folder(settings, root)
    return raw.state({Path(settings.file).name: folder / settings.file}, {".": folder})


def table(file: Path, delimiter: str) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Open a table.

    Args:
        file: The file.
        delimiter: What stands between two fields.

    Returns:
        The names of the columns, NFC, empty where a column has none; and, to be read once, line number and fields of
        each row that is not blank, without blanks around fields.

    Raises:
        SourceError: the file is missing, not UTF-8 text or empty, or a column is there twice; or, from the rows, quotes
            do not pair.
    """
    lines = delimited(file, delimiter)
    try:
        _, header = next(lines)
    except StopIteration:
        raise SourceError(f"{file.name} is empty") from None
    header = [class_name(text) for text in header]
    if twice := sorted(text for text, count in Counter(header).items() if text and count > 1):
        raise SourceError(f"{file.name}: columns are there twice: {some(twice)}")
    return header, lines


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
