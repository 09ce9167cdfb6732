"""What is missing, what was skipped and why, and what every run was made with."""

from typing import Any

import pandas as pd

from pipeline.report import analyses
from pipeline.report.context import Page
from pipeline.report.frames import RUN, Results
from pipeline.report.sections.data import facts
from pipeline.report.text import cut_short, label, leaves

_VALUE = 120  # characters of a value in a table of facts


def content(page: Page) -> dict[str, Any]:
    """Return what the last section shows."""
    rows = [(item.path, item.reason) for item in page.collected.missing]
    several = len(page.results) > 1
    skipped = [
        f"{name}: {words}" if several else words
        for name, result in page.results.items()
        for words in _skipped(page, result)
    ]
    missing = pd.DataFrame(rows, columns=["Missing", "Why"])
    return {"missing": missing, "skipped": skipped or ["nothing"], **_provenance(page)}


def _skipped(page: Page, result: Results) -> list[str]:
    audits, reasons = analyses.pseudo_labels(result), {}
    for row in audits[audits["reason"] != ""].to_dict("records"):
        name = f"{label(row['method'], row['variant'], result.truth)} ({page.short[row['stage']]})"
        reasons.setdefault(row["reason"], []).append(name)
    items = [f"No pseudo-label audit of {cut_short(names)}: {why}." for why, names in reasons.items()]
    reasons = {} if result.truth else dict.fromkeys(result.wasserstein["runs"]["reason"], ["any class"])
    lost = result.wasserstein["per_class"]
    lost = lost[lost["distance"].isna()].sort_values(RUN, kind="stable")
    for row in lost.drop_duplicates(["reason", "class", "split"]).to_dict("records"):
        reasons.setdefault(row["reason"], []).append(f"{row['class']} ({row['split']})")
    items += [f"No Wasserstein distance of {cut_short(names)}: {why}." for why, names in reasons.items()]
    return items + [f"Warning while reading: {words}" for words in (result.about.prepare or {}).get("warnings", [])]


def _provenance(page: Page) -> dict[str, Any]:
    found: dict[str, dict[str, None]] = {}
    for run in page.collected.runs:
        for name, value in leaves(run.provenance):
            found.setdefault(name, {})[str(value)] = None
    versions = {name: "; ".join(values) for name, values in found.items() if name.startswith("versions.")}
    same = [(name, min(values)) for name, values in found.items() if len(values) == 1 and len(min(values)) <= _VALUE]
    made_with = {}
    if same:
        made_with[
            f"What the {len(page.collected.runs)} training run{'s' * (len(page.collected.runs) != 1)} have in common"
        ] = same
    for name, result in page.results.items():
        if result.about.backbone is not None:
            made_with[f"Backbone of {name}"] = leaves(result.about.backbone)
    return {
        "versions": [f"{name.removeprefix('versions.')} {value}" for name, value in sorted(versions.items())],
        "made_with": {title: facts(sorted(values)) for title, values in made_with.items()},
    }
