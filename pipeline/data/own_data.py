"""Images of one's own: what the sources that read them share, from the labels of a row to a dataset.

Splits that the data do not name are drawn by `drawn_splits`.
Source: ours.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from pipeline.core.errors import SourceError
from pipeline.core.faults import (
    Faults,
    check_class_names,
    describe_look_alikes,
    find_look_alikes,
    is_class_name,
    normalize_class_name,
    preview,
    summarize,
)
from pipeline.core.text import relative_path, to_printable
from pipeline.data import raw
from pipeline.data.disk import Found
from pipeline.data.drawn_splits import doubt_split, draw_splits
from pipeline.data.names import NO_VALUE, doubt_classes, is_quoted, looks_like_list
from pipeline.data.paths import place_paths
from pipeline.data.raw import Files, Pictures
from pipeline.labels.table import SPLITS, Dataset, Table

Meaning = Literal["absent", "unknown"]
"""What a class is of which the data say nothing outright."""
WORDS = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "test": 2, "testing": 2}
"""What people call the splits, compared without case."""
NUMBER = re.compile(r"\+?(-?)0*([0-9]+)(?:[.,]0*)?")
"""A whole number; pandas writes a fraction of zeros as soon as one of a column is missing, and drops leading zeros."""


class OwnData(Pictures):
    """Settings of every source for images of one's own."""

    classes: Annotated[list[str], Field(min_length=1)] | None
    """Class names in column order; null: those found, sorted."""
    val_fraction: Annotated[float, Field(ge=0, lt=1)]
    """Share of the images that becomes val, where the data name no val image."""
    test_fraction: Annotated[float, Field(ge=0, lt=1)]
    """Share of the images that becomes test, where the data name no test image. Both are shares of what the data give
    to neither, be it train or nothing; a share of 0 draws none."""
    split_seed: Annotated[int, Field(ge=0)]
    """Seed of that draw."""
    unlabelled: str | None
    """Folder of pictures of which nothing is known, relative to `root`: they are trained on and are in no other split.
    null: there is none."""

    @model_validator(mode="after")
    def _something_to_train_on(self) -> Self:
        if self.val_fraction + self.test_fraction >= 1:
            raise ValueError("val_fraction and test_fraction leave nothing to train on")
        if self.unlabelled is not None and getattr(self, "exhaustive", False):
            raise ValueError("unlabelled: of these pictures labels are not all known; set exhaustive to false")
        return self

    def is_unlabelled(self, picture: str) -> bool:
        """Return whether a picture, by its path from `root`, lies in the folder of those of which nothing is known."""
        return self.unlabelled is not None and picture.startswith(f"{self.unlabelled.strip('/')}/")


@dataclass(frozen=True)
class Row:
    """What a source read about one image.

    Args:
        where: Its place in the data, for messages.
        path: Path relative to the root, as it is written there.
        present: Names of the classes that apply, in the form of `normalize_class_name`.
        absent: Names of the classes that do not.
        split: 0 train, 1 val, 2 test; None where the data do not say.
        group: Name of its group, in the form of `normalize_group`; empty: it is alone.
        complete: Whether what it does not name is absent; None: as `Content.closed` says.
        unknown: Names of the classes of which nothing is known, whatever `complete` says.
    """

    where: str
    path: str
    present: tuple[str, ...]
    absent: tuple[str, ...]
    split: int | None
    group: str = ""
    complete: bool | None = None
    unknown: tuple[str, ...] = ()

    def is_unlabelled(self) -> bool:
        """Return whether the data say that nothing is known of the image; splits are not drawn of such."""
        return self.complete is False and not self.present and not self.absent


@dataclass(frozen=True)
class Content:
    """What a source read of images of one's own.

    Args:
        rows: Its rows in any order; one may be there twice if it says the same.
        classes: Names of the classes in column order, in their one form; None: those of the rows, sorted.
        found: What lies in the folder.
        closed: Whether a class that a row names neither present nor absent is absent there; else it is unknown.
        exhaustive: As `Table.exhaustive`.
        report: What the source adds to the report.
        warnings: What it adds to the warnings.
        grouped: Whether the data name groups.
    """

    rows: Sequence[Row]
    classes: tuple[str, ...] | None
    found: Found
    closed: bool
    exhaustive: bool
    report: dict[str, Any]
    warnings: Sequence[str] = ()
    grouped: bool = False


