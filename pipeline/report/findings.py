"""What the numbers of one dataset say, in words: every sentence is computed, whichever way the numbers point."""

from typing import Any

import pandas as pd

from pipeline.audits.paired import FEWEST
from pipeline.report import analyses, comparisons, frames
from pipeline.report.frames import BASELINE, CEILING, ORACLES, Arm, Results
from pipeline.report.read import Dataset
from pipeline.report.text import label, say, signed, spread_of

LEVEL = 0.05
"""Points of mAP below which one decimal shows no difference."""
MISSED = "how many labels are missed, how many the methods find, and how often they are right"
_AUDITED = 3  # methods whose pseudo-labels get a sentence; the table has them all
_LOSERS = 6  # methods that a sentence names as worse than the linear head that they started from
_FEW = 200  # images of the test split below which a handful of them moves a mean average precision by points


def findings(result: Results) -> list[str]:
    """Return what the numbers show; nothing where the runs that this needs are not there."""
    return _with_truth(result) if result.truth else _without_truth(result)


def _with_truth(result: Results) -> list[str]:
    coverage = analyses.label_coverage(result)
    seen = "one label per image" if result.one_label else "the known labels alone"
    sentences = [_best(result, result.ranked(stage), coverage, seen) for stage in ("linear_init", "finetune")]
    sentences.append(_falling(comparisons.falls(result, "finetune")))
    head, kind = own_head(result)
    sentences += [head] if kind == "warning" else []
    sentences += [_separated(analyses.separations(result)), *_right(result), *_second_stages(result)]
    sentences = [words for words in sentences if words]
    few = say("few_draws", result.draws, True)
    return [*sentences, *filter(None, [few, caution(result.about)])] if sentences else []


def _without_truth(result: Results) -> list[str]:
    """Return what can be said where labels are not exhaustive: what the scores are, order, and what is not measured."""
    if result.arms.empty:
        return []
    given = result.given
    sentences = [say("scores_are_true", result.name, given), say("no_measure", given, result.name) if given else ""]
    if "test" not in given:
        coverage = analyses.label_coverage(result)
        for stage in ("linear_init", "finetune"):
            rows = result.ranked(stage)
            sentences.append(_best(result, rows[rows["method"] != CEILING], coverage, "the same labels"))
    sentences += [say("few_draws", result.draws, False), caution(result.about), say("unmeasured", result.name, MISSED)]
    if "test" not in given:  # given labels rank nothing
        head, kind = own_head(result)
        sentences += [head] if kind == "warning" else []
        sentences += _second_stages(result)
    return [words for words in sentences if words]


def caution(dataset: Dataset) -> str:
    """Return that small differences mean nothing where the test split is small, else nothing.

    It is small below ``_FEW`` images, or where more than a tenth of the classes have fewer positives in it than
    ``report.min_support``.
    """
    if dataset.table is None:
        return ""
    index, least = dataset.table.rows("test"), dataset.min_support
    positives = ((dataset.table.truth[index] == 1) & dataset.table.scored[index]).sum(axis=0)
    rare, classes = int((positives < least).sum()), len(positives)
    return "" if len(index) >= _FEW and 10 * rare <= classes else say("caution", len(index), rare, classes, least)


# ---------------------------------------------------------------------------------------------- comparisons
def own_head(result: Results) -> tuple[str, str]:
    """Return for which methods fine-tuning loses to the linear head that it started from, the furthest behind first.

    Args:
        result: What was measured on a dataset.

    Returns:
        A sentence (empty without a comparison) and its kind: ``warning`` where a method loses, else ``note``.
    """
    known = comparisons.against_own_head(result).dropna(subset="test")
    return losses(known, result.truth) if len(known) else ("", "note")


def losses(known: pd.DataFrame, truth: bool) -> tuple[str, str]:
    """Return the sentence of ``own_head`` and its kind, from the rows of ``comparisons.against_own_head``."""
    draws = int(known["test_draws"].max())
    # of few draws what they scored, of more what they show
    below = known["test"] < 0 if draws < FEWEST else known["test_high"] < 0
    lost = known[below].sort_values("test", kind="stable").to_dict("records")
    names = [f"{label(row['method'], row['variant'], truth)} ({signed(spread_of(row, 'test'))})" for row in lost]
    variants = int((known["variant"] != "").sum())
    return say("own_head", names, len(known) - variants, variants, _LOSERS, draws), "warning" if lost else "note"


def second_stage(row: dict[Any, Any]) -> str:
    """Return how an arm of the second stage does against one rival: a row of ``comparisons.second_stage``."""
    return say("second_stage", row, spread_of(row, "test"))


