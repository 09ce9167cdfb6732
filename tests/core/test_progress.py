"""How far a long loop is: a bar in a terminal, a line every half minute elsewhere, everywhere by the same function."""

import ast
import sys
from pathlib import Path

import pytest

from pipeline.core import progress


@pytest.mark.parametrize(
    ("seconds", "size", "pace"), [(8.0, 10, "1 a second"), (8.0, 1, "8.0 s each"), (8.0, 100, "12 a second")]
)
def test_outside_a_terminal_a_line_is_printed_every_half_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seconds: float, size: int, pace: str
) -> None:
    """Of 20 steps of 8 s each the fourth, eighth, ... end more than 30 s after the line before."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    total = 30 * size
    for _ in progress.track([[0] * size] * 20, "digits", total, "image", done=10 * size, size=len):
        now[0] += seconds
    shown = capsys.readouterr()
    assert shown.out == ""  # which a verb keeps for its answer
    assert shown.err.splitlines() == [
        f"digits: {10 * size + n * size:,} of {total:,} images, {pace}, {8 * (20 - n)} s left"
        for n in (4, 8, 12, 16, 20)
    ]


def test_short_or_quiet_loops_print_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(progress.track("abc", "x", 3, "run")) == ["a", "b", "c"]
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now.append(now[-1] + 60) or now[-1])
    assert list(progress.track("abc", "x", 3, "run", quiet=True)) == ["a", "b", "c"]
    shown = capsys.readouterr()
    assert shown.out == shown.err == ""


def test_in_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    list(progress.track("abc", "pack", 3, "image"))
    assert "pack:   0%|" in capsys.readouterr().err


def test_every_bar_of_the_code_is_made_there(repository: Path) -> None:
    """tqdm's bars elsewhere would say nothing in a log; its `write` puts a line above a bar, and may be used."""
    files = [path for top in ("pipeline", "stages") for path in sorted((repository / top).rglob("*.py"))]
    makers = {
        path.relative_to(repository).as_posix()
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("tqdm", "trange")
    }
    assert makers == {"pipeline/core/progress.py"}
