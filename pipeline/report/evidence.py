"""What the analyses show: separation of hidden positives, loss landscapes, pseudo-labels and calibration."""

from pipeline.config.params import TRAINING_STAGES
from pipeline.report import analyses, figures, findings
from pipeline.report.analyses import Identity
from pipeline.report.blocks import (
    box,
    finite,
    flat,
    heading,
    paragraph,
    percent,
    section,
    spread_percent,
    table_block,
    whole,
)
from pipeline.report.collect import Dataset, Landscape, Row
from pipeline.report.draft import FILE, GREY, SHORT, STAGES, Draft, few, named
from pipeline.report.findings import label, plus_minus
from pipeline.report.tables import BASELINE


def separation(draft: Draft) -> Row:
    """Make the section of how far hidden positives are from negatives.

    Args:
        draft: The page as it grows.

    Returns:
        The section.
    """
    title = "Hidden positives against negatives"
    lead = (
        "A point above the line is a class whose hidden positives a method sets further apart from its negatives "
        "than AN does (Wasserstein distance between the probabilities of the two groups, from 0 to 1; labels that "
        "were shown are left out)."
    )
    if not draft.truth:
        lead = "How far a method sets missed labels apart from labels that are rightly absent."
    return section("wasserstein", "Separation", title, lead, draft.each(_separation_of))


def _separation_of(draft: Draft, dataset: Dataset) -> list[Row]:
    name = dataset.name
    if not draft.collected.truth(name):
        return draft.unmeasured(name, "how far missed labels are set apart from labels that are rightly absent")
    by_class = analyses.distances(draft.collected, name, "train")
    by_epoch = analyses.distance_epochs(draft.collected, name, "val")
    found = {}
    for stage in TRAINING_STAGES:
        blocks = _scatter(draft, name, stage, by_class)
        mine = {identity: rows for identity, rows in by_epoch.items() if identity[0] == stage}
        if mine:
            shown = draft.shown(name, mine)
            lines = [
                draft.series(name, identity, rows, "mean", [row["epoch"] for row in rows if row["selected"]], shown)
                for identity, rows in mine.items()
            ]
            blocks.append(
                draft.figure(
                    f"{name}-{stage}-wasserstein_epochs",
                    figures.curves(lines, x="epoch", y="pooled distance on val"),
                    [
                        named(identity) | row | {"selected": int(row["selected"])}
                        for identity, rows in mine.items()
                        for row in rows
                    ],
                    f"Pooled Wasserstein distance by epoch on {name}, {STAGES[stage]}",
                    "The unknown val labels of all classes pooled, after each epoch; markers are chosen epochs."
                    + few(shown, list(mine), "Named", GREY),
                )
            )
        if blocks:
            found[stage] = blocks
    return _folded(found) + _distances(draft, name)


def _scatter(draft: Draft, dataset: str, stage: str, by_class: dict[Identity, dict[str, float]]) -> list[Row]:
    base = by_class.get((stage, BASELINE, ""), {})
    points: dict[Identity, list[Row]] = {}
    for identity, values in by_class.items():
        if identity[0] == stage and identity[1:] != (BASELINE, ""):
            rows = [
                {"class": name, "baseline": base[name], "distance": values[name]} for name in values if name in base
            ]
            points |= {identity: rows} if rows else {}
    if not points:
        return []
    shown = draft.shown(dataset, points)
    panels = [
        (
            draft.name(dataset, identity),
            draft.style(dataset, identity),
            [row["baseline"] for row in points[identity]],
            [row["distance"] for row in points[identity]],
        )
        for identity in shown
    ]
    seeds = ", means over seeds" if draft.seeds > 1 else ""
    return [
        draft.figure(
            f"{dataset}-{stage}-wasserstein",
            figures.scatter(panels, x=f"distance under {label(BASELINE)}", y="under the method"),
            [named(identity) | row for identity, rows in points.items() for row in rows],
            f"Wasserstein distance of each class against AN on {dataset}, {STAGES[stage]}",
            f"One point a class, training images, chosen epochs{seeds}; none without a hidden positive."
            + few(shown, list(points), "Drawn", FILE),
        )
    ]


