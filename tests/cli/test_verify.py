"""``spml verify``: damage in outputs and in DVC's cache is told and mended; what is sound stays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.cli.main import main
from tests import copies

STAGE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from pipeline.core import files, manifest, seal
folder = Path("runs/finetune") / sys.argv[1]
files.write_bytes(folder / "logits.h5", sys.argv[1].encode() * 3000)
seal.append(folder / "logits.h5")
files.write_json(folder / "metrics.json", {"map": 0.5, "run": sys.argv[1]})
manifest.write_manifest(folder, [])
files.write_json(folder.with_name(sys.argv[1] + ".json"), {"test_map": 0.5, "run": sys.argv[1]})
files.write_text(Path("report") / sys.argv[1] / "index.html", "<p>0.5 " + sys.argv[1])
"""


def flip(path: Path) -> None:
    """Turn a bit and keep time and size, as a failing disk does; the file may be write-protected."""
    about, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.chmod(0o644)
    path.write_bytes(data)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


@pytest.fixture
def project(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DVC project of two stages that has run."""
    monkeypatch.chdir(tmp_path)
    Path("stage.py").write_text(STAGE)
    outs = "[runs/finetune/{0}, runs/finetune/{0}.json, report/{0}]"
    stages = "".join(
        f"  {name}:\n    cmd: python stage.py {name} {repository}\n    outs: {outs.format(name)}\n" for name in "ab"
    )
    Path("dvc.yaml").write_text(f"stages:\n{stages}")
    copies.run(tmp_path, "dvc", "init", "--no-scm", "-q")
    copies.run(tmp_path, "dvc", "repro", "-q")
    return tmp_path


def verify(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    status = main(["verify", *words])
    return status, capsys.readouterr().out.splitlines()


def cached(path: Path) -> Path:
    """The object of DVC's cache that holds the same as a file."""
    md5 = subprocess.run(["md5sum", path], capture_output=True, text=True, check=True).stdout[:32]
    return Path(".dvc/cache/files/md5") / md5[:2] / md5[2:]


def test_damage_is_told_and_mended(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file whose cache object is sound, one object whose file is, and one of which neither is."""
    assert verify(capsys) == (0, ["10 output files checked; none damaged"])
    first, second = project / "runs/finetune/a/logits.h5", project / "runs/finetune/b/metrics.json"
    third, whole = project / "runs/finetune/a/metrics.json", second.read_bytes()
    objects = {path: cached(path) for path in (first, second, third)}
    for path in (first, third, objects[second], objects[third]):
        flip(path)
    assert "up to date" in copies.run(project, "dvc", "status")  # DVC sees none of it
    status, lines = verify(capsys)
    md5 = {path: "".join(objects[path].parts[-2:]) for path in objects}
    assert status == 1 and sorted(lines) == sorted(
        [
            "damaged: runs/finetune/a/logits.h5",
            "damaged: runs/finetune/a/metrics.json",
            f"damaged in the cache: {md5[second]} (runs/finetune/b/metrics.json)",
            f"damaged in the cache: {md5[third]} (runs/finetune/a/metrics.json)",
            "10 output files checked; 4 damaged",
            "`spml verify --fix` removes what is damaged, and says how it comes back",
        ]
    )
    status, lines = verify(capsys, "--fix")
    assert status == 0 and "put runs/finetune/b/metrics.json back into the cache" in lines
    assert "`dvc checkout` brings back runs/finetune/a/logits.h5" in lines
    assert "`dvc repro` computes again: a" in lines
    assert not first.exists() and objects[second].read_bytes() == second.read_bytes() == whole
    copies.run(project, "dvc", "repro", "-q")
    assert verify(capsys) == (0, ["10 output files checked; none damaged"])


def test_a_damaged_list_of_files_is_told_and_recorded_anew(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (listing, *_) = sorted(Path(".dvc/cache").rglob("*.dir"))
    flip(listing)
    status, lines = verify(capsys)
    assert status == 1 and any("output files checked; 1 damaged" in line for line in lines)
    status, lines = verify(capsys, "--fix")
    (remedy,) = [line.split("`")[1] for line in lines if "records what lies there" in line]
    copies.run(project, *remedy.split())
    assert verify(capsys) == (0, ["10 output files checked; none damaged"])


def test_what_a_stage_run_by_hand_wrote_is_no_damage_and_stays(
    project: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path("stage.py").read_text().replace("0.5", "0.6")
    Path("other.py").write_text(text)
    copies.run(project, sys.executable, "other.py", "a", str(repository))
    changed = [f"runs/finetune/a/{name}.json" for name in ("metrics", "manifest")]
    changed += ["runs/finetune/a.json", "report/a/index.html"]
    before = {path: Path(path).read_bytes() for path in changed}
    status, lines = verify(capsys, "--fix")
    assert status == 0 and lines[-1] == "10 output files checked; none damaged"
    remedy = "(`dvc commit a` records it, `dvc repro` makes it anew)"
    assert sorted(lines[:-1]) == sorted(f"not the recorded one: {path} {remedy}" for path in changed)
    assert {path: Path(path).read_bytes() for path in changed} == before


def test_a_project_that_has_not_run_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["verify"]) == 1
    assert capsys.readouterr().err == "error: dvc.lock: no such file; nothing has run here yet\n"
