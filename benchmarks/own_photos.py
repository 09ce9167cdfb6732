"""What two commands make of photographs with one label each: ``python -m benchmarks.own_photos ROOT [DRAW ...]``.

ROOT holds photographs in VOC layout. Those of its train list lie in a folder for each class, by the one label that a
draw shows; those of its val list are new ones, of which nothing is said. A fresh clone of the last commit is told
``spml init`` and ``make repro``, as a user tells it: splits, methods and settings are what these make of the folder.
Only then the truth is opened:

- test mAP of each method on the new photographs, over the classes with SUPPORT photographs in both lists, and which
  method the report names first and `spml model` would bundle;
- F1 there by the thresholds that each run stored, and by those of the highest F1 on val with its true labels;
- how many of the first AT labels that the walk names as missed are present, on all photographs of the folder; beside
  it the same of a head of `em` on the pooled features, at the rate and epoch of clean val, and of the closed form with
  all labels of the training photographs, which judges each of these by a fit without it.

WORK keeps the folders; a walk that lies there is scored again. benchmarks/own_photos.tsv keeps the rows of all draws.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch

from benchmarks.missed import choose_by_val
from benchmarks.selection import SUPPORT, Heads
from pipeline.audits.metrics import mean_average_precision
from pipeline.audits.thresholds import best_f1, score_thresholds
from pipeline.bundles.choose import choose_run
from pipeline.bundles.pictures import list_pictures, read_pictures
from pipeline.cli.model import list_runs
from pipeline.config.params import read_params
from pipeline.core import files, hdf5
from pipeline.core.strict import merge
from pipeline.core.yaml import parse_yaml
from pipeline.labels import draws
from pipeline.labels.beliefs import rank_hidden
from pipeline.labels.settings import Simulate
from pipeline.labels.table import Dataset, Table, read_table
from pipeline.methods.shared.draw_likelihood import ShareDraw
from pipeline.networks import backbone as backbones
from pipeline.networks.network import restore
from pipeline.report.frames import measure
from pipeline.report.read import collect
from pipeline.sources import base
from pipeline.training.beliefs import believe
from pipeline.training.features import PLACES, Extractor, read_features
from pipeline.training.inputs import ImageInputs, batches
from pipeline.training.stored_beliefs import places_of

PROJECT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".tsv")
NAME = "photos"
AT = (50, 200)
RULES = ("matching", "0.9", "zero", "clean")
"""Thresholds: two that a run stores without truth, a probability of one half, and those that truth on val chooses."""
LISTS = {
    "hidden.tsv": "data/beliefs/photos-0/hidden.tsv",
    "missed_agreed.tsv": "report/tables/photos-missed_agreed.tsv",
    "missed.tsv": "analyses/audit/photos-0-0/missed.tsv",
}
"""What the walk names as missed: by the stage beliefs, on the page with pictures, and in the audit of all runs."""


def read_photographs(root: Path) -> Dataset:
    """Return the photographs of a folder in VOC layout, with their truth."""
    text = (PROJECT / "profiles" / "voc_photos.yaml").read_text(encoding="utf-8")
    block = parse_yaml(text, "profiles/voc_photos.yaml")["prepare"]["voc_photos"] | {"root": str(root.resolve())}
    source, settings = base.load(block, "prepare.voc_photos")
    return source.read(settings, Path())


def make_folders(data: Dataset, number: int, work: Path) -> None:
    """Copy photographs to ``photos/<class>/`` by the label that a draw shows, and the new ones to ``new/``.

    Args:
        data: What was read.
        number: Of the draw, which is that of `PROFILE=voc_photos`.
        work: Where the folders go.
    """
    settings = read_params(PROJECT / "params.yaml").settings("simulate", "voc_photos").model_dump()
    drawing = Simulate.model_validate(merge(settings, {"protocol": "seeded"}))
    shown = draws.observe(Path(), data.table, None, drawing, number).observed == 1
    for row, official in enumerate(data.table.official):
        labelled = work / NAME / data.table.classes[int(np.argmax(shown[row]))]
        folder, picture = work / "new" if official else labelled, data.image(row)
        assert isinstance(picture, Path)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(picture, folder / picture.name)


def walk(work: Path) -> dict[str, float]:
    """Return the seconds that each of the two commands takes in a fresh clone, and those of processor time of both."""
    project, seconds = work / "project", {}
    subprocess.run(["git", "clone", "--quiet", str(PROJECT), str(project)], check=True)
    (project / ".venv").symlink_to(sys.prefix)
    environment, spent = os.environ | {"PYTHONPATH": str(project)}, os.times()
    before = spent.children_user + spent.children_system
    for name, command in {
        "init": [sys.executable, "-m", "pipeline.cli", "init", f"../{NAME}"],
        "repro": ["make", "--old-file=.venv/.ready", "repro", f"PROFILE={NAME}"],  # the environment is there
    }.items():
        began = time.monotonic()
        subprocess.run(command, cwd=project, env=environment, check=True)
        seconds[name] = time.monotonic() - began
    spent = os.times()
    return seconds | {"processor": spent.children_user + spent.children_system - before}


def extract_places(project: Path, folder: Path) -> tuple[list[str], torch.Tensor]:
    """Return the names of new photographs, and (M, D, h, w) features as the walk's runs read them."""
    module, about = backbones.load(project / "weights" / NAME / "backbone.pt")
    settings = read_params(project / "params.yaml").settings("features", NAME)
    size = read_params(project / "params.yaml").settings("prepare", NAME)["size"]
    listed = list_pictures([str(folder)]).pictures
    pixels = np.stack([made for part in read_pictures(listed, size, 64, 1) for _, made in part])
    images = ImageInputs(pixels, np.arange(len(pixels)), about["mean"], about["std"])
    extractor = Extractor(module, settings.pools, settings.batch_size, torch.device("cpu"), NAME)
    parts = extractor.extract(images, iter(list(batches(len(pixels), settings.batch_size))), False, True)
    return [picture.file.name for picture in listed], torch.from_numpy(np.concatenate([part[PLACES] for part in parts]))