def locate(settings: OwnData, root: Path, file: str | None) -> Files:
    """Return where the pictures are, and the files of labels, named by their paths from their folder, if any.

    Args:
        settings: The settings.
        root: Project root.
        file: Path of the file; or a pattern, as `*/_classes.csv`, of one file for each split.

    Raises:
        SourceError: there is no such folder, or no file fits the pattern.
    """
    folder = raw.find_root(settings, root)
    if file is None or "*" not in file:
        lists = {} if file is None else {Path(file).name: folder / file}
    else:
        lists = {path.relative_to(folder).as_posix(): path for path in sorted(folder.glob(file))}
        if not lists:
            raise SourceError(f"prepare: file: no {file} in {folder}")
    return Files(folder, lists, {".": folder}, Faults(next(iter(lists)) if len(lists) == 1 else folder.name))


def normalize_group(name: str) -> str:
    """Return the name of a group in its one form, unicode NFC without blanks around it; empty for words of no value."""
    form = unicodedata.normalize("NFC", name).strip()
    return "" if form.casefold() in NO_VALUE else form


def check_roles(roles: dict[str, str | None]) -> None:
    """Raise an error where settings give one column or key two roles.

    Args:
        roles: Dotted path of a setting -> the column or key that it names, None where it names none.

    Raises:
        ValueError: As said; the message names both settings.
    """
    first: dict[str, str] = {}
    for role, name in roles.items():
        if name is not None and (other := first.setdefault(normalize_class_name(name), role)) != role:
            raise ValueError(f"{role}: {name!r} is {other} too, and says one thing: name another, or null")


def place_row(row: Row, file: str) -> Row:
    """Return a row of a file that a pattern found: its path counts from the file's folder, whose name is its split."""
    folder = file.rpartition("/")[0]
    split = WORDS.get(folder.partition("/")[0].lower())
    return replace(
        row, path=f"{folder}/{row.path}" if folder else row.path, split=row.split if split is None else split
    )


def wanted_classes(settings: OwnData) -> tuple[str, ...] | None:
    """Return the classes that the settings name, in their one form; names that cannot be used are raised."""
    if settings.classes is None:
        return None
    names = tuple(normalize_class_name(text) for text in settings.classes)
    faults = Faults("prepare: classes")
    check_class_names(names, faults, faults.file, case=False)
    faults.raise_if_any()
    return names


