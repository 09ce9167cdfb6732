import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline.core.errors import SourceError
from pipeline.labels.table import Dataset
from pipeline.sources import folder
from tests.trees import PICTURES, write_files

PLAIN = ("cat/1.jpg", "cat/2.JPG", "cat/deep/er/3.png", "dog/1.jpg", "dog/5.webp", "dog/6.jpg")


def settings(**changes) -> folder.Settings:
    fixed = {
        "source": "folder",
        "root": "photos",
        "size": 8,
        **PICTURES,
        "classes": None,
    }
    fixed |= {"split_folders": False, "same_name": "separate"}
    return folder.Settings.model_validate(
        fixed | {"val_fraction": 0.2, "test_fraction": 0.2, "split_seed": 0, "unlabelled": None} | changes
    )


def write(root: Path, *names: str, content: bytes = b"x") -> None:
    write_files(root / "photos", *names, content=content)


def read(root: Path, *names: str, **changes) -> Dataset:
    write(root, *names)
    return folder.read(settings(**changes), root)


def labels(data: Dataset) -> dict[str, list[str]]:
    """Of each path the classes that are known present; nothing else may be known."""
    assert np.array_equal(data.table.scored, data.table.truth == 1) and not data.table.exhaustive
    return {
        path: [name for name, cell in zip(data.table.classes, row, strict=True) if cell]
        for path, row in zip(data.table.paths, data.table.truth, strict=True)
    }


def test_pictures_of_endings_that_are_not_read_are_told(tmp_path):
    data = read(tmp_path, *PLAIN, "cat/7.JXL", "jxl/1.jxl", "jxl/2.dng", ".thumbs/3.jxl")
    assert data.table.classes == ("cat", "dog")
    assert data.report["warnings"] == [
        "3 pictures of endings that are not read were left out: cat/7.JXL, jxl/1.jxl, jxl/2.dng",
        "1 folder holds no picture that is read: jxl",
    ]


def splits(data: Dataset) -> dict[str, int]:
    return dict(zip(data.table.paths, data.table.split.tolist(), strict=True))


# ---------------------------------------------------------------------------------------------- the right table
def test_one_positive_label_each_and_nothing_else_known(tmp_path):
    data = read(tmp_path, *PLAIN)
    assert data.table.classes == ("cat", "dog")
    assert labels(data) == {name: [name[:3]] for name in PLAIN}
    for row, path in enumerate(data.table.paths):
        assert data.image(row) == tmp_path / "photos" / path
    assert data.report["images"] == 6 and data.report["cells"] == {"present": 6, "absent": 0, "unknown": 6}
    assert data.report["same_name"] == {"policy": "separate", "names": 1, "of_equal_size": 1}  # 1.jpg
    assert data.report["warnings"] == []


def test_a_class_of_three_is_in_every_split(tmp_path):
    table = read(tmp_path, *PLAIN).table
    for part in ("train", "val", "test"):
        assert table.truth[table.rows(part)].sum(axis=0).tolist() == [1, 1]
    assert table.official.tolist() == [0, 0, 0, 0, 1, 1]


def test_what_is_no_picture_is_passed_over(tmp_path):
    write(tmp_path, ".ipynb_checkpoints/1.jpg", "cat/.thumbs/1.jpg", "cat/._1.jpg", "__MACOSX/cat/1.jpg")
    write(tmp_path, "cat/Thumbs.db", "notes/readme.txt")
    (tmp_path / "photos" / "empty").mkdir()
    assert labels(read(tmp_path, *PLAIN)) == {name: [name[:3]] for name in PLAIN}


def test_linked_folders_are_followed(tmp_path):
    write(tmp_path, *PLAIN)
    (tmp_path / "photos" / "dog").rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", tmp_path / "photos" / "dog", target_is_directory=True)
    assert labels(read(tmp_path, links="follow")) == {name: [name[:3]] for name in PLAIN}
    with pytest.raises(SourceError, match=r"^photos: 1 link leads out of the folder: dog; .* prepare: links: follow"):
        read(tmp_path)


