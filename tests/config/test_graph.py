"""The DVC graph: each dep that nothing makes is named, and what removed runs left; one project is resolved a state."""

import hashlib
import json
import shutil
from pathlib import Path, PurePath
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline.config import graph
from pipeline.config.params import read_project
from pipeline.core import files
from tests import copies

BARE = ["runs/finetune/digits-em-0-2", "runs/finetune/digits-em-0-2.json", "runs/mine", "analyses/maps"]
"""What DVC did not make."""
LEFT = [
    "data/simulate/digits",  # of before label draws had a number
    "data/simulate/digits-1",
    "runs/finetune/digits-em-0-1",
    "runs/finetune/digits-em-0-1.json",
    "runs/lac/digits-lac-0-0-queue",
]
KEPT = [
    "data/prepare/cats",  # hours of packing, and no other stage reads it
    "data/simulate/digits-0",
    "runs/finetune/digits-em-0-0",
    "runs/finetune/digits-em-0-0.json",
    "runs/lac/digits-lac-0-0-no_queue",
]
ALTERED = ["runs/linear_init/digits-em-0-1", "runs/linear_init/digits-em-0-1.json"]
GONE = ["runs/end_to_end/digits-em-0-1"]


def write_out(root: Path, path: str, content: dict[str, int]) -> dict[str, Any]:
    """Write a folder of one file, or a file, and return its entry in dvc.lock by DVC's rule for folders."""
    if path.endswith(".json"):
        files.write_json(root / path, content)
        return {"path": path, "hash": "md5", "md5": hashlib.md5((root / path).read_bytes()).hexdigest()}
    files.write_json(root / path / "x.json", content)
    digest = hashlib.md5((root / path / "x.json").read_bytes()).hexdigest()
    listing = json.dumps([{"md5": digest, "relpath": "x.json"}])
    return {"path": path, "hash": "md5", "md5": hashlib.md5(listing.encode()).hexdigest() + ".dir", "nfiles": 1}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A copy of the project with its default params; whoever alters it puts it back."""
    root = tmp_path_factory.mktemp("project")
    copies.project(repository, root)
    return root


def test_the_default_passes_and_only_what_dvc_made_for_removed_runs_is_named(project: Path) -> None:
    outs = {path: write_out(project, path, {"a": 1}) for path in LEFT + KEPT + ALTERED + GONE + BARE}
    stages = {f"finetune@{path}": {"cmd": "x", "outs": [outs[path]]} for path in outs if path not in BARE}
    files.write_json(project / "dvc.lock", {"schema": "2.0", "stages": stages})
    for path in ALTERED:  # started again without DVC
        write_out(project, path, {"a": 2})
    shutil.rmtree(project / GONE[0])
    try:
        problems, leftovers = graph.check(project, read_project(project), graph.LastRun(project))
    finally:
        (project / "dvc.lock").unlink()
    assert problems == [] and leftovers == sorted(map(Path, LEFT))
    assert graph.check(project, read_project(project), graph.LastRun(project)) == ([], [])  # nothing on record
    for folder in ("runs", "analyses", "data"):
        shutil.rmtree(project / folder)


def test_deps_that_nothing_makes_are_named_with_the_entry_that_would(project: Path) -> None:
    path = project / "params.yaml"
    before = path.read_text()
    content: Any = YAML(typ="safe", pure=True).load(before)
    content["grid"] |= {"linear_init": ["an", "em_apl", "iun", "full"], "end_to_end": ["an"]}
    run = {
        "dataset": "digits",
        "method": "an",
        "draw": 0,
        "seed": 0,
        "start": "wan",
        "set": {"stage": {}, "method": {}},
    }
    content["variants"]["finetune"]["digits-an-0-0-x"] = run
    files.write_json(path, content)
    missing = project / "stages/backbone.py"
    code = missing.read_bytes()
    missing.unlink()
    weights = project / "runs/end_to_end/digits-plc-0-0/weights.pt"  # left by a removed run: it meets no dep
    files.write_bytes(weights, b"old")
    try:
        problems, leftovers = graph.check(project, read_project(project), graph.LastRun(project))
    finally:
        path.write_text(before)
        missing.write_bytes(code)
        shutil.rmtree(project / "runs")
    for stage, dep, remedy in (
        ("finetune@digits-em-0-0", "runs/linear_init/digits-em-0-0", "add em to grid.linear_init"),
        ("finetune_variant@digits-an-0-0-x", "runs/linear_init/digits-wan-0-0", "add wan to grid.linear_init"),
        ("lac@digits-lac-0-0", "runs/end_to_end/digits-plc-0-0", "add plc to grid.end_to_end"),
    ):
        lines = [line for line in problems if f"dep {dep}" in line]
        assert lines and all(line.startswith(f"dvc.yaml: {stage}") for line in lines), problems
        assert all(line.endswith(f" is no stage's out; {remedy}") for line in lines), problems
    rest = [line for line in problems if "is no stage's out" not in line]
    assert rest and all(line.endswith(": dep stages/backbone.py does not exist") for line in rest), problems
    assert leftovers == []  # made by nobody knows whom


def test_without_dvc_it_says_so(tmp_path: Path, repository: Path) -> None:
    (problem,), leftovers = graph.check(tmp_path, read_project(repository), graph.LastRun(tmp_path))
    assert problem.startswith("dvc.yaml: ") and leftovers == []


def test_what_lies_in_a_folder_of_outs_is_made_and_so_is_what_holds_one() -> None:
    made = graph.Graph(Path(), [], {PurePath("report/figures"), PurePath("a.txt")})
    for path in ("report/figures/x/1.png", "report/figures", "report", "a.txt"):
        assert made.makes(PurePath(path)), path
    for path in ("report/x", "a", "b.txt"):
        assert not made.makes(PurePath(path)), path


def test_keys_that_params_lack_are_named(tmp_path: Path) -> None:
    assert graph._absent(["a", "a.b", "a.c", "d.e"], {"a": {"b": 1}}) == ["a.c", "d.e"]


def test_a_stage_runs_again_where_its_section_is_another(tmp_path: Path) -> None:
    assert not graph.LastRun(tmp_path).has_other_params("prepare@a", "prepare.a", {"x": 1})  # nothing on record
    stage = {"cmd": "x", "params": {"params.yaml": {"prepare.a": {"x": 1}}}}
    files.write_json(tmp_path / "dvc.lock", {"schema": "2.0", "stages": {"prepare@a": stage}})
    last = graph.LastRun(tmp_path)
    assert not last.has_other_params("prepare@a", "prepare.a", {"x": 1})
    assert last.has_other_params("prepare@a", "prepare.a", {"x": 2})
    assert last.has_other_params("prepare@b", "prepare.b", {"x": 1})


@pytest.mark.parametrize("content", ["", "{", '{"path": [{"pid": 1'])
def test_a_lock_that_a_kill_cut_short_is_named_with_its_remedy(tmp_path: Path, content: str):
    lock = tmp_path / ".dvc" / "tmp" / "rwlock"
    assert graph.broken_lock(tmp_path) == []
    lock.parent.mkdir(parents=True)
    lock.write_text("{}")  # as DVC leaves it
    assert graph.broken_lock(tmp_path) == []
    lock.write_text(content)
    (problem,) = graph.broken_lock(tmp_path)
    assert "rm .dvc/tmp/rwlock" in problem
    assert lock.is_file()  # whoever may still run is for the user to say
