"""Pseudo-labels, beliefs and calibration."""

from typing import Any

import pandas as pd

from pipeline.config.params import TRAINING_STAGES
from pipeline.report import analyses, figures, frames
from pipeline.report.context import Chosen, Page, Part
from pipeline.report.findings import MISSED
from pipeline.report.frames import ARM, RULES, RUN, WORTH, Results
from pipeline.report.text import column, percent, points, whole


def part(page: Page, result: Results) -> Part:
    """Return the audit of pseudo-labels, or what can be said of them where nobody knows which are right."""
    if result.audits["runs"].empty:
        return Part(result.name)
    if not result.truth:
        return Part(result.name, _without_truth(page, result), page.unmeasured(result, MISSED))
    rows = analyses.pseudo_labels(result)
    page.table(f"{result.name}-pseudo_labels", rows)
    rows = rows[rows["reason"] == ""]
    base = rows.assign(baseline_all_unknown_negative_std=float("nan"))
    table = {
        **page.names(result, rows),
        "Coverage": _percents(rows, "coverage"), "Accuracy": _percents(rows, "accuracy"),
        "Base rate": _percents(base, "baseline_all_unknown_negative"),
        "“Absent” right": _percents(rows, "negative_accuracy"),
        "“Present” right": _percents(rows, "positive_precision"),
        "Hidden positives found": _percents(rows, "hidden_positive_recall"),
        "Called absent": _percents(rows, "hidden_positive_miss_rate"),
    }  # fmt: skip
    content = {
        "table": pd.DataFrame(table) if len(rows) else None, "rounds": _rounds(page, result),
        "classes": _classes(page, result), "calibration": _calibration(page, result),
        "thresholds": _thresholds(page, result),
    }  # fmt: skip
    return Part(result.name, content if any(value is not None and len(value) for value in content.values()) else None)


def _percents(frame: pd.DataFrame, name: str) -> list[str]:
    return column(frame, name, 2, share=True)


def _without_truth(page: Page, result: Results) -> dict[str, Any]:
    rows = analyses.without_truth(result)
    page.table(f"{result.name}-pseudo_labels", rows)
    columns = {"Called present": "present", "Called absent": "absent", "Mean belief": "belief",
               "Believed present": "believed", "Mean probability": "probability"}  # fmt: skip
    table = {**page.names(result, rows), **{title: _percents(rows, name) for title, name in columns.items()}}
    every = analyses.pseudo_classes(result)
    by_class = {}
    if len(every):
        names = ["class", "unknown", "positives", "negatives", "coverage"]
        page.table(f"{result.name}-pseudo_labels_by_class", every[[*ARM, *names]])
        titles = {"Class": "class", "Unknown": "unknown", "Called present": "positives", "Called absent": "negatives",
                  "Coverage": "coverage"}  # fmt: skip
        by_class = _class_tables(page, result, every, page.choose(result, every).shown, titles)
    return {"table": pd.DataFrame(table), "classes": by_class, "thresholds": _thresholds(page, result)}


def _thresholds(page: Page, result: Results) -> dict[str, Any]:
    """Return what each rule of thresholds is worth, where test labels are known, and thresholds by class of some arms.

    A cell of worth is F1 as a mean over classes, and of all labels together; means over draws and seeds.
    """
    worth = frames.spreads(result.runs, ARM, [f"{rule}_{name}" for rule in RULES for name in WORTH])
    table = None
    if len(known := worth[worth["zero_macro"].notna()]):
        page.table(f"{result.name}-f1", known)
        cells = {
            title: [
                f"{points(a)} / {points(b)}"
                for a, b in zip(known[f"{rule}_macro"], known[f"{rule}_micro"], strict=True)
            ]
            for rule, title in RULES.items()
        }
        found = {f"Found by {RULES[rule].lower()}": column(known, f"{rule}_found") for rule in ("matching", "0.9")}
        table = pd.DataFrame({**page.names(result, known), **cells, **found})
    page.table(
        f"{result.name}-thresholds", result.cuts[[*ARM, *RUN, *(n for n in result.cuts if n not in (*ARM, *RUN))]]
    )
    first = result.cuts.drop_duplicates([*ARM, "class"])
    mine = dict(frames.by_arm(first))
    return {
        "table": table,
        "by_class": {
            f"{page.name(result, arm)}, {page.short[arm[0]]}": _cuts(mine[arm])
            for arm in page.choose(result, first).shown
        },
    }


