import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pipeline import checkpoint
from pipeline.checkpoint import Checkpoint, fingerprint, scratch
from pipeline.storage import StorageError

HOLD = """
import sys, time
from pathlib import Path
from pipeline.checkpoint import Checkpoint
from pipeline.storage import StorageError
try:
    held = Checkpoint(Path(sys.argv[1]), 0)
except StorageError as error:
    sys.exit(str(error))
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still; its one entry is the time."""
    now = [100.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def point(tmp_path: Path) -> Iterator[Checkpoint]:
    made = Checkpoint(tmp_path / "deep" / "run.pt", 20)
    yield made
    made.discard()


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
    assert list(point.path.parent.iterdir())
    point.discard()
    assert list(point.path.parent.iterdir()) == []


def test_a_damaged_file_is_named(clock: list[float], point: Checkpoint) -> None:
    point.path.write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(StorageError, match="run.pt"):
        point.load()


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


def test_a_folder_lies_beside_the_file_outlives_a_crash_and_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "scratch" / "finetune-digits-0.003-None.pt"
    first, other = Checkpoint(path, 0), Checkpoint(path.with_name("finetune-digits-0.01-None.pt"), 0)
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "finetune-digits-0.003-None.lock",
        "finetune-digits-0.01-None.lock",
    ], "no folder unless one is asked for"
    assert first.folder.is_dir() and first.folder.parent == path.parent and first.folder != other.folder
    (first.folder / "heat").write_bytes(b"hot")
    first.save({})
    first._lock.close()  # as the system does when a process ends
    again = Checkpoint(path, 0)
    assert (again.folder / "heat").read_bytes() == b"hot"
    again.discard()
    assert other.folder.is_dir() and not again.path.exists()
    other.discard()
    assert list(path.parent.iterdir()) == []


# ---------------------------------------------------------------------------------------------- one process a run
def test_a_second_process_is_refused_until_the_first_ends(tmp_path: Path, repository: Path) -> None:
    path = tmp_path / "run.pt"
    first = Checkpoint(path, 0)
    command = [sys.executable, "-c", HOLD, str(path)]
    second = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert second.returncode == 1 and second.stderr.strip() == f"{path}: another process is training this run"
    with pytest.raises(StorageError, match="run.pt: another process is training this run"):
        Checkpoint(path, 0)
    Checkpoint(tmp_path / "another.pt", 0).discard()
    first.discard()

    third = subprocess.Popen(command, cwd=repository, stdout=subprocess.PIPE, text=True)
    assert third.stdout is not None
    with third.stdout:
        assert third.stdout.readline() == "held\n"
        with pytest.raises(StorageError, match="another process"):
            Checkpoint(path, 0)
        third.kill()  # a process that dies leaves its lock file, but no lock
        third.wait()
    deadline = time.monotonic() + 5
    while True:
        try:
            Checkpoint(path, 0).discard()
            break
        except StorageError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


# ---------------------------------------------------------------------------------------------- where and which
def test_the_folder_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPML_SCRATCH", raising=False)
    assert scratch(tmp_path) == tmp_path / ".pipeline" / "checkpoints"
    monkeypatch.setenv("SPML_SCRATCH", str(tmp_path / "elsewhere"))
    assert scratch(tmp_path) == tmp_path / "elsewhere"


def test_a_fingerprint_changes_with_any_setting_and_any_file(tmp_path: Path) -> None:
    files = [tmp_path / "a.py", tmp_path / "b.h5"]
    for file in files:
        file.write_text("one")
    settings = [{"lr": 0.1, "head": {"kind": "linear"}}, {"alpha": 0.2}, 0, "finetune"]
    found = fingerprint(settings, files)
    assert len(found) == 16 and int(found, 16) >= 0
    assert found == fingerprint(settings, reversed(files)) == fingerprint([dict(settings[0]), *settings[1:]], files)
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in files:
        (moved / file.name).write_text("one")
    assert fingerprint(settings, moved.iterdir()) == found  # the project may lie elsewhere

    others = [
        fingerprint([{"lr": 0.2, "head": {"kind": "linear"}}, *settings[1:]], files),
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
    monkeypatch.setattr(checkpoint, "LARGE", 4)
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


def test_a_folder_is_emptied_without_the_file(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run.pt", 0)
    checkpoint.save({"epoch": 1})
    (checkpoint.folder / "heat").write_bytes(b"1")
    checkpoint.empty()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.lock", "run.pt"]
    checkpoint.empty()
    checkpoint.discard()
