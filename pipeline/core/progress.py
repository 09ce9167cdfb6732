"""Progress of long loops: a bar in a terminal, elsewhere a line now and then, as in a log."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

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


def track(batches: Sequence[T], name: str, done: int, total: int) -> Iterator[T]:
    """Yield batches of items, and show how many items are done.

    Args:
        batches: What is left to do; each has a length.
        name: What is done, for the bar or the lines.
        done: Items done before.
        total: Items in all.

    Yields:
        The batches.
    """
    pace, began, before = Pace(), time.monotonic(), done
    with tqdm(total=total, initial=done, desc=name, unit="image", disable=None) as bar:
        for batch in batches:
            yield batch
            done += len(batch)  # type: ignore[arg-type]
            bar.update(len(batch))  # type: ignore[arg-type]
            if bar.disable and pace.is_due():
                rate = (done - before) / max(time.monotonic() - began, 1e-9)
                left = (total - done) / rate
                print(f"{name}: {done:,} of {total:,} images, {rate:,.0f} a second, {left:,.0f} s left", flush=True)
