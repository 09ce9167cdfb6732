"""The table of a dataset: which images, which classes, the whole truth, and which row belongs to which split.

Every source turns its own layout into one `Dataset`: a `Table`, a way to each row's picture, a report of what was read.
Source: ours. Files are HDF5, one dataset per field, in table row order.
"""

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core import hdf5
from pipeline.core.errors import FileError
from pipeline.core.text import CONTROL, relative_path
from pipeline.labels.groups import find_cut, number_groups
from pipeline.labels.implications import Rules

ROW_FIELDS = ("truth", "scored", "split", "official")
SPLITS = ("train", "val", "test")
"""Names of the splits; their positions are the numbers of `Table.split`."""


@dataclass(frozen=True)
class Table:
    """What is known about a dataset of N images and C classes.

    Args:
        classes: C names, unique, not empty, in column order.
        paths: N relative paths with forward slashes, unicode NFC, unique, in row order; they name images in reports
            and predictions.
        truth: (N, C) int8, 1 present, 0 absent; 0 where `scored` is False.
        scored: (N, C) bool, False for a cell whose truth is not known (a difficult VOC cell under the policy
            "ignore"): left out of metrics and audits.
        split: (N,) uint8, 0 train, 1 val, 2 test.
        official: (N,) uint8, 0 where the dataset's makers count the image as training, 1 where as test; the
            literature's protocol draws labels per official part, before the training part is cut in train and val.
        exhaustive: Whether the labels that were given are all that apply. False for data of one's own with some labels
            an image: what is not scored is unknown there, no rate over it can be measured, and labels are not drawn.
        groups: N names of groups of images of one thing (a burst, a video, a patient), empty for an image that is
            alone; None where the data name none. No split cuts a group.
        rules: What labels imply of others, which truth and scored hold already; None where nobody gave any.
        implied: (N, C) bool, labels that stand there by the rules, not because somebody gave them; None without rules.
        corrected: (N, C) int8, what people answered when they were asked (`corrections`), which truth and scored hold
            already: 1 present, -1 absent, 0 not asked. Where the labels are not exhaustive, an answer that the data
            give too is 0: it is known without it. None without corrections.

    Raises:
        ValueError: A field has the wrong type, shape or values; the message names the field and the first offender.
    """

    classes: tuple[str, ...]
    paths: tuple[str, ...]
    truth: np.ndarray
    scored: np.ndarray
    split: np.ndarray
    official: np.ndarray
    exhaustive: bool = True
    groups: tuple[str, ...] | None = None
    rules: Rules | None = None
    implied: np.ndarray | None = None
    corrected: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            ValueError: As the class says.
        """
        _check_names("classes", self.classes)
        _check_names("paths", self.paths)
        for path in self.paths:
            if (form := relative_path(path)) != path:
                raise ValueError(f"table: paths: {path!r} is not in the form of relative_path, {form!r}")
        self._check_arrays()
        self._check_values()

    def _check_arrays(self) -> None:
        """Check types and shapes.

        Raises:
            ValueError: One is wrong.
        """
        n, c = len(self.paths), len(self.classes)
        for name, kind, shape in (
            ("truth", np.int8, (n, c)),
            ("scored", np.bool_, (n, c)),
            ("split", np.uint8, (n,)),
            ("official", np.uint8, (n,)),
            *([("implied", np.bool_, (n, c))] if self.rules is not None or self.implied is not None else []),
            *([("corrected", np.int8, (n, c))] if self.corrected is not None else []),
        ):
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != kind:
                actual = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
                raise ValueError(f"table: {name} is {actual}, expected an array of {np.dtype(kind)}")
            if array.shape != shape:
                raise ValueError(f"table: {name} has shape {array.shape}, expected {shape} (paths, classes)")

    def _check_values(self) -> None:
        """Check ranges, and that fields agree.

        Raises:
            ValueError: A value is out of its range, or contradicts another field.
        """
        for name, highest in (("truth", 1), ("split", len(SPLITS) - 1), ("official", 1)):
            array = getattr(self, name)
            if array.size and (array.min() < 0 or array.max() > highest):
                index = tuple(int(i) for i in np.argwhere((array < 0) | (array > highest))[0])
                path = self.paths[index[0]]
                raise ValueError(f"table: {name} holds {array[index]} at {index} ({path}), expected 0 to {highest}")
        if self.corrected is not None:
            labels = np.where(self.scored, self.truth * np.int8(2) - np.int8(1), np.int8(0))
            if (other := np.argwhere((self.corrected != 0) & (self.corrected != labels))).size:
                path, name = self.paths[other[0, 0]], self.classes[other[0, 1]]
                raise ValueError(f"table: corrected is not what truth and scored say, for {path} and class {name}")
        unknown = np.argwhere(~self.scored & (self.truth == 1))
        if len(unknown):
            row, column = unknown[0]
            cell = f"{self.paths[row]} and class {self.classes[column]}"
            raise ValueError(f"table: truth is 1 where scored is False, for {cell}")
        leaked = np.flatnonzero((self.official == 1) & (self.split != 2))
        if len(leaked):
            split_name = SPLITS[self.split[leaked[0]]]
            raise ValueError(f"table: {self.paths[leaked[0]]} is an official test image in the {split_name} split")
        if self.groups is None:
            return
        if len(self.groups) != len(self.paths) or not all(isinstance(name, str) for name in self.groups):
            raise ValueError(f"table: groups must be {len(self.paths)} names, one for each path")
        if cut := find_cut(self.groups, self.split):
            splits = " and ".join(SPLITS[self.split[row]] for row in cut)
            raise ValueError(f"table: the group {self.groups[cut[0]]!r} is cut by the splits {splits}")

    def group_numbers(self, split_name: str) -> np.ndarray | None:
        """Return numbers for the groups of a split.

        Args:
            split_name: "train", "val" or "test".

        Returns:
            (R,) int64, as `number_groups` gives them; None where the data name no groups.
        """
        if self.groups is None:
            return None
        return number_groups([self.groups[row] for row in self.rows(split_name)])

    def rows(self, split_name: str) -> np.ndarray:
        """Return the rows of a split.

        Args:
            split_name: "train", "val" or "test".

        Returns:
            (R,) int64 row numbers, ascending.

        Raises:
            ValueError: No split has that name.
        """
        if split_name not in SPLITS:
            raise ValueError(f"table: no split {split_name!r}, only {', '.join(SPLITS)}")
        return _rows_of(self.split, split_name)

    def measurable(self, split_name: str) -> bool:
        """Return whether predictions for a split can be scored against the truth.

        Args:
            split_name: "train", "val" or "test".

        Returns:
            True where the labels are exhaustive, or every label of this split is known all the same and each of its
            classes is absent from an image of it: positives alone rank above nothing, whatever the predictions.
        """
        rows = self.rows(split_name)
        truth = self.truth[rows]
        alone = truth.any(axis=0) & truth.all(axis=0)  # (C,) present in all images of the split
        return self.exhaustive or bool(self.scored[rows].all() and not alone.any())

    def reference(self, split_name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels that predictions for a split are scored by.

        Args:
            split_name: "train", "val" or "test".

        Returns:
            (R, C) int8 labels and (R, C) bool, which of them count: the truth where it is known; or, where the given
            labels are not exhaustive, every cell, with the unknown ones as absent.
        """
        rows = self.rows(split_name)
        return self.truth[rows], self.scored[rows] | (not self.exhaustive)

    def take(self, rows: np.ndarray) -> "Table":
        """Return the table of some rows.

        Args:
            rows: (R,) row numbers.

        Returns:
            The table of these rows, in their order.
        """
        paths = tuple(self.paths[row] for row in rows)
        groups = None if self.groups is None else tuple(self.groups[row] for row in rows)
        cells = {name: getattr(self, name) for name in ("implied", "corrected")}
        return replace(
            self,
            paths=paths,
            groups=groups,
            **{name: None if array is None else array[rows] for name, array in cells.items()},
            **{name: getattr(self, name)[rows] for name in ROW_FIELDS},
        )


