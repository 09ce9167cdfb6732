import unicodedata
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline.core.errors import SourceError
from pipeline.labels.splits import split_rows
from pipeline.labels.table import Dataset
from pipeline.sources import nus
from tests.trees import PICTURES

CONCEPTS = ("sky", "animal", "water")  # as in no alphabet, so that an order by file names would show
TRAIN = {  # sky, animal, water
    "actor/0001_21.jpg": (1, 0, 1),
    "zoo/0007_33.jpg": (0, 1, 0),
    "actor/0003_22.jpg": (0, 0, 0),
    "beach/0001_27.jpg": (1, 0, 0),
}
TEST = {"zoo/0002_31.jpg": (0, 1, 1), "beach/0009_28.jpg": (0, 0, 0)}


def official(folder: Path, train: dict = TRAIN, test: dict = TEST, concepts: tuple = CONCEPTS) -> Path:
    """Write a dataset as its makers hand it out: Windows separators, blanks at line ends, files without pixels."""
    write(folder, "ConceptsList/Concepts81.txt", "".join(f"{name}\n" for name in concepts))
    for part, rows in (("Train", train), ("Test", test)):
        lines = (path.replace("/", "\\") + " \n" for path in rows)
        write(folder, f"ImageList/{part}Imagelist.txt", "".join(lines))
        for column, name in enumerate(concepts):
            values = "".join(f"{labels[column]} \n" for labels in rows.values())
            write(folder, f"Groundtruth/TrainTestLabels/Labels_{name}_{part}.txt", values)
        photos(folder / "Flickr", rows)
    return folder


def formatted(folder: Path, train: dict = TRAIN, test: dict = TEST, kind: type = float) -> Path:
    """Write a dataset as Cole and Zhou hand it out."""
    photos(folder / "Flickr", [*train, *test])
    for part, rows in (("train", train), ("val", test)):
        np.save(folder / f"formatted_{part}_images.npy", np.array([*rows]))
        np.save(folder / f"formatted_{part}_labels.npy", np.array([*rows.values()], kind))
    write(folder, "Concepts81.txt", "".join(f"{name}\n" for name in CONCEPTS))
    return folder


def write(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())


def photos(folder: Path, names) -> None:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"picture")


def edit(folder: Path, name: str, change) -> None:
    file = next(folder.rglob(name))
    file.write_bytes(change(file.read_bytes()))


def settings(layout: str = "official", root: str = ".", **changes) -> nus.Settings:
    fixed = {
        "source": "nus",
        "layout": layout,
        "root": root,
        "classes": None,
        "size": 8,
        **PICTURES,
    }
    return nus.Settings.model_validate(fixed | {"val_fraction": 0.25, "split_seed": 1200} | changes)


def read(project: Path, layout: str = "official", **changes) -> Dataset:
    return nus.read(settings(layout, **changes), project)


def labels(data: Dataset) -> dict[str, tuple[int, ...]]:
    names = [path.removeprefix("Flickr/") for path in data.table.paths]
    return dict(zip(names, map(tuple, data.table.truth.tolist()), strict=True))


BOTH = pytest.mark.parametrize("layout, tree", [("official", official), ("formatted", formatted)])


# ---------------------------------------------------------------------------------------------- the right table
@BOTH
def test_the_table_holds_every_image_in_the_order_of_the_lists(tmp_path, layout, tree):
    data = read(tree(tmp_path), layout)
    assert list(labels(data).items()) == [*TRAIN.items(), *TEST.items()]
    table = data.table
    assert table.classes == CONCEPTS and table.scored.all() and table.exhaustive
    assert table.official.tolist() == [0, 0, 0, 0, 1, 1]
    train, val = split_rows(4, 0.25, 1200)
    assert table.rows("train").tolist() == train.tolist() and table.rows("val").tolist() == val.tolist()
    assert table.rows("test").tolist() == [4, 5]
    for row, path in enumerate(table.paths):
        assert data.image(row) == tmp_path / path and (tmp_path / path).is_file()
    assert data.report["parts"] == {
        "train": {"listed": 4, "repeated": 0, "without_positive": 1},
        "test": {"listed": 2, "repeated": 0, "without_positive": 1},
    }


