"""What a section of the page is made of, as plain mappings for the template, and how numbers look in it."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from pipeline.report.collect import Row
from pipeline.report.findings import plus_minus

LISTED = 12
"""Names that a sentence holds; more go into a box that opens."""
UNMEASURED = "unmeasured"
"""Kind of the paragraph that stands for what could not be measured."""


def section(name: str, short: str, title: str, lead: str, blocks: list[Row]) -> Row:
    """Return a section: its anchor, its names in the menu and above it, what to see in it, and its blocks."""
    return {"id": name, "short": short, "title": title, "lead": lead, "blocks": blocks}


def paragraph(words: str, kind: str = "plain") -> Row:
    """Return a paragraph; its kind is ``plain``, ``note``, ``warning`` or ``UNMEASURED``."""
    return {"kind": "text", "text": words, "class": kind}


def heading(words: str, level: int = 3) -> Row:
    """Return a heading of level 3 or 4."""
    return {"kind": "heading", "text": words, "level": level}


def bullets(items: Iterable[str]) -> Row:
    """Return a list of sentences."""
    return {"kind": "list", "items": list(items)}


def box(title: str, blocks: list[Row]) -> Row:
    """Return blocks that show only when the reader opens them."""
    return {"kind": "details", "title": title, "blocks": blocks}


def table_block(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    marks: Sequence[str] = (),
    words: int = 1,
    titled: bool = True,
) -> Row:
    """Return a table.

    Args:
        caption: What the table holds.
        columns: Titles.
        rows: Cells; a cell is text, or a mapping with ``text`` and ``note`` or ``bar``.
        marks: Class of each row: ``best``, ``reference`` or empty.
        words: Number of columns, from the left, that hold words; the others hold numbers.
        titled: Whether the caption is shown, or only read aloud because a heading says the same.

    Returns:
        The block.
    """
    cells = [list(row) for row in rows]
    marked = list(marks) or [""] * len(cells)
    return {
        "kind": "table",
        "caption": caption,
        "titled": titled,
        "columns": [{"title": title, "words": place < words} for place, title in enumerate(columns)],
        "rows": [{"cells": row, "mark": mark} for row, mark in zip(cells, marked, strict=True)],
    }


def facts_block(caption: str, facts: Iterable[tuple[str, Any]]) -> Row:
    """Return a table of names and values."""
    return table_block(caption, ["What", "Value"], [[name, str(value)] for name, value in facts], words=2, titled=False)


# ---------------------------------------------------------------------------------------------- cells
def joined(names: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun, in the plural where it is not one."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def listed(values: Iterable[Any]) -> str:
    """Return ``a, b, c``."""
    return ", ".join(str(value) for value in values)


def whole(value: float | None) -> str:
    """Return a count with separators of thousands, or a dash."""
    return "–" if value is None else f"{value:,.0f}"


def percent(fraction: float | None, unit: str = "%") -> str:
    """Return a fraction as percent, or a dash."""
    return "–" if fraction is None else f"{100 * fraction:.1f}{unit}"


def spread_percent(value: Row) -> str:
    """Return a spread of fractions as percent."""
    return plus_minus({key: None if value[key] is None else 100 * value[key] for key in ("mean", "std")}, 2)


def finite(value: float) -> float | None:
    """Return a number that files can hold: a loss far from the centre may overflow."""
    return float(value) if math.isfinite(value) else None


def leaves(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return the scalars of nested mappings and lists with their dotted names; long lists are cut."""
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, f"{prefix}.{key}".removeprefix("."))]
    if not isinstance(value, list):
        return [(prefix, value)]
    if any(isinstance(item, dict | list) for item in value):
        return [leaf for place, item in enumerate(value[:LISTED]) for leaf in leaves(item, f"{prefix}[{place}]")]
    more = f" and {len(value) - LISTED} more" if len(value) > LISTED else ""
    return [(prefix, listed(value[:LISTED]) + more or "none")]


def flat(row: Row) -> Row:
    """Return a row whose spreads have become three columns: ``<name>``, ``<name>_std`` and ``<name>_n``."""
    flat: Row = {}
    for key, value in row.items():
        if isinstance(value, dict):
            flat |= {key: value["mean"], f"{key}_std": value["std"], f"{key}_n": value["n"]}
        else:
            flat[key] = listed(value) if isinstance(value, list) else value
    return flat
