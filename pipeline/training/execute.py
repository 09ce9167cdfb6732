"""One run of a training stage: read its labels, search the learning rate, predict, store its folder."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from pipeline.audits.metrics import mean_average_precision
from pipeline.core import files, resume, seeds
from pipeline.core.device import choose_device
from pipeline.core.errors import ConfigError, TrainingError
from pipeline.core.resume import Checkpoint
from pipeline.labels.beliefs import read_beliefs
from pipeline.labels.observed import read_observed
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import Problem
from pipeline.networks.network import Network
from pipeline.training import search, selection
from pipeline.training.inputs import Subset, predict
from pipeline.training.loop import Data, History, Plan, Trainer
from pipeline.training.run import SPLITS, Run, Start
from pipeline.training.store import Result, Trained, store_run


def execute(run: Run, start: Start) -> None:
    """Train a run, score it, and store its folder.

    Args:
        run: The run.
        start: What its stage gives.

    Raises:
        FileError: The observed labels are not those of the table.
        TrainingError: A loss is not finite, at every rate where a grid is searched.
        ConfigError: The environment asks for a device that is absent.
    """  # noqa: DOC502  raised by the functions below
    device = choose_device()  # first, so that a wrong name of one costs no reading
    single_and_own = {base.load(run.method).labels, "single"}
    observed = read_observed(run.observed_file, run.table, single_and_own)
    train_labels = observed[base.load(run.method).labels][run.table.rows("train")]
    judges = read_judges(run, observed["single"])
    network = _make_network(run, start)
    problem = run.describe_problem(train_labels, network.architecture["width"])
    method = base.build(run.method, run.method_settings, problem)  # bad settings stop here: nothing is deleted yet
    inputs = start.make_inputs(network)
    base.check_needs(run.method, method, network.provides() | inputs["train"].provides | {"epoch_logits", "disk"})
    score = judges["val"].score if judges else make_scorer(run)
    is_better = (lambda *logits: judges["val"].compare(*logits).better) if judges else None
    data = Data(inputs["train"], torch.from_numpy(train_labels), inputs["val"], score, is_better)

    with closing(Trials(run, start, problem, data)) as trials:
        if judges and start.cross_fits:
            rate, trained, rows, comparison = _search_out_of_fold(run, trials, judges["train"])
        else:
            rate, trained, rows = _search(run, trials)
            comparison = _compare_epochs(trained.history, judges["val"]) if judges else None
        trained.network.load_state_dict(trained.history.state)
        trained.method.load_state_dict(trained.history.method)
        trained.method.eval()  # what is stored of its cells is what it holds, not what one more step would make of them
        batch_size = run.settings.batch_size * 8
        logits = {split: predict(trained.network, inputs[split], batch_size, device) for split in SPLITS}
        store_run(run, Result(trained, rate, rows, logits, train_labels, trials.reads, comparison))
        trials.delete_resume_points()


class Trials:
    """Trains a run at one learning rate after another; each trial has a resume point of its own.

    The resume points stay locked until `close`, so that no second process trains the same run.

    Args:
        run: The run.
        start: What its stage gives.
        problem: What the method may know before training.
        data: Images and labels.
    """

    def __init__(self, run: Run, start: Start, problem: Problem, data: Data) -> None:
        self.run, self.start, self.problem, self.data = run, start, problem, data
        self.reads = [*start.reads, run.table_file, *([start.inherited] if start.inherited else [])]
        self.reads += [run.beliefs_file] if run.reads_beliefs() else []
        self.fingerprint = _fingerprint(run, self.reads, problem)
        self.folder = resume.scratch_folder(run.root) / f"{run.stage}-{run.key}"
        self.checkpoints: list[Checkpoint] = []
        resume.delete_stale(self.folder, self.fingerprint, run.name)

    def train(self, rate: float, epochs: int | None, keep: int | None = None) -> Trained:
        """Train at one learning rate.

        Args:
            rate: The learning rate.
            epochs: Epochs of a trial; None: the stage's.
            keep: Epoch that is taken whatever the scores; None: as ``select`` says.

        Returns:
            Network, method and history; a history without epochs where a rate of a grid diverged.

        Raises:
            TrainingError: Training diverged, and no other rate is tried.
        """
        run = self.run
        network = _make_network(run, self.start)
        method = base.build(run.method, run.method_settings, self.problem)
        checkpoint = Checkpoint(self.folder / f"{self.fingerprint}-{rate:g}-{epochs}")
        self.checkpoints.append(checkpoint)
        inherited = files.read_torch(self.start.inherited) if self.start.inherited else None
        name = f"{run.name} lr {rate:g}"
        plan = Plan(name, run.settings, rate, epochs or run.settings.epochs, run.seed, choose_device(), keep)
        trainer = Trainer(network, method, self.data, plan, checkpoint, inherited)
        try:
            history = trainer.fit()
        except TrainingError as error:
            checkpoint.delete()  # from there it would diverge again; an interrupted search repeats it whole
            if run.settings.learning_rate != "grid":
                raise
            tqdm.write(f"{error}; the search goes on without this rate")
            history = History(diverged=len(trainer.history.rows) + 1)  # no epoch, and a score below any other
        checkpoint.delete_disk()  # a finished trial's, before the next one fills another
        return Trained(network, method, history)

    def cross_fit(self, rate: float, epochs: int | None, judge: selection.Judge) -> selection.CrossFit:
        """Train at one learning rate without each part of the images in turn, and score that part.

        Nothing of it is kept on disk: an interrupted one begins anew.

        Args:
            rate: The learning rate.
            epochs: Epochs of a trial; None: the stage's.
            judge: The judge of the training images.

        Returns:
            How the rate fares; without scores where training diverged.
        """
        run, parts = self.run, []
        folds = selection.split_folds(len(self.data.train), run.seed)
        for number, (others, own) in enumerate(folds, 1):
            labels = self.data.observed[torch.from_numpy(others)]
            problem = self.problem.take(others, labels.numpy())
            data = Data(Subset(self.data.train, others), labels, Subset(self.data.train, own), lambda _: 0.0)
            name = f"{run.name} lr {rate:g} part {number}/{len(folds)}"
            settings = run.settings.model_copy(update={"keep_epoch_logits": False})
            plan = Plan(name, settings, rate, epochs or settings.epochs, run.seed, choose_device())
            method = base.build(run.method, run.method_settings, problem)
            trainer = Trainer(_make_network(run, self.start), method, data, plan)
            try:
                parts.append(torch.stack(trainer.fit().val).numpy())
            except TrainingError as error:
                tqdm.write(f"{error}; the search goes on without this rate")
                return selection.CrossFit(diverged=len(trainer.history.rows) + 1)
        return selection.cross_fit(judge, folds, parts)

    def delete_resume_points(self) -> None:
        """Delete the resume points of all trials: the run is stored."""
        for checkpoint in self.checkpoints:
            checkpoint.delete()

    def close(self) -> None:
        """Release the locks of the resume points."""
        for checkpoint in self.checkpoints:
            checkpoint.close()


def source_files(stage: str, method: str) -> list[Path]:
    """Return the source files that may decide a run.

    Args:
        stage: Training stage.
        method: Name of the method.

    Returns:
        What a training stage may import: no other stage or method, no source of data or report.
    """
    pipeline = Path(__file__).parents[1]
    named = [pipeline.parent / "stages" / f"{name}.py" for name in (stage, "entry")]
    named += [pipeline / "methods" / f"{method}.py", pipeline / "audits" / "metrics.py"]
    return [*named, *resume.room_files("core", "labels", "networks", "data", "methods/shared", "training")]


def read_judges(run: Run, single: np.ndarray) -> dict[str, selection.Judge] | None:
    """Return the judges of the training and validation images, where labels that were shown choose.

    Args:
        run: The run.
        single: (N, C) observed labels of all rows.

    Returns:
        The judges by split; None where ``select`` is not ``auto``.

    Raises:
        ConfigError: A split shows no label of a class that another image of it does not show, so nothing is ranked.
        FileError: The beliefs are absent, damaged, or not those of the table.
    """  # noqa: DOC502  FileError comes from `read_beliefs`
    if run.settings.select != "auto":
        return None
    expected = read_beliefs(run.beliefs_file, run.table).expected_labels()
    judges = {}
    for split in ("train", "val"):
        rows = run.table.rows(split)
        shown = single[rows] == 1
        if not shown.any():
            raise ConfigError(f"{run.stage}.select: the {split} split of {run.dataset} shows no positive label")
        judges[split] = selection.Judge(shown, expected[rows] / np.maximum(shown.sum(axis=1), 1), run.seed)
    return judges


def make_scorer(run: Run) -> Callable[[np.ndarray], float]:
    """Return the function that scores validation logits: mAP in percent, by full labels where they are at hand.

    Args:
        run: The run.

    Returns:
        Maps (N_val, C) logits to points; to 0, which ties, where no class has both a positive and a negative.

    Raises:
        ConfigError: No class has a positive in the validation split, so no epoch can be chosen by it.
    """
    truth, scored = run.table.reference("val")
    if not truth.any():
        raise ConfigError(f"{run.stage}.select: the validation split of {run.dataset} has no positive label")

    def score(logits: np.ndarray) -> float:
        return mean_average_precision(truth, logits, scored)["map"] or 0.0  # None: every class has positives alone

    return score


def _search_out_of_fold(
    run: Run, trials: Trials, judge: selection.Judge
) -> tuple[float, Trained, list[dict[str, Any]], selection.Comparison | None]:
    """Return the learning rate, what was trained at it, one row a trial, and the best beside the fixed recipe.

    Raises:
        TrainingError: Training diverged at every rate of a grid.
    """
    fixed_rate, fits = search.middle_rate(run.settings), {}

    def fit(rate: float, epochs: int | None) -> selection.CrossFit:
        found = trials.cross_fit(rate, epochs, judge)
        if rate == fixed_rate:
            fits[rate] = found
        return found

    def rate_fit(found: selection.CrossFit) -> search.Verdict:
        return search.Verdict(max(found.scores, default=-np.inf), found.epoch, found.diverged)

    try:
        rate, best, rows = search.choose(run.settings, fit, rate_fit)
    except TrainingError as error:
        raise TrainingError(f"{run.name}: {error}") from error
    epoch, fixed, comparison = best.epoch, fits[fixed_rate], None
    if best.best is not None and fixed.last is not None:
        comparison = judge.compare(best.best, fixed.last)
        if not comparison.better:
            rate, epoch = fixed_rate, len(fixed.scores)
    rows = [row | {"chosen": int(row["learning_rate"] == rate)} for row in rows]
    return rate, trials.train(rate, None, epoch), rows, comparison


def _compare_epochs(history: History, judge: selection.Judge) -> selection.Comparison:
    """Return the best epoch beside the last one, by validation."""
    best = int(np.argmax(history.scores()))
    return judge.compare(history.val[best].numpy(), history.val[-1].numpy())


def _search(run: Run, trials: Trials) -> tuple[float, Trained, list[dict[str, Any]]]:
    """Return the learning rate, what was trained at it, and one row a trial; say so where validation tells none apart.

    Raises:
        TrainingError: Training diverged at every rate of a grid.
    """
    try:
        rate, trained, rows = search.choose(run.settings, trials.train, _judge)
    except TrainingError as error:
        raise error if str(error).startswith(run.name) else TrainingError(f"{run.name}: {error}") from error
    if search.are_tied(rows):
        tqdm.write(f"{run.name}: val scores every rate alike, so it chose none: {rate:g} is the middle one")
    if trained.history.is_tied():
        tqdm.write(f"{run.name}: val scores every epoch alike, so it chose none: {trained.history.epoch} is the last")
    return rate, trained, rows


def _judge(trained: Trained) -> search.Verdict:
    return search.Verdict(trained.history.best, trained.history.epoch, trained.history.diverged)


def _make_network(run: Run, start: Start) -> Network:
    seeds.seed_torch(run.seed, "network")
    return start.make_network()


def _fingerprint(run: Run, reads: list[Path], problem: Problem) -> str:
    """Return the fingerprint of all that the run depends on."""
    settings = [run.settings.model_dump(), run.method_settings, problem.expected_positives, run.seed, run.stage]
    return resume.fingerprint(settings, [*reads, *source_files(run.stage, run.method)])
