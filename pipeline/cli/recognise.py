"""Recognise how the images of a folder are labelled: by class folders, by label files, or by a table or JSON."""

import os
import shlex
from dataclasses import astuple
from pathlib import Path
from typing import Any

from pipeline.cli.label_columns import read_sheet, recognise_columns
from pipeline.cli.label_files import Declared, Named
from pipeline.cli.label_keys import recognise_json
from pipeline.cli.label_trees import find_names_file, is_names_file, recognise_open_images, recognise_yolo
from pipeline.core.errors import ConfigError
from pipeline.core.faults import pluralize, preview
from pipeline.data import disk, layouts
from pipeline.data.formats import name_remedies
from pipeline.data.names import NO_CLASS
from pipeline.data.own_data import WORDS

FILES = (".csv", ".tsv", ".json", ".jsonl")
"""Endings of files of labels."""
ANNOTATIONS = NO_CLASS | {"csv", "json", "meta", "metadata"}
"""Usual names of the folder of files of labels, beside those of pictures, compared without case."""
TABLES = (".xlsx", ".xls", ".ods", ".parquet", ".txt", ".pkl", ".feather", ".xml", ".mat", ".npy")
"""Endings of files that may hold labels and are not read."""


def recognise(
    place: Path,
    exhaustive: bool,
    named: Named = Named(),  # noqa: B008  it is frozen
    declared: Declared = Declared(),  # noqa: B008  it is frozen
) -> dict[str, Any]:
    """Return how the images of a folder are labelled.

    Args:
        place: A folder of pictures with one CSV, TSV, JSON or JSON-lines file, or one in each folder of a split, or
            with XML files, or with one folder for each class; or that file, where there are several.
        exhaustive: Whether the labels of an image are all that apply to it.
        named: Columns or keys of that file.
        declared: What values mean.

    Returns:
        The block of `prepare` without `root` and `size`.

    Raises:
        ConfigError: There is no such folder, or it is not clear how its images are labelled; the message says what was
            found, and what to do.
        SourceError: A folder or the file of labels cannot be read.
    """
    folder = find_folder(place)
    if not folder.is_dir():
        raise ConfigError(f"{place}: no such folder or file")
    names_file = place if place.is_file() and is_names_file(place) else None
    if place.is_file() and place.suffix.lower() not in FILES and not names_file:
        raise ConfigError(f"{place}: not a file of labels ({', '.join(FILES)}; of YOLO data.yaml or classes.txt)")
    found = disk.scan(folder, declared.links, (".xml",))
    if not found.pictures:
        other = f"; not read: {preview(found.unread)}" if found.unread else ""
        other += f"; {remedy}" if (remedy := name_remedies(found.unread)) else ""
        other += "; the XML files need theirs at or below the folder" if found.others else ""
        raise ConfigError(f"{folder}: holds no picture ({', '.join(disk.ENDINGS)}){other}")
    if not place.is_file():
        names_file = find_names_file(folder, found, _list_files(folder, "[!.]*"))
    if names_file is not None:
        block = recognise_yolo(folder, names_file, exhaustive, declared)
    elif any(astuple(named)) or (block := recognise_open_images(folder, place, found)) is None:
        files = [place] if place.is_file() else _find_files(folder)
        block = _recognise(folder, found, files, exhaustive, named, declared)
    if exhaustive and block["source"] == "open_images":
        raise ConfigError(f"{folder}: what nobody verified of Open Images is unknown: leave out --exhaustive")
    if block["source"] not in ("folder", "open_images"):
        block["exhaustive"] = exhaustive
    common = {"bad_images": "stop", "links": declared.links, "max_pixels": 200_000_000, "classes": None}
    common |= {"val_fraction": 0.2, "test_fraction": 0.2, "split_seed": 0, "unlabelled": declared.unlabelled}
    common |= {"parents": {}, "exclusive": []}
    _check_declared(declared, block)
    return block | {key: value for key, value in common.items() if key not in block}


def find_folder(place: Path) -> Path:
    """Return the folder of the pictures: the one that is named, or that of the file of labels that is.

    Of a file in a folder `annotations` without pictures, where COCO's lie, it is the folder around that.
    """
    if not place.is_file():
        return place
    folder = place.resolve().parent
    pictured = any(file.suffix.lower() in disk.ENDINGS for file in folder.iterdir())
    return folder.parent if folder.name.lower() in ANNOTATIONS and not pictured else place.parent