@dataclass(frozen=True)
class Objects:
    """Where the objects of each class lie in the pictures, for draws that depend on it.

    Args:
        area: (N, C) float32, the largest box of the class as a fraction of its picture's area, in [0, 1]; 0 without.
        offset: (N, C) float32, the distance of the box nearest to the picture's centre from there, between the two
            centres, as a fraction of half the picture's diagonal, in [0, 1]; 0 without.

    Raises:
        ValueError: An array has another type, shape or range.
    """

    area: np.ndarray
    offset: np.ndarray

    def __post_init__(self) -> None:
        """Check both arrays.

        Raises:
            ValueError: As the class says.
        """
        for name in ("area", "offset"):
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.shape != self.area.shape:
                raise ValueError(f"objects: {name} is no float32 array of the shape {np.shape(self.area)}")
            if array.size and not (array.min() >= 0 and array.max() <= 1):  # a NaN is neither
                raise ValueError(f"objects: {name} holds values outside [0, 1]")

    def take(self, rows: np.ndarray) -> "Objects":
        """Return the objects of some rows.

        Args:
            rows: (R,) row numbers.

        Returns:
            Those of these rows, in their order.
        """
        return Objects(self.area[rows], self.offset[rows])


@dataclass(frozen=True)
class Dataset:
    """What a source read.

    Args:
        table: The table.
        image: Row number -> the row's picture: an (h, w, 3) uint8 RGB array of any size, or the path of an image
            file, which whoever packs it decodes. Called from several threads.
        report: What was read, what was skipped and why; plain JSON values without paths of this machine. A list of
            strings under "warnings" is shown to the user.
        objects: Where the objects of each class lie, in the table's rows and columns; None where the data have no
            boxes.
    """

    table: Table
    image: Callable[[int], np.ndarray | Path]
    report: dict[str, Any] = field(default_factory=dict)
    objects: Objects | None = None

    def take(self, rows: np.ndarray) -> "Dataset":
        """Return the dataset of some rows; its report stays that of all.

        Args:
            rows: (R,) row numbers.

        Returns:
            The dataset of these rows, in their order.
        """
        objects = None if self.objects is None else self.objects.take(rows)
        return replace(self, table=self.table.take(rows), objects=objects, image=lambda row: self.image(int(rows[row])))


