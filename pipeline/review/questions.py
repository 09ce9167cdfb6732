"""The questions of a review: is this class in this picture?"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.audits.questions import Order, expected_gain, rank_cells
from pipeline.audits.runs import open_run
from pipeline.labels.table import SPLITS, Table


@dataclass(frozen=True)
class Question:
    """One cell that a person is asked about.

    Args:
        row: Row of the picture in the table.
        path: Its name.
        label: Name of the class.
        split: Name of the picture's split.
        belief: How likely the class is present, in [0, 1].
        gain: What an answer is expected to gain (`expected_gain`).
        shown: Classes that are known to be present.
    """

    row: int
    path: str
    label: str
    split: str
    belief: float
    gain: float
    shown: tuple[str, ...]


def believe_run(folder: Path, table: Table, observed: np.ndarray) -> np.ndarray:
    """Return how present a run takes the labels of training and val images to be.

    Args:
        folder: Folder of the run.
        table: The table that it was trained on.
        observed: (N, C) labels; 0 is unknown.

    Returns:
        (N, C) float32 chances by its logits: 1 and 0 where the label is known, 0 for images of test.

    Raises:
        FileError: A file of the run is absent, damaged or incomplete, or does not fit the table.
    """  # noqa: DOC502  raised by `open_run`
    belief = np.zeros(table.truth.shape, np.float32)
    with open_run(folder, table) as run:
        for split in ("train", "val"):
            belief[table.rows(split)] = np.exp(-np.logaddexp(0, -run.logits[split][()]))  # sigmoid
    return np.where(observed == 0, belief, (observed > 0).astype(np.float32))


def choose_questions(
    table: Table,
    belief: np.ndarray,
    observed: np.ndarray,
    asked: tuple[Order, int, Collection[str]],
    answered: Collection[tuple[str, str]] = (),
) -> list[Question]:
    """Return the questions of a review, class by class: first those whose answers are expected to gain most in sum.

    Args:
        table: The dataset's table.
        belief: (N, C) chances that labels are present.
        observed: (N, C) labels; 0 is unknown.
        asked: In which order cells are chosen, how many at most, and of which splits.
        answered: Paths and classes that somebody has answered since the labels were stored.

    Returns:
        The questions; within a class as they were chosen.
    """
    order, count, splits = asked
    rows = np.flatnonzero(np.isin(table.split, [SPLITS.index(name) for name in splits]))
    known = observed[rows].copy()
    places, columns = ({name: at for at, name in enumerate(names)} for names in (table.paths, table.classes))
    inside = {int(row): at for at, row in enumerate(rows)}
    for path, label in answered:
        if places.get(path) in inside and label in columns:
            known[inside[places[path]], columns[label]] = 1  # known, whatever the answer
    gain = expected_gain(belief[rows])
    by_class: dict[int, list[Question]] = {}
    for at, column in rank_cells(belief[rows], known, order, count, np.random.default_rng(0)):
        row = int(rows[at])
        shown = tuple(table.classes[other] for other in np.flatnonzero(observed[row] > 0))
        chance, value = float(belief[row, column]), float(gain[at, column])
        question = Question(
            row, table.paths[row], table.classes[column], SPLITS[table.split[row]], chance, value, shown
        )
        by_class.setdefault(column, []).append(question)
    totals = {column: -sum(question.gain for question in found) for column, found in by_class.items()}
    return [question for column in sorted(by_class, key=lambda column: totals[column]) for question in by_class[column]]
