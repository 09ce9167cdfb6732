import unicodedata

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core import seal
from pipeline.core.errors import FileError
from pipeline.core.text import relative_path
from pipeline.labels.implications import Rules
from pipeline.labels.table import Table, read_split_rows, read_splits, read_table, write_splits, write_table


def make(**changes) -> Table:
    fields = {
        "classes": ("cat", "dog"),
        "paths": ("a/1.jpg", "a/2.jpg", "b/1.jpg"),
        "truth": np.array([[1, 0], [0, 0], [1, 1]], np.int8),
        "scored": np.array([[1, 1], [0, 1], [1, 1]], bool),
        "split": np.array([1, 0, 2], np.uint8),
        "official": np.array([0, 0, 1], np.uint8),
    }
    return Table(**(fields | changes))


def same(one: Table, other: Table) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        and getattr(one, name).dtype == getattr(other, name).dtype
        for name in ("truth", "scored", "split", "official")
    ) and all(
        getattr(one, name) == getattr(other, name) for name in ("classes", "paths", "exhaustive", "groups", "rules")
    )


def test_rows_of_a_split():
    table = make(split=np.array([2, 0, 2], np.uint8), official=np.array([1, 0, 1], np.uint8))
    assert table.rows("train").tolist() == [1]
    assert table.rows("val").tolist() == []
    assert table.rows("test").tolist() == [0, 2]
    assert table.rows("val").dtype == np.int64
    with pytest.raises(ValueError, match="no split 'dev'"):
        table.rows("dev")


def test_labels_that_are_not_exhaustive_count_as_absent_where_they_are_unknown():
    """Rows 1, 0, 2 are train, val, test; in row 1 and class 0 nothing is known."""
    whole, partial = make(), make(exhaustive=False)
    for table in (whole, partial):
        labels, counted = table.reference("train")
        assert labels.tolist() == [[0, 0]] and counted.tolist() == [[not table.exhaustive, True]]
        labels, counted = table.reference("test")
        assert labels.tolist() == [[1, 1]] and counted.all()
    assert [whole.measurable(name) for name in ("train", "val", "test")] == [True] * 3
    # each has one row, which lacks nothing: a ranking of positives alone is right whatever the predictions
    assert [partial.measurable(name) for name in ("train", "val", "test")] == [False] * 3
    both = make(exhaustive=False, split=np.array([2, 0, 2], np.uint8), official=np.array([1, 0, 1], np.uint8))
    assert not both.measurable("test")  # a cat in both
    dogless = make(exhaustive=False, truth=np.array([[0, 0], [0, 0], [1, 1]], np.int8), split=both.split)
    assert dogless.measurable("test") and not dogless.measurable("train")


