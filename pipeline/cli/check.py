"""Preflight: ``spml check`` finds, in seconds and without torch, what would fail after hours.

It checks the schema of params.yaml, that every method and source of the grid exists and accepts its settings, that each
stage gives each method what it reads, that raw data can be read and is what the outputs at hand were made of, and that
every dep of every resolved DVC stage is an out of another stage or a file at hand: DVC itself would train for hours
before it met a missing head, or be content with one that a removed run left behind; and it deletes a stage's outputs
before the stage can refuse its input. All problems are listed at once, each with its key. Folders of removed runs are
named; ``--remove-leftovers`` deletes them.
"""

import argparse
import ast
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from pydantic import ValidationError

from pipeline.config.params import BY_DATASET, PUBLISHED, TRAINING_STAGES, Params, read_params
from pipeline.core import files
from pipeline.core.errors import ConfigError, FileError, SourceError
from pipeline.core.strict import NAME, Strict, explain
from pipeline.labels import weights
from pipeline.labels.table import SPLITS, Objects, Table, read_objects, read_table
from pipeline.networks.settings import HEAD_GIVES, SAME_WEIGHTS, DigitsBackbone, Head
from pipeline.sources import base as sources
from pipeline.training.settings import Training

RUN_FOLDERS = ("runs", "analyses")
SETTINGS_MODULES = {"__future__", "collections", "math", "pathlib", "pipeline", "pydantic", "re", "typing"}
"""Top-level modules that a settings schema may draw on: they load fast."""
OUR_MODULES = {
    "pipeline.core",
    "pipeline.core.faults",
    "pipeline.core.strict",
    "pipeline.data",
    "pipeline.data.own_data",
    "pipeline.data.raw",
    "pipeline.methods.shared.schedules",
}
"""Of ours, those that it may."""
CONTINUES = {"finetune": "linear_init", "lac": "end_to_end"}
"""Training stages that start from another stage's network."""
OF_PICTURES = frozenset({"maps", "geometry"})
"""Needs that cached features cannot meet, whatever the head."""


@dataclass(frozen=True)
class Facts:
    """What the source text of a method or source file says.

    Attributes:
        settings: Its schema.
        views: Augmented views that the method asks for.
        needs: What the method reads beside logits.
    """

    settings: type[Strict]
    views: tuple[str, ...] = ("weak",)
    needs: frozenset[str] = frozenset()


# ---------------------------------------------------------------------------------------------- reading source text
def _defined(node: ast.stmt) -> list[str]:
    """Return the names that a top-level statement binds."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _settings(tree: ast.Module, label: str) -> type[Strict]:
    """Execute ``class Settings`` and the top-level statements that it draws on, nothing else.

    Args:
        tree: A parsed module.
        label: Its path, for messages.

    Returns:
        The schema.

    Raises:
        ConfigError: There is none, or it needs a module that is slow to load.
    """
    defines = {name: node for node in tree.body for name in _defined(node)}
    if not isinstance(defines.get("Settings"), ast.ClassDef):
        raise ConfigError(f"{label}: has no `class Settings(Strict)`")
    wanted, todo = {"Settings"}, ["Settings"]
    while todo:
        names = {node.id for node in ast.walk(defines[todo.pop()]) if isinstance(node, ast.Name)}
        fresh = (names & defines.keys()) - wanted
        wanted |= fresh
        todo += fresh
    chosen = [node for node in tree.body if wanted.intersection(_defined(node))]
    for node in chosen:
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            whole = node.module in ("pipeline.core", "pipeline.data")  # then each name is a module
            modules += [f"{node.module}.{alias.name}" for alias in node.names] if whole else [node.module or ""]
        for module in modules:
            ours = module.startswith("pipeline.")
            if module.split(".")[0] not in SETTINGS_MODULES or (ours and module not in OUR_MODULES):
                raise ConfigError(f"{label}: class Settings draws on `{module}`, which the preflight does not load")
    space: dict[str, Any] = {"__name__": label}
    exec(compile(ast.Module(chosen, []), label, "exec"), space)
    return space["Settings"]


def _literal(node: ast.expr | None) -> Any:
    """Return the value of a literal, of ``frozenset(literal)`` or of nothing (None)."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("frozenset", "tuple"):
        return ast.literal_eval(node.args[0]) if node.args else ()
    return ast.literal_eval(node) if node is not None else None


