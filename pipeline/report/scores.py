"""What the runs scored: findings, mAP of each stage, curves by epoch, and the second stage against its rivals."""

from collections.abc import Callable, Sequence
from typing import Any

from pipeline.config.params import TRAINING_STAGES
from pipeline.report import analyses, caveats, figures, findings, tables
from pipeline.report.analyses import Identity
from pipeline.report.blocks import (
    LISTED,
    box,
    bullets,
    counted,
    flat,
    heading,
    joined,
    leaves,
    listed,
    paragraph,
    percent,
    section,
    table_block,
)
from pipeline.report.collect import Arm, Dataset, Row
from pipeline.report.draft import FILE, SHORT, STAGES, Draft, few
from pipeline.report.findings import label, plus_minus, signed
from pipeline.report.tables import BASELINE, CEILING

_RULES = {
    "clean": "The epoch was chosen by val mAP with full labels, as in the papers.",
    "observed": "The epoch was chosen by val mAP with observed labels only.",
    "last": "The last epoch stands.",
}


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


def headline(draft: Draft) -> Row:
    """Make the section of what was run and what came out.

    Args:
        draft: The page as it grows.

    Returns:
        The section.
    """
    names = [dataset.name for dataset in draft.collected.datasets]
    runs = sum(len(arm.runs) for arm in draft.collected.arms)
    known = "one positive label per image" if draft.one else "some of the labels"
    what = f"how much of what full labels teach is learned from {known}."
    given = [name for name in names if draft.given(name)]
    if not draft.truth:
        as_far = ", as far as they can say it" if given else ""
        what = f"what was learned from labels that are not exhaustive{as_far}."
    lead = f"{counted(runs, 'training run')} on {joined(names)}, {counted(draft.seeds, 'training seed')}: {what}"
    blocks = draft.each(_findings)
    if given:
        blocks += [heading(caveats.TRUE_SCORES), paragraph(caveats.ADVICE)]
    nothing = paragraph("Nothing to show yet: the last section says what is missing.", "note")
    return section("headline", "Findings", "What was run and what came out", lead, blocks or [nothing])


def _findings(draft: Draft, dataset: Dataset) -> list[Row]:
    blocks: list[Row] = []
    if dataset.table is not None:
        counts = {row["split"]: row for row in tables.splits(dataset)}
        images = {split: f"{row['images']:,}" for split, row in counts.items()}
        shown = "one" if draft.collected.one_label(dataset.name) else "some"
        labels = f"labels per training image, {shown} of them shown"
        cards = [
            (f"{len(dataset.table.paths):,}", "images: {train} train, {val} val, {test} test".format(**images)),
            (str(len(dataset.table.classes)), "classes"),
            (
                f"{counts['train']['labels_per_image'] or 0:.2f}",
                labels if dataset.table.exhaustive else "present labels given per training image",
            ),
        ]
        if not dataset.table.exhaustive:
            share = counts["train"]["cells_unscored"] / max(counts["train"]["images"] * len(dataset.table.classes), 1)
            cards.append((percent(share), "of the training labels are unknown; how many are present was not measured"))
        elif dataset.simulate is not None:
            words = "of the unknown training labels are in truth present: the error of assuming them absent"
            expected = dataset.simulate.get("expected_false_negative_rate")
            words += "" if expected is None else f" ({percent(expected)} expected of such a draw)"
            cards.append((percent(dataset.simulate["false_negative_rate"]), words))
        blocks.append({"kind": "cards", "cards": [{"value": value, "words": words} for value, words in cards]})
    sentences = findings.findings(draft.collected, draft.results, dataset)
    return [*blocks, bullets(sentences)] if sentences else blocks


