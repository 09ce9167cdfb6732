"""Recognise what a JSON file holds: objects and which of their keys, a map of paths to labels, or COCO's lists."""

from dataclasses import astuple
from pathlib import Path
from typing import Any

from pipeline.cli.label_files import (
    ABSENT,
    GROUP,
    SPLIT,
    Declared,
    Named,
    check_group,
    check_named,
    explain_unclear,
    find_separator,
    has_pictures,
    names_pictures,
)
from pipeline.core import text
from pipeline.core.errors import ConfigError
from pipeline.core.faults import Faults
from pipeline.data import disk
from pipeline.data.names import NO_CLASS
from pipeline.data.own_data import WORDS
from pipeline.sources import csv as tables
from pipeline.sources import json as objects


def recognise_json(files: list[Path], found: disk.Found, named: Named, declared: Declared) -> dict[str, Any]:
    """Return what a JSON file holds, or those of all splits.

    Raises:
        ConfigError: A named key is not there, or it is not clear which key holds what.
    """
    file = files[0]
    keys = objects.one_object(text.read_text(file))
    if keys is None:
        return {"kind": "objects", **_recognise_keys(files, found, named, declared)}
    if set(objects.COCO) <= set(keys):
        content: dict[str, Any] = {"kind": "coco"}
    elif has_pictures(keys) or names_pictures(keys, found.pictures):
        texts = [value for each in files for value in objects.read_object(each).values() if isinstance(value, str)]
        content = {"kind": "map", "separator": find_separator(file, texts, declared)}
    else:
        objects.read_entries(file, Faults(file.name)).__next__()  # raises what is expected
        content = {}
    if any(astuple(named)):
        raise ConfigError(f"{file.name}: no objects whose keys --path, --labels, --split or --group name")
    return content


def _recognise_keys(files: list[Path], found: disk.Found, named: Named, declared: Declared) -> dict[str, Any]:
    """Return what the keys of objects say.

    Raises:
        ConfigError: A named key is not there, or it is not clear which key holds what.
    """
    file = files[0]
    faults = Faults(file.name)  # the source names them, with all others
    rows = [entry for each in files for _, entry in objects.read_entries(each, faults) if isinstance(entry, dict)]
    if not rows:
        raise ConfigError(f"{file.name}: no object in it, such as one with the path of a picture and its labels")
    keys = list(dict.fromkeys(key for row in rows for key in row))
    check_named(file, "key", keys, named)
    values = {key: [row.get(key) for row in rows] for key in keys}
    check_group(file, "key", named, values[named.group] if named.group else [], marks=False)
    free = [key for key in keys if key not in astuple(named)]
    paths = [named.path] if named.path else [key for key in free if has_pictures(values[key])]
    paths = paths or [key for key in free if names_pictures(values[key], found.pictures)]
    flags = [key for key in free if key.lower() in SPLIT and all(map(_is_mark, values[key]))]
    words = [key for key in free if key not in paths and all(str(value).lower() in WORDS for value in values[key])]
    called = [key for key in free if key.lower() in SPLIT and key not in flags]
    splits = [named.split] if named.split else words or called
    groups = [named.group] if named.group else _find_groups(free, paths, values)
    rest = [key for key in keys if key not in (*paths, *splits, *flags, *groups)]
    lists = [key for key in rest if any(map(_is_names, values[key]))]
    absent = [key for key in lists if key in ABSENT and key != named.labels]
    texts = [key for key in rest if key not in absent and any(isinstance(value, str) for value in values[key])]
    present = [named.labels] if named.labels else _find_label_keys(rest, lists, texts)
    if len(paths) != 1 or len(present) != 1 or max(map(len, (splits, absent, groups))) > 1:
        listed = {"picture files": paths, "train, val and test": splits, "lists of names": lists, "text": texts}
        listed |= {"groups": groups} if len(groups) > 1 else {}
        raise ConfigError(explain_unclear(file, "key", "one of lists of label names, or of one name", listed))
    written = [value for key in (*present, *absent) for value in values[key] if isinstance(value, str)]
    return {
        "path_key": paths[0],
        "labels_key": present[0],
        "separator": find_separator(file, written, declared),
        "absent_key": absent[0] if absent else None,
        "split_key": splits[0] if splits else None,
        "group_key": groups[0] if groups else None,
    }


def _find_groups(free: list[str], paths: list[str], values: dict[str, list[Any]]) -> list[str]:
    """Return the keys called as groups are that hold texts or numbers, unless nothing else could hold the labels."""
    called = [key for key in free if key.lower() in GROUP and not any(map(_is_names, values[key]))]
    others = [key for key in values if key not in (*called, *paths) and any(map(_may_be_labels, values[key]))]
    return called if others else []


def _may_be_labels(value: Any) -> bool:
    return _is_names(value) or (isinstance(value, str) and value.lower() not in WORDS)


def _find_label_keys(rest: list[str], lists: list[str], texts: list[str]) -> list[str]:
    """Return the keys of labels: lists first, then what is called so, of whatever kind, then any text."""
    present = [key for key in lists if key not in ABSENT]
    called = [key for key in rest if key.lower() in NO_CLASS]
    return (
        [key for key in present if key == "labels"]
        or present
        or [key for key in texts if key in called]
        or called
        or texts
    )


def _is_mark(value: Any) -> bool:
    return value is None or isinstance(value, bool) or tables.read_value(str(value)) is not None


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
