from pathlib import Path

import numpy as np
import pytest

from pipeline.core.errors import SourceError
from pipeline.core.faults import FaultyData
from pipeline.labels.table import Dataset
from pipeline.sources import yolo
from tests.trees import PICTURES

BOX = "0.5 0.5 0.1 0.1"
YAML = "path: ../datasets/pets\ntrain: images/train\nval: val.txt\nnc: 3\nnames: {0: cat, 1: dog, 2: no}\n"


def settings(**changes) -> yolo.Settings:
    fixed = {
        "source": "yolo",
        "root": ".",
        "size": 8,
        **PICTURES,
        "file": "data.yaml",
        "exhaustive": True,
        "empty_file": "absent",
        "no_file": "unknown",
        "classes": None,
    }
    fixed |= {"val_fraction": 0.25, "test_fraction": 0.25, "split_seed": 0, "unlabelled": None}
    return yolo.Settings.model_validate(fixed | changes)


def put(root: Path, **files: str) -> None:
    for name, content in files.items():
        place = root / name.replace("__", "/").replace("_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)


def tree(root: Path) -> None:
    """Pictures a (two classes), b (an empty file), c (none) for training; d and e, by a list, for validation."""
    put(root, data_yaml=YAML, val_txt="./images/other/d.PNG\nimages/other/e.jpg\n")
    put(
        root,
        **{f"images__train__{name}_jpg": "x" for name in "abc"},
        images__other__d_PNG="x",
        images__other__e_jpg="x",
    )
    put(root, labels__train__a_txt=f"0 {BOX}\n1 {BOX}\n0 {BOX} 0.9\n", labels__train__b_txt="\n")
    put(root, labels__other__d_txt=f"2 {BOX} {BOX}", labels__other__e_txt=f"1.0 {BOX}\n")


def truth(data: Dataset) -> dict[str, list[int]]:
    """Of each path its row: 1 present, 0 absent, -1 unknown."""
    cells = np.where(data.table.scored, data.table.truth, -1)
    return dict(zip(data.table.paths, cells.tolist(), strict=True))


TRUTH = {
    "images/train/a.jpg": [1, 1, 0],
    "images/train/b.jpg": [0, 0, 0],
    "images/train/c.jpg": [-1, -1, -1],
    "images/other/d.PNG": [0, 0, 1],
    "images/other/e.jpg": [0, 1, 0],
}


def test_a_box_is_a_class_and_what_no_box_means_is_a_setting(tmp_path):
    tree(tmp_path)
    data = yolo.read(settings(), tmp_path)
    assert data.table.classes == ("cat", "dog", "no")
    assert truth(data) == TRUTH
    assert data.report["unlabelled"] == 1
    assert data.report["label_files_empty"]["first"] == ["labels/train/b.txt"]
    assert data.report["label_files_absent"]["first"] == ["images/train/c.jpg"]
    other = truth(yolo.read(settings(empty_file="unknown", no_file="absent"), tmp_path))
    assert other["images/train/b.jpg"] == [-1] * 3 and other["images/train/c.jpg"] == [0] * 3
    assert {path: row for path, row in other.items() if path[-5] in "ade"} == {
        path: row for path, row in TRUTH.items() if path[-5] in "ade"
    }


def test_where_boxes_are_some_of_what_is_there_the_rest_is_unknown(tmp_path):
    tree(tmp_path)
    found = truth(yolo.read(settings(exhaustive=False), tmp_path))
    assert found["images/train/a.jpg"] == [1, 1, -1] and found["images/train/b.jpg"] == [0, 0, 0]


def test_the_splits_of_the_file_of_names_count_and_the_others_are_drawn(tmp_path):
    tree(tmp_path)
    data = yolo.read(settings(test_fraction=0.5), tmp_path)
    split = dict(zip(data.table.paths, data.table.split.tolist(), strict=True))
    assert split["images/other/d.PNG"] == split["images/other/e.jpg"] == 1
    assert split["images/train/c.jpg"] == 0  # nothing is known of it: it is no test
    assert sorted(split.values()) == [0, 0, 1, 1, 2]
    assert data.report["split"]["drawn"] == {"test": 0.5}


def test_a_list_of_names_and_folders_of_splits(tmp_path):
    """As Label Studio and labelImg write it; label files may lie beside the pictures."""
    put(tmp_path, classes_txt="cat\ndog\n", train__images__a_jpg="x", train__labels__a_txt=f"1 {BOX}")
    put(tmp_path, valid__b_jpg="x", valid__b_txt=f"0 {BOX}", test__c_jpg="x", test__c_txt=f"0 {BOX}\n1 {BOX}")
    data = yolo.read(settings(file="classes.txt"), tmp_path)
    assert truth(data) == {"train/images/a.jpg": [0, 1], "valid/b.jpg": [1, 0], "test/c.jpg": [1, 1]}
    assert dict(zip(data.table.paths, data.table.split.tolist(), strict=True)) == {
        "train/images/a.jpg": 0,
        "valid/b.jpg": 1,
        "test/c.jpg": 2,
    }


def test_a_folder_of_roboflow_that_is_one_too_high(tmp_path):
    put(tmp_path, data_yaml="train: ../train/images\nval: ../valid/images\ntest: ''\nnames: ['cat', 'dog']")
    put(tmp_path, train__images__a_jpg="x", train__labels__a_txt=f"0 {BOX}")
    put(tmp_path, valid__images__b_jpg="x", valid__labels__b_txt=f"1 {BOX}")
    data = yolo.read(settings(test_fraction=0.0), tmp_path)
    assert truth(data) == {"train/images/a.jpg": [1, 0], "valid/images/b.jpg": [0, 1]}
    assert data.table.split.tolist() == [0, 1]


FAULTS = {
    "a number without a name": ({"labels__train__a_txt": f"0 {BOX}\n7 {BOX}"}, r"labels/train/a\.txt line 2 7"),
    "a line that is no box": ({"labels__train__a_txt": "0 0.5 0.5"}, r"labels/train/a\.txt line 1 '0 0\.5 0\.5'"),
    "words": ({"labels__train__a_txt": f"cat {BOX}"}, r"at least four numbers.*a\.txt line 1 'cat"),
    "half a number": ({"labels__train__a_txt": f"0.5 {BOX}"}, r"at least four numbers.*a\.txt line 1"),
    "not a number": ({"labels__train__a_txt": "0 nan 0.5 0.1 0.1"}, r"at least four numbers.*a\.txt line 1"),
    "no names": ({"data_yaml": "nc: 3"}, r"data\.yaml: no list `names` of classes, as in names: \[cat, dog\]"),
    "no YAML": ({"data_yaml": "names: [cat"}, r"data\.yaml: not YAML"),
    "another count": ({"data_yaml": YAML.replace("nc: 3", "nc: 4")}, r"data\.yaml: nc: 4, but `names` holds 3"),
    "a name that is none": ({"data_yaml": "names: [cat, true]"}, r"data\.yaml: names are not .* a text .*: 1: True"),
    "names twice": ({"data_yaml": "names: [cat, cat]"}, r"duplicate class names: cat"),
    "a split that is not there": ({"data_yaml": YAML.replace("images/train", "images/tr")}, r"train: images/tr"),
    "a split outside": ({"data_yaml": YAML.replace("images/train", "/etc")}, r"within .*train: /etc"),
    "a split that is no path": ({"data_yaml": YAML.replace("images/train", "3")}, r"splits are no path.*train: 3"),
    "splits of one folder": (
        {"data_yaml": YAML.replace("val.txt", "images/train")},
        r"splits are the same pictures \(delete one of the two lines.*train and val: images/train",
    ),
    "a listed picture that is not there": ({"val_txt": "images/other/x.jpg"}, r"val\.txt line 1 'images/other/x\.jpg'"),
    "a label file without picture": (
        {"labels__train__z_txt": f"0 {BOX}"},
        r"label files have no picture: labels/train/z",
    ),
}


@pytest.mark.parametrize("files, message", FAULTS.values(), ids=FAULTS.keys())
def test_faults_are_named_with_file_and_line(files, message, tmp_path):
    tree(tmp_path)
    put(tmp_path, **files)
    with pytest.raises(SourceError, match=message):
        yolo.read(settings(), tmp_path)


@pytest.mark.parametrize("name", ["x" * 400, "x/" * 3000 + "y"], ids=["name", "path"])
def test_what_is_longer_than_a_path_can_be_is_not_there(name, tmp_path):
    tree(tmp_path)
    put(tmp_path, data_yaml=YAML.replace("../datasets/pets", name))
    assert truth(yolo.read(settings(), tmp_path)) == TRUTH
    put(tmp_path, data_yaml=YAML.replace("images/train", name))
    with pytest.raises(SourceError, match=r"splits name no folder or list within .*: train: x"):
        yolo.read(settings(), tmp_path)
    put(tmp_path, data_yaml=YAML, val_txt=f"images/other/d.PNG\n{name}.jpg\n")
    with pytest.raises(SourceError, match=r"no picture file: val\.txt line 2 'x"):
        yolo.read(settings(), tmp_path)


def test_faults_of_all_files_are_told_at_once(tmp_path):
    tree(tmp_path)
    put(tmp_path, labels__train__a_txt=f"9 {BOX}", labels__other__e_txt="x", labels__z_txt=f"1 {BOX}")
    with pytest.raises(FaultyData) as caught:
        yolo.read(settings(), tmp_path)
    assert len(caught.value.lines) == 3
