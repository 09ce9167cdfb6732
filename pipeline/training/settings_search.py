"""Search of methods' settings on cached features: each setting, rate, decay, scale, draw and seed is a head of a stack.

Each head is scored as a run of linear_init would be: by val mAP at its best epoch (``clean``), and by the shown labels
of images that it was not trained on (``auto``, `selection`). Nothing is chosen by test labels.
"""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.audits import paired
from pipeline.audits.metrics import mean_average_precision
from pipeline.core.progress import track
from pipeline.labels import draws, oracles
from pipeline.labels.beliefs import Beliefs
from pipeline.labels.observed import mark_not_shown
from pipeline.labels.settings import Simulate
from pipeline.labels.table import Objects, Table
from pipeline.methods.shared import base
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.problem import Problem, describe
from pipeline.networks.linear import scale_features
from pipeline.training import selection
from pipeline.training.features import Cache
from pipeline.training.inputs import FeatureInputs, Inputs, Subset
from pipeline.training.loop import stops_early
from pipeline.training.search import Setting
from pipeline.training.settings import BeliefFits, GivenBeliefs, SettingsSearch, Training
from pipeline.training.stacked import Head, Stack
from pipeline.training.stored_beliefs import Labels, fit_beliefs_of, make_beliefs

ARM = ("method", "settings", "learning_rate", "weight_decay", "scale")
"""Columns of the table that say what is tried; the others say on which labels, and what came of it."""


@dataclass(frozen=True)
class Candidate:
    """One method with one change of its settings."""

    method: str
    change: dict[str, Any]
    settings: dict[str, Any]
    """All of its settings."""

    @property
    def text(self) -> str:
        """The change, as the table holds it."""
        return json.dumps(self.change, sort_keys=True)


@dataclass(frozen=True)
class Draw:
    """One label draw of the whole dataset."""

    number: int
    labels: dict[str, np.ndarray]
    """(N, C) int8 label sets by name."""
    shown: np.ndarray
    """(N, C) bool, labels that were shown; the rules of a dataset may imply others."""
    beliefs: Beliefs | None
    """Where a score or a method reads them."""
    expected_positives: float | None
    """Labels an image, where params.yaml names or estimates them."""
    believe_part: Callable[[np.ndarray], np.ndarray] | None = None
    """Returns (R, C) beliefs about (R,) training images from these alone; None where beliefs are not fitted."""


@dataclass(frozen=True)
class LabelSource:
    """Where the labels of a search come from, as the stages simulate and beliefs make them."""

    root: Path
    """Project root."""
    dataset: str
    data: tuple[Table, Objects | None]
    drawing: Simulate
    believing: BeliefFits | GivenBeliefs | None
    """None where neither a score nor a method reads beliefs."""
    features: Cache
    count_labels: Callable[[Beliefs | None], float | None]
    """Returns the labels that an image has, where params.yaml names or estimates them."""


def draw_labels(source: LabelSource, number: int) -> Draw:
    """Return one label draw, with what is believed of it.

    Args:
        source: Where labels come from.
        number: Number of the draw.

    Raises:
        ConfigError: The features cannot be fitted, or the bias does not suit the data.
        SourceError: A table of weights or beliefs is faulty.
    """  # noqa: DOC502  raised by the functions below
    table, objects = source.data
    shown = draws.observe(source.root, table, objects, source.drawing, number)
    known = shown.imply(table)
    labels = oracles.label_sets(table, known.labels)
    observed, beliefs, believe_part = mark_not_shown(table, *known), None, None
    drawn = Labels(table, observed, number)
    if source.believing is not None:
        beliefs = make_beliefs(source.root, source.dataset, source.believing, source.features, drawn).beliefs
    if isinstance(source.believing, BeliefFits):
        believe_part = partial(fit_beliefs_of, source.believing, source.features, drawn)
    return Draw(number, labels, observed == 1, beliefs, source.count_labels(beliefs), believe_part)


