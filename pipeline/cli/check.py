"""``spml check``: find in seconds what would fail after hours; all problems at once, each with its key."""

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from pipeline.cli.verbs import Failed, Verbs
from pipeline.core.errors import ConfigError
from pipeline.core.faults import pluralize
from pipeline.core.text import show_text

SHOWN = 3
"""Paths of removed runs that a note names."""


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser("check", help="check params.yaml, the graph and the raw data before anything runs")
    parser.add_argument(
        "--remove-leftovers",
        action="store_true",
        help="delete what DVC made for runs and draws that params.yaml no longer asks for, once there is no problem",
    )
    parser.add_argument("--yes", action="store_true", help="with --remove-leftovers: delete without asking")
    return parser


def find_problems(root: Path) -> tuple[list[str], list[Path]]:
    """Run the preflight, which prints what a run will take.

    Args:
        root: Project root.

    Returns:
        One line for each problem, and the folders that removed runs left.
    """
    from pipeline.config import graph, preflight  # load torch and DVC, which the other verbs do without
    from pipeline.config.params import read_project

    try:
        params, last = read_project(root), graph.LastRun(root)
    except ConfigError as error:
        return str(error).splitlines(), []
    problems, leftovers = graph.check(root, params, last)
    return [*preflight.check(root, params, last, _tell), *problems], leftovers


def _tell(line: str) -> None:
    print(show_text(line))


def run(options: argparse.Namespace) -> Iterator[str]:
    """Check the project in the current folder; problems and notes go to standard error.

    Args:
        options: What the parser read.

    Yields:
        What was removed, and that there is no problem.

    Raises:
        Failed: There are problems.
    """
    problems, leftovers = find_problems(Path())
    for problem in problems:
        print(show_text(f"error: {problem}"), file=sys.stderr)
    if problems:  # a fault in params.yaml may be why runs are not asked for, so leftovers are neither named nor deleted
        kept = " or deleted" if options.remove_leftovers else ""
        print(f"{pluralize(len(problems), 'problem')}; nothing was run{kept}", file=sys.stderr)
        raise Failed
    if options.remove_leftovers and leftovers:
        yield from delete_leftovers(leftovers, sure=options.yes)
    elif leftovers:
        more = f" and {len(leftovers) - SHOWN} more" if len(leftovers) > SHOWN else ""
        print(
            f"note: results of another profile or of earlier settings, {', '.join(map(str, leftovers[:SHOWN]))}{more}, "
            "are kept; they change no result, and going back takes them up again. `spml check --remove-leftovers` "
            "deletes them.",
            file=sys.stderr,
        )
    yield "params.yaml, dvc.yaml and raw data: no problem found"


def delete_leftovers(paths: list[Path], *, sure: bool) -> Iterator[str]:
    """Delete what removed runs left, once a person agrees.

    Args:
        paths: Folders and files.
        sure: Whether to delete without asking.

    Yields:
        What is going to be deleted, where it is asked; then what was.

    Raises:
        Failed: Nobody can be asked, or the answer is no.
    """
    if not sure:
        yield from (f"left by a removed run: {path}" for path in paths)
        what = "1 path" if len(paths) == 1 else f"these {len(paths)} paths"
        if not sys.stdin.isatty():
            print(f"nothing was deleted: to delete {what}, add --yes", file=sys.stderr)
            raise Failed
        print(f"Delete {what}? DVC's cache keeps what it holds. [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print("nothing was deleted", file=sys.stderr)
            raise Failed
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        yield f"removed {path}"
