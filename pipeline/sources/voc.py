"""PASCAL VOC image lists: `ImageSets/Main/<class>_{train,val}.txt`, 1 present, -1 absent, 0 only "difficult" objects.

The official train list becomes the training part (cut in train and val), the official val list the test part.
Source: Everingham et al., VOC2012 development kit, section on image sets; the table follows Cole et al., CVPR 2021,
elijahcole/single-positive-multi-label @89152d5, preproc/format_pascal.py.
Differs: the label of a difficult cell is a setting (theirs: negative); faulty lists are errors, no line is skipped.
"""

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from pipeline.config import Strict
from pipeline.single_positive import split_rows
from pipeline.table import Dataset, SourceError, Table

PARTS = ("train", "val")  # the official lists; their places are the numbers of `official`
ENDINGS = (".jpg", ".jpeg", ".png")
SHOWN = 20  # of many offenders, this many are named


class Settings(Strict):
    """Settings of `prepare.<dataset>` for a folder in VOC layout."""

    source: Literal["voc"]
    root: str
    """Folder of the data, absolute or from the project's root: `VOCdevkit`, `VOC2012`, or one that holds them."""
    difficult: Literal["negative", "ignore", "positive"]
    """What label 0 means: `negative` (the papers), `positive`, or `ignore`: absent, and left out of metrics."""
    classes: Annotated[list[str], Field(min_length=1)] | None
    """Class names in column order; null: those that have a `<class>_train.txt`, alphabetically."""
    size: Annotated[int, Field(ge=1)]
    """Side of the packed images in pixels; the aspect ratio is not kept. The papers: 448."""
    val_fraction: Annotated[float, Field(gt=0, lt=1)]
    """Share of the official train list that becomes val. The papers: 0.2."""
    split_seed: Annotated[int, Field(ge=0)]
    """Seed of that cut. The papers: 1200."""


