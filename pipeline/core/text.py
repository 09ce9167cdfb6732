"""Text of data files: lists and delimited tables line by line, and the one form of paths."""

import csv
import io
import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pipeline.core.errors import SourceError

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
FIELD = 1 << 28
"""Characters of a field of a table: the csv module's own limit, 131,072, is met by long lists of labels."""
ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal or a page obeys instead of showing it: control characters but for tab and line feed, marks that turn
the direction of writing, and halves of characters."""


def to_printable(name: str) -> str:
    r"""Return a name, as Python reads it from disk, so that it can be shown and stored: \xff for no UTF-8, \x1b, \n."""
    return re.sub("[\t\n]", _escape, show_text(name))


def show_text(text: str) -> str:
    """Return text for a terminal or a page: as it is, but for what would be obeyed instead of being shown."""
    with suppress(UnicodeEncodeError):  # another lone surrogate, which no disk gives
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return ODD.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "backslashreplace").decode()


def relative_path(text: str) -> str:
    r"""Bring a path found in a data file into the one form used as an image's name.

    Args:
        text: A path relative to the dataset, with / or \ between its parts, in any unicode form.

    Returns:
        The path in NFC with forward slashes, without empty and `.` parts.

    Raises:
        ValueError: the path is empty, absolute (also `C:` and `\\host`), climbs with `..`, or holds control characters.
    """
    path = unicodedata.normalize("NFC", text).replace("\\", "/")
    if CONTROL.search(path):
        raise ValueError(f"path {text!r} holds a control character")
    if path.startswith("/") or re.match(r"[A-Za-z]:", path):
        raise ValueError(f"path {text!r} is absolute")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts:
        raise ValueError(f"path {text!r} is empty")
    if ".." in parts:
        raise ValueError(f"path {text!r} climbs out of its folder")
    return "/".join(parts)


def read_text(path: Path) -> str:
    r"""Read a text file; a byte order mark is dropped, line ends become \n.

    Args:
        path: The file.

    Returns:
        Its text, in whatever unicode form it is.

    Raises:
        SourceError: the file is missing or not UTF-8 text.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise SourceError(f"{path.name} is missing in {path.parent}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path.name}: cannot be read as UTF-8 text ({error})") from error


def read_fields(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Read a text file line by line; blank lines, and blanks, tabs and CR around fields, do not count.

    Args:
        path: The file.

    Yields:
        Where the line is, as `name:number`, and its fields in NFC, at least one.

    Raises:
        SourceError: the file is missing or not UTF-8 text.
    """
    for place, line in enumerate(read_text(path).split("\n"), start=1):
        if found := unicodedata.normalize("NFC", line).split():
            yield f"{path.name}:{place}", found


def read_rows(file: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Read a table row by row; blank rows, and blanks around fields, do not count.

    Args:
        file: The file.
        delimiter: What stands between fields, which may be quoted.

    Yields:
        Number of the row's first line, and its fields.

    Raises:
        SourceError: the file is missing, not UTF-8 text, or its quotes do not pair.
    """
    text = "\n".join(line.rstrip(" ") for line in read_text(file).split("\n"))  # else a quote could not close
    csv.field_size_limit(FIELD)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True, strict=True)
    while True:
        line = reader.line_num + 1  # of the row's first line; quoted fields may hold several
        try:
            fields = [field.strip() for field in next(reader)]
        except StopIteration:
            return
        except csv.Error as error:
            raise SourceError(f"{file.name}: line {line}: {error}") from error
        if any(fields):
            yield line, fields
