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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from xml.etree.ElementTree import Element, ParseError

import numpy as np
from defusedxml import ElementTree
from pydantic import Field

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, check_class_names, normalize_class_name, summarize
from pipeline.core.text import CONTROL, check_regular, read_fields
from pipeline.data import disk, raw
from pipeline.data.class_names import VOC
from pipeline.labels.table import Dataset, Table
from pipeline.labels.table import Objects as Measures

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
class Files(raw.Files):
    """The lists and annotations that are read, and what they are about.

    Args:
        classes: Class names in column order.
        ids: Part -> ids of its list, each once.
        repeated: Part -> number of lines of its list that repeat another.
        annotations: Id -> annotation of the image.
        of_boxes: Faults of the annotations; those of the data only if labels come from annotations.
    """

    classes: tuple[str, ...]
    ids: dict[str, list[str]]
    repeated: dict[str, int]
    annotations: dict[str, Path]
    of_boxes: Faults


@dataclass(frozen=True)
class Objects:
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


@dataclass(frozen=True)
class Content:
    """What lists and annotations hold of N images, the official train list first.

    Args:
        ids: N ids.
        official: (N,) 0 for the train list, 1 for the val list.
        values: (N, C) int8 labels, 1, 0 or -1 as in the files.
        objects: What the annotations hold.
        repeated: Part -> number of lines that repeat another, of all its lists.
        bare: Part -> classes whose list holds ids without labels.
    """

    ids: list[str]
    official: np.ndarray
    values: np.ndarray
    objects: Objects
    repeated: dict[str, int]
    bare: dict[str, list[str]]


def locate(settings: Settings, root: Path) -> Files:
    """Return where lists, annotations and pictures are; the image lists are read, since they name the annotations."""
    folder = find_folder(raw.find_root(settings, root))
    main, faults = folder / "ImageSets" / "Main", Faults(folder.name)
    lists = {f"{part}.txt": main / f"{part}.txt" for part in PARTS}
    if settings.labels == "lists":
        classes, of_classes = _class_files(main, settings.classes, faults)
        lists |= of_classes
        of_boxes = Faults(folder.name)
    else:
        classes, of_boxes = _wanted(settings.classes, faults) or VOC, faults
    read_lists = {part: _image_list(lists[f"{part}.txt"], faults) for part in PARTS}
    ids = {part: names for part, (names, _) in read_lists.items()}
    repeated = {part: count for part, (_, count) in read_lists.items()}
    annotations = _annotation_files(folder / "Annotations", [*ids["train"], *ids["val"]], of_boxes)
    lists |= {f"Annotations/{file.name}": file for same in annotations.values() for file in same}
    firsts = {name: same[0] for name, same in annotations.items()}
    pictures = {"JPEGImages": folder / "JPEGImages"}
    return Files(folder, lists, pictures, faults, classes, ids, repeated, firsts, of_boxes)


def parse(files: Files, settings: Settings) -> Content:
    """Return what lists and annotations hold."""
    both = set(files.ids["train"]).intersection(files.ids["val"])
    for name in (name for name in files.ids["val"] if name in both):
        files.faults.add("images are in train.txt too", name, "val.txt")
    ids = [name for part in PARTS for name in files.ids[part]]
    official = np.repeat(np.arange(len(PARTS), dtype=np.uint8), [len(files.ids[part]) for part in PARTS])
    objects = _annotations(files, ids)
    if settings.labels == "annotations":
        for name, where in objects.unknown.items():
            what = f"{name!r} in {len(where)} objects, first in {where[0]}"
            files.faults.add("names are no class (name all of them under `classes`)", what, "Annotations")
        return Content(ids, official, objects.values, objects, files.repeated, {part: [] for part in PARTS})
    values = np.full((len(ids), len(files.classes)), -1, np.int8)
    repeated, bare = dict(files.repeated), {part: [] for part in PARTS}
    for number, part in enumerate(PARTS):
        for column, name in enumerate(files.classes):
            if file := files.lists.get(f"{name}_{part}.txt"):
                labels, extra, has_labels = _class_list(file, files.ids[part], files.faults)
                values[official == number, column] = labels
                repeated[part] += extra
                bare[part] += [] if has_labels else [name]
    return Content(ids, official, values, objects, repeated, bare)


