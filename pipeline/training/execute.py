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
from pipeline.labels.observed import read_observed
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import Problem, describe
from pipeline.networks.network import Network
from pipeline.training import search
from pipeline.training.inputs import predict
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
    score = make_scorer(run, observed["single"])
    network = _make_network(run, start)
    problem = describe(run.table.classes, train_labels, run.expected_positives, network.architecture["width"])
    method = base.build(run.method, run.method_settings, problem)  # bad settings stop here: nothing is deleted yet
    inputs = start.make_inputs(network)
    base.check_needs(run.method, method, network.provides() | inputs["train"].provides | {"epoch_logits", "disk"})
    data = Data(inputs["train"], torch.from_numpy(train_labels), inputs["val"], score)

    with closing(Trials(run, start, problem, data)) as trials:
        rate, trained, rows = _search(run, trials)
        trained.network.load_state_dict(trained.history.state)
        trained.method.load_state_dict(trained.history.method)
        trained.method.eval()  # what is stored of its cells is what it holds, not what one more step would make of them
        batch_size = run.settings.batch_size * 8
        logits = {split: predict(trained.network, inputs[split], batch_size, device) for split in SPLITS}
        store_run(run, Result(trained, rate, rows, logits, train_labels, trials.reads))
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
        self.fingerprint = _fingerprint(run, self.reads, problem)
        self.folder = resume.scratch_folder(run.root) / f"{run.stage}-{run.key}"
        self.checkpoints: list[Checkpoint] = []
        resume.delete_stale(self.folder, self.fingerprint, run.name)

    def train(self, rate: float, epochs: int | None) -> Trained:
        """Train at one learning rate.

        Args:
            rate: The learning rate.
            epochs: Epochs of a trial; None: the stage's.

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
        plan = Plan(name, run.settings, rate, epochs or run.settings.epochs, run.seed, choose_device())
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


def make_scorer(run: Run, single: np.ndarray) -> Callable[[np.ndarray], float]:
    """Return the function that scores validation logits: mAP in percent, by full or by observed labels.

    Args:
        run: The run.
        single: (N, C) observed labels of all rows.

    Returns:
        Maps (N_val, C) logits to points; to 0, which ties, where no class has both a positive and a negative.

    Raises:
        ConfigError: No class has a positive in the validation split, so no epoch can be chosen by it.
    """
    truth, scored = run.table.reference("val")
    if run.settings.select == "observed":
        truth, scored = (single[run.table.rows("val")] == 1).astype(np.int8), None
    if not truth.any():
        raise ConfigError(f"{run.stage}.select: the validation split of {run.dataset} has no positive label")

    def score(logits: np.ndarray) -> float:
        return mean_average_precision(truth, logits, scored)["map"] or 0.0  # None: every class has positives alone

    return score


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
