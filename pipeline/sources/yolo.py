"""Images of one's own with YOLO's labels: a text file of class numbers and boxes a picture, and names in data.yaml.

The label file of a picture lies under its path with the last folder `images` called `labels`, or beside it. A class is
present where any line begins with its number; boxes, polygons and key points are not read.
Source: ours; the layout is that of Ultralytics' documentation of detection datasets.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.core.errors import ConfigError, SourceError
from pipeline.core.faults import Faults, check_class_names, normalize_class_name, preview, summarize
from pipeline.core.text import read_text, relative_path
from pipeline.core.yaml import parse_yaml
from pipeline.data import disk, own_data
from pipeline.data.own_data import WORDS, Content, Meaning, OwnData, Row
from pipeline.data.raw import Files, make_reader

PARTS = ("train", "val", "test")
"""Keys of data.yaml that say where the pictures of a split are."""
YAML = (".yaml", ".yml")


class Settings(OwnData):
    """Settings of `prepare.<dataset>` for pictures with label files as YOLO's tools write them, at or below `root`."""

    source: Literal["yolo"]
    file: str
    """The file of names, relative to `root`: data.yaml with `names`, whose `train`, `val` and `test` are the splits;
    or a list of names, one a line, as classes.txt: then a folder called by a split is that."""
    exhaustive: bool
    """Whether the boxes of a picture are all that it shows: then a class without one is absent, else unknown."""
    empty_file: Meaning
    """What every class is where a label file is empty: the picture shows none of them, or was not labelled."""
    no_file: Meaning
    """What every class is where a picture has no label file."""


@dataclass(frozen=True)
class Named:
    """What a file of names holds.

    Args:
        names: Class number -> name, in the order of numbers.
        parts: Split -> what its key of data.yaml lists; none where the file names no split.
    """

    names: dict[int, str]
    parts: dict[str, list[str]]


def locate(settings: Settings, root: Path) -> Files:
    """Return where names, label files, lists of pictures and the pictures are."""
    files = own_data.locate(settings, root, settings.file)
    file, found = _file(files), disk.scan(files.folder, settings.links, (".txt",))
    wanted = {name for picture in found.pictures for name in label_files(picture)}
    wanted |= _listing_files(files.folder, file)
    for name in found.others:
        if files.folder / name != file and (name in wanted or is_label_file(files.folder / name)):
            files.lists[name] = files.folder / name
    return files


def parse(files: Files, settings: Settings) -> Content:
    """Return what the label files say of the pictures."""
    named = read_names(_file(files), files.faults)
    files.faults.raise_if_any()
    found = disk.scan(files.folder, settings.links, (".txt",))
    rows: list[Row] = []
    states: dict[str, list[str]] = {"empty": [], "absent": []}
    used: set[str] = set()
    for where, picture, split in _pictures(files, named, found.pictures):
        if settings.is_unlabelled(picture):
            continue
        name = next((name for name in label_files(picture) if name in files.lists), None)
        if name is None:
            states["absent"].append(picture)
            rows.append(_bare_row(where or "picture", picture, split, settings.no_file))
            continue
        used.add(name)
        present = _read_labels(files.lists[name], name, named.names, files.faults)
        if present is None:
            states["empty"].append(name)
            rows.append(_bare_row(name, picture, split, settings.empty_file))
        else:
            rows.append(Row(name, picture, present, (), split))
    if lost := [name for name in files.lists if name not in used and is_label_file(files.lists[name])]:
        for name in lost if settings.bad_images == "stop" else ():
            files.faults.add("label files have no picture", name)
    report = {"rows": len(rows), "label_files_without_picture": summarize(lost)}
    report |= {f"label_files_{state}": summarize(names) for state, names in states.items()}
    return Content(
        rows=rows,
        classes=own_data.wanted_classes(settings) or tuple(named.names.values()),
        found=found,
        closed=settings.exhaustive,
        exhaustive=settings.exhaustive,
        report=report,
    )


