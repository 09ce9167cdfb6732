"""What the numbers say, in words: every sentence is computed, whichever way the numbers point."""

from collections.abc import Sequence
from typing import Any

from pipeline.report import analyses, tables
from pipeline.report.caveats import caution, marked, scores_are, scores_are_true, unmeasured
from pipeline.report.collect import Collected, Dataset, Row
from pipeline.report.tables import BASELINE, CEILING, ORACLES

AFTER = {
    "linear_init": "with a linear head",
    "finetune": "after fine-tuning",
    "end_to_end": "trained end to end",
    "lac": "after the second stage",
}

_NAMES = {
    "em_apl": "EM+APL",
    "entmin": "EntMin",
    "focal": "Focal",
    "framework": "Framework",
    "full": "Full labels",
    "hill": "Hill",
    "ll_cp": "LL-Cp",
    "ll_ct": "LL-Ct",
}
_AUDITED = 3  # methods whose pseudo-labels get a sentence; the table has them all
_LOSERS = 6  # methods that a sentence names as worse than the linear head that they started from
LEVEL = 0.05
"""Points of mAP below which one decimal shows no difference."""


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


def plus_minus(value: Row, digits: int = 1) -> str:
    """Return ``mean ± std``, the mean alone where no spread is known, or a dash."""
    if value["mean"] is None:
        return "–"
    spread = "" if value["std"] is None else f" ± {value['std']:.{digits}f}"
    return f"{value['mean']:.{digits}f}{spread}"


def signed(value: Row, digits: int = 1) -> str:
    """Return a difference with its sign, ``±`` its standard deviation where one is known, or a dash."""
    return plus_minus(value, digits) if value["mean"] is None or value["mean"] < 0 else "+" + plus_minus(value, digits)


# ---------------------------------------------------------------------------------------------- comparisons
def verdict(subject: str, rival: str, difference: Row) -> str:
    """Say what a paired difference supports.

    Args:
        subject: Name of the method under test.
        rival: What it is compared with.
        difference: What ``tables.paired`` returned, in points of mAP.

    Returns:
        A sentence.
    """
    mean, std, n, ahead = (difference[key] for key in ("mean", "std", "n", "ahead"))
    if mean is None:
        return f"{subject} and {rival} share no seed, so they cannot be compared."
    size, where = f"{abs(mean):.1f} points of test mAP", "above" if mean > 0 else "below"
    if n == 1:
        if abs(mean) < LEVEL:
            return f"{subject} ends level with {rival} at one seed; no spread is known."
        return f"{subject} ends {size} {where} {rival} at one seed; no spread is known, so another seed may differ."
    if ahead in (0, n) and abs(mean) > std:
        better = "better" if mean > 0 else "worse"
        return f"{subject} is {better} than {rival} at every one of {n} seeds, by {size} (std {std:.1f})."
    if ahead in (0, n):
        spread = f"a mean of {size} with a std of {std:.1f}"
        return f"{subject} ends {where} {rival} at every one of {n} seeds, but unevenly: {spread}."
    mean_words = f"mean difference {mean:+.1f}, std {std:.1f}"
    return f"{subject} is ahead of {rival} at {ahead} of {n} seeds ({mean_words}): these runs do not separate the two."


def rival(row: Row) -> str:
    """Return the name of a rival of the second stage.

    Args:
        row: A row of ``tables.second_stage``.

    Returns:
        For example "PLC trained on".
    """
    name = label(row["method"], row["variant"])
    if row["start"]:
        return f"the {name} network that it started from"
    return name if row["method"] == tables.SECOND_STAGE else f"{name} trained on"


def second_stage(row: Row) -> str:
    """Say how an arm of the second stage does against one rival.

    Args:
        row: A row of ``tables.second_stage``.

    Returns:
        A sentence, and more where a rival trained on has or has not the same threshold, and where the two were not
        trained for as many epochs.
    """
    words = verdict(label(tables.SECOND_STAGE, row["subject_variant"]), rival(row), row["test"])
    if row["start"]:
        return words
    if row["method"] != tables.SECOND_STAGE and all(row["thresholds"]):
        mine, theirs = (", ".join(f"{value:g}" for value in values) for values in row["thresholds"])
        if mine == theirs:
            words += f" Both label with the same threshold, {mine}."
        else:
            words += f" They label with different thresholds ({mine} against {theirs})."
    mine, theirs = (", ".join(map(str, epochs)) for epochs in row["epochs"])
    if mine == theirs:
        return words
    return f"{words} The two were not trained for as many epochs ({mine} against {theirs})."