def test_loose_pictures_are_left_out_with_a_warning(tmp_path):
    data = read(tmp_path, "loose.jpg", *PLAIN)
    assert labels(data) == {name: [name[:3]] for name in PLAIN}
    assert data.report["pictures_in_no_class_folder"] == {"count": 1, "first": ["loose.jpg"]}
    assert data.report["warnings"] == ["1 picture lies in no class's folder and was left out: loose.jpg"]


def test_wanted_classes_choose_folders_and_their_order(tmp_path):
    data = read(tmp_path, "fox/1.jpg", "fox/2.jpg", *PLAIN, classes=["dog", "cat"])
    assert data.table.classes == ("dog", "cat")
    assert labels(data) == {name: [name[:3]] for name in PLAIN}
    assert data.report["folders_not_in_classes"] == {"fox": 2}


def test_unicode_forms_of_folders_are_one_class(tmp_path):
    apart = unicodedata.normalize("NFD", "forêt")
    data = read(tmp_path, f"{apart}/1.jpg", "forêt/2.jpg", f"{apart}/3.jpg", val_fraction=0, test_fraction=0)
    assert labels(data) == {f"forêt/{number}.jpg": ["forêt"] for number in (1, 2, 3)}
    for row in range(3):
        file = data.image(row)
        assert isinstance(file, Path) and file.is_file()


# ---------------------------------------------------------------------------------------------- the same name
def test_copies_in_several_folders_become_one_image(tmp_path):
    data = read(tmp_path, *PLAIN, "fox/sub/6.jpg", "fox/deep/er/3.png", same_name="merge", val_fraction=0)
    assert labels(data) == {
        "cat/1.jpg": ["cat", "dog"],
        "cat/2.JPG": ["cat"],
        "cat/deep/er/3.png": ["cat", "fox"],
        "dog/5.webp": ["dog"],
        "dog/6.jpg": ["dog"],  # fox/sub/6.jpg has another name below its folder
        "fox/sub/6.jpg": ["fox"],
    }
    assert data.report["same_name"] == {"policy": "merge", "names": 2, "of_equal_size": 2}
    assert data.report["pictures_in_no_row"] == {"count": 2, "first": ["dog/1.jpg", "fox/deep/er/3.png"]}


def test_different_pictures_of_one_name_cannot_be_merged(tmp_path):
    write(tmp_path, *PLAIN)
    write(tmp_path, "dog/1.jpg", content=b"other")
    data = read(tmp_path)
    assert len(labels(data)) == 6
    assert data.report["same_name"] == {"policy": "separate", "names": 1, "of_equal_size": 0}
    with pytest.raises(SourceError, match=r"photos: names stand for several pictures: 'cat/1\.jpg' and 'dog/1\.jpg'"):
        folder.read(settings(same_name="merge"), tmp_path)


def test_names_are_merged_within_a_split_only(tmp_path):
    names = ("train/cat/1.jpg", "train/dog/1.jpg", "val/cat/1.jpg", "test/cat/1.jpg", "test/dog/1.jpg")
    data = read(tmp_path, *names, split_folders=True, same_name="merge")
    assert labels(data) == {
        "train/cat/1.jpg": ["cat", "dog"],
        "val/cat/1.jpg": ["cat"],
        "test/cat/1.jpg": ["cat", "dog"],
    }


# ---------------------------------------------------------------------------------------------- splits
def test_split_folders_are_followed(tmp_path):
    data = read(tmp_path, "Train/cat/1.jpg", "valid/cat/1.jpg", "test/dog/1.jpg", split_folders=True)
    assert data.table.classes == ("cat", "dog")
    assert splits(data) == {"Train/cat/1.jpg": 0, "valid/cat/1.jpg": 1, "test/dog/1.jpg": 2}
    assert data.report["split"] == {"given": ["train", "val", "test"], "drawn": {}, "seed": 0}


