r"""NUS-WIDE: the arrays that papers pass on, or the official lists of images with two label files for each concept.

`formatted`: `formatted_{train,val}_images.npy`, (N,) paths, and `formatted_{train,val}_labels.npy`, (N, C) of 0 and 1;
what they call val is the papers' test part. `official`: `TrainImagelist.txt` and `TestImagelist.txt`, one path a line
as in `actor\0001_2124494179.jpg`, and `Labels_<concept>_{Train,Test}.txt`, a 0 or 1 for each of those lines.
Source: Chua et al., "NUS-WIDE: A Real-World Web Image Database from National University of Singapore", CIVR 2009;
arrays of Cole et al., CVPR 2021, elijahcole/single-positive-multi-label @89152d5, data/nuswide, and of Zhou et al.,
ECCV 2022, Correr-Zhou/SPML-AckTheUnknown @ae1ccaf.
Differs: nothing is unpickled; faulty lists are errors. As there, rows without any label stay: a fifth of the papers'.
"""

import codecs
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from pipeline.core.errors import SourceError
from pipeline.core.faults import (
    SHOWN,
    Faults,
    check_class_names,
    find_duplicates,
    normalize_class_name,
    preview,
    summarize,
)
from pipeline.core.text import check_regular, read_fields, read_text
from pipeline.data import disk, raw
from pipeline.labels.table import Dataset, Table

PARTS = {"train": ("train", "Train"), "test": ("val", "Test")}  # part -> its name in arrays, in official files
EDITIONS = {
    (161_789, 107_859): "the official lists",
    (150_000, 60_260): "the papers' cut: arrays of Cole 2021 (pictures crawled anew) or Zhou 2022 (official pictures)",
}
TOTALS = {
    269_648: "as many images as the official lists, cut otherwise",
    210_260: "as many images as the arrays of Cole 2021 and Zhou 2022, cut otherwise",
    223_496: "as many images as the archive of HashNet",
    259_233: "as many images as jingwei",
    260_648: "as many images as some papers say; no known copy has them",
}
LISTS = tuple(f"{suffix}Imagelist.txt" for _, suffix in PARTS.values())
_ABOVE = re.compile(r"^(?:.*[/\\])?flickr[/\\](?=.)", re.IGNORECASE)
r"""What stands before the path proper in some copies: C:\ImageData\Flickr\actor\0001_2124494179.jpg."""


class Settings(raw.Cut):
    """Settings of `prepare.<dataset>` for a folder that holds the arrays or lists, and the pictures in `Flickr`."""

    source: Literal["nus"]
    layout: Literal["formatted", "official"]
    """`formatted`: the arrays of Cole 2021 or Zhou 2022; `official`: the lists of the dataset's makers."""
    classes: Annotated[list[str], Field(min_length=1)] | None
    """Class names in column order; null: those of `Concepts81.txt` or, where `official` lacks it, of the label files,
    alphabetically. Label files are chosen by name. Arrays hold no names: there these are the names of all columns."""


@dataclass(frozen=True)
class Files(raw.Files):
    """The arrays or lists that are read, and what they are about.

    Args:
        classes: Class names in column order.
        named_by: What gave them.
    """

    classes: tuple[str, ...]
    named_by: str


@dataclass(frozen=True)
class Part:
    """What the files of one part hold, of N distinct images.

    Args:
        listed: Number of images with those that are listed again.
        paths: N paths, as they count from the folder of the pictures.
        labels: (N, C) int8.
    """

    listed: int
    paths: list[str]
    labels: np.ndarray


def locate(settings: Settings, root: Path) -> Files:
    """Return where arrays or lists, class names and pictures are."""
    folder = raw.find_root(settings, root)
    lists = (_array_files if settings.layout == "formatted" else _list_files)(folder)
    names, named_by = _class_names(folder, lists, settings.classes)
    if settings.layout == "official":
        lists = _choose_label_files(lists, names, named_by, all_named=settings.classes is None)
    return Files(folder, lists, {"Flickr": _picture_folder(folder)}, Faults(folder.name), names, named_by)