def test_the_edition_is_told_by_its_counts():
    assert nus.edition(161_789, 107_859) == "the official lists"
    assert "papers' cut" in str(nus.edition(150_000, 60_260))
    assert "cut otherwise" in str(nus.edition(126_034, 84_226))  # of Xie 2022
    assert "cut otherwise" in str(nus.edition(200_000, 69_648))
    assert "HashNet" in str(nus.edition(10_000, 213_496))
    assert "jingwei" in str(nus.edition(259_233, 0))
    assert nus.edition(107_859, 161_788) is nus.edition(4, 2) is None


@BOTH
def test_the_report_says_which_copy_this_is(tmp_path, layout, tree, monkeypatch):
    report = read(tree(tmp_path), layout).report
    assert report["edition"] == "none of the known ones"
    assert "none of the known copies" in report["warnings"][0]
    assert [("by place" in text) for text in report["warnings"][1:]] == [True] * (layout == "formatted")
    monkeypatch.setitem(nus.EDITIONS, (4, 2), "a copy of six")
    report = read(tmp_path, layout).report
    assert report["edition"] == "a copy of six" and len(report["warnings"]) == (layout == "formatted")


@pytest.mark.parametrize("kind", [float, int, bool, np.uint8, np.float16])
def test_any_kind_of_numbers_makes_labels(tmp_path, kind):
    assert labels(read(formatted(tmp_path, kind=kind), "formatted")) == TRAIN | TEST


# ---------------------------------------------------------------------------------------------- concepts by name
def test_concepts_are_matched_by_name_not_by_place(tmp_path):
    official(tmp_path)
    assert read(tmp_path).report["class_names"] == "Concepts81.txt"
    write(tmp_path, "ConceptsList/Concepts81.txt", "\ufeffwater\r\n sky \r\nanimal\r\n\r\n")
    data = read(tmp_path)
    assert data.table.classes == ("water", "sky", "animal")
    assert labels(data)["actor/0001_21.jpg"] == (1, 1, 0)
    data = read(tmp_path, classes=["animal", "sky"])
    assert data.table.classes == ("animal", "sky")
    assert labels(data)["actor/0001_21.jpg"] == (0, 1) and labels(data)["zoo/0002_31.jpg"] == (1, 0)
    assert data.report["class_names"] == "the setting `classes`"


def test_without_concepts81_the_label_files_name_the_concepts(tmp_path):
    (official(tmp_path) / "ConceptsList/Concepts81.txt").unlink()
    data = read(tmp_path)
    assert data.table.classes == ("animal", "sky", "water")
    assert labels(data)["zoo/0007_33.jpg"] == (1, 0, 0)
    assert data.report["class_names"] == "the names of the label files"


def test_concepts_and_label_files_that_differ_are_named(tmp_path):
    official(tmp_path)
    write(tmp_path, "ConceptsList/Concepts81.txt", "sky\nanimals\nwater\n")
    words = r"2 files are missing \(Labels_animals_Train\.txt, Labels_animals_Test\.txt\), 1 concepts not .*\(animal\)"
    with pytest.raises(SourceError, match=words):
        read(tmp_path)
    write(tmp_path, "ConceptsList/Concepts81.txt", "sky\nwater\n")
    with pytest.raises(SourceError, match=r"0 files are missing \(none\), 1 concepts not named \(animal\)"):
        read(tmp_path)
    with pytest.raises(SourceError, match=r"the setting `classes` and .* do not fit: 2 .*Labels_Sky_Train\.txt"):
        read(tmp_path, classes=["Sky", "water"])
    (tmp_path / "Groundtruth/TrainTestLabels/Labels_sky_Test.txt").unlink()
    with pytest.raises(SourceError, match=r"1 files are missing \(Labels_sky_Test\.txt\)"):
        read(tmp_path)


@BOTH
def test_a_concept_named_twice_is_an_error(tmp_path, layout, tree):
    file = next(tree(tmp_path).rglob("Concepts81.txt"))
    file.write_text("sky\nanimal\nsky\n")
    with pytest.raises(SourceError, match=r"Concepts81\.txt: duplicate class names: sky$"):
        read(tmp_path, layout)


NO_NAME = "invalid class names (empty, padded or with control characters)"


