"""Raw data: the settings that every source has, finding its folders, matching paths with files, measuring boxes.

Source: ours. Names are compared in unicode form NFC: archives made on macOS hold names in NFD.
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, FaultyData, normalize_class_name, pluralize, preview, summarize
from pipeline.core.strict import Strict
from pipeline.core.text import relative_path
from pipeline.data.disk import Links, digest
from pipeline.labels.implications import Rules, describe_implied, make_implications
from pipeline.labels.splits import split_rows
from pipeline.labels.table import Dataset, Objects, Table

NO_BOXES = "so that draws by size or by closeness to the centre are not possible"


class Pictures(Strict):
    """Settings of every source that reads pictures from a folder."""

    root: str
    """Folder of the raw data, absolute or from the project's root."""
    size: Annotated[int, Field(ge=1)]
    """Side of the packed images in pixels; the aspect ratio is not kept. The papers: 448."""
    bad_images: Literal["stop", "drop"]
    """What an unusable picture does: `stop`, all of them listed, or `drop`, its row is left out and counted."""
    links: Links
    """Links that lead out of the folder of pictures (itself it may be one): an error (`inside`), or read (`follow`)."""
    max_pixels: Annotated[int, Field(ge=1)]
    """Width times height above which a picture is unusable: a small file may claim any size, and decoding one takes
    3 bytes a pixel and more. Photographs of phones have up to 200 million."""
    parents: dict[str, str | list[str]]
    """Class -> its parents: a label that is present makes its ancestors present, one that is absent its descendants
    absent; {}: none."""
    exclusive: list[list[str]]
    """Sets of classes of which an image shows one at most; []: none."""

    def rules(self) -> Rules:
        """Return parents and exclusive sets, names in their one form."""
        form = normalize_class_name
        lists = {form(child): [names] if isinstance(names, str) else names for child, names in self.parents.items()}
        parents = {child: tuple(map(form, names)) for child, names in lists.items()}
        return Rules(parents, tuple(tuple(map(form, names)) for names in self.exclusive))


class Cut(Pictures):
    """Settings of every source whose makers have a training and a test part, but no val part."""

    val_fraction: Annotated[float, Field(gt=0, lt=1)]
    """Share of the official training part that becomes val. The papers: 0.2."""
    split_seed: Annotated[int, Field(ge=0)]
    """Seed of that cut. The papers: 1200."""


@dataclass(frozen=True)
class Files:
    """Where the raw data lie that a source reads, found before they are read.

    Args:
        folder: Folder of the dataset, by whose name messages and reports call it.
        lists: Lists and labels, by the name under which `disk.digest` counts them.
        pictures: Folders of pictures, by the name under which `disk.digest` counts them.
        faults: What is wrong, gathered from here until the dataset is built, so that all of it is told at once.
    """

    folder: Path
    lists: dict[str, Path]
    pictures: dict[str, Path]
    faults: Faults


S = TypeVar("S", bound="Pictures")
F = TypeVar("F", bound=Files)
C = TypeVar("C")


def make_reader(
    locate: Callable[[S, Path], F], parse: Callable[[F, S], C], build: Callable[[F, C, S], Dataset]
) -> tuple[Callable[[S, Path], Dataset], Callable[[S, Path], str]]:
    """Return `read` and `fingerprint` of a source that takes the steps which `sources.base` describes.

    Args:
        locate: Finds the files, of settings and the project's root.
        parse: Reads lists and labels.
        build: Returns the dataset.
    """

    def read(settings: S, root: Path) -> Dataset:
        """Return the dataset."""
        files = locate(settings, root)
        return build(files, parse(files, settings), settings)

    def fingerprint(settings: S, root: Path) -> str:
        """Return what tells one state of lists and pictures from another."""
        files = locate(settings, root)
        if files.faults:
            read(settings, root)  # raises them, with what else is wrong
        return digest(files.lists, files.pictures, settings.links, root)

    return read, fingerprint


