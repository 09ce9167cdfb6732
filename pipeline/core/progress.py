"""Progress of long loops: a bar in a terminal, elsewhere a line now and then, as in a log."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tqdm import tqdm

INTERVAL = 30.0
"""Seconds between two lines."""

T = TypeVar("T")


class Pace:
    """Says when a line is due: always in a terminal, elsewhere once in `INTERVAL` seconds."""

    def __init__(self) -> None:
        self.told = time.monotonic()

    def is_due(self) -> bool:
        """Return whether to print a line now; a yes counts as printed."""
        now = time.monotonic()
        if not sys.stdout.isatty() and now - self.told < INTERVAL:
            return False
        self.told = now
        return True


def track(
    items: Iterable[T],
    name: str,
    total: int,
    unit: str,
    *,
    done: int = 0,
    size: Callable[[T], int] | None = None,
    quiet: bool = False,
) -> Iterator[T]:
    """Yield items, and show how many are done: a bar where standard error is a terminal, else a line in `INTERVAL`.

    Args:
        items: What is left to do.
        name: What is done, for the bar or the lines.
        total: How many there are in all.
        unit: What one is called.
        done: How many were done before.
        size: How many an item counts for, as a batch does; None: one.
        quiet: Whether to show nothing.

    Yields:
        The items.
    """
    began, before = time.monotonic(), done
    told = began
    with tqdm(total=total, initial=done, desc=name, unit=unit, leave=False, disable=True if quiet else None) as bar:
        for item in items:
            yield item
            count = size(item) if size else 1
            done += count
            bar.update(count)
            now = time.monotonic()
            if bar.disable and not quiet and now - told >= INTERVAL:
                told, each = now, (now - began) / max(done - before, 1)
                pace = f"{1 / each:,.0f} a second" if each <= 1 else f"{each:,.1f} s each"
                line = f"{name}: {done:,} of {total:,} {unit}s, {pace}, {(total - done) * each:,.0f} s left"
                print(line, file=sys.stderr, flush=True)


@contextmanager
def status_line() -> Iterator["tqdm[Any]"]:
    """Yield a line whose text may change, shown where standard error is a terminal: ``set_description_str`` sets it."""
    with tqdm(total=0, bar_format="{desc}", leave=False, disable=None, dynamic_ncols=True) as bar:
        yield bar
