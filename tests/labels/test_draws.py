import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline.core import seeds
from pipeline.core.errors import ConfigError, SourceError
from pipeline.labels import recipe
from pipeline.labels.draws import Draw, chances, draw, draw_each, draw_fixed, from_uniform, share_chances
from pipeline.labels.settings import Simulate
from pipeline.labels.table import Objects, Table
from pipeline.labels.weights import bias_weights, by_closeness, by_frequency, by_size, read_weights

WEIGHTS = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(1, 7)),
    elements=st.one_of(st.just(0.0), st.floats(1e-3, 1e3)),
)


def table(truth, scored=None, official=None, exhaustive=True) -> Table:
    truth = np.array(truth, np.int8)
    n = len(truth)
    official = np.zeros(n, np.uint8) if official is None else np.array(official, np.uint8)
    return Table(
        classes=tuple("abcdefgh"[: truth.shape[1]]),
        paths=tuple(f"{row:03}.jpg" for row in range(n)),
        truth=truth,
        scored=np.ones(truth.shape, bool) if scored is None else np.array(scored, bool),
        split=np.where(official == 1, 2, 0).astype(np.uint8),
        official=official,
        exhaustive=exhaustive,
    )


def settings(**change) -> Simulate:
    block = {"protocol": "seeded", "draw": 0, "seed": 1200, "empty_rows": "keep", "bias": {"kind": "uniform"}}
    block |= {"positives": {"kind": "count", "value": 1}, "negatives": {"kind": "count", "value": 0}}
    return Simulate.model_validate(block | change)


def drawn(prepared: Table, **change) -> Draw:
    wanted = settings(**change)
    return draw(prepared, wanted, bias_weights(Path(), prepared, None, wanted))


# ---------------------------------------------------------------------------------------------- chances
def slow_chances(row: list[float], keep: float) -> list[float]:
    """Try each number of labels that are certain to be kept, the heaviest first; take the first that holds."""
    order = sorted(range(len(row)), key=lambda place: -row[place])
    order = [place for place in order if row[place] > 0]
    if keep >= len(order):
        return [float(weight > 0) for weight in row]
    for sure in range(len(order) + 1):
        rest = order[sure:]
        factor = (keep - sure) / sum(row[place] for place in rest)
        if all(factor * row[place] <= 1 + 1e-12 for place in rest):
            result = [0.0] * len(row)
            for place in order[:sure]:
                result[place] = 1.0
            for place in rest:
                result[place] = factor * row[place]
            return result
    raise AssertionError


@given(WEIGHTS, st.floats(0, 7))
def test_chances_follow_the_weights_and_add_up(weights, keep):
    found = chances(weights, keep)
    wanted = [slow_chances(row, keep) for row in weights.tolist()]
    assert found == pytest.approx(np.array(wanted), abs=1e-7)
    positive = (weights > 0).sum(axis=1)
    assert found.sum(axis=1) == pytest.approx(np.minimum(keep, positive), abs=1e-7)


def test_chances_by_hand():
    assert chances(np.array([[1, 3, 0, 4]]), 1).tolist() == [[1 / 8, 3 / 8, 0, 1 / 2]]
    # 8 of 10 at a sum of 2 is above 1: it is certain, and the other two share 1
    assert chances(np.array([[1.0, 1.0, 8.0]]), 2).tolist() == [[0.5, 0.5, 1]]
    assert chances(np.array([[1.0, 1.0, 8.0]]), np.array([3])).tolist() == [[1, 1, 1]]
    assert chances(np.array([[1e300, 1e-300, 1e-320]]), 3).tolist() == [[1, 1, 1]]
    assert chances(np.array([[1e308, 1e308, 0]]), 1).tolist() == [[0.5, 0.5, 0]]
    assert chances(np.zeros((2, 3)), 1).tolist() == [[0, 0, 0]] * 2


