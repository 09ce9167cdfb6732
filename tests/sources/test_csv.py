import csv as writer
import io
import itertools
import json as encoder
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as checks
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline.core.errors import SourceError
from pipeline.labels.implications import Rules
from pipeline.labels.table import Dataset
from pipeline.sources import csv, json
from tests.trees import PICTURES, write_files

NAMES = {"kind": "names", "column": "labels", "separator": ";"}
COLUMNS = {"kind": "columns", "zero": "absent", "minus_one": "absent", "empty": "unknown"}
SPLITS = {"val_fraction": 0.25, "test_fraction": 0.25, "split_seed": 0, "unlabelled": None}
PLAIN = b"image,labels\na.jpg,cat;dog\nb.jpg,dog\nc.jpg,\nsub/d.jpg,bird\n"
TRUTH = {"a.jpg": [0, 1, 1], "b.jpg": [0, 0, 1], "c.jpg": [0, 0, 0], "sub/d.jpg": [1, 0, 0]}


def settings(**changes) -> csv.Settings:
    fixed = {
        "source": "csv",
        "root": ".",
        "size": 8,
        **PICTURES,
        "file": "labels.csv",
        "delimiter": "comma",
    }
    fixed |= {
        "path_column": "image",
        "labels": NAMES,
        "exhaustive": True,
        "split_column": None,
        "group_column": None,
        "classes": None,
    }
    return csv.Settings.model_validate(fixed | SPLITS | changes)


