"""What rounds of review are worth: ``python -m benchmarks.review_loop DATASET [DRAW ...]``.

The truth is hidden but for a label draw. Rounds of QUESTIONS unknown labels of training images are asked in each order
of `spml review` and answered from the truth; an answer is known as `prepare` takes a correction. After each round the
fits of the stage beliefs are made anew, which give the next questions, and a head that is scored on test. Test chooses
nothing. DRAWS chose nothing either: neither the formula of `gain` nor a setting.
benchmarks/review_loop.tsv keeps the rows of all datasets and draws; printed are their means, and differences by draw
with 95 % t intervals. It needs params.yaml of a profile of the dataset and the outputs of prepare and features; labels
are drawn here as `simulate` draws them.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import torch

from pipeline.audits.metrics import mean_average_precision
from pipeline.audits.paired import compare_paired
from pipeline.audits.questions import ORDERS, Order, rank_cells
from pipeline.config.params import read_params
from pipeline.core import files, seeds
from pipeline.labels import draws
from pipeline.labels.observed import mark_not_shown
from pipeline.labels.table import Table, read_table
from pipeline.training import ridge
from pipeline.training.beliefs import Sampling, believe
from pipeline.training.features import Cache, read_features
from pipeline.training.settings import BeliefFits
from pipeline.training.stored_beliefs import make_draw, places_of

DRAWS = (10, 11, 12, 13, 14)
QUESTIONS = 100
"""Of a round."""
ROUNDS = 5
SCORES = ("supported", "test_map")
"""Test mAP of classes with enough test positives (`report.min_support`), and of all that have one."""
TABLE = Path(__file__).parent / "review_loop.tsv"


class Review(NamedTuple):
    """What stays as it is while rounds are asked."""

    table: Table
    cache: Cache
    settings: BeliefFits
    min_support: int
    drawn: draws.Draw
    draw: int
    """Number of the label draw."""

    def known(self, answers: np.ndarray) -> np.ndarray:
        """Return (N, C) int8 labels of `read_shown` where people gave such (N, C) answers: 1, -1, or 0 for none."""
        return mark_not_shown(self.table, *self.drawn.imply(replace(self.table, corrected=answers)))

    def fit(self, observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fit beliefs to labels as the stage beliefs does.

        Args:
            observed: (N, C) int8 labels of `read_shown`.

        Returns:
            (N_train, C) float32 chances of training images, as the stage stores them, and (N_test, C) logits of the
            head on test images.
        """
        train, test = self.table.rows("train"), self.table.rows("test")
        sharpness, groups = self.settings.sharpness, self.table.group_numbers("train")
        fitted = believe(
            self.cache.plain[train],
            observed[train],
            self.cache.mirrored,
            make_draw(self.settings.draw),
            self.settings.fits,
            Sampling(self.draw, groups),
            places_of(self.cache, train, sharpness),
        )
        places = places_of(self.cache, test, sharpness)
        if places is None:
            logits = ridge.score(self.cache.plain[test], fitted.weights, fitted.bias)
        else:
            logits = places.scores(fitted.weights, fitted.bias)
        return fitted.present.astype(np.float32), logits

    def score(self, logits: np.ndarray) -> dict[str, float]:
        """Return test mAP of (N_test, C) logits, by `SCORES`."""
        truth, scored = self.table.reference("test")
        found = mean_average_precision(truth, logits, scored)
        enough = ((truth == 1) & scored).sum(axis=0) >= self.min_support
        values = [value for value, keep in zip(found["ap"], enough, strict=True) if keep and value is not None]
        return {"supported": 100 * float(np.mean(values)), "test_map": found["map"], "classes": len(values)}


