import io
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from pipeline.core.errors import SourceError
from pipeline.core.faults import FaultyData
from pipeline.data.images import decode
from pipeline.labels.splits import split_rows
from pipeline.labels.table import Dataset
from pipeline.sources import voc
from tests.trees import PICTURES

CLASSES = ("bird", "cat", "dog")
TRAIN = {  # bird, cat, dog as in the files
    "2008_000010": (1, -1, -1),
    "2008_000002": (0, 1, -1),
    "2008_000007": (-1, 1, 1),
    "2008_000005": (-1, -1, 0),  # nothing but a difficult dog
    "2008_000001": (-1, -1, 1),
}
VAL = {"2009_000004": (-1, 1, 0), "2009_000003": (1, -1, -1), "2009_000009": (-1, -1, -1)}


def line(name: str, label: int) -> str:
    return f"{name} {label:2d}"  # two spaces before 1 and 0, one before -1, as in the official files


def tree(folder: Path, train: dict = TRAIN, val: dict = VAL, classes: tuple[str, ...] = CLASSES) -> Path:
    """Write a dataset in VOC layout with one-colour pictures."""
    lists, pictures = folder / "ImageSets" / "Main", folder / "JPEGImages"
    lists.mkdir(parents=True)
    pictures.mkdir()
    for part, labels in (("train", train), ("val", val)):
        (lists / f"{part}.txt").write_text("".join(f"{name}\n" for name in labels))
        for column, name in enumerate(classes):
            text = "".join(line(image, values[column]) + "\n" for image, values in labels.items())
            (lists / f"{name}_{part}.txt").write_text(text)
        for place, name in enumerate(labels):
            buffer = io.BytesIO()
            Image.new("RGB", (20, 16), (10 * place, 100, 0)).save(buffer, "JPEG")
            (pictures / f"{name}.jpg").write_bytes(buffer.getvalue())
    return folder


def settings(root: str = ".", **changes) -> voc.Settings:
    fixed = {"source": "voc", "root": root, "labels": "lists", "difficult": "negative", "classes": None, "size": 8}
    fixed |= {
        **PICTURES,
        "val_fraction": 0.25,
        "split_seed": 1200,
    }
    return voc.Settings.model_validate(fixed | changes)


def read(project: Path, **changes) -> Dataset:
    return voc.read(settings(**changes), project)


def edit(folder: Path, name: str, change) -> None:
    file = folder / "ImageSets" / "Main" / name
    file.write_bytes(change(file.read_bytes()))


def labels(data: Dataset) -> dict[str, list[int]]:
    ids = [path.removeprefix("JPEGImages/").removesuffix(".jpg") for path in data.table.paths]
    return dict(zip(ids, data.table.truth.tolist(), strict=True))


def picture(data: Dataset, row: int) -> np.ndarray:
    file = data.image(row)
    assert isinstance(file, Path)
    return decode(file, 10**8)


PLAIN = {  # difficult counts as absent; images without a positive are gone
    "2008_000001": [0, 0, 1],
    "2008_000002": [0, 1, 0],
    "2008_000007": [0, 1, 1],
    "2008_000010": [1, 0, 0],
    "2009_000003": [1, 0, 0],
    "2009_000004": [0, 1, 0],
}


# ---------------------------------------------------------------------------------------------- the right table
def test_the_table_of_a_plain_tree(tmp_path):
    data = read(tree(tmp_path))
    table = data.table
    assert table.classes == CLASSES
    assert labels(data) == PLAIN
    assert list(labels(data)) == list(PLAIN)  # sorted by file name, the train list first
    assert table.scored.all()
    assert table.official.tolist() == [0, 0, 0, 0, 1, 1]
    train, val = split_rows(4, 0.25, 1200)
    assert table.rows("train").tolist() == train.tolist()
    assert table.rows("val").tolist() == val.tolist() and len(val) == 1
    assert table.rows("test").tolist() == [4, 5]
    for row in range(6):
        assert picture(data, row).shape == (16, 20, 3)
        assert str(data.image(row)).endswith(table.paths[row])


def test_difficult_ignored_leaves_cells_out_and_counts_as_absent(tmp_path):
    data = read(tree(tmp_path), difficult="ignore")
    assert labels(data) == PLAIN
    unscored = [(data.table.paths[row], data.table.classes[column]) for row, column in np.argwhere(~data.table.scored)]
    assert unscored == [("JPEGImages/2008_000002.jpg", "bird"), ("JPEGImages/2009_000004.jpg", "dog")]
    assert data.report["difficult"] == {"policy": "ignore", "cells": 2}


def test_difficult_positive_counts_and_brings_its_image_in(tmp_path):
    data = read(tree(tmp_path), difficult="positive")
    wanted = PLAIN | {"2008_000002": [1, 1, 0], "2008_000005": [0, 0, 1], "2009_000004": [0, 1, 1]}
    assert labels(data) == wanted and list(labels(data)) == sorted(wanted)
    assert data.table.scored.all()


