"""Gathering the faults of raw data, so that all of them are told at once; and which names can be those of classes."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pipeline.core.errors import SourceError
from pipeline.core.text import to_printable

SHOWN = 20  # of many offenders, this many are named

# Letters of other scripts, and signs, that most fonts draw as the Latin ones below them; Unicode's own list
# (UTS 39) also takes plain Latin letters and digits for each other, which names of types and letters cannot bear.
_OTHERS = "АВЕКМНОРСТУХЅІЈԌаеорсухѕіјһԁԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧονɑɡıօ‐‒–—−‘’ʼ“”"  # noqa: RUF001
_LATIN = str.maketrans(_OTHERS, "ABEKMHOPCTYXSIJGaeopcyxsijhdqwABEZHIKMNOPTYXovagio-----'''\"\"")


def preview(names: Sequence[str]) -> str:
    """Return the first `SHOWN` names for a message, printable, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(to_printable, names[:SHOWN])) + more


def summarize(names: Sequence[str]) -> dict[str, Any]:
    """Return names for a report: their `count`, and under `first` at most `SHOWN` of them, printable."""
    return {"count": len(names), "first": [to_printable(name) for name in names[:SHOWN]]}


def pluralize(count: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun, as in `1 image` and `2 images`; `many` is the plural where it is not with an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"


class FaultyData(SourceError):
    """Raw data have faults; the message names the first of each kind.

    Args:
        message: The message.
        lines: A line for each fault, for whoever wants them all.
    """

    def __init__(self, message: str, lines: list[str]):
        super().__init__(message)
        self.lines = lines


class Faults:
    """The faults of raw data, gathered so that all of them can be mended at once.

    Args:
        file: How messages call the data.
    """

    def __init__(self, file: str):
        self.file = file
        self._found: dict[tuple[str, str], list[str]] = {}
        self._messages: list[str] = []
        self._lines: list[str] = []

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._found or self._messages)

    def add(self, kind: str, what: str, file: str = "") -> None:
        """Add one fault.

        Args:
            kind: What is wrong, in the plural.
            what: Where, and with which value.
            file: Which of the data, where it is not `self.file`.
        """
        self._found.setdefault((file or self.file, kind), []).append(what)

    def add_error(self, error: SourceError) -> None:
        """Add what was raised elsewhere; its message is kept as it is."""
        self._messages.append(str(error))
        self._lines += error.lines if isinstance(error, FaultyData) else [str(error)]

    def raise_if_any(self) -> None:
        """Raise all faults.

        Raises:
            FaultyData: there are some; a line for each kind says how many, where they are several, and names the first.
        """
        if not self:
            return
        messages, lines = [], []
        for (file, kind), found in self._found.items():
            single = re.sub(r"^of (the )?\d+ ", "", kind)  # without a count before it
            messages.append(f"{file}: {f'{len(found)} {kind}' if len(found) > 1 else single}: {preview(found)}")
            lines += [f"{file}: {single}: {what}" for what in found]
        raise FaultyData("\n".join(messages + self._messages), lines + self._lines)


def normalize_class_name(text: str) -> str:
    """Return the name of a class in its one form: NFC, without blanks around it."""
    return unicodedata.normalize("NFC", text).strip()


def is_class_name(name: str) -> bool:
    """Return whether a text is the name of a class in its one form, not empty, and can be shown and stored."""
    return bool(name) and name == normalize_class_name(name) and to_printable(name) == name


def find_look_alikes(names: Iterable[str], *, case: bool = True) -> list[tuple[str, str]]:
    """Return pairs of names that a reader takes for one: alike but for invisible letters, kinds of blank, or script.

    Plain Latin names are never taken for each other but for their case, so `1`, `l` and `I` stay three.

    Args:
        names: Names of classes.
        case: Whether names that differ in case alone count too; those of one letter never do, as letters.

    Returns:
        Of each group the first name with each other one, in order of appearance.
    """
    first: dict[str, str] = {}
    pairs = []
    for name in dict.fromkeys(names):
        form = unicodedata.normalize("NFKC", name).translate(_LATIN)
        form = " ".join("".join(letter for letter in form if not _is_invisible(letter)).split())
        key = form.casefold() if case and len(form) > 1 else form
        if (other := first.setdefault(key, name)) != name:
            pairs.append((other, name))
    return pairs


def describe_look_alikes(pair: tuple[str, str]) -> str:
    """Return two names for a message, with what is not plain Latin in them spelled out."""
    one, other = (repr(name) if name.isascii() else f"{to_printable(name)!r} ({ascii(name)})" for name in pair)
    return f"{one} and {other}"


def _is_invisible(letter: str) -> bool:
    """Return whether a letter leaves no trace: joiners, soft hyphens, marks of direction, selectors, fillers."""
    return (
        unicodedata.category(letter) == "Cf"
        or letter in "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"
        or ("\ufe00" <= letter <= "\ufe0f")
    )


def find_duplicates(values: Iterable[Any]) -> list[str]:
    """Return what is there more than once, each once, in the order of its first appearance."""
    return [str(value) for value, count in Counter(values).items() if count > 1]


def check_class_names(names: Sequence[str], faults: Faults, file: str, *, case: bool = True) -> None:
    """Add to the faults of a file the names that cannot be those of classes, are there twice, or look alike.

    Args:
        names: Names of classes.
        faults: Get them.
        file: How messages call what holds the names.
        case: As in `find_look_alikes`.
    """
    for name in names:
        if not is_class_name(name):
            faults.add("invalid class names (empty, padded or with control characters)", repr(name), file)
    for name in find_duplicates(names):
        faults.add("duplicate class names", name, file)
    for pair in find_look_alikes(names, case=case):
        faults.add("class names look alike (write one of them)", describe_look_alikes(pair), file)