def test_a_share_is_of_all_labels_and_not_of_each_row():
    labels = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0]], bool)
    assert share_chances(np.ones((3, 3)), labels, 0.5)[labels].tolist() == [0.5] * 3
    found = share_chances(np.array([[1, 2, 9], [3, 9, 9], [9, 9, 9]]), labels, 0.5)
    assert found.tolist() == [[0.25, 0.5, 0], [0.75, 0, 0], [0, 0, 0]]
    # of four labels one is never kept, and still counts in the half
    found = share_chances(np.array([[0.0, 1, 1], [1, 0, 0]]), np.array([[1, 1, 1], [1, 0, 0]], bool), 0.5)
    assert found == pytest.approx(np.array([[0, 2 / 3, 2 / 3], [2 / 3, 0, 0]]))
    assert share_chances(np.ones((3, 3)), labels, 0.0).tolist() == np.zeros((3, 3)).tolist()
    assert share_chances(np.ones((3, 3)), labels, 1.0).tolist() == labels.astype(float).tolist()


# ---------------------------------------------------------------------------------------------- draws
@given(WEIGHTS, st.integers(0, 4), st.integers(0, 5))
def test_a_fixed_draw_has_its_number_in_every_row(weights, keep, seed):
    chance = chances(weights, keep)
    found = draw_fixed(chance, np.random.default_rng(seed))
    assert found.sum(axis=1).tolist() == np.minimum(keep, (weights > 0).sum(axis=1)).tolist()
    assert not found[chance == 0].any() and found[chance == 1].all()


@pytest.mark.parametrize("draw", [draw_fixed, draw_each])
def test_labels_are_drawn_with_their_chances(draw):
    chance = np.array([0.1, 0.25, 0.0, 1.0, 0.65, 0.3, 0.7])  # adds up to 3
    n = 40_000
    rates = draw(np.tile(chance, (n, 1)), np.random.default_rng(1)).mean(axis=0)
    assert (np.abs(rates - chance) <= 4.5 * np.sqrt(chance * (1 - chance) / n)).all()


def test_any_two_labels_can_be_kept_together():
    """Systematic sampling in a fixed order never keeps neighbours."""
    found = draw_fixed(np.full((20_000, 4), 0.5), np.random.default_rng(2))
    pairs = [int((found[:, a] & found[:, b]).sum()) for a, b in itertools.combinations(range(4), 2)]
    expected = 20_000 / 6  # each of the six pairs is as likely as another
    assert all(abs(count - expected) < 5 * math.sqrt(expected) for count in pairs)


def test_rows_are_drawn_independently():
    first = draw_fixed(np.full((30_000, 2), 0.5), np.random.default_rng(3))[:, 0]
    assert abs((first[1:] == first[:-1]).mean() - 0.5) < 4.5 * 0.5 / math.sqrt(30_000)


def test_chances_that_add_up_to_no_whole_number_are_refused():
    with pytest.raises(ValueError, match="no whole number"):
        draw_fixed(np.array([[0.5, 0.7]]), np.random.default_rng(0))


def test_the_default_is_the_draw_of_the_papers_setting():
    truth = np.random.default_rng(0).integers(0, 2, (50, 6))
    official = np.repeat([0, 1], [30, 20])
    found = drawn(table(truth, official=official), draw=3)
    for number, part in enumerate(("official_train", "official_test")):
        rows = official == number
        generator = seeds.numpy_generator(3, "simulate", part)
        assert np.array_equal(found.observed[rows], recipe.seeded(truth[rows], generator))
    expected = [[cell / max(sum(row), 1) for cell in row] for row in truth.tolist()]
    assert found.chance == pytest.approx(np.array(expected))
    assert np.array_equal(found.chance, found.uniform)


@pytest.mark.parametrize("positives, negatives", [(1, 0), (2, 0), (1, 3), (3, 9)])
def test_the_published_recipe_keeps_counts(positives, negatives):
    truth = np.random.default_rng(4).integers(0, 2, (40, 6))
    change = {
        "positives": {"kind": "count", "value": positives},
        "negatives": {"kind": "count", "value": negatives},
        "protocol": "literature",
        "seed": 7,
    }
    found = drawn(table(truth), **change)
    assert np.array_equal(found.observed, recipe.literature(truth, 7, positives, negatives))
    draws = [recipe.literature(truth, seed, positives, negatives) != 0 for seed in range(600)]
    assert np.abs(np.mean(draws, axis=0) - found.chance).max() < 4.5 * 0.5 / math.sqrt(600)


