"""Images of one's own: what the sources `csv`, `json` and `folder` share, from the labels of a row to a dataset.

Splits that the data do not name are drawn by stratification over classes: rows are dealt class by class, from the
rarest on, to the split that lacks most of that class.
Source: the splits follow Sechidis, Tsoumakas, Vlahavas, "On the Stratification of Multi-Label Data", ECML PKDD 2011.
Differs: a class's shares are whole numbers, at least 1 in every split for a class of 3 rows or more, and a split that
lacks the class whole is served first; the authors' shares are fractions, which leave rare classes out of small splits.
"""

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from pipeline.core import seeds
from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, class_name, counted, number, some, usable
from pipeline.core.text import relative_path
from pipeline.data import raw
from pipeline.data.raw import Pictures
from pipeline.labels.table import SPLITS, Dataset, Table

WORDS = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "test": 2, "testing": 2}
"""What people call the splits, compared without case."""
NO_CLASS = {"label", "labels", "target", "targets", "tag", "tags", "annotation", "annotations", "image", "images"}
NO_CLASS |= {"class", "classes", "category", "categories"}
"""What people call columns and folders rather than classes, compared without case."""
SEPARATORS = (";", "|", ",")
"""Marks that people put between names."""
SPREAD = 3  # rows of a class from which on every split gets one
RARE = 2  # images; a class of no more may be another one misspelt
LONG = 5  # letters from which on a name like another is rarely a word of its own, as car is beside cat
MANY = 500  # classes above which that is not looked for: each name is compared with every other
NUMBERING = re.compile(r"[\W_]*(?<![^\W_])([^\W_]|[ivx]+)(?![^\W_])")
"""A letter or Roman number that stands alone: it tells names apart."""


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

    @model_validator(mode="after")
    def _something_to_train_on(self) -> Self:
        if self.val_fraction + self.test_fraction >= 1:
            raise ValueError("val_fraction and test_fraction leave nothing to train on")
        return self


@dataclass(frozen=True)
class Row:
    """What a source read about one image.

    Args:
        where: Its place in the data, for messages.
        path: Path relative to the root, as it is written there.
        present: Names of the classes that apply, in the form of `complaints.class_name`.
        absent: Names of the classes that do not.
        split: 0 train, 1 val, 2 test; None where the data do not say.
    """

    where: str
    path: str
    present: tuple[str, ...]
    absent: tuple[str, ...]
    split: int | None


def separates(mark: str, values: Iterable[str]) -> bool:
    """Tell whether a mark stands between names, not within one.

    Args:
        mark: The mark.
        values: Texts of names.

    Returns:
        Whether some part of a text that the mark parts is in a text with other parts too.
    """
    split = {frozenset(part.strip() for part in value.split(mark)) for value in values}
    seen = Counter(part for parts in split for part in parts)
    return any(seen[part] > 1 for parts in split if len(parts) > 1 for part in parts)


def wanted(settings: OwnData) -> tuple[str, ...] | None:
    """Return the classes that the settings name, in the form of `complaints.class_name`.

    Raises:
        SourceError: a name cannot be used, or is there twice.
    """
    if settings.classes is None:
        return None
    names = tuple(class_name(text) for text in settings.classes)
    if odd := [text for text in names if not usable(text)]:
        raise SourceError(f"prepare: classes: {odd[0]!r} is no name")
    if repeated := sorted(text for text, count in Counter(names).items() if count > 1):
        raise SourceError(f"prepare: classes: {', '.join(repeated)} named twice")
    return names


