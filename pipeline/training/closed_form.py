"""One run of a linear head that has a closed form: read it or fit it, score it, store its folder."""

import numpy as np
import torch

from pipeline.core.device import choose_device
from pipeline.labels.observed import read_observed
from pipeline.methods.shared import base
from pipeline.networks.interface import Outputs
from pipeline.networks.network import Network, cpu_state
from pipeline.networks.settings import at_scale
from pipeline.training.choice import make_scorer
from pipeline.training.features import Cache
from pipeline.training.inputs import predict
from pipeline.training.loop import History
from pipeline.training.readout import closed_form, put_head
from pipeline.training.run import SPLITS, Run, Start
from pipeline.training.store import Result, Trained, store_run
from pipeline.training.tracking import Tracker


def fit_closed_form(run: Run, start: Start, cache: Cache) -> None:
    """Put the closed form's weights into a linear head, score it, and store the run's folder.

    Args:
        run: The run, of a method whose head has a closed form.
        start: What its stage gives.
        cache: The feature cache.

    Raises:
        ConfigError: The features cannot be fitted, or the beliefs come from a file that holds no head.
        FileError: The observed labels or the beliefs are not those of the table.
    """  # noqa: DOC502  raised by the functions below
    device, own = choose_device(), base.load(run.method).labels
    observed = read_observed(run.observed_file, run.table, [own])
    train_labels = observed[own][run.table.rows("train")]
    _ = run.beliefs  # its thresholds read them: absent ones stop it here
    network = start.make_network(at_scale(run.settings.head, "none"))  # the rules refuse `unit` alone
    method = base.build(run.method, run.method_settings, run.describe_problem(train_labels, cache.plain.shape[1]))
    fitted = closed_form(run, cache, train_labels)
    put_head(network, fitted.weights, fitted.bias)
    inputs = start.make_inputs(network)
    logits = {
        split: predict(network.to(device), inputs[split], run.settings.batch_size * 8, device) for split in SPLITS
    }
    history = _history(run, network, method, logits, train_labels)
    trial = {
        "learning_rate": None,
        "weight_decay": None,
        "scale": "none",
        "epoch": 1,
        "score": history.best,
        "chosen": 1,
        "diverged": None,
    }
    reads = [*start.reads, run.table_file, *([run.beliefs_file] if run.reads_beliefs() else [])]
    trained = Trained(network, method.eval(), history)
    with Tracker(run) as tracker:
        store_run(run, Result(trained, None, [trial], logits, train_labels, reads, left_out=fitted.left_out))
        tracker.finish()


def _history(
    run: Run, network: Network, method: base.Method, logits: dict[str, np.ndarray], train_labels: np.ndarray
) -> History:
    """Return the history of one epoch that took no step."""
    train = torch.from_numpy(logits["train"])
    index = torch.arange(len(train))
    with torch.no_grad():
        terms = method(Outputs(logits=train[None]), torch.from_numpy(train_labels), index)
    scorer = make_scorer(run)
    score = scorer(logits["val"]) if scorer else 0.0
    loss = float(torch.stack(list(terms.values())).sum())
    row = {"epoch": 1, "learning_rate": None, "loss": loss, "score": score, "weights": "raw"}
    keeps = run.settings.keep_epoch_logits
    return History(
        epoch=1,
        best=score,
        state=cpu_state(network),
        method=cpu_state(method),
        rows=[row],
        val=[torch.from_numpy(logits["val"])],
        train=[train] if keeps else [],
    )
