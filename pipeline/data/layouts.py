"""Recognise trees of known layouts, whose folders are no classes, and name what reads them."""

import re
import shlex
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from pipeline.core.errors import SourceError
from pipeline.core.text import read_text

DEPTH = 3  # folders above that are looked at, since people name an inner one too
INNER = re.compile(r"JPEGImages|Segmentation\w+|images|Flickr|valid|(train|val|test|unlabeled)(20\d\d)?")
AROUND = (".", "*", "*/*")  # what archives wrap around a tree
YOLO = re.compile(r"\s*\d+(\s+-?[\d.]+(e-?\d+)?){4,}\s*")
PARTS = re.compile(r"(train|val|test|unlabeled)20\d\d")


def name_layout(folder: Path, xml: bool) -> str:
    """Return what a folder holds of a known layout and how that is read, in one sentence; "" where it is none.

    Args:
        folder: A folder of pictures, or one inside such a tree.
        xml: Whether folders of pictures and of XML files, without lists, are such a layout.
    """
    kinds = (_voc, _coco, _cub, _nus, _yolo, *((_xml,) if xml else ()))
    if found := _describe(folder, AROUND, kinds):
        return found
    real = folder.resolve()
    for top in real.parents[:DEPTH]:
        if INNER.fullmatch(real.relative_to(top).parts[0]) and (found := _describe(top, (".",), (_voc, _coco, _yolo))):
            return found
    if parts := sorted(path.name for path in _folders(folder) if PARTS.fullmatch(path.name)):
        return (
            f"{folder} holds {', '.join(parts)}, which are parts of COCO and no classes: put COCO's folder annotations "
            f"with instances_{parts[0]}.json beside them, then: {_profile('coco', folder)}"
        )
    return ""


def _describe(top: Path, wraps: tuple[str, ...], kinds: tuple[Callable[[Path, tuple[str, ...]], str], ...]) -> str:
    return next((f"{top} {sentence}" for kind in kinds if (sentence := kind(top, wraps))), "")


def _voc(top: Path, wraps: tuple[str, ...]) -> str:
    if _holds(top, wraps, "ImageSets/Main"):
        return f"is laid out as PASCAL VOC, whose folders are no classes: {_profile('voc', top)}"
    return ""


def _xml(top: Path, wraps: tuple[str, ...]) -> str:
    if _holds(top, wraps, "JPEGImages") and (file := _holds(top, wraps, "Annotations/*.xml")):
        return (
            "holds JPEGImages and Annotations as PASCAL VOC does, but no ImageSets/Main with lists of the parts; its "
            f"XML files are read: spml init {_quote(file.parent.parent)}"
        )
    return ""


def _coco(top: Path, wraps: tuple[str, ...]) -> str:
    if file := _holds(top, wraps, "annotations/instances_train20??.json"):
        year = "" if file.stem.endswith("2014") else f", with prepare.coco.year: {file.stem[-4:]} in profiles/coco.yaml"
        return f"is laid out as MS-COCO, whose folders are no classes: {_profile('coco', top)}{year}"
    return ""


def _cub(top: Path, wraps: tuple[str, ...]) -> str:
    if file := _holds(top, wraps, "image_class_labels.txt"):
        species = f"spml init {_quote(file.parent / 'images')}"
        return f"is laid out as CUB-200-2011: {_profile('cub', top)} (its species as classes: {species})"
    return ""


def _nus(top: Path, wraps: tuple[str, ...]) -> str:
    if _holds(top, wraps, "ConceptsList/Concepts81.txt") or _holds(top, wraps, "formatted_train_labels.npy"):
        return f"is laid out as NUS-WIDE: {_profile('nus', top)}"
    return ""


def _yolo(top: Path, wraps: tuple[str, ...]) -> str:
    """Return what to say of a tree of pictures with text files of boxes, in folders `labels`."""
    for wrap in wraps:
        for pattern in ("labels/*.txt", "labels/*/*.txt"):
            for file in islice(top.glob(f"{wrap}/{pattern}"), 3):
                if file.is_file() and _is_boxes(file):
                    return f"is laid out as YOLO's data, whose folders are no classes: {_read_yolo(top, file)}"
    return ""


def _read_yolo(top: Path, file: Path) -> str:
    """Return how a tree of YOLO with a label file is read: from the folder of the file of names, once there is one."""
    above = [folder for folder in file.parents if folder.is_relative_to(top)]
    if place := next((folder for folder in above if _holds(folder, (".",), "*.y*ml") or _is_listed(folder)), None):
        return f"spml init {_quote(place)}"
    return (
        f"write what the numbers that begin the lines of {file.relative_to(top)} are called in a file data.yaml in "
        f"{top}, as names: [cat, dog], then: spml init {_quote(top)}"
    )


def _is_listed(folder: Path) -> bool:
    return (folder / "classes.txt").is_file()


def _is_boxes(file: Path) -> bool:
    try:
        return bool(YOLO.fullmatch(read_text(file).partition("\n")[0]))
    except SourceError:
        return False


def _holds(top: Path, wraps: tuple[str, ...], pattern: str) -> Path | None:
    """Return the first file or folder of a pattern in a folder, or in those that archives wrap around it."""
    return next((path for wrap in wraps for path in sorted(islice(top.glob(f"{wrap}/{pattern}"), 100))), None)


def _folders(top: Path) -> Iterator[Path]:
    return (path for path in top.glob("*") if path.is_dir())


def _profile(name: str, top: Path) -> str:
    return f"spml profile {name} --root {_quote(top)}, then make repro"


def _quote(path: Path) -> str:
    return shlex.quote(str(path))
