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
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, check_names, class_name, counted, some
from pipeline.core.text import relative_path
from pipeline.data import raw
from pipeline.data.json_lists import entries
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


def read(settings: Settings, root: Path) -> Dataset:
    """Read the annotations of COCO; pictures are looked up, not opened.

    Classes are in the order of the train part's `categories`. The files are streamed: memory does not grow with the
    polygons that they hold.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        The dataset.

    Raises:
        SourceError: a folder, file or picture is missing, or a file is not what it should be: no JSON, an id that is
            there twice or points to nothing, categories that differ between the parts. The message names the files and
            the offenders, of all that is wrong.
    """
    top = raw.raw_folder(settings, root)
    faults = Faults(top.name)
    found, folders = _find(settings, top, faults)
    parts = {name: part for name, file in found.items() if (part := _part(file, faults)) is not None}
    if len(parts) > 1:
        _agree(parts["train"], parts["val"], found["val"].name, faults)
    threshold = CROWD if settings.crowd == "count" else OBJECT
    order: dict[str, np.ndarray] = {}
    on_disk: dict[str, dict[str, str]] = {}
    bare: dict[str, list[str]] = {}
    warnings: list[str] = []
    for name, part in parts.items():
        labelled = np.count_nonzero(part.cells >= threshold, axis=1) > 0
        if part.cells.any() and not labelled.any():
            faults.join(SourceError(f"{found[name].name}: none of its {len(labelled)} images has a present class"))
        rows = string_order(part.ids) if settings.order == "string" else np.argsort(np.array(part.ids))
        bare[name] = [part.names[row] for row in rows[~labelled[rows]]]
        order[name] = rows[labelled[rows]] if settings.unannotated == "drop" else rows
        if name in folders:
            wanted = list(dict.fromkeys(part.names[row] for row in order[name] if part.names[row]))
            where = f"{name}{settings.year}"
            try:
                files = raw.match(wanted, raw.pictures(folders[name]), where, settings.bad_images)
                on_disk[name] = dict(zip(wanted, files, strict=True))
            except SourceError as error:
                faults.join(error)
            warnings += [f"{where}: {told}" for told in raw.left_out(folders[name])]
    faults.stop()

    classes = parts["train"].categories
    paths: list[str] = []
    files: list[str] = []
    truth: list[np.ndarray] = []
    scored: list[np.ndarray] = []
    official: list[int] = []
    boxes: list[tuple[np.ndarray, ...]] = []
    report: dict[str, Any] = {}
    for place, (name, part) in enumerate(parts.items()):
        rows = order[name]
        test = np.zeros(0, np.int64) if place == 0 else rows
        if settings.test_fraction is not None:
            rest, test = split_rows(len(rows), settings.test_fraction, settings.split_seed)
            rows, test = rows[np.concatenate([rest, test])], rows[test]
        columns = [list(part.categories).index(key) for key in classes]
        boxes.append(_boxes(part, rows, len(paths), columns))
        official += [0] * (len(rows) - len(test)) + [1] * len(test)
        cells = part.cells[rows][:, columns]
        truth.append(cells >= threshold)
        scored.append((cells != CROWD) | (settings.crowd == "count"))
        wanted = [part.names[row] for row in rows]
        files += [f"{folders[name]}/{on_disk[name][file]}" for file in wanted]
        paths += [f"{name}{settings.year}/{file}" for file in wanted]
        report[name] = {
            "images": len(part.ids),
            "annotations": len(part.rows),
            "kept": len(rows),
            "without_present_class": counted(bare[name]),
            "cells_of_crowds_only": int((cells == CROWD).sum()),
        }

    table = Table(
        classes=tuple(classes.values()),
        paths=tuple(paths),
        truth=np.concatenate(truth).astype(np.int8),
        scored=np.concatenate(scored),
        split=raw.split(official, settings),
        official=np.array(official, np.uint8),
    )
    objects, measured, told = raw.objects(table, *map(np.concatenate, zip(*boxes, strict=True)))
    warnings += told
    policies = {key: getattr(settings, key) for key in ("year", "unannotated", "crowd", "order", "test_fraction")}
    if settings.test_fraction is not None:
        warnings.append(
            f"test: {sum(official)} images cut from the train part (test_fraction: {settings.test_fraction}); no "
            "published figure is measured on them"
        )
    report = policies | {"boxes": measured, "parts": report, "warnings": warnings}
    return Dataset(table, lambda row: Path(files[row]), report, objects)