@cache
def read_facts(path: Path) -> Facts:
    """Read a method's or source's schema, views and needs from its file without importing it.

    Args:
        path: A file of pipeline/methods or pipeline/sources.

    Returns:
        What the text says.

    Raises:
        ConfigError: The file does not parse, or does not say it in literals.
    """
    label = "/".join(path.parts[-3:])
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        settings = _settings(tree, label)
        defines = {name: node for node in tree.body for name in _defined(node)}
        method = defines.get("METHOD")
        chosen = (
            defines.get(method.value.id)
            if isinstance(method, ast.Assign) and isinstance(method.value, ast.Name)
            else None
        )
        values = {
            name: node.value
            for node in getattr(chosen, "body", [])
            for name in _defined(node)
            if hasattr(node, "value")
        }
        views, needs = _literal(values.get("views")), _literal(values.get("needs"))
    except ConfigError:
        raise
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{label}: cannot be read without running it ({error})") from error
    return Facts(settings, tuple(views or ("weak",)), frozenset(needs or ()))


def _facts(root: Path, folder: str, name: str, key: str) -> Facts:
    path = root / "pipeline" / folder / f"{name}.py"
    if name in ("base", "__init__") or not NAME.fullmatch(name) or not path.is_file():
        names = sorted(file.stem for file in path.parent.glob("*.py") if file.stem not in ("base", "__init__"))
        raise ConfigError(f"{key}: `{name}` has no file pipeline/{folder}/{name}.py; there are {', '.join(names)}")
    return read_facts(path)


def _validate(facts: Facts, block: dict[str, Any], key: str) -> None:
    try:
        facts.settings.model_validate(block)
    except ValidationError as error:
        raise ConfigError(explain(error, key)) from error


# ---------------------------------------------------------------------------------------------- params
def data_problems(root: Path, params: Params) -> list[str]:
    """Check each dataset's source, its settings, its raw data and the backbone's file.

    Args:
        root: Project root.
        params: The checked parameters.

    Returns:
        One line for each problem.
    """
    problems = []
    for dataset in params.grid.datasets:
        key = f"prepare.{dataset}"
        problems += _backbone_problems(root, params, dataset)
        bias = params.settings("simulate", dataset).bias
        if bias.kind == "table" and not bias.path(root).is_file():
            problems.append(f"simulate.bias.file: no file {bias.file}")
        block = params.settings("prepare", dataset)
        source = block.get("source")
        if not isinstance(source, str):
            problems.append(f"{key}.source: names no file of pipeline/sources")
            continue
        try:
            _validate(_facts(root, "sources", source, f"{key}.source"), block, key)
            sound = True
        except ConfigError as error:
            problems += str(error).splitlines()
            sound = False
        raw = block.get("root")
        if isinstance(raw, str) and not (root / Path(raw).expanduser()).is_dir():
            problems.append(f"{key}.root: no folder {raw}; name it with `make repro PROFILE=... ROOT=folder`")
        elif isinstance(raw, str) and sound:
            problems += _raw_problems(root, params, dataset)
        elif sound and bias.kind != "uniform":  # drawn pictures: nothing else can be wrong with their labels
            problems += _bias_problems(root, params, dataset, *_drawn(root, params, dataset))
    return problems


def _drawn(root: Path, params: Params, dataset: str) -> tuple[Table, Objects | None]:
    """Return the table of a dataset whose source draws its pictures, and its objects."""
    source, settings = sources.load(params.settings("prepare", dataset), f"prepare.{dataset}")
    data = source.read(settings, root)
    return data.table, data.objects