def _recognise(
    folder: Path, found: disk.Found, files: list[Path], exhaustive: bool, named: Named, declared: Declared
) -> dict[str, Any]:
    """Return what is said of the labels alone.

    Raises:
        ConfigError: As said.
    """
    if not files:
        if known := layouts.name_layout(folder, xml=False):
            raise ConfigError(known)
        if any(astuple(named)):
            raise ConfigError(
                f"{folder}: no .csv or .json of labels whose columns or keys --path, --labels, --split or --group name"
            )
        stems = {os.path.splitext(name)[0].rpartition("/")[2] for name in found.pictures}
        if any(os.path.splitext(name)[0].rpartition("/")[2] in stems for name in found.others):
            return {"source": "xml"}
        inside = f"{declared.unlabelled}/" if declared.unlabelled else "\0"
        labelled = [picture for picture in found.pictures if not picture.startswith(inside)]
        return {"source": "folder", **_recognise_folders(folder, labelled, exhaustive)}
    file = files[0]
    name = file.name if file.parent == folder else file.resolve().relative_to(folder.resolve()).as_posix()
    if len(files) > 1:
        name = f"*/{file.name}"
    if file.suffix.lower() in (".csv", ".tsv"):
        sheet = read_sheet(files)
        return {"source": "csv", "file": name, **recognise_columns(sheet, found, exhaustive, named, declared)}
    return {"source": "json", "file": name, "content": recognise_json(files, found, named, declared)}


def _find_files(folder: Path) -> list[Path]:
    """Return the files of labels of a folder: one in it, or one of one name in each folder of a split.

    Raises:
        ConfigError: There are several.
    """
    for pattern in ("[!.]*", "[!.]*/[!.]*"):
        files = _list_files(folder, pattern)
        if pattern != "[!.]*":
            splits = [path for path in files if path.parent.name.lower() in WORDS]
            of_one = [path for path in files if path.parent.name.lower() in ANNOTATIONS]
            files = splits or of_one
            if len(files) > 1 and len({path.name for path in files}) == 1 and files == splits:
                return files
        if len(files) > 1:
            if known := layouts.name_layout(folder, xml=False):
                raise ConfigError(known)
            names = [path.relative_to(folder).as_posix() for path in files]
            stems = {path.stem for path in folder.glob("*") if path.suffix.lower() in disk.ENDINGS}
            if all(path.stem in stems for path in files):
                raise ConfigError(
                    f"{folder}: a file of labels for each picture, as {names[0]}, is not read (LabelMe): export all as "
                    "one COCO JSON, or as XML files in the form of PASCAL VOC"
                )
            raise ConfigError(
                f"{folder}: which of {preview(names)} holds the labels? name it: spml init {shlex.quote(str(files[0]))}"
            )
        if files:
            return [] if pattern != "[!.]*" and layouts.name_layout(folder, xml=False) else files
    return []


def _list_files(folder: Path, pattern: str) -> list[Path]:
    """Return the files of labels that fit a pattern, without what FiftyOne writes beside its samples."""
    files = sorted(path for path in folder.glob(pattern) if path.suffix.lower() in FILES and path.is_file())
    beside = {path.parent for path in files if path.name == "samples.json"}
    return [path for path in files if path.name != "metadata.json" or path.parent not in beside]


def _recognise_folders(folder: Path, pictures: list[str], exhaustive: bool) -> dict[str, Any]:
    """Return what class folders say.

    Raises:
        ConfigError: There are none, or they cannot be what is asked for.
    """
    tops = {picture.split("/")[0] for picture in pictures if "/" in picture}
    if not tops:
        found = pluralize(len(pictures), "picture")
        others = sorted(path.name for path in folder.glob("[!.]*") if path.suffix.lower() in TABLES)
        hint = (
            f"; not read: {preview(others)} - save labels as a .csv whose first line names the columns"
            if others
            else ""
        )
        raise ConfigError(f"{folder}: {found}, but neither class folders nor a .csv, .json or .xml of labels{hint}")
    if exhaustive:
        raise ConfigError(f"{folder}: a folder for each class gives one label an image, which is not exhaustive")
    split = all(top.lower() in WORDS for top in tops)
    if len(tops) == 1 and not split:
        (top,) = tops
        raise ConfigError(
            f"{folder}: all folders with pictures lie in {top}, which would be the one class; if the folders of the "
            f"classes lie in it: spml init {shlex.quote(str(folder / top))}"
        )
    return {"split_folders": split, "same_name": "separate"}


def _check_declared(declared: Declared, block: dict[str, Any]) -> None:
    """Refuse what the user says of values that there are none of.

    Raises:
        ConfigError: As said.
    """
    labels = block.get("labels", {})
    for option in ("zero", "minus_one", "empty"):
        bare = option == "empty" and ("empty_file" in block or "empty" in block.get("content", {}))
        if getattr(declared, option) is not None and labels.get("kind") != "columns" and not bare:
            raise ConfigError(f"--{option.replace('_', '-')}: there is no column of 1 and 0 for each class")
    if declared.missing is not None and "no_file" not in block:
        raise ConfigError("--missing: there are no label files of YOLO")
    if declared.disagreement is not None and "disagreement" not in block.get("content", {}):
        raise ConfigError("--disagreement: there are no tasks of several annotators (Label Studio)")
    separated = labels.get("kind") == "names" or "separator" in block.get("content", {})
    if declared.separator is not None and not separated:
        raise ConfigError("--separator: there is no text of label names")
