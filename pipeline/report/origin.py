"""Where the numbers come from: the data, the simulated labels, what is missing, and what every run was made with."""

from pipeline.report import analyses, figures, tables
from pipeline.report.blocks import (
    LISTED,
    box,
    bullets,
    counted,
    facts_block,
    heading,
    joined,
    leaves,
    listed,
    paragraph,
    percent,
    section,
    table_block,
    whole,
)
from pipeline.report.collect import Dataset, Row
from pipeline.report.draft import SHORT, Draft

_COMMANDS = [
    "make repro                          # the environment, the preflight, what is stale, this page",
    "dvc repro                           # what is stale, raw images to this page",
    "dvc params diff                     # what differs from the last commit",
    "dvc metrics diff                    # and what that did to report/summary.json",
    "python -m stages.report --partial   # this page from what is there now",
]
_SHOWN = ("classes", "splits", "warnings")  # parts of a source's report that the page shows elsewhere
_VALUE = 120  # characters of a value in a table of facts


def data(draft: Draft) -> Row:
    """Make the section of the data and the simulated labels.

    Args:
        draft: The page as it grows.

    Returns:
        The section.
    """
    lead = (
        "What was read, and what hiding all positive labels but one does to each class: the longer an orange bar, "
        "the more often AN is told wrong."
    )
    if not draft.truth:
        lead = "What was read, and how many labels of each class were given."
    return section("data", "Data", "The data and the simulated labels", lead, draft.each(_data_of))


def _data_of(draft: Draft, dataset: Dataset) -> list[Row]:
    blocks: list[Row] = []
    splits, classes = tables.splits(dataset), tables.classes(dataset)
    if splits:
        draft.files.tables[f"{dataset.name}-splits"] = splits
        official = () if dataset.own else ("official_train", "official_test")  # of own data: what the splits say
        counts = (*official, "without_positive", "classes_present", "cells_unscored")
        cells = [
            [
                row["split"],
                whole(row["images"]),
                "–" if row["labels_per_image"] is None else f"{row['labels_per_image']:.2f}",
                *(whole(row[key]) for key in counts),
            ]
            for row in splits
        ]
        labels, left = "Labels per image", "Labels left out, truth unknown"
        if not draft.collected.truth(dataset.name):
            labels, left = "Present labels given per image", "Unknown labels"
        columns = ["Split", "Images", labels, *(["Official train list", "Official test list"] if official else [])]
        columns += ["Images without a positive", "Classes present", left]
        blocks.append(table_block(f"Splits of {dataset.name}", columns, cells))
    if dataset.simulate is not None:
        blocks.append(paragraph(_simulation(dataset.simulate)))
    if classes:
        blocks += _classes(draft, dataset, classes)
    if dataset.prepare is not None:
        facts = leaves({key: part for key, part in dataset.prepare.items() if key not in _SHOWN})
        if facts:
            title = "What the source read and skipped"
            blocks.append(box(title, [facts_block(f"{title}, {dataset.name}", facts)]))
    return blocks


def _classes(draft: Draft, about: Dataset, classes: list[Row]) -> list[Row]:
    dataset, truth = about.name, draft.collected.truth(about.name)
    order = sorted(classes, key=lambda row: -row["support_train"])
    image = figures.supports(
        *([row[key] for row in order] for key in ("class", "support_train", "observed_positive", "false_negative_rate"))
    )
    official = () if about.own else ("support_official_train", "support_official_test")
    columns = ["Class", "Train", "Val", "Test", *(["Official train", "Official test"] if official else []), "Supported"]
    columns += ["Observed", "Unknown", *(["False negatives"] if truth else [])]
    supports = ("support_train", "support_val", "support_test", *official)
    cells = [
        [
            row["class"],
            *(whole(row[key]) for key in supports),
            "yes" if row["supported"] else "no",
            whole(row["observed_positive"]),
            whole(row["unknown"]),
            *([percent(row["false_negative_rate"])] if truth else []),
        ]
        for row in classes
    ]
    alt, title = (
        f"Positives and false-negative rate of each class of {dataset}",
        "Positives and false negatives by class",
    )
    caption = "Left: positives of each class and how many are shown. Right: how often assuming its unknown labels "
    caption += "absent is wrong."
    if not truth:
        alt, title = f"Given positives of each class of {dataset}", "Given positives by class"
        caption = "Positives that were given of each class; how many more there are in truth is not known."
    return [
        draft.figure(f"{dataset}-classes", image, classes, alt, caption),
        box(title, [table_block(f"Classes of {dataset}", columns, cells, titled=False)]),
    ]