@BOTH
@pytest.mark.parametrize("text", ["a\x02", "a\x7fb", "a\u0080"])
def test_a_concept_that_cannot_name_a_class_is_an_error(tmp_path, layout, tree, text):
    file = next(tree(tmp_path).rglob("Concepts81.txt"))
    file.write_text(f"sky\n{text}\nwater\nsky\n", encoding="utf-8")
    for ask in (nus.read, nus.fingerprint):
        with pytest.raises(SourceError) as caught:
            ask(settings(layout), tmp_path)
        assert str(caught.value).splitlines() == [
            f"Concepts81.txt: {NO_NAME}: {text!r}",
            "Concepts81.txt: duplicate class names: sky",
        ]


@BOTH
@pytest.mark.parametrize("text", ["", " ", "\n", "a\x01b", "a\tb", "\ud800"])
def test_a_wanted_name_that_cannot_be_a_class_is_an_error(tmp_path, layout, tree, text):
    tree(tmp_path)
    with pytest.raises(SourceError) as caught:
        read(tmp_path, layout, classes=["sky", text, "water"])
    assert str(caught.value) == f"the setting `classes`: {NO_NAME}: {text.strip()!r}"
    assert read(tmp_path, layout, classes=[" sky", "animal\n", "water"]).table.classes == CONCEPTS


def test_label_files_of_a_name_that_cannot_be_a_class_are_told(tmp_path):
    concepts = ("sky", " animal", "wa\x01ter")
    next(official(tmp_path, concepts=concepts).rglob("Concepts81.txt")).unlink()
    with pytest.raises(
        SourceError, match=r"the names of the label files: 2 invalid class names .*: ' animal', 'wa\\x01ter'$"
    ):
        read(tmp_path)


def test_arrays_take_their_names_from_a_setting_or_say_what_is_needed(tmp_path):
    file = formatted(tmp_path) / "Concepts81.txt"
    assert read(tmp_path, "formatted", classes=["a", "b", "c"]).table.classes == ("a", "b", "c")
    with pytest.raises(SourceError, match="has 4 rows and 3 columns, but there are 4 images .* and 2 class names"):
        read(tmp_path, "formatted", classes=["a", "b"])
    file.unlink()
    with pytest.raises(SourceError, match=r"no Concepts81\.txt with class names .* list the names in column order"):
        read(tmp_path, "formatted")


# ---------------------------------------------------------------------------------------------- no cut is invented
def test_an_unsplit_list_is_refused(tmp_path):
    folder = official(tmp_path)
    for part in ("Train", "Test"):
        (folder / f"ImageList/{part}Imagelist.txt").unlink()
    write(folder, "ImageList/Imagelist.txt", "actor\\0001_21.jpg\n")
    words = (
        r"TrainImagelist\.txt and TestImagelist\.txt missing .*add the official ImageList; Imagelist\.txt does not say"
    )
    with pytest.raises(SourceError, match=words + ".* no cut is invented"):
        read(folder)


def test_labels_of_an_unsplit_list_are_refused(tmp_path):
    folder = official(tmp_path) / "Groundtruth"
    (folder / "TrainTestLabels").rename(folder / "AllLabels")
    with pytest.raises(SourceError, match=r"no folder TrainTestLabels .* AllLabels follows the unsplit list"):
        read(tmp_path)


def test_arrays_of_one_part_are_refused(tmp_path):
    folder = formatted(tmp_path)
    for what in ("images", "labels"):
        (folder / f"formatted_val_{what}.npy").unlink()
    words = r"2 of 4 arrays are missing .*formatted_val_images\.npy, formatted_val_labels\.npy; .* no part is cut"
    with pytest.raises(SourceError, match=words):
        read(folder, "formatted")


def test_the_other_layout_is_pointed_out(tmp_path):
    official(tmp_path / "one")
    with pytest.raises(SourceError, match="4 of 4 arrays are missing.*layout `official`"):
        read(tmp_path, "formatted")
    formatted(tmp_path / "two")
    with pytest.raises(SourceError, match="add the official ImageList; .*layout `formatted`"):
        read(tmp_path, root="two")


