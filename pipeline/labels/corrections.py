"""Corrections: what people answered when they were asked whether a class is in a picture, and their file.

Known labels on top of those that the data give, which stay as they are. The file lies in the project, where Git keeps
it and DVC notices an edit.
Source: ours.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.core import files
from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, normalize_class_name
from pipeline.core.text import FIELD, prefixed, read_text, relative_path, to_printable

FOLDER = "corrections"
"""Folder of the project that holds a file for each corrected dataset."""
COLUMNS = ("path", "class", "value", "who", "when")
NEEDED = COLUMNS[:3]
VALUES = {"present": 1, "absent": -1}


class Correction(NamedTuple):
    """One answer, as its file has it."""

    path: str
    label: str
    """Name of the class."""
    value: str
    """A key of `VALUES`."""
    who: str = ""
    when: str = ""


@dataclass(frozen=True)
class Corrections:
    """Answers about cells of a table.

    Args:
        answers: In the order of the file.
        labels: (N, C) int8, 1 present, -1 absent, 0 where nobody answered.
        lines: Row and column -> the line of the first answer.
        sha256: Digest of the file.
        repeated: A line for each answer that somebody gave twice, for a warning.
    """

    answers: tuple[Correction, ...]
    labels: np.ndarray
    lines: dict[tuple[int, int], int]
    sha256: str
    repeated: tuple[str, ...]


def corrections_file(root: Path, dataset: str) -> Path:
    """Return where the corrections of a dataset lie."""
    return root / FOLDER / f"{dataset}.csv"


def digest_corrections(root: Path, dataset: str) -> str | None:
    """Return the digest of a dataset's corrections; None where there is no file."""
    file = corrections_file(root, dataset)
    return files.sha256(file) if file.is_file() else None


def read_corrections(file: Path, paths: Sequence[str], classes: Sequence[str]) -> Corrections:
    """Read the corrections of a dataset.

    Args:
        file: A table of text whose first line names `COLUMNS`, in any order; who and when may be left out.
        paths: N names of images, as a table has them.
        classes: C names of classes.

    Returns:
        The corrections.

    Raises:
        SourceError: The file cannot be read, or its header, an image, a class or a value is not one, or two answers
            about a cell differ; all faults are listed, each with its line.
    """  # noqa: DOC502  raised by `Faults` too
    name = f"{FOLDER}/{file.name}"
    faults, rows = Faults(name), {path: row for row, path in enumerate(paths)}
    columns = {label: column for column, label in enumerate(classes)}
    labels = np.zeros((len(paths), len(classes)), np.int8)
    answers: list[Correction] = []
    first: dict[tuple[int, int], tuple[int, Correction]] = {}
    told: set[tuple[int, int, str]] = set()
    repeated = []
    for line, answer in read_answers(file):
        place = _place(answer, f"line {line}", rows, columns, faults)
        if place is None:
            continue
        earlier, other = first.setdefault(place, (line, answer))
        if answer.value != other.value:
            both = f"line {line} says {answer.value}, line {earlier} {other.value}: {answer.path!r} {answer.label!r}"
            faults.add("two answers about one label differ (delete the wrong line)", both)
        elif (*place, answer.who) in told:
            repeated.append(f"{name}: line {line} says what line {earlier} says; delete one")
        told.add((*place, answer.who))
        labels[place] = VALUES[answer.value]
        answers.append(answer)
    faults.raise_if_any()
    lines = {place: line for place, (line, _) in first.items()}
    return Corrections(tuple(answers), labels, lines, files.sha256(file), tuple(repeated))


def read_answers(file: Path) -> list[tuple[int, Correction]]:
    """Read a file of answers as it stands, whatever images and classes it names.

    Args:
        file: As `read_corrections`.

    Returns:
        The number of each answer's line, and the answer.

    Raises:
        SourceError: The file is no such table of text.
    """
    name = f"{FOLDER}/{file.name}"
    try:
        return parse_answers(read_text(file), name)
    except SourceError as error:
        raise SourceError(prefixed(name, str(error).removeprefix(f"{file.name}: "))) from error


