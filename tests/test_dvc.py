"""The graph in dvc.yaml against the code: declared deps suffice, outs repeat to the byte, edits reach what they should.

Everything runs on a copy of the project with the profile `tiny`, reproduced once for all tests.
"""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline.core import seal
from pipeline.labels.table import read_table
from pipeline.methods.shared import base
from tests import copies

pytestmark = pytest.mark.slow

SCRATCH = ".pipeline"
DRAWS = (0, 1)
EM_APL = {f"{stage}@digits-em_apl-{draw}-0" for stage in ("linear_init", "finetune", "landscape") for draw in DRAWS}
OF_EM_APL = "params/methods/em_apl.yaml"
TRAINING = ("linear_init", "finetune", "end_to_end", "lac")


@dataclass(frozen=True)
class Stage:
    """A resolved stage: its name, its command line, and paths relative to the project."""

    name: str
    words: tuple[str, ...]
    deps: tuple[str, ...]
    params: tuple[str, ...]
    """Keys of params.yaml, and paths of files that are read whole."""
    outs: tuple[str, ...]

    @property
    def kind(self) -> str:
        return self.name.partition("@")[0]


def resolve(root: Path) -> list[Stage]:
    """All stages of a project, matrix and foreach expanded, in the order of dvc.yaml."""
    from dvc.dependency import ParamsDependency
    from dvc.repo import Repo

    def paths(items: list[Any]) -> tuple[str, ...]:
        return tuple(Path(item.fs_path).relative_to(root.resolve()).as_posix() for item in items)

    with Repo(str(root)) as repo:
        return [
            Stage(
                str(stage.name),
                tuple(shlex.split(stage.cmd)),
                paths([dep for dep in stage.deps if not isinstance(dep, ParamsDependency)]),
                tuple(
                    key for dep in stage.deps if isinstance(dep, ParamsDependency) for key in dep.params or paths([dep])
                ),
                paths(stage.outs),
            )
            for stage in repo.index.stages
        ]


# ---------------------------------------------------------------------------------------------- static: the closure
def stage_arguments(root: Path, stage: Stage) -> dict[str, str]:
    """Names and values of a stage's positional arguments, from the signature of its function."""
    name = stage.words[2].removeprefix("stages.")
    tree = ast.parse((root / "stages" / f"{name}.py").read_text())
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    positional = [word for word in stage.words[3:] if not word.startswith("--")]
    return dict(zip([argument.arg for argument in function.args.args[1:]], positional, strict=False))


