"""Beliefs and their file: ranking against a slow count, tables of others by hand, and each fault named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core import hdf5
from pipeline.core.errors import FileError, SourceError
from pipeline.labels.beliefs import Beliefs, rank_hidden, read_beliefs, read_given, write_beliefs
from pipeline.labels.table import Table

CLASSES = ("cat", "dog, wet", "Ōwl")
PATHS = ("a/1.png", "b.png", "c d.png", "é.png")


def table() -> Table:
    shape = (len(PATHS), len(CLASSES))
    split = np.array([0, 0, 1, 2], np.uint8)
    return Table(
        CLASSES, PATHS, np.eye(*shape, dtype=np.int8), np.ones(shape, bool), split, (split == 2).astype(np.uint8)
    )


# ---------------------------------------------------------------------------------------------- ranking
@pytest.mark.parametrize("most", [0, 1, 5, 11, 12, 100])
@pytest.mark.parametrize("seed", range(4))
def test_hidden_labels_are_ranked_as_by_a_slow_sort(most: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    belief = np.round(generator.random((6, 3)), 1).astype(np.float32)  # with ties
    observed = generator.integers(-1, 2, belief.shape).astype(np.int8)
    unknown = [(row, column) for row in range(6) for column in range(3) if observed[row, column] == 0]
    expected = sorted(unknown, key=lambda cell: (-float(belief[cell]), *cell))[:most]
    assert rank_hidden(belief, observed == 0, most) == expected


def test_nothing_is_hidden_where_all_is_known() -> None:
    assert rank_hidden(np.full((2, 2), 0.9), np.zeros((2, 2), bool), 5) == []


# ---------------------------------------------------------------------------------------------- the file
def store(path: Path, **changes: Any) -> None:
    given = {"belief": np.full((4, 3), 0.25, np.float32), "logits": np.full((4, 3), -1.0, np.float32), **changes}
    shares = given.get("shares", np.array([[0.2, np.nan, np.nan]] * 3))
    ranking = given.get("ranking", given["logits"])
    found = Beliefs(given["belief"], given["logits"], 1.5, shares, given.get("draw", "count"), ranking)
    write_beliefs(path, found, {}, [], {})


def test_beliefs_come_back_as_they_were_stored(tmp_path: Path) -> None:
    path, belief = tmp_path / "beliefs.h5", np.arange(12, dtype=np.float32).reshape(4, 3) / 12
    store(path, belief=belief)
    found = read_beliefs(path, table())
    assert np.array_equal(found.belief, belief) and (found.logits == -1).all() and found.labels_per_image == 1.5
    np.testing.assert_allclose(found.expected_labels(), [0.25, 1.0, 1.75, 2.5])
    np.testing.assert_array_equal(found.shares, [[0.2, np.nan, np.nan]] * 3)


def test_a_shown_label_stands_for_those_of_its_image_unless_each_was_shown_by_itself(tmp_path: Path) -> None:
    observed = np.array([[0, 0, 0], [1, 0, -1], [1, 1, 0], [0, 1, 0]], np.int8)
    for draw, expected in (("count", [0.75, 0.75, 0.375, 0.75]), ("share", [1.0] * 4)):
        store(tmp_path / f"{draw}.h5", draw=draw)
        np.testing.assert_allclose(read_beliefs(tmp_path / f"{draw}.h5", table()).stands_for(observed), expected)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"belief": np.zeros((3, 3), np.float32)}, "rows or classes of `belief` are not the table's"),
        ({"logits": np.zeros((4, 2), np.float32)}, "rows or classes of `logits` are not the table's"),
        ({"belief": np.full((4, 3), np.nan, np.float32)}, "`belief` holds a value that is not finite"),
        ({"logits": np.full((4, 3), np.inf, np.float32)}, "`logits` holds a value that is not finite"),
        ({"belief": np.full((4, 3), 1.01, np.float32)}, r"`belief` holds a value outside \[0, 1\]"),
        ({"belief": np.full((4, 3), -0.01, np.float32)}, r"`belief` holds a value outside \[0, 1\]"),
        ({"shares": np.full((4, 3), 0.5)}, r"`shares` is not one row a class of shares in \[0, 1\]"),
        ({"shares": np.array([[1.01, 0, 1]] * 3)}, r"`shares` is not one row a class of shares in \[0, 1\]"),
        ({"shares": np.full((3, 3), np.nan)}, r"`shares` is not one row a class of shares in \[0, 1\]"),
    ],
)
def test_a_faulty_file_is_named(tmp_path: Path, changes: dict[str, np.ndarray], words: str) -> None:
    path = tmp_path / "beliefs.h5"
    store(path, **changes)
    with pytest.raises(FileError, match=rf"beliefs\.h5: {words}; run beliefs again"):
        read_beliefs(path, table())


def test_a_file_without_an_array_is_named(tmp_path: Path) -> None:
    path = tmp_path / "beliefs.h5"
    with pytest.raises(FileError, match="beliefs.h5: no such file"):
        read_beliefs(path, table())
    with hdf5.create(path) as file:
        hdf5.write_array(file, "belief", np.zeros((4, 3), np.float32), axes="image, class", units="chance")
    with pytest.raises(FileError, match="lacks an array; run beliefs again"):
        read_beliefs(path, table())


# ---------------------------------------------------------------------------------------------- tables of others
HEADER = 'image,cat,"dog, wet",Ōwl'


def given(tmp_path: Path, *lines: str) -> np.ndarray:
    file = tmp_path / "theirs.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_given(file, table())


def test_a_table_in_another_order_is_read_by_its_names(tmp_path: Path) -> None:
    lines = (
        'Ōwl,image,"dog, wet",cat',
        "0.1,é.png,0.2,0.3",
        "1,c d.png,0,.5",
        "4e-1,b.png,1.0,1e-3",
        "0,a/1.png,0.75,1",
    )
    expected = [[1, 0.75, 0], [1e-3, 1.0, 0.4], [0.5, 0, 1], [0.3, 0.2, 0.1]]
    np.testing.assert_allclose(given(tmp_path, *lines), expected)
    for separator in ("\t", ";"):  # which keep a comma in a name as it is
        plain = [
            separator.join(("Ōwl", "image", "dog, wet", "cat")),
            *(line.replace(",", separator) for line in lines[1:]),
        ]
        np.testing.assert_allclose(given(tmp_path, *plain), expected)


LINES = ("a/1.png,0.1,0.2,0.3", "b.png,0.1,0.2,0.3", "c d.png,0.1,0.2,0.3", "é.png,0.1,0.2,0.3")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((), "theirs.csv: its header lacks "),
        (("image,cat,Ōwl", *LINES), "theirs.csv: its header lacks dog, wet"),
        ((HEADER + ",cow", *LINES), "theirs.csv: its header has cow too"),
        (('image,cat,"dog, wet",owl', *LINES), "theirs.csv: its header lacks Ōwl and has owl too"),
        ((HEADER + ",cat", *LINES), "theirs.csv: its header names a column twice"),
        ((HEADER, *LINES[:3]), "theirs.csv: images have no line: é.png"),
        ((HEADER, *LINES, LINES[1]), "theirs.csv: images have two lines: line 6 'b.png'"),
        ((HEADER, *LINES, "e.png,0,0,0"), "theirs.csv: images are not in the dataset.*: line 6 'e.png'"),
        ((HEADER, *LINES[:3], "é.png,0.1,0.2"), "lines have another number of fields than 4: line 5"),
        ((HEADER, *LINES[:3], "é.png,0.1,0.2,0.3,"), "lines have another number of fields than 4: line 5"),
        *(
            ((HEADER, *LINES[:3], f"é.png,0.1,{value},0.3"), f"chances are no number from 0 to 1: line 5 '{value}'")
            for value in ("1.0001", "-0.1", "nan", "inf", "1e9", "yes", "", "12%")
        ),
    ],
)
def test_a_faulty_table_is_named(tmp_path: Path, lines: tuple[str, ...], words: str) -> None:
    with pytest.raises(SourceError, match=words):
        given(tmp_path, *lines)


def test_all_faults_of_a_table_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        given(tmp_path, HEADER, "a/1.png,2,0,0", "f.png,0,0,0", "b.png,0,0", "a/1.png,0,0,0")
    assert [line.rpartition(": line ")[2].split()[0] for line in str(caught.value).splitlines()] == ["2", "3", "4", "5"]
