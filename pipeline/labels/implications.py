"""What labels imply of others: parents, which a present child makes present, and sets of which one at most is present.

A known present label makes its ancestors known to be present, and all that these exclude known to be absent; a known
absence makes the label's descendants known to be absent. Where a child is present and an ancestor is said to be absent,
the child counts: people who name the finer label leave the coarser one out.
Source: ours.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from typing import NamedTuple

import numpy as np

from pipeline.core.errors import SourceError
from pipeline.core.faults import find_duplicates, preview
from pipeline.labels.blocks import row_blocks


@dataclass(frozen=True)
class Rules:
    """Rules among classes, by name, as `prepare` was told them."""

    parents: dict[str, tuple[str, ...]]
    """Child -> its parents."""
    exclusive: tuple[tuple[str, ...], ...]
    """Sets of classes of which one at most is present."""

    def __bool__(self) -> bool:
        """Return whether there is any rule."""
        return bool(self.parents or self.exclusive)

    def all_parents(self) -> set[str]:
        """Return the names of all parents."""
        return {parent for parents in self.parents.values() for parent in parents}

    def to_json(self) -> str:
        """Return the rules as JSON text."""
        return json.dumps({"parents": self.parents, "exclusive": self.exclusive}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Rules":
        """Return the rules that `to_json` wrote."""
        found = json.loads(text)
        parents = {child: tuple(names) for child, names in found["parents"].items()}
        return cls(parents, tuple(map(tuple, found["exclusive"])))


class Implied(NamedTuple):
    """Labels with what they imply."""

    labels: np.ndarray
    """(N, C) int8: 1 known present, -1 known absent, 0 unknown."""
    overruled: np.ndarray
    """(N, C) bool: said to be absent, and present since a child is."""


@dataclass(frozen=True)
class Implications:
    """The rules among the columns of a table.

    Args:
        requires: (C, C) bool: a label of the row's class makes one of the column's present; each its own.
        excludes: (C, C) bool: labels of both classes are never present together.
    """

    requires: np.ndarray
    excludes: np.ndarray

    def imply(self, labels: np.ndarray) -> Implied:
        """Return labels with all that they imply.

        Args:
            labels: (N, C) int8: 1 known present, -1 known absent, 0 unknown; no two present ones exclude each other, as
                `find_conflict` tells.

        Returns:
            The labels; a second time they imply nothing more.
        """
        result, overruled = np.empty_like(labels), np.zeros(labels.shape, bool)
        requires, excludes = self.requires.astype(np.float32), self.excludes.astype(np.float32)
        for rows in row_blocks(*labels.shape):
            present = (labels[rows] == 1).astype(np.float32) @ requires > 0
            overruled[rows] = present & (labels[rows] == -1)
            told = ((labels[rows] == -1) & ~present).astype(np.float32)
            absent = (told @ requires.T > 0) | (present.astype(np.float32) @ excludes > 0)
            result[rows] = present.astype(np.int8) - (absent & ~present)
        return Implied(result, overruled)

    def find_conflict(self, present: np.ndarray) -> tuple[int, int] | None:
        """Return two classes of one image that are both present, themselves, and exclude each other; None without.

        Args:
            present: (C,) bool.
        """
        own = np.flatnonzero(present)
        pairs = np.argwhere(self.excludes[np.ix_(own, own)])
        return (int(own[pairs[0, 0]]), int(own[pairs[0, 1]])) if len(pairs) else None


def make_implications(classes: Sequence[str], rules: Rules) -> Implications:
    """Return the rules among the columns of a table.

    Args:
        classes: C names.
        rules: The rules.

    Returns:
        The rules, closed: ancestors of ancestors, and what ancestors exclude.

    Raises:
        SourceError: A name is no class, a set has fewer than two or one twice, parents are a cycle, or a class could
            never be present, since it or its ancestors exclude each other.
    """
    column = {name: number for number, name in enumerate(classes)}
    used = {
        "parents": {*rules.parents, *rules.all_parents()},
        "exclusive": {name for group in rules.exclusive for name in group},
    }
    for key, names in used.items():
        if unknown := sorted(names - column.keys()):
            raise SourceError(f"prepare: {key}: no class {preview(unknown)}; there are {preview(list(classes))}")
    requires = np.eye(len(classes), dtype=bool)
    for child in _from_the_top(rules.parents):
        for parent in rules.parents.get(child, ()):
            requires[column[child]] |= requires[column[parent]]
    direct = np.zeros_like(requires)
    for group in rules.exclusive:
        if len(group) < 2 or find_duplicates(group):
            raise SourceError(f"prepare: exclusive: [{preview(group)}]: a set names two classes or more, each once")
        for one, other in combinations(group, 2):
            direct[column[one], column[other]] = direct[column[other], column[one]] = True
    wide = requires.astype(np.float32)
    excludes = wide @ direct.astype(np.float32) @ wide.T > 0
    if (never := np.flatnonzero(excludes.diagonal())).size:
        own = np.flatnonzero(requires[never[0]]).tolist()
        places: list[int] = np.argwhere(direct[np.ix_(own, own)])[0].tolist()
        one, other = sorted(str(classes[own[place]]) for place in places)
        raise SourceError(
            f"prepare: exclusive: {one} and {other} exclude each other, so {classes[never[0]]} could never be present: "
            "each of them is that class or one of its ancestors (prepare: parents)"
        )
    return Implications(requires, excludes)


def _from_the_top(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """Return all names, each after its parents.

    Raises:
        SourceError: There is a cycle.
    """
    try:
        return list(TopologicalSorter(parents).static_order())
    except CycleError as error:
        path = " -> ".join(reversed(error.args[1]))
        raise SourceError(f"prepare: parents: {path} is a cycle: a class is no ancestor of itself") from error


def describe_implied(classes: Sequence[str], told: np.ndarray, found: Implied) -> dict[str, object]:
    """Return counts of what was implied.

    Args:
        classes: C names.
        told: (N, C) int8 labels before.
        found: What `Implications.imply` returned of them.

    Returns:
        JSON values: labels made present, those of them that were said to be absent, labels made absent; the same by
        class.
    """
    counts = {
        "made_present": ((found.labels == 1) & (told != 1)).sum(axis=0),
        "of_them_said_to_be_absent": found.overruled.sum(axis=0),
        "made_absent": ((found.labels == -1) & (told != -1)).sum(axis=0),
    }
    totals: dict[str, object] = {name: int(values.sum()) for name, values in counts.items()}
    by_class = {
        name: {kind: int(values[number]) for kind, values in counts.items()}
        for number, name in enumerate(classes)
        if any(values[number] for values in counts.values())
    }
    return totals | {"classes": by_class}