def ask(review: Review, order: Order, rounds: int, questions: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Ask rounds of questions in an order and answer them from the truth.

    Args:
        review: What is reviewed.
        order: Which unknown labels come first.
        rounds: Their number.
        questions: Of a round, at most.

    Yields:
        (N, C) int8 answers so far and (N_test, C) logits, before the first round and after each.
    """
    table = review.table
    train = table.rows("train")
    answers = np.zeros(table.truth.shape, np.int8)  # corrections that the project has are hidden too
    generator = seeds.numpy_generator(review.draw, "benchmark", "review_loop")
    for number in range(rounds + 1):
        observed = review.known(answers)
        belief, logits = review.fit(observed)
        yield answers.copy(), logits
        if number < rounds:
            asked = np.where(table.scored[train], observed[train], np.int8(1))  # nobody could answer the others
            for row, column in rank_cells(belief, asked, order, questions, generator):
                answers[train[row], column] = 2 * table.truth[train[row], column] - 1


def score_order(review: Review, order: Order) -> Iterator[dict[str, Any]]:
    """Yield a row before the first round and after each."""
    for number, (answers, logits) in enumerate(ask(review, order, ROUNDS, QUESTIONS)):
        counts = {"answers": int((answers != 0).sum()), "found": int((answers == 1).sum())}
        yield {"draw": review.draw, "order": order, "round": number, **counts, **review.score(logits)}


def list_means(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield lines of a table of means over draws: test mAP, and the hidden labels found in brackets."""
    for score in SCORES:
        for order in ORDERS:
            own = [row for row in rows if row["order"] == order]
            cells = []
            for number in range(ROUNDS + 1):
                at = [row for row in own if int(row["round"]) == number]
                found = f" ({mean(float(row['found']) for row in at):.0f})" if number else ""
                cells.append(f"{mean(float(row[score]) for row in at):.2f}{found}")
            yield f"| {score}, {order} | {' | '.join(cells)} |"


def list_differences(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield lines of a table of `gain` less another order: mean, interval, and draws on which it is ahead."""
    place = {(row["order"], int(row["draw"]), int(row["round"])): row for row in rows}
    numbers = sorted({int(row["draw"]) for row in rows})
    for score in SCORES:
        for other in ORDERS[1:]:
            cells = []
            for number in range(1, ROUNDS + 1):
                ahead = [
                    float(place["gain", draw, number][score]) - float(place[other, draw, number][score])
                    for draw in numbers
                ]
                found = compare_paired(np.array(numbers), np.array(ahead))
                cells.append(f"{found['mean']:+.2f} [{found['low']:.2f}, {found['high']:.2f}], {found['won']}")
            yield f"| {score}, gain less {other} | {' | '.join(cells)} |"


def main() -> None:
    """Make the rows of one dataset anew and print what they say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("dataset")
    parser.add_argument("draws", nargs="*", type=int, default=DRAWS, metavar="DRAW")
    options = parser.parse_args()
    torch.set_num_threads(1)
    params, dataset = read_params("params.yaml"), options.dataset
    settings, simulate = params.settings("beliefs", dataset), params.settings("simulate", dataset)
    table = read_table(Path("data") / "prepare" / dataset / "table.h5")
    if not table.exhaustive or not isinstance(settings, BeliefFits):
        parser.error(f"{dataset}: needs data whose whole truth is known, and beliefs of kind fits")
    cache = read_features(
        Path("data") / "features" / dataset / "features.h5", table, places=settings.sharpness is not None
    )
    made: list[dict[str, Any]] = []
    for draw in options.draws:
        drawn = draws.observe(Path(), table, None, simulate, draw)
        review = Review(table, cache, settings, params.settings("report", dataset).min_support, drawn, draw)
        rows = [{"dataset": dataset, **row} for order in ORDERS for row in score_order(review, order)]
        kept = files.read_tsv(TABLE) if TABLE.exists() else []
        files.write_tsv(TABLE, [row for row in kept if (row["dataset"], row["draw"]) != (dataset, str(draw))] + rows)
        made += rows
    heads = ["before", *(f"{QUESTIONS * number} answers" for number in range(1, ROUNDS + 1))]
    for header, lines in ((heads, list_means(made)), (heads[1:], list_differences(made))):
        print(f"| | {' | '.join(header)} |", "| --- |" + " --- |" * len(header), *lines, "", sep="\n")


if __name__ == "__main__":
    main()