def read(folder: Path, content: bytes | str, *more: str, **changes) -> Dataset:
    """Read a table beside pictures a.jpg to c.jpg, sub/d.jpg and more."""
    write_files(folder, "a.jpg", "b.jpg", "c.jpg", "sub/d.jpg", *more)
    (folder / "labels.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    return csv.read(settings(**changes), folder)


def truth(data: Dataset) -> dict[str, list[int]]:
    """Of each path its row: 1 present, 0 absent, -1 unknown."""
    cells = np.where(data.table.scored, data.table.truth, -1)
    return dict(zip(data.table.paths, cells.tolist(), strict=True))


# ---------------------------------------------------------------------------------------------- the right table
def test_the_table_of_names(tmp_path):
    data = read(tmp_path, PLAIN)
    table = data.table
    assert table.classes == ("bird", "cat", "dog") and table.exhaustive
    assert truth(data) == TRUTH
    assert table.official.tolist() == [0, 0, 0, 1] and table.split[3] == 2
    assert sorted(table.split.tolist()) == [0, 0, 1, 2]
    assert list(table.paths[:3]) == sorted(table.paths[:3])
    for row, path in enumerate(table.paths):
        assert data.image(row) == tmp_path / path
    assert data.report["rows"] == data.report["images"] == 4
    assert data.report["cells"] == {"present": 4, "absent": 8, "unknown": 0}
    assert data.report["without_positive"] == {"count": 1, "first": ["c.jpg"]}
    assert data.report["split"] == {"given": [], "drawn": {"val": 0.25, "test": 0.25}, "seed": 0}
    assert data.report["warnings"] == []


def test_what_is_not_named_is_unknown_where_rows_do_not_name_all(tmp_path):
    data = read(tmp_path, PLAIN, exhaustive=False)
    assert not data.table.exhaustive
    assert truth(data) == {path: [1 if cell else -1 for cell in row] for path, row in TRUTH.items()}
    assert data.report["cells"] == {"present": 4, "absent": 0, "unknown": 8}


TABLE = "image,dog,cat\na.jpg,1,0\nb.jpg,-1,\nc.jpg,,1\nsub/d.jpg,0,-1\n"


@pytest.mark.parametrize(
    ("zero", "minus_one", "empty", "cells"),  # cat, dog of a, b, c, d
    [
        ("absent", "absent", "unknown", [[0, 1], [-1, 0], [1, -1], [0, 0]]),
        ("absent", "unknown", "unknown", [[0, 1], [-1, -1], [1, -1], [-1, 0]]),
        ("unknown", "absent", "unknown", [[-1, 1], [-1, 0], [1, -1], [0, -1]]),
        ("unknown", "unknown", "absent", [[-1, 1], [0, -1], [1, 0], [-1, -1]]),
    ],
)
@pytest.mark.parametrize("exhaustive", [True, False])
def test_each_value_of_a_column_means_what_its_setting_says(tmp_path, zero, minus_one, empty, cells, exhaustive):
    labels = COLUMNS | {"zero": zero, "minus_one": minus_one, "empty": empty}
    data = read(tmp_path, TABLE, labels=labels, exhaustive=exhaustive)
    assert data.table.classes == ("cat", "dog") and data.table.exhaustive == exhaustive
    assert truth(data) == dict(zip(("a.jpg", "b.jpg", "c.jpg", "sub/d.jpg"), cells, strict=True))


def test_columns_with_fractions_as_pandas_writes_them(tmp_path):
    content = ",image,dog,cat\n0,a.jpg,1.0,0.0\n1,b.jpg,-1.0,\n2,c.jpg,,1.0\n3,sub/d.jpg,0.0,-1.0\n"
    data = read(tmp_path, content, labels=COLUMNS)
    assert truth(data) == {"a.jpg": [0, 1], "b.jpg": [-1, 0], "c.jpg": [1, -1], "sub/d.jpg": [0, 0]}
    assert data.table.classes == ("cat", "dog")  # the index has no name and is no class


def test_wanted_classes_set_order_and_choose_columns(tmp_path):
    content = "image,width,dog,cat\na.jpg,640,1,0\nb.jpg,480,0,1\n"
    data = read(tmp_path, content, labels=COLUMNS, classes=["dog"], val_fraction=0, test_fraction=0)
    assert data.table.classes == ("dog",) and truth(data) == {"a.jpg": [1], "b.jpg": [0]}
    with pytest.raises(SourceError, match="no row says that a class is absent"):
        read(tmp_path, content.replace("480,0", "480,1"), labels=COLUMNS, classes=["dog"])
    assert data.report["columns_not_read"] == ["width", "cat"]
    assert data.report["pictures_in_no_row"] == {"count": 2, "first": ["c.jpg", "sub/d.jpg"]}
    data = read(tmp_path, PLAIN, classes=["zebra", "dog", "cat", "bird"])
    assert data.table.classes == ("zebra", "dog", "cat", "bird") and truth(data)["a.jpg"] == [0, 1, 1, 0]


def test_path_and_split_are_no_classes(tmp_path):
    content = "part,dog,image,cat\ntrain,1,a.jpg,0\nval,0,b.jpg,1\ntest,1,c.jpg,1\n"
    data = read(tmp_path, content, labels=COLUMNS, split_column="part")
    assert data.table.classes == ("cat", "dog") and data.report["columns_not_read"] == []
    assert truth(data) == {"a.jpg": [0, 1], "b.jpg": [1, 0], "c.jpg": [1, 1]}
    assert data.table.split.tolist() == [0, 1, 2]


# ---------------------------------------------------------------------------------------------- harmless forms
HARMLESS = {
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "carriage returns": lambda text: text.replace(b"\n", b"\r\n"),
    "carriage returns alone": lambda text: text.replace(b"\n", b"\r"),
    "blank lines": lambda text: b"\n" + text.replace(b"\nb", b"\n\n  \n,\nb") + b"\n \n,\n",
    "no last line feed": lambda text: text.rstrip(b"\n"),
    "blanks around": lambda text: text.replace(b",", b" , ").replace(b";", b" ; ").replace(b"\n", b"  \n"),
    "blanks after a last quote": lambda text: text.replace(b"cat;dog\n", b'"cat;dog" \n'),
    "quotes": lambda text: text.replace(b"a.jpg", b'"a.jpg"').replace(b"cat;dog", b' "cat;dog"'),
    "empty names": lambda text: text.replace(b"cat;dog", b";cat;;dog; ;"),
    "a name twice": lambda text: text.replace(b"cat;dog", b"cat;dog;cat"),
    "backslashes": lambda text: text.replace(b"sub/d", b"sub\\d"),
    "dots": lambda text: text.replace(b"sub/d", b"./sub//d"),
    "other case": lambda text: text.replace(b"b.jpg", b"b.JPG"),
    "empty fields at the end": lambda text: text.replace(b"dog\n", b"dog,,\n"),
    "other order": lambda text: b"".join([text.splitlines(True)[0], *sorted(text.splitlines(True)[1:])[::-1]]),
    "rows twice": lambda text: text + b"a.jpg,dog;cat\nsub\\d.jpg,bird\n",
}


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS.keys())
def test_harmless_forms_change_nothing(tmp_path, change):
    data, plain = read(tmp_path, change(PLAIN)), read(tmp_path, PLAIN)
    assert truth(data) == truth(plain) == TRUTH
    assert data.table.paths == plain.table.paths and data.table.split.tolist() == plain.table.split.tolist()
    repeated = change is HARMLESS["rows twice"]
    assert data.report["repeated_rows"] == (2 if repeated else 0)
    assert data.report["rows"] == (6 if repeated else 4)
    assert data.report["found_without_case"] == (change is HARMLESS["other case"])


@pytest.mark.parametrize(("delimiter", "letter"), [("tab", "\t"), ("semicolon", ";"), ("comma", ",")])
def test_every_delimiter(tmp_path, delimiter, letter):
    content = f'image{letter}labels\na.jpg{letter}"cat;dog"\nb.jpg{letter}"dog"\nc.jpg{letter}\nsub/d.jpg{letter}bird\n'
    assert truth(read(tmp_path, content, delimiter=delimiter)) == TRUTH


def test_another_separator_and_quoted_delimiters(tmp_path):
    content = 'image,labels\na.jpg,"cat, big, dog"\nb.jpg,"say ""no"""\n'
    labels = NAMES | {"separator": ", "}
    data = read(tmp_path, content, labels=labels, val_fraction=0, test_fraction=0)
    assert data.table.classes == ("big", "cat", "dog", 'say "no"')


