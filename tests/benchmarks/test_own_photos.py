"""The walk of two commands: what a user is given, and that the page says what its table holds."""

import csv
import re
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest

from benchmarks import own_photos
from pipeline.labels.table import Dataset, Table

ROOT = Path(__file__).resolve().parents[2]
with open(ROOT / "benchmarks" / "own_photos.tsv", encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file, delimiter="\t"))
DRAWS = sorted({row["draw"] for row in ROWS})
PAGE = (ROOT / "docs" / "without-truth.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Two commands, truth hidden")[2].partition("\n## ")[0]
LINES = [
    [cell.strip(" *") for cell in line.strip("|").split("|")] for line in SECTION.splitlines() if line.startswith("| ")
]
METHODS = [line for line in LINES if len(line) == 7 and line[0] not in ("method", "---")]
RANKINGS = [line for line in LINES if len(line) == 3 and line[0] not in ("ranking", "---")]


def values(name: str, key: str) -> list[float]:
    return [float(row[key]) for row in ROWS if row["name"] == name and row[key]]


def spread(found: list[float]) -> str:
    assert len(found) == len(DRAWS)
    return f"{mean(found):.1f} ± {stdev(found):.1f}" if len(found) > 1 else f"{found[0]:.1f}"


def test_a_photograph_lies_where_a_label_that_it_has_puts_it(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    truth = (generator.random((30, 3)) < 0.6).astype(np.int8)
    truth[np.arange(30), generator.integers(3, size=30)] = 1
    official = (np.arange(30) >= 20).astype(np.uint8)
    names = tuple(f"JPEGImages/{row}.jpg" for row in range(30))
    table = Table(("cat", "dog", "owl"), names, truth, np.ones((30, 3), bool), official * np.uint8(2), official)
    for name in names:
        (tmp_path / Path(name).name).write_text(name)
    own_photos.make_folders(Dataset(table, lambda row: tmp_path / f"{row}.jpg"), 0, tmp_path / "work")
    lies = {path.name: path.parent.name for path in (tmp_path / "work").rglob("*.jpg")}
    assert len(lies) == 30 and {lies[f"{row}.jpg"] for row in range(20, 30)} == {"new"}
    seen = own_photos.Truth(table, ("owl", "cat"))  # a class that no photograph shows is not known to the walk
    for row in range(20):
        assert truth[row, table.classes.index(lies[f"{row}.jpg"])] == 1
        np.testing.assert_array_equal(seen.of([f"{lies[f'{row}.jpg']}/{row}.jpg"]), truth[[row]][:, [2, 0]])


@pytest.mark.parametrize("line", METHODS, ids=lambda line: line[0])
def test_the_page_says_what_each_method_is_worth(line: list[str]) -> None:
    method = line[0].strip("`")
    assert line[1] == ", ".join(f"{rank:.0f}" for rank in values(method, "rank"))
    assert line[2] == spread(values(method, "map"))
    for cell, rule in zip(line[3:], ("matching", "0.9", "zero", "clean"), strict=True):
        assert (
            cell == f"{mean(values(f'{method} {rule}', 'macro')):.1f} / {mean(values(f'{method} {rule}', 'micro')):.1f}"
        )


@pytest.mark.parametrize("line", RANKINGS, ids=lambda line: line[0])
def test_the_page_says_how_many_of_the_labels_named_as_missed_are(line: list[str]) -> None:
    name = re.sub("`|, all labels", "", line[0])
    assert line[1:] == [spread(values(name, key)) for key in ("at_50", "at_200")]


def test_every_row_of_the_table_is_on_the_page() -> None:
    named = {line[0].strip("`") for line in METHODS}
    assert named == {row["name"] for row in ROWS if row["what"] == "method"}
    assert {re.sub("`|, all labels", "", line[0]) for line in RANKINGS} == {
        row["name"] for row in ROWS if row["what"] == "missed"
    }
    said = re.search(r"label draws? ([\d, and]*\d)", SECTION)
    assert said and re.findall(r"\d+", said[1]) == DRAWS
