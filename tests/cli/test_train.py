"""One command from pictures to a report; DVC is played by a function, which the tests of stages run for real."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from pipeline.cli import check, model, profile, train
from pipeline.cli.main import main
from pipeline.cli.verbs import Failed
from tests import copies


@pytest.fixture(scope="module")
def original(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("original")
    copies.project(repository, root)
    for split, count in (("cat", 8), ("dog", 8)):
        for number in range(count):
            file = root / "pets" / split / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (number, count, len(split))).save(file)
    return root


class Repro:
    """What runs in place of `dvc repro`: it counts its calls, and stops where it is told to."""

    def __init__(self) -> None:
        self.calls, self.stops, self.verbose = 0, False, False
        self.forced: list[str] = []

    def __call__(self, verbose: bool, forced: str | None = None) -> Iterator[str]:
        if forced:
            self.forced.append(forced)
            return
        self.calls, self.verbose = self.calls + 1, verbose
        yield "  report  3 s"
        if self.stops:
            raise Failed


@pytest.fixture
def repro(monkeypatch: pytest.MonkeyPatch) -> Repro:
    played = Repro()
    monkeypatch.setattr(train, "repro", played)
    return played


def bundle(root: Path, run_name: str | None, folder: Path | None, onnx: bool) -> model.Bundled:
    assert run_name is None and folder is not None
    return model.Bundled("linear_init/pets-em-0-0", folder, (f"bundle in {folder}" + ", onnx" * onnx,))


@pytest.fixture
def project(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    subprocess.run(["cp", "-r", str(original), str(root)], check=True)
    monkeypatch.chdir(root)
    monkeypatch.setattr(check, "find_problems", lambda root: ([], []))
    monkeypatch.setattr(model, "bundle", bundle)
    monkeypatch.setattr(train, "describe_worth", lambda root, name: [f"{name} is good", "of few images"])
    return root


@pytest.fixture
def unprofiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Putting a profile in force takes a second, which tests of other steps do without."""
    monkeypatch.setattr(profile, "run", lambda options: iter([f"profile {options.name}"]))


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_each_step_is_announced_and_the_report_named(project, repro, unprofiled, capsys) -> None:
    assert main(["train", "pets"]) == 0
    lines = said(capsys)
    steps = [line.split(":")[0] for line in lines if line.startswith("[")]
    assert steps == ["[1/5] init", "[2/5] profile", "[3/5] check", "[4/5] repro", "[5/5] model"]
    assert "16 images; 2 classes: cat (8), dog (8)" in lines
    assert lines[-10:-8] == ["[5/5] model: bundle the best run", "bundle in models/pets"]
    assert lines[-7:-1] == [
        f"report:  {project / 'report/index.html'}",
        f"model:   {project / 'models/pets'}",
        "score:   linear_init/pets-em-0-0 is good",
        "         of few images",
        "next:    spml predict models/pets IMAGES --to scores.csv",
        "         spml review pets   # asks about the labels that teach most",
    ]
    assert repro.calls == 1 and not repro.verbose


def test_onnx_and_verbose_are_passed_on(project, repro, unprofiled, capsys) -> None:
    assert main(["train", "pets", "--onnx", "--verbose"]) == 0
    assert "bundle in models/pets, onnx" in said(capsys) and repro.verbose


