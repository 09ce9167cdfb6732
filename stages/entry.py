"""How every stage starts: tied to the DVC that runs it, arguments from its function's signature, errors in one line.

A stage imports this module before all others: those take seconds to load, in which DVC may die.
"""

import argparse
import ctypes
import inspect
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pipeline.core.arguments import whole_number
from pipeline.core.errors import SpmlError
from pipeline.core.text import prefixed, show_text

TEMPLATES = Path(__file__).parent / "templates"
"""Folder of the stages' summaries, ``<stage>.md.j2``."""


def die_with_parent() -> None:
    """Ask Linux to stop this process when DVC dies, so that no orphan goes on writing outs beside a new run.

    Where DVC has died already, this process ends here.
    """
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if "DVC_STAGE" in os.environ and not _has_dvc_above(os.getppid()):
            sys.exit("DVC has ended; so does its stage")


def _has_dvc_above(process: int, processes: Path = Path("/proc")) -> bool:
    """Return whether a process, or one that it descends from, is DVC: wrappers of a stage's command may lie between."""
    try:
        while process > 0:
            program, *_ = (processes / str(process) / "cmdline").read_bytes().split(b"\0")
            if b"python" in program or b"dvc" in program:
                return True
            status = (processes / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
            process = int(status.rpartition(")")[2].split()[1])
    except (OSError, ValueError):  # nobody can tell
        return True
    return False


main = sys.modules["__main__"].__spec__  # None of a script or an interpreter
if main is not None and main.name.startswith("stages."):
    die_with_parent()


def run(stage: Callable[..., None], argv: list[str] | None = None) -> None:
    """Run a stage from the command line, in the current folder.

    Args:
        stage: Its function: ``root`` first, then names and numbers; parameters with a default become ``--options``.
        argv: Arguments; None: the process's.

    A known fault ends the process with one line.
    """
    arguments = _parser(stage).parse_args(argv)
    started = time.monotonic()
    try:
        stage(Path("."), **vars(arguments))
    except SpmlError as error:
        sys.exit(show_text(prefixed(stage.__name__, str(error))))
    except KeyboardInterrupt:
        print(f"{stage.__name__}: interrupted; run it again to go on", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    _note_seconds(stage.__name__, list(map(str, vars(arguments).values())), time.monotonic() - started)


def _parser(stage: Callable[..., None]) -> argparse.ArgumentParser:
    module = sys.modules[stage.__module__].__doc__ or stage.__doc__ or ""
    parser = argparse.ArgumentParser(prog=f"python -m stages.{stage.__name__}", description=module.partition("\n")[0])
    for name, parameter in list(inspect.signature(stage).parameters.items())[1:]:
        if parameter.default is inspect.Parameter.empty:
            parser.add_argument(name, type=whole_number(0) if parameter.annotation is int else _name)
        elif isinstance(parameter.default, bool):
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", type=_name, default=parameter.default)
    return parser


def _name(text: str) -> str:
    """Return the name of a dataset or a method, or the key of a variant: never a path.

    Raises:
        ArgumentTypeError: It is none.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*(-[a-z0-9_]+)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of [a-z0-9_]")
    return text


def _note_seconds(stage: str, names: list[str], seconds: float) -> None:
    """Append the stage's wall time to a log that is no stage's out: outs hold no times."""
    log = Path(".pipeline") / "seconds.tsv"
    try:
        log.parent.mkdir(exist_ok=True)
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{stage}\t{' '.join(name for name in names if name != 'None')}\t{seconds:.1f}\n")
    except OSError as error:  # the stage is done all the same
        print(f"{stage}: its time was not noted in {log} ({error.strerror or error})", file=sys.stderr)
