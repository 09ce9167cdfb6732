"""What the sections of the page share: the results, how each arm looks, and the figures and tables that they make."""

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from pipeline.config.params import TRAINING_STAGES
from pipeline.report import figures
from pipeline.report.frames import BASELINE, ORACLES, Arm, Results, arms_of, measure
from pipeline.report.read import Collected
from pipeline.report.text import label, say

STAGES = {
    "linear_init": "Linear head, backbone frozen",
    "finetune": "Fine-tuned from that head",
    "end_to_end": "End to end, fresh head",
    "lac": "Second stage",
}
SHORT = {"linear_init": "linear head", "finetune": "fine-tuned", "end_to_end": "end to end", "lac": "second stage"}

BY = {
    "test_map": ("highest", "in test mAP"),
    "shown_score": ("highest", "in how well they rank shown labels"),
    "name": ("first", "by name"),
}
"""What arms are chosen by where not all are named, by `Results.order`."""


@dataclass(frozen=True)
class Files:
    """What is written beside the page, by name without suffix."""

    figures: dict[str, bytes] = field(default_factory=dict)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """What a section shows of one dataset."""

    dataset: str
    content: dict[str, Any] | None = None
    """What the section's template reads; None: nothing."""
    unmeasured: str = ""
    """The sentence that stands for what could not be measured."""


@dataclass(frozen=True)
class Picture:
    """A figure in the page."""

    source: str
    width: int
    height: int
    file: str


