"""Settings of beliefs and weights that GR and the framework share, and how they move over the epochs.

Source: Chen et al., "Boosting Single Positive Multi-label Classification with Generalized Robust Loss", IJCAI 2024,
Eq. 4-14, https://arxiv.org/abs/2405.03501.
"""

from typing import Annotated, Literal

from pydantic import Field

from pipeline.core.strict import Fraction, Positive, Strict, given

Pair = Annotated[tuple[float, float], Field(strict=False)]  # YAML has lists only
"""First and last value of what moves over the epochs."""


Schedule = Literal["code", "paper_first", "paper_last"]
"""Which fraction of the way from first to last an epoch has: see the methods."""


class ConstantBelief(Strict):
    """The same belief in all unknown cells."""

    kind: Literal["constant"]
    value: Fraction
    """Belief: 0 takes unknown as absent."""


class ConstantWeight(Strict):
    """The same weight for all unknown cells."""

    kind: Literal["constant"]
    value: float
    """Weight; negative where the loss is to push the other way."""


class GaussianWeight(Strict):
    """Weight exp(-(p - mu)^2 / (2 sigma^2)), with mu and sigma by epoch."""

    kind: Literal["gaussian"]
    mu: Pair
    """First and last mean."""
    sigma: Annotated[tuple[Positive, Positive], Field(strict=False)]
    """First and last standard deviation."""


def check_schedule(schedule: Schedule | None, moves: bool) -> None:
    """Refuse a schedule of nothing, and a belief or weight that moves without one.

    Args:
        schedule: The setting.
        moves: Whether belief or weight has a first and a last value.

    Raises:
        ValueError: One is there without the other.
    """
    if moves and schedule is None:
        raise ValueError("schedule: is null, and belief or weight moves from a first to a last value")
    if schedule is not None and not moves:
        raise ValueError(
            f"schedule: has no effect where neither belief nor weight moves; set it to null {given(schedule)}"
        )


def between(pair: tuple[float, float], way: float) -> float:
    """Return the value a fraction of the way from first to last.

    Args:
        pair: First and last value.
        way: Fraction of the way, in [0, 1].

    Returns:
        The value.
    """
    return pair[0] + (pair[1] - pair[0]) * way
