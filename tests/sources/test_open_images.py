from pathlib import Path

import numpy as np
import pytest

from pipeline.core.errors import SourceError
from pipeline.labels.table import Dataset
from pipeline.sources import open_images
from tests.trees import PICTURES, write_files

HEAD = "ImageID,Source,LabelName,Confidence\n"
TABLES = {
    "train-annotations-human-imagelabels.csv": HEAD
    + "aa,verification,/m/1,1\naa,verification,/m/2,0\nbb,verification,/m/3,1\nzz,verification,/m/1,1\n",
    "validation-annotations-human-imagelabels.csv": HEAD + "cc,verification,/m/2,1\ncc,verification,/m/1,1.0\n",
    "class-descriptions.csv": '/m/1,Cat\n/m/2,"Bass"\n/m/3,Bass\n/m/9,Never seen\n',
}
WHOLE = {name: text.replace("zz,verification,/m/1,1\n", "") for name, text in TABLES.items()}
"""The tables without the image of which there is no picture."""


def settings(**changes) -> open_images.Settings:
    fixed = {
        "source": "open_images",
        "root": ".",
        "size": 8,
        **PICTURES,
        "file": "*-annotations-human-imagelabels.csv",
        "names": "class-descriptions.csv",
        "missing": "leave_out",
        "classes": None,
    }
    fixed |= {"val_fraction": 0.25, "test_fraction": 0.25, "split_seed": 0, "unlabelled": None}
    return open_images.Settings.model_validate(fixed | changes)


def tree(root: Path, **changes: str) -> None:
    for name, content in (TABLES | changes).items():
        (root / name).write_text(content)
    write_files(root, "train/aa.jpg", "train/bb.png", "validation/cc.jpg")


def truth(data: Dataset) -> dict[str, list[int]]:
    cells = np.where(data.table.scored, data.table.truth, -1)
    return dict(zip(data.table.paths, cells.tolist(), strict=True))


def test_people_found_or_did_not_find_and_the_rest_is_unknown(tmp_path):
    tree(tmp_path)
    data = open_images.read(settings(), tmp_path)
    assert data.table.classes == ("Bass (/m/2)", "Bass (/m/3)", "Cat")  # two labels of one name stay two
    assert truth(data) == {"train/aa.jpg": [0, -1, 1], "train/bb.png": [-1, 1, -1], "validation/cc.jpg": [1, -1, 1]}
    assert data.report["images_without_picture"] == {"count": 1, "first": ["zz"]}
    assert dict(zip(data.table.paths, data.table.split.tolist(), strict=True))["validation/cc.jpg"] == 1
    assert not data.table.exhaustive


def test_a_header_of_names_and_a_table_for_all(tmp_path):
    """As in V7; the folder of a picture says its split then."""
    lines = "".join(text.removeprefix(HEAD) for name, text in TABLES.items() if "human" in name)
    tree(tmp_path, **{"class-descriptions.csv": "LabelName,DisplayName\n/m/1,Cat\n/m/2,Bass\n/m/3,Dog\n"})
    (tmp_path / "labels.csv").write_text(HEAD + lines)
    data = open_images.read(settings(file="labels.csv"), tmp_path)
    assert data.table.classes == ("Bass", "Cat", "Dog")
    assert dict(zip(data.table.paths, data.table.split.tolist(), strict=True))["validation/cc.jpg"] == 1


def test_without_names_labels_are_names_and_codes_are_warned_of(tmp_path):
    tree(tmp_path)
    data = open_images.read(settings(names=None), tmp_path)
    assert data.table.classes == ("/m/1", "/m/2", "/m/3")
    assert any("classes are called by identifiers: /m/1, /m/2, /m/3" in text for text in data.report["warnings"])


TRAIN = "train-annotations-human-imagelabels.csv"
NAMES = "class-descriptions.csv"
FAULTS = {
    "a machine's guess": (
        {TRAIN: HEAD + "aa,machine,/m/1,0.9\n"},
        r"train-\S+: confidences are none of 1 and 0 .*line 2 '0\.9'",
    ),
    "no number": ({TRAIN: HEAD + "aa,x,/m/1,yes\n"}, r"none of 1 and 0 .*line 2 'yes'"),
    "no column": ({TRAIN: "ImageID,LabelName\naa,/m/1\n"}, r"train-\S+: no column Confidence"),
    "a field too many": ({TRAIN: HEAD + "aa,x,/m/1,1,1\n"}, r"another number of fields.*line 2 \(5\)"),
    "a label without name": (
        {NAMES: "/m/1,Cat\n/m/2,Dog\n"},
        r"labels have no name in class-descriptions.csv: .*line 4 /m/3",
    ),
    "both present and absent": ({TRAIN: HEAD + "aa,x,/m/1,1\naa,x,/m/1,0\n"}, r"both present and absent.*line 2"),
    "two names": (
        {NAMES: TABLES[NAMES] + "/m/1,Tiger\n"},
        r"class-descriptions.csv: labels have two names: line 5 /m/1",
    ),
    "a row that is no name": ({NAMES: TABLES[NAMES] + "/m/7\n"}, r"rows are not a label and its name: line 5"),
    "an image in two splits": (
        {"validation-annotations-human-imagelabels.csv": HEAD + "aa,x,/m/1,1\ncc,x,/m/1,1\n"},
        r"duplicate paths with different labels, splits.*train-\S+ line 2 and validation-\S+ line 2",
    ),
}


@pytest.mark.parametrize("files, message", FAULTS.values(), ids=FAULTS.keys())
def test_faults_are_named_with_file_and_line(files, message, tmp_path):
    tree(tmp_path, **files)
    with pytest.raises(SourceError, match=message):
        open_images.read(settings(), tmp_path)


def test_an_id_of_two_pictures_and_one_of_none_are_named(tmp_path):
    tree(tmp_path)
    (tmp_path / "aa.png").write_bytes(b"x")
    with pytest.raises(SourceError, match=r"ids fit several pictures.* line 2 aa \(aa\.png, train/aa\.jpg\)"):
        open_images.read(settings(), tmp_path)
    (tmp_path / "aa.png").unlink()
    with pytest.raises(SourceError, match=r"images have no picture file \(missing: leave_out.*line 5 zz"):
        open_images.read(settings(missing="stop"), tmp_path)
