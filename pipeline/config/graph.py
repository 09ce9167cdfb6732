"""The DVC graph that params.yaml makes: deps that nothing makes, and folders that removed runs left."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from pydantic import BaseModel, ValidationError

from pipeline.config.params import TRAINING_STAGES, Params
from pipeline.core import files
from pipeline.core.errors import ConfigError, FileError
from pipeline.core.strict import explain
from pipeline.core.yaml import parse_yaml

RUN_FOLDERS = ("runs", "analyses", "data/simulate")
"""Folders whose outs belong to runs and label draws."""


@dataclass(frozen=True)
class Graph:
    """The resolved stages of a project.

    Attributes:
        root: Project root, resolved.
        stages: DVC's stages.
        outs: Their outs, relative to the root where they lie in it.
    """

    root: Path
    stages: list[Any]
    outs: set[PurePath]

    @cached_property
    def holders(self) -> set[PurePath]:
        """Folders that hold outs."""
        return {parent for out in self.outs for parent in out.parents}

    def makes(self, path: PurePath) -> bool:
        """Return whether a path is an out, lies in one or holds one."""
        return path in self.holders or not self.outs.isdisjoint((path, *path.parents))


def relative(item: Any, root: Path) -> PurePath:
    """Return the path of DVC's dep or out, relative to the root where it lies in it."""
    path = Path(item.fs_path)
    return PurePath(path.relative_to(root) if path.is_relative_to(root) else path)


def read_yaml(root: Path, name: str) -> Any:
    """Return the content of a YAML file of the project.

    Args:
        root: Project root.
        name: Path of the file below it.

    Raises:
        ConfigError: It cannot be read, or is not YAML 1.2.
    """
    try:
        return parse_yaml((root / name).read_text(encoding="utf-8"), name, fast=True)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: cannot be read ({error})") from error


def read_graph(root: Path) -> Graph:
    """Resolve the stages of a project.

    Args:
        root: Project root, which holds dvc.yaml and .dvc.

    Returns:
        The stages that have outs.

    Raises:
        DvcException: There is no project, or dvc.yaml cannot be resolved.
    """
    from dvc.repo import Repo

    base = root.resolve()
    with Repo(str(base)) as repo:
        stages = [stage for stage in repo.index.stages if stage.outs]
    return Graph(base, stages, {relative(out, base) for stage in stages for out in stage.outs})


def check(root: Path, params: Params, last: "LastRun") -> tuple[list[str], list[Path]]:
    """Check that each dep of each stage can be met, and list what removed runs left.

    Args:
        root: Project root, which holds dvc.yaml and .dvc.
        params: The checked parameters.
        last: What DVC recorded.

    Returns:
        One line for each problem, and what removed runs left under `RUN_FOLDERS`.
    """
    from dvc.exceptions import DvcException

    try:
        if (root / "dvc.yaml").is_file():
            read_yaml(root, "dvc.yaml")  # DVC itself would write out its aliases, however many they stand for
        graph = read_graph(root)
    except ConfigError as error:
        return [str(error)], []
    except DvcException as error:
        return [f"dvc.yaml: {error}"], []
    return [*broken_lock(root), *unmet_deps(graph, params)], leftovers(graph, last)


def broken_lock(root: Path) -> list[str]:
    """Return a problem where DVC was killed while it noted who runs, since it refuses to start then."""
    path = root / ".dvc" / "tmp" / "rwlock"
    try:
        files.read_json(path)
    except FileError:
        if path.is_file():
            remedy = "while no DVC runs in this project, delete it and go on; it holds no result"
            return [f".dvc/tmp/rwlock: was cut short when DVC was killed; {remedy}: rm .dvc/tmp/rwlock"]
    return []


def unmet_deps(graph: Graph, params: Params) -> list[str]:
    """Return one line for each dep that no stage makes and no file meets, with the first stage that has it."""
    from dvc.dependency import ParamsDependency

    missing: dict[str, list[str]] = {}
    contents: dict[PurePath, Any] = {}
    for stage in graph.stages:
        for dep in stage.deps:
            path = relative(dep, graph.root)
            if isinstance(dep, ParamsDependency) and (graph.root / path).exists():
                if path not in contents:
                    contents[path] = read_yaml(graph.root, str(path))
                faults = [f"{path} has no {key}" for key in _absent(dep.params, contents[path])]
            else:
                faults = _unmet(graph, path, params)
            for fault in faults:
                missing.setdefault(fault, []).append(getattr(stage, "name", None) or stage.addressing)
    more = {fault: f" and {len(names) - 1} more" if len(names) > 1 else "" for fault, names in missing.items()}
    return [f"dvc.yaml: {names[0]}{more[fault]}: dep {fault}" for fault, names in missing.items()]