def find_root(settings: Pictures, project: Path) -> Path:
    """Return the folder that a source's settings name; a relative one counts from the project's root.

    Raises:
        SourceError: there is none.
    """
    folder = project / Path(settings.root).expanduser()
    if not folder.is_dir():
        raise SourceError(f"prepare: root: no folder {folder}")
    return folder


def find_dataset(top: Path, wraps: Sequence[str], marker: str, expected: str) -> Path:
    """Return the folder of a dataset at or below a folder; archives differ in what they wrap around it.

    Args:
        top: The folder to look in.
        wraps: Patterns of the folder relative to it, the likeliest first; "." is `top` itself.
        marker: Path of what only a dataset's folder holds.
        expected: What a message says of the folder that should be there.

    Returns:
        The one folder that fits the first pattern that any fits.

    Raises:
        SourceError: there is none, or several fit that pattern.
    """
    for wrap in wraps:
        found = [top] if wrap == "." else sorted(top.glob(wrap))
        found = [folder for folder in found if (folder / marker).exists()]
        if len(found) > 1:
            names = ", ".join(str(folder.relative_to(top)) for folder in found)
            raise SourceError(f"prepare: root: {top} holds several datasets ({names}); name one of them")
        if found:
            return found[0]
    above = next((folder for folder in top.parents if (folder / marker).exists()), None)
    hint = f"it lies inside one, name {above}" if above else expected
    raise SourceError(f"prepare: root: no {marker} in {top}; {hint}")


def split_official(official: Sequence[int] | np.ndarray, settings: Cut) -> np.ndarray:
    """Cut the official training part in train and val by the published rule; the official test part is test.

    Args:
        official: (N,) 0 for the rows of the official training part, 1 for those of the test part.
        settings: Share and seed.

    Returns:
        (N,) uint8, 0 train, 1 val, 2 test, as `Table.split`.
    """
    result = np.full(len(official), 2, np.uint8)
    rows = np.flatnonzero(np.asarray(official) == 0)
    train, val = split_rows(len(rows), settings.val_fraction, settings.split_seed)
    result[rows[train]], result[rows[val]] = 0, 1
    return result


def warn_partial_labels(table: Table) -> list[str]:
    """Return a warning of labels that are not all that apply, which says whether scores can be true ones, or none."""
    if table.exhaustive:
        return []
    told = "val and test are labelled in full, so their scores are true ones"
    if not (table.measurable("val") and table.measurable("test")):
        told = "no score is against the truth; a sample labelled in full, as val and test, would tell"
    return [f"the labels are not exhaustive: what is not given is unknown; {told}"]


class Labels(NamedTuple):
    """Labels of a table, by the names of its fields, with what its report says of those that rules imply."""

    truth: np.ndarray
    scored: np.ndarray
    rules: Rules | None
    implied: np.ndarray | None
    report: dict[str, Any]


def imply_labels(
    classes: tuple[str, ...],
    truth: np.ndarray,
    scored: np.ndarray,
    settings: Pictures,
    images: tuple[Sequence[str], Faults],
) -> Labels:
    """Return labels with all that the rules of the settings imply.

    Args:
        classes: C names.
        truth: (N, C) int8, as in a table.
        scored: (N, C) bool, as in a table.
        settings: The settings.
        images: How messages call each image, and the faults so far.

    Returns:
        The labels.

    Raises:
        SourceError: The rules cannot hold, or labels of an image exclude each other; with all faults so far.
    """
    rules, (places, faults) = settings.rules(), images
    if not rules:
        return Labels(truth, scored, None, None, {})
    implications = make_implications(classes, rules)
    told = np.where(scored, truth * np.int8(2) - np.int8(1), np.int8(0))
    for row in np.flatnonzero(truth.any(axis=1)).tolist() if rules.exclusive else ():
        if pair := implications.find_conflict(truth[row] == 1):
            both = " and ".join(sorted(classes[column] for column in pair))
            faults.add("images have labels that exclude each other (prepare: exclusive)", f"{places[row]} {both}")
    faults.raise_if_any()
    found = implications.imply(told)
    report = {"implied": describe_implied(classes, told, found)}
    return Labels((found.labels == 1).astype(np.int8), found.labels != 0, rules, found.labels != told, report)