def rest(draft: Draft, instead: list[str]) -> Row:
    """Make the section of what is missing and how to reproduce the page.

    Args:
        draft: The page as it grows.
        instead: A line for each section that is left out.

    Returns:
        The section.
    """
    missing = draft.collected.missing
    lead = "What is not in this page and why, and how to make the page again."
    blocks: list[Row] = [paragraph("Nothing is missing: every file that params.yaml asks for was read.")]
    if missing:
        parts = counted(len(missing), "file or part", "files or parts")
        verb = "is" if len(missing) == 1 else "are"
        lead = f"This page is partial: {parts} of it {verb} missing, and what needs them is left out."
        rows = [[item.path, item.reason] for item in missing]
        blocks = [table_block(f"{parts} missing", ["Missing", "Why"], rows, words=2)]
    if instead:
        blocks += [heading("Sections that are left out", 4), bullets(instead)]
    blocks += [heading("Skipped, with the reason", 4), bullets(_skipped(draft) or ["nothing"])]
    blocks += [heading("Reproduce", 4), {"kind": "code", "lines": _COMMANDS}]
    blocks += [heading("Provenance", 4), *_provenance(draft)]
    return section("rest", "Missing, reproduce", "What is missing, and how to reproduce", lead, blocks)


def _skipped(draft: Draft) -> list[str]:
    items = []
    for dataset in draft.collected.datasets:
        where = f"{dataset.name}: " if len(draft.collected.datasets) > 1 else ""
        reasons: dict[str, list[str]] = {}
        for row in analyses.pseudo_labels(draft.collected, dataset.name):
            if row["reason"]:
                name = f"{draft.label(dataset.name, row['method'], row['variant'])} ({SHORT[row['stage']]})"
                reasons.setdefault(row["reason"], []).append(name)
        items += [f"{where}No pseudo-label audit of {_named(names)}: {why}." for why, names in reasons.items()]
        reasons = {}
        for analysis in draft.collected.wasserstein:
            if analysis.dataset != dataset.name:
                continue
            for run in analysis.record["runs"] if not analysis.record["truth"] else []:
                reasons.setdefault(run["reason"], ["any class"])
            for row in analysis.tables["per_class"]:
                names = reasons.setdefault(row["reason"], []) if row["distance"] is None else []
                if f"{row['class']} ({row['split']})" not in names:
                    names.append(f"{row['class']} ({row['split']})")
        items += [f"{where}No Wasserstein distance of {_named(names)}: {why}." for why, names in reasons.items()]
        items += [f"{where}Warning while reading: {words}" for words in (dataset.prepare or {}).get("warnings", [])]
    return items


def _named(names: list[str]) -> str:
    return f"{listed(names[:LISTED])} and {len(names) - LISTED} more" if len(names) > LISTED else joined(names)


def _provenance(draft: Draft) -> list[Row]:
    records = [run.provenance for arm in draft.collected.arms for run in arm.runs]
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for name, value in leaves(record):
            found.setdefault(name, {})[str(value)] = None
    versions = {name: "; ".join(values) for name, values in found.items() if name.startswith("versions.")}
    words = listed(f"{name.removeprefix('versions.')} {value}" for name, value in sorted(versions.items()))
    same = [(name, min(values)) for name, values in found.items() if len(values) == 1 and len(min(values)) <= _VALUE]
    blocks: list[Row] = [paragraph(f"Versions: {words}.")] if words else []
    if same:
        title = f"What the {counted(len(records), 'training run')} have in common"
        blocks.append(box(title, [facts_block(title, sorted(same))]))
    for dataset in draft.collected.datasets:
        if dataset.backbone is not None:
            title = f"Backbone of {dataset.name}"
            blocks.append(box(title, [facts_block(title, sorted(leaves(dataset.backbone)))]))
    return blocks or [paragraph("No provenance was found.", "note")]


def _simulation(report: Row) -> str:
    found = report["from_unbiased"] or {}
    words = report["how"]
    if report["protocol"] != "given":
        words += " There is one draw a dataset; training seeds do not change it."
    if report["protocol"] != "given" and report["bias"]["kind"] != "uniform" and found.get("distance") is not None:
        words += (
            f" The classes' shares among the known positives differ by {percent(found['distance'])} from those "
            f"expected without bias; chance alone makes about {percent(found['by_chance'])}."
        )
    return words
