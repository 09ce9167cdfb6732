"""How good a run is: the best measure that the labels at hand allow, and how sure it is."""

from pathlib import Path

import numpy as np

from pipeline.audits import unlabelled
from pipeline.audits.metrics import measurable
from pipeline.audits.predictions import estimate_map
from pipeline.core import hdf5
from pipeline.labels.beliefs import beliefs_file, read_beliefs
from pipeline.labels.observed import observed_file, read_shown
from pipeline.labels.table import Table, read_table

RESAMPLES = 200
"""Of the images, groups whole, for an interval."""
CHOSE = {"test": "images that chose nothing", "val": "images that chose the run too, which flatters it"}
"""By which split, and what its images are."""
NO_INTERVAL = "no interval: samples of its images score alike"
"""Of one group, or of too few images."""
UNKNOWN = (
    "that is the chance that an image with the label outranks another one; how often the model is right nobody knows: "
    "docs/own-images.md says how to measure it"
)


def describe_worth(root: Path, name: str) -> list[str]:
    """Return lines on how good a run is, by which labels of which images, and how sure that is.

    By mAP where test, or else val, is labelled in full; where neither is, by how well shown labels are ranked.

    Args:
        root: Project root.
        name: ``<stage>/<run>``.

    Raises:
        FileError: What the run was made of is absent or damaged.
    """  # noqa: DOC502  raised by the readers
    dataset, _, draw = name.partition("/")[2].split("-")[:3]
    table = read_table(root / "data" / "prepare" / dataset / "table.h5")
    with hdf5.read(root / "runs" / name / "logits.h5") as file:
        logits = {split: file[split][()] for split in CHOSE}
    for split in CHOSE:
        truth, scored = table.reference(split)
        if not table.measurable(split) or not measurable(truth, scored)[0].any():
            continue
        found = estimate_map(truth, logits[split], scored, RESAMPLES, table.group_numbers(split))
        return [f"{split} mAP {_show(found)}, by full labels of {len(truth)} {CHOSE[split]}"]
    observed = read_shown(observed_file(root, dataset, int(draw)), table)
    weights = read_beliefs(beliefs_file(root, dataset, int(draw)), table).stands_for(observed)
    for split in CHOSE:
        rows = table.rows(split)
        if (shown := observed[rows] == 1).any():
            found = _rank_shown(table, split, shown, weights[rows], logits[split])
            return [
                f"{split} score by shown labels {_show(found)}, of {len(rows)} {CHOSE[split]}; 50 is chance",
                UNKNOWN,
            ]
    return ["nobody knows: no test or val image shows a label"]


def _rank_shown(
    table: Table, split: str, shown: np.ndarray, weights: np.ndarray, logits: np.ndarray
) -> unlabelled.Estimate:
    """Return how well the shown labels of a split are ranked, in percent."""
    groups = table.group_numbers(split)
    repeats = unlabelled.resample_rows(len(shown), RESAMPLES, np.random.default_rng(0), groups)
    value = unlabelled.pooled_aul(logits, shown, weights)[0]
    return unlabelled.estimate(100 * value, 100 * unlabelled.pooled_aul(logits, shown, weights, repeats))


def _show(found: unlabelled.Estimate) -> str:
    """Return a figure with its interval, where one can be told."""
    sure = f"95 %: {found.low:.1f} to {found.high:.1f}" if found.high - found.low > 1e-9 else NO_INTERVAL
    return f"{found.value:.1f} ({sure})"
