import os
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.errors import SourceError
from pipeline.labels.table import Dataset
from pipeline.sources import xml
from tests.trees import PICTURES, write_files


def settings(**changes) -> xml.Settings:
    fixed = {
        "source": "xml",
        "root": ".",
        "size": 8,
        **PICTURES,
    }
    fixed |= {"exhaustive": True, "classes": None, "val_fraction": 0.25, "test_fraction": 0.25}
    fixed |= {"split_seed": 0, "unlabelled": None}
    return xml.Settings.model_validate(fixed | changes)


def annotation(*names: str, picture: str = "x.jpg") -> str:
    """As labelImg writes it: the folder and path of the machine on which it was drawn say nothing."""
    things = "".join(f"<object><name>{name}</name><bndbox><xmin>1</xmin></bndbox></object>" for name in names)
    head = f"<folder>photos</folder><filename>{picture}</filename><path>C:\\me\\{picture}</path>"
    return f"<annotation>{head}{things}</annotation>"


def put(root: Path, **files: str) -> None:
    for name, content in files.items():
        write_files(root, name.replace("__", "/").replace("_", "."), content=content)


def tree(root: Path) -> None:
    put(root, cat__1_jpg="x", cat__1_xml=annotation("cat", "dog", "cat", picture="1.jpg"))
    put(root, dog__2_PNG="x", dog__2_xml=annotation("dog"), dog__3_jpg="x", dog__3_xml=annotation())
    put(root, a_jpg="x", a_xml=annotation(" cat "))


def truth(data: Dataset) -> dict[str, list[int]]:
    cells = np.where(data.table.scored, data.table.truth, -1)
    return dict(zip(data.table.paths, cells.tolist(), strict=True))


def test_a_file_beside_each_picture(tmp_path):
    tree(tmp_path)
    data = xml.read(settings(), tmp_path)
    assert data.table.classes == ("cat", "dog")
    assert truth(data) == {"a.jpg": [1, 0], "cat/1.jpg": [1, 1], "dog/2.PNG": [0, 1], "dog/3.jpg": [0, 0]}
    assert truth(xml.read(settings(exhaustive=False), tmp_path))["a.jpg"] == [1, -1]


def test_files_in_a_folder_of_their_own_and_splits_by_folder(tmp_path):
    for split in ("train", "valid"):
        put(tmp_path, **{f"{split}__{split}1_jpg": "x", f"{split}__labels__{split}1_xml": annotation("cat")})
    data = xml.read(settings(), tmp_path)
    assert truth(data) == {"train/train1.jpg": [1], "valid/valid1.jpg": [1]}
    assert data.table.split.tolist() == [0, 1]


def test_a_pipe_is_left_out_and_told(tmp_path):
    tree(tmp_path)
    os.mkfifo(tmp_path / "pipe.xml")
    assert xml.read(settings(), tmp_path).report["warnings"] == ["no regular files, left out: pipe.xml"]


@pytest.mark.parametrize(
    "files, words",
    [
        ({"a_jpg": "x"}, "prepare: root: no XML file in "),
        ({"a_jpg": "x", "a_xml": "<annotation>"}, r"XML files cannot be read: a\.xml \(no element found"),
        (
            {"a_jpg": "x", "a_xml": '<!DOCTYPE x [<!ENTITY b "b">]><annotation>&b;</annotation>'},
            r"cannot be read: a\.xml \(Entit",
        ),
        ({"a_jpg": "x", "a_xml": "<annotations/>"}, r"of another form .*: a\.xml \(<annotations>\)"),
        ({"a_jpg": "x", "a_xml": annotation("cat", "")}, r"objects have no name: a\.xml number 2"),
        (
            {"a_jpg": "x", "a_png": "x", "a_xml": annotation("cat")},
            r"several pictures of their name: a\.xml \(a\.jpg, a\.png",
        ),
        (
            {"a_jpg": "x", "a_xml": annotation("cat"), "b_xml": annotation("cat", picture="bb.jpg")},
            r"paths have no picture file: b\.xml 'bb\.jpg'",
        ),
        ({"a_jpg": "x", "a_xml": annotation("['cat', 'dog']")}, r"lists written as text .*: a\.xml \"\['cat'"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path, files, words):
    put(tmp_path, **files)
    with pytest.raises(SourceError, match=words):
        xml.read(settings(), tmp_path)
