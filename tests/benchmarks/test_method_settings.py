"""The settings that params.yaml gives to data without published ones are those that val mAP chose on digits."""

import csv
import itertools
import json
from pathlib import Path
from statistics import mean

import pytest
from ruamel.yaml import YAML

from pipeline.config.params import read_params
from pipeline.methods.shared import base

ROOT = Path(__file__).resolve().parents[2]
GRID = YAML(typ="safe", pure=True).load((ROOT / "benchmarks" / "method_settings.yaml").read_text(encoding="utf-8"))
with open(ROOT / "benchmarks" / "method_settings.tsv", encoding="utf-8", newline="") as file:
    TRIALS = list(csv.DictReader(file, delimiter="\t"))


def test_the_grid_names_methods():
    assert GRID.keys() <= set(base.names()) and len(GRID) > 20


@pytest.mark.parametrize("method", GRID)
def test_every_combination_was_tried_at_every_seed(method: str):
    entry = GRID[method]
    keys = list(entry["values"])
    combinations = [dict(zip(keys, each, strict=True)) for each in itertools.product(*entry["values"].values())]
    expected = [
        (json.dumps(each, sort_keys=True), str(seed)) for each in combinations for seed in entry.get("seeds", (0, 1))
    ]
    found = [(row["settings"], row["seed"]) for row in TRIALS if row["method"] == method]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("method", GRID)
def test_the_default_is_what_validation_chose(method: str):
    scores: dict[str, list[float]] = {}
    for row in TRIALS:
        if row["method"] == method:
            scores.setdefault(row["settings"], []).append(float(row["val_map"]))
    best = max(mean(values) for values in scores.values())
    default = read_params(ROOT / "params.yaml", method).method(method, "default")
    held = json.dumps({key: default[key] for key in GRID[method]["values"]}, sort_keys=True)
    assert mean(scores[held]) == best
