"""Predictions as ``spml predict`` writes them, and the truth that they are compared with, image by image."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.cli.label_columns import read_sheet, recognise_columns
from pipeline.cli.label_files import Declared, Named
from pipeline.core import files
from pipeline.core.errors import ConfigError, SourceError
from pipeline.core.faults import Faults, find_duplicates, normalize_class_name, pluralize, preview
from pipeline.core.text import find_prefix, read_text, relative_path
from pipeline.data import disk
from pipeline.data.raw import Files
from pipeline.labels.table import Table
from pipeline.sources import csv as tables

SCORE = "score_"
"""What the name of a class's column begins with."""


@dataclass(frozen=True)
class Predictions:
    """Predictions of N images.

    Args:
        paths: Their names, as they stand there.
        classes: C names.
        scores: (N, C) float64.
        chosen: (N, C) bool, labels that were chosen.
        broken: Names of images that have an error in place of scores, which are none of the N.
    """

    paths: list[str]
    classes: list[str]
    scores: np.ndarray
    chosen: np.ndarray
    broken: list[str]


@dataclass(frozen=True)
class Truth:
    """Labels of N images and C classes: (N, C) int8, and (N, C) bool which of them are known."""

    paths: list[str]
    classes: list[str]
    labels: np.ndarray
    known: np.ndarray


# ---------------------------------------------------------------------------------------------- predictions
def read_predictions(file: Path) -> Predictions:
    """Read predictions.

    Args:
        file: A .csv, .jsonl or .parquet with columns path, labels, error and a column of scores for each class.

    Returns:
        The predictions.

    Raises:
        SourceError: The file is missing or no such table, or a row is faulty; all faults are listed.
    """  # noqa: DOC502  raised by `Faults` too
    rows = _read_rows(file)
    columns = list(rows[0]) if rows else []
    if missing := [name for name in ("path", "labels", "error") if name not in columns]:
        raise SourceError(f"{file.name}: has no column {preview(missing)}; expected what `spml predict` writes")
    names = [name for name in columns if name.startswith(SCORE)]
    if not names or any(name.startswith("top_") for name in columns):
        raise SourceError(f"{file.name}: has no column of scores for each class; run `spml predict` without --top-k")
    classes = [normalize_class_name(name.removeprefix(SCORE)) for name in names]
    faults, number = Faults(file.name), {name: column for column, name in enumerate(classes)}
    paths, scores, chosen, broken = [], [], [], []
    for place, row in enumerate(rows, start=1):
        path = row["path"] or ""
        if row["error"]:
            broken.append(path)
            continue
        values = [_read_score(row[name], f"row {place} ({path})", name, faults) for name in names]
        told = row["labels"] or []
        labels = told if isinstance(told, list) else list(filter(None, told.split(";")))
        if unknown := [name for name in labels if normalize_class_name(name) not in number]:
            faults.add("labels have no column of scores", f"row {place} ({path}) {preview(unknown)}")
            continue
        paths.append(path)
        scores.append(values)
        chosen.append([number[normalize_class_name(name)] for name in labels])
    for path in find_duplicates([*paths, *broken]):
        faults.add("images have several rows", repr(path))
    faults.raise_if_any()
    if not paths:
        raise SourceError(f"{file.name}: no image has scores ({pluralize(len(broken), 'image')} with an error)")
    marks = np.zeros((len(paths), len(classes)), bool)
    for row, cells in enumerate(chosen):
        marks[row, cells] = True
    return Predictions(paths, classes, np.array(scores), marks, broken)


def _read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a table of predictions.

    Raises:
        SourceError: The file is missing, or none of the three kinds.
    """
    kind = file.suffix.lower()
    if kind == ".parquet":
        return _read_parquet(file)
    if kind not in (".csv", ".jsonl"):
        raise SourceError(f"{file.name}: is none of .csv, .jsonl and .parquet")
    text = read_text(file)
    try:
        if kind == ".jsonl":
            rows = [json.loads(line) for line in text.split("\n") if line.strip()]
            if not all(isinstance(row, dict) for row in rows):
                raise SourceError(f"{file.name}: a line is no JSON object")
            return rows
        reader = csv.DictReader(io.StringIO(text), strict=True)
        if twice := find_duplicates(reader.fieldnames or ()):
            raise SourceError(f"{file.name}: columns are there twice: {preview(twice)}")
        rows = [{key: files.unquote_formula(value) for key, value in row.items()} for row in reader]
    except (ValueError, RecursionError, csv.Error) as error:
        raise SourceError(f"{file.name}: {error}") from error
    if wrong := [place for place, row in enumerate(rows, start=1) if None in row or None in row.values()]:
        raise SourceError(f"{file.name}: row {wrong[0]} has another number of fields than the first line")
    return rows


def _read_parquet(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a parquet file.

    Raises:
        ConfigError: pyarrow is not installed.
        SourceError: The file cannot be read.
    """
    try:
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ConfigError(f"{file}: .parquet needs pyarrow; predict to .csv or .jsonl") from error
    try:
        return pyarrow.parquet.read_table(file).to_pylist()
    except (OSError, ValueError) as error:
        raise SourceError(f"{file.name}: {error}") from error


