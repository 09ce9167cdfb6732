"""How far hidden positives are from negatives."""

from typing import Any

import pandas as pd

from pipeline.config.params import TRAINING_STAGES
from pipeline.report import analyses, figures
from pipeline.report.context import Page, Part
from pipeline.report.frames import ARM, BASELINE, Results
from pipeline.report.text import column, label


def part(page: Page, result: Results) -> Part:
    """Return the distances of each class against the baseline, their course, and a table of all."""
    if not result.truth:
        what = "how far missed labels are set apart from labels that are rightly absent"
        return Part(result.name, unmeasured=page.unmeasured(result, what))
    points = analyses.distances(result, "train").dropna(subset="baseline")
    points = points[(points["method"] != BASELINE) | (points["variant"] != "")]
    epochs = analyses.distance_epochs(result, "val")
    stages = {}
    for stage in TRAINING_STAGES:
        figures_of = {
            "scatter": _scatter(page, result, stage, points[points["stage"] == stage]),
            "epochs": _epochs(page, result, stage, epochs[epochs["stage"] == stage]),
        }
        if any(figures_of.values()):
            stages[stage] = figures_of
    found = analyses.separations(result)
    if found.empty:
        return Part(result.name, {"stages": stages, "table": None} if stages else None)
    page.table(f"{result.name}-wasserstein", found)
    table = {
        **page.names(result, found), "Pooled, train": column(found, "train", 3), "Pooled, val": column(found, "val", 3),
        "Classes above AN": [
            "–" if pd.isna(above) else f"{above} of {of}" for above, of in found[["above", "of"]].to_numpy()
        ],
    }  # fmt: skip
    return Part(result.name, {"stages": stages, "table": pd.DataFrame(table)})


def _scatter(page: Page, result: Results, stage: str, rows: pd.DataFrame) -> dict[str, Any] | None:
    if rows.empty:
        return None
    chosen = page.choose(result, rows)
    image = figures.scatter(
        chosen.rows(rows), chosen.looks, x=f"distance under {label(BASELINE)}", y="under the method"
    )
    file = rows[[*ARM, "class", "baseline", "distance"]]
    return {"picture": page.figure(f"{result.name}-{stage}-wasserstein", image, file), "chosen": chosen}


def _epochs(page: Page, result: Results, stage: str, rows: pd.DataFrame) -> dict[str, Any] | None:
    if rows.empty:
        return None
    chosen = page.choose(result, rows)
    image = figures.curves(rows, "pooled", chosen.looks, x="epoch", y="pooled distance on val")
    file = rows.rename(columns={"pooled": "mean", "pooled_std": "std"}).astype({"selected": int})
    picture = page.figure(
        f"{result.name}-{stage}-wasserstein_epochs", image, file[[*ARM, "epoch", "mean", "std", "selected"]]
    )
    return {"picture": picture, "chosen": chosen}
