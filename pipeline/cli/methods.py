"""The table of methods, from each module's docstring and class literals: what the method is about and what it needs.

A docstring's first line is ``NAME: idea.`` with an idea of at most six words; its paragraph ``Source:`` holds the year
and ends with the line ``Authors' code:``.
"""

import re
import sys
from dataclasses import astuple, dataclass

from pipeline.core.errors import ConfigError
from pipeline.methods.shared import base
from pipeline.methods.shared.base import Method
from pipeline.networks.settings import HEAD_GIVES

COLUMNS = ("name", "year", "idea", "needs", "knows the label density", "file")
WORDS = 6
"""Words of an idea, at most."""

_LABELS = {"single": "", "all": "all labels", "negatives": "true negatives"}
_VIEWS = ("", "", "two views", "three views", "four views")
_NEEDS: dict[str, str | None] = {
    "maps": "class maps",
    "embeddings": None,  # from the one kind of head that gives it
    "posterior": None,
    "disk": "disk",
    "epoch_logits": "extra pass each epoch",
    # Every network gives these, and every stage that reads images:
    "features": "",
    "parameters": "",
    "geometry": "",
    "expected_positives": "",  # has a column of its own
}
_NOTHING = "one label"
_HEADER = f"| {' | '.join(COLUMNS)} |"
_CODE = "Authors' code:"


@dataclass(frozen=True)
class Entry:
    """One row of the table."""

    name: str
    """Name of the module, and of the method in params.yaml."""
    year: int
    """Of the source."""
    idea: str
    needs: str
    """What it takes beyond one label per image, in plain words; else ``one label``."""
    density: bool
    """Whether it is told how many labels an image has on average."""
    file: str
    """Path of the module from the project root."""


def entry(name: str, text: str | None, method: type[Method]) -> Entry:
    """Read one row from a module's docstring and its class.

    Args:
        name: Name of the module.
        text: Its docstring.
        method: Its class.

    Returns:
        The row.

    Raises:
        ConfigError: The docstring has another form; the message names the file and what is missing.
    """
    file = f"pipeline/methods/{name}.py"
    first, _, rest = (text or "").partition("\n")
    if (found := re.fullmatch(r"[^:]+: ([^:]+)\.", first)) is None:
        raise ConfigError(f"{file}: line 1 of the docstring is not `NAME: idea.` (given: {first!r})")
    idea = found[1]
    if (count := len(idea.split())) > WORDS:
        raise ConfigError(f"{file}: line 1 of the docstring holds an idea of {count} words; {WORDS} at most")
    source = re.search(rf"^Source: (.+?)^{_CODE}", rest, re.DOTALL | re.MULTILINE)
    if source is None:
        missing = f"no line `{_CODE}` after `Source:`" if re.search("^Source: ", rest, re.MULTILINE) else "no `Source:`"
        raise ConfigError(f"{file}: the docstring has {missing}")
    years = re.findall(r"\b(?:19|20)\d\d\b", re.sub(r"https?://\S+", "", source[1]))  # 1905.01234 is no year
    if not years:
        raise ConfigError(f"{file}: `Source:` in the docstring names no year")
    return Entry(name, int(years[-1]), idea, _needs(method), "expected_positives" in method.needs, file)


def _needs(method: type[Method]) -> str:
    """Return in plain words what a method takes beyond one label per image."""
    words = [_LABELS[method.labels], _VIEWS[len(method.views)]]
    for need in sorted(method.needs, key=list(_NEEDS).index):
        heads = [kind.replace("_", " ") for kind, gives in HEAD_GIVES.items() if need in gives]
        found = _NEEDS[need]
        words.append(f"own head ({' or '.join(heads)})" if found is None else found)
    return ", ".join(filter(None, words)) or _NOTHING


def entries() -> list[Entry]:
    """Read the rows of all methods.

    Returns:
        By year, then name; oracles, which see more than one label an image, last.

    Raises:
        ConfigError: A docstring has another form.
    """
    rows = []
    for name in base.names():
        method = base.load(name)
        row = entry(name, sys.modules[method.__module__].__doc__, method)
        rows.append((method.labels != "single", row.year, name, row))
    return [row for *_, row in sorted(rows, key=lambda item: item[:3])]


def markdown(rows: list[Entry]) -> list[str]:
    """Return the table of README, line by line."""
    lines = [_HEADER, f"| {' | '.join('---' for _ in COLUMNS)} |"]
    for row in rows:
        link = f"[{row.name}.py]({row.file})"
        cells = [f"`{row.name}`", str(row.year), row.idea, row.needs, _yes(row.density), link]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def plain(rows: list[Entry]) -> list[str]:
    """Return the table for a terminal, in aligned columns."""
    cells = [COLUMNS, *([_yes(cell) if isinstance(cell, bool) else str(cell) for cell in astuple(row)] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(COLUMNS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def replaced(text: str, table: list[str]) -> str:
    """Put the table where a text has an earlier one.

    Args:
        text: A Markdown text that holds a table with this header.
        table: The lines of ``markdown``.

    Returns:
        The text with the new table.

    Raises:
        ConfigError: The text has no such table.
    """
    lines = text.split("\n")
    if _HEADER not in lines:
        raise ConfigError(f"no table of methods to replace: no line is {_HEADER!r}")
    start = end = lines.index(_HEADER)
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return "\n".join([*lines[:start], *table, *lines[end:]])
