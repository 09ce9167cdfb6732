"""Recognise how the images of a folder are labelled: by its class folders, by XML files, or by a table or JSON."""

import os
import shlex
from collections.abc import Iterable, Sequence
from csv import reader
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from pipeline.core import text
from pipeline.core.errors import ConfigError
from pipeline.core.faults import Faults, pluralize, preview
from pipeline.data import disk, layouts
from pipeline.data.names import NO_CLASS, SEPARATORS, UNSURE, looks_like_list, read_list, separates
from pipeline.data.own_data import WORDS
from pipeline.sources import csv as tables
from pipeline.sources import json as objects

SAMPLE = 50  # lines of a table, which are enough to tell its delimiter
FILES = (".csv", ".tsv", ".json", ".jsonl")
"""Endings of files of labels."""
LABELS = (NO_CLASS - {"image", "images"}) | {
    f"{kind}{mark}name" for kind in ("label", "class", "category") for mark in ("", "_")
}
"""Usual names of the column of labels, compared without case."""
SPLIT = {"split", "splits", "subset", "partition"}
"""Usual names of the column of splits, compared without case."""
ABSENT = ("absent", "negatives", "negative")
"""Usual keys of the labels known not to apply."""
APPLIES = ("confidence", "present", "presence", "applies", "value", "score")
"""Usual names of the column that says whether the label of a row applies, compared without case."""
ANNOTATIONS = NO_CLASS | {"csv", "json", "meta", "metadata"}
"""Usual names of the folder of files of labels, beside those of pictures, compared without case."""
TABLES = (".xlsx", ".xls", ".ods", ".parquet", ".txt", ".pkl", ".feather", ".xml", ".mat", ".npy")
"""Endings of files that may hold labels and are not read."""
EXTRA = {"id", "index", "idx", "unnamed: 0", "width", "height", "filesize", "timestamp"}
"""Usual names of columns that are no labels, whatever they hold, compared without case."""
NONE = "none"
"""What stands for no separator on the command line."""


@dataclass(frozen=True)
class Named:
    """Columns of a table, or keys of objects, that the user names; None: to be recognised."""

    path: str | None = None
    labels: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class Declared:
    """What the user says of values that could mean several things; None: nothing.

    Args:
        separator: What stands between names; `none`: a text is one name.
        zero: What 0 means in the column of a class, `absent` or `unknown`.
        minus_one: What -1 means there.
        empty: What nothing means there.
        links: Whether links that lead out of the folder are read.
    """

    separator: str | None = None
    zero: str | None = None
    minus_one: str | None = None
    empty: str | None = None
    links: disk.Links = "inside"


def recognise(
    place: Path,
    exhaustive: bool,
    named: Named = Named(),  # noqa: B008  it is frozen
    declared: Declared = Declared(),  # noqa: B008  it is frozen
) -> dict[str, Any]:
    """Return how the images of a folder are labelled.

    Args:
        place: A folder of pictures with one CSV, TSV, JSON or JSON-lines file, or one in each folder of a split, or
            with XML files, or with one folder for each class; or that file, where there are several.
        exhaustive: Whether the labels of an image are all that apply to it.
        named: Columns or keys of that file.
        declared: What values mean.

    Returns:
        The block of `prepare` without `root` and `size`.

    Raises:
        ConfigError: There is no such folder, or it is not clear how its images are labelled; the message says what was
            found, and what to do.
        SourceError: A folder or the file of labels cannot be read.
    """
    folder = find_folder(place)
    if not folder.is_dir():
        raise ConfigError(f"{place}: no such folder or file")
    if place.is_file() and place.suffix.lower() not in FILES:
        raise ConfigError(f"{place}: not a file of labels ({', '.join(FILES)})")
    found = disk.scan(folder, declared.links, (".xml",))
    if not found.pictures:
        other = f"; not read: {preview(found.unread)}" if found.unread else ""
        other += "; the XML files need theirs at or below the folder" if found.others else ""
        raise ConfigError(f"{folder}: holds no picture ({', '.join(disk.ENDINGS)}){other}")
    files = [place] if place.is_file() else _find_files(folder)
    block = _recognise(folder, found, files, exhaustive, named, declared)
    if block["source"] != "folder":
        block["exhaustive"] = exhaustive
    common = {"bad_images": "stop", "links": declared.links, "max_pixels": 200_000_000, "classes": None}
    common |= {"val_fraction": 0.2, "test_fraction": 0.2, "split_seed": 0}
    _check_declared(declared, block)
    return block | {key: value for key, value in common.items() if key not in block}


