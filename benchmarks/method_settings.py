"""Choose each method's `default` settings on digits: ``python -m benchmarks.method_settings [--jobs N] [METHOD ...]``.

benchmarks/method_settings.yaml holds, for each method, the stage and the values that are tried; every combination is
trained by the stage itself at its seeds, with the learning rate that val mAP chooses for it where the stage searches
one, and judged by its mean val mAP. No test label is read. benchmarks/method_settings.tsv keeps every trial; those of
the methods that are named (all, if none) are made anew, or with --missing only those that it has not yet. Printed at
the end: for each method the best settings and what its file in params/methods holds. It needs the outputs of prepare,
simulate, backbone and features, those of `an` in linear_init, and for `lac` those of `plc` in end_to_end.
"""

import argparse
import contextlib
import importlib
import io
import itertools
import json
import shutil
import statistics
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from ruamel.yaml import YAML
from tqdm import tqdm

from pipeline.config.params import PARAMS, method_file, read_params
from pipeline.core import files
from pipeline.core.strict import merge

HERE = Path("benchmarks")
GRID, TRIALS = HERE / "method_settings.yaml", HERE / "method_settings.tsv"
WORK = Path(".pipeline") / "method_settings"
SEEDS = (0, 1)
DATASET = "digits"


def read_grid() -> dict[str, Any]:
    """Return stage, fixed changes and tried values of each method."""
    return YAML(typ="safe", pure=True).load(GRID.read_text(encoding="utf-8"))


def combinations(values: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Return every combination of the values of each key, the first values first."""
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def root_for(name: str, contents: dict[str, Any]) -> Path:
    """Make a project folder that shares data and weights with this one and has its own params and runs.

    Args:
        name: Its name.
        contents: What params.yaml and a method's file hold, by path.

    Returns:
        The folder.
    """
    root = WORK / name
    shutil.rmtree(root, ignore_errors=True)
    (root / "runs" / "linear_init").mkdir(parents=True)
    for shared in ("data", "weights"):
        (root / shared).symlink_to(Path(shared).resolve())
    for run in Path("runs/linear_init").glob(f"{DATASET}-an-0-?"):
        (root / "runs" / "linear_init" / run.name).symlink_to(run.resolve())
    for path, content in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        YAML().dump(content, root / path)
    return root


def trial(job: tuple[int, str, dict[str, Any], dict[str, Any], int]) -> dict[str, Any]:
    """Train one method with one combination at one seed.

    Args:
        job: Number, method, its entry of the grid, the combination, and the seed.

    Returns:
        One row of the table of trials.
    """
    number, method, entry, chosen, seed = job
    torch.set_num_threads(1)
    read, stage = YAML(typ="safe", pure=True).load, entry["stage"]
    content, own = read(Path(PARAMS)), read(Path(method_file(method)))
    content["grid"] |= {
        "draws": [0],
        "seeds": list(SEEDS),
        "lac_start": entry.get("start", content["grid"]["lac_start"]),
    }
    own["default"] = merge(own["default"], chosen)
    own.pop(DATASET, None)
    content[stage]["default"] = merge(content[stage]["default"], entry.get("set", {}))
    key = f"{DATASET}-{method}-0-{seed}"
    variant = None
    if stage == "finetune":  # from AN's head, which all of them can start from
        variant, key = f"{key}-settings", f"{key}-settings"
        change = {"stage": {}, "method": {}}
        content["variants"][stage] = {
            key: {"dataset": DATASET, "method": method, "draw": 0, "seed": seed, "start": "an", "set": change}
        }
    root = root_for(str(number), {PARAMS: content, method_file(method): own})
    with contextlib.redirect_stdout(io.StringIO()):
        if "start" in entry:
            before = root / "runs" / "end_to_end" / f"{DATASET}-{entry['start']}-0-{seed}"
            before.parent.mkdir()
            before.symlink_to((Path("runs/end_to_end") / before.name).resolve())
        getattr(importlib.import_module(f"stages.{stage}"), stage)(root, DATASET, method, 0, seed, variant)
    found = files.read_json(root / "runs" / stage / key / "metrics.json")
    shutil.rmtree(root)
    return {
        "method": method, "stage": stage, "settings": json.dumps(chosen, sort_keys=True), "seed": seed,
        "learning_rate": found["learning_rate"], "epoch": found["epoch"], "val_map": found["val"]["map"],
    }  # fmt: skip


def best(rows: list[dict[str, str]], method: str) -> tuple[dict[str, Any], float]:
    """Return the settings of a method with the highest mean val mAP, the first of equals.

    Args:
        rows: The table of trials.
        method: Name of a method.

    Returns:
        The settings and their mean val mAP.
    """
    scores: dict[str, list[float]] = {}
    for row in rows:
        if row["method"] == method:
            scores.setdefault(row["settings"], []).append(float(row["val_map"]))
    chosen = max(scores, key=lambda settings: statistics.mean(scores[settings]))
    return json.loads(chosen), statistics.mean(scores[chosen])


def main() -> None:
    """Run the trials that are asked for and print what they chose."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("methods", nargs="*", metavar="METHOD", help="methods to try; all of the grid if none")
    parser.add_argument("--missing", action="store_true", help="keep the trials of combinations that were tried")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="trials side by side, one thread each")
    arguments = parser.parse_args()
    grid = read_grid()
    wanted = arguments.methods or list(grid)
    asked = {
        (method, json.dumps(chosen, sort_keys=True), str(seed)): (method, grid[method], chosen, seed)
        for method in wanted
        for chosen in combinations(grid[method]["values"])
        for seed in grid[method].get("seeds", SEEDS)
    }
    stored = {
        (row["method"], row["settings"], row["seed"]): row
        for row in (files.read_tsv(TRIALS) if TRIALS.exists() else [])
    }
    kept = [row for key, row in stored.items() if row["method"] not in wanted or (arguments.missing and key in asked)]
    jobs = [job for key, job in asked.items() if not (arguments.missing and key in stored)]
    numbered = [(number, *job) for number, job in enumerate(jobs)]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        found = list(tqdm(pool.map(trial, numbered), total=len(jobs), disable=None))
    files.write_tsv(TRIALS, sorted(kept + found, key=lambda row: list(grid).index(row["method"])))
    rows, params = files.read_tsv(TRIALS), read_params(PARAMS, *wanted)
    for method in wanted:
        chosen, score = best(rows, method)
        held = {key: params.method(method, DATASET)[key] for key in chosen}
        print(f"{method}: {json.dumps(chosen)} (val mAP {score:.2f}); {method_file(method)}: {json.dumps(held)}")


if __name__ == "__main__":
    main()
