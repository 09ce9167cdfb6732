import hashlib
import os
import time
import unicodedata
from pathlib import Path

import pytest

from pipeline.core.errors import SourceError
from pipeline.data import disk

COMPOSED, APART = "é.jpg", unicodedata.normalize("NFD", "é.jpg")


def put(folder: Path, *names: str, data: bytes = b"x") -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def pictures(folder: Path, links: disk.Links = "inside") -> list[str]:
    return disk.scan(folder, links).pictures


# ---------------------------------------------------------------------------------------------- finding pictures
def test_pictures_are_listed_by_ending_at_any_depth(tmp_path):
    put(tmp_path, "b.JPG", "a.jpeg", "d/e/f.Png", "d/g.webp", "d.tiff/h.gif", APART)
    put(tmp_path, "notes.txt", "jpg", ".hidden.jpg", "._b.jpg", ".cache/x.jpg", "d/Thumbs.db", "d/i.JXL", "x.xml")
    found = disk.scan(tmp_path, "inside", (".xml",))
    assert found.pictures == sorted(["b.JPG", "a.jpeg", "d/e/f.Png", "d/g.webp", "d.tiff/h.gif", APART])
    assert (found.unread, found.others) == (["d/i.JXL"], ["x.xml"])


SERVICE = ["@eaDir", "#recycle", "$RECYCLE.BIN", "lost+found", "System Volume Information", ".ipynb_checkpoints"]
SERVICE += ["__MACOSX", "Thumbnails", "@Recycle", ".thumbnails", ".Trash-1000"]


@pytest.mark.parametrize("name", SERVICE)
@pytest.mark.parametrize("above", ["", "cat/"])
def test_folders_of_systems_are_passed_over_and_counted(tmp_path, name, above):
    put(tmp_path, "cat/1.jpg", f"{above}{name}/1.jpg", f"{above}{name}/cat/deep/2.jpg", f"{above}{name}/notes.txt")
    found = disk.scan(tmp_path, "inside")
    assert found.pictures == ["cat/1.jpg"] and found.service == {f"{above}{name}": 2}
    (line,) = found.warnings()
    assert line == f"2 pictures in folders of systems and tools left out: {above}{name} (2)"


def test_each_real_folder_is_read_once_whatever_links_lead_to_it(tmp_path):
    put(tmp_path, "top/cat/a.jpg", "top/dog/b.jpg")
    for folder in ("cat", "dog"):  # each to each: 2 ** depth paths
        for number in range(10):
            (tmp_path / "top" / folder / f"link{number}").symlink_to(tmp_path / "top" / "dog")
            (tmp_path / "top" / folder / f"up{number}").symlink_to(tmp_path / "top")
    found = disk.scan(tmp_path / "top", "inside")  # path by path it would not end
    assert found.pictures == ["cat/a.jpg", "dog/b.jpg"]
    assert len(found.again) == 40 and "links to folders that are read elsewhere" in found.warnings()[0]


def test_links_that_lead_out_are_an_error_unless_they_are_to_be_followed(tmp_path):
    put(tmp_path, "store/cat/a.jpg", "store/b.jpg", "top/dog/c.jpg")
    (tmp_path / "top" / "cat").symlink_to(tmp_path / "store" / "cat")
    (tmp_path / "top" / "two").symlink_to(tmp_path / "store" / "cat")
    (tmp_path / "top" / "dog" / "b.jpg").symlink_to("../../store/b.jpg")
    with pytest.raises(
        SourceError, match=r"^top: 3 links lead out of the folder: cat, dog/b\.jpg, two; .* links: follow"
    ):
        disk.scan(tmp_path / "top", "inside")
    assert pictures(tmp_path / "top", "follow") == ["cat/a.jpg", "dog/b.jpg", "dog/c.jpg"]
    (tmp_path / "alias").symlink_to(tmp_path / "store")  # the folder that is named may itself be a link
    assert pictures(tmp_path / "alias") == ["b.jpg", "cat/a.jpg"]


def test_a_link_to_the_whole_disk_is_not_walked(tmp_path):
    put(tmp_path, "cat/a.jpg")
    (tmp_path / "root").symlink_to("/")
    with pytest.raises(SourceError, match="1 link leads out of the folder: root"):
        disk.scan(tmp_path, "inside")


def test_what_is_no_regular_file_is_left_out(tmp_path):
    put(tmp_path, "a.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    (tmp_path / "loop.jpg").symlink_to(tmp_path / "loop.jpg")
    found = disk.scan(tmp_path, "follow")
    assert found.pictures == ["a.jpg", "loop.jpg"] and found.odd == ["pipe.jpg", "zero.png"]
    assert found.warnings() == ["no regular files, left out: pipe.jpg, zero.png"]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SourceError, match="gone: cannot be read"):
        disk.scan(tmp_path / "gone", "inside")