def test_the_report_says_what_was_skipped(tmp_path):
    (tree(tmp_path) / "JPEGImages" / "2011_spare.jpg").touch()
    report = read(tmp_path).report
    train, val = report["parts"]["train"], report["parts"]["val"]
    assert (train["listed"], train["kept"]) == (5, 4)
    assert train["skipped_without_positive"] == {"count": 1, "first": ["2008_000005"]}
    assert train["difficult_cells"] == {"bird": 1, "cat": 0, "dog": 0}
    assert (val["listed"], val["kept"]) == (3, 2)
    assert val["skipped_without_positive"] == {"count": 1, "first": ["2009_000009"]}
    assert report["difficult"] == {"policy": "negative", "cells": 2}
    assert report["pictures_in_no_list"] == 1
    assert report["warnings"] == []


def test_wanted_classes_set_the_columns(tmp_path):
    data = read(tree(tmp_path), classes=["dog", "bird"])
    assert data.table.classes == ("dog", "bird")
    assert labels(data) == {"2008_000001": [1, 0], "2008_000007": [1, 0], "2008_000010": [0, 1], "2009_000003": [0, 1]}


def test_a_class_without_any_positive_stays(tmp_path):
    rows = {name: (*values, -1) for name, values in TRAIN.items()}
    data = read(tree(tmp_path, rows, {name: (*values, -1) for name, values in VAL.items()}, (*CLASSES, "zebra")))
    assert data.table.classes == (*CLASSES, "zebra")
    assert data.table.truth[:, 3].sum() == 0


# ---------------------------------------------------------------------------------------------- quirks of lists
HARMLESS = {
    "one space everywhere": lambda text: text.replace(b"  ", b" "),
    "tabs": lambda text: text.replace(b"  ", b"\t").replace(b" ", b"\t"),
    "carriage returns": lambda text: text.replace(b"\n", b"\r\n"),
    "blank last lines": lambda text: text + b"\n  \n\t\r\n",
    "no last line feed": lambda text: text.rstrip(b"\n"),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "blanks around": lambda text: b"".join(b"  " + row + b" \n" for row in text.splitlines()),
    "other order": lambda text: b"".join(sorted(text.splitlines(keepends=True))),
}


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS.keys())
def test_harmless_forms_of_the_lists_change_nothing(tmp_path, change):
    folder = tree(tmp_path)
    for file in (folder / "ImageSets" / "Main").iterdir():
        edit(folder, file.name, change)
    data = read(folder)
    assert labels(data) == PLAIN and list(labels(data)) == list(PLAIN)
    assert data.report["parts"]["train"]["repeated_lines"] == 0


def test_repeated_lines_that_agree_are_counted(tmp_path):
    folder = tree(tmp_path)
    edit(folder, "train.txt", lambda text: text + b"2008_000010\n")
    edit(folder, "cat_train.txt", lambda text: text + b"2008_000010 -1\n2008_000002  1\n")
    data = read(folder)
    assert labels(data) == PLAIN
    assert data.report["parts"]["train"]["repeated_lines"] == 3


def test_a_list_of_ids_alone_holds_the_positives(tmp_path):
    folder = tree(tmp_path)
    edit(folder, "dog_train.txt", lambda _: b"2008_000007\n2008_000001\n")
    data = read(folder)
    assert labels(data) == PLAIN
    assert data.report["parts"]["train"]["classes_listing_positives_only"] == ["dog"]
    assert "dog" in data.report["warnings"][0]


def test_an_empty_class_list_lacks_every_id(tmp_path):
    folder = tree(tmp_path)
    edit(folder, "dog_train.txt", lambda _: b"")
    with pytest.raises(SourceError, match=r"dog_train\.txt: 5 of the 5 ids of train\.txt are missing"):
        read(folder)


FAULTS = {
    "id missing": (
        "cat_train.txt",
        lambda t: t.replace(b"2008_000007  1\n", b""),
        r"cat_train\.txt: ids of train\.txt are missing: 2008_000007",
    ),
    "id unknown": (
        "cat_val.txt",
        lambda t: t + b"2010_000001 -1\n",
        r"^cat_val\.txt: ids are not in val\.txt: line 4 2010_000001$",
    ),
    "id of the other part": (
        "cat_val.txt",
        lambda t: t + b"2008_000010 -1\n",
        r"^cat_val\.txt: ids are not in val\.txt: line 4 2008_000010$",
    ),
    "value": (
        "dog_train.txt",
        lambda t: t.replace(b"2008_000005  0", b"2008_000005  2"),
        r"^dog_train\.txt: labels are not 1, 0 or -1: line 4 2008_000005 '2'$",
    ),
    "value in words": (
        "dog_train.txt",
        lambda t: t.replace(b"2008_000005  0", b"2008_000005 yes"),
        r"^dog_train\.txt: labels are not 1, 0 or -1: line 4 2008_000005 'yes'$",
    ),
    "three fields": (
        "dog_train.txt",
        lambda t: t.replace(b"2008_000005  0", b"2008_000005 0 0"),
        r"^dog_train\.txt: lines are not an id and a label: line 4 '2008_000005 0 0'$",
    ),
    "label lost on one line": (
        "dog_train.txt",
        lambda t: t.replace(b"2008_000005  0", b"2008_000005"),
        r"^dog_train\.txt: lines are not an id and a label: line 4 '2008_000005'$",
    ),
    "labels lost but one": (
        "dog_val.txt",
        lambda t: b"2009_000004\n2009_000003 -1\n",
        r"^dog_val\.txt: lines are not an id alone, as the first is: line 2 '2009_000003 -1'$",
    ),
    "all labels lost": (
        "dog_val.txt",
        lambda t: b"2009_000004\n2009_000003\n2009_000009\n",
        r"dog_val\.txt holds every id .* were the labels lost",
    ),
    "two labels": (
        "bird_train.txt",
        lambda t: t + b"2008_000010 -1\n",
        r"^bird_train\.txt: ids have another label above: line 6 2008_000010 -1, not 1$",
    ),
    "train list with labels": (
        "train.txt",
        lambda t: t.replace(b"10\n", b"10 1\n"),
        r"^train\.txt: lines are not one image id: line 1 '2008_000010 1'$",
    ),
    "train list empty": ("train.txt", lambda t: b"\n\n", r"^train\.txt lists no image$"),
    "id that climbs": (
        "train.txt",
        lambda t: t + b"../../etc/passwd\n",
        r"^train\.txt: invalid ids \(not plain file names\): line 6 '\.\./\.\./etc/passwd'$",
    ),
    "image in both": (
        "val.txt",
        lambda t: t + b"2008_000010\n",
        r"(?m)^val\.txt: images are in train\.txt too: 2008_000010$",
    ),
    "not text": ("cat_train.txt", lambda t: b"a\xff\x00\x01", r"cat_train\.txt: cannot be read as UTF-8"),
}


