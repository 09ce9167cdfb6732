"""Recognise what a JSON file holds: objects and which of their keys, a map of paths to labels, or a tool's export."""

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
from pipeline.core.faults import Faults, preview
from pipeline.data import disk, exports
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
    if keys is None and (tasks := _read_tasks(files)):
        return _recognise_tasks(file, tasks, named, declared)
    if keys is None:
        return {"kind": "objects", **_recognise_keys(files, found, named, declared)}
    if set(keys) == {"samples"}:
        return _recognise_samples(files, named, declared)
    if set(objects.COCO) <= set(keys):
        content: dict[str, Any] = {"kind": "coco"}
    elif set(keys) <= {"classes", "labels"} and "labels" in keys:
        content = {"kind": "fiftyone_labels", "empty": _what_empty_means(files, _count_empty_labels(files), declared)}
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


# ---------------------------------------------------------------------------------------------- exports
def _read_tasks(files: list[Path]) -> list[dict[str, Any]]:
    """Return the tasks of Label Studio that a file holds; none where it holds anything else."""
    entries = [entry for file in files for _, entry in objects.read_entries(file, Faults(file.name))]
    tasks = [
        entry
        for entry in entries
        if isinstance(entry, dict)
        and isinstance(entry.get("data"), dict)
        and {"annotations", "completions"} & set(entry)
    ]
    return tasks if len(tasks) == len(entries) else []


def _recognise_tasks(file: Path, tasks: list[dict[str, Any]], named: Named, declared: Declared) -> dict[str, Any]:
    """Return the settings of tasks of Label Studio.

    Raises:
        ConfigError: It is not clear which key holds the picture, or which control the labels.
    """
    if named.split or named.group:
        raise ConfigError(f"{file.name}: tasks of Label Studio name no split or group; leave out --split and --group")
    keys = list(dict.fromkeys(key for task in tasks for key in task["data"]))
    pictured = [key for key in keys if has_pictures(_address(task["data"].get(key)) for task in tasks)]
    results = [
        [result for result in _listed(annotation.get("result")) if isinstance(result, dict)]
        for task in tasks
        for annotation in _listed(task.get("annotations")) or _listed(task.get("completions"))
        if isinstance(annotation, dict) and not annotation.get("was_cancelled")
    ]
    controls = {
        str(each.get("from_name")): None for found in results for each in found if each.get("type") in exports.STUDIO
    }
    image = _one_of(file, "key of data with pictures", "path", named.path, pictured, keys)
    control = _one_of(file, "control with names of classes", "labels", named.labels, list(controls), list(controls))
    empty = sum(all(each.get("from_name") != control for each in found) for found in results)
    content = {"kind": "label_studio", "image_key": image, "control": control}
    content |= {"disagreement": declared.disagreement or "stop", "empty": _what_empty_means([file], empty, declared)}
    return content


def _recognise_samples(files: list[Path], named: Named, declared: Declared) -> dict[str, Any]:
    """Return the settings of FiftyOne's samples.

    Raises:
        ConfigError: It is not clear which field holds the labels.
    """
    samples = [sample for file in files for sample in _listed(objects.read_object(file).get("samples"))]
    samples = [sample for sample in samples if isinstance(sample, dict)]
    fields = list(dict.fromkeys(key for sample in samples for key in sample))
    kinds = {key: [sample[key] for sample in samples if sample.get(key) is not None] for key in fields}
    labels = [
        key
        for key, values in kinds.items()
        if values and all(exports.fiftyone_labels(value) is not None for value in values)
    ]
    if named.path or named.split or named.group:
        raise ConfigError(f"{files[0].name}: FiftyOne's samples have keys of their own; leave out all but --labels")
    field = _one_of(files[0], "field of labels", "labels", named.labels, labels, fields)
    empty = sum(exports.fiftyone_labels(sample.get(field)) == [] for sample in samples)
    return {"kind": "fiftyone_samples", "field": field, "empty": _what_empty_means(files, empty, declared)}


def _count_empty_labels(files: list[Path]) -> int:
    """Return how many images of FiftyOne's labels have an empty list."""
    found = [objects.read_object(file).get("labels") for file in files]
    return sum(value == [] for labels in found if isinstance(labels, dict) for value in labels.values())


def _what_empty_means(files: list[Path], count: int, declared: Declared) -> str:
    """Return what an image without a label means where it was looked at.

    Raises:
        ConfigError: There are some, and nobody says.
    """
    if count and declared.empty is None:
        were = "image was looked at and has no label" if count == 1 else "images were looked at and have no label"
        raise ConfigError(
            f"{files[0].name}: {count} {were}: such a picture shows none of the classes (--empty absent), or nothing "
            "is known of it (--empty unknown); say which"
        )
    return declared.empty or "unknown"


def _one_of(file: Path, what: str, option: str, said: str | None, found: list[str], there: list[str]) -> str:
    """Return the key that is named, or the only one that is found.

    Raises:
        ConfigError: The named one is not there, or there is not one alone.
    """
    if said is not None and said not in there:
        raise ConfigError(f"--{option}: {file.name} has no {what} {said!r}; there are {preview(there) or 'none'}")
    if said is None and len(found) != 1:
        which = f"which {what}, of {preview(found)}? say it: --{option} {found[0]}" if found else f"no {what}"
        raise ConfigError(f"{file.name}: {which}")
    return said or found[0]


def _address(value: Any) -> str:
    """Return the path that an address stands for, of a picture where one may be meant; empty of anything else."""
    paths = exports.plain_paths(value) if isinstance(value, str) else [""]
    return next((path for path in paths if has_pictures([path])), paths[0])


def _listed(value: Any) -> list[Any]:
    """Return a list as it is; what is none, which the source names, holds nothing."""
    return value if isinstance(value, list) else []


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
