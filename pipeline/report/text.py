"""How names and numbers look in sentences and tables."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from pipeline.audits.paired import tells_apart
from pipeline.core.text import show_text
from pipeline.report.frames import CEILING, GIVEN, Spread

LISTED = 12
"""Names that a sentence holds; more go into a box that opens."""
_NAMES = {
    "em_apl": "EM+APL",
    "entmin": "EntMin",
    "focal": "Focal",
    "framework": "Framework",
    "full": "Full labels",
    "hill": "Hill",
    "ll_cp": "LL-Cp",
    "ll_ct": "LL-Ct",
    "reckon": "Reckon",
    "ridge": "Ridge",
    "ridge_full": "Ridge, full labels",
}


def label(method: str, variant: str = "", truth: bool = True) -> str:
    """Return the name of a method as the page writes it: the field's own spelling, else upper case with hyphens.

    Args:
        method: Name in params.yaml.
        variant: The ``<what>`` of a variant's key, or empty.
        truth: Whether the data have full labels, which else ``full`` cannot have seen.

    Returns:
        For example ``EM+APL`` or ``LAC (no queue)``.
    """
    name = _NAMES.get(method, method.upper().replace("_", "-"))
    if method == CEILING and not truth:
        name = "All given labels"
    return f"{name} ({variant.replace('_', ' ')})" if variant else name


def joined(names: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def cut_short(names: Sequence[str]) -> str:
    """Return ``a, b and c``, or the first names and how many more there are."""
    many = len(names) > LISTED
    return f"{listed(names[:LISTED])} and {len(names) - LISTED} more" if many else joined(names)


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun, in the plural where it is not one."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def listed(values: Iterable[Any]) -> str:
    """Return ``a, b, c``; floats in short."""
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


def whole(value: Any) -> str:
    """Return a count with separators of thousands, or a dash."""
    return "–" if pd.isna(value) else f"{value:,.0f}"


def percent(fraction: Any) -> str:
    """Return a fraction as percent, or a dash."""
    return "–" if pd.isna(fraction) else f"{100 * fraction:.1f}%"


def points(value: Any) -> str:
    """Return a score or a deviation, or a dash."""
    return "–" if pd.isna(value) else f"{value:.1f}"


def plus_minus(value: Spread, digits: int = 1, factor: float = 1) -> str:
    """Return ``mean ± std``, the mean alone where no spread is known, or a dash."""
    if pd.isna(value["mean"]):
        return "–"
    deviation = "" if pd.isna(value["std"]) else f" ± {factor * value['std']:.{digits}f}"
    return f"{factor * value['mean']:.{digits}f}{deviation}"


def signed(value: Spread, digits: int = 1) -> str:
    """Return a difference with its sign, ``±`` its standard deviation where one is known, or a dash."""
    return "+" * bool(value["mean"] >= 0) + plus_minus(value, digits)


def interval(value: Spread, digits: int = 1) -> str:
    """Return ``-1.2 to +0.3``, the interval of a difference, or a dash where there is none."""
    return "–" if pd.isna(value["low"]) else f"{value['low']:+.{digits}f} to {value['high']:+.{digits}f}"


def spread_of(row: Any, name: str) -> Spread:
    """Return the columns of a spread, and what it says beyond, from a row of a frame."""
    keys = [
        key for key in ("std", "n", "draws", "std_draws", "std_seeds", "low", "high", "won") if f"{name}_{key}" in row
    ]
    return {"mean": row[name], **{key: row[f"{name}_{key}"] for key in keys}}


def column(frame: pd.DataFrame, name: str, digits: int = 1, *, sign: bool = False, share: bool = False) -> list[str]:
    """Return a column of spreads as words: with a sign where it holds differences, in percent where it holds shares."""
    values = [spread_of(row, name) for row in frame.to_dict("records")]
    return [signed(value, digits) if sign else plus_minus(value, digits, 100 if share else 1) for value in values]


def leaves(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return the scalars of nested mappings and lists with their dotted names; long lists are cut."""
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, f"{prefix}.{key}".removeprefix("."))]
    if not isinstance(value, list):
        return [(prefix, value)]
    if any(isinstance(item, dict | list) for item in value):
        return [leaf for place, item in enumerate(value[:LISTED]) for leaf in leaves(item, f"{prefix}[{place}]")]
    more = f" and {len(value) - LISTED} more" if len(value) > LISTED else ""
    return [(prefix, ", ".join(map(str, value[:LISTED])) + more or "none")]


def marked(words: str, given: Collection[str], about: Sequence[str] = ("test",)) -> str:
    """Say in brackets behind a text about scores what they are against, where that is not full labels.

    Args:
        words: The text.
        given: Of val and test, those scored by the labels that were given.
        about: Those whose scores the text is about.

    Returns:
        The text; which split is meant is said where it is not all that the text is about.
    """
    mine = [split for split in about if split in given]
    if not mine:
        return words
    stop = "." * words.endswith(".")
    which = "" if len(mine) == len(about) else f"{' and '.join(mine)} "
    return f"{words.removesuffix('.')} ({which}{GIVEN}){stop}"


def environment(escape: bool) -> jinja2.Environment:
    """Return the templates with these functions, for a page (``escape``: names come from data) or for plain text."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=escape,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: show_text(value) if type(value) is str else value,
    )
    made.tests["nan"] = pd.isna
    sentences = (cut_short, interval, joined, label, listed, marked, say, tells_apart)
    numbers = (counted, percent, plus_minus, points, signed, whole)
    made.globals |= {function.__name__: function for function in (*sentences, *numbers)}
    return made


def say(sentence: str, *values: Any, **named: Any) -> str:
    """Return a sentence of templates/sentences.j2.

    Args:
        sentence: Name of its macro.
        values: The macro's arguments.
        named: More of them.

    Returns:
        The sentence on one line; empty where the macro says nothing.
    """
    return " ".join(str(getattr(_SENTENCES, sentence)(*values, **named)).split())


_SENTENCES: Any = environment(escape=False).get_template("sentences.j2").module
