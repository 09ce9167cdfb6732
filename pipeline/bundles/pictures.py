"""Pictures to predict: files, folders and tables of paths, in order, decoded as `prepare` decodes them."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pipeline.core.errors import SourceError
from pipeline.core.text import read_rows, read_text
from pipeline.data import disk
from pipeline.data.images import ImageError, decode, resize

MAX_PIXELS = 200_000_000
"""Width times height above which a picture is not decoded, as `spml init` writes it."""
TABLES = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True)
class Picture:
    """A picture that is asked about."""

    path: str
    """As it was given, or found below a folder that was."""
    file: Path
    given: dict[str, str] = field(default_factory=dict)
    """Other columns of the table that names it."""


@dataclass(frozen=True)
class Listed:
    """Pictures, and what was passed over."""

    pictures: list[Picture]
    columns: list[str]
    """Other columns of the tables among what was given; a picture of no table has none of them."""
    warnings: list[str]


def list_pictures(places: Sequence[str]) -> Listed:
    """Return the pictures that are meant, in order.

    Args:
        places: Files of pictures; folders, of which all pictures at any depth are meant, by name; and ``.csv`` or
            ``.tsv`` files with a column ``path``, whose paths count from the file's folder.

    Returns:
        The pictures. A file that is not there is one, too.

    Raises:
        SourceError: A folder holds no picture, a table no column ``path`` or no row, or the columns of tables differ.
    """
    pictures: list[Picture] = []
    warnings: list[str] = []
    columns: dict[str, list[str]] = {}
    for place in places:
        path = Path(place)
        if path.is_dir():
            found = disk.scan(path, "follow")
            if not found.pictures:
                unread = f"; {found.warnings()[0]}" if found.warnings() else ""
                raise SourceError(f"{place}: holds no picture ({', '.join(disk.ENDINGS)}){unread}")
            pictures += [Picture((path / name).as_posix(), path / name) for name in found.pictures]
            warnings += [f"{place}: {line}" for line in found.warnings()]
        elif path.suffix.lower() in TABLES:
            rows = _read_table(path)
            columns[place] = list(rows[0].given)
            pictures += rows
        else:
            pictures.append(Picture(place, path))
    if len({tuple(names) for names in columns.values()}) > 1:
        raise SourceError(f"{' and '.join(columns)}: their columns differ; predict them one after the other")
    return Listed(pictures, next(iter(columns.values()), []), warnings)


def _read_table(file: Path) -> list[Picture]:
    """Return the pictures that a table names.

    Raises:
        SourceError: As `list_pictures` says.
    """
    first = read_text(file).lstrip().partition("\n")[0]
    delimiter = TABLES[file.suffix.lower()]
    if delimiter == "," and (first.lower().strip().startswith("sep=;") or first.count(";") > first.count(",")):
        delimiter = ";"
    rows = list(read_rows(file, delimiter))
    head = rows[0][1] if rows else []
    if head.count("path") != 1:
        raise SourceError(f"{file}: needs one column `path`; its columns are {', '.join(head) or 'none'}")
    if len(set(head)) < len(head):
        raise SourceError(f"{file}: a column is named twice: {', '.join(head)}")
    if not rows[1:]:
        raise SourceError(f"{file}: names no picture")
    pictures = []
    for line, fields in rows[1:]:
        if len(fields) != len(head):
            raise SourceError(f"{file}: line {line} has {len(fields)} fields, the first line {len(head)}")
        row = dict(zip(head, fields, strict=True))
        path = row.pop("path")
        pictures.append(Picture(path, file.parent / path, row))
    return pictures


def read_pictures(
    pictures: Sequence[Picture], size: int, batch: int, workers: int
) -> Iterator[list[tuple[Picture, np.ndarray | str]]]:
    """Yield pictures decoded and resized, batch by batch, at most two batches ahead.

    Args:
        pictures: The pictures.
        size: Side of the square, in pixels.
        batch: Pictures at a time.
        workers: Decoding threads, at least 1.

    Yields:
        Each picture of the batch with its (size, size, 3) uint8 pixels, or why it has none.
    """
    cut = [pictures[start : start + batch] for start in range(0, len(pictures), batch)]
    waiting: deque[list[Future[np.ndarray | str]]] = deque()
    with ThreadPoolExecutor(max(1, workers)) as pool:
        try:
            for number, part in enumerate(cut):
                for ahead in cut[number + len(waiting) : number + 2]:
                    waiting.append([pool.submit(_decode, picture, size) for picture in ahead])
                yield [(picture, future.result()) for picture, future in zip(part, waiting.popleft(), strict=True)]
        finally:
            pool.shutdown(cancel_futures=True)


def _decode(picture: Picture, size: int) -> np.ndarray | str:
    """Return a picture's pixels, or why there are none."""
    try:
        return resize(decode(picture.file, MAX_PIXELS, "picture"), size)
    except ImageError as error:
        return str(error).removeprefix("picture: ").removesuffix(" (prepare: max_pixels)")
