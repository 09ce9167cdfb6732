"""CUB-200-2011 with its 312 attributes as classes: `images.txt`, `train_test_split.txt` and the files of attributes.

A line of `attributes/image_attribute_labels.txt` is image id, attribute id, 1 or 0, certainty and the annotator's
seconds; some lines have more fields than these. Every pair of image and attribute must be there once.
Source: Wah et al., "The Caltech-UCSD Birds-200-2011 Dataset", 2011, README; the table follows Cole et al., CVPR 2021,
elijahcole/single-positive-multi-label @89152d5, preproc/format_cub.py.
Differs: labels are placed by their ids, not by their order; certainty can count (theirs: it is ignored).
"""

import codecs
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from pipeline.core.errors import SourceError
from pipeline.core.faults import SHOWN, Faults, check_names, counted, some
from pipeline.core.text import fields, relative_path
from pipeline.data import raw
from pipeline.labels.table import Dataset, Table

DIGITS = 9  # of an id, at most: it fits 32 bits
FIELDS = 4  # of a line of labels: image id, attribute id, present, certainty
CERTAINTIES = {1: "not visible", 2: "guessing", 3: "probably", 4: "definitely"}
PUBLISHED = (5_994, 5_794, 312)  # training images, test images, attributes
BLOCK = 1 << 22  # bytes of labels parsed at once; some 20 times as many are held meanwhile
_BLANKS = np.isin(np.arange(256), list(b" \t\n\v\f\r"))


class Settings(raw.Cut):
    """Settings of `prepare.<dataset>` for a folder that holds `CUB_200_2011` and, in it or beside, `attributes.txt`."""

    source: Literal["cub"]
    least_certainty: Annotated[int, Field(ge=1, le=4)]
    """Labels less certain than this are taken as unknown and left out of metrics: 2 leaves out `not visible`, 3
    `guessing` too, 4 `probably` too. The papers: 1, certainty is ignored."""


def read(settings: Settings, root: Path) -> Dataset:
    """Read the lists and labels; pictures are looked up, not opened.

    Rows are all images in the order of `images.txt`, the training part first; columns are attributes by id.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        The dataset.

    Raises:
        SourceError: a file or picture is missing or faulty, or a pair of image and attribute is not there once; the
            message names the setting, file, line or id, of all faults that can be found beside each other.
    """
    files = _files(raw.raw_folder(settings, root))
    folder = files["images.txt"].parent
    faults = Faults(folder.name)
    images = _numbered(files["images.txt"], faults)
    attributes = dict(sorted(_numbered(files["attributes.txt"], faults).items()))
    check_names(attributes.values(), faults, "attributes.txt")
    faults.stop()  # the other files are about these ids
    test = _test_part(files["train_test_split.txt"], images, faults)
    ids = sorted(images, key=lambda image: test.get(image, 0))  # stable: the order of images.txt within a part
    paths = _paths({image: images[image] for image in ids}, faults)
    present, certainty, longer = _labels(files["image_attribute_labels.txt"], ids, list(attributes), faults)
    on_disk = raw.pictures(folder / "images")
    there = set(on_disk)
    found: list[str] = []
    try:
        if paths:
            found = raw.match(paths, on_disk, "images", settings.bad_images)
    except SourceError as error:
        faults.join(error)
    faults.stop()
    missing = [path for path, file in zip(paths, found, strict=True) if file not in there]

    known = (certainty >= settings.least_certainty) & (certainty <= max(CERTAINTIES))
    scored = known | (settings.least_certainty == min(CERTAINTIES))
    official = np.array([test[image] for image in ids], np.uint8)
    table = Table(
        classes=tuple(attributes.values()),
        paths=tuple("images/" + unicodedata.normalize("NFC", file) for file in found),
        truth=(present & scored).astype(np.int8),
        scored=scored,
        split=raw.split(official, settings),
        official=official,
    )
    counts = (int((official == 0).sum()), int((official == 1).sum()), len(attributes))
    odd = int(np.isin(certainty, list(CERTAINTIES), invert=True).sum())
    warnings = []
    if counts != PUBLISHED:
        warnings.append("this is not the whole of CUB-200-2011: figures of papers do not compare with it")
    if odd:
        warnings.append(f"{odd} labels have a certainty other than 1 to 4: unknown, unless certainty is ignored")
    warnings += raw.left_out(folder / "images")
    report = {
        "folder": folder.name,
        "edition": "{} training and {} test images, {} attributes".format(*counts)
        + (": CUB-200-2011 as published" if counts == PUBLISHED else ""),
        "labels": {
            "pairs": present.size,
            "lines_with_surplus_fields": {
                "count": len(longer),
                "first": [f"line {line}" for line in longer[:SHOWN]],
            },
            "by_certainty": {
                name: {"present": int((present & level).sum()), "absent": int((~present & level).sum())}
                for number, name in CERTAINTIES.items()
                for level in [certainty == number]
            },
            "least_certainty": settings.least_certainty,
            "present_but_unknown": int((present & ~scored).sum()),
        },
        "pictures": {
            "missing": counted(missing),
            "in_no_list": len(there.difference(found)),
        },
        "warnings": warnings,
    }
    return Dataset(table, lambda row: folder / "images" / found[row], report)


