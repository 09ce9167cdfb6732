"""Which papers' numbers a copy of VOC, COCO, NUS or CUB compares with: its counts and settings beside the published.

A dataset is judged by the source that reads it, not by what it is called.
Source: Zhou et al., ECCV 2022, Table 5 (the same as Chen et al., IJCAI 2024, Table 5, and Xie et al., NeurIPS 2022,
Table 1); the protocol is that of Cole et al., CVPR 2021, elijahcole/single-positive-multi-label @89152d5. Counts of
NUS images without a label: its issue 7. Batches: Cole et al., grid of section 4, and the code of Liu et al.,
train_mime.py.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pipeline.core.faults import preview
from pipeline.data.class_names import COCO, VOC
from pipeline.labels.settings import Simulate
from pipeline.labels.table import SPLITS, Table

PUBLISHED = {
    "voc": ("20", "4574", "1143", "5823", "1.46", "18.54"),
    "coco": ("80", "65665", "16416", "40137", "2.94", "77.06"),
    "nus": ("81", "120000", "30000", "60260", "1.89", "79.11"),
    "cub": ("312", "4795", "1199", "5794", "31.4", "280.6"),
}
STATISTICS = (
    *("classes", "train images", "val images", "test images"),
    *("positives per train image", "negatives per train image"),
)
"""Names of the figures of `PUBLISHED`, in their order."""
PROTOCOL: dict[str, dict[str, Any]] = {
    "voc": {"labels": "lists", "difficult": "negative"},
    "coco": {"year": 2014, "unannotated": "drop", "crowd": "count", "order": "string", "test_fraction": None},
    "nus": {},
    "cub": {"least_certainty": 1},
}
"""Settings of `prepare` under which a source makes the papers' table, beside those of the cut."""
CUT = {"val_fraction": 0.2, "split_seed": 1200}
SIZE = 448  # of pictures, in every paper
SEED = 1200  # of the papers' draw of labels
BARE = (33_410, 13_412)  # images without a label in the training and test part of Cole's arrays of NUS
COCO_VAL = 40_504  # images of the official val part of 2014, with those without annotation

CLASSES = {"voc": VOC, "coco": COCO}
"""Names in the papers' order of columns, by which labels are drawn."""
ATTRIBUTES = "c796938559f4ddfa613047dbbcb2c17a830f92d65e78c6160e124aa0b357d961"
"""SHA-256 of the names of CUB's 312 attributes by id, a line each, as public code lists them; the file itself was not
at hand, so another digest decides nothing."""

FAMILY = ("EM+APL (Zhou 2022)", "GR Loss (Chen 2024)", "LASD (2023)", "LAC (Xie 2022)")
BATCHES: dict[str, dict[str, tuple[int, ...]]] = {
    "Cole 2021": dict.fromkeys(PUBLISHED, (8, 16)),
    "MIME (Liu 2023)": {"voc": (32,), "coco": (32,), "nus": (16,), "cub": (16,)},
}
"""Papers whose code leaves the last test images unscored where they fill no batch, and the sizes of their batches."""
UNSCORED = tuple(BATCHES)
OTHERS = "Hill and SPLC in their own paper (Zhang 2021)"


@dataclass(frozen=True)
class Statistic:
    """One row of the table of counts.

    Args:
        name: What is counted.
        published: The paper's figure, as it prints it.
        found: This copy's, to as many decimals.
        same: Whether they agree.
    """

    name: str
    published: str
    found: str
    same: bool


@dataclass(frozen=True)
class Verdict:
    """Whether this copy compares with some papers.

    Args:
        papers: Their names.
        answer: `yes`, `no`, or `open` where nothing in the data tells.
        why: Reasons and reservations, one sentence each without a full stop.
    """

    papers: tuple[str, ...]
    answer: Literal["yes", "no", "open"]
    why: tuple[str, ...]


def compare_counts(source: str, table: Table) -> list[Statistic]:
    """Return the counts that papers publish beside those of a copy.

    Labels of an image are those of train, rounded as published; since the paper does not say whether its training set
    is the part before or after the cut, the official training part may agree instead.

    Args:
        source: Name of the source.
        table: What it read.

    Returns:
        One row for each of `STATISTICS`; none for a source of which nothing is published.
    """
    if source not in PUBLISHED:
        return []
    c = len(table.classes)
    positives = [_mean(table.truth[rows]) for rows in (table.rows("train"), np.flatnonzero(table.official == 0))]
    counts = [[c], *([len(table.rows(name))] for name in SPLITS), positives, [c - mean for mean in positives]]
    rows = []
    for name, published, values in zip(STATISTICS, PUBLISHED[source], counts, strict=True):
        decimals = len(published.partition(".")[2])
        texts = [f"{value:.{decimals}f}" for value in values]
        same = published in texts
        rows.append(Statistic(name, published, published if same else texts[0], same))
    return rows


def judge(source: str, settings: Any, table: Table) -> list[Verdict]:
    """Return which papers' numbers a copy compares with.

    Args:
        source: Name of the source.
        settings: `prepare.<dataset>`, as an object of the source's `Settings`.
        table: What it read.

    Returns:
        A verdict for each group of papers; none for a source of which nothing is published.
    """
    if source not in PUBLISHED:
        return []
    if departures := _list_departures(source, settings, table):
        family = [Verdict((*FAMILY, *UNSCORED), "no", departures)]
    elif source == "nus":
        family = _judge_nus(settings, table)
    else:
        family = _judge_same_protocol(source, table)
    return family + _judge_others(source, table)


