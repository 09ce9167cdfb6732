"""Scores of several runs: how they spread over label draws and training seeds, and differences paired by draw.

A label draw moves all methods together and by far more than a training seed does, so methods are compared on the same
draws, and a draw counts once, however many seeds were trained on it.

Source: ours; Student's t interval of paired differences as in any textbook (scipy: ``ttest_rel``).
"""

import math
from typing import Any

import numpy as np
from scipy.special import stdtrit

LEVEL = 0.95
"""Confidence of an interval."""
FEWEST = 3
"""Draws from which on there is an interval: of two it would be twelve standard errors wide."""


def spread_runs(draws: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """Return the mean of runs over draws and seeds, and how they spread over each.

    Args:
        draws: (n,) numbers of the label draws.
        values: (n,) a value of each run; those that are NaN are left out.

    Returns:
        ``mean``, of the draws' means over seeds; ``std_draws``, the sample standard deviation of these; ``std_seeds``,
        that of runs within a draw, pooled; ``std``, the first of the two where there are several draws, else the
        second; ``n`` runs and ``draws``. NaN is what is not defined.
    """
    known = ~np.isnan(values)
    draws, values = draws[known], values[known]
    parts = [values[draws == number] for number in np.unique(draws)]
    means = np.array([part.mean() for part in parts])
    freedom = len(values) - len(parts)
    std_draws = float(means.std(ddof=1)) if len(parts) > 1 else np.nan
    squares = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
    std_seeds = float(np.sqrt(squares / freedom)) if freedom else np.nan
    return {
        "mean": float(means.mean()) if len(parts) else np.nan,
        "std": std_draws if len(parts) > 1 else std_seeds,
        "n": len(values),
        "draws": len(parts),
        "std_draws": std_draws,
        "std_seeds": std_seeds,
    }


def compare_paired(draws: np.ndarray, differences: np.ndarray) -> dict[str, Any]:
    """Return what the differences of paired runs say.

    Args:
        draws: (n,) numbers of the label draws.
        differences: (n,) first method minus second, of runs of one draw and seed; those that are NaN are left out.

    Returns:
        `spread_runs` of the differences; ``low`` and ``high`` of the t interval of their mean over draws, at `LEVEL`
        (NaN below `FEWEST` draws); ``won``, the draws on which the first method is ahead in the mean over seeds.
    """
    found = spread_runs(draws, differences)
    count, known = found["draws"], ~np.isnan(differences)
    numbers = np.unique(draws[known])
    won = sum(float(differences[known & (draws == number)].mean()) > 0 for number in numbers)
    half = np.nan
    if count >= FEWEST:
        half = float(stdtrit(count - 1, 0.5 + LEVEL / 2)) * found["std_draws"] / math.sqrt(count)
    return found | {"low": found["mean"] - half, "high": found["mean"] + half, "won": won}


def tells_apart(low: float, high: float) -> bool:
    """Return whether an interval of a difference excludes 0; one that is not defined does not."""
    return bool(low > 0 or high < 0)