def _file(files: Files) -> Path:
    """Return the file of names, which comes first."""
    return next(iter(files.lists.values()))


def _listing_files(folder: Path, file: Path) -> set[str]:
    """Return the lists of pictures that a file of names names; none where it cannot be read, which `parse` tells."""
    try:
        parts = read_names(file, Faults(file.name)).parts
    except SourceError:
        return set()
    found = [_find(folder, file, entry) for entries in parts.values() for entry in entries]
    return {name for name in found if name and not (folder / name).is_dir()}


def _bare_row(where: str, picture: str, split: int | None, meaning: Meaning) -> Row:
    """Return the row of a picture without a box, which shows no class or of which nothing is known."""
    return Row(where, picture, (), (), split, complete=meaning == "absent")


# ---------------------------------------------------------------------------------------------- names and splits
def read_names(file: Path, faults: Faults) -> Named:
    """Return what a file of names holds; names that cannot be used are noted.

    Raises:
        SourceError: It is no such file.
    """
    text = read_text(file)
    if file.suffix.lower() not in YAML:
        names = dict(enumerate(normalize_class_name(line) for line in text.rstrip().split("\n")))
        check_class_names(list(names.values()), faults, file.name)
        return Named(names, {})
    try:
        content = parse_yaml(text, file.name)
    except ConfigError as error:
        raise SourceError(str(error)) from error
    if not isinstance(content, dict) or not isinstance(content.get("names"), list | dict):
        raise SourceError(
            f"{file.name}: no list `names` of classes, as in names: [cat, dog] or names: {{0: cat, 1: dog}}"
        )
    given = content["names"]
    pairs = list(enumerate(given) if isinstance(given, list) else given.items())
    for number, name in pairs:
        if type(number) is not int or number < 0 or isinstance(name, bool) or not isinstance(name, str | int):
            faults.add(
                "names are not a class number and a text (quote words such as yes and null)", f"{number}: {name}"
            )
    names = {number: normalize_class_name(str(name)) for number, name in pairs}
    if "nc" in content and content["nc"] != len(names):
        faults.add_error(SourceError(f"{file.name}: nc: {content['nc']}, but `names` holds {len(names)}"))
    check_class_names(list(names.values()), faults, file.name)
    return Named(dict(sorted(names.items(), key=lambda pair: str(pair[0]).zfill(9))), _parts(content, file, faults))


def _parts(content: dict[str, Any], file: Path, faults: Faults) -> dict[str, list[str]]:
    """Return the entries of each split, below the folder that `path` names where it is there; others are noted."""
    parts: dict[str, list[str]] = {}
    for key, value in ((key, content.get(key)) for key in PARTS):
        entries = value if isinstance(value, list) else [] if value in (None, "") else [value]
        for entry in entries:
            if isinstance(entry, str):
                parts.setdefault(key, []).append(entry)
            else:
                faults.add("splits are no path or list of paths", f"{key}: {entry!r}", file.name)
    above = content.get("path")
    if isinstance(above, str) and os.path.isdir(file.parent / above):
        inner = os.path.relpath((file.parent / above).resolve(), file.parent.resolve())
        parts = {key: [os.path.join(inner, entry) for entry in entries] for key, entries in parts.items()}
    shared = [(one, other) for one in parts for other in parts if one < other and set(parts[one]) & set(parts[other])]
    for one, other in shared:
        how = "delete one of the two lines, and a split is drawn"
        faults.add(f"splits are the same pictures ({how})", f"{one} and {other}: {', '.join(parts[one])}", file.name)
    return parts