def _raw_problems(root: Path, params: Params, dataset: str) -> list[str]:
    """Read the raw lists of a dataset as its prepare will, since DVC deletes the outputs of a stage before it runs.

    Returns:
        One line for each problem; no picture is opened.
    """
    key = f"prepare.{dataset}"
    source, settings = sources.load(params.settings("prepare", dataset), f"prepare.{dataset}")
    folder = root / "data" / "prepare" / dataset
    try:
        now = source.fingerprint(settings, root)
        then = _recorded(folder / "report.json", "raw_sha256")
        stays = not _will_rerun(root, params, "prepare", dataset)
        unchanged = then == now and stays and (folder / "table.h5").is_file()
        if unchanged:
            table, objects = read_table(folder / "table.h5"), read_objects(folder / "table.h5")
        else:
            data = source.read(settings, root)
            table, objects = data.table, data.objects
    except (SourceError, FileError, OSError) as error:
        return [f"{key}: {line}" for line in str(error).splitlines()]
    if empty := [name for name in SPLITS if not len(table.rows(name))]:
        return [f"{key}: no image in {' and '.join(empty)}"]
    if then not in (None, now) and stays:
        return [f"{key}: raw data of {dataset} changed since prepare ran: dvc repro -f prepare@{dataset}"]
    return [*_label_problems(params, dataset, table), *_bias_problems(root, params, dataset, table, objects)]


def _bias_problems(root: Path, params: Params, dataset: str, table: Table, objects: Objects | None) -> list[str]:
    """Tell what keeps labels from being drawn with the bias asked for; DVC does not see a table of weights.

    Returns:
        One line for each problem.
    """
    settings = params.settings("simulate", dataset)
    file = settings.bias.path(root) if settings.bias.kind == "table" else None
    if file is not None and not file.is_file():
        return []  # told for every source
    try:
        weights.bias_weights(root, table, objects, settings)
    except (ConfigError, SourceError) as error:
        return str(error).splitlines()
    then = (_recorded(root / "data" / "simulate" / dataset / "report.json", "bias") or {}).get("file_sha256")
    if file is None or then in (None, files.sha256(file)) or _will_rerun(root, params, "simulate", dataset):
        return []
    return [f"simulate.bias.file: {settings.bias.file} changed since simulate ran: dvc repro -f simulate@{dataset}"]


def _label_problems(params: Params, dataset: str, table: Table) -> list[str]:
    """Tell which settings ask for more, or less, than labels that are exhaustive or not can give.

    Returns:
        One line for each setting.
    """
    problems = []
    protocol = params.settings("simulate", dataset).protocol
    if (protocol == "given") == table.exhaustive:
        are, use = ("", "literature or seeded") if table.exhaustive else (" not", "given")
        problems.append(
            f"simulate.protocol: {protocol}, but the labels of {dataset} are{are} exhaustive; set it to {use}"
        )
    simulate = params.settings("simulate", dataset)
    bare = int(((table.official == 0) & ~table.truth.any(axis=1)).sum())
    if bare and simulate.empty_rows == "error":
        problems.append(f"simulate.empty_rows: error, and {bare} training and val images of {dataset} have no positive")
    if not table.truth[table.rows("val")].any():
        problems.append(f"prepare.{dataset}: no val image has a positive label, so no epoch can be chosen by it")
    if table.measurable("val"):
        return problems
    for stage in TRAINING_STAGES:
        for _, method, variant in (run for seed in params.grid.seeds for run in params.keys(stage, dataset, seed)):
            try:
                select = params.run(stage, dataset, method, variant)[0].select
            except ConfigError:  # said where runs are checked
                continue
            if select == "clean":
                at = params.origin(stage, dataset, method, variant, "select")
                problems.append(
                    f"{at}: clean, but the labels of {dataset} are not exhaustive; set it to observed or last"
                )
    return list(dict.fromkeys(problems))


def _backbone_problems(root: Path, params: Params, dataset: str) -> list[str]:
    """Check the backbone's file, or the size of the pictures that it is pretrained on.

    Returns:
        One line for each problem.
    """
    key, settings = f"backbone.{dataset}", params.settings("backbone", dataset)
    if isinstance(settings, DigitsBackbone):
        size = params.settings("prepare", dataset).get("size")
        return [f"{key}.size: {settings.size} is not prepare.{dataset}.size, {size}"] if settings.size != size else []
    if settings.file is None:
        return []
    if not (root / settings.file).is_file():
        return [f"{key}.file: no file {settings.file}"]
    then = _recorded(root / "weights" / dataset / "provenance.json", "file_sha256")
    if then in (None, files.sha256(root / settings.file)) or _will_rerun(root, params, "backbone", dataset):
        return []
    return [f"{key}.file: {settings.file} changed since backbone ran: dvc repro -f backbone@{dataset}"]


