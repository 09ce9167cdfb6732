"""Predictions as rows of a csv, JSON lines or parquet, which appear whole or not at all."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.bundles.predict import Prediction
from pipeline.core import files
from pipeline.core.errors import ConfigError, FileError
from pipeline.core.text import to_printable

ENDINGS = (".csv", ".jsonl", ".parquet")
Rows = Iterable[dict[str, Any]]
GROUP = 1000
"""Rows of a parquet file that are written at a time."""


class Columns:
    """The columns of predictions.

    Args:
        classes: C names, in the model's order.
        given: Names of the columns of the table that names the pictures.
        top: How many of the highest scores a row has; None: all, in columns of their own.
    """

    def __init__(self, classes: Sequence[str], given: Sequence[str], top: int | None) -> None:
        self.classes, self.top = classes, top
        self.scores = [f"score_{name}" for name in classes]
        if top is not None:
            self.scores = [
                f"{kind}_{rank}" for rank in range(1, min(top, len(classes)) + 1) for kind in ("top", "score")
            ]
        own = {"path", "labels", "error", *self.scores}
        self.given: dict[str, str] = {}
        for name in given:  # a table of labels may have columns `labels` or `error` of its own
            column = name
            while column in own:
                column = f"given_{column}"
            own.add(column)
            self.given[name] = column

    def names(self) -> list[str]:
        """Return the names of all columns, in order."""
        return ["path", *self.given.values(), "labels", "error", *self.scores]

    def row(self, made: Prediction) -> dict[str, Any]:
        """Return the row of a prediction; None where nothing is known."""
        row: dict[str, Any] = {"path": to_printable(made.picture.path)}  # it may be no UTF-8
        row |= {column: made.picture.given.get(name) for name, column in self.given.items()}
        row |= {"labels": made.labels, "error": made.error, **dict.fromkeys(self.scores)}
        if made.scores is None:
            return row
        if self.top is None:
            return row | dict(zip(self.scores, made.scores.tolist(), strict=True))
        best = np.argsort(-made.scores, kind="stable")[: self.top].tolist()
        ranked = [value for column in best for value in (self.classes[column], float(made.scores[column]))]
        return row | dict(zip(self.scores, ranked, strict=True))


def csv_lines(columns: Columns, rows: Rows) -> Iterator[str]:
    """Yield the lines of a csv, without line ends.

    A text that a spreadsheet would run as a formula gets an apostrophe before it.

    Args:
        columns: The columns.
        rows: A dict a row.

    Yields:
        The header, and a line a row.

    Raises:
        ConfigError: The name of a class holds what stands between labels.
    """
    if odd := [name for name in columns.classes if ";" in name]:
        raise ConfigError(
            f"--to: class {odd[0]!r} holds a `;`, which stands between labels in a csv; use .jsonl or .parquet"
        )
    yield _line(columns.names())
    for row in rows:
        yield _line([row[name] for name in columns.names()])


def _line(values: Sequence[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow([_field(value) for value in values])
    return buffer.getvalue()


def _field(value: Any) -> Any:
    text = ";".join(value) if isinstance(value, list) else value
    return f"'{text}" if isinstance(text, str) and files.FORMULA.match(text) else text


def json_lines(_: Columns, rows: Rows) -> Iterator[str]:
    """Yield a JSON object a row; labels are a list."""
    for row in rows:
        yield json.dumps(row, ensure_ascii=False, allow_nan=False)


def choose_writer(path: Path) -> Callable[[Path, Columns, Rows], None]:
    """Return what writes a file of a kind.

    Args:
        path: The file, whose ending tells the kind.

    Raises:
        ConfigError: There is no such kind, or its package is not installed.
    """
    kind = path.suffix.lower()
    if kind not in ENDINGS:
        raise ConfigError(f"--to: {path} ends in none of {', '.join(ENDINGS)}")
    if kind == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise ConfigError("--to: .parquet needs pyarrow; pip install 'spml[parquet]'") from error
        return _write_parquet
    return _write_csv if kind == ".csv" else _write_json


def _write_csv(path: Path, columns: Columns, rows: Rows) -> None:
    _write_lines(path, csv_lines(columns, rows))


def _write_json(path: Path, columns: Columns, rows: Rows) -> None:
    _write_lines(path, json_lines(columns, rows))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines of text.

    Raises:
        FileError: They cannot be written, as on a full disk; an earlier file there stays.
    """
    try:
        with (
            files.replacing(path) as temporary,
            open(temporary, "w", encoding="utf-8", errors="backslashreplace") as file,
        ):
            for line in lines:
                file.write(line + "\n")
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror or error})") from error


def _write_parquet(path: Path, columns: Columns, rows: Rows) -> None:
    """Write a parquet file: labels are a list of text, scores float64.

    Raises:
        FileError: It cannot be written, as on a full disk; an earlier file there stays.
    """
    import pyarrow
    from pyarrow import parquet

    kinds = {name: pyarrow.string() for name in columns.names()}
    kinds |= {name: pyarrow.float64() for name in columns.scores if name.startswith("score_")}
    kinds["labels"] = pyarrow.list_(pyarrow.string())
    schema = pyarrow.schema(list(kinds.items()))
    try:
        with files.replacing(path) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
            held: list[dict[str, Any]] = []
            for row in rows:
                held.append(row)
                if len(held) == GROUP:
                    writer.write_table(pyarrow.Table.from_pylist(held, schema))
                    held = []
            writer.write_table(pyarrow.Table.from_pylist(held, schema))
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror or error})") from error
