"""Pictures of Open Images with tables of image-level labels or boxes: an image, a label and a confidence a row.

A confidence of 1 is a class that people found, 0 one that they looked for and did not find; whatever nobody looked for
is unknown. The picture of an id is the one file of that name below the root; a table whose name begins with a split,
or else the folder of the picture, names the split. Boxes are not read.
Source: ours; the tables are those of the Open Images download pages, V4 to V7.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, normalize_class_name, preview, summarize
from pipeline.core.text import read_rows
from pipeline.data import disk, own_data
from pipeline.data.own_data import WORDS, Content, OwnData, Row
from pipeline.data.raw import Files, make_reader

CODE = re.compile(r"/[a-z]/\w+$")
COLUMNS = ("ImageID", "LabelName", "Confidence")


class Settings(OwnData):
    """Settings of `prepare.<dataset>` for a copy of Open Images, or a part of it."""

    source: Literal["open_images"]
    file: str
    """The table, relative to `root`; or a pattern such as `*-annotations-human-imagelabels.csv`: one for each split."""
    names: str | None
    """Table of what the labels are called, a label and a name a row, relative to `root`; null: they are names."""
    missing: Literal["stop", "leave_out"]
    """Images of the tables whose picture is not there: an error, or left out and counted, as where a part of the
    pictures was downloaded."""


def locate(settings: Settings, root: Path) -> Files:
    """Return where the tables and the pictures are."""
    files = own_data.locate(settings, root, settings.file)
    if settings.names is not None:
        files.lists["names"] = files.folder / settings.names
    return files


def parse(files: Files, settings: Settings) -> Content:
    """Return what the tables say of the pictures that there are."""
    found = disk.scan(files.folder, settings.links)
    pictures: dict[str, list[str]] = {}
    for picture in found.pictures:
        if not settings.is_unlabelled(picture):
            pictures.setdefault(os.path.splitext(picture.rpartition("/")[2])[0], []).append(picture)
    names = None if settings.names is None else read_names(files.lists["names"], files.faults)
    rows: list[Row] = []
    missing: dict[str, str] = {}
    told = 0
    tables = {table: file for table, file in files.lists.items() if table != "names"}
    for table, file in tables.items():
        labels: dict[str, dict[str, list[str]]] = {}  # image -> place of its first row, present, absent
        for line, image, label, present in read_table(file, files.faults):
            told += 1
            where = f"{table} {line}" if len(tables) > 1 else line
            if image not in pictures:
                missing.setdefault(image, where)
            elif (name := normalize_class_name(label) if names is None else names.get(label)) is None:
                files.faults.add(f"labels have no name in {settings.names}", f"{where} {label}", table)
            else:
                entry = labels.setdefault(image, {"where": [where], "present": [], "absent": []})
                entry["present" if present else "absent"].append(name)
        rows += _rows(labels, pictures, file, files.faults)
    if settings.missing == "stop":
        for image, where in missing.items() if settings.bad_images == "stop" else ():
            files.faults.add("images have no picture file (missing: leave_out, where it is a part)", f"{where} {image}")
    return Content(
        rows=rows,
        classes=own_data.wanted_classes(settings),
        found=found,
        closed=False,
        exhaustive=False,
        report={"rows": told, "images_without_picture": summarize(list(missing))},
        warnings=_doubt_names(rows) if settings.names is None else (),
    )


def _doubt_names(rows: list[Row]) -> list[str]:
    """Return a warning where classes are called by the identifiers of Open Images."""
    coded = sorted({label for row in rows for label in (*row.present, *row.absent) if CODE.match(label)})
    how = "put the table of their names, class-descriptions, beside the others (prepare: names)"
    return [f"classes are called by identifiers: {preview(coded)}; {how}"] if coded else []


def _rows(
    labels: dict[str, dict[str, list[str]]], pictures: dict[str, list[str]], file: Path, faults: Faults
) -> Iterator[Row]:
    """Yield a row for each image of a table; an id that fits several pictures is noted."""
    of_table = WORDS.get(file.name.partition("-")[0].lower())
    for image, entry in labels.items():
        (where,), fit = entry["where"], pictures[image]
        if len(fit) > 1:
            faults.add("ids fit several pictures", f"{where} {image} ({preview(fit)})")
            continue
        of_folder = next((WORDS[part] for part in fit[0].lower().split("/")[:-1] if part in WORDS), None)
        present, absent = (tuple(dict.fromkeys(entry[key])) for key in ("present", "absent"))
        yield Row(where, fit[0], present, absent, of_folder if of_table is None else of_table)


def read_table(file: Path, faults: Faults) -> Iterator[tuple[str, str, str, bool]]:
    """Read a table row by row.

    Args:
        file: The table.
        faults: Get rows that cannot be read.

    Yields:
        Where a row is, its image, its label, and whether that is present.

    Raises:
        SourceError: A column is missing.
    """
    lines = read_rows(file, ",")
    header = next(lines, (0, []))[1]
    if lacking := [name for name in COLUMNS if name not in header]:
        raise SourceError(f"{file.name}: no column {preview(lacking)}, as tables of Open Images have")
    places = [header.index(name) for name in COLUMNS]
    for number, fields in lines:
        where = f"line {number}"
        if len(fields) != len(header):
            faults.add("rows have another number of fields than the header", f"{where} ({len(fields)})", file.name)
            continue
        image, label, confidence = (fields[place] for place in places)
        try:
            value = float(confidence)
        except ValueError:
            value = -1.0
        if value in (0, 1):
            yield where, image, label, value == 1
        else:
            how = "labels of machines are guesses: take the table of people's, `human` in its name"
            faults.add(f"confidences are none of 1 and 0 ({how})", f"{where} {confidence!r}", file.name)


def read_names(file: Path, faults: Faults) -> dict[str, str]:
    """Return what labels are called, by label; several that share a name are told apart by the label behind it.

    Args:
        file: The table, with a header as in V7 or without one.
        faults: Get rows that are no label and name, and labels that are there twice.
    """
    names: dict[str, str] = {}
    for number, fields in read_rows(file, ","):
        if number == 1 and fields[0] == "LabelName":
            continue
        if len(fields) != 2 or not all(fields):
            faults.add("rows are not a label and its name", f"line {number}", file.name)
        elif names.setdefault(fields[0], name := normalize_class_name(fields[1])) != name:
            faults.add("labels have two names", f"line {number} {fields[0]}", file.name)
    shared = {name for name, count in Counter(names.values()).items() if count > 1}
    return {label: f"{name} ({label})" if name in shared else name for label, name in names.items()}


read, fingerprint = make_reader(locate, parse, own_data.build)
