"""PASCAL VOC: class lists `ImageSets/Main/<class>_{train,val}.txt`, or the objects of `Annotations/<id>.xml`.

A label is 1 present, -1 absent, 0 where all objects of the class are "difficult". The official train list becomes the
training part (cut in train and val), the official val list the test part. Where objects lie is read from the
annotations in both cases; a class that non-difficult objects make present is measured on these alone, and difficult
ones count only where the setting makes them present.
Source: Everingham et al., VOC2012 development kit, sections on image sets and annotations; the table follows Cole et
al., CVPR 2021, elijahcole/single-positive-multi-label @89152d5, preproc/format_pascal.py.
Differs: the label of a difficult cell is a setting (theirs: negative); faulty lists are errors, no line is skipped.
"""

import os
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from xml.etree.ElementTree import Element, ParseError

import numpy as np
from defusedxml import ElementTree
from pydantic import Field

from pipeline.core import text
from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, check_names, class_name, counted
from pipeline.core.text import CONTROL
from pipeline.data import raw
from pipeline.data.class_names import VOC
from pipeline.labels.table import Dataset, Table

PARTS = ("train", "val")  # the official lists; their places are the numbers of `official`


class Settings(raw.Cut):
    """Settings of `prepare.<dataset>` for a folder in VOC layout: `VOCdevkit`, `VOC2012`, or one that holds them."""

    source: Literal["voc"]
    labels: Literal["lists", "annotations"]
    """Where labels come from: the `lists` of the classes, or the objects of the XML `annotations`."""
    difficult: Literal["negative", "ignore", "positive"]
    """What label 0 means: `negative` (the papers), `positive`, or `ignore`: absent, and left out of metrics."""
    classes: Annotated[list[str], Field(min_length=1)] | None
    """Class names in column order; null: those that have a `<class>_train.txt`, alphabetically, or, with
    `annotations`, the twenty of VOC. There, an object of a name that is neither here nor VOC's is an error."""


@dataclass(frozen=True)
class Found:
    """What the annotations of N images hold; of M objects of the C classes.

    Args:
        values: (N, C) int8: 1 where an object of the class is not difficult, 0 where all are, -1 where there is none.
        rows: (M,) image of each object.
        columns: (M,) class of each object.
        marks: (M,) 1, or 0 if the object is difficult.
        boxes: (M, 4) float64 left, top, right and bottom, in pixels from the picture's corner; NaN where not given.
        sizes: (M, 2) float64 width and height of the object's picture; NaN where not given.
        unknown: Names that are neither wanted nor VOC's -> files of their objects.
    """

    values: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    marks: np.ndarray
    boxes: np.ndarray
    sizes: np.ndarray
    unknown: dict[str, list[str]]


