"""Trials of a run: trained at one setting after another, on all training images or without a part of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from pipeline.core import files, resume, seeds
from pipeline.core.device import choose_device
from pipeline.core.errors import TrainingError
from pipeline.core.resume import Checkpoint
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import Problem
from pipeline.networks.network import Network
from pipeline.networks.settings import Head
from pipeline.training import selection
from pipeline.training.inputs import Subset
from pipeline.training.loop import Data, History, Plan, Trainer
from pipeline.training.run import Run, Start
from pipeline.training.search import Setting, name_setting
from pipeline.training.settings import BeliefFits, Training
from pipeline.training.store import Trained
from pipeline.training.stored_beliefs import Labels, fit_beliefs_of
from pipeline.training.tracking import Tracker


class Trials:
    """Trains a run at one setting after another; each trial has a resume point of its own.

    The resume points stay locked until `close`, so that no second process trains the same run.

    Args:
        run: The run.
        start: What its stage gives.
        problem: What the method may know before training.
        data: Images and labels.
        tracker: Follows the epochs of trials on all training images.
    """

    def __init__(self, run: Run, start: Start, problem: Problem, data: Data, tracker: Tracker) -> None:
        self.run, self.start, self.problem, self.data, self.tracker = run, start, problem, data, tracker
        self.settings = run_settings(run, start)
        self.reads = [*start.reads, run.table_file, *([start.inherited] if start.inherited else [])]
        self.reads += [run.beliefs_file] if run.reads_beliefs() else []
        self.fingerprint = _fingerprint(run, self.reads, problem)
        self.folder = resume.scratch_folder(run.root) / f"{run.stage}-{run.key}"
        self.checkpoints: list[Checkpoint] = []
        self._beliefs: dict[int, Tensor] = {}
        resume.delete_stale(self.folder, self.fingerprint, run.name)

    def train(self, setting: Setting, epochs: int | None, keep: int | None = None) -> Trained:
        """Train at one setting.

        Args:
            setting: Learning rate, weight decay and scale.
            epochs: Epochs of a trial; None: the stage's.
            keep: Epoch that is taken whatever the scores; None: as ``select`` says.

        Returns:
            Network, method and history; a history without epochs where a trial of a grid diverged.

        Raises:
            TrainingError: Training diverged, and no other setting is tried.
        """
        run, settings = self.run, self.settings.at(*setting.company)
        trial, last = f"lr {name_setting(setting, self.settings)}", epochs or settings.epochs
        record = self.tracker.follow(trial if self.settings.learning_rate == "grid" else "")
        plan = Plan(f"{run.name} {trial}", settings, setting.rate, last, run.seed, choose_device(), keep, record)
        trained, error = self._fit(plan, self.problem, self.data, f"{_key(setting)}-{epochs}")
        if error is not None and settings.learning_rate != "grid":
            raise error
        return trained

    def cross_fit(self, setting: Setting, judge: selection.Judge) -> selection.CrossFit:
        """Train at one setting without each part of the images in turn, and score that part.

        Args:
            setting: Learning rate, weight decay and scale.
            judge: The judge of the training images.

        Returns:
            How it fares; without scores where training diverged.

        Raises:
            ConfigError: Images without a part show too little to fit beliefs to; nothing has been trained then.
        """  # noqa: DOC502  raised by `_pose`
        run, parts = self.run, []
        settings = self.settings.at(*setting.company).model_copy(update={"keep_epoch_logits": False})
        folds = selection.split_folds(len(self.data.train), run.seed, self.data.groups)
        posed = [self._pose(number, others) for number, (others, _) in enumerate(folds, 1)]
        for number, (problem, (others, own)) in enumerate(zip(posed, folds, strict=True), 1):
            labels = self.data.observed[torch.from_numpy(others)]
            groups = None if self.data.groups is None else self.data.groups[others]
            train, held = Subset(self.data.train, others), Subset(self.data.train, own)
            data = Data(train, labels, held, None, groups=groups)
            name = f"{run.name} lr {name_setting(setting, self.settings)} part {number}/{len(folds)}"
            plan = Plan(name, settings, setting.rate, settings.epochs, run.seed, choose_device())
            trained, _ = self._fit(plan, problem, data, f"{_key(setting)}-part{number}")
            if trained.history.diverged is not None:
                return selection.CrossFit(diverged=trained.history.diverged)
            parts.append(torch.stack(trained.history.val).numpy())
        return selection.cross_fit(judge, folds, parts)

    def _pose(self, number: int, rows: np.ndarray) -> Problem:
        """Return the problem that some of the training images pose, as if there were no others.

        The stored beliefs about these were fitted with the labels of all: a head that learns from them has seen those
        of the images that it is going to be judged by.

        Args:
            number: Number of the part of the images that is left out.
            rows: (R,) rows of the training split.
        """
        problem, cache, run = self.problem.take(rows, self.data.observed.numpy()[rows]), self.start.cache, self.run
        if problem.beliefs is None or cache is None or run.believing["kind"] != "fits":
            return problem
        if number not in self._beliefs:
            shown = Labels(run.table, run.single, run.draw)
            fitted = fit_beliefs_of(BeliefFits.model_validate(run.believing), cache, shown, rows)
            self._beliefs[number] = torch.from_numpy(fitted)
        return replace(problem, beliefs=self._beliefs[number])

    def _fit(self, plan: Plan, problem: Problem, data: Data, key: str) -> tuple[Trained, TrainingError | None]:
        """Train a network from its start.

        Args:
            plan: How.
            problem: What the method may know.
            data: Images and labels.
            key: What tells the resume point from those of the run's other trials.

        Returns:
            What was trained; without epochs where training diverged, and the error.
        """
        network = make_network(self.run, self.start, plan.settings.head)
        method = base.build(self.run.method, self.run.method_settings, problem)
        checkpoint = Checkpoint(self.folder / f"{self.fingerprint}-{key}")
        self.checkpoints.append(checkpoint)
        inherited = files.read_torch(self.start.inherited) if self.start.inherited else None
        trainer, diverged = Trainer(network, method, data, plan, checkpoint, inherited), None
        try:
            history = trainer.fit()
        except TrainingError as error:
            checkpoint.delete()  # from there it would diverge again; an interrupted search repeats it whole
            if self.run.settings.learning_rate == "grid":
                tqdm.write(f"{error}; the search goes on without this trial")
            history = History(diverged=len(trainer.history.rows) + 1)  # no epoch, and a score below any other
            diverged = error
        checkpoint.delete_disk()  # a finished trial's, before the next one fills another
        return Trained(network, method, history), diverged

    def delete_resume_points(self) -> None:
        """Delete the resume points of all trials: the run is stored."""
        for checkpoint in self.checkpoints:
            checkpoint.delete()

    def close(self) -> None:
        """Release the locks of the resume points."""
        for checkpoint in self.checkpoints:
            checkpoint.close()


def run_settings(run: Run, start: Start) -> Training:
    """Return a run's settings, with the scale of the head that it goes on from where there is one."""
    return run.settings if start.scale is None else run.settings.at(run.settings.weight_decay, start.scale)


def make_network(run: Run, start: Start, head: Head) -> Network:
    """Return the network of a run before training, with a head by its settings: the same at each call."""
    seeds.seed_torch(run.seed, "network")
    return start.make_network(head)


def _key(setting: Setting) -> str:
    """Return what tells the resume points of a setting from those of others."""
    return f"{setting.rate!r}-{setting.decay!r}-{setting.scale}"


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
    named += [pipeline / "methods" / f"{method}.py"]
    named += [pipeline / "audits" / f"{name}.py" for name in ("metrics", "thresholds", "unlabelled")]
    return [*named, *resume.room_files("core", "labels", "networks", "data", "methods/shared", "training")]


def _fingerprint(run: Run, reads: list[Path], problem: Problem) -> str:
    """Return the fingerprint of all that the run depends on."""
    settings = [run.settings.model_dump(), run.method_settings, problem.expected_positives, run.seed, run.stage]
    return resume.fingerprint(settings, [*reads, *source_files(run.stage, run.method)])
