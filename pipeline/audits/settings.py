"""Settings of audits, landscapes and the report's means."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from pipeline.core.strict import Count, Strict, given


class Audit(Strict):
    """Pseudo-label audit."""

    bins: Count
    """Equal bins of belief on [0, 1]."""
    missed: Count | Annotated[float, Field(gt=0, lt=1)]
    """Likely missed labels that are named: a number, or a share of the unknown cells."""


class Landscape(Strict):
    """Loss landscapes around trained networks."""

    images: Count
    points_1d: Count
    points_2d: Count
    radius: Annotated[float, Field(gt=0, le=1000)]
    """Largest offset along a direction, in norms of the trained filters; offsets run over [-radius, radius]. At a
    thousand nothing is left of the network, and far beyond no number is."""
    direction_seed: Annotated[int, Field(ge=0)]
    batch_size: Count

    @model_validator(mode="after")
    def _zero_is_on_the_grid(self) -> Self:
        for key, points in (("points_1d", self.points_1d), ("points_2d", self.points_2d)):
            if points % 2 == 0:
                raise ValueError(f"{key}: must be odd, so that the trained weights lie on the grid {given(points)}")
        return self


class Report(Strict):
    """Report page."""

    min_support: Count
    """A class enters the supported mean with this many positives in both official lists."""
