"""The nine sections of the page, as blocks of text, tables and figures; and the files behind them."""

import base64
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.config import TRAINING_STAGES
from pipeline.report import analyses, figures, findings, tables
from pipeline.report.analyses import Identity
from pipeline.report.blocks import (
    LISTED,
    box,
    bullets,
    counted,
    facts_block,
    finite,
    flat,
    heading,
    joined,
    leaves,
    listed,
    paragraph,
    percent,
    section,
    spread_percent,
    table_block,
    whole,
)
from pipeline.report.collect import Arm, Collected, Dataset, Landscape, Row
from pipeline.report.findings import label, plus_minus, signed
from pipeline.report.tables import BASELINE, CEILING

STAGES = {
    "linear_init": "Linear head, backbone frozen",
    "finetune": "Fine-tuned from that head",
    "end_to_end": "End to end, fresh head",
    "lac": "Second stage",
}
SHORT = {"linear_init": "linear head", "finetune": "fine-tuned", "end_to_end": "end to end", "lac": "second stage"}

_RULES = {
    "clean": "The epoch was chosen by val mAP with full labels, as in the papers.",
    "observed": "The epoch was chosen by val mAP with observed labels only.",
    "last": "The last epoch stands.",
}
_COMMANDS = [
    "make repro                          # the environment, the preflight, what is stale, this page",
    "dvc repro                           # what is stale, raw images to this page",
    "dvc params diff                     # what differs from the last commit",
    "dvc metrics diff                    # and what that did to report/summary.json",
    "python -m stages.report --partial   # this page from what is there now",
]
_SHOWN = ("classes", "splits", "warnings")  # parts of a source's report that the page shows elsewhere
_VALUE = 120  # characters of a value in a table of facts


@dataclass
class Files:
    """What is written beside the page, by name without suffix."""

    figures: dict[str, bytes] = field(default_factory=dict)
    tables: dict[str, list[Row]] = field(default_factory=dict)


def _named(identity: Identity) -> Row:
    return dict(zip(("stage", "method", "variant"), identity, strict=True))


def _columns(arms: Sequence[Arm], column: str) -> list[Row]:
    """Return one row an epoch with a column an arm, which is what `dvc plots` draws."""
    names = [name for arm in arms for name in ([arm.name, f"{arm.name}_std"] if len(arm.runs) > 1 else [arm.name])]
    rows: dict[float, Row] = {}
    for arm in arms:
        for entry in tables.over_epochs(arm, column):
            row = rows.setdefault(entry["epoch"], {"epoch": int(entry["epoch"]), **dict.fromkeys(names)})
            row[arm.name] = entry["mean"]
            if len(arm.runs) > 1:
                row[f"{arm.name}_std"] = entry["std"]
    return [rows[epoch] for epoch in sorted(rows)]


def _both(sides: Sequence[Sequence[float]]) -> str:
    """Return the values of both sides of a comparison, a dash where a side has none."""
    return " / ".join(listed(f"{value:g}" for value in side) or "–" for side in sides)