def maps(draft: Draft) -> Row:
    """Make the section of mean average precision at each stage.

    Args:
        draft: The page as it grows.

    Returns:
        The section.
    """
    small = any(caveats.caution(dataset) or draft.given(dataset.name) for dataset in draft.collected.datasets)
    lead = f"Test mAP in percent, {'in order of score' if small else 'best first'}"
    if draft.truth:
        lead += ": look at where a method stands between AN, which assumes every unknown label absent, and full labels"
    lead += ". "
    spread = "Plus-minus is the sample standard deviation over training seeds."
    lead += spread if draft.seeds > 1 else "There is one training seed, so no spread is known."
    return section("map", "mAP", "Mean average precision at each stage", lead, draft.each(_maps_of))


def _maps_of(draft: Draft, dataset: Dataset) -> list[Row]:
    mine = [row for row in draft.results if row["dataset"] == dataset.name]
    if not mine:
        return []
    both = _side_by_side(draft, dataset.name)
    blocks = _warning(draft, dataset.name)
    blocks += [paragraph(words)] if (words := draft.scores_are_true(dataset.name)) else []
    blocks += [paragraph(words, "note")] if (words := caveats.caution(dataset)) else []
    blocks += [_dots(draft, dataset.name, mine), *both]
    for stage in TRAINING_STAGES:
        rows = tables.ranked(mine, dataset.name, stage)
        if rows:
            inner = _stage_table(draft, dataset.name, stage, rows)
            long = bool(both) and stage in ("linear_init", "finetune") and len(rows) > LISTED
            blocks += [box(f"{STAGES[stage]}: all numbers", inner)] if long else [heading(STAGES[stage], 4), *inner]
    return blocks + _support(dataset, mine[0])


def _warning(draft: Draft, dataset: str) -> list[Row]:
    """Return what stands above the scores of a dataset that are not against full labels."""
    if not (given := draft.given(dataset)):
        return []
    words = (
        f"{caveats.scores_are(dataset, given)}. They tell networks that were trained on the same labels apart, "
        f"roughly, and do not compare with scores of other data. {caveats.SEE_ADVICE}"
    )
    return [paragraph(words, "warning")]


def _identity(row: Row) -> Identity:
    return row["stage"], row["method"], row["variant"]


def _dots(draft: Draft, dataset: str, mine: list[Row]) -> Row:
    panels, every, named = [], [], []
    for stage in TRAINING_STAGES:
        rows = [row for row in _by_head(tables.ranked(mine, dataset, stage)) if row["test_map"]["mean"] is not None]
        plain = {row["method"]: row["test_map"]["mean"] for row in rows if not row["variant"]}
        shown = draft.shown(dataset, map(_identity, rows))
        dots = [
            figures.Score(
                draft.name(dataset, _identity(row)) + (" †" if row["density"] else ""),
                draft.style(dataset, _identity(row)),
                row["test_maps"],
                row["test_map"]["mean"],
                row["test_map"]["std"],
                _identity(row) not in shown,
            )
            for row in rows
        ]
        if dots:
            ceiling = plain.get(CEILING) if draft.collected.truth(dataset) else None
            panels.append((STAGES[stage], dots, plain.get(BASELINE), ceiling))
        every += rows
        named += shown
    caption = (
        "Dots are means, bars one standard deviation and ticks single seeds" if draft.seeds > 1 else "Dots are means"
    )
    if draft.collected.truth(dataset):
        caption += "; the grey band is the gap from AN to full labels"
    caption = draft.marked(f"{caption}.", dataset)
    if len(named) < len(every):
        caption += f" In colour: the references and the best of each stage, at most {figures.NAMED}."
    if any(row["density"] for row in every):
        caption += " †: told how many labels an image has on average."
    if any(row.mean < figures.cut(panels) for _, dots, _, _ in panels for row in dots):
        caption += " An arrow at the left edge: further down."
    hidden = ("note", "edge")
    return draft.figure(
        f"{dataset}-map",
        figures.scores(panels, x=draft.marked("test mAP (%), mean over the classes present", dataset)),
        [flat({key: value for key, value in row.items() if key not in hidden}) for row in mine],
        draft.marked(f"Test mAP of every method at every stage on {dataset}", dataset),
        caption,
    )


