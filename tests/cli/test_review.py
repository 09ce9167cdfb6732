"""``spml review`` in a project of eight pictures: pages, tasks, answers and the server."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from pipeline.cli.main import main
from pipeline.labels.beliefs import Beliefs, beliefs_file, write_beliefs
from pipeline.labels.corrections import read_answers
from pipeline.labels.observed import observed_file, read_observed
from pipeline.labels.table import read_table
from stages.prepare import prepare
from stages.simulate import simulate
from tests.copies import ENVIRONMENT
from tests.review.asked import Elements
from tests.stages import finished_runs
from tests.stages.test_prepare import VOC, small_tree


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A project whose pictures are prepared, and what is believed of them."""
    root = tmp_path_factory.mktemp("prepared")
    shipped = finished_runs.shipped(repository)
    finished_runs.write_params(
        root,
        repository,
        prepare=shipped["prepare"] | {"pets": VOC},
        simulate=shipped["simulate"] | {"pets": {}},
    )
    small_tree(root / "raw")
    prepare(root, "pets")
    simulate(root, "pets", 0)
    believe(root)
    return root


@pytest.fixture
def project(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = Path(shutil.copytree(prepared, tmp_path / "project"))
    monkeypatch.chdir(root)
    return root


def believe(root: Path) -> None:
    table_file, labels_file = root / "data/prepare/pets/table.h5", observed_file(root, "pets", 0)
    table = read_table(table_file)
    observed = read_observed(labels_file, table, ["single"])["single"]
    chance = np.linspace(0.1, 0.9, observed.size, dtype=np.float32).reshape(observed.shape)
    belief = np.where(observed == 0, chance, (observed > 0).astype(np.float32))
    found = Beliefs(belief, np.zeros(belief.shape, np.float32), 1.0, np.full((2, 3), 0.5), "count", belief)
    write_beliefs(beliefs_file(root, "pets", 0), found, {}, [table_file, labels_file], {})


def unknown(root: Path, *splits: int) -> set[tuple[str, str]]:
    """Cells that nobody knows, of some splits."""
    table = read_table(root / "data/prepare/pets/table.h5")
    labels = read_observed(observed_file(root, "pets", 0), table, ["single"])["single"]
    cells = np.argwhere((labels == 0) & np.isin(table.split, splits)[:, None])
    return {(table.paths[row], table.classes[column]) for row, column in cells}


def asked(page: Path) -> set[tuple[str, str]]:
    cards = Elements(page.read_text(encoding="utf-8")).all("article")
    return {(str(card["data-path"]), str(card["data-label"])) for card in cards}


@pytest.mark.parametrize("order", ["gain", "score", "random"])
def test_a_page_asks_about_unknown_labels_of_training_images(project, order, capsys):
    assert main(["review", "pets", "--order", order]) == 0
    page = project / "review" / "pets.html"
    assert asked(page) == unknown(project, 0)
    assert f"in the order `{order}`" in capsys.readouterr().out
    assert main(["review", "pets", "--val", "--order", order]) == 0
    assert asked(page) == unknown(project, 0, 1)


def test_a_saved_page_becomes_corrections_that_prepare_reads(project, capsys):
    cells = sorted(unknown(project, 0))
    lines = [
        f"{path},{label},{'present' if place % 2 else 'absent'},Ann,now" for place, (path, label) in enumerate(cells)
    ]
    saved = project / "pets.csv"
    saved.write_text("\n".join(["path,class,value,who,when", *lines]) + "\n")
    assert main(["review", "pets", "--import", str(saved)]) == 0
    assert f"{len(cells)} answers of {saved}: {len(cells)} added, 0 replaced, 0 there before" in capsys.readouterr().out
    assert main(["review", "pets"]) == 0
    assert asked(project / "review" / "pets.html") == set()  # whoever was asked is not asked again
    prepare(project, "pets")
    simulate(project, "pets", 0)
    assert not unknown(project, 0) & set(cells)


def test_an_import_says_whose_answers_without_a_name_are(project, capsys, monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: "station7")
    (project / "new.csv").write_text(
        "path,class,value,who\nJPEGImages/img_0.jpg,cat,absent,\nJPEGImages/img_1.jpg,cat,absent,Ann\n"
    )
    assert main(["review", "pets", "--import", "new.csv"]) == 0
    told = "  1 answer without a name: stored as station7's, the login's name; --who NAME says who answers"
    assert told in capsys.readouterr().out.splitlines()
    assert {each.who for _, each in read_answers(project / "corrections/pets.csv")} == {"station7", "Ann"}
    assert main(["review", "pets", "--import", "new.csv", "--who", "Bob"]) == 0
    assert "login" not in capsys.readouterr().out


def test_an_import_says_which_answers_are_older(project, capsys):
    lines = "path,class,value,who,when\nJPEGImages/img_0.jpg,cat,{},Ann,2026-01-0{}\n"
    (project / "new.csv").write_text(lines.format("absent", 2))
    (project / "old.csv").write_text(lines.format("present", 1))
    assert main(["review", "pets", "--import", "new.csv"]) == 0
    assert "left out" not in capsys.readouterr().out
    assert main(["review", "pets", "--import", "old.csv"]) == 0
    told = "0 added, 0 replaced, 0 there before, 1 left out: the same person has answered otherwise since"
    assert told in capsys.readouterr().out
    assert (project / "corrections/pets.csv").read_text() == lines.format("absent", 2)


@pytest.mark.parametrize("kind", ["csv", "labelstudio", "coco", "fiftyone", "cvat"])
def test_tasks_for_other_tools_are_written(project, kind, capsys):
    assert main(["review", "pets", "--export", kind]) == 0
    files = [path for path in (project / "review").rglob("*") if path.is_file()]
    tasks = next(path for path in files if path.name not in ("metadata.json", "pets-labelstudio-labels.xml"))
    assert files and "JPEGImages/img_" in "".join(path.read_text() for path in files)
    assert main(["review", "pets", "--import", str(tasks)]) == 0
    assert "0 answers of" in capsys.readouterr().out


FAULTS = {
    ("no_such",): "no_such: no such dataset",
    ("pets", "--draw", "7"): r"data/simulate/pets-7/observed\.h5",
    ("pets", "--run", "finetune/pets-an-0-0"): r"runs/finetune/pets-an-0-0/logits\.h5",
    ("pets", "--import", "no.csv"): r"no\.csv is missing",
    ("pets", "--import", "raw"): r"samples\.json is missing",
    ("pets", "--who", "a\nb"): "--who: .* is no name",
    ("digits",): r"data/prepare/digits/table\.h5",
}


@pytest.mark.parametrize("words", FAULTS)
def test_what_is_not_there_is_named(project, words, capsys):
    assert main(["review", *words]) == 1
    assert re.search(FAULTS[words], capsys.readouterr().err)
    assert not (project / "corrections").exists()


def test_answers_about_other_pictures_are_refused(project, capsys):
    (project / "x.csv").write_text("path,class,value\nno.jpg,cat,present\nJPEGImages/img_0.jpg,cow,absent\n")
    assert main(["review", "pets", "--import", "x.csv"]) == 1
    error = capsys.readouterr().err
    assert "x.csv: images are not in the dataset: 'no.jpg'" in error and "'cow'" in error
    assert not (project / "corrections").exists()


def test_a_link_that_leads_out_is_not_served(project, capsys):
    """A picture that became a link after it was prepared."""
    other = project / "secret.jpg"
    path, _ = sorted(unknown(project, 0))[0]
    (project / "raw" / path).rename(other)
    (project / "raw" / path).symlink_to(other)
    assert main(["review", "pets"]) == 1
    assert "leads out" in capsys.readouterr().err or "link" in capsys.readouterr().err


def served(project: Path, *words: str) -> tuple[subprocess.Popen, str]:
    """A server, and its address."""
    command = [sys.executable, "-m", "pipeline.cli", "review", "pets", "--serve", "--who", "Ann", *words]
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, cwd=project, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if match := re.search(r"http://127\.0\.0\.1:\d+/[\w-]+/", line):
            return process, match[0]
    raise AssertionError("no address")


def put(address: str, question: int, value: str) -> None:
    origin = address.split("/", 3)
    headers = {"Content-Type": "application/json", "Origin": "/".join(origin[:3])}
    body = json.dumps({"question": question, "value": value}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{address}answer", body, headers), timeout=10) as reply:
        assert reply.status == 200


@pytest.mark.slow
def test_an_interrupt_ends_the_server_cleanly(project):
    process, address = served(project)
    with urllib.request.urlopen(address, timeout=10) as reply:
        assert "Review of pets" in reply.read().decode()
    put(address, 0, "present")
    put(address, 1, "absent")
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=20)
    assert process.returncode == 0 and "2 answers more than before" in told
    assert len((project / "corrections/pets.csv").read_text().splitlines()) == 3


@pytest.mark.slow
def test_a_killed_server_loses_no_answer(project):
    process, address = served(project)
    put(address, 0, "present")
    process.kill()
    process.communicate(timeout=20)
    assert (project / "corrections/pets.csv").read_text().splitlines()[1].split(",")[2:4] == ["present", "Ann"]
