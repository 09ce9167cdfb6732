"""Read everything that the grid and the variants of params.yaml ask for, and name what is not there.

Nothing is searched for: a file is read because params.yaml says that a stage makes it, so what a removed method left
behind never enters the page. In normal mode absent files are an error that names them; in partial mode they are listed
in ``Collected.missing``, with the reason, and everything that depends on them is left out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from pipeline.config.params import TRAINING_STAGES, Params, run_key
from pipeline.core import files, hdf5, manifest
from pipeline.core.errors import FileError
from pipeline.data.images import Pixels
from pipeline.labels.beliefs import beliefs_file
from pipeline.labels.observed import observed_file
from pipeline.labels.settings import KeptCount
from pipeline.labels.table import Table, read_table

T = TypeVar("T")
SCORED = ("val", "test")
"""Splits of which a run has scores."""
OWN = ("csv", "json", "folder")
"""Sources of data of one's own, which have no official lists of training and test images."""
ONE = KeptCount(kind="count", value=1)

_SCORES = ("map", "map_absent_zero")
_NAMED = 5  # files that an error message spells out; a first run may lack hundreds
_TEXT = ("class", "key", "kind", "method", "path", "quantity", "reason", "scale", "split", "stage", "weights")
_COUNTS = ("unknown", "labelled", "negatives", "positives", "negatives_correct", "positives_correct",
           "hidden_positives", "hidden_positives_called_negative", "hidden_positives_recalled")  # fmt: skip
AUDITED = ("coverage", "accuracy", "negative_accuracy", "positive_precision", "hidden_positive_recall",
           "hidden_positive_miss_rate", "baseline_all_unknown_negative")  # fmt: skip
"""What an audit measures of pseudo-labels, as fractions in [0, 1]."""
_KEYS = ("stage", "key")
AUDIT = {
    "runs": (*_KEYS, "reason", "epoch", "rounds", "chosen.positives", "chosen.negatives", "beliefs.probability.cells",
             "beliefs.probability.mean", "beliefs.belief.mean", "beliefs.belief.likely_present",
             *(f"chosen.{name}" for name in AUDITED)),
    "rounds": (*_KEYS, "kind", "epoch", "selected", "labelled", *AUDITED),
    "per_class": (*_KEYS, "class", *_COUNTS),
    "calibration": (*_KEYS, "quantity", "bin", "lower", "upper", "cells", "true_positives", "mean_belief", "reference"),
    "missed_by_run": (*_KEYS, "rank", "path", "class", "belief", "probability", "truth"),
}  # fmt: skip
"""Columns of an audit's tables that the report reads; those of ``runs`` are from its record."""
HIDDEN = ("path", "split", "class", "belief")
"""Columns of the list of labels that are most likely hidden."""
WASSERSTEIN = {
    "runs": (*_KEYS, "reason", "train.pooled", "val.pooled"),
    "per_class": (*_KEYS, "class", "split", "distance", "reason"),
    "epochs": (*_KEYS, "epoch", "selected", "split", "pooled"),
}
"""As ``AUDIT``."""


@dataclass(frozen=True)
class Missing:
    """A file that params.yaml asks for and that cannot be read, or a part of params.yaml that cannot be shown."""

    path: str
    """Path from the project root, or a key of params.yaml."""
    reason: str


@dataclass(frozen=True)
class Planned:
    """A training run that params.yaml asks for. Runs that differ in nothing but label draw and seed are one arm."""

    dataset: str
    stage: str
    method: str
    variant: str
    """The ``<what>`` of a variant's key; empty for the grid's own runs."""
    start: str
    """Another method, from whose linear head the run starts; empty where it is its own or none."""
    draw: int
    """Number of the label draw."""
    seed: int
    key: str


