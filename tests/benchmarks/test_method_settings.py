"""The settings that params give to data without published ones are what val mAP chose on digits and photographs."""

import csv
import itertools
import json
from pathlib import Path
from statistics import mean

import pytest
from ruamel.yaml import YAML

from benchmarks import method_settings
from pipeline.config import profiles
from pipeline.config.params import read_params
from pipeline.methods.shared import base

ROOT = Path(__file__).resolve().parents[2]
GRID = YAML(typ="safe", pure=True).load((ROOT / "benchmarks" / "method_settings.yaml").read_text(encoding="utf-8"))
with open(ROOT / "benchmarks" / "method_settings.tsv", encoding="utf-8", newline="") as file:
    TRIALS = list(csv.DictReader(file, delimiter="\t"))


def test_the_grid_names_methods():
    assert GRID.keys() <= set(base.names()) and len(GRID) > 20


@pytest.mark.parametrize("method", GRID)
def test_every_combination_was_tried_at_every_place(method: str):
    entry = GRID[method]
    keys = list(entry["values"])
    combinations = [dict(zip(keys, each, strict=True)) for each in itertools.product(*entry["values"].values())]
    datasets = ("digits", "voc_photos") if entry["stage"] == "linear_init" else ("digits",)
    places = itertools.product(datasets, entry.get("draws", (100, 101)), entry.get("seeds", (0,)))
    expected = [
        (json.dumps(each, sort_keys=True), dataset, str(draw), str(seed))
        for dataset, draw, seed in places
        for each in combinations
    ]
    found = [(row["settings"], row["dataset"], row["draw"], row["seed"]) for row in TRIALS if row["method"] == method]
    assert sorted(found) == sorted(expected)
    assert sorted(job.key[1:] for job in method_settings.list_jobs(method, entry)) == sorted(expected)


@pytest.mark.parametrize("method", GRID)
def test_the_default_is_what_validation_chose(method: str):
    scores: dict[str, dict[str, list[float]]] = {}
    for row in TRIALS:
        if row["method"] == method:
            scores.setdefault(row["settings"], {}).setdefault(row["dataset"], []).append(float(row["val_map"]))
    means = {settings: mean(mean(values) for values in by_set.values()) for settings, by_set in scores.items()}
    default = read_params(ROOT / "params.yaml", method).method(method, "default")
    held = json.dumps({key: default[key] for key in GRID[method]["values"]}, sort_keys=True)
    tied = GRID[method].get("tied")
    assert held == json.dumps(tied, sort_keys=True) if tied else means[held] == max(means.values())
    assert max(means.values()) - means[held] <= method_settings.TIE


def test_datasets_weigh_alike_whatever_trials_they_have():
    scores = [("a", "digits", 90.0), ("a", "digits", 92.0), ("a", "digits", 91.0), ("a", "voc_photos", 40.0)]
    scores += [("b", "digits", 88.0), ("b", "voc_photos", 44.0), ("b", "voc_photos", 45.0)]
    rows = [{"method": "em", "settings": text, "dataset": name, "val_map": str(score)} for text, name, score in scores]
    rows.append(rows[0] | {"method": "an", "val_map": "99.0"})
    # a: (91 + 40) / 2 = 65.5; b: (88 + 44.5) / 2 = 66.25, though a's four trials average 78.25 and b's three 59
    assert method_settings.best(rows, "em") == ("b", {"digits": 88.0, "voc_photos": 44.5})


def test_draws_are_none_that_a_figure_reports(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    assert not set(method_settings.DRAWS) & set(range(5))
    for dataset, profile in method_settings.PROFILES.items():
        content = method_settings.read_content(dataset, "/photos")
        assert content["grid"]["datasets"] == [dataset] and content["profile"] == profile
        assert content["simulate"][dataset] == {"protocol": "seeded"}
    assert content["prepare"]["voc_photos"]["root"] == "/photos"
    assert "voc_photos" in profiles.names(ROOT)