def _read_score(value: Any, where: str, column: str, faults: Faults) -> float:
    """Return a score; 0 where it is no finite number, which is noted."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        faults.add("scores are no numbers", f"{where}, {column}: {value!r}")
        return 0.0
    return number


# ---------------------------------------------------------------------------------------------- truth
def read_truth(file: Path, predicted: Sequence[str], path_column: str | None, labels: str | None) -> Truth:
    """Read the true labels of images from a table, whose columns are recognised as `spml init` recognises them.

    Args:
        file: A .csv or .tsv: a path a row, and the names of all labels that apply, or a column for each class.
        predicted: Names of images, which may lack their endings there.
        path_column: Name of the column of paths; None: recognised.
        labels: Name of the column of label names; None: recognised.

    Returns:
        The labels.

    Raises:
        SourceError: The table cannot be read, or a path is there twice; or it is not clear which columns hold what.
    """  # noqa: DOC502  raised by the functions below
    found = disk.Found(pictures=list(predicted))
    sheet = read_sheet([file])
    block = recognise_columns(sheet, found, True, Named(path_column, labels), Declared())
    block |= {"source": "csv", "root": str(file.parent), "file": file.name, "exhaustive": True, "size": 1}
    block |= {"bad_images": "drop", "links": "inside", "max_pixels": 1, "parents": {}, "exclusive": []}
    common = {"classes": None, "unlabelled": None, "val_fraction": 0.0, "test_fraction": 0.0, "split_seed": 0}
    settings = tables.Settings.model_validate(common | block)
    faults = Faults(file.name)
    content = tables.parse(Files(file.parent, {file.name: file}, {}, faults), settings)
    rows = content.rows
    for path in find_duplicates(row.path for row in rows):
        faults.add("images have several rows", repr(path))
    faults.raise_if_any()
    named = sorted({name for row in rows for name in (*row.present, *row.absent)})
    classes = list(content.classes or named)
    column = {name: place for place, name in enumerate(classes)}
    truth = np.zeros((len(rows), len(classes)), np.int8)
    known = np.full(truth.shape, content.closed)
    for place, row in enumerate(rows):
        truth[place, [column[name] for name in row.present]] = 1
        known[place, [column[name] for name in (*row.present, *row.absent)]] = True
    return Truth([row.path for row in rows], classes, truth, known)


def truth_of_table(table: Table, split: str) -> Truth:
    """Return the true labels of a split of a dataset; what is not known does not count."""
    rows = table.rows(split)
    return Truth([table.paths[row] for row in rows], list(table.classes), table.truth[rows], table.scored[rows])


def align_truth(predicted: Predictions, truth: Truth, file: str) -> Truth:
    """Return the truth in the rows and columns of predictions.

    Args:
        predicted: Predictions. Where they name pictures from another folder than the truth, all have the same one
            before their paths.
        truth: The truth.
        file: How messages call the predictions.

    Returns:
        The truth; a class that it does not name is absent where the others are known.

    Raises:
        SourceError: Images are in one of the two alone, or the truth names a class that has no scores; all are listed.
    """  # noqa: DOC502  raised by `Faults`
    faults, rows = Faults(file), {_form(path): row for row, path in enumerate(truth.paths)}
    names = [_form(path) for path in predicted.paths]
    broken = [_form(path) for path in predicted.broken]
    prefix = find_prefix(names, rows)
    place = [rows.get(name.removeprefix(prefix)) for name in names]
    for path, row in zip(predicted.paths, place, strict=True):
        if row is None:
            faults.add("images are not in the truth", repr(path))
    seen = {name.removeprefix(prefix) for name in (*names, *broken)}
    for name, row in rows.items():
        if name not in seen:
            faults.add("images of the truth have no prediction", repr(truth.paths[row]))
    if lacks := [name for name in truth.classes if name not in predicted.classes]:
        faults.add("classes of the truth have no scores", preview(lacks))
    faults.raise_if_any()
    order = np.array(place, np.int64)
    labels = np.zeros(predicted.scores.shape, np.int8)
    known = np.repeat(truth.known[order].all(axis=1, keepdims=True), len(predicted.classes), axis=1)
    columns = [predicted.classes.index(name) for name in truth.classes]
    labels[:, columns], known[:, columns] = truth.labels[order], truth.known[order]
    return Truth(predicted.paths, predicted.classes, labels, known)


def _form(path: str) -> str:
    """Return a path in its one form; as it is where it has none, as those from the root of the disk."""
    try:
        return relative_path(path)
    except ValueError:
        return path
