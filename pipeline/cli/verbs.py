"""What the verbs share: where they add their parsers, how they fail when all was said, and aligned columns."""

import argparse
from collections.abc import Sequence
from typing import Any, TypeAlias

from tabulate import tabulate

Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class Failed(Exception):
    """The verb's answer is no, and it has printed why: exit status 1."""


def align(rows: Sequence[Sequence[Any]], indent: str = "", colalign: Sequence[str] | None = None) -> list[str]:
    """Return rows as lines of aligned columns, as they are: numbers keep their digits.

    Args:
        rows: Cells of each row; a shorter row ends early.
        indent: What each line starts with.
        colalign: left or right for each column; None: left.
    """
    text = tabulate(rows, tablefmt="plain", disable_numparse=True, colalign=colalign)
    return [(indent + line).rstrip() for line in text.splitlines()]
