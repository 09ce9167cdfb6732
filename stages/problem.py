"""What a method may know of its problem, from the files of earlier stages."""

import numpy as np
import torch

from pipeline.batch import Problem
from pipeline.config import Params


def problem(params: Params, dataset: str, classes: tuple[str, ...], observed: np.ndarray, width: int | None) -> Problem:
    """Describe a training problem.

    Args:
        params: The parameters; ``expected_positives`` may hold the dataset's label density.
        dataset: Name of the dataset.
        classes: Class names.
        observed: (N, C) labels of the training split as the method sees them.
        width: D of the network's features.

    Returns:
        The problem.
    """
    density = params.expected_positives.get(dataset)
    counts = torch.from_numpy((observed == 1).sum(0).astype(np.int64))
    absences = int((observed == -1).sum())
    return Problem(len(observed), classes, counts, density.value if density else None, width, absences)