def fingerprint(settings: Settings, root: Path) -> str:
    """Tell one state of the raw data from another without opening a picture.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        `layout.state` of the annotation files that `read` reads and of the pictures of their parts.

    Raises:
        SourceError: a folder or file is missing; then the message is that of `read`.
    """
    top = raw.raw_folder(settings, root)
    faults = Faults(top.name)
    files, folders = _find(settings, top, faults)
    if faults:
        read(settings, root)  # tells what else is wrong
    faults.stop()
    return raw.state(
        {file.name: file for file in files.values()},
        {f"{name}{settings.year}": folder for name, folder in folders.items()},
    )


def _find(settings: Settings, top: Path, faults: Faults) -> tuple[dict[str, Path], dict[str, Path]]:
    """Find annotation files and folders of pictures at or below a folder; archives differ in what they wrap around.

    Noted is a file of the val part that is missing, and folders that are.

    Returns:
        Part -> annotation file, part -> folder of pictures.

    Raises:
        SourceError: there is no file of the train part, or there are several at the same depth.
    """
    year = settings.year
    parts = PARTS if settings.test_fraction is None else PARTS[:1]
    first = f"annotations/instances_train{year}.json"
    bases: list[Path] = []
    for depth in ("", "*/", "*/*/"):
        bases = bases or sorted(file.parent.parent for file in top.glob(depth + first))
    if len(bases) > 1:
        names = ", ".join(str(base.relative_to(top)) for base in bases)
        raise SourceError(f"prepare: root: {top} holds several datasets ({names}); name one of them")
    if not bases:
        above = next((folder for folder in top.parents if (folder / first).is_file()), None)
        here = sorted({file.name for depth in ("", "*/") for file in top.glob(f"{depth}annotations/*.json")})
        hint = f"it lies inside one, name {above}" if above else f"there are {some(here) or 'no annotations'}"
        raise SourceError(f"prepare: root: no {first} in {top}; {hint}")
    files, folders = {}, {}
    around = [folder for folder in (bases[0], *bases[0].parents) if folder.is_relative_to(top)]
    for part in parts:
        file = bases[0] / "annotations" / f"instances_{part}{year}.json"
        if file.is_file():
            files[part] = file
        else:
            hint = "without it, `test_fraction` makes a share of the train images the test part"
            faults.join(SourceError(f"{file.name} is missing in {file.parent}; {hint}"))
        name = f"{part}{year}"
        inner = [folder / place for folder in around for place in (f"{name}/{name}", name)]
        inner += [folder / "images" / place for folder in around for place in (f"{name}/{name}", name)]
        place = next((folder for folder in inner if folder.is_dir()), None)
        if place is None:
            faults.join(SourceError(f"prepare: root: no folder {name} or images/{name} in {bases[0]}"))
        else:
            folders[part] = place
    return files, folders