def own_head(rows: list[Row], truth: bool = True) -> tuple[str, str]:
    """Say for which methods fine-tuning loses to the linear head that it started from, the furthest behind first.

    Args:
        rows: Rows of ``tables.against_own_head``.
        truth: Whether the data have full labels.

    Returns:
        A sentence (empty without a comparison) and its kind: ``warning`` where a method loses, else ``note``.
    """
    known = [row for row in rows if row["test"]["mean"] is not None]
    if not known:
        return "", "note"
    lost = sorted((row for row in known if row["test"]["mean"] < 0), key=lambda row: row["test"]["mean"])
    if lost:
        named = [f"{label(row['method'], row['variant'], truth)} ({signed(row['test'])})" for row in lost]
        names = ", ".join(named[:_LOSERS]) + (f" and {len(lost) - _LOSERS} more" if len(lost) > _LOSERS else "")
        words = "Fine-tuning loses to the linear head that it started from, in test mAP, for"
        return f"{words} {len(lost)} of {_runs(known)}: {names}.", "warning"
    return f"Fine-tuning does not lose to the linear head that it started from, in test mAP ({_runs(known)}).", "note"


def _runs(rows: Sequence[Row]) -> str:
    """Return the number of methods, and of variants if there are any."""
    variants = sum(bool(row["variant"]) for row in rows)
    counts = (("method", len(rows) - variants), ("variant", variants))
    return " and ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts if count)


# ---------------------------------------------------------------------------------------------- all of them
def findings(collected: Collected, results: list[Row], dataset: Dataset) -> list[str]:
    """Say what the numbers of one dataset show.

    Args:
        collected: What the stages left.
        results: The rows of ``tables.results``.
        dataset: A dataset.

    Returns:
        Sentences; none where the runs that they need are not there.
    """
    name = dataset.name
    if not collected.truth(name):
        return _without_truth(collected, results, dataset)
    sentences = []
    coverage = analyses.label_coverage(collected, name)
    seen = "one label per image" if collected.one_label(name) else "the known labels alone"
    for stage in ("linear_init", "finetune"):
        sentences += _best(tables.ranked(results, name, stage), stage, coverage, seen)
    sentences += _falling(tables.falls(collected, "finetune", name))
    head, kind = own_head(tables.against_own_head(collected, name))
    sentences += [head] if kind == "warning" else []
    sentences += _separated(analyses.separations(collected, name))
    best = [row["method"] for row in tables.ranked(results, name, "finetune")]
    sentences += _right(analyses.pseudo_labels(collected, name), best)
    sentences += [second_stage(row) for row in tables.second_stage(collected, dataset) if not row["start"]]
    return sentences + ([words] if sentences and (words := caution(dataset)) else [])


def _without_truth(collected: Collected, results: list[Row], dataset: Dataset) -> list[str]:
    """Return what can be said where labels are not exhaustive: what the scores are, order, and what is not measured."""
    mine = [row for row in results if row["dataset"] == dataset.name]
    if not mine:
        return []
    given = mine[0]["given"]  # of one table, so the same for all
    sentences = [full] if (full := scores_are_true(dataset.name, given)) else []
    if given:
        sentences.append(
            f"{scores_are(dataset.name, given)}: a network is charged for every missed label that it finds, so "
            "they are no measure of its worth, and methods that believe unknown labels absent look better than they "
            "are."
        )
    if "test" not in given:
        coverage = analyses.label_coverage(collected, dataset.name)
        for stage in ("linear_init", "finetune"):
            rows = [row for row in tables.ranked(results, dataset.name, stage) if row["method"] != CEILING]
            sentences += _best(rows, stage, coverage, "the same labels")
    sentences += [words] if (words := caution(dataset)) else []
    sentences.append(
        unmeasured(dataset.name, "how many labels are missed, how many the methods find, and how often they are right")
    )
    head, kind = own_head(tables.against_own_head(collected, dataset.name), truth=False)
    sentences += [marked(head, given)] if kind == "warning" else []
    seconds = [second_stage(row) for row in tables.second_stage(collected, dataset) if not row["start"]]
    return sentences + [marked(words, given) for words in seconds]


def _plain(rows: Sequence[Row]) -> tuple[dict[str, Row], list[Row]]:
    """Return one row a method, and those of methods that see single positives and doubt them.

    The row is the grid's own; a method that has none at this stage, as one that compares views has no linear head,
    stands with the variant that starts from another method's.
    """
    plain = {row["method"]: row for row in rows if row.get("start")}
    plain |= {row["method"]: row for row in rows if not row["variant"]}
    return plain, [row for method, row in plain.items() if method not in (BASELINE, *ORACLES)]


def before_labels(method: str, coverage: Sequence[Row]) -> str:
    """Say so where a method had given no pseudo-label by its chosen epoch.

    Args:
        method: Name of the method.
        coverage: Its rows of ``analyses.label_coverage``.

    Returns:
        A sentence; empty where there was a label at any seed, or the method has none.
    """
    if not coverage or any(row["labelled"] or row["coverage"] for row in coverage):
        return ""
    seeds = f" at each of {len(coverage)} seeds" if len(coverage) > 1 else ""
    return (
        f"{label(method)}'s chosen epoch lies before its first pseudo-label{seeds}, so its pseudo-labels have little "
        "or no part in this result."
    )


def labelled(coverage: Sequence[Row]) -> str:
    """Return how many unknown cells carried a pseudo-label in the chosen epoch, in percent; a dash without rows."""
    if not coverage:
        return "–"
    value = tables.spread(100 * row["coverage"] for row in coverage)
    words = f"{plus_minus({**value, 'std': None})}%"
    none = sum(not row["coverage"] for row in coverage)
    return f"{words} (none at {none} of {len(coverage)} seeds)" if 0 < none < len(coverage) else words