@pytest.mark.parametrize("name, change, words", FAULTS.values(), ids=FAULTS.keys())
def test_a_faulty_list_is_named_with_line_and_id(tmp_path, name, change, words):
    folder = tree(tmp_path)
    edit(folder, name, change)
    with pytest.raises(SourceError, match=words):
        read(folder)


@pytest.mark.parametrize("name", ["train.txt", "val.txt"])
def test_a_missing_image_list_is_named(tmp_path, name):
    (tree(tmp_path) / "ImageSets" / "Main" / name).unlink()
    with pytest.raises(SourceError, match=f"{name} is missing"):
        read(tmp_path)


def test_a_class_with_one_list_only_is_named(tmp_path):
    (tree(tmp_path) / "ImageSets" / "Main" / "cat_val.txt").unlink()
    with pytest.raises(SourceError, match=r"class lists are missing \(complete are: bird, dog\): cat_val\.txt$"):
        read(tmp_path)


def test_wanted_classes_without_lists_are_named(tmp_path):
    tree(tmp_path)
    words = r"2 class lists are missing \(complete are: bird, cat, dog\): Cat_train\.txt, Cat_val\.txt$"
    with pytest.raises(SourceError, match=words):
        read(tmp_path, classes=["Cat"])
    with pytest.raises(SourceError, match="prepare: classes: duplicate class names: dog"):
        read(tmp_path, classes=["dog", "cat", "dog"])


NO_NAME = "invalid class names (empty, padded or with control characters)"


@pytest.mark.parametrize("text", ["", " ", "\n", "a\x01b", "a\x7f", "a\tb", "\ud800"])
@pytest.mark.parametrize("how", ["lists", "annotations"])
def test_a_wanted_name_that_cannot_be_a_class_is_told_with_what_else_is_wrong(tmp_path, how, text):
    folder = annotated(tree(tmp_path))
    (folder / "JPEGImages" / "2008_000001.jpg").unlink()
    with pytest.raises(SourceError) as caught:
        read(tmp_path, labels=how, classes=["cat", text, "bird", "dog"])
    lines = str(caught.value).splitlines()
    assert f"prepare: classes: {NO_NAME}: {text.strip()!r}" in lines
    assert "JPEGImages: images have no file: 2008_000001" in lines
    assert len(lines) == (3 if how == "lists" else 2)  # it has no class lists either


@pytest.mark.parametrize("how", ["lists", "annotations"])
def test_blanks_around_a_wanted_name_do_not_count(tmp_path, how):
    annotated(tree(tmp_path))
    data = read(tmp_path, labels=how, classes=["bird ", "cat", " dog\n"])
    assert data.table.classes == CLASSES and labels(data) == PLAIN
    with pytest.raises(SourceError, match="prepare: classes: duplicate class names: dog"):
        read(tmp_path, labels=how, classes=["bird", "cat", "dog", " dog"])


@pytest.mark.parametrize("text", [" dog", "dog\u2003", "a\x01", "a\x85b"])
def test_class_lists_of_a_name_that_cannot_be_a_class_are_told(tmp_path, text):
    tree(tmp_path, classes=("bird", "cat", text))
    for ask in (voc.read, voc.fingerprint):
        with pytest.raises(SourceError, match=re.escape(f"Main: {NO_NAME}: {text!r}") + "$"):
            ask(settings(), tmp_path)
    assert read(tmp_path, classes=["bird", "cat"]).table.classes == ("bird", "cat")


@pytest.mark.parametrize("text", ["a\x7fb", "a\x9f", "a/b", "a\\b", "a\x01"])
def test_an_id_that_is_no_plain_file_name_is_told(tmp_path, text):
    edit(tree(tmp_path), "val.txt", lambda data: data + f"{text}\n".encode())
    with pytest.raises(SourceError, match=re.escape(f"val.txt: invalid ids (not plain file names): line 4 {text!r}")):
        read(tmp_path)