# ---------------------------------------------------------------------------------------------- quirks of lists
HARMLESS = {
    "carriage returns": lambda text: text.replace(b"\n", b"\r\n"),
    "no blanks at line ends": lambda text: text.replace(b" \n", b"\n"),
    "tabs at line ends": lambda text: text.replace(b" \n", b"\t\n"),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "blank last lines": lambda text: text + b"\n \r\n",
    "no last line feed": lambda text: text.rstrip(),
    "forward slashes": lambda text: text.replace(b"\\", b"/"),
}


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS.keys())
def test_harmless_forms_of_the_lists_change_nothing(tmp_path, change):
    for file in [file for file in official(tmp_path).rglob("*.txt")]:
        file.write_bytes(change(file.read_bytes()))
    assert list(labels(read(tmp_path)).items()) == [*TRAIN.items(), *TEST.items()]


ABOVE = ["C:\\ImageData\\Flickr\\", "Flickr\\", "./Flickr/", "../nus/flickr/", ".\\"]


@BOTH
@pytest.mark.parametrize("above", ABOVE)
def test_what_stands_before_the_path_proper_does_not_count(tmp_path, layout, tree, above):
    tree(tmp_path)
    if layout == "official":
        edit(
            tmp_path, "TrainImagelist.txt", lambda text: b"".join(above.encode() + line for line in text.splitlines(1))
        )
    else:
        np.save(tmp_path / "formatted_train_images.npy", np.array([above + path for path in TRAIN]))
    assert labels(read(tmp_path, layout)) == TRAIN | TEST


def test_byte_strings_and_windows_separators_in_arrays(tmp_path):
    formatted(tmp_path)
    np.save(
        tmp_path / "formatted_train_images.npy", np.array([path.replace("/", "\\").encode() + b" " for path in TRAIN])
    )
    assert labels(read(tmp_path, "formatted")) == TRAIN | TEST
    np.save(tmp_path / "formatted_train_images.npy", np.array([b"\xff\xfe", b"a", b"b", b"c"]))
    with pytest.raises(SourceError, match=r"formatted_train_images\.npy holds bytes that are no UTF-8"):
        read(tmp_path, "formatted")


@pytest.mark.parametrize("path", ["..\\..\\secret.jpg", "/etc/secret.jpg", "D:\\photos\\secret.jpg", "a/../../b.jpg"])
@BOTH
def test_paths_that_leave_the_folder_are_refused(tmp_path, layout, tree, path):
    tree(tmp_path)
    if layout == "official":
        edit(tmp_path, "TrainImagelist.txt", lambda text: text.replace(b"actor\\0003_22.jpg", path.encode()))
        where = r"TrainImagelist\.txt:3"
    else:
        np.save(tmp_path / "formatted_train_images.npy", np.array([path if "22" in name else name for name in TRAIN]))
        where = r"formatted_train_images\.npy row 2"
    with pytest.raises(SourceError, match=f"invalid image paths: {where}: path"):
        read(tmp_path, layout)


def test_label_files_that_do_not_fit_the_list_are_all_named(tmp_path):
    official(tmp_path)
    edit(tmp_path, "Labels_sky_Train.txt", lambda text: text + b"0\n")
    edit(tmp_path, "Labels_water_Train.txt", lambda text: b"1\n\n0\n0\n")  # a value lost in the middle
    words = (
        r"2 label files .* each of the 4 images of TrainImagelist\.txt: Labels_sky_Train\.txt \(5\), .*water.* \(3\)"
    )
    with pytest.raises(SourceError, match=words):
        read(tmp_path)


def test_values_that_are_no_labels_are_all_named(tmp_path):
    official(tmp_path)
    edit(tmp_path, "Labels_sky_Train.txt", lambda text: b"1\n-1\n0 1\nyes\n")
    words = r"Labels_sky_Train\.txt: 3 lines are neither 0 nor 1: .*:2 is '-1', .*:3 is '0 1', .*:4 is 'yes'"
    with pytest.raises(SourceError, match=words):
        read(tmp_path)


def test_an_empty_list_is_an_error(tmp_path):
    edit(official(tmp_path), "TestImagelist.txt", lambda text: b"\n")
    with pytest.raises(SourceError, match=r"TestImagelist\.txt lists no image"):
        read(tmp_path)


@BOTH
def test_an_image_in_both_parts_is_an_error(tmp_path, layout, tree):
    tree(tmp_path, test=TEST | {"zoo/0007_33.jpg": (0, 1, 0)})
    with pytest.raises(SourceError, match=r"images are in the train and in the test part: zoo/0007_33\.jpg"):
        read(tmp_path, layout)


