"""Datasets with what people answered about their labels: corrections, then the rules among classes.

Splits, rows and classes are those of the data as they are, so that no answer moves an image.
Source: ours.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.faults import Faults
from pipeline.data.raw import Pictures, with_rules
from pipeline.labels import corrections
from pipeline.labels.corrections import Corrections
from pipeline.labels.implications import Implications, make_implications
from pipeline.labels.table import SPLITS, Dataset, Table


def read_corrected(read: Callable[[Any], Dataset], settings: Any, root: Path, dataset: str) -> Dataset:
    """Read a dataset, with the corrections of its labels where there are any.

    Args:
        read: Reads the dataset under settings of its source.
        settings: These settings.
        root: Project root.
        dataset: Name of the dataset.

    Returns:
        The dataset; its report tells of the corrections.

    Raises:
        SourceError: As `read`; or corrections are faulty, or contradict each other or a given label by the rules.
    """  # noqa: DOC502  raised by the functions below
    file = corrections.corrections_file(root, dataset)
    if not file.is_file():
        return read(settings)
    ruled = isinstance(settings, Pictures) and bool(settings.rules())
    data = read(settings.model_copy(update={"exclusive": []}) if ruled else settings)  # an answer may end a conflict
    found = corrections.read_corrections(file, data.table.paths, data.table.classes)
    if not found.answers:
        return read(settings) if ruled else data
    told = _told(data.table)
    if ruled and settings.parents:
        told = _align(read(settings.model_copy(update={"parents": {}, "exclusive": []})).table, data.table)
    labels = corrections.place_labels(told, found)
    truth, scored = (labels == 1).astype(np.int8), labels != 0
    corrected = found.labels if data.table.exhaustive else np.where(told == found.labels, np.int8(0), found.labels)
    counts = corrections.count_corrections(told, found, data.table.split, (SPLITS, data.table.classes))
    report = data.report | {"corrections": counts | {"file": f"{corrections.FOLDER}/{file.name}"}}
    report["warnings"] = [*data.report.get("warnings", []), *found.repeated]
    table = replace(data.table, truth=truth, scored=scored, rules=None, implied=None)
    if not ruled:
        return replace(data, table=replace(table, corrected=corrected), report=report)
    _check_rules(make_implications(table.classes, settings.rules()), labels, found, table, file.name)
    data = with_rules(replace(data, table=table, report=report), settings, data.report.get("folder", dataset))
    return replace(data, table=replace(data.table, corrected=corrected))


def _told(table: Table) -> np.ndarray:
    """Return the labels of a table, (N, C) int8: 1 present, -1 absent, 0 unknown."""
    return np.where(table.scored, table.truth * np.int8(2) - np.int8(1), np.int8(0))


def _align(plain: Table, table: Table) -> np.ndarray:
    """Return the labels of a table in another's rows and columns, 0 where it does not have them."""
    rows = {path: row for row, path in enumerate(plain.paths)}
    columns = [table.classes.index(name) for name in plain.classes]
    labels = np.zeros(table.truth.shape, np.int8)
    labels[:, columns] = _told(plain)[[rows[path] for path in table.paths]]
    return labels


def _check_rules(implications: Implications, labels: np.ndarray, found: Corrections, table: Table, file: str) -> None:
    """Refuse answers that contradict each other, or a given label, by the rules.

    Raises:
        SourceError: There are some; each is named with the other label.
    """  # noqa: DOC502  raised by `Faults`
    faults = Faults(f"{corrections.FOLDER}/{file}")

    def describe(row: int, column: int) -> str:
        line = found.lines.get((row, column))
        return f"{table.classes[column]} ({f'line {line}' if line else 'given'})"

    for row in np.flatnonzero(found.labels.any(axis=1)).tolist():
        present = labels[row] == 1
        if pair := implications.find_conflict(present):
            if any((row, column) in found.lines for column in pair):
                both = " and ".join(sorted(describe(row, column) for column in pair))
                kind = "labels exclude each other (prepare: exclusive; answer absent for one of them)"
                faults.add(kind, f"{table.paths[row]} {both}")
            continue
        above = implications.requires & present[:, None]  # child, ancestor
        for parent in np.flatnonzero(above.any(axis=0) & (found.labels[row] == -1)).tolist():
            child = int(np.flatnonzero(above[:, parent])[0])
            both = f"{describe(row, parent)} is absent and {describe(row, child)} present"
            kind = "labels lack what they imply (prepare: parents; answer absent for both, or present)"
            faults.add(kind, f"{table.paths[row]} {both}")
    faults.raise_if_any()