@dataclass(frozen=True)
class Task:
    """What is searched, and on what."""

    name: str
    """For messages."""
    table: Table
    features: Cache
    training: Training
    """Settings of linear_init."""
    search: SettingsSearch
    candidates: list[Candidate]
    draws: list[Draw]
    device: torch.device

    def of_split(self, split: str) -> Tensor:
        """Return the features of a split on the device."""
        return torch.from_numpy(self.features.plain[self.table.rows(split)]).to(self.device, torch.float32)

    def train_inputs(self) -> Inputs:
        """Return the training images as linear_init reads them."""
        rows, flips = self.table.rows("train"), self.training.flip
        return FeatureInputs(self.features.plain[rows], self.features.mirrored if flips else None, flips)

    def trials(self) -> list[tuple[Candidate, Setting, Draw]]:
        """Return what is tried with each seed."""
        search = self.search
        tried = itertools.product(search.weight_decays, search.scales, search.learning_rates)
        settings = [Setting(rate, decay, scale) for decay, scale, rate in tried]
        return list(itertools.product(self.candidates, settings, self.draws))

    def make_heads(self, rows: np.ndarray | None) -> list[Head]:
        """Return a head for each trial.

        Args:
            rows: Rows of the training images that they learn from; None: all.
        """
        train, labels, posed = self.table.rows("train"), {}, {}
        kinds = {base.load(each.method).labels for each in self.candidates}
        for drawn in self.draws:
            beliefs = self._believe(drawn, rows)
            for kind in kinds:
                observed = drawn.labels[kind][train if rows is None else train[rows]]
                problem = describe(self.table.classes, observed, drawn.expected_positives, self.features.plain.shape[1])
                labels[drawn.number, kind] = torch.from_numpy(observed)
                posed[drawn.number, kind] = replace(problem, beliefs=beliefs)
        heads = []
        for each, setting, draw in self.trials():
            key = draw.number, base.load(each.method).labels
            make = partial(_build, each, posed[key])
            heads.append(Head(f"{each.method} {each.text}", make, labels[key], setting))
        return heads

    def _believe(self, drawn: Draw, rows: np.ndarray | None) -> Tensor | None:
        """Return beliefs about training images, fitted to these alone where fits make them; None where none reads them.

        Args:
            drawn: The label draw.
            rows: As `make_heads` takes them.
        """
        read = any("beliefs" in base.load(each.method).needs for each in self.candidates)
        if drawn.beliefs is None or not read:
            return None
        if rows is not None and drawn.believe_part:
            return torch.from_numpy(drawn.believe_part(rows))
        train = self.table.rows("train")
        return torch.from_numpy(drawn.beliefs.belief[train if rows is None else train[rows]])


def _build(candidate: Candidate, problem: Problem) -> Method:
    if "beliefs" not in base.load(candidate.method).needs:
        problem = replace(problem, beliefs=None)
    return base.build(candidate.method, candidate.settings, problem)


def search_settings(task: Task) -> list[dict[str, Any]]:
    """Train all heads and score them.

    Args:
        task: What is searched.

    Returns:
        One row a trial and seed: what it was (`ARM`, ``draw``, ``seed``), its best epoch and score by each way to
        score, and the epochs in which it diverged, on all images and without a part of them. Where truth is at hand,
        the test mAP at either epoch, which chose nothing.
    """
    rows = []
    for seed in task.search.seeds:
        by_shown = _score_out_of_fold(task, seed) if "auto" in task.search.scores else None
        rows += _train_on_all(task, seed, by_shown)
    order = {candidate.text + candidate.method: number for number, candidate in enumerate(task.candidates)}
    return sorted(rows, key=lambda row: (order[row["settings"] + row["method"]], row["draw"], row["seed"]))


def _score_out_of_fold(task: Task, seed: int) -> list[selection.CrossFit]:
    """Return how each trial fares on images that it was not trained on, without its logits."""
    every, train = task.train_inputs(), task.of_split("train")
    folds = selection.split_folds(len(every), seed, task.table.group_numbers("train"))
    stacks, heads = [], []
    for others, _ in folds:
        heads.append(task.make_heads(others))
        shape = (len(task.table.classes), train.shape[1])
        stacks.append(Stack(heads[-1], Subset(every, others), task.training, seed, shape, task.device))
    judges = {draw.number: _judge(task, draw, seed) for draw in task.draws}
    trials, together = task.trials(), np.empty((len(train), len(task.table.classes)), np.float32)
    scores: list[list[float]] = [[] for _ in trials]
    epochs = range(1, task.training.epochs + 1)
    for epoch in track(epochs, f"{task.name} seed {seed}, without each part", len(epochs), "epoch"):
        for stack, (others, _) in zip(stacks, folds, strict=True):
            stack.train_epoch(epoch)
            stack.end_epoch(epoch, train[others])
        for number, ((_, _, draw), parts) in enumerate(zip(trials, zip(*heads, strict=True), strict=True)):
            if any(head.diverged for head in parts):
                continue
            for stack, head, (_, own) in zip(stacks, parts, folds, strict=True):
                logits = stack.predict(head, train[own], epoch)
                if logits is not None:
                    together[own] = logits.cpu().numpy()
            if not any(head.diverged for head in parts):
                scores[number].append(judges[draw.number].score(together))
    failed = [[head.diverged for head in parts if head.diverged] for parts in zip(*heads, strict=True)]
    return [
        selection.CrossFit(diverged=min(epochs)) if epochs else selection.CrossFit(tuple(found))
        for found, epochs in zip(scores, failed, strict=True)
    ]


