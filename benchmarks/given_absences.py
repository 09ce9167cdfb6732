"""Whether absences that somebody gave help to calibrate beliefs: ``python -m benchmarks.given_absences``.

IMAGES digits, one shown label each and one known absence: at random, as `simulate` draws it, or of the class that is
the likeliest of the absent ones by a head that all labels trained, as somebody gives it who is asked about look-alikes.
Calibration takes the absences for what the draw left known, or, as the product does, for unknown. Printed are labels an
image, and the log-likelihood of the unknown cells by their true labels. It needs the outputs of prepare and features
of the default profile.
"""

from pathlib import Path
from unittest import mock

import numpy as np
import torch

from pipeline.labels import draws
from pipeline.labels.settings import Simulate
from pipeline.labels.table import Table, read_table
from pipeline.methods.shared.draw_likelihood import ShareDraw
from pipeline.training.beliefs import Beliefs, believe
from pipeline.training.features import read_features

IMAGES = 1500
DRAWS = (100, 101)


def draw_labels(table: Table, number: int, absences: int) -> np.ndarray:
    """Return (N, C) int8 labels: one that is present, and so many absences at random."""
    settings = {
        "protocol": "seeded", "seed": 0, "empty_rows": "keep", "positives": {"kind": "count", "value": 1},
        "negatives": {"kind": "count", "value": absences}, "bias": {"kind": "uniform"},
    }  # fmt: skip
    return draws.observe(Path(), table, None, Simulate.model_validate(settings), number).observed


def give_likeliest(observed: np.ndarray, truth: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Return labels with one absence more an image: that of its absent class with the highest logit."""
    given, rows = observed.copy(), np.flatnonzero((truth == 0).any(axis=1))
    given[rows, np.where(truth == 0, logits, -np.inf)[rows].argmax(axis=1)] = -1
    return given


def count_as_drawn(features: np.ndarray, observed: np.ndarray) -> Beliefs:
    """Return beliefs whose calibration takes absences for what the draw left known."""
    with mock.patch("pipeline.training.calibrate._as_drawn", lambda labels, draw: labels):
        return believe(features, observed)


def score(beliefs: Beliefs, observed: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Return labels an image as beliefs estimate them, and the mean log-likelihood of unknown cells."""
    unknown = observed == 0
    chance = np.clip(beliefs.present[unknown], 1e-6, 1 - 1e-6)
    return beliefs.labels.value, float(np.log(np.where(truth[unknown] == 1, chance, 1 - chance)).mean())


def main() -> None:
    """Print the figures of each draw."""
    torch.set_num_threads(1)
    table = read_table(Path("data") / "prepare" / "digits" / "table.h5")
    rows = table.rows("train")[:IMAGES]
    features = read_features(Path("data") / "features" / "digits" / "features.h5", table, False).plain[rows]
    truth = table.truth[rows]
    full = believe(features, truth, draw=ShareDraw(1.0), fits=1).logits
    print("draw", "absence", "calibration", "labels", "log-likelihood", sep="\t")
    for number in DRAWS:
        single = draw_labels(table, number, 0)[rows]
        kinds = {"likeliest": give_likeliest(single, truth, full), "random": draw_labels(table, number, 1)[rows]}
        for kind, observed in kinds.items():
            for name, fit in (("as drawn", count_as_drawn), ("as unknown", believe)):
                labels, likelihood = score(fit(features, observed), observed, truth)
                print(number, kind, name, f"{labels:.2f}", f"{likelihood:.3f}", sep="\t", flush=True)
    print(f"true labels an image: {truth.sum(axis=1).mean():.2f}")


if __name__ == "__main__":
    main()