def test_rows_are_taken_in_the_order_asked():
    taken = make(exhaustive=False).take(np.array([2, 0]))
    wanted = {"truth": [[1, 1], [1, 0]], "scored": [[1, 1], [1, 1]], "split": [2, 1], "official": [1, 0]}
    assert taken.paths == ("b/1.jpg", "a/1.jpg") and not taken.exhaustive
    assert {name: getattr(taken, name).astype(int).tolist() for name in wanted} == wanted


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"classes": ()}, "classes must be"),
        ({"classes": ["cat", "dog"]}, "classes must be"),
        ({"classes": ("cat", "cat")}, "duplicate name 'cat'"),
        ({"classes": ("cat", "")}, "number 1 is ''"),
        ({"classes": ("cat", " ")}, "number 1 is ' '"),
        ({"classes": ("cat", True)}, "number 1 is True"),
        ({"classes": ("cat", "dog\t")}, "blanks around"),
        ({"classes": ("cat", "do\ng")}, "control character"),
        ({"classes": ("cat", unicodedata.normalize("NFD", "é"))}, "NFC"),
        ({"paths": ("a/1.jpg", "a/2.jpg", "a/1.jpg")}, "duplicate name 'a/1.jpg'"),
        ({"paths": ("a/1.jpg", "a/2.jpg", "/b/1.jpg")}, "absolute"),
        ({"paths": ("a/1.jpg", "a/2.jpg", "../1.jpg")}, "climbs"),
        ({"paths": ("a/1.jpg", "a/2.jpg", "b\\1.jpg")}, "b/1.jpg"),
        ({"paths": ("a/1.jpg", "a/2.jpg")}, r"truth has shape \(3, 2\), expected \(2, 2\)"),
        ({"truth": np.zeros((3, 2))}, "truth is float64, expected an array of int8"),
        ({"truth": [[1, 0]] * 3}, "truth is list"),
        ({"truth": np.array([[1, 0], [0, 0], [1, 2]], np.int8)}, r"truth holds 2 at \(2, 1\) \(b/1.jpg\)"),
        ({"truth": np.array([[1, 0], [0, -1], [1, 1]], np.int8)}, r"truth holds -1 at \(1, 1\)"),
        ({"truth": np.array([[1, 0], [1, 0], [1, 1]], np.int8)}, "truth is 1 where scored is False, for a/2.jpg"),
        ({"scored": np.ones((3, 2), np.int8)}, "scored is int8"),
        ({"split": np.array([0, 0, 3], np.uint8)}, r"split holds 3 at \(2,\)"),
        ({"split": np.array([0, 0, 2])}, "split is int64"),
        ({"official": np.array([0, 2, 1], np.uint8)}, "official holds 2"),
        ({"official": np.array([0, 1, 1], np.uint8)}, "a/2.jpg is an official test image in the train split"),
    ],
)
def test_an_impossible_table_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        make(**changes)


@pytest.mark.parametrize(
    "text, path",
    [
        ("a/b.jpg", "a/b.jpg"),
        ("actor\\0001_2.jpg", "actor/0001_2.jpg"),  # NUS-WIDE lists
        ("./a//b.jpg", "a/b.jpg"),
        (unicodedata.normalize("NFD", "été.jpg"), "été.jpg"),
        ("a..b/c.jpg", "a..b/c.jpg"),
    ],
)
def test_paths_are_brought_to_one_form(text, path):
    assert relative_path(text) == path


@pytest.mark.parametrize(
    "text, words",
    [
        ("/etc/passwd", "absolute"),
        ("C:\\a.jpg", "absolute"),
        ("\\\\host\\a.jpg", "absolute"),
        ("a/../../b.jpg", "climbs"),
        ("..", "climbs"),
        ("a\\..\\b.jpg", "climbs"),
        ("", "empty"),
        ("./", "empty"),
        ("a\0b.jpg", "control"),
        ("a\nb.jpg", "control"),
    ],
)
def test_paths_that_leave_the_dataset_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        relative_path(text)


@given(st.text())
def test_a_path_in_form_stays_as_it_is(text):
    try:
        path = relative_path(text)
    except ValueError:
        return
    assert relative_path(path) == path
    assert not path.startswith("/") and ".." not in path.split("/") and path == unicodedata.normalize("NFC", path)


def test_a_table_comes_back_as_it_was(tmp_path):
    table = make(classes=("café", "犬 | 1"), paths=("é/1.jpg", "a b/2.jpg", "ñ.png"), exhaustive=False)
    write_table(tmp_path / "table.h5", table)
    assert same(read_table(tmp_path / "table.h5"), table)
    with h5py.File(tmp_path / "table.h5") as file:
        assert file["truth"].attrs["axes"] == "image, class"


def test_the_same_table_gives_the_same_bytes(tmp_path):
    for name in ("one.h5", "two.h5"):
        write_table(tmp_path / name, make())
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "two.h5").read_bytes()


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(FileError, match=r"table\.h5"):
        read_table(tmp_path / "table.h5")


def test_an_interrupted_table_is_refused(tmp_path):
    file = tmp_path / "table.h5"
    write_table(file, make())
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileError, match=r"table\.h5"):
        read_table(file)