def build(files: Files, content: Content, settings: OwnData) -> Dataset:
    """Return the dataset: rows of train and val come first, then those of test, each by path.

    Args:
        files: Where the data are, with the faults so far.
        content: What was read.
        settings: The settings.

    Returns:
        The dataset; pictures are looked up, not opened.

    Raises:
        SourceError: there are faults: paths that cannot be used, that differ only in case or unicode form, or that have
            no file; a path with two contents; labels that contradict each other or are not in `classes`.
    """
    faults, classes = files.faults, _find_classes(content, settings, files.faults)
    place = place_paths(dict.fromkeys(row.path for row in content.rows), files.folder, content.found.pictures)
    rows = [replace(row, path=place.paths.get(row.path, row.path)) for row in content.rows]
    rows = [*(rows if place.paths else content.rows), *_pool(content.found, settings, faults)]
    kept, repeated = _unique(rows, faults)
    on_disk = _match(kept, content.found.pictures, settings, faults)
    kept, followed = _follow_groups(kept, faults)
    faults.raise_if_any()
    if not classes:
        raise SourceError(f"{faults.file}: no class in it")

    pairs = zip(map(partial(unicodedata.normalize, "NFC"), on_disk), on_disk, kept.items(), strict=True)
    names, pictures, found = zip(*sorted(pairs, key=lambda pair: pair[0]), strict=True)
    entries = [row for _, row in found]
    places = [f"{row.where} {row.path!r}" for row in entries]
    labels = raw.imply_labels(classes, *_cells(entries, classes, content.closed), settings, (places, faults))
    split, how, smaller = _split(labels.truth, entries, settings, content.grouped)
    order = np.argsort(split == 2, kind="stable")  # (N,) test after the others, each by path
    table = Table(
        classes=classes,
        paths=tuple(names[row] for row in order),
        truth=labels.truth[order],
        scored=labels.scored[order],
        split=split[order],
        official=(split[order] == 2).astype(np.uint8),
        exhaustive=content.exhaustive,
        groups=tuple(entries[row].group for row in order) if content.grouped else None,
        rules=labels.rules,
        implied=None if labels.implied is None else labels.implied[order],
    )
    warnings = doubt_classes(classes, named=settings.classes is not None) + _doubt_cells(table) + smaller
    report = _describe(table) | {
        "folder": files.folder.name,
        "repeated_rows": repeated,
        "unlabelled": sum(row.is_unlabelled() for row in entries),
        "split": how,
        **_describe_groups(table, followed),
        **labels.report,
        "paths_read_as": place.told,
        "found_without_case": sum(name != path for name, (path, _) in zip(names, found, strict=True)),
        "pictures_in_no_row": summarize(sorted(set(content.found.pictures).difference(pictures))),
        "warnings": [*warnings, *content.found.warnings(), *content.warnings],
    }
    chosen = [pictures[row] for row in order]
    return Dataset(table, lambda row: files.folder / chosen[row], report | content.report)


def _pool(found: Found, settings: OwnData, faults: Faults) -> list[Row]:
    """Return a row for each picture of the folder of which nothing is known; an empty one is noted."""
    pool = [picture for picture in found.pictures if settings.is_unlabelled(picture)]
    if settings.unlabelled is not None and not pool:
        faults.add_error(SourceError(f"prepare: unlabelled: no picture in a folder {settings.unlabelled} of the root"))
    return [Row("unlabelled picture", picture, (), (), 0, complete=False) for picture in pool]


def _find_classes(content: Content, settings: OwnData, faults: Faults) -> tuple[str, ...]:
    """Return the classes, those of the rows and of parents where nobody names them; what is wrong with labels is noted.

    Raises:
        SourceError: there is no row.
    """
    if not content.rows:
        faults.raise_if_any()
        raise SourceError(f"{faults.file}: no image in it")
    _check_labels(content.rows, content.classes, settings.classes is not None, faults)
    if settings.classes is not None and content.classes is not None:
        return content.classes
    found = content.classes or {label for row in content.rows for label in (*row.present, *row.absent)}
    return tuple(sorted({*found, *settings.rules().all_parents()}))


def _describe(table: Table) -> dict[str, Any]:
    """Return what a report says of a table."""
    positives, known = int(table.truth.sum()), int(table.scored.sum())
    return {
        "images": len(table.paths),
        "without_positive": summarize([table.paths[row] for row in np.flatnonzero(~table.truth.any(axis=1))]),
        "exhaustive": table.exhaustive,
        "cells": {"present": positives, "absent": known - positives, "unknown": table.truth.size - known},
    }


def _describe_groups(table: Table, followed: int) -> dict[str, Any]:
    """Return what a report says of groups, where the data name any."""
    if table.groups is None:
        return {}
    sizes = Counter(filter(None, table.groups))
    largest = min(sizes, key=lambda name: (-sizes[name], name), default=None)
    several = [size for size in sizes.values() if size > 1]
    return {
        "groups": {
            "of_several_images": len(several),
            "images_in_them": sum(several),
            "largest": None if largest is None else {"name": to_printable(largest), "images": sizes[largest]},
            "images_without_a_group": table.groups.count(""),
            "images_in_the_split_of_their_group": followed,
        }
    }


