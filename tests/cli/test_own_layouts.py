"""How people lay out images of their own: each layout is read as it was meant, or refused with what to do.

The table is written by hand: files, what is said to `spml init`, and then either the labels of each picture (`!x`:
known to be absent) or the words of the refusal. Nothing may be read otherwise without a word.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.cli import init, recognise
from pipeline.cli.label_files import Declared, Named
from pipeline.core.errors import ConfigError, SourceError
from pipeline.labels.table import Dataset
from pipeline.sources import base


@dataclass(frozen=True)
class Layout:
    """Files beside a.jpg to d.jpg (or in place of them), what is said, and the labels of pictures, or a refusal."""

    files: dict[str, str | bytes]
    expected: dict[str, str] | str
    said: dict[str, str] = field(default_factory=dict)
    exhaustive: bool = False
    pictures: tuple[str, ...] = ("a.jpg", "b.jpg", "c.jpg", "d.jpg")
    warned: str = ""
    place: str = "."


def csv(*cells: str, head: str = "file,labels", mark: str = ",", expected: Any, **more: Any) -> Layout:
    """A table of pictures a to d with these cells in turn."""
    rows = [f"{name}.jpg{mark}{cell}" for name, cell in zip("abcd", cells, strict=False)]
    return Layout({"x.csv": "\n".join([head, *rows])}, expected, **more)


def names(*cells: str, expected: Any, **more: Any) -> Layout:
    """A table of one column of names, quoted as a spreadsheet quotes them."""
    return csv(*('"' + cell.replace('"', '""') + '"' for cell in cells), expected=expected, **more)


def objects(*labels: Any, expected: Any, **more: Any) -> Layout:
    rows = [{"path": f"{name}.jpg", "labels": label} for name, label in zip("abcd", labels, strict=False)]
    return Layout({"x.json": json.dumps(rows)}, expected, **more)


def folders(*pictures: str, expected: Any, files: dict[str, str | bytes] | None = None, **more: Any) -> Layout:
    return Layout(files or {}, expected, pictures=pictures, **more)


def coco(names: dict[int, str], **lists: Any) -> dict[str, Any]:
    found = {
        "images": [{"id": number, "file_name": f"{name}.jpg", "width": 9} for number, name in enumerate("abcd")],
        "annotations": [
            {"id": 1, "image_id": 0, "category_id": 1},
            {"id": 2, "image_id": 0, "category_id": 2},
            {"id": 3, "image_id": 1, "category_id": 2, "iscrowd": 1},
            {"id": 4, "image_id": 0, "category_id": 1},
        ],
        "categories": [{"id": number, "name": name} for number, name in names.items()],
    }
    return found | lists


def studio(image: str, *names: str, control: str = "tag", twice: str = "") -> dict[str, Any]:
    """A task of Label Studio with choices of one annotator, or of two."""
    given = [names, (twice,)] if twice else [names]
    results = [
        [{"from_name": control, "to_name": "x", "type": "choices", "value": {"choices": list(each)}}] if each else []
        for each in given
    ]
    annotations = [{"completed_by": who, "result": found} for who, found in enumerate(results, start=1)]
    return {"id": 1, "data": {"image": image}, "annotations": annotations}


def fifty(name: str, *labels: str) -> dict[str, Any]:
    """A sample of FiftyOne."""
    found = [{"_cls": "Classification", "label": label} for label in labels]
    return {"filepath": f"data/{name}", "ground_truth": {"_cls": "Classifications", "classifications": found}}


XML = "<annotation><filename>{}</filename><object><name>{}</name></object></annotation>"
BOX = "0.5 0.5 0.1 0.1"
TWO = {"a.jpg": "cat dog", "b.jpg": "dog"}
THREE = {"a.jpg": "cat dog", "b.jpg": "dog", "c.jpg": "cat"}
WIDE = {"a.jpg": "cat !dog", "b.jpg": "!cat dog"}
ALIKE = "class names look alike"
ASK = r"x\.csv: is .* one name, or does .* stand between several. say: --separator "
AS_TEXT = "lists written as text"
LISTS = r"values are no lists of quoted names: line 2, column labels|values are lists written as text .*: line 2"
DECLARE = r"hold 0 and -1.* say it: --zero absent.unknown --minus-one absent.unknown"
CAR = {"a.jpg": "cat", "b.jpg": "dog", "c.jpg": "cat", "d.jpg": "dog"}
LAYOUTS: dict[str, Layout] = {
    # -------------------------------------------------------------------------------- lists written as text
    "list, Python": names("['cat', 'dog']", "['dog']", expected=TWO),
    "list, JSON": names('["cat", "dog"]', '["dog"]', expected=TWO),
    "list, empty ones": names(
        "['cat', 'dog']", "[]", "", "['dog']", expected=TWO | {"b.jpg": "", "c.jpg": "", "d.jpg": "dog"}
    ),
    "set": names("{'cat', 'dog'}", "{'dog'}", "set()", expected=TWO | {"c.jpg": ""}),
    "frozenset": names(
        "frozenset({'cat', 'dog'})", "frozenset()", "frozenset({'dog'})", expected=THREE | {"b.jpg": "", "c.jpg": "dog"}
    ),
    "tuple": names("('cat', 'dog')", "('dog',)", "()", expected=TWO | {"c.jpg": ""}),
    "numpy's print": names("['cat' 'dog']", "['dog']", expected=TWO),
    "numpy's print in lines": names("['cat'\n 'dog']", "['dog']", expected=TWO),
    "numpy's repr": names("array(['cat', 'dog'], dtype='<U3')", "array(['dog'], dtype='<U3')", expected=TWO),
    "numpy 2's scalars": names("[np.str_('cat'), np.str_('dog')]", "[np.str_('dog')]", expected=TWO),
    "quotes within": names('["it\'s", "dog"]', "['dog']", expected={"a.jpg": "it's dog", "b.jpg": "dog"}),
    "JSON's escapes": names('["\\ud83d\\ude00", "\\u00e9"]', '["\\u00e9"]', expected={"a.jpg": "😀 é", "b.jpg": "é"}),
    "list without quotes": names("[cat, dog]", "[dog]", expected=AS_TEXT),
    "Postgres array": names("{cat,dog}", "{dog}", expected=AS_TEXT),
    "list of numbers": names("[1, 2]", "[2]", expected=AS_TEXT),
    "list of lists": names("[['cat'], ['dog']]", "[['dog']]", expected=AS_TEXT),
    "list with None": names("['cat', None]", "['dog']", expected=AS_TEXT),
    "list cut short": names("['cat', ...]", "['dog']", expected=AS_TEXT),
    "bytes": names("[b'cat']", "[b'dog']", expected=AS_TEXT),
    "dict": names("{'cat': 1}", "{'dog': 1}", expected=AS_TEXT),
    "some cells are lists": names("['cat', 'dog']", "dog", expected=f"{AS_TEXT}.*line 2, column labels"),
    "a text list in JSON": objects("['cat', 'dog']", ["dog"], expected=f"{AS_TEXT}.*entry 1"),
    "a text list in a JSON list": objects(["['cat']"], ["dog"], expected=f"{AS_TEXT}.*entry 1"),
    "a list without brackets": names("'cat', 'dog'", "'dog'", expected="stand in quotes.*line 2 'cat'"),
    "a name in quotes": objects(['"cat"'], ["dog"], expected='stand in quotes.*entry 1 "cat"'),
    "names with scores": names(
        "cat:0.93", "dog:0.71", expected={"a.jpg": "cat:0.93", "b.jpg": "dog:0.71"}, warned="numbers as scores do"
    ),
    "names that differ in marks": names(
        "polar bear",
        "polar_bear",
        expected={"a.jpg": "polar bear", "b.jpg": "polar_bear"},
        warned="differ only in marks and blanks",
    ),
    "names in lines": names("cat\ndog", "dog", expected=r"invalid class names: line 2 'cat.ndog'"),
    "brackets in a name are no list": names("dog (small)", "cat", expected={"a.jpg": "dog (small)", "b.jpg": "cat"}),
    # -------------------------------------------------------------------------------- marks between names
    "semicolons": names("cat;dog", "dog", expected=TWO),
    "commas": names("cat, dog", "dog", expected=TWO),
    "bars": names("cat|dog", "dog", expected=TWO),
    "full width commas": names("cat，dog", "dog", expected=TWO),
    "blanks": names("cat dog", "dog", "cat", expected=ASK + "' '"),
    "slashes": names("cat/dog", "dog", "cat", expected=ASK + "/"),
    "ampersands": names("cat & dog", "dog", "cat", expected=ASK + "'&'"),
    "pluses": names("cat+dog", "dog", "cat", expected=ASK + r"\+"),
    "blanks, said": names("cat dog", "dog", "cat", expected=THREE, said={"separator": " "}),
    "slashes, said": names("cat/dog", "dog", "cat", expected=THREE, said={"separator": "/"}),
    "ampersands, said": names("cat & dog", "dog", "cat", expected=THREE, said={"separator": "&"}),
    "no-break blanks": names("cat\u00a0dog", "dog", "cat", expected=ASK + "' '"),
    "no-break blanks, said": names("cat\u00a0dog", "dog", "cat", expected=THREE, said={"separator": " "}),
    "a mark and nothing behind it": names("cat; ;", "dog;", expected={"a.jpg": "cat", "b.jpg": "dog"}),
    "marks alone": names(
        "cat;dog", ";", ";;", "dog;", expected={"a.jpg": "cat dog", "b.jpg": "", "c.jpg": "", "d.jpg": "dog"}
    ),
    "one name, said": names(
        "R&B", "R", "B", expected={"a.jpg": "R&B", "b.jpg": "R", "c.jpg": "B"}, said={"separator": "none"}
    ),
    "a semicolon once": names("cat;dog", "bird", expected=ASK + "';'"),
    "words that share a part": names(
        "polar bear", "brown bear", expected={"a.jpg": "polar bear", "b.jpg": "brown bear"}
    ),
    "commas in a text of JSON": objects("cat, dog", "dog", expected=TWO),
    "blanks in a text of JSON": objects("cat dog", "dog", "cat", expected=r"x\.json: is 'cat dog' one name"),
    "a mark in a JSON list": objects(
        ["cat & dog"],
        ["cat"],
        ["dog"],
        expected={"a.jpg": "cat & dog", "b.jpg": "cat", "c.jpg": "dog"},
        warned="'&' seems to stand between",
    ),
    "a folder of two classes": folders(
        "cat & dog/1.jpg",
        "cat/2.jpg",
        "dog/3.jpg",
        expected={"cat & dog/1.jpg": "cat & dog", "cat/2.jpg": "cat", "dog/3.jpg": "dog"},
        warned="'&' seems to stand between",
    ),
    # -------------------------------------------------------------------------------- look-alikes
    "zero width": names("cat", "ca\u200bt", expected=f"{ALIKE}.*'ca.u200bt'.* .line 2 and line 3"),
    "no-break blank": names("polar bear", "polar\u00a0bear", expected=ALIKE),
    "two blanks": names("polar bear", "polar  bear", expected=ALIKE),
    "soft hyphen": names("cat", "c\u00adat", expected=ALIKE),
    "full width": names("cat", "ｃａｔ", expected=ALIKE),
    "Cyrillic": names("cat", "c\u0430t", expected=rf"{ALIKE}.*c\\u0430t"),
    "Greek": names("Tor", "\u03a4or", expected=ALIKE),
    "case": names("cat", "Cat", expected=ALIKE),
    "case of single letters": names("a", "A", expected={"a.jpg": "a", "b.jpg": "A"}),
    "digits and letters stay three": names("1", "l", "I", expected={"a.jpg": "1", "b.jpg": "l", "c.jpg": "I"}),
    "look-alike folders": folders("cat/1.jpg", "c\u0430t/2.jpg", expected=ALIKE),
    "look-alike columns": csv("1,0", "0,1", head="file,cat,ca\u200bt", expected=ALIKE),
    "look-alike names in JSON": objects(["cat"], ["Cat"], expected=f"{ALIKE}.*entry 1 and entry 2"),
    "case in COCO": Layout({"x.json": json.dumps(coco({1: "cat", 2: "Cat"}))}, ALIKE),
    "look-alikes in XML": Layout(
        {"a.xml": XML.format("a.jpg", "cat"), "b.xml": XML.format("b.jpg", "сat")}, rf"{ALIKE}.*a\.xml and b\.xml"
    ),
    # -------------------------------------------------------------------------------- what values mean
    "1, 0, -1 and nothing": csv("1,0", "-1,", "0,1", head="file,cat,dog", expected=DECLARE + " --empty"),
    "1, 0, -1 and nothing, said": csv(
        "1,0",
        "-1,",
        "0,1",
        head="file,cat,dog",
        expected={"a.jpg": "cat !dog", "b.jpg": "", "c.jpg": "!cat dog"},
        said={"zero": "absent", "minus_one": "unknown", "empty": "unknown"},
    ),
    "1, 0 and -1": csv("1,0", "-1,1", head="file,cat,dog", expected=DECLARE),
    "1 and -1": csv("1,-1", "-1,1", head="file,cat,dog", expected=WIDE),
    "said where nothing is": names(
        "cat", "dog", expected="--zero: there is no column of 1 and 0", said={"zero": "absent"}
    ),
    "booleans": csv("True,False", "False,True", head="file,cat,dog", expected=WIDE, exhaustive=True),
    "yes and no": csv("yes,no", "No,YES", head="file,cat,dog", expected=WIDE, exhaustive=True),
    "decimals": csv("1.0,0.0", "0.00,1.", head="file,cat,dog", expected=WIDE, exhaustive=True),
    "decimal commas": csv("1,0;0,0", "0,0;1,0", head="file;cat;dog", mark=";", expected=WIDE, exhaustive=True),
    "NaN": csv("1.0,nan", "NaN,1.0", head="file,cat,dog", expected={"a.jpg": "cat", "b.jpg": "dog"}),
    "a share": csv("1,0.5", "0,1", head="file,cat,dog", expected="x.csv: expected are"),
    "no value as a name": names(
        "cat", "nan", expected={"a.jpg": "cat", "b.jpg": "nan"}, warned="called nan: if that means no value"
    ),
    # -------------------------------------------------------------------------------- more columns, more rows
    "id and width": csv("7,1,0,640", "8,0,1,480", head="file,id,cat,dog,width", expected=WIDE, exhaustive=True),
    "id, width and one name": csv(
        "7,cat,640", "8,dog,480", head="file,id,species,width", expected={"a.jpg": "cat", "b.jpg": "dog"}
    ),
    "an id of 0 and 1": csv("0,1,0", "1,0,1", head="file,id,cat,dog", expected=WIDE, exhaustive=True),
    "an index of pandas": csv("0,1,0", "1,0,1", head="file,Unnamed: 0,cat,dog", expected=WIDE, exhaustive=True),
    "shares beside marks": csv(
        "1,0.3", "0,0.9", "1,0.2", head="file,cat,dog", expected="x.csv: expected are.*something else in dog"
    ),
    "classes of 1 and 2": csv("1,2", "2,1", "2,2", head="file,cat,dog", expected="x.csv: expected are"),
    "an author": csv(
        "me,1,0", "you,0,1", head="file,author,cat,dog", expected="something else in author.*delete the columns"
    ),
    "one label a row": Layout({"x.csv": "file,label\na.jpg,cat\na.jpg,dog\nb.jpg,dog\n"}, TWO),
    "Open Images": Layout(
        {"x.csv": "ImageID,Source,LabelName,Confidence\na,v,/m/1,1\na,v,/m/2,0\nb,v,/m/2,1\n"},
        {"a.jpg": "/m/1 !/m/2", "b.jpg": "/m/2"},
        said={"labels": "LabelName"},
    ),
    "Open Images, guessed labels": Layout(
        {"x.csv": "ImageID,LabelName,Confidence\na,/m/1,0.9\na,/m/2,0.1\nb,/m/2,0.4\n"},
        r"none of 1 and 0 .*line 2 '0\.9'",
    ),
    "both present and absent": Layout(
        {"x.csv": "file,label,present\na.jpg,cat,1\na.jpg,cat,0\n"}, "labels both present and absent: line 2 cat"
    ),
    "a file twice in JSON": Layout(
        {"x.json": '[{"path": "a.jpg", "labels": ["cat"]}, {"path": "a.jpg", "labels": ["dog"]}]'},
        "duplicate paths with different labels.*entry 1 and entry 2",
    ),
    # -------------------------------------------------------------------------------- paths
    "below a folder": Layout(
        {"x.csv": "file,labels\na.jpg,cat;dog\nb.jpg,dog\n"},
        {"images/a.jpg": "cat dog", "images/b.jpg": "dog"},
        pictures=("images/a.jpg", "images/b.jpg"),
    ),
    "below one of two folders": Layout(
        {"x.csv": "file,labels\na.jpg,cat\nb.jpg,dog\n"},
        "have no file",
        pictures=("p/a.jpg", "p/b.jpg", "q/a.jpg", "q/b.jpg"),
    ),
    "absolute within the root": Layout({"x.csv": "file,labels\n{root}/a.jpg,cat;dog\n{root}/b.jpg,dog\n"}, TWO),
    "absolute elsewhere": Layout(
        {"x.csv": "file,labels\n/mnt/me/a.jpg,cat\n/mnt/me/b.jpg,dog\n"},
        "invalid paths .*write them from the folder.*line 2",
    ),
    "Windows": Layout({"x.csv": "file,labels\nC:\\me\\a.jpg,cat\n"}, "invalid paths .*line 2"),
    "climbing": Layout({"x.csv": "file,labels\n../a.jpg,cat\n"}, "climbs out of its folder"),
    "without ending": Layout({"x.csv": "name,species\na,cat\nb,dog\n"}, {"a.jpg": "cat", "b.jpg": "dog"}),
    "without ending, two files": Layout(
        {"x.csv": "file,labels\na,cat\nb,dog\n"},
        r"paths have no picture file.*line 2 'a'",
        pictures=("a.jpg", "a.png", "b.jpg"),
    ),
    "without ending, below a folder": Layout(
        {"x.csv": "name,species\na,cat\nb,dog\n"}, {"i/a.jpg": "cat", "i/b.png": "dog"}, pictures=("i/a.jpg", "i/b.png")
    ),
    # -------------------------------------------------------------------------------- files of labels
    "sep=": Layout({"x.csv": "sep=;\nfile;labels\na.jpg;cat,dog\nb.jpg;dog\n"}, TWO),
    "sep= of another mark": Layout(
        {"x.csv": "sep=#\nfile#labels\na.jpg#cat\n"}, "sep=# is none of comma, tab, semicolon"
    ),
    "UTF-16": Layout(
        {"x.csv": "file\tlabels\na.jpg\tcät;dog\nb.jpg\tdog\n".encode("utf-16")}, {"a.jpg": "cät dog", "b.jpg": "dog"}
    ),
    "Latin 1": Layout(
        {"x.csv": "file,labels\na.jpg,cät\n".encode("latin-1")}, "cannot be read as UTF-8 text.*save it as UTF-8"
    ),
    "a map": Layout({"x.json": '{"a.jpg": ["cat", "dog"], "b.jpg": "dog"}'}, TWO),
    "a map without endings": Layout({"x.json": '{"a": ["cat", "dog"], "b": ["dog"]}'}, TWO),
    "a map with a key twice": Layout({"x.json": '{"a.jpg": ["cat"], "a.jpg": ["dog"]}'}, "duplicate keys: a.jpg"),
    "a map of numbers": Layout({"x.json": '{"a.jpg": 3, "b.jpg": 4}'}, r"no name or list of names.*key 'a\.jpg' \(3\)"),
    "a list with a key twice": Layout(
        {"x.json": '[{"path": "a.jpg", "labels": ["cat"], "labels": ["dog"]}]'},
        "duplicate keys: entry 1 'labels'|no object in it",
    ),
    "COCO JSON": Layout({"x.json": json.dumps(coco({1: "cat", 2: "dog"}))}, TWO | {"c.jpg": "", "d.jpg": ""}),
    "COCO JSON beside images": Layout(
        {"annotations/x.json": json.dumps(coco({1: "cat", 2: "dog"}))},
        {"images/a.jpg": "cat dog", "images/b.jpg": "dog", "images/c.jpg": "", "images/d.jpg": ""},
        pictures=tuple(f"images/{x}.jpg" for x in "abcd"),
    ),
    "COCO JSON, a category that is not there": Layout(
        {"x.json": json.dumps(coco({1: "cat"}))}, r"not in the file.*number 2 \(category 2\)"
    ),
    "COCO JSON with a key twice": Layout(
        {"x.json": json.dumps(coco({1: "cat", 2: "dog"}))[:-1] + ', "images": []}'}, "duplicate keys: images"
    ),
    "Roboflow classes": Layout(
        {f"{part}/_classes.csv": f"filename, cat, dog\n{part[0]}.jpg, 1, 0\n" for part in ("train", "valid", "test")},
        {"train/t.jpg": "cat !dog", "valid/v.jpg": "cat !dog", "test/t.jpg": "cat !dog"},
        exhaustive=True,
        pictures=("train/t.jpg", "valid/v.jpg", "test/t.jpg"),
    ),
    "Roboflow COCO": Layout(
        {f"{part}/_annotations.coco.json": json.dumps(coco({1: "cat", 2: "dog"})) for part in ("train", "valid")},
        {
            f"{part}/{x}.jpg": labels
            for part in ("train", "valid")
            for x, labels in zip("abcd", ("cat dog", "dog", "", ""), strict=True)
        },
        pictures=tuple(f"{part}/{x}.jpg" for part in ("train", "valid") for x in "abcd"),
    ),
    "XML beside pictures": Layout(
        {"a.xml": XML.format("a.jpg", "cat"), "b.xml": XML.format("b.jpg", "dog")}, {"a.jpg": "cat", "b.jpg": "dog"}
    ),
    "XML in a folder of its own": Layout(
        {"Annotations/a.xml": XML.format("a.jpg", "cat")}, {"JPEGImages/a.jpg": "cat"}, pictures=("JPEGImages/a.jpg",)
    ),
    "XML alone": Layout(
        {"a.xml": XML.format("a.jpg", "cat")}, "holds no picture.*the XML files need theirs", pictures=()
    ),
    "XML of CVAT's own form": Layout(
        {"a.xml": '<annotations><image name="a.jpg"/></annotations>'}, "export as PASCAL VOC"
    ),
    "labels of which nobody knows which": Layout(
        {"x.csv": "a,b", "y.csv": "a,b"}, "which of x.csv, y.csv holds the labels"
    ),
    "a table in a folder of its own": Layout(
        {"labels/x.csv": "file,labels\na.jpg,cat;dog\nb.jpg,dog\n"},
        {"images/a.jpg": "cat dog", "images/b.jpg": "dog"},
        pictures=("images/a.jpg", "images/b.jpg"),
    ),
    "a table in the folder of pictures": Layout(
        {"images/x.csv": "file,labels\na.jpg,cat;dog\nb.jpg,dog\n"},
        {"images/a.jpg": "cat dog", "images/b.jpg": "dog"},
        pictures=("images/a.jpg", "images/b.jpg"),
    ),
    "a table in the folder of pictures, named": Layout(
        {"images/x.csv": "file,labels\na.jpg,cat;dog\nb.jpg,dog\n"},
        TWO,
        pictures=("images/a.jpg", "images/b.jpg"),
        place="images/x.csv",
    ),
    "LabelMe": Layout(
        {"a.json": "{}", "b.json": "{}"},
        r"a file of labels for each picture, as a\.json, is not read .LabelMe.*COCO JSON",
    ),
    "a spreadsheet": Layout({"labels.xlsx": "x"}, "not read: labels.xlsx - save labels as a .csv"),
    "COCO JSON of two parts": Layout(
        {f"annotations/{part}.json": json.dumps(coco({1: "cat", 2: "dog"})) for part in "xy"},
        "which of annotations/x.json, annotations/y.json holds",
    ),
    "COCO JSON of two parts, one named": Layout(
        {f"annotations/{part}.json": json.dumps(coco({1: "cat", 2: "dog"})) for part in "xy"},
        TWO | {"c.jpg": "", "d.jpg": ""},
        place="annotations/x.json",
    ),
    "boxes of TensorFlow": Layout(
        {"x.csv": "filename,width,class,xmin\na.jpg,640,cat,12\na.jpg,640,dog,15\nb.jpg,640,dog,40\n"},
        TWO,
    ),
    "numbers of classes": Layout(
        {"x.csv": "file,label\na.jpg,3\nb.jpg,7\n"},
        {"a.jpg": "3", "b.jpg": "7"},
        warned="if these numbers stand for names",
    ),
    "several numbers of classes": Layout({"x.csv": "file,label\na.jpg,3 7\nb.jpg,7\nc.jpg,3\n"}, ASK + "' '"),
    "an XML that is no label": folders(
        "cat/1.jpg", "dog/2.jpg", expected={"cat/1.jpg": "cat", "dog/2.jpg": "dog"}, files={"about.xml": "<x/>"}
    ),
    # -------------------------------------------------------------------------------- trees
    "folders": folders("cat/1.jpg", "dog/2.jpg", expected={"cat/1.jpg": "cat", "dog/2.jpg": "dog"}),
    "folders of splits": folders(
        "train/cat/1.jpg", "valid/dog/2.jpg", expected={"train/cat/1.jpg": "cat", "valid/dog/2.jpg": "dog"}
    ),
    "a COCO tree": Layout(
        {"annotations/instances_train2017.json": "{}"},
        "laid out as MS-COCO.*spml profile coco --root.*prepare.coco.year: 2017",
        pictures=("train2017/1.jpg", "val2017/2.jpg"),
    ),
    "a COCO tree without annotations": folders(
        "train2017/1.jpg", "val2017/2.jpg", expected="parts of COCO and no classes: put .*spml profile coco --root"
    ),
    "a YOLO tree without names": Layout(
        {"labels/1.txt": "0 0.5 0.5 0.1 0.1\n"},
        r"laid out as YOLO.*begin the lines of labels/1\.txt are called in a file data\.yaml.*then: spml init",
        pictures=("images/1.jpg",),
    ),
    "a YOLO tree of splits": Layout(
        {
            "train/labels/1.txt": "0 0.5 0.5 0.1 0.1\n",
            "valid/labels/2.txt": "1 0.5 0.5 0.1 0.1\n",
            "data.yaml": "train: ../train/images\nval: ../valid/images\nnames: [cat, dog]",
        },
        {"train/images/1.jpg": "cat", "valid/images/2.jpg": "dog"},
        pictures=("train/images/1.jpg", "valid/images/2.jpg"),
    ),
    "inside a YOLO tree": Layout(
        {"labels/1.txt": "0 0.5 0.5 0.1 0.1\n", "data.yaml": "names: [cat]"},
        r"photos is laid out as YOLO.*spml init \S*/photos$",
        pictures=("images/1.jpg",),
        place="images",
    ),
    "a VOC tree": Layout(
        {"VOC2012/ImageSets/Main/cat_train.txt": "1 1\n"},
        "laid out as PASCAL VOC.*spml profile voc --root",
        pictures=("VOC2012/JPEGImages/1.jpg", "VOC2012/SegmentationClass/1.png"),
    ),
    "inside a VOC tree": Layout(
        {"VOC2012/ImageSets/Main/cat_train.txt": "1 1\n"},
        "photos/VOC2012 is laid out as PASCAL VOC",
        pictures=("VOC2012/JPEGImages/1.jpg",),
        place="VOC2012/JPEGImages",
    ),
    "inside a COCO tree": Layout(
        {"annotations/instances_train2017.json": "{}"},
        "photos is laid out as MS-COCO",
        pictures=("train2017/1.jpg",),
        place="train2017",
    ),
    "beside a COCO tree": Layout(
        {"coco/annotations/instances_train2017.json": "{}"},
        {"cat/1.jpg": "cat", "dog/2.jpg": "dog"},
        pictures=("mine/cat/1.jpg", "mine/dog/2.jpg"),
        place="mine",
    ),
    "a CUB tree": Layout(
        {"CUB_200_2011/image_class_labels.txt": "1 1\n"},
        "spml profile cub --root",
        pictures=("CUB_200_2011/images/1.A/1.jpg",),
    ),
    "thumbnails beside": folders(
        "cat/1.jpg",
        "cat/@eaDir/1.jpg",
        "dog/2.jpg",
        "#recycle/cat/1.jpg",
        expected={"cat/1.jpg": "cat", "dog/2.jpg": "dog"},
        warned="2 pictures in folders of systems and tools left out",
    ),
}


LAYOUTS |= {
    # -------------------------------------------------------------------------------- YOLO
    "YOLO": Layout(
        {"data.yaml": "names: [cat, dog]", "labels/a.txt": f"0 {BOX}\n1 {BOX}\n", "labels/b.txt": f"1 {BOX}\n"},
        {"images/a.jpg": "cat dog", "images/b.jpg": "dog"},
        pictures=("images/a.jpg", "images/b.jpg"),
    ),
    "YOLO, all boxes drawn": Layout(
        {"data.yaml": "names: [cat, dog]", "labels/a.txt": f"0 {BOX}\n", "labels/b.txt": f"1 {BOX}\n"},
        {"images/a.jpg": "cat !dog", "images/b.jpg": "!cat dog"},
        exhaustive=True,
        pictures=("images/a.jpg", "images/b.jpg"),
    ),
    "YOLO, no box": Layout(
        {"data.yaml": "names: [cat]", "labels/a.txt": f"0 {BOX}\n", "labels/b.txt": ""},
        r"say which: label files that are empty: 1 \(labels/b\.txt\): --empty absent, or --empty unknown; "
        r"pictures without a label file: 1 \(images/c\.jpg\): --missing absent, or --missing unknown",
        pictures=("images/a.jpg", "images/b.jpg", "images/c.jpg"),
    ),
    "YOLO, no box, said": Layout(
        {"data.yaml": "names: [cat]", "labels/a.txt": f"0 {BOX}\n", "labels/b.txt": ""},
        {"images/a.jpg": "cat", "images/b.jpg": "!cat", "images/c.jpg": ""},
        said={"empty": "absent", "missing": "unknown"},
        pictures=("images/a.jpg", "images/b.jpg", "images/c.jpg"),
        exhaustive=True,
    ),
    "YOLO of Label Studio": Layout(
        {"classes.txt": "cat\ndog\n", "notes.json": '{"categories": []}', "labels/a.txt": f"1 {BOX}\n"},
        {"images/a.jpg": "dog"},
        pictures=("images/a.jpg",),
    ),
    "YOLO beside the pictures": Layout(
        {"classes.txt": "cat\ndog\n", "a.txt": f"1 {BOX}\n", "b.txt": f"0 {BOX}\n"},
        {"a.jpg": "dog", "b.jpg": "cat"},
        pictures=("a.jpg", "b.jpg"),
    ),
    "YOLO, the file named": Layout(
        {"data.yaml": "names: [cat, dog]", "old.yaml": "names: [x, y]", "labels/a.txt": f"1 {BOX}\n"},
        {"images/a.jpg": "dog"},
        pictures=("images/a.jpg",),
        place="data.yaml",
    ),
    "YOLO, two files of names": Layout(
        {"data.yaml": "names: [cat, dog]", "old.yaml": "names: [x, y]", "labels/a.txt": f"1 {BOX}\n"},
        r"which of data\.yaml, old\.yaml holds the labels. name it: spml init \S*data\.yaml",
        pictures=("images/a.jpg",),
    ),
    "YOLO and a table": Layout(
        {"data.yaml": "names: [cat, dog]", "x.csv": "file,labels\na.jpg,cat\n", "labels/a.txt": f"1 {BOX}\n"},
        r"which of data\.yaml, x\.csv holds the labels",
        pictures=("images/a.jpg",),
    ),
    "YOLO and a table that is named": Layout(
        {"data.yaml": "names: [cat, dog]", "x.csv": "file,labels\na.jpg,cat\n", "labels/a.txt": f"1 {BOX}\n"},
        {"images/a.jpg": "cat"},
        pictures=("images/a.jpg",),
        place="x.csv",
    ),
    "a YOLO tree below a folder": Layout(
        {"pets/data.yaml": "names: [cat]", "pets/labels/1.txt": f"0 {BOX}\n"},
        r"laid out as YOLO.*spml init \S*/pets$",
        pictures=("pets/images/1.jpg",),
    ),
    "YAML that is no file of names": folders(
        "cat/1.jpg",
        "dog/2.jpg",
        expected={"cat/1.jpg": "cat", "dog/2.jpg": "dog"},
        files={"fiftyone.yml": "name: x", "config.yaml": "[", "labels/1.txt": "about"},
    ),
    "said of label files that are not there": names(
        "cat", "dog", expected="--missing: there are no label files of YOLO", said={"missing": "absent"}
    ),
    # -------------------------------------------------------------------------------- Hugging Face
    "ImageFolder, csv": Layout(
        {"metadata.csv": "file_name,label\na.jpg,cat\nb.jpg,dog\n"}, {"a.jpg": "cat", "b.jpg": "dog"}
    ),
    "ImageFolder, lists": Layout({"metadata.csv": "file_name,tags\na.jpg,\"['cat', 'dog']\"\nb.jpg,['dog']\n"}, TWO),
    "ImageFolder, jsonl": Layout(
        {
            "metadata.jsonl": '{"file_name": "a.jpg", "labels": ["cat", "dog"]}\n'
            '{"file_name": "b.jpg", "labels": ["dog"]}'
        },
        TWO,
    ),
    "ImageFolder of splits": Layout(
        {
            f"{part}/metadata.jsonl": f'{{"file_name": "{part[0]}.jpg", "label": "cat"}}\n'
            for part in ("train", "validation", "test")
        },
        {"train/t.jpg": "cat", "validation/v.jpg": "cat", "test/t.jpg": "cat"},
        pictures=("train/t.jpg", "validation/v.jpg", "test/t.jpg"),
    ),
    "ImageFolder, splits in paths": Layout(
        {"metadata.csv": "file_name,label\ntrain/a.jpg,cat\ntest/b.jpg,dog\n"},
        {"train/a.jpg": "cat", "test/b.jpg": "dog"},
        pictures=("train/a.jpg", "test/b.jpg"),
        warned="all pictures lie in folders called as splits (test, train), and no column names splits: they are drawn",
    ),
    "ImageFolder, numbers": Layout(
        {"metadata.jsonl": '{"file_name": "a.jpg", "label": 0}\n{"file_name": "b.jpg", "label": 1}'},
        r"no name or list of names under 'label': line 1 \(0\)",
    ),
    "ImageFolder, boxes": Layout(
        {"metadata.jsonl": '{"file_name": "a.jpg", "objects": {"bbox": [[1, 2, 3, 4]], "categories": [0]}}'},
        r"metadata\.jsonl: expected are one key of picture files",
    ),
    "ImageFolder, parquet": Layout(
        {"metadata.parquet": b"PAR1"}, r"not read: metadata\.parquet - save labels as a \.csv"
    ),
    # -------------------------------------------------------------------------------- Open Images
    "Open Images, a download": Layout(
        {
            "train-annotations-human-imagelabels.csv": "ImageID,Source,LabelName,Confidence\n"
            "a,v,/m/1,1\na,v,/m/2,0\nz,v,/m/1,1\n",
            "test-annotations-human-imagelabels.csv": "ImageID,Source,LabelName,Confidence\nb,v,/m/2,1\n",
            "oidv7-class-descriptions.csv": "LabelName,DisplayName\n/m/1,Cat\n/m/2,Dog\n/m/3,Bird\n",
        },
        {"a.jpg": "Cat !Dog", "b.jpg": "Dog"},
        pictures=("a.jpg", "b.jpg"),
    ),
    "Open Images, boxes too": Layout(
        {
            "train-annotations-human-imagelabels.csv": "ImageID,Source,LabelName,Confidence\na,v,/m/1,1\n",
            "train-annotations-bbox.csv": "ImageID,Source,LabelName,Confidence,XMin\na,v,/m/1,1,0.1\n",
        },
        r"which of train-annotations-bbox\.csv, train-\S+ holds the labels. name one: spml init \S*human-image",
    ),
    "Open Images, boxes too, named": Layout(
        {
            "train-annotations-human-imagelabels.csv": "ImageID,Source,LabelName,Confidence\na,v,/m/1,1\n",
            "train-annotations-bbox.csv": "ImageID,Source,LabelName,Confidence,XMin\nb,v,/m/1,1,0.1\n",
        },
        {"b.jpg": "/m/1"},
        place="train-annotations-bbox.csv",
        warned="classes are called by identifiers: /m/1",
    ),
    "Open Images, two tables of names": Layout(
        {
            "x.csv": "ImageID,LabelName,Confidence\na,/m/1,1\n",
            "class-descriptions.csv": "/m/1,Cat\n",
            "class-descriptions-boxable.csv": "/m/1,Cat\n",
        },
        "name the labels: leave the one that belongs to x.csv there",
    ),
    "Open Images, exhaustive": Layout(
        {"x.csv": "ImageID,LabelName,Confidence\na,/m/1,1\n"}, "leave out --exhaustive", exhaustive=True
    ),
    # -------------------------------------------------------------------------------- tools
    "Label Studio": Layout(
        {"x.json": json.dumps([studio("/data/upload/1/0123abcd-a.jpg", "cat", "dog"), studio("b.jpg", "dog")])}, TWO
    ),
    "Label Studio, two controls": Layout(
        {"x.json": json.dumps([studio("a.jpg", "cat"), studio("b.jpg", "good", control="quality")])},
        r"which control with names of classes, of tag, quality. say it: --labels tag",
    ),
    "Label Studio, a control that is named": Layout(
        {"x.json": json.dumps([studio("a.jpg", "cat"), studio("b.jpg", "good", control="quality")])},
        {"a.jpg": "!good", "b.jpg": "good"},
        said={"labels": "quality", "empty": "absent"},
        exhaustive=True,
    ),
    "Label Studio, two pictures a task": Layout(
        {"x.json": json.dumps([{"data": {"left": "a.jpg", "right": "b.jpg"}, "annotations": []}])},
        r"which key of data with pictures, of left, right. say it: --path left",
    ),
    "Label Studio, nothing found": Layout(
        {"x.json": json.dumps([studio("a.jpg", "cat"), studio("b.jpg")])},
        r"1 image was looked at and has no label.*--empty absent.*--empty unknown",
    ),
    "Label Studio, nothing found, said": Layout(
        {"x.json": json.dumps([studio("a.jpg", "cat"), studio("b.jpg")])},
        {"a.jpg": "cat", "b.jpg": "!cat"},
        said={"empty": "absent"},
        exhaustive=True,
    ),
    "Label Studio, who disagree": Layout(
        {"x.json": json.dumps([studio("a.jpg", "cat", twice="dog"), studio("b.jpg", "cat")])},
        r"annotators who disagree.*--disagreement\): entry 1 \(annotation 1 by 1: cat; annotation 2 by 2: dog\)",
    ),
    "Label Studio, who disagree, said": Layout(
        {"x.json": json.dumps([studio("a.jpg", "cat", "dog", twice="dog"), studio("b.jpg", "cat")])},
        {"a.jpg": "dog", "b.jpg": "cat !dog"},
        said={"disagreement": "unknown"},
        exhaustive=True,
    ),
    "Label Studio, JSON-MIN": Layout(
        {"x.json": json.dumps([{"image": "/data/upload/1/0123abcd-a.jpg", "choice": {"choices": ["cat"]}}])},
        r"x\.json: expected are one key of picture files",
    ),
    "said of annotators that are not there": names(
        "cat", "dog", expected="--disagreement: there are no tasks", said={"disagreement": "unknown"}
    ),
    "FiftyOne": Layout(
        {
            "samples.json": json.dumps({"samples": [fifty("a.jpg", "cat", "dog"), fifty("b.jpg", "dog")]}),
            "metadata.json": '{"version": "1.0"}',
            "fiftyone.yml": "name: x",
        },
        {"data/a.jpg": "cat dog", "data/b.jpg": "dog"},
        pictures=("data/a.jpg", "data/b.jpg"),
    ),
    "FiftyOne, two fields": Layout(
        {
            "samples.json": json.dumps(
                {"samples": [fifty("a.jpg", "cat") | {"model": {"_cls": "Classification", "label": "x"}}]}
            )
        },
        r"which field of labels, of ground_truth, model. say it: --labels ground_truth",
        pictures=("data/a.jpg",),
    ),
    "FiftyOne, a field that is named": Layout(
        {
            "samples.json": json.dumps(
                {"samples": [fifty("a.jpg", "cat") | {"model": {"_cls": "Classification", "label": "x"}}]}
            )
        },
        {"data/a.jpg": "x"},
        pictures=("data/a.jpg",),
        said={"labels": "model"},
    ),
    "FiftyOne, a field that is not there": Layout(
        {"samples.json": json.dumps({"samples": [fifty("a.jpg", "cat")]})},
        r"--labels: samples\.json has no field of labels 'x'; there are filepath, ground_truth",
        pictures=("data/a.jpg",),
        said={"labels": "x"},
    ),
    "FiftyOne, nothing found": Layout(
        {"samples.json": json.dumps({"samples": [fifty("a.jpg", "cat"), fifty("b.jpg")]})},
        r"1 image was looked at and has no label",
        pictures=("data/a.jpg", "data/b.jpg"),
    ),
    "FiftyOne, labels": Layout(
        {"labels.json": json.dumps({"classes": ["cat", "dog"], "labels": {"a": [0, 1], "b": 1}})},
        {"data/a.jpg": "cat dog", "data/b.png": "dog"},
        pictures=("data/a.jpg", "data/b.png"),
    ),
    "FiftyOne, labels of splits": Layout(
        {
            f"{part}/labels.json": json.dumps({"classes": ["cat"], "labels": {part[0]: 0}})
            for part in ("train", "validation", "test")
        },
        {"train/data/t.jpg": "cat", "validation/data/v.jpg": "cat", "test/data/t.jpg": "cat"},
        pictures=("train/data/t.jpg", "validation/data/v.jpg", "test/data/t.jpg"),
    ),
    "FiftyOne, labels, nothing found": Layout(
        {"labels.json": json.dumps({"classes": ["cat", "dog"], "labels": {"a": [0], "b": []}})},
        r"labels\.json: 1 image was looked at and has no label",
        pictures=("data/a.jpg", "data/b.png"),
    ),
    # -------------------------------------------------------------------------------- of which nothing is known
    "a pool beside folders": folders(
        "cat/1.jpg",
        "dog/2.jpg",
        "more/3.jpg",
        expected={"cat/1.jpg": "cat", "dog/2.jpg": "dog", "more/3.jpg": ""},
        said={"unlabelled": "more"},
    ),
    "a pool beside a table": Layout(
        {"x.csv": "file,labels\na.jpg,cat;dog\nb.jpg,dog\n"},
        {"images/a.jpg": "cat dog", "images/b.jpg": "dog", "more/b.jpg": "", "more/in/c.jpg": ""},
        said={"unlabelled": "more"},
        pictures=("images/a.jpg", "images/b.jpg", "more/b.jpg", "more/in/c.jpg"),
    ),
    "a pool, exhaustive": Layout(
        {"x.csv": "file,labels\na.jpg,cat;dog\nb.jpg,dog\n"},
        "unlabelled: of these pictures labels are not all known; set exhaustive to false",
        said={"unlabelled": "more"},
        pictures=("a.jpg", "b.jpg", "more/b.jpg"),
        exhaustive=True,
    ),
    "a pool without a picture": Layout(
        {"x.csv": "file,labels\na.jpg,cat;dog\nb.jpg,dog\n"},
        "prepare: unlabelled: no picture in a folder more",
        said={"unlabelled": "more"},
    ),
    "a pool that a table names": Layout(
        {"x.csv": "file,labels\na.jpg,cat;dog\nmore/b.jpg,dog\n"},
        r"duplicate paths with different labels.*line 3 and unlabelled picture 'more/b\.jpg'",
        said={"unlabelled": "more"},
        pictures=("a.jpg", "more/b.jpg"),
    ),
}


def lay_out(root: Path, layout: Layout) -> None:
    for name in layout.pictures:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    for name, content in layout.files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        content = content.replace("{root}", str(root)) if isinstance(content, str) else content
        (root / name).write_bytes(content.encode() if isinstance(content, str) else content)


def read(root: Path, layout: Layout) -> tuple[dict[str, Any], Dataset]:
    named = {key: value for key, value in layout.said.items() if key in ("path", "labels", "split")}
    declared: dict[str, Any] = {key: value for key, value in layout.said.items() if key not in named}
    block = recognise.recognise(root / layout.place, layout.exhaustive, Named(**named), Declared(**declared))
    folder = recognise.find_folder(root / layout.place)
    source, settings = base.load({"root": str(folder), "size": 8, **block}, "prepare.x")
    return block, source.read(settings, Path())


def labels(data: Dataset) -> dict[str, str]:
    """Of each path the classes that are present, and those known to be absent behind a !."""
    found = {}
    for path, row, known in zip(data.table.paths, data.table.truth, data.table.scored, strict=True):
        pairs = zip(data.table.classes, row, known, strict=True)
        marks = {1: "", 0: "!"}
        found[path] = {f"{marks[int(cell)]}{name}" for name, cell, is_known in pairs if is_known}
    return found


def wanted(expected: dict[str, str], classes: tuple[str, ...]) -> dict[str, set[str]]:
    """What a line of the table means; a name of several words is told from several names by the classes."""
    return {path: {text} if text.lstrip("!") in classes else set(text.split()) for path, text in expected.items()}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_layout_is_read_as_it_is_meant_or_refused_with_what_to_do(tmp_path, layout):
    root = tmp_path / "photos"
    lay_out(root, layout)
    if isinstance(layout.expected, str):
        with pytest.raises((ConfigError, SourceError), match=f"(?s){layout.expected}"):
            read(root, layout)
        return
    block, data = read(root, layout)
    found = labels(data)
    if layout.exhaustive or "!" not in "".join(layout.expected.values()):
        found = {
            path: {name for name in names if not name.startswith("!") or layout.exhaustive}
            for path, names in found.items()
        }
    assert found == wanted(layout.expected, data.table.classes)
    warnings = init.find_warnings(block, data)
    assert not layout.warned or any(layout.warned in line for line in warnings), warnings
    assert list(init.describe(block, data))


def test_a_hundred_layouts_are_tried():
    assert len(LAYOUTS) >= 100


CELLS = st.text(st.sampled_from("ab1-0.;,|/& \u00a0\u200b[](){}'\"\\\n:A\u0430_"), max_size=12)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    lay_out(root, Layout({}, ""))
    return root


@pytest.mark.parametrize("form", ["table", "text", "objects", "map", "json"])
@settings(max_examples=40, deadline=None)
@given(cells=st.lists(CELLS, min_size=1, max_size=6), exhaustive=st.booleans())
def test_whatever_cells_hold_there_is_a_dataset_or_one_known_fault(photos, form, cells, exhaustive):
    names = [f"{'abcd'[number % 4]}.jpg" for number in range(len(cells))]
    rows = [{"path": name, "labels": cell} for name, cell in zip(names, cells, strict=True)]
    quoted = ('"' + cell.replace('"', '""') + '"' for cell in cells)
    content = {
        "table": "file,labels\n" + "\n".join(f"{name},{cell}" for name, cell in zip(names, quoted, strict=True)),
        "text": "file,labels\n" + "\n".join(f"{name},{cell}" for name, cell in zip(names, cells, strict=True)),
        "objects": json.dumps(rows),
        "map": json.dumps({row["path"]: row["labels"] for row in rows}),
        "json": "".join(cells),
    }[form]
    for file in photos.glob("x.*"):
        file.unlink()
    (photos / ("x.csv" if form in ("table", "text") else "x.json")).write_text(content, encoding="utf-8")
    try:
        block, data = read(photos, Layout({}, "", exhaustive=exhaustive))
    except (ConfigError, SourceError) as error:
        assert str(error)
        return
    assert list(init.describe(block, data)) and len(data.table.classes)
