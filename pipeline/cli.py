"""The project's command line: ``spml VERB``, or ``python -m pipeline.cli VERB``."""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pipeline import storage
from pipeline.config import ConfigError
from pipeline.show import show
from pipeline.storage import StorageError


def _rows(text: str) -> int:
    """Return a count of rows.

    Raises:
        ArgumentTypeError: It is below 0.
    """
    if (rows := int(text)) < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return rows


def parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    top = argparse.ArgumentParser(
        prog="spml", description="Learn multi-label classifiers from one positive label per image."
    )
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    verb = verbs.add_parser(
        "show",
        help="show a stage's output: arrays, tables, weights",
        description="Show a stage's output file or folder: the tree of an HDF5 file with shapes, axes, units, first "
        "rows and counts by class; tables, JSON and summaries; names and shapes of weights.",
    )
    verb.add_argument("path", type=Path, help="file or folder, such as runs/finetune/digits-em-0")
    verb.add_argument("--rev", metavar="REV", help="show it as of this commit, from DVC's cache, without a checkout")
    verb.add_argument("--rows", metavar="N", type=_rows, default=5, help="first rows to show (default: %(default)s)")
    verb = verbs.add_parser(
        "methods",
        help="list the methods: year, idea, needs",
        description="List the methods by year, oracles last: idea, what each needs beyond one label per image, and "
        "whether it is told how many labels an image has on average.",
    )
    form = verb.add_mutually_exclusive_group()
    form.add_argument("--plain", action="store_true", help="aligned columns for a terminal instead of Markdown")
    form.add_argument("--write", metavar="FILE", type=Path, help="put the table in place of the one that FILE holds")
    return top


def _show(options: argparse.Namespace) -> Iterator[str]:
    return show(options.path, options.rev, options.rows)


def _methods(options: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the table, or what was written.

    Raises:
        ConfigError: The file has no table to replace, or a method's docstring has another form.
        StorageError: The file cannot be read.
    """
    from pipeline import catalogue  # loads torch, which the other verbs do without

    rows = catalogue.entries()
    if options.write is None:
        yield from (catalogue.plain if options.plain else catalogue.markdown)(rows)
        return
    try:
        text = options.write.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{options.write}: {error}") from error
    try:
        storage.write_text(options.write, catalogue.replaced(text, catalogue.markdown(rows)))
    except ConfigError as error:
        raise ConfigError(f"{options.write}: {error}") from error
    yield f"{options.write}: {len(rows)} methods"


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Words after the program's name; None: the process's own.

    Returns:
        Exit status: 0, or 1 after an error that was printed.
    """
    options = parser().parse_args(argv)
    try:
        for line in {"show": _show, "methods": _methods}[options.verb](options):
            print(line)
        sys.stdout.flush()
    except (StorageError, ConfigError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `spml show … | head` closed the pipe: nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
