"""MS-COCO 2014 and 2017: `annotations/instances_{train,val}<year>.json` and pictures in `train<year>/`, `val<year>/`.

A class is present where any object of its category is annotated. The official train part becomes the training part (cut
in train and val), the official val part the test part; the official test part has no public labels.
Source: Lin et al., "Microsoft COCO", ECCV 2014, and the format page of cocodataset.org; the table follows Cole et al.,
CVPR 2021, elijahcole/single-positive-multi-label @89152d5, preproc/format_coco.py.
Differs: crowds, images without an object and the order of rows are settings (theirs: count, drop, string).
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import numpy as np
from pydantic import Field

from pipeline import layout
from pipeline.single_positive import split_rows, string_order
from pipeline.table import Dataset, SourceError, Table, relative_path

PARTS = ("train", "val")  # the official parts; their places are the numbers of `official`
CROWD, OBJECT = 1, 2  # what a cell holds; the greater one wins
FIELDS: dict[str, dict[str, type]] = {
    "categories": {"id": int, "name": str},
    "images": {"id": int, "file_name": str},
    "annotations": {"image_id": int, "category_id": int, "iscrowd": int},
}
TYPES = {key: tuple(fields.values()) for key, fields in FIELDS.items()}
DEFAULTS = (None, None, 0)  # of those fields, by place: only `iscrowd` may be missing
LONGEST = 1 << 20  # characters; a text that is longer than this is taken for damage


class Settings(layout.Cut):
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
    """One official part, in the order of its file.

    Args:
        ids: N image ids, unique.
        names: N file names, unique, in the form of `relative_path`.
        categories: Category id -> name, C of them in the order of the file.
        cells: (N, C) int8, `OBJECT` where there is one, `CROWD` where there are nothing but crowds, else 0.
        annotations: Their number.
    """

    ids: list[int]
    names: list[str]
    categories: dict[int, str]
    cells: np.ndarray
    annotations: int


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
            there twice or points to nothing, categories that differ between the parts. The message names the file and
            the offenders.
    """
    found, folders = _find(settings, layout.raw_folder(settings, root))
    parts = {name: _part(file) for name, file in found.items()}
    classes = parts["train"].categories
    paths: list[str] = []
    files: list[str] = []
    truth: list[np.ndarray] = []
    scored: list[np.ndarray] = []
    official: list[int] = []
    report: dict[str, Any] = {}
    for place, (name, part) in enumerate(parts.items()):
        where = found[name].name
        if place:
            _agree(parts["train"], part, where)
        columns = [list(part.categories).index(key) for key in classes]
        cells = part.cells[:, columns]
        present = cells >= (CROWD if settings.crowd == "count" else OBJECT)
        labelled = np.count_nonzero(present, axis=1) > 0
        if not labelled.any():
            raise SourceError(f"{where}: none of its {len(labelled)} images has a present class")
        rows = string_order(part.ids) if settings.order == "string" else np.argsort(np.array(part.ids))
        bare = [part.names[row] for row in rows[~labelled[rows]]]
        if settings.unannotated == "drop":
            rows = rows[labelled[rows]]
        test = np.zeros(0, np.int64) if place == 0 else rows
        if settings.test_fraction is not None:
            rest, test = split_rows(len(rows), settings.test_fraction, settings.split_seed)
            rows, test = rows[np.concatenate([rest, test])], rows[test]
        official += [0] * (len(rows) - len(test)) + [1] * len(test)
        truth.append(present[rows])
        scored.append((cells[rows] != CROWD) | (settings.crowd == "count"))
        wanted = [part.names[row] for row in rows]
        folder = folders[name]
        on_disk = layout.match(wanted, layout.pictures(folder), f"{name}{settings.year}", settings.bad_images)
        files += [f"{folder}/{file}" for file in on_disk]
        paths += [f"{name}{settings.year}/{file}" for file in wanted]
        report[name] = {
            "images": len(part.ids),
            "annotations": part.annotations,
            "kept": len(rows),
            "without_present_class": layout.counted(bare),
            "cells_of_crowds_only": int((cells[rows] == CROWD).sum()),
        }

    table = Table(
        classes=tuple(classes.values()),
        paths=tuple(paths),
        truth=np.concatenate(truth).astype(np.int8),
        scored=np.concatenate(scored),
        split=layout.split(official, settings),
        official=np.array(official, np.uint8),
    )
    policies = {key: getattr(settings, key) for key in ("year", "unannotated", "crowd", "order", "test_fraction")}
    warnings = []
    if settings.test_fraction is not None:
        warnings.append(
            f"test: {sum(official)} images cut from the train part (test_fraction: {settings.test_fraction}); no "
            "published figure is measured on them"
        )
    return Dataset(table, lambda row: Path(files[row]), policies | {"parts": report, "warnings": warnings})