def test_endings_on_disk_in_another_case_and_of_other_kinds(tmp_path):
    data = read(tmp_path, "image,labels\nE.jpg,cat\nf.jfif,dog\n", "E.JPG", "f.jfif", val_fraction=0, test_fraction=0)
    assert truth(data) == {"E.JPG": [1, 0], "f.jfif": [0, 1]} and data.report["found_without_case"] == 1
    assert data.image(0) == tmp_path / "E.JPG"


def test_unicode_forms_of_table_and_files_meet(tmp_path):
    composed, apart = "été.jpg", unicodedata.normalize("NFD", "été.jpg")
    label = unicodedata.normalize("NFD", "forêt")
    data = read(tmp_path, f"image,labels\n{composed},{label}\na.jpg,forêt\n", apart, val_fraction=0, test_fraction=0)
    assert data.table.classes == ("forêt",)
    row = data.table.paths.index(composed)
    file = data.image(row)
    assert isinstance(file, Path) and file.is_file() and file.name == apart


def test_a_blank_that_is_no_ascii_is_part_of_a_name(tmp_path):
    data = read(tmp_path, "image,labels\na.jpg,柴\u3000犬\n", val_fraction=0, test_fraction=0)
    assert data.table.classes == ("柴\u3000犬",)


def test_names_that_differ_in_case_are_two_classes_where_they_are_listed_so(tmp_path):
    content = "image,labels\na.jpg,Cat\nb.jpg,cat\n"
    with pytest.raises(
        SourceError, match=r"look alike .*list them: prepare: classes\): 'Cat' and 'cat' \(line 2 and line 3"
    ):
        read(tmp_path, content)
    data = read(tmp_path, content, classes=["Cat", "cat"], val_fraction=0, test_fraction=0)
    assert data.table.classes == ("Cat", "cat")
    assert data.report["warnings"] == ["classes differ only in case: Cat, cat - one class? write one of them"]


@pytest.mark.parametrize("name", ["label", "Labels", "CLASS", "target", "category"])
def test_a_column_called_label_is_no_class_unless_it_is_listed(tmp_path, name):
    content = f"image,{name},dog\na.jpg,1,0\nb.jpg,0,1\nc.jpg,1,1\n"
    with pytest.raises(SourceError, match=rf"columns would be classes of these names: {name}\. Where such a column"):
        read(tmp_path, content, labels=COLUMNS)
    data = read(tmp_path, content, labels=COLUMNS, classes=["dog", name])
    assert data.table.classes == ("dog", name) and data.report["warnings"] == []


WARNED = {
    "numbers": (["0", "1.0", "-1", "n02", "3rd"], {}, ["classes are called -1, 0, 1.0: if these numbers"]),
    "numbers that are listed": (["0", "1", "0"], {"classes": ["0", "1"]}, []),
    "words of columns": (["cat", "Label", "images"], {}, ["classes are called Label, images: if that is no class"]),
    "another separator": (
        ["cat|dog", "cat", "dog"],
        {},
        ["each of these is one class, but '|' seems to .*: 'cat|dog'"],
    ),
    "a mark within a name": (["cat, big", "dog, small", "fox|x"], {}, []),
    "one class": (["cat", "cat", "cat"], {}, ["every image has the one class, cat"]),
    "one class, listed": (["cat", "cat", "cat"], {"classes": ["cat"]}, ["every image has the one class, cat"]),
    "one class, not of all": (["cat", "", "cat"], {}, []),
}


@pytest.mark.parametrize(("labels", "changes", "warnings"), WARNED.values(), ids=WARNED.keys())
def test_doubtful_classes_are_warned_of(tmp_path, labels, changes, warnings):
    paths = ["a.jpg", "b.jpg", "c.jpg", "sub/d.jpg", "e.jpg"]
    rows = [f'{path},"{label}"' for path, label in zip(paths, labels, strict=False)]
    data = read(tmp_path, "\n".join(["image,labels", *rows]), "e.jpg", exhaustive=False, **changes)
    found = data.report["warnings"]
    assert len(found) == len(warnings)
    for line, words in zip(found, warnings, strict=True):
        assert re.match(words.replace("|", r"\|"), line), line


# ---------------------------------------------------------------------------------------------- groups
GROUPED = ["a.jpg,cat,p1", "b.jpg,dog,p1", "c.jpg,dog,", "sub/d.jpg,cat, p\u0075\u0308 "]


def grouped(*rows: str, head: str = "image,labels,of") -> str:
    return "\n".join([head, *(rows or GROUPED)])


def test_groups_are_kept_with_their_images(tmp_path):
    data = read(tmp_path, grouped(), group_column="of")
    of = dict(zip(data.table.paths, data.table.groups or (), strict=True))
    assert of == {"a.jpg": "p1", "b.jpg": "p1", "c.jpg": "", "sub/d.jpg": "p\xfc"}  # NFC, without blanks
    assert data.table.classes == ("cat", "dog") and data.report["columns_not_read"] == []
    assert data.report["groups"] == {
        "of_several_images": 1,
        "images_in_them": 2,
        "largest": {"name": "p1", "images": 2},
        "images_without_a_group": 1,
        "images_in_the_split_of_their_group": 0,
    }
    split = dict(zip(data.table.paths, data.table.split.tolist(), strict=True))
    assert split["a.jpg"] == split["b.jpg"] == 0 and {split["c.jpg"], split["sub/d.jpg"]} == {1, 2}
    plain = read(tmp_path, grouped())
    assert plain.table.groups is None and "groups" not in plain.report
    assert plain.report["columns_not_read"] == ["of"]