def read(settings: Settings, root: Path) -> Dataset:
    """Read the labels of a VOC folder; pictures are looked up, not opened.

    Rows are the images with at least one positive label, the official train list first, each list sorted by file name.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        The dataset.

    Raises:
        SourceError: the folder, a list, an annotation or a picture is missing or faulty, or lists contradict each
            other; the message names the setting, file, line or id of all that is wrong.
    """
    folder = find_folder(raw.raw_folder(settings, root))
    lists = folder / "ImageSets" / "Main"
    faults = Faults(folder.name)
    files = _class_files(lists, settings.classes, faults) if settings.labels == "lists" else {}
    classes = tuple(files) if settings.labels == "lists" else _wanted(settings.classes, faults) or VOC
    listed = {part: _image_list(lists / f"{part}.txt", faults) for part in PARTS}
    both = set(listed["train"][0]).intersection(listed["val"][0])
    for name in (name for name in listed["val"][0] if name in both):
        faults.add("images are in train.txt too", name, "val.txt")
    ids = [name for order, _ in listed.values() for name in order]
    place = np.repeat(range(len(PARTS)), [len(order) for order, _ in listed.values()])  # (N,) as `official`

    repeated = {part: count for part, (_, count) in listed.items()}
    bare: dict[str, list[str]] = {part: [] for part in PARTS}
    of_boxes = faults if settings.labels == "annotations" else Faults(folder.name)
    found = _annotations(folder / "Annotations", ids, classes, of_boxes)
    if settings.labels == "annotations":
        values = found.values
        for name, where in found.unknown.items():
            told = f"{name!r} in {len(where)} objects, first in {where[0]}"
            faults.add("names are no class (name all of them under `classes`)", told, "Annotations")
    else:
        values = np.full((len(ids), len(classes)), -1, np.int8)  # 1, 0 or -1 as in the files
        for number, part in enumerate(PARTS):
            for column, name in enumerate(classes):
                if part in files[name]:
                    labels, extra, has_labels = _class_list(files[name][part], listed[part][0], faults)
                    values[place == number, column] = labels
                    repeated[part] += extra
                    bare[part] += [] if has_labels else [name]

    pictures = _pictures(folder / "JPEGImages")
    present = _present(values, settings.difficult)
    kept = np.count_nonzero(present, axis=1) > 0
    empty = [] if faults else [part for number, part in enumerate(PARTS) if not kept[place == number].any()]
    for part in empty:
        faults.join(SourceError(f"{part}.txt: none of its {len(listed[part][0])} images has a positive label"))
    rows = sorted(np.flatnonzero(kept), key=lambda row: (place[row], pictures.get(ids[row], [ids[row]])[0]))
    missing = [ids[row] for row in rows if ids[row] not in pictures]
    if settings.bad_images == "stop" or len(missing) == len(rows):
        for name in missing:
            faults.add(f"of {len(rows)} images have no file", name, "JPEGImages")
    for row in rows:
        if len(pictures.get(ids[row], [])) > 1:
            faults.add("images have several files", " = ".join(pictures[ids[row]]), "JPEGImages")
    faults.stop()

    # whoever opens a missing picture drops its row
    chosen = [pictures.get(ids[row], [f"{ids[row]}.jpg"])[0] for row in rows]
    table = Table(
        classes=classes,
        paths=tuple("JPEGImages/" + unicodedata.normalize("NFC", name) for name in chosen),
        truth=present[rows].astype(np.int8),
        scored=(values[rows] != 0) | (settings.difficult != "ignore"),
        split=raw.split(place[rows], settings),
        official=place[rows].astype(np.uint8),
    )
    warnings = [
        f"{part}: lists of {', '.join(names)} hold ids without labels and were read as lists of positives"
        for part, names in bare.items()
        if names
    ]
    row_of = np.full(len(ids), -1)
    row_of[rows] = np.arange(len(rows))
    counts = (found.marks == found.values[found.rows, found.columns]) & (row_of[found.rows] >= 0)
    counts &= (found.marks == 1) | (settings.difficult == "positive")
    try:
        of_boxes.stop()
        objects, boxes, told = raw.objects(
            table, row_of[found.rows[counts]], found.columns[counts], found.boxes[counts], found.sizes[counts]
        )
    except SourceError as error:  # the labels do not depend on it
        objects, boxes = None, f"none, {raw.NO_BOXES}: {'; '.join(str(error).splitlines())}"
        told = [f"boxes: {boxes}"] if (folder / "Annotations").is_dir() else []
    warnings += told
    warnings += raw.left_out(folder / "JPEGImages")
    parts: dict[str, Any] = {}
    for number, part in enumerate(PARTS):
        of_part, here = place == number, table.official == number
        difficult = (values[rows][here] == 0).sum(axis=0).tolist()
        parts[part] = {
            "listed": int(of_part.sum()),
            "kept": int(here.sum()),
            "skipped_without_positive": counted(sorted(ids[row] for row in np.flatnonzero(of_part & ~kept))),
            "difficult_cells": dict(zip(classes, difficult, strict=True)),
            "repeated_lines": repeated[part],
            "classes_listing_positives_only": bare[part],
        }
    report = {
        "folder": folder.name,
        "labels": settings.labels,
        "difficult": {"policy": settings.difficult, "cells": int((values[rows] == 0).sum())},
        "boxes": boxes,
        "parts": parts,
        "pictures_in_no_list": len(pictures.keys() - set(ids)),
        "warnings": warnings,
    }
    return Dataset(table, lambda row: folder / "JPEGImages" / chosen[row], report, objects)


