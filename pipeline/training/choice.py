"""Which setting and epoch a run takes: those that score best on validation, or out of fold beside a fixed recipe.

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
from pipeline.training.score import name_score
from pipeline.training.store import Trained
from pipeline.training.trials import Trials


@dataclass(frozen=True)
class Choice:
    """What a run takes of its trials."""

    setting: search.Setting
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


def read_judges(run: Run, labels: np.ndarray) -> dict[str, selection.Judge] | None:
    """Return the judges of the training and validation images, where labels that were shown choose.

    Args:
        run: The run.
        labels: (N, C) observed labels of all rows, 1 where a label was shown.

    Returns:
        The judges by split; None where ``select`` is not ``auto``.

    Raises:
        ConfigError: A split shows no label, so nothing is ranked.
        FileError: The beliefs are absent, damaged, or not those of the table.
    """  # noqa: DOC502  FileError comes from `Run.beliefs`
    if run.settings.select != "auto":
        return None
    stands_for = run.beliefs.stands_for(labels)
    judges = {}
    for split in ("train", "val"):
        rows = run.table.rows(split)
        shown = labels[rows] == 1
        if not shown.any():
            raise ConfigError(
                f"{run.stage}.select: auto ranks shown labels, and the {split} split of {run.dataset} shows none; "
                "set it to last"
            )
        judges[split] = selection.Judge(shown, stands_for[rows], run.seed, run.table.group_numbers(split))
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
        setting, trained, rows = search.choose(trials.settings, trials.train, judge_trained)
    except TrainingError as error:
        raise error if str(error).startswith(run.name) else TrainingError(f"{run.name}: {error}") from error
    history = trained.history
    if judge:
        best = int(np.argmax([row["score"] for row in history.rows]))  # of the raw weights, as the loop has it
        epochs = [logits.numpy() for logits in history.val]
        return Choice(setting, trained, rows, judge.compare_epochs(epochs, best))
    measure = name_score(run.table, run.settings.select)
    if search.are_tied(rows):
        taken = search.name_setting(setting, trials.settings)
        tqdm.write(f"{run.name}: {measure} is the same at every rate, so it chose none: {taken} is the middle one")
    if history.is_tied():
        tqdm.write(f"{run.name}: {measure} is the same at every epoch, so it chose none: {history.epoch} is the last")
    return Choice(setting, trained, rows)


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
        The choice: the best setting and epoch where they rank better than the fixed recipe, beyond noise; else that
        one. Where that diverges on all images, the next best.

    Raises:
        TrainingError: Training diverged at every setting of a grid, in parts or on all images.
    """
    recipe, fits, gains = search.fixed_setting(trials.settings), {}, {}

    def fit(setting: search.Setting, _: int | None) -> selection.CrossFit:
        found = trials.cross_fit(setting, judge)
        if found.gains is not None:
            gains[setting] = found.gains
        if setting == recipe:
            fits[setting] = found
        return found

    def verdict(found: selection.CrossFit) -> search.Verdict:
        return search.Verdict(max(found.scores, default=-np.inf), found.epoch, found.diverged)

    try:
        setting, best, rows = search.choose(trials.settings, fit, verdict)
    except TrainingError as error:
        raise TrainingError(f"{run.name}: {error}") from error
    fixed = recipe, run.settings.epochs
    comparison = _compare(judge, gains, (setting, best.epoch), fixed)
    by_setting = {
        search.Setting(row["learning_rate"], row["weight_decay"], row["scale"]): row | {"chosen": 0} for row in rows
    }
    ranked = sorted((item for item in by_setting.items() if item[1]["epoch"]), key=lambda item: -item[1]["score"])
    tried = [(setting, best.epoch), fixed] if comparison.better else [fixed]
    tried += [(each, row["epoch"]) for each, row in ranked]
    for taken in dict.fromkeys(tried):
        own = by_setting[taken[0]]
        if own["epoch"] and own["diverged"] is not None:
            continue  # on all images, at its other epoch
        trained = trials.train(taken[0], None, taken[1])
        own["diverged"] = trained.history.diverged
        if trained.history.diverged is None:
            own["chosen"] = 1
            left_out = {fixed: fits[recipe].last, (setting, best.epoch): best.best}.get(taken)
            better = comparison._replace(better=taken != fixed)
            return Choice(taken[0], trained, [*by_setting.values()], better, left_out)
    raise TrainingError(f"{run.name}: training diverged on all images at every rate; name lower ones in search.values")


def _compare(
    judge: selection.Judge,
    gains: dict[search.Setting, np.ndarray],
    best: tuple[search.Setting, int],
    fixed: tuple[search.Setting, int],
) -> selection.Comparison:
    """Return the best choice beside the fixed recipe; the one that did not diverge is better.

    Args:
        judge: The judge.
        gains: (epochs, N) of each setting that did not diverge.
        best: Setting and epoch.
        fixed: Setting and epoch.
    """
    if fixed[0] not in gains or best[0] not in gains:
        return selection.Comparison(unlabelled.Estimate(*[np.nan] * 4), best[0] in gains)
    place = sum(len(each) for _, each in itertools.takewhile(lambda item: item[0] != best[0], gains.items()))
    return judge.compare(np.concatenate([*gains.values()]), place + best[1] - 1, gains[fixed[0]][-1])
