"""JSON that annotation tools export: tasks of Label Studio, and samples and labels of FiftyOne, as rows.

Of boxes, polygons and masks the names count alone. Each of these formats tells a picture that nobody looked at from one
in which somebody found nothing; of the first nothing is known, and what the second means is a setting.
Source: ours; the formats are those of the tools' documentation.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, normalize_class_name, preview
from pipeline.core.strict import Strict
from pipeline.core.text import relative_path
from pipeline.data.own_data import WORDS, Meaning, Row

UPLOADED = re.compile(r"[0-9a-f]{8}-(?=.)")
"""What Label Studio puts before the name of a file that is uploaded."""
STUDIO = ("choices", "labels", "rectanglelabels", "polygonlabels", "ellipselabels", "keypointlabels", "brushlabels")
"""Kinds of results of Label Studio that hold names of classes, each under its own key."""
FIFTYONE = {"Classification": "", "Classifications": "classifications", "Detections": "detections"}
FIFTYONE |= {"Polylines": "polylines", "Keypoints": "keypoints", "Detection": "", "Polyline": ""}
"""Kinds of labels of FiftyOne -> key of their list; empty: the label is one."""


class LabelStudio(Strict):
    """Label Studio's JSON: a list of tasks."""

    kind: Literal["label_studio"]
    image_key: str
    """Key of the picture in the data of a task. The picture is the one file whose path ends as it does."""
    control: str
    """Name of the control (`from_name`) whose labels count."""
    disagreement: Literal["stop", "unknown"]
    """What labels are that some annotators of a task give and others do not: an error, all of them named (`stop`), or
    unknown."""
    empty: Meaning
    """What every class is where a task was submitted without a label."""


class FiftyOneSamples(Strict):
    """FiftyOne's own export: `samples.json`. A tag called by a split is that."""

    kind: Literal["fiftyone_samples"]
    field: str
    """Field of the labels. A sample without one is not labelled."""
    empty: Meaning
    """What every class is where a field holds an empty list."""


class FiftyOneLabels(Strict):
    """FiftyOne's export for images: `labels.json` with `classes` and `labels`, beside pictures in `data`."""

    kind: Literal["fiftyone_labels"]
    empty: Meaning
    """What every class is where an image has an empty list."""


# ---------------------------------------------------------------------------------------------- Label Studio
def read_tasks(
    entries: Iterable[tuple[str, Any]], content: LabelStudio, pictures: Sequence[str], faults: Faults
) -> Iterator[Row]:
    """Yield a row for each task of Label Studio; what cannot be used is noted.

    Args:
        entries: Where each task stands, and the task.
        content: The settings.
        pictures: Paths of the pictures that there are.
        faults: Get what is wrong.

    Yields:
        The rows.
    """
    by_name: dict[str, list[str]] = {}
    for picture in pictures:
        by_name.setdefault(picture.rpartition("/")[2], []).append(picture)
    for where, task in entries:
        data = task.get("data") if isinstance(task, dict) else None
        written = data.get(content.image_key) if isinstance(data, dict) else None
        if not isinstance(written, str):
            faults.add(f"tasks have no text under data: {content.image_key}", where)
            continue
        fit = find_picture(written, by_name)
        if len(fit) > 1:
            how = "give files names of their own"
            faults.add(f"tasks fit several pictures ({how})", f"{where} {written!r} ({preview(fit)})")
        given = _annotators(task, content.control, where, faults)
        if len(fit) <= 1:
            yield _task_row(where, fit[0] if fit else plain_paths(written)[-1], given, content, faults)


def find_picture(written: str, by_name: dict[str, list[str]]) -> list[str]:
    """Return the pictures that an address of Label Studio stands for: those whose path ends as it does the furthest.

    Args:
        written: A path, an address, `/data/upload/<project>/<letters>-<name>`, or `/data/local-files/?d=<path>`.
        by_name: Name -> paths of pictures.
    """
    for parts in (path.split("/") for path in plain_paths(written)):
        fit = by_name.get(parts[-1], []) or by_name.get(UPLOADED.sub("", parts[-1], count=1), [])
        if fit:
            lengths = {path: _shared_end(path.split("/")[:-1], parts[:-1]) for path in fit}
            return [path for path in fit if lengths[path] == max(lengths.values())]
    return []


