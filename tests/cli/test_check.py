"""``spml check``: problems and leftovers as they are printed, and what is removed on request."""

from pathlib import Path

import pytest

from pipeline.cli import check, main
from pipeline.core.files import write_text

FINE = "params.yaml, dvc.yaml and raw data: no problem found\n"


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
    left.append(Path("runs/finetune/digits-em-0.json"))  # the few numbers of a run lie beside its folder
    write_text(left[-1], "{}")
    write_text("runs/finetune/digits-em-9/metrics.json", "{}")
    monkeypatch.setattr(check, "find_problems", lambda root: ([], [folder for folder in left if folder.exists()]))
    status, out, err = shown(capsys)
    assert (status, out) == (0, FINE) and all(folder.exists() for folder in left)
    assert f": {', '.join(map(str, left[:3]))} and 2 more; nothing shows them" in err
    assert shown(capsys, "--remove-leftovers") == (0, "".join(f"removed {folder}\n" for folder in left) + FINE, "")
    assert [path.name for path in Path("runs/finetune").iterdir()] == ["digits-em-9"]
    assert shown(capsys) == (0, FINE, "")