def fingerprint(settings: Settings, root: Path) -> str:
    """Tell one state of the raw data from another without opening a picture.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        `layout.state` of the annotation files that `read` reads and of the pictures of their parts.

    Raises:
        SourceError: a folder or file is missing.
    """
    files, folders = _find(settings, layout.raw_folder(settings, root))
    return layout.state(
        {file.name: file for file in files.values()},
        {f"{name}{settings.year}": folder for name, folder in folders.items()},
    )


def _find(settings: Settings, top: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """Find annotation files and folders of pictures at or below a folder; archives differ in what they wrap around.

    Returns:
        Part -> annotation file, part -> folder of pictures.

    Raises:
        SourceError: one is missing, or there are several at the same depth.
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
        hint = f"it lies inside one, name {above}" if above else f"there are {layout.some(here) or 'no annotations'}"
        raise SourceError(f"prepare: root: no {first} in {top}; {hint}")
    files, folders = {}, {}
    around = [folder for folder in (bases[0], *bases[0].parents) if folder.is_relative_to(top)]
    for part in parts:
        files[part] = bases[0] / "annotations" / f"instances_{part}{year}.json"
        if not files[part].is_file():
            raise SourceError(
                f"{files[part].name} is missing in {files[part].parent}; without it, `test_fraction` makes a share of "
                "the train images the test part"
            )
        name = f"{part}{year}"
        inner = [folder / place for folder in around for place in (f"{name}/{name}", name)]
        inner += [folder / "images" / place for folder in around for place in (f"{name}/{name}", name)]
        place = next((folder for folder in inner if folder.is_dir()), None)
        if place is None:
            raise SourceError(f"prepare: root: no folder {name} or images/{name} in {bases[0]}")
        folders[part] = place
    return files, folders


def _part(file: Path) -> Part:
    """Return what one annotation file holds.

    Raises:
        SourceError: As `read` says.
    """

    def refuse(what: str, offenders: list[str]) -> None:
        if offenders:
            raise SourceError(f"{file.name}: {len(offenders)} {what} {layout.some(offenders)}")

    found: dict[str, list[tuple[Any, ...]]] = {key: [] for key in FIELDS}
    faulty: dict[str, list[str]] = {key: [] for key in FIELDS}
    try:
        with file.open(encoding="utf-8-sig") as stream:
            for key, entry in entries(stream):
                if key in FIELDS:
                    values = tuple(map(entry.get, FIELDS[key], DEFAULTS)) if isinstance(entry, dict) else ()
                    if tuple(map(type, values)) == TYPES[key]:
                        found[key].append(values)
                    else:
                        faulty[key].append(str(len(found[key]) + len(faulty[key]) + 1))
    except OSError as error:
        raise SourceError(f"{file.name}: cannot be read in {file.parent} ({error.strerror or error})") from error
    except ValueError as error:
        raise SourceError(f"{file.name}: no whole JSON ({error})") from error
    for key, fields in FIELDS.items():
        wanted = ", ".join(f"{field} ({kind.__name__})" for field, kind in fields.items())
        refuse(f"{key} lack one of {wanted}: number", faulty[key])
        if not found[key]:
            raise SourceError(f"{file.name}: has no list `{key}`, or an empty one")

    named = [(key, unicodedata.normalize("NFC", name)) for key, name in found["categories"]]
    refuse("category ids are there twice:", _repeated(key for key, _ in named))
    refuse("category names are there twice:", _repeated(name for _, name in named))
    refuse("image ids are there twice:", _repeated(key for key, _ in found["images"]))
    names: list[str] = []
    unusable: list[str] = []
    for key, name in found["images"]:
        try:
            names.append(relative_path(name))
        except ValueError as error:
            unusable.append(f"{key} ({error})")
    refuse("images have no usable file_name:", unusable)
    refuse("file names belong to several images:", _repeated(names))

    rows = {key: row for row, (key, _) in enumerate(found["images"])}
    columns = {key: column for column, (key, _) in enumerate(named)}
    for place, (what, known) in enumerate((("image", rows), ("category", columns))):
        lost = Counter(values[place] for values in found["annotations"] if values[place] not in known)
        told = [f"{key} ({count} times)" for key, count in lost.items()]
        refuse(f"{what} ids of annotations are not in the file:", told)
    cells = np.zeros((len(rows), len(columns)), np.int8)
    for image, category, crowd in found["annotations"]:
        cell = rows[image], columns[category]
        cells[cell] = max(cells[cell], CROWD if crowd else OBJECT)
    return Part(list(rows), names, dict(named), cells, len(found["annotations"]))


def entries(stream: TextIO, chunk: int = 1 << 22) -> Iterator[tuple[str, Any]]:
    """Stream the lists of a JSON file that holds one object, an entry at a time; other values are passed over.

    Args:
        stream: The text.
        chunk: Characters to read at a time.

    Yields:
        The key of a list, and one of its entries.

    Raises:
        ValueError: it is no JSON, or no object; the message says at which character.
    """
    decode = json.JSONDecoder().raw_decode
    text, at, before, ended = "", 0, 0, False  # what is at hand, how far it is read, and what went before it

    def more() -> None:
        nonlocal text, at, before, ended
        fresh = stream.read(chunk)
        text, at, before, ended = text[at:] + fresh, 0, before + at, not fresh

    def following() -> str:
        """Return the next character that is no blank; "" at the end."""
        nonlocal at
        while True:
            while at < len(text) and text[at] in " \t\r\n":
                at += 1
            if at < len(text) or ended:
                return text[at : at + 1]
            more()

    def take(mark: str) -> None:
        """Go past a mark.

        Raises:
            ValueError: it is not what follows.
        """
        nonlocal at
        if (found := following()) != mark:
            raise ValueError(f"{found or 'its end'!r} at character {before + at}, expected {mark or 'its end'!r}")
        at += 1

    def value() -> Any:
        """Return what follows, and go past it.

        Raises:
            ValueError: it is no value.
        """
        nonlocal at
        following()
        while True:
            try:
                result, end = decode(text, at)
            except json.JSONDecodeError as error:
                if ended or error.pos < len(text) - LONGEST:  # else its end may not be at hand
                    raise ValueError(f"{error.msg} at character {before + error.pos}") from error
            else:
                if end + 2 < len(text) or ended:  # else a number may go on, as 1 before e+5
                    at = end
                    return result
            more()

    take("{")
    inside = following() != "}"
    while inside:
        key = value()
        take(":")
        if following() == "[":
            take("[")
            listed = following() != "]"
            while listed:
                yield key, value()
                if listed := following() != "]":
                    take(",")
            take("]")
        else:
            value()
        if inside := following() != "}":
            take(",")
    take("}")
    take("")


def _agree(train: Part, part: Part, where: str) -> None:
    """Compare a part with the train part.

    Raises:
        SourceError: their categories differ, or they share images.
    """
    differ = dict.fromkeys([*train.categories, *part.categories])
    told = [
        f"{key} ({train.categories.get(key)}, {part.categories.get(key)})"
        for key in differ
        if train.categories.get(key) != part.categories.get(key)
    ]
    if told:
        raise SourceError(f"{where}: {len(told)} categories differ from those of train: {layout.some(told)}")
    # the id alone may be each part's own count in data that is only laid out like COCO
    known = set(zip(train.ids, train.names, strict=True))
    if both := [name for key, name in zip(part.ids, part.names, strict=True) if (key, name) in known]:
        raise SourceError(f"{where}: {len(both)} images are in the train part too: {layout.some(both)}")


def _repeated(keys: Iterable[Any]) -> list[str]:
    """Return what is there more than once."""
    return [str(key) for key, n in Counter(keys).items() if n > 1]
