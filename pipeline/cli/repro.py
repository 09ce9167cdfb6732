"""``dvc repro``, told by stages: a line for each group of runs of one kind; all that they say goes to a file."""

import os
import re
import selectors
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from pipeline.cli.verbs import Failed
from pipeline.config.graph import read_graph
from pipeline.core.faults import pluralize
from pipeline.core.progress import INTERVAL, status_line
from pipeline.core.text import show_text

LOG = Path(".pipeline/train.log")
"""All that DVC and the stages say, of each call after those before; Git and DVC ignore it."""
LAST = 15
"""Lines of a stage that stopped which are shown."""
TICK = 1.0
"""Seconds after which the time that a stage takes is told anew."""
GRACE = 20.0
"""Seconds that a stage has after an interrupt, to say where it stopped."""
_BEGINS = re.compile(r"Running stage '([^']+)':")
_FAILS = re.compile(r"ERROR: failed to reproduce '([^']+)'")
_STAYS = re.compile(r"Stage '([^']+)' (?:didn't change|is cached)\b")
_CHATTER = ("> ", "Generating lock file", "Updating lock file")


class Account:
    """What has become of the stages, by what DVC says of them.

    Args:
        stages: Names of all stages, as DVC has them: ``prepare@pets``.
    """

    def __init__(self, stages: Sequence[str]) -> None:
        self.names = dict.fromkeys(map(_kind, stages))
        self.totals, self.seen = Counter(map(_kind, stages)), Counter[str]()
        self.stage, self.ran, self.stayed = "", 0, 0
        self.runs, self.began = 0, 0.0
        """Of the group of stages that runs now, and when it began."""
        self.said: deque[str] = deque(maxlen=LAST)

    def read(self, line: str, now: float) -> Iterator[str]:
        """Take a line of DVC or of a stage.

        Args:
            line: The line.
            now: Seconds of a clock.

        Yields:
            A line on the stages that are over, where another kind begins.
        """
        if begins := _BEGINS.fullmatch(line):
            if self.runs and _kind(begins[1]) != _kind(self.stage):
                yield from self.end_group(now)
            self.began = self.began if self.runs else now
            self.stage, self.runs, self.ran = begins[1], self.runs + 1, self.ran + 1
            self.said.clear()
            self.seen[_kind(self.stage)] += 1
        elif stays := _STAYS.match(line):
            self.stayed += 1
            self.seen[_kind(stays[1])] += 1
        elif line.strip() and not line.startswith(_CHATTER):
            self.said.append(line)
            if fails := _FAILS.match(line):  # perhaps before it ran: what it reads is not there
                self.stage = fails[1]

    def end_group(self, now: float) -> Iterator[str]:
        """Yield a line on the group of stages that is over, if any ran."""
        if self.runs:
            kind = _kind(self.stage)
            runs = f"  {pluralize(self.runs, 'run')}" if self.totals[kind] > 1 else ""
            yield f"  {kind:<{max(map(len, self.names))}} {now - self.began:6,.0f} s{runs}"
        self.runs = 0

    def describe_now(self, now: float) -> str:
        """Return which stage runs, for how long, and what it said last."""
        kind = _kind(self.stage)
        number = f" {self.seen[kind]} of {self.totals[kind]}" if self.totals[kind] > 1 else ""
        said = f": {self.said[-1].removeprefix(f'{kind} ')}" if self.said else ""
        return f"  {kind or 'dvc'}{number}, {now - self.began if self.runs else 0:,.0f} s{said}"


def _kind(stage: str) -> str:
    """Return what a stage does, of its name in the graph."""
    return stage.partition("@")[0].removesuffix("_variant")