def build(files: Files, content: Content, settings: Settings) -> Dataset:
    """Return the dataset: rows are the images with a positive label, by official list, each sorted by file name."""
    folder, ids = files.pictures["JPEGImages"], content.ids
    found = disk.scan(folder, settings.links)
    pictures = _pictures(found.pictures)
    present = (content.values == 1) | ((content.values == 0) & (settings.difficult == "positive"))
    rows = _select(files, content, present, pictures, settings.bad_images)
    files.faults.raise_if_any()

    # whoever opens a missing picture drops its row
    chosen = [pictures.get(ids[row], [f"{ids[row]}.jpg"])[0] for row in rows]
    table = Table(
        classes=files.classes,
        paths=tuple("JPEGImages/" + unicodedata.normalize("NFC", name) for name in chosen),
        truth=present[rows].astype(np.int8),
        scored=(content.values[rows] != 0) | (settings.difficult != "ignore"),
        split=raw.split_official(content.official[rows], settings),
        official=content.official[rows],
    )
    objects, boxes, warnings = _measure(files, content.objects, table, rows, settings.difficult)
    of_lists = [
        f"{part}: lists of {', '.join(names)} hold ids without labels and were read as lists of positives"
        for part, names in content.bare.items()
        if names
    ]
    report = {
        "folder": files.folder.name,
        "labels": settings.labels,
        "difficult": {"policy": settings.difficult, "cells": int((content.values[rows] == 0).sum())},
        "boxes": boxes,
        "parts": {part: _count(number, files.classes, content, rows) for number, part in enumerate(PARTS)},
        "pictures_in_no_list": len(pictures.keys() - set(ids)),
        "warnings": of_lists + warnings + found.warnings(),
    }
    data = Dataset(table, lambda row: folder / chosen[row], report, objects)
    return raw.with_rules(data, settings, files.folder.name)


def _select(
    files: Files, content: Content, present: np.ndarray, pictures: dict[str, list[str]], bad_images: str
) -> list[int]:
    """Return the images that become rows, in their order; noted are parts without any, and pictures that lack."""
    ids, kept = content.ids, np.count_nonzero(present, axis=1) > 0
    empty = [] if files.faults else [part for n, part in enumerate(PARTS) if not kept[content.official == n].any()]
    for part in empty:
        count = len(files.ids[part])
        files.faults.add_error(SourceError(f"{part}.txt: none of its {count} images has a positive label"))
    rows = sorted(
        np.flatnonzero(kept).tolist(), key=lambda row: (content.official[row], pictures.get(ids[row], [ids[row]])[0])
    )
    missing = [ids[row] for row in rows if ids[row] not in pictures]
    if bad_images == "stop" or len(missing) == len(rows):
        for name in missing:
            files.faults.add(f"of {len(rows)} images have no file", name, "JPEGImages")
    for row in rows:
        if len(same := pictures.get(ids[row], [])) > 1:
            files.faults.add("images have several files", " = ".join(same), "JPEGImages")
    return rows


def _measure(
    files: Files, objects: Objects, table: Table, rows: list[int], difficult: str
) -> tuple[Measures | None, Any, list[str]]:
    """Return where the objects of the rows lie, what a report says of it, and warnings; labels do not depend on it."""
    row_of = np.full(len(objects.values), -1)
    row_of[rows] = np.arange(len(rows))
    at = row_of[objects.rows]
    counts = (objects.marks == objects.values[objects.rows, objects.columns]) & (at >= 0)
    counts &= (objects.marks == 1) | (difficult == "positive")
    try:
        files.of_boxes.raise_if_any()
    except SourceError as error:
        boxes = f"none, {raw.NO_BOXES}: {'; '.join(str(error).splitlines())}"
        return None, boxes, [f"boxes: {boxes}"] if (files.folder / "Annotations").is_dir() else []
    return raw.measure_objects(table, at[counts], objects.columns[counts], objects.boxes[counts], objects.sizes[counts])


