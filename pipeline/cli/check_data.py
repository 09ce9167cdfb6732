"""``spml check-data``: read a dataset whole, and list every fault, equal pictures and counts against the papers'."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pipeline.cli.inspect_data import inspect
from pipeline.cli.verbs import Failed, Verbs, align
from pipeline.core import files
from pipeline.core.faults import pluralize


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser(
        "check-data",
        help="read a dataset whole: every fault, duplicates, counts against the papers'",
        description="Read the lists of a dataset, decode every picture, and list every fault, equal pictures across "
        "splits or with different labels, and counts against the published ones, with the papers that this copy "
        "compares with. Nothing is prepared or changed. Exit status: 0 clean, 1 not clean or params.yaml not valid, "
        "2 wrong usage. Faults make it unclean, warnings only with --strict.",
    )
    parser.add_argument("dataset", help="name in `prepare` of params.yaml, or of a profile, which need not be applied")
    parser.add_argument("--root", metavar="FOLDER", help="folder of the raw data: replaces prepare.<dataset>.root")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="warnings count as faults, such as equal pictures, or labels that are not exhaustive",
    )
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="write all of it to this file too, all names included"
    )
    return parser


def run(options: argparse.Namespace) -> Iterator[str]:
    """Inspect a dataset.

    Args:
        options: What the parser read.

    Yields:
        Lines of the report.

    Raises:
        Failed: There is a fault, or a warning under ``--strict``.
    """
    report = inspect(Path(), options.dataset, options.root)
    clean = is_clean(report, options.strict)
    if options.json is not None:
        files.write_json(options.json, report | {"clean": clean})
    yield from format_report(report, options.strict)
    if not clean:
        raise Failed


def is_clean(report: dict[str, Any], strict: bool) -> bool:
    """Tell whether a dataset is clean.

    Args:
        report: What `inspect` returned.
        strict: Whether warnings count too.

    Returns:
        Whether there is nothing that counts.
    """
    return not (report["faults"] or (strict and report["warnings"]))


def format_report(report: dict[str, Any], strict: bool) -> Iterator[str]:
    """Format a report for a terminal.

    Args:
        report: What `inspect` returned.
        strict: As in `is_clean`.

    Yields:
        Lines; the last one counts faults and warnings and says whether the dataset is clean.
    """
    faults, warnings, groups = report["faults"], report["warnings"], report["equal_pictures"]
    folder = report["read"].get("folder")
    where = f" in {folder}" if folder else ""
    counts = f"{pluralize(report['images'], 'image')}, {pluralize(report['classes'], 'class', 'classes')}"
    read = counts if report["images"] else "lists cannot be read"
    yield f"{report['dataset']}: source {report['source']}{where}, {read}; settings: {report['settings']}"
    yield from _section(f"Faults ({len(faults)})", faults)
    yield from _section(f"Warnings ({len(warnings)})", warnings)
    yield from _section(f"Equal pictures ({pluralize(len(groups), 'group')})", map(_format_group, groups))
    notes = report["notes"] | ({"in no row of the table": report["in_no_row"]} if report["in_no_row"] else {})
    yield from _section("Pictures", (f"{note}: {len(names)}, such as {names[0]}" for note, names in notes.items()))
    yield from _comparison(report)
    yield from _section("Not checked", [report["not_checked"]] if report["not_checked"] else [])
    yield ""
    count = f"{pluralize(len(faults), 'fault')}, {pluralize(len(warnings), 'warning')}"
    yield f"{report['dataset']}: {count}: {'clean' if is_clean(report, strict) else 'not clean'}"


def _comparison(report: dict[str, Any]) -> Iterator[str]:
    """Yield the lines on published counts and papers."""
    if not (rows := report["statistics"]):
        lines = ["nothing is published on this dataset to compare with"] if not report["not_checked"] else []
        yield from _section("Comparable", lines)
        return
    table = [("", "published", "this copy", "")]
    table += [(row["name"], row["published"], row["found"], "same" if row["same"] else "differs") for row in rows]
    yield from _section("Counts (Zhou 2022, Table 5)", align(table, colalign=("left", "right", "right", "left")))
    lines = []
    for verdict in report["papers"]:
        lines += [f"{verdict['answer']}: {', '.join(verdict['papers'])}", *(f"  {why}" for why in verdict["why"])]
    yield from _section("Comparable with the numbers of", lines)
    yield from _section("For numbers that compare, these must agree too", report["protocol"])


def _section(head: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield a heading and its lines; nothing without lines."""
    if lines := list(lines):
        yield from ("", head, *(f"  {line}" for line in lines))


def _format_group(group: dict[str, Any]) -> str:
    """Return one group of equal pictures as a line."""
    images = " = ".join(
        f"{image['path']} ({image['split']}: {', '.join(image['labels']) or 'no label'})" for image in group["images"]
    )
    notes = ["the same file" if group["same_bytes"] else "other bytes"]
    notes += ["across splits"] if group["across_splits"] else []
    notes += [f"labels differ in {', '.join(group['differing_classes'])}"] if group["differing_classes"] else []
    return f"{images}: {', '.join(notes)}"
