"""Read everything that the grid and the variants of params.yaml ask for, and name what is not there.

Nothing is searched for: a file is read because params.yaml says that a stage makes it, so what a removed method left
behind never enters the page. In normal mode absent files are an error that names them; in partial mode they are
listed in ``Collected.missing``, with the reason, and everything that depends on them is left out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pipeline.config.params import TRAINING_STAGES, Params
from pipeline.core import files, hdf5
from pipeline.core.errors import FileError
from pipeline.data.images import Pixels
from pipeline.labels.settings import KeptCount
from pipeline.labels.table import Table, read_table

Row = dict[str, Any]
T = TypeVar("T")
SCORED = ("val", "test")
"""Splits of which a run has scores."""
OWN = ("csv", "json", "folder")
"""Sources of data of one's own, which have no official lists of training and test images."""

_TEXT = (
    "class",
    "key",
    "kind",
    "method",
    "path",
    "quantity",
    "reason",
    "split",
    "stage",
)  # columns of analyses that hold words
_NAMED = 5  # files that an error message spells out; a first run may lack hundreds
ONE = KeptCount(kind="count", value=1)


@dataclass(frozen=True)
class Missing:
    """A file that params.yaml asks for and that cannot be read, or a part of params.yaml that cannot be shown."""

    path: str
    """Path from the project root, or a key of params.yaml."""
    reason: str


@dataclass(frozen=True)
class Run:
    """What one training run left, without its weights."""

    key: str
    seed: int
    metrics: Row
    epochs: list[Row]
    """One row an epoch; numbers, None where the field is empty; ``weights`` (raw or average) is text."""
    per_class: list[Row]
    search: list[Row]
    provenance: Row


@dataclass(frozen=True)
class Arm:
    """The runs that differ in nothing but the training seed."""

    stage: str
    dataset: str
    method: str
    variant: str
    """The ``<what>`` of a variant's key; empty for the grid's own runs."""
    runs: tuple[Run, ...]
    """Ascending by seed."""
    planned: int
    """Runs that params.yaml asks for; more than there are in a partial page."""
    start: str = ""
    """Another method, from whose linear head these runs started; empty where it was their own or none."""

    @property
    def name(self) -> str:
        """``<method>`` or ``<method>-<what>``."""
        return f"{self.method}-{self.variant}" if self.variant else self.method

    @property
    def head(self) -> str:
        """Kind of the network's head, in words."""
        return self._settled("head", "kind").replace("_", " ")

    @property
    def protocol(self) -> str:
        """``common`` or ``published``: whose training recipe it was."""
        return self._settled("protocol")

    @property
    def given(self) -> tuple[str, ...]:
        """Of val and test, those scored by given labels that are not exhaustive, what is unknown counted absent."""
        return tuple(split for split in SCORED if any(run.metrics["labels"][split] == "given" for run in self.runs))

    @property
    def density(self) -> bool:
        """Whether the method was told how many labels an image has on average."""
        return any("expected_positives" in run.provenance.get("needs", ()) for run in self.runs)

    def _settled(self, *keys: str) -> str:
        """Return what the runs' provenance says of a setting; several values where the runs differ."""
        found: dict[str, None] = {}
        for run in self.runs:
            value: Any = run.provenance.get("settings", {})
            for key in keys:
                value = value.get(key, {})
            found[value or "not recorded"] = None
        return ", ".join(found)


@dataclass(frozen=True)
class Landscape:
    """Loss around one trained network."""

    dataset: str
    method: str
    seed: int
    offsets_1d: np.ndarray
    loss_1d: np.ndarray
    offsets_2d: np.ndarray
    loss_2d: np.ndarray
    """(n2, n2) loss at offset i along the first direction and j along the second."""
    centre: float
    images: int
    stage: str
    direction_seed: int


@dataclass(frozen=True)
class Analysis:
    """One audit or one Wasserstein analysis: a JSON record and its tables."""

    dataset: str
    seed: int
    record: Row
    tables: dict[str, list[Row]]


@dataclass(frozen=True)
class Dataset:
    """What is known about a dataset before anything is trained."""

    name: str
    min_support: int
    table: Table | None
    prepare: Row | None
    simulate: Row | None
    backbone: Row | None
    own: bool = False
    """Whether the data have no official lists: the test part is the test split, the training part train and val."""
    pictures: Pixels | None = None
    """The packed pictures by row of the table, where the page shows some and they are at hand."""

    def supported(self) -> tuple[str, ...] | None:
        """Return the classes with at least ``min_support`` positives in both official parts; None without a table."""
        if self.table is None:
            return None
        known = (self.table.truth == 1) & self.table.scored
        counts = [known[self.table.official == part].sum(axis=0) for part in (0, 1)]
        enough = (counts[0] >= self.min_support) & (counts[1] >= self.min_support)
        return tuple(name for name, keep in zip(self.table.classes, enough, strict=True) if keep)