def _part(file: Path, faults: Faults) -> Part | None:
    """Return what one annotation file holds, as far as it can be read; what is wrong is noted."""

    def refuse(what: str, offenders: Iterable[str]) -> None:
        for offender in offenders:
            faults.add(what, offender, file.name)

    found: dict[str, list[tuple[Any, ...]]] = {key: [] for key in FIELDS}
    faulty: dict[str, list[str]] = {key: [] for key in FIELDS}
    boxes, sizes = bytearray(), bytearray()
    try:
        with file.open(encoding="utf-8-sig") as stream:
            for key, entry in entries(stream):
                if key in FIELDS:
                    values = tuple(map(entry.get, FIELDS[key], DEFAULTS)) if isinstance(entry, dict) else ()
                    if tuple(map(type, values)) == TYPES[key]:
                        found[key].append(values)
                        if key == "annotations":
                            boxes += _packed(BOX, entry.get("bbox"))
                        elif key == "images":
                            sizes += _packed(SIZE, (entry.get("width"), entry.get("height")))
                    else:
                        faulty[key].append(f"number {len(found[key]) + len(faulty[key]) + 1}")
    except OSError as error:
        faults.join(SourceError(f"{file.name}: cannot be read in {file.parent} ({error.strerror or error})"))
        return None
    except ValueError as error:
        faults.join(SourceError(f"{file.name}: no whole JSON ({error})"))
        return None
    for key, fields in FIELDS.items():
        wanted = ", ".join(f"{field} ({kind.__name__})" for field, kind in fields.items())
        refuse(f"{key} lack one of {wanted}", faulty[key])
        if not found[key] and not faulty[key]:
            faults.join(SourceError(f"{file.name}: has no list `{key}`, or an empty one"))

    named = [(key, class_name(name)) for key, name in found["categories"]]
    check_names((name for _, name in named), faults, file.name)
    refuse("category ids are there twice", _repeated(key for key, _ in named))
    refuse("category names are there twice", _repeated(name for _, name in named))
    refuse("image ids are there twice", _repeated(key for key, _ in found["images"]))
    names: list[str] = []
    for key, name in found["images"]:
        try:
            path = relative_path(name)
            path.encode()  # a lone surrogate can be neither shown nor stored
            fault = "" if path == path.rstrip() else f"path {name!r} ends with a blank"
        except ValueError as error:
            path, fault = "", str(error)
        names.append("" if fault else path)
        refuse("images have no usable file_name", [f"{key} ({fault})"] if fault else [])
    refuse("file names belong to several images", _repeated(name for name in names if name))

    places: list[np.ndarray] = []
    for at, key in enumerate(("images", "categories")):
        place_of: dict[int, int] = {}
        for place, (number, _) in enumerate(found[key]):
            place_of.setdefault(number, place)
        ids = [values[at] for values in found["annotations"]]
        if found[key] and not faulty[key]:  # else they may be those of the faulty ones
            lost = Counter(number for number in ids if number not in place_of)
            what = f"{'category' if at else 'image'} ids of annotations are not in the file"
            refuse(what, (f"{number} ({count} times)" for number, count in lost.items()))
        places.append(np.fromiter((place_of.get(number, -1) for number in ids), np.int64, len(ids)))
    marks = np.fromiter((CROWD if crowd else OBJECT for _, _, crowd in found["annotations"]), np.int8)
    cells = np.zeros((len(names), len(named)), np.int8)
    known = (places[0] >= 0) & (places[1] >= 0)
    for mark in (CROWD, OBJECT):
        chosen = known & (marks == mark)
        cells[places[0][chosen], places[1][chosen]] = mark
    return Part(
        [key for key, _ in found["images"]],
        names,
        dict(named),
        cells,
        places[0],
        places[1],
        marks,
        np.frombuffer(boxes).reshape(-1, 4),
        np.frombuffer(sizes).reshape(-1, 2),
    )


def _packed(form: struct.Struct, numbers: Any) -> bytes:
    """Return numbers as float64; NaN for each where they are not as many numbers as the form has."""
    try:
        return form.pack(*numbers)
    except (TypeError, struct.error):
        return form.pack(*[math.nan] * (form.size // 8))


def _boxes(part: Part, rows: np.ndarray, first: int, columns: list[int]) -> tuple[np.ndarray, ...]:
    """Return the boxes that measure the cells of a part, as `layout.objects` takes them.

    Args:
        part: The part.
        rows: (R,) the part's images in the order of the table.
        first: Row of the table where they begin.
        columns: (C,) the part's categories in the order of the table.

    Returns:
        Rows and columns of the table, boxes and sizes of their pictures.
    """
    row_of = np.full(len(part.ids), -1)
    row_of[rows] = first + np.arange(len(rows))
    counts = (part.marks == part.cells[part.rows, part.columns]) & (row_of[part.rows] >= 0)
    at, boxes = part.rows[counts], part.boxes[counts]
    with np.errstate(over="ignore", invalid="ignore"):
        corners = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
    return row_of[at], np.argsort(columns)[part.columns[counts]], corners, part.sizes[at]


def _agree(train: Part, part: Part, where: str, faults: Faults) -> None:
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


def _repeated(keys: Iterable[Any]) -> list[str]:
    """Return what is there more than once."""
    return [str(key) for key, n in Counter(keys).items() if n > 1]