def dataset(
    settings: OwnData,
    folder: Path,
    rows: Sequence[Row],
    faults: Faults,
    *,
    classes: tuple[str, ...] | None,
    found: Sequence[str],
    closed: bool,
    exhaustive: bool,
) -> Dataset:
    """Make the dataset of the rows that a source read; pictures are looked up, not opened.

    The order of the rows given does not matter: those of train and val come first, then those of test, each by path.
    A row may be there twice if it says the same.

    Args:
        settings: The settings.
        folder: The raw folder.
        rows: What was read.
        faults: What was found wrong so far; what is found here joins it.
        classes: Names of the classes in column order, as `complaints.class_name` gives them; None: those of the rows,
            sorted.
        found: Picture files in the folder, as `layout.pictures` lists them.
        closed: Whether a class that a row names neither present nor absent is absent there; else it is unknown.
        exhaustive: As `Table.exhaustive`.

    Returns:
        The dataset; its report counts images, cells, splits and pictures that no row names.

    Raises:
        SourceError: there are faults: paths that cannot be used, that differ only in case or unicode form, or that have
            no file; a path with two contents; labels that contradict each other or are not in `classes`.
    """
    if not rows:
        faults.stop()
        raise SourceError(f"{faults.file}: no image in it")
    _check_labels(rows, classes, faults)
    if classes is None:
        classes = tuple(sorted({label for row in rows for label in (*row.present, *row.absent)}))
    kept, repeated = _unique(rows, faults)
    paths = list(kept)
    try:
        files = raw.match(paths, found, faults.file, "drop") if paths else []
    except SourceError:
        faults.stop()  # what is wrong with the rows comes first
        raise
    disk = set(found)
    if settings.bad_images == "stop":
        missing = [path for path, file in zip(paths, files, strict=True) if file not in disk]
        hint = raw.elsewhere(missing, found)
        for path in missing:
            kind = "paths have no picture file" + (f" ({hint})" if hint else "")
            faults.add(kind, f"{kept[path].where} {path!r}")
    faults.stop()
    if not classes:
        raise SourceError(f"{faults.file}: no class in it")

    names = [unicodedata.normalize("NFC", file) for file in files]
    without_case = sum(ours != theirs for ours, theirs in zip(names, paths, strict=True))
    order = sorted(range(len(paths)), key=names.__getitem__)
    entries = [kept[paths[row]] for row in order]
    truth, scored = _cells(entries, classes, closed)
    split, how = _split(truth, entries, settings)
    place = np.argsort(split == 2, kind="stable")  # (N,) test after the others, each by path
    files = [files[order[row]] for row in place]
    table = Table(
        classes=classes,
        paths=tuple(names[order[row]] for row in place),
        truth=truth[place],
        scored=scored[place],
        split=split[place],
        official=(split[place] == 2).astype(np.uint8),
        exhaustive=exhaustive,
    )
    bare = [table.paths[row] for row in np.flatnonzero(~table.truth.any(axis=1))]
    positives, known = int(table.truth.sum()), int(table.scored.sum())
    warnings = _doubts(classes, truth.sum(axis=0).tolist(), named=settings.classes is not None)
    if exhaustive and (open_ := table.truth.size - known):
        warnings.append(
            f"exhaustive, but {open_:,} of {table.truth.size:,} cells are neither present nor absent: give 0 for "
            "absent, or set exhaustive: false"
        )
    if len(classes) == 1 and not exhaustive and table.truth.all():
        warnings.append(f"every image has the one class, {classes[0]}: there is nothing to tell it from")
    absent = (table.scored & (table.truth == 0)).any(axis=0)
    lone = [label for label, told in zip(classes, absent, strict=True) if not told]
    if exhaustive and lone:
        warnings.append(f"no image is known to lack {some(lone)}: a score of 100 there says nothing")
    warnings += raw.left_out(folder)
    report = {
        "folder": folder.name,
        "images": len(paths),
        "repeated_rows": repeated,
        "without_positive": counted(bare),
        "exhaustive": exhaustive,
        "cells": {"present": positives, "absent": known - positives, "unknown": table.truth.size - known},
        "split": how,
        "found_without_case": without_case,
        "pictures_in_no_row": counted(sorted(disk.difference(files))),
        "warnings": warnings,
    }
    return Dataset(table, lambda row: folder / files[row], report)


def stratify(truth: np.ndarray, val_fraction: float, test_fraction: float, seed: int) -> np.ndarray:
    """Draw train, val and test so that each class is spread over them.

    Classes from the rarest on; the rows of a class that no rarer one has dealt are dealt in random order, each to the
    split that has no row of the class but should, else to the one that lacks most of the class, else of all rows. Of a
    class of fewer than 3 rows one is dealt to train; what then is left, and rows without a class, fill up the splits.
    So every class is in train, and one of 3 rows or more in every split of a share above 0, unless rarer classes have
    dealt its rows otherwise.

    Args:
        truth: (N, C), 1 present, 0 absent or unknown; the rows in an order that does not depend on how they came.
        val_fraction: Share of val, in [0, 1).
        test_fraction: Share of test, in [0, 1).
        seed: Seed of the draw.

    Returns:
        (N,) uint8, 0 train, 1 val, 2 test.
    """
    n = len(truth)
    labels = [np.flatnonzero(row).tolist() for row in truth]
    counts = [int(count) for count in truth.sum(axis=0)]
    shares = (val_fraction, test_fraction)
    quota = [_quota(count, shares) for count in counts]
    left = [list(parts) for parts in quota]  # of each class, rows that each split lacks
    room = _quota(n, shares)
    split = np.full(n, len(SPLITS), np.uint8)  # dealt to none

    def deal(row: int, part: int) -> None:
        split[row] = part
        room[part] -= 1
        for column in labels[row]:
            left[column][part] -= 1

    shuffled = seeds.numpy_generator(seed, "own_data", "split").permutation(n)
    for column in sorted(range(len(counts)), key=counts.__getitem__):
        lacks, whole = left[column], quota[column]
        for row in shuffled[truth[shuffled, column] == 1].tolist():
            if split[row] < len(SPLITS):
                continue
            if counts[column] >= SPREAD:
                deal(row, max(range(3), key=lambda part: (0 < whole[part] == lacks[part], lacks[part], room[part])))
            elif lacks[0] == whole[0]:
                deal(row, 0)
    for row in shuffled.tolist():
        if split[row] == len(SPLITS):
            deal(row, max(range(3), key=room.__getitem__))
    return split