def test_a_tree_without_class_lists_is_an_error(tmp_path):
    tree(tmp_path, classes=())
    with pytest.raises(SourceError, match="no <class>_train.txt"):
        read(tmp_path)


def test_a_part_without_any_positive_is_an_error(tmp_path):
    tree(tmp_path, val={"2009_000001": (-1, -1, 0)})
    with pytest.raises(SourceError, match=r"val\.txt: none of its 1 images has a positive label"):
        read(tmp_path)
    assert read(tmp_path, difficult="positive").table.rows("test").tolist() == [5]


# ---------------------------------------------------------------------------------------------- pictures
def test_all_missing_pictures_are_listed_at_once(tmp_path):
    rows = {f"img_{number:03d}": (1, -1, -1) for number in range(30)}
    folder = tree(tmp_path, rows)
    for number in range(25):
        (folder / "JPEGImages" / f"img_{number:03d}.jpg").unlink()
    (folder / "JPEGImages" / "2009_000004.jpg").unlink()
    with pytest.raises(SourceError) as caught:
        read(folder)
    message = str(caught.value)
    assert message.startswith("JPEGImages: 26 of 32 images have no file: img_000, img_001, ")
    assert "img_019" in message and "img_020" not in message and message.endswith(" and 6 more")


def test_a_picture_is_not_missed_where_its_image_is_skipped(tmp_path):
    (tree(tmp_path) / "JPEGImages" / "2008_000005.jpg").unlink()
    assert labels(read(tmp_path)) == PLAIN


def test_one_image_with_two_files_is_ambiguous(tmp_path):
    (tree(tmp_path) / "JPEGImages" / "2008_000010.JPG").touch()
    with pytest.raises(SourceError, match=r"several files: 2008_000010\.JPG = 2008_000010\.jpg"):
        read(tmp_path)


def test_other_endings_are_found(tmp_path):
    folder = tree(tmp_path) / "JPEGImages"
    (folder / "2008_000010.jpg").rename(folder / "2008_000010.JPEG")
    data = read(tmp_path)
    assert "JPEGImages/2008_000010.JPEG" in data.table.paths
    assert picture(data, data.table.paths.index("JPEGImages/2008_000010.JPEG")).shape == (16, 20, 3)


def test_unicode_forms_of_lists_and_files_meet(tmp_path):
    composed, apart = "été_1", unicodedata.normalize("NFD", "été_1")
    assert composed != apart
    folder = tree(tmp_path, TRAIN | {composed: (1, -1, -1)}, classes=CLASSES)
    (folder / "JPEGImages" / f"{composed}.jpg").rename(folder / "JPEGImages" / f"{apart}.jpg")
    edit(folder, "cat_train.txt", lambda text: unicodedata.normalize("NFD", text.decode()).encode())
    data = read(folder)
    row = data.table.paths.index(f"JPEGImages/{composed}.jpg")
    assert data.table.truth[row].tolist() == [1, 0, 0]
    assert picture(data, row).shape == (16, 20, 3)


# ---------------------------------------------------------------------------------------------- where the folder is
@pytest.mark.parametrize(
    "inside", [".", "VOC2012", "VOCdevkit/VOC2012", "VOC2012_train_val", "unpacked/VOCdevkit/VOC2012"]
)
def test_the_folder_is_found_below_the_root(tmp_path, inside):
    folder = tree(tmp_path / inside)
    assert voc.find_folder(tmp_path).resolve() == folder.resolve()
    assert labels(read(tmp_path)) == PLAIN


def test_voc2012_is_preferred_beside_another_year(tmp_path):
    tree(tmp_path / "VOC2012")
    tree(tmp_path / "VOC2007", classes=("train", "bus", "car"))
    assert read(tmp_path).table.classes == CLASSES


def test_a_wrong_root_is_explained(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="no ImageSets/Main in .*empty; expected VOCdevkit, VOC2012"):
        read(tmp_path, root="empty")
    folder = tree(tmp_path / "one")
    with pytest.raises(SourceError, match="it lies inside one, name .*one"):
        read(tmp_path, root="one/JPEGImages")
    tree(tmp_path / "two")
    with pytest.raises(SourceError, match=r"several datasets \(one, two\)"):
        read(tmp_path)
    for file in (folder / "JPEGImages").iterdir():
        file.unlink()
    (folder / "JPEGImages").rmdir()
    with pytest.raises(SourceError, match="one has ImageSets/Main but no JPEGImages"):
        read(tmp_path, root="one")


# ---------------------------------------------------------------------------------------------- settings
@pytest.mark.parametrize(
    "changes", [{"difficult": "maybe"}, {"classes": []}, {"classes": [True]}, {"val_fraction": 0.0}]
)
def test_impossible_settings_are_refused(changes):
    with pytest.raises(ValidationError, match=next(iter(changes))):
        settings(**changes)


# ---------------------------------------------------------------------------------------------- annotations
def thing(name: str, difficult: str | None, inside: str = "") -> str:
    mark = "" if difficult is None else f"<difficult>{difficult}</difficult>"
    return f"<object><name>{name}</name>{mark}<bndbox><xmin>1</xmin></bndbox>{inside}</object>"


