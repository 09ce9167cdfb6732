import hashlib
import math
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.config import rules
from pipeline.core.errors import SourceError
from pipeline.labels import blocks
from pipeline.labels.description import describe_settings
from pipeline.labels.draws import Draw, observe
from pipeline.labels.oracles import label_sets
from pipeline.labels.statistics import distance_from_unbiased, summarize_draw
from pipeline.labels.table import Objects, Table
from tests.labels import cases
from tests.labels.test_draws import MANY

N, C = 60, 5
ONES = np.ones((N, C), np.int8)


def table(truth: np.ndarray, scored: np.ndarray | None = None) -> Table:
    """30 training, 10 val and 20 test rows."""
    split = np.repeat(np.array([0, 1, 2], np.uint8), [30, 10, 20])
    return replace(cases.table(truth, scored, official=split == 2), split=split)


def run(prepared: Table, objects: Objects | None = None, **change: Any) -> tuple[Draw, dict[str, Any]]:
    settings = cases.settings(**change)
    draw = observe(Path(), prepared, objects, settings, 0)
    return draw, summarize_draw(prepared, draw, objects, settings)


# ---------------------------------------------------------------------------------------------- counts
def test_counts_are_those_of_the_training_split():
    truth = (np.random.default_rng(11).random((N, C)) < 0.4).astype(np.int8)
    truth[~truth.any(axis=1), 0] = 1
    draw, report = run(table(truth))
    present, single = truth[:30], draw.observed[:30]
    for column, row in enumerate(report["classes"]):
        hidden = int(((present[:, column] == 1) & (single[:, column] == 0)).sum())
        unknown = int((single[:, column] == 0).sum())
        assert row["name"] == "abcde"[column]
        assert row["truth_positive"] == present[:, column].sum()
        assert row["observed_positive"] == single[:, column].sum()
        assert (row["unknown"], row["hidden_positive"]) == (unknown, hidden)
        assert row["false_negative_rate"] == pytest.approx(hidden / unknown)
    # one positive a row is kept: the pooled rate does not depend on the draw
    assert report["false_negative_rate"] == pytest.approx((present.sum() - 30) / (30 * C - 30))
    assert report["expected_false_negative_rate"] == pytest.approx(report["false_negative_rate"])
    assert report["labels_per_image"] == pytest.approx(present.sum() / 30)
    assert report["rows"]["test"]["images"] == 20
    assert report["rows"]["test"]["labels_per_image"] == pytest.approx(truth[40:].sum() / 20)


def test_unscored_cells_are_not_counted():
    truth, scored = np.zeros((N, C), np.int8), np.ones((N, C), bool)
    truth[:, 1] = 1
    scored[::2, 3] = False
    draw, report = run(table(truth, scored))
    assert not draw.observed[::2, 3].any()
    assert report["classes"][3]["unknown"] == 15  # of 30 training images every second cell counts


def test_a_class_that_is_always_observed_has_no_rate():
    truth = np.zeros((N, C), np.int8)
    truth[:, 2] = 1
    _, report = run(table(truth))
    assert report["classes"][2]["false_negative_rate"] is None
    assert report["classes"][0]["false_negative_rate"] == 0


def test_rows_without_a_positive_are_kept_and_counted():
    truth = ONES.copy()
    truth[[3, 35, 36, 50]] = 0
    draw, report = run(table(truth))
    assert not draw.observed[[3, 35, 36, 50]].any()
    assert [report["rows"][name]["without_positive"] for name in ("train", "val", "test")] == [1, 2, 1]


def test_rows_that_lose_all_their_labels_are_counted():
    truth = ONES.copy()
    truth[0] = 0
    draw, report = run(table(truth), positives={"kind": "share", "value": 0.1})
    lost = int(((draw.observed == 1).sum(axis=1) == 0).sum())
    assert lost > 10
    assert sum(row["without_known_positive"] for row in report["rows"].values()) == lost


def test_a_draw_that_leaves_nothing_to_learn_from_is_refused():
    with pytest.raises(SourceError, match="no positive is known in the training split"):
        run(table(ONES), positives={"kind": "share", "value": 1e-9})


