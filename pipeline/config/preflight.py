"""The preflight: what would fail after hours is found in seconds, by applying the rules to all of params.yaml.

Methods and sources are imported, and raw lists are read as `prepare` will read them, since DVC deletes a stage's
outputs before the stage can refuse its input. No picture is opened.
"""

import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import rules
from pipeline.config.graph import LastRun
from pipeline.config.params import PUBLISHED, TRAINING_STAGES, Params, method_file, method_key
from pipeline.config.plan import check_method, check_search, plan_run, plan_search
from pipeline.core import files, resume
from pipeline.core.device import choose_device
from pipeline.core.errors import ConfigError, FileError, SourceError
from pipeline.core.text import prefixed
from pipeline.labels import weights
from pipeline.labels.beliefs import beliefs_file, read_given
from pipeline.labels.corrections import digest_corrections
from pipeline.labels.observed import observed_file
from pipeline.labels.table import SPLITS, Objects, Table, read_objects, read_table
from pipeline.methods.shared import base as methods
from pipeline.networks import backbone as backbones
from pipeline.networks import timm_backbone
from pipeline.networks.settings import TimmBackbone
from pipeline.sources import base as sources
from pipeline.training.features import PLACES_FILE, raise_if_one_place
from pipeline.training.settings import BeliefFits
from pipeline.training.tracking import check_tracking


def check(root: Path, params: Params, last: LastRun, tell: Callable[[str], None] = lambda _: None) -> list[str]:
    """Check params.yaml against the project's files, the methods, the sources and the raw data.

    Args:
        root: Project root.
        params: The checked parameters.
        last: What DVC recorded.
        tell: Is given what a run will take, a line each.

    Returns:
        One line for each problem, none twice.
    """
    problems = check_environment()
    tables = {}
    for dataset in params.grid.datasets:
        found, table = check_dataset(root, params, dataset, last)
        problems += found + check_places(root, params, dataset, table, tell)
        if table is not None:
            tables[dataset] = table
    problems += [*check_runs(params, tables), *check_searches(params, tables), *check_methods(params)]
    return list(dict.fromkeys(problems))


# ---------------------------------------------------------------------------------------------- machine
def check_environment() -> list[str]:
    """Return what is wrong with the settings of the environment, a line each."""
    problems = []
    for use in (choose_device, resume.check_scratch, check_tracking):
        try:
            use()
        except (ConfigError, FileError) as error:
            problems.append(str(error))
    return problems


# ---------------------------------------------------------------------------------------------- datasets
def check_dataset(root: Path, params: Params, dataset: str, last: LastRun) -> tuple[list[str], Table | None]:
    """Check a dataset: its source's settings, raw data, labels, and the file of its backbone.

    Args:
        root: Project root.
        params: The checked parameters.
        dataset: Name of a dataset of the grid.
        last: What DVC recorded.

    Returns:
        One line for each problem; and the table, where its labels could be read and are fit to train on.
    """
    simulate = params.settings("simulate", dataset)
    block, key = params.settings("prepare", dataset), f"prepare.{dataset}"
    problems = rules.label_draws(dataset, simulate, params.grid.draws)
    beliefs = params.settings("beliefs", dataset)
    problems += [*check_backbone(root, params, dataset, last), *rules.bias_file(simulate, root)]
    problems += rules.beliefs_file(dataset, beliefs, root)
    problems += rules.beliefs_by_places(dataset, beliefs, params.settings("features", dataset))
    loaded, missing = None, rules.raw_folder(dataset, block, root)
    try:
        loaded = sources.load(block, key)
    except ConfigError as error:
        problems += str(error).splitlines()
    problems += missing
    # drawn by the source itself: nothing can be wrong with such pictures and their labels
    drawn = "root" not in block and digest_corrections(root, dataset) is None
    if loaded is None or missing or (drawn and simulate.bias.kind == "uniform" and beliefs.kind == "fits"):
        return problems, None
    found, table, objects = read_raw(root, params, dataset, loaded, last)
    if table is None:
        return [*problems, *found], None
    problems += rules.label_protocol(dataset, simulate, table)
    problems += rules.empty_rows(dataset, simulate, table)
    problems += rules.validation_without_positives(dataset, table)
    problems += check_beliefs(root, params, dataset, table, last)
    return [*problems, *check_bias(root, params, dataset, (table, objects), last)], table