@dataclass(frozen=True)
class Run(Planned):
    """What one training run left, without its weights. Mean average precision (map) is in percent."""

    head: str
    """Kind of the network's head, in words."""
    protocol: str
    """``common`` or ``published``: whose training recipe it was."""
    density: bool
    """Whether the method was told how many labels an image has on average."""
    estimated: bool
    """Whether it was given an estimate of that instead, without truth."""
    given: tuple[str, ...]
    """Of val and test, those scored by given labels that are not exhaustive, what is unknown counted absent."""
    select: str | None
    threshold: float | None
    averaged: bool
    """Whether the moving average of the weights was chosen, not the weights."""
    learning_rate: float | None
    """None of a head that was fitted in closed form."""
    edge: bool
    """Whether that rate is the lowest or highest of at least three that were tried."""
    epoch: int
    epochs: int
    test_map: float | None
    test_map_absent_zero: float | None
    val_map: float | None
    val_map_absent_zero: float | None
    classes_present: int
    shown_score: float | None
    """How well shown labels are ranked, in percent: chance is 50 (`pipeline.training.selection`)."""
    shown_images: str
    """Of which images: ``train``, where their labels did not train the logits, or ``val``."""
    worth: dict[str, Any]
    """What each rule of thresholds is worth on test; empty where nobody knows."""
    by_epoch: pd.DataFrame
    by_class: pd.DataFrame
    cuts: pd.DataFrame
    """Thresholds by class."""
    provenance: dict[str, Any]


@dataclass(frozen=True)
class Landscape:
    """Loss around one trained network."""

    dataset: str
    method: str
    draw: int
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
    draw: int
    seed: int
    record: dict[str, Any]
    tables: dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Dataset:
    """What is known about a dataset before anything is trained."""

    name: str
    min_support: int
    table: Table | None
    prepare: dict[str, Any] | None
    simulate: dict[int, dict[str, Any]]
    """Reports of the label draws at hand, by number."""
    beliefs: dict[int, dict[str, Any]]
    """Reports of what is believed of each draw's hidden labels, by number."""
    hidden: dict[int, pd.DataFrame]
    """The labels that are most likely hidden, of all splits, by number of the draw."""
    backbone: dict[str, Any] | None
    own: bool = False
    """Whether the data have no official lists: the test part is the test split, the training part train and val."""
    pictures: Pixels | None = None
    """The packed pictures by row of the table, where the page shows some and they are at hand."""
    search: dict[str, Any] | None = None
    """What the stage search chose, where the grid asks for it."""

    @property
    def first_draw(self) -> dict[str, Any] | None:
        """Report of the label draw of the lowest number at hand."""
        return self.simulate[min(self.simulate)] if self.simulate else None

    def supported(self) -> tuple[str, ...] | None:
        """Return the classes with at least ``min_support`` positives in both official parts; None without a table.

        One without a negative in the test part, for which any scores would do, is none of them.
        """
        if self.table is None:
            return None
        known = (self.table.truth == 1) & self.table.scored
        counts = [known[self.table.official == part].sum(axis=0) for part in (0, 1)]
        truth, scored = self.table.reference("test")
        told = ((truth == 0) & scored).any(axis=0)
        enough = (counts[0] >= self.min_support) & (counts[1] >= self.min_support) & told
        return tuple(name for name, keep in zip(self.table.classes, enough, strict=True) if keep)


@dataclass(frozen=True)
class Collected:
    """Everything the page is made of."""

    params: Params
    datasets: tuple[Dataset, ...]
    runs: tuple[Run, ...] = ()
    audits: tuple[Analysis, ...] = ()
    wasserstein: tuple[Analysis, ...] = ()
    landscapes: tuple[Landscape, ...] = ()
    missing: tuple[Missing, ...] = ()

    def truth(self, dataset: str) -> bool:
        """Return whether anything can be measured of hidden labels: what was read of a dataset says nothing else."""
        tables = [item.table for item in self.datasets if item.name == dataset and item.table is not None]
        records = [item.record for item in (*self.audits, *self.wasserstein) if item.dataset == dataset]
        return all(table.exhaustive for table in tables) and all(record["truth"] for record in records)

    def one_label(self, dataset: str) -> bool:
        """Return whether each image of a dataset shows one present label, as in the papers."""
        return self.truth(dataset) and self.params.settings("simulate", dataset).positives == ONE

    def methods(self) -> list[str]:
        """Return every method name of the grid and the variants, in the order of params.yaml."""
        names = [name for stage in TRAINING_STAGES for name in getattr(self.params.grid, stage)]
        names += [item.method for stage in TRAINING_STAGES for item in getattr(self.params.variants, stage).values()]
        return list(dict.fromkeys([*names, *self.params.grid.landscape]))