def test_counts_and_shares_of_positives_and_negatives():
    truth = np.random.default_rng(6).integers(0, 2, (400, 8))
    observed = drawn(table(truth), positives={"kind": "count", "value": 3}, negatives={"kind": "count", "value": 2})
    kept = observed.observed
    assert (kept == 1).sum(axis=1).tolist() == np.minimum(truth.sum(axis=1), 3).tolist()
    assert (kept == -1).sum(axis=1).tolist() == np.minimum(8 - truth.sum(axis=1), 2).tolist()
    assert truth[kept == 1].all() and not truth[kept == -1].any()

    share = drawn(table(truth), positives={"kind": "share", "value": 0.4}, negatives={"kind": "share", "value": 0.1})
    for value, labels, part in ((1, truth == 1, 0.4), (-1, truth == 0, 0.1)):
        count, n = int((share.observed == value).sum()), int(labels.sum())
        assert abs(count - part * n) < 4.5 * math.sqrt(n * part * (1 - part))
        assert labels[share.observed == value].all()
        assert share.chance[labels] == pytest.approx(np.full(n, part))


def test_positives_and_negatives_are_drawn_from_streams_of_their_own():
    truth = np.random.default_rng(8).integers(0, 2, (40, 5))
    half = {"kind": "share", "value": 0.5}
    observed = drawn(table(truth), positives=half, negatives=half, draw=2).observed
    for value, labels, what in ((1, truth == 1, "positives"), (-1, truth == 0, "negatives")):
        chances = seeds.numpy_generator(2, "simulate", "official_train", what).random(truth.shape)
        assert np.array_equal(observed == value, labels & (chances < 0.5))


def test_negatives_do_not_move_the_positives():
    truth = np.random.default_rng(7).integers(0, 2, (60, 6))
    for positives in ({"kind": "count", "value": 1}, {"kind": "count", "value": 2}, {"kind": "share", "value": 0.5}):
        alone = drawn(table(truth), positives=positives).observed
        beside = drawn(table(truth), positives=positives, negatives={"kind": "share", "value": 0.5}).observed
        assert np.array_equal(alone == 1, beside == 1) and (beside == -1).any()


@pytest.mark.parametrize("protocol", ["seeded", "literature"])
def test_nothing_is_observed_where_truth_is_not_known(protocol):
    truth = np.zeros((50, 5), np.int8)
    truth[:, 0] = 1
    scored = np.ones((50, 5), bool)
    scored[:, 3] = False
    found = drawn(table(truth, scored), protocol=protocol, negatives={"kind": "count", "value": 4})
    assert not found.observed[:, 3].any() and not found.chance[:, 3].any()
    if protocol == "seeded":
        assert (found.observed[:, [1, 2, 4]] == -1).all()


def test_rows_of_one_part_do_not_move_those_of_the_other():
    truth = np.random.default_rng(8).integers(0, 2, (40, 5))
    other = truth.copy()
    other[30:] = 1
    official = np.repeat([0, 1], [30, 10])
    for change in (
        {"positives": {"kind": "count", "value": 2}},
        {"positives": {"kind": "share", "value": 0.5}, "bias": {"kind": "frequency", "power": 1.0}},
    ):
        first, second = (drawn(table(t, official=official), **change).observed[:30] for t in (truth, other))
        assert np.array_equal(first, second)


def test_an_unbiased_draw_of_a_table_keeps_its_mean(tmp_path):
    (tmp_path / "w.csv").write_text("class,weight\na,0.2\nb,0.8\n")
    prepared, bias = table([[1, 1], [0, 1]]), {"kind": "table", "file": "w.csv"}
    wanted = settings(positives={"kind": "table"}, bias=bias)
    found = draw(prepared, wanted, bias_weights(tmp_path, prepared, None, wanted))
    assert found.chance.tolist() == [[0.2, 0.8], [0, 0.8]]
    assert found.uniform == pytest.approx(np.array([[0.6, 0.6], [0, 0.6]]))


