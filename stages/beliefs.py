"""Tell how likely each hidden label is: ``python -m stages.beliefs DATASET DRAW``.

Three closed-form fits on the cached features, without truth, density, rate or epochs (`pipeline.training.beliefs`); or
what somebody else believes, from a table. Reads the feature cache, the table and the observed labels; writes
data/beliefs/<dataset>-<draw>/: beliefs.h5 (every image and class, and a linear head), hidden.tsv (the labels most
likely hidden), report.json (labels an image and class shares, with intervals) and summary.md. No truth is read.
"""

from stages import entry  # isort: split

from pathlib import Path

from pipeline.config.params import read_params
from pipeline.core import files
from pipeline.core.manifest import write_manifest
from pipeline.core.summary import write_summary
from pipeline.labels.beliefs import beliefs_file, rank_hidden, write_beliefs
from pipeline.labels.observed import observed_file, read_shown
from pipeline.labels.table import SPLITS, read_table
from pipeline.training.features import read_features
from pipeline.training.stored_beliefs import Labels, make_beliefs

HIDDEN = 1000
"""Rows of hidden.tsv at most."""
FLOOR = 0.5
"""Least belief of one that is named: below, a label is rather absent."""


def beliefs(root: Path, dataset: str, draw: int) -> None:
    """Write what is believed of every image and class of a dataset under a label draw.

    Args:
        root: Project root.
        dataset: Name of a dataset.
        draw: Number of the label draw.

    Raises:
        ConfigError: The features cannot be fitted.
        FileError: The cache or the labels are absent, damaged, or not those of the table.
        SourceError: The table of somebody's beliefs is faulty.
    """  # noqa: DOC502  raised by the functions below
    settings = read_params(root / "params.yaml").settings("beliefs", dataset)
    table_file, labels_file = root / "data" / "prepare" / dataset / "table.h5", observed_file(root, dataset, draw)
    table = read_table(table_file)
    observed = read_shown(labels_file, table)
    cache = root / "data" / "features" / dataset / "features.h5"
    stored = read_features(cache, table, settings.kind == "fits" and settings.sharpness is not None)
    found = make_beliefs(root, dataset, settings, stored, Labels(table, observed, draw))
    output, reads = beliefs_file(root, dataset, draw), [*stored.reads, table_file, labels_file]
    belief = found.beliefs.belief
    write_beliefs(output, found.beliefs, found.head, reads, settings.model_dump())
    rows = [
        {
            "path": table.paths[row],
            "split": SPLITS[table.split[row]],
            "class": table.classes[column],
            "belief": float(belief[row, column]),
        }
        for row, column in rank_hidden(found.beliefs.ranking, (observed == 0) & (belief >= FLOOR), HIDDEN)
    ]
    files.write_json(output.with_name("report.json"), found.report)
    files.write_tsv(output.with_name("hidden.tsv"), rows, ["path", "split", "class", "belief"])
    context = found.report | {"dataset": dataset, "draw": draw, "hidden": rows[:10], "images": len(table.paths)}
    write_summary(output.with_name("summary.md"), entry.TEMPLATES / "beliefs.md.j2", context)
    write_manifest(output.parent, reads)


if __name__ == "__main__":
    entry.run(beliefs)
