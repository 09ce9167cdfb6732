"""The thresholds of a run: where its logits are cut into present and absent, with and without truth, and their worth.

They are made on images whose labels did not train the logits: validation images, and where there are heads that left
them out, training images; those of one group count as one for the conformal ones. Shares are matched on too few of
these as badly as on images that were trained on, so below `FEWEST` all training images count too. Nothing is chosen on
test images, whose labels tell what each cut is worth.
"""

from typing import Any, NamedTuple

import numpy as np

from pipeline.audits.thresholds import FOUND, best_f1, find_share, match_share, score_thresholds
from pipeline.labels.beliefs import Beliefs
from pipeline.labels.groups import number_groups
from pipeline.training.run import Run

FEWEST = 50
"""Images on which shares are matched without those that were trained on."""


class _Told(NamedTuple):
    """(C,) bool, classes that the labels and rules of training images tell nothing of."""

    nowhere: np.ndarray
    """No image is known to have it."""
    everywhere: np.ndarray
    """Every image is."""


class _Images(NamedTuple):
    """Images that thresholds are made on."""

    rows: np.ndarray
    """(M,) of the table."""
    logits: np.ndarray
    """(M, C)."""

    def take(self, kept: np.ndarray) -> "_Images":
        """Return some of them."""
        return _Images(self.rows[kept], self.logits[kept])


def set_thresholds(run: Run, logits: dict[str, np.ndarray], left_out: np.ndarray | None) -> dict[str, Any]:
    """Return what thresholds.json holds.

    Args:
        run: The run.
        logits: (N_split, C) logits of train, val and test.
        left_out: (N, C) logits of training images by heads that their labels did not train, where there are some.

    Returns:
        ``images``, how many of each split they are made on; ``classes``, for each ``share``, ``matching``,
        ``conformal`` by the share that it finds, ``clean`` and the ``reason`` of what is None; and ``test``, what each
        rule is worth, None where test labels are not known in full.

    Raises:
        FileError: Beliefs or shown labels are absent, damaged, or not those of the table.
    """  # noqa: DOC502  raised by `Run`
    table, beliefs, single = run.table, run.beliefs, run.single
    groups = None if table.groups is None else number_groups(table.groups)
    held = _Images(table.rows("val"), logits["val"])
    if left_out is not None:
        held = _Images(np.append(table.rows("train"), held.rows), np.concatenate([left_out, held.logits]))
    fitted = _Images(table.rows("train"), logits["train"])
    shared, biased = _images_of_shares(held, fitted, beliefs, single)
    known = single[table.rows("train")]
    fitted_to = (known == 1).any(axis=1) | (beliefs.draw == "share")
    nowhere: np.ndarray = known.max(axis=0) < 1
    everywhere: np.ndarray = known[fitted_to].min(axis=0) >= 1
    told = _Told(nowhere, everywhere)
    cuts = {
        "matching": _match(shared, beliefs, told.nowhere),
        **{f"{found:g}": _find(held, beliefs, single, found, groups) for found in FOUND},
        "clean": _choose_by_truth(run, logits["val"]),
    }
    return {
        "rule": "present where the logit is at least the threshold",
        "images": {"matching": _count(run, shared), "conformal": _count(run, held), "trained_on": biased},
        "classes": {
            name: _describe(column, beliefs, cuts, _count_shown(column, held, single, groups), told)
            for column, name in enumerate(table.classes)
        },
        "test": _score(run, logits["test"], cuts),
    }


def _images_of_shares(held: _Images, fitted: _Images, beliefs: Beliefs, single: np.ndarray) -> tuple[_Images, bool]:
    """Return the images that shares are matched on, and whether some of them were trained on."""

    def counted(images: _Images) -> _Images:  # shares are of images that show a label, where each is to show one
        return images if beliefs.draw == "share" else images.take((single[images.rows] == 1).any(axis=1))

    few = len(counted(held).rows) < FEWEST
    if few:
        others = fitted.take(~np.isin(fitted.rows, held.rows))
        held = _Images(np.append(others.rows, held.rows), np.concatenate([others.logits, held.logits]))
    return counted(held), few


