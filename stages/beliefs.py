"""Tell how likely each hidden label is: ``python -m stages.beliefs DATASET DRAW``.

Three closed-form fits on the cached features, without truth, density, rate or epochs (`pipeline.training.beliefs`); or
what somebody else believes, from a table. Reads the feature cache, the table and the observed labels; writes
data/beliefs/<dataset>-<draw>/: beliefs.h5 (every image and class, and a linear head), hidden.tsv (the labels most
likely hidden), report.json (labels an image and class shares, with intervals) and summary.md. No truth is read.
"""

from stages import entry  # isort: split

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config.params import read_params
from pipeline.core import files
from pipeline.core.errors import ConfigError
from pipeline.core.manifest import write_manifest
from pipeline.core.summary import write_summary
from pipeline.labels.beliefs import Beliefs, beliefs_file, rank_hidden, read_given, write_beliefs
from pipeline.labels.observed import observed_file, read_observed
from pipeline.labels.table import SPLITS, Table, read_table
from pipeline.methods.shared.draw_likelihood import CountDraw, ShareDraw, posterior_of_arrays
from pipeline.training import ridge
from pipeline.training.beliefs import believe
from pipeline.training.features import read_features
from pipeline.training.settings import BeliefFits, GivenBeliefs

HIDDEN = 1000
"""Rows of hidden.tsv."""
FARTHEST = 30.0
"""Logit of a chance that somebody gives as 0 or 1."""


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
    observed = read_observed(labels_file, table, ["single"])["single"]
    cache = root / "data" / "features" / dataset / "features.h5"
    features = read_features(cache, len(table.paths), len(table.rows("train")))
    if isinstance(settings, GivenBeliefs):
        found, head, report = _given(root, settings, table, observed)
    else:
        found, head, report = _fit(f"beliefs.{dataset}", settings, features, table, observed, draw)
    output, reads = beliefs_file(root, dataset, draw), [cache, table_file, labels_file]
    write_beliefs(output, found, head, reads)
    rows = [
        {"path": table.paths[row], "split": SPLITS[table.split[row]], "class": table.classes[column], "belief": chance}
        for row, column, chance in rank_hidden(found.belief, observed, HIDDEN)
    ]
    files.write_json(output.with_name("report.json"), report)
    files.write_tsv(output.with_name("hidden.tsv"), rows, ["path", "split", "class", "belief"])
    context = report | {"dataset": dataset, "draw": draw, "hidden": rows[:10], "images": len(table.paths)}
    write_summary(output.with_name("summary.md"), entry.TEMPLATES / "beliefs.md.j2", context)
    write_manifest(output.parent, reads)


def _fit(
    key: str,
    settings: BeliefFits,
    features: tuple[np.ndarray, np.ndarray | None],
    table: Table,
    observed: np.ndarray,
    seed: int,
) -> tuple[Beliefs, dict[str, np.ndarray], dict[str, Any]]:
    """Return beliefs from the features, their linear head, and what report.json holds.

    Raises:
        ConfigError: The features cannot be fitted.
    """
    rows, shown_as = table.rows("train"), _draw(settings)
    try:
        fitted = believe(features[0][rows], observed[rows], features[1], shown_as, settings.fits, seed)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from error
    logits = ridge.score(features[0], fitted.weights, fitted.bias)
    logits[rows] = fitted.logits  # each by fits that did not see its labels
    belief = posterior_of_arrays(logits, observed, shown_as)[2]
    head = {"weights": fitted.weights, "bias": fitted.bias}
    report = {
        "kind": settings.kind,
        "fits": [vars(each) for each in fitted.fits],
        "labels_per_image": _interval(fitted.labels._asdict()),
        "shares": {name: _interval(share._asdict()) for name, share in zip(table.classes, fitted.shares, strict=True)},
        "classes_unseen": [table.classes[column] for column in fitted.unseen],
        "classes_seldom": [table.classes[column] for column in fitted.seldom],
    }
    return Beliefs(belief.astype(np.float32), logits.astype(np.float32), fitted.labels.value), head, report


def _given(
    root: Path, settings: GivenBeliefs, table: Table, observed: np.ndarray
) -> tuple[Beliefs, dict[str, np.ndarray], dict[str, Any]]:
    """Return what somebody else believes, no head, and what report.json holds."""
    file = settings.path(root)
    chances = read_given(file, table)
    with np.errstate(divide="ignore"):
        logits = np.clip(np.log(chances) - np.log1p(-chances), -FARTHEST, FARTHEST)
    belief = posterior_of_arrays(logits, observed, _draw(settings))[2]
    train = belief[table.rows("train")]
    labels = float(train.sum(axis=1).mean())
    report = {
        "kind": settings.kind,
        "file": settings.file,
        "file_sha256": files.sha256(file),
        "fits": [],
        "labels_per_image": {"value": labels, "low": None, "high": None},
        "shares": {
            name: {"value": float(share), "low": None, "high": None}
            for name, share in zip(table.classes, train.mean(axis=0), strict=True)
        },
        "classes_unseen": [],
        "classes_seldom": [],
    }
    return Beliefs(belief.astype(np.float32), logits.astype(np.float32), labels), {}, report


def _draw(settings: BeliefFits | GivenBeliefs) -> CountDraw | ShareDraw:
    return CountDraw() if settings.draw.kind == "count" else ShareDraw(settings.draw.value)


def _interval(estimate: dict[str, float]) -> dict[str, float | None]:
    """Return value and 95 % interval as JSON values."""
    return {name: float(estimate[name]) if np.isfinite(estimate[name]) else None for name in ("value", "low", "high")}


if __name__ == "__main__":
    entry.run(beliefs)