def test_onnx_that_cannot_be_written_is_told_before_anything(project, repro, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert main(["train", "pets", "--onnx"]) == 1
    assert capsys.readouterr().err == "error: --onnx: needs onnxscript; pip install 'spml[onnx]'\n"
    assert not (project / "profiles/pets.yaml").exists() and repro.calls == 0


@pytest.mark.slow
def test_the_same_command_goes_on_and_keeps_an_edited_profile(project, repro, capsys) -> None:
    repro.stops = True
    assert main(["train", "pets"]) == 1
    capsys.readouterr()
    file = project / "profiles/pets.yaml"
    edited = file.read_text().replace("values: [3.0e-4, 1.0e-3, 3.0e-3]", "values: [1.0e-3, 3.0e-3]")
    assert edited != file.read_text()
    file.write_text(edited)
    repro.stops = False
    assert main(["train", "pets"]) == 0
    assert file.read_text() == edited
    assert "values: [1.0e-3, 3.0e-3]" in (project / "params.yaml").read_text()
    assert "[1/5] init: profiles/pets.yaml is there and stays as it is" in said(capsys)[0]
    assert repro.calls == 2


@pytest.mark.slow
def test_an_edit_of_params_is_not_overwritten(project, repro, capsys) -> None:
    assert main(["train", "pets"]) == 0
    params = project / "params.yaml"
    assert "profile: pets" in params.read_text()
    params.write_text(edited := params.read_text().replace('bad_images: "stop"', 'bad_images: "drop"'))
    assert main(["train", "pets"]) == 1
    assert params.read_text() == edited and repro.calls == 1
    assert "params.yaml holds edits" in capsys.readouterr().err


def test_a_problem_stops_before_anything_runs(project, repro, unprofiled, capsys, monkeypatch) -> None:
    monkeypatch.setattr(check, "find_problems", lambda root: (["no disk"], []))
    assert main(["train", "pets"]) == 1
    assert "error: no disk" in capsys.readouterr().err and repro.calls == 0


def test_changed_pictures_are_packed_again(project, repro, unprofiled, capsys, monkeypatch) -> None:
    changed = "prepare.pets: raw data of pets changed since prepare ran: dvc repro -f prepare@pets"
    monkeypatch.setattr(check, "find_problems", lambda root: ([] if repro.forced else [changed], []))
    assert main(["train", "pets"]) == 0
    assert repro.forced == ["prepare@pets"] and repro.calls == 1
    assert "pictures or labels of pets are no longer those that were packed; they are packed again" in said(capsys)


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ({"a": 0, "b": 1, "c": 0, "new": 2}, None),
        ({"a": 1, "b": 1, "c": 2, "new": 0}, "2 of 3 images changed theirs"),
        ({"b": 0}, "1 of 1 image changed theirs"),
    ],
)
def test_images_that_changed_their_split_are_told(
    project, repro, unprofiled, capsys, monkeypatch, after: dict[str, int], told: str | None
) -> None:
    changed = "prepare.pets: raw data of pets changed since prepare ran: dvc repro -f prepare@pets"
    splits = project / "data/prepare/pets/splits.h5"
    splits.parent.mkdir(parents=True)
    splits.touch()
    monkeypatch.setattr(check, "find_problems", lambda root: ([] if repro.forced else [changed], []))
    monkeypatch.setattr(train, "read_splits", lambda path: after if repro.forced else {"a": 0, "b": 1, "c": 0})
    assert main(["train", "pets"]) == 0
    notes = [line for line in said(capsys) if line.startswith("note: splits")]
    assert len(notes) == (told is not None) and all(told in line for line in notes if told)


@pytest.mark.parametrize(
    "other", ["no disk", "prepare.dogs: raw data of dogs changed since prepare ran: dvc repro -f prepare@dogs"]
)
def test_nothing_is_packed_again_where_more_is_wrong(project, repro, unprofiled, capsys, monkeypatch, other) -> None:
    changed = "prepare.pets: raw data of pets changed since prepare ran: dvc repro -f prepare@pets"
    monkeypatch.setattr(check, "find_problems", lambda root: ([changed, other], []))
    assert main(["train", "pets"]) == 1
    assert repro.forced == [] and repro.calls == 0 and f"error: {other}" in capsys.readouterr().err


def test_a_profile_of_another_folder_is_not_taken(project, repro, unprofiled, capsys) -> None:
    assert main(["train", "pets"]) == 0
    (project / "other").mkdir()
    (project / "pets").rename(project / "other/pets")
    assert main(["train", "other/pets"]) == 1
    error = capsys.readouterr().err
    assert f"profiles/pets.yaml is there and reads {project / 'pets'}, not {project / 'other/pets'}" in error
    assert repro.calls == 1


def test_a_profile_that_is_no_text_is_named(project, repro, capsys) -> None:
    (project / "profiles/pets.yaml").write_bytes(b"prepare:\n  pets: {root: caf\xe9}\n")
    assert main(["train", "pets"]) == 1
    assert capsys.readouterr().err.startswith("error: profiles/pets.yaml: not YAML 1.2: ") and repro.calls == 0


def test_faulty_labels_leave_nothing_behind(project, repro, capsys) -> None:
    (project / "pets/x.csv").write_text("file,labels\ncat/0.png,cat\nnowhere.png,dog\n")
    assert main(["train", "pets"]) == 1
    assert "nowhere.png" in capsys.readouterr().err
    assert not (project / "profiles/pets.yaml").exists() and repro.calls == 0


@pytest.mark.parametrize("lacking", ["dvc.yaml", "params.yaml", ".dvc"])
def test_outside_the_project_the_remedy_is_named(project, repro, capsys, lacking) -> None:
    (project / lacking).rename(project / "elsewhere")
    assert main(["train", "pets"]) == 1
    assert (
        f"error: no {lacking} here: `spml train` runs the pipeline of the project's folder" in capsys.readouterr().err
    )
    assert repro.calls == 0