@cache
def imports(root: Path, file: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Files of ours that a file imports anywhere, and folders from which it imports a module by a computed name."""

    def of(module: str) -> set[str]:
        base = root.joinpath(*module.split("."))
        parents = {str(Path(*module.split(".")[:end], "__init__.py")) for end in range(1, module.count(".") + 1)}
        if base.is_dir():
            return parents | {(base / "__init__.py").relative_to(root).as_posix()}
        return (
            parents | {base.with_suffix(".py").relative_to(root).as_posix()}
            if base.with_suffix(".py").exists()
            else set()
        )

    files: set[str] = set()
    computed: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                files |= of(alias.name)
        elif isinstance(node, ast.ImportFrom):
            files |= of(str(node.module))
            for alias in node.names:
                files |= of(f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "import_module":
            match = re.match(r"f'((?:\w+\.)+)\{", ast.unparse(node.args[0]))
            assert match, f"{file}: what it imports by name cannot be told"
            computed.add(match[1].rstrip(".").replace(".", "/"))
    return frozenset(file for file in files if (root / file).exists()), frozenset(computed)


@cache
def holds_code(file: Path) -> bool:
    """Whether a module is more than the sentence on the door of a room."""
    body = ast.parse(file.read_text()).body
    return any(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in body)


def closure(root: Path, stage: Stage) -> set[str]:
    """Files of ours that a stage's process may import."""
    assert stage.words[:2] == ("python", "-m"), f"{stage.name}: one `python -m` a stage, no shell"
    arguments = stage_arguments(root, stage)
    params = YAML(typ="safe", pure=True).load((root / "params.yaml").read_text())
    names = {
        "pipeline/methods": lambda: arguments["method"],
        "pipeline/sources": lambda: params["prepare"][arguments["dataset"]]["source"],
    }
    found: set[str] = set()
    todo = [stage.words[2].replace(".", "/") + ".py"]
    while todo:
        file = todo.pop()
        if file not in found:
            found.add(file)
            static, computed = imports(root, root / file)
            todo += static
            todo += [f"{folder}/{names[folder]()}.py" for folder in computed]
    return {file for file in found if holds_code(root / file)}


@pytest.fixture(scope="module")
def unrun(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The default project, not run."""
    root = tmp_path_factory.mktemp("unrun")
    copies.project(repository, root)
    return root


def test_deps_hold_what_a_stage_imports(unrun: Path) -> None:
    missing = {}
    for stage in resolve(unrun):
        declared = set(stage.deps)
        lacks = {file for file in closure(unrun, stage) if not declared & {file, *map(str, Path(file).parents)}}
        if lacks:
            missing[stage.name] = sorted(lacks)
    assert missing == {}


def test_deps_hold_what_any_method_imports(unrun: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(unrun, tmp_path / "copy"))
    for stage in (*TRAINING, "landscape"):
        put(root, f"grid.{stage}", base.names())
    test_deps_hold_what_a_stage_imports(root)


def test_deps_name_no_room_that_a_stage_imports_nothing_of(unrun: Path) -> None:
    needless = {}
    for stage in resolve(unrun):
        code = [dep for dep in stage.deps if re.fullmatch(r"(pipeline|stages)(/\w+)+(\.py)?", dep)]
        used = closure(unrun, stage)
        extra = [dep for dep in code if dep not in used and not any(file.startswith(f"{dep}/") for file in used)]
        if extra:
            needless[stage.name] = extra
    assert needless == {}  # each would make the stage stale by edits that cannot change it


def test_an_import_in_a_function_is_seen(unrun: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(unrun, tmp_path / "copy"))
    audit = next(stage for stage in resolve(root) if stage.kind == "audit")
    file = root / "stages/audit.py"
    file.write_text(
        file.read_text()
        + "\n\ndef late():\n    from pipeline.methods.shared.cells import cell_risk\n    return cell_risk\n"
    )
    assert "pipeline/methods/shared/cells.py" in closure(root, audit) - closure(unrun, audit)


def test_a_resume_point_of_features_knows_all_code_that_computes_them(unrun: Path) -> None:
    (rooms,) = re.findall(r"resume\.room_files\((.*)\)", (unrun / "stages/features.py").read_text())
    known = {f"pipeline/{room}/" for room in ast.literal_eval(f"({rooms},)")}
    (stage,) = [stage for stage in resolve(unrun) if stage.kind == "features"]
    others = {file for file in closure(unrun, stage) if not file.startswith(tuple(known)) and file.endswith(".py")}
    settings = {"pipeline/config/params.py", "pipeline/audits/settings.py", "stages/entry.py", "stages/features.py"}
    assert {file for file in others if not file.endswith("__init__.py")} <= settings


def test_training_depends_on_its_own_method_only(unrun: Path) -> None:
    for stage in resolve(unrun):
        if stage.kind in TRAINING:
            method = stage_arguments(unrun, stage)["method"]
            files = {dep for dep in stage.deps if dep.startswith("pipeline/methods")}
            assert files == {"pipeline/methods/shared", f"pipeline/methods/{method}.py"}, stage.name
            assert [key for key in stage.params if "methods" in key] == [f"params/methods/{method}.yaml"], stage.name


def test_what_is_made_of_pictures_depends_on_no_label(unrun: Path) -> None:
    """Else each correction would compute all features again."""
    for stage in resolve(unrun):
        if stage.kind in ("backbone", "features"):
            of_data = {dep for dep in stage.deps if dep.startswith(("data/", "corrections", "runs/", "analyses/"))}
            wanted = {f"data/prepare/{stage.words[3]}/{file}" for file in ("images.h5", "splits.h5")}
            assert of_data == (wanted if stage.kind == "features" else set())


def test_outs_keep_the_run_cache_usable(repository: Path) -> None:
    content = YAML(typ="safe", pure=True).load((repository / "dvc.yaml").read_text())
    for name, stage in content["stages"].items():
        for out in stage.get("do", stage).get("outs", []):
            if out == {"report/summary.json": {"cache": False}}:  # Git keeps it, and the report is quickly made anew
                continue
            assert isinstance(out, str), f"{name}: {out}: `cache: false` and `persist` switch DVC's run cache off"


# ---------------------------------------------------------------------------------------------- dynamic: tiny runs
@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The tiny project, reproduced and committed. Whoever alters it puts it back."""
    root = tmp_path_factory.mktemp("ran")
    copies.project(repository, root, "tiny")
    copies.run(root, sys.executable, "-m", "pipeline.cli", "check")
    copies.run(root, "dvc", "repro", PYTHONHASHSEED="1")
    copies.run(root, "git", "add", "-A")
    copies.run(root, "git", "commit", "-qm", "reproduced")
    return root


def times_run(root: Path) -> int:
    """How many stages have run to their end in a project."""
    return len((root / SCRATCH / "seconds.tsv").read_text().splitlines())


def content(root: Path, paths: tuple[str, ...] | list[str]) -> dict[str, bytes]:
    """Bytes of all files at or under the paths."""
    files = [
        file for path in paths for file in ([root / path] if (root / path).is_file() else (root / path).rglob("*"))
    ]
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in files if file.is_file()}


def kinds(root: Path) -> list[str]:
    return list(YAML(typ="safe", pure=True).load((root / "dvc.yaml").read_text())["stages"])


def test_every_stage_of_dvc_yaml_is_in_the_tiny_project(ran: Path) -> None:
    off = {
        "search"
    }  # it reads all methods' files, so that each edit of one would make it stale: tests/stages/test_search.py
    assert {stage.kind for stage in resolve(ran)} == set(kinds(ran)) - off


def test_git_stays_clean_but_for_the_lock_and_the_summary(ran: Path) -> None:
    shown = copies.run(ran, "git", "show", "--stat=200", "--format=", "HEAD")
    changed = {line.split("|")[0].strip() for line in shown.splitlines() if "|" in line}
    assert changed == {"dvc.lock", "report/summary.json"}


@pytest.mark.parametrize("kind", kinds(Path(__file__).resolve().parent.parent))
def test_a_stage_needs_its_declared_deps_only_and_repeats_its_bytes(ran: Path, tmp_path: Path, kind: str) -> None:
    stages = {stage.name: stage for stage in resolve(ran)}
    for name, stage in stages.items():
        again = re.sub(r"-0(-0)?$", r"-1\1", name)  # of the next label draw, which does for both
        if stage.kind == kind and (again == name or again not in stages):
            run_alone(ran, tmp_path / name, stage)


def run_alone(ran: Path, folder: Path, stage: Stage) -> None:
    """Run a stage in a folder with its declared deps only; compare what it writes with what DVC's run of it wrote."""
    for dep in (*stage.deps, "params.yaml", *(key for key in stage.params if key.endswith(".yaml"))):
        (folder / dep).parent.mkdir(parents=True, exist_ok=True)
        if (ran / dep).is_dir():
            shutil.copytree(ran / dep, folder / dep, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copy(ran / dep, folder / dep)
    for package in [file for folder in ("pipeline", "stages") for file in (ran / folder).rglob("__init__.py")]:
        (folder / package.relative_to(ran)).parent.mkdir(parents=True, exist_ok=True)
        (folder / package.relative_to(ran)).write_text("")
    before = content(folder, ["."])

    copies.run(folder, *stage.words, PYTHONHASHSEED="2")  # without DVC, too

    expected = content(ran, stage.outs)
    assert expected and all((ran / out).exists() for out in stage.outs)
    after = content(folder, ["."])
    differ = [path for path, data in expected.items() if after.get(path) != data]
    assert not differ, "another folder and hash seed gave other bytes, or none"
    written = {path for path in after if after[path] != before.get(path) and not path.startswith(f"{SCRATCH}/")}
    assert written == set(expected), "a stage writes its outs and nothing else"
    assert before.keys() <= after.keys()


MAY_LACK = {
    "finetune_variant": r"^data/beliefs/|method\.pt$",  # another method's memory is its own
    "landscape": "^data/beliefs/|^runs/linear_init/|^data/features/",  # of a stage that another profile looks at
    **dict.fromkeys(
        ["linear_init", "linear_init_variant", "finetune", "end_to_end", "end_to_end_variant", "lac", "lac_variant"],
        "^data/beliefs/",  # read where shown labels choose, or a method or its density asks for them
    ),
}
"""Declared inputs that the profile's settings do not make a stage read."""


def test_outputs_say_what_they_were_made_from(ran: Path) -> None:
    """The inputs of seals and manifests are the outputs that dvc.yaml declares as deps."""
    tops = ("data/", "weights/", "runs/", "analyses/")
    files = [path for top in tops for path in (ran / top).rglob("*") if path.suffix in (".h5", ".pt")]
    sealed = {path.relative_to(ran).as_posix() for path in files}
    for stage in resolve(ran):
        if stage.kind == "report":
            continue
        declared = {file for file in sealed for dep in stage.deps if file == dep or file.startswith(f"{dep}/")}
        if stage.kind in ("audit", "wasserstein"):
            kinds = ("logits.h5", "labels.h5") if stage.kind == "audit" else ("logits.h5",)
            mine = stage.name.removeprefix(f"{stage.kind}@digits")  # label draw and seed
            runs = {file for file in declared if file.startswith("runs/")}
            declared -= {file for file in runs if not re.search(rf"{mine}(-\w+)?/", file) or not file.endswith(kinds)}
        lacking = {file for file in declared if re.search(MAY_LACK.get(stage.kind, "$^"), file)}
        (folder,) = {out for out in stage.outs if (ran / out).is_dir()}
        made = {file: seal.read(ran / file).inputs for file in sealed if file.startswith(f"{folder}/")}
        manifest = f"{folder}/manifest.json"
        made[manifest] = json.loads((ran / manifest).read_text())["inputs"]
        for file, inputs in made.items():
            own = {other for other in inputs if other.startswith(f"{folder}/")}  # pictures are those of a table
            assert declared - lacking <= set(inputs) - own <= declared, f"{stage.name}: {file}"
            assert {other: seal.read(ran / other).digest for other in inputs} == inputs


def test_a_second_repro_runs_nothing(ran: Path) -> None:
    before = times_run(ran)
    assert "Data and pipelines are up to date." in copies.run(ran, "dvc", "repro")
    assert times_run(ran) == before
    assert json.loads(copies.run(ran, "dvc", "status", "--json")) == {}


@pytest.fixture
def edited(ran: Path) -> Any:
    """The tiny project with one setting of EM+APL changed."""
    path = ran / OF_EM_APL
    text = path.read_text()
    changed = text.replace("proportion: 0.75", "proportion: 0.5")
    assert changed != text
    path.write_text(changed)
    yield ran
    path.write_text(text)
    copies.run(ran, "dvc", "checkout", "-q")


def test_an_edit_of_a_method_names_its_runs_only(edited: Path) -> None:
    status = json.loads(copies.run(edited, "dvc", "status", "--json"))
    assert set(status) == EM_APL
    diff = json.loads(copies.run(edited, "dvc", "params", "diff", "--json"))
    assert list(diff) == [OF_EM_APL] and list(diff[OF_EM_APL]) == ["default.proportion"]
    assert diff[OF_EM_APL]["default.proportion"].items() >= {("old", 0.75), ("new", 0.5)}


def test_undoing_an_edit_restores_from_the_cache_without_training(edited: Path) -> None:
    outs = [out for stage in resolve(edited) for out in stage.outs]
    before = content(edited, outs)
    copies.run(edited, "dvc", "repro", "landscape@digits-em_apl-0-0")
    between = {
        path.split("/")[2].removesuffix(".json") for path, data in content(edited, outs).items() if data != before[path]
    }
    assert between == {"digits-em_apl-0-0"}
    ran = times_run(edited)
    path = edited / OF_EM_APL
    path.write_text(path.read_text().replace("proportion: 0.5", "proportion: 0.75"))
    said = copies.run(edited, "dvc", "repro")
    assert times_run(edited) == ran
    assert "is cached - skipping run" in said and "Running stage" not in said
    assert content(edited, outs) == before


def test_an_edit_of_a_methods_code_names_its_runs_only(ran: Path) -> None:
    path = ran / "pipeline/methods/em_apl.py"
    text = path.read_text()
    path.write_text(text + "# a comment\n")
    try:
        status = json.loads(copies.run(ran, "dvc", "status", "--json"))
    finally:
        path.write_text(text)
    assert set(status) == EM_APL


ANALYSES = {"audit", "wasserstein", "report"}
"""Stages that read all runs of a dataset and seed, so that a new one makes them stale; they take seconds."""


def stale_runs(root: Path) -> set[str]:
    """Stages that DVC would run, without the analyses of all runs."""
    status = json.loads(copies.run(root, "dvc", "status", "--json"))
    return {name for name in status if name.partition("@")[0] not in ANALYSES}


@pytest.fixture
def restored(ran: Path) -> Iterator[Path]:
    """The tiny project, whose params and methods a test may alter."""

    def files() -> set[Path]:
        return {ran / "params.yaml", *(ran / "params/methods").iterdir(), *(ran / "pipeline/methods").glob("*.py")}

    kept = {path: path.read_bytes() for path in files()}
    lock = (ran / "dvc.lock").read_bytes()
    yield ran
    for path in files() - kept.keys():
        path.unlink()
    for path, data in kept.items():
        path.write_bytes(data)
    copies.run(ran, sys.executable, "-m", "pipeline.cli", "check", "--remove-leftovers", "--yes")
    (ran / "dvc.lock").write_bytes(lock)  # by then it has served to tell what DVC made
    copies.run(ran, "dvc", "checkout", "-q")


def alter(root: Path, *changes: tuple[str, str]) -> None:
    """Replace texts of params.yaml, each of which is there once."""
    text = (root / "params.yaml").read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (root / "params.yaml").write_text(text)


def put(root: Path, dotted: str, value: Any, file: str = "params.yaml") -> Any:
    """Set a key of a file of params, and return its content as others read it."""
    path, yaml = root / file, YAML()
    block = whole = yaml.load(path)
    *parents, last = dotted.split(".")
    for key in parents:
        block = block[key]
    block[last] = value
    yaml.dump(whole, path)
    return YAML(typ="safe", pure=True).load(path)


def test_a_new_method_runs_itself_and_nothing_of_the_others(restored: Path) -> None:
    root = restored
    shutil.copy(root / "pipeline/methods/an.py", root / "pipeline/methods/brand_new.py")
    alter(
        root,
        ("  linear_init: [an, em_apl]", "  linear_init: [an, em_apl, brand_new]"),
        ("  finetune: [em_apl]", "  finetune: [em_apl, brand_new]"),
    )
    (root / "params/methods/brand_new.yaml").write_text("default: {floor: 0.0}\n")
    copies.run(root, sys.executable, "-m", "pipeline.cli", "check")
    mine = {f"{stage}@digits-brand_new-{draw}-0" for stage in ("linear_init", "finetune") for draw in DRAWS}
    assert stale_runs(root) == mine
    before = content(root, ["runs"])
    done = times_run(root)
    copies.run(root, "dvc", "repro", *sorted(mine))
    assert times_run(root) == done + 4
    after = content(root, ["runs"])
    assert {path: after[path] for path in before} == before
    new = {path.split("/")[2].removesuffix(".json") for path in after.keys() - before.keys()}
    assert new == {f"digits-brand_new-{draw}-0" for draw in DRAWS}
    assert stale_runs(root) == set()


def test_a_new_variant_runs_itself_and_nothing_of_the_others(restored: Path) -> None:
    run = "{dataset: digits, method: em_apl, draw: 0, seed: 0, start: an, set: {stage: {epochs: 1}, method: {}}}"
    here = "    digits-an-0-0-train_norm: "
    alter(restored, (here, f"    digits-em_apl-0-0-from_an: {run}\n{here}"))
    assert stale_runs(restored) == {"finetune_variant@digits-em_apl-0-0-from_an"}


def test_a_correction_runs_what_reads_labels_and_computes_no_feature_again(restored: Path) -> None:
    done, file = times_run(restored), restored / "corrections" / "digits.csv"
    path = read_table(restored / "data/prepare/digits/table.h5").paths[0]
    file.write_text(f"path,class,value\n{path},digit_1,present\n{path},digit_2,absent\n")
    try:
        said = copies.run(restored, "dvc", "repro", "linear_init@digits-an-0-0")
    finally:
        file.unlink()
    ran = [line.split("\t")[0] for line in (restored / SCRATCH / "seconds.tsv").read_text().splitlines()[done:]]
    assert ran == ["prepare", "simulate", "beliefs", "linear_init"]
    assert all(f"Stage '{stage}@digits' didn't change, skipping" in said for stage in ("backbone", "features"))


def test_an_edit_of_a_published_recipe_names_its_methods_runs_only(restored: Path) -> None:
    put(restored, "published.default.end_to_end.epochs", 77, OF_EM_APL)
    assert stale_runs(restored) == EM_APL
    diff = json.loads(copies.run(restored, "dvc", "params", "diff", "--json"))[OF_EM_APL]
    assert list(diff) == ["published.default.end_to_end.epochs"]


def test_an_edit_of_a_published_recipe_by_dvc_changes_no_other(restored: Path) -> None:
    """Also where another stage's recipe is copied from the same anchor."""
    from dvc.utils.hydra import apply_overrides  # as `dvc exp run -S` does

    read, path = YAML(typ="safe", pure=True), restored / "params/methods/lac.yaml"
    before = read.load(path)
    apply_overrides(path, ["published.default.end_to_end.epochs=77"])
    after = read.load(path)
    assert after["published"]["default"]["lac"]["epochs"] == 40
    assert after["published"]["default"]["end_to_end"].pop("epochs") == 77
    assert before["published"]["default"]["end_to_end"].pop("epochs") == 40
    assert after["published"]["default"]["end_to_end"] == before["published"]["default"]["end_to_end"]


def test_stages_run_by_hand_refuse_what_was_made_from_other_data(restored: Path) -> None:
    """Without DVC nothing runs the stages between; each says which one is to run again."""
    words = {"simulate": ["digits", "0"], "linear_init": ["digits", "an", "0", "0"]}
    words |= {"finetune": ["digits", "em_apl", "0", "0"], "landscape": ["digits", "em_apl", "0", "0"], "report": []}
    words |= {"features": ["digits"], "audit": ["digits", "0", "0"], "wasserstein": ["digits", "0", "0"]}

    def run_by_hand(stage: str, *arguments: str) -> str:
        command = [sys.executable, "-m", f"stages.{stage}", *arguments]
        done = subprocess.run(command, cwd=restored, env=copies.ENVIRONMENT, capture_output=True, text=True)
        assert "Traceback" not in done.stderr
        return done.stderr if done.returncode else ""

    before = content(restored, ["runs", "analyses", "report"])
    try:
        put(restored, "prepare.digits.seed", 1)
        assert run_by_hand("prepare", "digits") == ""
        for stage in words.keys() - {"simulate", "features"}:
            assert "than lies there; run " in run_by_hand(stage, *words[stage]), stage
        assert run_by_hand("simulate", "digits", "0") == ""
        stale = (
            "features.h5: made from another data/prepare/digits/images.h5 than lies there; run features@digits again"
        )
        assert stale in run_by_hand("linear_init", *words["linear_init"])
        assert content(restored, ["runs", "analyses", "report"]) == before
    finally:
        copies.run(restored, "dvc", "checkout", "--force", "-q")


def test_an_edit_of_a_method_that_is_not_run_names_nothing(restored: Path) -> None:
    put(restored, "default.weight", 0.1, "params/methods/l1r.yaml")
    put(restored, "published.voc", {"end_to_end": {"epochs": 77}}, "params/methods/l1r.yaml")
    path = restored / "pipeline/methods/l1r.py"
    path.write_text(path.read_text() + "# a comment\n")
    assert json.loads(copies.run(restored, "dvc", "status", "--json")) == {}


def test_a_method_that_starts_from_anothers_head_is_stale_with_its_run_not_with_its_settings(restored: Path) -> None:
    of_an = {
        *(f"linear_init@digits-an-{draw}-0" for draw in DRAWS),
        "linear_init_variant@digits-an-0-0-slow",
        "finetune_variant@digits-an-0-0-train_norm",
    }
    path = restored / "pipeline/methods/an.py"
    path.write_text(path.read_text() + "# a comment\n")
    assert stale_runs(restored) == of_an  # that of `digits-plc-0-0-from_an` follows if the head comes out otherwise
    deps = {stage.name: stage.deps for stage in resolve(restored)}["finetune_variant@digits-plc-0-0-from_an"]
    assert "runs/linear_init/digits-an-0-0/weights.pt" in deps and "pipeline/methods/an.py" not in deps


def test_a_stage_that_fails_leaves_the_lock_as_it_was(ran: Path) -> None:
    lock, path = (ran / "dvc.lock").read_bytes(), ran / "params/methods/lac.yaml"
    text = path.read_text()
    path.write_text(text.replace("queue_size: 32", "queue_size: -1"))
    try:
        done = subprocess.run(["dvc", "repro", "lac"], cwd=ran, env=copies.ENVIRONMENT, capture_output=True, text=True)
        assert done.returncode and "queue_size" in done.stdout + done.stderr
        assert (ran / "dvc.lock").read_bytes() == lock
    finally:
        path.write_text(text)
        copies.run(ran, "dvc", "checkout", "-q")
    assert os.path.exists(ran / "runs/lac/digits-lac-0-0/weights.pt")
