import os
import unicodedata
from typing import Literal

import numpy as np
import pytest

from pipeline.core import faults
from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults
from pipeline.core.text import read_fields, read_text
from pipeline.data import raw
from pipeline.labels.splits import split_rows
from tests.trees import PICTURES

CUT = {
    "root": "raw",
    "size": 8,
    **PICTURES,
    "val_fraction": 0.25,
    "split_seed": 3,
}
COMPOSED, APART = "é.jpg", unicodedata.normalize("NFD", "é.jpg")


def match(wanted: list[str], found: list[str], bad_images: Literal["stop", "drop"] = "stop") -> list[str]:
    gathered = Faults("list.txt")
    result = raw.match_files(wanted, found, "here", bad_images, gathered)
    gathered.raise_if_any()
    return result


# ---------------------------------------------------------------------------------------------- settings and rows
def test_the_raw_folder_counts_from_the_project_or_from_home_or_is_absolute(tmp_path, monkeypatch):
    (tmp_path / "raw").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    for text in ("raw", "~/raw", str(tmp_path / "raw")):
        assert raw.find_root(raw.Cut.model_validate(CUT | {"root": text}), tmp_path) == tmp_path / "raw"
    with pytest.raises(SourceError, match=r"prepare: root: no folder .*gone$"):
        raw.find_root(raw.Cut.model_validate(CUT | {"root": "gone"}), tmp_path)


def test_only_the_training_part_is_cut_wherever_its_rows_are():
    settings = raw.Cut.model_validate(CUT)
    official = [1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0]
    result = raw.split_official(official, settings)
    train, val = split_rows(8, 0.25, 3)
    training = [1, 2, 4, 5, 7, 8, 9, 10]
    assert result.dtype == np.uint8 and len(val) == 2
    assert np.flatnonzero(result == 0).tolist() == [training[row] for row in train]
    assert np.flatnonzero(result == 1).tolist() == [training[row] for row in val]
    assert np.flatnonzero(result == 2).tolist() == [0, 3, 6]


# ---------------------------------------------------------------------------------------------- text
def test_fields_of_any_harmless_form(tmp_path):
    file = tmp_path / "list.txt"
    file.write_bytes("\ufeffa  1\r\n\n \t \r\n\tb\t-1 \rc 0".encode() + unicodedata.normalize("NFD", "\né 1").encode())
    assert list(read_fields(file)) == [
        ("list.txt:1", ["a", "1"]),
        ("list.txt:4", ["b", "-1"]),
        ("list.txt:5", ["c", "0"]),
        ("list.txt:6", ["é", "1"]),
    ]


def test_text_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(SourceError, match=r"list\.txt is missing in "):
        read_text(tmp_path / "list.txt")
    for data in (b"\xff\xfea\x00b", "é".encode("latin-1")):
        (tmp_path / "list.txt").write_bytes(data)
        with pytest.raises(SourceError, match=r"list\.txt: cannot be read as UTF-8 text"):
            read_text(tmp_path / "list.txt")
    with pytest.raises(SourceError, match="no regular file"):
        read_text(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_text_with_a_byte_order_mark_is_read_in_any_of_unicodes_encodings(tmp_path, encoding):
    (tmp_path / "list.txt").write_bytes("é 1\r\nb 0\rc".encode(encoding))
    assert read_text(tmp_path / "list.txt") == "é 1\nb 0\nc"


def test_a_pipe_is_no_list_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "list.txt")
    with pytest.raises(SourceError, match=r"list\.txt: cannot be read in .* \(no regular file\)"):
        read_text(tmp_path / "list.txt")


def test_of_many_names_twenty_are_shown():
    names = [f"n{number}" for number in range(23)]
    assert faults.preview(names[:20]) == ", ".join(names[:20])
    assert faults.preview(names) == ", ".join(names[:20]) + " and 3 more"
    assert faults.summarize(names) == {"count": 23, "first": names[:20]}
    assert faults.summarize([]) == {"count": 0, "first": []}


# ---------------------------------------------------------------------------------------------- pictures
def test_names_meet_in_nfc_and_then_without_case():
    found = ["A.JPG", APART, "d/b.jpg", "d/B.jpg", "rest.jpg"]
    assert match(["a.jpg", COMPOSED, "d/b.jpg"], found) == ["A.JPG", APART, "d/b.jpg"]
    assert match([], found) == []


@pytest.mark.parametrize(
    "wanted, found, words",
    [
        (["d/B.JPG"], ["d/b.jpg", "d/B.jpg"], r"here: images have several files: d/B\.jpg = d/b\.jpg$"),
        ([COMPOSED], [COMPOSED, APART], "here: images have several files: "),
        (["a.jpg", "a.jpg"], ["a.jpg"], r"here: files stand for several images: a\.jpg for a\.jpg and a\.jpg$"),
        (["a.jpg", "A.jpg"], ["a.jpg"], r"here: files stand for several images: a\.jpg for a\.jpg and A\.jpg$"),
        (["a.jpg", "b.jpg"], ["b.jpg"], r"here: images have no file: a\.jpg$"),
        (["b.png"], ["b.jpg"], r"here: 1 of 1 images have no file: b\.png; the folder holds b\.jpg$"),
        (["b.png"], [], r"here: 1 of 1 images have no file: b\.png; the folder holds no picture$"),
    ],
)
def test_names_without_one_file_of_their_own_are_told(wanted, found, words):
    with pytest.raises(SourceError, match=words):
        match(wanted, found)


def test_a_missing_file_may_be_left_to_the_packing_unless_all_are():
    assert match(["gone.jpg", "b.jpg"], ["B.jpg"], "drop") == ["gone.jpg", "B.jpg"]
    with pytest.raises(SourceError, match="here: 2 of 2 images have no file"):
        match(["gone.jpg", "b.jpg"], ["c.jpg"], "drop")