def test_a_biased_draw_is_compared_with_an_unbiased_one():
    truth = ONES.copy()
    truth[::2, 3:] = 0
    area = np.where(truth == 1, np.array([0.5, 0.4, 0.05, 0.04, 0.01]), 0).astype(np.float32)
    objects = Objects(area, np.where(truth == 1, 0.25, 0).astype(np.float32))
    change = {"bias": {"kind": "size", "power": 1.0}, "negatives": {"kind": "count", "value": 1}}
    draw, report = run(table(truth), objects, **change)
    single = draw.observed[:30]
    assert ((single == 1).sum(axis=1) == 1).all()
    assert (single == -1).sum(axis=1).tolist() == [1, 0] * 15  # odd rows have no absent class
    rows = report["rows"]["train"]
    assert (rows["known_positives_per_image"], rows["known_negatives_per_image"]) == (1, 0.5)
    assert (rows["without_known_positive"], rows["images_by_known_positives"]) == (0, [0, 30])
    counts = (single == 1).sum(axis=0)
    unbiased = np.array([15 / 3 + 15 / 5] * 3 + [15 / 5] * 2)
    assert [row["expected_of_unbiased"] for row in report["classes"]] == pytest.approx(unbiased.tolist())
    assert [row["observed_positive"] for row in report["classes"]] == counts.tolist()
    assert [row["observed_negative"] for row in report["classes"]] == (single == -1).sum(axis=0).tolist()
    assert report["from_unbiased"]["distance"] == pytest.approx(np.abs(counts / 30 - unbiased / 30).sum() / 2)
    assert report["boxes"]["area"]["known"] == pytest.approx(area[:30][single == 1].mean())
    assert report["boxes"]["area"]["all"] == pytest.approx(area[:30][truth[:30] == 1].mean())
    assert report["boxes"]["offset"] == {"known": 0.25, "all": 0.25}
    # class 4 is absent from even rows, half of which know it, and keeps 0.01 of a weight of 1 in odd ones
    assert report["classes"][0]["expected_false_negative_rate"] == pytest.approx(1.0)
    assert report["classes"][4]["expected_false_negative_rate"] == pytest.approx(
        (15 - 15 * 0.01) / (30 - 15 * 0.01 - 15 / 2)
    )


# ---------------------------------------------------------------------------------------------- labels as given
def partial() -> Table:
    truth = np.zeros((N, C), np.int8)
    truth[np.arange(N), np.arange(N) % C] = 1
    scored = truth == 1
    scored[::7, 4] = True  # known absent, or present
    return replace(table(truth, scored), exhaustive=False)


def test_labels_that_are_not_exhaustive_are_observed_as_they_are():
    prepared = partial()
    draw, report = run(prepared, protocol="given")
    wanted = np.where(prepared.truth == 1, 1, np.where(prepared.scored, -1, 0))
    assert draw.observed.tolist() == wanted.tolist()
    assert report["false_negative_rate"] is None and report["expected_false_negative_rate"] is None
    for column, row in enumerate(report["classes"]):
        assert row["observed_positive"] == row["truth_positive"] == (wanted[:30, column] == 1).sum()
        assert row["unknown"] == (wanted[:30, column] == 0).sum() and row["hidden_positive"] is None


@pytest.mark.parametrize("protocol, exhaustive", [("given", True), ("seeded", False), ("literature", False)])
def test_a_protocol_that_does_not_suit_the_labels_is_refused(protocol, exhaustive):
    settings: Any = SimpleNamespace(protocol=protocol)
    (problem,) = rules.label_protocol("toy", settings, replace(table(ONES), exhaustive=exhaustive))
    assert problem.startswith(f"simulate.protocol: {protocol}, but the labels of toy are")
    assert rules.label_protocol("toy", settings, replace(table(ONES), exhaustive=not exhaustive)) == []


# ---------------------------------------------------------------------------------------------- settings
@pytest.mark.parametrize(
    "change, counted, words",
    [
        ({}, (4, None), "named generators: every image keeps one of its positive labels; everything"),
        ({"protocol": "literature"}, (None, 1200), "The published recipe is followed bit for bit (seed 1200)"),
        ({"protocol": "given"}, (None, None), "Nothing is drawn"),
        ({"positives": {"kind": "count", "value": 2}}, (4, None), "2 of its positive labels, or all that it has;"),
        ({"positives": {"kind": "share", "value": 0.1}}, (4, None), "each of its positive labels or not, 10% of all;"),
        (
            {"negatives": {"kind": "count", "value": 1}, "bias": {"kind": "size", "power": 1.0}},
            (4, None),
            "labels, and 1 of its absent ones as known absences; everything else becomes unknown. A positive is kept "
            "in proportion to the size of its largest box, to the power 1.",
        ),
        ({"negatives": {"kind": "share", "value": 0.5}}, (4, None), ", and 50% of all absent ones as known absences;"),
    ],
)
def test_the_settings_that_count_are_described(change, counted, words):
    report = describe_settings(Path(), cases.settings(**change), 4)
    assert (report["draw"], report["seed"]) == counted
    assert words in report["how"]


