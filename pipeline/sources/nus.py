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
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from pipeline.core.errors import SourceError
from pipeline.core.faults import SHOWN, Faults, check_names, class_name, counted, some
from pipeline.core.text import fields, read_text, relative_path
from pipeline.data import raw
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
    raw: Literal["formatted", "official"]
    """`formatted`: the arrays of Cole 2021 or Zhou 2022; `official`: the lists of the dataset's makers."""
    classes: Annotated[list[str], Field(min_length=1)] | None
    """Class names in column order; null: those of `Concepts81.txt` or, where `official` lacks it, of the label files,
    alphabetically. Label files are chosen by name. Arrays hold no names: there these are the names of all columns."""


def read(settings: Settings, root: Path) -> Dataset:
    """Read arrays or lists; pictures are looked up, not opened.

    Rows are all images, also those without a label, in the order of the arrays or lists, the training part first.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        The dataset.

    Raises:
        SourceError: a file or picture is missing or faulty, lists contradict each other, or nothing says which images
            are for training and which for test; the message names the setting, file, line or image, of all faults that
            can be found beside each other.
    """
    folder = raw.raw_folder(settings, root)
    classes, named_by, files = _files(folder, settings)
    place = _picture_folder(folder)
    faults = Faults(folder.name)
    part_of = _array_part if settings.layout == "formatted" else _list_part
    listed = {part: part_of(files, part, classes, faults) for part in PARTS}
    rows = {part: _distinct(*listed[part], part, faults) for part in PARTS}
    paths = [listed[part][0][row] for part in PARTS for row in rows[part]]
    labels = [listed[part][1][rows[part]] for part in PARTS]
    official = [number for number, part in enumerate(PARTS) for _ in rows[part]]
    for path, count in Counter(paths).items():
        if count > 1:
            faults.add("images are in the train and in the test part", path)

    on_disk = raw.pictures(place)
    flat = not any("/" in file for file in on_disk)
    there = set(on_disk)
    found: list[str] = []
    wanted = list(dict.fromkeys(paths))  # each once, whatever the lists say
    try:
        if wanted:
            names = _file_names(wanted) if flat else wanted
            found = raw.match(names, on_disk, place.name, settings.bad_images)
    except SourceError as error:
        faults.join(error)
    faults.stop()
    missing = [path for path, file in zip(paths, found, strict=True) if file not in there]
    table = Table(
        classes=classes,
        paths=tuple(unicodedata.normalize("NFC", f"{place.name}/{file}") for file in found),
        truth=np.concatenate(labels),
        scored=np.ones((len(paths), len(classes)), np.bool_),
        split=raw.split(official, settings),
        official=np.array(official, np.uint8),
    )
    parts = {
        part: {
            "listed": len(listed[part][0]),
            "repeated": len(listed[part][0]) - len(rows[part]),
            "without_positive": int((~cells.any(axis=1)).sum()),
        }
        for part, cells in zip(PARTS, labels, strict=True)
    }
    copy = edition(parts["train"]["listed"], parts["test"]["listed"])
    warnings = []
    if copy is None:
        warnings.append("this is none of the known copies of NUS-WIDE: figures of papers do not compare with it")
    if settings.layout == "formatted":
        warnings.append(f"the arrays hold no class names: {named_by} gave them, by place")
    if missing:
        warnings.append(
            f"{len(missing)} images have no file; with their rows left out, later rows draw other labels than published"
        )
    warnings += raw.left_out(place)
    report = {
        "folder": folder.name,
        "layout": settings.layout,
        "edition": copy or "none of the known ones",
        "class_names": named_by,
        "parts": parts,
        "pictures": {
            "folder": place.name,
            "by_file_name_alone": flat,
            "missing": counted(missing),
            "in_no_list": len(there.difference(found)),
        },
        "warnings": warnings,
    }
    return Dataset(table, lambda row: place / found[row], report)


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
    folder = raw.raw_folder(settings, root)
    return raw.state(_files(folder, settings)[2], {"Flickr": _picture_folder(folder)})


def edition(train: int, test: int) -> str | None:
    """Tell by its counts which of the copies that go around this is.

    Args:
        train: Images of the training part.
        test: Images of the test part.

    Returns:
        What is known about a copy of that size; None where nothing is.
    """
    return EDITIONS.get((train, test)) or TOTALS.get(train + test)


