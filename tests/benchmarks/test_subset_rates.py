"""The page on rates by the number of images says what the stored table holds."""

import csv
import re
from pathlib import Path
from statistics import mean

import pytest

from benchmarks import subset_rates
from tests import tiny

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"digits": "digits", "photographs": "voc_photos"}
with open(ROOT / "benchmarks" / "subset_rates.tsv", encoding="utf-8", newline="") as file:
    HEADS = list(csv.DictReader(file, delimiter="\t"))
LINES = re.findall(
    r"^\| ([\d,]+) (\w+) \| `(\w+)` \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d., ]+) \|",
    (ROOT / "docs" / "settings.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line[:3]))
def test_the_page_says_what_the_table_holds(line: tuple[str, ...]):
    images, what, method, plain, extended, best, rates = line
    place = (NAMES[what], images.replace(",", ""), "16", method)
    heads = [row for row in HEADS if tuple(row[key] for key in subset_rates.PLACE) == place]
    draws = [[row for row in heads if row["draw"] == draw] for draw in ("100", "101")]
    grid = {"digits": (3e-3, 1e-2, 3e-2), "photographs": (3e-4, 1e-3, 3e-3)}[what]
    first = [max(float(row["first_val"]) for row in draw if float(row["rate"]) in grid) for draw in draws]
    chosen = [
        max(float(row["first_val"]) for row in draw if float(row["rate"]) == float(rate))
        for draw, rate in zip(draws, rates.split(", "), strict=True)
    ]
    highest = [max(float(row["first_val"]) for row in draw) for draw in draws]
    for said, found in ((plain, first), (extended, chosen), (best, highest)):
        assert float(said) == pytest.approx(mean(found), abs=0.051)


def test_all_subsets_are_on_the_page_at_batches_of_16():
    assert len(LINES) == len({(row["dataset"], row["images"], row["method"]) for row in HEADS}) == 12


@pytest.mark.parametrize(
    ("scores", "extend", "rate"),
    [
        ((1.0, 2.0, 3.0, 4.0, 5.0), 0, 4e-2),  # an edge, and nothing is added
        ((1.0, 2.0, 3.0, 4.0, 5.0), 1, 8e-2),
        ((1.0, 2.0, 3.0, 2.0, 9.0), 3, 4e-2),  # a dip hides what lies behind it
        ((1.0, 2.0, 3.0, 4.0, 5.0), 3, 1.6e-1),  # beyond the ladder nothing is known
    ],
)
def test_a_search_over_known_scores(scores: tuple[float, ...], extend: int, rate: float):
    block = tiny.BLOCK | {
        "learning_rate": "grid",
        "search": {"values": [1e-2, 2e-2, 4e-2], "epochs": None, "extend": 0},
    }
    curve = dict(zip((1e-2, 2e-2, 4e-2, 8e-2, 1.6e-1), scores, strict=True))
    assert subset_rates.find_rate(curve, block, extend) == rate