def _recorded(path: Path, key: str) -> Any:
    """Return what an output at hand says under a key; None where there is no output, or one that cannot be read."""
    try:
        content = files.read_json(path)
    except FileError:  # DVC makes it anew, or names what is wrong with it
        return None
    return content.get(key) if isinstance(content, dict) else None


def _will_rerun(root: Path, params: Params, stage: str, dataset: str) -> bool:
    """Tell whether DVC runs a stage again anyway.

    Returns:
        Whether the stage's settings are not those of its last run; False where no run is on record.
    """
    from dvc.fs import LocalFileSystem
    from dvc.utils.serialize import load_path  # reads as DVC will

    if not (root / "dvc.lock").is_file():
        return False
    stages = (load_path(str(root / "dvc.lock"), LocalFileSystem()) or {}).get("stages") or {}
    entry = stages.get(f"{stage}@{dataset}")
    last = ((entry or {}).get("params") or {}).get("params.yaml") or {}
    if stage not in BY_DATASET:
        return last.get(stage) != getattr(params, stage)
    return last.get(f"{stage}.{dataset}") != getattr(params, stage)[dataset]


def available(stage: str, settings: Training) -> frozenset[str]:
    """Tell which words of a method's ``needs`` a training stage can meet.

    Args:
        stage: A training stage.
        settings: The stage's settings.

    Returns:
        Words of pipeline.methods.shared.base.NEEDS.
    """
    words = HEAD_GIVES[settings.head.kind] | {"epoch_logits", "expected_positives", "parameters", "disk"}
    return words - {"maps"} if stage == "linear_init" else words | {"geometry"}


def _run_problems(root: Path, params: Params, stage: str, dataset: str, method: str, what: str | None) -> Iterable[str]:
    """Yield what keeps one training run from starting."""
    where = f"variants.{stage}.{what}" if what else f"grid.{stage}"
    try:
        settings, own = params.run(stage, dataset, method, what)
        facts = _facts(root, "methods", method, where)
        if what is not None:
            _validate(facts, own, f"{where}.set.method")
    except ConfigError as error:
        yield from str(error).splitlines()
        return

    def at(key: str) -> str:
        return params.origin(stage, dataset, method, what, key)

    if stage == "linear_init":
        if len(facts.views) > 1:
            yield f"{where}: `{method}` compares {len(facts.views)} views of an image; cached features hold no views"
        if settings.head.kind != "linear":
            yield f"{at('head')}: `{settings.head.kind}` reads maps; cached features hold none"
        for key in [key for key, asked in (("crop", settings.crop < 1), ("freeze", settings.freeze)) if asked]:
            yield f"{at(key)}: concerns images or backbone; cached features have neither ({where})"
        if settings.flip and not params.settings("features", dataset).mirrored:
            yield f"{at('flip')}: needs the mirrored view in the feature cache (features.{dataset}.mirrored)"
        if pictures := sorted(facts.needs & OF_PICTURES):
            yield f"{where}: `{method}` needs {' and '.join(pictures)} of pictures; cached features hold none"
    elif "strong" in facts.views and settings.strong is None:
        yield f"{at('strong')}: is null, and `{method}` ({where}) asks for a strong view"
    if unmet := sorted(facts.needs - available(stage, settings) - (OF_PICTURES if stage == "linear_init" else set())):
        yield f"{where}: `{method}` needs {', '.join(unmet)}, which {at('head')} `{settings.head.kind}` does not give"
    if "expected_positives" in facts.needs and dataset not in params.expected_positives:
        yield f"expected_positives.{dataset}: is missing, and `{method}` ({where}) needs it"
    if stage in CONTINUES:
        start = params.variants.finetune[what].start if stage == "finetune" and what else method
        first, before = _first(root) if stage == "lac" else start, CONTINUES[stage]
        head = _head(params, before, dataset, first)
        if first is not None and head is not None and not _may_start(stage, settings.head, head):
            yield (
                f"{at('head')}: differs from {params.origin(before, dataset, first, None, 'head')}, whose weights it "
                f"starts from (`{settings.head.kind}` from `{head.kind}`, {where})"
            )


