"""``spml scratch``: list or delete the resume points that interrupted runs left."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from pipeline.cli.verbs import Verbs
from pipeline.core import resume
from pipeline.core.faults import pluralize


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser(
        "scratch",
        help="list or delete what interrupted runs left",
        description="List the resume points of training runs and of packing (prepare) that were interrupted, with the "
        "space that they take. A run that is started again goes on from its own where settings, inputs and code are "
        "the same, and deletes it where they are not.",
    )
    parser.add_argument("--clear", action="store_true", help="delete them, but for those that a process is using")
    return parser


def run(options: argparse.Namespace) -> Iterator[str]:
    """List interrupted runs, and delete what they left under ``--clear``.

    Args:
        options: What the parser read.

    Yields:
        Their number and folder, then a line for each.
    """
    folder = resume.scratch_folder(Path())
    runs = resume.list_resume_points(folder)
    lines = [f"{run}: {resume.describe_resume_points(paths)}" for run, paths in runs.items()]
    if options.clear:
        resume.delete_resume_points(path for paths in runs.values() for path in paths)
    yield f"{folder}: {pluralize(len(lines), 'interrupted run')}{' deleted' if options.clear else ''}"
    yield from lines
