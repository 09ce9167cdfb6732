"""The second stage against its rivals."""

import pandas as pd

from pipeline.report import comparisons, findings
from pipeline.report.context import Page, Part
from pipeline.report.frames import SECOND_STAGE, Results
from pipeline.report.text import column, interval, label, listed, marked, say, spread_of

_FILE = ("subject", "rival", "start", *(f"{name}{end}" for name in ("test", "supported", "val")
                                        for end in comparisons.ENDS))  # fmt: skip


def part(page: Page, result: Results) -> Part:
    """Return what each paired difference supports, and their table."""
    rows = comparisons.second_stage(result)
    if rows.empty:
        return Part(result.name)
    every, several = rows.to_dict("records"), bool(rows["test_low"].notna().any())
    thresholds = dict(zip(("threshold", "rival_threshold"), zip(*rows["thresholds"], strict=True), strict=True))
    page.table(f"{result.name}-second_stage", rows[list(_FILE)].assign(**thresholds))
    table = {
        "Method": [label(SECOND_STAGE, variant) for variant in rows["subject_variant"]],
        "minus": [say("rival", row) for row in every],
        "Test mAP": column(rows, "test", 2, sign=True), "Supported mAP": column(rows, "supported", 2, sign=True),
        "Val mAP": column(rows, "val", 2, sign=True),
        **({"95% interval, test": [interval(spread_of(row, "test"), 2) for row in every]} if several else {}),
        "Draws won": [f"{won} of {draws}" for won, draws in zip(rows["test_won"], rows["test_draws"], strict=True)],
        "Thresholds of both": [" / ".join(listed(side) or "–" for side in sides) for sides in rows["thresholds"]],
        "Epochs of both": [" / ".join(listed(side) or "–" for side in sides) for sides in rows["epochs"]],
    }  # fmt: skip
    ranks = "test" not in result.given  # given labels say of no network that it is better
    sentences = [marked(findings.second_stage(row), result.given) for row in every if ranks]
    return Part(result.name, {"sentences": sentences, "table": pd.DataFrame(table)})