@cache
def _first(root: Path) -> str | None:
    """Return the method whose network the second stage goes on from, as dvc.yaml says; None where it does not."""
    from dvc.fs import LocalFileSystem
    from dvc.utils.serialize import load_path

    graph = load_path(str(root / "dvc.yaml"), LocalFileSystem()) if (root / "dvc.yaml").is_file() else None
    stage = ((graph or {}).get("stages") or {}).get("lac") or {}
    return str(stage["cmd"]).split()[-1] if "cmd" in stage else None


def _may_start(stage: str, head: Head, before: Head) -> bool:
    """Return whether a stage can start a head from another's weights: lac goes on with the very network."""
    return head == before or (stage == "finetune" and {head.kind, before.kind} in SAME_WEIGHTS)


def _head(params: Params, stage: str, dataset: str, method: str | None) -> Head | None:
    """Return the head that a run of a stage trains; None for no run, or for one that is not valid (named elsewhere)."""
    try:
        return params.run(stage, dataset, method)[0].head if method else None
    except ConfigError:
        return None


def run_problems(root: Path, params: Params) -> list[str]:
    """Check each training run of the grid and of the variants.

    Args:
        root: Project root.
        params: The checked parameters.

    Returns:
        One line for each problem, none twice.
    """
    problems = []
    for stage in TRAINING_STAGES:
        for dataset in params.grid.datasets:
            for method in getattr(params.grid, stage):
                problems += _run_problems(root, params, stage, dataset, method, None)
        for key, variant in getattr(params.variants, stage).items():
            for axis, value, values in (
                ("datasets", variant.dataset, params.grid.datasets),
                ("seeds", variant.seed, params.grid.seeds),
            ):
                if value not in values:
                    problems.append(f"variants.{stage}.{key}: {value} is not in grid.{axis}")
            problems += _run_problems(root, params, stage, variant.dataset, variant.method, key)
    for method in params.grid.landscape:
        if method not in params.grid.finetune:
            problems.append(f"grid.landscape: `{method}` is not in grid.finetune, whose networks it looks at")
    return list(dict.fromkeys(problems))


def settings_problems(root: Path, params: Params) -> list[str]:
    """Check every block of ``methods``, also for datasets and methods that the grid does not run now.

    Args:
        root: Project root.
        params: The checked parameters.

    Returns:
        One line for each problem.
    """
    problems = []
    for method, section in params.methods.items():
        for dataset in section:
            if dataset == PUBLISHED:
                continue  # training recipes, which the schema of params.yaml has checked
            try:
                facts = _facts(root, "methods", method, "methods")
                _validate(facts, params.method(method, dataset), f"methods.{method}.{dataset}")
            except ConfigError as error:
                problems += str(error).splitlines()
    return problems


def params_problems(root: Path, params: Params) -> list[str]:
    """Check what the schema cannot: params against the project's files and against each other.

    Args:
        root: Project root.
        params: The checked parameters.

    Returns:
        One line for each problem.
    """
    return data_problems(root, params) + run_problems(root, params) + settings_problems(root, params)


# ---------------------------------------------------------------------------------------------- the graph
def _under(path: PurePath, folders: set[PurePath]) -> bool:
    return not folders.isdisjoint((path, *path.parents))


def _hint(dep: PurePath, params: Params) -> str:
    """Return which grid entry makes a run's file, where the path is one."""
    match = re.fullmatch(r"runs/([a-z_]+)/([a-z0-9_]+)-([a-z0-9_]+)-(\d+)/.+", dep.as_posix())
    if not match or match[1] not in TRAINING_STAGES:
        return ""
    stage, dataset, method, seed = match.groups()
    if method not in getattr(params.grid, stage):
        return f"; add {method} to grid.{stage}"
    return f"; it is made for dataset {dataset} in grid.datasets and seed {seed} in grid.seeds"