def parse(files: Files, settings: Settings) -> dict[str, Part]:
    """Return what arrays or lists hold, by part; an image that is listed again with the same labels counts once."""
    read_part = _array_part if settings.layout == "formatted" else _list_part
    listed = {name: read_part(files, name) for name in PARTS}
    parts = {}
    for name, (paths, labels) in listed.items():
        rows = _distinct(paths, labels, name, files.faults)
        parts[name] = Part(len(paths), [paths[row] for row in rows], labels[rows])
    return parts


def build(files: Files, parts: dict[str, Part], settings: Settings) -> Dataset:
    """Return the dataset: rows are all images, the training part first, each part in the order of its list."""
    folder = files.pictures["Flickr"]
    paths = [path for part in parts.values() for path in part.paths]
    for path in find_duplicates(paths):
        files.faults.add("images are in the train and in the test part", path)
    lying = disk.scan(folder, settings.links)
    on_disk = lying.pictures
    flat = not any("/" in file for file in on_disk)
    found = _match(paths, on_disk, flat, files, settings.bad_images)
    files.faults.raise_if_any()
    official = np.repeat(np.arange(len(parts), dtype=np.uint8), [len(part.paths) for part in parts.values()])
    table = Table(
        classes=files.classes,
        paths=tuple(unicodedata.normalize("NFC", f"{folder.name}/{file}") for file in found),
        truth=np.concatenate([part.labels for part in parts.values()]),
        scored=np.ones((len(paths), len(files.classes)), np.bool_),
        split=raw.split_official(official, settings),
        official=official,
    )
    there = set(on_disk)
    missing = [path for path, file in zip(paths, found, strict=True) if file not in there]
    copy = edition(parts["train"].listed, parts["test"].listed)
    report = {
        "folder": files.folder.name,
        "layout": settings.layout,
        "edition": copy or "none of the known ones",
        "class_names": files.named_by,
        "parts": {name: _count(part) for name, part in parts.items()},
        "pictures": {
            "folder": folder.name,
            "by_file_name_alone": flat,
            "missing": summarize(missing),
            "in_no_list": len(there.difference(found)),
        },
        "warnings": _warnings(files, settings, copy, len(missing)) + lying.warnings(),
    }
    data = Dataset(table, lambda row: folder / found[row], report)
    return raw.with_rules(data, settings, files.folder.name)


def edition(train: int, test: int) -> str | None:
    """Return what is known about a copy with so many training and test images; None where nothing is."""
    return EDITIONS.get((train, test)) or TOTALS.get(train + test)


def _match(
    paths: list[str], on_disk: list[str], flat: bool, files: Files, bad_images: Literal["stop", "drop"]
) -> list[str]:
    """Return the picture files of paths, by file name alone where all lie in one folder; what is wrong is noted."""
    wanted = list(dict.fromkeys(paths))  # each once, whatever the lists say
    try:
        names = _file_names(wanted) if flat else wanted
    except SourceError as error:
        files.faults.add_error(error)
        return []
    return raw.match_files(names, on_disk, files.pictures["Flickr"].name, bad_images, files.faults)


def _count(part: Part) -> dict[str, int]:
    """Return what a report says of a part."""
    return {
        "listed": part.listed,
        "repeated": part.listed - len(part.paths),
        "without_positive": int((~part.labels.any(axis=1)).sum()),
    }


def _warnings(files: Files, settings: Settings, copy: str | None, missing: int) -> list[str]:
    """Return warnings of what makes this copy another than the published ones."""
    warnings = []
    if copy is None:
        warnings.append("this is none of the known copies of NUS-WIDE: figures of papers do not compare with it")
    if settings.layout == "formatted":
        warnings.append(f"the arrays hold no class names: {files.named_by} gave them, by place")
    if missing:
        warnings.append(
            f"{missing} images have no file; with their rows left out, later rows draw other labels than published"
        )
    return warnings


# ---------------------------------------------------------------------------------------------- where things are
def _find(folder: Path, *names: str) -> Path | None:
    """Return what is at or up to two folders below a folder, by the first name that is there; None where none is.

    Raises:
        SourceError: there are several at the same depth.
    """
    for wrap in ("", "*/", "*/*/"):
        for name in names:
            found = sorted(folder.glob(wrap + name))
            if len(found) > 1:
                places = ", ".join(str(path.relative_to(folder)) for path in found)
                raise SourceError(f"prepare: root: {folder} holds several {name} ({places}); name one copy's folder")
            if found:
                return found[0]
    return None


