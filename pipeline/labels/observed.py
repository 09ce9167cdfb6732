"""The observed labels that ``simulate`` drew, and their file.

Source: ours.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pipeline.core import hdf5
from pipeline.core.errors import FileError
from pipeline.labels.table import Table

LABEL_SETS = ("single", "all", "negatives")
"""What methods are given: the draw, and for the oracles all labels, or the draw with all absences."""


def observed_file(root: Path, dataset: str, draw: int) -> Path:
    """Return where the observed labels of a dataset and label draw lie."""
    return root / "data" / "simulate" / f"{dataset}-{draw}" / "observed.h5"


def write_observed(
    path: Path,
    label_sets: dict[str, np.ndarray],
    table_file: Path,
    implied: np.ndarray | None = None,
    corrected: np.ndarray | None = None,
) -> None:
    """Write the observed labels of a dataset.

    Args:
        path: The file.
        label_sets: (N, C) int8 by name, as `LABEL_SETS`: 1 known positive, 0 unknown, -1 known negative.
        table_file: The table that they were drawn from.
        implied: (N, C) bool, labels of `single` that were not shown and follow from others; None without rules.
        corrected: (N, C) bool, labels of `single` that people answered, or that follow from it; None without.
    """
    with hdf5.create(path, [table_file]) as out:
        for name, labels in label_sets.items():
            units = "1 known positive, 0 unknown, -1 known negative"
            hdf5.write_array(out, name, labels, axes="image, class", units=units, compress=True)
        if implied is not None:
            units = "known by the rules, not shown"
            hdf5.write_array(out, "implied", implied, axes="image, class", units=units, compress=True)
        if corrected is not None:
            units = "known by corrections, not shown"
            hdf5.write_array(out, "corrected", corrected, axes="image, class", units=units, compress=True)


def read_shown(path: Path, table: Table) -> np.ndarray:
    """Return the labels of `single`, those that were shown told from those that follow from them or were asked for.

    Args:
        path: The file.
        table: The table that they were drawn from.

    Returns:
        (N, C) int8 labels of `mark_not_shown`.

    Raises:
        FileError: As `read_observed`.
    """  # noqa: DOC502  raised there
    labels = read_observed(path, table, ["single"])["single"]
    with hdf5.read(path) as file:
        implied, corrected = (file[name][()] if name in file else None for name in ("implied", "corrected"))
    return mark_not_shown(table, labels, implied, corrected)


def mark_not_shown(
    table: Table, labels: np.ndarray, implied: np.ndarray | None, corrected: np.ndarray | None = None
) -> np.ndarray:
    """Return labels with 2 and -2 where rules or corrections tell what neither a draw nor whoever gave labels has.

    Whoever answers what was asked has not picked it of all present labels, as a draw does, or a person who gives one.
    Who names the finer label of an image has named the coarser one with it: what given labels make present is shown as
    they are. A draw picks among all present labels, and has not picked what follows from its pick.

    Args:
        table: The table.
        labels: (N, C) int8 labels of `single`.
        implied: (N, C) bool, those that follow from others; None: none.
        corrected: (N, C) bool, those that are known by corrections; None: none.

    Returns:
        (N, C) int8: 1 shown, 2 known to be present and not shown, 0 unknown, -1 shown to be absent, -2 known to be.
    """
    told = np.zeros(labels.shape, bool) if implied is None else implied & ((labels == -1) | table.exhaustive)
    if corrected is not None:
        told = told | corrected
    return np.where(told, 2 * labels, labels)


def read_observed(path: Path, table: Table, names: Iterable[str] = LABEL_SETS) -> dict[str, np.ndarray]:
    """Return label sets of a dataset.

    Args:
        path: The file.
        table: The table that they were drawn from.
        names: Which label sets.

    Returns:
        (N, C) int8 by name.

    Raises:
        FileError: The file is absent or damaged, was drawn from another table, lacks a set, or holds one that does not
            fit the table or has values other than 1, 0 and -1.
    """
    observed = {}
    with hdf5.read(path) as file:
        for name in names:
            if name not in file:
                raise FileError(f"{path}: holds no labels `{name}`; run simulate again")
            observed[name] = file[name][()]
    for name, labels in observed.items():
        if labels.shape != table.truth.shape:
            raise FileError(f"{path}: rows or classes of `{name}` are not the table's; run simulate again")
        if not np.isin(labels, (1, 0, -1)).all():
            raise FileError(f"{path}: `{name}` holds values other than 1, 0 and -1; run simulate again")
    return observed