def _unmet(graph: Graph, path: PurePath, params: Params) -> list[str]:
    """Return why a file that a stage depends on is neither made nor at hand; nothing where it is."""
    if graph.makes(path):
        return []
    if path.parts[0] in {out.parts[0] for out in graph.outs}:  # what lies there unmade was left by a removed run
        return [f"{path} is no stage's out{_remedy(path, params)}"]
    return [] if (graph.root / path).exists() else [f"{path} does not exist"]


def _remedy(path: PurePath, params: Params) -> str:
    """Return which entry of the grid makes a run's file, where the path is one."""
    match = re.fullmatch(r"runs/([a-z_]+)/([a-z0-9_]+)-([a-z0-9_]+)-(\d+)-(\d+)(/.+)?", path.as_posix())
    if not match or match[1] not in TRAINING_STAGES:
        return ""
    stage, dataset, method, draw, seed, _ = match.groups()
    if method not in getattr(params.grid, stage):
        return f"; add {method} to grid.{stage}"
    return (
        f"; it is made for dataset {dataset} in grid.datasets, draw {draw} in grid.draws and seed {seed} in grid.seeds"
    )


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


def leftovers(graph: Graph, last: "LastRun") -> list[Path]:
    """Return what removed runs left: outs on DVC's record that no stage makes any more, as DVC recorded them.

    What DVC has not made, or what was altered since, is not among them: nobody could bring it back.

    Args:
        graph: The stages as they are.
        last: What DVC recorded.

    Returns:
        Folders and files below `RUN_FOLDERS`, relative to the root, sorted.
    """
    unmade = {path: digest for path, digest in last.outs().items() if not graph.makes(path)}
    there = {path: digest for path, digest in unmade.items() if (graph.root / path).exists()}
    if not there:
        return []
    from dvc.fs import LocalFileSystem
    from dvc.repo import Repo
    from dvc_data.hashfile.build import build

    def read_digest(path: PurePath) -> str | None:
        file = str(graph.root / path)
        return build(repo.cache.local, file, LocalFileSystem(), "md5", dry_run=True)[2].hash_info.value

    with Repo(str(graph.root)) as repo:
        return sorted(Path(path) for path, digest in there.items() if read_digest(path) == digest)


class _Out(BaseModel):
    path: str
    md5: str | None = None


class _Stage(BaseModel):
    params: dict[str, dict[str, Any]] = {}
    outs: list[_Out] = []


class _Lock(BaseModel):
    stages: dict[str, _Stage] = {}


class LastRun:
    """What DVC recorded of the last run of each stage.

    Args:
        root: Project root; without a dvc.lock nothing is on record.

    Raises:
        ConfigError: dvc.lock is not as DVC writes it.
    """

    def __init__(self, root: Path):
        self.on_record = (root / "dvc.lock").is_file()
        try:
            content = _Lock.model_validate(read_yaml(root, "dvc.lock") if self.on_record else {})
        except ValidationError as error:
            undo = "`git checkout dvc.lock` brings back the last commit's"
            raise ConfigError(f"{explain(error, 'dvc.lock').splitlines()[0]}; {undo}") from error
        self.stages = content.stages

    def outs(self) -> dict[PurePath, str]:
        """Return the digests of the recorded outs below `RUN_FOLDERS`, by path."""
        outs = [out for stage in self.stages.values() for out in stage.outs if out.md5]
        return {
            PurePath(out.path): str(out.md5)
            for out in outs
            if any(PurePath(out.path).is_relative_to(folder) for folder in RUN_FOLDERS)
        }

    def has_other_params(self, stage: str, section: str, value: Any) -> bool:
        """Return whether DVC will run a stage again anyway, since a section of params.yaml is another.

        Args:
            stage: Name of the DVC stage, as in ``prepare@digits``.
            section: Dotted key of the section.
            value: What params.yaml holds now.

        Returns:
            False where nothing is on record.
        """
        recorded = self.stages[stage].params.get("params.yaml", {}) if stage in self.stages else {}
        return self.on_record and recorded.get(section) != value
