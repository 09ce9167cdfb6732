"""Settings of label draws: the block `simulate` of params.yaml."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline.core.strict import Fraction, Strict


class KeptCount(Strict):
    """So many labels of each row, or all that it has."""

    kind: Literal["count"]
    value: Annotated[int, Field(ge=0)]


class KeptShare(Strict):
    """A share of all labels; each is kept or not by itself, so that rows differ and may lose all."""

    kind: Literal["share"]
    value: Fraction


class KeptByTable(Strict):
    """Each label with the very probability that the table of ``bias`` gives its cell or class."""

    kind: Literal["table"]


class UniformBias(Strict):
    """No label of a row is likelier to be kept than another."""

    kind: Literal["uniform"]


class PowerBias(Strict):
    """A positive is kept in proportion to a power of what its cell or class is like."""

    kind: Literal["frequency", "size", "centre"]
    """``frequency``: the class's positives in the official training part; ``size``: its largest box; ``centre``: how
    close its most central box lies to the picture's centre. The last two need a source that reads boxes."""
    power: Annotated[float, Field(ge=-20, le=20)]
    """1: in proportion; 2: more strongly so; negative: rare, small or outlying ones first."""


class TableBias(Strict):
    """A positive is kept in proportion to what a table says."""

    kind: Literal["table"]
    file: str
    """A text that starts with the line ``class,weight`` or ``image,class,weight``; from the project's root."""

    def path(self, root: Path) -> Path:
        """Return where the file lies.

        Args:
            root: Project root.
        """
        return root / Path(self.file).expanduser()


class Simulate(Strict):
    """Which labels of a fully labelled set stay known."""

    protocol: Literal["literature", "seeded", "given"]
    """``literature``: the published recipe, bit for bit; ``seeded``: named generators, one draw for each number of
    ``grid.draws``; ``given``: nothing is drawn, the
    labels that the data give are what is observed (data whose labels are not exhaustive, and only those)."""
    seed: Annotated[int, Field(ge=0)]
    """Seed of the published recipe (``literature``): 1200 in the papers."""
    empty_rows: Literal["keep", "error"]
    """Training rows whose truth has no positive: kept as they are and counted, or refused."""
    positives: Annotated[KeptCount | KeptShare | KeptByTable, Field(discriminator="kind")]
    """Present labels that stay known: a count of 1 in the papers."""
    negatives: Annotated[KeptCount | KeptShare, Field(discriminator="kind")]
    """Absent labels that stay known, each as likely as another: a count of 0 in the papers."""
    bias: Annotated[UniformBias | PowerBias | TableBias, Field(discriminator="kind")]
    """Which positives are likelier to stay known."""

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Self:
        kinds = {self.positives.kind, self.negatives.kind}
        if self.protocol == "literature" and (kinds != {"count"} or self.bias.kind != "uniform"):
            raise ValueError("protocol: the published recipe (literature) draws counts without bias; use seeded")
        if self.protocol == "given" and (self.plain, self.negatives) != (True, KeptCount(kind="count", value=0)):
            raise ValueError("protocol: given draws nothing; leave positives at 1, negatives at 0, bias at uniform")
        if self.positives.kind != "table" and not self.positives.value:
            raise ValueError("positives: none would stay known (given: 0)")
        if self.positives.kind == "table" and self.bias.kind != "table":
            raise ValueError(f"positives: `table` keeps labels by the table of bias (given: bias {self.bias.kind})")
        return self

    @property
    def plain(self) -> bool:
        """Whether the positives are those of the papers: one a row, each as likely as another."""
        return self.positives == KeptCount(kind="count", value=1) and self.bias.kind == "uniform"
