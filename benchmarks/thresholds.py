"""Thresholds, densities and shares without truth, held against it: ``python -m benchmarks.thresholds DATASET``.

Runs of METHODS, as linear_init makes them, under each label draw: F1 on test by each rule of their thresholds.json, and
the share of present labels found. Labels an image and class shares as the stage beliefs estimates them, against the
truth of the training images, and how many of the labels that it believes hidden are present, from all of these and
from FEW. And test mAP of the methods that must know the labels of an image, told FACTORS times the
truth, or the estimate. All but `ridge` choose rate and epoch by validation labels that are known in full; nothing is
chosen on test. benchmarks/thresholds.tsv keeps the rows of all datasets and draws. It needs params.yaml of a profile of
the dataset and the outputs of prepare and features; all else is made in .pipeline/thresholds.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from ruamel.yaml import YAML

from pipeline.config.params import KnownDensity, read_params, run_key
from pipeline.core import files
from pipeline.labels.observed import observed_file, read_observed
from pipeline.labels.table import Table, read_table
from pipeline.training.beliefs import Sampling, believe
from pipeline.training.features import read_features
from stages.beliefs import beliefs
from stages.linear_init import linear_init
from stages.simulate import simulate

METHODS = ("an", "em", "gr", "ridge", "full")
TOLD = ("epr", "role")
"""Methods that must know the labels of an image."""
FACTORS = (0.5, 1.0, 2.0)
"""What they are told, as multiples of the true labels of an image."""
BELIEFS = (0.5, 0.7, 0.9, 1.0)
"""Ends of the bins of belief in which hidden labels are counted."""
FEW = 120
"""Training images of a small set."""
TABLE = Path(__file__).parent / "thresholds.tsv"
PLACE = ("dataset", "draw", "what", "name")


def make_root(dataset: str, density: dict[str, Any], name: str) -> Path:
    """Return a folder that shares images, features and labels with others, and tells methods another density.

    Args:
        dataset: Name of a dataset.
        density: Its entry of ``expected_positives``.
        name: Name of the folder.
    """
    work = Path(".pipeline") / "thresholds" / dataset
    root, data = work / name, work / "data"
    root.mkdir(parents=True, exist_ok=True)
    for folder in ("prepare", "features"):
        _link(data / folder / dataset, Path("data") / folder / dataset)
    _link(root / "data", data)
    _link(root / "params", Path("params"))
    yaml = YAML()
    content = yaml.load(Path("params.yaml").read_text(encoding="utf-8"))
    content["expected_positives"][dataset] = density
    with open(root / "params.yaml", "w", encoding="utf-8") as file:
        yaml.dump(content, file)
    return root


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.symlink_to(target.resolve())


def run_method(root: Path, dataset: str, method: str, draw: int) -> tuple[float, dict[str, Any]]:
    """Train a linear head.

    Args:
        root: Where it is stored.
        dataset: Name of a dataset.
        method: Name of a method.
        draw: Label draw.

    Returns:
        Its test mAP, and what its thresholds are worth on test.
    """
    linear_init(root, dataset, method, draw, 0)
    folder = root / "runs" / "linear_init" / run_key(dataset, method, draw, 0)
    worth = files.read_json(folder / "thresholds.json")["test"]
    return files.read_json(folder / "metrics.json")["test"]["map"], worth


def score_thresholds(root: Path, dataset: str, draw: int) -> Iterator[dict[str, Any]]:
    """Yield what each rule of thresholds is worth, by method."""
    for method in METHODS:
        test_map, rules = run_method(root, dataset, method, draw)
        for rule, worth in rules.items():
            yield {"what": "f1", "name": f"{method} {rule}", "test_map": test_map, **worth}


def score_density(root: Path, dataset: str, draw: int, table: Table) -> Iterator[dict[str, Any]]:
    """Yield labels an image and class shares, estimated and true, and how many true ones their intervals hold."""
    report = files.read_json(root / "data" / "beliefs" / f"{dataset}-{draw}" / "report.json")
    truth = table.truth[table.rows("train")]
    truth = truth[truth.any(axis=1)]  # of images that show a label, as the estimates are
    shares = {name: report["shares"][name] for name in table.classes}
    for name, found, true in (
        ("labels", [report["labels_per_image"]], truth.sum(axis=1).mean(keepdims=True)),
        ("shares", list(shares.values()), truth.mean(axis=0)),
    ):
        value, low, high = (np.array([each[end] for each in found], float) for end in ("value", "low", "high"))
        sized = np.isfinite(low)  # not of a class that no image shows
        inside = ((low <= true) & (true <= high))[sized]
        error, width = np.abs(value - true).mean(), (high - low)[sized].mean()
        yield {
            "what": "density", "name": name, "estimate": value.mean(), "true": true.mean(), "error": error,
            "width": width, "inside": int(inside.sum()), "of": len(inside),
        }  # fmt: skip


def score_hidden(root: Path, dataset: str, draw: int, table: Table, images: int) -> Iterator[dict[str, Any]]:
    """Yield how many of the unknown training labels believed so likely are present, from some of the images alone."""
    rows = table.rows("train")
    rows = np.sort(np.random.default_rng(draw).permutation(rows)[:images])
    place = np.searchsorted(table.rows("train"), rows)
    features, mirrored = read_features(root / "data" / "features" / dataset / "features.h5", table, False)[:2]
    observed = read_observed(observed_file(root, dataset, draw), table, ["single"])["single"][rows]
    views = None if mirrored is None else mirrored[place]
    belief = believe(features[rows], observed, views, sampling=Sampling(draw)).present
    present = table.truth[rows] == 1
    for low, high in zip(BELIEFS, BELIEFS[1:], strict=False):
        mine = (observed == 0) & (belief >= low) & ((belief < high) | (high == 1))
        name = f"{len(rows)} images, belief {low} to {high}"
        yield {"what": "hidden", "name": name, "named": int(mine.sum()), "present": int(present[mine].sum())}


def score_told(roots: dict[str, Path], dataset: str, draw: int) -> Iterator[dict[str, Any]]:
    """Yield test mAP of the methods that are told the labels of an image, by what they are told."""
    for method in TOLD:
        for name, root in roots.items():
            yield {"what": "told", "name": f"{method} {name}", "test_map": run_method(root, dataset, method, draw)[0]}


def print_means(rows: list[dict[str, Any]]) -> None:
    """Print the mean and standard deviation over draws of each figure."""
    for what, name in dict.fromkeys((row["what"], row["name"]) for row in rows):
        mine = [row for row in rows if (row["what"], row["name"]) == (what, name)]
        cells = []
        for key in [key for key in mine[0] if key not in PLACE]:
            values = [row[key] for row in mine if row[key] is not None]
            spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
            cells.append(f"{key} {mean(values):.2f}{spread}" if values else f"{key} none")
        print(what, name, *cells, sep="\t")


def main() -> None:
    """Make the rows of one dataset anew and print their means."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("dataset")
    parser.add_argument("draws", nargs="*", type=int, default=[0, 1, 2, 3, 4], metavar="DRAW")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset, known = options.dataset, read_params("params.yaml").density(options.dataset)
    if not isinstance(known, KnownDensity):
        parser.error(f"expected_positives.{dataset}: names no true value")
    roots = {
        f"{factor:g}": make_root(dataset, {"value": factor * known.value, "source": "benchmark"}, f"{factor:g}")
        for factor in FACTORS
    }
    roots["estimated"] = make_root(dataset, {"value": "estimated", "at_most": None}, "estimated")
    root, made = roots["1"], []
    table = read_table(root / "data" / "prepare" / dataset / "table.h5")
    for draw in options.draws:
        simulate(root, dataset, draw)
        beliefs(root, dataset, draw)
        scored = [*score_thresholds(root, dataset, draw), *score_density(root, dataset, draw, table)]
        for images in (FEW, len(table.rows("train"))):
            scored += score_hidden(root, dataset, draw, table, images)
        made += [{"dataset": dataset, "draw": draw, **row} for row in [*scored, *score_told(roots, dataset, draw)]]
    asked = {(dataset, str(draw)) for draw in options.draws}
    kept = [
        row for row in (files.read_tsv(TABLE) if TABLE.exists() else []) if (row["dataset"], row["draw"]) not in asked
    ]
    files.write_tsv(TABLE, [*kept, *made])
    print_means(made)


if __name__ == "__main__":
    main()