def plain_paths(written: str) -> list[str]:
    """Return the paths that an address may stand for, without the server's part; the first that is there is meant.

    Only an address of the web surely ends at `?` or `#`, which the name of a file may hold.
    """
    try:
        address = urlsplit(written)
    except ValueError:  # as of http://[host/a.jpg
        paths = [written]
    else:
        local = parse_qs(address.query).get("d") if address.path.rstrip("/").endswith("local-files") else None
        cut, whole = unquote(address.path or written), unquote(written).removeprefix(f"{address.scheme}:")
        web = address.scheme in ("http", "https")
        paths = local[:1] if local else [cut] if web else [written, cut, whole]
    return [path.replace("\\", "/").lstrip("/") for path in paths]


def _shared_end(ours: list[str], theirs: list[str]) -> int:
    """Return how many folders two paths share, counted from the last."""
    return next((count for count, pair in enumerate(zip(ours[::-1], theirs[::-1], strict=False)) if len(set(pair)) > 1),
                min(len(ours), len(theirs)))  # fmt: skip


def _annotators(task: dict[str, Any], control: str, where: str, faults: Faults) -> dict[str, tuple[str, ...]]:
    """Return what each annotation that was submitted says, by how messages call it."""
    annotations = task.get("annotations", task.get("completions"))
    if not isinstance(annotations, list):
        faults.add("tasks have no list of annotations (export as JSON, not JSON-MIN)", where)
        return {}
    said: dict[str, tuple[str, ...]] = {}
    for number, annotation in enumerate(annotations, start=1):
        if isinstance(annotation, dict) and annotation.get("was_cancelled"):
            continue
        results = (annotation.get("result") or []) if isinstance(annotation, dict) else None
        if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
            faults.add("annotations hold no list of objects under 'result'", f"{where} (annotation {number})")
            continue
        who = annotation.get("completed_by")
        who = who.get("email", who.get("id")) if isinstance(who, dict) else who
        labels: dict[str, None] = {}
        for result in results:
            if result.get("from_name") == control:
                labels |= dict.fromkeys(_names_of(result, where, faults))
        said[f"annotation {number}" + (f" by {who}" if who is not None else "")] = tuple(labels)
    return said


def _names_of(result: dict[str, Any], where: str, faults: Faults) -> list[str]:
    """Return the names of a result; one without them is noted."""
    value, kind = result.get("value"), result.get("type")
    names = value.get(kind) if isinstance(value, dict) and isinstance(kind, str) else None
    if kind not in STUDIO or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        faults.add(f"results hold no list of names (of {', '.join(STUDIO)})", f"{where} ({kind})")
        return []
    return [normalize_class_name(name) for name in names]


def _task_row(where: str, path: str, given: dict[str, tuple[str, ...]], content: LabelStudio, faults: Faults) -> Row:
    """Return the row of a task; annotators that disagree are noted, or what they disagree on is unknown."""
    sets = [set(labels) for labels in given.values()]
    if not sets:
        return Row(where, path, (), (), None, complete=False)
    named, agreed = set().union(*sets), set(sets[0]).intersection(*sets)
    if named != agreed and content.disagreement == "stop":
        how = "settle it there, or take that for unknown: prepare: content: disagreement; spml init: --disagreement"
        told = "; ".join(f"{who}: {', '.join(labels) or 'nothing'}" for who, labels in given.items())
        faults.add(f"tasks have annotators who disagree ({how})", f"{where} ({told})")
    if not named:
        return Row(where, path, (), (), None, complete=content.empty == "absent")
    return Row(where, path, tuple(sorted(agreed)), (), None, unknown=tuple(sorted(named - agreed)))


