import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.core import resume
from pipeline.core.errors import FileError
from pipeline.core.resume import Checkpoint, fingerprint, scratch_folder

HOLD = """
import sys, time
from pathlib import Path
from pipeline.core.resume import Checkpoint
from pipeline.core.errors import FileError
try:
    held = Checkpoint(Path(sys.argv[1]), 0)
except FileError as error:
    sys.exit(str(error))
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still; its one entry is the time."""
    now = [100.0]
    monkeypatch.setattr(resume.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def point(tmp_path: Path) -> Iterator[Checkpoint]:
    made = Checkpoint(tmp_path / "deep" / "run", 20)
    yield made
    made.delete()


def test_what_was_saved_comes_back(clock: list[float], point: Checkpoint) -> None:
    assert point.load() is None
    content = {"parts": {"a": {"x": torch.arange(3.0)}}, "history": {"epoch": 2, "best": -float("inf"), "rows": []}}
    clock[0] += 21
    point.save(content)
    read = point.load()
    assert read is not None and torch.equal(read["parts"]["a"]["x"], content["parts"]["a"]["x"])
    assert read["history"] == content["history"]


def test_it_is_written_once_an_interval(clock: list[float], point: Checkpoint) -> None:
    saved = []
    for second in range(0, 61, 5):
        clock[0] = 100.0 + second
        point.save({"second": second})
        read = point.load()
        saved.append(read["second"] if read else None)
    assert saved == [None] * 4 + [20] * 4 + [40] * 4 + [60]


def test_success_removes_every_trace(clock: list[float], point: Checkpoint) -> None:
    clock[0] += 30
    point.save({})
    (point.folder / "heat").write_bytes(b"hot")
    (point.path / ".state.pt.77.tmp").write_bytes(b"PK")  # a process was killed while it wrote
    other = Checkpoint(point.path.with_name("other"), 20)
    point.delete()
    assert list(point.path.parent.iterdir()) == [other.path]
    other.delete()
    assert not point.path.parent.exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"<html>" * 99])