def parse_answers(text: str, name: str) -> list[tuple[int, Correction]]:
    """Return the answers of a table of text.

    Args:
        text: The text.
        name: How messages call it.

    Returns:
        The number of each answer's line, and the answer; texts are as a spreadsheet shows them.

    Raises:
        SourceError: The text is no such table.
    """
    text = text.lstrip("\n")
    first = text.partition("\n")[0]
    csv.field_size_limit(FIELD)
    reader = csv.reader(io.StringIO(text), delimiter=max(",;\t", key=first.count), strict=True)
    faults, answers, header = Faults(name), list[tuple[int, Correction]](), list[str]()
    try:
        header = [field.strip().casefold() for field in next(reader, [])]
        if set(header) - set(COLUMNS) or not set(header) >= set(NEEDED) or len(set(header)) < len(header):
            raise SourceError(f"{name}: line 1: must be {','.join(COLUMNS)} (it is {to_printable(first)[:80]!r})")
        while True:
            line = reader.line_num + 1
            fields = next(reader)
            if not any(field.strip() for field in fields):
                continue
            if len(fields) != len(header):
                faults.add(f"lines have another number of fields than {len(header)}", f"line {line}")
                continue
            row = {key: files.unquote_formula(field) for key, field in zip(header, fields, strict=True)}
            row = {key: row.get(key, "") for key in COLUMNS}
            answers.append((line, Correction(*row.values())._replace(value=row["value"].strip().casefold())))
    except StopIteration:
        faults.raise_if_any()
        return answers
    except csv.Error as error:
        raise SourceError(f"{name}: line {reader.line_num}: {error}") from error


def _place(
    answer: Correction, where: str, rows: dict[str, int], columns: dict[str, int], faults: Faults
) -> tuple[int, int] | None:
    """Return row and column of an answer; None where something is wrong with it, which is noted."""
    row = column = None
    try:
        row = rows.get(relative_path(answer.path), rows.get(relative_path(answer.path.strip())))
        if row is None:
            kind = "images are not in the dataset (write them as its lists do, or delete the line)"
            faults.add(kind, f"{where} {answer.path!r}")
    except ValueError as error:
        faults.add("invalid image paths", f"{where}: {error}")
    column = columns.get(normalize_class_name(answer.label))
    if column is None:
        faults.add("classes are not in the dataset (mend the name, or delete the line)", f"{where} {answer.label!r}")
    if answer.value not in VALUES:
        faults.add("values are neither present nor absent", f"{where} {answer.value!r}")
    return None if row is None or column is None or answer.value not in VALUES else (row, column)


def format_answers(answers: Iterable[Correction]) -> str:
    """Return answers as the text of their file; what a spreadsheet takes for a formula gets an apostrophe before it."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([files.quote_formula(field) for field in answer] for answer in answers)
    return buffer.getvalue()


def write_answers(file: Path, answers: Iterable[Correction]) -> None:
    """Write a file of answers at once: it is there whole, or as it was."""
    files.write_text(file, format_answers(answers))


def place_labels(labels: np.ndarray, corrections: Corrections) -> np.ndarray:
    """Return labels with what people answered in their places.

    Args:
        labels: (N, C) int8, 1 present, -1 absent, 0 unknown.
        corrections: The answers about these cells.

    Returns:
        (N, C) int8 labels.
    """
    return np.where(corrections.labels != 0, corrections.labels, labels)


def count_corrections(
    labels: np.ndarray, corrections: Corrections, split: np.ndarray, names: tuple[Sequence[str], Sequence[str]]
) -> dict[str, object]:
    """Return how corrections stand to labels, by class and split.

    Args:
        labels: (N, C) int8 labels before.
        corrections: The answers.
        split: (N,) number of each image's split.
        names: Of the splits, and of the C classes.

    Returns:
        JSON values: `cells` that were answered, `agree`, `add` and `overturn`, `people` by name, and under `classes` a
        row for each class and split that has an answer.
    """
    answers = corrections.labels
    kinds = {
        "agree": (answers != 0) & (labels == answers),
        "add": (answers != 0) & (labels == 0),
        "overturn": answers * labels == -1,
    }
    rows = []
    for column, name in enumerate(names[1]):
        for number, part in enumerate(names[0]):
            counts = {kind: int((cells[:, column] & (split == number)).sum()) for kind, cells in kinds.items()}
            if any(counts.values()):
                rows.append({"class": name, "split": part, **counts})
    people: dict[str, int] = {}
    for answer in corrections.answers:
        who = to_printable(answer.who) or "nobody named"
        people[who] = people.get(who, 0) + 1
    totals = {kind: int(cells.sum()) for kind, cells in kinds.items()}
    result: dict[str, object] = {"sha256": corrections.sha256, "cells": int((answers != 0).sum()), **totals}
    return result | {"people": people, "classes": rows}
