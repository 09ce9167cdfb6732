"""The stage from files to files; what is drawn and counted is tested in tests/labels."""

import json
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline.core import seeds
from pipeline.core.errors import ConfigError
from pipeline.labels.implications import Rules
from pipeline.labels.observed import read_observed, read_shown
from pipeline.labels.recipe import literature, seeded
from pipeline.labels.table import Objects, Table, write_table
from stages.simulate import simulate
from tests.stages import finished_runs

N, C = 60, 5


def table(truth: np.ndarray, scored: np.ndarray | None = None) -> Table:
    split = np.random.default_rng(0).permutation(np.repeat(np.array([0, 1, 2], np.uint8), [30, 10, 20]))
    return Table(
        classes=("a|b", *"bcde"),
        paths=tuple(f"{row}.jpg" for row in range(N)),
        truth=truth,
        scored=np.ones_like(truth, dtype=bool) if scored is None else scored,
        split=split,
        official=(split == 2).astype(np.uint8),
    )


@pytest.fixture
def project(tmp_path, repository):
    """A project folder with a prepared table and the given settings of `simulate`."""

    def make(prepared: Table, objects: Objects | None = None, **settings) -> Path:
        block = {"protocol": "seeded", "seed": 1200, "empty_rows": "keep", "bias": {"kind": "uniform"}}
        block |= {"positives": {"kind": "count", "value": 1}, "negatives": {"kind": "count", "value": 0}}
        finished_runs.write_params(tmp_path, repository, prepare={"digits": {}}, simulate={"default": block | settings})
        write_table(tmp_path / "data" / "prepare" / "digits" / "table.h5", prepared, objects)
        return tmp_path

    return make


def run(root: Path) -> tuple[dict[str, np.ndarray], dict, str]:
    simulate(root, "digits", 0)
    folder = root / "data" / "simulate" / "digits-0"
    assert {path.name for path in folder.iterdir()} == {"observed.h5", "report.json", "summary.md", "manifest.json"}
    with h5py.File(folder / "observed.h5") as file:
        assert all(file[name].attrs["axes"] == "image, class" for name in file)
        observed = {name: file[name][()] for name in file}
    return observed, json.loads((folder / "report.json").read_text()), (folder / "summary.md").read_text()


def test_label_sets_of_the_published_recipe_twice_the_same(project):
    """Once per official part, in row order."""
    truth = np.random.default_rng(11).integers(0, 2, (N, C)).astype(np.int8)
    truth[0] = 0
    prepared = table(truth)
    root = project(prepared, protocol="literature")
    observed, report, summary = run(root)
    assert set(observed) == {"single", "all", "negatives"} and observed["single"].dtype == np.int8
    for number in (0, 1):
        rows = np.flatnonzero(prepared.official == number)
        assert np.array_equal(observed["single"][rows], literature(truth[rows], 1200))
    assert np.array_equal(observed["all"], 2 * truth - 1)
    assert np.array_equal(observed["negatives"], observed["single"] - (truth == 0))
    assert (report["protocol"], report["seed"], report["draw"]) == ("literature", 1200, None)
    empty = int((~truth.any(axis=1)).sum())
    assert f"Warning: {empty} images have no positive label. They keep their rows." in summary
    row = report["classes"][0]
    counts = f"{row['truth_positive']} | {row['observed_positive']} | {row['expected_of_unbiased']:.1f}"
    assert f"| a\\|b | {counts} | 0 | {row['unknown']} | {row['hidden_positive']} |" in summary
    assert f"drawn {100 * report['false_negative_rate']:.2f}." in summary

    folder = root / "data" / "simulate" / "digits-0"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    run(root)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_summary_tells_what_a_biased_draw_did(project):
    truth = np.ones((N, C), np.int8)
    truth[::2, 3:] = 0
    area = np.where(truth == 1, np.array([0.5, 0.4, 0.05, 0.04, 0.01]), 0).astype(np.float32)
    objects = Objects(area, np.where(truth == 1, 0.25, 0).astype(np.float32))
    root = project(
        table(truth), objects, bias={"kind": "size", "power": 1.0}, positives={"kind": "share", "value": 0.1}
    )
    observed, report, summary = run(root)
    assert report["positives"] == {"kind": "share", "value": 0.1} and report["bias"] == {"kind": "size", "power": 1.0}
    lost = int((~(observed["single"] == 1).any(axis=1)).sum())
    assert f"{lost} images keep none of their positive labels" in summary
    known, every = (100 * report["boxes"]["area"][name] for name in ("known", "all"))
    assert f"Size of the largest box, percent of the picture: {known:.2f} where known, {every:.2f} of all" in summary
    assert f"differ by {100 * report['from_unbiased']['distance']:.2f}% from those expected" in summary


