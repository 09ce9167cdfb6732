"""Rounds of review ask unknown labels once and learn the truth, and the page on reviews says what the table holds."""

import csv
import math
import re
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from benchmarks import review_loop
from benchmarks.review_loop import Review
from pipeline.audits.questions import ORDERS, Order
from pipeline.labels import draws
from pipeline.labels.implications import Rules
from pipeline.labels.settings import Simulate
from pipeline.labels.table import Table
from pipeline.training.features import Cache
from pipeline.training.settings import BeliefFits
from pipeline.training.stored_beliefs import fit_beliefs

TRAIN, VAL, TEST, C, D = 40, 6, 30, 4, 6
SETTINGS = BeliefFits.model_validate({"kind": "fits", "fits": 3, "draw": {"kind": "count"}, "sharpness": None})
SIMULATE = Simulate.model_validate(
    {
        "protocol": "seeded",
        "seed": 1200,
        "empty_rows": "keep",
        "positives": {"kind": "count", "value": 1},
        "negatives": {"kind": "count", "value": 0},
        "bias": {"kind": "uniform"},
    }
)


@pytest.fixture
def review() -> Review:
    """Labels that features tell in part, of which a draw shows one an image; the truth of some cells is not known."""
    generator = np.random.default_rng(0)
    rows = TRAIN + VAL + TEST
    features = generator.normal(size=(rows, D)).astype(np.float32)
    truth = (features[:, :C] + generator.normal(size=(rows, C)) > 0.3).astype(np.int8)
    scored = np.ones(truth.shape, bool)
    scored[3:9, 1] = False
    split = np.repeat(np.arange(3, dtype=np.uint8), (TRAIN, VAL, TEST))
    split = generator.permutation(split)  # rows of training are not the first
    official = (split == 2).astype(np.uint8)
    names = tuple(f"{row}.png" for row in range(rows))
    table = Table(tuple("abcd"), names, truth * scored, scored, split, official)
    return Review(
        table,
        Cache(features, None, None, ["mean"], []),
        SETTINGS,
        10,
        draws.observe(Path(), table, None, SIMULATE, 3),
        3,
    )


@pytest.mark.parametrize("order", ORDERS)
def test_rounds_ask_each_unknown_training_label_once_and_learn_the_truth(order: Order, review: Review) -> None:
    table, shown = review.table, review.drawn.observed
    train = table.split == 0
    given = [answers for answers, _ in review_loop.ask(review, order, rounds=3, questions=30)]
    assert not given[0].any()
    truth = np.where(table.truth == 1, 1, -1)
    for before, after in zip(given, given[1:], strict=False):
        new = before != after
        assert new.sum() == 30 and not before[new].any()  # none a second time, and none is taken back
        assert not shown[new].any() and new[train].sum() == 30 and table.scored[new].all()
        assert (after[new] == truth[new]).all()


def test_random_asks_everywhere_and_orders_end_alike(review: Review) -> None:
    """Once all is answered the order in which it was does not matter, and beliefs are the truth."""
    unknown = (review.drawn.observed == 0) & review.table.scored & (review.table.split == 0)[:, None]
    half = int(unknown.sum() + 1) // 2
    gain, by_gain = list(review_loop.ask(review, "gain", rounds=2, questions=1000))[-1]
    random, by_random = list(review_loop.ask(review, "random", rounds=2, questions=half))[-1]
    assert ((gain != 0) == unknown).all() and (gain == random).all() and np.array_equal(by_gain, by_random)
    belief = review.fit(review.known(gain))[0]
    told = review.table.scored[review.table.rows("train")]
    assert (belief == review.table.truth[review.table.rows("train")])[told].all()
    some = list(review_loop.ask(review, "random", rounds=1, questions=40))[-1][0]
    assert ((some != 0).sum(axis=0) > 3).all()


def test_beliefs_and_head_are_those_of_the_stage(review: Review) -> None:
    answers = list(review_loop.ask(review, "score", rounds=1, questions=25))[-1][0]
    observed = np.where(review.drawn.observed == 0, 2 * answers, review.drawn.observed)
    assert np.array_equal(review.known(answers), observed)
    found = fit_beliefs(SETTINGS, review.cache, review.table, observed, review.draw).beliefs
    belief, logits = review.fit(observed)
    assert np.array_equal(belief, found.belief[review.table.rows("train")])
    assert np.array_equal(logits.astype(np.float32), found.logits[review.table.rows("test")])


def test_answers_imply_what_the_rules_say(review: Review) -> None:
    truth = np.where(review.table.truth[:, :1] == 1, 1, review.table.truth).astype(np.int8)
    truth[:, 1] |= truth[:, 0]  # a implies b
    table = replace(review.table, truth=truth, scored=np.ones_like(review.table.scored))
    table = replace(table, rules=Rules({"a": ("b",)}, ()), implied=np.zeros(truth.shape, bool))
    ruled = review._replace(table=table, drawn=draws.observe(Path(), table, None, SIMULATE, 3))
    row = int(np.flatnonzero((truth[:, 0] == 1) & (ruled.drawn.observed[:, :2] == 0).all(axis=1))[0])
    answers = np.zeros(truth.shape, np.int8)
    answers[row, 0] = 1
    assert ruled.known(answers)[row, :2].tolist() == [2, 2]


