"""Images of one's own in folders: one folder per class, pictures below it at any depth.

Each picture has one positive label, that of its folder, and nothing else is known: single positive data by nature.
Source: ours.
"""

import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, normalize_class_name, pluralize, preview, summarize
from pipeline.data import disk, layouts, own_data
from pipeline.data.own_data import WORDS, Content, OwnData, Row
from pipeline.data.raw import Files, make_reader


class Settings(OwnData):
    """Settings of `prepare.<dataset>` for one folder per class; folders that `classes` does not name are not read."""

    source: Literal["folder"]
    split_folders: bool
    """Whether the classes' folders lie in folders train, val and test (not all of which need be there)."""
    same_name: Literal["separate", "merge"]
    """Pictures of the same name below several classes (of one split): `separate` images, or, to `merge`, copies of one
    image that has all these labels; it stands under the path of the first class."""


@dataclass(frozen=True)
class Sorted:
    """The pictures of a folder by what their folders say.

    Args:
        rows: Those in the folder of a class.
        loose: Those in none.
        not_wanted: Class that is not wanted -> number of its pictures.
    """

    rows: list[Row]
    loose: list[str]
    not_wanted: dict[str, int]


def locate(settings: Settings, root: Path) -> Files:
    """Return where the pictures are."""
    return own_data.locate(settings, root, None)


def parse(files: Files, settings: Settings) -> Content:
    """Return what the names of folders say of the pictures; only the label of its folder is known of a picture.

    Raises:
        SourceError: there is no folder with pictures, a class has none, or a folder's name is no split.
    """
    folder, classes = files.folder, own_data.wanted_classes(settings)
    if classes is None and (known := layouts.name_layout(folder, xml=True)):
        raise SourceError(known)
    lying = disk.scan(folder, settings.links)
    pictures = [picture for picture in lying.pictures if not settings.is_unlabelled(picture)]
    tops = {top for top, slash, _ in (picture.partition("/") for picture in pictures) if slash}
    words = _split_words(tops, settings)
    found = _sort(pictures, classes, settings)
    if bare := sorted(set(classes or ()) - {row.present[0] for row in found.rows} - settings.rules().all_parents()):
        raise SourceError(f"prepare: classes: no picture in a folder of the name: {preview(bare)}")
    if found.loose and not found.rows:
        raise SourceError(f"{folder.name}: no picture lies in a class's folder: {preview(found.loose)}")
    groups = _group_by_name(found.rows)
    shared = [group for group in groups if len({row.present for row in group}) > 1]
    alike = [group for group in shared if len({_size(folder / row.path) for row in group}) == 1]
    rows = found.rows
    if settings.same_name == "merge":
        rows = [row for group in groups for row in _merged(folder, group, files.faults)]
    warnings = []
    if words and not settings.split_folders:
        beside = f"{preview(sorted(words))} beside {preview(sorted(tops - words))}"
        warnings.append(f"folders called as splits are taken for classes: {beside}")
    if found.loose:
        lie = "lies in no class's folder and was" if len(found.loose) == 1 else "lie in no class's folder and were"
        count = pluralize(len(found.loose), "picture")
        warnings.append(f"{count} {lie} left out: {preview(found.loose)}")
    if classes is None and (bare := _bare(folder, pictures, 1 + settings.split_folders)):
        hold = f"{pluralize(len(bare), 'folder')} {'holds' if len(bare) == 1 else 'hold'}"
        warnings.append(f"{hold} no picture that is read: {preview(bare)}")
    report = {
        "same_name": {"policy": settings.same_name, "names": len(shared), "of_equal_size": len(alike)},
        "pictures_in_no_class_folder": summarize(found.loose),
        "folders_not_in_classes": found.not_wanted,
    }
    return Content(rows, classes, lying, closed=False, exhaustive=False, report=report, warnings=warnings)


def _split_words(tops: set[str], settings: Settings) -> set[str]:
    """Return the uppermost folders that are called as splits.

    Raises:
        SourceError: they are all, but should be classes; or others are among them, but they should be splits.
    """
    words = {top for top in tops if top.lower() in WORDS}
    if not settings.split_folders and words and words == tops:
        raise SourceError(f"prepare: split_folders: {', '.join(sorted(tops))} are no classes; set it to true")
    if settings.split_folders and (odd := sorted(tops - words)):
        raise SourceError(f"prepare: split_folders: folders other than train, val and test: {preview(odd)}")
    return words


def _sort(pictures: list[str], classes: tuple[str, ...] | None, settings: Settings) -> Sorted:
    """Return the pictures by what their folders say."""
    found = Sorted([], [], {})
    for picture in pictures:
        *above, _ = picture.split("/")
        split = WORDS[above.pop(0).lower()] if settings.split_folders and above else None
        if not above:
            found.loose.append(picture)
            continue
        label = normalize_class_name(above[0])
        if classes is None or label in classes:
            found.rows.append(Row("picture", picture, (label,), (), split))
        else:
            found.not_wanted[label] = found.not_wanted.get(label, 0) + 1
    return found


def _group_by_name(rows: list[Row]) -> list[list[Row]]:
    """Return rows of one split and one name below the class's folder together."""
    groups: dict[tuple[int | None, str], list[Row]] = {}
    for row in rows:
        below = row.path.split("/")[1 if row.split is None else 2 :]
        groups.setdefault((row.split, unicodedata.normalize("NFC", "/".join(below))), []).append(row)
    return list(groups.values())


def _bare(folder: Path, pictures: list[str], depth: int) -> list[str]:
    """Return the folders where classes' lie, so many levels down, that hold no picture."""
    filled = {"/".join(picture.split("/")[:depth]) for picture in pictures}
    places = (
        path for path in folder.glob("/".join(["[!.]*"] * depth)) if path.is_dir() and not disk.is_service(path.name)
    )
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


read, fingerprint = make_reader(locate, parse, own_data.build)
