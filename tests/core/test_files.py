import errno
import fcntl
import os
import pickle
import subprocess
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from pipeline.core import files, hdf5, seal
from pipeline.core.errors import FileError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------------------------------------- whole or not at all
def test_bytes_go_through_a_temporary_name_and_are_flushed_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def seen_fsync(descriptor: int) -> None:
        done.append("fsync")
        fsync(descriptor)

    def seen_replace(source: Any, target: Any) -> None:
        done.append("replace")
        assert Path(source).parent == Path(target).parent, "a rename is atomic within one folder"
        assert Path(source).read_bytes() == b"new" and Path(target).read_bytes() == b"old"
        replace(source, target)

    path = tmp_path / "deep" / "down" / "file"
    files.write_bytes(path, b"old")
    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "replace", seen_replace)
    files.write_bytes(path, b"new")
    assert done == ["fsync", "replace"]
    assert path.read_bytes() == b"new" and names(path.parent) == ["file"]


def test_a_writer_that_fails_leaves_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.h5"
    with hdf5.create(path) as file:
        hdf5.write_array(file, "a", np.arange(3), axes="image", units="row")
    before = path.read_bytes()
    with pytest.raises(KeyError, match="midway"):
        with hdf5.create(path) as file:
            hdf5.write_array(file, "a", np.arange(9), axes="image", units="row")
            raise KeyError("midway")

    def no_room(*_: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr(os, "replace", no_room)
    with pytest.raises(FileError, match=r"file\.h5: 4 bytes cannot be written there \(no room\)"):
        files.write_text(path, "new")
    assert path.read_bytes() == before and names(tmp_path) == ["file.h5"]


def test_text_is_utf8_and_ends_with_one_line_feed(tmp_path: Path) -> None:
    for text in ("chien é", "chien é\n", "chien é\n\n\n"):
        files.write_text(tmp_path / "a.txt", text)
        assert (tmp_path / "a.txt").read_bytes() == b"chien \xc3\xa9\n"


def test_hash(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")  # the value is FIPS 180-2's own example
    assert files.sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    (tmp_path / "b").write_bytes(b"a" * 1_000_000)
    assert files.sha256(tmp_path / "b") == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
    with pytest.raises(FileError, match="missing.*No such file"):
        files.sha256(tmp_path / "missing")


# ---------------------------------------------------------------------------------------------- JSON and TSV
def test_json_is_sorted_plain_and_casts_numpy(tmp_path: Path) -> None:
    content = {
        "b": np.float64(0.1),
        "a": [np.int64(3), np.bool_(True), None, "é"],
        "c": {"array": np.array([[1.5, 2.0]]), "tuple": (1, 2)},
        "d": np.float32(0.5),
        3: 1e-7,
    }
    path = tmp_path / "a.json"
    files.write_json(path, content)
    assert files.read_json(path) == {
        "3": 1e-7,
        "a": [3, True, None, "é"],
        "b": 0.1,
        "c": {"array": [[1.5, 2.0]], "tuple": [1, 2]},
        "d": 0.5,
    }
    text = path.read_text()
    assert text.startswith('{\n  "3": 1e-07,\n  "a": [\n    3,\n    true,\n    null,\n    "é"\n  ],\n  "b": 0.1,\n')
    files.write_json(path, dict(reversed(content.items())))
    assert path.read_text() == text  # the order in which keys were set does not show


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ({"a": {"b": [1.0, float("nan")]}}, r"\$\.a\.b\[1\]: nan"),
        ({"a": np.array([[1.0], [np.inf]])}, r"\$\.a\[1\]\[0\]: inf"),
        ([np.float32("-inf")], r"\$\[0\]: -inf"),
        ({"a": {1, 2}}, r"\$\.a: set has no JSON form"),
        ({"a": torch.ones(1)}, r"\$\.a: Tensor has no JSON form"),
        ({"a": b"x"}, r"\$\.a: bytes has no JSON form"),
    ],
)
def test_json_refuses_what_strict_json_cannot_hold(tmp_path: Path, content: Any, where: str) -> None:
    files.write_json(tmp_path / "a.json", 1)
    with pytest.raises(ValueError, match=where):
        files.write_json(tmp_path / "a.json", content)
    assert files.read_json(tmp_path / "a.json") == 1