class Truth:
    """The labels of all photographs, in the classes that the walk knows.

    Args:
        table: That of all photographs.
        classes: Names of the classes.
    """

    def __init__(self, table: Table, classes: tuple[str, ...]) -> None:
        columns = [table.classes.index(name) for name in classes]
        self.labels = table.truth[:, columns]
        counts = [self.labels[table.official == part].sum(axis=0) for part in (0, 1)]
        self.supported = np.minimum(*counts) >= SUPPORT
        self.place = {Path(path).name: row for row, path in enumerate(table.paths)}

    def of(self, paths: list[str] | tuple[str, ...]) -> np.ndarray:
        """Return the (R, C) labels of photographs, whose names tell which they are."""
        return self.labels[[self.place[Path(path).name] for path in paths]]


def score_methods(
    project: Path, table: Table, truth: Truth, new: tuple[list[str], torch.Tensor]
) -> Iterator[dict[str, Any]]:
    """Yield test mAP of each method, first what the report names first, and F1 by each rule of thresholds."""
    params = read_params(project / "params.yaml")
    order = measure(collect(project, params))[NAME].ranked("linear_init")["method"].tolist()
    bundled = choose_run(project, list_runs(params)).name
    names, places = new
    present, val = truth.of(names), truth.of([table.paths[row] for row in table.rows("val")])
    for rank, method in enumerate(order, 1):
        folder = project / "runs" / "linear_init" / f"{NAME}-{method}-0-0"
        with torch.inference_mode():
            logits = restore(folder / "weights.pt")(places)["logits"].numpy()
        scores = {
            "map": mean_average_precision(present[:, truth.supported], logits[:, truth.supported])["map"],
            "map_all": mean_average_precision(present, logits)["map"],
        }
        yield {"what": "method", "name": method, "rank": rank, "bundled": int(bundled.endswith(folder.name)), **scores}
        stored = files.read_json(folder / "thresholds.json")["classes"]
        with hdf5.read(folder / "logits.h5") as file:
            held = file["val"][()]
        own = {
            "matching": [stored[name]["matching"]["value"] for name in table.classes],
            "0.9": [stored[name]["conformal"]["0.9"] for name in table.classes],
            "zero": [0.0] * len(table.classes),
            "clean": [best_f1(held[:, column], val[:, column]) for column in range(len(table.classes))],
        }
        cuts = {rule: np.array(own[rule], float) for rule in RULES}
        matching = np.nan_to_num(cuts["matching"], nan=np.inf)
        for rule, cut in cuts.items():
            taken, known = np.where(np.isfinite(cut), cut, matching), np.ones_like(present, bool)
            worth = score_thresholds(logits, taken, present, known)
            worth |= {"found": score_thresholds(logits, cut, present, known & np.isfinite(cut))["found"]}
            yield {"what": "f1", "name": f"{method} {rule}", "classes": int(np.isfinite(cut).sum()), **worth}