PARTS = "<part><name>head</name><difficult>1</difficult></part>"
PARTS += "<part><name>dog</name><object><name>dog</name></object></part>"


def annotate(folder: Path, objects: dict[str, str]) -> Path:
    (folder / "Annotations").mkdir(exist_ok=True)
    for name, text in objects.items():
        content = f"<annotation><filename>{name}.jpg</filename><name>scene</name>{text}</annotation>"
        (folder / "Annotations" / f"{name}.xml").write_text(content)
    return folder


def annotated(folder: Path) -> Path:
    """Write annotations that say the same as the lists."""

    def objects(values: tuple[int, ...]) -> str:
        found = []
        for name, value in zip(CLASSES, values, strict=True):
            if value == 1:  # beside a difficult one, before or after it
                found += [thing(name, "1"), thing(name, None, PARTS if name == "bird" else ""), thing(name, "1")]
            if value == 0:
                found += [thing(name, "1")] * 2
        return "".join(found)

    return annotate(folder, {name: objects(values) for name, values in (TRAIN | VAL).items()})


@pytest.mark.parametrize("difficult", ["negative", "ignore", "positive"])
def test_annotations_and_lists_give_one_table(tmp_path, difficult):
    annotated(tree(tmp_path))
    one = read(tmp_path, difficult=difficult)
    other = read(tmp_path, difficult=difficult, labels="annotations", classes=list(CLASSES))
    for field in ("classes", "paths", "truth", "scored", "split", "official"):
        assert np.array_equal(getattr(one.table, field), getattr(other.table, field)), field
    assert one.report == other.report | {"labels": "lists"}


def test_annotations_need_no_class_lists_and_give_the_classes_of_voc(tmp_path):
    annotated(tree(tmp_path, classes=()))
    table = read(tmp_path, labels="annotations").table
    assert len(table.classes) == 20 and list(table.classes) == sorted(table.classes)
    assert table.classes[0] == "aeroplane" and table.classes[-1] == "tvmonitor"
    columns = [table.classes.index(name) for name in CLASSES]
    assert table.truth[:, columns].tolist() == list(PLAIN.values())
    assert table.truth.sum() == table.truth[:, columns].sum()


def test_a_class_of_voc_that_is_not_wanted_is_left_out_and_blanks_around_names_do_not_count(tmp_path):
    annotated(tree(tmp_path))
    annotate(tmp_path, {"2008_000001": thing("\n  dog\t", " 0 "), "2009_000004": thing("cat", "0") + thing("dog", "0")})
    data = read(tmp_path, labels="annotations", classes=["dog"])
    assert data.table.classes == ("dog",)
    assert labels(data) == {"2008_000001": [1], "2008_000007": [1], "2009_000004": [1]}


def test_names_that_are_no_class_are_counted_and_their_files_named(tmp_path):
    annotated(tree(tmp_path))
    annotate(
        tmp_path, {"2008_000002": thing("tv/monitor", "0") * 2 + thing("Dog", "0"), "2009_000003": thing("cat", "0")}
    )
    words = r"2 names are no class \(.*`classes`\): 'tv/monitor' in 2 objects, first in 2008_000002\.xml, 'Dog' in 1 ob"
    with pytest.raises(SourceError, match=words):
        read(tmp_path, labels="annotations")
    assert read(tmp_path, labels="annotations", classes=["cat", "Dog", "dog", "tv/monitor"]).table.truth[0].sum() == 1


def test_faulty_annotations_are_all_listed_at_once(tmp_path):
    annotated(tree(tmp_path))
    annotate(tmp_path, {"2008_000010": thing("bird", "2"), "2008_000002": thing("cat", "0") + thing(" ", "0")})
    (tmp_path / "Annotations" / "2008_000007.xml").write_text("<annotation><object>")
    (tmp_path / "Annotations" / "2008_000005.xml").write_bytes(b"")
    bomb = '<!DOCTYPE a [<!ENTITY b "bird">]><annotation><object><name>&b;</name></object></annotation>'
    (tmp_path / "Annotations" / "2008_000001.xml").write_text(bomb)
    with pytest.raises(SourceError) as caught:
        read(tmp_path, labels="annotations")
    message = str(caught.value)
    assert message.startswith("Annotations: 5 faults: ")
    assert "2008_000010.xml: object 1 (bird) has difficult '2', expected 0 or 1" in message
    assert "2008_000002.xml: object 2 has no name" in message
    for name in ("2008_000007", "2008_000005", "2008_000001"):
        assert f"{name}.xml: cannot be read as XML (" in message


def test_missing_annotations_are_named(tmp_path):
    with pytest.raises(SourceError, match="^Annotations: no such folder in "):
        read(tree(tmp_path), labels="annotations")
    annotated(tmp_path)
    for name in ("2008_000007", "2008_000010"):
        (tmp_path / "Annotations" / f"{name}.xml").unlink()
    with pytest.raises(SourceError, match=r"Annotations: 2 of 8 images have no file: 2008_000010, 2008_000007$"):
        read(tmp_path, labels="annotations")
    with pytest.raises(SourceError, match="prepare: classes: duplicate class names: dog"):
        read(tmp_path, labels="annotations", classes=["dog", "dog"])


