import hashlib
import io
import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from benchmarks import coco_prepare
from pipeline.core.errors import SourceError
from pipeline.core.faults import FaultyData
from pipeline.data.images import decode
from pipeline.labels.recipe import literature
from pipeline.labels.splits import split_rows
from pipeline.labels.table import Dataset
from pipeline.sources import coco
from tests.trees import PICTURES

CATEGORIES = {13: "stop sign", 1: "person", 90: "toothbrush"}  # ids with gaps, in the order of the file
TRAIN = {  # image id -> (category id, iscrowd) of its annotations
    9: [(1, 0), (1, 1), (13, 0)],
    100: [(90, 0)],
    25: [],
    10: [(1, 1)],  # nothing but a crowd
    3: [(13, 1), (13, 0), (90, 1)],
}
VAL = {8: [(1, 0)], 70: [], 11: [(90, 0), (1, 1)]}
STRING = ["10", "100", "3", "9"]  # train rows that have a label, as the papers order them


def name(part: str, image: int, year: int = 2014) -> str:
    return f"COCO_{part}2014_{image:012d}.jpg" if year == 2014 else f"{image:012d}.jpg"


def document(part: str, images: dict, year: int = 2014, categories: dict = CATEGORIES) -> dict:
    """The content of an instances file, its lists in COCO's order."""
    objects = [(image, *pair) for image, pairs in images.items() for pair in pairs]
    return {
        "info": {"year": year, "contributor": "nobody"},
        "images": [{"license": 5, "file_name": name(part, image, year), "width": 20, "id": image} for image in images],
        "licenses": [{"id": 1}],
        "annotations": [
            {"segmentation": [[1.5, 2, 3e-1]], "iscrowd": crowd, "image_id": image, "category_id": key, "id": number}
            for number, (image, key, crowd) in enumerate(objects)
        ],
        "categories": [{"supercategory": "thing", "id": key, "name": text} for key, text in categories.items()],
    }


def jpeg(shade: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (20, 16), (shade, 100, 0)).save(buffer, "JPEG")
    return buffer.getvalue()


def tree(folder: Path, year: int = 2014, parts: tuple[str, ...] = ("train", "val"), pictures: str = "{}") -> Path:
    """Write a dataset in COCO layout with one-colour pictures."""
    (folder / "annotations").mkdir(parents=True)
    for part in parts:
        images = {"train": TRAIN, "val": VAL}[part]
        put(folder, part, document(part, images, year), year)
        place = folder / pictures.format(f"{part}{year}")
        place.mkdir(parents=True)
        for image in images:
            (place / name(part, image, year)).write_bytes(jpeg(image))
    return folder


def put(folder: Path, part: str, content: dict, year: int = 2014) -> None:
    (folder / "annotations" / f"instances_{part}{year}.json").write_text(json.dumps(content))


def settings(root: str = ".", **changes) -> coco.Settings:
    fixed = {
        "source": "coco",
        "root": root,
        "size": 8,
        **PICTURES,
        "val_fraction": 0.25,
        "split_seed": 1200,
    }
    fixed |= {"year": 2014, "unannotated": "drop", "crowd": "count", "order": "string", "test_fraction": None}
    return coco.Settings.model_validate(fixed | changes)


def read(project: Path, **changes) -> Dataset:
    return coco.read(settings(**changes), project)


def rows(data: Dataset, part: str = "train") -> dict[int, list[int]]:
    """Image id -> labels of the rows of a part, in row order."""
    pairs = zip(data.table.paths, data.table.truth.tolist(), strict=True)
    return {int(path[-16:-4]): labels for path, labels in pairs if path.startswith(part)}


# ---------------------------------------------------------------------------------------------- the right table
def test_the_table_of_a_plain_tree(tmp_path):
    data = read(tree(tmp_path))
    table = data.table
    assert table.classes == ("stop sign", "person", "toothbrush")
    assert rows(data) == {10: [0, 1, 0], 100: [0, 0, 1], 3: [1, 0, 1], 9: [1, 1, 0]}
    assert list(map(str, rows(data))) == STRING
    assert rows(data, "val") == {11: [0, 1, 1], 8: [0, 1, 0]}
    assert table.paths[0] == "train2014/COCO_train2014_000000000010.jpg"
    assert table.paths[5] == "val2014/COCO_val2014_000000000008.jpg"
    assert table.truth.dtype == np.int8 and table.scored.all() and table.exhaustive
    assert table.official.tolist() == [0, 0, 0, 0, 1, 1]
    train, val = split_rows(4, 0.25, 1200)
    assert table.rows("train").tolist() == train.tolist()
    assert table.rows("val").tolist() == val.tolist() and len(val) == 1
    assert table.rows("test").tolist() == [4, 5]
    for row, image in enumerate([10, 100, 3, 9, 11, 8]):
        file = data.image(row)
        assert isinstance(file, Path)
        assert abs(int(decode(file, 10**8)[0, 0, 0]) - image) <= 3, "the picture of its row"


