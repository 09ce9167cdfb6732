"""Choose each method's `default` settings: ``python -m benchmarks.method_settings [--root FOLDER] [METHOD ...]``.

benchmarks/method_settings.yaml holds, for each method, the stage and the values that are tried. Every combination is
trained by the stage itself with the learning rate that val mAP chooses for it where the stage searches one: on cached
features on digits and on photographs (profile voc_photos), on label draws that no reported figure uses; by the other
stages on digits alone. No test label is read. The default is the combination with the highest mean over the datasets of
the mean val mAP, in points. A share of the gap from `an` to `full` would divide by a difference that 132 photographs of
validation tell within a point or two only, and so weigh the datasets by chance. For the same reason an entry may name
another combination (``tied``) that lies within TIE points of the best, where something else speaks for it.

benchmarks/method_settings.tsv keeps every trial; those of the methods that are named (all, if none) are made anew, or
with --missing only those that it has not yet. Printed at the end: for each method the best settings and what its file
in params/methods holds. It needs params.yaml of the default profile, the outputs of prepare, backbone and features of
both datasets (``spml profile voc_photos --root FOLDER`` and those stages bare, then ``spml profile default``), for
`lasd` and `scl` those of `an` in linear_init, and for `lac` those of `plc` in end_to_end.
"""

import argparse
import contextlib
import importlib
import io
import itertools
import json
import os
import shutil
import statistics
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import torch
from ruamel.yaml import YAML
from tqdm import tqdm

from pipeline.config import profiles
from pipeline.config.params import PARAMS, method_file, read_params, run_key
from pipeline.core import files
from pipeline.core.strict import merge
from stages.simulate import simulate

HERE = Path("benchmarks")
GRID, TRIALS = HERE / "method_settings.yaml", HERE / "method_settings.tsv"
WORK = Path(".pipeline") / "method_settings"
PROFILES = {"digits": "default", "voc_photos": "voc_photos"}
"""Profile of each dataset that settings are tried on."""
DRAWS, SEEDS = (100, 101), (0,)
TIE = 0.25
"""Points of the mean val mAP that 132 photographs and two draws do not tell apart."""
"""Label draws, none of which a reported figure uses, and training seeds."""
COLUMNS = ("method", "stage", "settings", "dataset", "draw", "seed", "learning_rate", "epoch", "val_map")


