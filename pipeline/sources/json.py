"""Images of one's own in JSON: a list of objects, or one object a line, each with a path and a list of label names.

Keys are settings. Beside the labels that apply an object may list those that are known not to, and name its split.
Source: ours.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pipeline import layout, own_data
from pipeline.own_data import WORDS, Faults, OwnData, Row
from pipeline.table import Dataset, SourceError


class Settings(OwnData):
    """Settings of `prepare.<dataset>` for a JSON file of one's own."""

    source: Literal["json"]
    file: str
    """The file, relative to `root`: a list of objects, or JSON lines, told by its first letter."""
    path_key: str
    """Key of the pictures' paths, relative to `root`."""
    labels_key: str
    """Key of the labels that apply: a list of names, or one name."""
    absent_key: str | None
    """Key of the labels known not to apply, which an object may lack; null: there is none."""
    exhaustive: bool
    """Whether the labels of an object are all that apply: then a class that is not named is absent, else unknown."""
    split_key: str | None
    """Key of the words train, val and test; null: there is none."""


def read(settings: Settings, root: Path) -> Dataset:
    """Read a JSON file; pictures are looked up, not opened.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        The dataset, as `own_data.dataset` orders it.

    Raises:
        SourceError: the file, a key or a picture is missing, or entries are faulty; the message names line or entry.
    """
    folder = layout.raw_folder(settings, root)
    file = folder / settings.file
    faults = Faults(file.name)
    rows: list[Row] = []
    ignored: dict[str, None] = {}
    keys = {settings.path_key, settings.labels_key, settings.absent_key, settings.split_key}
    for where, entry in _entries(file):
        if not isinstance(entry, dict):
            faults.add("entries are no objects", f"{where} ({type(entry).__name__})")
            continue
        ignored.update(dict.fromkeys(entry.keys() - keys))
        path, labels = entry.get(settings.path_key), _names(entry.get(settings.labels_key))
        absent = _names(entry.get(settings.absent_key, []))
        if not isinstance(path, str):
            faults.add(f"entries have no text under {settings.path_key!r}", where)
        if labels is None:
            faults.add(f"entries have no name or list of names under {settings.labels_key!r}", where)
        if absent is None:
            faults.add(f"entries have no name or list of names under {settings.absent_key!r}", where)
        split = None
        if settings.split_key is not None:
            word = entry.get(settings.split_key)
            split = WORDS.get(word.strip().lower()) if isinstance(word, str) else None
            if split is None:
                faults.add("values are none of train, val and test", f"{where}, key {settings.split_key}: {word!r}")
        if isinstance(path, str) and labels is not None and absent is not None:
            rows.append(Row(where, path.strip(), labels, absent, split))
    data = own_data.dataset(
        settings,
        folder,
        rows,
        faults,
        classes=own_data.wanted(settings),
        found=layout.pictures(folder),
        closed=settings.exhaustive,
        exhaustive=settings.exhaustive,
    )
    data.report["rows"] = len(rows)
    data.report["keys_not_read"] = sorted(ignored)
    return data


def fingerprint(settings: Settings, root: Path) -> str:
    """Tell one state of the raw data from another without opening a picture.

    Args:
        settings: The settings.
        root: Project root, from which a relative `settings.root` counts.

    Returns:
        SHA-256 over the file and the names and sizes of all picture files below the root; where it lies does not count.

    Raises:
        SourceError: the folder or the file is missing.
    """
    folder = layout.raw_folder(settings, root)
    return layout.state({Path(settings.file).name: folder / settings.file}, {".": folder})


def _entries(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield where each entry is, and what it holds.

    Raises:
        SourceError: the file is missing, not UTF-8 text or not JSON, or an object has a key twice.
    """
    text = layout.read_text(file)

    def load(text: str, where: str) -> Any:
        try:
            return json.loads(text, object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{file.name}: {where}not JSON: {error}") from error

    if text.lstrip().startswith("["):
        yield from ((f"entry {number}", entry) for number, entry in enumerate(load(text, ""), start=1))
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"line {number}", load(line, f"line {number}: ")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; the last of two equal keys would win otherwise.

    Raises:
        ValueError: a key is there twice.
    """
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError(f"a key is there twice in {dict(pairs)!r}")
    return result


def _names(value: Any) -> tuple[str, ...] | None:
    """Return names, of a list of them or a single one; None where the value is neither."""
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        return None
    return tuple(own_data.name(each) for each in value)
