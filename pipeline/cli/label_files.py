"""What tables and JSON files of labels share: what users name and declare, pictures, and marks between names."""

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core.errors import ConfigError
from pipeline.core.faults import preview
from pipeline.data import disk
from pipeline.data.names import NO_CLASS, NO_VALUE, SEPARATORS, UNSURE, looks_like_list, separates, split_names
from pipeline.data.own_data import WORDS

SPLIT = {"split", "splits", "subset", "partition"}
"""Usual names of the column of splits, compared without case."""
GROUP = {f"{kind}{mark}" for kind in ("group", "burst", "video", "patient", "product") for mark in ("", "_id", "id")}
"""Usual names of the column of groups of images of one thing, compared without case."""
LABELS = (NO_CLASS - {"image", "images"}) | {
    f"{kind}{mark}name" for kind in ("label", "class", "category") for mark in ("", "_")
}
"""Usual names of the column of labels, compared without case."""
ABSENT = ("absent", "negatives", "negative")
"""Usual names of the labels known not to apply."""
MARKS = (*SEPARATORS, *UNSURE)
NONE = "none"
"""What stands for no separator on the command line."""


@dataclass(frozen=True)
class Named:
    """Columns of a table, or keys of objects, that the user names; None: to be recognised."""

    path: str | None = None
    labels: str | None = None
    split: str | None = None
    group: str | None = None


@dataclass(frozen=True)
class Declared:
    """What the user says of values that could mean several things; None: nothing.

    Args:
        separator: What stands between names; `none`: a text is one name.
        zero: What 0 means in the column of a class, `absent` or `unknown`.
        minus_one: What -1 means there.
        empty: What nothing means there; or an empty label file, or a task that was submitted without a label.
        links: Whether links that lead out of the folder are read.
        missing: What a picture without a label file means, `absent` or `unknown`.
        disagreement: What labels are that only some annotators give, an error (`stop`) or `unknown`.
        unlabelled: Folder of pictures of which nothing is known, from the folder of the pictures.
    """

    separator: str | None = None
    zero: str | None = None
    minus_one: str | None = None
    empty: str | None = None
    links: disk.Links = "inside"
    missing: str | None = None
    disagreement: str | None = None
    unlabelled: str | None = None


def check_named(file: Path, what: str, names: list[str], named: Named) -> None:
    """Raise an error where the user names what is not there, or one thing for two.

    Raises:
        ConfigError: As said.
    """
    first: dict[str, str] = {}
    for option, name in vars(named).items():
        if name is not None and name not in names:
            raise ConfigError(f"--{option}: {file.name} has no {what} {name!r}; there are {preview(names)}")
        if name is not None and (other := first.setdefault(name, option)) != option:
            raise ConfigError(f"--{option}: {name} is what --{other} names, too; a {what} says one thing")


def check_group(file: Path, what: str, named: Named, values: Sequence[Any], marks: bool) -> None:
    """Raise an error where the user names as groups what is plainly something else, which would be lost.

    Args:
        file: The file of labels.
        what: `column` or `key`.
        named: What the user names.
        values: What the groups' column or key holds.
        marks: Whether that is what the column of a class does.

    Raises:
        ConfigError: As said.
    """
    name, words = named.group, {str(value).casefold() for value in values} - NO_VALUE - {""}
    if name is None:
        return
    kinds = {
        "train, val and test": bool(words) and words <= {*WORDS},
        "1 and 0, as the column of a class does": marks,
        "lists": any(isinstance(value, list) or looks_like_list(str(value)) for value in values),
    }
    for kind in (kind for kind, found in kinds.items() if found):
        raise ConfigError(f"--group: {name} of {file.name} holds {kind}; name the {what} of groups, or leave it out")
    if named.labels is None and name.casefold() in LABELS | {*ABSENT}:
        raise ConfigError(
            f"--group: {name} of {file.name} is called as labels are; if it holds groups, say by --labels which {what} "
            "holds the labels"
        )


def explain_unclear(file: Path, what: str, expected: str, found: dict[str, list[str]]) -> str:
    """Return the message for a file whose columns or keys are not all recognised."""
    where = "in" if what == "column" else "under"
    listed = "; ".join(f"{kind} {where} {preview(names) or 'none'}" for kind, names in found.items())
    return (
        f"{file.name}: expected are one {what} of picture files, at most one of train, val and test, and {expected}. "
        f"Found: {listed}. Name them with --path, --labels, --split and --group, delete the {what}s that are none of "
        "these, or write a profile"
    )


def find_separator(file: Path, values: Iterable[str], declared: Declared) -> str | None:
    """Return what stands between names in texts, None where each is one name.

    Raises:
        ConfigError: That is not clear.
    """
    if declared.separator is not None:
        return None if declared.separator == NONE else declared.separator
    values = {value for value in values if not looks_like_list(value)}  # which the source refuses by line
    if sure := [mark for mark in SEPARATORS if separates(mark, values)]:
        return sure[0]
    several = {mark: [value for value in values if sum(map(bool, split_names(value, mark))) > 1] for mark in MARKS}
    for mark, examples in several.items():
        if not examples or (mark in UNSURE and not separates(mark, values)):
            continue
        example = min(examples)
        raise ConfigError(
            f"{file.name}: is {example!r} one name, or does {mark!r} stand between several? say: --separator "
            f"{shlex.quote(mark)}, or for one name --separator {NONE}"
        )
    return None


def has_pictures(values: Iterable[Any]) -> bool:
    """Return whether some value ends as the name of a picture does."""
    return any(str(value).lower().endswith(disk.ENDINGS) for value in values)


def names_pictures(values: Iterable[Any], pictures: Sequence[str]) -> bool:
    """Return whether at least half of the values are the names of pictures without their endings."""
    stems = {os.path.splitext(picture)[0].rpartition("/")[2].casefold() for picture in pictures}
    texts = {value.replace("\\", "/") for value in values if isinstance(value, str)}
    names = {text.rpartition("/")[2].casefold() for text in texts} - {""}
    return bool(names) and 2 * len(names & stems) >= len(names)