def score_missed(project: Path, table: Table, truth: Truth) -> Iterator[dict[str, Any]]:
    """Yield how many of the first labels that are named as missed are present, by what names them."""
    present = truth.of(table.paths)
    chance = 100 * float(present[table.truth == 0].mean())
    row, column = ({name: at for at, name in enumerate(names)} for names in (table.paths, table.classes))
    for name, path in LISTS.items():
        named = [(row[each["path"]], column[each["class"]]) for each in files.read_tsv(project / path)]
        yield {"what": "missed", "name": name, **_count(present, named), "chance": chance}
    known = replace(table, truth=present, scored=np.ones_like(table.scored), exhaustive=True)
    with contextlib.chdir(project):
        params, every = read_params(Path("params.yaml"), "em"), np.arange(len(table.paths))
        heads = Heads(params, NAME, known, table.truth)
        scores = {"em, clean val": choose_by_val(heads, "em", every)[2], "ridge_full": _by_all_labels(known)}
    for name, each in scores.items():
        named = rank_hidden(each, table.truth == 0, max(AT))
        yield {"what": "missed", "name": name, **_count(present, named), "chance": chance}


def _by_all_labels(table: Table) -> np.ndarray:
    """Return the (N, C) logits of the closed form with all training labels, by places, of the cache that lies here."""
    cache = read_features(Path("data") / "features" / NAME / "features.h5", table, True)
    train, every = table.rows("train"), np.arange(len(table.paths))
    sharpness = read_params(Path("params.yaml")).settings("beliefs", NAME).sharpness
    places = places_of(cache, train, sharpness)
    found = believe(cache.plain[train], table.truth[train], cache.mirrored, ShareDraw(1.0), 1, places=places)
    asked = places_of(cache, every, sharpness)
    assert asked is not None  # as `spml init` has it
    logits = asked.scores(found.weights, found.bias)
    logits[train] = found.logits
    return logits


def _count(present: np.ndarray, named: list[tuple[int, int]]) -> dict[str, float]:
    """Return how many in 100 of the first named cells are present."""
    found = [int(present[cell]) for cell in named]
    return {f"at_{count}": 100 * mean(found[:count]) for count in AT}


def store(rows: list[dict[str, Any]]) -> None:
    """Put the rows of a draw in place of those that the table has of it."""
    stored = files.read_tsv(TABLE) if TABLE.exists() else []
    files.write_tsv(TABLE, [*(row for row in stored if row["draw"] != str(rows[0]["draw"])), *rows])


def print_table(rows: list[dict[str, str]]) -> None:
    """Print the mean and standard deviation over draws of each figure as a table of Markdown."""
    for what, keys in {
        "seconds": ("init", "repro", "processor"),
        "method": ("rank", "bundled", "map", "map_all"),
        "f1": ("macro", "micro", "found", "classes"),
        "missed": (*(f"at_{count}" for count in AT), "chance"),
    }.items():
        mine = [row for row in rows if row["what"] == what]
        print(f"\n| {' | '.join((what, *keys))} |\n|{' --- |' * (len(keys) + 1)}")
        for name in dict.fromkeys(row["name"] for row in mine):
            cells = []
            for key in keys:
                values = [float(row[key]) for row in mine if row["name"] == name and row.get(key)]
                spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
                cells.append(f"{mean(values):.1f}{spread}" if values else "–")
            print(f"| {' | '.join((name, *cells))} |")


def main() -> None:
    """Walk under each draw, score the walks, and print a table of all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("root", type=Path, help="folder that holds VOCdevkit/VOC2012")
    parser.add_argument("draws", nargs="*", type=int, default=[0, 1, 2], metavar="DRAW")
    parser.add_argument("--work", type=Path, default=PROJECT / ".pipeline" / "own_photos", help="where the walks lie")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data, new = read_photographs(options.root), None
    for draw in options.draws:
        work = options.work.resolve() / str(draw)
        if not (work / "seconds.json").exists():
            shutil.rmtree(work, ignore_errors=True)
            make_folders(data, draw, work)
            files.write_json(work / "seconds.json", walk(work))
        project = work / "project"
        table = read_table(project / "data" / "prepare" / NAME / "table.h5")
        truth, new = Truth(data.table, table.classes), new or extract_places(project, work / "new")
        store([
            {"draw": draw, **row}
            for row in (
                {"what": "seconds", "name": "two commands", **files.read_json(work / "seconds.json")},
                *score_methods(project, table, truth, new),
                *score_missed(project, table, truth),
            )
        ])  # fmt: skip
    print_table(files.read_tsv(TABLE))


if __name__ == "__main__":
    main()
