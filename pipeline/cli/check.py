"""``spml check``: find in seconds what would fail after hours; all problems at once, each with its key."""

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from pipeline.cli.verbs import Failed, Verbs
from pipeline.core.errors import ConfigError
from pipeline.core.faults import pluralize

SHOWN = 3
"""Folders of removed runs that a warning names."""


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser("check", help="check params.yaml, the graph and the raw data before anything runs")
    parser.add_argument("--remove-leftovers", action="store_true", help="delete the folders of removed runs")
    return parser


def find_problems(root: Path) -> tuple[list[str], list[Path]]:
    """Run the preflight.

    Args:
        root: Project root.

    Returns:
        One line for each problem, and the folders that removed runs left.
    """
    from pipeline.config import graph, preflight  # load torch and DVC, which the other verbs do without
    from pipeline.config.params import read_project

    try:
        params = read_project(root)
    except ConfigError as error:
        return str(error).splitlines(), []
    problems, leftovers = graph.check(root, params)
    return [*preflight.check(root, params), *problems], leftovers


def run(options: argparse.Namespace) -> Iterator[str]:
    """Check the project in the current folder; problems and warnings go to standard error.

    Args:
        options: What the parser read.

    Yields:
        What was removed, and that there is no problem.

    Raises:
        Failed: There are problems.
    """
    problems, leftovers = find_problems(Path())
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if options.remove_leftovers:
        for path in leftovers:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
            yield f"removed {path}"
    elif leftovers and not problems:  # a fault in params.yaml may be why their runs are not asked for
        more = f" and {len(leftovers) - SHOWN} more" if len(leftovers) > SHOWN else ""
        print(
            f"warning: left by runs that params.yaml no longer asks for: {', '.join(map(str, leftovers[:SHOWN]))}{more}"
            "; nothing shows them, but they lie in folders that analyses depend on. `spml check --remove-leftovers` "
            "deletes them.",
            file=sys.stderr,
        )
    if problems:
        print(f"{pluralize(len(problems), 'problem')}; nothing was run", file=sys.stderr)
        raise Failed
    yield "params.yaml, dvc.yaml and raw data: no problem found"