def test_an_image_listed_again_counts_once_unless_labels_differ(tmp_path):
    images = [*TRAIN, "actor/0003_22.jpg", "zoo\\0007_33.jpg"]
    values = [*TRAIN.values(), (0, 0, 0), (0, 1, 0)]
    formatted(tmp_path)
    np.save(tmp_path / "formatted_train_images.npy", np.array(images))
    np.save(tmp_path / "formatted_train_labels.npy", np.array(values))
    data = read(tmp_path, "formatted")
    assert list(labels(data).items()) == [*TRAIN.items(), *TEST.items()]
    assert data.report["parts"]["train"] == {"listed": 6, "repeated": 2, "without_positive": 1}
    np.save(tmp_path / "formatted_train_labels.npy", np.array([*values[:5], (0, 0, 0)]))
    with pytest.raises(SourceError, match=r"images of train are listed again with other labels: zoo/0007_33\.jpg"):
        read(tmp_path, "formatted")


def test_faults_of_all_lists_are_named_at_once(tmp_path):
    official(tmp_path, test=TEST | {"zoo/0007_33.jpg": (0, 1, 0)})
    edit(tmp_path, "Labels_sky_Train.txt", lambda text: b"yes" + text)
    edit(tmp_path, "Labels_water_Test.txt", lambda text: text + b"2\n")
    edit(tmp_path, "Labels_animal_Test.txt", lambda text: text + b"0\n")
    (tmp_path / "Flickr/beach/0001_27.jpg").unlink()
    with pytest.raises(SourceError) as caught:
        read(tmp_path)
    assert sorted(str(caught.value).splitlines()) == [
        "Flickr: images have no file: beach/0001_27.jpg",
        "Labels_sky_Train.txt: 1 lines are neither 0 nor 1: Labels_sky_Train.txt:1 is 'yes1'",
        "Labels_water_Test.txt: 1 lines are neither 0 nor 1: Labels_water_Test.txt:4 is '2'",
        f"{tmp_path.name}: images are in the train and in the test part: zoo/0007_33.jpg",
        f"{tmp_path.name}: label files do not hold one label for each of the 3 images of TestImagelist.txt:"
        " Labels_animal_Test.txt (4)",
    ]


def test_faults_of_all_arrays_are_named_at_once(tmp_path):
    formatted(tmp_path)
    np.save(tmp_path / "formatted_train_images.npy", np.array([*TRAIN][:3] + ["/gone.jpg"]))
    np.save(tmp_path / "formatted_train_labels.npy", np.zeros((4, 2)))
    (tmp_path / "formatted_val_labels.npy").write_bytes(b"nothing")
    (tmp_path / "Flickr/zoo/0002_31.jpg").rename(tmp_path / "Flickr/zoo/other.jpg")
    with pytest.raises(SourceError) as caught:
        read(tmp_path, "formatted")
    for words in (
        "formatted_train_labels.npy has 4 rows and 2 columns, but there are 4 images",
        "formatted_val_labels.npy: cannot be read as a NumPy array",
        "formatted_train_images.npy: invalid image paths: formatted_train_images.npy row 3",
        "Flickr: images have no file: zoo/0002_31.jpg",
    ):
        assert sum(words in line for line in str(caught.value).splitlines()) == 1, words
    assert len(str(caught.value).splitlines()) == 4


# ---------------------------------------------------------------------------------------------- arrays
def test_pickled_arrays_are_refused_and_the_refusal_says_how_to_convert(tmp_path):
    formatted(tmp_path)
    name = "formatted_train_images.npy"
    np.save(tmp_path / name, np.array([*TRAIN], dtype=object), allow_pickle=True)
    with pytest.raises(SourceError, match=r"holds Python objects.*convert it once: import numpy") as caught:
        read(tmp_path, "formatted")
    command = str(caught.value).rpartition("once: ")[2].replace(f"'{name}'", repr(str(tmp_path / name)))
    exec(command, {})  # the advice works
    assert labels(read(tmp_path, "formatted")) == TRAIN | TEST
    np.save(tmp_path / "formatted_val_labels.npy", np.array([*TEST.values()], dtype=object), allow_pickle=True)
    with pytest.raises(SourceError, match=r"formatted_val_labels\.npy holds Python objects.*astype\('int8'\)"):
        read(tmp_path, "formatted")


