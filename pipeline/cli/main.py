"""The project's command line: ``spml VERB``, or ``python -m pipeline.cli VERB``."""

import argparse
import io
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from pipeline.cli import check, check_data, init, profile
from pipeline.cli.show import show
from pipeline.core import files, resume
from pipeline.core.errors import ConfigError, FileError, SourceError


class NotClean(Exception):
    """A dataset has faults, which were printed."""


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
        "init",
        help="write a profile for a folder of your own images",
        description="Look at a folder of images, with one folder for each class or with a .csv, .tsv, .json or .jsonl "
        "of labels, and write profiles/NAME.yaml for it. No picture is opened, nothing is copied.",
    )
    verb.add_argument("folder", type=Path, help="folder of the images, or the file of labels that lies there")
    verb.add_argument("--name", help="name of the dataset (default: made of the folder's)")
    verb.add_argument(
        "--exhaustive", action="store_true", help="the labels of an image are all that apply to it, not just some"
    )
    verb = verbs.add_parser(
        "check-data",
        help="read a dataset whole: every fault, duplicates, counts against the papers'",
        description="Read the lists of a dataset, decode every picture, and list every fault, equal pictures across "
        "splits or with different labels, and counts against the published ones, with the papers that this copy "
        "compares with. Nothing is prepared or changed. Exit status: 0 clean, 1 not clean or params.yaml not valid, "
        "2 wrong usage. Faults make it unclean, warnings only with --strict.",
    )
    verb.add_argument("dataset", help="name in `prepare` of params.yaml, or of a profile, which need not be applied")
    verb.add_argument("--root", metavar="FOLDER", help="folder of the raw data: replaces prepare.<dataset>.root")
    verb.add_argument(
        "--strict",
        action="store_true",
        help="warnings count as faults, such as equal pictures, or labels that are not exhaustive",
    )
    verb.add_argument("--json", metavar="FILE", type=Path, help="write all of it to this file too, every name included")
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
    verb = verbs.add_parser(
        "scratch",
        help="list or delete what interrupted runs left",
        description="List the resume points of training runs and of packing (prepare) that were interrupted, with the "
        "space that they take. A run that is started again goes on from its own where settings, inputs and code are "
        "the same, and deletes it where they are not.",
    )
    verb.add_argument("--clear", action="store_true", help="delete them, but for those that a process is using")
    verb = verbs.add_parser("check", help="check params.yaml, the graph and the raw data before anything runs")
    verb.add_argument("--remove-leftovers", action="store_true", help="delete the folders of removed runs")
    verb = verbs.add_parser("profile", help="write params.yaml from a profile")
    verb.add_argument("name", help="a file of profiles/, without .yaml")
    verb.add_argument("--root", metavar="FOLDER", help="folder of the raw data: replaces prepare.<dataset>.root")
    verb.add_argument("--force", action="store_true", help="overwrite edits, after a copy to params.yaml.bak")
    return top


def _init(options: argparse.Namespace) -> Iterator[str]:
    """Write a profile and yield what was found and what to do next.

    Raises:
        ConfigError: The folder's labels are not understood, or the name is in use.
        SourceError: The labels are faulty.
    """
    found = init.find(options.folder, options.exhaustive)
    folder = (options.folder.parent if options.folder.is_file() else options.folder).resolve()
    name = options.name or re.sub("[^a-z0-9]+", "_", folder.name.lower()).strip("_")
    profile = Path("profiles") / f"{name}.yaml"
    if profile.exists():
        raise ConfigError(f"{profile} is there; give another name by --name, or delete it")
    root = str(folder)
    used = init.taken(Path(), root)
    data = init.read(root, found)
    files.write_text(profile, init.write(name, root, found, data.table, used))
    lines, warnings = init.told(found, data)
    yield f"{profile}: source {found['source']}, labels {'' if options.exhaustive else 'not '}exhaustive"
    yield from lines
    yield from (f"warning: {warning}" for warning in warnings)
    heed = f"look at the warning{'' if len(warnings) == 1 else 's'} above, then: " if warnings else ""
    yield f"next: {heed}make repro PROFILE={name}"


def _check_data(options: argparse.Namespace) -> Iterator[str]:
    """Yield what was found.

    Raises:
        ConfigError: The dataset's settings are missing or not valid, or its folder is not named.
        NotClean: There is a fault, or a warning under ``--strict``.
    """
    report = check_data.check(Path("."), options.dataset, options.root)
    clean = check_data.clean(report, options.strict)
    if options.json is not None:
        files.write_json(options.json, report | {"clean": clean})
    yield from check_data.told(report, options.strict)
    if not clean:
        raise NotClean


def _show(options: argparse.Namespace) -> Iterator[str]:
    return show(options.path, options.rev, options.rows)


def _methods(options: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the table, or what was written.

    Raises:
        ConfigError: The file has no table to replace, or a method's docstring has another form.
        FileError: The file cannot be read.
    """
    from pipeline.cli import methods  # loads torch, which the other verbs do without

    rows = methods.entries()
    if options.write is None:
        yield from (methods.plain if options.plain else methods.markdown)(rows)
        return
    try:
        text = options.write.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{options.write}: {error}") from error
    try:
        files.write_text(options.write, methods.replaced(text, methods.markdown(rows)))
    except ConfigError as error:
        raise ConfigError(f"{options.write}: {error}") from error
    yield f"{options.write}: {len(rows)} methods"


def _scratch(options: argparse.Namespace) -> Iterator[str]:
    place = resume.scratch(Path("."))
    left = resume.left(place)
    lines = [f"{run}: {resume.describe(paths)}" for run, paths in left.items()]
    if options.clear:
        resume.remove(path for paths in left.values() for path in paths)
    yield f"{place}: {len(lines)} interrupted run{'' if len(lines) == 1 else 's'}{' deleted' if options.clear else ''}"
    yield from lines


def _check(options: argparse.Namespace) -> Iterator[str]:
    """Yield what was removed.

    Raises:
        NotClean: There are problems, which were printed.
    """
    yield from ()
    if check.main(["--remove-leftovers"] if options.remove_leftovers else []):
        raise NotClean


def _profile(options: argparse.Namespace) -> Iterator[str]:
    profile.apply(Path("."), options.name, options.root, force=options.force)
    yield f"params.yaml: profile {options.name}" + (f", raw data in {options.root}" if options.root else "")


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Words after the program's name; None: the process's own.

    Returns:
        Exit status: 0, 1 after an error or a fault in data that was printed, or 130 after an interrupt.
    """
    options = parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may be no UTF-8
    verbs = {
        "init": _init,
        "check-data": _check_data,
        "show": _show,
        "methods": _methods,
        "scratch": _scratch,
        "check": _check,
        "profile": _profile,
    }
    try:
        for line in verbs[options.verb](options):
            print(line)
        sys.stdout.flush()
    except NotClean:
        return 1
    except (FileError, ConfigError, SourceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # `spml show … | head` closed the pipe: nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
