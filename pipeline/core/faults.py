"""Telling what is wrong in data: all of it at once, in words; and which names can be those of classes."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from pipeline.core.errors import SourceError

SHOWN = 20  # of many offenders, this many are named


def some(names: Sequence[str]) -> str:
    """Join names for a message.

    Args:
        names: The names.

    Returns:
        The first `SHOWN` of them, printable, and how many more there are.
    """
    return ", ".join(map(printable, names[:SHOWN])) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def counted(names: Sequence[str]) -> dict[str, Any]:
    """Give names in the form that a report holds them.

    Args:
        names: The names.

    Returns:
        `count`, and under `first` at most `SHOWN` of them, printable.
    """
    return {"count": len(names), "first": [printable(name) for name in names[:SHOWN]]}


def number(count: int, one: str, many: str | None = None) -> str:
    """Give a number with its noun, for a message.

    Args:
        count: The number.
        one: The noun of one.
        many: That of others; None: with an s.

    Returns:
        As in `1 image` and `2 images`.
    """
    return f"{count} {one if count == 1 else many or one + 's'}"


def printable(name: str) -> str:
    r"""Return a file's name in a form that can be shown and stored, with \xff for what is no UTF-8.

    Args:
        name: The name, as Python reads it from disk.
    """
    with suppress(UnicodeEncodeError):  # another lone surrogate, which no disk gives
        name = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


class FaultyData(SourceError):
    """Raw data have faults; the message names the first of each kind.

    Args:
        message: The message.
        every: A line for each fault, for whoever wants them all.
    """

    def __init__(self, message: str, every: list[str]):
        super().__init__(message)
        self.every = every


class Faults:
    """What is wrong in raw data: all of it is gathered, so that it can be mended at once.

    Args:
        file: How messages call the data.
    """

    def __init__(self, file: str):
        self.file = file
        self._found: dict[tuple[str, str], list[str]] = {}
        self._lines: list[str] = []
        self._every: list[str] = []

    def __bool__(self) -> bool:
        """Tell whether there are any.

        Returns:
            Whether `stop` raises.
        """
        return bool(self._found or self._lines)

    def add(self, kind: str, what: str, file: str = "") -> None:
        """Note one fault.

        Args:
            kind: What is wrong, in the plural.
            what: Where, and with which value.
            file: Which of the data, where `self.file` is not said.
        """
        self._found.setdefault((file or self.file, kind), []).append(what)

    def join(self, error: SourceError) -> None:
        """Note what somebody else found.

        Args:
            error: As it was raised; its message is kept as it is.
        """
        self._lines.append(str(error))
        self._every += error.every if isinstance(error, FaultyData) else [str(error)]

    def stop(self) -> None:
        """Go on only if there is none.

        Raises:
            FaultyData: there are some; a line for each kind says how many, where they are several, and names the first.
        """
        if self:
            found = self._found.items()
            single = {kind: re.sub(r"^of (the )?\d+ ", "", kind) for _, kind in self._found}  # nothing is counted there
            lines = [
                f"{file}: {f'{len(told)} {kind}' if len(told) > 1 else single[kind]}: {some(told)}"
                for (file, kind), told in found
            ]
            every = [f"{file}: {single[kind]}: {what}" for (file, kind), told in found for what in told]
            raise FaultyData("\n".join(lines + self._lines), every + self._every)


def class_name(text: str) -> str:
    """Bring the name of a class to its one form.

    Args:
        text: The name, as data or settings hold it.

    Returns:
        It, in NFC and without blanks around it.
    """
    return unicodedata.normalize("NFC", text).strip()


def usable(name: str) -> bool:
    """Tell whether a text can name a class.

    Args:
        name: The text.

    Returns:
        Whether it is not empty, in the form of `class_name`, and can be shown and stored.
    """
    odd = any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name)
    return bool(name) and name == class_name(name) and not odd


def check_names(names: Iterable[str], faults: Faults, file: str) -> None:
    """Note texts that cannot name a class.

    Args:
        names: The texts.
        faults: Get what is noted.
        file: What holds them.
    """
    for name in names:
        if not usable(name):
            faults.add("names of classes are empty, padded or hold control characters", repr(name), file)
