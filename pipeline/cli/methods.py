"""``spml methods``: the table of methods, from each module's docstring and class: its idea and what it needs.

A docstring's first line is ``NAME: idea.`` with an idea of at most six words; its paragraph ``Source:`` holds the year
and ends with the line ``Authors' code:``.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.cli.verbs import Verbs, align
from pipeline.core import files, text
from pipeline.core.errors import ConfigError
from pipeline.networks.settings import HEAD_GIVES

if TYPE_CHECKING:
    from pipeline.methods.shared.base import Method  # loads torch, which the other verbs do without

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
    "beliefs": "beliefs",
}
_NOTHING = "one label"
START, END = "<!-- methods -->", "<!-- /methods -->"
"""Lines of a Markdown file between which the table stands."""
_CODE = "Authors' code:"


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser(
        "methods",
        help="list the methods: year, idea, needs",
        description="List the methods by year, oracles last: idea, what each needs beyond one label per image, and "
        "whether it is told how many labels an image has on average.",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--plain", action="store_true", help="aligned columns for a terminal instead of Markdown")
    form.add_argument(
        "--write", metavar="FILE", type=Path, help=f"put the table between the lines {START} and {END} of FILE"
    )
    return parser


def run(options: argparse.Namespace) -> Iterator[str]:
    """List the methods, or write their table into a file.

    Args:
        options: What the parser read.

    Yields:
        The lines of the table, or what was written.

    Raises:
        ConfigError: The file has no place for the table, or a method's docstring has another form.
    """
    rows = read_entries()
    if options.write is None:
        yield from format_plain(rows) if options.plain else format_markdown(rows)
        return
    table = format_markdown(rows, options.write.parent)
    try:
        files.write_text(options.write, replace_table(text.read_text(options.write), table))
    except ConfigError as error:
        raise ConfigError(f"{options.write}: {error}") from error
    yield f"{options.write}: {len(rows)} methods"


# ---------------------------------------------------------------------------------------------- rows
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


def read_entry(name: str, text: str | None, method: "type[Method]") -> Entry:
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


def _needs(method: "type[Method]") -> str:
    """Return in plain words what a method takes beyond one label per image."""
    words = [_LABELS[method.labels], _VIEWS[len(method.views)]]
    for need in sorted(method.needs, key=list(_NEEDS).index):
        heads = [kind.replace("_", " ") for kind, gives in HEAD_GIVES.items() if need in gives]
        found = _NEEDS[need]
        words.append(f"own head ({' or '.join(heads)})" if found is None else found)
    return ", ".join(filter(None, words)) or _NOTHING


def read_entries() -> list[Entry]:
    """Read the rows of all methods.

    Returns:
        By year, then name; oracles, which see more than one label an image, last.

    Raises:
        ConfigError: A docstring has another form.
    """
    from pipeline.methods.shared import base

    rows = []
    for name in base.names():
        method = base.load(name)
        row = read_entry(name, sys.modules[method.__module__].__doc__, method)
        rows.append((method.labels != "single", row.year, name, row))
    return [row for *_, row in sorted(rows, key=lambda item: item[:3])]


# ---------------------------------------------------------------------------------------------- forms
def format_markdown(rows: list[Entry], folder: Path = Path()) -> list[str]:
    """Return the lines of the table in Markdown.

    Args:
        rows: The methods.
        folder: Folder of the file that will hold it, from which its links count.
    """
    lines = [f"| {' | '.join(COLUMNS)} |", f"| {' | '.join('---' for _ in COLUMNS)} |"]
    for row in rows:
        link = f"[{row.name}.py]({Path(os.path.relpath(row.file, folder)).as_posix()})"
        cells = [f"`{row.name}`", str(row.year), row.idea, row.needs, _yes(row.density), link]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def format_plain(rows: list[Entry]) -> list[str]:
    """Return the lines of the table in aligned columns, for a terminal."""
    return align(
        [COLUMNS, *([_yes(cell) if isinstance(cell, bool) else cell for cell in astuple(row)] for row in rows)]
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def replace_table(page: str, table: list[str]) -> str:
    """Put the table between the two marker lines of a page.

    Args:
        page: A Markdown text with the lines `START` and `END`.
        table: Lines of the table.

    Returns:
        The page with the table in place of what stood between them.

    Raises:
        ConfigError: The page lacks one of the lines, has one twice, or has them in another order.
    """
    lines = page.split("\n")
    at = [number for number, line in enumerate(lines) if line in (START, END)]
    if [lines[number] for number in at] != [START, END]:
        raise ConfigError(f"no place for the table of methods: expected are one line {START} and, below it, one {END}")
    return "\n".join([*lines[: at[0] + 1], *table, *lines[at[1] :]])
