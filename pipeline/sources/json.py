"""Images of one's own in JSON: objects with a path and labels, a map of paths to labels, or what tools export.

Objects are in a list or one a line; their keys are settings. Beside the labels that apply an object may list those that
are known not to, and name its split. Of COCO's lists all annotations count, crowds too, and no box is read.
`pipeline.data.exports` reads tasks of Label Studio and exports of FiftyOne.
Source: ours.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, check_class_names, find_duplicates, normalize_class_name, preview
from pipeline.core.strict import Strict
from pipeline.core.text import read_text
from pipeline.data import disk, exports, own_data
from pipeline.data.exports import FiftyOneLabels, FiftyOneSamples, LabelStudio
from pipeline.data.names import looks_like_list, split_names
from pipeline.data.own_data import WORDS, Content, OwnData, Row, normalize_group
from pipeline.data.raw import Files, make_reader

SHOWN = 40  # characters of a value in a message


COCO = ("images", "annotations", "categories")
"""Keys of the one object in which COCO's lists lie."""
Separator = Annotated[str, Field(min_length=1)] | None
"""What stands between two names in a text; null: a text is one name, whatever marks are in it."""


class Objects(Strict):
    """A list of objects, or JSON lines, told by the first letter; one object an image."""

    kind: Literal["objects"]
    path_key: str
    """Key of the pictures' paths, relative to `root`."""
    labels_key: str
    """Key of the labels that apply: a list of names, or a text."""
    separator: Separator
    absent_key: str | None
    """Key of the labels known not to apply, which an object may lack; null: there is none."""
    split_key: str | None
    """Key of the words train, val and test; null: there is none."""
    group_key: str | None
    """Key of the names or numbers of groups of images of one thing (a burst, a video, a patient, a product), which no
    split cuts; an object that lacks it is alone. null: there is none."""

    @model_validator(mode="after")
    def _each_key_says_one_thing(self) -> Self:
        own_data.check_roles({key: name for key, name in self if key.endswith("_key")})
        return self


class Map(Strict):
    """One object: path of a picture -> its labels, a list of names or a text."""

    kind: Literal["map"]
    separator: Separator


class Coco(Strict):
    """One object with COCO's lists `images`, `annotations` and `categories`."""

    kind: Literal["coco"]


Form = Objects | Map | Coco | LabelStudio | FiftyOneSamples | FiftyOneLabels


class Settings(OwnData):
    """Settings of `prepare.<dataset>` for a JSON file of one's own."""

    source: Literal["json"]
    file: str
    """The file, relative to `root`, from where its paths count; or a pattern such as `*/_annotations.coco.json`: one
    file for each split, in the folder called by the split, from where its paths count."""
    content: Annotated[Form, Field(discriminator="kind")]
    exhaustive: bool
    """Whether the labels of an image are all that apply: then a class that is not named is absent, else unknown."""


def locate(settings: Settings, root: Path) -> Files:
    """Return where the file and the pictures are."""
    return own_data.locate(settings, root, settings.file)


def parse(files: Files, settings: Settings) -> Content:
    """Return what the file says, or the files where there is one for each split."""
    rows: list[Row] = []
    not_read: dict[str, None] = {}
    lying = disk.scan(files.folder, settings.links)
    pictures = [picture for picture in lying.pictures if not settings.is_unlabelled(picture)]
    for name, file in files.lists.items():
        at = f"{name} " if len(files.lists) > 1 else ""
        found = _read_rows((file, at), settings.content, pictures, files.faults, not_read)
        counts = "*" in settings.file and not isinstance(settings.content, LabelStudio)  # whose pictures are found
        rows += [own_data.place_row(row, name) if counts else row for row in found]
    return Content(
        rows=rows,
        classes=own_data.wanted_classes(settings),
        found=lying,
        closed=settings.exhaustive,
        exhaustive=settings.exhaustive,
        grouped=isinstance(settings.content, Objects) and settings.content.group_key is not None,
        report={"rows": len(rows), "keys_not_read": sorted(not_read)},
    )


def _read_rows(
    place: tuple[Path, str], content: Form, pictures: list[str], faults: Faults, not_read: dict[str, None]
) -> Iterator[Row]:
    """Yield what a file says of each image; keys that are not read join the last argument."""
    file, at = place
    if isinstance(content, Coco):
        yield from _coco_rows(file, at, faults)
    elif isinstance(content, LabelStudio):
        tasks = ((at + where, task) for where, task in read_entries(file, faults))
        yield from exports.read_tasks(tasks, content, pictures, faults)
    elif isinstance(content, FiftyOneSamples):
        yield from exports.read_samples(read_object(file), at, content, file.name, faults)
    elif isinstance(content, FiftyOneLabels):
        yield from exports.read_labels(read_object(file), at, content, file.name, faults)
    elif isinstance(content, Map):
        for path, value in read_object(file).items():
            where = f"{at}key {path!r}"
            if (labels := _names(value, content.separator)) is None:
                faults.add("values are no name or list of names", f"{where} {_short(value)}")
            else:
                yield Row(where, path.strip(), labels, (), None)
    else:
        keys = {content.path_key, content.labels_key, content.absent_key, content.split_key, content.group_key}
        for where, entry in read_entries(file, faults):
            if not isinstance(entry, dict):
                faults.add("entries are not objects", f"{at}{where} ({type(entry).__name__})")
                continue
            not_read |= dict.fromkeys(key for key in entry if key not in keys)
            if (row := _row(at + where, entry, content, faults)) is not None:
                yield row


