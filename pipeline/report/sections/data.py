"""The data and the simulated labels."""

from typing import Any

import pandas as pd

from pipeline.report import analyses, counts, figures
from pipeline.report.context import Page, Part
from pipeline.report.frames import Results
from pipeline.report.text import leaves, percent, whole

_SHOWN = ("classes", "splits", "warnings")  # parts of a source's report that the page shows elsewhere


def facts(values: list[tuple[str, Any]]) -> pd.DataFrame:
    """Return a table of names and values."""
    return pd.DataFrame({"What": [name for name, _ in values], "Value": [str(value) for _, value in values]})


def part(page: Page, result: Results) -> Part:
    """Return the splits, how labels were hidden, the classes, and what the source read."""
    about, content = result.about, {}
    splits, classes = counts.splits(about), counts.classes(about)
    if len(splits):
        page.table(f"{result.name}-splits", splits)
        content["splits"] = _splits(result, splits)
    if about.first_draw is not None:
        content["simulate"] = about.first_draw
        content["rates"] = {draw: report["false_negative_rate"] for draw, report in about.simulate.items()}
    if about.beliefs:
        found = {draw: analyses.believed(result, draw) for draw in about.beliefs}
        page.table(f"{result.name}-shares", pd.concat([rows.assign(draw=draw) for draw, rows in found.items()]))
        content["believed"] = {draw: _believed(result, draw, rows) for draw, rows in found.items()}
        content["shares"] = _shares(next(iter(found.values())))
        content["hidden"] = analyses.hidden_by_belief(result)
    if len(classes):
        image = figures.supports(classes.sort_values("support_train", ascending=False, kind="stable"))
        content["figure"] = page.figure(f"{result.name}-classes", image, classes)
        content["classes"] = _classes(result, classes)
    if read := leaves({key: value for key, value in (about.prepare or {}).items() if key not in _SHOWN}):
        content["read"] = facts(read)
    return Part(result.name, content or None)


def _believed(result: Results, draw: int, rows: pd.DataFrame) -> dict[str, Any]:
    """Return labels an image as beliefs estimate them, with what is true of the training images where that is known."""
    labels, found = result.about.beliefs[draw]["labels_per_image"], {"true": None, "error": None, "inside": None}
    known = rows.dropna(subset="true")
    if len(known):
        sized = known.dropna(subset="low")
        inside = int(((sized["low"] <= sized["true"]) & (sized["true"] <= sized["high"])).sum())
        found = {"true": float(known["true"].sum()), "error": float((known["share"] - known["true"]).abs().mean())}
        found |= {"inside": f"{inside} of {len(sized)}" if len(sized) else None}
    return {"labels": labels, **found}


def _shares(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table of class shares of one draw."""
    table = {
        "Class": rows["class"], "Estimated": rows["share"].map(percent),
        "95 % interval": [
            "–" if pd.isna(low) else f"{percent(low)} to {percent(high)}"
            for low, high in rows[["low", "high"]].to_numpy()
        ],
    }  # fmt: skip
    return pd.DataFrame({**table, **({"True": rows["true"].map(percent)} if rows["true"].notna().any() else {})})


def _splits(result: Results, splits: pd.DataFrame) -> pd.DataFrame:
    per_image = ["–" if pd.isna(value) else f"{value:.2f}" for value in splits["labels_per_image"]]
    official = {"official_train": "Official train list", "official_test": "Official test list"}
    titles = {
        **({} if result.about.own else official),  # of own data: what the splits say
        "without_positive": "Images without a positive",
        "classes_present": "Classes present",
        "cells_unscored": "Labels left out, truth unknown" if result.truth else "Unknown labels",
    }
    table = {
        "Split": splits["split"],
        "Images": splits["images"].map(whole),
        "Labels per image" if result.truth else "Present labels given per image": per_image,
        **{title: splits[name].map(whole) for name, title in titles.items()},
    }
    return pd.DataFrame(table)


def _classes(result: Results, classes: pd.DataFrame) -> pd.DataFrame:
    official = (
        {}
        if result.about.own
        else {"Official train": "support_official_train", "Official test": "support_official_test"}
    )
    counts = {"Train": "support_train", "Val": "support_val", "Test": "support_test", **official}
    table = {
        "Class": classes["class"],
        **{title: classes[name].map(whole) for title, name in counts.items()},
        "Supported": ["yes" if supported else "no" for supported in classes["supported"]],
        "Observed": classes["observed_positive"].map(whole),
        "Unknown": classes["unknown"].map(whole),
        **({"Of these known by rules": classes["by_rules"].map(whole)} if "by_rules" in classes else {}),
        **({"False negatives": classes["false_negative_rate"].map(percent)} if result.truth else {}),
    }
    return pd.DataFrame(table)