def _count(number: int, classes: tuple[str, ...], content: Content, rows: list[int]) -> dict[str, Any]:
    """Return what a report says of a part."""
    of_part = np.flatnonzero(content.official == number)
    here = [row for row in rows if content.official[row] == number]
    skipped = sorted(content.ids[row] for row in set(of_part.tolist()).difference(here))
    part = PARTS[number]
    return {
        "listed": len(of_part),
        "kept": len(here),
        "skipped_without_positive": summarize(skipped),
        "difficult_cells": dict(zip(classes, (content.values[here] == 0).sum(axis=0).tolist(), strict=True)),
        "repeated_lines": content.repeated[part],
        "classes_listing_positives_only": content.bare[part],
    }


def find_folder(root: Path) -> Path:
    """Return the folder with `ImageSets/Main` and `JPEGImages` at or below a root: `VOC2012`, `VOCdevkit` or above.

    Raises:
        SourceError: there is none, or several at the same depth.
    """
    wraps = (".", "VOC2012", "VOCdevkit/VOC2012", "*", "*/VOC2012", "*/VOCdevkit/VOC2012")
    expected = "expected VOCdevkit, VOC2012 or a folder that holds one"
    folder = raw.find_dataset(root, wraps, "ImageSets/Main", expected)
    if not (folder / "JPEGImages").is_dir():
        raise SourceError(f"prepare: root: {folder} has ImageSets/Main but no JPEGImages")
    return folder


def _wanted(wanted: list[str] | None, faults: Faults) -> tuple[str, ...]:
    """Return the classes that the settings name, if any, each once; those unusable or repeated are noted."""
    names = [normalize_class_name(name) for name in wanted or ()]
    check_class_names(names, faults, "prepare: classes", case=False)
    return tuple(dict.fromkeys(names))


def _class_files(lists: Path, wanted: list[str] | None, faults: Faults) -> tuple[tuple[str, ...], dict[str, Path]]:
    """Return the classes in column order and their lists by name; one that is missing is noted."""
    found: dict[str, dict[str, Path]] = {}
    for name in sorted(os.listdir(lists)):
        if match := re.fullmatch(r"(.+)_(train|val)\.txt", unicodedata.normalize("NFC", name)):
            found.setdefault(match[1], {})[match[2]] = lists / name
    if not wanted:
        check_class_names(sorted(found), faults, lists.name)
    names = _wanted(wanted, faults) or tuple(sorted(found))
    if not names:
        faults.add_error(SourceError(f"prepare: classes: no <class>_train.txt in {lists}"))
    whole = ", ".join(name for name, parts in found.items() if len(parts) == len(PARTS))
    for name in names:
        for part in PARTS:
            if part not in found.get(name, {}):
                faults.add(
                    f"class lists are missing (complete are: {whole or 'none'})", f"{name}_{part}.txt", lists.name
                )
    return names, {f"{name}_{part}.txt": file for name in names for part, file in found.get(name, {}).items()}


def _pictures(names: list[str]) -> dict[str, list[str]]:
    """Return the names on disk of a folder's picture files, by image id: the name without its ending, in NFC."""
    pictures: dict[str, list[str]] = {}
    for name in names:
        if "/" not in name:
            pictures.setdefault(unicodedata.normalize("NFC", os.path.splitext(name)[0]), []).append(name)
    return pictures


def _lines(path: Path, faults: Faults) -> list[tuple[str, list[str]]] | None:
    """Return the lines of a list, as `line 7` and its fields; None where it cannot be read, which is noted."""
    try:
        return [(f"line {where.rpartition(':')[2]}", fields) for where, fields in read_fields(path)]
    except SourceError as error:
        faults.add_error(error)
        return None


def _image_list(path: Path, faults: Faults) -> tuple[list[str], int]:
    """Return the ids of a list, each once, in the file's order, and the number of lines that repeat one.

    Noted are lines that are not one id, ids that are no plain file name, and a list without any.
    """
    ids: dict[str, None] = {}
    lines = _lines(path, faults)
    if lines == []:
        faults.add_error(SourceError(f"{path.name} lists no image"))
    for where, fields in lines or ():
        if len(fields) != 1:
            faults.add("lines are not one image id", f"{where} {' '.join(fields)!r}", path.name)
        if re.search(r"[/\\]", fields[0]) or CONTROL.search(fields[0]) or fields[0] in (".", ".."):
            faults.add("invalid ids (not plain file names)", f"{where} {fields[0]!r}", path.name)
        else:
            ids[fields[0]] = None
    return list(ids), len(lines or ()) - len(ids)