def test_what_is_given_is_not_measured(project):
    truth = np.zeros((N, C), np.int8)
    truth[np.arange(N), np.arange(N) % C] = 1
    prepared = replace(table(truth, truth == 1), exhaustive=False)
    observed, report, summary = run(project(prepared, protocol="given"))
    assert all(np.array_equal(labels, truth) for labels in observed.values()) and len(observed) == 3
    assert (report["protocol"], report["draw"], report["seed"]) == ("given", None, None)
    assert "cannot be measured" in summary and "labels per image (given)" in summary
    unknown = (truth[prepared.split == 0, 0] == 0).sum()
    assert f"| a\\|b | {30 - unknown} | 0 | {unknown} |" in summary


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"draw": -1}, "simulate.*draw"),
        ({"protocol": "given"}, r"simulate\.protocol: given, but the labels of digits are exhaustive"),
        ({"bias": {"kind": "centre", "power": 1.0}}, r"simulate\.bias: centre needs boxes, and the data gave none"),
    ],
)
def test_settings_that_do_not_fit_leave_nothing(project, settings, words):
    root = project(table(np.ones((N, C), np.int8)), **settings)
    with pytest.raises(ConfigError, match=words):
        simulate(root, "digits", 0)
    assert not (root / "data" / "simulate").exists()


def test_rows_without_a_positive_can_be_refused(project):
    truth = np.ones((N, C), np.int8)
    official = table(truth).official
    first, second = np.flatnonzero(official == 0)[:2]
    truth[np.flatnonzero(official == 1)[0]] = 0
    run(project(table(truth), empty_rows="error"))  # a test image does not matter
    truth[[first, second]] = 0
    root = project(table(truth), empty_rows="error")
    before = (root / "data" / "simulate" / "digits-0" / "observed.h5").read_bytes()
    images = rf"2 training or val images of digits have no positive label: {first}\.jpg, {second}\.jpg"
    with pytest.raises(ConfigError, match=rf"^simulate\.empty_rows: error, and {images}$"):
        simulate(root, "digits", 0)
    assert (root / "data" / "simulate" / "digits-0" / "observed.h5").read_bytes() == before


def test_draws_of_other_numbers_hide_other_labels_of_the_same_images(project):
    prepared = table(np.random.default_rng(3).integers(0, 2, (N, C)).astype(np.int8))
    root, single = project(prepared), {}
    for draw in (0, 1):
        simulate(root, "digits", draw)
        folder = root / "data" / "simulate" / f"digits-{draw}"
        single[draw] = read_observed(folder / "observed.h5", prepared)["single"]
        for code, part in enumerate(("official_train", "official_test")):
            rows = prepared.official == code
            generator = seeds.numpy_generator(draw, "simulate", part)
            assert np.array_equal(single[draw][rows], seeded(prepared.truth[rows], generator))
        assert json.loads((folder / "report.json").read_text())["draw"] == draw
        assert f"# Observed labels of digits, draw {draw}\n" in (folder / "summary.md").read_text()
    assert not np.array_equal(single[0], single[1])


@pytest.mark.parametrize("protocol", ["literature", "given"])
def test_labels_that_are_drawn_once_have_no_second_draw(project, protocol):
    root = project(replace(table(np.ones((N, C), np.int8)), exhaustive=protocol == "literature"), protocol=protocol)
    words = rf"^grid\.draws: \[1\], but simulate\.protocol of digits is {protocol}: .*\[0\]"
    with pytest.raises(ConfigError, match=words):
        simulate(root, "digits", 1)
    assert not (root / "data" / "simulate").exists()


