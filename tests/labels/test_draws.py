import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core import seeds
from pipeline.labels import blocks, recipe
from pipeline.labels.chances import chances
from pipeline.labels.draws import draw, draw_fixed, draw_independent
from pipeline.labels.weights import bias_weights
from tests.labels.cases import chance_of, drawn, in_one, settings, table, uniform_of
from tests.labels.test_chances import WEIGHTS


@given(WEIGHTS, st.integers(0, 4), st.integers(0, 5))
def test_a_fixed_draw_has_its_number_in_every_row(weights, keep, seed):
    chance = chances(weights, keep)
    found = in_one(draw_fixed, chance, np.random.default_rng(seed))
    assert found.sum(axis=1).tolist() == np.minimum(keep, (weights > 0).sum(axis=1)).tolist()
    assert not found[chance == 0].any() and found[chance == 1].all()


@pytest.mark.parametrize("draw", [draw_fixed, draw_independent])
def test_labels_are_drawn_with_their_chances(draw):
    chance = np.array([0.1, 0.25, 0.0, 1.0, 0.65, 0.3, 0.7])  # adds up to 3
    n = 40_000
    rates = in_one(draw, np.tile(chance, (n, 1)), np.random.default_rng(1)).mean(axis=0)
    assert (np.abs(rates - chance) <= 4.5 * np.sqrt(chance * (1 - chance) / n)).all()


def test_any_two_labels_can_be_kept_together():
    """Systematic sampling in a fixed order never keeps neighbours."""
    found = in_one(draw_fixed, np.full((20_000, 4), 0.5), np.random.default_rng(2))
    pairs = [int((found[:, a] & found[:, b]).sum()) for a, b in itertools.combinations(range(4), 2)]
    expected = 20_000 / 6  # each of the six pairs is as likely as another
    assert all(abs(count - expected) < 5 * math.sqrt(expected) for count in pairs)


def test_rows_are_drawn_independently():
    first = in_one(draw_fixed, np.full((30_000, 2), 0.5), np.random.default_rng(3))[:, 0]
    assert abs((first[1:] == first[:-1]).mean() - 0.5) < 4.5 * 0.5 / math.sqrt(30_000)


def test_chances_that_add_up_to_no_whole_number_are_refused():
    with pytest.raises(ValueError, match="no whole number"):
        in_one(draw_fixed, np.array([[0.5, 0.7]]), np.random.default_rng(0))


def test_the_default_is_the_draw_of_the_papers_setting():
    truth = np.random.default_rng(0).integers(0, 2, (50, 6))
    official = np.repeat([0, 1], [30, 20])
    found = drawn(table(truth, official=official), 3)
    for number, part in enumerate(("official_train", "official_test")):
        rows = official == number
        generator = seeds.numpy_generator(3, "simulate", part)
        assert np.array_equal(found.observed[rows], recipe.seeded(truth[rows], generator))
    expected = [[cell / max(sum(row), 1) for cell in row] for row in truth.tolist()]
    assert chance_of(found) == pytest.approx(np.array(expected))
    assert np.array_equal(chance_of(found), uniform_of(found))


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
    assert np.abs(np.mean(draws, axis=0) - chance_of(found)).max() < 4.5 * 0.5 / math.sqrt(600)


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
        assert chance_of(share)[labels] == pytest.approx(np.full(n, part))


def test_positives_and_negatives_are_drawn_from_streams_of_their_own():
    truth = np.random.default_rng(8).integers(0, 2, (40, 5))
    half = {"kind": "share", "value": 0.5}
    observed = drawn(table(truth), 2, positives=half, negatives=half).observed
    for value, labels, what in ((1, truth == 1, "positives"), (-1, truth == 0, "negatives")):
        chances = seeds.numpy_generator(2, "simulate", "official_train", what).random(truth.shape)
        assert np.array_equal(observed == value, labels & (chances < 0.5))


def test_draws_and_seeds_matter_only_to_their_protocol():
    prepared = table(np.random.default_rng(9).integers(0, 2, (60, 6)))
    for protocol, counts, ignored in (("seeded", "number", "seed"), ("literature", "seed", "number")):
        first, second, third = (
            drawn(prepared, protocol=protocol, **change).observed for change in ({}, {ignored: 7}, {counts: 7})
        )
        assert np.array_equal(first, second) and not np.array_equal(first, third)


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
    assert not found.observed[:, 3].any() and not chance_of(found)[:, 3].any()
    if protocol == "seeded":
        assert (found.observed[:, [1, 2, 4]] == -1).all()


def test_rows_of_one_part_do_not_move_those_of_the_other():
    truth = np.random.default_rng(8).integers(0, 2, (40, 5))
    other = truth.copy()
    other[30:] = 1
    official = np.repeat([0, 1], [30, 10])
    changes: list[dict[str, Any]] = [
        {"positives": {"kind": "count", "value": 2}},
        {"positives": {"kind": "share", "value": 0.5}, "bias": {"kind": "frequency", "power": 1.0}},
    ]
    for change in changes:
        first, second = (drawn(table(t, official=official), **change).observed[:30] for t in (truth, other))
        assert np.array_equal(first, second)


def test_an_unbiased_draw_of_a_table_keeps_its_mean(tmp_path):
    (tmp_path / "w.csv").write_text("class,weight\na,0.2\nb,0.8\n")
    prepared, bias = table([[1, 1], [0, 1]]), {"kind": "table", "file": "w.csv"}
    wanted = settings(positives={"kind": "table"}, bias=bias)
    found = draw(prepared, wanted, bias_weights(tmp_path, prepared, None, wanted), 0)
    assert chance_of(found).tolist() == [[0.2, 0.8], [0, 0.8]]
    assert uniform_of(found) == pytest.approx(np.array([[0.6, 0.6], [0, 0.6]]))


MANY = {
    "published": {"protocol": "literature", "negatives": {"kind": "count", "value": 2}},
    "one": {},
    "counts": {"positives": {"kind": "count", "value": 2}, "negatives": {"kind": "count", "value": 3}},
    "shares": {"positives": {"kind": "share", "value": 0.9}, "negatives": {"kind": "share", "value": 0.1}},
    "biased": {"positives": {"kind": "share", "value": 0.9}, "bias": {"kind": "frequency", "power": 3.0}},
}


@pytest.mark.parametrize("name", MANY)
def test_the_size_of_blocks_moves_no_label(monkeypatch, name):
    truth = np.random.default_rng(3).random((60, 6)) < np.array([0.9, 0.5, 0.3, 0.2, 0.1, 0.05])
    prepared = table(truth, official=np.arange(60) % 3 == 0)
    monkeypatch.setattr(blocks, "CELLS", 10**6)
    whole = drawn(prepared, **MANY[name])
    for cells in (1, 7, 100):
        monkeypatch.setattr(blocks, "CELLS", cells)
        parts = drawn(prepared, **MANY[name])
        assert np.array_equal(parts.observed, whole.observed)
        assert chance_of(parts) == pytest.approx(chance_of(whole), abs=1e-12)
        assert uniform_of(parts) == pytest.approx(uniform_of(whole), abs=1e-12)
        some = np.array([0, 1, 5, 30, 59])
        assert np.array_equal(parts.chances(some)[0], chance_of(parts)[some])