def planned(params: Params, dataset: str) -> list[Planned]:
    """Return the training runs that ``params`` asks for, the grid's own before variants, draws and seeds ascending."""
    runs = []
    for stage in TRAINING_STAGES:
        arms: dict[tuple[str, str], list[Planned]] = {}
        for method in getattr(params.grid, stage):
            arms[method, ""] = [
                Planned(dataset, stage, method, "", "", draw, seed, run_key(dataset, method, draw, seed))
                for draw, seed in product(params.grid.draws, params.grid.seeds)
            ]
        for key, item in getattr(params.variants, stage).items():
            if item.dataset == dataset:
                what, start = item.what(key), getattr(item, "start", item.method)
                start *= start != item.method
                run = Planned(dataset, stage, item.method, what, start, item.draw, item.seed, key)
                arms.setdefault((item.method, what), []).append(run)
        runs += [run for arm in arms.values() for run in sorted(arm, key=lambda run: (run.draw, run.seed))]
    return runs


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


def _frame(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    """Return a TSV as a frame of numbers (NaN: empty) and words; without rows, the columns asked for.

    Raises:
        KeyError: It has rows, but not a column that is asked for.
    """
    rows = files.read_tsv(path)
    if not rows:
        return pd.DataFrame(columns=list(columns))
    for column in columns:
        if column not in rows[0]:
            raise KeyError(column)
    return pd.DataFrame({
        name: [row[name] for row in rows] if name in _TEXT else np.array([number(row[name]) for row in rows], float)
        for name in rows[0]
    })  # fmt: skip


class _Reader:
    """Reads files below the root and keeps a list of those it could not read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.missing: list[Missing] = []
        self._digests: dict[Path, dict[str, str]] = {}

    def get(self, read: Callable[[Path], T], path: str) -> T | None:
        """Return ``read(root / path)``, or None and an entry in ``missing``."""
        full = self.root / path
        try:
            if full.suffix in manifest.TEXT and full.is_file():
                manifest.raise_if_changed(full, self._folder(full.parent))
            return read(full)
        except FileError as error:
            reason = str(error)
        except (ValueError, KeyError, TypeError) as error:
            reason = f"not in the expected form ({type(error).__name__}: {error})"
        # The root is where this machine keeps the project; it has no place in a file that Git or DVC keeps.
        reason = reason.removeprefix(f"{full}: ").replace(f"{self.root}/", "")
        self.missing.append(Missing(path, reason))
        return None

    def _folder(self, folder: Path) -> dict[str, str]:
        """Return the digests of an output folder's text files, which is checked once."""
        if folder not in self._digests:
            self._digests[folder] = manifest.check_folder(folder)
        return self._digests[folder]

    def table(self, path: str, *columns: str) -> pd.DataFrame | None:
        """Return a TSV, which must have these columns."""
        return self.get(lambda full: _frame(full, columns), path)


def _metrics(path: Path) -> dict[str, Any]:
    record = files.read_json(path)
    for split in SCORED:
        for key in (*_SCORES, "classes_present"):
            if key not in record[split]:
                raise KeyError(f"{split}.{key}")
        if split not in record["labels"]:
            raise KeyError(f"labels.{split}")
    for key in ("epoch", "epochs", "learning_rate", "rate_at_edge", "shown_labels"):
        if key not in record:
            raise KeyError(key)
    return record


def _thresholds(path: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return what each rule is worth on test, and the thresholds by class (NaN: none)."""
    record = files.read_json(path)
    rows = [
        {"class": name, **_ends("share", entry), **_ends("matching", entry), "shown": entry["shown"]}
        | {f"conformal_{found}": cut for found, cut in entry["conformal"].items()}
        | {"clean": entry["clean"], "reason": entry["reason"] or ""}
        for name, entry in record["classes"].items()
    ]
    frame = pd.DataFrame(rows)
    return record["test"] or {}, frame.astype({name: float for name in frame if name not in ("class", "reason")})


def _ends(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Return a value and the ends of its interval as columns."""
    return {name: entry[name]["value"], **{f"{name}_{end}": entry[name][end] for end in ("low", "high")}}


def _run(reader: _Reader, plan: Planned) -> Run | None:
    folder = f"runs/{plan.stage}/{plan.key}"
    metrics = reader.get(_metrics, f"{folder}/metrics.json")
    by_epoch = reader.table(f"{folder}/epochs.tsv", "epoch", "val_map", "loss")
    by_class = reader.table(f"{folder}/per_class.tsv", "class", "ap_test")
    provenance = reader.get(files.read_json, f"{folder}/provenance.json")
    thresholds = reader.get(_thresholds, f"{folder}/thresholds.json")
    if metrics is None or by_epoch is None or by_class is None or provenance is None or thresholds is None:
        return None
    settings = provenance.get("settings", {})
    estimated = bool((provenance.get("expected_positives") or {}).get("estimated"))
    return Run(
        **vars(plan),
        head=_head(settings),
        protocol=settings.get("protocol") or "not recorded",
        density="expected_positives" in provenance.get("needs", ()) and not estimated,
        estimated=estimated,
        given=tuple(split for split in SCORED if metrics["labels"][split] == "given"),
        select=settings.get("select"),
        threshold=provenance.get("method", {}).get("threshold"),
        averaged=metrics.get("weights") == "average",
        learning_rate=metrics["learning_rate"],
        edge=metrics["rate_at_edge"],
        epoch=metrics["epoch"],
        epochs=metrics["epochs"],
        **{f"{split}_{key}": metrics[split][key] for split in SCORED for key in _SCORES},
        classes_present=metrics["test"]["classes_present"],
        shown_score=metrics["shown_labels"]["score"],
        shown_images=metrics["shown_labels"]["images"],
        worth=thresholds[0],
        cuts=by_class[["class"]].merge(thresholds[1], on="class"),
        by_epoch=by_epoch,
        by_class=by_class,
        provenance=provenance,
    )


def _head(settings: dict[str, Any]) -> str:
    """Return the head of a stage's settings in words."""
    head, readout = settings.get("head", {}), settings.get("readout")
    kind = (head.get("kind") or "not recorded").replace("_", " ")
    kind = f"{kind}, unit length" if head.get("scale") == "unit" else kind
    if not readout:
        return kind
    places = ", scored by places" if readout["sharpness"] is not None else ""
    fitted = f"closed form on {' and '.join(readout['pools'])}{places}"
    if readout["share"] < 1:
        return f"{kind}, mixed with {readout['share']:.0%} of the {fitted}"
    return f"{kind}, then {fitted}"


def _landscape(path: Path, dataset: str, method: str, draw: int, seed: int) -> Landscape:
    with hdf5.read(path) as file:
        names = ("offsets_1d", "loss_1d", "offsets_2d", "loss_2d")
        arrays = [np.asarray(file[name][()], dtype=np.float64) for name in names]  # pyright: ignore
        about = dict(file.attrs)
    images, directions = int(about["images"]), int(about["direction_seed"])
    centre, stage = float(about["centre_loss"]), str(about["stage"])
    line, losses, plane, surface = arrays
    return Landscape(dataset, method, draw, seed, line, losses, plane, surface, centre, images, stage, directions)


def _choice(path: Path) -> dict[str, Any]:
    choice = files.read_json(path)
    for key in ("draws", "seeds"):
        if key not in choice:
            raise KeyError(key)
    for score in choice.keys() - {"draws", "seeds"}:
        if not {"best", "others"} <= choice[score].keys():
            raise KeyError(f"{score}.best")
    return choice


def _record(path: Path) -> dict[str, Any]:
    record = files.read_json(path)
    if "truth" not in record:
        raise KeyError("truth")
    return record


def _analyses(
    reader: _Reader, kind: str, about: tuple[str, int, int], tables: dict[str, tuple[str, ...]]
) -> list[Analysis]:
    """Return the analysis of one dataset, draw and seed, or nothing where a part of it is missing."""
    folder = f"analyses/{kind}/{'-'.join(map(str, about))}"
    record = reader.get(_record, f"{folder}/{kind}.json")
    files = [name for name in tables if name != "runs"]
    read = {name: reader.table(f"{folder}/{name}.tsv", *tables[name]) for name in files}
    known = {name: frame for name, frame in read.items() if frame is not None}
    return [] if record is None or len(known) < len(files) else [Analysis(*about, record, known)]


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
    table, draws = reader.get(read_table, f"data/prepare/{name}/table.h5"), params.grid.draws
    drawn, believed = (
        {
            draw: reader.get(files.read_json, place(Path(), name, draw).with_name("report.json").as_posix())
            for draw in draws
        }
        for place in (observed_file, beliefs_file)
    )
    hidden = {
        draw: reader.table(beliefs_file(Path(), name, draw).with_name("hidden.tsv").as_posix(), *HIDDEN)
        for draw in draws
    }
    return Dataset(
        name,
        params.settings("report", name).min_support,
        table,
        reader.get(files.read_json, f"data/prepare/{name}/report.json"),
        {draw: report for draw, report in drawn.items() if report is not None},
        {draw: report for draw, report in believed.items() if report is not None},
        {draw: rows for draw, rows in hidden.items() if rows is not None},
        reader.get(files.read_json, f"weights/{name}/provenance.json"),
        params.settings("prepare", name)["source"] in OWN,
        None if table is None else _pictures(reader, f"data/prepare/{name}/images.h5", table),
        reader.get(_choice, f"analyses/search/{name}/choice.json") if name in params.grid.search else None,
    )


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
    reader, grid = _Reader(root), params.grid
    datasets = tuple(_dataset(reader, params, name) for name in grid.datasets)
    runs, audits, wasserstein, landscapes = [], [], [], []
    for dataset in grid.datasets:
        runs += [run for plan in planned(params, dataset) if (run := _run(reader, plan)) is not None]
        for draw, seed in product(grid.draws, grid.seeds):
            audits += _analyses(reader, "audit", (dataset, draw, seed), AUDIT)
            wasserstein += _analyses(reader, "wasserstein", (dataset, draw, seed), WASSERSTEIN)
            for method in grid.landscape:
                path = f"analyses/landscape/{run_key(dataset, method, draw, seed)}/landscape.h5"
                item = reader.get(lambda full, about=(dataset, method, draw, seed): _landscape(full, *about), path)
                landscapes += [] if item is None else [item]
    if reader.missing and not partial:
        lines = [f"{item.path}: {item.reason}" for item in reader.missing[:_NAMED]]
        if len(reader.missing) > _NAMED:
            lines.append(f"and {len(reader.missing) - _NAMED} files more")
        raise FileError("\n".join([*lines, "`python -m stages.report --partial` renders what is there"]))
    missing = [*reader.missing, *_not_in_the_grid(params)]
    return Collected(
        params, datasets, tuple(runs), tuple(audits), tuple(wasserstein), tuple(landscapes), tuple(missing)
    )


def _not_in_the_grid(params: Params) -> list[Missing]:
    """Return the variants whose dataset was not read."""
    return [
        Missing(f"variants.{stage}.{key}", f"dataset {item.dataset} is not in grid.datasets, so it was not read")
        for stage in TRAINING_STAGES
        for key, item in getattr(params.variants, stage).items()
        if item.dataset not in params.grid.datasets
    ]