@pytest.mark.parametrize("word", ["nan", "NaN", "None", "NA", "n/a", "null", "<NA>"])
def test_what_programs_write_where_there_is_no_value_is_no_group(tmp_path, word):
    data = read(
        tmp_path,
        grouped(f"a.jpg,cat,{word}", f"b.jpg,dog,{word}", "c.jpg,dog,p2", "sub/d.jpg,cat,p2"),
        group_column="of",
    )
    assert dict(zip(data.table.paths, data.table.groups or (), strict=True)) == {
        "a.jpg": "", "b.jpg": "", "c.jpg": "p2", "sub/d.jpg": "p2",
    }  # fmt: skip


def test_images_without_a_split_go_where_their_group_is(tmp_path):
    rows = ["a.jpg,cat,p1,", "b.jpg,dog,p1,test", "c.jpg,dog,p2,val", "sub/d.jpg,cat,,"]
    content = grouped(*rows, head="image,labels,of,part")
    data = read(tmp_path, content, group_column="of", split_column="part")
    split = dict(zip(data.table.paths, data.table.split.tolist(), strict=True))
    assert split == {"a.jpg": 2, "b.jpg": 2, "c.jpg": 1, "sub/d.jpg": 0}
    assert data.report["groups"]["images_in_the_split_of_their_group"] == 1


CUT = {
    "named splits": (
        grouped("a.jpg,cat,p1,test", "b.jpg,dog,p1,train", "c.jpg,dog,p2,val", head="image,labels,of,part"),
        {"split_column": "part"},
        r"groups are cut by splits \(give all images of a group one split\): 'p1': line 2 test and line 3 train",
    ),
    "a group that all splits are smaller than": (
        grouped("a.jpg,cat,p1", "b.jpg,dog,p1", "c.jpg,dog,p1", "sub/d.jpg,cat,"),
        {},
        "the group 'p1' has 3 images, and train is to have 2 of 4 images that are drawn; no split cuts a group: name "
        r"splits in the data, change val_fraction or test_fraction, or read no groups \(group_column or group_key: ",
    ),
    "groups that a split is smaller than": (
        grouped("a.jpg,cat,p1", "b.jpg,dog,p1", "c.jpg,dog,p2", "sub/d.jpg,cat,p2"),
        {},
        "no group fits: the group 'p1' has 2 images, and test is to have 1 of 4 images",
    ),
    "one path in two groups": (
        grouped("a.jpg,cat,p1", "a.jpg,cat,p2", "b.jpg,dog,"),
        {},
        "duplicate paths with different labels, splits or groups: line 2 and line 3 'a.jpg'",
    ),
    "joined rows of two groups": (
        grouped("a.jpg,cat,p1", "a.jpg,dog,p2", "b.jpg,dog,"),
        {"labels": {"kind": "rows", "column": "labels", "present": None}},
        "rows of one path name different groups: line 2 and line 3 'a.jpg'",
    ),
    "no such column": (PLAIN, {}, r"no column 'of' \(prepare: group_column\)"),
}


@pytest.mark.parametrize("content, changes, words", CUT.values(), ids=[*CUT])
def test_a_group_that_cannot_stay_whole_is_named(tmp_path, content, changes, words):
    with pytest.raises(SourceError, match=words):
        read(tmp_path, content, group_column="of", **changes)


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ("12", "12.0", "'12' and '12.0'"),  # pandas, as soon as another row of a column is blank
        ("12.000", "12.", "'12.000' and '12.'"),
        ("0012", "12", "'0012' and '12'"),  # read as a number, written without the zeros
        ("-3", "-3,0", "'-3' and '-3,0'"),
        ("0", "00.0", "'0' and '00.0'"),
        ("p 1", "p\xa01", r"'p 1' and 'p\\xa01' \('p\\xa01'\)"),
        ("p1", "p\u200b1", None),
        ("p1", "\uff501", None),
        ("1.5", "1.50", False),  # no whole number: may be a number of a chapter
        ("12", "-12", False),
        ("12", "1.2", False),
        ("p1", "P1", False),
        ("120", "12.0", False),
    ],
)
def test_one_group_in_two_forms_is_never_two_groups(tmp_path, one, other, told):
    rows = [f"a.jpg,cat,{one}", "b.jpg,dog,", f'c.jpg,dog,"{other}"', "sub/d.jpg,cat,"]
    if told is False:
        assert len(set(read(tmp_path, grouped(*rows), group_column="of").table.groups or ())) == 3
        return
    how = r"\(write one of them everywhere; if they are two groups, put another letter before each\)"
    words = rf"names of groups differ in writing alone {how}: {told or '.*'} \(line 2 and line 4\)"
    with pytest.raises(SourceError, match=words):
        read(tmp_path, grouped(*rows), group_column="of")
    read(tmp_path, grouped(*rows))  # no matter where they are no groups


