"""What is believed of the labels that nobody has shown, and its file; the stage ``beliefs`` writes it.

Source: ours.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.core import hdf5
from pipeline.core.errors import FileError
from pipeline.labels.table import Table


@dataclass(frozen=True)
class Beliefs:
    """Beliefs of all images of a dataset, in the table's rows and columns.

    Args:
        belief: (N, C) float32, the chance in [0, 1] that the label is present, given what is shown of the image: 1
            where it is shown, 0 where it is known to be absent. No training image's own labels trained the scores
            behind it.
        logits: (N, C) float32, what is believed before the image's labels are looked at.
    """

    belief: np.ndarray
    logits: np.ndarray

    def expected_labels(self) -> np.ndarray:
        """Return (N,) labels that each image is expected to have."""
        return self.belief.sum(axis=1, dtype=np.float64)


def beliefs_file(root: Path, dataset: str, draw: int) -> Path:
    """Return where the beliefs of a dataset and label draw lie."""
    return root / "data" / "beliefs" / f"{dataset}-{draw}" / "beliefs.h5"


def write_beliefs(path: Path, beliefs: Beliefs, reads: list[Path], **attributes: object) -> None:
    """Write the beliefs of a dataset.

    Args:
        path: The file.
        beliefs: The beliefs.
        reads: Sealed files that they are made from.
        attributes: Attributes of the file.
    """
    with hdf5.create(path, reads) as file:
        units = "chance that the label is present, given what is shown"
        hdf5.write_array(file, "belief", beliefs.belief, axes="image, class", units=units, compress=True)
        hdf5.write_array(file, "logits", beliefs.logits, axes="image, class", units="logit")
        file.attrs.update(attributes)


def read_beliefs(path: Path, table: Table) -> Beliefs:
    """Return the beliefs of a dataset.

    Args:
        path: The file.
        table: The dataset's table.

    Returns:
        The beliefs.

    Raises:
        FileError: The file is absent or damaged, lacks an array, or holds one that does not fit the table, or a belief
            outside [0, 1].
    """
    with hdf5.read(path) as file:
        try:
            beliefs = Beliefs(file["belief"][()], file["logits"][()])
        except KeyError as error:
            raise FileError(f"{path}: lacks an array; run beliefs again") from error
    for name, array in vars(beliefs).items():
        if array.shape != table.truth.shape:
            raise FileError(f"{path}: rows or classes of `{name}` are not the table's; run beliefs again")
        if not np.isfinite(array).all():
            raise FileError(f"{path}: `{name}` holds a value that is not finite; run beliefs again")
    if beliefs.belief.min() < 0 or beliefs.belief.max() > 1:
        raise FileError(f"{path}: `belief` holds a value outside [0, 1]; run beliefs again")
    return beliefs
