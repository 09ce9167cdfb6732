"""How every stage starts: arguments from its function's signature, threads, and errors in one line."""

import argparse
import ctypes
import inspect
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pipeline.core.errors import SpmlError

TEMPLATES = Path(__file__).parent / "templates"
"""Folder of the stages' summaries, ``<stage>.md.j2``."""


def run(stage: Callable[..., None], argv: list[str] | None = None) -> None:
    """Run a stage from the command line, in the current folder.

    Args:
        stage: Its function: ``root`` first, then names and seeds; parameters with a default become ``--options``.
        argv: Arguments; None: the process's.

    A known fault ends the process with one line.
    """
    _die_with_parent()
    arguments = _parser(stage).parse_args(argv)
    started = time.monotonic()
    try:
        stage(Path("."), **vars(arguments))
    except SpmlError as error:
        sys.exit(f"{stage.__name__}: {error}")
    except KeyboardInterrupt:
        print(f"{stage.__name__}: interrupted; run it again to go on", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    _note_seconds(stage.__name__, list(map(str, vars(arguments).values())), time.monotonic() - started)


def _parser(stage: Callable[..., None]) -> argparse.ArgumentParser:
    module = sys.modules[stage.__module__].__doc__ or stage.__doc__ or ""
    parser = argparse.ArgumentParser(prog=f"python -m stages.{stage.__name__}", description=module.partition("\n")[0])
    for name, parameter in list(inspect.signature(stage).parameters.items())[1:]:
        if parameter.default is inspect.Parameter.empty:
            parser.add_argument(name, type=parameter.annotation)
        elif isinstance(parameter.default, bool):
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", default=parameter.default)
    return parser


def _die_with_parent() -> None:
    """Ask Linux to stop this process when DVC dies, so that no orphan goes on writing outs beside a new run."""
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _note_seconds(stage: str, names: list[str], seconds: float) -> None:
    """Append the stage's wall time to a log that is no stage's out: outs hold no times."""
    log = Path(".pipeline") / "seconds.tsv"
    log.parent.mkdir(exist_ok=True)
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{stage}\t{' '.join(name for name in names if name != 'None')}\t{seconds:.1f}\n")