def graph_problems(root: Path, params: Params) -> tuple[list[str], list[Path]]:
    """Check that each dep of each resolved DVC stage can be met, and find what removed runs left.

    Args:
        root: Project root, which holds dvc.yaml and .dvc.
        params: The checked parameters.

    Returns:
        One line for each problem, and the folders under runs/ and analyses/ that no stage makes.
    """
    from dvc.dependency import ParamsDependency
    from dvc.exceptions import DvcException
    from dvc.fs import LocalFileSystem
    from dvc.repo import Repo
    from dvc.utils.serialize import load_path  # reads as DVC will

    base = root.resolve()
    try:
        with Repo(str(base)) as repo:
            stages = [stage for stage in repo.index.stages if stage.outs]
    except DvcException as error:
        return [f"dvc.yaml: {error}"], []

    def path(item: Any) -> PurePath:
        place = Path(item.fs_path)
        return PurePath(place.relative_to(base) if place.is_relative_to(base) else place)

    outs = {path(out) for stage in stages for out in stage.outs}
    made = {out.parts[0] for out in outs}
    parents = {parent for out in outs for parent in out.parents} | outs
    missing: dict[str, list[str]] = {}
    contents: dict[PurePath, Any] = {}
    for stage in stages:
        for dep in stage.deps:
            name = path(dep)
            if isinstance(dep, ParamsDependency):
                if name not in contents:
                    contents[name] = load_path(str(base / name), LocalFileSystem())
                faults = [f"{name} has no {key}" for key in _absent(dep.params, contents[name])]
            elif name in parents or _under(name, outs):
                faults = []
            elif name.parts[0] in made:  # a folder of outs: what lies there unmade was left by a removed run
                faults = [f"{name} is no stage's out{_hint(name, params)}"]
            else:
                faults = [] if (base / name).exists() else [f"{name} does not exist"]
            for fault in faults:
                missing.setdefault(fault, []).append(getattr(stage, "name", None) or stage.addressing)
    problems = []
    for fault, names in missing.items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        problems.append(f"dvc.yaml: {names[0]}{others}: dep {fault}")
    return problems, _leftovers(base, parents, outs)


def _absent(keys: Iterable[str], content: Any) -> list[str]:
    """Return the dotted keys that the content of a YAML file lacks."""
    absent = []
    for key in keys:
        value: Any = content
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            absent.append(key)
    return absent


def _leftovers(root: Path, parents: set[PurePath], outs: set[PurePath]) -> list[Path]:
    """Return the folders <top>/<stage>/<key> (or <top>/<stage>) under RUN_FOLDERS that belong to no stage."""
    found = []
    for top in RUN_FOLDERS:
        for stage in sorted(path for path in (root / top).glob("*") if path.is_dir()):
            keys = sorted(path for path in stage.iterdir() if path.is_dir())
            strangers = [key for key in keys if not _stage_makes(key.relative_to(root), parents, outs)]
            whole = not _stage_makes(stage.relative_to(root), parents, outs)
            found += [stage] if whole else strangers
    return [path.relative_to(root) for path in found]


def _stage_makes(folder: PurePath, parents: set[PurePath], outs: set[PurePath]) -> bool:
    return folder in parents or _under(folder, outs)


# ---------------------------------------------------------------------------------------------- all of it
def check(root: Path = Path(".")) -> tuple[list[str], list[Path]]:
    """Run the preflight.

    Args:
        root: Project root.

    Returns:
        One line for each problem, and the folders that removed runs left.
    """
    try:
        params = read_params(root / "params.yaml")
    except ConfigError as error:
        return str(error).splitlines(), []
    problems, leftovers = graph_problems(root, params)
    return params_problems(root, params) + problems, leftovers


def main(argv: list[str] | None = None) -> int:
    """Return the exit status of the command line."""
    parser = argparse.ArgumentParser(prog="spml check", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--remove-leftovers", action="store_true", help="delete the folders of removed runs")
    options = parser.parse_args(argv)
    problems, leftovers = check()
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if leftovers and options.remove_leftovers:
        for folder in leftovers:
            shutil.rmtree(folder)
            print(f"removed {folder}")
    elif leftovers and not problems:  # a fault in params.yaml may be why their runs are not asked for
        more = f" and {len(leftovers) - 3} more" if len(leftovers) > 3 else ""
        names = ", ".join(str(folder) for folder in leftovers[:3]) + more
        print(
            f"warning: left by runs that params.yaml no longer asks for: {names}; nothing shows them, but they lie in "
            "folders that analyses depend on. `spml check --remove-leftovers` deletes them.",
            file=sys.stderr,
        )
    if problems:
        print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}; nothing was run", file=sys.stderr)
    return 1 if problems else 0
