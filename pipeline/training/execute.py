"""One run of a training stage: read its labels, search the learning rate, predict, store its folder."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from pipeline.audits.metrics import mean_average_precision
from pipeline.core import files, hdf5, resume, seeds
from pipeline.core.device import choose_device
from pipeline.core.errors import ConfigError, FileError, TrainingError
from pipeline.core.resume import Checkpoint
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
    observed = read_observed(run)
    train_labels = observed[base.load(run.method).labels][run.table.rows("train")]
    score = make_scorer(run, observed["single"])
    network = _make_network(run, start)
    problem = describe(run.table.classes, train_labels, run.expected_positives, network.architecture["width"])
    method = base.build(run.method, run.method_settings, problem)  # bad settings stop here: nothing is deleted yet
    inputs = start.make_inputs(network)
    base.check_needs(run.method, method, network.provides() | inputs["train"].provides | {"epoch_logits", "disk"})
    data = Data(inputs["train"], torch.from_numpy(train_labels), inputs["val"], score)

    with closing(Trials(run, start, problem, data)) as trials:
        rate, trained, rows = search.choose(run.settings, trials.train, _judge)
        if not trained.history.epoch:
            raise TrainingError(f"{run.name}: training diverged at every rate of search.values")
        trained.network.load_state_dict(trained.history.state)
        trained.method.load_state_dict(trained.history.method)
        trained.method.eval()  # what is stored of its cells is what it holds, not what one more step would make of them
        batch_size = run.settings.batch_size * 8
        logits = {split: predict(trained.network, inputs[split], batch_size, device) for split in SPLITS}
        store_run(run, Result(trained, rate, rows, logits, train_labels, start.reads))
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
        self.fingerprint = _fingerprint(run, start, problem)
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
        try:
            history = Trainer(network, method, self.data, plan, checkpoint, inherited).fit()
        except TrainingError as error:
            checkpoint.delete()  # from there it would diverge again; an interrupted search repeats it whole
            if run.settings.learning_rate != "grid":
                raise
            tqdm.write(f"{error}; the search goes on without this rate")
            history = History()  # no epoch, and a score below any other
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


def read_observed(run: Run) -> dict[str, np.ndarray]:
    """Return (N, C) int8 observed labels of all rows: the method's label set, and ``single``.

    Args:
        run: The run.

    Returns:
        Labels by the name of their set.

    Raises:
        FileError: Their rows or classes are not the table's.
    """
    with hdf5.read(run.root / "data" / "simulate" / run.dataset / "observed.h5") as file:
        observed = {name: file[name][()] for name in {base.load(run.method).labels, "single"}}
        if any(labels.shape != run.table.truth.shape for labels in observed.values()):
            raise FileError(f"{file.filename}: its rows or classes are not the table's; run simulate again")
    return observed


def source_files(stage: str, method: str) -> list[Path]:
    """Return the source files that may decide a run.

    Args:
        stage: Training stage.
        method: Name of the method.

    Returns:
        What a training stage may import: no other stage or method, no source of data or report.
    """
    pipeline = Path(__file__).parents[1]
    rooms = ("core", "labels", "networks", "data", "methods/shared", "training")
    named = [pipeline.parent / "stages" / f"{name}.py" for name in (stage, "entry")]
    named += [pipeline / "methods" / f"{method}.py", pipeline / "audits" / "metrics.py"]
    return [*named, *(file for room in rooms for file in (pipeline / room).glob("*.py"))]


def make_scorer(run: Run, single: np.ndarray) -> Callable[[np.ndarray], float]:
    """Return the function that scores validation logits: mAP in percent, by full or by observed labels.

    Args:
        run: The run.
        single: (N, C) observed labels of all rows.

    Returns:
        Maps (N_val, C) logits to points.

    Raises:
        ConfigError: No class has a positive in the validation split, so no epoch can be chosen by it.
    """
    truth, scored = run.table.reference("val")
    if run.settings.select == "observed":
        truth, scored = (single[run.table.rows("val")] == 1).astype(np.int8), None
    if not truth.any():
        raise ConfigError(f"{run.stage}.select: the validation split of {run.dataset} has no positive label")

    def score(logits: np.ndarray) -> float:
        return float(mean_average_precision(truth, logits, scored)["map"])

    return score


def _judge(trained: Trained) -> tuple[float, int]:
    return trained.history.best, trained.history.epoch


def _make_network(run: Run, start: Start) -> Network:
    seeds.seed_torch(run.seed, "network")
    return start.make_network()


def _fingerprint(run: Run, start: Start, problem: Problem) -> str:
    """Return the fingerprint of all that the run depends on."""
    settings = [run.settings.model_dump(), run.method_settings, problem.expected_positives, run.seed, run.stage]
    reads = [*start.reads, run.root / "data" / "prepare" / run.dataset / "table.h5"]
    reads += [start.inherited] if start.inherited else []
    return resume.fingerprint(settings, [*reads, *source_files(run.stage, run.method)])