def with_rules(data: Dataset, settings: Pictures, name: str) -> Dataset:
    """Return a dataset with all labels that the rules of its settings imply.

    Args:
        data: The dataset.
        settings: The settings.
        name: How messages call the data.

    Returns:
        The dataset; itself without rules.

    Raises:
        SourceError: As `imply_labels`.
    """  # noqa: DOC502  raised there
    table = data.table
    found = imply_labels(table.classes, table.truth, table.scored, settings, (table.paths, Faults(name)))
    labels = {"truth": found.truth, "scored": found.scored, "rules": found.rules, "implied": found.implied}
    return replace(data, table=replace(table, **labels), report=data.report | found.report)


# ---------------------------------------------------------------------------------------------- pictures
def suggest_path(missing: Sequence[str], on_disk: Iterable[str]) -> str:
    """Return how paths should be written that have no file, where files of their names lie in other folders.

    Args:
        missing: Paths that have no file, without two equal ones.
        on_disk: Those that there are, as `disk.scan` gives them.

    Returns:
        What to write for the first path of which one file alone is the path with more folders above it, or with fewer;
        empty where there is none.
    """
    by_name: dict[str, list[str]] = {}
    for file in on_disk:
        by_name.setdefault(file.rpartition("/")[2], []).append(file)
    for name in missing:
        near = by_name.get(name.rpartition("/")[2], [])
        fit = [file for file in near if file.endswith(f"/{name}") or name.endswith(f"/{file}")]
        if len(fit) == 1:
            where = "in subfolders" if len(fit[0]) > len(name) else "higher up"
            return f"the pictures lie {where}: write {fit[0]} for {name}"
    return ""


def relative_paths(entries: Iterable[tuple[str, str]], faults: Faults, file: str) -> list[str]:
    """Return paths in the form of `relative_path`; none where one of them is absolute or climbs, which is noted.

    Args:
        entries: Where each path stands, and the path.
        faults: Get the paths that cannot be used.
        file: What holds the paths.

    Returns:
        The paths, in the order of the entries.
    """
    paths: list[str] = []
    usable = True
    for where, text in entries:
        try:
            paths.append(relative_path(text))
        except ValueError as error:
            faults.add("invalid image paths", f"{where}: {error}", file)
            usable = False
    return paths if usable else []


def match_files(
    wanted: Sequence[str], on_disk: Iterable[str], where: str, bad_images: Literal["stop", "drop"], faults: Faults
) -> list[str]:
    """Find the files that a list names: in NFC, and without case where no file has the very name.

    Args:
        wanted: Relative paths with forward slashes, unique.
        on_disk: Those of the files, as `disk.scan` gives them.
        where: How messages call the place.
        bad_images: The setting: under `drop` a missing file is left to whoever opens it, who counts it as unusable.
        faults: Get files that are missing under `stop`, or all of which are; paths that fit several files, and files
            that fit several paths.

    Returns:
        For each wanted path the one on disk; itself where it is missing.
    """
    exact: dict[str, list[str]] = {}
    loose: dict[str, list[str]] = {}
    for name in on_disk:
        form = unicodedata.normalize("NFC", name)
        exact.setdefault(form, []).append(name)
        loose.setdefault(form.casefold(), []).append(name)
    forms = [unicodedata.normalize("NFC", name) for name in wanted]
    fits = [
        (name, exact.get(form) or loose.get(form.casefold()) or []) for name, form in zip(wanted, forms, strict=True)
    ]
    missing = [name for name, fit in fits if not fit]
    if missing and len(missing) == len(wanted):
        faults.add_error(_no_file_at_all(missing, [name for names in exact.values() for name in names], where))
        return list(wanted)
    users: dict[str, list[str]] = {}
    for name, fit in fits:
        users.setdefault(fit[0] if fit else name, []).append(name)
        if not fit and bad_images == "stop":
            faults.add(f"of {len(wanted)} images have no file", name, where)
        if len(fit) > 1:
            faults.add("images have several files", " = ".join(sorted(fit)), where)
    for file, names in users.items():
        if len(names) > 1:
            faults.add("files stand for several images", f"{file} for {' and '.join(names)}", where)
    return [fit[0] if fit else name for name, fit in fits]