def read(settings: Settings, root: Path) -> Dataset:
    """Read the lists of a VOC folder; pictures are looked up, not opened.

    Rows are the images with at least one positive label, the official train list first, each list sorted by file name.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        The dataset.

    Raises:
        SourceError: the folder, a list or a picture is missing, or lists contradict each other; the message names the
            setting, file, line or id.
    """
    folder = find_folder(root / Path(settings.root).expanduser())
    lists = folder / "ImageSets" / "Main"
    files = _class_files(lists, settings.classes)
    classes = tuple(files)
    pictures = _pictures(folder / "JPEGImages")

    ids: list[str] = []
    labels: list[np.ndarray] = []
    official: list[int] = []
    parts: dict[str, Any] = {}
    listed: set[str] = set()
    for place, part in enumerate(PARTS):
        order, repeated = _image_list(lists / f"{part}.txt")
        if both := [name for name in order if name in listed]:
            raise SourceError(f"{part}.txt: {len(both)} images are in train.txt too: {_some(both)}")
        listed.update(order)
        values = np.empty((len(order), len(classes)), np.int8)  # 1, 0 or -1 as in the files
        bare = []
        for column, name in enumerate(classes):
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
            "skipped_without_positive": {"count": len(dropped), "first": dropped[:SHOWN]},
            "difficult_cells": dict(zip(classes, (values[rows] == 0).sum(axis=0).tolist(), strict=True)),
            "repeated_lines": repeated,
            "classes_listing_positives_only": bare,
        }

    if missing := [name for name in ids if name not in pictures]:
        raise SourceError(f"JPEGImages: {len(missing)} of {len(ids)} images have no file: {_some(missing)}")
    if twins := [" = ".join(pictures[name]) for name in ids if len(pictures[name]) > 1]:
        raise SourceError(f"JPEGImages: {len(twins)} images have several files: {_some(twins)}")

    values = np.concatenate(labels)
    split = np.full(len(ids), 2, np.uint8)
    train, val = split_rows(official.count(0), settings.val_fraction, settings.split_seed)
    split[train], split[val] = 0, 1
    table = Table(
        classes=classes,
        paths=tuple("JPEGImages/" + unicodedata.normalize("NFC", pictures[name][0]) for name in ids),
        truth=_present(values, settings.difficult).astype(np.int8),
        scored=(values != 0) | (settings.difficult != "ignore"),
        split=split,
        official=np.array(official, np.uint8),
    )
    report = {
        "folder": folder.name,
        "difficult": {"policy": settings.difficult, "cells": int((values == 0).sum())},
        "parts": parts,
        "pictures_in_no_list": len(pictures.keys() - listed),
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
        SHA-256 over the names and bytes of the lists that `read` reads and the names and sizes of all picture files;
        where the folder lies does not count.

    Raises:
        SourceError: the folder or a list is missing.
    """
    folder = find_folder(root / Path(settings.root).expanduser())
    lists = folder / "ImageSets" / "Main"
    classes = _class_files(lists, settings.classes)
    files = [lists / f"{part}.txt" for part in PARTS] + [file for parts in classes.values() for file in parts.values()]
    facts: list[tuple[str, str]] = []
    for file in files:
        try:
            content = file.read_bytes()
        except OSError as error:
            raise SourceError(f"{file.name}: cannot be read in {lists} ({error.strerror or error})") from error
        facts.append((file.name, hashlib.sha256(content).hexdigest()))
    with os.scandir(folder / "JPEGImages") as entries:
        pictures = [entry for entry in entries if os.path.splitext(entry.name)[1].lower() in ENDINGS]
        try:
            facts += [(f"JPEGImages/{entry.name}", str(entry.stat().st_size)) for entry in pictures]
        except OSError as error:
            raise SourceError(f"JPEGImages: cannot be read ({error})") from error
    named = sorted((unicodedata.normalize("NFC", name), value) for name, value in facts)
    return hashlib.sha256(
        "".join(f"{name}\0{value}\n" for name, value in named).encode("utf-8", "surrogateescape")
    ).hexdigest()


def find_folder(root: Path) -> Path:
    """Find the folder with `ImageSets/Main` at or below a root; archives differ in what they wrap around it.

    Args:
        root: `VOC2012`, `VOCdevkit`, or a folder that holds one of them.

    Returns:
        The folder that holds `ImageSets` and `JPEGImages`.

    Raises:
        SourceError: there is none, or several at the same depth.
    """
    if not root.is_dir():
        raise SourceError(f"prepare: root: no folder {root}")
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
        raise SourceError(f"{len(absent)} class lists are missing: {_some(absent)}; complete are: {whole or 'none'}")
    return {name: found[name] for name in names}


def _pictures(folder: Path) -> dict[str, list[str]]:
    """Return the names on disk of a folder's picture files, by image id: the name without its ending, in NFC."""
    pictures: dict[str, list[str]] = {}
    for name in sorted(os.listdir(folder)):
        stem, ending = os.path.splitext(name)
        if ending.lower() in ENDINGS:
            pictures.setdefault(unicodedata.normalize("NFC", stem), []).append(name)
    return pictures


def _lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield where each line is that is not blank, and its fields; blanks, tabs, CR and a byte order mark do not count.

    Raises:
        SourceError: the file is missing or not UTF-8 text.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise SourceError(f"{path.name} is missing in {path.parent}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path.name}: cannot be read as UTF-8 text ({error})") from error
    for number, line in enumerate(text.split("\n"), start=1):
        if fields := unicodedata.normalize("NFC", line).split():
            yield f"{path.name}:{number}", fields


def _image_list(path: Path) -> tuple[list[str], int]:
    """Read a list of image ids.

    Returns:
        The ids, each once, in the file's order; the number of lines that repeat one.

    Raises:
        SourceError: a line is not one id, an id is no plain file name, or there is none.
    """
    ids: dict[str, None] = {}
    count = 0
    for where, fields in _lines(path):
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
    for where, fields in _lines(path):
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
        raise SourceError(f"{path.name}: {len(absent)} of the {len(order)} ids of {part} are missing: {_some(absent)}")
    return np.array([labels.get(name, -1) for name in order], np.int8), count - len(labels), not bare


def _some(names: list[str]) -> str:
    """Return names joined, at most `SHOWN` of them."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
