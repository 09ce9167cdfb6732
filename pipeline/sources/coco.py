"""MS-COCO 2014 and 2017: `annotations/instances_{train,val}<year>.json` and pictures in `train<year>/`, `val<year>/`.

A class is present where any object of its category is annotated. The official train part becomes the training part (cut
in train and val), the official val part the test part; the official test part has no public labels.
Where a class has objects, they are what its boxes are; crowds are that only where there is nothing else.
Source: Lin et al., "Microsoft COCO", ECCV 2014, and the format page of cocodataset.org; the table follows Cole et al.,
CVPR 2021, elijahcole/single-positive-multi-label @89152d5, preproc/format_coco.py.
Differs: crowds, images without an object and the order of rows are settings (theirs: count, drop, string).
"""

import math
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, check_class_names, find_duplicates, normalize_class_name, preview, summarize
from pipeline.core.text import check_regular, relative_path
from pipeline.data import disk, raw
from pipeline.data.json_lists import read_entries
from pipeline.data.raw import Files
from pipeline.labels.splits import split_rows, string_order
from pipeline.labels.table import Dataset, Table

PARTS = ("train", "val")  # the official parts; their places are the numbers of `official`
CROWD, OBJECT = 1, 2  # what a cell holds; the greater one wins
FIELDS: dict[str, dict[str, type]] = {
    "categories": {"id": int, "name": str},
    "images": {"id": int, "file_name": str},
    "annotations": {"image_id": int, "category_id": int, "iscrowd": int},
}
TYPES = {key: tuple(fields.values()) for key, fields in FIELDS.items()}
DEFAULTS = (None, None, 0)  # of those fields, by place: only `iscrowd` may be missing
BOX, SIZE = struct.Struct("4d"), struct.Struct("2d")  # packed, since a list a box takes ten times the memory


class Settings(raw.Cut):
    """Settings of `prepare.<dataset>` for COCO: a folder with `annotations` and pictures, or one that holds it."""

    source: Literal["coco"]
    year: Literal[2014, 2017]
    """Edition. The papers: 2014. That of 2017 has the same images, parted otherwise."""
    unannotated: Literal["drop", "keep"]
    """Images without a present class: `drop` (the papers), or `keep`, as rows in which every class is absent."""
    crowd: Literal["count", "ignore"]
    """What a class is of which an image holds nothing but crowds: present (`count`, the papers), or of unknown truth
    (`ignore`): absent, and left out of metrics, as COCO's own evaluation leaves crowds out."""
    order: Literal["string", "numeric"]
    """Rows of a part by image id, as text (`string`, the papers: "10" before "9") or as number. Draws and cuts go by
    row: under another order the same seeds give other ones."""
    test_fraction: Annotated[float, Field(gt=0, lt=1)] | None
    """null: the official val part is the test part (the papers). A share: that part of the train images, cut by
    `split_seed`, is the test part; no official val part is read or needed."""


@dataclass(frozen=True)
class Lists:
    """What the lists of one annotation file hold, of N images and M annotations.

    Args:
        entries: List -> the values of its `FIELDS`, of entries that have them all.
        whole: Lists of which all entries have them.
        boxes: (M, 4) float64 left, top, width and height in pixels; NaN where not given.
        sizes: (N, 2) float64 width and height of the images in pixels; NaN where not given.
    """

    entries: dict[str, list[tuple[Any, ...]]]
    whole: set[str]
    boxes: np.ndarray
    sizes: np.ndarray


@dataclass(frozen=True)
class Part:
    """One official part, in the order of its file, of M annotations.

    Args:
        ids: N image ids, unique.
        names: N file names, unique, in the form of `relative_path`; "" where it cannot be used, which is a fault.
        categories: Category id -> name, C of them in the order of the file.
        cells: (N, C) int8, `OBJECT` where there is one, `CROWD` where there are nothing but crowds, else 0.
        rows: (M,) image of each annotation.
        columns: (M,) category of each annotation.
        marks: (M,) int8, `OBJECT` or `CROWD`.
        boxes: (M, 4) float64 left, top, width and height in pixels; NaN where not given.
        sizes: (N, 2) float64 width and height of the images in pixels; NaN where not given.
    """

    ids: list[int]
    names: list[str]
    categories: dict[int, str]
    cells: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    marks: np.ndarray
    boxes: np.ndarray
    sizes: np.ndarray


