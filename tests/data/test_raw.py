import hashlib
import os
import unicodedata
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from pipeline.core import faults
from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults
from pipeline.core.text import read_fields, read_text
from pipeline.data import raw
from pipeline.labels.splits import split_rows

CUT = {"root": "raw", "size": 8, "bad_images": "stop", "val_fraction": 0.25, "split_seed": 3}
COMPOSED, APART = "é.jpg", unicodedata.normalize("NFD", "é.jpg")


def match(wanted: list[str], found: list[str], bad_images: Literal["stop", "drop"] = "stop") -> list[str]:
    gathered = Faults("list.txt")
    result = raw.match_files(wanted, found, "here", bad_images, gathered)
    gathered.raise_if_any()
    return result


def digest(lists: dict[str, Path], pictures: dict[str, Path]) -> str:
    return raw.digest(raw.Files(Path("anywhere"), lists, pictures, Faults("")))


def put(folder: Path, *names: str, data: bytes = b"x") -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


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
    for data in (b"\xff\xfea\x00", "é".encode("latin-1")):
        (tmp_path / "list.txt").write_bytes(data)
        with pytest.raises(SourceError, match=r"list\.txt: cannot be read as UTF-8 text"):
            read_text(tmp_path / "list.txt")
    with pytest.raises(SourceError, match="cannot be read as UTF-8 text"):
        read_text(tmp_path)


def test_of_many_names_twenty_are_shown():
    names = [f"n{number}" for number in range(23)]
    assert faults.preview(names[:20]) == ", ".join(names[:20])
    assert faults.preview(names) == ", ".join(names[:20]) + " and 3 more"
    assert faults.summarize(names) == {"count": 23, "first": names[:20]}
    assert faults.summarize([]) == {"count": 0, "first": []}


# ---------------------------------------------------------------------------------------------- pictures
def test_pictures_are_listed_by_ending_at_any_depth(tmp_path):
    put(tmp_path, "b.JPG", "a.jpeg", "d/e/f.Png", "d/g.webp", "d.tiff/h.gif", APART)
    put(tmp_path, "notes.txt", "jpg", ".hidden.jpg", "._b.jpg", ".cache/x.jpg", "__MACOSX/b.jpg", "d/Thumbs.db")
    assert raw.list_pictures(tmp_path) == sorted(["b.JPG", "a.jpeg", "d/e/f.Png", "d/g.webp", "d.tiff/h.gif", APART])


def test_links_are_followed_but_not_in_circles(tmp_path):
    put(tmp_path, "store/cat/a.jpg")
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "one").symlink_to(tmp_path / "store" / "cat")
    (tmp_path / "top" / "two").symlink_to(tmp_path / "store" / "cat")
    (tmp_path / "store" / "cat" / "up").symlink_to(tmp_path / "store")
    assert raw.list_pictures(tmp_path / "top") == ["one/a.jpg", "two/a.jpg"]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SourceError, match="gone: cannot be read"):
        raw.list_pictures(tmp_path / "gone")


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


# ---------------------------------------------------------------------------------------------- states
def test_a_state_is_that_of_names_bytes_and_sizes(tmp_path):
    put(tmp_path, "list.txt", data=b"a 1")
    put(tmp_path / "pictures", "d/a.jpg", APART, data=b"12345")
    files, folders = {"list.txt": tmp_path / "list.txt"}, {"P": tmp_path / "pictures"}
    state = digest(files, folders)
    lines = [f"P/d/a.jpg\0{5}\n", f"P/{COMPOSED}\0{5}\n", f"list.txt\0{hashlib.sha256(b'a 1').hexdigest()}\n"]
    assert state == hashlib.sha256("".join(lines).encode()).hexdigest()
    put(tmp_path / "pictures", "d/a.jpg", data=b"54321")
    os.utime(tmp_path / "list.txt", (0, 0))
    assert digest(files, folders) == state, "no picture is opened, and times do not count"
    put(tmp_path / "pictures", "d/a.jpg", data=b"123456")
    assert digest(files, folders) != state
    assert digest(files, {}) != digest({}, folders)


def test_a_state_needs_its_files(tmp_path):
    with pytest.raises(SourceError, match=r"list\.txt: cannot be read in .* \(No such file"):
        digest({"list.txt": tmp_path / "list.txt"}, {})
    with pytest.raises(SourceError, match="gone: cannot be read"):
        digest({}, {"P": tmp_path / "gone"})
    (tmp_path / "a.jpg").symlink_to(tmp_path / "gone.jpg")
    with pytest.raises(SourceError, match=r"P/a\.jpg: cannot be read \(No such file"):
        digest({}, {"P": tmp_path})