def test_what_the_drawn_labels_imply_is_known_too(project):
    """`b` is a parent of `a|b` and of c; d and e exclude each other."""
    rules = Rules({"a|b": ("b",), "c": ("b",)}, (("d", "e"),))
    truth = np.random.default_rng(3).integers(0, 2, (N, C)).astype(np.int8)
    truth[:, 1] |= truth[:, 0] | truth[:, 2]
    truth[:, 4] &= 1 - truth[:, 3]
    prepared = replace(table(truth), rules=rules, implied=np.zeros((N, C), bool))
    root = project(prepared)
    observed, report, summary = run(root)
    shown = read_shown(root / "data" / "simulate" / "digits-0" / "observed.h5", prepared)
    plain, other, _ = run(project(table(truth)))
    assert np.array_equal(shown, np.where(observed["implied"], 2 * observed["single"], observed["single"]))
    assert {-2, 2} <= set(shown.ravel())
    drawn, single = plain["single"], observed["single"]
    wanted = drawn.copy()
    wanted[(drawn[:, 0] == 1) | (drawn[:, 2] == 1), 1] = 1
    wanted[drawn[:, 3] == 1, 4], wanted[drawn[:, 4] == 1, 3] = -1, -1
    assert np.array_equal(single, wanted)
    assert np.array_equal(observed["implied"], wanted != drawn) and "implied" not in plain
    assert np.array_equal(observed["all"], 2 * truth - 1)
    assert np.array_equal(observed["negatives"], np.where(wanted == 1, 1, truth - 1))
    rows = prepared.rows("train")
    found = report.pop("implied")
    assert (found["made_present"], found["made_absent"]) == (
        int((observed["implied"] & (single == 1))[rows].sum()),
        int((observed["implied"] & (single == -1))[rows].sum()),
    )
    assert found["made_present"] and found["made_absent"]
    for split, code in (("train", 0), ("val", 1), ("test", 2)):
        own = observed["implied"][prepared.split == code] * single[prepared.split == code]
        assert found["splits"][split] == {"made_present": int((own > 0).sum()), "made_absent": int((own < 0).sum())}
        assert f"| {split} | {(own > 0).sum()} | {(own < 0).sum()} |" in summary.splitlines()
    assert found["classes"]["d"] == {
        "made_present": 0,
        "of_them_said_to_be_absent": 0,
        "made_absent": int((wanted[rows, 3] == -1).sum()),
    }
    assert found["false_negative_rate"] == pytest.approx(truth[rows][single[rows] == 0].mean())
    assert other.pop("implied") is None and report == other  # all else is told of the draw
    assert f"imply {found['made_present']} labels that are present and {found['made_absent']}" in summary


def test_of_given_labels_those_that_rules_made_are_counted_apart_and_shown_with_them(project):
    given = np.random.default_rng(1).integers(0, 2, (N, C)).astype(np.int8)
    given[:, 1] = 0
    implied = np.zeros((N, C), bool)
    implied[:, 1] = given[:, 0] == 1
    truth = given.copy()
    truth[implied] = 1
    rules = Rules({"a|b": ("b",)}, ())
    prepared = replace(table(truth, truth == 1), exhaustive=False, rules=rules, implied=implied)
    root = project(prepared, protocol="given")
    observed, report, summary = run(root)
    assert "no positive is known" not in summary  # rules tell of `b`, which nobody named
    assert np.array_equal(observed["single"], truth) and np.array_equal(observed["implied"], implied)
    rows = prepared.rows("train")
    assert report["rows"]["train"]["known_positives_per_image"] == pytest.approx(given[rows].sum(axis=1).mean())
    assert report["implied"]["made_present"] == int(implied[rows].sum())
    assert report["implied"]["false_negative_rate"] is None
    shown = read_shown(root / "data" / "simulate" / "digits-0" / "observed.h5", prepared)
    assert np.array_equal(shown, truth)
