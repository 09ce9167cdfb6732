"""Which learning rate and epoch a run takes: those that score best on validation, or out of fold beside a fixed recipe.

By full labels where ``select`` is ``clean``; by the labels that were shown where it is ``auto`` (`selection`).
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from pipeline.audits import unlabelled
from pipeline.audits.metrics import mean_average_precision, measurable
from pipeline.core.errors import ConfigError, TrainingError
from pipeline.training import search, selection
from pipeline.training.run import Run
from pipeline.training.store import Trained
from pipeline.training.trials import Trials


@dataclass(frozen=True)
class Choice:
    """What a run takes of its trials."""

    rate: float
    trained: Trained
    rows: list[dict[str, Any]]
    """One row a trial."""
    comparison: selection.Comparison | None = None
    """The best choice beside the fixed recipe, where shown labels choose."""
    left_out: np.ndarray | None = None
    """(N, C) logits of training images at that rate and epoch, by heads that their labels did not train; None where
    there are none."""


def make_scorer(run: Run) -> Callable[[np.ndarray], float] | None:
    """Return the function that scores validation logits: mAP in percent, by full labels where they are at hand.

    Args:
        run: The run.

    Returns:
        Maps (N_val, C) logits to points; None where no class has both a positive and a negative.

    Raises:
        ConfigError: No class has a positive in the validation split, so no epoch can be chosen by it.
    """
    truth, scored = run.table.reference("val")
    if not truth.any():
        raise ConfigError(f"{run.stage}.select: the validation split of {run.dataset} has no positive label")
    if not measurable(truth, scored)[0].any():
        return None
    return lambda logits: mean_average_precision(truth, logits, scored)["map"]


def read_judges(run: Run, single: np.ndarray) -> dict[str, selection.Judge] | None:
    """Return the judges of the training and validation images, where labels that were shown choose.

    Args:
        run: The run.
        single: (N, C) observed labels of all rows.

    Returns:
        The judges by split; None where ``select`` is not ``auto``.

    Raises:
        ConfigError: A split shows no label, so nothing is ranked.
        FileError: The beliefs are absent, damaged, or not those of the table.
    """  # noqa: DOC502  FileError comes from `Run.beliefs`
    if run.settings.select != "auto":
        return None
    stands_for = run.beliefs.stands_for(single)
    judges = {}
    for split in ("train", "val"):
        rows = run.table.rows(split)
        shown = single[rows] == 1
        if not shown.any():
            raise ConfigError(
                f"{run.stage}.select: auto ranks shown labels, and the {split} split of {run.dataset} shows none; "
                "set it to last"
            )
        judges[split] = selection.Judge(shown, stands_for[rows], run.seed)
    return judges


def choose_on_validation(run: Run, trials: Trials, judge: selection.Judge | None) -> Choice:
    """Choose by the scores of the validation split; say so where they tell no rates or epochs apart.

    Args:
        run: The run.
        trials: Trains it.
        judge: Judge of the validation images, where shown labels choose.

    Returns:
        The choice.

    Raises:
        TrainingError: Training diverged at every rate of a grid.
    """
    try:
        rate, trained, rows = search.choose(run.settings, trials.train, judge_trained)
    except TrainingError as error:
        raise error if str(error).startswith(run.name) else TrainingError(f"{run.name}: {error}") from error
    history = trained.history
    if judge:
        best = int(np.argmax([row["score"] for row in history.rows]))  # of the raw weights, as the loop has it
        return Choice(rate, trained, rows, judge.compare_epochs([logits.numpy() for logits in history.val], best))
    if search.are_tied(rows):
        tqdm.write(f"{run.name}: val scores every rate alike, so it chose none: {rate:g} is the middle one")
    if history.is_tied():
        tqdm.write(f"{run.name}: val scores every epoch alike, so it chose none: {history.epoch} is the last")
    return Choice(rate, trained, rows)


def judge_trained(trained: Trained) -> search.Verdict:
    """Return what validation says of a trial."""
    return search.Verdict(trained.history.best, trained.history.epoch, trained.history.diverged)


def choose_out_of_fold(run: Run, trials: Trials, judge: selection.Judge) -> Choice:
    """Choose by scores of training images that a head was not trained on; then train on all of them.

    Args:
        run: The run.
        trials: Trains it.
        judge: Judge of the training images.

    Returns:
        The choice: the best rate and epoch where they rank better than the fixed recipe, beyond noise; else that one.
        Where that diverges on all images, the next best.

    Raises:
        TrainingError: Training diverged at every rate of a grid, in parts or on all images.
    """
    fixed_rate, fits, gains = search.middle_rate(run.settings), {}, {}

    def fit(rate: float, _: int | None) -> selection.CrossFit:
        found = trials.cross_fit(rate, judge)
        if found.gains is not None:
            gains[rate] = found.gains
        if rate == fixed_rate:
            fits[rate] = found
        return found

    def verdict(found: selection.CrossFit) -> search.Verdict:
        return search.Verdict(max(found.scores, default=-np.inf), found.epoch, found.diverged)

    try:
        rate, best, rows = search.choose(run.settings, fit, verdict)
    except TrainingError as error:
        raise TrainingError(f"{run.name}: {error}") from error
    fixed = fixed_rate, run.settings.epochs
    comparison = _compare(judge, gains, (rate, best.epoch), fixed)
    ranked = sorted((row for row in rows if row["epoch"]), key=lambda row: -row["score"])
    tried = [(rate, best.epoch), fixed] if comparison.better else [fixed]
    tried += [(row["learning_rate"], row["epoch"]) for row in ranked]
    by_rate = {row["learning_rate"]: row | {"chosen": 0} for row in rows}
    for taken in dict.fromkeys(tried):
        own = by_rate[taken[0]]
        if own["epoch"] and own["diverged"] is not None:
            continue  # on all images, at its other epoch
        trained = trials.train(taken[0], None, taken[1])
        own["diverged"] = trained.history.diverged
        if trained.history.diverged is None:
            own["chosen"] = 1
            left_out = {fixed: fits[fixed_rate].last, (rate, best.epoch): best.best}.get(taken)
            return Choice(taken[0], trained, [*by_rate.values()], comparison._replace(better=taken != fixed), left_out)
    raise TrainingError(f"{run.name}: training diverged on all images at every rate; name lower ones in search.values")


def _compare(
    judge: selection.Judge, gains: dict[float, np.ndarray], best: tuple[float, int], fixed: tuple[float, int]
) -> selection.Comparison:
    """Return the best choice beside the fixed recipe; the one that did not diverge is better.

    Args:
        judge: The judge.
        gains: (epochs, N) of each rate that did not diverge.
        best: Rate and epoch.
        fixed: Rate and epoch.
    """
    if fixed[0] not in gains or best[0] not in gains:
        return selection.Comparison(unlabelled.Estimate(*[np.nan] * 4), best[0] in gains)
    place = sum(len(each) for rate, each in itertools.takewhile(lambda item: item[0] != best[0], gains.items()))
    return judge.compare(np.concatenate([*gains.values()]), place + best[1] - 1, gains[fixed[0]][-1])
