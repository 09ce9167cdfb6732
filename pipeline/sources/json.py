"""Images of one's own in JSON: a list of objects, or one object a line, each with a path and a list of label names.

Keys are settings. Beside the labels that apply an object may list those that are known not to, and name its split.
Source: ours.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, normalize_class_name, preview
from pipeline.core.text import read_text
from pipeline.data import own_data, raw
from pipeline.data.own_data import WORDS, Content, OwnData, Row
from pipeline.data.raw import Files
from pipeline.labels.table import Dataset

SHOWN = 40  # characters of a value in a message


class Settings(OwnData):
    """Settings of `prepare.<dataset>` for a JSON file of one's own."""

    source: Literal["json"]
    file: str
    """The file, relative to `root`: a list of objects, or JSON lines, told by its first letter."""
    path_key: str
    """Key of the pictures' paths, relative to `root`."""
    labels_key: str
    """Key of the labels that apply: a list of names, or a text, which is one name, whatever marks are in it."""
    absent_key: str | None
    """Key of the labels known not to apply, which an object may lack; null: there is none."""
    exhaustive: bool
    """Whether the labels of an object are all that apply: then a class that is not named is absent, else unknown."""
    split_key: str | None
    """Key of the words train, val and test; null: there is none."""


def read(settings: Settings, root: Path) -> Dataset:
    """Return the dataset of a JSON file, by the steps that `base` describes."""
    files = locate(settings, root)
    return own_data.build(files, parse(files, settings), settings)


def fingerprint(settings: Settings, root: Path) -> str:
    """Return what tells one state of a JSON file and its pictures from another, as `base` describes."""
    return raw.digest(locate(settings, root))


def locate(settings: Settings, root: Path) -> Files:
    """Return where the file and the pictures are."""
    return own_data.locate(settings, root, settings.file)


def parse(files: Files, settings: Settings) -> Content:
    """Return what the entries of the file say."""
    (file,) = files.lists.values()
    rows: list[Row] = []
    keys = {settings.path_key, settings.labels_key, settings.absent_key, settings.split_key}
    not_read: set[str] = set()
    for where, entry in read_entries(file, files.faults):
        if not isinstance(entry, dict):
            files.faults.add("entries are not objects", f"{where} ({type(entry).__name__})")
            continue
        not_read |= entry.keys() - keys
        if (row := _row(where, entry, settings, files.faults)) is not None:
            rows.append(row)
    return Content(
        rows=rows,
        classes=own_data.wanted_classes(settings),
        pictures=raw.list_pictures(files.folder),
        closed=settings.exhaustive,
        exhaustive=settings.exhaustive,
        report={"rows": len(rows), "keys_not_read": sorted(not_read)},
    )


def _row(where: str, entry: dict[Any, Any], settings: Settings, faults: Faults) -> Row | None:
    """Return what an entry says of its image; None where that cannot be used, which is noted."""
    path, labels = entry.get(settings.path_key), _names(entry.get(settings.labels_key))
    absent = _names(entry.get(settings.absent_key, []))
    if not isinstance(path, str):
        faults.add(f"entries have no text under {settings.path_key!r}", f"{where} {_short(path)}")
    for key, names in ((settings.labels_key, labels), (settings.absent_key, absent)):
        if names is None:
            faults.add(f"entries have no name or list of names under {key!r}", f"{where} {_short(entry.get(key))}")
    split = None
    if settings.split_key is not None:
        word = entry.get(settings.split_key)
        split = WORDS.get(word.strip().lower()) if isinstance(word, str) else None
        if split is None:
            faults.add("values are none of train, val and test", f"{where}, key {settings.split_key}: {word!r}")
    if not isinstance(path, str) or labels is None or absent is None:
        return None
    return Row(where, path.strip(), labels, absent, split)


def read_entries(file: Path, faults: Faults) -> Iterator[tuple[str, Any]]:
    """Yield what entries hold, of a list or one a line, and where each is.

    Args:
        file: The file.
        faults: Get lines that are not JSON, and keys that are twice in one object, at any depth.

    Yields:
        Where the entry is, and what it holds.

    Raises:
        SourceError: the file is missing, not UTF-8 text, not JSON as a whole or in any line; or it is one object about
            many images.
    """
    text = read_text(file)
    if (keys := _one_object(text)) is not None:
        raise SourceError(
            f"{file.name}: one object, with the keys {preview(keys)}; expected is a list of objects, or one "
            "object a line, each with the path of a picture and its labels"
        )

    for where, entry in _list(file, text) if text.lstrip().startswith("[") else _lines(file, text, faults):
        if isinstance(entry, _Twice):
            faults.add("duplicate keys", f"{where} {', '.join(map(repr, entry.keys_twice))}")
        else:
            yield where, entry


def _list(file: Path, text: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a list.

    Raises:
        SourceError: it is not JSON.
    """
    try:
        found = json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{file.name}: not JSON: {error}") from error
    yield from ((f"entry {number}", entry) for number, entry in enumerate(found, start=1))


def _lines(file: Path, text: str, faults: Faults) -> Iterator[tuple[str, Any]]:
    """Yield the entries of lines that are JSON; the others are noted.

    Raises:
        SourceError: no line holds an object.
    """
    found: list[tuple[str, Any]] = []
    wrong: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                found.append((f"line {number}", json.loads(line, object_pairs_hook=_object)))
            except (ValueError, RecursionError) as error:
                wrong.append(f"line {number}: {error}")
    if wrong and not any(
        isinstance(entry, dict | _Twice) for _, entry in found
    ):  # an object in several lines, or no JSON
        raise SourceError(f"{file.name}: not JSON, as a list or by line: {wrong[0]}")
    for told in wrong:
        faults.add("lines are not JSON", told)
    yield from found


def _one_object(text: str) -> list[str] | None:
    """Return the keys of an object that is the whole text and no entry, as no value names a picture; else None."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):  # lines, or a fault, which is named when they are read
        return None
    values = [value.strip().lower() for value in whole.values() if isinstance(value, str)]
    return None if any(value.endswith(raw.ENDINGS) for value in values) else list(whole)


def _short(value: Any) -> str:
    """Return a value for a message."""
    return f"({text})" if len(text := repr(value)) <= SHOWN else f"({text[:SHOWN]}...)"


@dataclass(frozen=True)
class _Twice:
    """An object with keys twice, itself or within, of which the last would win otherwise."""

    keys_twice: tuple[str, ...]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Twice:
    """Return an object, or which keys it, or one within it, has twice."""
    result = dict(pairs)
    twice = [key for _, value in pairs for key in _within(value)]
    if len(result) < len(pairs):
        twice = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1] + twice
    return _Twice(tuple(dict.fromkeys(twice))) if twice else result


def _within(value: Any) -> tuple[str, ...]:
    """Return the keys that an object within a value has twice."""
    if isinstance(value, list):
        return tuple(key for inner in value for key in _within(inner))
    return value.keys_twice if isinstance(value, _Twice) else ()


def _names(value: Any) -> tuple[str, ...] | None:
    """Return names, of a list of them or a single one; None where the value is neither."""
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        return None
    return tuple(normalize_class_name(name) for name in value)