@pytest.mark.parametrize("field", ["classes", "paths", "truth", "scored", "split", "official"])
def test_a_table_that_lacks_a_field_is_refused(tmp_path, field):
    write_table(tmp_path / "table.h5", make())
    with h5py.File(tmp_path / "table.h5", "a") as file:
        del file[field]
    seal.append(tmp_path / "table.h5")
    with pytest.raises(FileError, match=f"no readable table.*{field}"):
        read_table(tmp_path / "table.h5")


def test_a_stored_table_with_impossible_values_is_refused(tmp_path):
    write_table(tmp_path / "table.h5", make())
    with h5py.File(tmp_path / "table.h5", "a") as file:
        file["split"][0] = 7
    seal.append(tmp_path / "table.h5")
    with pytest.raises(FileError, match="split holds 7"):
        read_table(tmp_path / "table.h5")


# ---------------------------------------------------------------------------------------------- groups
def test_groups_come_back_with_their_rows(tmp_path):
    table = make(groups=("p1", "", "p2"))
    write_table(tmp_path / "table.h5", table)
    assert same(read_table(tmp_path / "table.h5"), table)
    assert table.take(np.array([2, 0])).groups == ("p2", "p1") and make().take(np.array([1])).groups is None
    plain, named = tmp_path / "plain.h5", tmp_path / "named.h5"
    write_table(plain, make())
    write_table(named, make(groups=("", "", "")))
    assert read_table(plain).groups is None and read_table(named).groups == ("", "", "")


def test_groups_of_a_split_are_numbered():
    split, official = np.array([0, 0, 0], np.uint8), np.zeros(3, np.uint8)
    for groups, wanted in ((("p", "", "p"), [0, 1, 0]), (("", "", "p"), [0, 1, 2])):
        found = make(groups=groups, split=split, official=official).group_numbers("train")
        assert found is not None and found.tolist() == wanted
    assert make().group_numbers("train") is None


@pytest.mark.parametrize(
    "groups, words",
    [
        (("p", "", "p"), "the group 'p' is cut by the splits val and test"),
        (("p",), "groups must be 3 names"),
        (("p", None, "q"), "groups must be 3 names"),
    ],
)
def test_groups_that_cannot_be_are_refused(groups, words):
    with pytest.raises(ValueError, match=words):
        make(groups=groups)


# ---------------------------------------------------------------------------------------------- rules
def test_rules_come_back_with_what_they_made(tmp_path):
    rules = Rules({"cat": ("dog",)}, ())
    table = make(rules=rules, implied=np.array([[1, 0], [0, 0], [0, 1]], bool))
    write_table(tmp_path / "table.h5", table)
    found = read_table(tmp_path / "table.h5")
    assert same(found, table) and found.implied is not None
    assert found.implied.tolist() == [[True, False], [False, False], [False, True]]
    taken = table.take(np.array([2, 0]))
    assert taken.rules == rules and taken.implied is not None
    assert taken.implied.tolist() == [[False, True], [True, False]]
    write_table(tmp_path / "plain.h5", make())
    assert read_table(tmp_path / "plain.h5").rules is None and read_table(tmp_path / "plain.h5").implied is None
    with pytest.raises(ValueError, match="implied is .*expected an array of bool"):
        make(rules=rules)


def test_splits_come_back_by_path(tmp_path):
    table = make()
    write_splits(tmp_path / "splits.h5", table)
    found = read_splits(tmp_path / "splits.h5")
    assert list(found) == list(table.paths)
    for number, name in enumerate(("train", "val", "test")):
        rows = table.rows(name)
        assert [path for path, split in found.items() if split == number] == [table.paths[row] for row in rows]
        assert np.array_equal(read_split_rows(tmp_path / "splits.h5", name), rows)
    with pytest.raises(FileError, match="no such file"):
        read_splits(tmp_path / "nowhere.h5")