def test_groups_of_two_files_that_one_program_wrote_meet(tmp_path):
    """Of one file a value was missing, so its numbers became fractions."""
    for split, rows in (("train", "a.jpg,cat,1\nb.jpg,dog,2\n"), ("test", "c.jpg,cat,1.0\nd.jpg,dog,\n")):
        write_files(tmp_path / split, "labels.csv", content=f"image,labels,of\n{rows}")
        write_files(tmp_path / split, *(line.partition(",")[0] for line in rows.splitlines()))
    with pytest.raises(
        SourceError, match=r"'1' and '1.0' \(test/labels.csv line 2 and train/labels.csv line 2\)|'1.0' and '1'"
    ):
        csv.read(settings(file="*/labels.csv", group_column="of"), tmp_path)


# ---------------------------------------------------------------------------------------------- rules
def test_a_present_child_makes_its_ancestors_present_and_a_class_of_them(tmp_path):
    content = "image,labels\na.jpg,puppy\nb.jpg,cat\nc.jpg,sofa\nsub/d.jpg,sofa;dog\n"
    rules = {"parents": {"puppy": "dog", "dog": ["animal"], "cat": "animal"}, "exclusive": [["cat", "dog"]]}
    data = read(tmp_path, content, exhaustive=False, **rules)
    assert data.table.classes == ("animal", "cat", "dog", "puppy", "sofa")
    assert truth(data) == {
        "a.jpg": [1, 0, 1, 1, -1],
        "b.jpg": [1, 1, 0, 0, -1],
        "c.jpg": [-1, -1, -1, -1, 1],
        "sub/d.jpg": [1, 0, 1, -1, 1],
    }
    implied = dict(zip(data.table.paths, np.array(data.table.implied, int).tolist(), strict=True))
    assert implied["a.jpg"] == [1, 1, 1, 0, 0] and implied["c.jpg"] == [0] * 5
    assert data.table.rules == Rules({"puppy": ("dog",), "dog": ("animal",), "cat": ("animal",)}, (("cat", "dog"),))
    counts = {key: value for key, value in data.report["implied"].items() if key != "classes"}
    assert counts == {"made_present": 4, "of_them_said_to_be_absent": 0, "made_absent": 4}
    assert data.report["cells"] == {"present": 9, "absent": 4, "unknown": 7}


def test_of_labels_that_are_exhaustive_the_child_counts_and_the_absent_parent_is_overruled(tmp_path):
    content = "image,labels\na.jpg,dog\nb.jpg,animal\nc.jpg,sofa\nsub/d.jpg,dog;animal\n"
    data = read(tmp_path, content, parents={"dog": "animal"})
    assert truth(data) == {"a.jpg": [1, 1, 0], "b.jpg": [1, 0, 0], "c.jpg": [0, 0, 1], "sub/d.jpg": [1, 1, 0]}
    counts = {key: value for key, value in data.report["implied"].items() if key != "classes"}
    assert counts == {"made_present": 1, "of_them_said_to_be_absent": 1, "made_absent": 0}
    assert data.table.exhaustive and data.table.scored.all()


def test_splits_are_drawn_with_what_is_implied(tmp_path):
    """Each image has a breed of its own, and every other one is a cat by it: the cats are spread."""
    names = [f"{number}.png" for number in range(20)]
    rows = [f"{name},{'cat' if number % 2 else 'dog'} {number}" for number, name in enumerate(names)]
    parents = {f"{'cat' if number % 2 else 'dog'} {number}": "cat" if number % 2 else "dog" for number in range(20)}
    data = read(tmp_path, "\n".join(["image,labels", *rows]), *names, parents=parents)
    support = data.table.truth[:, [data.table.classes.index(name) for name in ("cat", "dog")]]
    assert support.sum(axis=0).tolist() == [10, 10]


RULED = {
    "labels that exclude each other": (
        PLAIN,
        {"exclusive": [["cat", "dog"]]},
        r"images have labels that exclude each other \(prepare: exclusive\): line 2 'a.jpg' cat and dog",
    ),
    "a child and what its parent excludes": (
        PLAIN,
        {"exclusive": [["pet", "dog"]], "parents": {"cat": "pet"}},
        "images have labels that exclude each other .*: line 2 'a.jpg' cat and dog",
    ),
    "an unknown child": (PLAIN, {"parents": {"cats": "pet"}}, "prepare: parents: no class cats; there are bird, cat"),
    "an unknown parent": (
        PLAIN,
        {"parents": {"cat": "pet"}, "classes": ["bird", "cat", "dog"]},
        "prepare: parents: no class pet",
    ),
    "an unknown class": (PLAIN, {"exclusive": [["cat", "cow"]]}, "prepare: exclusive: no class cow"),
    "a cycle": (PLAIN, {"parents": {"cat": "dog", "dog": "cat"}}, "prepare: parents: .* is a cycle"),
}


@pytest.mark.parametrize("content, changes, words", RULED.values(), ids=[*RULED])
def test_rules_that_do_not_suit_the_labels_are_named(tmp_path, content, changes, words):
    with pytest.raises(SourceError, match=words):
        read(tmp_path, content, **changes)