def _judge(task: Task, draw: Draw, seed: int) -> selection.Judge:
    rows = task.table.rows("train")
    assert draw.beliefs is not None  # a score reads them
    stands_for = draw.beliefs.stands_for(draw.shown)[rows]
    return selection.Judge(draw.shown[rows], stands_for, seed, task.table.group_numbers("train"))


@dataclass
class _Record:
    """What is kept of a head while it trains."""

    scores: list[float]
    """Val mAP of each epoch, as far as early stopping lets it train."""
    best: tuple[Tensor, Tensor] | None = None
    """Weights at the best epoch by val mAP."""
    auto: tuple[Tensor, Tensor] | None = None
    """Weights at the best epoch by shown labels."""

    @property
    def is_new_best(self) -> bool:
        """Whether the latest epoch scores above all before."""
        return all(self.scores[-1] > score for score in self.scores[:-1])

    @property
    def epoch(self) -> int:
        """The epoch that is taken: the best, the first of equal ones; the last where all are equal."""
        tied = len(self.scores) > 1 and len(set(self.scores)) == 1
        return len(self.scores) if tied else int(np.argmax(self.scores)) + 1


def _train_on_all(task: Task, seed: int, by_shown: list[selection.CrossFit] | None) -> list[dict[str, Any]]:
    """Train a head for each trial on all training images.

    Args:
        task: What is searched.
        seed: The training seed.
        by_shown: How each trial fares by shown labels, where they score.

    Returns:
        The rows of the trials.
    """
    heads, train = task.make_heads(None), task.of_split("train")
    stack = Stack(
        heads, task.train_inputs(), task.training, seed, (len(task.table.classes), train.shape[1]), task.device
    )
    records, validation = [_Record([]) for _ in heads], task.of_split("val")
    epochs = range(1, task.training.epochs + 1)
    for epoch in track(epochs, f"{task.name} seed {seed}", len(epochs), "epoch"):
        stack.train_epoch(epoch)
        stack.end_epoch(epoch, train)
        for number, (head, record) in enumerate(zip(heads, records, strict=True)):
            logits = None if head.diverged else stack.predict(head, validation, epoch)
            if logits is None:
                continue
            if "clean" in task.search.scores and not stops_early(task.training.early_stop, record.scores):
                record.scores.append(_map(task, "val", logits) or 0.0)
                ended = epoch == epochs[-1] or stops_early(task.training.early_stop, record.scores)
                if record.is_new_best or (ended and record.epoch == epoch):
                    record.best = _copy(stack, head)
            if by_shown and by_shown[number].epoch == epoch:
                record.auto = _copy(stack, head)
    test = task.of_split("test") if task.table.measurable("test") else None
    return [
        _row(task, (trial, seed), (head, record), by_shown[number] if by_shown else None, test)
        for number, (trial, head, record) in enumerate(zip(task.trials(), heads, records, strict=True))
    ]


def _copy(stack: Stack, head: Head) -> tuple[Tensor, Tensor]:
    weight, bias = stack.weights(head)
    return weight.clone(), bias.clone()


def _map(task: Task, split: str, logits: Tensor) -> float | None:
    truth, scored = task.table.reference(split)
    return mean_average_precision(truth, logits.cpu().numpy(), scored)["map"]