def test_both_scores_are_means_of_average_precision(review: Review) -> None:
    rows = review.table.rows("test")
    logits = np.random.default_rng(2).normal(size=(TEST, C))
    truth, scored = review.table.truth[rows].copy(), review.table.scored[rows]
    truth[:, 2:] = 0
    truth[:10, 2] = 1  # the least
    truth[:9, 3] = 1  # one fewer than the least
    whole = review.table.truth.copy()
    whole[rows] = truth
    found = review._replace(table=replace(review.table, truth=whole, scored=np.ones_like(review.table.scored)))
    values = [100 * average_precision_score(truth[:, column], logits[:, column]) for column in range(C)]
    assert scored.shape == truth.shape
    score = found.score(logits)
    enough = [value for value, count in zip(values, truth.sum(axis=0), strict=True) if count >= 10]
    assert 0 < len(enough) < C and score["classes"] == len(enough)
    assert score["test_map"] == pytest.approx(mean(values)) and score["supported"] == pytest.approx(mean(enough))


ROOT = Path(__file__).resolve().parents[2]
with open(ROOT / "benchmarks" / "review_loop.tsv", encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file, delimiter="\t"))
PAGE = (ROOT / "docs" / "review.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Which questions")[2].partition("\n## ")[0]
LINE = re.compile(r"^\| (digits|photographs)(?:, (12|all 17) classes)?: (gain less )?`(\w+)` \|(.*)\|$", re.MULTILINE)
LINES = LINE.findall(SECTION)
T = 2.7764451  # 97.5 % quantile of Student's t with 4 degrees of freedom


def values(dataset: str, classes: str, order: str, number: int, key: str = "") -> dict[int, float]:
    """Return a figure of a round by draw; by default test mAP."""
    key = key or ("test_map" if classes.startswith("all") else "supported")
    place = ({"photographs": "voc_photos"}.get(dataset, dataset), order, str(number))
    rows = [row for row in ROWS if (row["dataset"], row["order"], row["round"]) == place]
    assert len({row["draw"] for row in rows}) == len(rows) == 5
    return {int(row["draw"]): float(row[key]) for row in rows}


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line[:4]))
def test_the_page_says_what_the_table_holds(line: tuple[str, ...]) -> None:
    dataset, classes, less, order, cells = line
    for number, cell in enumerate(map(str.strip, cells.split("|")), start=1 if less else 0):
        own = values(dataset, classes, order, number)
        if less:
            gain = values(dataset, classes, "gain", number)
            ahead = [gain[draw] - own[draw] for draw in own]
            reach = T * stdev(ahead) / math.sqrt(5)
            won = sum(value > 0 for value in ahead)
            said = f"{mean(ahead):+.2f} [{mean(ahead) - reach:.2f}, {mean(ahead) + reach:.2f}], {won}"
            assert cell == said
        else:
            found = mean(values(dataset, classes, order, number, "found").values())
            brackets = f" ({found:.0f})" if number and not classes.startswith("all") else ""
            assert cell == f"{mean(own.values()):.2f}{brackets}"


def test_every_order_is_on_the_page() -> None:
    kinds = [("digits", ""), ("photographs", "12"), ("photographs", "all 17")]
    expected = {(*kind, "", order) for kind in kinds for order in ORDERS}
    assert {line[:4] for line in LINES} == expected | {
        (*kind, "gain less ", order) for kind in kinds for order in ORDERS[1:]
    }
    assert len(LINES) == len(kinds) * 5


def test_rows_are_of_whole_loops() -> None:
    for row in ROWS:
        assert int(row["answers"]) == 100 * int(row["round"]) >= int(row["found"])
        assert int(row["classes"]) == {"digits": 10, "voc_photos": 12}[row["dataset"]]


def test_differences_are_paired_by_draw() -> None:
    ahead = {10: 1.0, 11: -2.0, 12: 4.0}  # mean 1, standard deviation 3
    rows = [
        {"draw": draw, "order": order, "round": number, "found": 0, "test_map": 0.0}
        | {"supported": 10.0 * draw + (ahead[draw] if order == "gain" else 0.0)}
        for draw in ahead
        for order in ORDERS
        for number in range(review_loop.ROUNDS + 1)
    ]
    first = next(iter(review_loop.list_differences(rows)))
    half = 4.3026527 * 3 / math.sqrt(3)
    assert f"| +1.00 [{1 - half:.2f}, {1 + half:.2f}], 2 |" in first and first.startswith(
        "| supported, gain less score"
    )
