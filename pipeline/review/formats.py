"""Questions as tasks of other tools, and the answers that these give back.

Each task holds what the model believes, and no answer yet; what comes back is read only where a person answered:

- csv: the table of corrections with `belief`, `shown` and `split` beside it; who fills `value` in has answered.
- labelstudio: Label Studio's JSON of tasks with predictions, one an image; of an annotated task the classes of `ask`
  that were chosen are present, those that were not are absent, and others that were chosen are present.
- coco: COCO JSON, an annotation a question with its `score`; its `attributes` hold `answer`.
- cvat: CVAT for images 1.1, a tag a question, with an attribute `answer` to choose.
- fiftyone: FiftyOne's dataset JSON, a classification a question; who tags it `present` or `absent` has answered.
"""

import csv
import io
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from xml.etree.ElementTree import Element, ParseError, SubElement, indent, tostring

from defusedxml import DefusedXmlException, ElementTree

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, find_duplicates, normalize_class_name, preview
from pipeline.core.files import quote_formula, unquote_formula
from pipeline.core.text import read_text
from pipeline.labels.corrections import COLUMNS, NEEDED, VALUES, Correction
from pipeline.review.questions import Question

OPEN = "unsure"
"""What `answer` holds before a person chose."""
EXTRA = ("belief", "shown", "split")
Size = tuple[int, int]


# ---------------------------------------------------------------------------------------------- tasks
def format_tasks(
    kind: str, questions: Sequence[Question], classes: Sequence[str], size: Callable[[int], Size]
) -> dict[str, str]:
    """Return questions as tasks of a tool.

    Args:
        kind: A key of `WRITERS`.
        questions: The questions.
        classes: Names of all classes.
        size: Returns height and width of the picture of a row, in pixels.

    Returns:
        Text of each file, by what comes after the dataset in its name.
    """
    return WRITERS[kind](questions, classes, size)


def _by_picture(questions: Iterable[Question]) -> Iterator[tuple[int, list[Question]]]:
    """Yield each row with its questions, in the order of rows."""
    ordered = sorted(questions, key=lambda question: question.row)
    for row, part in groupby(ordered, key=lambda question: question.row):
        yield row, list(part)


def _write_csv(questions: Sequence[Question], classes: Sequence[str], size: Callable[[int], Size]) -> dict[str, str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*COLUMNS, *EXTRA])
    for question in questions:
        fields = [question.path, question.label, "", "", "", f"{question.belief:.4f}", "; ".join(question.shown)]
        writer.writerow([quote_formula(field) for field in [*fields, question.split]])
    return {".csv": buffer.getvalue()}


def _write_label_studio(
    questions: Sequence[Question], classes: Sequence[str], size: Callable[[int], Size]
) -> dict[str, str]:
    tasks = []
    for _, asked in _by_picture(questions):
        likely = [*asked[0].shown, *(question.label for question in asked if question.belief >= 0.5)]
        chosen = {"from_name": "labels", "to_name": "image", "type": "choices", "value": {"choices": likely}}
        data = {
            "image": f"/data/local-files/?d={quote(asked[0].path)}",
            "path": asked[0].path,
            "ask": [question.label for question in asked],
            "belief": {question.label: round(question.belief, 4) for question in asked},
        }
        score = max(question.belief for question in asked)
        tasks.append(
            {"data": data, "predictions": [{"model_version": "spml", "score": round(score, 4), "result": [chosen]}]}
        )
    view = Element("View")
    SubElement(view, "Image", name="image", value="$image")
    choices = SubElement(view, "Choices", name="labels", toName="image", choice="multiple", showInline="true")
    for name in classes:
        SubElement(choices, "Choice", value=name)
    indent(view)
    return {".json": _json(tasks), "-labels.xml": tostring(view, encoding="unicode") + "\n"}


