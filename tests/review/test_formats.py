"""Tasks of other tools, and back: every question's answer comes home under its own name."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pipeline.core.errors import SourceError
from pipeline.labels.corrections import Correction
from pipeline.review import formats
from pipeline.review.answers import Answers, merge_answers
from tests.review.asked import CLASSES, PATHS, questions

WANTED = {(each.path, each.label): ("present", "absent", None)[number % 3] for number, each in enumerate(questions())}
"""What a person answers; None: nothing."""
EXPECTED = {cell: value for cell, value in WANTED.items() if value}


def fill_csv(file: Path) -> Path:
    lines = file.read_text(encoding="utf-8").splitlines()
    values = [value or "" for value in WANTED.values()]
    filled = [line.replace(",,,", f",{value},,", 1) for line, value in zip(lines[1:], values, strict=True)]
    file.write_text("\n".join([lines[0], *filled]), encoding="utf-8")
    return file


def fill_label_studio(file: Path) -> Path:
    """A person who opens a task answers for all classes that it asks about; the others' tasks stay as they came."""
    tasks = json.loads(file.read_text(encoding="utf-8"))
    for task in tasks:
        data = task["data"]
        chosen = [name for name in data["ask"] if WANTED[data["path"], name] == "present"]
        result = {"from_name": "labels", "to_name": "image", "type": "choices", "value": {"choices": chosen}}
        annotation = {
            "result": [result],
            "completed_by": {"id": 3, "email": "ann@example.org"},
            "updated_at": "2026-01-02",
        }
        cancelled = {"result": [], "was_cancelled": True, "completed_by": 4}
        task["annotations"] = [annotation, cancelled]
    tasks.append({"data": {"image": "/data/local-files/?d=plain.jpg"}, "annotations": [], "predictions": []})
    file.write_text(json.dumps(tasks), encoding="utf-8")
    return file


def fill_coco(file: Path) -> Path:
    content = json.loads(file.read_text(encoding="utf-8"))
    paths = {image["id"]: image["file_name"] for image in content["images"]}
    names = {category["id"]: category["name"] for category in content["categories"]}
    for annotation in content["annotations"]:
        value = WANTED[paths[annotation["image_id"]], names[annotation["category_id"]]]
        if value:
            annotation["attributes"]["answer"] = value
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def fill_cvat(file: Path) -> Path:
    tree = ElementTree.parse(file)
    for image in tree.iter("image"):
        for tag in image.iter("tag"):
            attribute = tag.find("attribute")
            assert attribute is not None and attribute.text == "unsure"
            attribute.text = WANTED[image.attrib["name"], tag.attrib["label"]] or "unsure"
    tree.write(file, encoding="utf-8")
    return file


def fill_fiftyone(file: Path) -> Path:
    """FiftyOne gives whole paths back."""
    content = json.loads(file.read_text(encoding="utf-8"))
    for sample in content["samples"]:
        for found in sample["predictions"]["classifications"]:
            found["tags"] = [value] if (value := WANTED[sample["filepath"], found["label"]]) else ["seen"]
        sample["filepath"] = f"/somewhere/pictures/{sample['filepath']}"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file.parent


FILL: dict[str, Callable[[Path], Path]] = {
    "csv": fill_csv,
    "labelstudio": fill_label_studio,
    "coco": fill_coco,
    "fiftyone": fill_fiftyone,
    "cvat": fill_cvat,
}


def written(kind: str, folder: Path) -> Path:
    """The tasks of a tool, the first of its files."""
    files = []
    for ending, text in formats.format_tasks(kind, questions(), CLASSES, lambda row: (48, 64)).items():
        files.append(folder / f"pets-{kind}{ending}")
        files[-1].parent.mkdir(exist_ok=True)
        files[-1].write_text(text, encoding="utf-8")
    return files[0]


def read(file: Path) -> dict[tuple[str, str], str]:
    answers = formats.place_answers(formats.read_tasks(file, "Ann", "now"), PATHS, CLASSES, file.name)
    assert all(answer.who and answer.when for answer in answers)
    return {(answer.path, answer.label): answer.value for answer in answers}


def test_every_format_is_tried():
    assert set(FILL) == set(formats.WRITERS)


@pytest.mark.parametrize("kind", FILL)
def test_tasks_without_an_answer_answer_nothing(kind, tmp_path):
    """A model's own predictions are nobody's answers."""
    assert read(written(kind, tmp_path)) == {}