def _distances(draft: Draft, dataset: str) -> list[Row]:
    rows = analyses.separations(draft.collected, dataset)
    if not rows:
        return []
    draft.files.tables[f"{dataset}-wasserstein"] = [flat(row) for row in rows]
    cells = [
        [
            draft.name(dataset, (row["stage"], row["method"], row["variant"])),
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


def landscapes(draft: Draft) -> Row:
    """Make the section of the loss landscapes.

    Args:
        draft: The page as it grows.

    Returns:
        The section.
    """
    lead = (
        "Look for a wide, flat basin around the centre. Each method is drawn with the loss that it was trained on, "
        "so heights differ in meaning (entropy terms can be negative) and only shapes compare."
    )
    return section("landscape", "Landscapes", "Loss landscapes", lead, draft.each(_landscapes_of))


def _landscapes_of(draft: Draft, dataset: Dataset) -> list[Row]:
    mine = sorted((item for item in draft.collected.landscapes if item.dataset == dataset.name), key=lambda i: i.seed)
    if not mine:
        return []
    first: dict[str, Landscape] = {}
    for item in mine:
        first.setdefault(item.method, item)
    shown = [first[method] for method in draft.collected.params.grid.landscape if method in first]
    lines = [
        figures.Series(
            draft.label(dataset.name, item.method),
            draft.style(dataset.name, (item.stage, item.method, "")),
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
        (line.label, line.style, item.offsets_2d, item.loss_2d, item.centre)
        for item, line in zip(shown, lines, strict=True)
    ]
    one = shown[0]
    seeds = f" Seed {one.seed} is drawn; the tables hold all." if len(mine) > len(shown) else ""
    caption = (
        f"Loss along one direction; the dashed line is the trained network. {one.images:,} training images, "
        f"networks {findings.AFTER[one.stage]}, Gaussian directions scaled filter by filter (seed "
        f"{one.direction_seed}).{seeds}"
    )
    return [
        draft.figure(
            f"{dataset.name}-landscape_1d",
            figures.landscapes_1d(lines, [item.centre for item in shown]),
            curve,
            f"1-D loss landscapes on {dataset.name}",
            caption,
        ),
        draft.figure(
            f"{dataset.name}-landscape_2d",
            figures.surfaces(panels),
            plane,
            f"2-D loss landscapes on {dataset.name}",
            "Loss on the plane of two directions: one colour scale, finer near its bottom; cross: the network.",
        ),
    ]


def audit(draft: Draft) -> Row:
    """Make the section of pseudo-labels, beliefs and calibration.

    Args:
        draft: The page as it grows.

    Returns:
        The section.
    """
    title = "Pseudo-labels and beliefs against the truth"
    lead = (
        "Compare accuracy with the base rate: negatives are so common among unknown labels that a method can be "
        "right almost always and still call most hidden positives absent."
    )
    if not draft.truth:
        title = "Pseudo-labels and beliefs"
        lead = "What the methods make of unknown labels, right or wrong."
    return section("audit", "Pseudo-labels", title, lead, draft.each(_audit_of))


def _audit_of(draft: Draft, dataset: Dataset) -> list[Row]:
    name = dataset.name
    rows = analyses.pseudo_labels(draft.collected, name)
    if not rows:
        return []
    if not draft.collected.truth(name):
        return _without_truth(draft, name)
    draft.files.tables[f"{name}-pseudo_labels"] = [flat(row) for row in rows]
    blocks: list[Row] = []
    cells = [
        [
            draft.name(name, (row["stage"], row["method"], row["variant"])),
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
        blocks.append(table_block(f"Pseudo-labels of the chosen epoch on {name}, percent", columns, cells, words=2))
        words = (
            "Coverage: share of unknown training labels that carry a pseudo-label. Base rate: how often calling "
            "every unknown label absent is right. The last two columns are shares of the hidden positives. A method "
            "that stores its labels was trained by these; of one that makes them anew at each step, they are what the "
            "epoch's last weights would label."
        )
        blocks.append(paragraph(words, "note"))
    return blocks + _rounds(draft, name) + _audit_classes(draft, name) + _calibration(draft, name)


def _without_truth(draft: Draft, dataset: str) -> list[Row]:
    """Return what can be said of pseudo-labels and beliefs where nobody knows which of them are right."""
    rows = analyses.without_truth(draft.collected, dataset)
    draft.files.tables[f"{dataset}-pseudo_labels"] = [flat(row) for row in rows]
    columns = ["Method", "Stage", "Called present", "Called absent", "Mean belief", "Believed present"]
    cells = [
        [
            draft.name(dataset, (row["stage"], row["method"], row["variant"])),
            SHORT[row["stage"]],
            *(spread_percent(row[key]) for key in ("present", "absent", "belief", "believed", "probability")),
        ]
        for row in rows
    ]
    words = (
        "Called: unknown training labels with such a pseudo-label of the chosen epoch. Belief: how present the method "
        "takes unknown labels to be; believed present: those above one half. Probability: the network's own."
    )
    return [
        *draft.unmeasured(
            dataset, "how many labels are missed, how many the methods find, and how often they are right"
        ),
        table_block(
            f"What is made of unknown training labels on {dataset}, percent",
            [*columns, "Mean probability"],
            cells,
            words=2,
        ),
        paragraph(words, "note"),
        *_classes_without_truth(draft, dataset),
    ]


def _classes_without_truth(draft: Draft, dataset: str) -> list[Row]:
    every = analyses.pseudo_classes(draft.collected, dataset)
    if not every:
        return []
    names = ("class", "unknown", "positives", "negatives", "coverage")
    draft.files.tables[f"{dataset}-pseudo_labels_by_class"] = [
        named(one) | {name: row[name] for name in names} for one, rows in every.items() for row in rows
    ]
    inner = []
    for one in draft.shown(dataset, every):
        cells = [
            [row["class"], *(whole(row[key]) for key in names[1:4]), percent(row["coverage"])] for row in every[one]
        ]
        columns = ["Class", "Unknown", "Called present", "Called absent", "Coverage"]
        inner.append(table_block(f"{draft.name(dataset, one)}, {SHORT[one[0]]}", columns, cells))
    seeds = " (counts summed over seeds)" if draft.seeds > 1 else ""
    return [box(f"Pseudo-labels by class{seeds}", inner)]


def _rounds(draft: Draft, dataset: str) -> list[Row]:
    every = analyses.pseudo_rounds(draft.collected, dataset)
    records = [item.record for item in draft.collected.audits if item.dataset == dataset]
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
        shown = draft.shown(dataset, mine)
        panels = []
        for title, key, level in measures:
            lines = [
                draft.series(dataset, identity, rows, key, [row["epoch"] for row in rows if row["selected"]], shown)
                for identity, rows in mine.items()
            ]
            panels.append((title, lines, level))
        found[stage] = [
            draft.figure(
                f"{dataset}-{stage}-pseudo_labels",
                figures.rounds(panels, x="epoch"),
                [named(identity) | row for identity, rows in mine.items() for row in rows],
                f"Pseudo-label audit by round on {dataset}, {STAGES[stage]}",
                "Pseudo-labels of each epoch, as fractions; markers are the chosen epochs' rounds."
                + few(shown, list(mine), "Named", GREY),
            )
        ]
    return _folded(found)


def _audit_classes(draft: Draft, dataset: str) -> list[Row]:
    every = analyses.pseudo_classes(draft.collected, dataset)
    if not every:
        return []
    draft.files.tables[f"{dataset}-pseudo_labels_by_class"] = [
        named(identity) | row for identity, rows in every.items() for row in rows
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
    stages = dict.fromkeys(identity[0] for identity in every)
    shown = [one for stage in stages for one in draft.shown(dataset, [one for one in every if one[0] == stage])]
    words = few(shown, list(every), "Shown", f"tables/{dataset}-pseudo_labels_by_class.tsv holds all").strip()
    inner = [paragraph(words, "note")] if words else []
    for identity in shown:
        cells = [
            [
                row["class"],
                whole(row["unknown"]),
                *(percent(row[key]) for key in ("coverage", "accuracy", "base")),
                *(whole(row[key]) for key in ("hidden_positives", "called_negative", "found")),
            ]
            for row in every[identity]
        ]
        inner.append(table_block(f"{draft.name(dataset, identity)}, {SHORT[identity[0]]}", columns, cells))
    seeds = " (counts summed over seeds)" if draft.seeds > 1 else ""
    return [box(f"Pseudo-labels by class{seeds}", inner)]


def _calibration(draft: Draft, dataset: str) -> list[Row]:
    every = analyses.calibration(draft.collected, dataset)
    found = {}
    for stage in TRAINING_STAGES:
        if mine := {identity: quantities for identity, quantities in every.items() if identity[0] == stage}:
            found[stage] = [_calibration_figure(draft, f"{dataset}-{stage}-calibration", dataset, mine)]
    return _folded(found, "Calibration, {}")


def _calibration_figure(draft: Draft, name: str, dataset: str, every: dict[Identity, dict[str, list[Row]]]) -> Row:
    shown, panels, rows, reference = draft.shown(dataset, every), [], [], {}
    for identity, quantities in every.items():
        points: dict[str, figures.Points] = {}
        for quantity, bins in quantities.items():
            merged = analyses.coarse(bins)
            points[quantity] = ([row["mean_belief"] for row in merged], [row["fraction"] for row in merged])
            rows += [named(identity) | {"quantity": quantity} | row for row in bins]
            reference |= {row["mean_belief"]: row["reference"] for row in bins if row["reference"] is not None}
        if identity in shown:
            clouds = (points.get("probability"), points.get("belief"))
            panels.append(figures.Calibration(draft.name(dataset, identity), draft.style(dataset, identity), *clouds))
    known = sorted(reference.items())
    curve = ([p for p, _ in known], [k for _, k in known]) if len(known) > 2 else None
    caption = (
        "Share of unknown labels that are in truth present, in tenths of how present they are taken to be. Discs: "
        "the network's probability on val; rings: the method's own belief on train. Grey line: equality; dotted: "
        "what a calibrated network would show once the known labels are taken out."
    )
    caption += few(shown, list(every), "Drawn", FILE)
    return draft.figure(name, figures.calibration(panels, curve), rows, f"Calibration on {dataset}", caption)


def _folded(found: dict[str, list[Row]], title: str = "") -> list[Row]:
    """Return each stage under its heading, and the linear head, where fine-tuning follows, in a box.

    Args:
        found: Blocks by stage.
        title: Words of the headings, with ``{}`` for the stage; empty: the stage's own title.

    Returns:
        The blocks.
    """
    blocks = []
    for stage, inner in found.items():
        words = title.format(SHORT[stage]) or STAGES[stage]
        if stage == "linear_init" and "finetune" in found:
            blocks.append(box(words, inner))
        else:
            blocks += [heading(words, 4), *inner]
    return blocks