def _places(name: str) -> tuple[str, str]:
    return f"ImageList/{name}", name


def _picture_folder(folder: Path) -> Path:
    """Return the folder from which the paths in lists count.

    Raises:
        SourceError: there is none, or several.
    """
    place = _find(folder, "Flickr", "images")
    if place is None or not place.is_dir():
        raise SourceError(f"prepare: root: no folder Flickr or images with the pictures at or below {folder}")
    return place / place.name if (place / place.name).is_dir() else place  # an archive unpacked into its own name


def _class_names(folder: Path, lists: dict[str, Path], wanted: list[str] | None) -> tuple[tuple[str, ...], str]:
    """Return class names in column order, and what gave them; a file that does joins the lists.

    Raises:
        SourceError: class names are missing, cannot be used or are there twice.
    """
    if wanted is not None:
        names, named_by = [normalize_class_name(name) for name in wanted], "the setting `classes`"
    elif concepts := _find(folder, "ConceptsList/Concepts81.txt", "Concepts81.txt"):
        names, named_by = [" ".join(words) for _, words in read_fields(concepts)], "Concepts81.txt"
        lists["Concepts81.txt"] = concepts
    else:
        names, named_by = sorted(_concepts(lists)), "the names of the label files"
    if not names:
        raise SourceError(
            f"prepare: classes: no Concepts81.txt with class names at or below {folder}, and nothing else that holds"
            " them: add it from the official ConceptsList, or list the names in column order"
        )
    faults = Faults(folder.name)
    check_class_names(names, faults, named_by, case=wanted is None)
    faults.raise_if_any()
    return tuple(names), named_by


def _concepts(lists: dict[str, Path]) -> set[str]:
    """Return the concepts that have a label file."""
    return {match[1] for name in lists if (match := re.fullmatch(r"Labels_(.+)_(Train|Test)\.txt", name))}


def _choose_label_files(
    lists: dict[str, Path], names: tuple[str, ...], named_by: str, all_named: bool
) -> dict[str, Path]:
    """Return the lists without the label files of other concepts.

    Raises:
        SourceError: label files are missing; or a concept has some but no name, where all must be named.
    """
    wanted = {f"Labels_{name}_{suffix}.txt": name for name in names for _, suffix in PARTS.values()}
    absent = [name for name in wanted if name not in lists]
    over = sorted(_concepts(lists).difference(names)) if all_named else []
    if absent or over:
        raise SourceError(
            f"{named_by} and the label files do not fit: {len(absent)} files are missing"
            f" ({preview(absent) or 'none'}), {len(over)} concepts not named"
            f" ({preview(over) or 'none'})"
        )
    return {name: path for name, path in lists.items() if name in wanted or not name.startswith("Labels_")}


def _array_files(folder: Path) -> dict[str, Path]:
    """Return the arrays by name.

    Raises:
        SourceError: one is missing, or they lie in several folders.
    """
    wanted = [f"formatted_{part}_{what}.npy" for part, _ in PARTS.values() for what in ("images", "labels")]
    found = {name: path for name in wanted if (path := _find(folder, name))}
    if absent := [name for name in wanted if name not in found]:
        hint = "; the official lists are there: layout `official`" if _find(folder, *_places(LISTS[0])) else ""
        raise SourceError(
            f"{len(absent)} of {len(wanted)} arrays are missing at or below {folder}: {', '.join(absent)}; both parts"
            f" are needed as they were published, no part is cut from the other here{hint}"
        )
    if len({path.parent for path in found.values()}) > 1:
        places = ", ".join(str(path.relative_to(folder)) for path in found.values())
        raise SourceError(f"prepare: root: the arrays lie in several folders of {folder}: {places}")
    return found


