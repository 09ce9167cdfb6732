"""PASCAL VOC: class lists `ImageSets/Main/<class>_{train,val}.txt`, or the objects of `Annotations/<id>.xml`.

A label is 1 present, -1 absent, 0 where all objects of the class are "difficult". The official train list becomes the
training part (cut in train and val), the official val list the test part.
Source: Everingham et al., VOC2012 development kit, sections on image sets and annotations; the table follows Cole et
al., CVPR 2021, elijahcole/single-positive-multi-label @89152d5, preproc/format_pascal.py.
Differs: the label of a difficult cell is a setting (theirs: negative); faulty lists are errors, no line is skipped.
"""

import os
import re
import unicodedata
from pathlib import Path
from typing import Annotated, Any, Literal
from xml.etree.ElementTree import ParseError

import numpy as np
from defusedxml import ElementTree
from pydantic import Field

from pipeline import layout
from pipeline.table import Dataset, SourceError, Table

PARTS = ("train", "val")  # the official lists; their places are the numbers of `official`
CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog"),
    *("horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)


class Settings(layout.Cut):
    """Settings of `prepare.<dataset>` for a folder in VOC layout: `VOCdevkit`, `VOC2012`, or one that holds them."""

    source: Literal["voc"]
    labels: Literal["lists", "annotations"]
    """Where labels come from: the `lists` of the classes, or the objects of the XML `annotations`."""
    difficult: Literal["negative", "ignore", "positive"]
    """What label 0 means: `negative` (the papers), `positive`, or `ignore`: absent, and left out of metrics."""
    classes: Annotated[list[str], Field(min_length=1)] | None
    """Class names in column order; null: those that have a `<class>_train.txt`, alphabetically, or, with
    `annotations`, the twenty of VOC. An object of a name that is neither here nor VOC's is an error."""


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
            other; the message names the setting, file, line or id.
    """
    folder = find_folder(layout.raw_folder(settings, root))
    lists = folder / "ImageSets" / "Main"
    files = _class_files(lists, settings.classes) if settings.labels == "lists" else {}
    classes = tuple(files) or _annotated_classes(settings.classes)
    pictures = _pictures(folder / "JPEGImages")

    ids: list[str] = []
    labels: list[np.ndarray] = []
    official: list[int] = []
    parts: dict[str, Any] = {}
    listed: set[str] = set()
    for place, part in enumerate(PARTS):
        order, repeated = _image_list(lists / f"{part}.txt")
        if both := [name for name in order if name in listed]:
            raise SourceError(f"{part}.txt: {len(both)} images are in train.txt too: {layout.some(both)}")
        listed.update(order)
        values = np.empty((len(order), len(classes)), np.int8)  # 1, 0 or -1 as in the files
        bare = []
        if settings.labels == "annotations":
            values[:] = _annotations(folder / "Annotations", order, classes)
        for column, name in enumerate(files):
            values[:, column], extra, has_labels = _class_list(files[name][part], order)
            repeated += extra
            if not has_labels:
                bare.append(name)
        kept = _present(values, settings.difficult).any(axis=1)
        if not kept.any():
            raise SourceError(f"{part}.txt: none of its {len(order)} images has a positive label")
        rows = sorted(np.flatnonzero(kept), key=lambda row: pictures.get(order[row], [order[row]])[0])
        ids += [order[row] for row in rows]
        labels.append(values[rows])
        official += [place] * len(rows)
        dropped = sorted(order[row] for row in np.flatnonzero(~kept))
        parts[part] = {
            "listed": len(order),
            "kept": len(rows),
            "skipped_without_positive": layout.counted(dropped),
            "difficult_cells": dict(zip(classes, (values[rows] == 0).sum(axis=0).tolist(), strict=True)),
            "repeated_lines": repeated,
            "classes_listing_positives_only": bare,
        }

    unlisted = len(pictures.keys() - listed)
    missing = [name for name in ids if name not in pictures]
    if missing and (settings.bad_images == "stop" or len(missing) == len(ids)):
        raise SourceError(f"JPEGImages: {len(missing)} of {len(ids)} images have no file: {layout.some(missing)}")
    pictures |= {name: [f"{name}.jpg"] for name in missing}  # whoever opens it drops its row
    if twins := [" = ".join(pictures[name]) for name in ids if len(pictures[name]) > 1]:
        raise SourceError(f"JPEGImages: {len(twins)} images have several files: {layout.some(twins)}")

    values = np.concatenate(labels)
    table = Table(
        classes=classes,
        paths=tuple("JPEGImages/" + unicodedata.normalize("NFC", pictures[name][0]) for name in ids),
        truth=_present(values, settings.difficult).astype(np.int8),
        scored=(values != 0) | (settings.difficult != "ignore"),
        split=layout.split(official, settings),
        official=np.array(official, np.uint8),
    )
    report = {
        "folder": folder.name,
        "labels": settings.labels,
        "difficult": {"policy": settings.difficult, "cells": int((values == 0).sum())},
        "parts": parts,
        "pictures_in_no_list": unlisted,
        "warnings": [
            f"{part}: lists of {', '.join(found['classes_listing_positives_only'])} hold ids without labels and were "
            "read as lists of positives"
            for part, found in parts.items()
            if found["classes_listing_positives_only"]
        ],
    }
    return Dataset(table, lambda row: folder / "JPEGImages" / pictures[ids[row]][0], report)


def fingerprint(settings: Settings, root: Path) -> str:
    """Tell one state of the raw data from another without opening a picture.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        `layout.state` of the lists and annotations that `read` reads and of all pictures.

    Raises:
        SourceError: the folder, a list or an annotation is missing.
    """
    folder = find_folder(layout.raw_folder(settings, root))
    lists = folder / "ImageSets" / "Main"
    files = {f"{part}.txt": lists / f"{part}.txt" for part in PARTS}
    if settings.labels == "lists":
        classes = _class_files(lists, settings.classes)
        files |= {file.name: file for parts in classes.values() for file in parts.values()}
    else:
        ids = [name for file in list(files.values()) for name in _image_list(file)[0]]
        files |= {f"Annotations/{file.name}": file for file in _annotation_files(folder / "Annotations", ids)}
    return layout.state(files, {"JPEGImages": folder / "JPEGImages"})


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


def _class_files(lists: Path, wanted: list[str] | None) -> dict[str, dict[str, Path]]:
    """Find the lists of the classes.

    Returns:
        Class name, in column order -> part -> file.

    Raises:
        SourceError: a list is missing, there is none, or a class is wanted twice.
    """
    found: dict[str, dict[str, Path]] = {}
    for name in sorted(os.listdir(lists)):
        if match := re.fullmatch(r"(.+)_(train|val)\.txt", unicodedata.normalize("NFC", name)):
            found.setdefault(match[1], {})[match[2]] = lists / name
    names = sorted(found) if wanted is None else [unicodedata.normalize("NFC", name) for name in wanted]
    if not names:
        raise SourceError(f"prepare: classes: no <class>_train.txt in {lists}")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise SourceError(f"prepare: classes: {', '.join(repeated)} named twice")
    if absent := [f"{name}_{part}.txt" for name in names for part in PARTS if part not in found.get(name, {})]:
        whole = ", ".join(name for name, parts in found.items() if len(parts) == len(PARTS))
        raise SourceError(
            f"{len(absent)} class lists are missing: {layout.some(absent)}; complete are: {whole or 'none'}"
        )
    return {name: found[name] for name in names}


def _pictures(folder: Path) -> dict[str, list[str]]:
    """Return the names on disk of a folder's picture files, by image id: the name without its ending, in NFC."""
    pictures: dict[str, list[str]] = {}
    for name in layout.pictures(folder):
        if "/" not in name:
            pictures.setdefault(unicodedata.normalize("NFC", os.path.splitext(name)[0]), []).append(name)
    return pictures


def _image_list(path: Path) -> tuple[list[str], int]:
    """Read a list of image ids.

    Returns:
        The ids, each once, in the file's order; the number of lines that repeat one.

    Raises:
        SourceError: a line is not one id, an id is no plain file name, or there is none.
    """
    ids: dict[str, None] = {}
    count = 0
    for where, fields in layout.fields(path):
        if len(fields) != 1:
            raise SourceError(f"{where}: {' '.join(fields)!r}, expected one image id")
        if re.search(r"[/\\\x00-\x1f]", fields[0]) or fields[0] in (".", ".."):
            raise SourceError(f"{where}: id {fields[0]!r} is no plain file name")
        ids[fields[0]] = None
        count += 1
    if not ids:
        raise SourceError(f"{path.name} lists no image")
    return list(ids), count - len(ids)


def _class_list(path: Path, order: list[str]) -> tuple[np.ndarray, int, bool]:
    """Read the labels of one class.

    A file in which every line is an id alone, as people make by hand, lists the positives.

    Args:
        path: The file.
        order: The ids that it must hold, in the order of the result.

    Returns:
        (len(order),) int8 labels 1, 0 or -1; the number of lines that repeat another; whether the file holds labels.

    Raises:
        SourceError: a line is not an id and a label of 1, 0, -1; an id has two labels, is unknown or is not there.
    """
    known = set(order)
    labels: dict[str, int] = {}
    count, bare = 0, None
    for where, fields in layout.fields(path):
        count += 1
        if bare is None:
            bare = len(fields) == 1
        if len(fields) != (1 if bare else 2):
            expected = "an id alone, as above" if bare else "an id and a label"
            raise SourceError(f"{where}: {' '.join(fields)!r}, expected {expected}")
        name, label = (fields[0], "1") if bare else fields
        if label not in ("1", "0", "-1"):
            raise SourceError(f"{where}: {name} has label {label!r}, expected 1, 0 or -1")
        if name not in known:
            raise SourceError(f"{where}: {name} is not in {path.name.rpartition('_')[2]}")
        if labels.setdefault(name, int(label)) != int(label):
            raise SourceError(f"{where}: {name} has label {label} here and {labels[name]} above")
    absent = [name for name in order if name not in labels]
    if bare and not absent:
        raise SourceError(f"{path.name} holds every id of the list and no label: were the labels lost?")
    if absent and not bare:
        part = path.name.rpartition("_")[2]
        raise SourceError(
            f"{path.name}: {len(absent)} of the {len(order)} ids of {part} are missing: {layout.some(absent)}"
        )
    return np.array([labels.get(name, -1) for name in order], np.int8), count - len(labels), not bare


def _annotated_classes(wanted: list[str] | None) -> tuple[str, ...]:
    """Return the columns where labels come from annotations.

    Raises:
        SourceError: a class is wanted twice.
    """
    names = CLASSES if wanted is None else tuple(unicodedata.normalize("NFC", name) for name in wanted)
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise SourceError(f"prepare: classes: {', '.join(repeated)} named twice")
    return names


def _annotation_files(folder: Path, ids: list[str]) -> list[Path]:
    """Return the XML file of each image, in the order of the ids.

    Raises:
        SourceError: files are missing, or an image has several.
    """
    if not folder.is_dir():
        raise SourceError(f"prepare: labels: annotations: no folder Annotations in {folder.parent}")
    found: dict[str, list[str]] = {}
    for name in sorted(os.listdir(folder)):
        stem, ending = os.path.splitext(unicodedata.normalize("NFC", name))
        if ending.lower() == ".xml":
            found.setdefault(stem, []).append(name)
    if missing := [name for name in ids if name not in found]:
        raise SourceError(f"Annotations: {len(missing)} of {len(ids)} images have no file: {layout.some(missing)}")
    if twins := [" = ".join(found[name]) for name in ids if len(found[name]) > 1]:
        raise SourceError(f"Annotations: {len(twins)} images have several files: {layout.some(twins)}")
    return [folder / found[name][0] for name in ids]


def _annotations(folder: Path, order: list[str], classes: tuple[str, ...]) -> np.ndarray:
    """Read the labels of images from their annotations; only objects count, not the parts that they consist of.

    Args:
        folder: The folder `Annotations`.
        order: Ids, in the order of the rows.
        classes: Class names, in the order of the columns.

    Returns:
        (len(order), len(classes)) int8: 1 where an object of the class is not difficult, 0 where all are, -1 where
        there is none. `difficult` may be missing: 0.

    Raises:
        SourceError: files are missing or no XML; an object has no name, an unknown one, or a `difficult` other than 0
            and 1.
    """
    column = {name: place for place, name in enumerate(classes)}
    values = np.full((len(order), len(classes)), -1, np.int8)
    faults: list[str] = []
    unknown: dict[str, list[str]] = {}
    for row, file in enumerate(_annotation_files(folder, order)):
        try:
            objects = ElementTree.fromstring(file.read_bytes()).findall("object")  # direct children, no parts
        except (OSError, ParseError, ValueError, LookupError) as error:  # entities, odd encodings
            faults.append(f"{file.name}: cannot be read as XML ({str(error) or type(error).__name__})")
            continue
        for number, thing in enumerate(objects, start=1):
            name = unicodedata.normalize("NFC", (thing.findtext("name") or "").strip())
            difficult = thing.findtext("difficult", "0").strip()
            if not name or difficult not in ("0", "1"):
                what = "has no name" if not name else f"({name}) has difficult {difficult!r}, expected 0 or 1"
                faults.append(f"{file.name}: object {number} {what}")
            elif name in column:
                place = column[name]
                values[row, place] = max(values[row, place], 0 if difficult == "1" else 1)
            elif name not in CLASSES:
                unknown.setdefault(name, []).append(file.name)
    if faults:
        raise SourceError(f"Annotations: {len(faults)} faults: {layout.some(faults)}")
    if unknown:
        named = [f"{name!r} in {len(files)} objects, first in {files[0]}" for name, files in unknown.items()]
        raise SourceError(
            f"Annotations: {len(unknown)} names are no class: {layout.some(named)}; name all of them under `classes`"
        )
    return values
