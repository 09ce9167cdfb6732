"""``spml check``: problems and leftovers as they are printed, and what is removed on request."""

import io
from pathlib import Path

import pytest

from pipeline.cli import check, main
from pipeline.core.files import write_text

FINE = "params.yaml, dvc.yaml and raw data: no problem found\n"


class Terminal(io.StringIO):
    """Standard input of a person who answers."""

    def isatty(self) -> bool:
        return True


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main.main(["check", *words])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_problems_are_listed_and_fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check, "find_problems", lambda root: (["a.b: is wrong", "c: too"], [Path("runs/old")]))
    assert shown(capsys) == (1, "", "error: a.b: is wrong\nerror: c: too\n2 problems; nothing was run\n")


def test_params_that_are_not_valid_are_all_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = shown(capsys)
    assert (status, out) == (1, "") and err.startswith("error: params.yaml: cannot be read")
    assert err.endswith("\n1 problem; nothing was run\n")


def test_leftovers_are_named_and_removed_on_request_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    left = [Path(f"runs/finetune/digits-em-{seed}") for seed in range(4)]
    for folder in left:
        write_text(folder / "metrics.json", "{}")
    left.append(Path("runs/finetune/digits-em-0-0.json"))  # the few numbers of a run lie beside its folder
    write_text(left[-1], "{}")
    write_text("runs/finetune/digits-em-0-9/metrics.json", "{}")
    monkeypatch.setattr(check, "find_problems", lambda root: ([], [folder for folder in left if folder.exists()]))
    status, out, err = shown(capsys)
    named = "".join(f"left by a removed run: {folder}\n" for folder in left)
    assert (status, out) == (0, FINE) and all(folder.exists() for folder in left)
    kept = f"earlier settings, {', '.join(map(str, left[:3]))} and 2 more, are kept; they change no result"
    assert err.startswith("note: results of another profile") and kept in err
    refused = "nothing was deleted: to delete these 5 paths, add --yes\n"
    assert shown(capsys, "--remove-leftovers") == (1, named, refused)  # nobody to ask
    answers = {"no\n": 1, "\n": 1, "": 1, "Y\n": 0}
    removed = "".join(f"removed {folder}\n" for folder in left) + FINE
    for answer, expected in answers.items():
        assert all(folder.exists() for folder in left)
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        status, out, err = shown(capsys, "--remove-leftovers")
        assert (status, out) == (expected, named if expected else named + removed)
        assert err.startswith("Delete these 5 paths?") and ("nothing was deleted" in err) == bool(expected)
    assert [path.name for path in Path("runs/finetune").iterdir()] == ["digits-em-0-9"]
    assert shown(capsys) == (0, FINE, "")


def test_nothing_is_deleted_while_there_are_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_text("runs/finetune/digits-em-0-0/metrics.json", "{}")
    found = (["grid.finetune: a typo"], [Path("runs/finetune/digits-em-0-0")])
    monkeypatch.setattr(check, "find_problems", lambda root: found)
    for words in (("--remove-leftovers",), ("--remove-leftovers", "--yes")):
        problem = "error: grid.finetune: a typo\n1 problem; nothing was run or deleted\n"
        assert shown(capsys, *words) == (1, "", problem)
    assert Path("runs/finetune/digits-em-0-0/metrics.json").exists()
    monkeypatch.setattr(check, "find_problems", lambda root: ([], found[1]))
    assert shown(capsys, "--remove-leftovers", "--yes")[0] == 0 and not found[1][0].exists()