def _list_files(folder: Path) -> dict[str, Path]:
    """Return the image lists of both parts and all label files, by name in NFC.

    Raises:
        SourceError: a list or the folder of the label files is missing.
    """
    files = {name: path for name in LISTS if (path := _find(folder, *_places(name)))}
    if absent := [name for name in LISTS if name not in files]:
        hint = ""
        if _find(folder, *_places("Imagelist.txt")):
            hint = (
                "; Imagelist.txt does not say which images are for training and which for test, and no cut is invented"
            )
        elif _find(folder, "formatted_train_images.npy"):
            hint = "; the arrays of the papers are there: layout `formatted`"
        raise SourceError(f"{' and '.join(absent)} missing at or below {folder}: add the official ImageList{hint}")
    place = _find(folder, "Groundtruth/TrainTestLabels", "TrainTestLabels")
    if place is None:
        hint = "; AllLabels follows the unsplit list" if _find(folder, "Groundtruth/AllLabels", "AllLabels") else ""
        raise SourceError(
            f"no folder TrainTestLabels at or below {folder}: add that of the official Groundtruth, with"
            f" Labels_<concept>_Train.txt and Labels_<concept>_Test.txt{hint}"
        )
    return files | {unicodedata.normalize("NFC", path.name): path for path in place.glob("Labels_*_*.txt")}


# ---------------------------------------------------------------------------------------------- what is in them
def _gathered(faults: Faults, read: Callable[[Path], np.ndarray], path: Path) -> np.ndarray | None:
    """Return what is read of a file; None where it cannot be used, which is noted."""
    try:
        return read(path)
    except SourceError as error:
        faults.add_error(error)
        return None


def _array_part(files: Files, part: str) -> tuple[list[str], np.ndarray]:
    """Return N paths and (N, C) int8 labels of the arrays of one part; none, or zeros, where there are faults."""
    names = [f"formatted_{PARTS[part][0]}_{what}.npy" for what in ("images", "labels")]
    faults, c = files.faults, len(files.classes)
    images = _gathered(faults, _image_array, files.lists[names[0]])
    labels = _gathered(faults, _label_array, files.lists[names[1]])
    if images is not None and labels is not None and labels.shape != (len(images), c):
        fit = f"there are {len(images)} images in {names[0]} and {c} class names"
        shape = f"{labels.shape[0]} rows and {labels.shape[1]} columns"
        faults.add_error(SourceError(f"{names[1]} has {shape}, but {fit}"))
        labels = None
    rows = [] if images is None else enumerate(images.tolist())
    paths = _paths([(f"{names[0]} row {row}", text) for row, text in rows], faults, names[0])
    if labels is None or not paths:
        labels = np.zeros((len(paths), c), np.int8)
    return paths, labels


def _image_array(path: Path) -> np.ndarray:
    """Return the (N,) strings of the array of paths.

    Raises:
        SourceError: it is something else, empty, or holds bytes that are no text.
    """
    images = _array(path)
    if images.ndim != 1 or images.dtype.kind not in "US":
        raise SourceError(f"{path.name} is {images.dtype} of shape {images.shape}, expected a row of strings")
    if not len(images):
        raise SourceError(f"{path.name} lists no image")
    try:
        return np.char.decode(images, "utf-8") if images.dtype.kind == "S" else images
    except UnicodeDecodeError as error:
        raise SourceError(f"{path.name} holds bytes that are no UTF-8 text ({error})") from error


def _label_array(path: Path) -> np.ndarray:
    """Return the array of labels as int8, of two axes.

    Raises:
        SourceError: it is something else, or cells are neither 0 nor 1.
    """
    labels = _array(path)
    if labels.ndim != 2 or labels.dtype.kind not in "biuf":
        raise SourceError(f"{path.name} is {labels.dtype} of shape {labels.shape}, expected numbers, images x classes")
    present = labels == 1
    if len(wrong := np.argwhere(~present & (labels != 0))):
        cells = [f"row {row}, column {column} is {labels[row, column]}" for row, column in wrong[:SHOWN]]
        more = f" and {len(wrong) - len(cells)} more" if len(wrong) > len(cells) else ""
        raise SourceError(f"{path.name}: {len(wrong)} cells are neither 0 nor 1: {', '.join(cells)}{more}")
    return present.astype(np.int8)


