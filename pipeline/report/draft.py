"""What the sections of the page share: the collected numbers, a style for each method, and the files they make."""

import base64
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pipeline.config.params import TRAINING_STAGES
from pipeline.report import figures, tables
from pipeline.report.analyses import Identity
from pipeline.report.blocks import UNMEASURED, heading, paragraph
from pipeline.report.caveats import marked, scores_are_true, unmeasured
from pipeline.report.collect import Collected, Dataset, Row
from pipeline.report.findings import label
from pipeline.report.tables import BASELINE, ORACLES

GREY = "the rest are grey"
FILE = "the file named here holds all"

STAGES = {
    "linear_init": "Linear head, backbone frozen",
    "finetune": "Fine-tuned from that head",
    "end_to_end": "End to end, fresh head",
    "lac": "Second stage",
}
SHORT = {"linear_init": "linear head", "finetune": "fine-tuned", "end_to_end": "end to end", "lac": "second stage"}


@dataclass
class Files:
    """What is written beside the page, by name without suffix."""

    figures: dict[str, bytes] = field(default_factory=dict)
    tables: dict[str, list[Row]] = field(default_factory=dict)


def named(identity: Identity) -> Row:
    """Return the columns that tell an arm's rows apart in a table of several."""
    return dict(zip(("stage", "method", "variant"), identity, strict=True))


