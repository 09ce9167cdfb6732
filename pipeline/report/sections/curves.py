"""Validation mAP by epoch."""

from typing import Any

import pandas as pd

from pipeline.config.params import TRAINING_STAGES
from pipeline.report import comparisons, figures, findings, frames
from pipeline.report.context import Page, Part
from pipeline.report.frames import ARM, BASELINE, GIVEN, Results
from pipeline.report.text import label


def part(page: Page, result: Results) -> Part:
    """Return the curves of val mAP and of the loss of each stage."""
    stages = {stage: _stage(page, result, stage) for stage in TRAINING_STAGES if len(result.ranked(stage))}
    return Part(result.name, {"stages": stages, "caution": findings.caution(result.about)} if stages else None)


def wide(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return one row an epoch with a column an arm, and its ``_std`` where it has several runs: as dvc plots draws."""
    parts = []
    for (_, method, variant), rows in frames.by_arm(frame):
        name = f"{method}-{variant}" if variant else method
        mine = rows.set_index("epoch")[[column, f"{column}_std"]].set_axis([name, f"{name}_std"], axis=1)
        parts.append(mine if rows["several"].iloc[0] else mine[[name]])
    return pd.concat(parts, axis=1).sort_index().rename_axis("epoch").reset_index().astype({"epoch": int})


def _stage(page: Page, result: Results, stage: str) -> dict[str, Any]:
    chosen = page.choose(result, result.arms[result.arms["stage"] == stage])
    name, looks, every = f"{result.name}-{stage}", chosen.looks, list(chosen.looks)
    runs = result.runs.groupby(ARM, sort=False).size().rename("runs").reset_index()
    maps, losses = (
        comparisons.over_epochs(result, stage, column).merge(runs, on=ARM).assign(several=lambda rows: rows["runs"] > 1)
        for column in ("val_map", "loss")
    )
    falls = {tuple(row[:3]): row[3] for row in comparisons.falls(result, stage)[[*ARM, "fall"]].itertuples(index=False)}
    mark = "\n" + GIVEN.replace("; ", ";\n") if "val" in result.given else ""  # in lines that fit the axis
    columns, axis = wide(maps, "val_map"), "val mAP (%)"
    curves = figures.curves(maps, "val_map", looks, x="epoch", y=axis + mark, least=figures.POINTS)
    losing = chosen.rows(losses).drop(columns="selected")
    loss = figures.multiples(losing, "loss", looks, y="mean train loss")
    epochs = result.epochs[result.epochs["stage"] == stage]
    averaged = "val_score_average" in epochs and bool(epochs["val_score_average"].notna().any())
    return {
        "chosen": chosen,
        "curves": page.figure(f"{name}-val_map", curves, columns),
        "each": _each(page, result, stage, maps, chosen, falls) if len(chosen.shown) < len(every) else None,
        "base": (stage, BASELINE, "") in every,
        "loss": page.figure(f"{name}-loss", loss, wide(losses, "loss")),
        "bands": len(every) <= figures.NAMED and bool(maps["val_map_std"].notna().any()),
        "averaged": averaged,
        "falls": [f"{label(*arm[1:], result.truth)} {falls[arm]:.1f}" for arm in chosen.shown if arm in falls],
    }  # fmt: skip


def _each(
    page: Page, result: Results, stage: str, maps: pd.DataFrame, chosen: Any, falls: dict[tuple[str, ...], float]
) -> Any:
    """Return the figure with one panel a method, best first, with the points that each lost after its best epoch."""
    order = frames.arms_of(result.ranked(stage))
    rows = dict(frames.by_arm(maps))
    lost = [falls.get(arm, 0.0) for arm in order]
    notes = [f"−{fall:.1f}" if fall >= findings.LEVEL else "" for fall in lost]
    base = (stage, BASELINE, "")
    ordered = pd.concat([rows[arm] for arm in order])
    image = figures.multiples(ordered, "val_map", chosen.looks, y="val mAP (%)", reference=base, notes=notes)
    return page.figure(f"{result.name}-{stage}-val_map_each", image, wide(maps, "val_map"))