def _array(path: Path) -> np.ndarray:
    """Return an array without unpickling anything.

    Raises:
        SourceError: the file is no array, is damaged, or holds Python objects.
    """
    check_regular(path)
    try:
        with path.open("rb") as file:
            first = np.lib.format.read_magic(file) == (1, 0)
            header = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
            pickled = header(file)[2].hasobject
            file.seek(0)
            array = None if pickled else np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise SourceError(f"{path.name}: cannot be read as a NumPy array ({error})") from error
    if array is None:
        name, kind = path.name, "str" if path.stem.endswith("images") else "'int8'"
        raise SourceError(
            f"{name} holds Python objects, and unpickling them can run any code; if you trust its maker, convert it"
            f" once: import numpy as np; np.save({name!r}, np.load({name!r}, allow_pickle=True).astype({kind}))"
        )
    return array


def _list_part(files: Files, part: str) -> tuple[list[str], np.ndarray]:
    """Return N paths and (N, C) int8 labels of the lists of one part; none, or zeros, where there are faults."""
    faults, suffix = files.faults, PARTS[part][1]
    name = f"{suffix}Imagelist.txt"
    lines = [line for line in enumerate(read_text(files.lists[name]).split("\n"), start=1) if line[1].strip()]
    if not lines:
        faults.add_error(SourceError(f"{name} lists no image"))
    paths = _paths([(f"{name}:{number}", text) for number, text in lines], faults, name)
    labels = np.zeros((len(paths), len(files.classes)), np.int8)
    for column, concept in enumerate(files.classes):
        file = files.lists[f"Labels_{concept}_{suffix}.txt"]
        values = _gathered(faults, _label_file, file)
        if values is None or not lines:
            continue
        if len(values) != len(lines):
            kind = f"label files do not hold one label for each of the {len(lines)} images of {name}"
            faults.add(kind, f"{file.name} ({len(values)})")
        elif paths:
            labels[:, column] = values
    return paths, labels


def _label_file(path: Path) -> np.ndarray:
    """Return the (N,) int8 labels of one concept.

    Raises:
        SourceError: the file is missing, or a line is neither 0 nor 1.
    """
    check_regular(path)
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise SourceError(f"{path.name}: cannot be read in {path.parent} ({error.strerror or error})") from error
    lines = [line.strip() for line in content.splitlines()]
    if not {*lines} <= {b"", b"0", b"1"}:
        wrong = [
            f"{path.name}:{number} is {line.decode('utf-8', 'replace')!r}"
            for number, line in enumerate(lines, start=1)
            if line not in (b"", b"0", b"1")
        ]
        raise SourceError(f"{path.name}: {len(wrong)} lines are neither 0 nor 1: {preview(wrong)}")
    return (np.frombuffer(b"".join(lines), np.uint8) - ord("0")).astype(np.int8)


def _paths(entries: list[tuple[str, str]], faults: Faults, file: str) -> list[str]:
    """Return the paths of a list as they count from the folder of the pictures."""
    return raw.relative_paths([(where, _ABOVE.sub("", text.strip())) for where, text in entries], faults, file)


def _distinct(images: list[str], cells: np.ndarray, part: str, faults: Faults) -> list[int]:
    """Return the rows left when images listed again with the same labels count once; others are noted."""
    first: dict[str, int] = {}
    rows: list[int] = []
    for row, image in enumerate(images):
        if (earlier := first.setdefault(image, row)) == row:
            rows.append(row)
        elif len(differ := np.flatnonzero(cells[earlier] != cells[row])):
            where = f"{image} (rows {earlier} and {row}, {len(differ)} classes)"
            faults.add(f"images of {part} are listed again with other labels", where)
    return rows


def _file_names(paths: list[str]) -> list[str]:
    """Return the file names of paths, for copies that hold all pictures in one folder.

    Raises:
        SourceError: two images would have the same file there.
    """
    names = [path.rpartition("/")[2] for path in paths]
    if twice := set(find_duplicates(names)):
        shared = [path for path, name in zip(paths, names, strict=True) if name in twice]
        raise SourceError(
            f"all pictures lie in one folder, where {len(shared)} images share a file name: {preview(shared)}"
        )
    return names


read, fingerprint = raw.make_reader(locate, parse, build)