@dataclass(frozen=True)
class Selected:
    """Images of a part that become rows.

    Args:
        rows: (R,) images, in the order of the settings.
        on_disk: File name -> that of its picture on disk.
        bare: File names of the images of the part that have no present class.
    """

    rows: np.ndarray
    on_disk: dict[str, str]
    bare: list[str]


def locate(settings: Settings, root: Path) -> Files:
    """Return where annotations and pictures are; archives differ in what they wrap around them."""
    top, year = raw.find_root(settings, root), settings.year
    first = f"annotations/instances_train{year}.json"
    here = sorted({file.name for depth in ("", "*/") for file in top.glob(f"{depth}annotations/*.json")})
    expected = f"there are {preview(here) or 'no annotations'}"
    base = raw.find_dataset(top, (".", "*", "*/*"), first, expected)
    files = Files(top, {}, {}, Faults(top.name))
    around = [folder for folder in (base, *base.parents) if folder.is_relative_to(top)]
    for part in PARTS if settings.test_fraction is None else PARTS[:1]:
        name, file = f"{part}{year}", base / "annotations" / f"instances_{part}{year}.json"
        if file.is_file():
            files.lists[file.name] = file
        else:
            hint = "without it, `test_fraction` makes a share of the train images the test part"
            files.faults.add_error(SourceError(f"{file.name} is missing in {file.parent}; {hint}"))
        inner = [folder / place for folder in around for place in (f"{name}/{name}", name)]
        inner += [folder / "images" / place for folder in around for place in (f"{name}/{name}", name)]
        if place := next((folder for folder in inner if folder.is_dir()), None):
            files.pictures[name] = place
        else:
            files.faults.add_error(SourceError(f"prepare: root: no folder {name} or images/{name} in {base}"))
    return files


def parse(files: Files, settings: Settings) -> dict[str, Part]:
    """Return what the annotations hold, by part; streamed, since memory must not grow with the polygons in them."""
    parts: dict[str, Part] = {}
    for name in PARTS:
        file = files.lists.get(f"instances_{name}{settings.year}.json")
        if file is None or (lists := _read_lists(file, files.faults)) is None:
            continue
        parts[name] = _part(lists, file.name, files.faults)
        if len(parts) > 1:
            _check_agreement(parts["train"], parts["val"], file.name, files.faults)
    return parts


def build(files: Files, parts: dict[str, Part], settings: Settings) -> Dataset:
    """Return the dataset: rows by part, each in the order of the settings; columns as the train part's `categories`."""
    selected = {name: _select(name, part, files, settings) for name, part in parts.items()}
    warnings = [
        f"{place}: {warning}"
        for place, folder in files.pictures.items()
        for warning in disk.scan(folder, settings.links).warnings()
    ]
    files.faults.raise_if_any()

    classes = parts["train"].categories
    parts = {name: _order_columns(part, classes) for name, part in parts.items()}
    arranged = {name: _arrange(name, selected[name].rows, settings) for name in parts}
    cells = np.concatenate([parts[name].cells[rows] for name, (rows, _) in arranged.items()])
    official = np.concatenate([numbers for _, numbers in arranged.values()])
    paths, pictures, boxes = [], [], []
    for name, (rows, _) in arranged.items():
        place, part = f"{name}{settings.year}", parts[name]
        boxes.append(_boxes(part, rows, first=len(paths)))
        pictures += [files.pictures[place] / selected[name].on_disk[part.names[row]] for row in rows]
        paths += [f"{place}/{part.names[row]}" for row in rows]
    table = Table(
        classes=tuple(classes.values()),
        paths=tuple(paths),
        truth=(cells >= _threshold(settings)).astype(np.int8),
        scored=(cells != CROWD) | (settings.crowd == "count"),
        split=raw.split_official(official, settings),
        official=official,
    )
    objects, measured, of_boxes = raw.measure_objects(table, *map(np.concatenate, zip(*boxes, strict=True)))
    warnings += of_boxes
    if settings.test_fraction is not None:
        warnings.append(
            f"test: {official.sum()} images cut from the train part (test_fraction: {settings.test_fraction}); no "
            "published figure is measured on them"
        )
    policies = {key: getattr(settings, key) for key in ("year", "unannotated", "crowd", "order", "test_fraction")}
    counts = {name: _count(part, selected[name]) for name, part in parts.items()}
    report = policies | {"boxes": measured, "parts": counts, "warnings": warnings}
    data = Dataset(table, lambda row: pictures[row], report, objects)
    return raw.with_rules(data, settings, files.folder.name)