def _write_coco(questions: Sequence[Question], classes: Sequence[str], size: Callable[[int], Size]) -> dict[str, str]:
    categories, images, annotations = {name: number for number, name in enumerate(classes, start=1)}, [], []
    for number, (row, asked) in enumerate(_by_picture(questions), start=1):
        height, width = size(row)
        images.append({"id": number, "file_name": asked[0].path, "width": width, "height": height})
        for question in asked:
            place = {"id": len(annotations) + 1, "image_id": number, "category_id": categories[question.label]}
            box = {"bbox": [0, 0, width, height], "area": width * height, "iscrowd": 0}
            annotations.append(place | box | {"score": round(question.belief, 4), "attributes": {"answer": OPEN}})
    named = [{"id": number, "name": name} for name, number in categories.items()]
    return {".json": _json({"images": images, "categories": named, "annotations": annotations})}


def _write_cvat(questions: Sequence[Question], classes: Sequence[str], size: Callable[[int], Size]) -> dict[str, str]:
    top = Element("annotations")
    SubElement(top, "version").text = "1.1"
    labels = SubElement(SubElement(SubElement(top, "meta"), "task"), "labels")
    for name in classes:
        label = SubElement(labels, "label")
        SubElement(label, "name").text = name
        SubElement(label, "type").text = "tag"
        attribute = SubElement(SubElement(label, "attributes"), "attribute")
        values = {"name": "answer", "mutable": "False", "input_type": "select", "default_value": OPEN}
        for key, text in (values | {"values": "\n".join([OPEN, *VALUES])}).items():
            SubElement(attribute, key).text = text
    for number, (row, asked) in enumerate(_by_picture(questions)):
        height, width = size(row)
        image = SubElement(top, "image", id=str(number), name=asked[0].path, width=str(width), height=str(height))
        for question in asked:
            tag = SubElement(image, "tag", label=question.label, source="auto")
            SubElement(tag, "attribute", name="answer").text = OPEN
    indent(top)
    return {".xml": '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(top, encoding="unicode") + "\n"}


def _write_fiftyone(
    questions: Sequence[Question], classes: Sequence[str], size: Callable[[int], Size]
) -> dict[str, str]:
    samples = []
    for _, asked in _by_picture(questions):
        found = [
            {"_cls": "Classification", "tags": [], "label": question.label, "confidence": round(question.belief, 6)}
            for question in asked
        ]
        predictions = {"_cls": "Classifications", "classifications": found}
        samples.append({"filepath": asked[0].path, "tags": [asked[0].split], "predictions": predictions})
    metadata = {"media_type": "image", "classes": {"predictions": list(classes)}, "info": {}}
    return {"/samples.json": _json({"samples": samples}), "/metadata.json": _json(metadata)}


def _json(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


WRITERS: dict[str, Callable[[Sequence[Question], Sequence[str], Callable[[int], Size]], dict[str, str]]] = {
    "csv": _write_csv,
    "labelstudio": _write_label_studio,
    "coco": _write_coco,
    "fiftyone": _write_fiftyone,
    "cvat": _write_cvat,
}


# ---------------------------------------------------------------------------------------------- answers
def read_tasks(file: Path, who: str, when: str) -> list[Correction]:
    """Read what people answered in a tool, whose format is told by the content.

    Args:
        file: The tool's export, or the folder of FiftyOne's.
        who: Who answered, where the file does not say.
        when: When, likewise.

    Returns:
        The answers, in the file's order; paths and classes are not looked up.

    Raises:
        SourceError: The file cannot be read, is of no known format, or holds answers that are none; all are listed.
    """
    if file.is_dir():
        file = file / "samples.json"
    text = read_text(file)
    start = text.lstrip()[:1]
    try:
        if start == "<":
            found = list(_read_cvat(text))
        elif start in ("{", "["):
            found = list(_read_json(json.loads(text)))
        else:
            found = list(_read_csv(text))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise SourceError(f"{file.name}: is not complete: {type(error).__name__} {error}") from error
    except (ValueError, RecursionError, ParseError, DefusedXmlException, csv.Error) as error:
        raise SourceError(f"{file.name}: {error}") from error
    return _check_answers(found, who, when, file.name)


def _check_answers(found: Iterable[tuple[str, tuple[Any, ...]]], who: str, when: str, name: str) -> list[Correction]:
    """Return answers as `read_tasks`.

    Raises:
        SourceError: A path, a class or a value is none, or one person answers a question in two ways; all are listed.
    """  # noqa: DOC502  raised by `Faults`
    faults, answers, first = Faults(name), [], dict[tuple[str, str, str], tuple[str, str]]()
    for place, fields in found:
        named = zip(COLUMNS, fields, strict=False)  # who and when may be left out
        odd = [f"{place}: {key} is {field!r:.80}" for key, field in named if not isinstance(field, str)]
        for what in odd:
            faults.add("answers hold what is no text", what)
        if odd:
            continue
        answer = Correction(*fields)
        answer = answer._replace(value=answer.value.strip().casefold(), who=answer.who or who, when=answer.when or when)
        if answer.value not in VALUES:
            faults.add(f"answers are not {' or '.join(VALUES)}", f"{place}: {answer.value!r:.80}")
        cell = (_form(answer.path), normalize_class_name(answer.label), answer.who)
        earlier, value = first.setdefault(cell, (place, answer.value))
        if value != answer.value:
            both = f"{place} says {answer.value}, {earlier} {value}: {answer.path!r} {answer.label!r}"
            faults.add("two answers of one person about one label differ (delete the wrong one)", both)
        answers.append(answer)
    faults.raise_if_any()
    return answers


def _form(path: str) -> str:
    """Return a path in the one form of names of images; of one from the root of a disk, what comes after the root."""
    parts = unicodedata.normalize("NFC", path).replace("\\", "/").split("/")
    return "/".join(part for part in parts if part not in ("", "."))


def place_answers(
    answers: Iterable[Correction], paths: Iterable[str], classes: Iterable[str], name: str
) -> list[Correction]:
    """Return answers with the names that a dataset calls its images and classes by.

    Args:
        answers: Answers; tools may have put more folders before the path of an image.
        paths: Names of the images.
        classes: Names of the classes.
        name: How messages call the file.

    Returns:
        The answers, in their order.

    Raises:
        SourceError: An image or a class is not in the dataset; all are listed.
    """  # noqa: DOC502  raised by `Faults`
    faults, known, labels, found = Faults(name), set(paths), set(classes), []
    for answer in answers:
        path, label = _form(answer.path), normalize_class_name(answer.label)
        parts = path.split("/")
        ends = ("/".join(parts[at:]) for at in range(len(parts)))  # the longest first
        place = next((end for end in ends if end in known), None)
        if place is None:
            faults.add("images are not in the dataset", repr(answer.path))
        if label not in labels:
            faults.add("classes are not in the dataset", repr(answer.label))
        found.append(answer._replace(path=place or path, label=label))
    faults.raise_if_any()
    return found


Found = Iterator[tuple[str, tuple[Any, ...]]]
"""Where in the file; path, class and value, and who and when where that is told, of whatever type."""


def _read_csv(text: str) -> Found:
    """Yield the rows of a table in which a value stands.

    Raises:
        ValueError: It is no such table.
    """
    first = text.lstrip("\n").partition("\n")[0]
    rows = csv.DictReader(io.StringIO(text.lstrip("\n")), delimiter=max(",;\t", key=first.count), strict=True)
    header = [name.strip().casefold() for name in rows.fieldnames or ()]
    if not set(NEEDED) <= set(header) or set(header) - {*COLUMNS, *EXTRA}:
        raise ValueError(f"neither a table of {','.join(COLUMNS)}, nor JSON or XML of a tool that is read")
    rows.fieldnames = header
    if twice := find_duplicates(header):
        raise ValueError(f"line 1 names columns twice: {preview(twice)}")
    for row in rows:
        if None in row or None in row.values():
            raise ValueError(f"line {rows.line_num} has another number of fields than {len(header)}")
        if row["value"].strip():
            yield f"line {rows.line_num}", tuple(unquote_formula(row.get(key, "")) for key in COLUMNS)


def _check_list(value: Any, where: str) -> list[Any]:
    """Return a list of a file as it is.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(value, list):
        raise ValueError(f"{where} is no list, but {value!r:.80}")
    return value


def _read_json(content: Any) -> Found:
    """Return the answers of JSON.

    Raises:
        ValueError: It is of no known format.
    """
    if isinstance(content, dict) and "samples" in content:
        return _read_fiftyone(content["samples"])
    if isinstance(content, dict) and {"images", "annotations", "categories"} <= content.keys():
        return _read_coco(content)
    tasks = content if isinstance(content, list) else [content]
    if tasks and all(isinstance(task, dict) and "data" in task for task in tasks):
        return _read_label_studio(tasks)
    raise ValueError("JSON of none of Label Studio (export it as JSON, not JSON-MIN), COCO and FiftyOne")


def _read_label_studio(tasks: Iterable[Mapping[str, Any]]) -> Found:
    for number, task in enumerate(tasks, start=1):
        data, place = task["data"], f"task {number}"
        asked = _check_list(data.get("ask", []), f"{place}: ask")
        path = data["path"] if "path" in data else parse_qs(urlsplit(data["image"]).query)["d"][0]
        for annotation in task.get("annotations") or ():
            if annotation.get("was_cancelled"):
                continue
            results = [result for result in annotation["result"] if result.get("type") == "choices"]
            lists = [_check_list(result["value"]["choices"], f"{place}: choices") for result in results]
            chosen = [name for names in lists for name in names]
            person = annotation.get("completed_by") or ""
            who = str(person.get("email") or person.get("id") or "" if isinstance(person, dict) else person)
            when = str(annotation.get("updated_at") or "")
            for name in asked + [name for name in chosen if name not in asked]:
                yield place, (path, name, "present" if name in chosen else "absent", who, when)


def _read_coco(content: Mapping[str, Any]) -> Found:
    paths = {image["id"]: image["file_name"] for image in content["images"]}
    names = {category["id"]: category["name"] for category in content["categories"]}
    for number, annotation in enumerate(content["annotations"], start=1):
        answer = (annotation.get("attributes") or {}).get("answer", OPEN)
        if answer != OPEN:
            fields = paths[annotation["image_id"]], names[annotation["category_id"]], answer
            yield f"annotation {number}", fields


def _read_cvat(text: str) -> Found:
    """Yield the answers of CVAT's XML.

    Raises:
        ValueError: It is another XML.
    """
    top = ElementTree.fromstring(text)
    if top.tag != "annotations":
        raise ValueError(f"XML of {top.tag!r}, not CVAT's annotations for images")
    for number, image in enumerate(top.iter("image"), start=1):
        for tag in image.iter("tag"):
            chosen = {attribute.get("name"): attribute.text or "" for attribute in tag.iter("attribute")}
            if chosen.get("answer", OPEN) != OPEN:
                yield f"image {number}", (image.attrib["name"], tag.attrib["label"], chosen["answer"])


def _read_fiftyone(samples: Iterable[Mapping[str, Any]]) -> Found:
    for number, sample in enumerate(samples, start=1):
        fields = [value for value in sample.values() if isinstance(value, dict)]
        for found in (field for field in fields if field.get("_cls") == "Classifications"):
            for label in found["classifications"]:
                place, tags = f"sample {number}", label.get("tags")
                tags = [] if tags is None else _check_list(tags, f"{place}: tags")
                if odd := [tag for tag in tags if not isinstance(tag, str)]:
                    raise ValueError(f"{place}: tags hold {odd[0]!r:.80}, which is no text")
                said = {tag.strip().casefold() for tag in tags}
                for answer in (value for value in VALUES if value in said):
                    yield place, (sample["filepath"], label["label"], answer)