def test_rows_by_number_are_another_order(tmp_path):
    data = read(tree(tmp_path), order="numeric")
    assert list(rows(data)) == [3, 9, 10, 100] and list(rows(data, "val")) == [8, 11]
    assert rows(data) == rows(read(tmp_path))


def test_images_without_a_label_are_dropped_or_kept(tmp_path):
    data = read(tree(tmp_path), unannotated="keep")
    assert rows(data) == {10: [0, 1, 0], 100: [0, 0, 1], 25: [0, 0, 0], 3: [1, 0, 1], 9: [1, 1, 0]}
    assert rows(data, "val") == {11: [0, 1, 1], 70: [0, 0, 0], 8: [0, 1, 0]}
    assert data.table.scored.all()


def test_a_class_of_crowds_alone_is_present_or_of_unknown_truth(tmp_path):
    tree(tmp_path)
    data = read(tmp_path, crowd="ignore", unannotated="keep")
    assert rows(data) == {10: [0, 0, 0], 100: [0, 0, 1], 25: [0, 0, 0], 3: [1, 0, 0], 9: [1, 1, 0]}
    assert rows(data, "val") == {11: [0, 0, 1], 70: [0, 0, 0], 8: [0, 1, 0]}
    unscored = [
        (int(data.table.paths[row][-16:-4]), data.table.classes[c]) for row, c in np.argwhere(~data.table.scored)
    ]
    assert unscored == [(10, "person"), (3, "toothbrush"), (11, "person")]
    dropped = read(tmp_path, crowd="ignore")
    assert list(rows(dropped)) == [100, 3, 9], "an image of crowds alone has no label left"
    assert dropped.report["parts"]["train"]["without_present_class"] == {
        "count": 2,
        "first": [name("train", 10), name("train", 25)],
    }


def test_the_report_says_what_was_read(tmp_path):
    report = read(tree(tmp_path)).report
    assert report["parts"]["train"] == {
        "images": 5,
        "annotations": 8,
        "kept": 4,
        "without_present_class": {"count": 1, "first": [name("train", 25)]},
        "cells_of_crowds_only": 2,
    }
    assert report["parts"]["val"]["cells_of_crowds_only"] == 1
    assert (report["year"], report["crowd"], report["order"], report["warnings"]) == (2014, "count", "string", [])


def test_the_edition_of_2017(tmp_path):
    data = read(tree(tmp_path, 2017), year=2017)
    assert data.table.paths[0] == "train2017/000000000010.jpg"
    assert rows(data) == {10: [0, 1, 0], 100: [0, 0, 1], 3: [1, 0, 1], 9: [1, 1, 0]}


# ---------------------------------------------------------------------------------------------- where objects lie
BOXES = {  # left, top, width, height of the annotations, in their order, in pictures of 40 x 30 pixels
    "train": [
        [0, 0, 20, 15],  # image 9: a person, and below a crowd that does not count beside it
        [0, 0, 40, 30],
        [30, -10, 20, 25],  # over two borders: 10 x 15 of it lie within
        [10, 7.5, 20, 15],
        [36, 27, 4, 3],  # image 10: nothing but a crowd
        [0, 0, 40, 30],  # image 3: a crowd beside two objects
        [20, 15, 20, 15],
        [0, 0, 40, 30],
        [14, 15, 12, 6],  # and that second object
    ],
    "val": [[0, 0, 40, 30], [19, 14, 2, 2], [0, 15, 40, 15]],
}
IMAGES = [10, 100, 3, 9, 11, 8]  # the table's rows
AREA = [  # stop sign, person, toothbrush; fractions of 1200 pixels
    [0, 12 / 1200, 0],
    [0, 0, 300 / 1200],
    [300 / 1200, 0, 1],
    [150 / 1200, 300 / 1200, 0],
    [0, 600 / 1200, 4 / 1200],
    [0, 1, 0],
]
OFFSET = [  # of the centres from (20, 15), as fractions of 25
    [0, 22.5 / 25, 0],  # (18, 13.5)
    [0, 0, 0],
    [3 / 25, 0, 0],  # (0, 3) of the second object, the first being (10, 7.5) away
    [281.25**0.5 / 25, 12.5 / 25, 0],  # (15, -7.5) and (-10, -7.5)
    [0, 7.5 / 25, 0],  # (0, 7.5) and (0, 0)
    [0, 0, 0],
]


