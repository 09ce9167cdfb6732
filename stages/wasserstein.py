"""Measure how far runs set hidden positives apart from negatives: ``python -m stages.wasserstein DATASET DRAW SEED``.

Reads data/prepare/<dataset>/table.h5, data/simulate/<dataset>-<draw>/observed.h5 and runs/<stage>/<key>/logits.h5 of
every run that params.yaml names; writes analyses/wasserstein/<dataset>-<draw>-<seed>/. No torch.

Where the labels of a dataset are not exhaustive nothing can be measured: the same files say so, and tables have no row.
"""

from stages import entry  # isort: split

from pathlib import Path
from typing import Any

from pipeline.audits.runs import explain_unknown_truth
from pipeline.audits.wasserstein import COLUMNS, SPLITS, compare_runs, measure_run, tabulate
from pipeline.config.params import TRAINING_STAGES, read_params
from pipeline.core import files
from pipeline.core.manifest import write_manifest
from pipeline.core.progress import track
from pipeline.core.summary import write_summary
from pipeline.labels.observed import observed_file, read_observed
from pipeline.labels.table import read_table


def wasserstein(root: Path, dataset: str, draw: int, seed: int) -> None:
    """Measure the Wasserstein separation of all runs of a dataset at one label draw and training seed.

    Args:
        root: Project root.
        dataset: Name of a dataset.
        draw: Number of the label draw.
        seed: Training seed.
    """
    params = read_params(root / "params.yaml")
    table_file = root / "data" / "prepare" / dataset / "table.h5"
    table = read_table(table_file)
    single = read_observed(observed_file(root, dataset, draw), table)["single"]
    reason = explain_unknown_truth(table, dataset)
    runs: list[dict[str, Any]] = []
    epochs: list[dict[str, Any]] = []
    planned = [(stage, *run) for stage in TRAINING_STAGES for run in params.keys(stage, dataset, draw, seed)]
    for stage, key, method, variant in track(planned, "wasserstein", len(planned), "run"):
        name = {"stage": stage, "key": key, "method": method}
        if reason:
            runs.append(name | {"variant": variant, "reason": reason} | dict.fromkeys(SPLITS))
            continue
        run, by_epoch = measure_run(root / "runs" / stage / key / "logits.h5", table, single)
        runs.append(name | {"variant": variant} | run)
        epochs += [name | row for row in by_epoch]
    measured = [] if reason else runs
    compare_runs(measured)

    record = {
        "dataset": dataset,
        "draw": draw,
        "seed": seed,
        "truth": not reason,
        "classes": list(table.classes),
        "runs": runs,
    }
    folder = root / "analyses" / "wasserstein" / f"{dataset}-{draw}-{seed}"
    files.write_json(folder / "wasserstein.json", record)
    for name, rows in tabulate(measured, epochs, table.classes).items():
        files.write_tsv(folder / f"{name}.tsv", rows, COLUMNS[name])
    context = record | {"cells_unscored": int((~table.scored).sum())}
    write_summary(folder / "summary.md", entry.TEMPLATES / "wasserstein.md.j2", context)
    read = [] if reason else [root / "runs" / stage / key / "logits.h5" for stage, key, _, _ in planned]
    write_manifest(folder, [table_file, observed_file(root, dataset, draw), *read])


if __name__ == "__main__":
    entry.run(wasserstein)