def _pictures(files: Files, named: Named, pictures: list[str]) -> Iterator[tuple[str, str, int | None]]:
    """Yield where a picture is listed (empty: it lies in a folder), its path, and its split."""
    if not named.parts:
        for picture in pictures:
            yield "", picture, next((WORDS[part] for part in _lower_folders(picture) if part in WORDS), None)
        return
    file = _file(files)
    for key, entries in named.parts.items():
        for entry in entries:
            place = _find(files.folder, file, entry)
            if place is None:
                how = "paths count from the folder of this file"
                files.faults.add(f"splits name no folder or list within {files.folder.name} ({how})", f"{key}: {entry}")
            elif (files.folder / place).is_dir():
                inside = "" if place == "." else f"{place}/"
                found = [picture for picture in pictures if picture.startswith(inside)]
                if not found:
                    files.faults.add("splits hold no picture", f"{key}: {entry}")
                yield from (("", picture, WORDS[key]) for picture in found)
            else:
                yield from ((where, path, WORDS[key]) for where, path in _listed(files, place))


def _listed(files: Files, name: str) -> Iterator[tuple[str, str]]:
    """Yield the pictures that a text file lists, by line; paths count from its folder, or from the root."""
    for number, line in enumerate(read_text(files.folder / name).split("\n"), start=1):
        if not (text := line.strip()):
            continue
        place = _find(files.folder, files.folder / name, text)
        try:
            yield f"{name} line {number}", place or relative_path(text)
        except ValueError as error:
            files.faults.add("invalid image paths", f"{name} line {number}: {error}")


def _find(folder: Path, file: Path, entry: str) -> str | None:
    """Return a path that a file names, from the root; None where nothing within the root is there.

    As in Ultralytics' reader a leading `../`, which Roboflow writes, may be one too many.
    """
    top, text = folder.resolve(), entry.replace("\\", "/")
    for base in (file.parent, folder):
        for tail in (text, text.removeprefix("../")):
            place = Path(os.path.normpath(base.resolve() / tail))
            if os.path.exists(place) and place.is_relative_to(top):  # Path's own raises where a name is too long
                return place.relative_to(top).as_posix()
    return None


def _lower_folders(path: str) -> list[str]:
    return path.lower().split("/")[:-1]


# ---------------------------------------------------------------------------------------------- labels
def label_files(picture: str) -> list[str]:
    """Return where the label file of a picture may lie, the likeliest first."""
    stem = os.path.splitext(picture)[0]
    parts = stem.split("/")
    places = [place for place, part in enumerate(parts[:-1]) if part == "images"]
    swapped = ["/".join([*parts[: places[-1]], "labels", *parts[places[-1] + 1 :]])] if places else []
    return [f"{name}.txt" for name in (*swapped, stem)]


def is_label_file(file: Path) -> bool:
    """Return whether the first line of a text file is a class number and at least four numbers."""
    try:
        line = read_text(file).lstrip().partition("\n")[0]
    except SourceError:
        return False
    return isinstance(_numbers(line.split()), list)


def _read_labels(file: Path, name: str, names: dict[int, str], faults: Faults) -> tuple[str, ...] | None:
    """Return the classes of a label file, None where it is empty; lines that cannot be read are noted."""
    try:
        lines = read_text(file).split("\n")
    except SourceError as error:
        faults.add_error(error)
        return None
    present: dict[str, None] = {}
    filled = False
    for number, line in enumerate(lines, start=1):
        if not (fields := line.split()):
            continue
        filled = True
        numbers = _numbers(fields)
        where = f"{name} line {number}"
        if numbers is None:
            faults.add("lines are not a class number and at least four numbers of a box", f"{where} {line.strip()!r}")
        elif numbers[0] not in names:
            there = f"names has {preview([str(key) for key in names])}"
            faults.add(f"class numbers have no name ({there})", f"{where} {fields[0]}")
        else:
            present[names[int(numbers[0])]] = None
    return tuple(present) if filled else None


def _numbers(fields: list[str]) -> list[float] | None:
    """Return the numbers of a line of a label file, None where it is none."""
    try:
        numbers = [float(field) for field in fields]
    except ValueError:
        return None
    return numbers if len(numbers) >= 5 and all(map(math.isfinite, numbers)) and numbers[0].is_integer() else None


read, fingerprint = make_reader(locate, parse, own_data.build)