@pytest.mark.parametrize("kind", FILL)
def test_answers_come_back_under_their_names(kind, tmp_path):
    found = read(FILL[kind](written(kind, tmp_path)))
    open_tasks = {cell: "absent" for cell, value in WANTED.items() if value is None} if kind == "labelstudio" else {}
    assert found == EXPECTED | open_tasks


def test_a_label_studio_person_is_named(tmp_path):
    answers = formats.read_tasks(fill_label_studio(written("labelstudio", tmp_path)), "Ann", "now")
    assert {(answer.who, answer.when) for answer in answers} == {("ann@example.org", "2026-01-02")}


def test_a_class_that_nobody_asked_about_can_be_chosen(tmp_path):
    result = [{"type": "choices", "value": {"choices": ["été"]}}, {"type": "textarea", "value": {"text": ["x"]}}]
    task = {"data": {"image": "http://host/data/local-files/?d=Gr%C3%BC%C3%9Fe/%C3%BC%201.jpg"}}
    (tmp_path / "x.json").write_text(json.dumps([task | {"annotations": [{"result": result, "completed_by": 7}]}]))
    (answer,) = formats.read_tasks(tmp_path / "x.json", "Ann", "now")
    assert answer == ("Grüße/ü 1.jpg", "été", "present", "7", "now")