def test_nothing_is_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "sprung",)

    formatted(tmp_path)
    np.save(tmp_path / "formatted_train_images.npy", np.array([Trap()] * 4, dtype=object), allow_pickle=True)
    with pytest.raises(SourceError, match="holds Python objects"):
        read(tmp_path, "formatted")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "content", [b"", b"<html>gone</html>", b"version https://git-lfs.github.com/spec/v1\n", b"\x93NUMPY\x01\x00"]
)
def test_a_file_that_is_no_array_is_named(tmp_path, content):
    (formatted(tmp_path) / "formatted_train_labels.npy").write_bytes(content)
    with pytest.raises(SourceError, match=r"formatted_train_labels\.npy: cannot be read as a NumPy array"):
        read(tmp_path, "formatted")


def test_a_truncated_array_is_named(tmp_path):
    edit(formatted(tmp_path), "formatted_val_labels.npy", lambda content: content[:-8])
    with pytest.raises(SourceError, match=r"formatted_val_labels\.npy: cannot be read as a NumPy array"):
        read(tmp_path, "formatted")


ARRAYS = {
    "cells": (
        "formatted_train_labels.npy",
        np.array([[1, 0, 1], [0, np.nan, 0], [0, 0, -1], [1, 2, 0]]),
        r"3 cells are neither 0 nor 1: row 1, column 1 is nan, row 2, column 2 is -1\.0, row 3, column 1 is 2",
    ),
    "words": (
        "formatted_train_labels.npy",
        np.array([["1"]]),
        r"labels\.npy is <U1 of shape \(1, 1\), expected numbers",
    ),
    "flat": ("formatted_train_labels.npy", np.zeros(12), r"is float64 of shape \(12,\), expected numbers"),
    "turned": ("formatted_train_labels.npy", np.zeros((3, 4)), "has 3 rows and 4 columns, but there are 4 images"),
    "ids": ("formatted_train_images.npy", np.arange(4), r"is int64 of shape \(4,\), expected a row of strings"),
    "column": ("formatted_train_images.npy", np.array([["a.jpg"]]), "expected a row of strings"),
    "fewer": ("formatted_val_images.npy", np.array(["zoo/0002_31.jpg"]), "has 2 rows and 3 columns, .* 1 images"),
    "empty": ("formatted_train_images.npy", np.array(["", "a", "b", "c"]), r"row 0: path '' is empty"),
}


@pytest.mark.parametrize("name, array, words", ARRAYS.values(), ids=ARRAYS.keys())
def test_arrays_that_do_not_fit_are_named(tmp_path, name, array, words):
    np.save(formatted(tmp_path) / name, array)
    with pytest.raises(SourceError, match=words):
        read(tmp_path, "formatted")


# ---------------------------------------------------------------------------------------------- pictures
@BOTH
def test_missing_pictures_stop_the_run_or_are_left_to_the_packing(tmp_path, layout, tree):
    folder = tree(tmp_path) / "Flickr"
    for name in ("zoo/0007_33.jpg", "zoo/0002_31.jpg"):
        (folder / name).unlink()
    with pytest.raises(SourceError, match=r"Flickr: 2 of 6 images have no file: zoo/0007_33\.jpg, zoo/0002_31\.jpg"):
        read(tmp_path, layout)
    data = read(tmp_path, layout, bad_images="drop")
    assert labels(data) == TRAIN | TEST and data.image(1) == folder / "zoo/0007_33.jpg"
    assert data.report["pictures"]["missing"] == {"count": 2, "first": ["zoo/0007_33.jpg", "zoo/0002_31.jpg"]}
    assert "2 images have no file" in data.report["warnings"][-1]


def test_a_copy_with_all_pictures_in_one_folder_goes_by_file_name(tmp_path):
    folder = official(tmp_path)
    for file in [*(folder / "Flickr").rglob("*.jpg")]:
        (folder / "images").mkdir(exist_ok=True)
        file.rename(folder / "images" / file.name)
    for place in [*(folder / "Flickr").iterdir(), folder / "Flickr"]:
        place.rmdir()
    with pytest.raises(SourceError, match=r"2 images share a file name: actor/0001_21\.jpg, zoo/0001_21\.jpg"):
        edit(folder, "TestImagelist.txt", lambda text: text.replace(b"0002_31", b"0001_21"))
        read(tmp_path)
    edit(folder, "TestImagelist.txt", lambda text: text.replace(b"0001_21", b"0002_31"))
    data = read(tmp_path)
    assert data.table.paths[1] == "images/0007_33.jpg" and data.table.truth[1].tolist() == [0, 1, 0]
    assert data.image(1) == folder / "images/0007_33.jpg"
    assert data.report["pictures"]["by_file_name_alone"]