def test_a_damaged_file_is_named_and_the_run_starts_anew(
    clock: list[float], point: Checkpoint, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    (point.path / "state.pt").write_bytes(content)
    assert point.load() is None
    (line,) = capsys.readouterr().out.splitlines()
    words = f"the resume point in {point.path} is damaged, so the run starts anew ({point.path / 'state.pt'}: no sound "
    assert line.startswith(words)
    assert (point.path / "state.pt").read_bytes() == content  # until the first epoch's is written over it
    point.save({"step": 1}, at_once=True)
    assert point.load() == {"step": 1}


def test_a_turned_bit_in_a_tensor_is_damage(clock: list[float], point: Checkpoint) -> None:
    """Torch itself would load it."""
    values = torch.arange(1000, dtype=torch.float64)
    point.save({"values": values}, at_once=True)
    found = point.load()
    assert found is not None and torch.equal(found["values"], values)
    file = point.path / "state.pt"
    content = bytearray(file.read_bytes())
    content[content.index(values.numpy().tobytes()) + 4000] ^= 1
    file.write_bytes(content)
    assert point.load() is None


def test_a_file_that_the_disk_does_not_give_stops_the_run_and_names_the_remedy(
    point: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be sound, and be there tomorrow: hours of work are not begun anew for that."""
    point.save({"step": 1}, at_once=True)

    def refuse(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        with pytest.raises(FileError, match=r"state\.pt: cannot be read \(.*Input/output error.*spml scratch --clear"):
            point.load()
    assert point.load() == {"step": 1}


def test_it_is_written_at_once_where_that_is_asked_for(clock: list[float], point: Checkpoint) -> None:
    point.save({"step": 1}, at_once=True)
    assert point.load() == {"step": 1}
    clock[0] += 19
    point.save({"step": 2})  # the interval runs from the last write
    assert point.load() == {"step": 1}
    clock[0] += 1
    point.save({"step": 3})
    assert point.load() == {"step": 3}
    point.save({"step": 4}, at_once=True)
    assert point.load() == {"step": 4}


def test_large_state_outlives_a_crash_and_goes_with_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "finetune-digits-scl-0-0" / "0123-0.003-None"
    first, other = Checkpoint(path, 0), Checkpoint(path.with_name("0123-0.01-None"), 0)
    assert [[file.name for file in each.path.iterdir()] for each in (first, other)] == [["lock"], ["lock"]]
    assert first.folder.is_dir() and first.folder.parent == path and first.folder != other.folder
    (first.folder / "heat").write_bytes(b"hot")
    first.save({})
    first.close()  # as the system does when a process ends
    again = Checkpoint(path, 0)
    assert (again.folder / "heat").read_bytes() == b"hot"
    again.delete_disk()
    assert sorted(file.name for file in path.iterdir()) == ["lock", "state.pt"]
    again.delete_disk()
    again.delete()
    assert other.folder.is_dir() and not path.exists()
    other.delete()


# ---------------------------------------------------------------------------------------------- what was abandoned
def leave(path: Path, size: int, age: float) -> None:
    """Write what an interrupted run leaves, as old as it is."""
    made = Checkpoint(path, 0)
    (made.folder / "heat").write_bytes(os.urandom(size))
    made.close()
    for file in path.rglob("*"):
        os.utime(file, (time.time() - age, time.time() - age))


def test_what_is_abandoned_is_described_and_deleted_unless_it_is_in_use(tmp_path: Path) -> None:
    run = tmp_path / "lac-digits-lac-0-0"
    assert resume.list_abandoned(run) == []
    paths = [run / name for name in ("aa-0.1-None", "aa-1e-05-None", "bb-0.1-2")]
    for path, size, age in zip(paths, (1 << 20, 3 << 20, 5 << 20), (7200, 86400 * 3, 86400 * 9), strict=True):
        leave(path, size, age)
    (run / "a file").write_text("of someone")
    held = Checkpoint(run / "cc-0.1-None", 0)
    assert resume.list_abandoned(run) == paths
    assert re.fullmatch(r"9\.4\d? MB, last written 2\.0 hours ago", resume.describe_resume_points(paths))
    for _ in range(2):  # looking makes it no younger
        assert re.fullmatch(r"8\.(39|4\d?) MB, last written 3 days ago", resume.describe_resume_points(paths[1:]))
    resume.delete_resume_points([paths[2], held.path])
    assert resume.list_abandoned(run) == paths[:2] and held.path.is_dir()
    held.delete()
    (run / "a file").unlink()
    resume.delete_resume_points(paths[:2])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("gone", ["heat", "disk", "all"])
def test_what_vanishes_while_it_is_described_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    paths = [tmp_path / "run" / name for name in ("aa", "bb")]
    for path in paths:
        leave(path, 1 << 20, 7200)
    walk = os.walk

    def late(top: Path) -> Iterator[Any]:
        """A list of names, of which another process then deletes some."""
        found = list(walk(top))
        if top == paths[0]:
            place = {"heat": top / "disk" / "heat", "disk": top / "disk", "all": top}[gone]
            place.unlink() if gone == "heat" else shutil.rmtree(place)
        yield from found

    monkeypatch.setattr(resume.os, "walk", late)
    assert re.fullmatch(r"1\.0\d? MB, last written 2\.0 hours ago", resume.describe_resume_points(paths))


def test_resume_points_are_listed_by_run_unless_in_use(tmp_path: Path) -> None:
    runs = [tmp_path / name for name in ("finetune-digits-scl-0-0", "lac-digits-lac-0-0", "prepare-pets")]
    for run, names in zip(runs, (["aa-0.1-None", "bb-0.1-2"], ["aa-1e-05-None"], ["aa"]), strict=True):
        for name in names:
            leave(run / name, 1, 0)
    (tmp_path / "notes.txt").write_text("of someone")
    with Checkpoint(runs[0] / "bb-0.1-2", 0), Checkpoint(runs[2] / "aa", 0):
        listed = resume.list_resume_points(tmp_path)
    assert list(listed.items()) == [(path.name, [path / f"aa-{rest}"]) for path, rest in
                                    zip(runs, ("0.1-None", "1e-05-None"), strict=False)]  # fmt: skip
    assert resume.list_resume_points(tmp_path / "none") == {}


def test_a_full_disk_is_named_and_the_last_resume_point_stays(
    point: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    point.save({"step": 1}, at_once=True)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        words = r"run/state\.pt: [\d,]+ bytes cannot be written there \(No space left on device\); nothing is lost but "
        with pytest.raises(FileError, match=words):
            point.save({"step": 2}, at_once=True)
    assert point.load() == {"step": 1}
    assert sorted(file.name for file in point.path.iterdir()) == ["lock", "state.pt"]


def test_space_is_what_the_disk_gives(tmp_path: Path) -> None:
    path = tmp_path / "run" / "aa"
    made = Checkpoint(path, 0)
    with open(made.folder / "heat", "wb") as file:
        file.truncate(1 << 40)  # sparse
    made.close()
    assert re.fullmatch(r"[0-9.]+ MB, last written 0\.0 hours ago", resume.describe_resume_points([path]))


# ---------------------------------------------------------------------------------------------- one process a run
def test_a_second_process_is_refused_until_the_first_ends(tmp_path: Path, repository: Path) -> None:
    path = tmp_path / "runs" / "run"
    first = Checkpoint(path, 0)
    command = [sys.executable, "-c", HOLD, str(path)]
    second = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert second.returncode == 1 and second.stderr.strip() == f"{path}: another process is at this run"
    with pytest.raises(FileError, match="run: another process is at this run"):
        Checkpoint(path, 0)
    Checkpoint(path.with_name("another"), 0).delete()
    first.delete()

    third = subprocess.Popen(command, cwd=repository, stdout=subprocess.PIPE, text=True)
    assert third.stdout is not None
    with third.stdout:
        assert third.stdout.readline() == "held\n"
        with pytest.raises(FileError, match="another process"):
            Checkpoint(path, 0)
        third.kill()  # a process that dies leaves its lock file, but no lock
        third.wait()
    deadline = time.monotonic() + 5
    while True:
        try:
            Checkpoint(path, 0).delete()
            break
        except FileError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_process_that_comes_while_another_deletes_starts_afresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what is being deleted is resumed from, nor is what is written meanwhile deleted."""
    path, remove_tree = tmp_path / "run" / "aa", resume.shutil.rmtree
    leave(path, 1, 0)
    old = Checkpoint(path, 0)
    old.save({"step": 1}, at_once=True)
    old.close()
    came: list[Checkpoint] = []

    def slow(folder: Path, **options: Any) -> None:
        (Path(folder) / "lock").unlink()
        came.append(Checkpoint(path, 0))
        assert came[0].load() is None
        came[0].save({"step": 2}, at_once=True)
        remove_tree(folder, **options)

    with monkeypatch.context() as patch:
        patch.setattr(resume.shutil, "rmtree", slow)
        resume.delete_resume_points([path])
    assert came[0].load() == {"step": 2} and list(path.parent.iterdir()) == [path]
    with pytest.raises(FileError, match="another process"):
        Checkpoint(path, 0)
    came[0].delete()
    assert not path.parent.exists()


def test_the_lock_of_a_deleted_point_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, flock = tmp_path / "run" / "aa", fcntl.flock
    leave(path, 1, 0)
    tries: list[int] = []

    def late(file: Any, operation: int) -> None:
        tries.append(operation)
        if len(tries) == 1:  # another process deletes it between open and flock
            shutil.rmtree(path)
        flock(file, operation)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", late)
        made = Checkpoint(path, 0)
    assert len(tries) > 1 and path.is_dir() and made.path.joinpath("lock").exists()
    with pytest.raises(FileError, match="another process"):
        Checkpoint(path, 0)
    made.delete()


def test_what_was_deleted_once_is_not_deleted_from_another(tmp_path: Path) -> None:
    first = Checkpoint(tmp_path / "run" / "aa", 0)
    first.delete()
    second = Checkpoint(first.path, 0)
    first.delete()
    assert second.path.is_dir()
    second.delete()


def test_a_point_that_is_gone_before_it_is_looked_at_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run" / "aa"
    leave(path, 1, 0)
    monkeypatch.setattr(Path, "is_dir", lambda self, **_: (shutil.rmtree(path, ignore_errors=True), True)[1])
    assert resume.list_abandoned(path.parent) == []
    resume.delete_resume_points([path])


def test_other_fingerprints_are_named_and_deleted_and_the_own_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "prepare-pets"
    for name in ("aa", "aa-0.1-None", "aab", "bb", ".aa.77"):  # the last as a process leaves that is killed deleting
        leave(run / name, 1 << 20, 0)
    resume.delete_stale(run, "aa", "prepare pets")
    assert sorted(path.name for path in run.iterdir()) == ["aa", "aa-0.1-None"]
    deleted, kept = capsys.readouterr().out.splitlines()
    assert deleted.startswith("prepare pets: deleting 3.") and deleted.endswith(f"code in {run}")
    assert kept.startswith("prepare pets: going on with an interrupted run (2.")
    resume.delete_stale(tmp_path / "none", "aa", "prepare pets")
    assert capsys.readouterr().out == ""


# ---------------------------------------------------------------------------------------------- where and which
def test_the_folder_comes_from_the_environment_and_is_of_one_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPML_SCRATCH", raising=False)
    assert scratch_folder(tmp_path) == tmp_path / ".pipeline" / "checkpoints"
    monkeypatch.setenv("SPML_SCRATCH", str(tmp_path / "elsewhere"))
    projects = [tmp_path / "a" / "spml", tmp_path / "b" / "spml"]
    found = [scratch_folder(project) for project in projects]
    assert len(set(found)) == 2 and {path.parent for path in found} == {tmp_path / "elsewhere"}
    assert all(path.name.startswith("spml-") for path in found)
    projects[1].mkdir(parents=True)
    monkeypatch.chdir(projects[1])
    assert scratch_folder(Path(".")) == found[1]


def test_a_fingerprint_changes_with_any_setting_and_any_file(tmp_path: Path) -> None:
    files = [tmp_path / "a.py", tmp_path / "b.h5"]
    for file in files:
        file.write_text("one")
    settings = [{"lr": 0.1, "head": {"kind": "linear", "scale": "none"}}, {"alpha": 0.2}, 0, "finetune"]
    found = fingerprint(settings, files)
    assert len(found) == 16 and int(found, 16) >= 0
    assert found == fingerprint(settings, reversed(files)) == fingerprint([dict(settings[0]), *settings[1:]], files)
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in files:
        (moved / file.name).write_text("one")
    assert fingerprint(settings, moved.iterdir()) == found  # the project may lie elsewhere

    others = [
        fingerprint([{"lr": 0.2, "head": {"kind": "linear", "scale": "none"}}, *settings[1:]], files),
        fingerprint([{"lr": 0.1, "head": {"kind": "other"}}, *settings[1:]], files),
        fingerprint([*settings[:2], 1, "finetune"], files),
        fingerprint([*settings[:3], "lac"], files),
        fingerprint(settings, files[:1]),
    ]
    for file in files:
        file.write_text("two")
        others.append(fingerprint(settings, files))
        file.write_text("one")
    files[0].rename(tmp_path / "c.py")
    others.append(fingerprint(settings, [tmp_path / "c.py", files[1]]))
    assert len({found, *others}) == len(others) + 1


def test_a_large_file_counts_by_size_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "LARGE", 4)
    path = tmp_path / "large"
    path.write_bytes(b"12345")
    os.utime(path, ns=(10**18, 10**18))
    found = fingerprint([], [path])
    assert found == fingerprint([], [path])
    os.utime(path, ns=(10**18, 10**18 + 1000))
    assert found != fingerprint([], [path])
    os.utime(path, ns=(10**18, 10**18))
    assert found == fingerprint([], [path])
    path.write_bytes(b"123456")
    os.utime(path, ns=(10**18, 10**18))
    assert found != fingerprint([], [path])


@pytest.mark.parametrize("name", ["ENOSYS", "EOPNOTSUPP", "ENOLCK", "EACCES", "EINVAL", "EIO"])
def test_a_disk_without_locks_is_no_other_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def refuse(*_: object) -> None:
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))

    leave(tmp_path / "run" / "aa", 1, 0)
    monkeypatch.setattr(fcntl, "flock", refuse)
    text = re.escape(os.strerror(getattr(errno, name)))
    with pytest.raises(FileError, match=rf"run.aa: cannot be made and locked \({text}\); SPML_SCRATCH names a folder"):
        Checkpoint(tmp_path / "run" / "aa")
    assert resume.list_abandoned(tmp_path / "run") == []


def test_only_ewouldblock_is_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(FileError, match="run: another process is at this run"):
        Checkpoint(tmp_path / "run")


@pytest.mark.parametrize("place", ["/proc/x", "/dev/null/x", "a" * 300, "a file", "a link to nothing/x"])
def test_a_scratch_folder_that_cannot_be_made_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """/proc answers that the folder of the new folder is absent, each time: as one that others delete does."""
    monkeypatch.chdir(tmp_path)
    Path("a file").touch()
    Path("a link to nothing").symlink_to("/proc/x")
    monkeypatch.setenv("SPML_SCRATCH", place)
    folder = scratch_folder(tmp_path) / "run-x"
    resume.delete_stale(folder, "aa", "run")
    assert resume.list_resume_points(folder.parent) == {}
    with pytest.raises(FileError, match=r"aa: cannot be made and locked \(.*\); SPML_SCRATCH names a folder") as caught:
        Checkpoint(folder / "aa")
    assert len(str(caught.value).splitlines()) == 1