# ---------------------------------------------------------------------------------------------- tables of mAP
def _by_head(rows: list[Row]) -> list[Row]:
    """Return rows by the kind of head, which alone compare, in the order in which the kinds first appear."""
    heads = list(dict.fromkeys(row["head"] for row in rows))
    return sorted(rows, key=lambda row: heads.index(row["head"]))


def _marks(rows: Sequence[Row]) -> list[str]:
    """Return how rows are marked: references, and of each kind of head the first that is no oracle."""
    references, seen, marks = (BASELINE, *tables.ORACLES), set(), []
    for row in rows:
        best = row["method"] not in tables.ORACLES and row["head"] not in seen
        seen |= {row["head"]} if best else set()
        marks.append("best" if best else "reference" if row["method"] in references else "")
    return marks


def _conditions(rows: Sequence[Row]) -> list[str]:
    """Return which of ``head`` and ``protocol`` differ between rows, so that a table needs a column of them."""
    return [key for key in ("head", "protocol") if len({row[key] for row in rows}) > 1]


def _conditions_note(rows: Sequence[Row]) -> str:
    """Return in words under which protocols, and with which heads, the rows of a table were trained."""
    protocols = list(dict.fromkeys(row["protocol"] for row in rows))
    words = {
        "common": "Protocol common: the stage's own recipe for every method.",
        "published": "Protocol published: each method by the recipe of its source.",
    }
    note = " ".join(words.get(name, f"Protocol {name}.") for name in protocols)
    if len(protocols) > 1:
        note += " Rows under different protocols differ in more than the method."
    if "head" in _conditions(rows):
        note += " Rows with different heads do not compare, so each kind of head has its own best."
    return note


def _rates(row: Row, *, each: bool) -> str:
    """Return the chosen learning rates, of ``each`` seed in turn or those that differ; a star where one is an edge."""
    values = row["learning_rate"] if each else dict.fromkeys(row["learning_rate"])
    return listed(f"{value:g}" for value in values) + (" *" if row["edge"] else "")


_EDGE = "* The best learning rate of the search is its lowest or highest; a better one may lie outside."


def _side_by_side(draft: Draft, dataset: str) -> list[Row]:
    """Return the table of all methods with both stages, and whether fine-tuning loses to the head."""
    rows = tables.side_by_side(draft.results, draft.collected, dataset)
    if not rows:
        return []
    stages = ("linear_init", "finetune")
    parts = [[row[stage] for stage in stages if row[stage] is not None] for row in rows]
    every = [part for mine in parts for part in mine]
    conditions = _conditions(every)
    draft.files.tables[f"{dataset}-side_by_side"] = [
        flat({
            "method": row["method"],
            "variant": row["variant"],
            "knows_label_density": int(mine[-1]["density"]),
            **{
                f"{stage}_{key}": None if row[stage] is None else row[stage][key]
                for stage in stages
                for key in ("test_map", "learning_rate", "head", "protocol")
            },
            "gain": row["gain"],
        })
        for row, mine in zip(rows, parts, strict=True)
    ]  # fmt: skip
    columns = ["Method", "Linear head", "Fine-tuned", "Gain", *(key.capitalize() for key in conditions)]
    columns += ["Learning rates, linear head", "Learning rates, fine-tuned", "Knows the label density"]
    cells = [
        [
            {"text": draft.label(dataset, row["method"], row["variant"]), "note": _note(draft, dataset, mine[-1])},
            *("–" if row[stage] is None else plus_minus(row[stage]["test_map"]) for stage in stages),
            "–" if row["gain"] is None else signed(row["gain"]),
            *(" / ".join(dict.fromkeys(part[key] for part in mine)) for key in conditions),
            *("–" if row[stage] is None else _rates(row[stage], each=True) for stage in stages),
            "yes" if mine[-1]["density"] else "no",
        ]
        for row, mine in zip(rows, parts, strict=True)
    ]
    marks = _marks([{**mine[-1], "head": ""} for mine in parts])
    notes = [_conditions_note(every)]
    if draft.seeds > 1:
        notes.append("Learning rates in the order of the seeds.")
    notes += [_EDGE] if any(part["edge"] for part in every) else []
    words, kind = findings.own_head(tables.against_own_head(draft.collected, dataset), draft.collected.truth(dataset))
    return [
        heading("Linear head and fine-tuned, side by side", 4),
        _scores_table(draft, dataset, f"Test mAP of both stages, {dataset}", columns, cells, marks),
        paragraph(" ".join(notes), "note"),
        *([paragraph(draft.marked(words, dataset), kind)] if words else []),
    ]