class Job(NamedTuple):
    """One trial."""

    method: str
    entry: dict[str, Any]
    """The method's entry of the grid."""
    chosen: dict[str, Any]
    """The combination."""
    dataset: str
    draw: int
    seed: int

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the table of trials that name it."""
        return (self.method, settings_text(self.chosen), self.dataset, str(self.draw), str(self.seed))


def settings_text(chosen: dict[str, Any]) -> str:
    """Return settings as the table of trials holds them."""
    return json.dumps(chosen, sort_keys=True)


def read_grid() -> dict[str, Any]:
    """Return stage, fixed changes and tried values of each method."""
    return YAML(typ="safe", pure=True).load(GRID.read_text(encoding="utf-8"))


def list_jobs(method: str, entry: dict[str, Any]) -> list[Job]:
    """List the trials of a method: each combination of its values, the first values first, wherever it is tried.

    Args:
        method: Name of the method.
        entry: Its entry of the grid.

    Returns:
        The trials; of a stage that needs the pictures, those on digits.
    """
    values = entry["values"]
    combinations = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    datasets = list(PROFILES) if entry["stage"] == "linear_init" else ["digits"]
    return [
        Job(method, entry, chosen, dataset, draw, seed)
        for dataset in datasets
        for draw in entry.get("draws", DRAWS)
        for seed in entry.get("seeds", SEEDS)
        for chosen in combinations
    ]


def make_root(name: str, contents: dict[str, Any], links: dict[str, Path]) -> Path:
    """Make a project folder that has its own params and shares data with others.

    Args:
        name: Its name.
        contents: What params.yaml and a method's file hold, by path.
        links: What it shares, by path.

    Returns:
        The folder.
    """
    root = WORK / name
    shutil.rmtree(root, ignore_errors=True)
    for path, content in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        YAML().dump(content, root / path)
    for path, target in links.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(target.resolve())
    return root


def read_content(dataset: str, raw: str | None) -> dict[str, Any]:
    """Return the content of params.yaml for drawn labels of a dataset, by its profile.

    Args:
        dataset: Name of the dataset.
        raw: Folder of the photographs.
    """
    text = profiles.compose(Path(), PROFILES[dataset], raw if dataset != "digits" else None)[PARAMS]
    content = YAML(typ="safe", pure=True).load(text)
    content["simulate"][dataset] = {"protocol": "seeded"}
    return content


def draw_labels(dataset: str, content: dict[str, Any], labels: Iterable[int], methods: Iterable[str] = ()) -> Path:
    """Make the label sets of a dataset, once for all trials.

    Args:
        dataset: Name of the dataset.
        content: What `read_content` returned.
        labels: Label draws.
        methods: Methods whose files are linked too.

    Returns:
        The project folder that holds them.
    """
    links = {path: Path(path) for path in (f"data/prepare/{dataset}", *map(method_file, methods))}
    root = make_root(dataset, {PARAMS: content}, links)
    for draw in sorted(set(labels)):
        simulate(root, dataset, draw)
    return root


def trial(job: Job, content: dict[str, Any]) -> dict[str, Any]:
    """Train one method with one combination.

    Args:
        job: The trial.
        content: What `read_content` returned.

    Returns:
        One row of the table of trials.
    """
    torch.set_num_threads(1)
    stage, entry = job.entry["stage"], job.entry
    own = YAML(typ="safe", pure=True).load(Path(method_file(job.method)))
    content["grid"] |= {"draws": [job.draw], "seeds": [job.seed]}
    content["grid"] |= {"lac_start": entry.get("start", content["grid"]["lac_start"])}
    own["default"] = merge(own["default"], job.chosen)
    own.pop(job.dataset, None)
    changed = entry.get("set", {}) | {"keep_epoch_logits": False}  # which audits read
    content[stage][job.dataset] = merge(content[stage].get(job.dataset, {}), changed)
    key, variant = run_key(job.dataset, job.method, job.draw, job.seed), None
    links = {f"data/{name}": Path("data") / name for name in ("prepare", "features")} | {"weights": Path("weights")}
    links["data/simulate"] = WORK / job.dataset / "data" / "simulate"
    if stage == "finetune":  # from AN's head, which all of them can start from
        head = Path("runs/linear_init") / run_key(job.dataset, "an", job.draw, job.seed)
        variant = key = f"{key}-settings"
        block = {"dataset": job.dataset, "method": job.method, "draw": job.draw, "seed": job.seed, "start": "an"}
        content["variants"][stage] = {key: block | {"set": {"stage": {}, "method": {}}}}
        links[str(head)] = head
    if "start" in entry:
        before = Path("runs/end_to_end") / run_key(job.dataset, entry["start"], job.draw, job.seed)
        links[str(before)] = before
    root = make_root(str(os.getpid()), {PARAMS: content, method_file(job.method): own}, links)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run = getattr(importlib.import_module(f"stages.{stage}"), stage)
        run(root, job.dataset, job.method, job.draw, job.seed, variant)
    found = files.read_json(root / "runs" / stage / key / "metrics.json")
    shutil.rmtree(root)
    method, settings, *place = job.key
    values = (method, stage, settings, *place, found["learning_rate"], found["epoch"], found["val"]["map"])
    return dict(zip(COLUMNS, values, strict=True))


def mean_scores(rows: list[dict[str, str]], method: str) -> dict[str, dict[str, float]]:
    """Return the mean val mAP of each settings of a method on each dataset.

    Args:
        rows: The table of trials.
        method: Name of a method.

    Returns:
        The means by settings, as the table has them, and dataset.
    """
    scores: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["method"] == method:
            scores.setdefault(row["settings"], {}).setdefault(row["dataset"], []).append(float(row["val_map"]))
    return {text: {name: statistics.mean(found) for name, found in each.items()} for text, each in scores.items()}


def best(rows: list[dict[str, str]], method: str, tied: dict[str, Any] | None = None) -> tuple[str, dict[str, float]]:
    """Return the settings of a method with the highest mean over datasets of the mean val mAP, the first of equals.

    Args:
        rows: The table of trials.
        method: Name of a method.
        tied: What the grid takes instead of the best.

    Returns:
        The settings as the table has them, and their mean val mAP by dataset; those that the grid calls tied where it
        does.

    Raises:
        ValueError: Those are further from the best than `TIE`.
    """
    scores = mean_scores(rows, method)
    means = {settings: statistics.mean(found.values()) for settings, found in scores.items()}
    chosen = max(means, key=lambda settings: means[settings])
    if tied:
        other = json.dumps(tied, sort_keys=True)
        if means[chosen] - means[other] > TIE:
            raise ValueError(f"{method}: {other} is {means[chosen] - means[other]:.2f} points below the best, no tie")
        chosen = other
    return chosen, scores[chosen]


def run_all(jobs: list[Job], kept: list[dict[str, str]], raw: str | None, workers: int) -> None:
    """Run trials side by side; the table is written after each, so that an interrupted run goes on with --missing.

    Args:
        jobs: The trials.
        kept: Rows of the table that stay.
        raw: Folder of the photographs.
        workers: Trials side by side.
    """
    contents = {dataset: read_content(dataset, raw) for dataset in sorted({job.dataset for job in jobs})}
    for dataset, content in contents.items():
        draw_labels(dataset, content, (job.draw for job in jobs if job.dataset == dataset))
    order = [job.key for method, entry in read_grid().items() for job in list_jobs(method, entry)]
    with ProcessPoolExecutor(workers) as pool:
        running = [pool.submit(trial, job, contents[job.dataset]) for job in jobs]
        for done in tqdm(as_completed(running), total=len(jobs), disable=None):
            kept.append({name: str(value) for name, value in done.result().items()})
            files.write_tsv(TRIALS, sorted(kept, key=lambda row: order.index(row_key(row))))


def row_key(row: dict[str, str]) -> tuple[str, ...]:
    """Return what names a row of the table of trials."""
    return tuple(row[name] for name in ("method", "settings", "dataset", "draw", "seed"))


def main() -> None:
    """Run the trials that are asked for and print what they chose."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("methods", nargs="*", metavar="METHOD", help="methods to try; all of the grid if none")
    parser.add_argument("--root", metavar="FOLDER", help="folder of the photographs, which holds VOCdevkit/VOC2012")
    parser.add_argument("--missing", action="store_true", help="keep the trials of combinations that were tried")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="trials side by side, one thread each")
    arguments = parser.parse_args()
    grid = read_grid()
    wanted = arguments.methods or list(grid)
    asked = {job.key: job for method in wanted for job in list_jobs(method, grid[method])}
    stored = {row_key(row): row for row in (files.read_tsv(TRIALS) if TRIALS.exists() else [])}
    kept = [row for key, row in stored.items() if key[0] not in wanted or (arguments.missing and key in asked)]
    jobs = [job for key, job in asked.items() if not (arguments.missing and key in stored)]
    run_all(jobs, kept, arguments.root, arguments.jobs)
    rows, params = files.read_tsv(TRIALS), read_params(PARAMS, *wanted)
    for method in wanted:
        chosen, scores = best(rows, method, grid[method].get("tied"))
        told = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
        held = {key: params.method(method, "default")[key] for key in json.loads(chosen)}
        print(f"{method}: {chosen} (val mAP {told}); {method_file(method)}: {settings_text(held)}")


if __name__ == "__main__":
    main()