def fingerprint(settings: Settings, root: Path) -> str:
    """Tell one state of the raw data from another without opening a picture.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        `layout.state` of the lists and annotations that `read` reads and of all pictures.

    Raises:
        SourceError: the folder, a list or an annotation is missing; then the message is that of `read`.
    """
    folder = find_folder(raw.raw_folder(settings, root))
    lists = folder / "ImageSets" / "Main"
    faults = Faults(folder.name)
    files = {f"{part}.txt": lists / f"{part}.txt" for part in PARTS}
    ids = [name for file in files.values() for name in _image_list(file, faults)[0]]
    if settings.labels == "lists":
        classes = _class_files(lists, settings.classes, faults)
        files |= {file.name: file for parts in classes.values() for file in parts.values()}
    of_boxes = faults if settings.labels == "annotations" else Faults(folder.name)
    for found in _annotation_files(folder / "Annotations", ids, of_boxes).values():
        files |= {f"Annotations/{file.name}": file for file in found}
    if faults:
        read(settings, root)  # tells what else is wrong
    faults.stop()
    return raw.state(files, {"JPEGImages": folder / "JPEGImages"})


def find_folder(root: Path) -> Path:
    """Find the folder with `ImageSets/Main` at or below a root; archives differ in what they wrap around it.

    Args:
        root: `VOC2012`, `VOCdevkit`, or a folder that holds one of them.

    Returns:
        The folder that holds `ImageSets` and `JPEGImages`.

    Raises:
        SourceError: there is none, or several at the same depth.
    """
    for pattern in (".", "VOC2012", "VOCdevkit/VOC2012", "*", "*/VOC2012", "*/VOCdevkit/VOC2012"):
        found = [root] if pattern == "." else sorted(root.glob(pattern))
        found = [folder for folder in found if (folder / "ImageSets" / "Main").is_dir()]
        if len(found) > 1:
            names = ", ".join(str(folder.relative_to(root)) for folder in found)
            raise SourceError(f"prepare: root: {root} holds several datasets ({names}); name one of them")
        if found:
            if not (found[0] / "JPEGImages").is_dir():
                raise SourceError(f"prepare: root: {found[0]} has ImageSets/Main but no JPEGImages")
            return found[0]
    above = next((folder for folder in root.parents if (folder / "ImageSets" / "Main").is_dir()), None)
    hint = (
        f"; it lies inside one, name {above}" if above else "; expected VOCdevkit, VOC2012 or a folder that holds one"
    )
    raise SourceError(f"prepare: root: no ImageSets/Main in {root}{hint}")


def _present(values: np.ndarray, difficult: str) -> np.ndarray:
    """Return which cells count as present, of values as in the files."""
    return (values == 1) | ((values == 0) & (difficult == "positive"))


def _wanted(wanted: list[str] | None, faults: Faults) -> tuple[str, ...]:
    """Return the classes that the settings name, if any, each once; those unusable or repeated are noted."""
    names = [class_name(name) for name in wanted or ()]
    check_names(names, faults, "prepare: classes")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        faults.join(SourceError(f"prepare: classes: {', '.join(repeated)} named twice"))
    return tuple(dict.fromkeys(names))