# ---------------------------------------------------------------------------------------------- weights
def test_frequent_classes_are_kept_in_proportion():
    truth = np.zeros((100, 3), np.int8)
    truth[:, 0] = 1
    truth[:20, 1] = 1
    chance = drawn(table(truth), bias={"kind": "frequency", "power": 1.0}).chance
    assert chance[0] == pytest.approx([100 / 120, 20 / 120, 0])
    assert drawn(table(truth), bias={"kind": "frequency", "power": -1.0}).chance[0] == pytest.approx([1 / 6, 5 / 6, 0])
    assert drawn(table(truth), bias={"kind": "frequency", "power": 2.0}).chance[0] == pytest.approx(
        [25 / 26, 1 / 26, 0]
    )
    assert drawn(table(truth), bias={"kind": "frequency", "power": 0.0}).chance[0].tolist() == [0.5, 0.5, 0]


def test_frequency_is_counted_in_the_official_training_part():
    truth, official = [[1, 1], [1, 0], [0, 1], [0, 1]], [0, 0, 1, 1]
    chance = drawn(table(truth, official=official), bias={"kind": "frequency", "power": 1.0}).chance
    assert chance.tolist() == [[2 / 3, 1 / 3], [1, 0], [0, 1], [0, 1]]


def test_size_and_closeness():
    area = np.array([[0.5, 0.125, 0.0]], np.float32)
    offset = np.array([[0.75, 0.5, 0.0]], np.float32)
    objects = Objects(area, offset)
    assert by_size(objects, 1) == pytest.approx(np.array([[1, 0.25, 2e-4]]))
    assert by_size(objects, 2) == pytest.approx(np.array([[1, 0.0625, 4e-8]]))
    assert by_closeness(objects, 1) == pytest.approx(np.array([[0.5, 1, 2e-4]]))  # no box: not the centre
    assert by_size(objects, -1) == pytest.approx(np.array([[2e-4, 8e-4, 1]]))


def test_no_power_makes_a_weight_that_is_none():
    for power in (-20.0, 20.0):
        weights = by_frequency(np.array([0, 1, 10**6]), power)
        assert np.isfinite(weights).all() and (weights > 0).all() and weights.max() == 1


@pytest.mark.parametrize("kind", ["size", "centre"])
def test_boxes_are_needed_for_draws_by_them(kind):
    wanted = settings(bias={"kind": kind, "power": 1.0})
    with pytest.raises(ConfigError, match=rf"simulate\.bias: {kind} needs boxes, and the data gave none"):
        bias_weights(Path(), table([[1, 0]]), None, wanted)
    objects = Objects(np.full((1, 2), 0.25, np.float32), np.full((1, 2), 0.5, np.float32))
    assert bias_weights(Path(), table([[1, 0]]), objects, wanted).tolist() == [[1, 1]]


# ---------------------------------------------------------------------------------------------- tables of weights
def read(tmp_path, text: str, name: str = "w.csv", probabilities: bool = False) -> np.ndarray:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_weights(tmp_path / name, table([[1, 1, 0], [0, 1, 0]]), probabilities)


def test_weights_of_classes(tmp_path):
    assert read(tmp_path, "class,weight\nb,+.2e1\na,0.\n").tolist() == [[0, 2, 0], [0, 2, 0]]
    assert read(tmp_path, "class,weight\nb,2\na,0\n").tolist() == [[0, 2, 0], [0, 2, 0]]  # c has no positive
    assert read(tmp_path, "class\tweight\r\na\t1e-1\r\nb\t3\r\n\r\nc\t7\r\n", "w.tsv").tolist() == [
        [0.1, 3, 0],
        [0, 3, 0],
    ]


def test_a_spreadsheet_may_write_semicolons(tmp_path):
    assert read(tmp_path, "class;weight\na;1\nb;2.5\n").tolist() == [[1, 2.5, 0], [0, 2.5, 0]]