# ---------------------------------------------------------------------------------------------- where things are
def _find(folder: Path, *names: str) -> Path | None:
    """Find a file or folder at or up to two folders below a folder: archives differ in what they wrap around it.

    Returns:
        It, by the first of the names that is there, the shallowest; None where there is none.

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


def _files(folder: Path, settings: Settings) -> tuple[tuple[str, ...], str, dict[str, Path]]:
    """Find what is read.

    Returns:
        Class names in column order, what gave them, and the files by name.

    Raises:
        SourceError: a file is missing, or class names are missing, cannot be used or are there twice.
    """
    files = (_array_files if settings.layout == "formatted" else _list_files)(folder)
    labels = {match[1] for name in files if (match := re.fullmatch(r"Labels_(.+)_(Train|Test)\.txt", name))}
    if settings.classes is not None:
        names, named_by = [class_name(name) for name in settings.classes], "the setting `classes`"
    elif concepts := _find(folder, "ConceptsList/Concepts81.txt", "Concepts81.txt"):
        names, named_by = [" ".join(words) for _, words in fields(concepts)], "Concepts81.txt"
        files["Concepts81.txt"] = concepts
    else:
        names, named_by = sorted(labels), "the names of the label files"
    if not names:
        raise SourceError(
            f"prepare: classes: no Concepts81.txt with class names at or below {folder}, and nothing else that holds"
            " them: add it from the official ConceptsList, or list the names in column order"
        )
    faults = Faults(folder.name)
    check_names(names, faults, named_by)
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        faults.join(SourceError(f"prepare: classes: {named_by} names {', '.join(repeated)} twice"))
    faults.stop()
    if settings.layout == "official":
        wanted = {f"Labels_{name}_{suffix}.txt": name for name in names for _, suffix in PARTS.values()}
        absent = [name for name in wanted if name not in files]
        over = sorted(labels.difference(names)) if settings.classes is None else []
        if absent or over:
            raise SourceError(
                f"{named_by} and the label files do not fit: {len(absent)} files are missing"
                f" ({some(absent) or 'none'}), {len(over)} concepts not named"
                f" ({some(over) or 'none'})"
            )
        files = {name: path for name, path in files.items() if name in wanted or not name.startswith("Labels_")}
    return tuple(names), named_by, files


def _array_files(folder: Path) -> dict[str, Path]:
    """Find the arrays.

    Returns:
        Name -> file.

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
    """Find the image lists of both parts, and all label files.

    Returns:
        Name, in NFC -> file.

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
        faults.join(error)
        return None


def _array_part(
    files: dict[str, Path], part: str, classes: tuple[str, ...], faults: Faults
) -> tuple[list[str], np.ndarray]:
    """Read the two arrays of one part, noting an array that is not what it must be, and two that do not fit.

    Returns:
        N paths, and (N, C) int8 labels; none, or zeros, where there are faults.
    """
    names = [f"formatted_{PARTS[part][0]}_{what}.npy" for what in ("images", "labels")]
    images = _gathered(faults, _image_array, files[names[0]])
    labels = _gathered(faults, _label_array, files[names[1]])
    if images is not None and labels is not None and labels.shape != (len(images), len(classes)):
        fit = f"there are {len(images)} images in {names[0]} and {len(classes)} class names"
        shape = f"{labels.shape[0]} rows and {labels.shape[1]} columns"
        faults.join(SourceError(f"{names[1]} has {shape}, but {fit}"))
        labels = None
    rows = [] if images is None else enumerate(images.tolist())
    paths = _paths(names[0], [(f"{names[0]} row {row}", text) for row, text in rows], faults)
    if labels is None or not paths:
        labels = np.zeros((len(paths), len(classes)), np.int8)
    return paths, labels


def _image_array(path: Path) -> np.ndarray:
    """Read the array of paths.

    Returns:
        (N,) strings.

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
    """Read the array of labels.

    Returns:
        Two axes, int8.

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
    """Read an array without unpickling anything.

    Returns:
        The array.

    Raises:
        SourceError: the file is no array, is damaged, or holds Python objects.
    """
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


def _list_part(
    files: dict[str, Path], part: str, classes: tuple[str, ...], faults: Faults
) -> tuple[list[str], np.ndarray]:
    """Read the image list and the label files of one part, noting what is empty, faulty, or does not fit the list.

    Returns:
        N paths, and (N, C) int8 labels; none, or zeros, where there are faults.

    Raises:
        SourceError: the list cannot be read.
    """
    suffix = PARTS[part][1]
    name = f"{suffix}Imagelist.txt"
    lines = [line for line in enumerate(read_text(files[name]).split("\n"), start=1) if line[1].strip()]
    if not lines:
        faults.join(SourceError(f"{name} lists no image"))
    paths = _paths(name, [(f"{name}:{number}", text) for number, text in lines], faults)
    labels = np.zeros((len(paths), len(classes)), np.int8)
    for column, concept in enumerate(classes):
        file = files[f"Labels_{concept}_{suffix}.txt"]
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
    """Read the labels of one concept.

    Returns:
        (N,) int8 labels.

    Raises:
        SourceError: the file is missing, or a line is neither 0 nor 1.
    """
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
        raise SourceError(f"{path.name}: {len(wrong)} lines are neither 0 nor 1: {some(wrong)}")
    return (np.frombuffer(b"".join(lines), np.uint8) - ord("0")).astype(np.int8)


def _paths(name: str, entries: Sequence[tuple[str, str]], faults: Faults) -> list[str]:
    """Bring paths to the form in which they count from the folder of the pictures.

    Args:
        name: The file that holds them.
        entries: Where each stands in it, and its text.
        faults: Paths that are absolute or climb out of their folder are noted here.

    Returns:
        The paths, in NFC with forward slashes; none where one of them is faulty.
    """
    paths: list[str] = []
    for where, text in entries:
        try:
            paths.append(relative_path(_ABOVE.sub("", text.strip())))
        except ValueError as error:
            faults.add("images have no usable path", f"{where}: {error}", name)
    return paths if len(paths) == len(entries) else []


def _distinct(images: list[str], cells: np.ndarray, part: str, faults: Faults) -> list[int]:
    """Return the rows that are left when images that are listed again with the same labels count once.

    Images that are listed again with other labels are noted.
    """
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
    if twice := {name for name, count in Counter(names).items() if count > 1}:
        shared = [path for path, name in zip(paths, names, strict=True) if name in twice]
        raise SourceError(
            f"all pictures lie in one folder, where {len(shared)} images share a file name: {some(shared)}"
        )
    return names
