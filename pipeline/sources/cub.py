"""CUB-200-2011 with its 312 attributes as classes: `images.txt`, `train_test_split.txt` and the files of attributes.

A line of `attributes/image_attribute_labels.txt` is image id, attribute id, 1 or 0, certainty and the annotator's
seconds; some lines have more fields than these. Every pair of image and attribute must be there once.
Source: Wah et al., "The Caltech-UCSD Birds-200-2011 Dataset", 2011, README; the table follows Cole et al., CVPR 2021,
elijahcole/single-positive-multi-label @89152d5, preproc/format_cub.py.
Differs: labels are placed by their ids, not by their order; certainty can count (theirs: it is ignored).
"""

import codecs
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, check_class_names, find_duplicates, preview, summarize
from pipeline.core.text import check_regular, read_fields
from pipeline.data import disk, raw
from pipeline.data.raw import Files
from pipeline.labels.table import Dataset, Table

DIGITS = 9  # of an id, at most: it fits 32 bits
FIELDS = 4  # of a line of labels: image id, attribute id, present, certainty
CERTAINTIES = {1: "not visible", 2: "guessing", 3: "probably", 4: "definitely"}
PUBLISHED = (5_994, 5_794, 312)  # training images, test images, attributes
LABELS = "image_attribute_labels.txt"
BLOCK = 1 << 22  # bytes of labels parsed at once; some 20 times as many are held meanwhile
_BLANKS = np.isin(np.arange(256), list(b" \t\n\v\f\r"))


class Settings(raw.Cut):
    """Settings of `prepare.<dataset>` for a folder that holds `CUB_200_2011` and, in it or beside, `attributes.txt`."""

    source: Literal["cub"]
    least_certainty: Annotated[int, Field(ge=1, le=4)]
    """Labels less certain than this are taken as unknown and left out of metrics: 2 leaves out `not visible`, 3
    `guessing` too, 4 `probably` too. The papers: 1, certainty is ignored."""


@dataclass(frozen=True)
class Content:
    """What the files of N images and A attributes hold, the training part first.

    Args:
        paths: N paths of pictures, in the order of `images.txt` within a part.
        attributes: A names, by id.
        official: (N,) uint8, 0 training, 1 test.
        present: (N, A) bool, whether the attribute is present.
        certainty: (N, A) int32.
        longer: Numbers of the lines of labels with surplus fields.
    """

    paths: list[str]
    attributes: tuple[str, ...]
    official: np.ndarray
    present: np.ndarray
    certainty: np.ndarray
    longer: list[int]


def locate(settings: Settings, root: Path) -> Files:
    """Return where the files are; the archive wraps `CUB_200_2011` once, Cole's scripts twice, and people unwrap it.

    Raises:
        SourceError: a file is missing, or there are several datasets.
    """
    inner = "CUB_200_2011"
    wraps = (".", inner, f"{inner}/{inner}", "*", f"*/{inner}", f"*/{inner}/{inner}")
    expected = f"expected {inner} or a folder that holds it"
    folder = raw.find_dataset(raw.find_root(settings, root), wraps, "images.txt", expected)
    places = [folder / "attributes.txt", folder / "attributes" / "attributes.txt", folder.parent / "attributes.txt"]
    if folder.parent.name == inner:
        places.append(folder.parent.parent / "attributes.txt")
    lists = {name: folder / name for name in ("images.txt", "train_test_split.txt")}
    lists[LABELS] = folder / "attributes" / LABELS
    lists["attributes.txt"] = next((place for place in places if place.is_file()), places[0])
    if absent := [name for name, path in lists.items() if not path.is_file()]:
        hint = "; attributes.txt is beside CUB_200_2011 in the archive" if "attributes.txt" in absent else ""
        raise SourceError(f"prepare: root: {', '.join(absent)} missing in {folder}{hint}")
    if not (folder / "images").is_dir():
        raise SourceError(f"prepare: root: {folder} has images.txt but no folder images")
    return Files(folder, lists, {"images": folder / "images"}, Faults(folder.name))


def parse(files: Files) -> Content:
    """Return what lists and labels hold; faulty ids raise at once, since all other files are about them."""
    images = _numbered(files.lists["images.txt"], files.faults)
    attributes = dict(sorted(_numbered(files.lists["attributes.txt"], files.faults).items()))
    check_class_names(list(attributes.values()), files.faults, "attributes.txt")
    for name in find_duplicates(images.values()):
        files.faults.add("duplicate image paths", name, "images.txt")
    files.faults.raise_if_any()
    test = _test_part(files.lists["train_test_split.txt"], images, files.faults)
    ids = sorted(images, key=lambda image: test.get(image, 0))  # stable: the order of images.txt within a part
    named = [(f"image {image}", images[image]) for image in ids]
    paths = raw.relative_paths(named, files.faults, "images.txt")
    labels = _labels(files.lists[LABELS], ids, list(attributes), files.faults)
    official = np.array([test.get(image, 0) for image in ids], np.uint8)
    return Content(paths, tuple(attributes.values()), official, *labels)


