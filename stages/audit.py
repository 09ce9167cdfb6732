"""Audit what the runs of a dataset believed of unknown cells: ``python -m stages.audit DATASET DRAW SEED``.

Reads data/prepare/<dataset>/table.h5, data/simulate/<dataset>-<draw>/observed.h5 and
runs/<stage>/<key>/{labels,logits}.h5 of every run that params.yaml names; writes
analyses/audit/<dataset>-<draw>-<seed>/. No torch.

Where the labels of a dataset are not exhaustive there is no truth to audit against: the same files are written, with
what can be said without it, and what would need it is empty or null.
"""

from stages import entry  # isort: split

from pathlib import Path

from pipeline.audits.audit import COLUMNS, MISSED_COLUMNS, audit_run, merge_missed, summarize_audits
from pipeline.audits.runs import explain_unknown_truth, open_run
from pipeline.config.params import TRAINING_STAGES, read_params
from pipeline.core import files
from pipeline.core.manifest import write_manifest
from pipeline.core.progress import track
from pipeline.core.summary import write_summary
from pipeline.labels.observed import observed_file, read_observed
from pipeline.labels.table import read_table


def audit(root: Path, dataset: str, draw: int, seed: int) -> None:
    """Audit pseudo-labels and calibration of all runs of a dataset at one label draw and training seed.

    Args:
        root: Project root.
        dataset: Name of a dataset.
        draw: Number of the label draw.
        seed: Training seed.
    """
    params = read_params(root / "params.yaml")
    settings = params.settings("audit", dataset)
    table_file = root / "data" / "prepare" / dataset / "table.h5"
    table = read_table(table_file)
    observed = read_observed(observed_file(root, dataset, draw), table)
    without_truth = explain_unknown_truth(table, dataset)
    audits = []
    planned = [(stage, *run) for stage in TRAINING_STAGES for run in params.keys(stage, dataset, draw, seed)]
    for stage, key, method, _ in track(planned, "audit", len(planned), "run"):
        name = {"stage": stage, "key": key, "method": method}
        with open_run(root / "runs" / stage / key, table) as run:
            audits.append(audit_run(name, run, table, observed, settings, without_truth))

    record = {"dataset": dataset, "draw": draw, "seed": seed, "bins": settings.bins} | summarize_audits(
        audits, table, observed["single"]
    )
    folder = root / "analyses" / "audit" / f"{dataset}-{draw}-{seed}"
    files.write_json(folder / "audit.json", record)
    for name, columns in COLUMNS.items():
        files.write_tsv(folder / f"{name}.tsv", [row for audit in audits for row in audit.tables[name]], columns)
    files.write_tsv(folder / "missed.tsv", merge_missed(audits), MISSED_COLUMNS)
    template = "audit.md.j2" if table.exhaustive else "audit_without_truth.md.j2"
    context = record | {"cells_unscored": int((~table.scored).sum())}
    write_summary(folder / "summary.md", entry.TEMPLATES / template, context)
    folders = [root / "runs" / stage / key for stage, key, _, _ in planned]
    read = [run_folder / name for run_folder in folders for name in ("labels.h5", "logits.h5")]
    write_manifest(folder, [table_file, observed_file(root, dataset, draw), *read])


if __name__ == "__main__":
    entry.run(audit)
