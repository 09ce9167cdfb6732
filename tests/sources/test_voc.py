import io
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from pipeline.images import decode
from pipeline.single_positive import split_rows
from pipeline.sources import voc
from pipeline.table import Dataset, SourceError

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
    fixed |= {"bad_images": "stop", "val_fraction": 0.25, "split_seed": 1200}
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
    return decode(file)


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
        r"cat_train\.txt: 1 of the 5 ids of train\.txt are missing: 2008_000007",
    ),
    "id unknown": ("cat_val.txt", lambda t: t + b"2010_000001 -1\n", r"cat_val\.txt:4: 2010_000001 is not in val\.txt"),
    "id of the other part": (
        "cat_val.txt",
        lambda t: t + b"2008_000010 -1\n",
        r"cat_val\.txt:4: 2008_000010 is not in val\.txt",
    ),
    "value": (
        "dog_train.txt",
        lambda t: t.replace(b"2008_000005  0", b"2008_000005  2"),
        r"dog_train\.txt:4: 2008_000005 has label '2', expected 1, 0 or -1",
    ),
    "value in words": (
        "dog_train.txt",
        lambda t: t.replace(b"2008_000005  0", b"2008_000005 yes"),
        r"dog_train\.txt:4: 2008_000005 has label 'yes'",
    ),
    "three fields": (
        "dog_train.txt",
        lambda t: t.replace(b"2008_000005  0", b"2008_000005 0 0"),
        r"dog_train\.txt:4: '2008_000005 0 0'",
    ),
    "label lost on one line": (
        "dog_train.txt",
        lambda t: t.replace(b"2008_000005  0", b"2008_000005"),
        r"dog_train\.txt:4: '2008_000005', expected an id and a label",
    ),
    "labels lost but one": (
        "dog_val.txt",
        lambda t: b"2009_000004\n2009_000003 -1\n",
        r"dog_val\.txt:2: '2009_000003 -1', expected an id alone",
    ),
    "all labels lost": (
        "dog_val.txt",
        lambda t: b"2009_000004\n2009_000003\n2009_000009\n",
        r"dog_val\.txt holds every id .* were the labels lost",
    ),
    "two labels": (
        "bird_train.txt",
        lambda t: t + b"2008_000010 -1\n",
        r"bird_train\.txt:6: 2008_000010 has label -1 here and 1 above",
    ),
    "train list with labels": (
        "train.txt",
        lambda t: t.replace(b"10\n", b"10 1\n"),
        r"train\.txt:1: '2008_000010 1', expected one image id",
    ),
    "train list empty": ("train.txt", lambda t: b"\n\n", r"train\.txt lists no image"),
    "id that climbs": (
        "train.txt",
        lambda t: t + b"../../etc/passwd\n",
        r"train\.txt:6: id '\.\./\.\./etc/passwd' is no plain file name",
    ),
    "image in both": (
        "val.txt",
        lambda t: t + b"2008_000010\n",
        r"val\.txt: 1 images are in train\.txt too: 2008_000010",
    ),
    "not text": ("cat_train.txt", lambda t: b"\xff\xfe\x00\x01", r"cat_train\.txt: cannot be read as UTF-8"),
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
    with pytest.raises(SourceError, match=r"1 class lists are missing: cat_val\.txt; complete are: bird, dog"):
        read(tmp_path)


def test_wanted_classes_without_lists_are_named(tmp_path):
    tree(tmp_path)
    with pytest.raises(SourceError, match=r"2 class lists are missing: Cat_train\.txt, Cat_val\.txt; .*bird, cat, dog"):
        read(tmp_path, classes=["Cat"])
    with pytest.raises(SourceError, match="dog named twice"):
        read(tmp_path, classes=["dog", "cat", "dog"])


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


def test_root_counts_from_the_project_or_is_absolute(tmp_path):
    tree(tmp_path / "raw" / "VOCdevkit" / "VOC2012")
    assert labels(read(tmp_path, root="raw")) == PLAIN
    assert labels(read(Path("/elsewhere"), root=str(tmp_path / "raw" / "VOCdevkit"))) == PLAIN
    assert read(tmp_path, root="raw").report["folder"] == "VOC2012"


