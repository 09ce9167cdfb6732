"""What audits read: a run's logits, beliefs and pseudo-labels, and the labels that they are compared with."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core import hdf5
from pipeline.core.errors import FileError
from pipeline.labels.blocks import row_blocks
from pipeline.labels.table import SPLITS, Table


@dataclass(frozen=True)
class Run:
    """What a run left at its chosen epoch; rows are those of the training split unless said.

    Matrices are open HDF5 datasets, since all of them at once are many times the labels: read them by blocks of rows.

    Args:
        epoch: The chosen epoch, from 1.
        labels: Name of the label set that the run was given.
        logits: (R, C) by split; of test where the labels are given, not drawn.
        belief: (N, C) how present the method takes a cell to be, in [0, 1].
        weight: (N, C) how much the cell counts in its risk, of any sign.
        pseudo_labels: (rounds, N, C) 1, -1 and 0 none.
        round_epochs: Epoch of each round, ascending.
        reason: Why there are no rounds; None where there are.
    """

    epoch: int
    labels: str
    logits: dict[str, Any]
    belief: Any
    weight: Any
    pseudo_labels: Any
    round_epochs: list[int]
    reason: str | None

    @property
    def selected(self) -> int | None:
        """Position of the last round up to the chosen epoch; None where there is none."""
        in_force = [number for number, epoch in enumerate(self.round_epochs) if epoch <= self.epoch]
        return in_force[-1] if in_force else None


@contextmanager
def open_run(folder: Path, table: Table) -> Iterator[Run]:
    """Open the outputs of a run.

    Args:
        folder: Its folder, with logits.h5 and labels.h5.
        table: The table that it was trained on.

    Yields:
        The run, whose matrices can be read within the block.

    Raises:
        FileError: A file is absent, damaged or incomplete, or does not fit the table.
    """  # noqa: DOC502  raised by the functions below
    logits_file, labels_file = folder / "logits.h5", folder / "labels.h5"
    shape, logits = (len(table.rows("train")), len(table.classes)), {}
    with hdf5.read(logits_file) as scores, hdf5.read(labels_file) as file:
        epoch = int(scores.attrs["epoch"])
        for split in ("val", "train") if table.exhaustive else SPLITS:
            logits[split] = scores[split]
            rows = len(table.rows(split))
            raise_if_other_shape(logits_file, split, logits[split].shape, (rows, len(table.classes)))
            if not all(np.isfinite(logits[split][block]).all() for block in row_blocks(*logits[split].shape)):
                raise FileError(f"{logits_file}: logits of {split} are not finite; run that stage again")
        pseudo_labels, reason = file["pseudo_label"], None
        for name in ("belief", "weight"):
            raise_if_other_shape(labels_file, name, file[name].shape, shape)
        if len(pseudo_labels):
            raise_if_other_shape(labels_file, "pseudo_label", pseudo_labels.shape[1:], shape)
        else:
            default = file.attrs.get("reason", "the run stored no pseudo-labels")
            reason = str(pseudo_labels.attrs.get("reason", default))
        labels, epochs = str(file.attrs.get("labels", "single")), file["round_epoch"][()].tolist()
        yield Run(epoch, labels, logits, file["belief"], file["weight"], pseudo_labels, epochs, reason)


def known_truth(table: Table, split: str) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the truth of a split and the cells that count.

    Args:
        table: The table.
        split: "train", "val" or "test".

    Returns:
        (R, C) labels, None where nobody knows them, and (R, C) bool.
    """
    rows = table.rows(split)
    if table.exhaustive:
        return table.truth[rows], table.scored[rows]
    return None, np.ones((len(rows), len(table.classes)), dtype=bool)


def explain_unknown_truth(table: Table, dataset: str) -> str | None:
    """Return why nothing can be measured against the truth.

    Args:
        table: The table.
        dataset: Its name.

    Returns:
        The reason; None where the truth is known.
    """
    return None if table.exhaustive else f"the labels of {dataset} are not exhaustive: what is hidden is not known"


def raise_if_other_shape(path: Path, name: str, actual: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise where an array of a run does not fit the table.

    Args:
        path: The file.
        name: Name of the array in it.
        actual: Its shape.
        expected: That of the table.

    Raises:
        FileError: The shapes differ.
    """
    if actual != expected:
        raise FileError(f"{path}: `{name}` is {actual}, the table asks for {expected}; run that stage again")
