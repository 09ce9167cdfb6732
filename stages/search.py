"""Search settings of methods as linear heads on cached features, in one process: ``python -m stages.search DATASET``.

Reads the feature cache and the table; labels of the draws asked for are drawn and believed here, as `simulate` and
`beliefs` do. Writes analyses/search/<dataset>/: search.tsv (one row a setting, draw, seed and rate), choice.json (the
best by each score, with differences paired by draw) and summary.md. No test label chooses anything.
"""

from stages import entry  # isort: split

from pathlib import Path

import torch

from pipeline.config import rules
from pipeline.config.params import EstimatedDensity, KnownDensity, Params, read_params
from pipeline.config.plan import check_search, plan_search
from pipeline.core import files
from pipeline.core.device import choose_device
from pipeline.core.manifest import write_manifest
from pipeline.core.strict import merge
from pipeline.core.summary import write_summary
from pipeline.labels.beliefs import Beliefs
from pipeline.labels.table import Table, read_objects, read_table
from pipeline.methods.shared.base import load
from pipeline.training.features import Cache, read_features
from pipeline.training.settings_search import (
    Candidate,
    LabelSource,
    Task,
    choose_best,
    draw_labels,
    search_settings,
)


def search(root: Path, dataset: str) -> None:
    """Train every setting of a dataset's search, and store scores and choice.

    Args:
        root: Project root.
        dataset: Name of a dataset.

    Raises:
        ConfigError: A setting is faulty, or the features cannot be fitted.
    """  # noqa: DOC502  raised by the functions below
    names = read_params(root / "params.yaml").settings("search", dataset).methods
    there = [name for name in names if (root / "params" / "methods" / f"{name}.yaml").is_file()]
    params = read_params(root / "params.yaml", *there)
    rules.raise_if_any(check_search(params, dataset))
    table_file = root / "data" / "prepare" / dataset / "table.h5"
    table, cache = read_table(table_file), root / "data" / "features" / dataset / "features.h5"
    rules.raise_if_any(rules.searched_data(params, dataset, table, plan_search(params, dataset)))
    settings = params.settings("search", dataset)
    believing = params.settings("beliefs", dataset)
    features = read_features(cache, table, believing.kind == "fits" and believing.sharpness is not None)
    labels = _describe_labels(root, params, dataset, table, features)
    torch.set_num_threads(1)  # a step is too small to share
    task = Task(
        f"search {dataset}",
        table,
        features,
        params.settings("linear_init", dataset),
        settings,
        [
            Candidate(name, change, merge(params.method(name, dataset), change))
            for name, changes in settings.methods.items()
            for change in changes
        ],
        [draw_labels(labels, number) for number in settings.draws],
        choose_device(),
    )
    rows, folder = search_settings(task), root / "analyses" / "search" / dataset
    choice = {score: choose_best(rows, score) for score in settings.scores}
    files.write_tsv(folder / "search.tsv", rows)
    files.write_json(folder / "choice.json", {"draws": settings.draws, "seeds": settings.seeds, **choice})
    context = {"dataset": dataset, "search": settings, "choice": choice, "heads": len(rows)}
    write_summary(folder / "summary.md", entry.TEMPLATES / "search.md.j2", context)
    write_manifest(folder, [*features.reads, table_file])


def _describe_labels(root: Path, params: Params, dataset: str, table: Table, features: Cache) -> LabelSource:
    """Return where the labels of a search come from, and what is believed where a score or a method reads it.

    Raises:
        ConfigError: The settings of the draw do not suit the data.
    """  # noqa: DOC502  raised by the rules
    settings, density = params.settings("search", dataset), params.density(dataset)
    drawing, believing = params.settings("simulate", dataset), params.settings("beliefs", dataset)
    rules.raise_if_any(rules.label_protocol(dataset, drawing, table))
    rules.raise_if_any(rules.empty_rows(dataset, drawing, table))
    needs = set().union(*(load(name).needs for name in settings.methods))
    estimates = isinstance(density, EstimatedDensity) and "expected_positives" in needs
    reads = "auto" in settings.scores or "beliefs" in needs or estimates

    def count_labels(beliefs: Beliefs | None) -> float | None:
        if isinstance(density, KnownDensity):
            return density.value
        return density.limit(beliefs.labels_per_image) if density and beliefs else None

    objects = read_objects(root / "data" / "prepare" / dataset / "table.h5")
    return LabelSource(root, dataset, (table, objects), drawing, believing if reads else None, features, count_labels)


if __name__ == "__main__":
    entry.run(search)
