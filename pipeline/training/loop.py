"""The one training loop: linear_init, finetune, end_to_end and lac differ in what they hand it.

It never sees truth: the stage passes a closure that scores validation logits. Random draws come from (seed, epoch),
so a run that is resumed from a checkpoint ends with the same bytes as one that was not interrupted.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from pipeline.core import seeds
from pipeline.core.errors import TrainingError
from pipeline.core.resume import Checkpoint
from pipeline.methods.shared.base import Method, check_needs
from pipeline.networks.interface import Outputs
from pipeline.networks.network import Network, cpu_state
from pipeline.training.inputs import Inputs, batches, predict
from pipeline.training.settings import Training


@dataclass
class History:
    """What a run leaves, besides the weights in the network it was given."""

    epoch: int = 0
    """Chosen epoch, from 1."""
    best: float = -math.inf
    """Its selection score."""
    state: dict[str, Tensor] = field(default_factory=dict)
    """Network state at the chosen epoch."""
    method: dict[str, Tensor] = field(default_factory=dict)
    """Method state after the chosen epoch's last step, before its `Method.end_epoch`."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """One row an epoch."""
    val: list[Tensor] = field(default_factory=list)
    """(N_val, C) raw-weight logits of each epoch."""
    train: list[Tensor] = field(default_factory=list)
    """(N, C) eval-mode logits of each epoch, where they are kept."""
    pseudo: list[Tensor] = field(default_factory=list)
    """(N, C) int8 pseudo-labels of each epoch, where the method has any and logits are kept: those that a method stores
    as they stood in it, those that it makes anew at each step as the epoch's last weights would make them."""