# ---------------------------------------------------------------------------------------------- annotation files
def _read_lists(file: Path, faults: Faults) -> Lists | None:
    """Return what the lists of an annotation file hold; None where it cannot be read, which is noted."""
    found: dict[str, list[tuple[Any, ...]]] = {key: [] for key in FIELDS}
    faulty: dict[str, list[str]] = {key: [] for key in FIELDS}
    boxes, sizes = bytearray(), bytearray()
    try:
        check_regular(file)
        with file.open(encoding="utf-8-sig") as stream:
            for key, entry in read_entries(stream):
                if key not in FIELDS:
                    continue
                values = tuple(map(entry.get, FIELDS[key], DEFAULTS)) if isinstance(entry, dict) else ()
                if tuple(map(type, values)) != TYPES[key]:
                    faulty[key].append(f"number {len(found[key]) + len(faulty[key]) + 1}")
                    continue
                found[key].append(values)
                if key == "annotations":
                    boxes += _packed(BOX, entry.get("bbox"))
                elif key == "images":
                    sizes += _packed(SIZE, (entry.get("width"), entry.get("height")))
    except SourceError as error:
        faults.add_error(error)
        return None
    except OSError as error:
        faults.add_error(SourceError(f"{file.name}: cannot be read in {file.parent} ({error.strerror or error})"))
        return None
    except ValueError as error:
        faults.add_error(SourceError(f"{file.name}: no whole JSON ({error})"))
        return None
    for key, fields in FIELDS.items():
        wanted = ", ".join(f"{field} ({kind.__name__})" for field, kind in fields.items())
        for offender in faulty[key]:
            faults.add(f"{key} lack one of {wanted}", offender, file.name)
        if not found[key] and not faulty[key]:
            faults.add_error(SourceError(f"{file.name}: has no list `{key}`, or an empty one"))
    whole = {key for key in FIELDS if found[key] and not faulty[key]}
    return Lists(found, whole, np.frombuffer(boxes).reshape(-1, 4), np.frombuffer(sizes).reshape(-1, 2))


def _part(lists: Lists, file: str, faults: Faults) -> Part:
    """Return a part by the lists of its file; what does not fit together is noted."""
    images, annotations = lists.entries["images"], lists.entries["annotations"]
    categories = [(key, normalize_class_name(name)) for key, name in lists.entries["categories"]]
    check_class_names([name for _, name in categories], faults, file)
    for what, ids in (("category", categories), ("image", images)):
        for number in find_duplicates(number for number, _ in ids):
            faults.add(f"duplicate {what} ids", number, file)
    names = [_file_name(key, name, faults, file) for key, name in images]
    for name in find_duplicates(filter(None, names)):
        faults.add("duplicate file names of images", name, file)

    rows = _places(lists, "images", [image for image, _, _ in annotations], faults, file)
    columns = _places(lists, "categories", [category for _, category, _ in annotations], faults, file)
    marks = np.fromiter((CROWD if crowd else OBJECT for _, _, crowd in annotations), np.int8)
    cells = np.zeros((len(names), len(categories)), np.int8)
    for mark in (CROWD, OBJECT):
        chosen = (rows >= 0) & (columns >= 0) & (marks == mark)
        cells[rows[chosen], columns[chosen]] = mark
    ids = [key for key, _ in images]
    return Part(ids, names, dict(categories), cells, rows, columns, marks, lists.boxes, lists.sizes)


def _file_name(image: int, name: str, faults: Faults, file: str) -> str:
    """Return the file name of an image in the form of `relative_path`; "" where it cannot be used, which is noted."""
    try:
        path = relative_path(name)
        path.encode()  # a lone surrogate can be neither shown nor stored
        fault = "" if path == path.rstrip() else f"path {name!r} ends with a blank"
    except ValueError as error:
        path, fault = "", str(error)
    if fault:
        faults.add("images have an invalid file_name", f"{image} ({fault})", file)
    return "" if fault else path


def _places(lists: Lists, key: str, ids: list[int], faults: Faults, file: str) -> np.ndarray:
    """Return the places in a list of ids that annotations name; -1 where there is none, which is noted."""
    place_of: dict[int, int] = {}
    for place, (number, _) in enumerate(lists.entries[key]):
        place_of.setdefault(number, place)
    if key in lists.whole:  # else they may be those of its faulty entries
        kind = f"{'category' if key == 'categories' else 'image'} ids of annotations are not in the file"
        for number, count in Counter(number for number in ids if number not in place_of).items():
            faults.add(kind, f"{number} ({count} times)", file)
    return np.fromiter((place_of.get(number, -1) for number in ids), np.int64, len(ids))