def _scores_table(
    draft: Draft, dataset: str, caption: str, columns: list[str], cells: list[list[Any]], marks: list[str], *about: str
) -> Row:
    """Return a table of scores, under a heading that says the same: its caption shows where scores need their mark."""
    if "test" in draft.given(dataset):  # these scores say of no method that it is best
        marks = [mark if mark == "reference" else "" for mark in marks]
    title = draft.marked(caption, dataset, *about)
    return table_block(title, columns, cells, marks=marks, titled=title != caption)


def _stage_table(draft: Draft, dataset: str, stage: str, rows: list[Row]) -> list[Row]:
    rows, conditions = _by_head(rows), _conditions(rows)
    coverage = analyses.label_coverage(draft.collected, dataset)
    labels = [findings.labelled(coverage.get(_identity(row), ())) for row in rows]
    first = rows[0]
    uneven = len({(len(row["seeds"]), row["planned"]) for row in rows}) > 1 or len(first["seeds"]) < first["planned"]
    columns: list[tuple[str, Callable[[Row], Any]]] = [
        (
            "Method",
            lambda row: {
                "text": draft.label(dataset, row["method"], row["variant"]),
                "note": _note(draft, dataset, row),
            },
        ),
        (f"Test mAP, {first['classes_present']} present", lambda row: plus_minus(row["test_map"])),
        *((key.capitalize(), lambda row, key=key: row[key]) for key in conditions),
        (f"Absent = 0, {first['classes']} classes", lambda row: plus_minus(row["test_map_absent_zero"])),
        (f"Supported, {first['classes_supported']} classes", lambda row: plus_minus(row["test_map_supported"])),
        *([("Gap closed", _closed)] if draft.collected.truth(dataset) else []),
        ("Val mAP", lambda row: plus_minus(row["val_map"])),
        ("Learning rate", lambda row: _rates(row, each=False)),
        ("Epoch", lambda row: f"{listed(row['epoch'])} of {listed(dict.fromkeys(row['epochs']))}"),
        *([("Seeds", _seeds)] if uneven else []),
        ("Knows the label density", lambda row: "yes" if row["density"] else "no"),
    ]
    titles, cells = [title for title, _ in columns], [[read(row) for _, read in columns] for row in rows]
    if any(words != "–" for words in labels):
        titles.append("Cells labelled")
        cells = [[*line, words] for line, words in zip(cells, labels, strict=True)]
    notes = [_conditions_note(rows)]
    notes += [] if uneven else [f"{counted(len(first['seeds']), 'seed')} each."]
    gaps = rows if draft.collected.truth(dataset) else []
    reasons = dict.fromkeys(row["gap_share_reason"] for row in gaps if row["gap_share"] is None)
    notes += [f"The gap is not defined: {reason}." for reason in reasons]
    notes += [_EDGE] if any(row["edge"] for row in rows) else []
    averaged = [
        f"{draft.label(dataset, *_identity(row)[1:])} ({row['averaged']} of {counted(len(row['seeds']), 'seed')})"
        for row in rows
        if row["averaged"]
    ]
    if averaged:
        notes.append(f"The moving average of the weights was chosen, not the weights, for {listed(averaged)}.")
    if titles[-1] == "Cells labelled":
        notes.append("Cells labelled: unknown training cells that carry a pseudo-label in the chosen epoch.")
    runs = [run for arm in draft.collected.of(stage, dataset) for run in arm.runs]
    rules = dict.fromkeys(run.provenance.get("settings", {}).get("select") for run in runs)
    notes += [_RULES[rule] for rule in rules if rule in _RULES]
    return [
        _scores_table(draft, dataset, f"{STAGES[stage]}, {dataset}", titles, cells, _marks(rows), "val", "test"),
        paragraph(" ".join(notes), "note"),
    ]