# ---------------------------------------------------------------------------------------------- sections
class Sections:
    """Turns what was collected into blocks.

    Attributes:
        files: Figures and tables that the sections made so far.
    """

    def __init__(self, collected: Collected, results: list[Row]) -> None:
        self.collected = collected
        self.results = results
        self.files = Files()
        self.styles = figures.styles(collected.methods(), BASELINE, CEILING)
        self.seeds = len(collected.params.grid.seeds)

    def all(self) -> list[Row]:
        """Make the sections, in the order of the page.

        Returns:
            One mapping a section: ``id``, ``short`` and full ``title``, ``lead`` and ``blocks``.
        """
        return [
            self._headline(),
            self._maps(),
            self._curves(),
            self._separation(),
            self._landscapes(),
            self._audit(),
            self._second_stage(),
            self._data(),
            self._rest(),
        ]

    def _each(self, make: Callable[[Dataset], list[Row]]) -> list[Row]:
        """Return the blocks of every dataset, under its name where there are several."""
        blocks = []
        for dataset in self.collected.datasets:
            found = make(dataset)
            if found and len(self.collected.datasets) > 1:
                blocks.append(heading(dataset.name))
            blocks += found
        return blocks

    def _figure(self, name: str, image: bytes, rows: list[Row], alt: str, caption: str) -> Row:
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

    def _style(self, dataset: str, identity: Identity) -> figures.Style:
        """Return an arm's style: the method's, varied for its variants."""
        stage, method, what = identity
        if not what:
            return self.styles[method]
        items = getattr(self.collected.params.variants, stage).items()
        mine = [key.split("-", 3)[3] for key, item in items if (item.dataset, item.method) == (dataset, method)]
        return figures.varied(self.styles[method], list(dict.fromkeys(mine)).index(what))

    def _series(
        self, dataset: str, identity: Identity, rows: list[Row], key: str, marked: list[float]
    ) -> figures.Series:
        """Return one arm's line over epochs from rows that hold ``epoch``, ``key`` and perhaps a spread."""
        std = [row.get("std" if key == "mean" else f"{key}_std") for row in rows]
        return figures.Series(
            label(*identity[1:]),
            self._style(dataset, identity),
            [row["epoch"] for row in rows],
            [row[key] for row in rows],
            std if any(value is not None for value in std) else (),
            marked,
        )

    # ------------------------------------------------------------------------------------------ 1 findings
    def _headline(self) -> Row:
        names = [dataset.name for dataset in self.collected.datasets]
        runs = sum(len(arm.runs) for arm in self.collected.arms)
        lead = (
            f"{counted(runs, 'training run')} on {joined(names)}, {counted(self.seeds, 'training seed')}: how much of "
            "what full labels teach is learned from one positive label per image."
        )
        return section("headline", "Findings", "What was run and what came out", lead, self._each(self._findings))

    def _findings(self, dataset: Dataset) -> list[Row]:
        blocks: list[Row] = []
        if dataset.table is not None:
            counts = {row["split"]: row for row in tables.splits(dataset)}
            images = {split: f"{row['images']:,}" for split, row in counts.items()}
            cards = [
                (f"{len(dataset.table.paths):,}", "images: {train} train, {val} val, {test} test".format(**images)),
                (str(len(dataset.table.classes)), "classes"),
                (f"{counts['train']['labels_per_image'] or 0:.2f}", "labels per training image, one of them shown"),
            ]
            if dataset.simulate is not None:
                words = "of the unknown training labels are in truth present: the error of assuming them absent"
                expected = dataset.simulate.get("expected_false_negative_rate")
                words += "" if expected is None else f" ({percent(expected)} expected of such a draw)"
                cards.append((percent(dataset.simulate["false_negative_rate"]), words))
            blocks.append({"kind": "cards", "cards": [{"value": value, "words": words} for value, words in cards]})
        sentences = findings.findings(self.collected, self.results, dataset)
        return [*blocks, bullets(sentences)] if sentences else blocks

    # ------------------------------------------------------------------------------------------ 2 mAP
    def _maps(self) -> Row:
        lead = (
            "Test mAP in percent, best first: look at where a method stands between AN, which assumes every unknown "
            "label absent, and full labels. "
        )
        spread = "Plus-minus is the sample standard deviation over training seeds."
        lead += spread if self.seeds > 1 else "There is one training seed, so no spread is known."
        return section("map", "mAP", "Mean average precision at each stage", lead, self._each(self._maps_of))

    def _maps_of(self, dataset: Dataset) -> list[Row]:
        mine = [row for row in self.results if row["dataset"] == dataset.name]
        if not mine:
            return []
        blocks = [self._scores(dataset.name, mine)]
        for stage in TRAINING_STAGES:
            rows = tables.ranked(mine, dataset.name, stage)
            if rows:
                blocks += [heading(STAGES[stage], 4), *self._stage_table(dataset.name, stage, rows)]
        return blocks + _support(dataset, mine[0])

    def _scores(self, dataset: str, mine: list[Row]) -> Row:
        panels = []
        for stage in TRAINING_STAGES:
            rows = [row for row in tables.ranked(mine, dataset, stage) if row["test_map"]["mean"] is not None]
            plain = {row["method"]: row["test_map"]["mean"] for row in rows if not row["variant"]}
            dots = [
                figures.Score(
                    label(row["method"], row["variant"]),
                    self._style(dataset, (stage, row["method"], row["variant"])),
                    row["test_maps"],
                    row["test_map"]["mean"],
                    row["test_map"]["std"],
                )
                for row in rows
            ]
            if dots:
                panels.append((STAGES[stage], dots, plain.get(BASELINE), plain.get(CEILING)))
        caption = "Dots are means; the grey band is the gap from AN to full labels."
        if self.seeds > 1:
            caption = "Dots are means, bars one standard deviation and ticks single seeds" + caption[14:]
        return self._figure(
            f"{dataset}-map",
            figures.scores(panels, x="test mAP (%), mean over the classes present"),
            [flat({key: value for key, value in row.items() if key not in ("note", "edge")}) for row in mine],
            f"Test mAP of every method at every stage on {dataset}",
            caption,
        )

    def _stage_table(self, dataset: str, stage: str, rows: list[Row]) -> list[Row]:
        best = next((row for row in rows if row["method"] not in tables.ORACLES), None)
        references = (BASELINE, *tables.ORACLES)
        marks = ["best" if row is best else "reference" if row["method"] in references else "" for row in rows]
        columns = [
            "Method",
            f"Test mAP, {rows[0]['classes_present']} present",
            f"Absent = 0, {rows[0]['classes']} classes",
            f"Supported, {rows[0]['classes_supported']} classes",
            "Gap closed",
            "Val mAP",
            "Learning rate",
            "Epoch",
            "Seeds",
        ]
        coverage = analyses.label_coverage(self.collected, dataset)
        cells = [
            self._result_cells(
                dataset, stage, row, findings.labelled(coverage.get((stage, row["method"], row["variant"]), ()))
            )
            for row in rows
        ]
        blocks = [table_block(f"{STAGES[stage]}, {dataset}", columns, cells, marks=marks, titled=False)]
        notes = []
        for reason in dict.fromkeys(row["gap_share_reason"] for row in rows if row["gap_share"] is None):
            notes.append(f"The gap is not defined: {reason}.")
        if any(row["edge"] for row in rows):
            notes.append(
                "* The best learning rate of the search is its lowest or highest; a better one may lie outside."
            )
        averaged = [
            f"{label(row['method'], row['variant'])} ({row['averaged']} of {counted(len(row['seeds']), 'seed')})"
            for row in rows
            if row["averaged"]
        ]
        if averaged:
            notes.append(f"The moving average of the weights was chosen, not the weights, for {listed(averaged)}.")
        runs = [run for arm in self.collected.of(stage, dataset) for run in arm.runs]
        rules = dict.fromkeys(run.provenance.get("settings", {}).get("select") for run in runs)
        notes += [_RULES[rule] for rule in rules if rule in _RULES]
        blocks.append(paragraph(" ".join(notes), "note"))
        if stage == "finetune":
            words, kind = findings.own_head(tables.against_own_head(self.collected, dataset))
            blocks += [paragraph(words, kind)] if words else []
        return blocks

    def _result_cells(self, dataset: str, stage: str, row: Row, labelled: str) -> list[Any]:
        share = row["gap_share"]
        closed = {"text": "–" if share is None else f"{share:.0f}%"}
        if share is not None:
            closed["bar"] = f"{min(max(share, 0), 100):.1f}"
        rates = listed(f"{value:g}" for value in dict.fromkeys(row["learning_rate"])) + (" *" if row["edge"] else "")
        epochs = f"{listed(row['epoch'])} of {listed(dict.fromkeys(row['epochs']))}"
        lost = len(row["seeds"]) < row["planned"]
        return [
            {
                "text": label(row["method"], row["variant"]),
                "note": "; ".join(filter(None, [row["note"], self._changes(stage, dataset, row), labelled])),
            },
            plus_minus(row["test_map"]),
            plus_minus(row["test_map_absent_zero"]),
            plus_minus(row["test_map_supported"]),
            closed,
            plus_minus(row["val_map"]),
            rates,
            epochs,
            f"{len(row['seeds'])} of {row['planned']}" if lost else str(len(row["seeds"])),
        ]

    def _changes(self, stage: str, dataset: str, row: Row) -> str:
        """Return in a few words what a variant sets."""
        key = f"{dataset}-{row['method']}-{row['seeds'][0]}-{row['variant']}"
        item = getattr(self.collected.params.variants, stage).get(key)
        changes = [] if item is None else [*leaves(item.set.stage), *leaves(item.set.method)]
        return listed(f"{name} = {value}" for name, value in changes)

    # ------------------------------------------------------------------------------------------ 3 curves
    def _curves(self) -> Row:
        lead = (
            "Look at AN after its best epoch: where its val mAP falls, it is fitting its false negatives, and a method "
            "that doubts unknown labels should fall less."
        )
        return section("curves", "Curves", "Validation mAP by epoch", lead, self._each(self._curves_of))

    def _curves_of(self, dataset: Dataset) -> list[Row]:
        blocks, name = [], dataset.name
        for stage in TRAINING_STAGES:
            arms = self.collected.of(stage, name)
            if not arms:
                continue
            lines, losses = [], []
            for arm in arms:
                identity, marked = (stage, arm.method, arm.variant), [run.metrics["epoch"] for run in arm.runs]
                lines.append(self._series(name, identity, tables.over_epochs(arm, "val_map"), "mean", marked))
                losses.append(self._series(name, identity, tables.over_epochs(arm, "loss"), "mean", []))
            fall = tables.falls(self.collected, stage, name)
            words = listed(f"{label(row['method'], row['variant'])} {row['fall']['mean']:.1f}" for row in fall)
            caption = "Markers are chosen epochs. "
            if len(lines) <= figures.BANDS and any(line.std for line in lines):
                caption = "Markers are chosen epochs; bands are one standard deviation over seeds. "
            if any(row.get("val_score_average") is not None for arm in arms for run in arm.runs for row in run.epochs):
                caption += "Curves are of the raw weights; their moving average competed for the choice. "
            blocks += [
                heading(STAGES[stage], 4),
                self._figure(
                    f"{name}-{stage}-val_map",
                    figures.curves(lines, x="epoch", y="val mAP (%)"),
                    _columns(arms, "val_map"),
                    f"Val mAP by epoch on {name}, {STAGES[stage]}",
                    f"{caption}Points lost from the best epoch to the last: {words}.",
                ),
                self._figure(
                    f"{name}-{stage}-loss",
                    figures.multiples(losses, x="epoch", y="mean train loss"),
                    _columns(arms, "loss"),
                    f"Mean train loss by epoch on {name}, {STAGES[stage]}",
                    "Mean train loss, each on its own scale: the losses differ in form, so only shapes compare.",
                ),
            ]
        return blocks

    # ------------------------------------------------------------------------------------------ 4 Wasserstein
    def _separation(self) -> Row:
        title = "Hidden positives against negatives"
        lead = (
            "A point above the line is a class whose hidden positives a method sets further apart from its negatives "
            "than AN does (Wasserstein distance between the probabilities of the two groups, from 0 to 1; labels that "
            "were shown are left out)."
        )
        return section("wasserstein", "Separation", title, lead, self._each(self._separation_of))

    def _separation_of(self, dataset: Dataset) -> list[Row]:
        name = dataset.name
        by_class = analyses.distances(self.collected, name, "train")
        by_epoch = analyses.distance_epochs(self.collected, name, "val")
        found = {}
        for stage in TRAINING_STAGES:
            blocks = self._scatter(name, stage, by_class)
            mine = {identity: rows for identity, rows in by_epoch.items() if identity[0] == stage}
            if mine:
                lines = [
                    self._series(name, identity, rows, "mean", [row["epoch"] for row in rows if row["selected"]])
                    for identity, rows in mine.items()
                ]
                blocks.append(
                    self._figure(
                        f"{name}-{stage}-wasserstein_epochs",
                        figures.curves(lines, x="epoch", y="pooled distance on val"),
                        [
                            _named(identity) | row | {"selected": int(row["selected"])}
                            for identity, rows in mine.items()
                            for row in rows
                        ],
                        f"Pooled Wasserstein distance by epoch on {name}, {STAGES[stage]}",
                        "The unknown val labels of all classes pooled, after each epoch; markers are chosen epochs.",
                    )
                )
            if blocks:
                found[stage] = blocks
        return _folded(found) + self._distances(name)

    def _scatter(self, dataset: str, stage: str, by_class: dict[Identity, dict[str, float]]) -> list[Row]:
        base = by_class.get((stage, BASELINE, ""), {})
        panels, rows = [], []
        for identity, values in by_class.items():
            names = [name for name in values if name in base]
            if identity[0] != stage or identity[1:] == (BASELINE, "") or not names:
                continue
            low, high = [base[name] for name in names], [values[name] for name in names]
            panels.append((label(*identity[1:]), self._style(dataset, identity), low, high))
            rows += [
                _named(identity) | {"class": name, "baseline": base[name], "distance": values[name]} for name in names
            ]
        if not panels:
            return []
        seeds = ", means over seeds" if self.seeds > 1 else ""
        return [
            self._figure(
                f"{dataset}-{stage}-wasserstein",
                figures.scatter(panels, x=f"distance under {label(BASELINE)}", y="under the method"),
                rows,
                f"Wasserstein distance of each class against AN on {dataset}, {STAGES[stage]}",
                f"One point a class, training images, chosen epochs{seeds}; none without a hidden positive.",
            )
        ]

    def _distances(self, dataset: str) -> list[Row]:
        rows = analyses.separations(self.collected, dataset)
        if not rows:
            return []
        self.files.tables[f"{dataset}-wasserstein"] = [flat(row) for row in rows]
        cells = [
            [
                label(row["method"], row["variant"]),
                SHORT[row["stage"]],
                plus_minus(row["train"], 3),
                plus_minus(row["val"], 3),
                "–" if row["above"] is None else f"{row['above']} of {row['of']}",
            ]
            for row in rows
        ]
        columns = ["Method", "Stage", "Pooled, train", "Pooled, val", "Classes above AN"]
        table = table_block(f"Wasserstein distances on {dataset}", columns, cells, words=2, titled=False)
        return [box("All distances at the chosen epochs", [table])]

    # ------------------------------------------------------------------------------------------ 5 landscapes
    def _landscapes(self) -> Row:
        lead = (
            "Look for a wide, flat basin around the centre. Each method is drawn with the loss that it was trained on, "
            "so heights differ in meaning (entropy terms can be negative) and only shapes compare."
        )
        return section("landscape", "Landscapes", "Loss landscapes", lead, self._each(self._landscapes_of))

    def _landscapes_of(self, dataset: Dataset) -> list[Row]:
        mine = sorted(
            (item for item in self.collected.landscapes if item.dataset == dataset.name), key=lambda i: i.seed
        )
        if not mine:
            return []
        first: dict[str, Landscape] = {}
        for item in mine:
            first.setdefault(item.method, item)
        shown = [first[method] for method in self.collected.params.grid.landscape if method in first]
        lines = [
            figures.Series(
                label(item.method),
                self.styles[item.method],
                item.offsets_1d.tolist(),
                [finite(value) for value in item.loss_1d],
                marked=[0.0],
            )
            for item in shown
        ]
        curve = [
            {"method": item.method, "seed": item.seed, "offset": float(x), "loss": finite(y)}
            for item in mine
            for x, y in zip(item.offsets_1d, item.loss_1d, strict=True)
        ]
        plane = [
            {
                "method": item.method,
                "seed": item.seed,
                "x": float(x),
                "y": float(y),
                "loss": finite(item.loss_2d[i, j]),
            }
            for item in mine
            for i, x in enumerate(item.offsets_2d)
            for j, y in enumerate(item.offsets_2d)
        ]
        panels = [
            (label(item.method), self.styles[item.method], item.offsets_2d, item.loss_2d, item.centre) for item in shown
        ]
        one = shown[0]
        seeds = f" Seed {one.seed} is drawn; the tables hold all." if len(mine) > len(shown) else ""
        caption = (
            f"Loss along one direction; the dashed line is the trained network. {one.images:,} training images, "
            f"networks {findings.AFTER[one.stage]}, Gaussian directions scaled filter by filter (seed "
            f"{one.direction_seed}).{seeds}"
        )
        return [
            self._figure(
                f"{dataset.name}-landscape_1d",
                figures.landscapes_1d(lines, [item.centre for item in shown]),
                curve,
                f"1-D loss landscapes on {dataset.name}",
                caption,
            ),
            self._figure(
                f"{dataset.name}-landscape_2d",
                figures.surfaces(panels),
                plane,
                f"2-D loss landscapes on {dataset.name}",
                "Loss on the plane of two directions: one colour scale, finer near its bottom; cross: the network.",
            ),
        ]

    # ------------------------------------------------------------------------------------------ 6 audit
    def _audit(self) -> Row:
        title = "Pseudo-labels and beliefs against the truth"
        lead = (
            "Compare accuracy with the base rate: negatives are so common among unknown labels that a method can be "
            "right almost always and still call most hidden positives absent."
        )
        return section("audit", "Pseudo-labels", title, lead, self._each(self._audit_of))

    def _audit_of(self, dataset: Dataset) -> list[Row]:
        name = dataset.name
        rows = analyses.pseudo_labels(self.collected, name)
        if not rows:
            return []
        self.files.tables[f"{name}-pseudo_labels"] = [flat(row) for row in rows]
        blocks: list[Row] = []
        cells = [
            [
                label(row["method"], row["variant"]),
                SHORT[row["stage"]],
                spread_percent(row["coverage"]),
                spread_percent(row["accuracy"]),
                spread_percent({"mean": row["baseline_all_unknown_negative"]["mean"], "std": None}),
                spread_percent(row["negative_accuracy"]),
                spread_percent(row["positive_precision"]),
                spread_percent(row["hidden_positive_recall"]),
                spread_percent(row["hidden_positive_miss_rate"]),
            ]
            for row in rows
            if not row["reason"]
        ]
        if cells:
            columns = ["Method", "Stage", "Coverage", "Accuracy", "Base rate", "“Absent” right"]
            columns += ["“Present” right", "Hidden positives found", "Called absent"]
            blocks.append(
                table_block(f"Pseudo-labels in force at the chosen epoch on {name}, percent", columns, cells, words=2)
            )
            words = (
                "Coverage: share of unknown training labels that carry a pseudo-label. Base rate: how often calling "
                "every unknown label absent is right. The last two columns are shares of the hidden positives."
            )
            blocks.append(paragraph(words, "note"))
        return blocks + self._rounds(name) + self._audit_classes(name) + self._calibration(name)

    def _rounds(self, dataset: str) -> list[Row]:
        every = analyses.pseudo_rounds(self.collected, dataset)
        records = [item.record for item in self.collected.audits if item.dataset == dataset]
        measures = (
            ("Accuracy (dashed: base rate)", "accuracy", records[0]["baseline_all_unknown_negative"]),
            ("Coverage", "coverage", None),
            ("Hidden positives called absent", "hidden_positive_miss_rate", None),
        )
        found = {}
        for stage in TRAINING_STAGES:
            mine = {identity: rows for identity, rows in every.items() if identity[0] == stage}
            if not mine:
                continue
            panels = []
            for title, key, level in measures:
                lines = [
                    self._series(dataset, identity, rows, key, [row["epoch"] for row in rows if row["selected"]])
                    for identity, rows in mine.items()
                ]
                panels.append((title, lines, level))
            found[stage] = [
                self._figure(
                    f"{dataset}-{stage}-pseudo_labels",
                    figures.rounds(panels, x="epoch"),
                    [_named(identity) | row for identity, rows in mine.items() for row in rows],
                    f"Pseudo-label audit by round on {dataset}, {STAGES[stage]}",
                    "Pseudo-labels in force during each epoch, as fractions; markers are the chosen epochs' rounds.",
                )
            ]
        return _folded(found)

    def _audit_classes(self, dataset: str) -> list[Row]:
        every = analyses.pseudo_classes(self.collected, dataset)
        if not every:
            return []
        self.files.tables[f"{dataset}-pseudo_labels_by_class"] = [
            _named(identity) | row for identity, rows in every.items() for row in rows
        ]
        columns = [
            "Class",
            "Unknown",
            "Coverage",
            "Accuracy",
            "Base rate",
            "Hidden positives",
            "Called absent",
            "Found",
        ]
        inner = []
        for (stage, method, what), rows in every.items():
            cells = [
                [
                    row["class"],
                    whole(row["unknown"]),
                    *(percent(row[key]) for key in ("coverage", "accuracy", "base")),
                    *(whole(row[key]) for key in ("hidden_positives", "called_negative", "found")),
                ]
                for row in rows
            ]
            inner.append(table_block(f"{label(method, what)}, {SHORT[stage]}", columns, cells))
        seeds = " (counts summed over seeds)" if self.seeds > 1 else ""
        return [box(f"Pseudo-labels by class{seeds}", inner)]

    def _calibration(self, dataset: str) -> list[Row]:
        every = analyses.calibration(self.collected, dataset)
        heads = {identity: quantities for identity, quantities in every.items() if identity[0] == "linear_init"}
        networks = {identity: quantities for identity, quantities in every.items() if identity[0] != "linear_init"}
        blocks = []
        if heads:
            figure = self._calibration_figure(f"{dataset}-linear_init-calibration", dataset, heads)
            title = f"Calibration, {SHORT['linear_init']}"
            blocks += [box(title, [figure])] if networks else [heading(title, 4), figure]
        if networks:
            figure = self._calibration_figure(f"{dataset}-calibration", dataset, networks)
            blocks += [heading("Calibration", 4), figure]
        return blocks

    def _calibration_figure(self, name: str, dataset: str, every: dict[Identity, dict[str, list[Row]]]) -> Row:
        panels, rows, reference = [], [], {}
        usual = next(iter(every))[0]
        for identity, quantities in every.items():
            points: dict[str, figures.Points] = {}
            for quantity, bins in quantities.items():
                merged = analyses.coarse(bins)
                points[quantity] = ([row["mean_belief"] for row in merged], [row["fraction"] for row in merged])
                rows += [_named(identity) | {"quantity": quantity} | row for row in bins]
                reference |= {row["mean_belief"]: row["reference"] for row in bins if row["reference"] is not None}
            title = label(*identity[1:]) + ("" if identity[0] == usual else f"\n{SHORT[identity[0]]}")
            clouds = (points.get("probability"), points.get("belief"))
            panels.append(figures.Calibration(title, self._style(dataset, identity), *clouds))
        known = sorted(reference.items())
        curve = ([p for p, _ in known], [k for _, k in known]) if len(known) > 2 else None
        caption = (
            "Share of unknown labels that are in truth present, in tenths of how present they are taken to be. Discs: "
            "the network's probability on val; rings: the method's own belief on train. Grey line: equality; dotted: "
            "what a calibrated network would show once one positive per image is taken out."
        )
        return self._figure(name, figures.calibration(panels, curve), rows, f"Calibration on {dataset}", caption)

    # ------------------------------------------------------------------------------------------ 7 second stage
    def _second_stage(self) -> Row:
        lead = (
            f"{label(tables.SECOND_STAGE)}, with and without its memory queue, has to beat its own first stage trained "
            "on for as many epochs, above all the one that labels with the same threshold; differences are paired by "
            "seed."
        )
        return section("lac", "Second stage", "Does the second stage pay?", lead, self._each(self._second_stage_of))

    def _second_stage_of(self, dataset: Dataset) -> list[Row]:
        rows = tables.second_stage(self.collected, dataset)
        if not rows:
            return []
        kept = ("subject", "rival", "start", "test", "supported", "val")
        self.files.tables[f"{dataset.name}-second_stage"] = [
            flat({key: row[key] for key in kept})
            | {"threshold": listed(row["thresholds"][0]), "rival_threshold": listed(row["thresholds"][1])}
            for row in rows
        ]
        cells = [
            [
                label(tables.SECOND_STAGE, row["subject_variant"]),
                findings.rival(row),
                *(signed(row[key], 2) for key in ("test", "supported", "val")),
                f"{row['test']['ahead']} of {row['test']['n']}",
                _both(row["thresholds"]),
                _both(row["epochs"]),
            ]
            for row in rows
        ]
        subject = label(tables.SECOND_STAGE)
        columns = ["Method", "minus", "Test mAP", "Supported mAP", "Val mAP", "Seeds ahead"]
        columns += ["Thresholds of both", "Epochs of both"]
        one = all(row["test"]["n"] <= 1 for row in rows)
        spread = "Plus-minus is the sample standard deviation of the paired differences."
        return [
            bullets(findings.second_stage(row) for row in rows),
            table_block(f"{subject} against its rivals on {dataset.name}, points of mAP", columns, cells, words=2),
            paragraph("There is one seed, so no spread is known." if one else spread, "note"),
        ]

    # ------------------------------------------------------------------------------------------ 8 data
    def _data(self) -> Row:
        lead = (
            "What was read, and what hiding all positive labels but one does to each class: the longer an orange bar, "
            "the more often AN is told wrong."
        )
        return section("data", "Data", "The data and the simulated labels", lead, self._each(self._data_of))

    def _data_of(self, dataset: Dataset) -> list[Row]:
        blocks: list[Row] = []
        splits, classes = tables.splits(dataset), tables.classes(dataset)
        if splits:
            self.files.tables[f"{dataset.name}-splits"] = splits
            counts = ("official_train", "official_test", "without_positive", "classes_present", "cells_unscored")
            cells = [
                [
                    row["split"],
                    whole(row["images"]),
                    "–" if row["labels_per_image"] is None else f"{row['labels_per_image']:.2f}",
                    *(whole(row[key]) for key in counts),
                ]
                for row in splits
            ]
            columns = ["Split", "Images", "Labels per image", "Official train list", "Official test list"]
            columns += ["Images without a positive", "Classes present", "Labels left out, truth unknown"]
            blocks.append(table_block(f"Splits of {dataset.name}", columns, cells))
        if dataset.simulate is not None:
            blocks.append(paragraph(_simulation(dataset.simulate)))
        if classes:
            blocks += self._classes(dataset.name, classes)
        if dataset.prepare is not None:
            facts = leaves({key: part for key, part in dataset.prepare.items() if key not in _SHOWN})
            if facts:
                title = "What the source read and skipped"
                blocks.append(box(title, [facts_block(f"{title}, {dataset.name}", facts)]))
        return blocks

    def _classes(self, dataset: str, classes: list[Row]) -> list[Row]:
        order = sorted(classes, key=lambda row: -row["support_train"])
        image = figures.supports(
            *(
                [row[key] for row in order]
                for key in ("class", "support_train", "observed_positive", "false_negative_rate")
            )
        )
        columns = ["Class", "Train", "Val", "Test", "Official train", "Official test", "Supported"]
        columns += ["Observed", "Unknown", "False negatives"]
        supports = ("support_train", "support_val", "support_test", "support_official_train", "support_official_test")
        cells = [
            [
                row["class"],
                *(whole(row[key]) for key in supports),
                "yes" if row["supported"] else "no",
                whole(row["observed_positive"]),
                whole(row["unknown"]),
                percent(row["false_negative_rate"]),
            ]
            for row in classes
        ]
        return [
            self._figure(
                f"{dataset}-classes",
                image,
                classes,
                f"Positives and false-negative rate of each class of {dataset}",
                "Left: positives of each class and how many are shown. Right: how often assuming its unknown labels "
                "absent is wrong.",
            ),
            box(
                "Positives and false negatives by class",
                [table_block(f"Classes of {dataset}", columns, cells, titled=False)],
            ),
        ]

    # ------------------------------------------------------------------------------------------ 9 rest
    def _rest(self) -> Row:
        missing = self.collected.missing
        lead = "What is not in this page and why, and how to make the page again."
        blocks: list[Row] = [paragraph("Nothing is missing: every file that params.yaml asks for was read.")]
        if missing:
            parts = counted(len(missing), "file or part", "files or parts")
            verb = "is" if len(missing) == 1 else "are"
            lead = f"This page is partial: {parts} of it {verb} missing, and what needs them is left out."
            rows = [[item.path, item.reason] for item in missing]
            blocks = [table_block(f"{parts} missing", ["Missing", "Why"], rows, words=2)]
        blocks += [heading("Skipped, with the reason", 4), bullets(self._skipped() or ["nothing"])]
        blocks += [heading("Reproduce", 4), {"kind": "code", "lines": _COMMANDS}]
        blocks += [heading("Provenance", 4), *self._provenance()]
        return section("rest", "Missing, reproduce", "What is missing, and how to reproduce", lead, blocks)

    def _skipped(self) -> list[str]:
        items = []
        for dataset in self.collected.datasets:
            where = f"{dataset.name}: " if len(self.collected.datasets) > 1 else ""
            reasons: dict[str, list[str]] = {}
            for row in analyses.pseudo_labels(self.collected, dataset.name):
                if row["reason"]:
                    name = f"{label(row['method'], row['variant'])} ({SHORT[row['stage']]})"
                    reasons.setdefault(row["reason"], []).append(name)
            items += [f"{where}No pseudo-label audit of {joined(names)}: {why}." for why, names in reasons.items()]
            reasons = {}
            for analysis in self.collected.wasserstein:
                for row in analysis.tables["per_class"] if analysis.dataset == dataset.name else []:
                    names = reasons.setdefault(row["reason"], []) if row["distance"] is None else []
                    if f"{row['class']} ({row['split']})" not in names:
                        names.append(f"{row['class']} ({row['split']})")
            for why, names in reasons.items():
                more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
                items.append(f"{where}No Wasserstein distance of {listed(names[:LISTED])}{more}: {why}.")
            items += [f"{where}Warning while reading: {words}" for words in (dataset.prepare or {}).get("warnings", [])]
        return items

    def _provenance(self) -> list[Row]:
        records = [run.provenance for arm in self.collected.arms for run in arm.runs]
        found: dict[str, dict[str, None]] = {}
        for record in records:
            for name, value in leaves(record):
                found.setdefault(name, {})[str(value)] = None
        versions = {name: "; ".join(values) for name, values in found.items() if name.startswith("versions.")}
        words = listed(f"{name.removeprefix('versions.')} {value}" for name, value in sorted(versions.items()))
        same = [
            (name, min(values)) for name, values in found.items() if len(values) == 1 and len(min(values)) <= _VALUE
        ]
        blocks: list[Row] = [paragraph(f"Versions: {words}.")] if words else []
        if same:
            title = f"What the {counted(len(records), 'training run')} have in common"
            blocks.append(box(title, [facts_block(title, sorted(same))]))
        for dataset in self.collected.datasets:
            if dataset.backbone is not None:
                title = f"Backbone of {dataset.name}"
                blocks.append(box(title, [facts_block(title, sorted(leaves(dataset.backbone)))]))
        return blocks or [paragraph("No provenance was found.", "note")]