def test_voc2012_is_preferred_beside_another_year(tmp_path):
    tree(tmp_path / "VOC2012")
    tree(tmp_path / "VOC2007", classes=("train", "bus", "car"))
    assert read(tmp_path).table.classes == CLASSES


def test_a_wrong_root_is_explained(tmp_path):
    with pytest.raises(SourceError, match="root: no folder .*nowhere"):
        read(tmp_path, root="nowhere")
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
    "changes",
    [
        {"difficult": "maybe"},
        {"classes": []},
        {"classes": [True]},
        {"size": 0},
        {"size": 8.5},
        {"val_fraction": 0.0},
        {"val_fraction": 1.0},
        {"split_seed": -1},
        {"extra": 1},
        {"source": "coco"},
    ],
)
def test_impossible_settings_are_refused(changes):
    with pytest.raises(ValidationError, match=next(iter(changes))):
        settings(**changes)


@pytest.mark.parametrize(
    "key", ["root", "labels", "difficult", "classes", "size", "bad_images", "val_fraction", "split_seed"]
)
def test_no_setting_has_a_default(key):
    block = settings().model_dump()
    del block[key]
    with pytest.raises(ValidationError, match=key):
        voc.Settings.model_validate(block)


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
    words = r"2 names are no class: 'tv/monitor' in 2 objects, first in 2008_000002\.xml, 'Dog' in 1 objects, first in"
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
    with pytest.raises(SourceError, match="labels: annotations: no folder Annotations in "):
        read(tree(tmp_path), labels="annotations")
    annotated(tmp_path)
    for name in ("2008_000007", "2008_000010"):
        (tmp_path / "Annotations" / f"{name}.xml").unlink()
    with pytest.raises(SourceError, match=r"Annotations: 2 of 5 images have no file: 2008_000010, 2008_000007$"):
        read(tmp_path, labels="annotations")
    with pytest.raises(SourceError, match="dog named twice"):
        read(tmp_path, labels="annotations", classes=["dog", "dog"])


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
def test_the_fingerprint_tells_what_changed_but_not_where_it_lies(tmp_path):
    def state(folder: Path, **changes) -> str:
        return voc.fingerprint(settings(**changes), folder)

    one, other = tree(tmp_path / "one"), tree(tmp_path / "deep" / "two")
    before = state(one)
    assert len(before) == 64 and before == state(other) == state(tmp_path, root="one")
    assert state(one, classes=["cat"]) != before  # fewer lists are read
    (other / "notes.txt").write_text("x")
    (other / "JPEGImages" / "Thumbs.db").write_bytes(b"x")
    (other / "ImageSets" / "Main" / "trainval.txt").write_text("x")
    assert state(other) == before, "what is not read does not count"
    edit(other, "cat_val.txt", lambda data: data.replace(b"2009_000004  1", b"2009_000004 -1"))
    assert state(other) != before
    picture = one / "JPEGImages" / "2009_000004.jpg"
    whole = picture.read_bytes()
    picture.write_bytes(whole + b"x")
    assert state(one) != before
    picture.write_bytes(whole)
    assert state(one) == before
    picture.rename(picture.with_name("2009_000005.jpg"))
    assert state(one) != before


def test_the_fingerprint_counts_the_annotations_that_are_read(tmp_path):
    def state() -> str:
        return voc.fingerprint(settings(labels="annotations"), tmp_path)

    annotated(tree(tmp_path))
    before = state()
    annotate(tmp_path, {"2012_000001": thing("cat", "0")})
    edit(tmp_path, "cat_val.txt", lambda data: data + b"\n")
    assert state() == before, "what is not read does not count"
    annotate(tmp_path, {"2008_000005": thing("dog", "0")})
    assert state() != before
    (tmp_path / "Annotations" / "2008_000005.xml").unlink()
    with pytest.raises(SourceError, match="Annotations: 1 of 8 images have no file: 2008_000005"):
        state()


@pytest.mark.parametrize("name", ["val.txt", "dog_train.txt"])
def test_no_fingerprint_without_the_lists(tmp_path, name):
    (tree(tmp_path) / "ImageSets" / "Main" / name).unlink()
    with pytest.raises(SourceError, match=name):
        voc.fingerprint(settings(), tmp_path)