REFUSED = {
    "x.csv": ("a,b\n1,2\n", "neither a table of path,class,value"),
    "y.csv": ("path,class,value\na,b\n", "line 2 has another number of fields than 3"),
    "z.csv": ("path,class,value\nplain.jpg,été,maybe\n", "answers are not present or absent: line 2: 'maybe'"),
    "a.json": ("{", "Expecting"),
    "b.json": ("[" * 100_000, "recursion|nested"),
    "c.json": ('{"a": 1}', "JSON of none of Label Studio .*, COCO and FiftyOne"),
    "d.json": ('[{"data": {"text": "x"}, "annotations": [{"result": []}]}]', "is not complete: KeyError 'image'"),
    "e.json": (
        '{"images": [], "categories": [], "annotations": [{"attributes": {"answer": "present"}}]}',
        "not complete",
    ),
    "f.json": ('{"samples": [{"p": {"_cls": "Classifications"}}]}', "is not complete"),
    "a.xml": ("<annotations>", "no element found|unclosed"),
    "b.xml": ("<annotation></annotation>", "XML of 'annotation', not CVAT's"),
    "c.xml": ('<!DOCTYPE a [<!ENTITY b "cc">]><annotations>&b;</annotations>', "EntitiesForbidden|entity"),
    "empty": ("", "neither a table"),
    "bytes": ("\udcff", "UTF-8"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_export_is_refused(name, tmp_path):
    text, words = REFUSED[name]
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SourceError, match=words):
        formats.read_tasks(tmp_path / name, "Ann", "now")


ODD = [None, True, 5, 1.5, [], ["present"], {}, {"a": 1}]
"""What JSON may hold where a text belongs."""


def odd_label_studio(key: str, odd: object) -> list[object]:
    data = {"path": "plain.jpg", "ask": ["été"]} | ({"path": odd} if key == "path" else {})
    data |= {"ask": odd} if key == "ask" else {"ask": ["été", odd]} if key == "class" else {}
    choices = odd if key == "choices" else [odd] if key == "choice" else []
    result = {"type": "choices", "value": {"choices": choices}}
    return [{"data": data, "annotations": [{"result": [result]}]}]


def odd_coco(key: str, odd: object) -> dict[str, object]:
    fields = {"path": "plain.jpg", "class": "été", "value": "present"} | {key: odd}
    return {
        "images": [{"id": 1, "file_name": fields["path"]}],
        "categories": [{"id": 1, "name": fields["class"]}],
        "annotations": [{"image_id": 1, "category_id": 1, "attributes": {"answer": fields["value"]}}],
    }


def odd_fiftyone(key: str, odd: object) -> dict[str, object]:
    fields = {"path": "plain.jpg", "class": "été"} | {key: odd}
    found = {"_cls": "Classifications", "classifications": [{"label": fields["class"], "tags": ["present"]}]}
    return {"samples": [{"filepath": fields["path"], "p": found}]}


PLACES = [
    *((odd_label_studio, key, "task 1") for key in ("path", "ask", "class", "choices", "choice")),
    *((odd_coco, key, "annotation 1") for key in ("path", "class", "value")),
    *((odd_fiftyone, key, "sample 1") for key in ("path", "class")),
]


@pytest.mark.parametrize(("write", "key", "place"), PLACES, ids=[f"{each[0].__name__}-{each[1]}" for each in PLACES])
def test_what_is_no_text_is_refused_with_its_place(write, key, place, tmp_path):
    file = tmp_path / "x.json"
    wholes = {"ask": [[], ["present"]], "choices": [[], ["present"]]}.get(key, [])  # lists belong there
    for odd in ODD:
        if odd in wholes:
            continue
        file.write_text(json.dumps(write(key, odd)))
        with pytest.raises(SourceError) as caught:
            formats.place_answers(formats.read_tasks(file, "Ann", "now"), PATHS, CLASSES, "x.json")
        assert re.match(f"x.json: .*{place}", str(caught.value))


def tagged(tags: object) -> dict[str, object]:
    found = {"_cls": "Classifications", "classifications": [{"label": "été", "tags": tags}]}
    return {"samples": [{"filepath": "plain.jpg", "p": found}]}


@pytest.mark.parametrize("written", ["present", "Present", " ABSENT "])
def test_tags_count_in_any_case(written, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(tagged(["seen", written])))
    (answer,) = formats.read_tasks(tmp_path / "x.json", "Ann", "now")
    assert answer.value == written.strip().lower()


@pytest.mark.parametrize("tags", ["present", {"present": 1}, 5, True, [5], [None], [["present"]], ["present", {}]])
def test_tags_that_are_no_list_of_texts_are_refused(tags, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(tagged(tags)))
    with pytest.raises(SourceError, match=r"x\.json: sample 1: tags (is no list, but|hold)"):
        formats.read_tasks(tmp_path / "x.json", "Ann", "now")


def test_no_tags_are_no_answer(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(tagged(None)))
    assert formats.read_tasks(tmp_path / "x.json", "Ann", "now") == []


def two_tasks(file: Path) -> tuple[str, str]:
    """One picture and class, in two ways of writing, answered twice by one person."""
    lines = ["path,class,value,who", "plain.jpg,été,present,Ann", ".\\plain.jpg,e\u0301te\u0301 ,absent,"]
    file.write_text("\n".join(lines), encoding="utf-8")
    return "line 2", "line 3"


def two_annotations(file: Path) -> tuple[str, str]:
    task = odd_label_studio("choices", ["été"])[0]
    assert isinstance(task, dict)
    task["annotations"].append({"result": []})
    file.write_text(json.dumps([task]))
    return "task 1", "task 1"


def two_attributes(file: Path) -> tuple[str, str]:
    content: dict = odd_coco("value", "present")
    content["annotations"] *= 2
    content["annotations"][1] = content["annotations"][0] | {"attributes": {"answer": "absent"}}
    file.write_text(json.dumps(content))
    return "annotation 1", "annotation 2"


def two_xml_tags(file: Path) -> tuple[str, str]:
    images = [
        f'<image name="plain.jpg"><tag label="été"><attribute name="answer">{value}</attribute></tag></image>'
        for value in ("present", "absent")
    ]
    file.write_text(f"<annotations>{''.join(images)}</annotations>", encoding="utf-8")
    return "image 1", "image 2"


def two_tags(file: Path) -> tuple[str, str]:
    file.write_text(json.dumps(tagged(["absent", "present"])))
    return "sample 1", "sample 1"


@pytest.mark.parametrize("write", [two_tasks, two_annotations, two_attributes, two_xml_tags, two_tags])
def test_two_answers_of_one_person_that_differ_are_refused_with_both_places(write, tmp_path):
    one, two = write(tmp_path / "x")
    with pytest.raises(SourceError, match=f"one person about one label differ.*: {two} says absent, {one} present"):
        formats.read_tasks(tmp_path / "x", "Ann", "now")


def test_two_people_may_differ_in_a_file(tmp_path):
    """Merging names them."""
    (tmp_path / "x.csv").write_text("path,class,value,who\na.jpg,été,present,Ann\na.jpg,été,absent,Bob\n")
    assert [each.who for each in formats.read_tasks(tmp_path / "x.csv", "Ann", "now")] == ["Ann", "Bob"]


@pytest.mark.parametrize("header", ["path,class,value,value", "path,class,Value,value", "path,class,value,who, WHO"])
def test_a_column_that_is_there_twice_is_refused(header, tmp_path):
    fields = ["plain.jpg", "été", "present", "absent", "x"]
    line = ",".join(fields[: header.count(",") + 1])
    (tmp_path / "x.csv").write_text(f"{header}\n{line}\n", encoding="utf-8")
    with pytest.raises(SourceError, match="line 1 names columns twice: (value|who)"):
        formats.read_tasks(tmp_path / "x.csv", "Ann", "now")


@pytest.mark.parametrize("key", ["ask", "choices"])
def test_a_text_is_no_list_of_its_letters(key, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(odd_label_studio(key, "cat")))
    with pytest.raises(SourceError, match=f"x.json: task 1: {key} is no list, but 'cat'"):
        formats.read_tasks(tmp_path / "x.json", "Ann", "now")


def test_all_odd_answers_are_listed(tmp_path):
    lines = ["path,class,value", "plain.jpg,été,maybe", "plain.jpg,été,present", "plain.jpg,été,yes"]
    (tmp_path / "x.csv").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(SourceError, match="2 answers are not present or absent: line 2: 'maybe', line 4: 'yes'"):
        formats.read_tasks(tmp_path / "x.csv", "Ann", "now")


def test_names_of_other_data_are_listed():
    answers = [Correction("no.jpg", "été", "present"), Correction("plain.jpg", "zebra", "absent")]
    with pytest.raises(SourceError, match=r"x\.json: images are not in the dataset: 'no\.jpg'\n.*classes .* 'zebra'"):
        formats.place_answers(answers, PATHS, CLASSES, "x.json")


# ---------------------------------------------------------------------------------------------- merging
def answer(value: str, who: str = "Ann", when: str = "now") -> Correction:
    return Correction("plain.jpg", "été", value, who, when)


def test_answers_are_added_once(tmp_path):
    file = tmp_path / "corrections" / "pets.csv"
    assert merge_answers(file, [answer("present"), answer("present", "Bob")]) == {
        "added": 2,
        "replaced": 0,
        "before": 0,
        "older": 0,
    }
    before = file.read_bytes()
    assert merge_answers(file, [answer("present", when="later")]) == {
        "added": 0,
        "replaced": 0,
        "before": 1,
        "older": 0,
    }
    assert file.read_bytes() == before


def test_another_mind_replaces_ones_own_answer(tmp_path):
    file = tmp_path / "pets.csv"
    merge_answers(file, [answer("present")])
    assert merge_answers(file, [answer("absent", when="later")])["replaced"] == 1
    assert Answers(file, "Ann").read() == [answer("absent", when="later")]


EARLIER = {  # times, the first before the second
    "2026-01-02T09:00:00Z": "2026-01-02T09:00:01Z",
    "2026-01-02T09:00:00.5Z": "2026-01-02T09:00:00.75+00:00",
    "2026-01-02T10:00:00+02:00": "2026-01-02T09:00:00Z",
    "2026-01-02 08:59": "2026-01-02T09:00:00Z",
    "2026-01-01": "2026-01-02",
}


@pytest.mark.parametrize("earlier", EARLIER)
def test_an_older_answer_never_replaces_a_newer(earlier, tmp_path):
    file, later = tmp_path / "pets.csv", EARLIER[earlier]
    merge_answers(file, [answer("present", when=later)])
    assert merge_answers(file, [answer("absent", when=earlier)]) == {"added": 0, "replaced": 0, "before": 0, "older": 1}
    assert Answers(file, "Ann").read() == [answer("present", when=later)]
    file.unlink()
    merge_answers(file, [answer("present", when=earlier)])
    assert merge_answers(file, [answer("absent", when=later)])["replaced"] == 1


def test_answers_that_differ_are_named_and_nothing_is_lost(tmp_path):
    file = tmp_path / "pets.csv"
    merge_answers(file, [answer("present", "Bob")])
    before = file.read_bytes()
    with pytest.raises(SourceError, match=r"'plain\.jpg' 'été': Ann says absent, Bob present; nothing was added"):
        merge_answers(file, [answer("absent"), Correction("a.jpg", "été", "present")])
    assert file.read_bytes() == before