def _doubt_cells(table: Table) -> list[str]:
    """Return warnings of what is unknown where all should be known, and of classes that nothing is told from."""
    warnings = []
    unknown = int((~table.scored).sum())
    if table.exhaustive and unknown:
        warnings.append(
            f"exhaustive, but {unknown:,} of {table.truth.size:,} cells are neither present nor absent: give 0 for "
            "absent, or set exhaustive: false"
        )
    if len(table.classes) == 1 and not table.exhaustive and table.truth.all():
        warnings.append(f"every image has the one class, {table.classes[0]}: there is nothing to tell it from")
    absent = (table.scored & (table.truth == 0)).any(axis=0)
    lone = [label for label, some in zip(table.classes, absent, strict=True) if not some]
    if table.exhaustive and lone:
        warnings.append(f"no image is known to lack {preview(lone)}: nothing can be scored there")
    return warnings


def _match(kept: dict[str, Row], pictures: Sequence[str], settings: OwnData, faults: Faults) -> list[str]:
    """Return the picture files of paths; what is missing is noted with its row.

    Raises:
        SourceError: no path has a file, or some have several, and there is no other fault, which comes first.
    """
    of_files = Faults(faults.file)
    files = raw.match_files(list(kept), pictures, faults.file, "drop", of_files)
    if of_files:
        faults.raise_if_any()
        of_files.raise_if_any()
    if settings.bad_images == "stop":
        on_disk = set(pictures)
        missing = [path for path, file in zip(kept, files, strict=True) if file not in on_disk]
        hint = raw.suggest_path(missing, pictures)
        for path in missing:
            kind = "paths have no picture file" + (f" ({hint})" if hint else "")
            faults.add(kind, f"{kept[path].where} {path!r}")
    return files


def _check_labels(rows: Sequence[Row], classes: tuple[str, ...] | None, named: bool, faults: Faults) -> None:
    """Note labels that cannot name a class, are lists, are unknown, look alike, or are both present and absent."""
    known = None if classes is None else set(classes)
    first: dict[str, str] = {}
    good: set[str] = set()
    for row in rows:
        for label in (*row.present, *row.absent):
            first.setdefault(label, row.where)
            if label in good:
                continue
            if not is_class_name(label):
                faults.add("invalid class names", f"{row.where} {label!r}")
            elif known is not None and label not in known:
                faults.add("labels are not in classes", f"{row.where} {label!r}")
            elif looks_like_list(label):
                how = "in a csv: labels: {kind: lists}; in JSON a list without quotes around it"
                faults.add(f"class names are lists written as text ({how})", f"{row.where} {label!r}")
            elif is_quoted(label):
                faults.add("class names stand in quotes (write them without)", f"{row.where} {label}")
            else:
                good.add(label)
        if row.present and row.absent and (both := set(row.present).intersection(row.absent)):
            faults.add("images have labels both present and absent", f"{row.where} {', '.join(sorted(both))}")
    how = "write one of them everywhere; if they differ in case alone and are two classes, list them: prepare: classes"
    for pair in find_look_alikes(first, case=not named):
        where = " and ".join(first[name] for name in pair)
        faults.add(f"class names look alike ({how})", f"{describe_look_alikes(pair)} ({where})")


def _unique(rows: Sequence[Row], faults: Faults) -> tuple[dict[str, Row], int]:
    """Return one row for each path, in the form of `relative_path`, and the number of rows that repeat another."""
    seen: dict[str, tuple[str, str]] = {}  # without case -> path, as it is spelled
    kept: dict[str, Row] = {}
    repeated = 0
    for row in rows:
        try:
            path = relative_path(row.path)
        except ValueError as error:
            absolute = "is absolute" in str(error)
            how = " (write them from the folder of the pictures, such as dog/x.jpg)" if absolute else ""
            faults.add(f"invalid paths{how}", f"{row.where} {error}")
            continue
        if path != path.strip() or any(unicodedata.category(letter) == "Cs" for letter in path):
            faults.add("paths have blanks around them or are not UTF-8", f"{row.where} {row.path!r}")
            continue
        spelled = "/".join(part for part in row.path.replace("\\", "/").split("/") if part not in ("", "."))
        first, form = seen.setdefault(path.lower(), (path, spelled))
        if form != spelled:
            both = f"{kept[first].where} {ascii(form)} and {row.where} {ascii(spelled)}"
            faults.add("paths differ only in case or unicode form", both)
            continue
        other = kept.setdefault(path, row)
        if other is row:
            continue
        repeated += 1
        if _said(other) != _said(row):
            faults.add(
                "duplicate paths with different labels, splits or groups", f"{other.where} and {row.where} {path!r}"
            )
    return kept, repeated


