"""Names of classes as people write them: marks between them, lists and sets in a text, and names to doubt.

Source: ours. A list in a text is read by Python's own tokens, since JSON, the repr of lists, sets and tuples, and what
numpy prints differ in brackets, quotes and commas only.
"""

import ast
import io
import json
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Sequence

from pipeline.core.faults import find_look_alikes, preview

NO_CLASS = {"label", "labels", "target", "targets", "tag", "tags", "annotation", "annotations", "image", "images"}
NO_CLASS |= {"class", "classes", "category", "categories"}
"""What people call columns and folders rather than classes, compared without case."""
NO_VALUE = {"nan", "null", "none", "na", "n/a", "<na>", "nil", "#n/a"}
"""What programs write where there is no value, compared without case."""
SEPARATORS = (";", "|", ",", "；", "，", "、")
"""Marks that people put between names, and seldom within one."""
UNSURE = ("/", "&", "+", " ")
"""Marks that stand between names and within them; none of them separates unless someone says so."""

_WRAPPED = re.compile(
    r"(?:[\w.]+)\(\s*(.*?)\s*(?:,\s*dtype=[^)\]]*)?\)", re.DOTALL
)  # set([...]), array([...], dtype=...)
_SCALAR = re.compile(r"""\bnp\.str_\(('[^']*'|"[^"]*")\)""")  # how numpy 2 writes an element of a list
_CLOSING = {"[": "]", "{": "}", "(": ")"}


def separates(mark: str, values: Iterable[str]) -> bool:
    """Tell whether a mark stands between names, not within one.

    Args:
        mark: The mark.
        values: Texts of names.

    Returns:
        Whether some part of a text that the mark parts is in a text with other parts too; of a mark of `UNSURE` all
        parts of such a text must be, since `polar bear` and `brown bear` share a part.
    """
    split = {frozenset(split_names(value, mark)) for value in values}
    seen = Counter(part for parts in split for part in parts)
    enough = all if mark in UNSURE else any
    return any(enough(seen[part] > 1 for part in parts) for parts in split if len(parts) > 1)


def split_names(text: str, mark: str) -> list[str]:
    """Return the parts of a text between marks, without blanks around them; several blanks of any kind are one mark."""
    return [part.strip() for part in text.split(None if mark == " " else mark)]


def looks_like_list(text: str) -> bool:
    """Return whether a text is a list, set, tuple or array as a program writes it, whether or not it can be read."""
    text = text.strip()
    inner = match[1] if (match := _WRAPPED.fullmatch(text)) and match[1][:1] in ("[", "{", "(") else text
    if len(inner) < 2 or _CLOSING.get(inner[0]) != inner[-1]:
        return bool(re.fullmatch(r"(frozen)?set\(\)", text))
    return inner[0] != "(" or not inner[1:-1].strip(" ,") or bool(re.search("['\"]", inner))


def is_quoted(name: str) -> bool:
    """Return whether a name stands in quotes, as in a list without its brackets."""
    return bool(re.fullmatch(r"""(['"`]).*\1|‘.*’|“.*”""", name, re.DOTALL))


def read_list(text: str) -> list[str] | None:
    """Return the names in a list, set, tuple or array as Python, numpy or JSON writes it; None where it is none.

    A blank text has none. Names must be quoted: of `[polar bear, dog]` nobody knows where names end.
    """
    text = text.strip()
    if not text or re.fullmatch(r"(frozen)?set\(\)|\{\s*\}", text):
        return []
    if (match := _WRAPPED.fullmatch(text)) and match[1][:1] in ("[", "{", "("):
        text = match[1]
    try:  # first, since an escaped pair of surrogates is one letter in JSON alone
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = _read_tokens(_SCALAR.sub(r"\1", text))
    return found if isinstance(found, list) and all(isinstance(name, str) for name in found) else None


def _read_tokens(text: str) -> list[str] | None:
    """Return the strings of a bracket with nothing but strings and commas in it; None where that is not what it is."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        words = [token for token in tokens if token.string.strip()]
        if len(words) < 2 or _CLOSING.get(words[0].string) != words[-1].string:
            return None
        inner = [token for token in words[1:-1] if token.string != ","]
        if any(token.type != tokenize.STRING for token in inner):
            return None
        return [ast.literal_eval(token.string) for token in inner]
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def doubt_classes(classes: Sequence[str], named: bool) -> list[str]:
    """Return warnings about the names of classes.

    Args:
        classes: The names.
        named: Whether settings name them; then they are doubted least.
    """
    alike = sorted({name for pair in find_look_alikes(classes) for name in pair})  # those not named were refused
    warnings = [f"classes differ only in case: {preview(alike)} - one class? write one of them"] if alike else []
    if named:
        return warnings
    if numbers := [label for label in classes if re.fullmatch(r"[+-]?\d+(\.\d*)?", label)]:
        warnings.append(f"classes are called {preview(numbers)}: if these numbers stand for names, write the names")
    if odd := [label for label in classes if label.lower() in NO_CLASS]:
        warnings.append(f"classes are called {preview(odd)}: if that is no class, list the classes (prepare: classes)")
    if empty := [label for label in classes if label.lower() in NO_VALUE]:
        warnings.append(f"classes are called {preview(empty)}: if that means no value, leave the place blank")
    if scored := [label for label in classes if re.search(r"[:=(\s]\s*[01]?\.\d+\s*\)?$", label)]:
        warnings.append(f"names end in numbers as scores do: {preview(scored)}: write the names of what applies")
    forms: dict[str, list[str]] = {}
    for label in classes:
        forms.setdefault(re.sub(r"[\W_]+", "", label.casefold()), []).append(label)
    if same := [label for form, labels in forms.items() if form and len(labels) > 1 for label in labels]:
        warnings.append(f"classes differ only in marks and blanks: {preview(same)} - one class? write one of them")
    for mark in (*SEPARATORS, *UNSURE):
        if separates(mark, classes):
            joined = preview([repr(label) for label in classes if mark in label])
            warnings.append(f"each of these is one class, but {mark!r} seems to stand between names: {joined}")
    return warnings