@pytest.mark.parametrize("home", [False, True])
def test_a_table_of_weights_is_named_with_its_hash(tmp_path, monkeypatch, home):
    file = "~/w.csv" if home else "w.csv"
    settings = cases.settings(bias={"kind": "table", "file": file}, positives={"kind": "table"})
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "w.csv").write_text("class,weight\na,1\nb,0\nc,0\nd,1\ne,0\n")
    draw = observe(tmp_path, table(ONES), None, settings, 0)
    assert (draw.observed == [1, 0, 0, 1, 0]).all()
    report = summarize_draw(table(ONES), draw, None, settings)
    assert [row["expected_of_unbiased"] for row in report["classes"]] == pytest.approx([12.0] * 5)
    assert report["false_negative_rate"] == report["expected_false_negative_rate"] == 1.0
    described = describe_settings(tmp_path, settings, 0)
    assert described["bias"]["file_sha256"] == hashlib.sha256((tmp_path / "w.csv").read_bytes()).hexdigest()
    words = "the probability that a table gives it; everything else becomes unknown. The table is"
    assert described["how"].endswith(f"{words} {file}.")


# ---------------------------------------------------------------------------------------------- distance
def moments(uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return uniform.sum(axis=0), (uniform * (1 - uniform)).sum(axis=0)


def test_distance_from_an_unbiased_draw_by_hand():
    uniform = np.full((10, 2), 0.5)
    distance, by_chance = distance_from_unbiased(np.array([8, 2]), *moments(uniform), True)
    assert distance == pytest.approx(0.3)  # 3 of 10 would have to change
    # each class: mean |deviation| of a normal of variance 10/4
    assert by_chance == pytest.approx(2 * math.sqrt(2 / math.pi * 2.5) / 10 / 2)
    assert distance_from_unbiased(np.array([0, 0]), *moments(uniform), True) == (None, None)


@pytest.mark.parametrize("positives", [{"kind": "count", "value": 1}, {"kind": "share", "value": 0.5}])
def test_an_unbiased_draw_is_as_far_as_chance_says(positives):
    truth = np.random.default_rng(9).random((2000, 2)) < np.array([0.9, 0.5])
    draws = [cases.drawn(cases.table(truth), number=number, positives=positives) for number in range(60)]
    fixed = positives["kind"] == "count"
    pairs = [
        distance_from_unbiased((one.observed == 1).sum(axis=0), *moments(cases.uniform_of(one)), fixed) for one in draws
    ]
    assert sum(distance or 0 for distance, _ in pairs) / 60 == pytest.approx(pairs[0][1], rel=0.25)


def test_a_share_of_one_class_alone_is_never_off():
    assert distance_from_unbiased(np.array([40]), *moments(np.full((100, 1), 0.5)), False) == (
        0,
        pytest.approx(0, abs=1e-9),
    )


def test_a_draw_takes_at_most_sixteen_bytes_a_cell(monkeypatch):
    """The table's two are among them, and eight of where objects lie; blocks are small, as they are of large data."""
    monkeypatch.setattr(blocks, "CELLS", 3000)
    n, c = 2000, 300
    truth = (np.random.default_rng(0).random((n, c)) < 0.03).astype(np.int8)
    truth[:, 0] = 1
    names = tuple(f"c{number}" for number in range(c)), tuple(f"{number}.jpg" for number in range(n))
    rows = (np.arange(n) % 5 == 0).astype(np.uint8), np.zeros(n, np.uint8)
    prepared = Table(*names, truth, np.ones((n, c), bool), *rows)
    area = np.where(truth, np.float32(0.25), np.float32(0))
    objects, own = Objects(area, area.copy()), 10
    for change in ({"bias": {"kind": "size", "power": 1.0}}, *MANY.values()):
        wanted = cases.settings(**change)
        tracemalloc.start()
        draw = observe(Path(), prepared, objects, wanted, 0)
        summarize_draw(prepared, draw, objects, wanted)
        label_sets(prepared, draw.observed)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert own + peak / (n * c) <= 16, change
