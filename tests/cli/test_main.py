"""``spml show``: what it prints of each kind of output, now and as of an earlier commit; the other verbs."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.cli import main
from pipeline.core import files, hdf5
from pipeline.core.resume import Checkpoint

ENVIRONMENT = os.environ | {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "GIT_AUTHOR_NAME": "Test",
    "GIT_AUTHOR_EMAIL": "test@example.org",
    "GIT_COMMITTER_NAME": "Test",
    "GIT_COMMITTER_EMAIL": "test@example.org",
    "DVC_NO_ANALYTICS": "1",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main.main(["show", *words]) == 0
    return capsys.readouterr().out.splitlines()


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main.main(["show", *words]) == 1
    text = capsys.readouterr()
    assert text.out == ""
    assert text.err.startswith("error: ") and text.err.count("\n") == 1
    return text.err


def test_hdf5_shows_tree_attributes_first_rows_and_counts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = np.array([[1, 0, -1], [1, 0, 0], [0, 1, 0], [1, 0, 0]], dtype=np.int8)
    with hdf5.create("observed.h5") as file:
        file.attrs["protocol"] = "seeded"
        file.attrs["classes"] = json.dumps(["cat", "dog", "émeu"])
        hdf5.write_array(file, "single", labels, axes="image, class", units="1 present, 0 unknown, -1 absent")
        hdf5.write_array(file, "scores", np.linspace(0, 1, 20).reshape(2, 10), axes="image, class", units="logit")
        hdf5.write_array(file, "paths", ["a.jpg", "b.jpg"], axes="image", units="relative path")
    lines = shown(capsys, "observed.h5", "--rows", "2")
    assert "@protocol = seeded" in lines
    assert "single  (4, 3)  int8  [image, class]  in 1 present, 0 unknown, -1 absent" in lines
    at = lines.index("single  (4, 3)  int8  [image, class]  in 1 present, 0 unknown, -1 absent")
    assert lines[at + 1 : at + 4] == ["    0: 1 0 -1", "    1: 1 0 0", "    … 2 more"]
    table = [line.split() for line in lines[at + 5 : at + 9]]
    assert table[0] == ["class", "1", "0", "-1", "share", "of", "1"]
    assert table[1:] == [
        ["cat", "3", "1", "0", "0.7500"],
        ["dog", "1", "3", "0", "0.2500"],
        ["émeu", "0", "3", "1", "0.0000"],
    ]
    assert "scores  (2, 10)  float64  [image, class]  in logit" in lines
    assert "    0: 0 0.0526316 0.105263 0.157895 0.210526 0.263158 0.315789 0.368421 … 2 more" in lines
    assert "paths  (2,)  text  [image]  in relative path" in lines
    assert "    1: b.jpg" in lines
    assert sum("counts by class" in line for line in lines) == 1  # scores are no label matrix


def test_counts_of_labels_by_round_are_the_last_rounds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rounds = np.zeros((2, 3, 2), dtype=np.int8)
    rounds[0, :, 0], rounds[1, :, 1] = -1, -1
    with hdf5.create("labels.h5") as file:
        hdf5.write_array(file, "pseudo_label", rounds, axes="round, image, class", units="1 present, -1 absent, 0 none")
    lines = shown(capsys, "labels.h5")
    at = next(i for i, line in enumerate(lines) if "counts by class of the last round" in line)
    assert [line.split() for line in lines[at + 2 :]] == [["0", "3", "0", "0.0000"], ["1", "0", "3", "0.0000"]]


def test_tables_weights_pictures_and_text(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files.write_tsv("epochs.tsv", [{"epoch": e, "loss": e / 4} for e in range(1, 9)])
    assert shown(capsys, "epochs.tsv", "--rows", "2") == ["epoch  loss", "1      0.25", "2      0.5", "… 6 more rows"]
    files.write_json("metrics.json", {"val": {"map": 81.5}, "none": None})
    assert json.loads("\n".join(shown(capsys, "metrics.json"))) == {"val": {"map": 81.5}, "none": None}
    files.write_torch("weights.pt", {"state": {"head.weight": torch.zeros(2, 3)}, "architecture": {"width": 3}})
    lines = [line.split() for line in shown(capsys, "weights.pt")]
    assert lines == [["state.head.weight", "(2,", "3)", "float32"], ["architecture.width", "3"]]
    Image.new("RGB", (7, 5)).save("figure.png")
    assert shown(capsys, "figure.png") == ["PNG picture, 7 x 5 pixels, RGB"]
    files.write_text("summary.md", "# Fine-tuning\n\n3 classes.")
    assert shown(capsys, "summary.md") == ["# Fine-tuning", "", "3 classes."]


def test_what_a_terminal_would_obey_is_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Colours, titles, a bell, the 8-bit form of an escape, a turn of the writing; in keys and values of every kind."""
    evil = "\x1b[31m\x1b]0;title\x07\x9b2J\u202e"
    with hdf5.create("a.h5") as file:
        file.attrs[evil] = evil
        file.attrs["classes"] = "[" * 100_000
        hdf5.write_array(file, evil, [evil], axes=f"{evil}, class", units=evil)
    files.write_json("a.json", {evil: evil})
    files.write_tsv("a.tsv", [{evil: evil}])
    files.write_torch("a.pt", {evil: evil})
    for name in ("a.md", "a.txt", "a.yaml", "a.csv", f"{evil}.md"):
        Path(name).write_text(evil)
    for name in [path.name for path in here.iterdir()]:
        text = "\n".join(shown(capsys, name))
        assert re.search(r"\\(x|u00)1b\[31m", text) and not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text), name
    assert "\\x1b[31m" in "".join(shown(capsys, "."))
    assert not {"\x1b", "\u202e"} & set(refused(capsys, evil))


