"""``spml metrics``: how good predictions are against the truth."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.audits.predictions import score_predictions
from pipeline.cli.prediction_files import align_truth, read_predictions, read_truth, truth_of_table
from pipeline.cli.verbs import Verbs, align
from pipeline.core import files
from pipeline.core.arguments import whole_number
from pipeline.core.errors import ConfigError
from pipeline.core.faults import pluralize, preview
from pipeline.labels.table import SPLITS, read_table


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser(
        "metrics",
        help="how good predictions are against the truth",
        description="Compare what `spml predict` wrote with the true labels of the same images, one to one: mAP by "
        "both rules for classes without a positive, CF1 and OF1 of the chosen labels, precision at k, coverage error, "
        "ranking loss, and the average precision of each class, with 95 % intervals of a bootstrap over images. "
        "Everything is stored as JSON too.",
    )
    parser.add_argument(
        "predictions", type=Path, metavar="PREDICTIONS", help=".csv, .jsonl or .parquet of spml predict"
    )
    parser.add_argument(
        "truth",
        metavar="TRUTH",
        help="a .csv or .tsv with all labels of each image, in the layouts that `spml init` reads; or the name of a "
        "dataset of this project",
    )
    parser.add_argument("--split", choices=SPLITS, default="test", help="of a dataset of the project (default: test)")
    parser.add_argument("--path", metavar="COLUMN", help="column of the picture files in TRUTH")
    parser.add_argument("--labels", metavar="COLUMN", help="column of the label names in TRUTH")
    parser.add_argument(
        "--resamples",
        type=whole_number(0, 100_000),
        default=1000,
        metavar="N",
        help="of the bootstrap; 0: no intervals",
    )
    parser.add_argument("--to", type=Path, metavar="FILE", help="the JSON (default: PREDICTIONS-metrics.json)")
    return parser


def run(options: argparse.Namespace) -> Iterator[str]:
    """Score predictions, print the figures and store them.

    Args:
        options: What the parser read.

    Yields:
        Lines of the report.

    Raises:
        ConfigError: The truth is neither a table nor a dataset, or the output is one of the inputs.
        SourceError: A file is faulty, or images of the two differ.
    """  # noqa: DOC502  some raised by the functions below
    output = options.to or options.predictions.with_name(f"{options.predictions.stem}-metrics.json")
    if output.resolve() in (options.predictions.resolve(), Path(options.truth).resolve()):
        raise ConfigError(f"--to: {output} would overwrite what it is made from; name another file")
    predicted = read_predictions(options.predictions)
    table = Path("data/prepare") / options.truth / "table.h5"
    if Path(options.truth).is_file():
        truth = read_truth(Path(options.truth), predicted.paths, options.path, options.labels)
    elif table.is_file():
        truth = truth_of_table(read_table(table), options.split)
    else:
        raise ConfigError(f"{options.truth}: neither a table of labels nor a dataset that this project has prepared")
    truth = align_truth(predicted, truth, options.predictions.name)
    found = score_predictions(truth.labels, predicted.scores, predicted.chosen, truth.known, options.resamples)
    for name, row in zip(predicted.classes, found["classes"], strict=True):
        row["name"] = name
    found |= {"images": len(predicted.paths), "broken": predicted.broken, "unknown_cells": int((~truth.known).sum())}
    files.write_json(output, found | {"resamples": options.resamples})
    yield from format_figures(found)
    yield f"{output}: all of it"


def format_figures(found: dict[str, Any]) -> Iterator[str]:
    """Format figures for a terminal.

    Args:
        found: What `score_predictions` returned, with the names of classes, ``images``, ``broken`` and
            ``unknown_cells``.

    Yields:
        Lines.
    """
    present = sum(row["ap"] is not None for row in found["classes"])
    classes = len(found["classes"])
    yield f"{pluralize(found['images'], 'image')}, {pluralize(classes, 'class', 'classes')}"
    if found["broken"]:
        yield f"left out, since they have an error: {preview(found['broken'])}"
    if found["unknown_cells"]:
        yield f"left out, since nobody knows them: {found['unknown_cells']:,} of {found['images'] * classes:,} labels"
    yield ""
    ends, of = found["intervals"], f"over the {present} of {classes} that can be ranked" if present < classes else ""
    rows = [("mAP", _number(found["map"]), _interval(ends["map"]), of)]
    rows += [("mAP, absent classes 0", _number(found["map_absent_zero"]), "", "")]
    for kind, words in (("c", "mean over classes"), ("o", "all labels together")):
        precision, recall = (_number(found[f"{kind}{part}"]) for part in "pr")
        of = f"precision {precision}, recall {recall}, {words}"
        rows.append((f"{kind.upper()}F1", _number(found[f"{kind}f1"]), _interval(ends[f"{kind}f1"]), of))
    rows += [(f"precision at {k}", _number(value), "", "") for k, value in found["precision_at"].items()]
    rows.append(("coverage error", _number(found["coverage_error"]), "", "classes down to the last label of an image"))
    rows.append(("ranking loss", _number(found["ranking_loss"], 4), "", ""))
    yield from align(rows, colalign=("left", "right", "left", "left"))
    yield ""
    head = ("class", "images", "chosen", "AP", "95 %")
    lines = [
        (row["name"], str(row["support"]), str(row["chosen"]), _number(row["ap"]), _interval(row["interval"]))
        for row in found["classes"]
    ]
    yield from align([head, *lines], colalign=("left", "right", "right", "right", "left"))
    yield ""


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _interval(ends: list[float] | None) -> str:
    return "" if ends is None else f"{ends[0]:.1f} to {ends[1]:.1f}"