# ---------------------------------------------------------------------------------------------- splits
def test_a_split_column_is_followed(tmp_path):
    content = "image,labels,part\na.jpg,cat,Test\nb.jpg,cat,train\nc.jpg,cat,valid\nsub/d.jpg,cat,training\n"
    data = read(tmp_path, content, split_column="part")
    assert dict(zip(data.table.paths, data.table.split.tolist(), strict=True)) == {
        "b.jpg": 0,
        "c.jpg": 1,
        "sub/d.jpg": 0,
        "a.jpg": 2,
    }
    assert data.table.paths[3] == "a.jpg" and data.table.official.tolist() == [0, 0, 0, 1]
    assert data.report["split"] == {"given": ["train", "val", "test"], "drawn": {}, "seed": 0}


def test_a_split_that_the_column_does_not_name_is_drawn_from_train(tmp_path):
    rows = [f"{number}.png,cat,{'test' if number < 4 else 'train'}" for number in range(12)]
    names = [f"{number}.png" for number in range(12)]
    data = read(tmp_path, "\n".join(["image,labels,part", *rows]), *names, split_column="part")
    assert [len(data.table.rows(part)) for part in ("train", "val", "test")] == [6, 2, 4]
    assert sorted(data.table.paths[row] for row in data.table.rows("test")) == names[:4]
    assert data.report["split"] == {"given": ["train", "test"], "drawn": {"val": 0.25}, "seed": 0}


def test_the_seed_draws_the_split_whatever_the_order_of_rows(tmp_path):
    names = [f"{number:02d}.png" for number in range(40)]
    rows = [f"{name},{'cat' if number % 2 else 'dog'}" for number, name in enumerate(names)]
    first = read(tmp_path, "\n".join(["image,labels", *rows]), *names).table
    other = read(tmp_path, "\n".join(["image,labels", *rows[::-1]])).table
    assert first.paths == other.paths and np.array_equal(first.split, other.split)
    assert first.paths != read(tmp_path, "\n".join(["image,labels", *rows]), split_seed=1).table.paths
    assert [first.truth[first.rows(part)].sum(axis=0).tolist() for part in ("val", "test")] == [[5, 5], [5, 5]]


# ---------------------------------------------------------------------------------------------- faults
FAULTS = {
    "twice with different labels": (
        PLAIN + b"a.jpg,cat\n",
        {},
        r"labels\.csv: duplicate paths with different labels, splits or groups: line 2 and line 6 'a\.jpg'",
    ),
    "twice in different splits": (
        b"image,labels,part\na.jpg,cat,train\na.jpg,cat,test\n",
        {"split_column": "part"},
        r"duplicate paths with different labels, splits or groups: line 2 and line 3",
    ),
    "no picture": (PLAIN + b"e.jpg,cat\n", {}, r"paths have no picture file: line 6 'e\.jpg'"),
    "no picture at all": (b"image,labels\ne.jpg,cat\nf.jpg,cat\n", {}, r"2 of 2 images have no file: e\.jpg, f\.jpg"),
    "no path": (PLAIN + b",cat\n", {}, r"invalid paths: line 6 path '' is empty"),
    "absolute": (
        PLAIN + b"C:\\x.jpg,cat\n",
        {},
        r"invalid paths \(write them .* dog/x\.jpg\): line 6 path 'C:\\\\x\.jpg' is absolute",
    ),
    "climbs": (PLAIN + b"../x.jpg,cat\n", {}, r"line 6 path '\.\./x\.jpg' climbs"),
    "unknown label": (PLAIN, {"classes": ["cat", "dog"]}, r"labels\.csv: labels are not in classes: line 5 'bird'$"),
    "label with a line feed": (PLAIN + b'd.jpg,"cat\nfish"\n', {}, r"invalid class names: line 6 'cat\\nfish'"),
    "value": (
        b"image,cat,dog\na.jpg,1,yess\nb.jpg,2,0\n",
        {"labels": COLUMNS},
        r"2 values are none of 1, 0, .*: line 2, column dog: 'yess', line 3, column cat: '2'",
    ),
    "split word": (
        b"image,labels,part\na.jpg,cat,train\nb.jpg,cat,\nc.jpg,cat,eval\n",
        {"split_column": "part"},
        r"values are none of train, val and test: line 4, column part: 'eval'",
    ),
    "path column": (PLAIN, {"path_column": "file"}, r"no column 'file' \(prepare: path_column\).*image, labels"),
    "label column": (b"image,label\na.jpg,cat\n", {}, r"no column 'labels' \(prepare: labels: column\)"),
    "split column": (PLAIN, {"split_column": "part"}, r"no column 'part' \(prepare: split_column\)"),
    "class column": (
        b"image,cat\na.jpg,1\n",
        {"labels": COLUMNS, "classes": ["cat", "dog"]},
        r"no column 'dog' \(prepare: classes\)",
    ),
    "wrong delimiter": (PLAIN, {"delimiter": "tab"}, r"no column 'image' .* there are: image,labels$"),
    "column twice": (b"image,cat,cat\na.jpg,1,1\n", {"labels": COLUMNS}, r"duplicate columns: cat"),
    "too many fields": (
        PLAIN + b"d.jpg,cat,dog\n",
        {},
        r"rows have more fields than the header \(quote a field .* or part names by ;\): line 6 \(3 for 2\)",
    ),
    "too few fields": (PLAIN + b"d.jpg\n", {}, r"rows have fewer fields than the header: line 6 \(1 for 2\)"),
    "other case": (
        PLAIN + b"A.jpg,cat;dog\n",
        {},
        r"paths differ only in case or unicode form: line 2 'a\.jpg' and line 6 'A\.jpg'",
    ),
    "other unicode form": (
        "image,labels\né.jpg,cat\ne\u0301.jpg,cat\n".encode(),
        {},
        r"paths differ only in case or unicode form: line 2 '\\xe9\.jpg' and line 3 'e\\u0301\.jpg'",
    ),
    "quote not closed": (PLAIN + b'd.jpg,"cat\ne.jpg,dog\n', {}, r"labels\.csv: line 6: unexpected end of data"),
    "quote in the middle": (PLAIN + b'"d"x.jpg,cat\n', {}, r"labels\.csv: line 6: "),
    "not text": (b"image\xff", {}, r"labels\.csv: cannot be read as UTF-8"),
    "another mark": (
        b"sep=;\n" + PLAIN,
        {},
        r"labels\.csv: its first line says sep=;, and the settings say ',': delim",
    ),
    "empty": (b"\n \n", {}, r"labels\.csv is empty"),
    "header alone": (b"image,labels\n", {}, r"labels\.csv: no image in it"),
    "no label": (b"image,labels\na.jpg,\n", {}, r"labels\.csv: no class in it"),
    "no class column": (b"image,\na.jpg,\n", {"labels": COLUMNS}, r"labels\.csv: no class in it"),
    "class named twice": (PLAIN, {"classes": ["cat", "dog", "cat "]}, r"prepare: classes: duplicate class names: cat"),
    "class without a name": (PLAIN, {"classes": ["cat", " "]}, r"prepare: classes: invalid class names \(.*\): ''"),
}


