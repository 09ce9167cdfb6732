"""Files as the tools write them, by their documentation, with labels told by hand."""

import json as encoder
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from pipeline.cli.label_files import Declared, Named
from pipeline.cli.label_keys import recognise_json
from pipeline.core.errors import ConfigError, SourceError
from pipeline.data import disk
from pipeline.data.exports import find_picture
from pipeline.labels.table import Dataset
from pipeline.sources import json
from tests.sources import test_json

STUDIO = {"kind": "label_studio", "image_key": "image", "control": "tag", "disagreement": "stop", "empty": "absent"}
SAMPLES = {"kind": "fiftyone_samples", "field": "ground_truth", "empty": "absent"}
LABELS = {"kind": "fiftyone_labels", "empty": "absent"}


def read(folder: Path, found: Any, content: dict[str, Any], **changes) -> Dataset:
    for name in ("data/a.jpg", "data/b.png", "data/c.jpg", "data/sub/d.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    (folder / "labels.json").write_text(encoder.dumps(found))
    fixed = {"content": content, "val_fraction": 0.0, "test_fraction": 0.0}
    return json.read(test_json.settings(**fixed | changes), folder)


def truth(data: Dataset) -> dict[str, list[int]]:
    """Of each picture its row: 1 present, 0 absent, -1 unknown."""
    cells = np.where(data.table.scored, data.table.truth, -1)
    return {path.rpartition("/")[2]: row for path, row in zip(data.table.paths, cells.tolist(), strict=True)}


# ---------------------------------------------------------------------------------------------- Label Studio
def task(image: str, *annotations: list[tuple[str, str]], **more: Any) -> dict[str, Any]:
    """A task, and of each annotation the kind and name of its results."""
    given = [
        {
            "id": number,
            "completed_by": number,
            "was_cancelled": False,
            "result": [
                {"from_name": "tag", "to_name": "img", "type": kind, "value": {kind: [name], "x": 1.0, "width": 2.0}}
                for kind, name in results
            ],
        }
        for number, results in enumerate(annotations, start=7)
    ]
    return {"id": 1, "data": {"image": image}, "annotations": given, "predictions": [{"result": []}]} | more


CAT, DOG = ("choices", "cat"), ("rectanglelabels", "dog")


def test_tasks_of_label_studio(tmp_path):
    """Choices and boxes count alike; nobody looked at c, and somebody found nothing in d."""
    found = [
        task("/data/upload/3/0f3b1c2d-a.jpg", [CAT, DOG, DOG]),
        task("/data/local-files/?d=photos/data/b.png", [DOG], [DOG]),
        task("s3://bucket/c.jpg"),
        task("http://host/sub/d.jpg?x=1", []),
    ]
    data = read(tmp_path, found, STUDIO)
    assert data.table.classes == ("cat", "dog")
    assert truth(data) == {"a.jpg": [1, 1], "b.png": [-1, 1], "c.jpg": [-1, -1], "d.jpg": [0, 0]}
    assert data.report["unlabelled"] == 1
    whole = read(tmp_path, found, STUDIO | {"empty": "unknown"}, exhaustive=True)
    assert truth(whole) == {"a.jpg": [1, 1], "b.png": [0, 1], "c.jpg": [-1, -1], "d.jpg": [-1, -1]}


def test_results_of_other_controls_and_annotations_that_were_skipped_do_not_count(tmp_path):
    found = task("a.jpg", [CAT], [DOG])
    found["annotations"][1]["was_cancelled"] = True
    found["annotations"][0]["result"].append({"from_name": "quality", "type": "choices", "value": {"choices": ["bad"]}})
    assert truth(read(tmp_path, [found, task("b.png", [DOG])], STUDIO)) == {"a.jpg": [1, -1], "b.png": [-1, 1]}


def test_annotators_who_disagree_are_named_or_what_they_disagree_on_is_unknown(tmp_path):
    found = [task("a.jpg", [CAT, DOG], [CAT], []), task("b.png", [DOG]), task("c.jpg", [CAT], [CAT])]
    told = r"entry 1 \(annotation 1 by 7: cat, dog; annotation 2 by 8: cat; annotation 3 by 9: nothing\)$"
    with pytest.raises(SourceError, match=r"tasks have annotators who disagree \(.*--disagreement\): " + told):
        read(tmp_path, found, STUDIO)
    settled = read(tmp_path, found, STUDIO | {"disagreement": "unknown"}, exhaustive=True)
    assert truth(settled) == {"a.jpg": [-1, -1], "b.png": [0, 1], "c.jpg": [1, 0]}
    two = [task("a.jpg", [CAT, DOG], [CAT]), task("b.png", [DOG])]
    assert truth(read(tmp_path, two, STUDIO | {"disagreement": "unknown"}, exhaustive=True))["a.jpg"] == [1, -1]


STUDIO_FAULTS = {
    "a list of names that is none": (
        [task("a.jpg", [CAT]) | {"annotations": [{"result": [{"from_name": "tag", "type": "textarea", "value": {}}]}]}],
        r"results hold no list of names .*entry 1 \(textarea\)",
    ),
    "no image": ([{"data": {"text": "x"}, "annotations": []}], "no text under data: image: entry 1"),
    "no annotations": (
        [{"data": {"image": "a.jpg"}, "tag": "cat"}],
        "no list of annotations .export as JSON, not JSON-MIN",
    ),
    "no such picture": ([task("/data/upload/1/0f3b1c2d-z.jpg", [CAT])], "no file.*z.jpg"),
    "no object": ([3], "no text under data: image: entry 1"),
    "results that are no list": (
        [task("a.jpg") | {"annotations": [{"result": 5}]}],
        r"annotations hold no list of objects under 'result': entry 1 \(annotation 1\)",
    ),
    "an annotation that is none": (
        [task("a.jpg") | {"annotations": [7]}],
        r"annotations hold no list of objects under 'result': entry 1 \(annotation 1\)",
    ),
    "a kind that is no text": (
        [task("a.jpg") | {"annotations": [{"result": [{"from_name": "tag", "type": ["x"], "value": {}}]}]}],
        r"results hold no list of names .*entry 1 \(\['x'\]\)",
    ),
    "an address that is none": ([task("http://[h/z.jpg", [CAT])], "no file.*z.jpg"),
}


@pytest.mark.parametrize("found, message", STUDIO_FAULTS.values(), ids=STUDIO_FAULTS.keys())
def test_faults_of_tasks_are_named(found, message, tmp_path):
    with pytest.raises(SourceError, match=message):
        read(tmp_path, found, STUDIO)


def test_a_picture_is_the_one_whose_path_ends_alike_the_furthest():
    names = {"a.jpg": ["x/a.jpg", "y/x/a.jpg", "z/a.jpg"], "b.jpg": ["p/b.jpg", "q/b.jpg"], "c d.jpg": ["c d.jpg"]}
    assert find_picture("http://h/y/x/a.jpg", names) == ["y/x/a.jpg"]
    assert find_picture("/data/local-files/?d=z%2Fa.jpg", names) == ["z/a.jpg"]
    assert find_picture("b.jpg", names) == ["p/b.jpg", "q/b.jpg"]
    assert find_picture("/data/upload/2/01234567-c%20d.jpg", names) == ["c d.jpg"]
    assert find_picture("/data/upload/2/0123456g-c%20d.jpg", names) == []


# ---------------------------------------------------------------------------------------------- FiftyOne
def sample(name: str, label: Any, *tags: str) -> dict[str, Any]:
    return {"_id": {"$oid": "5f"}, "filepath": f"data/{name}", "tags": list(tags), "ground_truth": label}


def label(name: str, kind: str = "Classification") -> dict[str, Any]:
    return {"_id": {"$oid": "6f"}, "_cls": kind, "tags": [], "label": name}


def test_samples_of_fiftyone(tmp_path):
    boxes = {"_cls": "Detections", "detections": [label("dog", "Detection"), label("dog", "Detection")]}
    many = {"_cls": "Classifications", "classifications": [label("cat"), label("dog")]}
    found = {
        "samples": [
            sample("a.jpg", many, "train"),
            sample("b.png", boxes, "validation", "sharp"),
            sample("c.jpg", None),
            sample("sub/d.jpg", {"_cls": "Classifications", "classifications": []}),
        ]
    }
    data = read(tmp_path, found, SAMPLES)
    assert truth(data) == {"a.jpg": [1, 1], "b.png": [-1, 1], "c.jpg": [-1, -1], "d.jpg": [0, 0]}
    assert dict(zip(data.table.paths, data.table.split.tolist(), strict=True))["data/b.png"] == 1
    one = read(tmp_path, {"samples": [sample("a.jpg", label("cat")), sample("b.png", label("dog"))]}, SAMPLES)
    assert truth(one) == {"a.jpg": [1, -1], "b.png": [-1, 1]}


SAMPLE_FAULTS = {
    "no list": ({"samples": {}}, "no list `samples`"),
    "no path": ({"samples": [{"ground_truth": label("cat")}]}, "no text under 'filepath': sample 1"),
    "no label": ({"samples": [sample("a.jpg", "cat")]}, "no labels under 'ground_truth': sample 1"),
    "a label without a name": ({"samples": [sample("a.jpg", {"_cls": "Classification"})]}, "no labels under.*sample 1"),
    "two splits": (
        {"samples": [sample("a.jpg", label("cat"), "train", "test")]},
        r"several splits: sample 1 \(train, test",
    ),
    **{
        f"tags {tags!r}": (
            {"samples": [sample("a.jpg", label("cat")) | {"tags": tags}]},
            "samples have tags that are no list of texts: sample 1$",
        )
        for tags in (5, "train", ["train", 3, "test"], {"train": 1})
    },
    **{
        f"a label {odd!r}": ({"samples": [sample("a.jpg", odd)]}, "no labels under 'ground_truth': sample 1")
        for odd in ({"_cls": ["x"]}, {"_cls": "Detections", "detections": 7}, {"_cls": "Detections", "detections": {}})
    },
}


@pytest.mark.parametrize("found, message", SAMPLE_FAULTS.values(), ids=SAMPLE_FAULTS.keys())
def test_faults_of_samples_are_named(found, message, tmp_path):
    with pytest.raises(SourceError, match=message):
        read(tmp_path, found, SAMPLES)


FORMS = {
    "numbers": {"classes": ["cat", "dog"], "labels": {"a": 0, "b": [0, 1], "c": None, "sub/d": []}},
    "names": {"labels": {"a": "cat", "b": ["cat", "dog"], "c": None, "sub/d.jpg": []}},
    "with confidences": {
        "classes": ["cat", "dog"],
        "labels": {"a": {"label": 0, "confidence": 0.9}, "b": {"label": [0, 1]}, "c": {"label": None}, "sub/d": []},
    },
    "boxes": {
        "classes": ["cat", "dog"],
        "labels": {"a": [{"label": 0}, {"label": 0}], "b": [{"label": 0}, {"label": 1}], "c": None, "sub/d": []},
    },
}


@pytest.mark.parametrize("found", FORMS.values(), ids=FORMS.keys())
def test_labels_of_fiftyone(found, tmp_path):
    data = read(tmp_path, found, LABELS, exhaustive=True)
    assert truth(data) == {"a.jpg": [1, 0], "b.png": [1, 1], "c.jpg": [-1, -1], "d.jpg": [0, 0]}


LABEL_FAULTS = {
    "no object": ({"labels": []}, "no object `labels`"),
    "classes that are no names": ({"classes": [1], "labels": {"a": 0}}, "`classes` is no list of names"),
    "a number too large": (
        {"classes": ["cat"], "labels": {"a": 1}},
        "labels are not a number from 0 to 0: image 'a' 1",
    ),
    "a name among numbers": ({"classes": ["cat"], "labels": {"a": "cat"}}, "labels are not a number from 0 to 0"),
    "a number among names": ({"labels": {"a": 3}}, "labels are not a name: image 'a' 3"),
    "no such picture": ({"labels": {"z": "cat", "a": "cat"}}, "no picture file: image 'z'"),
}


@pytest.mark.parametrize("found, message", LABEL_FAULTS.values(), ids=LABEL_FAULTS.keys())
def test_faults_of_labels_are_named(found, message, tmp_path):
    with pytest.raises(SourceError, match=message):
        read(tmp_path, found, LABELS)


# ---------------------------------------------------------------------------------------------- odd values
WHOLE: dict[str, tuple[dict[str, Any], Any]] = {
    "tasks": (STUDIO, [task("a.jpg", [CAT, DOG]), task("http://h/b.png", [DOG])]),
    "samples": (
        SAMPLES,
        {
            "samples": [
                sample("a.jpg", {"_cls": "Detections", "detections": [label("dog", "Detection")]}, "train"),
                sample("b.png", label("cat"), "test"),
            ]
        },
    ),
    "labels": (LABELS, {"classes": ["cat", "dog"], "labels": {"a": {"label": [0, {"label": 1}]}, "b": 1}}),
    "coco": (
        {"kind": "coco"},
        {
            "images": [{"id": 1, "file_name": "data/a.jpg"}, {"id": 2, "file_name": "data/b.png"}],
            "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
            "annotations": [{"image_id": 1, "category_id": 1}, {"image_id": 2, "category_id": 2}],
        },
    ),
}
ODD: list[Any] = [None, True, 5, 0.5, "", "x", "http://[x/a.jpg", [], [3], ["x"], [["x"]], {}, {"x": 1}]


def replaced(whole: Any, odd: Any) -> Iterator[Any]:
    """Yield a JSON value once for each value in it, which is odd instead."""
    yield odd
    for key in whole if isinstance(whole, dict) else range(len(whole)) if isinstance(whole, list) else ():
        for inner in replaced(whole[key], odd):
            copy = whole.copy()
            copy[key] = inner
            yield copy


@pytest.mark.parametrize("form", WHOLE)
def test_whatever_a_value_is_there_is_a_dataset_or_a_fault(form, tmp_path):
    content, whole = WHOLE[form]
    read(tmp_path, whole, content)
    found = disk.scan(tmp_path, "follow")
    outcomes = {True: 0, False: 0}
    for each in (each for odd in ODD for each in replaced(whole, odd)):
        try:
            read(tmp_path, each, content)
            outcomes[True] += 1
        except SourceError:
            outcomes[False] += 1
        with suppress(SourceError, ConfigError):
            recognise_json([tmp_path / "labels.json"], found, Named(), Declared())
    assert min(outcomes.values()) >= 10


NAMES = ("a#1.jpg", "what?.jpg", "b?d=2.jpg", "c%20d.jpg", "c d.jpg", "e.jpg", "ü#?.jpg")


@pytest.mark.parametrize("before", ["", "sub/", "/data/upload/3/0f3b1c2d-", "s3://bucket/", "C:\\photos\\"])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_with_marks_of_addresses_is_found(name, before):
    by_name = {each: [each] for each in NAMES}
    assert find_picture(before + name, by_name) == [name]


@pytest.mark.parametrize("before", ["http://host/", "/data/upload/3/0f3b1c2d-", "http://host/data/local-files/?d=x/"])
@pytest.mark.parametrize("name", [name for name in NAMES if "%" not in name])
def test_a_name_that_is_quoted_is_found(name, before):
    by_name = {each: [each] for each in NAMES if "%" not in each}
    assert find_picture(before + quote(name), by_name) == [name]


def test_what_an_address_asks_for_is_no_name():
    by_name = {name: [name] for name in ("a.jpg", "b.jpg")}
    for written in ("https://h/a.jpg?x=y/b.jpg", "http://h/a.jpg#b.jpg", "/data/a.jpg?v=2", "http://[h/a.jpg"):
        assert find_picture(written, by_name) == ["a.jpg"]
    assert find_picture("https://h/c.jpg?x=y/b.jpg", by_name) == []
