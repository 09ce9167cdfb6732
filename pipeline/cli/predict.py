"""``spml predict``: label pictures by a bundled model, one row an image; needs no project."""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.cli.verbs import Failed, Verbs
from pipeline.core.arguments import whole_number
from pipeline.core.errors import ConfigError
from pipeline.core.faults import pluralize

if TYPE_CHECKING:
    from pipeline.bundles.predict import Prediction


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser(
        "predict",
        help="label pictures by a bundled model",
        description="Label pictures by a bundle of `spml model`: one row an image, in the order given: path, labels, "
        "error, a score for each class. Broken pictures become rows with an error. Exit status: 0; 1 if a picture is "
        "broken, or after an error; 2 wrong usage.",
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="folder of a bundle")
    parser.add_argument(
        "images",
        metavar="IMAGES",
        nargs="+",
        help="pictures; folders, read at any depth and in order of names, but for those of systems; .csv or .tsv files "
        "with a column `path`, counted from their folder, whose other columns are kept",
    )
    parser.add_argument("--to", metavar="FILE", type=Path, help=".csv, .jsonl or .parquet; by default a csv is printed")
    parser.add_argument(
        "--threshold",
        metavar="T",
        help="a probability as 0.5, or a rule of the model, as `matching`; by default the rule that the model names",
    )
    parser.add_argument(
        "--top-k",
        metavar="K",
        type=whole_number(1, 9_999_999),
        help="only the K highest scores, with the names of their classes",
    )
    parser.add_argument(
        "--batch",
        metavar="N",
        type=whole_number(1, 9_999_999),
        default=64,
        help="pictures at a time (default: %(default)s)",
    )
    return parser


def run(options: argparse.Namespace) -> Iterator[str]:
    """Label pictures.

    Args:
        options: What the parser read.

    Yields:
        Lines of a csv, where no file is named; else a line that counts.

    Raises:
        Failed: A picture is broken.
        ConfigError: The output is one of the inputs.
    """
    from pipeline.bundles import rows  # these load torch
    from pipeline.bundles.pictures import list_pictures
    from pipeline.bundles.predict import predict
    from pipeline.bundles.read import read_model

    if options.to and any(options.to.resolve() == Path(place).resolve() for place in options.images):
        raise ConfigError(f"--to: {options.to} would overwrite what it is made from; name another file")
    write = rows.choose_writer(options.to) if options.to else None
    listed = list_pictures(options.images)
    model = read_model(options.model)
    rule = _read_threshold(options.threshold)
    thresholds = model.thresholds(rule)
    columns = rows.Columns(model.about.classes, listed.columns, options.top_k)
    for warning in listed.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    broken: list[Prediction] = []

    def make_rows() -> Iterator[dict]:
        for made in predict(model, listed.pictures, thresholds, options.batch):
            broken.extend([made] * (made.error is not None))
            yield columns.row(made)

    began = time.monotonic()
    if write is None:
        yield from rows.csv_lines(columns, make_rows())
    else:
        write(options.to, columns, make_rows())
    seconds = max(time.monotonic() - began, 1e-9)
    count = len(listed.pictures)
    line = (
        f"{pluralize(count, 'image')}, {len(broken)} broken; {seconds:,.1f} s, {count / seconds:,.0f} images a second"
    )
    if rule is None or isinstance(rule, str):
        name = rule or model.about.thresholds.chosen
        print(f"labels by `{name}`: {model.about.thresholds.rules[name].how}", file=sys.stderr)
    print(line if write is None else f"{options.to}: {line}", file=sys.stderr)
    if broken:
        raise Failed


def _read_threshold(text: str | None) -> str | float | None:
    """Return a probability where a number was written, else the name of a rule as it is."""
    try:
        return float(text) if text is not None else None
    except ValueError:
        return text