@dataclass(frozen=True)
class Chosen:
    """The arms that a figure could draw, and which of them it names."""

    looks: dict[Arm, figures.Look]
    by: tuple[str, str] = ("highest", "in test mAP")
    """What the best were chosen by, in words around their number."""

    @property
    def shown(self) -> list[Arm]:
        """The arms that are named."""
        return [arm for arm, look in self.looks.items() if not look.faint]

    def rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of the arms that are named."""
        return frame[
            [arm in self.shown for arm in frame[["stage", "method", "variant"]].itertuples(index=False, name=None)]
        ]

    def few(self, verb: str, rest: str) -> str:
        """Say which arms are named where not all are.

        Args:
            verb: What happens to them, such as "Named".
            rest: What happens to the others.

        Returns:
            A sentence; empty where all are named.
        """
        best = sum(method not in (BASELINE, *ORACLES) or bool(variant) for _, method, variant in self.shown)
        return say("few", len(self.shown), len(self.looks), best, self.by, verb, rest)


def _scores(result: Results) -> dict[Arm, float]:
    """Return what arms of all stages are ranked by: test mAP, or their place in their stage where that ranks none."""
    scores = {}
    for stage in TRAINING_STAGES:
        rows, by_map = result.ranked(stage), result.order(stage) == "test_map"
        values = rows["test_map"].fillna(-1.0) if by_map else range(0, -len(rows), -1)
        scores |= dict(zip(arms_of(rows), values, strict=True))
    return scores


class Page:
    """The page as its sections are made.

    Attributes:
        collected: What the stages left.
        results: What was measured, by dataset.
        files: Figures and tables that the sections made so far.
        draws: Number of label draws.
        seeds: Number of training seeds.
        truth: Whether the labels of any dataset are exhaustive, so that there is something to measure against.
        all_truth: Whether those of all are.
        by_map: Whether arms stand in the order of test mAP, in all datasets.
        one: Whether every image shows one present label, in all datasets.
        stages: Title of each training stage.
        short: A few words for each.
    """

    stages = STAGES
    short = SHORT

    def __init__(self, collected: Collected) -> None:
        self.collected = collected
        self.results = measure(collected)
        self.files = Files()
        self.draws = len(collected.params.grid.draws)
        self.seeds = len(collected.params.grid.seeds)
        self.truth = any(result.truth for result in self.results.values())
        self.all_truth = all(result.truth for result in self.results.values())
        self.by_map = all("test" not in result.given for result in self.results.values())
        self.one = all(result.one_label for result in self.results.values())
        self._styles = figures.styles(self._by_prominence(), BASELINE, tuple(ORACLES))

    def _by_prominence(self) -> list[str]:
        """Return the methods in the order in which they get colours: as in params.yaml while there are enough.

        Else the best of each stage and dataset first, then the second of each, and so on.
        """
        own = [name for name in self.collected.methods() if name not in (BASELINE, *ORACLES)]
        if len(own) <= figures.COLOURS:
            return own
        ranked = [result.ranked(stage)["method"] for result in self.results.values() for stage in TRAINING_STAGES]
        lists = [[name for name in names if name in own] for names in ranked]
        turns = [names[place] for place in range(max(map(len, lists))) for names in lists if place < len(names)]
        return list(dict.fromkeys([*turns, *own]))

    def unmeasured(self, result: Results, what: str) -> str:
        """Return the sentence that stands for what could not be measured; nothing where nothing was run."""
        return "" if result.arms.empty else say("unmeasured", result.name, what)

    # ------------------------------------------------------------------------------------------ files
    def table(self, name: str, frame: pd.DataFrame) -> None:
        """Keep the numbers of a frame for a file."""
        self.files.tables[name] = frame

    def figure(self, name: str, image: bytes, frame: pd.DataFrame) -> Picture:
        """Return a figure for the page; keep it and its numbers for files."""
        self.files.figures[name], self.files.tables[name] = image, frame
        width, height = struct.unpack(">II", image[16:24])  # PNG header
        source = "data:image/png;base64," + base64.b64encode(image).decode()
        return Picture(source, width, height, f"tables/{name}.tsv")

    # ------------------------------------------------------------------------------------------ how arms look
    def name(self, result: Results, arm: Arm) -> str:
        """Return an arm's name, with its head where the arms of its stage have several."""
        shown = label(*arm[1:], truth=result.truth)
        several = len({head for (stage, *_), head in result.heads.items() if stage == arm[0]}) > 1
        return f"{shown}, {result.heads[arm]}" if several and arm in result.heads else shown

    def names(self, result: Results, frame: pd.DataFrame) -> dict[str, list[str]]:
        """Return the first two columns of a table with one row an arm: its name and its stage."""
        arms = list(frame[["stage", "method", "variant"]].itertuples(index=False, name=None))
        return {"Method": [self.name(result, arm) for arm in arms], "Stage": [SHORT[stage] for stage, *_ in arms]}

    def style(self, dataset: str, arm: Arm) -> figures.Style:
        """Return an arm's style: the method's, varied for its variants."""
        stage, method, variant = arm
        if not variant:
            return self._styles[method]
        items = getattr(self.collected.params.variants, stage).items()
        mine = [item.what(key) for key, item in items if (item.dataset, item.method) == (dataset, method)]
        return figures.varied(self._styles[method], list(dict.fromkeys(mine)).index(variant))

    def choose(self, result: Results, arms: pd.DataFrame | Sequence[Arm]) -> Chosen:
        """Return how the arms of a frame look, and which a figure names: all while a reader tells them apart.

        Else the references and the first of each stage's order, ``figures.NAMED`` in all; the others are faint.
        """
        every = arms_of(arms) if isinstance(arms, pd.DataFrame) else list(arms)
        kept = every
        if len(every) > figures.NAMED:
            score = _scores(result)
            references = [arm for arm in every if arm[1] in (BASELINE, *ORACLES) and not arm[2]]
            others = [arm for arm in every if arm not in references]
            others.sort(key=lambda arm: score[arm], reverse=True)
            kept = [*references, *others[: figures.NAMED - len(references)]]
        looks = {
            arm: figures.Look(self.name(result, arm), self.style(result.name, arm), arm not in kept) for arm in every
        }
        return Chosen(looks, BY[result.order(every[0][0])] if every else BY["test_map"])
