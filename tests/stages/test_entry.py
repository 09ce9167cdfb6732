import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.core import device
from pipeline.core.errors import ConfigError, FileError, SourceError, TrainingError
from stages import entry

CALLS: list[Any] = []


def probe(root: Path, dataset: str, seed: int, variant: str | None = None, force: bool = False) -> None:
    CALLS.append((root, dataset, seed, variant, force))


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CALLS.clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(entry, "_die_with_parent", lambda: None)


def test_arguments_come_from_the_signature() -> None:
    entry.run(probe, ["digits", "3"])
    entry.run(probe, ["voc", "0", "--variant", "voc-an-0-x", "--force"])
    assert CALLS == [(Path("."), "digits", 3, None, False), (Path("."), "voc", 0, "voc-an-0-x", True)]


@pytest.mark.parametrize("argv", [[], ["digits"], ["digits", "three"], ["digits", "3", "4"], ["digits", "3", "--nope"]])
def test_wrong_arguments_show_the_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        entry.run(probe, argv)
    assert ended.value.code == 2 and CALLS == []
    assert "usage: python -m stages.probe" in capsys.readouterr().err


@pytest.mark.parametrize("error", [ConfigError, FileError, SourceError, TrainingError])
def test_a_known_fault_is_one_line(error: type[Exception]) -> None:
    def broken(root: Path) -> None:
        raise error("a.key: what is wrong")

    with pytest.raises(SystemExit) as ended:
        entry.run(broken, [])
    assert ended.value.code == "broken: a.key: what is wrong"
    assert not Path(".pipeline").exists()


def test_an_interrupt_is_one_line_and_the_status_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    def stopped(root: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        entry.run(stopped, [])
    assert ended.value.code == 130
    assert capsys.readouterr().err == "stopped: interrupted; run it again to go on\n"


@pytest.mark.parametrize("error", [RuntimeError, KeyError, ValueError])
def test_an_unknown_fault_keeps_its_traceback(error: type[Exception]) -> None:
    def broken(root: Path) -> None:
        raise error("a bug")

    with pytest.raises(error, match="a bug"):
        entry.run(broken, [])


def test_seconds_are_noted_outside_of_every_out(tmp_path: Path) -> None:
    def stage(root: Path, dataset: str, seed: int, variant: str | None = None) -> None:
        pass

    entry.run(stage, ["digits", "3"])
    entry.run(stage, ["digits", "4", "--variant", "x"])
    lines = [line.split("\t") for line in (tmp_path / ".pipeline" / "seconds.tsv").read_text().splitlines()]
    assert [line[:2] for line in lines] == [["stage", "digits 3"], ["stage", "digits 4 x"]]
    assert all(0 <= float(line[2]) < 60 for line in lines)
    assert [path.name for path in tmp_path.iterdir()] == [".pipeline"]


def test_the_device_and_threads_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    before = torch.get_num_threads()
    monkeypatch.setenv("SPML_DEVICE", "meta")
    monkeypatch.setenv("SPML_THREADS", "2")
    try:
        assert device.choose_device() == torch.device("meta") and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    monkeypatch.delenv("SPML_DEVICE")
    monkeypatch.delenv("SPML_THREADS")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.choose_device() == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device.choose_device() == torch.device("cuda") and torch.get_num_threads() == before


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_a_stage_dies_with_its_parent(tmp_path: Path, repository: Path) -> None:
    """The parent starts a stage and is killed; the stage, which would sleep for a minute, must not outlive it."""
    (tmp_path / "asleep.py").write_text(
        "import time, os\n"
        "from pathlib import Path\n"
        "from stages import entry\n"
        "def asleep(root: Path) -> None:\n"
        "    print(os.getpid(), flush=True)\n"
        "    time.sleep(60)\n"
        "entry.run(asleep, [])\n"
    )
    code = "import subprocess, sys; subprocess.run([sys.executable, 'asleep.py'])"
    environment = os.environ | {"PYTHONPATH": str(repository)}
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    with parent.stdout:
        stage = parent.stdout.readline()
        parent.kill()
        parent.wait()
        stage = int(stage)
        deadline = time.monotonic() + 10
        while alive(stage) and time.monotonic() < deadline:
            time.sleep(0.02)
        if alive(stage):
            os.kill(stage, signal.SIGKILL)
            raise AssertionError("the stage goes on without its parent")


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended, but that nobody has asked about, does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
