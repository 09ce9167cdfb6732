import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pipeline.config import preflight
from pipeline.core import device
from pipeline.core.errors import ConfigError, FileError, SourceError, TrainingError
from stages import entry

CALLS: list[Any] = []


OUTSIDE = [
    *([name, "3"] for name in ("../x", "/x", "..", ".", "", "a/b", "a\\b", "a\nb", "A", "-x", "\x1b[31m")),
    *(["digits", seed] for seed in ("-1", "+1", "1e3", "9" * 30, "\u0661", "1_0")),
    ["digits", "3", "--variant", "../x"],
    ["digits", "3", "--nope"],
]
"""Arguments that are no names and seeds: a stage given one would read and write outside the project."""


def probe(root: Path, dataset: str, seed: int, variant: str | None = None, force: bool = False) -> None:
    CALLS.append((root, dataset, seed, variant, force))


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CALLS.clear()
    monkeypatch.chdir(tmp_path)


def test_arguments_come_from_the_signature() -> None:
    entry.run(probe, ["digits", "3"])
    entry.run(probe, ["voc", "0", "--variant", "voc-an-0-0-x", "--force"])
    assert CALLS == [(Path("."), "digits", 3, None, False), (Path("."), "voc", 0, "voc-an-0-0-x", True)]


@pytest.mark.parametrize(
    "argv", [[], ["digits"], ["digits", "three"], ["digits", "3", "4"], ["digits", "3", "--nope"], *OUTSIDE]
)
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


@pytest.mark.parametrize("place", [".pipeline", ".pipeline/seconds.tsv"])
def test_a_time_that_cannot_be_noted_fails_no_stage(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    if place == ".pipeline":
        Path(place).touch()
    else:
        Path(place).mkdir(parents=True)
    entry.run(probe, ["digits", "3"])
    assert len(CALLS) == 1
    assert capsys.readouterr().err.startswith("probe: its time was not noted in .pipeline/seconds.tsv (")


def test_the_device_and_threads_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    before = torch.get_num_threads()
    monkeypatch.setenv("SPML_DEVICE", "cpu:0")
    monkeypatch.setenv("SPML_THREADS", "2")
    try:
        assert device.choose_device() == torch.device("cpu:0") and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    monkeypatch.delenv("SPML_DEVICE")
    monkeypatch.delenv("SPML_THREADS")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.choose_device() == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device.choose_device() == torch.device("cuda") and torch.get_num_threads() == before


linux = pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("SPML_THREADS", value) for value in ("abc", "0", "-1", "1.5", " 2", "9" * 30)),
        *(("SPML_DEVICE", value) for value in ("foo", "cuda:x", "cuda:99", "xla", "meta")),
    ],
)
def test_settings_of_the_environment_that_cannot_be_are_one_line_also_in_the_preflight(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"^{name}: .*{re.escape(repr(value))}[^\n]*$"):
        device.choose_device()
    (problem,) = preflight.check_environment()
    assert problem.startswith(f"{name}: ")


@pytest.mark.parametrize("place", ["/proc/x", "/dev/null/x", "a file"])
def test_a_scratch_folder_that_cannot_be_made_is_found_by_the_preflight(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    Path("a file").touch()
    monkeypatch.setenv("SPML_SCRATCH", place)
    (problem,) = preflight.check_environment()
    assert problem.startswith(f"SPML_SCRATCH: {place} cannot be made (")
    monkeypatch.setenv("SPML_SCRATCH", "to/be/made")
    assert preflight.check_environment() == []


@linux
def test_a_stage_dies_with_its_parent_while_it_still_loads_modules(tmp_path: Path, repository: Path) -> None:
    """The parent starts a stage and is killed; the stage, whose imports take a minute, must not outlive it."""
    (tmp_path / "stages").mkdir()
    shutil.copy(repository / "stages/entry.py", tmp_path / "stages/entry.py")
    (tmp_path / "stages/__init__.py").touch()
    (tmp_path / "stages/asleep.py").write_text(
        "from stages import entry\nimport os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n"
    )
    code = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'stages.asleep'])"
    environment = os.environ | {"PYTHONPATH": str(repository), "DVC_STAGE": "asleep"}
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


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        (["sh", "/usr/bin/python3.11", "bash", "init"], True),  # DVC's own script is Python's
        (["bash", "srun", "sh", "/usr/local/bin/dvc", "init"], True),  # wrappers of a stage's command
        (["init"], False),
        (["sh", "init"], False),  # DVC was killed, and the shell that it had started lives
    ],
)
def test_a_stage_looks_for_dvc_among_all_it_descends_from(tmp_path: Path, programs: list[str], expected: bool) -> None:
    for number, program in enumerate(programs):
        process, parent = len(programs) - number, len(programs) - number - 1
        (tmp_path / str(process)).mkdir()
        (tmp_path / str(process) / "cmdline").write_bytes(f"{program}\0-c\0python -m stages.prepare\0".encode())
        (tmp_path / str(process) / "stat").write_text(f"{process} ({program}) (x) S {parent} 1 1 0")
    assert entry._has_dvc_above(len(programs), tmp_path) is expected
    assert entry._has_dvc_above(99, tmp_path)  # nobody can tell


@linux
def test_a_stage_of_a_dvc_that_has_ended_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "_has_dvc_above", lambda process: False)
    monkeypatch.setattr(entry.ctypes, "CDLL", lambda name: mock.Mock())
    entry.die_with_parent()  # started by hand, as with nohup: whoever the parent is
    monkeypatch.setenv("DVC_STAGE", "prepare@digits")
    with pytest.raises(SystemExit, match="DVC has ended"):
        entry.die_with_parent()


def test_a_stage_is_tied_to_its_parent_before_it_loads_anything(repository: Path) -> None:
    stages = sorted((repository / "stages").glob("*.py"))
    for file in stages:
        if file.name in ("__init__.py", "entry.py"):
            continue
        first = next(node for node in ast.parse(file.read_text()).body if not isinstance(node, ast.Expr))
        assert ast.unparse(first) == "from stages import entry", file
    code = "import sys, stages.entry; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "pandas", "h5py", "pydantic", "dvc"} & set(ast.literal_eval(loaded.stdout))


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended, but that nobody has asked about, does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