def _row(
    task: Task,
    tried: tuple[tuple[Candidate, Setting, Draw], int],
    kept: tuple[Head, _Record],
    by_shown: selection.CrossFit | None,
    test: Tensor | None,
) -> dict[str, Any]:
    """Return the row of a trial.

    Args:
        task: What is searched.
        tried: The trial and its seed.
        kept: Its head on all images, and what was kept of it.
        by_shown: How it fares by shown labels, where they score.
        test: (N_test, D) features, where truth is at hand.
    """
    (candidate, setting, draw), seed = tried
    head, record = kept
    row: dict[str, Any] = {"method": candidate.method, "settings": candidate.text, "learning_rate": setting.rate}
    row |= {"weight_decay": setting.decay, "scale": setting.scale, "draw": draw.number, "seed": seed}
    clean = record if "clean" in task.search.scores and head.diverged is None else None
    shown = by_shown if by_shown and by_shown.epoch else None
    row |= {"clean_epoch": clean and clean.epoch, "clean_score": clean and clean.scores[clean.epoch - 1]}
    row |= {"auto_epoch": shown and shown.epoch, "auto_score": shown and max(shown.scores)}
    row |= {"diverged": head.diverged, "auto_diverged": by_shown and by_shown.diverged}
    for name, weights in (("clean", clean and record.best), ("auto", record.auto if not head.diverged else None)):
        row[f"{name}_test_map"] = None
        if test is not None and weights:
            features, _ = scale_features(test, None, str(setting.scale))
            row[f"{name}_test_map"] = _map(task, "test", F.linear(features, *weights).float())
    return row


def choose_best(rows: list[dict[str, Any]], score: str) -> dict[str, Any]:
    """Return the setting with the best mean score, with how far each other setting of a method falls behind.

    Args:
        rows: What `search_settings` returned.
        score: ``clean`` or ``auto``.

    Returns:
        ``best``: its `ARM`, mean score over label draws (of each the mean over seeds) and the best epoch of each run;
        and in ``others``, for each method and change of settings but that one, its best rate, decay and scale with
        ``difference``: best less other, paired by draw, with the interval of its mean and whether that tells them
        apart. A setting that diverged on a draw is not ranked; None as best where all did.
    """
    arms: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        arms.setdefault(tuple(row[key] for key in ARM), []).append(row)
    sound = {arm: own for arm, own in arms.items() if all(row[f"{score}_score"] is not None for row in own)}
    means = {arm: _spread(own, score)["mean"] for arm, own in sound.items()}
    ranked = sorted(means, key=lambda arm: -means[arm])
    if not ranked:
        return {"best": None, "others": []}
    first: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for arm in ranked:
        first.setdefault(arm[:2], arm)
    best, *others = first.values()
    return {
        "best": _describe(best, sound[best], score),
        "others": [
            _describe(arm, sound[arm], score) | {"difference": _difference(sound[best], sound[arm], score)}
            for arm in others
        ],
    }


def _spread(rows: list[dict[str, Any]], score: str) -> dict[str, Any]:
    draws, values = (np.array([row[key] for row in rows]) for key in ("draw", f"{score}_score"))
    return paired.spread_runs(draws, values.astype(float))


def _describe(arm: tuple[Any, ...], rows: list[dict[str, Any]], score: str) -> dict[str, Any]:
    found = _spread(rows, score)
    about = dict(zip(ARM, arm, strict=True)) | {"settings": json.loads(arm[1])}
    tests = [row[f"{score}_test_map"] for row in rows if row[f"{score}_test_map"] is not None]
    return {
        **about,
        "score": found["mean"],
        "std_draws": _known(found["std_draws"]),
        "runs": found["n"],
        "draws": found["draws"],
        "epochs": [row[f"{score}_epoch"] for row in rows],
        "test_map": float(np.mean(tests)) if len(tests) == len(rows) else None,
    }


def _difference(best: list[dict[str, Any]], other: list[dict[str, Any]], score: str) -> dict[str, Any]:
    place = {(row["draw"], row["seed"]): row[f"{score}_score"] for row in other}
    draws = np.array([row["draw"] for row in best])
    values = np.array([row[f"{score}_score"] - place[row["draw"], row["seed"]] for row in best])
    found = paired.compare_paired(draws, values)
    told = {key: _known(found[key]) for key in ("mean", "low", "high")}
    return {
        **told,
        "won": found["won"],
        "draws": found["draws"],
        "apart": paired.tells_apart(found["low"], found["high"]),
    }


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
