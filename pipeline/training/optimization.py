"""Optimiser, schedule of its learning rates, and the moving average of the weights."""

import copy
from typing import Any

import torch

from pipeline.methods.shared.base import Method
from pipeline.networks.network import Network
from pipeline.training.settings import Average, Training


class MovingAverage:
    """Exponential moving average of a network's whole state, as in LAC's code; counters are copied.

    Args:
        network: The network to follow, whose weights it starts from.
        settings: Decay, and the rule that it grows by.
    """

    def __init__(self, network: Network, settings: Average) -> None:
        self.network = copy.deepcopy(network).eval()
        self.settings, self.steps = settings, 0

    @torch.no_grad()
    def update(self, network: Network) -> None:
        """Take one step towards the network's weights."""
        self.steps += 1
        decay = self.settings.decay
        if self.settings.rule == "warmup":
            decay = min(decay, (1 + self.steps) / (10 + self.steps))
        for mean, value in zip(self.network.parameters(), network.parameters(), strict=True):
            mean.lerp_(value, 1 - decay)
        for mean, value in zip(self.network.buffers(), network.buffers(), strict=True):
            if value.is_floating_point():  # running statistics belong to the weights that they were taken under
                mean.lerp_(value, 1 - decay)
            else:
                mean.copy_(value)


def make_optimizer(network: Network, method: Method, settings: Training, learning_rate: float) -> torch.optim.Optimizer:
    """Return the optimiser over backbone, head and the method's own parameters.

    Args:
        network: The network; frozen parameters are left out.
        method: The method.
        settings: The stage's settings, with the weight decay of the trial.
        learning_rate: Learning rate of the backbone; the head's is ``head_factor`` times that.

    Returns:
        The optimiser, one group of parameters each for those of the three that have any.
    """
    backbone = list(network.backbone.parameters()) if network.backbone else []
    groups = [
        {"params": [parameter for parameter in backbone if parameter.requires_grad], "lr": learning_rate},
        {"params": list(network.head.parameters()), "lr": learning_rate * settings.head_factor},
        *method.parameter_groups(learning_rate),
    ]
    return make_optimizer_of([group for group in groups if group["params"]], settings, learning_rate)


def make_optimizer_of(groups: list[dict[str, Any]], settings: Training, learning_rate: float) -> torch.optim.Optimizer:
    """Return the optimiser of groups of parameters.

    Args:
        groups: The groups, as torch takes them.
        settings: The stage's settings, with the weight decay of the trial.
        learning_rate: Of groups that name none.
    """
    decay, momentum = settings.weight_decay, settings.momentum
    assert not isinstance(decay, list)  # settings of a trial
    if isinstance(momentum, tuple):  # the peak's, which a run of one step keeps; the schedule cycles it
        momentum = min(momentum)
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, learning_rate, momentum=momentum, weight_decay=decay)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "adamax": torch.optim.Adamax}[settings.optimizer]
    return kind(groups, learning_rate, betas=(momentum, 0.999), weight_decay=decay)


def make_scheduler(
    optimizer: torch.optim.Optimizer, settings: Training, steps: int
) -> torch.optim.lr_scheduler.LRScheduler | None:
    """Return the schedule of the learning rates; None where they are constant, as in a run of one step.

    Args:
        optimizer: The optimiser; each group's learning rate is its peak.
        settings: The stage's settings.
        steps: Steps of the whole run.

    Returns:
        The scheduler, to be stepped after each step of the optimiser.
    """
    if settings.schedule == "falling":
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, 2 * (steps - step) / steps))
    if settings.schedule != "onecycle" or steps == 1:  # of one step torch takes the lowest rate, 250,000 times smaller
        return None
    peaks = [group["lr"] for group in optimizer.param_groups]
    # a rising part of exactly one step has length 0 in torch, which divides by it
    warmup = 0.0 if settings.warmup * steps == 1 else settings.warmup
    momentum = settings.momentum
    cycles = isinstance(momentum, tuple)
    low, high = momentum if isinstance(momentum, tuple) else (momentum, momentum)
    return torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        peaks,
        total_steps=steps,
        pct_start=warmup,
        cycle_momentum=cycles,
        base_momentum=low,
        max_momentum=high,
    )
