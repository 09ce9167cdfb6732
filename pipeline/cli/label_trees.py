"""Recognise trees of label files: YOLO's, with names of classes in a file of their own, and tables of Open Images."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.cli.label_files import Declared
from pipeline.core.errors import ConfigError, SourceError
from pipeline.core.faults import Faults, pluralize, preview
from pipeline.core.text import read_rows, read_text
from pipeline.core.yaml import parse_yaml
from pipeline.data import disk
from pipeline.data.own_data import WORDS
from pipeline.sources import open_images, yolo

LISTS = ("classes.txt", "obj.names", "classes.names")
"""Usual names of lists of YOLO's classes, a name a line."""
NOTES = {"notes.json"}
"""Files that tools put beside YOLO's, which hold no labels."""
DESCRIPTIONS = "class-descriptions"
"""What the table of the names of Open Images has in its own name."""


# ---------------------------------------------------------------------------------------------- YOLO
def is_names_file(file: Path) -> bool:
    """Return whether a file is what YOLO's tools keep the names of classes in, by its name and, of YAML, its keys."""
    if file.name.lower() in LISTS:
        return True
    if file.suffix.lower() not in yolo.YAML or not file.is_file():
        return False
    try:
        content = parse_yaml(read_text(file), file.name)
    except (ConfigError, SourceError):
        return False
    return isinstance(content, dict) and "names" in content


def find_names_file(folder: Path, found: disk.Found, others: Sequence[Path]) -> Path | None:
    """Return the file of names of a tree of YOLO; None where it is none.

    Args:
        folder: The folder of the pictures.
        found: What lies there.
        others: Files of labels of another kind that lie there too.

    Raises:
        ConfigError: There are several, or files of labels of another kind lie there too.
    """
    files = [file for file in sorted(folder.iterdir()) if is_names_file(file)]
    texts = [] if not files else disk.scan(folder, "follow", (".txt",)).others
    wanted = {name for picture in found.pictures for name in yolo.label_files(picture)}
    if not any(name in wanted or yolo.is_label_file(folder / name) for name in texts):
        return None
    others = [file for file in others if file.name not in NOTES]
    if len(files) + len(others) > 1:
        names = preview([file.name for file in (*files, *others)])
        raise ConfigError(f"{folder}: which of {names} holds the labels? name it: spml init {_quote(files[0])}")
    return files[0]


def recognise_yolo(folder: Path, file: Path, exhaustive: bool, declared: Declared) -> dict[str, Any]:
    """Return the settings of a tree of YOLO.

    Args:
        folder: The folder of the pictures.
        file: The file of names.
        exhaustive: Whether the boxes of a picture are all that it shows.
        declared: What is said of pictures without a box.

    Raises:
        ConfigError: There are pictures without a box, and nobody says what that means.
    """
    block: dict[str, Any] = {"source": "yolo", "file": file.resolve().relative_to(folder.resolve()).as_posix()}
    block |= {"empty_file": declared.empty or "unknown", "no_file": declared.missing or "unknown"}
    common = {"root": str(folder), "size": 1, "bad_images": "drop", "links": declared.links, "max_pixels": 1}
    common |= {"classes": None, "val_fraction": 0.0, "test_fraction": 0.0, "split_seed": 0, "parents": {}}
    common |= {"exclusive": [], "exhaustive": exhaustive, "unlabelled": declared.unlabelled}
    settings = yolo.Settings.model_validate(common | block)
    files = yolo.locate(settings, Path())
    report = yolo.parse(files, settings).report
    options = {"empty": ("label files that are empty", "label_files_empty", declared.empty)}
    options |= {"missing": ("pictures without a label file", "label_files_absent", declared.missing)}
    asked = []
    for option, (what, key, said) in options.items():
        if (count := report[key]["count"]) and said is None:
            asked.append(f"{what}: {count} ({report[key]['first'][0]}): --{option} absent, or --{option} unknown")
    if asked and not files.faults:  # faults are told by the source, all of them
        raise ConfigError(
            f"{folder}: a picture without a box shows none of the classes (absent), or nobody labelled it (unknown); "
            f"say which: {'; '.join(asked)}"
        )
    return block


# ---------------------------------------------------------------------------------------------- Open Images
def recognise_open_images(folder: Path, place: Path, found: disk.Found) -> dict[str, Any] | None:
    """Return the settings of a copy of Open Images, None where there is none of its tables.

    Args:
        folder: The folder of the pictures.
        place: That folder, or a table in it.
        found: What lies there.

    Raises:
        ConfigError: There are tables of several kinds.
    """
    beside = place.parent if place.is_file() else folder
    tables = {file: rest for file in sorted(beside.glob("*.csv")) if (rest := _kind(file)) is not None}
    if place.is_file():
        tables = {file: rest for file, rest in tables.items() if rest == tables.get(place) and place in tables}
    if not tables:
        return None
    if len(set(tables.values())) > 1:
        first = next((file for file in tables if "human" in file.name), next(iter(tables)))
        names = preview([file.name for file in tables])
        raise ConfigError(f"{folder}: which of {names} holds the labels? name one: spml init {_quote(first)}")
    files = list(tables)
    names = [file for file in sorted(beside.glob(f"*{DESCRIPTIONS}*.csv")) if file not in tables]
    if len(names) > 1:
        raise ConfigError(
            f"{folder}: {preview([file.name for file in names])} name the labels: leave the one that belongs to "
            f"{files[0].name} there (-boxable of boxes)"
        )
    inside = beside.resolve().relative_to(folder.resolve()).as_posix()
    above = "" if inside == "." else f"{inside}/"
    pattern = f"*-{tables[files[0]]}" if len(files) > 1 else files[0].name
    block = {"source": "open_images", "file": above + pattern, "names": above + names[0].name if names else None}
    stems = {Path(picture).stem for picture in found.pictures}
    faults = Faults("")  # the source tells them
    images = {image for file in files for _, image, _, _ in open_images.read_table(file, faults)}
    return block | {"missing": "stop" if images <= stems else "leave_out"}


def _kind(file: Path) -> str | None:
    """Return the name of a table of Open Images without its split, None of another file."""
    try:
        header = next(read_rows(file, ","), (0, []))[1]
    except SourceError:
        return None
    if not set(open_images.COLUMNS) <= set(header):
        return None
    first, _, rest = file.name.partition("-")
    return rest if first.lower() in WORDS else file.name


def describe_tree(block: dict[str, Any], report: dict[str, Any]) -> str:
    """Return what was taken for what in a tree of label files.

    Args:
        block: Its settings.
        report: What its source reports.
    """
    if block["source"] == "open_images":
        left = report["images_without_picture"]["count"]
        out = f", {pluralize(left, 'image')} without a picture left out" if left else ""
        names = block["names"] or "none: labels are names"
        return f"file: {block['file']} (1 present, 0 absent), names: {names}{out}"
    told = {"empty_file": "label_files_empty", "no_file": "label_files_absent"}
    counts = {key: report[of]["count"] for key, of in told.items()}
    said = (f"{key.replace('_', ' ')}: {block[key]} ({counts[key]})" for key in told if counts[key])
    return ", ".join([f"names: {block['file']}", "labels: classes of boxes", *said])


def _quote(path: Path) -> str:
    return shlex.quote(str(path))