# ---------------------------------------------------------------------------------------------- where objects lie
def boxed(name: str, difficult: int, *corners: object, inside: str = "") -> str:
    """An object with a box: first and last pixel, the picture's first being 1."""
    sides = zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True) if corners else ()
    box = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
    return f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox>{box}</bndbox>{inside}</object>"


SIZE = "<size><width>40</width><height>30</height></size>"  # half a diagonal is 25
WHOLE = (1, 1, 40, 30)
BOXES = {
    "2008_000010": boxed("bird", 0, 1, 1, 20, 15) + boxed("bird", 1, *WHOLE),
    "2008_000002": boxed("bird", 1, *WHOLE) + boxed("cat", 0, 31, -9, 50, 15) + boxed("cat", 0, 15, 16.0, 26, 21),
    "2008_000007": boxed("cat", 0, 11, 1, 30, 15, inside="<part><name>cat</name><bndbox><xmin>1</xmin></bndbox></part>")
    + boxed("dog", 0),
    "2008_000005": boxed("dog", 1, 1, 16, 40, 30),
    "2008_000001": boxed("dog", 0, 30, 1, 10, 10),  # its last pixel before its first
    "2009_000004": boxed("cat", 0, 37, 28, 40, 30) + boxed("dog", 1, *WHOLE),
    "2009_000003": boxed("bird", 0, *WHOLE),
    "2009_000009": "",
}
LARGEST = {  # fractions of 40 x 30 = 1200 pixels, as bird, cat, dog
    "2008_000001": [0, 0, 0],
    "2008_000002": [0, 10 * 15 / 1200, 0],
    "2008_000007": [0, 20 * 15 / 1200, 0],
    "2008_000010": [20 * 15 / 1200, 0, 0],
    "2009_000003": [1, 0, 0],
    "2009_000004": [0, 4 * 3 / 1200, 0],
}
CENTRAL = {  # centres from (20, 15): (0, 3) is nearer than (15, -7.5); (0, -7.5); (-10, -7.5); (0, 0); (18, 13.5)
    "2008_000001": [0, 0, 0],
    "2008_000002": [0, 3 / 25, 0],
    "2008_000007": [0, 7.5 / 25, 0],
    "2008_000010": [12.5 / 25, 0, 0],
    "2009_000003": [0, 0, 0],
    "2009_000004": [0, 22.5 / 25, 0],
}


def with_boxes(folder: Path, boxes: dict[str, str] = BOXES) -> Path:
    return annotate(tree(folder), {name: SIZE + text for name, text in boxes.items()})


@pytest.mark.parametrize("how", ["lists", "annotations"])
def test_the_largest_and_the_most_central_box_of_each_class(tmp_path, how):
    with_boxes(tmp_path)
    for difficult in ("negative", "ignore"):
        data = read(tmp_path, difficult=difficult, labels=how, classes=list(CLASSES))
        assert list(labels(data)) == list(LARGEST) and data.objects is not None
        assert data.objects.area.dtype == data.objects.offset.dtype == np.float32
        np.testing.assert_allclose(data.objects.area, list(LARGEST.values()), rtol=1e-6)
        np.testing.assert_allclose(data.objects.offset, list(CENTRAL.values()), rtol=1e-6)
        lost = {"count": 2, "first": ["JPEGImages/2008_000001.jpg", "JPEGImages/2008_000007.jpg"]}
        found = data.report["boxes"]
        assert (found["used"], found["present_without_box"]) == (6, 2)
        assert sorted(found["unusable"]["first"]) == lost["first"] and found["unusable"]["count"] == 2
        assert data.report["warnings"][0].startswith("2 boxes cannot be used")
        assert data.report["warnings"][1:] == ["2 present labels have no box and count as having no size"]


def test_labels_without_a_box_are_told_alone_where_all_boxes_are_sound(tmp_path):
    sound = BOXES | {"2008_000007": boxed("cat", 0, 11, 1, 30, 15), "2008_000001": boxed("dog", 0, 1, 1, 9, 9)}
    data = read(with_boxes(tmp_path, sound))
    assert data.report["boxes"]["unusable"]["count"] == 0
    assert data.report["warnings"] == ["1 present label has no box and counts as having no size"]  # dog of 000007
    data = read(with_boxes(tmp_path / "b", sound | {"2008_000001": "", "2009_000009": boxed("dog", 0, *WHOLE)}))
    assert data.report["warnings"] == ["2 present labels have no box and count as having no size"]
    data = read(with_boxes(tmp_path / "c", sound | {"2008_000007": sound["2008_000007"] + boxed("dog", 0, *WHOLE)}))
    assert data.report["warnings"] == []


@pytest.mark.parametrize("how", ["lists", "annotations"])
def test_difficult_boxes_count_where_they_alone_make_a_class_present(tmp_path, how):
    data = read(with_boxes(tmp_path), difficult="positive", labels=how, classes=list(CLASSES))
    assert data.objects is not None
    area = LARGEST | {"2008_000002": [1, 0.125, 0], "2008_000005": [0, 0, 40 * 15 / 1200], "2009_000004": [0, 0.01, 1]}
    offset = CENTRAL | {"2008_000005": [0, 0, 7.5 / 25]}
    np.testing.assert_allclose(data.objects.area, [area[name] for name in sorted(area)], rtol=1e-6)
    np.testing.assert_allclose(data.objects.offset, [offset[name] for name in sorted(offset)], rtol=1e-6)