def test_a_folder_shows_its_files_and_its_summary(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files.write_text("run/summary.md", "# Run\n\nAll well.")
    files.write_bytes("run/raw.bin", bytes(2048))
    lines = shown(capsys, "run")
    assert [line.split() for line in lines[:2]] == [["2.0", "KiB", "run/raw.bin"], ["17", "B", "run/summary.md"]]
    assert lines[2:] == ["", "# Run", "", "All well."]


def test_damaged_and_missing_files_are_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("cut.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert "cut.h5" in refused(capsys, "cut.h5")
    Path("cut.png").write_bytes(b"\x89PNG")
    assert "cut.png" in refused(capsys, "cut.png")
    Path("cut.pt").write_bytes(b"PK\x03\x04")
    assert "cut.pt" in refused(capsys, "cut.pt")
    assert "gone.h5: no such file" in refused(capsys, "gone.h5")


# ---------------------------------------------------------------------------------------------- earlier commits
@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of two commits: its stage wrote 1 at the first, 2 at the second, and 3 since."""
    root = tmp_path_factory.mktemp("project")

    def run(*words: str) -> None:
        subprocess.run(words, cwd=root, env=ENVIRONMENT, check=True, capture_output=True)

    (root / "make.py").write_text(
        "import json, pathlib, sys\n"
        "value = int(pathlib.Path('value').read_text())\n"
        "pathlib.Path('runs/a').mkdir(parents=True, exist_ok=True)\n"
        "pathlib.Path('runs/a/metrics.json').write_text(json.dumps({'map': value}))\n"
        "pathlib.Path('runs/a/summary.md').write_text(f'# Value {value}')\n"
        "pathlib.Path('figures').mkdir(exist_ok=True)\n"
        "pathlib.Path('figures/curve.tsv').write_text(f'x\\ty\\n0\\t{value}\\n')\n"
        "pathlib.Path('headline.json').write_text(json.dumps({'headline': value}))\n"
    )
    (root / "dvc.yaml").write_text(
        "stages:\n  make:\n    cmd: python make.py\n    deps: [make.py, value]\n"
        "    outs: [runs/a/summary.md, figures]\n"
        "    metrics: [runs/a/metrics.json, {headline.json: {cache: false}}]\n"
    )
    (root / "value").write_text("1")
    run("git", "init", "-q")
    run("dvc", "init", "-q")
    run("git", "add", ".")
    run("git", "commit", "-qm", "before any run")
    for value, tag in (("1", "first"), ("2", "second"), ("3", None)):
        (root / "value").write_text(value)
        run("dvc", "repro", "-q")
        if tag:
            run("git", "add", ".")
            run("git", "commit", "-qm", tag)
            run("git", "tag", tag)
    return root


@pytest.fixture
def there(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(project)
    return project


FORMS = {
    "runs/a/metrics.json": '  "map": {}',
    "figures/curve.tsv": "0  {}",  # inside an out that is a folder
    "headline.json": '"headline": {}',  # kept by Git, not in the cache
    "runs/": "# Value {}",
}


@pytest.mark.parametrize(
    ("revision", "value", "paths"),
    [(["--rev", "first"], 1, [*FORMS]), (["--rev", "HEAD"], 2, ["runs/a/metrics.json"]), ([], 3, [*FORMS])],
)
def test_each_commit_shows_its_own(
    there: Path, capsys: pytest.CaptureFixture[str], revision: list[str], value: int, paths: list[str]
) -> None:
    before = {file: file.read_bytes() for file in there.rglob("*") if file.is_file() and ".git" not in file.parts}
    for path in paths:
        text = "\n".join(shown(capsys, path, *revision))
        assert FORMS[path].format(value) in text
        assert not any(FORMS[path].format(other) in text for other in {1, 2, 3} - {value})
    after = {file: file.read_bytes() for file in there.rglob("*") if file.is_file() and ".git" not in file.parts}
    assert after == before  # nothing was checked out


def test_a_commit_is_shown_from_a_subfolder(
    there: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(there / "runs")
    assert '  "map": 1' in shown(capsys, "a/metrics.json", "--rev", "first")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/a/metrics.json", "--rev", "third"], "--rev third: unknown Git revision"),
        (["runs/a/metrics.json", "--rev", "first~1"], "--rev first~1: this commit has no dvc.lock"),
        (
            ["runs/a/metric.json", "--rev", "first"],
            "has no such output; beside it: runs/a/metrics.json, runs/a/summary.md",
        ),
        (
            ["other/a", "--rev", "first"],
            "has no such output; it has dvc.lock, figures/, headline.json, make.py, runs/, value",
        ),
        (["../x", "--rev", "first"], "outside the project"),
    ],
)
def test_what_a_commit_does_not_hold_is_said(
    there: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert message in refused(capsys, *words)


def test_content_that_left_the_cache_is_said(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digest = hashlib.md5(b'{"map": 1}').hexdigest()
    object_ = there / ".dvc/cache/files/md5" / digest[:2] / digest[2:]
    hidden = object_.rename(there / "hidden")
    try:
        message = refused(capsys, "runs/a/metrics.json", "--rev", "first")
    finally:
        hidden.rename(object_)
    assert digest in message and "dvc fetch" in message


@pytest.mark.parametrize("revision", ["HEAD", "", " ", "HEAD@{99}", "a..b", ":/x", "\x1b[31m"])
@pytest.mark.parametrize("git", ["none", "empty"])
def test_a_revision_of_nothing_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], revision: str, git: str
) -> None:
    Path(".dvc").mkdir()
    Path(".dvc/config").write_text("[core]\n    no_scm = True\n" if git == "none" else "")
    Path("dvc.lock").write_text("schema: '2.0'\n")
    if git == "empty":
        subprocess.run(["git", "init", "-q"], check=True)
    assert refused(capsys, "runs", "--rev", revision).startswith("error: --rev")


def test_outside_a_project_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "not inside a DVC project" in refused(capsys, "runs/a", "--rev", "HEAD")


def test_show_into_a_closed_pipe_is_quiet(there: Path, repository: Path) -> None:
    words = [sys.executable, "-m", "pipeline.cli", "show", "make.py"]
    process = subprocess.Popen(
        words, env=ENVIRONMENT | {"PYTHONPATH": str(repository)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


# ---------------------------------------------------------------------------------------------- methods
def test_methods_are_listed_as_markdown_or_plain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| name | year | idea | needs | knows the label density | file |"
    assert "| `an` | 2021 | unknown means absent | one label | no | [an.py](pipeline/methods/an.py) |" in lines
    assert main.main(["methods", "--plain"]) == 0
    plain = capsys.readouterr().out.splitlines()
    assert len(plain) == len(lines) - 1  # Markdown's line of dashes
    row = next(line for line in plain if line.startswith("an "))
    assert row.split("  ")[0] == "an" and row.index("2021") == plain[0].index("year")
    assert not any("|" in line or "`" in line for line in plain)


def test_methods_are_written_into_a_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["methods"]) == 0
    table = capsys.readouterr().out
    page = "before\n<!-- methods -->\n{}<!-- /methods -->\nafter\n"
    Path("docs").mkdir()
    Path("docs/page.md").write_text(page.format("| old |\n"))
    assert main.main(["methods", "--write", "docs/page.md"]) == 0
    assert Path("docs/page.md").read_text() == page.format(table.replace("](pipeline/", "](../pipeline/"))
    Path("empty.md").write_text("nothing\n")
    capsys.readouterr()
    for name, words in (("empty.md", "empty.md: no place for the table of methods"), ("gone.md", "gone.md is missing")):
        assert main.main(["methods", "--write", name]) == 1
        assert words in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------- scratch
def test_what_interrupted_runs_left_is_listed_and_cleared(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPML_SCRATCH", raising=False)
    place = Path(".pipeline") / "checkpoints"

    def told(*words: str) -> list[str]:
        assert main.main(["scratch", *words]) == 0
        return capsys.readouterr().out.splitlines()

    assert told() == [".pipeline/checkpoints: 0 interrupted runs"]
    made = [
        Checkpoint(place / name, 0)
        for name in (
            "finetune-digits-scl-0-0/aa-0.1-None",
            "finetune-digits-scl-0-0/bb-0.1-2",
            "lac-digits-lac-0-0/cc-1-2",
        )
    ]
    for each in made:
        (each.folder / "heat").write_bytes(os.urandom(2 << 20))
    for each in made[:2]:
        each.close()  # as the system does when a process ends
    for _ in range(2):
        first, *rest = told()
        assert first == ".pipeline/checkpoints: 1 interrupted run" and len(rest) == 1
        assert rest[0].startswith("finetune-digits-scl-0-0: 4.") and rest[0].endswith(" MB, last written 0.0 hours ago")
    assert told("--clear") == [".pipeline/checkpoints: 1 interrupted run deleted", rest[0]]
    assert list(place.iterdir()) == [made[2].path.parent] and (made[2].path / "disk/heat").exists()
    assert told("--clear") == [".pipeline/checkpoints: 0 interrupted runs deleted"]
    made[2].delete()