class Draft:
    """The page as it grows.

    Attributes:
        collected: What the stages left.
        results: The rows of ``tables.results``.
        files: Figures and tables that the sections made so far.
        seeds: Number of training seeds.
        truth: Whether the labels of any dataset are exhaustive, so that there is something to measure against.
        all_truth: Whether those of all are.
        one: Whether every image shows one present label, in all datasets.
    """

    def __init__(self, collected: Collected, results: list[Row]) -> None:
        self.collected = collected
        self.results = results
        self.files = Files()
        self.seeds = len(collected.params.grid.seeds)
        self.truth = any(collected.truth(dataset.name) for dataset in collected.datasets)
        self.all_truth = all(collected.truth(dataset.name) for dataset in collected.datasets)
        self.one = all(collected.one_label(dataset.name) for dataset in collected.datasets)
        self._styles = figures.styles(self._by_prominence(), BASELINE, tuple(ORACLES))
        self._row = {(row["dataset"], row["stage"], row["method"], row["variant"]): row for row in results}

    def _by_prominence(self) -> list[str]:
        """Return the methods in the order in which they get colours: as in params.yaml while there are enough.

        Else the best of each stage and dataset first, then the second of each, and so on.
        """
        methods = self.collected.methods()
        own = [name for name in methods if name not in (BASELINE, *ORACLES)]
        if len(own) <= figures.COLOURS:
            return own
        lists = [
            [row["method"] for row in tables.ranked(self.results, dataset.name, stage) if row["method"] in own]
            for dataset in self.collected.datasets
            for stage in TRAINING_STAGES
        ]
        deep = max(map(len, lists))
        turns = [names[place] for place in range(deep) for names in lists if place < len(names)]
        return list(dict.fromkeys([*turns, *own]))

    def each(self, make: Callable[["Draft", Dataset], list[Row]]) -> list[Row]:
        """Return the blocks of every dataset, under its name where there are several."""
        blocks = []
        for dataset in self.collected.datasets:
            found = make(self, dataset)
            if found and len(self.collected.datasets) > 1:
                blocks.append(heading(dataset.name))
            blocks += found
        return blocks

    def given(self, dataset: str) -> list[str]:
        """Return of val and test of a dataset those scored by given labels that are not exhaustive."""
        return list(dict.fromkeys(s for row in self.results if row["dataset"] == dataset for s in row["given"]))

    def ran(self, dataset: str) -> bool:
        """Return whether there is a run of a dataset."""
        return any(row["dataset"] == dataset for row in self.results)

    def scores_are_true(self, dataset: str) -> str:
        """Return the sentence about the splits of a dataset that are labelled in full where it is not, or nothing."""
        partial = self.ran(dataset) and not self.collected.truth(dataset)
        return scores_are_true(dataset, self.given(dataset)) if partial else ""

    def marked(self, words: str, dataset: str, *about: str) -> str:
        """Return a text about a dataset's scores, of test or of ``about``, with what they are against, as `marked`."""
        return marked(words, self.given(dataset), about or ("test",))

    def unmeasured(self, dataset: str, what: str) -> list[Row]:
        """Return the block that stands for what could not be measured; none where nothing was run."""
        return [paragraph(unmeasured(dataset, what), UNMEASURED)] if self.ran(dataset) else []

    def figure(self, name: str, image: bytes, rows: list[Row], alt: str, caption: str) -> Row:
        """Return the block of a figure; keep it and its numbers for files."""
        self.files.figures[name], self.files.tables[name] = image, rows
        width, height = struct.unpack(">II", image[16:24])  # PNG header
        return {
            "kind": "figure",
            "source": "data:image/png;base64," + base64.b64encode(image).decode(),
            "width": width,
            "height": height,
            "alt": alt,
            "caption": caption,
            "file": f"tables/{name}.tsv",
        }

    # ------------------------------------------------------------------------------------------ how arms look
    def label(self, dataset: str, method: str, what: str = "") -> str:
        """Return the name of a method on a dataset: ``full`` saw no full labels where there are none."""
        return label(method, what, self.collected.truth(dataset))

    def name(self, dataset: str, identity: Identity) -> str:
        """Return an arm's name, with its head where the arms of its stage have several."""
        stage, method, what = identity
        arms = self.collected.of(stage, dataset)
        mine = next((arm for arm in arms if (arm.method, arm.variant) == (method, what)), None)
        shown = self.label(dataset, method, what)
        return f"{shown}, {mine.head}" if mine is not None and len({arm.head for arm in arms}) > 1 else shown

    def style(self, dataset: str, identity: Identity) -> figures.Style:
        """Return an arm's style: the method's, varied for its variants."""
        stage, method, what = identity
        if not what:
            return self._styles[method]
        items = getattr(self.collected.params.variants, stage).items()
        mine = [key.split("-", 3)[3] for key, item in items if (item.dataset, item.method) == (dataset, method)]
        return figures.varied(self._styles[method], list(dict.fromkeys(mine)).index(what))

    def shown(self, dataset: str, identities: Iterable[Identity]) -> list[Identity]:
        """Choose the arms that a figure names: all while a reader tells them apart, else references and the best.

        Args:
            dataset: Name of a dataset.
            identities: The arms that the figure could draw, of any stage.

        Returns:
            Those to name, in the given order: at most ``figures.NAMED``, by mean test mAP.
        """
        every = list(identities)
        if len(every) <= figures.NAMED:
            return every
        references = [one for one in every if one[1] in (BASELINE, *ORACLES) and not one[2]]

        def score(identity: Identity) -> float:
            row = self._row.get((dataset, *identity))
            return -1.0 if row is None or row["test_map"]["mean"] is None else row["test_map"]["mean"]

        others = sorted((one for one in every if one not in references), key=score, reverse=True)
        kept = [*references, *others[: figures.NAMED - len(references)]]
        return [one for one in every if one in kept]

    def series(
        self,
        dataset: str,
        identity: Identity,
        rows: list[Row],
        key: str,
        marked: list[float],
        shown: Sequence[Identity] | None = None,
    ) -> figures.Series:
        """Return one arm's line over epochs.

        Args:
            dataset: Name of a dataset.
            identity: The arm.
            rows: Its rows, which hold ``epoch``, ``key`` and perhaps a spread.
            key: The column to draw.
            marked: Epochs that get a marker.
            shown: The arms that the figure names, others being faint; None: all.

        Returns:
            The line.
        """
        std = [row.get("std" if key == "mean" else f"{key}_std") for row in rows]
        return figures.Series(
            self.name(dataset, identity),
            self.style(dataset, identity),
            [row["epoch"] for row in rows],
            [row[key] for row in rows],
            std if any(value is not None for value in std) else (),
            marked,
            shown is not None and identity not in shown,
        )


def few(shown: Sequence[Identity], every: Sequence[Identity], verb: str, rest: str) -> str:
    """Say which arms a figure names where it does not name them all.

    Args:
        shown: What ``Draft.shown`` chose.
        every: What it chose from.
        verb: What happens to them, such as "Named".
        rest: What happens to the others.

    Returns:
        A sentence after a space; empty where all are named.
    """
    if len(shown) == len(every):
        return ""
    best = sum(method not in (BASELINE, *ORACLES) or bool(what) for _, method, what in shown)
    chosen = f"the {best} best of {len(every)} in test mAP"
    return f" {verb}: {chosen if best == len(shown) else f'the references and {chosen}'}; {rest}."