def write_splits(path: Path | str, table: Table) -> None:
    """Write which images a table has, in which order and in which split: what holds of them whatever their labels.

    Pictures and labels are each sealed as those of these rows, so that other labels leave what is made of pictures.

    Args:
        path: The HDF5 file; an earlier one is replaced only when the new one is complete.
        table: The table.
    """
    with hdf5.create(path) as file:
        hdf5.write_array(file, "paths", np.array(table.paths, dtype=object), axes="image", units="relative path")
        hdf5.write_array(file, "split", table.split, axes="image", units="0 train, 1 val, 2 test")


def read_split_rows(path: Path | str, split_name: str) -> np.ndarray:
    """Read the rows of a split.

    Args:
        path: The HDF5 file of `write_splits`.
        split_name: One of `SPLITS`.

    Returns:
        As `Table.rows`.

    Raises:
        FileError: The file is absent, damaged or incomplete.
    """  # noqa: DOC502  raised by `read_splits`
    return _rows_of(np.array(list(read_splits(path).values()), np.uint8), split_name)


def read_splits(path: Path | str) -> dict[str, int]:
    """Read the split of each image.

    Args:
        path: The HDF5 file of `write_splits`.

    Returns:
        0 train, 1 val or 2 test by path of the image.

    Raises:
        FileError: The file is absent, damaged or incomplete.
    """
    with hdf5.read(path) as file:
        try:
            return dict(zip(file["paths"].asstr()[()].tolist(), file["split"][()].tolist(), strict=True))
        except (KeyError, ValueError, TypeError, OSError) as error:
            raise FileError(f"{path}: no readable splits: {error}") from error


def _rows_of(split: np.ndarray, split_name: str) -> np.ndarray:
    return np.flatnonzero(split == SPLITS.index(split_name)).astype(np.int64)