# ---------------------------------------------------------------------------------------------- states
def digest(lists: dict[str, Path], folders: dict[str, Path], root: Path) -> str:
    return disk.digest(lists, folders, "inside", root)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_state_is_that_of_names_and_bytes(tmp_path):
    put(tmp_path, "list.txt", data=b"a 1")
    put(tmp_path / "pictures", "d/a.jpg", APART, data=b"12345")
    files, folders = {"list.txt": tmp_path / "list.txt"}, {"P": tmp_path / "pictures"}
    state = digest(files, folders, tmp_path)
    lines = [f"P/d/a.jpg\0{sha(b'12345')}\n", f"P/{COMPOSED}\0{sha(b'12345')}\n", f"list.txt\0{sha(b'a 1')}\n"]
    assert state == sha("".join(lines).encode())
    os.utime(tmp_path / "list.txt", (0, 0))
    os.utime(tmp_path / "pictures" / "d" / "a.jpg", (0, 0))
    assert digest(files, folders, tmp_path) == state, "times do not count"
    assert digest(files, {}, tmp_path) != digest({}, folders, tmp_path)


def edit(file: Path, data: bytes, times: str) -> None:
    """Change a file to other bytes of the same number, as an editor or a copy does."""
    before = file.stat()
    if times == "renamed over":
        other = file.with_name("other")
        other.write_bytes(data)
        os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
        other.replace(file)
        return
    with file.open("r+b") as stream:
        stream.write(data)
    if times == "put back":
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("times", ["as they are", "put back", "renamed over"])
def test_an_edit_in_place_of_equal_size_is_seen(tmp_path, monkeypatch, times, kept):
    """Also where the state of the file was kept; that of a young one is not, and it is read each time."""
    pause = 0.02 if kept else 0  # a tick of the file system's clock
    monkeypatch.setattr(disk, "RACY", 0 if kept else disk.RACY)
    file = put(tmp_path / "pictures", "a.jpg", "b.jpg", data=b"12345") / "a.jpg"
    states = []
    for data in (b"12345", b"54321", b"12345"):
        if states:
            edit(file, data, times)
        time.sleep(pause)
        states += [digest({}, {"P": tmp_path / "pictures"}, tmp_path) for _ in range(2)]
    assert states[0] == states[1] == states[4] == states[5] != states[2] == states[3]


def test_only_files_that_moved_are_read_again(tmp_path, monkeypatch):
    put(tmp_path / "pictures", *(f"{number}.jpg" for number in range(5)))
    read, whole = [], disk._hash
    monkeypatch.setattr(disk, "_hash", lambda path, name: (read.append(path.name), whole(path, name))[1])
    monkeypatch.setattr(disk, "RACY", 0)
    time.sleep(0.02)  # a tick of the file system's clock
    state = digest({}, {"P": tmp_path / "pictures"}, tmp_path)
    assert len(read) == 5 and digest({}, {"P": tmp_path / "pictures"}, tmp_path) == state and len(read) == 5
    put(tmp_path / "pictures", "3.jpg", data=b"y")
    assert digest({}, {"P": tmp_path / "pictures"}, tmp_path) != state and read[5:] == ["3.jpg"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a.jpg": [1]}', '{"a.jpg": [1, 2, 3, 4, "x"]}'])
def test_what_was_noted_of_files_is_never_needed(tmp_path, content):
    put(tmp_path / "pictures", "a.jpg", os.fsdecode(b"\xff.jpg"))
    state = digest({}, {"P": tmp_path / "pictures"}, tmp_path)
    (tmp_path / ".pipeline" / "raw").mkdir(parents=True, exist_ok=True)
    for file in (tmp_path / ".pipeline" / "raw").iterdir():
        file.write_text(content)
    assert digest({}, {"P": tmp_path / "pictures"}, tmp_path) == state
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".pipeline").write_text("no folder")
    assert digest({}, {"P": tmp_path / "pictures"}, tmp_path / "other") == state


def test_a_state_needs_its_files(tmp_path):
    with pytest.raises(SourceError, match=r"list\.txt is missing in "):
        digest({"list.txt": tmp_path / "list.txt"}, {}, tmp_path)
    with pytest.raises(SourceError, match="gone: cannot be read"):
        digest({}, {"P": tmp_path / "gone"}, tmp_path)
    (tmp_path / "a.jpg").symlink_to(tmp_path / "gone.jpg")
    with pytest.raises(SourceError, match=r"P/a\.jpg: cannot be read \(No such file"):
        digest({}, {"P": tmp_path}, tmp_path)
