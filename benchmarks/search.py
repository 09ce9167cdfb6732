"""Time a search of settings against runs of linear_init, one process after another: ``python -m benchmarks.search``.

Six methods at three rates, on two label draws with two seeds: 72 heads of the stage search in one process, and 24
processes of linear_init, each of which tries the three rates; all of DATASET (digits), by the scores of ``--score``
(clean or auto). Neither widens its grid or keeps logits of epochs. Printed are wall time and processor time of both,
process starts included, their ratios, and how far the scores of the same head differ at most. Under ``auto`` the search
fits the beliefs of each draw itself, and the runs read those of the stage beliefs, which is not counted. It needs
params.yaml of a profile of the dataset and the outputs of prepare and features.
"""

import argparse
import itertools
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.method_settings import make_root
from pipeline.config.params import PARAMS, method_file
from pipeline.core import files
from pipeline.core.strict import merge

METHODS = ("an", "em", "gr", "epr", "role", "ls")
RATES, DRAWS, SEEDS = [3.0e-3, 1.0e-2, 3.0e-2], [100, 101], [0, 1]


def make_project(dataset: str, score: str) -> Path:
    """Make a project folder whose search and runs try the same heads.

    Args:
        dataset: Name of the dataset.
        score: ``clean`` or ``auto``.

    Returns:
        The folder.
    """
    content = YAML(typ="safe", pure=True).load(Path(PARAMS).read_text(encoding="utf-8"))
    grid = {"learning_rate": "grid", "search": {"values": RATES, "epochs": None, "extend": 0}}
    alike = grid | {"weight_decay": 0.0, "select": score, "keep_epoch_logits": False, "protocol": "common"}
    content["linear_init"][dataset] = merge(content["linear_init"].get(dataset, {}), alike)
    content["simulate"][dataset] = {"protocol": "seeded"}
    content["search"][dataset] = {
        **{"methods": {name: [{}] for name in METHODS}, "learning_rates": RATES, "weight_decays": [0.0]},
        **{"scales": ["none"], "draws": DRAWS, "seeds": SEEDS, "scores": [score]},
    }
    paths = [f"data/prepare/{dataset}", f"data/features/{dataset}", *map(method_file, METHODS)]
    return make_root(f"search-{dataset}", {PARAMS: content}, {path: Path(path) for path in paths})


def run(root: Path, *arguments: str) -> tuple[float, float]:
    """Run a stage in a process of its own.

    Args:
        root: Project folder.
        arguments: Name of the stage, and what it is given.

    Returns:
        Wall and processor time, in seconds.
    """
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    command = [sys.executable, "-m", f"stages.{arguments[0]}", *arguments[1:]]
    subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, used


def compare_scores(root: Path, dataset: str, score: str) -> float:
    """Return the largest difference of a head's score in the search and in its own run, in points."""
    together: dict[tuple[Any, ...], float] = {}
    for row in files.read_tsv(root / "analyses" / "search" / dataset / "search.tsv"):
        key = (row["method"], row["draw"], row["seed"], float(row["learning_rate"]))
        together[key] = float(row[f"{score}_score"])
    worst = 0.0
    for method, draw, seed in itertools.product(METHODS, map(str, DRAWS), map(str, SEEDS)):
        for row in files.read_tsv(root / "runs/linear_init" / f"{dataset}-{method}-{draw}-{seed}" / "search.tsv"):
            own = together[method, draw, seed, float(row["learning_rate"])]
            worst = max(worst, abs(own - float(row["score"])))
    return worst


def main() -> None:
    """Time both ways and print what they took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("dataset", nargs="?", default="digits", metavar="DATASET")
    parser.add_argument("--score", choices=("clean", "auto"), default="clean")
    arguments = parser.parse_args()
    dataset, score = arguments.dataset, arguments.score
    root = make_project(dataset, score)
    for draw in map(str, DRAWS):
        run(root, "simulate", dataset, draw)
        if score == "auto":
            run(root, "beliefs", dataset, draw)
    places = itertools.product(METHODS, map(str, DRAWS), map(str, SEEDS))
    stacked = run(root, "search", dataset)
    alone = [run(root, "linear_init", dataset, *place) for place in places]
    for name, one, other in zip(("wall", "processor"), stacked, map(sum, zip(*alone, strict=True)), strict=True):
        print(f"{name}: {other:.1f} s one after another, {one:.1f} s in one process, {other / one:.1f} times")
    print(f"scores differ by at most {compare_scores(root, dataset, score):.1g} points")
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