def _closed(row: Row) -> Row:
    share = row["gap_share"]
    if share is None:
        return {"text": "–"}
    return {"text": f"{share:.0f}%", "bar": f"{min(max(share, 0), 100):.1f}"}


def _seeds(row: Row) -> str:
    lost = len(row["seeds"]) < row["planned"]
    return f"{len(row['seeds'])} of {row['planned']}" if lost else str(len(row["seeds"]))


def _note(draft: Draft, dataset: str, row: Row) -> str:
    """Return in a few words what sets a row apart: an oracle's knowledge, another's head, what a variant changes."""
    key = f"{dataset}-{row['method']}-{row['seeds'][0]}-{row['variant']}"
    item = getattr(draft.collected.params.variants, row["stage"]).get(key)
    changes = [] if item is None else [*leaves(item.set.stage), *leaves(item.set.method)]
    words = listed(f"{name} = {value}" for name, value in changes if name != "protocol")  # which has its own place
    start = f"from {draft.label(dataset, row['start'])}'s linear head" if row["start"] else ""
    return "; ".join(filter(None, [row["note"], start, words]))


# ---------------------------------------------------------------------------------------------- curves
def curves(draft: Draft) -> Row:
    """Make the section of validation mAP by epoch.

    Args:
        draft: The page as it grows.

    Returns:
        The section.
    """
    lead = (
        "Look at AN after its best epoch: where its val mAP falls, it is fitting its false negatives, and a method "
        "that doubts unknown labels should fall less."
    )
    if not draft.truth:
        lead = (
            "Look at where the curves level off: a network that gains no more has learned what these labels teach it."
        )
    return section("curves", "Curves", "Validation mAP by epoch", lead, draft.each(_curves_of))


def _curves_of(draft: Draft, dataset: Dataset) -> list[Row]:
    blocks: list[Row] = []
    for stage in TRAINING_STAGES:
        if arms := draft.collected.of(stage, dataset.name):
            blocks += [heading(STAGES[stage], 4), *_stage_curves(draft, dataset, stage, arms)]
    return [*_warning(draft, dataset.name), *blocks] if blocks else []