def _match(images: _Images, beliefs: Beliefs, unseen: np.ndarray) -> np.ndarray:
    """Return (C, 3) thresholds that match the shares, and their lower and upper ends; NaN of an unseen class."""
    cuts = np.full((len(unseen), 3), np.nan)
    for column in np.flatnonzero(~unseen) if len(images.rows) else ():
        for place, share in enumerate(beliefs.shares[column]):
            if np.isfinite(share):
                cuts[column, place] = match_share(images.logits[:, column], float(share))
    return cuts[:, [0, 2, 1]]


def _find(images: _Images, beliefs: Beliefs, single: np.ndarray, found: float, groups: np.ndarray | None) -> np.ndarray:
    """Return (C,) thresholds that find a share of the present labels; NaN where too few are shown."""
    shown, stands_for = single[images.rows] == 1, beliefs.stands_for(single)[images.rows]
    own = None if groups is None else groups[images.rows]
    cuts = [
        find_share(images.logits[mine, column], stands_for[mine], found, None if own is None else own[mine])
        for column, mine in enumerate(shown.T)
    ]
    return np.array([np.nan if cut is None else cut for cut in cuts])


def _count_shown(column: int, images: _Images, single: np.ndarray, groups: np.ndarray | None) -> tuple[int, int | None]:
    """Return how many images show a class, and of how many groups they are, where there are groups."""
    mine = images.rows[single[images.rows, column] == 1]
    return len(mine), None if groups is None else len(np.unique(groups[mine]))


def _choose_by_truth(run: Run, logits: np.ndarray) -> np.ndarray:
    """Return (C,) thresholds of the highest F1 on validation; NaN where its labels are not known or absent."""
    cuts = np.full(logits.shape[1], np.nan)
    if run.table.measurable("val"):
        truth, scored = run.table.reference("val")
        for column, counted in enumerate(scored.T):
            cut = best_f1(logits[counted, column], truth[counted, column])
            cuts[column] = np.nan if cut is None else cut
    return cuts


def _count(run: Run, images: _Images) -> dict[str, int]:
    """Return how many images of each split there are."""
    return {split: int(np.isin(images.rows, run.table.rows(split)).sum()) for split in ("train", "val")}


def _describe(
    column: int, beliefs: Beliefs, cuts: dict[str, np.ndarray], shown: tuple[int, int | None], told: _Told
) -> dict[str, Any]:
    """Return the entry of a class."""
    ends = ("value", "low", "high")
    conformal = {f"{found:g}": _plain(cuts[f"{found:g}"][column]) for found in FOUND}
    reasons = ["no training image shows it, so none tells where it begins"] * bool(told.nowhere[column])
    reasons += ["every training image has it, so none tells where it ends"] * bool(told.everywhere[column])
    lacking = [f"{100 * found:g}" for found, cut in zip(FOUND, conformal.values(), strict=True) if cut is None]
    images, groups = shown
    show = f"{images} held-out images{'' if groups is None else f' of {groups} groups'} show it"
    reasons += [f"{show}: too few to find {', '.join(lacking)} % of it"] * bool(lacking)
    return {
        "share": dict(zip(ends, map(_plain, beliefs.shares[column]), strict=True)),
        "matching": dict(zip(ends, map(_plain, cuts["matching"][column]), strict=True)),
        "shown": images,
        "conformal": conformal,
        "clean": _plain(cuts["clean"][column]),
        "reason": "; ".join(reasons) or None,
    }


def _score(run: Run, logits: np.ndarray, cuts: dict[str, np.ndarray]) -> dict[str, Any] | None:
    """Return macro and micro F1 of each rule on test, the share of labels found, and how many classes it has a cut for.

    A class without a cut is taken by that of matching shares; where there is none either, it is nowhere present.
    """
    if not run.table.measurable("test"):
        return None
    truth, scored = run.table.reference("test")
    matching = cuts["matching"][:, 0]
    rules = cuts | {"matching": matching, "zero": np.zeros(len(matching))}
    entries = {}
    for name, cut in rules.items():
        own = np.isfinite(cut)
        if not own.any():
            continue
        taken = np.where(own, cut, np.where(np.isfinite(matching), matching, np.inf))
        found = score_thresholds(logits[:, own], cut[own], truth[:, own], scored[:, own])["found"]
        every = score_thresholds(logits, taken, truth, scored)
        entries[name] = every | {"found": found, "classes": int(own.sum())}
    return entries


def _plain(value: float) -> float | None:
    """Return a number as JSON has it."""
    return float(value) if np.isfinite(value) else None