def find_folder(place: Path) -> Path:
    """Return the folder of the pictures: the one that is named, or that of the file of labels that is.

    Of a file in a folder `annotations` without pictures, where COCO's lie, it is the folder around that.
    """
    if not place.is_file():
        return place
    folder = place.resolve().parent
    pictured = any(file.suffix.lower() in disk.ENDINGS for file in folder.iterdir())
    return folder.parent if folder.name.lower() in ANNOTATIONS and not pictured else place.parent


def _recognise(
    folder: Path, found: disk.Found, files: list[Path], exhaustive: bool, named: Named, declared: Declared
) -> dict[str, Any]:
    """Return what is said of the labels alone.

    Raises:
        ConfigError: As said.
    """
    if not files:
        if known := layouts.name_layout(folder, xml=False):
            raise ConfigError(known)
        if any(astuple(named)):
            raise ConfigError(
                f"{folder}: no .csv or .json of labels whose columns or keys --path, --labels or --split name"
            )
        stems = {os.path.splitext(name)[0].rpartition("/")[2] for name in found.pictures}
        if any(os.path.splitext(name)[0].rpartition("/")[2] in stems for name in found.others):
            return {"source": "xml"}
        return {"source": "folder", **_recognise_folders(folder, found.pictures, exhaustive)}
    file = files[0]
    name = file.name if file.parent == folder else file.resolve().relative_to(folder.resolve()).as_posix()
    if len(files) > 1:
        name = f"*/{file.name}"
    if file.suffix.lower() in (".csv", ".tsv"):
        sheet = _read_sheet(files)
        return {"source": "csv", "file": name, **_recognise_columns(sheet, found, exhaustive, named, declared)}
    return {"source": "json", "file": name, "content": _recognise_json(files, found, named, declared)}


def _find_files(folder: Path) -> list[Path]:
    """Return the files of labels of a folder: one in it, or one of one name in each folder of a split.

    Raises:
        ConfigError: There are several.
    """
    for pattern in ("[!.]*", "[!.]*/[!.]*"):
        files = sorted(path for path in folder.glob(pattern) if path.suffix.lower() in FILES and path.is_file())
        if pattern != "[!.]*":
            splits = [path for path in files if path.parent.name.lower() in WORDS]
            of_one = [path for path in files if path.parent.name.lower() in ANNOTATIONS]
            files = splits or of_one
            if len(files) > 1 and len({path.name for path in files}) == 1 and files == splits:
                return files
        if len(files) > 1:
            if known := layouts.name_layout(folder, xml=False):
                raise ConfigError(known)
            names = [path.relative_to(folder).as_posix() for path in files]
            stems = {path.stem for path in folder.glob("*") if path.suffix.lower() in disk.ENDINGS}
            if all(path.stem in stems for path in files):
                raise ConfigError(
                    f"{folder}: a file of labels for each picture, as {names[0]}, is not read (LabelMe): export all as "
                    "one COCO JSON, or as XML files in the form of PASCAL VOC"
                )
            raise ConfigError(
                f"{folder}: which of {preview(names)} holds the labels? name it: spml init {shlex.quote(str(files[0]))}"
            )
        if files:
            return [] if pattern != "[!.]*" and layouts.name_layout(folder, xml=False) else files
    return []


