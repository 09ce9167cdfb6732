"""``dvc repro`` told by stages; DVC is played by a script that says what the real one says."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import repro as told
from pipeline.cli.verbs import Failed
from pipeline.config.graph import Graph

STAGES = ("prepare@pets", "simulate@pets-0", "linear_init@pets-an-0-0", "linear_init@pets-em-0-0", "report")
HINTS = "To track the changes with git, run:\n\n\tgit add dvc.lock\n"


class Stage:
    """What a graph has of a stage."""

    def __init__(self, name: str) -> None:
        self.name = self.addressing = name


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where `python -m dvc` runs what `play` wrote."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(told, "read_graph", lambda root: Graph(root, [Stage(name) for name in STAGES], set()))
    (tmp_path / "dvc").mkdir()
    (tmp_path / "dvc" / "__init__.py").touch()
    return tmp_path


def play(project: Path, script: str) -> None:
    """Write what is run in place of DVC; `run` says that a stage runs."""
    start = """
        import os, sys, time
        def run(stage):
            print(f"Running stage '{stage}':\\n> python -m stages.{stage.partition('@')[0]}", flush=True)
    """
    (project / "dvc" / "__main__.py").write_text(textwrap.dedent(start) + textwrap.dedent(script))


def test_a_line_for_each_group_that_ran_and_the_time_it_took() -> None:
    account = told.Account([*STAGES, "linear_init_variant@pets-em-0-0-slow"])
    said = [
        (0, "Stage 'prepare@pets' didn't change, skipping"),
        (1, "Stage 'simulate@pets-0' is cached - skipping run, checking out outputs"),
        (2, "Running stage 'linear_init@pets-an-0-0':"),
        (2, "> python -m stages.linear_init pets an 0 0"),
        (10, "linear_init pets-an-0-0 lr 0.1  25 epochs"),
        (11, "Updating lock file 'dvc.lock'"),
        (12, ""),
        (20, "Running stage 'linear_init_variant@pets-em-0-0-slow':"),
        (31, "Running stage 'linear_init@pets-em-0-0':"),
        (1242, "Running stage 'report':"),
    ]
    lines = []
    for now, line in said[:-4]:
        lines += account.read(line, now)
    assert account.describe_now(13) == "  linear_init 1 of 3, 11 s: pets-an-0-0 lr 0.1  25 epochs"
    for now, line in said[-4:]:
        lines += account.read(line, now)
    assert lines == ["  linear_init  1,240 s  3 runs"]
    assert account.describe_now(1250) == "  report, 8 s"
    assert [*account.end_group(1244.4)] == ["  report           2 s"]
    assert (account.ran, account.stayed) == (4, 2) and [*account.end_group(1300)] == []


def test_what_runs_is_told_and_all_that_is_said_is_kept(project, capfd) -> None:
    play(project, f"run('prepare@pets'); print('240 pictures'); run('report'); print({HINTS!r})")
    lines = [*told.repro(verbose=False)]
    assert [line.split()[0] for line in lines] == ["prepare", "report", "2"]
    assert lines[-1] == "  2 of 2 stages ran"
    assert capfd.readouterr() == ("", "")
    kept = (project / told.LOG).read_text()
    assert "240 pictures" in kept and "git add dvc.lock" in kept
    play(project, "print(\"Stage 'report' didn't change, skipping\")")
    assert [*told.repro(verbose=False)] == ["  0 of 1 stage ran, the others are as they were"]
    assert (project / told.LOG).read_text().startswith(kept)


def test_verbose_lets_them_speak(project, capfd) -> None:
    play(project, f"run('prepare@pets'); print({HINTS!r})")
    assert [*told.repro(verbose=True)] == []
    assert "Running stage 'prepare@pets':" in (said := capfd.readouterr().out) and HINTS in said


def test_a_stage_that_stops_says_why(project, capfd) -> None:
    play(
        project,
        """
        run("prepare@pets")
        print("of another stage")
        run("report")
        for number in range(40):
            print("line", number, file=sys.stderr)
        sys.stdout.buffer.write(b"caf\\xe9.jpg \\x1b[31m is no picture\\n")
        sys.exit("ERROR: failed to reproduce 'report': failed to run: python -m stages.report, exited with 1")
        """,
    )
    with pytest.raises(Failed):
        list(told.repro(verbose=False))
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "report stopped; the last that it said:"
    assert lines[1] == "  line 27" and lines[-4:-2] == ["  line 39", "  caf\\xe9.jpg \\x1b[31m is no picture"]
    assert lines[-2].startswith("  ERROR: failed to reproduce 'report'")
    assert lines[-1].startswith("all that was said is in .pipeline/train.log (--verbose ")
    assert b"caf\xe9.jpg" in (project / told.LOG).read_bytes()


def test_a_stage_that_cannot_begin_is_named_and_not_the_one_that_ran_before(project, capfd) -> None:
    play(
        project, """run("prepare@pets"); sys.exit("ERROR: failed to reproduce 'report': missing data 'source': runs")"""
    )
    with pytest.raises(Failed):
        list(told.repro(verbose=False))
    assert capfd.readouterr().err.startswith("report stopped; the last that it said:\n  ERROR: failed to reproduce")


def test_dvc_that_cannot_start_says_why(project, capfd) -> None:
    play(project, "sys.exit('ERROR: Unable to acquire lock.')")
    with pytest.raises(Failed):
        list(told.repro(verbose=False))
    assert capfd.readouterr().err.startswith("dvc repro stopped; the last that it said:\n  ERROR: Unable to acquire")
    with pytest.raises(Failed):
        list(told.repro(verbose=True))
    assert "dvc repro stopped (exit status 1); the reason stands above. Once" in capfd.readouterr().err


def test_dvc_runs_with_the_python_that_runs_here(project, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    play(project, "print(os.environ['PATH'], os.environ['GOMP_SPINCOUNT'], sys.argv[1:])")
    list(told.repro(verbose=False))
    assert f"{Path(sys.executable).parent}:/nowhere 20000 ['repro']" in (project / told.LOG).read_text()


def test_a_process_that_a_stage_left_behind_holds_nothing_up(project, monkeypatch) -> None:
    monkeypatch.setattr(told, "TICK", 0.1)
    play(project, "import subprocess; print(subprocess.Popen(['sleep', '20']).pid)")
    began = time.monotonic()
    list(told.repro(verbose=False))
    assert time.monotonic() - began < 10
    os.kill(int((project / told.LOG).read_text().split()[-1]), signal.SIGTERM)


def test_what_is_said_last_is_read(monkeypatch) -> None:
    """Also where it comes between a look at the pipe and one at the process."""
    monkeypatch.setattr(told, "TICK", 0.01)
    reads, writes = os.pipe()

    class Ending:
        asked = 0

        def poll(self) -> int | None:
            self.asked += 1
            if self.asked == 2:
                os.write(writes, b"the last\n")
            return None if self.asked < 2 else 0

    process: Any = Ending()
    with os.fdopen(reads, "rb") as stream:
        assert [line for line in told._read_lines(stream, process) if line] == ["the last"]
    os.close(writes)


@pytest.mark.parametrize("group", [True, False], ids=["ctrl-c", "spml alone"])
def test_an_interrupt_ends_the_stage_and_says_what_to_do(project, group) -> None:
    """By Ctrl-C the stage is interrupted too, and noted where it stopped; where it was not, it is ended."""
    play(
        project,
        """
        run("report")
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            open("noted", "w").close()
            sys.exit("interrupted; run it again to go on")
        """,
    )
    code = (
        "import signal; from pipeline.cli import repro; from pipeline.config.graph import Graph\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # whoever runs tests in the background ignores it
        "repro.read_graph, repro.GRACE = (lambda root: Graph(root, [], set())), 0.5\n"
        "try: list(repro.repro(False))\n"
        "except KeyboardInterrupt: raise SystemExit(130)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(told.__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    log, patience = project / told.LOG, time.monotonic() + 90
    while not (log.exists() and "Running stage" in log.read_text()) and time.monotonic() < patience:
        time.sleep(0.05)
    time.sleep(0.2)
    (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "stopped; the same command goes on where it stopped\n"
    assert process.returncode == 130
    assert (project / "noted").exists() == group == ("run it again to go on\n" in log.read_text())
