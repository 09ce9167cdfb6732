import itertools
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline.core.errors import SourceError
from pipeline.labels.splits import split_rows
from pipeline.labels.table import Dataset
from pipeline.sources import cub
from tests.trees import PICTURES

IMAGES = {  # id -> path, training?
    1: ("001.Albatross/Albatross_0002.jpg", 0),
    2: ("001.Albatross/Albatross_0001.jpg", 1),
    3: ("002.Auklet/Auklet_0009.jpg", 1),
    4: ("003.Bunting/Bunting_0004.jpg", 1),
    12: ("003.Bunting/Bunting_0001.jpg", 0),
}
ATTRIBUTES = {1: "has_bill_shape::curved_(up_or_down)", 2: "has_bill_shape::dagger", 3: "has_size::small_(5_-_9_in)"}
PRESENT = {1: (0, 1, 0), 2: (1, 0, 1), 3: (0, 0, 0), 4: (0, 1, 0), 12: (1, 1, 0)}
CERTAINTY = {1: (1, 2, 3), 2: (4, 3, 2), 3: (1, 1, 4), 4: (2, 3, 1), 12: (1, 4, 3)}
ORDER = [2, 3, 4, 1, 12]  # training first, each part as in images.txt
LINES = [
    f"{image} {attribute} {PRESENT[image][place]} {CERTAINTY[image][place]} {image + attribute / 8:.4f}"
    for image in IMAGES
    for place, attribute in enumerate(ATTRIBUTES)
]
LABELS = "attributes/image_attribute_labels.txt"


def tree(folder: Path, lines: list[str] = LINES) -> Path:
    """Write a dataset as the archive unpacks: attributes.txt beside the folder; pictures without pixels.

    Returns:
        The inner folder.
    """
    inner = folder / "CUB_200_2011"
    (inner / "attributes").mkdir(parents=True)
    (folder / "attributes.txt").write_text("".join(f"{number} {name}\n" for number, name in ATTRIBUTES.items()))
    (inner / "images.txt").write_text("".join(f"{number} {path}\n" for number, (path, _) in IMAGES.items()))
    (inner / "train_test_split.txt").write_text("".join(f"{number} {train}\n" for number, (_, train) in IMAGES.items()))
    (inner / LABELS).write_text("".join(line + "\n" for line in lines))
    for path, _ in IMAGES.values():
        (inner / "images" / path).parent.mkdir(parents=True, exist_ok=True)
        (inner / "images" / path).write_bytes(b"picture")
    return inner


def edit(file: Path, change) -> None:
    file.write_bytes(change(file.read_bytes()))


def settings(root: str = ".", **changes) -> cub.Settings:
    fixed = {
        "source": "cub",
        "root": root,
        "least_certainty": 1,
        "size": 8,
        **PICTURES,
    }
    return cub.Settings.model_validate(fixed | {"val_fraction": 0.4, "split_seed": 1200} | changes)


def read(project: Path, **changes) -> Dataset:
    return cub.read(settings(**changes), project)


def rows(values: dict) -> list[list[int]]:
    return [[*values[image]] for image in ORDER]


# ---------------------------------------------------------------------------------------------- the right table
def test_the_table_of_a_plain_tree(tmp_path):
    inner = tree(tmp_path)
    data = read(tmp_path)
    table = data.table
    assert table.classes == tuple(ATTRIBUTES.values())
    assert table.paths == tuple("images/" + IMAGES[image][0] for image in ORDER)
    assert table.truth.tolist() == rows(PRESENT)
    assert table.scored.all() and table.exhaustive
    assert table.official.tolist() == [0, 0, 0, 1, 1]
    train, val = split_rows(3, 0.4, 1200)
    assert table.rows("train").tolist() == train.tolist() and table.rows("val").tolist() == val.tolist()
    assert len(val) == 1 and table.rows("test").tolist() == [3, 4]
    for row, image in enumerate(ORDER):
        assert data.image(row) == inner / "images" / IMAGES[image][0]


