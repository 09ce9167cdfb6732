"""What other label draws do to methods, on digits: ``python -m benchmarks.label_draws [--seeds N] [--jobs N]``.

Each row is a draw of simulate, each column a method with its settings of params.yaml: test mAP of a linear head, mean
and sample standard deviation over training seeds; learning rate and epoch by val mAP, as everywhere. The stages
themselves run, in a folder of their own: simulate and linear_init. It needs the outputs of prepare, backbone and
features.
"""

import argparse
import contextlib
import io
import shutil
import statistics
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from ruamel.yaml import YAML
from tqdm import tqdm

from pipeline.core import files
from stages.linear_init import linear_init
from stages.simulate import simulate

WORK = Path(".pipeline") / "label_draws"
METHODS = ("an", "wan", "em", "gr", "role", "iun", "full")
DRAWS: dict[str, dict[str, Any]] = {
    "one positive (the papers)": {},
    "one, and one known absence": {"negatives": {"kind": "count", "value": 1}},
    "two positives": {"positives": {"kind": "count", "value": 2}},
    "half of the positives": {"positives": {"kind": "share", "value": 0.5}},
    "10% of positives and of absences": {
        "positives": {"kind": "share", "value": 0.1},
        "negatives": {"kind": "share", "value": 0.1},
    },
    "one, frequent classes first (power 2)": {"bias": {"kind": "frequency", "power": 2.0}},
    "one, rare classes first (power -2)": {"bias": {"kind": "frequency", "power": -2.0}},
}


def project(number: int, draw: dict[str, Any]) -> Path:
    """Make a project folder that shares prepared data and weights with this one, and draw its labels.

    Args:
        number: Its number.
        draw: What simulate is to do otherwise.

    Returns:
        The folder.
    """
    root = WORK / str(number)
    for shared in ("data/prepare", "data/features", "weights", "params"):
        (root / shared).parent.mkdir(parents=True, exist_ok=True)
        (root / shared).symlink_to(Path(shared).resolve())
    params = YAML(typ="safe", pure=True).load(Path("params.yaml").read_text(encoding="utf-8"))
    params["simulate"]["digits"] = draw
    with open(root / "params.yaml", "w", encoding="utf-8") as file:
        YAML().dump(params, file)
    with contextlib.redirect_stdout(io.StringIO()):
        simulate(root, "digits", 0)
    return root


def run(job: tuple[Path, str, int]) -> float:
    """Train one head.

    Args:
        job: Project folder, method, training seed.

    Returns:
        Test mAP in percent.
    """
    root, method, seed = job
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(io.StringIO()):
        linear_init(root, "digits", method, 0, seed)
    return files.read_json(root / "runs/linear_init" / f"digits-{method}-0-{seed}" / "metrics.json")["test"]["map"]


def main() -> None:
    """Print a table of draws and methods."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="training seeds (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="runs side by side, one thread each")
    options = parser.parse_args()
    shutil.rmtree(WORK, ignore_errors=True)
    roots = [project(number, draw) for number, draw in enumerate(DRAWS.values())]
    jobs = [(root, method, seed) for root in roots for method in METHODS for seed in range(options.seeds)]
    with ProcessPoolExecutor(options.jobs) as pool:
        scores = dict(zip(jobs, tqdm(pool.map(run, jobs), "train", len(jobs), disable=None), strict=True))
    print(f"| labels that stay known | present among the unknown | {' | '.join(f'`{method}`' for method in METHODS)} |")
    print("| --- " * (len(METHODS) + 2) + "|")
    for root, name in zip(roots, DRAWS, strict=True):
        hidden = files.read_json(root / "data/simulate/digits-0/report.json")["false_negative_rate"]
        cells = []
        for method in METHODS:
            values = [scores[root, method, seed] for seed in range(options.seeds)]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.1f}{spread}")
        print(f"| {name} | {100 * hidden:.1f}% | {' | '.join(cells)} |")
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