def test_pictures_in_no_list_are_counted(tmp_path):
    photos(official(tmp_path) / "Flickr", ["zoo/0099_99.jpg", "other/0001_98.JPG"])
    report = read(tmp_path).report["pictures"]
    assert report == {
        "folder": "Flickr",
        "by_file_name_alone": False,
        "missing": {"count": 0, "first": []},
        "in_no_list": 2,
    }


def test_unicode_forms_of_lists_and_files_meet(tmp_path):
    composed, apart = "café/0001_é.jpg", unicodedata.normalize("NFD", "café/0001_é.jpg")
    official(tmp_path, TRAIN | {apart: (0, 0, 1)}, concepts=("sky", "animal", "é"))
    edit(tmp_path, "Concepts81.txt", lambda text: unicodedata.normalize("NFD", text.decode()).encode())
    for file in [*tmp_path.rglob("Labels_é_*.txt")]:
        file.rename(file.with_name(unicodedata.normalize("NFD", file.name)))
    data = read(tmp_path)
    assert labels(data)[composed] == (0, 0, 1) and data.table.classes[2] == "é"
    assert data.image(4) == tmp_path / "Flickr" / apart


# ---------------------------------------------------------------------------------------------- where the folder is
def test_folders_that_archives_wrap_around_are_seen_through(tmp_path):
    inner = official(tmp_path / "plain")
    wanted = labels(read(tmp_path, root="plain"))
    assert wanted == labels(read(tmp_path)) == TRAIN | TEST  # one folder above
    wrapped = tmp_path / "wrapped" / "unpacked"
    (wrapped / "NUS-WIDE").mkdir(parents=True)
    (inner / "Groundtruth").rename(wrapped / "NUS-WIDE" / "Groundtruth")
    (inner / "ConceptsList").rename(wrapped / "NUS-WIDE" / "ConceptsList")
    (inner / "ImageList").rename(wrapped / "ImageList")
    (wrapped / "Flickr").mkdir()
    (inner / "Flickr").rename(wrapped / "Flickr" / "Flickr")  # unpacked into its own name
    data = read(tmp_path, root="wrapped")
    assert labels(data) == wanted and data.image(0) == wrapped / "Flickr/Flickr/actor/0001_21.jpg"


def test_folders_that_people_unwrap_are_found_too(tmp_path):
    folder = official(tmp_path)
    for name in ("TrainImagelist.txt", "TestImagelist.txt"):
        (folder / "ImageList" / name).rename(folder / name)
    (folder / "Groundtruth/TrainTestLabels").rename(folder / "TrainTestLabels")
    (folder / "ConceptsList/Concepts81.txt").rename(folder / "Concepts81.txt")
    assert labels(read(tmp_path)) == TRAIN | TEST


def test_a_wrong_root_is_explained(tmp_path):
    official(tmp_path / "one")
    official(tmp_path / "two")
    with pytest.raises(SourceError, match=r"several ImageList/TrainImagelist\.txt \(one/.*, two/.*\); name one"):
        read(tmp_path)
    (tmp_path / "two/Flickr").rename(tmp_path / "two/photos")
    with pytest.raises(SourceError, match="no folder Flickr or images with the pictures"):
        read(tmp_path, root="two")
    formatted(tmp_path / "three/a")
    (tmp_path / "three/b").mkdir()
    (tmp_path / "three/a/formatted_val_labels.npy").rename(tmp_path / "three/b/formatted_val_labels.npy")
    with pytest.raises(SourceError, match="the arrays lie in several folders"):
        read(tmp_path, "formatted", root="three")


# ---------------------------------------------------------------------------------------------- settings
@pytest.mark.parametrize("changes", [{"layout": "coco"}, {"classes": []}, {"classes": [1]}])
def test_impossible_settings_are_refused(changes):
    with pytest.raises(ValidationError, match=next(iter(changes))):
        nus.Settings.model_validate(settings().model_dump() | changes)


# ---------------------------------------------------------------------------------------------- its state