def _class_list(path: Path, order: list[str], faults: Faults) -> tuple[np.ndarray, int, bool]:
    """Return labels of one class, (N,) int8 1, 0 or -1; how many lines repeat another; whether the file holds labels.

    A file in which every line is an id alone, as people make by hand, lists the positives. Noted are lines that are not
    an id and a label, ids that have two labels, and ids that are not those of the order, which is empty if not known.
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
        faults.add_error(SourceError(f"{path.name} holds every id of the list and no label: were the labels lost?"))
    for name in () if bare else absent:
        faults.add(f"of the {len(order)} ids of {part} are missing", name, path.name)
    return np.array([labels.get(name, -1) for name in order], np.int8), len(lines) - len(seen), not bare


def _annotation_files(folder: Path, ids: list[str], faults: Faults) -> dict[str, list[Path]]:
    """Return the XML files of images, by id; noted is an image that has none, or several."""
    found: dict[str, list[Path]] = {}
    if not folder.is_dir():
        faults.add_error(SourceError(f"Annotations: no such folder in {folder.parent.name}"))
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


def _annotations(files: Files, ids: list[str]) -> Objects:
    """Return the objects of images by their annotations, in the order of ids.

    Only objects count, not the parts that they consist of; `difficult` may be missing: 0. Noted are files that are no
    XML, and objects without a name or with a `difficult` other than 0 and 1. Boxes hold their last pixels, and the
    first pixel of a picture is 1.
    """
    column = {name: place for place, name in enumerate(files.classes)}
    values = np.full((len(ids), len(column)), -1, np.int8)
    places: list[tuple[int, int, int]] = []
    boxes: list[list[float]] = []
    unknown: dict[str, list[str]] = {}
    for row, name in enumerate(ids):
        if (content := _xml(files.annotations.get(name), files.of_boxes)) is None:
            continue
        size = [_number(content, f"size/{side}") for side in ("width", "height")]
        for label, difficult, thing in _things(content, files.annotations[name].name, files.of_boxes):
            if label in column:
                place, mark = column[label], 1 - difficult
                values[row, place] = max(values[row, place], mark)
                places.append((row, place, mark))
                boxes.append([_number(thing, f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")] + size)
            elif label not in VOC:
                unknown.setdefault(label, []).append(files.annotations[name].name)
    rows, columns, marks = np.array(places, np.int64).reshape(-1, 3).T
    numbers = np.array(boxes).reshape(-1, 6)
    return Objects(values, rows, columns, marks, numbers[:, :4] - (1, 1, 0, 0), numbers[:, 4:], unknown)


def _xml(file: Path | None, faults: Faults) -> Element | None:
    """Return the content of an annotation; None where there is none, or it cannot be read, which is noted."""
    if file is None:
        return None
    try:
        check_regular(file)
        return ElementTree.fromstring(file.read_bytes())
    except (SourceError, OSError, ParseError, ValueError, LookupError) as error:  # entities, odd encodings
        why = str(error) or type(error).__name__
        faults.add("faults", f"{file.name}: cannot be read as XML ({why})", "Annotations")
        return None


def _things(content: Element, file: str, faults: Faults) -> Iterator[tuple[str, int, Element]]:
    """Yield class, `difficult` and element of each object of an annotation; those that lack them are noted."""
    for number, thing in enumerate(content.findall("object"), start=1):  # direct children, no parts
        label = normalize_class_name(thing.findtext("name") or "")
        difficult = thing.findtext("difficult", "0").strip()
        if label and difficult in ("0", "1"):
            yield label, int(difficult), thing
        else:
            what = f"({label}) has difficult {difficult!r}, expected 0 or 1" if label else "has no name"
            faults.add("faults", f"{file}: object {number} {what}", "Annotations")


def _number(element: Element, path: str) -> float:
    """Return a number at or below an element; NaN where there is none."""
    try:
        return float(element.findtext(path) or "nan")
    except ValueError:
        return float("nan")


read, fingerprint = raw.make_reader(locate, parse, build)
