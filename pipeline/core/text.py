"""Text of data files: lists and delimited tables line by line, and the one form of paths."""

import codecs
import csv
import io
import re
import unicodedata
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pipeline.core.errors import SourceError

BOMS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}  # longest first: UTF-32's begins as UTF-16's does
BOMS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""Byte order marks -> encoding; a text without one is UTF-8."""
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


def prefixed(prefix: str, text: str) -> str:
    """Return a message with what it is about in front, once: as it is where it begins so itself."""
    return text if re.match(rf"{re.escape(prefix)}(?![a-z0-9_])", text) else f"{prefix}: {text}"


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


def find_prefix(names: Sequence[str], known: Container[str]) -> str:
    """Return the folder that a tool has put before all names of images; it ends in a slash.

    Args:
        names: Names in their one form, with that folder.
        known: Names without it.

    Returns:
        The shortest folder without which a name is known; empty where a name is known as it is, or there is no such
        folder.
    """
    if not names or any(name in known for name in names):
        return ""
    parts = names[0].split("/")
    for depth in range(1, len(parts)):
        prefix = "/".join(parts[:depth]) + "/"
        if all(name.startswith(prefix) for name in names) and any(name.removeprefix(prefix) in known for name in names):
            return prefix
    return ""


def check_regular(path: Path) -> None:
    """Refuse what is there and is no file with an end: a folder, a pipe or a device, which could be read for ever.

    Args:
        path: The file.

    Raises:
        SourceError: as said; or nothing is there.
    """
    if not path.exists():
        raise SourceError(f"{path.name} is missing in {path.parent}")
    if not path.is_file():
        raise SourceError(f"{path.name}: cannot be read in {path.parent} (no regular file)")


def read_text(path: Path) -> str:
    r"""Read a text file; a byte order mark is dropped, line ends become \n.

    Args:
        path: The file, in UTF-8, or in UTF-16 or UTF-32 with a byte order mark, as spreadsheets write them.

    Returns:
        Its text, in whatever unicode form it is.

    Raises:
        SourceError: the file is missing, no regular file or not such text.
    """
    check_regular(path)
    try:
        data = path.read_bytes()
        encoding = next((name for mark, name in BOMS.items() if data.startswith(mark)), "utf-8-sig")
        return data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path.name}: cannot be read as UTF-8 text ({error}); save it as UTF-8") from error


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


def split_mark(text: str) -> tuple[str, str]:
    """Return the delimiter that a table's first line names, as `sep=;` of spreadsheets does, else "", and the rest."""
    match = re.match(r'\s*"?sep=(.)"?[ \t]*(?=\n|$)', text, re.IGNORECASE)
    return (match[1], text[match.end() :]) if match else ("", text)


def read_rows(file: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Read a table row by row; blank rows, blanks around fields, and a first line `sep=;`, do not count.

    Args:
        file: The file.
        delimiter: What stands between fields, which may be quoted.

    Yields:
        Number of the row's first line, and its fields.

    Raises:
        SourceError: the file is missing, not text, its quotes do not pair, or `sep=` names another delimiter.
    """
    named, text = split_mark(read_text(file))
    if named not in ("", delimiter):
        raise SourceError(
            f"{file.name}: its first line says sep={named}, and the settings say {delimiter!r}: delimiter"
        )
    text = "\n".join(line.rstrip(" ") for line in text.split("\n"))  # else a quote could not close
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