@pytest.mark.parametrize("data", [b"", b"{", b"{'a': 1}", b"\xff\xfe1", b"[1] 2"])
def test_json_that_is_none_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(FileError, match="a.json: not JSON"):
        files.read_json(tmp_path / "a.json")


def test_tables_keep_full_precision_and_tell_none_from_zero(tmp_path: Path) -> None:
    rows = [
        {"class": "dog\twolf", "ap": np.float64(1 / 3), "n": np.int64(4)},
        {"class": 'a "b"', "ap": None, "n": 0, "late": 1e-300},
        {"class": "two\nlines", "ap": 2.0, "n": 1},
    ]
    path = tmp_path / "a.tsv"
    files.write_tsv(path, rows)
    assert path.read_bytes().split(b"\n")[0] == b"class\tap\tn\tlate" and b"\r" not in path.read_bytes()
    read = files.read_tsv(path)
    assert [row["class"] for row in read] == ["dog\twolf", 'a "b"', "two\nlines"]
    assert float(read[0]["ap"]) == 1 / 3 and read[1]["ap"] == "" and read[2]["ap"] == "2.0"
    assert [row["n"] for row in read] == ["4", "0", "1"]
    assert [row["late"] for row in read] == ["", "1e-300", ""]


def test_tables_take_columns_refuse_others_and_not_a_number(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    files.write_tsv(path, [], ["a", "b"])
    assert path.read_text() == "a\tb\n" and files.read_tsv(path) == []
    files.write_tsv(path, [{"a": 1, "b": 2}], ["b", "a"])
    assert path.read_text() == "b\ta\n2\t1\n"
    with pytest.raises(ValueError, match="c"):
        files.write_tsv(path, [{"c": 1}], ["a"])
    with pytest.raises(ValueError, match="a: nan"):
        files.write_tsv(path, [{"a": float("nan")}])
    assert path.read_text() == "b\ta\n2\t1\n"
    path.write_bytes(b"\xff")
    with pytest.raises(FileError, match="a.tsv: not a table of text"):
        files.read_tsv(path)


@pytest.mark.parametrize("read", [files.read_json, files.read_tsv, files.read_torch])
def test_a_file_that_is_absent_is_named_once(tmp_path: Path, read: Any) -> None:
    with pytest.raises(FileError) as caught:
        read(tmp_path / "gone")
    assert str(caught.value) == f"{tmp_path / 'gone'}: no such file; run the stage that makes it"


# ---------------------------------------------------------------------------------------------- torch
def test_tensors_come_back_and_bytes_do_not_depend_on_the_name(tmp_path: Path) -> None:
    content = {
        "state": {"a": torch.arange(3.0), "b": torch.tensor(2), "c": torch.ones(2, dtype=torch.float16)},
        "plain": [1, 2.5, "x", None, True, (1, 2)],
    }
    files.write_torch(tmp_path / "a.pt", content)
    files.write_torch(tmp_path / "elsewhere" / "long_name.pt", content)
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "elsewhere" / "long_name.pt").read_bytes()
    read = files.read_torch(tmp_path / "a.pt")
    assert read["plain"] == content["plain"]
    for name, value in content["state"].items():
        assert torch.equal(read["state"][name], value) and read["state"][name].dtype == value.dtype


class Run:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_no_code_of_a_file_is_run(tmp_path: Path) -> None:
    torch.save({"a": Run(tmp_path / "ran")}, tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps(Run(tmp_path / "ran"), protocol=2))
    for name in ("a.pt", "b.pt"):
        with pytest.raises(FileError, match=f"{name}: not a file of tensors and plain data") as caught:
            files.load_torch(tmp_path / name)
        assert "weights_only" not in str(caught.value), "no advice to switch safety off"
    assert not (tmp_path / "ran").exists()


def test_a_numpy_scalar_is_no_plain_data(tmp_path: Path) -> None:
    files.write_torch(tmp_path / "a.pt", {"best": np.float64(3.0)})
    with pytest.raises(FileError, match="a.pt"):
        files.read_torch(tmp_path / "a.pt")