def test_the_report_counts_labels_by_certainty(tmp_path):
    tree(tmp_path)
    report = read(tmp_path).report
    assert report["labels"] == {
        "pairs": 15,
        "lines_with_surplus_fields": {"count": 0, "first": []},
        "by_certainty": {
            "not visible": {"present": 1, "absent": 4},
            "guessing": {"present": 2, "absent": 1},
            "probably": {"present": 1, "absent": 3},
            "definitely": {"present": 2, "absent": 1},
        },
        "least_certainty": 1,
        "present_but_unknown": 0,
    }
    assert report["edition"] == "3 training and 2 test images, 3 attributes"
    assert report["warnings"] == ["this is not the whole of CUB-200-2011: figures of papers do not compare with it"]


def test_the_whole_dataset_is_known_by_its_counts(tmp_path, monkeypatch):
    assert cub.PUBLISHED == (5_994, 5_794, 312) and (5_994 + 5_794) * 312 == 3_677_856
    monkeypatch.setattr(cub, "PUBLISHED", (3, 2, 3))
    tree(tmp_path)
    report = read(tmp_path).report
    assert report["edition"].endswith(": CUB-200-2011 as published") and report["warnings"] == []


@pytest.mark.parametrize("least", [1, 2, 3, 4])
def test_labels_less_certain_than_asked_are_unknown(tmp_path, least):
    tree(tmp_path)
    data = read(tmp_path, least_certainty=least)
    scored = [[certainty >= least for certainty in row] for row in rows(CERTAINTY)]
    assert data.table.scored.tolist() == scored
    assert data.table.truth.tolist() == (np.array(rows(PRESENT)) * scored).tolist()
    assert data.report["labels"]["present_but_unknown"] == {1: 0, 2: 1, 3: 3, 4: 4}[least]


def test_a_certainty_that_does_not_exist_is_unknown_unless_certainty_is_ignored(tmp_path):
    tree(tmp_path, [*LINES[:4], "2 2 0 0 1.0", "2 3 1 9 1.0", *LINES[6:]])
    data = read(tmp_path)
    assert data.table.truth.tolist() == rows(PRESENT) and data.table.scored.all()
    assert "2 labels have a certainty other than 1 to 4" in data.report["warnings"][1]
    data = read(tmp_path, least_certainty=2)
    assert data.table.scored[0].tolist() == [True, False, False] and data.table.truth[0].tolist() == [1, 0, 0]


# ---------------------------------------------------------------------------------------------- quirks of labels
HARMLESS = {
    "carriage returns": lambda text: text.replace(b"\n", b"\r\n"),
    "tabs": lambda text: text.replace(b" ", b"\t"),
    "two blanks": lambda text: text.replace(b" ", b"  "),
    "blanks around": lambda text: b"".join(b" " + line + b" \n" for line in text.splitlines()),
    "blank lines": lambda text: b"\n" + text.replace(b"\n", b"\n \n") + b"\r\n",
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "no last line feed": lambda text: text.rstrip(b"\n"),
}


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS.keys())
@pytest.mark.parametrize("block", [1, 7, 64, 1 << 22])
def test_harmless_forms_of_the_files_change_nothing(tmp_path, monkeypatch, change, block):
    monkeypatch.setattr(cub, "BLOCK", block)
    inner = tree(tmp_path)
    for file in (tmp_path / "attributes.txt", inner / "images.txt", inner / "train_test_split.txt", inner / LABELS):
        edit(file, change)
    table = read(tmp_path).table
    assert table.truth.tolist() == rows(PRESENT) and table.classes == tuple(ATTRIBUTES.values())
    assert table.paths == tuple("images/" + IMAGES[image][0] for image in ORDER)


def test_labels_are_placed_by_their_ids_not_by_their_order(tmp_path):
    inner = tree(tmp_path, [LINES[place] for place in np.random.default_rng(0).permutation(len(LINES))])
    for file in (tmp_path / "attributes.txt", inner / "images.txt"):
        edit(file, lambda text: b"".join(sorted(text.splitlines(keepends=True), reverse=True)))
    table = read(tmp_path).table
    assert table.classes == tuple(ATTRIBUTES.values())  # by id
    assert [path.removeprefix("images/") for path in table.paths] == [IMAGES[image][0] for image in (4, 3, 2, 12, 1)]
    assert table.truth.tolist() == [[*PRESENT[image]] for image in (4, 3, 2, 12, 1)]


