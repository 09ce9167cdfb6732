"""Settings of methods as the stage search scored them."""

from typing import Any

import pandas as pd

from pipeline.core.strict import show_value
from pipeline.report.context import Page, Part
from pipeline.report.frames import Results
from pipeline.report.text import label, points


def part(page: Page, result: Results) -> Part:
    """Return the best setting by each score, and how far others fall behind."""
    choice = result.about.search
    if choice is None:
        return Part(result.name)
    scores = [key for key in ("clean", "auto") if key in choice]
    ranked = {key: [choice[key]["best"], *choice[key]["others"]] for key in scores if choice[key]["best"]}
    rows = [{"chosen_by": key, **_flat(arm)} for key in ranked for arm in ranked[key]]
    page.table(f"{result.name}-search", pd.DataFrame(rows))
    tables = {key: _table(result, arms) for key, arms in ranked.items()}
    return Part(result.name, {"tables": tables, "draws": choice["draws"], "seeds": choice["seeds"]})


def _flat(arm: dict[str, Any]) -> dict[str, Any]:
    difference = arm.get("difference") or {}
    told = {key: arm[key] for key in ("method", "learning_rate", "weight_decay", "scale", "score", "test_map")}
    behind = {f"behind_{key}": difference.get(key) for key in ("mean", "low", "high")}
    return told | {"settings": show_value(arm["settings"])} | behind


def _table(result: Results, arms: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame({
        "Method": [label(arm["method"], truth=result.truth) for arm in arms],
        "Changed": [show_value(arm["settings"]) if arm["settings"] else "–" for arm in arms],
        "Rate": [f"{arm['learning_rate']:g}" for arm in arms],
        "Weight decay": [f"{arm['weight_decay']:g}" for arm in arms],
        "Scale": [arm["scale"] for arm in arms],
        "Score": [f"{arm['score']:.2f}" for arm in arms],
        "Behind the best": [_behind(arm.get("difference")) for arm in arms],
        "Test mAP": [points(arm["test_map"]) for arm in arms],
    })  # fmt: skip


def _behind(difference: dict[str, Any] | None) -> str:
    """Return a difference with its interval, where there is one."""
    if difference is None:
        return "best"
    if difference["low"] is None:
        return f"{difference['mean']:.2f}"
    told = "" if difference["apart"] else ", not told apart"
    return f"{difference['mean']:.2f} ({difference['low']:.2f} to {difference['high']:.2f}{told})"