def _second_stages(result: Results) -> list[str]:
    return [second_stage(row) for row in comparisons.second_stage(result).to_dict("records") if not row["start"]]


# ---------------------------------------------------------------------------------------------- each stage
def _plain(frame: pd.DataFrame) -> tuple[dict[str, Any], list[Any]]:
    """Return one row a method, and those of methods that see single positives and doubt them.

    The row is the grid's own; a method that has none at this stage, as one that compares views has no linear head,
    stands with the variant that starts from another method's.
    """
    rows = frame.to_dict("records")
    plain = {row["method"]: row for row in rows if row.get("start")}
    plain |= {row["method"]: row for row in rows if not row["variant"]}
    return plain, [row for method, row in plain.items() if method not in (BASELINE, *ORACLES)]


def coverage_of(coverage: pd.DataFrame, arm: Arm) -> pd.DataFrame:
    """Return one arm's rows of ``analyses.label_coverage``."""
    return coverage[(coverage[frames.ARM] == list(arm)).all(axis=1)]


def before_labels(method: str, coverage: pd.DataFrame) -> str:
    """Return that a method had given no pseudo-label by its chosen epoch, where its ``coverage`` says so."""
    early = len(coverage) and not (coverage["labelled"] | (coverage["coverage"] > 0)).any()
    return say("before_labels", method, len(coverage)) if early else ""


def labelled(coverage: pd.DataFrame) -> str:
    """Return how many unknown cells carried a pseudo-label in the chosen epoch, in percent; a dash without rows."""
    if not len(coverage):
        return "–"
    mean = frames.spread(100 * coverage["coverage"])["mean"]
    words = f"{mean:.1f}%"
    none = int((coverage["coverage"] == 0).sum())
    return f"{words} (none in {none} of {len(coverage)} runs)" if 0 < none < len(coverage) else words


def _best(result: Results, rows: pd.DataFrame, coverage: pd.DataFrame, seen: str) -> str:
    """Return which method scores highest in the ``rows`` of a stage, and from which others its label draws tell it."""
    plain, rivals = _plain(rows.dropna(subset="test_map"))
    low = plain.get(BASELINE)
    # another head or recipe does not compare with the baseline's
    rivals = [row for row in rivals if low and (row["head"], row["protocol"]) == (low["head"], low["protocol"])]
    if low is None or not rivals:
        return ""
    rivals.sort(key=lambda row: -row["test_map"])
    named = [
        {
            "name": label(row["method"], row["variant"]), "score": spread_of(row, "test_map"),
            "density": row["density"], "share": None if pd.isna(row["gap_share"]) else row["gap_share"],
        }
        for row in rivals
    ]  # fmt: skip
    first, *others = (tuple(row[key] for key in frames.ARM) for row in rivals)
    baseline = tuple(low[key] for key in frames.ARM)
    above, *pairs = (comparisons.compare(result, first, other, "test_map") for other in (baseline, *others))
    above_low, *apart = (pair["low"] > 0 for pair in (above, *pairs))
    untold = [item for item in named if not item["density"]]
    about = {
        "ceiling": spread_of(plain[CEILING], "test_map") if CEILING in plain else None,
        "open": [item["name"] for item, told in zip(named[1:], apart, strict=True) if not told], "apart": sum(apart),
        "above_low": above_low,
        "untold": untold[0] if named[0]["density"] and untold else None,
        "early": before_labels(first[1], coverage_of(coverage, first)),
    }  # fmt: skip
    return say("best", first[0], seen, result.draws, spread_of(low, "test_map"), named[0] | {"above": above}, about)


def _falling(rows: pd.DataFrame) -> str:
    plain, others = _plain(rows)
    other = max(others, key=lambda row: row["best"], default=None)
    return say("falling", plain[BASELINE], other) if BASELINE in plain else ""


def _separated(rows: pd.DataFrame) -> str:
    _, others = _plain(rows[(rows["stage"] == "finetune") & rows["above"].notna() & rows["train"].notna()])
    return say("separated", max(others, key=lambda row: row["train"])) if others else ""


def _right(result: Results) -> list[str]:
    rows = analyses.pseudo_labels(result)
    plain, _ = _plain(rows[(rows["stage"] == "finetune") & rows["accuracy"].notna()])
    best = result.ranked("finetune")["method"].tolist()
    known = sorted(plain.values(), key=lambda row: best.index(row["method"]))
    return [say("accuracy", row) for row in known[:_AUDITED]]
