"""The project's command line: ``spml VERB``, or ``python -m pipeline.cli VERB``; one file of this folder a verb."""

import argparse
import io
import os
import signal
import sys

from pipeline.cli import (
    backbones,
    check,
    check_data,
    init,
    methods,
    metrics,
    model,
    predict,
    profile,
    review,
    scratch,
    show,
    train,
    verify,
)
from pipeline.cli.verbs import Failed
from pipeline.core.errors import SpmlError
from pipeline.core.text import show_text

VERBS = (
    init,
    check_data,
    train,
    model,
    predict,
    show,
    review,
    metrics,
    methods,
    backbones,
    scratch,
    check,
    profile,
    verify,
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    top = argparse.ArgumentParser(
        prog="spml", description="Learn multi-label classifiers from one positive label per image."
    )
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        verb.add_parser(verbs).set_defaults(run=verb.run)
    return top


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
    try:
        for line in options.run(options):
            print(show_text(line))
        sys.stdout.flush()
    except Failed:
        return 1
    except SpmlError as error:
        print(show_text(f"error: {error}"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # `spml show … | head` closed the pipe: nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