def _recognise_folders(folder: Path, pictures: list[str], exhaustive: bool) -> dict[str, Any]:
    """Return what class folders say.

    Raises:
        ConfigError: There are none, or they cannot be what is asked for.
    """
    tops = {picture.split("/")[0] for picture in pictures if "/" in picture}
    if not tops:
        found = pluralize(len(pictures), "picture")
        others = sorted(path.name for path in folder.glob("[!.]*") if path.suffix.lower() in TABLES)
        hint = (
            f"; not read: {preview(others)} - save labels as a .csv whose first line names the columns"
            if others
            else ""
        )
        raise ConfigError(f"{folder}: {found}, but neither class folders nor a .csv, .json or .xml of labels{hint}")
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


def _check_declared(declared: Declared, block: dict[str, Any]) -> None:
    """Refuse what the user says of values that there are none of.

    Raises:
        ConfigError: As said.
    """
    labels = block.get("labels", {})
    for option in ("zero", "minus_one", "empty"):
        if getattr(declared, option) is not None and labels.get("kind") != "columns":
            raise ConfigError(f"--{option.replace('_', '-')}: there is no column of 1 and 0 for each class")
    separated = labels.get("kind") == "names" or "separator" in block.get("content", {})
    if declared.separator is not None and not separated:
        raise ConfigError("--separator: there is no text of label names")


# ---------------------------------------------------------------------------------------------- columns of a table
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


def _recognise_columns(
    sheet: Sheet, found: disk.Found, exhaustive: bool, named: Named, declared: Declared
) -> dict[str, Any]:
    """Return what the columns of a table say.

    Raises:
        ConfigError: A named column is not there, or it is not clear which hold labels, or what they mean.
    """
    values = sheet.values
    _check_named(sheet.file, "column", list(values), named)
    free = [name for name in values if name not in astuple(named)]
    paths = [named.path] if named.path else _find_paths(free, values, found)
    splits = [named.split] if named.split else _find_splits({name: values[name] for name in free})
    rest = [name for name in values if name not in (*paths, *splits)]
    joined = bool(paths) and len(set(values[paths[0]])) < len(values[paths[0]])
    applies = [name for name in rest if joined and name.lower() in APPLIES and name != named.labels]
    numbers = [name for name in rest if name != named.labels and _is_extra(name, values[name])]
    rest = [name for name in rest if name not in (*applies, *numbers)]
    cells = [name for name in rest if _are_cells(values[name])]
    column = named.labels or _find_labels(rest, cells, values)
    if len(paths) != 1 or len(splits) > 1 or len(applies) > 1 or (column is None and not (rest and cells == rest)):
        listed = {"picture files": paths, "train, val and test": splits, tables.VALUES: cells}
        listed["something else"] = [name for name in rest if name not in cells] + numbers
        expected = "one of label names, or one of 1, 0, -1 and nothing for each class"
        raise ConfigError(_explain_unclear(sheet.file, "column", expected, listed))
    block = {"delimiter": sheet.delimiter, "path_column": paths[0]}
    if column is not None:
        block |= {"labels": _name_column(sheet, column, joined, applies[0] if applies else None, declared)}
    else:
        block |= {"labels": _class_columns(sheet, cells, exhaustive, declared)}
        block |= {"classes": sorted(cells)} if numbers else {}
    return block | {"split_column": splits[0] if splits else None}


def _read_sheet(files: list[Path]) -> Sheet:
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
                pictured = _has_pictures(found)
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
    paths = [name for name in names if _has_pictures(values[name])]
    return paths or [name for name in names if _names_pictures(values[name], found.pictures)]


def _names_pictures(values: Iterable[Any], pictures: Sequence[str]) -> bool:
    """Return whether at least half of the values are the names of pictures without their endings."""
    stems = {os.path.splitext(picture)[0].rpartition("/")[2].casefold() for picture in pictures}
    texts = {value.replace("\\", "/") for value in values if isinstance(value, str)}
    names = {text.rpartition("/")[2].casefold() for text in texts} - {""}
    return bool(names) and 2 * len(names & stems) >= len(names)