def read_raw(
    root: Path, params: Params, dataset: str, loaded: tuple[Any, Any], last: LastRun
) -> tuple[list[str], Table | None, Objects | None]:
    """Read the raw lists of a dataset, or what prepare found in them where they are the same.

    Args:
        root: Project root.
        params: The checked parameters.
        dataset: Name of a dataset.
        loaded: Its source and the source's settings.
        last: What DVC recorded.

    Returns:
        One line for each problem; the table and its objects, None after a problem.
    """
    source, settings = loaded
    folder, key = root / "data" / "prepare" / dataset, f"prepare.{dataset}"
    reruns = last.has_other_params(f"prepare@{dataset}", key, params.prepare.get(dataset))
    try:
        recorded = None if reruns else _recorded(folder / "report.json", "raw_sha256")
        now = None if recorded is None else source.fingerprint(settings, root)  # reads what moved since
        corrected = (_recorded(folder / "report.json", "corrections") or {}).get("sha256")
        as_read = recorded == now and corrected == digest_corrections(root, dataset)
        if now is not None and as_read and (folder / "table.h5").is_file():
            table, objects = read_table(folder / "table.h5"), read_objects(folder / "table.h5")
        else:
            data = sources.read(source, settings, root, dataset)
            table, objects = data.table, data.objects
    except (SourceError, FileError, OSError) as error:
        return [prefixed(key, line) for line in str(error).splitlines()], None, None
    problems = rules.empty_splits(dataset, table)
    problems = problems or rules.raw_data_changed(dataset, recorded, now)
    return (problems, None, None) if problems else ([], table, objects)


def check_bias(
    root: Path, params: Params, dataset: str, labels: tuple[Table, Objects | None], last: LastRun
) -> list[str]:
    """Return what keeps labels from being drawn with the bias asked for, a line each."""
    settings = params.settings("simulate", dataset)
    if rules.bias_file(settings, root):
        return []  # said where each dataset is checked
    try:
        weights.bias_weights(root, *labels, settings)
    except (ConfigError, SourceError) as error:
        return str(error).splitlines()
    if settings.bias.kind != "table":
        return []
    problems, now = [], files.sha256(settings.bias.path(root))
    for draw in params.grid.draws:
        stage = f"simulate@{dataset}-{draw}"
        if not last.has_other_params(stage, "simulate", params.simulate):
            report = observed_file(root, dataset, draw).with_name("report.json")
            recorded = (_recorded(report, "bias") or {}).get("file_sha256")
            problems += rules.changed(f"simulate.bias.file: {settings.bias.file}", stage, recorded, now)
    return problems


def check_beliefs(root: Path, params: Params, dataset: str, table: Table, last: LastRun) -> list[str]:
    """Return what is wrong with the table of somebody's beliefs, a line each."""
    settings = params.settings("beliefs", dataset)
    if isinstance(settings, BeliefFits) or rules.beliefs_file(dataset, settings, root):
        return []  # said where each dataset is checked
    key, problems = f"beliefs.{dataset}.file: ", []
    try:
        read_given(settings.path(root), table)
    except SourceError as error:
        return [f"{key}{line}" for line in str(error).splitlines()]
    now = files.sha256(settings.path(root))
    for draw in params.grid.draws:
        stage = f"beliefs@{dataset}-{draw}"
        if not last.has_other_params(stage, "beliefs", params.beliefs):
            report = beliefs_file(root, dataset, draw).with_name("report.json")
            problems += rules.changed(f"{key}{settings.file}", stage, _recorded(report, "file_sha256"), now)
    return problems


def check_timm(root: Path, params: Params, dataset: str, settings: TimmBackbone) -> list[str]:
    """Return what keeps timm's model from being built for a dataset's pictures, or from being downloaded."""
    key = f"backbone.{dataset}"
    try:
        timm_backbone.describe(settings.model, params.settings("prepare", dataset)["size"])
    except ConfigError as error:
        return [str(error).replace("backbone.", f"{key}.", 1)]
    there = settings.weights != "hub" or (root / "weights" / dataset / "backbone.pt").is_file()
    if not there and (reason := timm_backbone.ask_hub(settings.model)):
        return [f"{key}.weights: {reason}; use `weights: file` with a state dict on disk"]
    return []


def _drawn_images(block: dict[str, Any]) -> int:
    """Return how many pictures a source draws itself; 0 where its counts are faulty, which is said elsewhere."""
    counts = [block.get(split, 0) for split in SPLITS]
    return sum(counts) if all(isinstance(count, int) for count in counts) else 0


def check_places(
    root: Path, params: Params, dataset: str, table: Table | None, tell: Callable[[str], None]
) -> list[str]:
    """Return what keeps features of places from being cached, a line each.

    Args:
        root: Project root.
        params: The checked parameters.
        dataset: Name of a dataset.
        table: Its table; None where it could not be read, or the source draws the pictures itself.
        tell: Is given what they will take.
    """
    settings, block = params.settings("features", dataset), params.settings("prepare", dataset)
    images = len(table.paths) if table else _drawn_images(block)
    if not settings.places or not images:
        return []
    try:
        width, *side = backbones.map_shape(params.settings("backbone", dataset), block["size"])
        raise_if_one_place(dataset, (width, *side))
    except ConfigError as error:
        return [str(error)] if str(error).startswith("features.") else []  # else said of the backbone
    width, places = width * len(settings.pools), math.prod(side)
    size = images * width * places * np.dtype(settings.dtype).itemsize
    line = f"features.{dataset}.places: {images} images of {width} features at {places} places in {settings.dtype} are "
    scores = len(table.rows("train")) * len(table.classes) * places * 4 if table else 0
    memory = f"; beliefs by places hold {scores / 1e9:.1f} GB of scores in memory" if scores >= 1e8 else ""
    tell(f"{line}{size / 1e9:.3g} GB on disk, and as much in DVC's cache{memory}")
    there = root / "data" / "features" / dataset / PLACES_FILE
    if there.is_file() and there.stat().st_size >= size:
        return []
    return rules.room_for_places(dataset, 2 * size, shutil.disk_usage(root).free)