class MovingAverage:
    """Exponential moving average of a network's whole state, as in LAC's code; counters are copied.

    Args:
        network: The network to follow.
        decay: Final decay d; the decay of step t is min(d, (1 + t) / (10 + t)).
    """

    def __init__(self, network: Network, decay: float) -> None:
        self.network = copy.deepcopy(network).eval()
        self.decay, self.steps = decay, 0

    @torch.no_grad()
    def update(self, network: Network) -> None:
        """Take one step towards the network's weights."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        for mean, value in zip(self.network.parameters(), network.parameters(), strict=True):
            mean.lerp_(value, 1 - decay)
        for mean, value in zip(self.network.buffers(), network.buffers(), strict=True):
            if value.is_floating_point():  # running statistics belong to the weights that they were taken under
                mean.lerp_(value, 1 - decay)
            else:
                mean.copy_(value)


def optimiser(network: Network, method: Method, settings: Training, lr: float) -> torch.optim.Optimizer:
    """Make the optimiser over backbone, head and the method's own parameters.

    Args:
        network: The network; frozen parameters are left out.
        method: The method.
        settings: The stage's settings.
        lr: Learning rate of the backbone; the head's is ``head_factor`` times that.

    Returns:
        The optimiser.
    """
    backbone = list(network.backbone.parameters()) if network.backbone else []
    groups = [
        {"params": [each for each in backbone if each.requires_grad], "lr": lr},
        {"params": list(network.head.parameters()), "lr": lr * settings.head_factor},
        *method.parameter_groups(lr),
    ]
    groups = [group for group in groups if group["params"]]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr, momentum=settings.momentum, weight_decay=settings.weight_decay)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "adamax": torch.optim.Adamax}[settings.optimizer]
    return kind(groups, lr, weight_decay=settings.weight_decay)


def epoch_batches(n: int, settings: Training, seed: int, epoch: int) -> list[np.ndarray]:
    """Cut an epoch's shuffled rows into batches.

    Args:
        n: Training images.
        settings: The stage's settings.
        seed: The run's seed.
        epoch: Epoch, from 1.

    Returns:
        Batches of rows. A last batch of ONE image is left out, since batch norm cannot train on it; the next epoch
        shuffles anew.
    """
    order = seeds.numpy_generator(seed, "order", epoch).permutation(n)
    cut = list(batches(n, settings.batch_size, order))
    return cut[:-1] if len(cut) > 1 and len(cut[-1]) == 1 else cut


def stop_early(rule: str, amount: float, scores: list[float]) -> bool:
    """Tell whether training ends after the latest epoch.

    Args:
        rule: As in `config.EarlyStop`.
        amount: Points or epochs, by rule.
        scores: Selection score of each epoch so far.

    Returns:
        Whether to stop.
    """
    if not scores:
        return False
    best = int(np.argmax(scores))
    if rule == "first_dip":
        return best != len(scores) - 1
    if rule == "drop":
        return scores[best] - scores[-1] > amount
    return rule == "patience" and len(scores) - 1 - best >= amount


def train(
    network: Network,
    method: Method,
    images: Inputs,
    observed: Tensor,
    validation: Inputs,
    score: Callable[[np.ndarray], float],
    settings: Training,
    *,
    lr: float,
    seed: int,
    device: torch.device,
    name: str,
    epochs: int | None = None,
    inherited: dict[str, Tensor] | None = None,
    checkpoint: Checkpoint | None = None,
) -> History:
    """Train a network by a method.

    Args:
        network: The network, on any device; it ends with the last epoch's weights.
        method: The method.
        images: The N training images.
        observed: (N, C) int8 labels as the method may see them.
        validation: The validation images.
        score: Maps (N_val, C) logits to the selection score, in points; higher is better.
        settings: The stage's settings.
        lr: Learning rate.
        seed: The run's seed.
        device: Where to train.
        name: The run's name, for progress and errors.
        epochs: Epochs, if other than the stage's (a trial of the learning-rate search).
        inherited: State of the method as an earlier stage left it; what the method's ``carries`` names is taken over.
        checkpoint: Where to keep the state after each epoch, or None.

    Returns:
        The history, with the chosen epoch's weights.

    Raises:
        TrainingError: A loss, or a logit after an epoch, is not finite.
    """
    total = epochs or settings.epochs
    check_needs(
        name, method, network.provides() | images.provides | {"epoch_logits", *(["disk"] if checkpoint else [])}
    )
    network.to(device).train()
    method.to(device)
    observed = observed.to(device)
    method.begin_training(observed)
    if inherited is not None:
        method.inherit(inherited)
    network.freeze(settings.freeze, settings.batch_norm == "frozen")
    average = MovingAverage(network, settings.ema) if settings.ema else None
    steps = len(epoch_batches(len(images), settings, seed, 1))
    optimizer = optimiser(network, method, settings, lr)
    scheduler = None
    if settings.schedule == "onecycle":
        peaks = [group["lr"] for group in optimizer.param_groups]
        # a rising part of exactly one step has length 0 in torch, which divides by it
        warmup = 0.0 if settings.warmup * (total * steps) == 1 else settings.warmup
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, peaks, total_steps=total * steps, pct_start=warmup)
    history = History()
    parts: dict[str, Any] = {"network": network, "method": method, "optimizer": optimizer}
    if scheduler:
        parts["scheduler"] = scheduler
    if average:
        parts["average"] = average.network
    if checkpoint and (saved := checkpoint.load()):
        for key, part in parts.items():
            part.load_state_dict(saved["parts"][key])
        history = History(**saved["history"])
        if average:
            average.steps = len(history.rows) * steps
    scores = _scores(history)
    ended = len(scores) >= total or stop_early(settings.early_stop.rule, settings.early_stop.amount, scores)
    if checkpoint and "disk" in method.needs and not ended:
        method.open_disk(checkpoint.folder)

    def logits(of: nn.Module, inputs: Inputs, what: str) -> np.ndarray:
        values = predict(of, inputs, settings.batch_size * 8, device)
        if not np.isfinite(values).all():
            raise TrainingError(f"{name}: epoch {len(history.rows) + 1}: {what} logits are not finite")
        return values

    for epoch in range(len(history.rows) + 1, total + 1):
        if stop_early(settings.early_stop.rule, settings.early_stop.amount, _scores(history)):
            break  # asked here, not after an epoch, so that a resumed run that had stopped stays so
        seeds.fix_torch(seed, "epoch", epoch)
        rate = optimizer.param_groups[0]["lr"]  # of the epoch's first step
        method.begin_epoch(epoch, total)
        network.train()
        cut = epoch_batches(len(images), settings, seed, epoch)
        sums: dict[str, float] = {}
        for index in tqdm(cut, f"{name} epoch {epoch}/{total}", leave=False, disable=None):
            answer = network(images.views(index, method.views, seed, epoch).to(device))
            views = {key: value.unflatten(0, (len(method.views), len(index))) for key, value in answer.items()}
            given: dict[str, Any] = dict(views)
            if "geometry" in method.needs:
                given["geometry"] = images.geometry(index, method.views, seed, epoch).to(device)
            if "parameters" in method.needs:
                given["parameters"] = network.weights()
            at = torch.from_numpy(index).to(device)
            terms = method(Outputs(**given), observed[at], at)
            loss = torch.stack(list(terms.values())).sum()
            if not torch.isfinite(loss):
                raise TrainingError(f"{name}: epoch {epoch}: loss is not finite: {_values(terms)}")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if scheduler:
                scheduler.step()
            if average:
                average.update(network)
            for key, value in _values(terms).items():
                sums[key] = sums.get(key, 0.0) + value * len(index)

        seen = sum(map(len, cut))
        terms = {key: value / seen for key, value in sums.items()}
        row = {"epoch": epoch, "learning_rate": rate, "loss": sum(terms.values()), **terms}
        train_logits = None
        if settings.keep_epoch_logits or "epoch_logits" in method.needs:
            train_logits = torch.from_numpy(logits(network, images, "training"))
        if settings.keep_epoch_logits and train_logits is not None:
            history.train.append(train_logits)
            labels = method.pseudo_labels(train_logits.to(device), observed, torch.arange(len(images), device=device))
            if labels is not None:
                history.pseudo.append(labels.cpu())
        state = cpu_state(method)  # before it looks at the epoch's end: what it decides then trains the next one
        if "epoch_logits" in method.needs and train_logits is not None:
            method.end_epoch(train_logits.to(device), observed)

        val_logits = logits(network, validation, "validation")
        history.val.append(torch.from_numpy(val_logits))
        row["score"] = value = score(val_logits)
        winner: nn.Module = network
        if average:
            row["score_average"] = score(logits(average.network, validation, "averaged validation"))
            if row["score_average"] > value and settings.select != "last":
                value, winner = row["score_average"], average.network
        row["weights"] = "raw" if winner is network else "average"
        history.rows.append(row)
        if value > history.best or settings.select == "last":
            history.epoch, history.best = epoch, value
            history.state, history.method = cpu_state(winner), state
        tqdm.write(f"{name}  epoch {epoch}/{total}  loss {row['loss']:.4f}  val {value:.2f}")
        if checkpoint:
            method.flush()
            checkpoint.save(
                {"parts": {key: part.state_dict() for key, part in parts.items()}, "history": vars(history)},
                at_once="disk" in method.needs,  # what lies on disk is one epoch old at most
            )
    return history


def _scores(history: History) -> list[float]:
    return [max(each["score"], each.get("score_average", -math.inf)) for each in history.rows]


def _values(terms: dict[str, Tensor]) -> dict[str, float]:
    return {key: float(value.detach()) for key, value in terms.items()}