def _stage_curves(draft: Draft, dataset: Dataset, stage: str, arms: list[Arm]) -> list[Row]:
    name = dataset.name
    every = [(stage, arm.method, arm.variant) for arm in arms]
    shown = draft.shown(name, every)
    lines, losses = [], []
    for identity, arm in zip(every, arms, strict=True):
        marked = [run.metrics["epoch"] for run in arm.runs]
        lines.append(draft.series(name, identity, tables.over_epochs(arm, "val_map"), "mean", marked, shown))
        losses.append(draft.series(name, identity, tables.over_epochs(arm, "loss"), "mean", [], shown))
    falls = {(row["method"], row["variant"]): row["fall"]["mean"] for row in tables.falls(draft.collected, stage, name)}
    lost = [identity for identity in shown if identity[1:] in falls]
    words = listed(f"{draft.label(name, *identity[1:])} {falls[identity[1:]]:.1f}" for identity in lost)
    caption = "Markers are chosen epochs."
    if len(lines) <= figures.NAMED and any(line.std for line in lines):
        caption = "Markers are chosen epochs; bands are one standard deviation over seeds."
    if any(row.get("val_score_average") is not None for arm in arms for run in arm.runs for row in run.epochs):
        caption += " Curves are of the raw weights; their moving average competed for the choice."
    caption += few(shown, every, "Named", "the rest are grey, and cut off below the named ones")
    title = draft.marked(f"Val mAP by epoch on {name}, {STAGES[stage]}", name, "val")
    axis, columns = "val mAP (%)", _columns(arms, "val_map")
    mark = "\n" + tables.GIVEN.replace("; ", ";\n") if "val" in draft.given(name) else ""  # in lines that fit the axis
    blocks = [
        draft.figure(
            f"{name}-{stage}-val_map",
            figures.curves(lines, x="epoch", y=axis + mark, least=figures.POINTS),
            columns,
            title,
            draft.marked(f"{caption} Points of val mAP lost from the best epoch to the last: {words}.", name, "val"),
        )
    ]
    if len(shown) < len(every):
        base = (stage, BASELINE, "")
        order = [_identity(row) for row in tables.ranked(draft.results, name, stage)]
        notes = [f"−{fall:.1f}" if (fall := falls.get(one[1:], 0.0)) >= findings.LEVEL else "" for one in order]
        figure = draft.figure(
            f"{name}-{stage}-val_map_each",
            figures.multiples(
                [lines[every.index(one)] for one in order],
                x="epoch",
                y=axis,
                reference=lines[every.index(base)] if base in every else None,
                notes=notes,
            ),
            columns,
            f"{title}, one panel a method",
            draft.marked(f"{'In order of' if caveats.caution(dataset) else 'Best first in'} test mAP", name)
            + ", each on its own scale"
            + (f", {label(BASELINE)} in grey" if base in every else "")
            + "; at the right of a name, points lost from the best epoch to the last.",
        )
        blocks.append(box(f"Every method's curve, {SHORT[stage]}", [figure]))
    words = "Mean train loss, each on its own scale: the losses differ in form, so only shapes compare."
    blocks.append(
        draft.figure(
            f"{name}-{stage}-loss",
            figures.multiples([line for line in losses if not line.faint], x="epoch", y="mean train loss"),
            _columns(arms, "loss"),
            f"Mean train loss by epoch on {name}, {STAGES[stage]}",
            words + few(shown, every, "Drawn", FILE),
        )
    )
    return blocks


# ---------------------------------------------------------------------------------------------- second stage
def second_stage(draft: Draft) -> Row:
    """Make the section of the second stage against its rivals.

    Args:
        draft: The page as it grows.

    Returns:
        The section.
    """
    lead = (
        f"{label(tables.SECOND_STAGE)}, with and without its memory queue, has to beat its own first stage trained "
        "on for as many epochs, above all the one that labels with the same threshold; differences are paired by "
        "seed."
    )
    return section("lac", "Second stage", "Does the second stage pay?", lead, draft.each(_second_stage_of))


def _second_stage_of(draft: Draft, dataset: Dataset) -> list[Row]:
    rows = tables.second_stage(draft.collected, dataset)
    if not rows:
        return []
    kept = ("subject", "rival", "start", "test", "supported", "val")
    draft.files.tables[f"{dataset.name}-second_stage"] = [
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
        bullets(draft.marked(findings.second_stage(row), dataset.name) for row in rows),
        table_block(
            draft.marked(f"{subject} against its rivals on {dataset.name}, points of mAP", dataset.name, "val", "test"),
            columns,
            cells,
            words=2,
        ),
        paragraph("There is one seed, so no spread is known." if one else spread, "note"),
    ]


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
        f"{dataset.min_support} positives in both "
        f"{'parts, test and train with val' if dataset.own else 'official lists'}"
    )
    if len(names) <= LISTED:
        return [paragraph(f"{words}{': ' if names else ''}{joined(names)}.", "note")]
    return [paragraph(f"{words}, named below.", "note"), box("The supported classes", [paragraph(joined(names) + ".")])]