def _packed(form: struct.Struct, numbers: Any) -> bytes:
    """Return numbers as float64; NaN for each where they are not as many numbers as the form has."""
    try:
        return form.pack(*numbers)
    except (TypeError, struct.error):
        return form.pack(*[math.nan] * (form.size // 8))


def _check_agreement(train: Part, part: Part, where: str, faults: Faults) -> None:
    """Note categories that differ between a part and the train part, and images that they share."""
    for key in dict.fromkeys([*train.categories, *part.categories]):
        ours, theirs = train.categories.get(key), part.categories.get(key)
        if ours != theirs:
            faults.add("categories differ from those of train", f"{key} ({ours}, {theirs})", where)
    # the id alone may be each part's own count in data that is only laid out like COCO
    known = set(zip(train.ids, train.names, strict=True))
    for key, name in zip(part.ids, part.names, strict=True):
        if name and (key, name) in known:
            faults.add("images are in the train part too", name, where)


# ---------------------------------------------------------------------------------------------- rows
def _threshold(settings: Settings) -> int:
    """Return from which value on a cell is present."""
    return CROWD if settings.crowd == "count" else OBJECT


def _select(name: str, part: Part, files: Files, settings: Settings) -> Selected:
    """Return the images of a part that become rows; noted is a part without any, and pictures that lack."""
    place, faults = f"{name}{settings.year}", files.faults
    labelled = np.count_nonzero(part.cells >= _threshold(settings), axis=1) > 0
    if part.cells.any() and not labelled.any():
        count = len(labelled)
        faults.add_error(SourceError(f"instances_{place}.json: none of its {count} images has a present class"))
    rows = string_order(part.ids) if settings.order == "string" else np.argsort(np.array(part.ids))
    bare = [part.names[row] for row in rows[~labelled[rows]]]
    if settings.unannotated == "drop":
        rows = rows[labelled[rows]]
    on_disk: dict[str, str] = {}
    if folder := files.pictures.get(place):
        wanted = list(dict.fromkeys(part.names[row] for row in rows if part.names[row]))
        found = raw.match_files(wanted, disk.scan(folder, settings.links).pictures, place, settings.bad_images, faults)
        on_disk = dict(zip(wanted, found, strict=True))
    return Selected(rows, on_disk, bare)


def _order_columns(part: Part, classes: Iterable[int]) -> Part:
    """Return a part with its categories in this order."""
    columns = [list(part.categories).index(key) for key in classes]
    return replace(part, cells=part.cells[:, columns], columns=np.argsort(columns)[part.columns])


def _arrange(name: str, rows: np.ndarray, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Return the images of a part in the order of the table, and of each 0 for training and 1 for test."""
    if settings.test_fraction is None:
        return rows, np.full(len(rows), PARTS.index(name), np.uint8)
    rest, test = split_rows(len(rows), settings.test_fraction, settings.split_seed)
    return rows[np.concatenate([rest, test])], np.repeat(np.arange(2, dtype=np.uint8), [len(rest), len(test)])


def _boxes(part: Part, rows: np.ndarray, first: int) -> tuple[np.ndarray, ...]:
    """Return the boxes that measure the cells of a part, as `raw.measure_objects` takes them.

    Args:
        part: The part, its categories in the order of the table.
        rows: (R,) the part's images in the order of the table.
        first: Row of the table where they begin.

    Returns:
        Rows and columns of the table, boxes and sizes of their pictures.
    """
    row_of = np.full(len(part.ids), -1)
    row_of[rows] = first + np.arange(len(rows))
    counts = (part.marks == part.cells[part.rows, part.columns]) & (row_of[part.rows] >= 0)
    at, boxes = part.rows[counts], part.boxes[counts]
    with np.errstate(over="ignore", invalid="ignore"):
        corners = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
    return row_of[at], part.columns[counts], corners, part.sizes[at]


def _count(part: Part, selected: Selected) -> dict[str, Any]:
    """Return what a report says of a part."""
    return {
        "images": len(part.ids),
        "annotations": len(part.rows),
        "kept": len(selected.rows),
        "without_present_class": summarize(selected.bare),
        "cells_of_crowds_only": int((part.cells[selected.rows] == CROWD).sum()),
    }


read, fingerprint = raw.make_reader(locate, parse, build)