@dataclass
class Collected:
    """Everything the page is made of."""

    params: Params
    datasets: list[Dataset]
    arms: list[Arm] = field(default_factory=list)
    audits: list[Analysis] = field(default_factory=list)
    wasserstein: list[Analysis] = field(default_factory=list)
    landscapes: list[Landscape] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def truth(self, dataset: str) -> bool:
        """Return whether anything can be measured of hidden labels: what was read of a dataset says nothing else."""
        tables = [item.table for item in self.datasets if item.name == dataset and item.table is not None]
        records = [item.record for item in (*self.audits, *self.wasserstein) if item.dataset == dataset]
        return all(table.exhaustive for table in tables) and all(record["truth"] for record in records)

    def one_label(self, dataset: str) -> bool:
        """Return whether each image of a dataset shows one present label, as in the papers."""
        return self.truth(dataset) and self.params.settings("simulate", dataset).positives == ONE

    def of(self, stage: str, dataset: str) -> list[Arm]:
        """Return the arms of one stage and dataset, the grid's own before variants."""
        return [arm for arm in self.arms if (arm.stage, arm.dataset) == (stage, dataset)]

    def identities(self, dataset: str, seed: int) -> dict[tuple[str, str], tuple[str, str]]:
        """Return (method, ``<what>`` of the variant or "") for each (stage, run key) of one dataset and seed."""
        found = {}
        for stage in TRAINING_STAGES:
            for key, method, variant in self.params.keys(stage, dataset, seed):
                what = key.removeprefix(f"{dataset}-{method}-{seed}-") if variant else ""
                found[stage, key] = (method, what)
        return found

    def methods(self) -> list[str]:
        """Return every method name of the grid and the variants, in the order of params.yaml."""
        names = [name for stage in TRAINING_STAGES for name in getattr(self.params.grid, stage)]
        names += [item.method for stage in TRAINING_STAGES for item in getattr(self.params.variants, stage).values()]
        return list(dict.fromkeys([*names, *self.params.grid.landscape]))


def number(text: str | None) -> float | None:
    """Return a table's field as a number, None where it is empty or absent.

    Raises:
        ValueError: The field holds something else, or a number that is not finite.
    """
    if text is None or text == "":
        return None
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite number")
    return value


def _numeric(rows: list[dict[str, str]], text: tuple[str, ...]) -> list[Row]:
    return [{key: value if key in text else number(value) for key, value in row.items()} for row in rows]