@pytest.mark.parametrize("block", [40, 1 << 22])
def test_surplus_fields_are_passed_over_and_counted(tmp_path, monkeypatch, block):
    monkeypatch.setattr(cub, "BLOCK", block)
    lines = [*LINES]
    lines[4] = "2 2 0 3 0 27.7080"
    lines[9] = "4 1 0 2 1 2 3 and more"
    lines[12] = "12 1 1 1"  # without the time
    tree(tmp_path, lines)
    data = read(tmp_path)
    assert data.table.truth.tolist() == rows(PRESENT)
    assert data.report["labels"]["by_certainty"]["probably"] == {"present": 1, "absent": 3}
    assert data.report["labels"]["lines_with_surplus_fields"] == {"count": 2, "first": ["line 5", "line 10"]}


FAULTS = {
    "three fields": ("2 1 1", "lines are not .*: line 4 '2 1 1'"),
    "a word": ("2 one 1 4 2.1", "line 4 '2 one 1 4 2.1'"),
    "a minus": ("2 1 -1 4 2.1", "line 4 '2 1 -1 4 2.1'"),
    "a fraction": ("2 1 1.0 4 2.1", "line 4 '2 1 1.0 4 2.1'"),
    "neither 0 nor 1": ("2 1 2 4 2.1", "line 4 '2 1 2 4 2.1'"),
    "a long number": ("4294967298 1 1 4 2.1", "line 4 '4294967298 1 1 4 2.1'"),
    "no text": ("2 \xff 1 4 2.1", "line 4"),
    "image unknown": ("7 1 1 4 2.1", r"lines are of images or .* lack: line 4 \(image 7, attribute 1\)$"),
    "attribute unknown": ("2 4 1 4 2.1", r"line 4 \(image 2, attribute 4\)"),
    "attribute 0": ("2 0 1 4 2.1", r"line 4 \(image 2, attribute 0\)"),
    "blank": (" ", "images lack attributes: image 2: 1$"),
    "repeated": (
        "2 2 0 3 2.1",
        r"images lack attributes: image 2: 1\n.*images have attributes more than once: image 2: 2$",
    ),
}