def test_any_damage_to_a_tensor_file_is_an_error_of_ours_or_none(tmp_path: Path) -> None:
    path, generator = tmp_path / "a.pt", np.random.default_rng(0)
    files.write_torch(path, {"a": torch.arange(3.0), "b": ["x", 1, None]})
    whole = path.read_bytes()
    refused = 0
    for trial in range(120):
        damaged = bytearray(whole if trial % 3 else generator.bytes(int(generator.integers(0, 40))))
        if trial % 3 == 1:
            damaged = damaged[: generator.integers(len(whole))]
        if trial % 3 == 2:
            for place in generator.integers(0, len(whole), 8):
                damaged[place] = generator.integers(256)
        path.write_bytes(damaged)
        try:
            files.read_torch(path)
        except FileError as error:
            assert str(error).startswith(f"{path}: ")
            refused += 1
    assert refused > 80


# ---------------------------------------------------------------------------------------------- HDF5
def test_hdf5_round_trip_with_axes_and_units(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.h5"
    labels = np.array([[1, 0], [-1, 0]], dtype=np.int8)
    with hdf5.create(path) as file:
        hdf5.write_array(file, "labels", labels, axes="image, class", units="label", compress=True)
        hdf5.write_array(file, "none", np.zeros((0, 2), np.int8), axes="round, class", units="label", compress=True)
        hdf5.write_array(file, "names", ("chien é", "owl"), axes="class", units="name")
        hdf5.write_array(file, "paths", np.array(["a/b", "ü"], dtype=object), axes="image", units="path")
        file.attrs["epoch"] = 3
    with hdf5.read(path) as file:
        assert file["labels"].dtype == np.int8 and np.array_equal(file["labels"][()], labels)
        assert (file["labels"].attrs["axes"], file["labels"].attrs["units"]) == ("image, class", "label")
        assert file["labels"].compression == "gzip" and file["none"].shape == (0, 2)
        assert hdf5.read_strings(file["names"]) == ["chien é", "owl"]
        assert hdf5.read_strings(file["paths"]) == ["a/b", "ü"]
        assert file.attrs["epoch"] == 3 and list(file) == ["labels", "none", "names", "paths"]
        with pytest.raises(OSError, match="no write intent"):
            file["labels"][0, 0] = 0  # what another stage wrote is never changed


def test_the_same_content_is_the_same_hdf5_bytes(tmp_path: Path) -> None:
    for name in ("a.h5", "b.h5"):
        with hdf5.create(tmp_path / name) as file:
            hdf5.write_array(file, "x", np.arange(500) % 7, axes="image", units="row", compress=True)
            hdf5.write_array(file, "names", ["x", "yy"], axes="class", units="name")
            for number in range(12):
                file.attrs[f"attribute {number}"] = number
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_a_finished_hdf5_file_is_read_without_a_lock(tmp_path: Path) -> None:
    """Disks without locks refuse them, and so does a file that another process has locked."""
    with hdf5.create(tmp_path / "a.h5") as file:
        hdf5.write_array(file, "a", np.arange(3), axes="image", units="row")
    with open(tmp_path / "a.h5", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with hdf5.read(tmp_path / "a.h5") as file:
            assert file["a"][()].tolist() == [0, 1, 2]


def test_hdf5_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    def refused(path: Path, reason: str) -> None:
        with pytest.raises(FileError, match=f"{path.name}: {reason}"):
            with hdf5.read(path):
                raise AssertionError("opened")

    refused(tmp_path / "gone.h5", "no such file; run the stage that makes it")
    refused(tmp_path, "no such file")
    for name, data in (("empty.h5", b""), ("text.h5", b"<html>" * 100)):
        (tmp_path / name).write_bytes(data)
        refused(tmp_path / name, "no sound seal")
    with h5py.File(tmp_path / "unfinished.h5", "w") as file:
        file["x"] = 1
    refused(tmp_path / "unfinished.h5", "no sound seal")
    with hdf5.create(tmp_path / "cut.h5") as file:
        hdf5.write_array(file, "x", np.arange(9000), axes="image", units="row")
    (tmp_path / "cut.h5").write_bytes((tmp_path / "cut.h5").read_bytes()[:5000])
    refused(tmp_path / "cut.h5", "no sound seal")
    (tmp_path / "other.h5").write_bytes(b"no HDF5")
    seal.append(tmp_path / "other.h5")
    refused(tmp_path / "other.h5", "not a readable HDF5 file")


def test_an_allocated_array_has_its_room_and_takes_what_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    hdf5.allocate(path, "x", (1 << 20, 5), axes="image, byte", units="none", size=3)
    assert path.stat().st_blocks * 512 >= 5 << 20, "a sparse file meets a full disk only when its pages are written"
    array = hdf5.map_array(path, "x")
    array[7] = range(5)
    array.flush()
    seal.append(path)
    with hdf5.read(path) as file:
        assert file["x"][7].tolist() == [0, 1, 2, 3, 4] and file.attrs["size"] == 3
    assert names(tmp_path) == ["a.h5"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_a_full_disk_is_an_error_and_a_file_system_that_cannot_reserve_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    path = tmp_path / "a.h5"
    if number in (errno.ENOSPC, errno.EDQUOT):
        with pytest.raises(OSError, match=os.strerror(number)):
            hdf5.allocate(path, "x", (4,), axes="byte", units="none")
        assert names(tmp_path) == []
    else:
        hdf5.allocate(path, "x", (4,), axes="byte", units="none")
        assert hdf5.map_array(path, "x").shape == (4,)


@pytest.mark.parametrize("linked", [True, False])
def test_a_file_is_put_in_place_whole_and_flushed_and_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def no_link(*_: Any) -> None:
        raise OSError(errno.EXDEV, "another disk")

    def seen_replace(source: Any, target: Any) -> None:
        done.append("replace")
        assert Path(source).parent == Path(target).parent and Path(source).read_bytes() == b"new"
        assert Path(target).read_bytes() == b"old"
        replace(source, target)

    source, path = tmp_path / "scratch", tmp_path / "out" / "file"
    source.write_bytes(b"new")
    files.write_bytes(path, b"old")
    monkeypatch.setattr(os, "fsync", lambda descriptor: (done.append("fsync"), fsync(descriptor))[1])
    monkeypatch.setattr(os, "replace", seen_replace)
    if not linked:
        monkeypatch.setattr(os, "link", no_link)
    files.link_or_copy(source, path)
    assert done == ["fsync", "replace"]
    assert path.read_bytes() == source.read_bytes() == b"new" and names(path.parent) == ["file"]
    assert source.samefile(path) == linked


def test_a_disk_that_fills_up_leaves_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*_: Any) -> None:
        raise OSError(errno.EXDEV, "another disk")

    def full(source: Any, target: Any) -> None:
        Path(target).write_bytes(b"ne")
        raise OSError(errno.ENOSPC, "No space left on device")

    source, path = tmp_path / "scratch", tmp_path / "out" / "file"
    source.write_bytes(b"new")
    files.write_bytes(path, b"old")
    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(files.shutil, "copyfile", full)
    with pytest.raises(FileError, match="out/file: 3 bytes cannot be written there .No space left on device"):
        files.link_or_copy(source, path)
    assert path.read_bytes() == b"old" and names(path.parent) == ["file"]


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
import h5py
from pipeline.core import files, hdf5, seal

def die(*paths):
    Path(paths[-1]).touch()
    os.kill(os.getpid(), signal.SIGKILL)

def no_link(*_):
    raise OSError

os.link, shutil.copyfile, h5py.File = no_link, die, lambda path, *_, **__: die(path)
if sys.argv[1] == "copy":
    files.link_or_copy(sys.argv[2], sys.argv[3])
hdf5.allocate(sys.argv[3], "x", (9,), axes="byte", units="none")
"""


@pytest.mark.parametrize("writer", ["copy", "allocate"])
def test_what_a_killed_writer_left_is_deleted(tmp_path: Path, repository: Path, writer: str) -> None:
    """As of a copy to another disk: it is large, and nobody else would delete it."""
    source, path = tmp_path / "scratch", tmp_path / "out" / "images.h5"
    source.write_bytes(b"new")
    words = [sys.executable, "-c", KILLED, writer, str(source), str(path)]
    assert subprocess.run(words, cwd=repository).returncode == -9
    assert len(names(path.parent)) == 1 and names(path.parent)[0].endswith(".tmp")
    files.link_or_copy(source, path)
    assert names(path.parent) == ["images.h5"] and path.read_bytes() == b"new"


def test_temporary_files_of_living_writers_and_other_names_stay(tmp_path: Path) -> None:
    here = files._host()
    alive, dead = f"{here}-{os.getppid()}", f"{here}-99999999"
    stays = [f".a.{alive}.tmp", ".a.tmp", f".ab.{dead}.tmp", f"a.{dead}.tmp", ".a.99999999.tmp"]
    stays += [f".x.a.{dead}.tmp", f".a.{dead}.tmp.x", f".a.{here}-{10**30}.tmp"]
    for name in (*stays, f".a.{dead}.tmp"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))  # however long ago it was written
    files.write_text(tmp_path / "a", "new")
    assert names(tmp_path) == sorted([*stays, "a"])


@pytest.mark.parametrize("process", [os.getppid(), 99_999_999])
def test_temporary_files_of_other_hosts_are_deleted_after_a_day(tmp_path: Path, process: int) -> None:
    """What a number of a process means there is not known here: a shared disk, two containers on one volume."""
    other = f"{int(files._host(), 16) ^ 1:08x}-{process}"
    hours = {"a": 25, "b": 23, "c": 0, "d": -30}  # a clock may be ahead
    for name, age in hours.items():
        left = tmp_path / f".{name}.{other}.tmp"
        left.touch()
        os.utime(left, (0, time.time() - age * 3600))
        files.write_text(tmp_path / name, "new")
    assert names(tmp_path) == sorted([*hours, *(f".{name}.{other}.tmp" for name in "bcd")])


def test_a_temporary_name_tells_its_host_and_its_process(tmp_path: Path) -> None:
    with hdf5.create(tmp_path / "a"):
        assert names(tmp_path) == [f".a.{files._host()}-{os.getpid()}.tmp"]


def test_hosts_starts_and_containers_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is no /proc, by name only."""
    tell = files._host.__wrapped__
    found = [tell(), tell()]
    assert found[0] == found[1] == files._host() and len(found[0]) == 8 and int(found[0], 16) >= 0
    changes: list[tuple[Any, str, Any]] = [
        (files.platform, "node", lambda: "elsewhere"),
        (os, "readlink", lambda path: {"/proc/self/ns/pid": "pid:[1]"}[path]),
        (Path, "read_text", lambda path: {"/proc/sys/kernel/random/boot_id": "another"}[str(path)]),
    ]
    for change in changes:
        with monkeypatch.context() as patch:
            patch.setattr(*change)
            found.append(tell())
    assert len(set(found)) == 4

    def absent(*_: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(os, "readlink", absent)
    monkeypatch.setattr(Path, "read_text", absent)
    bare = tell()
    monkeypatch.setattr(files.platform, "node", lambda: "elsewhere")
    assert len({*found, bare, tell()}) == 6


def test_where_asking_for_a_process_would_end_it_nobody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (left := tmp_path / f".a.{files._host()}-99999999.tmp").touch()
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "kill", lambda *_: pytest.fail("a process was ended"))
        patch.setattr(files.os, "name", "nt")
        files._delete_stale_temporaries(tmp_path / "a")
    assert left.exists()


def test_importing_files_loads_neither_torch_nor_h5py(repository: Path) -> None:
    code = "import sys, pipeline.core.files; sys.exit(bool({'torch', 'h5py'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=repository).returncode == 0


# ---------------------------------------------------------------------------------------------- arrays in place
def test_an_array_in_place_starts_as_zeros_keeps_what_is_written_and_is_plain_bytes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.f32"
    array = hdf5.open_array(path, (3, 2, 2), "float32")
    assert array.dtype == np.float32 and array.shape == (3, 2, 2) and not array.any()
    array[1] = [[1.5, 2], [3, -4]]
    array.flush()
    assert path.read_bytes() == bytes(16) + np.array([1.5, 2, 3, -4], "<f4").tobytes() + bytes(16)
    again = hdf5.open_array(path, (3, 2, 2), "float32")
    assert np.array_equal(again, array) and names(path.parent) == ["a.f32"]
    again[0] = 7
    assert (array[0] == 7).all()  # one file, however often it is opened


def test_a_new_array_takes_no_disk_before_it_is_written(tmp_path: Path) -> None:
    array = hdf5.open_array(tmp_path / "a", (1 << 30,), "float32")
    assert array[-1] == 0
    status = (tmp_path / "a").stat()
    assert status.st_size == 1 << 32 and status.st_blocks * 512 < 1 << 20


def test_an_array_of_another_size_is_refused_and_left(tmp_path: Path) -> None:
    path = tmp_path / "a"
    hdf5.open_array(path, (2, 3), "float32")[:] = 1
    before = path.read_bytes()
    for shape, dtype in (((2, 4), "float32"), ((2, 3), "float64"), ((2, 2), "float32")):
        with pytest.raises(
            FileError, match=r"a: 24 bytes, where \(2, \d\) of float\d\d are \d+; `spml scratch --clear`"
        ):
            hdf5.open_array(path, shape, dtype)
    assert path.read_bytes() == before


def test_making_an_array_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(OSError, match="killed"):
            hdf5.open_array(tmp_path / "a", (5,), "float32")
    assert names(tmp_path) == []
    assert hdf5.open_array(tmp_path / "a", (5,), "float32").size == 5


# ---------------------------------------------------------------------------------------------- hostile content
@pytest.mark.parametrize("text", ["=1+1", "+1", "-x", "@SUM(A1)", "\t=1", "'=1", "''=1", "=", "-"])
def test_a_text_that_a_spreadsheet_would_run_is_text_there_and_comes_back(tmp_path: Path, text: str) -> None:
    files.write_tsv(tmp_path / "a.tsv", [{"class": text, "n": -1.5, "m": -2}])
    stored = (tmp_path / "a.tsv").read_bytes().decode().partition("\n")[2]
    assert stored.lstrip('"')[0] == "'" and stored.endswith("\t-1.5\t-2\n")  # numbers stay numbers
    assert files.read_tsv(tmp_path / "a.tsv") == [{"class": text, "n": "-1.5", "m": "-2"}]


@pytest.mark.parametrize("text", ["a=1", "'", "'a", "it's", "é-", "1+1", ""])
def test_other_text_is_stored_as_it_is(tmp_path: Path, text: str) -> None:
    files.write_tsv(tmp_path / "a.tsv", [{"class": text, "n": 1}])
    assert (tmp_path / "a.tsv").read_text() == f"class\tn\n{text}\t1\n"
    assert files.read_tsv(tmp_path / "a.tsv") == [{"class": text, "n": "1"}]


def test_a_long_field_is_read(tmp_path: Path) -> None:
    files.write_tsv(tmp_path / "a.tsv", [{"a": "x" * 200_000}])
    assert files.read_tsv(tmp_path / "a.tsv") == [{"a": "x" * 200_000}]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000])