def _quota(count: int, shares: tuple[float, float]) -> list[int]:
    """Return how many of some rows train, val and test get: at least one in train, and from `SPREAD` on in each."""
    val, test = (max(round(share * count), int(share > 0 and count >= SPREAD)) for share in shares)
    while count and val + test >= count:
        val, test = (val - 1, test) if val >= test else (val, test - 1)
    return [count - val - test, val, test]


def _doubts(classes: tuple[str, ...], counts: list[int], named: bool) -> list[str]:
    """Return warnings about the names of classes of so many images; those that settings name are doubted least."""
    cased: dict[str, list[str]] = {}
    for label in classes:
        cased.setdefault(label.casefold(), []).append(label)
    alike = [label for labels in cased.values() if len(labels) > 1 for label in labels]
    warnings = []
    if alike:
        warnings.append(f"classes differ only in case: {some(alike)} - one class? write one of them")
    if named:
        return warnings
    if odd := _misspelt(dict(zip(classes, counts, strict=True))):
        warnings.append(f"{some(odd)} (list prepare: classes to silence this)")
    if numbers := [label for label in classes if re.fullmatch(r"[+-]?\d+(\.\d*)?", label)]:
        warnings.append(f"classes are called {some(numbers)}: if these numbers stand for names, write the names")
    if odd := [label for label in classes if label.lower() in NO_CLASS]:
        warnings.append(f"classes are called {some(odd)}: if that is no class, list the classes (prepare: classes)")
    for mark in SEPARATORS:
        if separates(mark, classes):
            joined = [repr(label) for label in classes if mark in label]
            warnings.append(f"each of these is one class, but {mark!r} seems to stand between names: {some(joined)}")
    return warnings


def _misspelt(counts: dict[str, int]) -> list[str]:
    """Return a doubt about each class of few images whose name is that of a class of more but for one letter or two.

    Names of fewer than `LONG` letters, and those that differ only in what numbers them, are not doubted, and none of
    more than `MANY` classes.
    """
    if len(counts) > MANY:
        return []
    words = {label: label.casefold() for label in counts if sum(map(str.isalpha, label)) >= LONG}
    frequent = {word: label for label, word in words.items() if counts[label] > RARE}
    doubts = []
    for label, word in words.items():
        count = counts[label]
        if count > RARE or word in frequent:
            continue
        # a letter changed, missing or too much, or two that changed places
        near = difflib.get_close_matches(word, frequent, 1, 1 - 1 / len(word) - 1e-9)
        if near and _unnumbered(near[0]) != _unnumbered(word):
            doubts.append(f"{label} ({number(count, 'image')}): a misspelling of {frequent[near[0]]}?")
    return doubts


def _unnumbered(word: str) -> str:
    """Return a word without what numbers it."""
    return NUMBERING.sub("", re.sub(r"\d", "", word)).strip()


def _check_labels(rows: Sequence[Row], classes: tuple[str, ...] | None, faults: Faults) -> None:
    """Note labels that cannot name a class, that are unknown, and that are both present and absent."""
    known = None if classes is None else set(classes)
    good: set[str] = set()
    for row in rows:
        for label in (*row.present, *row.absent):
            if label in good:
                continue
            if not usable(label):
                faults.add("labels are no names", f"{row.where} {label!r}")
            elif known is not None and label not in known:
                faults.add("labels are not in classes", f"{row.where} {label!r}")
            else:
                good.add(label)
        if row.present and row.absent and (both := set(row.present).intersection(row.absent)):
            faults.add("images have labels both present and absent", f"{row.where} {', '.join(sorted(both))}")


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
            faults.add(f"paths cannot be used{how}", f"{row.where} {error}")
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
        if other.split != row.split or any(
            set(ours) != set(theirs) for ours, theirs in ((row.present, other.present), (row.absent, other.absent))
        ):
            faults.add(
                "paths are there twice, with different labels or splits", f"{other.where} and {row.where} {path!r}"
            )
    return kept, repeated


def _cells(rows: Sequence[Row], classes: tuple[str, ...], closed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return (N, C) int8 truth and (N, C) bool scored."""
    column = {label: number for number, label in enumerate(classes)}
    truth = np.zeros((len(rows), len(classes)), np.int8)
    scored = np.full(truth.shape, closed)
    for position, row in enumerate(rows):
        truth[position, [column[label] for label in row.present]] = 1
        scored[position, [column[label] for label in (*row.present, *row.absent)]] = True
    return truth, scored


def _split(truth: np.ndarray, rows: Sequence[Row], settings: OwnData) -> tuple[np.ndarray, dict[str, Any]]:
    """Return (N,) uint8 splits, those drawn that the rows do not name, and for the report which these are."""
    split = np.array([row.split or 0 for row in rows], np.uint8)
    named = {row.split for row in rows} - {None}
    shares = [
        0.0 if part in named else share for part, share in ((1, settings.val_fraction), (2, settings.test_fraction))
    ]
    free = np.flatnonzero(split == 0)
    split[free] = stratify(truth[free], shares[0], shares[1], settings.split_seed)
    return split, {
        "given": [SPLITS[part] for part in range(3) if part in named],
        "drawn": {label: share for label, share in zip(SPLITS[1:], shares, strict=True) if share > 0},
        "seed": settings.split_seed,
    }