@pytest.mark.parametrize(("content", "changes", "words"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_named_with_line_and_column(tmp_path, content, changes, words):
    with pytest.raises(SourceError, match=words):
        read(tmp_path, content, "é.jpg", **changes)


def test_all_faults_are_counted_and_the_first_named(tmp_path):
    rows = [f"x{number}.jpg,cat" for number in range(25)]
    with pytest.raises(SourceError) as caught:
        read(tmp_path, "\n".join(["image,labels", "a.jpg,dog", *rows, "a.jpg,cat", "too,many,fields"]))
    lines = str(caught.value).split("\n")
    assert len(lines) == 3
    assert lines[0].startswith("labels.csv: rows have more fields")
    assert lines[1].startswith("labels.csv: duplicate paths")
    assert lines[2].startswith("labels.csv: 25 paths have no picture file: line 3 'x0.jpg', ")
    assert "'x19.jpg'" in lines[2] and "'x20.jpg'" not in lines[2] and lines[2].endswith(" and 5 more")


def test_two_files_for_one_path_are_ambiguous(tmp_path):
    with pytest.raises(SourceError, match=r"images have several files: E\.JPG = e\.JPG"):
        read(tmp_path, "image,labels\ne.jpg,cat\na.jpg,cat\n", "e.JPG", "E.JPG")
    with pytest.raises(SourceError, match=r"labels\.csv: invalid paths \(.*\): line 3 "):  # rows come first
        read(tmp_path, "image,labels\ne.jpg,cat\n/a.jpg,cat\n")


# ---------------------------------------------------------------------------------------------- settings
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"delimiter": ","}, "delimiter"),
        ({"labels": NAMES | {"separator": ""}}, "separator"),
        ({"labels": {"kind": "names", "column": "labels"}}, "separator"),
        ({"labels": COLUMNS | {"empty": "present"}}, "empty"),
        ({"labels": COLUMNS | {"kind": "both"}}, "kind"),
        ({"classes": []}, "classes"),
        ({"val_fraction": 0.5, "test_fraction": 0.5}, "leave nothing to train on"),
        ({"test_fraction": -0.1}, "test_fraction"),
        ({"labels": COLUMNS | dict.fromkeys(("zero", "minus_one"), "unknown")}, "exhaustive: true, but no value"),
        ({"labels": COLUMNS | {"empty": "absent"}, "exhaustive": False}, "exhaustive: false, but no value"),
        *(
            (
                named | {one: "same", other: "same"},
                rf"{'(' + one + '|' + other + ')'}: 'same' is .*_column too, and says one thing",
            )
            for named in ({}, {"labels": COLUMNS})
            for one, other in itertools.combinations(("path_column", "split_column", "group_column"), 2)
        ),
        *(
            ({key: "labels"}, rf"labels.column: 'labels' is {key} too, and says one thing: name another, or null")
            for key in ("path_column", "split_column", "group_column")
        ),
        ({"labels": COLUMNS, "classes": ["a", "of"], "group_column": " of"}, "classes.1: 'of' is group_column too"),
        ({"labels": {"kind": "rows", "column": "k", "present": "k"}}, "labels.present: 'k' is labels.column too"),
    ],
)
def test_impossible_settings_are_refused(changes, words):
    with pytest.raises(ValidationError, match=words):
        settings(**changes)