def test_json_without_end_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(FileError, match=r"a\.json: not JSON \([^\n]*\)$"):
        files.read_json(tmp_path / "a.json")


def test_a_compressed_file_of_tensors_is_refused_unread(tmp_path: Path) -> None:
    """128 MiB of zeros in 128 KiB: read, it would take their memory; checked by its checksums, their time."""
    files.write_torch(tmp_path / "a.pt", {"a": torch.zeros(3)})
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as plain,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as out,
    ):
        for part in plain.namelist():
            out.writestr(part, plain.read(part))
        out.writestr("archive/data/1", bytes(1 << 27))
    tracemalloc.start()
    with pytest.raises(
        FileError, match=r"b\.pt: not a file of tensors and plain data \(.* is damaged or compressed\)$"
    ):
        files.load_torch(tmp_path / "b.pt")
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def hostile_hdf5(file: Any, kind: str, secret: Path) -> None:
    """Put something that is read from elsewhere, or without end, into an HDF5 file."""
    if kind == "external link":
        file["x"] = h5py.ExternalLink(str(secret), "/a")
    elif kind == "soft link":
        file["x"] = h5py.SoftLink("/x")
    elif kind == "external data":
        file.create_dataset("x", (8,), "u1", external=[(str(secret), 0, 8)])
    elif kind == "virtual data":
        layout = h5py.VirtualLayout((3,), "i8")
        layout[:] = h5py.VirtualSource(str(secret), "a", (3,))
        file.create_virtual_dataset("x", layout)
    else:
        group = file.create_group("x")
        group["y"] = group


@pytest.mark.parametrize("kind", ["external link", "soft link", "external data", "virtual data", "a group in itself"])
def test_hdf5_is_read_from_its_own_file_alone(tmp_path: Path, kind: str) -> None:
    with hdf5.create(tmp_path / "secret.h5") as file:
        hdf5.write_array(file, "a", np.arange(3), axes="image", units="row")
    with hdf5.create(tmp_path / "a.h5") as file:
        hostile_hdf5(file, kind, tmp_path / "secret.h5")
    with pytest.raises(FileError, match=r"a\.h5: `x` is no array of this file; run the stage that makes it$"):
        with hdf5.read(tmp_path / "a.h5"):
            pass