def _best(rows: list[Row], stage: str, coverage: dict[analyses.Identity, list[Row]], seen: str) -> list[str]:
    plain, rivals = _plain([row for row in rows if row["test_map"]["mean"] is not None])
    if BASELINE not in plain:
        return []
    low = plain[BASELINE]
    # another head or recipe does not compare with the baseline's
    rivals = [row for row in rivals if (row["head"], row["protocol"]) == (low["head"], low["protocol"])]
    rivals.sort(key=lambda row: -row["test_map"]["mean"])
    if not rivals:
        return []
    best = rivals[0]
    after, scores = AFTER[stage].capitalize(), plus_minus(best["test_map"])
    name = label(best["method"], best["variant"])
    against = f"{plus_minus(low['test_map'])} for {label(BASELINE)}"
    early = before_labels(best["method"], coverage.get((stage, best["method"], best["variant"]), ()))
    if best["test_map"]["mean"] <= low["test_map"]["mean"]:
        words = (
            f"{after}, no method that sees {seen} beats {label(BASELINE)} in test mAP: {scores} for the "
            f"next, {name}, against {against}."
        )
        return [f"{words} {early}".strip()]
    told = " (told the label density)" if best["density"] else ""
    words = f"{after}, {name}{told} is best of the methods that see {seen}: {scores} test mAP against "
    words += against
    if CEILING in plain:
        words += f" and {plus_minus(plain[CEILING]['test_map'])} for full labels"
    if best["gap_share"] is not None:
        words += f". It closes {best['gap_share']:.0f}% of the gap from {label(BASELINE)} to full labels"
    return [f"{words}{_lead(rivals)}.{_untold(rivals)} {early}".strip()]


def _untold(rivals: list[Row]) -> str:
    """Return the best method that is not told the label density, where the best of all is."""
    others = [row for row in rivals if not row["density"]]
    if not rivals[0]["density"] or not others:
        return ""
    name = label(others[0]["method"], others[0]["variant"])
    return f" Of those not told the label density {name} is best, with {plus_minus(others[0]['test_map'])}."


def _lead(rivals: list[Row]) -> str:
    """Return a caveat where the best two are level or lie within a standard deviation, else nothing."""
    if len(rivals) < 2:
        return ""
    first, second = rivals[0]["test_map"], rivals[1]["test_map"]
    name = label(rivals[1]["method"], rivals[1]["variant"])
    if first["mean"] - second["mean"] < LEVEL:
        return f"; {name} is level with it"
    known = [value["std"] for value in (first, second) if value["std"] is not None]
    if not known or first["mean"] - second["mean"] > max(known):
        return ""
    behind = f"{first['mean'] - second['mean']:.1f} behind"
    return f"; {name} is {behind}, within one standard deviation, so their order is open"


def _falling(rows: list[Row]) -> list[str]:
    plain, others = _plain(rows)
    low = plain.get(BASELINE)
    if low is None:
        return []
    drop, name = low["fall"]["mean"], label(BASELINE)
    if drop < LEVEL:
        return [f"While fine-tuning, {name}'s val mAP does not fall: its last of {low['epochs']} epochs is its best."]
    words = (
        f"While fine-tuning, {name}'s val mAP is best at epoch {low['best_epoch']:g} and has lost {drop:.1f} points by "
        f"epoch {low['epochs']}, the last"
    )
    if others:
        best = max(others, key=lambda row: row["best"]["mean"])
        words += f"; {label(best['method'])}, the best of the others on val, loses {best['fall']['mean']:.1f}"
    return [f"{words}."]


def _separated(rows: list[Row]) -> list[str]:
    _, others = _plain([row for row in rows if row["stage"] == "finetune" and row["above"] is not None])
    others = [row for row in others if row["train"]["mean"] is not None]
    if not others:
        return []
    best = max(others, key=lambda row: row["train"]["mean"])
    return [
        f"{label(best['method'])} sets hidden positives further apart from negatives than {label(BASELINE)} in "
        f"{best['above']} of {best['of']} classes (fine-tuned, training images)."
    ]


def _right(rows: list[Row], best: list[str]) -> list[str]:
    plain, _ = _plain([row for row in rows if row["stage"] == "finetune" and row["accuracy"]["mean"] is not None])
    known = sorted(plain.values(), key=lambda row: best.index(row["method"]))
    return [_accuracy(row) for row in known[:_AUDITED]]


def _accuracy(row: dict[str, Any]) -> str:
    right, base, part = (100 * row[key]["mean"] for key in ("accuracy", "baseline_all_unknown_negative", "coverage"))
    side = "above" if right >= base else "below"
    return (
        f"{label(row['method'])}'s pseudo-labels cover {part:.1f}% of the unknown training labels and are right in "
        f"{right:.2f}% of these, {abs(right - base):.2f} points {side} the rate of calling every unknown label absent."
    )