def _find_splits(values: dict[str, list[str]]) -> list[str]:
    """Return the columns that hold splits; else those called so, unless they mark a class."""
    words = [name for name in values if _holds((value.lower() for value in values[name]), WORDS)]
    called = [name for name in values if name.lower() in SPLIT and not _are_marks(values[name])]
    return words or called  # the source names the values that are no splits


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
    mark = _find_separator(sheet.file, values, declared)
    free = [mark for mark in (*SEPARATORS, "||") if not any(mark in value for value in values)]
    return {"kind": "names", "column": column, "separator": mark or free[0]}


def _find_separator(file: Path, values: Iterable[str], declared: Declared) -> str | None:
    """Return what stands between names in texts, None where each is one name.

    Raises:
        ConfigError: That is not clear.
    """
    if declared.separator is not None:
        return None if declared.separator == NONE else declared.separator
    values = {value for value in values if not looks_like_list(value)}  # which the source refuses by line
    if sure := [mark for mark in SEPARATORS if separates(mark, values)]:
        return sure[0]
    unclear = [mark for mark in SEPARATORS if any(mark in value.strip(mark) for value in values)]
    for mark in unclear + [mark for mark in UNSURE if separates(mark, values)]:
        example = min(value for value in values if mark in value.strip(mark))
        raise ConfigError(
            f"{file.name}: is {example!r} one name, or does {mark!r} stand between several? say: --separator "
            f"{shlex.quote(mark)}, or for one name --separator {NONE}"
        )
    return None


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


# ---------------------------------------------------------------------------------------------- keys of objects
def _recognise_json(files: list[Path], found: disk.Found, named: Named, declared: Declared) -> dict[str, Any]:
    """Return what a JSON file holds, or those of all splits.

    Raises:
        ConfigError: A named key is not there, or it is not clear which key holds what.
    """
    file = files[0]
    keys = objects.one_object(text.read_text(file))
    if keys is None:
        return {"kind": "objects", **_recognise_keys(files, found, named, declared)}
    if set(objects.COCO) <= set(keys):
        content: dict[str, Any] = {"kind": "coco"}
    elif _has_pictures(keys) or _names_pictures(keys, found.pictures):
        texts = [value for each in files for value in objects.read_object(each).values() if isinstance(value, str)]
        content = {"kind": "map", "separator": _find_separator(file, texts, declared)}
    else:
        objects.read_entries(file, Faults(file.name)).__next__()  # raises what is expected
        content = {}
    if any(astuple(named)):
        raise ConfigError(f"{file.name}: no objects whose keys --path, --labels or --split name")
    return content


def _recognise_keys(files: list[Path], found: disk.Found, named: Named, declared: Declared) -> dict[str, Any]:
    """Return what the keys of objects say.

    Raises:
        ConfigError: A named key is not there, or it is not clear which key holds what.
    """
    file = files[0]
    faults = Faults(file.name)  # the source names them, with all others
    rows = [entry for each in files for _, entry in objects.read_entries(each, faults) if isinstance(entry, dict)]
    if not rows:
        raise ConfigError(f"{file.name}: no object in it, such as one with the path of a picture and its labels")
    keys = list(dict.fromkeys(key for row in rows for key in row))
    _check_named(file, "key", keys, named)
    values = {key: [row.get(key) for row in rows] for key in keys}
    free = [key for key in keys if key not in astuple(named)]
    paths = [named.path] if named.path else [key for key in free if _has_pictures(values[key])]
    paths = paths or [key for key in free if _names_pictures(values[key], found.pictures)]
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
        listed = {"picture files": paths, "train, val and test": splits, "lists of names": lists, "text": texts}
        raise ConfigError(_explain_unclear(file, "key", "one of lists of label names, or of one name", listed))
    written = [value for key in (*present, *absent) for value in values[key] if isinstance(value, str)]
    return {
        "path_key": paths[0],
        "labels_key": present[0],
        "separator": _find_separator(file, written, declared),
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
    return any(str(value).lower().endswith(disk.ENDINGS) for value in values)


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


def _is_mark(value: Any) -> bool:
    return value is None or isinstance(value, bool) or tables.read_value(str(value)) is not None


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