def _folded(found: dict[str, list[Row]]) -> list[Row]:
    """Return each stage under its heading, and the linear head, where fine-tuning follows, in a box."""
    blocks = []
    for stage, inner in found.items():
        if stage == "linear_init" and "finetune" in found:
            blocks.append(box(STAGES[stage], inner))
        else:
            blocks += [heading(STAGES[stage], 4), *inner]
    return blocks


def _support(dataset: Dataset, row: Row) -> list[Row]:
    names = dataset.supported()
    absent = row["classes"] - row["classes_present"]
    words = (
        f"“Present” is the mean over the {row['classes_present']} of {row['classes']} classes with a positive in the "
        "test split; “absent = 0” is the literature's rule, which counts "
        f"{counted(absent, 'absent class', 'absent classes')} as 0. "
    )
    if names is None:
        return [paragraph(words, "note")]
    words += (
        f"“Supported” is the mean over the {counted(len(names), 'class', 'classes')} with at least "
        f"{dataset.min_support} positives in both official lists"
    )
    if len(names) <= LISTED:
        return [paragraph(f"{words}{': ' if names else ''}{joined(names)}.", "note")]
    return [paragraph(f"{words}, named below.", "note"), box("The supported classes", [paragraph(joined(names) + ".")])]


def _simulation(report: Row) -> str:
    if report["protocol"] == "literature":
        how = f"The published recipe was followed bit for bit (seed {report.get('seed')})"
    else:
        how = f"Labels were drawn from a named generator (draw {report.get('draw')})"
    return (
        f"{how}: one positive of each image is kept, each with the same chance, and everything else becomes unknown. "
        "There is one draw a dataset; training seeds do not change it."
    )