def _cuts(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table of one run's thresholds."""

    def logits(name: str) -> list[str]:
        return ["–" if pd.isna(value) else f"{value:.2f}" for value in rows[name]]

    ends = zip(logits("matching_low"), logits("matching_high"), strict=True)
    return pd.DataFrame({
        "Class": rows["class"], "Estimated share": rows["share"].map(percent), "Matching": logits("matching"),
        "Its 95 % interval": ["–" if low == "–" else f"{low} to {high}" for low, high in ends],
        "Shown": rows["shown"].map(whole), "Finds 80 %": logits("conformal_0.8"), "90 %": logits("conformal_0.9"),
        "95 %": logits("conformal_0.95"), "Why not": rows["reason"],
    })  # fmt: skip


def _class_tables(
    page: Page, result: Results, every: pd.DataFrame, arms: list[frames.Arm], titles: dict[str, str]
) -> dict[str, pd.DataFrame]:
    """Return a table of classes for each arm, by its caption: names as they are, counts whole, shares in percent."""
    mine, shares = dict(frames.by_arm(every)), ("coverage", "accuracy", "base")
    tables = {}
    for arm in arms:
        cells = {
            title: mine[arm][name] if name == "class" else mine[arm][name].map(percent if name in shares else whole)
            for title, name in titles.items()
        }
        tables[f"{page.name(result, arm)}, {page.short[arm[0]]}"] = pd.DataFrame(cells)
    return tables


def _rounds(page: Page, result: Results) -> dict[str, Any]:
    every = analyses.pseudo_rounds(result)
    records = [item.record for item in page.collected.audits if item.dataset == result.name]
    measures = (
        ("Accuracy (dashed: base rate)", "accuracy", records[0]["baseline_all_unknown_negative"]),
        ("Coverage", "coverage", None),
        ("Hidden positives called absent", "hidden_positive_miss_rate", None),
    )
    found = {}
    for stage in TRAINING_STAGES:
        mine = every[every["stage"] == stage]
        if len(mine):
            chosen = page.choose(result, mine)
            image = figures.rounds(mine, chosen.looks, measures)
            found[stage] = (page.figure(f"{result.name}-{stage}-pseudo_labels", image, mine), chosen)
    return found


def _classes(page: Page, result: Results) -> dict[str, Any] | None:
    every = analyses.pseudo_classes(result)
    if every.empty:
        return None
    page.table(f"{result.name}-pseudo_labels_by_class", every)
    titles = {"Class": "class", "Unknown": "unknown", "Coverage": "coverage", "Accuracy": "accuracy",
              "Base rate": "base", "Hidden positives": "hidden_positives", "Called absent": "called_negative",
              "Found": "found"}  # fmt: skip
    choices = [page.choose(result, mine) for _, mine in every.groupby("stage", sort=False)]
    chosen = Chosen({arm: look for choice in choices for arm, look in choice.looks.items()}, choices[0].by)
    return {"tables": _class_tables(page, result, every, chosen.shown, titles), "chosen": chosen}


def _calibration(page: Page, result: Results) -> dict[str, Any]:
    every = analyses.calibration(result)
    found = {}
    for stage in TRAINING_STAGES:
        bins = every[every["stage"] == stage]
        if len(bins):
            chosen = page.choose(result, bins)
            known = (
                bins.dropna(subset="reference").drop_duplicates("mean_belief", keep="last").sort_values("mean_belief")
            )
            curve = (known["mean_belief"].tolist(), known["reference"].tolist()) if len(known) > 2 else None
            image = figures.calibration(analyses.coarse(chosen.rows(bins)), chosen.looks, curve)
            found[stage] = (page.figure(f"{result.name}-{stage}-calibration", image, bins), chosen)
    return found