def _no_file_at_all(missing: list[str], on_disk: list[str], where: str) -> FaultyData:
    """Return the error of a list of which no path has a file."""
    other = ", ".join(sorted(on_disk)[:3]) or "no picture"
    hint = suggest_path(missing, on_disk)
    message = (
        f"{where}: {len(missing)} of {len(missing)} images have no file: {preview(missing)}; the folder holds {other}"
    )
    lines = [f"{where}: no file: {name}" for name in missing] + ([f"{where}: {hint}"] if hint else [])
    return FaultyData(message + (f"; {hint}" if hint else ""), lines)


def measure_objects(
    table: Table, rows: np.ndarray, columns: np.ndarray, boxes: np.ndarray, sizes: np.ndarray
) -> tuple[Objects | None, Any, list[str]]:
    """Measure the boxes of objects, each clipped to its picture; those of cells that are not present do not count.

    A box cannot be used if one of its numbers, or of its picture's size, is missing, or if nothing of it lies within
    the picture; it leaves no trace in the measures.

    Args:
        table: The table.
        rows: (M,) row of each box.
        columns: (M,) column of each box.
        boxes: (M, 4) float64 left, top, right and bottom, in pixels from the picture's upper left corner.
        sizes: (M, 2) float64 width and height of each box's picture in pixels.

    Returns:
        The measures, None where no box can be used; for the report, how many were used, which cannot be, and how many
        present cells are left without, or why there are no measures; a warning for each of these two that there is.
    """
    counts = table.truth[rows, columns] == 1
    rows, columns, sizes = rows[counts], columns[counts], sizes[counts]
    corners = boxes[counts].reshape(-1, 2, 2)  # (M, corner, axis)
    whole = np.isfinite(corners).all(axis=(1, 2)) & ((sizes > 0) & (sizes < 2**31)).all(axis=1)
    with np.errstate(invalid="ignore"):
        corners = corners.clip(0, sizes[:, None])
        usable = whole & (corners[:, 1] > corners[:, 0]).all(axis=1)
    if not usable.any():
        return None, f"none that can be used, {NO_BOXES}", []
    lost = [table.paths[row] for row in rows[~usable]]
    rows, columns, corners, sizes = rows[usable], columns[usable], corners[usable], sizes[usable]
    area, offset = np.zeros(table.truth.shape, np.float32), np.ones(table.truth.shape, np.float32)
    np.maximum.at(area, (rows, columns), ((corners[:, 1] - corners[:, 0]) / sizes).prod(axis=1).astype(np.float32))
    away = np.hypot(*(corners.mean(axis=1) - sizes / 2).T) / np.hypot(*sizes.T / 2)
    np.minimum.at(offset, (rows, columns), away.astype(np.float32))
    offset[area == 0] = 0
    bare = int(((table.truth == 1) & (area == 0)).sum())
    warnings = []
    if lost:
        why = "cannot be used, since numbers are missing or nothing lies within the picture"
        warnings.append(f"{pluralize(len(lost), 'box', 'boxes')} {why}: {preview(lost)}")
    if bare:
        have = "has no box and counts" if bare == 1 else "have no box and count"
        warnings.append(f"{pluralize(bare, 'present label')} {have} as having no size")
    report = {"used": len(rows), "unusable": summarize(lost), "present_without_box": bare}
    return Objects(area, offset), report, warnings