@pytest.mark.parametrize("size", ["", "<size><width>0</width><height>30</height></size>", "<size>40</size>"])
def test_labels_without_any_usable_box_are_read(tmp_path, size):
    annotate(tree(tmp_path), {name: size + text for name, text in BOXES.items()})
    for how in ("lists", "annotations"):
        data = read(tmp_path, labels=how, classes=list(CLASSES))
        assert labels(data) == PLAIN and data.objects is None and data.report["warnings"] == []
        assert "draws by size or by closeness to the centre are not possible" in data.report["boxes"]


@pytest.mark.parametrize(
    "corners",
    [("1", "x", "9", "9"), (1, 1, "nan", 9), (1, 1, "inf", 9), (41, 1, 60, 9), (5, 5, 3, 9), (1, 5, 9, 4), ()],
)
def test_one_box_that_cannot_be_used_leaves_no_trace(tmp_path, corners):
    good = boxed("bird", 0, 11, 1, 30, 15)
    data = read(with_boxes(tmp_path, BOXES | {"2008_000010": boxed("bird", 0, *corners) + good}))
    assert data.objects is not None and data.report["boxes"]["unusable"]["count"] == 3
    row = list(LARGEST).index("2008_000010")
    np.testing.assert_allclose([data.objects.area[row, 0], data.objects.offset[row, 0]], [0.25, 0.3], rtol=1e-6)


def test_a_label_of_the_lists_without_an_object_in_the_annotations_has_no_size(tmp_path):
    folder = with_boxes(tmp_path)
    edit(folder, "dog_val.txt", lambda data: data.replace(b"2009_000003 -1", b"2009_000003  1"))
    data = read(folder)
    assert data.objects is not None
    assert data.table.truth[4].tolist() == [1, 0, 1] and data.objects.area[4].tolist() == [1, 0, 0]
    assert data.report["boxes"]["present_without_box"] == 3
    edit(folder, "dog_train.txt", lambda data: data.replace(b"2008_000005  0", b"2008_000005  1"))
    data = read(folder)
    row = data.table.paths.index("JPEGImages/2008_000005.jpg")
    assert data.table.truth[row].tolist() == [0, 0, 1], "present by the list, difficult by its annotation"
    assert data.objects is not None and not data.objects.area[row].any()


def test_labels_of_lists_do_not_depend_on_annotations(tmp_path):
    data = read(tree(tmp_path))
    assert data.objects is None and data.report["warnings"] == []
    assert data.report["boxes"].endswith(f"not possible: Annotations: no such folder in {tmp_path.name}")
    annotate(tmp_path, {name: SIZE + text for name, text in BOXES.items()} | {"2008_000002": thing("zebra", "0")})
    assert read(tmp_path).objects is not None, "a name that is no class is no fault of the lists"
    (tmp_path / "Annotations" / "2008_000007.xml").unlink()
    (tmp_path / "Annotations" / "2008_000005.xml").write_text("<annotation>")
    data = read(tmp_path)
    assert labels(data) == PLAIN and data.objects is None
    for words in ("images have no file: 2008_000007", "2008_000005.xml: cannot be read as XML"):
        assert words in data.report["boxes"] and words in data.report["warnings"][0]


# ---------------------------------------------------------------------------------------------- all faults at once
def told(folder: Path, **changes) -> set[str]:
    """The lines of the error."""
    with pytest.raises(SourceError) as caught:
        read(folder, **changes)
    return set(str(caught.value).splitlines())


def test_all_faults_of_lists_and_pictures_are_told_at_once(tmp_path):
    folder = tree(tmp_path)
    lists = folder / "ImageSets" / "Main"
    (lists / "cat_val.txt").unlink()
    (lists / "bird_train.txt").write_bytes(b"\xff")
    edit(folder, "val.txt", lambda data: data + b"2010_000001 1\n")
    edit(folder, "bird_val.txt", lambda data: data + b"2010_000001 -1\n2010_000001 1\n2010_000002 1\n")
    edit(folder, "dog_train.txt", lambda data: data.replace(b"2008_000007  1\n", b"").replace(b"10 -1", b"10  5"))
    edit(folder, "dog_val.txt", lambda data: data + b"2010_000001 -1 x\n")
    (folder / "JPEGImages" / "2008_000001.jpg").unlink()
    (folder / "JPEGImages" / "2009_000003.png").touch()
    lines = told(folder)
    assert {line for line in lines if "UTF-8" not in line} == {
        "Main: class lists are missing (complete are: bird, dog): cat_val.txt",
        "val.txt: lines are not one image id: line 4 '2010_000001 1'",
        "bird_val.txt: ids have another label above: line 5 2010_000001 1, not -1",
        "bird_val.txt: ids are not in val.txt: line 6 2010_000002",
        "dog_train.txt: labels are not 1, 0 or -1: line 1 2008_000010 '5'",
        "dog_train.txt: ids of train.txt are missing: 2008_000007",
        "dog_val.txt: lines are not an id and a label: line 4 '2010_000001 -1 x'",
        "JPEGImages: images have no file: 2008_000001",
        "JPEGImages: images have several files: 2009_000003.jpg = 2009_000003.png",
    }
    assert len(lines) == 10 and any(line.startswith("bird_train.txt: cannot be read as UTF-8") for line in lines)
    with pytest.raises(SourceError) as caught:
        voc.fingerprint(settings(), folder)
    assert set(str(caught.value).splitlines()) == lines, "a missing list does not hide the rest"