def describe_draw(settings: Simulate) -> str:
    """Return whether the labels that stay known are the very ones of the papers, in words.

    Args:
        settings: `simulate` for the dataset.

    Returns:
        One sentence without a full stop.
    """
    if settings.protocol == "given":
        return "labels: as the data give them, none is hidden; the papers hide all but one of each image"
    one = settings.plain and not settings.negatives.value
    if settings.protocol == "literature" and settings.seed == SEED and one:
        return f"labels: drawn by the papers' recipe with their seed (literature, {SEED})"
    now = f"literature, seed {settings.seed}" if settings.protocol == "literature" else settings.protocol
    other = f"labels: other ones stay known than in the papers (simulate: {now}; the papers: literature, seed {SEED})"
    return other if one else f"{other}, and not one positive alone of each image, each as likely as another"


def describe_pictures(size: int) -> str:
    """Return whether pictures are packed as the papers resize them, in words.

    Args:
        size: `prepare.<dataset>.size`.

    Returns:
        One sentence without a full stop.
    """
    return f"pictures: {size} x {size} pixels" + ("" if size == SIZE else f"; the papers: {SIZE} x {SIZE}")


def _mean(truth: np.ndarray) -> float:
    """Return the positives of a row on average; 0 without rows."""
    return float(truth.sum() / max(len(truth), 1))


def _list_departures(source: str, settings: Any, table: Table) -> tuple[str, ...]:
    """Return in what counts and settings differ from the papers'."""
    differ = [row.name for row in compare_counts(source, table) if not row.same]
    counts = [f"counts differ: {', '.join(differ)}"] if differ else []
    changed = [
        f"{key}: {getattr(settings, key)}, the papers {'null' if value is None else value}"
        for key, value in (PROTOCOL[source] | CUT).items()
        if getattr(settings, key) != value
    ]
    return (*counts, *changed, *_compare_classes(CLASSES.get(source, table.classes), table.classes))


def _compare_classes(theirs: tuple[str, ...], ours: tuple[str, ...]) -> list[str]:
    """Return in what classes differ from the papers': one sentence, or none."""
    extra = preview([name for name in ours if name not in theirs])
    absent = preview([name for name in theirs if name not in ours])
    if extra or absent:
        return [f"classes: {extra or 'nothing'} in place of {absent or 'nothing'}"]
    for column, (name, expected) in enumerate(zip(ours, theirs, strict=True)):
        if name != expected:
            order = "in another order than the papers', so other labels are drawn"
            return [f"classes: {order} (column {column}: {name}, theirs {expected})"]
    return []


def _digest_classes(table: Table) -> str:
    """Return the digest of the classes, as `ATTRIBUTES`."""
    return hashlib.sha256("\n".join(table.classes).encode()).hexdigest()


def _judge_same_protocol(source: str, table: Table) -> list[Verdict]:
    """Return the verdicts on a copy of VOC, COCO or CUB whose counts and settings are the papers'."""
    answer, doubt = "yes", ()
    if source == "cub" and _digest_classes(table) != ATTRIBUTES:
        answer, doubt = "open", ("the attributes are not called as known, so their order was not compared",)
    return [Verdict(FAMILY, answer, doubt), *_judge_unscored(source, answer, table, *doubt)]


def _judge_unscored(source: str, answer: Literal["yes", "open"], table: Table, *why: str) -> list[Verdict]:
    """Return the verdicts on the papers that drop the last test batch."""
    verdicts = []
    for paper, batches in BATCHES.items():
        left = ", ".join(f"{len(table.rows('test')) % size} with batches of {size}" for size in batches[source])
        code = f"their code leaves the last test images unscored where they fill no batch ({left})"
        verdicts.append(Verdict((paper,), answer, (*why, f"{code}; here all are scored")))
    return verdicts


def _judge_nus(settings: Any, table: Table) -> list[Verdict]:
    """Return the verdicts on a copy of NUS whose counts are the papers'."""
    bare = tuple(int((~table.truth[table.official == part].any(axis=1)).sum()) for part in (0, 1))
    counts = f"{bare[0]:,} training and {bare[1]:,} test images have no label here"
    order = (
        "whether the names of the classes fit the columns of the arrays was not compared: the arrays hold none"
        if settings.layout == "formatted"
        else "the order of the classes was not compared, since the papers' arrays hold no names; labels are drawn by it"
    )
    cole = f"only with the arrays of Cole and the pictures that he crawled anew in 2020 ({counts})"
    if bare == BARE:
        recrawl = _judge_unscored("nus", "open", table, cole + ", as in his arrays; the pictures cannot be told", order)
    else:
        recrawl = [Verdict(UNSCORED, "no", (f"{counts}; in the arrays of Cole {BARE[0]:,} and {BARE[1]:,}",))]
    official = "only with the arrays of Zhou and the official pictures; nothing in the files tells them from Cole's"
    own = (
        "their papers draw 150,000 and 60,260 images from the official parts at random, by a seed that is not"
        " published; the code of LAC points to Cole's arrays"
    )
    return [Verdict(FAMILY[:2], "open", (official, order)), Verdict(FAMILY[2:], "open", (own, order)), *recrawl]


def _judge_others(source: str, table: Table) -> list[Verdict]:
    """Return the verdicts on the papers of another protocol."""
    verdicts = []
    own = "they hold no val images out: epoch and weights were chosen on the test images"
    if source in ("coco", "nus"):
        kept = " from 119,103 training images, without those that have no label" if source == "nus" else ""
        verdicts.append(Verdict((OTHERS,), "no", (own + kept,)))
    if source == "coco":
        n = len(table.rows("test"))
        whole = n == COCO_VAL
        why = "their test images; what they trained on may differ" if whole else f"this copy has {n:,} test images"
        papers = (f"papers that test on all {COCO_VAL:,} images of the official val part",)
        verdicts.append(Verdict(papers, "open" if whole else "no", (why,)))
    return verdicts