def _row(where: str, entry: dict[Any, Any], content: Objects, faults: Faults) -> Row | None:
    """Return what an entry says of its image; None where that cannot be used, which is noted."""
    path, labels = entry.get(content.path_key), _names(entry.get(content.labels_key), content.separator)
    absent = _names(entry.get(content.absent_key, []), content.separator)
    if not isinstance(path, str):
        faults.add(f"entries have no text under {content.path_key!r}", f"{where} {_short(path)}")
    for key, names in ((content.labels_key, labels), (content.absent_key, absent)):
        if names is None:
            faults.add(f"entries have no name or list of names under {key!r}", f"{where} {_short(entry.get(key))}")
    split = None
    if content.split_key is not None:
        word = entry.get(content.split_key)
        split = WORDS.get(word.strip().lower()) if isinstance(word, str) else None
        if split is None:
            faults.add("values are none of train, val and test", f"{where}, key {content.split_key}: {word!r}")
    group = entry.get(content.group_key)
    if group is not None and (isinstance(group, bool) or not isinstance(group, str | int)):
        faults.add(f"entries have no text or number under {content.group_key!r}", f"{where} {_short(group)}")
    if not isinstance(path, str) or labels is None or absent is None:
        return None
    return Row(where, path.strip(), labels, absent, split, normalize_group("" if group is None else str(group)))


def _coco_rows(file: Path, at: str, faults: Faults) -> Iterator[Row]:
    """Yield the images of COCO's lists with the categories of their annotations; what does not fit is noted.

    Raises:
        SourceError: a list is missing.
    """
    content = read_object(file)
    entries = {key: content.get(key) for key in COCO}
    if lacking := [key for key, value in entries.items() if not isinstance(value, list)]:
        raise SourceError(f"{file.name}: has no list {preview(lacking)}, as COCO's files have")
    kinds = {"categories": ("id", "name"), "images": ("id", "file_name"), "annotations": ("image_id", "category_id")}
    pairs: dict[str, list[tuple[Any, Any]]] = {key: [] for key in COCO}
    for key, fields in kinds.items():
        for number, entry in enumerate(entries[key] or (), start=1):
            values = tuple(map(entry.get, fields)) if isinstance(entry, dict) else (None, None)
            right = isinstance(values[0], int | str) and isinstance(
                values[1], str if key != "annotations" else int | str
            )
            if right:
                pairs[key].append((values[0], values[1]))
            else:
                faults.add(f"{key} lack one of {' and '.join(fields)}", f"{at}number {number}")
        if key != "annotations" and (twice := find_duplicates(first for first, _ in pairs[key])):
            faults.add(f"duplicate ids of {key}", at + preview(twice))
    names = {number: normalize_class_name(name) for number, name in pairs["categories"]}
    check_class_names(list(names.values()), faults, file.name)
    labels: dict[Any, dict[str, None]] = {number: {} for number, _ in pairs["images"]}
    for number, (image, category) in enumerate(pairs["annotations"], start=1):
        if image in labels and category in names:
            labels[image][names[category]] = None
        else:
            what = f"image {image}" if image not in labels else f"category {category}"
            faults.add("annotations name what is not in the file", f"{at}number {number} ({what})")
    for number, path in pairs["images"]:
        yield Row(f"{at}image {number}", path.strip(), tuple(labels[number]), (), None)


def read_object(file: Path) -> dict[str, Any]:
    """Return the one object that a file holds.

    Raises:
        SourceError: the file is missing, not text, no JSON or no object, or an object in it has a key twice.
    """
    try:
        found = json.loads(read_text(file), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{file.name}: not JSON: {error}") from error
    if isinstance(found, _Twice) or not isinstance(found, dict):
        what = f"duplicate keys: {preview(found.keys_twice)}" if isinstance(found, _Twice) else "expected one object"
        raise SourceError(f"{file.name}: {what}")
    return found


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
    if (keys := one_object(text)) is not None:
        raise SourceError(
            f"{file.name}: one object, with the keys {preview(keys)}; expected is a list of objects, or one "
            "object a line, each with the path of a picture and its labels; or, by the setting `content`, one object "
            "of paths and their labels, or COCO's"
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


def one_object(text: str) -> list[str] | None:
    """Return the keys of an object that is the whole text and no entry, as no value names a picture; else None."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):  # lines, or a fault, which is named when they are read
        return None
    values = [value.strip().lower() for value in whole.values() if isinstance(value, str)]
    return None if any(value.endswith(disk.ENDINGS) for value in values) else list(whole)


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


def _names(value: Any, separator: str | None) -> tuple[str, ...] | None:
    """Return names, of a list of them or of a text; None where the value is neither."""
    if isinstance(value, str):
        whole = looks_like_list(value)
        parts = [value] if separator is None or whole else list(filter(None, split_names(value, separator)))
        return tuple(normalize_class_name(name) for name in parts)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        return None
    return tuple(normalize_class_name(name) for name in value)


read, fingerprint = make_reader(locate, parse, own_data.build)