# ---------------------------------------------------------------------------------------------- csv and json agree
POOL = ["a.jpg", "é ü.jpg", "sub/b;c,d.PNG", 'sub/deep/"q".jpg', "x'y.tiff"]
LABELS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Cs")), min_size=1, max_size=6).map(
    lambda text: unicodedata.normalize("NFC", text).strip().replace("|", "/")
)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pool")
    write_files(folder, *POOL)
    return folder


def equal(ours: Dataset, theirs: Dataset) -> bool:
    one, other = ours.table, theirs.table
    arrays = all(np.array_equal(getattr(one, key), getattr(other, key)) for key in ("truth", "scored", "split"))
    same = all(getattr(one, key) == getattr(other, key) for key in ("paths", "classes", "exhaustive", "groups"))
    files = all(ours.image(row) == theirs.image(row) for row in range(len(one.paths)))
    return arrays and same and files and np.array_equal(one.official, other.official)


@checks(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_table_written_as_csv_and_as_json_is_the_same_dataset(pool, data):
    paths = data.draw(st.lists(st.sampled_from(POOL), min_size=1, unique=True))
    classes = data.draw(st.lists(LABELS.filter(bool), min_size=1, max_size=4, unique=True).map(sorted))
    classes = [label for label in classes if label not in ("image", "labels", "part", "of")] or ["cat"]
    cells = {path: data.draw(st.lists(st.sampled_from([1, 0, -1]), min_size=len(classes), max_size=len(classes)))
             for path in paths}  # fmt: skip
    parts = {path: data.draw(st.sampled_from(["train", "val", "test"])) for path in paths}
    split, exhaustive, lines, grouped = (data.draw(st.booleans()) for _ in range(4))
    kind = data.draw(st.lists(st.sampled_from(["", "x", "7"]), min_size=len(paths), max_size=len(paths)))
    group = {path: f"{each}{parts[path] if each else ''}" for path, each in zip(paths, kind, strict=True)}
    delimiter = data.draw(st.sampled_from(["comma", "tab", "semicolon"]))

    def table(header: list[str], rows: list[list]) -> None:
        text = io.StringIO()
        out = writer.writer(text, delimiter=csv.DELIMITERS[delimiter], quoting=data.draw(st.sampled_from([0, 1])))
        out.writerows([header, *rows])
        (pool / "labels.csv").write_text(text.getvalue(), encoding="utf-8", newline="")

    def entries(keys: dict[str, int]) -> None:
        found = [
            {"path": path, "in": parts[path], "of": group[path]}
            | {
                key: [label for label, cell in zip(classes, cells[path], strict=True) if cell == value]
                for key, value in keys.items()
            }
            for path in paths
        ]
        text = "\n".join(encoder.dumps(entry) for entry in found) if lines else encoder.dumps(found, indent=1)
        (pool / "labels.json").write_text(text)

    common = {
        "root": ".",
        "size": 8,
        **PICTURES,
        "classes": classes,
        "val_fraction": 0.3,
    }
    common |= {"test_fraction": 0.3, "split_seed": 7, "unlabelled": None}
    common |= {"val_fraction": 0.0, "test_fraction": 0.0} if grouped else {}
    content = {"kind": "objects", "path_key": "path", "labels_key": "has", "separator": None, "absent_key": "not"}
    content |= {"split_key": "in" if split else None, "group_key": "of" if grouped else None}
    keys = common | {"source": "json", "file": "labels.json", "content": content}
    words = common | {"delimiter": delimiter, "split_column": "part" if split else None}
    words |= {"group_column": "of" if grouped else None}

    # one column per class: 1 present, 0 absent, empty unknown; the same as both lists where nothing else is said
    table(
        ["image", "part", "of", *classes],
        [[path, parts[path], group[path], *({1: 1, 0: 0, -1: ""}[cell] for cell in cells[path])] for path in paths],
    )
    entries({"has": 1, "not": 0})
    ours = csv.read(settings(labels=COLUMNS, exhaustive=False, **words), pool)
    theirs = json.read(json.Settings.model_validate(keys | {"exhaustive": False}), pool)
    assert equal(ours, theirs)
    wanted = [[cell for cell in cells[path]] for path in ours.table.paths]
    assert np.where(ours.table.scored, ours.table.truth, -1).tolist() == wanted

    # names of what is present
    table(
        ["image", "part", "of", "labels"],
        [
            [
                path,
                parts[path],
                group[path],
                "|".join(label for label, cell in zip(classes, cells[path], strict=True) if cell == 1),
            ]
            for path in paths
        ],
    )
    entries({"has": 1})
    names = NAMES | {"separator": "|"}
    ours = csv.read(settings(labels=names, exhaustive=exhaustive, **words), pool)
    theirs = json.read(json.Settings.model_validate(keys | {"exhaustive": exhaustive}), pool)
    assert equal(ours, theirs)
    assert ours.table.truth.tolist() == [[int(cell == 1) for cell in cells[path]] for path in ours.table.paths]