def fingerprint(settings: Settings, root: Path) -> str:
    """Tell one state of the raw data from another without opening a picture.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        SHA-256 over the names and bytes of the files that `read` reads and the names and sizes of all picture files;
        where the folder lies does not count.

    Raises:
        SourceError: the folder or a file is missing.
    """
    files = _files(raw.raw_folder(settings, root))
    return raw.state(files, {"images": files["images.txt"].parent / "images"})


def _files(root: Path) -> dict[str, Path]:
    """Find what is read: the archive wraps `CUB_200_2011` once, the scripts of Cole twice, and people unwrap it.

    Returns:
        Name -> file.

    Raises:
        SourceError: a file is missing, or there are several datasets.
    """
    inner = "CUB_200_2011"
    for pattern in ("", f"{inner}/", f"{inner}/{inner}/", "*/", f"*/{inner}/", f"*/{inner}/{inner}/"):
        found = [path.parent for path in sorted(root.glob(pattern + "images.txt"))]
        if len(found) > 1:
            names = ", ".join(str(folder.relative_to(root)) for folder in found)
            raise SourceError(f"prepare: root: {root} holds several datasets ({names}); name one of them")
        if found:
            break
    else:
        raise SourceError(f"prepare: root: no images.txt in {root}; expected {inner} or a folder that holds it")
    folder = found[0]
    labels = "image_attribute_labels.txt"
    files = {name: folder / name for name in ("images.txt", "train_test_split.txt")}
    files[labels] = folder / "attributes" / labels
    places = [folder / "attributes.txt", folder / "attributes" / "attributes.txt", folder.parent / "attributes.txt"]
    if folder.parent.name == inner:
        places.append(folder.parent.parent / "attributes.txt")
    files["attributes.txt"] = next((place for place in places if place.is_file()), places[0])
    if absent := [name for name, path in files.items() if not path.is_file()]:
        hint = "; attributes.txt is beside CUB_200_2011 in the archive" if "attributes.txt" in absent else ""
        raise SourceError(f"prepare: root: {', '.join(absent)} missing in {folder}{hint}")
    if not (folder / "images").is_dir():
        raise SourceError(f"prepare: root: {folder} has images.txt but no folder images")
    return files


def _numbered(path: Path, faults: Faults) -> dict[int, str]:
    """Read lines of an id and a name, noting lines that are something else, and ids or names that are there twice.

    Returns:
        Id -> name, in the order of the file.

    Raises:
        SourceError: the file cannot be read, or holds no line.
    """
    names: dict[int, str] = {}
    empty = True
    for where, (number, *words) in fields(path):
        empty = False
        if not _is_id(number) or not words or int(number) in names:
            faults.add("lines are no new id with a name", f"{where} {' '.join([number, *words])!r}", path.name)
        else:
            names[int(number)] = " ".join(words)
    if empty:
        raise SourceError(f"{path.name} is empty")
    for name, count in Counter(names.values()).items():
        if count > 1:
            faults.add("names are there twice", name, path.name)
    return names


def _test_part(path: Path, images: dict[int, str], faults: Faults) -> dict[int, int]:
    """Read which images are for test, noting lines that are something else, and images that are not there once.

    Returns:
        Image id -> 0 training, 1 test: the contrary of the file.

    Raises:
        SourceError: the file cannot be read.
    """
    kind = "lines are not the id of an image of images.txt and 1 (training) or 0 (test)"
    test: dict[int, int] = {}
    clean = True
    for where, words in fields(path):
        if len(words) != 2 or words[1] not in ("0", "1") or not _is_id(words[0]) or int(words[0]) not in images:
            faults.add(kind, f"{where} {' '.join(words)!r}", path.name)
            clean = False
        elif test.setdefault(int(words[0]), 1 - int(words[1])) != 1 - int(words[1]):
            faults.add(kind, f"{where} {' '.join(words)!r}, the contrary of above", path.name)
    for image in images:
        if clean and image not in test:  # a faulty line may be what is lacking
            faults.add("images of images.txt are missing", str(image), path.name)
    return test


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS


def _paths(images: dict[int, str], faults: Faults) -> list[str]:
    """Bring the names of images to the form of `relative_path`, noting those that are absolute or climb.

    Returns:
        The paths, in the order of `images`; none where one of them is faulty.
    """
    paths: list[str] = []
    for image, name in images.items():
        try:
            paths.append(relative_path(name))
        except ValueError as error:
            faults.add("images have no usable path", f"image {image}: {error}", "images.txt")
    return paths if len(paths) == len(images) else []


