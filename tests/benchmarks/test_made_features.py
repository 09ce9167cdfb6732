"""The page without truth says what the stored table of made features holds."""

import csv
import math
import re
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest

from benchmarks import made_features

ROOT = Path(__file__).resolve().parents[2]
with open(ROOT / "benchmarks" / "made_features.tsv", encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file, delimiter="\t"))
PAGE = (ROOT / "docs" / "without-truth.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## COCO's labels on made features")[2].partition("\n## ")[0]
LINES = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in SECTION.splitlines() if re.match(r"\| \W*`", line)
]
T = 2.7764451  # 97.5 % quantile of Student's t with 4 degrees of freedom


def values(method: str, way: str) -> list[float]:
    found = [float(row["test_map"]) for row in ROWS if (row["method"], row["select"]) == (method, way)]
    assert len(found) == 5
    return found


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0])
def test_the_page_says_what_the_table_holds(line: list[str]) -> None:
    method = re.sub(r"[`*]|, no truth| \(oracle\)", "", line[0])
    ways = ("clean", "auto", "fixed") if line[1] != "–" else ("none",)
    cells = [cell.strip("*") for cell in line[1:4] if cell != "–"]
    assert cells == [f"{mean(values(method, way)):.1f} ± {stdev(values(method, way)):.1f}" for way in ways]
    for cell, top in zip(line[4:], (values("full", "clean"), values("ridge_full", "none")), strict=True):
        start = values("an", "clean")
        gaps = [
            100 * (own - low) / (high - low) for own, low, high in zip(values(method, ways[0]), start, top, strict=True)
        ]
        reach = T * stdev(gaps) / math.sqrt(5)
        spread = f" [{mean(gaps) - reach:.0f}, {mean(gaps) + reach:.0f}]" if "[" in cell else ""
        assert cell == ("–" if method == "an" else f"{mean(gaps):.0f}{spread}")


def test_every_method_is_there() -> None:
    assert len(LINES) == len(made_features.METHODS) + 2


def test_features_follow_the_labels() -> None:
    truth = np.eye(4, dtype=np.int8)[np.arange(400) % 4]
    features = made_features.make_features(truth, noise=0.5)
    assert features.shape == (400, made_features.WIDTH) and features.min() == 0
    assert np.square(features).mean() == pytest.approx(1, abs=1e-5)
    means = np.stack([features[row::4].mean(axis=0) for row in range(4)])
    near = np.square(features[:, None] - means).sum(axis=2).argmin(axis=1)
    assert (near == np.arange(400) % 4).mean() > 0.7  # chance: 0.25
    assert (made_features.make_features(truth, noise=0.5) == features).all()
