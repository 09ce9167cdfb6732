"""One run of a training stage: read its labels, choose learning rate and epoch, predict, store its folder."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import torch

from pipeline.core.device import choose_device
from pipeline.labels.observed import read_observed
from pipeline.methods.shared import base
from pipeline.networks.network import Network
from pipeline.training import choice
from pipeline.training.features import Cache
from pipeline.training.inputs import ImageInputs, Inputs, predict
from pipeline.training.loop import Data
from pipeline.training.readout import read_out, read_out_cached
from pipeline.training.run import SPLITS, Run, Start
from pipeline.training.score import name_score
from pipeline.training.search import fixed_setting
from pipeline.training.store import Result, store_run
from pipeline.training.tracking import Tracker
from pipeline.training.trials import Trials, make_network, run_settings


def execute(run: Run, start: Start) -> None:
    """Train a run, score it, and store its folder.

    Args:
        run: The run.
        start: What its stage gives.

    Raises:
        FileError: The observed labels or the beliefs are not those of the table.
        TrainingError: A loss is not finite, at every rate where a grid is searched.
        ConfigError: The environment asks for a device, or for a tracker, that is absent.
    """  # noqa: DOC502  raised by the functions below
    choose_device()  # first, so that a wrong name of one costs no reading
    labels = base.load(run.method).labels
    observed = read_observed(run.observed_file, run.table, [labels])
    train_labels = observed[labels][run.table.rows("train")]
    _ = run.beliefs  # its thresholds read them: absent ones stop it here
    judges = choice.read_judges(run, run.single)
    settings = run_settings(run, start)
    network = make_network(run, start, settings.at(*fixed_setting(settings).company).head)
    problem = run.describe_problem(train_labels, network.architecture["width"])
    method = base.build(run.method, run.method_settings, problem)  # bad settings stop here: nothing is deleted yet
    inputs = start.make_inputs(network)
    base.check_needs(run.method, method, network.provides() | inputs["train"].provides | {"epoch_logits", "disk"})
    judge = judges["val"] if judges else None
    score, is_better = (judge.score, judge.is_better) if judge else (choice.make_scorer(run), None)
    groups = run.table.group_numbers("train")
    measure = name_score(run.table, run.settings.select)
    data = Data(inputs["train"], torch.from_numpy(train_labels), inputs["val"], score, is_better, groups, measure)

    with Tracker(run) as tracker, closing(Trials(run, start, problem, data, tracker)) as trials:
        if judges and start.cache:
            taken = choice.choose_out_of_fold(run, trials, judges["train"])
        else:
            taken = choice.choose_on_validation(run, trials, judge)
        trained = taken.trained
        trained.network.load_state_dict(trained.history.state)
        trained.method.load_state_dict(trained.history.method)
        trained.method.eval()  # what is stored of its cells is what it holds, not what one more step would make of them
        logits, before, left_out = _predict(run, trained.network, inputs), None, taken.left_out
        if run.settings.readout is not None:
            before = logits
            network, left_out = _read_out(run, start.cache, trained.network, inputs["train"], (train_labels, left_out))
            trained = replace(trained, network=network)
            logits = _predict(run, network, inputs)
        found = (taken.setting, taken.rows, logits, train_labels, trials.reads, taken.comparison, left_out)
        store_run(run, Result(trained, *found, before))
        trials.delete_resume_points()
        tracker.finish()


def _read_out(
    run: Run, cache: Cache | None, network: Network, inputs: Inputs, labels: tuple[np.ndarray, np.ndarray | None]
) -> tuple[Network, np.ndarray | None]:
    """Return the network under the readout's head, and the logits of training images by what left them out, if any.

    Args:
        run: The run.
        cache: The feature cache, where the network is a head on it.
        network: The trained network.
        inputs: The training images.
        labels: (N, C) training labels, and the logits by heads that they did not train, or None.
    """
    readout, (train_labels, left_out) = run.settings.readout, labels
    if cache is not None:
        return read_out_cached(run, network, cache, train_labels, left_out)
    assert readout is not None and isinstance(inputs, ImageInputs)
    return read_out(run, readout, network, inputs, train_labels), None


def _predict(run: Run, network: Network, inputs: dict[str, Inputs]) -> dict[str, np.ndarray]:
    """Return the (N_split, C) logits of each split."""
    size, device = run.settings.batch_size * 8, choose_device()
    return {split: predict(network, inputs[split], size, device) for split in SPLITS}