def boxed(part: str) -> dict:
    """The document of a part, with sizes, boxes, and a second stop sign in image 3."""
    content = document(part, {"train": TRAIN, "val": VAL}[part])
    for entry in content["images"]:
        entry |= {"width": 40, "height": 30}
    if part == "train":
        content["annotations"].append(content["annotations"][6] | {"id": 8})
    for entry, box in zip(content["annotations"], BOXES[part], strict=True):
        entry["bbox"] = box
    return content


def measures(data: Dataset) -> tuple[list, list]:
    assert data.objects is not None and data.objects.area.dtype == data.objects.offset.dtype == np.float32
    return data.objects.area.tolist(), data.objects.offset.tolist()


def test_the_largest_and_the_most_central_box_of_each_class(tmp_path):
    tree(tmp_path)
    val = boxed("val")
    val["categories"].reverse()  # columns go by id
    put(tmp_path, "train", boxed("train"))
    put(tmp_path, "val", val)
    data = read(tmp_path)
    assert [int(path[-16:-4]) for path in data.table.paths] == IMAGES
    area, offset = measures(data)
    np.testing.assert_allclose(area, AREA, rtol=1e-6)
    np.testing.assert_allclose(offset, OFFSET, rtol=1e-6)
    assert data.report["boxes"] == {"used": 10, "unusable": {"count": 0, "first": []}, "present_without_box": 0}
    assert data.report["warnings"] == []

    ignored = read(tmp_path, crowd="ignore", unannotated="keep", order="numeric")
    rows = {int(path[-16:-4]): row for row, path in enumerate(ignored.table.paths)}
    area, offset = measures(ignored)
    crowds = {(10, 1), (3, 2), (11, 1)}  # present by crowds alone
    for image, row in rows.items():
        for column in range(3):
            there = image in IMAGES and (image, column) not in crowds
            found = AREA[IMAGES.index(image)][column] if there else 0
            assert area[row][column] == pytest.approx(found, rel=1e-6)
            assert offset[row][column] == pytest.approx(OFFSET[IMAGES.index(image)][column] if there else 0, rel=1e-6)

    cut = read(tmp_path, test_fraction=0.5)
    wanted = {path: values for path, values in zip(data.table.paths, AREA, strict=True)}
    np.testing.assert_allclose(measures(cut)[0], [wanted[path] for path in cut.table.paths], rtol=1e-6)


UNUSABLE = {
    "none": None,
    "three numbers": [1, 2, 3],
    "text": "1234",
    "a text": [1, 2, 3, "4"],
    "null": [1, 2, 3, None],
    "negative width": [20, 20, -5, 5],
    "no height": [20, 20, 5, 0],
    "not a number": [float("nan"), 0, 5, 5],
    "infinite": [0, 0, float("inf"), 5],
    "too large": [1e308, 0, 1e308, 5],
    "far too large": [10**400, 0, 5, 5],
    "outside": [40, 0, 5, 5],
    "outside, above": [0, -10, 5, 10],
}