class _Reader:
    """Reads files below the root and keeps a list of those it could not read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.missing: list[Missing] = []

    def get(self, read: Callable[[Path], T], path: str) -> T | None:
        """Return ``read(root / path)``, or None and an entry in ``missing``."""
        full = self.root / path
        try:
            return read(full)
        except FileError as error:
            reason = str(error)
        except (ValueError, KeyError, TypeError) as error:
            reason = f"not in the expected form ({type(error).__name__}: {error})"
        # The root is where this machine keeps the project; it has no place in a file that Git or DVC keeps.
        reason = reason.removeprefix(f"{full}: ").replace(f"{self.root}/", "")
        self.missing.append(Missing(path, reason))
        return None

    def table(self, path: str, *text: str) -> list[Row] | None:
        """Return the rows of a TSV as numbers, but for the columns named in ``text``."""
        return self.get(lambda full: _numeric(files.read_tsv(full), text), path)


def _metrics(path: Path) -> Row:
    record = files.read_json(path)
    for split in SCORED:
        for key in ("map", "map_absent_zero", "classes_present"):
            if key not in record[split]:
                raise KeyError(f"{split}.{key}")
        if split not in record["labels"]:
            raise KeyError(f"labels.{split}")
    for key in ("epoch", "epochs", "learning_rate"):
        if key not in record:
            raise KeyError(key)
    return record


def _run(reader: _Reader, stage: str, key: str, seed: int) -> Run | None:
    folder = f"runs/{stage}/{key}"
    metrics = reader.get(_metrics, f"{folder}/metrics.json")
    epochs = reader.table(f"{folder}/epochs.tsv", "weights")
    per_class = reader.table(f"{folder}/per_class.tsv", "class")
    search = reader.table(f"{folder}/search.tsv")
    provenance = reader.get(files.read_json, f"{folder}/provenance.json")
    if metrics is None or epochs is None or per_class is None or search is None or provenance is None:
        return None
    return Run(key, seed, metrics, epochs, per_class, search, provenance)


def _landscape(path: Path, dataset: str, method: str, seed: int) -> Landscape:
    with hdf5.read(path) as file:
        arrays = {name: np.asarray(file[name][()], dtype=np.float64) for name in (  # pyright: ignore
            "offsets_1d", "loss_1d", "offsets_2d", "loss_2d")}  # fmt: skip
        attributes = dict(file.attrs)
    return Landscape(
        dataset,
        method,
        seed,
        **arrays,
        centre=float(attributes["centre_loss"]),
        images=int(attributes["images"]),
        stage=str(attributes["stage"]),
        direction_seed=int(attributes["direction_seed"]),
    )


def _analysis_record(path: Path) -> Row:
    record = files.read_json(path)
    if "truth" not in record:
        raise KeyError("truth")
    return record


def _analysis(reader: _Reader, kind: str, dataset: str, seed: int, tables: tuple[str, ...]) -> Analysis | None:
    folder = f"analyses/{kind}/{dataset}-{seed}"
    record = reader.get(_analysis_record, f"{folder}/{kind}.json")
    read = {name: reader.table(f"{folder}/{name}.tsv", *_TEXT) for name in tables}
    if record is None or any(rows is None for rows in read.values()):
        return None
    return Analysis(dataset, seed, record, {name: rows for name, rows in read.items() if rows is not None})


def _pictures(reader: _Reader, path: str, table: Table) -> Pixels | None:
    """Return the packed pictures of a table whose page shows some: only likely missed labels are looked at."""
    if table.exhaustive or not (reader.root / path).is_file():
        return None

    def read(full: Path) -> Pixels:
        pixels = Pixels(full, memory=0)
        if len(pixels) != len(table.paths):
            raise ValueError(f"{len(pixels)} pictures for {len(table.paths)} rows of the table")
        return pixels

    return reader.get(read, path)


def _dataset(reader: _Reader, params: Params, name: str) -> Dataset:
    table = reader.get(read_table, f"data/prepare/{name}/table.h5")
    return Dataset(
        name,
        params.settings("report", name).min_support,
        table,
        reader.get(files.read_json, f"data/prepare/{name}/report.json"),
        reader.get(files.read_json, f"data/simulate/{name}/report.json"),
        reader.get(files.read_json, f"weights/{name}/provenance.json"),
        params.settings("prepare", name)["source"] in OWN,
        None if table is None else _pictures(reader, f"data/prepare/{name}/images.h5", table),
    )


def _arms(reader: _Reader, params: Params, dataset: str) -> list[Arm]:
    arms = []
    for stage in TRAINING_STAGES:
        planned: dict[tuple[str, str], list[tuple[int, str]]] = {}  # (method, what): (seed, key) of each run
        starts: dict[tuple[str, str], str] = {}
        for seed in params.grid.seeds:
            for method in getattr(params.grid, stage):
                planned.setdefault((method, ""), []).append((seed, f"{dataset}-{method}-{seed}"))
        for key, item in getattr(params.variants, stage).items():
            if item.dataset == dataset:
                what = key.removeprefix(f"{item.dataset}-{item.method}-{item.seed}-")
                planned.setdefault((item.method, what), []).append((item.seed, key))
                if getattr(item, "start", item.method) != item.method:
                    starts[item.method, what] = item.start
        for (method, what), entries in planned.items():
            runs = [_run(reader, stage, key, seed) for seed, key in sorted(entries)]
            found = tuple(run for run in runs if run is not None)
            if found:
                arms.append(Arm(stage, dataset, method, what, found, len(entries), starts.get((method, what), "")))
    return arms


def collect(root: Path, params: Params, partial: bool = False) -> Collected:
    """Read the results that ``params`` asks for.

    Args:
        root: Project root.
        params: Checked parameters; its grid and variants say which files there are.
        partial: Whether absent files are listed instead of refused.

    Returns:
        The results, and in partial mode the list of what could not be read.

    Raises:
        FileError: Not ``partial`` and a file is absent or unreadable; the message names it.
    """
    reader = _Reader(root)
    result = Collected(params, [_dataset(reader, params, name) for name in params.grid.datasets])
    for dataset in params.grid.datasets:
        result.arms += _arms(reader, params, dataset)
        for seed in params.grid.seeds:
            audit = _analysis(reader, "audit", dataset, seed, ("rounds", "per_class", "calibration", "missed"))
            separation = _analysis(reader, "wasserstein", dataset, seed, ("per_class", "epochs"))
            result.audits += [audit] if audit is not None else []
            result.wasserstein += [separation] if separation is not None else []
            for method in params.grid.landscape:
                landscape = reader.get(
                    lambda path, d=dataset, m=method, s=seed: _landscape(path, d, m, s),
                    f"analyses/landscape/{dataset}-{method}-{seed}/landscape.h5",
                )
                result.landscapes += [landscape] if landscape is not None else []
    if reader.missing and not partial:
        lines = [f"{item.path}: {item.reason}" for item in reader.missing[:_NAMED]]
        if len(reader.missing) > _NAMED:
            lines.append(f"and {len(reader.missing) - _NAMED} files more")
        raise FileError("\n".join([*lines, "`python -m stages.report --partial` renders what is there"]))
    result.missing = reader.missing
    for stage in TRAINING_STAGES:
        for key, item in getattr(params.variants, stage).items():
            if item.dataset not in params.grid.datasets:
                result.missing.append(
                    Missing(
                        f"variants.{stage}.{key}", f"dataset {item.dataset} is not in grid.datasets, so it was not read"
                    )
                )
    return result
