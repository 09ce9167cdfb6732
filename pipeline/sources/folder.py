"""Images of one's own in folders: one folder per class, pictures below it at any depth.

Each picture has one positive label, that of its folder, and nothing else is known: single positive data by nature.
Source: ours.
"""

import unicodedata
from pathlib import Path
from typing import Literal

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, class_name, counted, number, some
from pipeline.data import own_data, raw
from pipeline.data.own_data import WORDS, OwnData, Row
from pipeline.labels.table import Dataset


class Settings(OwnData):
    """Settings of `prepare.<dataset>` for one folder per class; folders that `classes` does not name are not read."""

    source: Literal["folder"]
    split_folders: bool
    """Whether the classes' folders lie in folders train, val and test (not all of which need be there)."""
    same_name: Literal["separate", "merge"]
    """Pictures of the same name below several classes (of one split): `separate` images, or, to `merge`, copies of one
    image that has all these labels; it stands under the path of the first class."""


def read(settings: Settings, root: Path) -> Dataset:
    """Read the names of pictures in folders; no picture is opened.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        The dataset, as `own_data.dataset` orders it; only the label of its folder is known of a picture.

    Raises:
        SourceError: there is no folder with pictures, a class has none, a folder's name is no split, or pictures that
            are to be merged differ in size.
    """
    folder = raw.raw_folder(settings, root)
    faults = Faults(folder.name)
    pictures = raw.pictures(folder)
    tops = {top for top, slash, _ in (picture.partition("/") for picture in pictures) if slash}
    words = {top for top in tops if top.lower() in WORDS}
    if not settings.split_folders and words and words == tops:
        raise SourceError(f"prepare: split_folders: {', '.join(sorted(tops))} are no classes; set it to true")
    if settings.split_folders and (odd := sorted(tops - words)):
        raise SourceError(f"prepare: split_folders: folders other than train, val and test: {some(odd)}")

    wanted = own_data.wanted(settings)
    rows: list[Row] = []
    groups: dict[tuple[int | None, str], list[Row]] = {}  # by split, and name below the class's folder
    loose: list[str] = []
    left_out: dict[str, int] = {}
    for picture in pictures:
        parts = picture.split("/")
        split = WORDS[parts.pop(0).lower()] if settings.split_folders and len(parts) > 1 else None
        if len(parts) == 1:
            loose.append(picture)
            continue
        label = class_name(parts[0])
        if wanted is not None and label not in wanted:
            left_out[label] = left_out.get(label, 0) + 1
            continue
        row = Row("picture", picture, (label,), (), split)
        rows.append(row)
        groups.setdefault((split, unicodedata.normalize("NFC", "/".join(parts[1:]))), []).append(row)
    if bare := sorted(set(wanted or ()) - {row.present[0] for row in rows}):
        raise SourceError(f"prepare: classes: no picture in a folder of the name: {some(bare)}")
    shared = [group for group in groups.values() if len({row.present for row in group}) > 1]
    if settings.same_name == "merge":
        rows = [row for group in groups.values() for row in _merged(folder, group, faults)]

    if loose and not rows:
        raise SourceError(f"{folder.name}: no picture lies in a class's folder: {some(loose)}")
    data = own_data.dataset(
        settings, folder, rows, faults, classes=wanted, found=pictures, closed=False, exhaustive=False
    )
    alike = [group for group in shared if len({_size(folder / row.path) for row in group}) == 1]
    data.report["same_name"] = {"policy": settings.same_name, "names": len(shared), "of_equal_size": len(alike)}
    data.report["pictures_in_no_class_folder"] = counted(loose)
    data.report["folders_not_in_classes"] = left_out
    if words and not settings.split_folders:
        beside = f"{some(sorted(words))} beside {some(sorted(tops - words))}"
        data.report["warnings"].append(f"folders called as splits are taken for classes: {beside}")
    if loose:
        lie = "lies in no class's folder and was" if len(loose) == 1 else "lie in no class's folder and were"
        told = f"{number(len(loose), 'picture')} {lie} left out: {some(loose)}"
        data.report["warnings"].append(told)
    if wanted is None and (bare := _bare(folder, pictures, 1 + settings.split_folders)):
        hold = f"{number(len(bare), 'folder')} {'holds' if len(bare) == 1 else 'hold'}"
        data.report["warnings"].append(f"{hold} no picture that is read: {some(bare)}")
    return data


def fingerprint(settings: Settings, root: Path) -> str:
    """Tell one state of the raw data from another without opening a picture.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        SHA-256 over the names and sizes of all picture files below the root; where it lies does not count.

    Raises:
        SourceError: the folder is missing.
    """
    return raw.state({}, {".": raw.raw_folder(settings, root)})


def _bare(folder: Path, pictures: list[str], depth: int) -> list[str]:
    """Return the folders where classes' lie, so many levels down, that hold no picture."""
    filled = {"/".join(picture.split("/")[:depth]) for picture in pictures}
    places = (path for path in folder.glob("/".join(["[!.]*"] * depth)) if path.is_dir() and path.name != "__MACOSX")
    return sorted(name for path in places if (name := path.relative_to(folder).as_posix()) not in filled)


def _size(file: Path) -> int | None:
    """Return a file's bytes; None where it cannot be looked at."""
    try:
        return file.stat().st_size
    except OSError:
        return None


def _merged(folder: Path, group: list[Row], faults: Faults) -> list[Row]:
    """Return one row for copies of one picture: the first of them, with all labels.

    Raises:
        SourceError: a picture cannot be looked at.
    """
    first, labels = group[0], sorted({row.present[0] for row in group})
    if len(labels) < len(group):  # a class holds the name twice, in two unicode forms: refused with the rows
        return group
    try:
        sizes = {(folder / row.path).stat().st_size for row in group} if len(group) > 1 else set()
    except OSError as error:
        raise SourceError(f"{first.path}: cannot be read ({error})") from error
    if len(sizes) > 1:
        faults.add("names stand for several pictures", " and ".join(repr(row.path) for row in group))
    return [Row(first.where, first.path, tuple(labels), (), first.split)]