# ---------------------------------------------------------------------------------------------- FiftyOne
def read_samples(found: dict[str, Any], at: str, content: FiftyOneSamples, file: str, faults: Faults) -> Iterator[Row]:
    """Yield a row for each sample of FiftyOne's `samples.json`; what cannot be used is noted.

    Args:
        found: What the file holds.
        at: How messages call the file before a place in it; empty where it is the only one.
        content: The settings.
        file: Its name.
        faults: Get what is wrong.

    Yields:
        The rows.

    Raises:
        SourceError: There is no list of samples.
    """
    samples = found.get("samples")
    if not isinstance(samples, list):
        raise SourceError(f"{file}: has no list `samples`, as FiftyOne's export has")
    for number, sample in enumerate(samples, start=1):
        where = f"{at}sample {number}"
        path = sample.get("filepath") if isinstance(sample, dict) else None
        if not isinstance(path, str):
            faults.add("samples have no text under 'filepath'", where)
            continue
        tags = sample.get("tags") or []
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            faults.add("samples have tags that are no list of texts", where)
            continue
        splits = {WORDS[tag.lower()] for tag in tags if tag.lower() in WORDS}
        if len(splits) > 1:
            faults.add("samples have tags of several splits", f"{where} ({', '.join(tags)})")
        labels = fiftyone_labels(sample.get(content.field))
        if labels is None:
            faults.add(f"samples hold no labels under {content.field!r}", where)
        else:
            yield _fiftyone_row(where, path, labels, min(splits, default=None), content.empty)


def fiftyone_labels(value: Any) -> list[str] | Literal["none"] | None:
    """Return the names of a sample's label, "none" where there is no label, None of what is no label of FiftyOne."""
    if value is None:
        return "none"
    kind = value.get("_cls") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in FIFTYONE:
        return None
    listed = value.get(FIFTYONE[kind]) if FIFTYONE[kind] else [value]
    if not isinstance(listed, list | None):
        return None
    names = [label.get("label") if isinstance(label, dict) else None for label in listed or ()]
    return [name for name in names if isinstance(name, str)] if all(isinstance(name, str) for name in names) else None


def read_labels(found: dict[str, Any], at: str, content: FiftyOneLabels, file: str, faults: Faults) -> Iterator[Row]:
    """Yield a row for each image of FiftyOne's `labels.json`; arguments and errors are those of `read_samples`.

    Yields:
        The rows.

    Raises:
        SourceError: There is no object of labels, or `classes` is no list of names.
    """
    classes, labels = found.get("classes"), found.get("labels")
    if not isinstance(labels, dict):
        raise SourceError(f"{file}: has no object `labels`, as FiftyOne's labels.json has")
    if classes is not None and not (isinstance(classes, list) and all(isinstance(name, str) for name in classes)):
        raise SourceError(f"{file}: `classes` is no list of names")
    for key, value in labels.items():
        where = f"{at}image {key!r}"
        targets = _targets(value)
        names = None if targets is None else [_name(target, classes) for target in targets]
        if names is None:
            yield _fiftyone_row(where, _in_data(key), "none", None, content.empty)
        elif None in names:
            wanted = "a name" if classes is None else f"a number from 0 to {len(classes) - 1}"
            faults.add(f"labels are not {wanted}", f"{where} {value!r}"[:120])
        else:
            yield _fiftyone_row(where, _in_data(key), [str(name) for name in names], None, content.empty)


def _targets(value: Any) -> list[Any] | None:
    """Return the labels of an image, of one or a list of them, each bare or under `label`; None where it has none."""
    if isinstance(value, dict):
        value = value.get("label")
    if value is None:
        return None
    listed = value if isinstance(value, list) else [value]
    return [target.get("label") if isinstance(target, dict) else target for target in listed]


def _name(target: Any, classes: list[str] | None) -> str | None:
    """Return the name that a label stands for, None where it stands for none."""
    if classes is None:
        return target if isinstance(target, str) else None
    return classes[target] if type(target) is int and 0 <= target < len(classes) else None


def _in_data(key: str) -> str:
    """Return the path of an image, whose key counts from the folder `data` and may lack its ending."""
    if os.path.isabs(key):
        return key
    try:
        return f"data/{relative_path(key)}"
    except ValueError:  # told with its row
        return key


def _fiftyone_row(where: str, path: str, labels: list[str] | Literal["none"], split: int | None, empty: Meaning) -> Row:
    """Return the row of an image with labels, without any, or of which nothing is known."""
    if labels == "none":
        return Row(where, path, (), (), split, complete=False)
    names = tuple(dict.fromkeys(map(normalize_class_name, labels)))
    return Row(where, path, names, (), split, complete=None if names else empty == "absent")