def test_a_missing_image_list_stops_that_list_only(tmp_path):
    folder = annotated(tree(tmp_path))
    (folder / "ImageSets" / "Main" / "train.txt").unlink()
    edit(folder, "cat_val.txt", lambda data: data + b"2010_000001 -1\n")
    edit(folder, "cat_train.txt", lambda data: data.replace(b" 1\n", b" 7\n"))
    assert told(folder) == {
        f"train.txt is missing in {folder / 'ImageSets' / 'Main'}",
        "cat_val.txt: ids are not in val.txt: line 4 2010_000001",
        "cat_train.txt: 2 labels are not 1, 0 or -1: line 2 2008_000002 '7', line 3 2008_000007 '7'",
    }


def test_faults_of_annotations_of_both_parts_lists_and_pictures_are_told_at_once(tmp_path):
    folder = annotated(tree(tmp_path))
    annotate(folder, {"2008_000010": thing("bird", "2"), "2009_000009": thing("zebra", "0")})
    (folder / "Annotations" / "2009_000004.xml").write_text("<")
    (folder / "Annotations" / "2008_000002.xml").unlink()
    (folder / "JPEGImages" / "2008_000001.jpg").unlink()
    edit(folder, "val.txt", lambda data: data + b"a b\n")
    lines = told(folder, labels="annotations", classes=["bird", "cat", "dog", "cat"])
    assert {line for line in lines if "XML" not in line} == {
        "prepare: classes: duplicate class names: cat",
        "val.txt: lines are not one image id: line 4 'a b'",
        "Annotations: 2 of 9 images have no file: 2008_000002, a",
        "Annotations: names are no class (name all of them under `classes`): 'zebra' in 1 objects, first in "
        "2009_000009.xml",
        "JPEGImages: images have no file: 2008_000001",
    }
    (faults,) = (line for line in lines if "XML" in line)
    assert faults.startswith("Annotations: 2 faults: 2008_000010.xml: object 1 (bird) has difficult '2'")
    assert "2009_000004.xml: cannot be read as XML" in faults


def test_every_fault_is_at_hand_where_a_message_shows_some(tmp_path):
    rows = {f"img_{number:03d}": (1, -1, -1) for number in range(30)}
    folder = tree(tmp_path, rows)
    for name in rows:
        (folder / "JPEGImages" / f"{name}.jpg").unlink()
    with pytest.raises(FaultyData) as caught:
        read(folder)
    assert [line.rpartition(" ")[2] for line in caught.value.lines] == list(rows)


# ---------------------------------------------------------------------------------------------- unusable pictures
def test_a_missing_picture_is_left_to_the_packing_where_unusable_ones_are_dropped(tmp_path):
    folder = tree(tmp_path)
    (folder / "JPEGImages" / "2009_000004.jpg").unlink()
    data = read(folder, bad_images="drop")
    assert labels(data) == PLAIN and data.report["pictures_in_no_list"] == 0
    with pytest.raises(SourceError, match="cannot be read"):
        picture(data, 5)
    for file in (folder / "JPEGImages").iterdir():
        file.unlink()
    with pytest.raises(SourceError, match="JPEGImages: 6 of 6 images have no file"):
        read(folder, bad_images="drop")


def test_hidden_files_and_folders_below_are_no_pictures_of_the_lists(tmp_path):
    folder = tree(tmp_path)
    (folder / "JPEGImages" / "._2008_000010.jpg").write_bytes(b"of a Mac")
    (folder / "JPEGImages" / "small").mkdir()
    (folder / "JPEGImages" / "small" / "2008_000010.jpg").write_bytes(b"another")
    data = read(folder)
    assert labels(data) == PLAIN
    assert data.report["pictures_in_no_list"] == 0


# ---------------------------------------------------------------------------------------------- its state


def test_the_fingerprint_counts_the_annotations_that_are_read(tmp_path):
    def state() -> str:
        return voc.fingerprint(settings(labels="annotations"), tmp_path)

    annotated(tree(tmp_path))
    before = state()
    annotate(tmp_path, {"2012_000001": thing("cat", "0")})
    edit(tmp_path, "cat_val.txt", lambda data: data + b"\n")
    assert state() == before, "what is not read does not count"
    assert len({voc.fingerprint(settings(classes=classes), tmp_path) for classes in (None, ["cat"], ["dog"])}) == 3
    of_lists = voc.fingerprint(settings(), tmp_path)
    annotate(tmp_path, {"2008_000005": thing("dog", "0")})
    assert voc.fingerprint(settings(), tmp_path) != of_lists, "boxes are read beside lists too"
    assert state() != before
    (tmp_path / "Annotations" / "2008_000005.xml").unlink()
    with pytest.raises(SourceError, match="Annotations: images have no file: 2008_000005"):
        state()
    assert voc.fingerprint(settings(), tmp_path) != of_lists