@pytest.mark.parametrize("box", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_box_that_cannot_be_used_is_told_and_leaves_no_trace(tmp_path, box):
    tree(tmp_path)
    train, val = boxed("train"), boxed("val")
    train["annotations"][6]["bbox"] = box  # the larger stop sign of image 3
    val["annotations"][0]["bbox"] = box  # the one person of image 8
    put(tmp_path, "train", train)
    put(tmp_path, "val", val)
    data = read(tmp_path)
    area, offset = measures(data)
    np.testing.assert_allclose(area[:2] + area[3:5], AREA[:2] + AREA[3:5], rtol=1e-6)
    assert area[2][0] == pytest.approx(72 / 1200) and offset[2][0] == pytest.approx(3 / 25)
    assert area[5] == offset[5] == [0, 0, 0]
    lost = [f"train2014/{name('train', 3)}", f"val2014/{name('val', 8)}"]
    assert data.report["boxes"] == {"used": 8, "unusable": {"count": 2, "first": lost}, "present_without_box": 1}
    why = "cannot be used, since numbers are missing or nothing lies within the picture"
    assert data.report["warnings"] == [
        f"2 boxes {why}: {', '.join(lost)}",
        "1 present label has no box and counts as having no size",
    ]


@pytest.mark.parametrize("size", [{"width": None}, {"height": "30"}, {"width": 0}, {"height": -30}, {"width": 1e999}])
def test_boxes_in_a_picture_of_unknown_size_cannot_be_used(tmp_path, size):
    train = boxed("train")
    train["images"][0] |= size
    put(tree(tmp_path), "train", train)
    put(tmp_path, "val", boxed("val"))
    data = read(tmp_path)
    area, offset = measures(data)
    assert area[3] == offset[3] == [0, 0, 0] and data.report["boxes"]["unusable"]["count"] == 2
    np.testing.assert_allclose(area[:3] + area[4:], AREA[:3] + AREA[4:], rtol=1e-6)


@pytest.mark.parametrize("crossed", [(1, 2, 0), (2, 0, 1), (0, 2, 1), (2, 1, 0)])
def test_boxes_go_by_category_where_the_parts_list_categories_in_any_order(tmp_path, crossed):
    tree(tmp_path)
    val = boxed("val")
    val["categories"] = [val["categories"][place] for place in crossed]
    put(tmp_path, "train", boxed("train"))
    put(tmp_path, "val", val)
    data = read(tmp_path)
    assert [int(path[-16:-4]) for path in data.table.paths] == IMAGES
    assert data.table.truth.tolist() == [[int(size > 0) for size in row] for row in AREA]
    area, offset = measures(data)
    np.testing.assert_allclose(area, AREA, rtol=1e-6)
    np.testing.assert_allclose(offset, OFFSET, rtol=1e-6)


def test_a_box_lost_where_the_class_has_another_is_told_alone(tmp_path):
    tree(tmp_path)
    train = boxed("train")
    train["annotations"][6]["bbox"] = None  # the larger of two stop signs of image 3
    put(tmp_path, "train", train)
    put(tmp_path, "val", boxed("val"))
    why = "cannot be used, since numbers are missing or nothing lies within the picture"
    assert read(tmp_path).report["warnings"] == [f"1 box {why}: train2014/{name('train', 3)}"]


def test_labels_without_any_box_are_read(tmp_path):
    data = read(tree(tmp_path))
    assert data.objects is None and data.report["warnings"] == []
    assert "draws by size or by closeness to the centre are not possible" in data.report["boxes"]


# ---------------------------------------------------------------------------------------------- no val part
def test_a_share_of_train_is_the_test_part_where_there_is_no_other(tmp_path):
    tree(tmp_path, 2017, ("train",))
    with pytest.raises(SourceError, match=r"instances_val2017\.json is missing in .*`test_fraction`"):
        read(tmp_path, year=2017)
    data = read(tmp_path, year=2017, test_fraction=0.25, val_fraction=0.3, split_seed=1)
    rest, test = split_rows(4, 0.25, 1)
    assert test.tolist() == [1]
    assert list(map(str, rows(data))) == [STRING[row] for row in [*rest, *test]]
    assert data.table.official.tolist() == [0, 0, 0, 1]
    train, val = split_rows(3, 0.3, 1)
    assert data.table.rows("train").tolist() == train.tolist() and data.table.rows("val").tolist() == val.tolist()
    assert data.table.rows("test").tolist() == [3]
    assert "test: 1 images cut from the train part" in data.report["warnings"][0]


def test_the_val_part_is_not_read_where_a_share_of_train_is_tested(tmp_path):
    assert coco.fingerprint(settings(), tree(tmp_path / "whole")) != coco.fingerprint(
        settings(test_fraction=0.5), tmp_path / "whole"
    )
    (tree(tmp_path) / "annotations" / "instances_val2014.json").write_text("{")
    assert len(read(tmp_path, test_fraction=0.5).table.paths) == 4


# ---------------------------------------------------------------------------------------------- harmless forms
def test_columns_go_by_id_not_by_place(tmp_path):
    val = document("val", VAL, categories=dict(reversed(CATEGORIES.items())))
    put(tree(tmp_path), "val", val)
    assert rows(read(tmp_path), "val") == {11: [0, 1, 1], 8: [0, 1, 0]}


def test_lists_in_another_order_a_byte_order_mark_and_no_crowd_marks(tmp_path):
    content = document("train", TRAIN)
    for entry in content["annotations"]:
        if not entry["iscrowd"]:
            del entry["iscrowd"]
    file = tree(tmp_path) / "annotations" / "instances_train2014.json"
    file.write_text("\ufeff" + json.dumps(dict(reversed(content.items())), indent=1), encoding="utf-8")
    assert rows(read(tmp_path)) == {10: [0, 1, 0], 100: [0, 0, 1], 3: [1, 0, 1], 9: [1, 1, 0]}
    assert read(tmp_path).report["parts"]["train"]["cells_of_crowds_only"] == 2


def test_unicode_forms_and_case_of_file_names_meet(tmp_path):
    content = document("train", TRAIN)
    content["images"][1]["file_name"] = unicodedata.normalize("NFD", "été.jpg")
    content["images"][0]["file_name"] = "ÉTÉ_2.jpg"
    put(tree(tmp_path), "train", content)
    (tmp_path / "train2014" / name("train", 100)).rename(tmp_path / "train2014" / "été.jpg")
    (tmp_path / "train2014" / name("train", 9)).rename(
        tmp_path / "train2014" / unicodedata.normalize("NFD", "été_2.JPG")
    )
    data = read(tmp_path)
    assert data.table.paths[1] == "train2014/" + unicodedata.normalize("NFC", "été.jpg")
    assert [Path(str(data.image(row))).exists() for row in range(4)] == [True] * 4


# ---------------------------------------------------------------------------------------------- faults
def change(key: str, number: int, **values):
    def edit(content: dict) -> None:
        content[key][number] |= values

    return edit


def again(key: str, **values):
    def edit(content: dict) -> None:
        content[key].append(content[key][0] | values)

    return edit


FAULTS = {
    "image twice": (again("images", file_name="x.jpg"), r"train2014\.json: duplicate image ids: 9$"),
    "category twice": (again("categories", name="x"), r"(?m)duplicate category ids: 13$"),
    "category name twice": (again("categories", id=2), r"(?m)duplicate class names: stop sign$"),
    "file of two images": (again("images", id=77), r"duplicate file names of images: COCO_train2014_0+9\.jpg$"),
    "unknown image": (change("annotations", 0, image_id=4), r"image ids of annotations are not in the file: 4 \(1 tim"),
    "unknown category": (
        change("annotations", 0, category_id=2),
        r"category ids of annotations are not in the file: 2 \(1 times\)$",
    ),
    "image without a file": (
        lambda content: content["images"][2].pop("file_name"),
        r"images lack one of id \(int\), file_name \(str\): number 3$",
    ),
    "id as text": (change("annotations", 4, image_id="9"), r"annotations lack one of image_id \(int\), .*: number 5$"),
    "crowd in words": (change("annotations", 1, iscrowd="no"), r"annotations lack one of .*iscrowd \(int\): number 2$"),
    "no object": (lambda content: content["annotations"].append(7), r"annotations lack one of .*: number 9$"),
    "file name that climbs": (change("images", 0, file_name="../x.jpg"), r"images have an invalid file_name: 9 \(path"),
    "file name that ends with a blank": (
        change("images", 0, file_name="x.jpg "),
        r"images have an invalid file_name: 9 \(path 'x\.jpg ' ends with a blank\)$",
    ),
    "file name that is no text": (
        change("images", 0, file_name="x\ud800.jpg"),
        r"images have an invalid file_name: 9 \('utf-8' codec",
    ),
    "no images": (lambda content: content.pop("images"), r"train2014\.json: has no list `images`, or an empty one$"),
    "no annotations": (lambda content: content["annotations"].clear(), r"has no list `annotations`, or an empty one$"),
    "no categories": (
        change("categories", 0, id=None),
        r"(?m)categories lack one of id \(int\), name \(str\): number 1$",
    ),
}


@pytest.mark.parametrize("edit, words", FAULTS.values(), ids=FAULTS.keys())
def test_a_faulty_file_is_named_with_what_is_wrong(tmp_path, edit, words):
    content = document("train", TRAIN)
    edit(content)
    put(tree(tmp_path), "train", content)
    with pytest.raises(SourceError, match=words):
        read(tmp_path)


NO_NAME = "invalid class names (empty, padded or with control characters)"


@pytest.mark.parametrize("text", ["", " ", "\n", "a\x01b", "a\x7f", "\x85\x80", "a\tb", "\ud800"])
@pytest.mark.parametrize("part", ["train", "val"])
def test_a_category_that_cannot_name_a_class_is_told_with_what_else_is_wrong(tmp_path, part, text):
    tree(tmp_path)
    for each in ("train", "val"):
        content = document(each, {"train": TRAIN, "val": VAL}[each], categories=CATEGORIES | {13: text})
        if each == part:
            content["annotations"][0]["image_id"] = 4
        put(tmp_path, each, content)
    with pytest.raises(FaultyData) as caught:
        read(tmp_path)
    shown = repr(unicodedata.normalize("NFC", text).strip())
    assert sorted(str(caught.value).splitlines()) == sorted(
        [
            f"instances_{part}2014.json: image ids of annotations are not in the file: 4 (1 times)",
            *(f"instances_{each}2014.json: {NO_NAME}: {shown}" for each in ("train", "val")),
        ]
    )


@pytest.mark.parametrize("text", [" person", "person\n", "\u2003person\t"])
def test_blanks_around_a_category_do_not_count(tmp_path, text):
    tree(tmp_path)
    put(tmp_path, "train", document("train", TRAIN, categories=CATEGORIES | {1: text}))
    assert read(tmp_path).table.classes == ("stop sign", "person", "toothbrush")
    put(tmp_path, "train", document("train", TRAIN, categories=CATEGORIES | {1: text, 13: "person"}))
    with pytest.raises(SourceError, match="(?m)duplicate class names: person$"):
        read(tmp_path)


@pytest.mark.parametrize("key", ["info", "annotations", "images"])
def test_lists_in_lists_without_end_are_told(tmp_path, key):
    content = document("train", TRAIN)
    text = json.dumps(content | {key: "here"}).replace('"here"', "[" * 100_000 + "]" * 100_000)
    (tree(tmp_path) / "annotations" / "instances_train2014.json").write_text(text)
    with pytest.raises(
        SourceError, match=r"train2014\.json: no whole JSON \(.* too deep to be read, at character \d+\)"
    ):
        read(tmp_path)


def test_faults_of_both_parts_and_missing_pictures_are_told_at_once(tmp_path):
    content = document("train", TRAIN)
    content["images"].append(content["images"][0] | {"file_name": "x.jpg"})
    content["images"][1]["file_name"] = "/root.jpg"
    content["annotations"][0]["category_id"] = 2
    content["annotations"][3] = None
    put(tree(tmp_path), "train", content)
    content = document("val", VAL)
    del content["categories"][0]["name"]
    content["images"].append({"id": 9, "file_name": name("train", 9)})
    put(tmp_path, "val", content)
    (tmp_path / "train2014" / name("train", 3)).unlink()
    (tmp_path / "val2014" / name("val", 8)).unlink()
    with pytest.raises(FaultyData) as caught:
        read(tmp_path)
    train, val = "instances_train2014.json", "instances_val2014.json"
    assert str(caught.value).splitlines() == [
        f"{train}: annotations lack one of image_id (int), category_id (int), iscrowd (int): number 4",
        f"{train}: duplicate image ids: 9",
        f"{train}: images have an invalid file_name: 100 (path '/root.jpg' is absolute)",
        f"{train}: category ids of annotations are not in the file: 2 (1 times)",
        f"{val}: categories lack one of id (int), name (str): number 1",
        f"{val}: categories differ from those of train: 13 (stop sign, None)",
        f"{val}: images are in the train part too: {name('train', 9)}",
        f"train2014: images have no file: {name('train', 3)}",
        f"val2014: images have no file: {name('val', 8)}",
    ]
    assert len(caught.value.lines) == 9


def test_a_part_that_cannot_be_read_or_is_missing_does_not_hide_the_rest(tmp_path):
    tree(tmp_path)
    content = document("val", VAL)
    content["annotations"][0]["image_id"] = 4
    put(tmp_path, "val", content)
    (tmp_path / "annotations" / "instances_train2014.json").write_text('{"images": [')
    (tmp_path / "val2014" / name("val", 11)).unlink()
    with pytest.raises(SourceError) as caught:
        read(tmp_path)
    lines = sorted(str(caught.value).splitlines())
    assert len(lines) == 3 and lines[0].startswith("instances_train2014.json: no whole JSON (")
    assert lines[1] == "instances_val2014.json: image ids of annotations are not in the file: 4 (1 times)"
    assert lines[2].startswith("val2014: 1 of 1 images have no file: ")
    (tmp_path / "annotations" / "instances_val2014.json").unlink()
    (tmp_path / "train2014").rename(tmp_path / "elsewhere")
    for ask in (coco.read, coco.fingerprint):
        with pytest.raises(SourceError) as caught:
            ask(settings(), tmp_path)
        message = str(caught.value)
        assert len(message.splitlines()) == 3, "what is missing does not hide what is broken"
        for words in ("instances_val2014.json is missing", "no folder train2014 or", "train2014.json: no whole JSON ("):
            assert words in message


def test_of_many_offenders_all_are_counted_and_some_named(tmp_path):
    content = document("train", TRAIN)
    content["annotations"] += [content["annotations"][0] | {"image_id": 1000 + n // 2} for n in range(60)]
    put(tree(tmp_path), "train", content)
    with pytest.raises(SourceError) as caught:
        read(tmp_path)
    assert "30 image ids of annotations" in str(caught.value)
    assert "1019 (2 times) and 10 more" in str(caught.value)


@pytest.mark.parametrize("cut", [0, 1, 40, 700])
def test_a_file_that_ends_early_is_no_json(tmp_path, cut):
    file = tree(tmp_path) / "annotations" / "instances_train2014.json"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(SourceError, match=r"instances_train2014\.json: no whole JSON \("):
        read(tmp_path)


def test_parts_that_do_not_fit_are_named(tmp_path):
    tree(tmp_path)
    put(tmp_path, "val", document("val", VAL, categories=CATEGORIES | {13: "stopsign", 14: "bench"}))
    words = r"val2014\.json: 2 categories differ from those of train: 13 \(stop sign, stopsign\), 14 \(None, bench\)$"
    with pytest.raises(SourceError, match=words):
        read(tmp_path)
    content = document("val", VAL)
    content["images"].append({"id": 9, "file_name": name("train", 9)})
    put(tmp_path, "val", content)
    with pytest.raises(SourceError, match=r"val2014\.json: images are in the train part too: COCO_train2014_0+9\.jpg$"):
        read(tmp_path)
    put(tmp_path, "val", document("val", {70: [], 8: [(1, 1)]}))
    with pytest.raises(SourceError, match=r"val2014\.json: none of its 2 images has a present class"):
        read(tmp_path, crowd="ignore")


def test_missing_pictures_are_listed_or_left_to_the_packing(tmp_path):
    tree(tmp_path)
    for image in (9, 10):
        (tmp_path / "train2014" / name("train", image)).unlink()
    (tmp_path / "train2014" / name("train", 25)).unlink()  # its image is not used
    with pytest.raises(SourceError, match=r"^train2014: 2 of 4 images have no file: COCO_.*10\.jpg, COCO_.*09\.jpg$"):
        read(tmp_path)
    data = read(tmp_path, bad_images="drop")
    assert list(map(str, rows(data))) == STRING and not Path(str(data.image(0))).exists()


def test_pictures_of_the_other_edition_are_told(tmp_path):
    tree(tmp_path)
    for image in TRAIN:
        file = tmp_path / "train2014" / name("train", image)
        file.rename(file.with_name(name("train", image, 2017)))
    for bad_images in ("stop", "drop"):
        with pytest.raises(
            SourceError, match=r"train2014: 4 of 4 images have no file: .*; the folder holds 0+3\.jpg, "
        ):
            read(tmp_path, bad_images=bad_images)


# ---------------------------------------------------------------------------------------------- where the folders are
@pytest.mark.parametrize("pictures", ["{0}", "images/{0}", "{0}/{0}", "images/{0}/{0}"])
@pytest.mark.parametrize("inside", [".", "coco", "unpacked/coco2014"])
def test_the_folders_are_found_below_the_root(tmp_path, inside, pictures):
    tree(tmp_path / inside, pictures=pictures)
    data = read(tmp_path)
    assert list(map(str, rows(data))) == STRING
    assert data.table.paths[0] == "train2014/COCO_train2014_000000000010.jpg", "however deep they lie"
    assert decode(Path(str(data.image(0))), 10**8).shape == (16, 20, 3)


def test_annotations_may_lie_in_the_folder_of_their_archive(tmp_path):
    tree(tmp_path)
    (tmp_path / "annotations_trainval2014").mkdir()
    (tmp_path / "annotations").rename(tmp_path / "annotations_trainval2014" / "annotations")
    assert list(map(str, rows(read(tmp_path)))) == STRING


def test_a_wrong_root_is_explained(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        SourceError, match=r"no annotations/instances_train2014\.json in .*empty; there are no annotations"
    ):
        read(tmp_path, root="empty")
    folder = tree(tmp_path / "one")
    with pytest.raises(
        SourceError, match=r"no annotations/instances_train2017.*; there are instances_train2014\.json, "
    ):
        read(tmp_path, root="one", year=2017)
    with pytest.raises(SourceError, match="it lies inside one, name .*one"):
        read(tmp_path, root="one/train2014")
    tree(tmp_path / "two")
    with pytest.raises(SourceError, match=r"several datasets \(one, two\)"):
        read(tmp_path)
    (folder / "val2014").rename(folder / "valid")
    with pytest.raises(SourceError, match="no folder val2014 or images/val2014 in .*one"):
        read(tmp_path, root="one")


# ---------------------------------------------------------------------------------------------- settings
@pytest.mark.parametrize(
    "changes",
    [
        {"year": 2015},
        {"year": "2014"},
        {"unannotated": "negative"},
        {"crowd": "negative"},
        {"order": "id"},
        {"test_fraction": 0.0},
        {"test_fraction": 1.0},
    ],
)
def test_impossible_settings_are_refused(changes):
    with pytest.raises(ValidationError, match=next(iter(changes))):
        settings(**changes)


# ---------------------------------------------------------------------------------------------- its state


# ---------------------------------------------------------------------------------------------- real data
def sha256(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values.astype("<i4")).tobytes()).hexdigest()


@pytest.mark.slow
def test_the_literatures_table_draw_and_cut_of_coco_2014(tmp_path, repository):
    """The real label matrix as annotation files; one picture is there, the others would be dropped by the packing."""
    file = repository.parent / "shared" / "data" / "labels" / "coco2014_labels.npz"
    if not file.exists():
        pytest.skip("the COCO 2014 label matrix is not at hand")
    coco_prepare.write_annotations(tmp_path, file, polygon=2, repeats=False)
    for part, image in (("train", 9), ("val", 42)):
        (tmp_path / f"{part}2014").mkdir()
        (tmp_path / f"{part}2014" / name(part, image)).touch()
    data = read(tmp_path, bad_images="drop", val_fraction=0.2)
    table = data.table
    assert table.classes[0] == "person" and table.classes[79] == "toothbrush" and len(table.classes) == 80
    assert [part["images"] for part in data.report["parts"].values()] == [82_783, 40_504], "as the official files"

    golden = json.loads((repository / "tests" / "goldens" / "simulation_coco2014.json").read_text())
    for number, case in enumerate(golden["cases"]):
        expected, of_part = case["expected"], np.flatnonzero(table.official == number)
        truth = table.truth[of_part]
        ids = np.array([int(table.paths[row][-16:-4]) for row in of_part])
        assert hashlib.sha256(truth.astype(np.uint8).tobytes()).hexdigest() == expected["label_matrix_uint8_sha256"]
        assert sha256(ids) == expected["image_ids_int32_sha256"]
        observed = literature(truth)
        assert observed.dtype == np.int8 and (observed.sum(axis=1) == 1).all()
        assert sha256(observed.argmax(axis=1)) == expected["chosen_class_sha256"]
        few = literature(truth[:500].astype(np.float64)), literature(truth[:500].astype(np.int64))
        assert all(np.array_equal(observed[:500], other) for other in few), "both label types of the papers"
        if "split" in expected:
            for part in ("train", "val"):
                rows = table.rows(part)
                assert sha256(rows) == expected["split"][f"{part}_index_sha256"]
                assert sha256(observed[rows].argmax(axis=1)) == expected["split"][f"chosen_class_{part}_split_sha256"]


def test_real_photographs(repository):
    folder = repository.parent / "shared" / "data" / "coco_sample"
    if not folder.exists():
        pytest.skip("the COCO photographs are not at hand")
    data = coco.read(settings(str(folder), year=2017, test_fraction=0.25), Path("/"))
    content = json.loads((folder / "annotations" / "instances_train2017.json").read_text())
    names = {entry["id"]: entry["name"] for entry in content["categories"]}
    pairs = {(entry["image_id"], names[entry["category_id"]]) for entry in content["annotations"]}
    table = data.table
    assert len(table.paths) == 35 and [len(table.rows(part)) for part in ("train", "val", "test")] == [20, 6, 9]
    found = {
        (int(table.paths[row][-16:-4]), table.classes[column]) for row, column in np.argwhere(table.truth).tolist()
    }
    assert found == pairs
    assert all(decode(Path(str(data.image(row))), 10**8).ndim == 3 for row in (0, 34))