def build(files: Files, content: Content, settings: Settings) -> Dataset:
    """Return the dataset: rows are all images, the training part first, columns are attributes by id."""
    folder = files.pictures["images"]
    found_on_disk = disk.scan(folder, settings.links)
    on_disk = found_on_disk.pictures
    found = raw.match_files(content.paths, on_disk, "images", settings.bad_images, files.faults)
    files.faults.raise_if_any()
    known = (content.certainty >= settings.least_certainty) & (content.certainty <= max(CERTAINTIES))
    scored = known | (settings.least_certainty == min(CERTAINTIES))
    table = Table(
        classes=content.attributes,
        paths=tuple("images/" + unicodedata.normalize("NFC", file) for file in found),
        truth=(content.present & scored).astype(np.int8),
        scored=scored,
        split=raw.split_official(content.official, settings),
        official=content.official,
    )
    counts = (int((content.official == 0).sum()), int((content.official == 1).sum()), len(content.attributes))
    there = set(on_disk)
    missing = [path for path, file in zip(content.paths, found, strict=True) if file not in there]
    report = {
        "folder": files.folder.name,
        "edition": "{} training and {} test images, {} attributes".format(*counts)
        + (": CUB-200-2011 as published" if counts == PUBLISHED else ""),
        "labels": _count_labels(content, scored, settings.least_certainty),
        "pictures": {"missing": summarize(missing), "in_no_list": len(there.difference(found))},
        "warnings": _warnings(content, counts) + found_on_disk.warnings(),
    }
    data = Dataset(table, lambda row: folder / found[row], report)
    return raw.with_rules(data, settings, files.folder.name)


def _count_labels(content: Content, scored: np.ndarray, least_certainty: int) -> dict[str, Any]:
    """Return what a report says of the labels."""
    present, longer = content.present, content.longer
    by_certainty = {}
    for number, name in CERTAINTIES.items():
        level = content.certainty == number
        by_certainty[name] = {"present": int((present & level).sum()), "absent": int((~present & level).sum())}
    return {
        "pairs": present.size,
        "lines_with_surplus_fields": summarize([f"line {line}" for line in longer]),
        "by_certainty": by_certainty,
        "least_certainty": least_certainty,
        "present_but_unknown": int((present & ~scored).sum()),
    }


def _warnings(content: Content, counts: tuple[int, int, int]) -> list[str]:
    """Return warnings of another edition than the published one, and of certainties that do not exist."""
    warnings = []
    if counts != PUBLISHED:
        warnings.append("this is not the whole of CUB-200-2011: figures of papers do not compare with it")
    if odd := int(np.isin(content.certainty, list(CERTAINTIES), invert=True).sum()):
        warnings.append(f"{odd} labels have a certainty other than 1 to 4: unknown, unless certainty is ignored")
    return warnings


def _numbered(path: Path, faults: Faults) -> dict[int, str]:
    """Return names by id, in the order of a file; noted are lines that are no new id with a name.

    Raises:
        SourceError: the file holds no line.
    """
    names: dict[int, str] = {}
    empty = True
    for where, (number, *words) in read_fields(path):
        empty = False
        if not _is_id(number) or not words or int(number) in names:
            faults.add("lines are no new id with a name", f"{where} {' '.join([number, *words])!r}", path.name)
        else:
            names[int(number)] = " ".join(words)
    if empty:
        raise SourceError(f"{path.name} is empty")
    return names


def _test_part(path: Path, images: dict[int, str], faults: Faults) -> dict[int, int]:
    """Return of each image id 0 training, 1 test: the contrary of the file; noted are ids not there once."""
    kind = "lines are not the id of an image of images.txt and 1 (training) or 0 (test)"
    test: dict[int, int] = {}
    clean = True
    for where, words in read_fields(path):
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


# ---------------------------------------------------------------------------------------------- labels
def _labels(
    path: Path, images: list[int], attributes: list[int], faults: Faults
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return the labels: of 3,677,856 lines in the whole dataset, so read in blocks of bytes.

    Args:
        path: The file.
        images: N image ids, in the order of rows.
        attributes: A attribute ids, in the order of columns.
        faults: Get lines that are something else, or of unknown ids, and pairs that are not there once.

    Returns:
        (N, A) bool whether the attribute is present, (N, A) int32 certainties, and the numbers of the lines with more
        than five fields; labels that are not there mean nothing.
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
            faults.add(kind, f"image {images[row]}: {preview(pairs)}", path.name)
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
    check_regular(path)
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
    """Return the place of each wanted id in `ids`, and whether it is there; the place means nothing where not."""
    known = np.array(ids)
    order = np.argsort(known)
    near = np.searchsorted(known, wanted, sorter=order).clip(max=len(ids) - 1)
    place = order[near]
    return place, known[place] == wanted


read, fingerprint = raw.make_reader(locate, lambda files, _: parse(files), build)
