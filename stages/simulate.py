"""Hide labels of a fully labelled dataset: ``python -m stages.simulate DATASET DRAW``.

By default one positive an image stays known, as in the papers; settings keep more, known absences too, or let some
labels be likelier to stay known than others. Data whose labels are not exhaustive have nothing to hide: what they give
is what is observed.

Reads data/prepare/<dataset>/table.h5 and the table of weights that ``simulate.bias`` may name; writes
data/simulate/<dataset>-<draw>/: observed.h5 (`single`, and the oracles' `all` and `negatives`), report.json (counts,
false-negative rate of each class, how far the draw is from an unbiased one) and summary.md. All rows get labels, those
of val and test too. What people answered (corrections) stays known, and so does what the dataset's rules imply of the
labels that are known; both are counted apart.
"""

from stages import entry  # isort: split

from pathlib import Path

from pipeline.config import rules
from pipeline.config.params import read_params
from pipeline.core import files
from pipeline.core.manifest import write_manifest
from pipeline.core.summary import write_summary
from pipeline.labels import draws, oracles, statistics
from pipeline.labels.description import describe_settings
from pipeline.labels.observed import observed_file, write_observed
from pipeline.labels.table import read_objects, read_table


def simulate(root: Path, dataset: str, draw: int) -> None:
    """Draw the observed labels of one dataset once.

    Each official part is drawn by itself, in table row order, before its rows fall into train and val.

    Args:
        root: Project root.
        dataset: Name of a dataset.
        draw: Number of the draw: draws of other numbers are independent.
    """
    settings = read_params(root / "params.yaml").settings("simulate", dataset)
    file = root / "data" / "prepare" / dataset / "table.h5"
    rules.raise_if_any(rules.label_draws(dataset, settings, [draw]))
    table, objects = read_table(file), read_objects(file)
    rules.raise_if_any(rules.label_protocol(dataset, settings, table))
    rules.raise_if_any(rules.empty_rows(dataset, settings, table))
    drawn = draws.observe(root, table, objects, settings, draw)
    known = drawn.imply(table)
    report = describe_settings(root, settings, draw) | statistics.summarize_draw(table, drawn, objects, settings)
    report["implied"] = statistics.summarize_implied(table, drawn, known)
    report["corrected"] = statistics.summarize_corrected(table, known)

    folder = observed_file(root, dataset, draw).parent
    write_observed(folder / "observed.h5", oracles.label_sets(table, known.labels), file, *known[1:])
    files.write_json(folder / "report.json", report)
    context = report | {"dataset": dataset}
    write_summary(folder / "summary.md", entry.TEMPLATES / "simulate.md.j2", context)
    write_manifest(folder, [file])


if __name__ == "__main__":
    entry.run(simulate)