def test_val_is_drawn_from_train_where_it_has_no_folder(tmp_path):
    train = [f"train/{name}/{number}.jpg" for name in ("cat", "dog") for number in range(5)]
    data = read(tmp_path, *train, "test/cat/9.jpg", split_folders=True)
    table = data.table
    assert table.truth[table.rows("val")].sum(axis=0).tolist() == [1, 1]
    assert [table.paths[row] for row in table.rows("test")] == ["test/cat/9.jpg"]
    assert data.report["split"] == {"given": ["train", "test"], "drawn": {"val": 0.2}, "seed": 0}


def test_split_folders_are_not_taken_for_classes(tmp_path):
    write(tmp_path, "train/cat/1.jpg", "test/cat/1.jpg")
    with pytest.raises(SourceError, match=r"split_folders: test, train are no classes; set it to true"):
        read(tmp_path)
    data = read(tmp_path, "bus/1.jpg")
    assert data.table.classes == ("bus", "test", "train")  # a train among other vehicles
    assert data.report["warnings"] == ["folders called as splits are taken for classes: test, train beside bus"]


def test_other_folders_beside_the_splits_are_named(tmp_path):
    with pytest.raises(SourceError, match=r"split_folders: folders other than train, val and test: cat, extra"):
        read(tmp_path, "train/cat/1.jpg", "extra/cat/1.jpg", "cat/1.jpg", split_folders=True)


# ---------------------------------------------------------------------------------------------- faults
def test_a_folder_without_classes_is_an_error(tmp_path):
    with pytest.raises(SourceError, match="photos: no picture lies in a class's folder: loose.jpg"):
        read(tmp_path, "loose.jpg")
    with pytest.raises(SourceError, match="photos: no picture lies in a class's folder: test/1.jpg, train/1.jpg"):
        read(tmp_path / "split", "train/1.jpg", "test/1.jpg", split_folders=True)


def test_a_wanted_class_without_pictures_is_named(tmp_path):
    with pytest.raises(SourceError, match="classes: no picture in a folder of the name: Cat, fox"):
        read(tmp_path, *PLAIN, classes=["dog", "fox", "Cat"])


@pytest.mark.parametrize("same_name", ["separate", "merge"])
def test_paths_that_differ_only_in_case_or_unicode_form_are_named(tmp_path, same_name):
    with pytest.raises(
        SourceError, match=r"paths differ only in case or unicode form: picture 'cat/1\.JPG' and picture 'cat/1\.jpg'"
    ):
        read(tmp_path / "case", *PLAIN, "cat/1.JPG", same_name=same_name)
    with pytest.raises(SourceError, match=r"paths differ only in case or unicode form: .*'cat/e\\u0301.jpg'"):
        read(tmp_path / "form", *PLAIN, "cat/é.jpg", "cat/e\u0301.jpg", same_name=same_name)


def test_a_name_that_is_no_utf8_is_named(tmp_path):
    write(tmp_path, *PLAIN)
    (tmp_path / "photos" / "cat" / os.fsdecode(b"\xff.jpg")).write_bytes(b"x")
    with pytest.raises(SourceError, match=r"paths .* not UTF-8: picture 'cat/\\udcff\.jpg'"):
        read(tmp_path)


# ---------------------------------------------------------------------------------------------- settings and state


def test_impossible_settings_are_refused():
    for change in ({"same_name": "both"}, {"split_folders": "yes"}, {"file": "labels.csv"}):
        with pytest.raises(ValidationError, match=next(iter(change))):
            settings(**change)


def test_a_folder_with_blanks_before_its_name_is_named(tmp_path):
    with pytest.raises(SourceError, match=r"paths have blanks around them.*: picture ' cat/7\.jpg'"):
        read(tmp_path, *PLAIN, " cat/7.jpg")