@pytest.mark.parametrize("line, words", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("block", [40, 1 << 22])
def test_a_faulty_label_is_named(tmp_path, monkeypatch, line, words, block):
    monkeypatch.setattr(cub, "BLOCK", block)
    tree(tmp_path, [*LINES[:3], line, *LINES[4:]])
    with pytest.raises(SourceError, match=r"image_attribute_labels\.txt: .*" + words):
        read(tmp_path)


def test_faults_are_counted_and_the_first_named(tmp_path, monkeypatch):
    tree(tmp_path, LINES[:3] + ["what is this"] * 30 + LINES[3:])
    with pytest.raises(SourceError, match="30 lines are not .*line 4 .* line 23 'what is this' and 10 more$"):
        read(tmp_path)
    (tmp_path / "CUB_200_2011" / LABELS).write_text("")
    with pytest.raises(SourceError, match="5 images lack attributes: image 2: 1, 2, 3, image 3: 1, 2, 3"):
        read(tmp_path)


# ---------------------------------------------------------------------------------------------- quirks of lists
LISTS = {
    "id twice": (
        "images.txt",
        lambda t: t.replace(b"3 002", b"2 002"),
        r"images\.txt: lines are no new id with a name: images\.txt:3",
    ),
    "no id": ("images.txt", lambda t: t.replace(b"3 002", b"x 002"), r"images\.txt:3 'x 002\.Auklet/Auklet_0009\.jpg'"),
    "id alone": ("images.txt", lambda t: t + b"5\n", r"images\.txt:6 '5'"),
    "path twice": (
        "images.txt",
        lambda t: t + b"13 002.Auklet/Auklet_0009.jpg\n",
        r"images\.txt: duplicate image paths: 002\.Auklet/",
    ),
    "path outside": ("images.txt", lambda t: t.replace(b"002.A", b"../A"), r"invalid image paths: image 3: .* climbs"),
    "images empty": ("images.txt", lambda t: b"\n", r"images\.txt is empty"),
    "split value": ("train_test_split.txt", lambda t: t.replace(b"3 1", b"3 2"), r"lines are not .*split\.txt:3 '3 2'"),
    "split unknown": ("train_test_split.txt", lambda t: t + b"5 1\n", r"split\.txt:6 '5 1'"),
    "split fields": ("train_test_split.txt", lambda t: t.replace(b"3 1", b"3 1 1"), r"split\.txt:3 '3 1 1'"),
    "split contrary": ("train_test_split.txt", lambda t: t + b"3 0\n", "split.txt:6 '3 0', the contrary of above"),
    "split missing": (
        "train_test_split.txt",
        lambda t: t.replace(b"12 0\n", b""),
        r"train_test_split\.txt: images of images\.txt are missing: 12",
    ),
    "attribute twice": (
        "../attributes.txt",
        lambda t: t + b"3 has_x::y\n",
        r"no new id with a name: attributes\.txt:4",
    ),
    "attribute without a name": ("../attributes.txt", lambda t: t + b"4 \n", r"attributes\.txt:4 '4'"),
    "attribute with a control character": (
        "../attributes.txt",
        lambda t: t.replace(b"dagger", b"dag\x01ger").replace(b"small", b"sm\xc2\x80all").replace(b"3 has", b"x has"),
        r"(?m)new id with a name: attributes\.txt:3 'x .*\nattributes\.txt: invalid class names .*: "
        r"'has_bill_shape::dag\\x01ger'$",
    ),
    "attributes with control characters": (
        "../attributes.txt",
        lambda t: t.replace(b"dagger", b"\x7f").replace(b"small", b"sm\xc2\x80all"),
        r"txt: 2 invalid class names .*: 'has_bill_shape::\\x7f', 'has_size::sm\\x80all_\(5_-_9_in\)'$",
    ),
    "attribute unlabelled": (
        "../attributes.txt",
        lambda t: t + b"4 has_x::y\n",
        "5 images lack attributes: image 2: 4, image 3: 4",
    ),
}


@pytest.mark.parametrize("name, change, words", LISTS.values(), ids=LISTS.keys())
def test_a_faulty_list_is_named(tmp_path, name, change, words):
    edit(tree(tmp_path) / name, change)
    with pytest.raises(SourceError, match=words):
        read(tmp_path)


def test_the_split_says_training_with_1(tmp_path):
    edit(tree(tmp_path) / "train_test_split.txt", lambda text: text + b"3 1\n")  # said again, without contradiction
    table = read(tmp_path).table
    assert {path for path, part in zip(table.paths, table.official, strict=True) if part} == {
        "images/001.Albatross/Albatross_0002.jpg",
        "images/003.Bunting/Bunting_0001.jpg",
    }


def test_faults_of_all_files_are_named_at_once(tmp_path):
    inner = tree(tmp_path, [*LINES[:3], "2 1 yes 4 2.1", *LINES[4:], "2 2 1 1 1.0"])
    edit(inner / "train_test_split.txt", lambda text: text.replace(b"4 1", b"4 one"))
    (inner / "images" / IMAGES[3][0]).unlink()
    with pytest.raises(SourceError) as caught:
        read(tmp_path)
    labels = "image_attribute_labels.txt"
    assert str(caught.value).splitlines() == [
        "train_test_split.txt: lines are not the id of an image of images.txt and 1 (training) or 0 (test):"
        " train_test_split.txt:4 '4 one'",
        f"{labels}: lines are not an image id, an attribute id, 1 or 0, and a certainty: line 4 '2 1 yes 4 2.1'",
        f"{labels}: images have attributes more than once: image 2: 2",
        "images: images have no file: 002.Auklet/Auklet_0009.jpg",
    ]
    for name in ("images.txt", "../attributes.txt"):  # what ids there are decides what the others may say
        edit(inner / name, lambda text: text + b"nothing\n")
    with pytest.raises(SourceError, match=r"images\.txt:6 'nothing'\n.*attributes\.txt:4 'nothing'$"):
        read(tmp_path)


# ---------------------------------------------------------------------------------------------- pictures
def test_missing_pictures_stop_the_run_or_are_left_to_the_packing(tmp_path):
    inner = tree(tmp_path)
    (inner / "images" / IMAGES[3][0]).unlink()
    with pytest.raises(SourceError, match=r"images: images have no file: 002\.Auklet/Auklet_0009\.jpg"):
        read(tmp_path)
    data = read(tmp_path, bad_images="drop")
    assert data.image(1) == inner / "images" / IMAGES[3][0] and len(data.table.paths) == 5
    assert data.report["pictures"]["missing"] == {"count": 1, "first": [IMAGES[3][0]]}


def test_pictures_in_no_list_are_counted_and_forms_of_names_meet(tmp_path):
    inner = tree(tmp_path)
    composed, apart = "004.Café/é.jpg", unicodedata.normalize("NFD", "004.Café/é.jpg")
    edit(inner / "images.txt", lambda text: text.replace(IMAGES[3][0].encode(), composed.replace("/", "\\").encode()))
    (inner / "images" / apart).parent.mkdir()
    (inner / "images" / IMAGES[3][0]).rename(inner / "images" / apart)
    (inner / "images" / "001.Albatross" / "spare.png").touch()
    data = read(tmp_path)
    assert data.table.paths[1] == f"images/{composed}" and data.image(1) == inner / "images" / apart
    assert data.report["pictures"] == {"missing": {"count": 0, "first": []}, "in_no_list": 1}


# ---------------------------------------------------------------------------------------------- where the folder is
@pytest.mark.parametrize(
    "inside, place",
    [
        *itertools.product(
            [".", "CUB_200_2011", "unpacked", "unpacked/CUB_200_2011"], ["beside", "inside", "attributes"]
        ),
        ("CUB_200_2011", "outside"),  # beside the outer of the two folders
        ("unpacked/CUB_200_2011", "outside"),
    ],
)
def test_the_folder_and_its_attributes_are_found(tmp_path, inside, place):
    inner = tree(tmp_path / inside)
    beside = inner.parent / "attributes.txt"
    target = {"inside": inner, "attributes": inner / "attributes", "outside": inner.parent.parent}
    beside.rename(target.get(place, inner.parent) / "attributes.txt")
    assert read(tmp_path).table.truth.tolist() == rows(PRESENT)
    assert read(inner).table.truth.tolist() == rows(PRESENT)  # the root is the innermost folder


def test_a_wrong_root_is_explained(tmp_path):
    inner = tree(tmp_path / "one")
    with pytest.raises(SourceError, match=r"no images\.txt in .*; it lies inside one, name .*one/CUB_200_2011$"):
        read(tmp_path, root="one/CUB_200_2011/attributes")
    other = tree(tmp_path / "two")
    with pytest.raises(SourceError, match=r"several datasets \(one/CUB_200_2011, two/CUB_200_2011\)"):
        read(tmp_path)
    (other / "images").rename(other / "photos")
    with pytest.raises(SourceError, match=r"has images\.txt but no folder images"):
        read(tmp_path, root="two")
    (tmp_path / "one/attributes.txt").unlink()
    (inner / LABELS).unlink()
    words = r"image_attribute_labels\.txt, attributes\.txt missing in .*; attributes\.txt is beside CUB_200_2011"
    with pytest.raises(SourceError, match=words):
        read(tmp_path, root="one")


# ---------------------------------------------------------------------------------------------- settings
@pytest.mark.parametrize("changes", [{"least_certainty": value} for value in (0, 5, "1")])
def test_impossible_settings_are_refused(changes):
    with pytest.raises(ValidationError, match=next(iter(changes))):
        settings(**changes)


# ---------------------------------------------------------------------------------------------- its state
