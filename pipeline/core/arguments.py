"""Arguments of the command line and of stages."""

import argparse
import re
from collections.abc import Callable


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return what reads a whole number of a range.

    Args:
        least: The least.
        most: The most; None: any of up to 18 digits.
    """
    what = f"from {least:,}" + ("" if most is None else f" to {most:,}")

    def read(text: str) -> int:
        """Return the number.

        Raises:
            ArgumentTypeError: It is none.
        """
        if not re.fullmatch("[0-9]{1,18}", text) or int(text) < least or (most is not None and int(text) > most):
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number {what}")
        return int(text)

    return read