def check_backbone(root: Path, params: Params, dataset: str, last: LastRun) -> list[str]:
    """Return what is wrong with the file of a dataset's backbone, or with the size of its pictures, a line each."""
    key, settings = f"backbone.{dataset}", params.settings("backbone", dataset)
    problems, file = rules.backbone(params, dataset, root), getattr(settings, "file", None)
    if isinstance(settings, TimmBackbone):
        problems += check_timm(root, params, dataset, settings)
    if problems or file is None or last.has_other_params(f"backbone@{dataset}", key, params.backbone[dataset]):
        return problems
    recorded = _recorded(root / "weights" / dataset / "provenance.json", "file_sha256")
    return rules.changed(f"{key}.file: {file}", f"backbone@{dataset}", recorded, files.sha256(root / file))


def _recorded(path: Path, key: str) -> Any:
    """Return what an output at hand says under a key; None where there is no output, or one that cannot be read."""
    try:
        content = files.read_json(path)
    except FileError:  # DVC makes it anew, or names what is wrong with it
        return None
    return content.get(key) if isinstance(content, dict) else None


# ---------------------------------------------------------------------------------------------- methods and runs
def check_methods(params: Params) -> list[str]:
    """Check every block of params/methods, also for datasets and methods that the grid does not run now.

    Args:
        params: The checked parameters, with the files of all methods.

    Returns:
        One line for each problem.
    """
    problems = [
        f"{method_file(name)}: no such file, and there is pipeline/methods/{name}.py"
        for name in methods.names()
        if name not in params.methods
    ]
    for name, section in params.methods.items():
        for dataset in [key for key in section if key != PUBLISHED]:  # its recipes were checked as they were read
            try:
                problems += check_method(name, params.method(name, dataset), method_key(name, dataset))
            except ConfigError as error:
                problems += [prefixed(method_file(name), line) for line in str(error).splitlines()]
    return problems


def check_runs(params: Params, tables: dict[str, Table]) -> list[str]:
    """Check each training run of the grid and of the variants.

    Args:
        params: The checked parameters.
        tables: Tables of datasets, where they could be read.

    Returns:
        One line for each problem.
    """
    problems, planned = [], []
    for stage, dataset, method, variant in _runs(params):
        table = tables.get(dataset)
        try:
            run = plan_run(params, stage, dataset, method, variant)
        except ConfigError as error:
            problems += str(error).splitlines()
            continue
        if variant:
            own = params.run(stage, dataset, method, variant)[1]
            problems += check_method(method, own, f"{run.where}.set.method")
        planned.append(run)
        problems += [
            *rules.training_run(run),
            *rules.start_weights(run),
            *(rules.training_data(run, table) if table else []),
        ]
    problems += rules.unused_strong_views(planned)
    for stage in TRAINING_STAGES:
        problems += _off_the_grid(params, stage)
    for method in params.grid.landscape:
        stage = params.grid.landscape_stage
        if method not in getattr(params.grid, stage):
            problems.append(f"grid.landscape: `{method}` is not in grid.{stage}, whose networks it looks at")
    for run in planned:
        if run.stage == params.grid.landscape_stage and run.variant is None and run.method in params.grid.landscape:
            problems += rules.landscape(run)
    return problems


def check_searches(params: Params, tables: dict[str, Table]) -> list[str]:
    """Check the searches of methods' settings that the grid asks for.

    Args:
        params: The checked parameters.
        tables: Tables of datasets, where they could be read.

    Returns:
        One line for each problem.
    """
    problems = []
    for dataset in params.grid.search:
        if dataset not in params.grid.datasets:
            problems.append(f"grid.search: `{dataset}` is not in grid.datasets, whose features it reads")
            continue
        problems += check_search(params, dataset)
        if dataset in tables:
            problems += rules.searched_data(params, dataset, tables[dataset], plan_search(params, dataset))
    return problems


def _runs(params: Params) -> Iterator[tuple[str, str, str, str | None]]:
    """Yield stage, dataset, method and variant of each training run; draws and seeds do not differ."""
    for stage in TRAINING_STAGES:
        for dataset in params.grid.datasets:
            yield from ((stage, dataset, method, None) for method in getattr(params.grid, stage))
        for key, variant in getattr(params.variants, stage).items():
            yield stage, variant.dataset, variant.method, key


def _off_the_grid(params: Params, stage: str) -> list[str]:
    """Return one line for each variant whose dataset, draw or seed the grid does not run."""
    problems = []
    for key, variant in getattr(params.variants, stage).items():
        for axis, value in (("datasets", variant.dataset), ("draws", variant.draw), ("seeds", variant.seed)):
            if value not in getattr(params.grid, axis):
                problems.append(f"variants.{stage}.{key}: {value} is not in grid.{axis}")
    return problems