def _class_files(lists: Path, wanted: list[str] | None, faults: Faults) -> dict[str, dict[str, Path]]:
    """Return the lists of the classes: name, in column order -> part -> file; one that is missing is noted."""
    found: dict[str, dict[str, Path]] = {}
    for name in sorted(os.listdir(lists)):
        if match := re.fullmatch(r"(.+)_(train|val)\.txt", unicodedata.normalize("NFC", name)):
            found.setdefault(match[1], {})[match[2]] = lists / name
    if not wanted:
        check_names(sorted(found), faults, lists.name)
    names = _wanted(wanted, faults) or tuple(sorted(found))
    if not names:
        faults.join(SourceError(f"prepare: classes: no <class>_train.txt in {lists}"))
    whole = ", ".join(name for name, parts in found.items() if len(parts) == len(PARTS))
    for name in names:
        for part in PARTS:
            if part not in found.get(name, {}):
                faults.add(
                    f"class lists are missing (complete are: {whole or 'none'})", f"{name}_{part}.txt", lists.name
                )
    return {name: found.get(name, {}) for name in names}


def _pictures(folder: Path) -> dict[str, list[str]]:
    """Return the names on disk of a folder's picture files, by image id: the name without its ending, in NFC."""
    pictures: dict[str, list[str]] = {}
    for name in raw.pictures(folder):
        if "/" not in name:
            pictures.setdefault(unicodedata.normalize("NFC", os.path.splitext(name)[0]), []).append(name)
    return pictures


def _lines(path: Path, faults: Faults) -> list[tuple[str, list[str]]] | None:
    """Return the lines of a list, as `line 7` and its fields; None where it cannot be read, which is noted."""
    try:
        return [(f"line {where.rpartition(':')[2]}", fields) for where, fields in text.fields(path)]
    except SourceError as error:
        faults.join(error)
        return None


def _image_list(path: Path, faults: Faults) -> tuple[list[str], int]:
    """Return the ids of a list, each once, in the file's order, and the number of lines that repeat one.

    Noted are lines that are not one id, ids that are no plain file name, and a list without any.
    """
    ids: dict[str, None] = {}
    lines = _lines(path, faults)
    if lines == []:
        faults.join(SourceError(f"{path.name} lists no image"))
    for where, fields in lines or ():
        if len(fields) != 1:
            faults.add("lines are not one image id", f"{where} {' '.join(fields)!r}", path.name)
        if re.search(r"[/\\]", fields[0]) or CONTROL.search(fields[0]) or fields[0] in (".", ".."):
            faults.add("ids are no plain file names", f"{where} {fields[0]!r}", path.name)
        else:
            ids[fields[0]] = None
    return list(ids), len(lines or ()) - len(ids)


def _class_list(path: Path, order: list[str], faults: Faults) -> tuple[np.ndarray, int, bool]:
    """Read the labels of one class.

    A file in which every line is an id alone, as people make by hand, lists the positives. Noted are lines that are not
    an id and a label of 1, 0 or -1, ids that have two labels, are unknown or are not there.

    Args:
        path: The file.
        order: The ids that it must hold, in the order of the result; empty if they are not known.
        faults: Get what is noted.

    Returns:
        (len(order),) int8 labels 1, 0 or -1; the number of lines that repeat another; whether the file holds labels.
    """
    known, part = set(order), path.name.rpartition("_")[2]
    labels: dict[str, int] = {}
    seen: set[str] = set()
    lines = _lines(path, faults)
    if lines is None:
        return np.full(len(order), -1, np.int8), 0, True
    bare = bool(lines) and len(lines[0][1]) == 1
    for where, fields in lines:
        seen.add(fields[0])
        if len(fields) != (1 if bare else 2):
            expected = "an id alone, as the first is" if bare else "an id and a label"
            faults.add(f"lines are not {expected}", f"{where} {' '.join(fields)!r}", path.name)
            continue
        name, label = (fields[0], "1") if bare else fields
        if label not in ("1", "0", "-1"):
            faults.add("labels are not 1, 0 or -1", f"{where} {name} {label!r}", path.name)
        elif known and name not in known:
            faults.add(f"ids are not in {part}", f"{where} {name}", path.name)
        elif labels.setdefault(name, int(label)) != int(label):
            faults.add("ids have another label above", f"{where} {name} {label}, not {labels[name]}", path.name)
    absent = [name for name in order if name not in seen]
    if bare and order and not absent:
        faults.join(SourceError(f"{path.name} holds every id of the list and no label: were the labels lost?"))
    for name in () if bare else absent:
        faults.add(f"of the {len(order)} ids of {part} are missing", name, path.name)
    return np.array([labels.get(name, -1) for name in order], np.int8), len(lines) - len(seen), not bare