def repro(verbose: bool, forced: str | None = None) -> Iterator[str]:
    """Run what is stale, as `make repro` does.

    Args:
        verbose: Whether DVC and the stages speak for themselves.
        forced: A stage that runs alone, whether it is stale or not; None: all that are.

    Yields:
        A line for each group of stages of one kind, and how many there were.

    Raises:
        Failed: A stage stopped; it is named, with its last lines.
        KeyboardInterrupt: So did the user, and the stage has ended.
    """
    sys.stdout.flush()  # what was said before comes first, also in a file
    account = Account([str(getattr(stage, "name", stage.addressing)) for stage in read_graph(Path()).stages])
    words = [sys.executable, "-m", "dvc", "repro"] + (["--force", "--single-item", forced] if forced else [])
    to, errors = (None, None) if verbose else (subprocess.PIPE, subprocess.STDOUT)
    with subprocess.Popen(words, env=_environment(), stdout=to, stderr=errors) as process:
        try:
            if verbose:
                process.wait()
            else:
                yield from _tell(process, account)
        except KeyboardInterrupt:
            _let_end(process)
            print("stopped; the same command goes on where it stopped", file=sys.stderr)
            raise
        finally:
            if process.poll() is None:
                process.terminate()  # its stages end with it
    if process.returncode:
        _say_why(process.returncode, account, verbose)
        raise Failed


def _environment() -> dict[str, str]:
    """Return the environment of DVC: the `python` of this one comes first, and stages say at once what they say."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {"GOMP_SPINCOUNT": "20000", "PYTHONUNBUFFERED": "1"} | os.environ | {"PATH": path}


def _tell(process: subprocess.Popen[bytes], account: Account) -> Iterator[str]:
    """Yield a line for each group of stages that is over; show what runs now, in a terminal always, else at times."""
    assert process.stdout is not None
    LOG.parent.mkdir(exist_ok=True)
    told = time.monotonic()
    with open(LOG, "ab") as log, status_line() as bar:
        log.write(f"\n{time.strftime('%Y-%m-%d %H:%M:%S')} spml train\n".encode())
        for line in _read_lines(process.stdout, process):
            now = time.monotonic()
            if line is not None:
                log.write(line.encode(errors="surrogateescape") + b"\n")
                log.flush()
                for over in account.read(line, now):
                    bar.clear()
                    yield over
            bar.set_description_str(show_text(account.describe_now(now)))
            if bar.disable and now - told >= INTERVAL:
                told = now
                yield account.describe_now(now)
    process.wait()
    if not process.returncode:
        yield from account.end_group(time.monotonic())
        yield f"  {account.ran} of {pluralize(account.ran + account.stayed, 'stage')} ran" + (
            ", the others are as they were" if account.stayed else ""
        )


def _read_lines(stream: IO[bytes], process: subprocess.Popen[bytes]) -> Iterator[str | None]:
    """Yield the lines of a process as they come; None where there was none for a while."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            ended = process.poll() is not None  # asked first: what it said last lies in the pipe then
            if not selector.select(0 if ended else TICK):
                if ended:  # what it left behind holds the pipe open
                    break
                yield None
                continue
            if not (piece := os.read(stream.fileno(), 1 << 16)):
                break
            *lines, rest = re.split(rb"[\r\n]", rest + piece)
            yield from (line.decode(errors="surrogateescape") for line in lines)
    if rest:
        yield rest.decode(errors="surrogateescape")


def _let_end(process: subprocess.Popen[bytes]) -> None:
    """Let DVC and its stage, which were interrupted too, end by themselves, but for another interrupt."""
    try:
        rest, _ = process.communicate(timeout=GRACE)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        return
    if rest:
        with open(LOG, "ab") as log:
            log.write(rest)


def _say_why(status: int, account: Account, verbose: bool) -> None:
    """Print why DVC stopped, and what to do."""
    if verbose:
        what = f"dvc repro stopped (exit status {status}); the reason stands above"
    else:
        print(f"{account.stage or 'dvc repro'} stopped; the last that it said:", file=sys.stderr)
        print("\n".join(show_text(f"  {line}") for line in account.said), file=sys.stderr)
        what = f"all that was said is in {LOG} (--verbose shows it as it comes)"
    print(f"{what}. Once it is mended, the same command goes on where it stopped", file=sys.stderr)
