"""What was run and what came out."""

import numpy as np

from pipeline.report import counts
from pipeline.report.context import Page, Part
from pipeline.report.findings import findings
from pipeline.report.frames import Results
from pipeline.report.text import percent


def part(page: Page, result: Results) -> Part:
    """Return the counts of a dataset and what its numbers show."""
    cards = _cards(result)
    sentences = findings(result)
    return Part(result.name, {"cards": cards, "sentences": sentences} if cards or sentences else None)


def _cards(result: Results) -> dict[str, str]:
    """Return numbers by what they count."""
    table, simulate = result.about.table, result.about.simulate.values()
    if table is None:
        return {}
    splits = counts.splits(result.about).set_index("split")
    train = splits.loc["train"]
    images = {split: f"{count:,}" for split, count in splits["images"].items()}
    labels = f"labels per training image, {'one' if result.one_label else 'some'} of them shown"
    given = "given" if table.rules is None else "given or implied by rules"
    cards = {
        "images: {train} train, {val} val, {test} test".format(**images): f"{len(table.paths):,}",
        "classes": str(len(table.classes)),
        labels if table.exhaustive else f"present labels {given} per training image":
            f"{train['labels_per_image'] if train['images'] else 0:.2f}",
    }  # fmt: skip
    if not table.exhaustive:
        share = train["cells_unscored"] / max(train["images"] * len(table.classes), 1)
        return cards | {"of the training labels are unknown; how many are present was not measured": percent(share)}
    if simulate:
        words = "of the unknown training labels are in truth present: the error of assuming them absent"
        expected = next(iter(simulate)).get("expected_false_negative_rate")
        words += "" if expected is None else f" ({percent(expected)} expected of such a draw)"
        cards[words] = percent(np.mean([report["false_negative_rate"] for report in simulate]))
    return cards