def _said(row: Row) -> tuple[Any, ...]:
    """Return what a row says of its image, whatever the order in which it says it."""
    return row.split, row.group, row.complete, set(row.present), set(row.absent), set(row.unknown)


def _cells(rows: Sequence[Row], classes: tuple[str, ...], closed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return (N, C) int8 truth and (N, C) bool scored."""
    column = {label: number for number, label in enumerate(classes)}
    truth = np.zeros((len(rows), len(classes)), np.int8)
    scored = np.full(truth.shape, closed)
    for number, row in enumerate(rows):
        if row.complete is not None:
            scored[number] = row.complete
        truth[number, [column[label] for label in row.present]] = 1
        scored[number, [column[label] for label in (*row.present, *row.absent)]] = True
        scored[number, [column[label] for label in row.unknown if label in column]] = False
    return truth, scored


def _check_groups(rows: Iterable[Row], faults: Faults) -> None:
    """Note names of groups that differ in writing alone: each would be a group, and splits would cut the one thing."""
    first: dict[str, Row] = {}
    for row in rows:
        if row.group:
            first.setdefault(row.group, row)
    numbers: dict[tuple[str | Any, ...], str] = {}
    pairs = find_look_alikes(first, case=False)
    for name in first:
        if (number := NUMBER.fullmatch(name)) and (other := numbers.setdefault(number.groups(), name)) != name:
            pairs.append((other, name))
    for one, other in pairs:
        where = f"{first[one].where} and {first[other].where}"
        how = "write one of them everywhere; if they are two groups, put another letter before each"
        faults.add(
            f"names of groups differ in writing alone ({how})", f"{describe_look_alikes((one, other))} ({where})"
        )


def _follow_groups(kept: dict[str, Row], faults: Faults) -> tuple[dict[str, Row], int]:
    """Give rows that name no split that of their group; a group that has two names or splits is noted.

    Returns:
        The rows by path, and how many of them were given a split.
    """
    _check_groups(kept.values(), faults)
    first: dict[str, Row] = {}  # group -> its first row that names a split
    for row in kept.values():
        if row.group and row.split is not None and (other := first.setdefault(row.group, row)).split != row.split:
            both = f"{other.where} {SPLITS[other.split or 0]} and {row.where} {SPLITS[row.split]}"
            faults.add("groups are cut by splits (give all images of a group one split)", f"{row.group!r}: {both}")
    followed = {
        path: replace(row, split=first[row.group].split)
        for path, row in kept.items()
        if row.split is None and row.group in first
    }
    return kept | followed, len(followed)


def _split(
    truth: np.ndarray, rows: Sequence[Row], settings: OwnData, grouped: bool
) -> tuple[np.ndarray, dict[str, Any], list[str]]:
    """Return (N,) uint8 splits, those drawn that the rows do not name, for the report which these are, and warnings."""
    split = np.array([row.split or 0 for row in rows], np.uint8)
    named = {row.split for row in rows if not row.is_unlabelled()} - {None}
    shares = (0.0 if 1 in named else settings.val_fraction, 0.0 if 2 in named else settings.test_fraction)
    free = np.array([number for number, row in enumerate(rows) if not row.split and not row.is_unlabelled()], np.int64)
    groups = [rows[row].group for row in free.tolist()] if grouped else None
    split[free] = draw_splits(truth[free], groups, shares, settings.split_seed)
    drawn = {label: share for label, share in zip(SPLITS[1:], shares, strict=True) if share > 0}
    given = [SPLITS[part] for part in range(3) if part in named]
    how = {"given": given, "drawn": drawn, "seed": settings.split_seed}
    return split, how, doubt_split(split[free], drawn, truth.sum(axis=0), grouped)