def _annotation_files(folder: Path, ids: list[str], faults: Faults) -> dict[str, list[Path]]:
    """Return the XML files of images, by id; noted is an image that has none, or several."""
    found: dict[str, list[Path]] = {}
    if not folder.is_dir():
        faults.join(SourceError(f"Annotations: no such folder in {folder.parent.name}"))
        return found
    for name in sorted(os.listdir(folder)):
        stem, ending = os.path.splitext(unicodedata.normalize("NFC", name))
        if ending.lower() == ".xml":
            found.setdefault(stem, []).append(folder / name)
    for name in ids:
        if name not in found:
            faults.add(f"of {len(ids)} images have no file", name, folder.name)
        elif len(found[name]) > 1:
            faults.add("images have several files", " = ".join(file.name for file in found[name]), folder.name)
    return {name: found[name] for name in ids if name in found}


def _annotations(folder: Path, ids: list[str], classes: tuple[str, ...], faults: Faults) -> Found:
    """Read the objects of images from their annotations; only objects count, not the parts that they consist of.

    `difficult` may be missing: 0. Noted are files that are missing or no XML, and objects without a name or with a
    `difficult` other than 0 and 1. Boxes hold their last pixels, and the first pixel of a picture is 1.

    Args:
        folder: The folder `Annotations`.
        ids: Ids, in the order of the rows.
        classes: Class names, in the order of the columns.
        faults: Get what is noted.

    Returns:
        What was found.
    """
    column = {name: place for place, name in enumerate(classes)}
    values = np.full((len(ids), len(classes)), -1, np.int8)
    places: list[tuple[int, int, int]] = []
    boxes: list[list[float]] = []
    unknown: dict[str, list[str]] = {}
    files = _annotation_files(folder, ids, faults)
    for row, name in enumerate(ids):
        if name not in files:
            continue
        file = files[name][0]
        try:
            content = ElementTree.fromstring(file.read_bytes())
        except (OSError, ParseError, ValueError, LookupError) as error:  # entities, odd encodings
            faults.add(
                "faults", f"{file.name}: cannot be read as XML ({str(error) or type(error).__name__})", folder.name
            )
            continue
        size = [_number(content, f"size/{side}") for side in ("width", "height")]
        for number, thing in enumerate(content.findall("object"), start=1):  # direct children, no parts
            label = class_name(thing.findtext("name") or "")
            difficult = thing.findtext("difficult", "0").strip()
            if not label or difficult not in ("0", "1"):
                what = "has no name" if not label else f"({label}) has difficult {difficult!r}, expected 0 or 1"
                faults.add("faults", f"{file.name}: object {number} {what}", folder.name)
            elif label in column:
                place, mark = column[label], 0 if difficult == "1" else 1
                values[row, place] = max(values[row, place], mark)
                places.append((row, place, mark))
                boxes.append([_number(thing, f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")] + size)
            elif label not in VOC:
                unknown.setdefault(label, []).append(file.name)
    rows, columns, marks = np.array(places, np.int64).reshape(-1, 3).T
    numbers = np.array(boxes).reshape(-1, 6)
    return Found(values, rows, columns, marks, numbers[:, :4] - (1, 1, 0, 0), numbers[:, 4:], unknown)


def _number(element: Element, path: str) -> float:
    """Return a number at or below an element; NaN where there is none."""
    try:
        return float(element.findtext(path) or "nan")
    except ValueError:
        return float("nan")
