"""Images of one's own: what the sources `csv`, `json` and `folder` share, from the labels of a row to a dataset.

Splits that the data do not name are drawn by stratification over classes: rows are dealt class by class, from the
rarest on, to the split that lacks most of that class.
Source: the splits follow Sechidis, Tsoumakas, Vlahavas, "On the Stratification of Multi-Label Data", ECML PKDD 2011.
Differs: a class's shares are whole numbers, at least 1 in every split for a class of 3 rows or more, and a split that
lacks the class whole is served first; the authors' shares are fractions, which leave rare classes out of small splits.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from pipeline.core import seeds
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
from pipeline.core.text import relative_path
from pipeline.data import raw
from pipeline.data.disk import Found
from pipeline.data.names import doubt_classes, is_quoted, looks_like_list
from pipeline.data.paths import place_paths
from pipeline.data.raw import Files, Pictures
from pipeline.labels.table import SPLITS, Dataset, Table

WORDS = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "test": 2, "testing": 2}
"""What people call the splits, compared without case."""
MEANT = 0.05  # a drawn split may differ so much from its share by the counts of few images
SPREAD = 3  # rows of a class from which on every split gets one


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
        present: Names of the classes that apply, in the form of `normalize_class_name`.
        absent: Names of the classes that do not.
        split: 0 train, 1 val, 2 test; None where the data do not say.
    """

    where: str
    path: str
    present: tuple[str, ...]
    absent: tuple[str, ...]
    split: int | None


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
    """

    rows: Sequence[Row]
    classes: tuple[str, ...] | None
    found: Found
    closed: bool
    exhaustive: bool
    report: dict[str, Any]
    warnings: Sequence[str] = ()


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
    faults, classes = files.faults, content.classes
    if not content.rows:
        faults.raise_if_any()
        raise SourceError(f"{faults.file}: no image in it")
    _check_labels(content.rows, classes, settings.classes is not None, faults)
    if classes is None:
        classes = tuple(sorted({label for row in content.rows for label in (*row.present, *row.absent)}))
    place = place_paths(dict.fromkeys(row.path for row in content.rows), files.folder, content.found.pictures)
    rows = [replace(row, path=place.paths.get(row.path, row.path)) for row in content.rows]
    kept, repeated = _unique(rows if place.paths else content.rows, faults)
    on_disk = _match(kept, content.found.pictures, settings, faults)
    faults.raise_if_any()
    if not classes:
        raise SourceError(f"{faults.file}: no class in it")

    pairs = zip(map(partial(unicodedata.normalize, "NFC"), on_disk), on_disk, kept.items(), strict=True)
    names, pictures, found = zip(*sorted(pairs, key=lambda pair: pair[0]), strict=True)
    entries = [row for _, row in found]
    truth, scored = _cells(entries, classes, content.closed)
    split, how = _split(truth, entries, settings)
    smaller = _doubt_split(split[[not row.split for row in entries]], how["drawn"], truth.sum(axis=0))
    order = np.argsort(split == 2, kind="stable")  # (N,) test after the others, each by path
    table = Table(
        classes=classes,
        paths=tuple(names[row] for row in order),
        truth=truth[order],
        scored=scored[order],
        split=split[order],
        official=(split[order] == 2).astype(np.uint8),
        exhaustive=content.exhaustive,
    )
    warnings = doubt_classes(classes, named=settings.classes is not None) + _doubt_cells(table) + smaller
    report = _describe(table) | {
        "folder": files.folder.name,
        "repeated_rows": repeated,
        "split": how,
        "paths_read_as": place.told,
        "found_without_case": sum(name != path for name, (path, _) in zip(names, found, strict=True)),
        "pictures_in_no_row": summarize(sorted(set(content.found.pictures).difference(pictures))),
        "warnings": [*warnings, *content.found.warnings(), *content.warnings],
    }
    chosen = [pictures[row] for row in order]
    return Dataset(table, lambda row: files.folder / chosen[row], report | content.report)


def _describe(table: Table) -> dict[str, Any]:
    """Return what a report says of a table."""
    positives, known = int(table.truth.sum()), int(table.scored.sum())
    return {
        "images": len(table.paths),
        "without_positive": summarize([table.paths[row] for row in np.flatnonzero(~table.truth.any(axis=1))]),
        "exhaustive": table.exhaustive,
        "cells": {"present": positives, "absent": known - positives, "unknown": table.truth.size - known},
    }


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


def _doubt_split(dealt: np.ndarray, drawn: dict[str, float], counts: np.ndarray) -> list[str]:
    """Return warnings of drawn splits that are far smaller than asked, since rare classes go to train first."""
    rare = int(((counts > 0) & (counts < SPREAD)).sum())
    warnings = []
    for label, share in drawn.items() if len(dealt) >= 1 / MEANT else ():
        found = float((dealt == SPLITS.index(label)).mean())
        if rare and found < 0.8 * share - MEANT:
            warnings.append(
                f"{label} has {found:.0%} of the images, not the {share:.0%} asked for: train keeps one image of each "
                f"of {rare:,} classes of fewer than {SPREAD}; name a split of your own, or join or drop rare classes"
            )
    return warnings


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
        if other.split != row.split or any(
            set(ours) != set(theirs) for ours, theirs in ((row.present, other.present), (row.absent, other.absent))
        ):
            faults.add("duplicate paths with different labels or splits", f"{other.where} and {row.where} {path!r}")
    return kept, repeated


def _cells(rows: Sequence[Row], classes: tuple[str, ...], closed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return (N, C) int8 truth and (N, C) bool scored."""
    column = {label: number for number, label in enumerate(classes)}
    truth = np.zeros((len(rows), len(classes)), np.int8)
    scored = np.full(truth.shape, closed)
    for number, row in enumerate(rows):
        truth[number, [column[label] for label in row.present]] = 1
        scored[number, [column[label] for label in (*row.present, *row.absent)]] = True
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