def test_weights_of_cells(tmp_path):
    text = "image,class,weight\n000.jpg,a,1\n000.jpg,b,2\n./001.jpg,b,3\n001.jpg,c,9\n"
    assert read(tmp_path, "\ufeff" + text).tolist() == [[1, 2, 0], [0, 3, 0]]


def test_all_faults_of_a_table_are_told(tmp_path):
    text = "image,class,weight\n000.jpg,a,-1\nx.jpg,b,2\n000.jpg,z,3\n001.jpg,b\n000.jpg,b,2\n000.jpg,b,nan\n"
    text += "000.jpg,b,2\n../a,a,1\n"
    with pytest.raises(SourceError) as caught:
        read(tmp_path, text)
    told = str(caught.value)
    for words in (
        "w.csv: lines have another number of fields than 3: line 5",
        "2 images are not in the dataset, whose table.h5 has the names: line 3 'x.jpg', line 9 '../a'",
        "classes are not in the dataset: line 4 'z'",
        "2 weights are below 0 or none: line 2 '-1', line 7 'nan'",
        "cells are there twice: line 8 000.jpg, b",
        "2 present labels have no weight: 000.jpg a, 001.jpg b",
    ):
        assert words in told


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "columns are none"),
        ("class,weight\na,1\n\n\n\nb,oops\n", "below 0 or none: line 6 'oops'"),
        ("class,weight\na,1_0\nb,0x2\n", "below 0 or none: line 2 '1_0', line 3 '0x2'"),
        ("class,weight\na,.\nb,.e5\n", "below 0 or none: line 2 '.', line 3 '.e5'"),
        ("class,weight\na,1.2.3\nb,٣\n", "below 0 or none: line 2 '1.2.3', line 3 '٣'"),
        ('class,weight\na,"1\nb,1\n', "w.csv: line 2: unexpected end of data"),
        ("class,weight\na,0\nb,0.0\n", "none would stay known"),
        ("a,b\n", "columns are a, b, expected class, weight or"),
        ("class,weight\na,1\n", "classes have no weight: b"),
        ("class,weight\na,1\nb,x\n", "weights are below 0 or none: line 3 'x'"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path, text, words):
    with pytest.raises(SourceError, match=words):
        read(tmp_path, text)


def test_probabilities_are_at_most_1(tmp_path):
    assert read(tmp_path, "class,weight\na,1\nb,0.5\n", probabilities=True).max() == 1
    with pytest.raises(SourceError, match="weights are no probabilities or none: line 2 '1.5'"):
        read(tmp_path, "class,weight\na,1.5\nb,0.5\n", probabilities=True)


# ---------------------------------------------------------------------------------------------- distance
def test_distance_from_an_unbiased_draw_by_hand():
    uniform = np.full((10, 2), 0.5)
    distance, by_chance = from_uniform(np.array([8, 2]), uniform, True)
    assert distance == pytest.approx(0.3)  # 3 of 10 would have to change
    # each class: mean |deviation| of a normal of variance 10/4
    assert by_chance == pytest.approx(2 * math.sqrt(2 / math.pi * 2.5) / 10 / 2)
    assert from_uniform(np.array([0, 0]), uniform, True) == (None, None)


@pytest.mark.parametrize("positives", [{"kind": "count", "value": 1}, {"kind": "share", "value": 0.5}])
def test_an_unbiased_draw_is_as_far_as_chance_says(positives):
    truth = np.random.default_rng(9).random((2000, 2)) < np.array([0.9, 0.5])
    found = [drawn(table(truth), draw=number, positives=positives) for number in range(60)]
    fixed = positives["kind"] == "count"
    pairs = [from_uniform((one.observed == 1).sum(axis=0), one.uniform, fixed) for one in found]
    assert sum(distance or 0 for distance, _ in pairs) / 60 == pytest.approx(pairs[0][1], rel=0.25)


def test_a_share_of_one_class_alone_is_never_off():
    assert from_uniform(np.array([40]), np.full((100, 1), 0.5), False) == (0, pytest.approx(0, abs=1e-9))
