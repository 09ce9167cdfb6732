"""The page without truth says what the stored table of thresholds holds."""

import csv
import re
from pathlib import Path
from statistics import mean, stdev

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"digits": "digits", "photographs": "voc_photos"}
with open(ROOT / "benchmarks" / "thresholds.tsv", encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file, delimiter="\t"))
PAGE = (ROOT / "docs" / "without-truth.md").read_text(encoding="utf-8")
LINES = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| (digits|photographs) `", line)
]
HIDDEN = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| 0\.\d to [\d.]+ \|", line)
]


def values(dataset: str, name: str, key: str) -> list[float]:
    found = [float(row[key]) for row in ROWS if (row["dataset"], row["name"]) == (dataset, name) and row[key]]
    assert len(found) == 5
    return found


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0])
def test_the_page_says_what_the_table_holds(line: list[str]) -> None:
    data, method = line[0].replace("`", "").split()
    dataset, cells = NAMES[data], line[1:]
    if len(cells) == 4:
        for cell, told in zip(cells, ("0.5", "1", "2", "estimated"), strict=True):
            maps = values(dataset, f"{method} {told}", "test_map")
            assert cell == f"{mean(maps):.1f} ± {stdev(maps):.1f}"
        return
    for cell, rule in zip(cells, ("matching", "zero", "clean", "0.9"), strict=False):
        f1 = [mean(values(dataset, f"{method} {rule}", key)) for key in ("macro", "micro")]
        assert cell == f"{f1[0]:.1f} / {f1[1]:.1f}", rule
    assert cells[4] == f"{mean(values(dataset, f'{method} 0.9', 'found')):.1f}"
    assert float(cells[5].split()[0]) == pytest.approx(mean(values(dataset, f"{method} 0.9", "classes")))


@pytest.mark.parametrize("line", HIDDEN, ids=lambda line: line[0])
def test_beliefs_are_right_as_often_as_the_page_says(line: list[str]) -> None:
    low, high = map(float, line[0].split(" to "))
    sets = (("digits", 3000), ("digits", 120), ("voc_photos", 528), ("voc_photos", 120))
    for cell, (dataset, images) in zip(line[1:], sets, strict=True):
        name = f"{images} images, belief {low} to {high}"
        named, present = (sum(values(dataset, name, key)) for key in ("named", "present"))
        assert cell == f"{100 * present / named:.0f} % of {named:,.0f}"


def test_both_tables_are_there() -> None:
    assert len(LINES) == 10 + 4 and len(HIDDEN) == 3
