"""The page without truth says how many labels named as missed are, as the stored table has it."""

import csv
import re
from pathlib import Path
from statistics import mean, stdev

import pytest

ROOT = Path(__file__).resolve().parents[2]
with open(ROOT / "benchmarks" / "missed.tsv", encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file, delimiter="\t"))
PAGE = (ROOT / "docs" / "without-truth.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Labels named as missed")[2].partition("\n## ")[0]
LINES = re.findall(
    r"^\| [*`]*(hidden\.tsv|beliefs|em|full|ridge_full)\b[^|]*\|(.*)\|$", SECTION.replace("**", ""), re.MULTILINE
)


@pytest.mark.parametrize(("ranking", "cells"), LINES, ids=lambda text: text[:10])
def test_the_page_says_what_the_table_holds(ranking: str, cells: str) -> None:
    places = [(dataset, key) for dataset in ("digits", "voc_photos") for key in ("at_50", "at_200")]
    for cell, (dataset, key) in zip(cells.split("|"), places, strict=True):
        found = [float(row[key]) for row in ROWS if (row["dataset"], row["ranking"]) == (dataset, ranking)]
        assert len(found) == 5
        assert cell.strip() == f"{mean(found):.1f} ± {stdev(found):.1f}"


def test_every_ranking_is_on_the_page() -> None:
    assert {ranking for ranking, _ in LINES} == {row["ranking"] for row in ROWS} and len(LINES) == 5