def write_table(path: Path | str, table: Table, objects: Objects | None = None, reads: Iterable[Path] = ()) -> None:
    """Write a table.

    Args:
        path: The HDF5 file; an earlier one is replaced only when the new one is complete.
        table: The table.
        objects: Where its objects lie, in the same rows and columns.
        reads: Sealed files that it is made from: that of `write_splits`.
    """
    with hdf5.create(path, reads) as file:
        hdf5.write_array(file, "classes", np.array(table.classes, dtype=object), axes="class", units="name")
        hdf5.write_array(file, "paths", np.array(table.paths, dtype=object), axes="image", units="relative path")
        hdf5.write_array(file, "truth", table.truth, axes="image, class", units="1 present, 0 absent", compress=True)
        hdf5.write_array(file, "scored", table.scored, axes="image, class", units="truth is known", compress=True)
        hdf5.write_array(file, "split", table.split, axes="image", units="0 train, 1 val, 2 test")
        hdf5.write_array(file, "official", table.official, axes="image", units="0 official training, 1 official test")
        file.attrs["exhaustive"] = table.exhaustive
        if table.groups is not None:
            units = "name of the group, empty: alone"
            hdf5.write_array(file, "groups", np.array(table.groups, dtype=object), axes="image", units=units)
        if table.rules is not None and table.implied is not None:
            units = "the label stands there by the rules"
            hdf5.write_array(file, "rules", np.array([table.rules.to_json()], dtype=object), axes="one", units="JSON")
            hdf5.write_array(file, "implied", table.implied, axes="image, class", units=units, compress=True)
        if table.corrected is not None:
            units = "1 present, -1 absent, 0 not asked"
            hdf5.write_array(file, "corrected", table.corrected, axes="image, class", units=units, compress=True)
        if objects is not None:
            units = "largest box as a fraction of the picture; 0 without"
            hdf5.write_array(file, "area", objects.area, axes="image, class", units=units, compress=True)
            units = "most central box from the centre, in half diagonals; 0 without"
            hdf5.write_array(file, "offset", objects.offset, axes="image, class", units=units, compress=True)


def read_objects(path: Path | str) -> Objects | None:
    """Read where the objects of a table lie.

    Args:
        path: The HDF5 file of `write_table`.

    Returns:
        The objects, in the table's rows and columns; None where its source read no boxes.

    Raises:
        FileError: The file is absent, damaged or incomplete, or holds impossible values.
    """
    with hdf5.read(path) as file:
        if "area" not in file:
            return None
        try:
            return Objects(file["area"][()], file["offset"][()])
        except (KeyError, ValueError, TypeError, OSError) as error:
            raise FileError(f"{path}: no readable objects: {error}") from error


def read_table(path: Path | str) -> Table:
    """Read a table.

    Args:
        path: The HDF5 file.

    Returns:
        The table, checked.

    Raises:
        FileError: The file is absent, damaged, incomplete, lacks a field or holds an impossible one.
    """
    with hdf5.read(path) as file:
        try:
            return Table(
                classes=tuple(hdf5.read_strings(file["classes"])),
                paths=tuple(hdf5.read_strings(file["paths"])),
                **{name: file[name][()] for name in ROW_FIELDS},
                exhaustive=bool(file.attrs["exhaustive"]),
                groups=tuple(hdf5.read_strings(file["groups"])) if "groups" in file else None,
                rules=Rules.from_json(hdf5.read_strings(file["rules"])[0]) if "rules" in file else None,
                implied=file["implied"][()] if "implied" in file else None,
                corrected=file["corrected"][()] if "corrected" in file else None,
            )
        except (KeyError, ValueError, TypeError, OSError) as error:
            raise FileError(f"{path}: no readable table: {error}") from error


def _check_names(what: str, names: tuple[str, ...]) -> None:
    """Check that names are strings, not empty, unpadded, in NFC, without control characters, and unique.

    Raises:
        ValueError: One is not; the message names it.
    """
    if not isinstance(names, tuple) or not names:
        raise ValueError(f"table: {what} must be a tuple of at least one name")
    seen: set[str] = set()
    for number, name in enumerate(names):
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"table: {what}: number {number} is {name!r}, expected a name")
        if name != name.strip() or CONTROL.search(name):
            raise ValueError(f"table: {what}: {name!r} has blanks around it or a control character in it")
        if name != unicodedata.normalize("NFC", name):
            raise ValueError(f"table: {what}: {name!r} is not in unicode form NFC")
        if name in seen:
            raise ValueError(f"table: {what}: duplicate name {name!r}")
        seen.add(name)