# ---------------------------------------------------------------------------------------------- labels
def _labels(
    path: Path, images: list[int], attributes: list[int], faults: Faults
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Read the labels: 3,677,856 lines in the whole dataset, so in blocks of bytes rather than line by line.

    Args:
        path: The file.
        images: N image ids, in the order of rows.
        attributes: A attribute ids, in the order of columns.
        faults: Lines that are something else, or of an image or attribute that no list has, are noted here, and pairs
            that are not there once.

    Returns:
        (N, A) bool whether the attribute is present, (N, A) int32 certainties, and the numbers of the lines with more
        than five fields; labels that are not there mean nothing.

    Raises:
        SourceError: the file cannot be read.
    """
    faulty = "lines are not an image id, an attribute id, 1 or 0, and a certainty"
    strange = "lines are of images or attributes that images.txt and attributes.txt lack"
    cells: list[np.ndarray] = []
    values: list[np.ndarray] = []
    longer: list[int] = []
    above, clean = 0, True  # lines before the block, whether each is a label
    for block in _blocks(path):
        found, lines, lengths, good = _parse(block)
        good &= found[:, 2] <= 1
        longer += (above + 1 + lines[lengths > FIELDS + 1]).tolist()
        texts = block.split(b"\n") if not good.all() else []
        for line in lines[~good]:
            text = texts[line].strip().decode("utf-8", "replace")
            faults.add(faulty, f"line {above + 1 + line} {text!r}", path.name)
        row, image_known = _places(found[:, 0], images)
        column, attribute_known = _places(found[:, 1], attributes)
        known = image_known & attribute_known
        for place in np.flatnonzero(good & ~known):
            what = f"image {found[place, 0]}, attribute {found[place, 1]}"
            faults.add(strange, f"line {above + 1 + lines[place]} ({what})", path.name)
        clean &= bool((good & known).all())
        row, column, found = row[good & known], column[good & known], found[good & known]
        cells.append(row * len(attributes) + column)
        values.append(found[:, 2:])
        above += block.count(b"\n")
    place = np.concatenate(cells) if cells else np.zeros(0, np.int64)
    times = np.bincount(place, minlength=len(images) * len(attributes)).reshape(len(images), len(attributes))
    for kind, cases in (
        ("images lack attributes", (times == 0) & clean),  # a faulty line may be what is lacking
        ("images have attributes more than once", times > 1),
    ):
        for row in np.flatnonzero(cases.any(axis=1)):
            pairs = [str(attributes[column]) for column in np.flatnonzero(cases[row])]
            faults.add(kind, f"image {images[row]}: {some(pairs)}", path.name)
    table = np.empty((times.size, 2), np.int32)
    if cells:
        table[place] = np.concatenate(values)
    present, certainty = table.T.reshape(2, *times.shape)
    return present == 1, certainty, longer


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield a file in blocks of whole lines, without its byte order mark.

    Raises:
        SourceError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            rest = file.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8)
            while piece := file.read(BLOCK):
                whole, line_feed, rest = (rest + piece).rpartition(b"\n")
                if line_feed:
                    yield whole + line_feed
            if rest:
                yield rest
    except OSError as error:
        raise SourceError(f"{path.name}: cannot be read in {path.parent} ({error.strerror or error})") from error


def _parse(block: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read the first fields of each line that is not blank; fields are parted by any blanks.

    Args:
        block: Whole lines.

    Returns:
        For R such lines: (R, FIELDS) int32 numbers, (R,) line numbers in the block, from 0, (R,) how many fields they
        have, and (R,) bool whether the first `FIELDS` are there and numbers of at most `DIGITS` digits; the numbers
        mean nothing where not.
    """
    data = np.frombuffer(block, np.uint8)
    blank = np.ones(len(data) + 2, np.bool_)  # a blank before and behind, so that every field has two edges
    blank[1:-1] = _BLANKS[data]
    edges = np.flatnonzero(blank[1:] != blank[:-1])
    starts, ends = edges[0::2], edges[1::2]
    first = np.concatenate(([0], np.searchsorted(starts, np.flatnonzero(data == ord("\n")))))  # field of each line
    lengths = np.diff(first, append=len(starts))
    lines = np.flatnonzero(lengths)
    first, lengths = first[lines], lengths[lines]
    picked = first[:, None] + np.minimum(np.arange(FIELDS), lengths[:, None] - 1)  # (R, FIELDS)
    begin = starts[picked]
    width = ends[picked] - begin
    good = (lengths >= FIELDS) & (width <= DIGITS).all(axis=1)
    numbers = np.zeros(picked.shape, np.int32)
    for place in range(min(int(width.max(initial=0)), DIGITS)):
        inside = place < width
        digit = data[np.where(inside, begin + place, 0)] - np.uint8(ord("0"))  # what is below "0" wraps above 9
        good &= (~inside | (digit <= 9)).all(axis=1)
        numbers = np.where(inside, numbers * 10 + digit, numbers)
    return numbers, lines, lengths, good


def _places(wanted: np.ndarray, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Look ids up.

    Returns:
        For each wanted id its place in `ids`, and whether it is there; the place means nothing where not.
    """
    known = np.array(ids)
    order = np.argsort(known)
    near = np.searchsorted(known, wanted, sorter=order).clip(max=len(ids) - 1)
    place = order[near]
    return place, known[place] == wanted
