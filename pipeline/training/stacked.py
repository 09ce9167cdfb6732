"""Many linear heads on cached features at once, each as the stage linear_init would train it alone.

Heads of one seed that learn from the same images see the same batches. So a batch is read once, one matrix product
gives the logits of all of them, and one backward pass their gradients; each has its own method, which sees its own
logits, and heads of one learning rate, weight decay and scale lie in one parameter, whose optimiser is that of a single
head: its steps are taken element by element. Each method draws from a random stream of its own, as in a process of its
own. A method whose loss is a mean over cells and that remembers nothing answers at once for all heads of its settings
and labels, as for so many more rows. Up to rounding, a head ends as one that was trained alone.
Source: ours.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.core import seeds
from pipeline.methods.shared.base import Method, check_needs
from pipeline.networks.interface import Outputs
from pipeline.networks.linear import scale_features
from pipeline.networks.network import Network
from pipeline.training.inputs import Inputs
from pipeline.training.loop import epoch_batches
from pipeline.training.optimization import make_optimizer_of, make_scheduler
from pipeline.training.search import Setting
from pipeline.training.settings import Training

GIVES = frozenset({"features", "parameters", "epoch_logits"})
"""Words of a method's ``needs`` that a stack meets."""
TOLD = frozenset({"expected_positives", "beliefs"})
"""Words that concern what a method knows before training, not what the network answers."""


@dataclass(eq=False)
class Head:
    """One linear head of a stack."""

    recipe: str
    """Names method and settings: methods of one recipe and the same labels differ in what they remember alone."""
    make_method: Callable[[], Method]
    """Builds its method, which may draw from torch's stream."""
    observed: Tensor
    """(N, C) int8 labels of the stack's images; heads may share one tensor."""
    setting: Setting
    diverged: int | None = None
    """The epoch in which it diverged, from which on it stands still."""
    method: Method = field(init=False)
    stream: Tensor = field(init=False)
    """State of its random stream."""


class Block:
    """The heads of one setting, in one parameter.

    Args:
        heads: The heads.
        starts: (S, C, D) weights and (S, C) biases that they start from.
        settings: Settings of the stage linear_init.
        steps: Steps of the whole training.
    """

    def __init__(self, heads: list[Head], starts: tuple[Tensor, Tensor], settings: Training, steps: int) -> None:
        self.heads, setting = heads, heads[0].setting
        self.weight, self.bias = map(nn.Parameter, starts)
        own = settings.at(*setting.company)
        groups: list[dict[str, Any]] = [{"params": [self.weight, self.bias], "lr": setting.rate * own.head_factor}]
        for head in heads:
            groups += head.method.parameter_groups(setting.rate)
        self.optimizer = make_optimizer_of(groups, own, setting.rate)
        self.scheduler = make_scheduler(self.optimizer, own, steps)

    def logits(self, features: Tensor) -> Tensor:
        """Return (S, B, C) logits of (B, D) features."""
        flat = F.linear(features, self.weight.flatten(0, 1), self.bias.flatten())  # (B, S*C)
        return flat.unflatten(1, self.bias.shape).transpose(0, 1).contiguous()

    def step(self) -> None:
        """Take a step of the optimiser, and of its schedule."""
        self.optimizer.step()
        if self.scheduler:
            self.scheduler.step()


@dataclass(frozen=True)
class Batch:
    """What heads are shown in a step."""

    rows: Tensor
    """(B,) rows."""
    labels: dict[int, Tensor]
    """(B, C) labels, by the tensor that they are of."""
    features: Tensor
    """(B, D)."""


class Stack:
    """Linear heads that learn from the same images in the same order.

    Args:
        heads: The heads; each gets its method here.
        inputs: The N images that they learn from.
        settings: Settings of the stage linear_init, of optimiser, schedule, epochs and batches.
        seed: The training seed.
        shape: Classes C and features D.
        device: Where to train.

    Raises:
        ConfigError: A method needs what cached features do not give.
    """  # noqa: DOC502  ConfigError comes from `check_needs`

    def __init__(
        self,
        heads: list[Head],
        inputs: Inputs,
        settings: Training,
        seed: int,
        shape: tuple[int, int],
        device: torch.device,
    ) -> None:
        self.inputs, self.settings, self.seed, self.device = inputs, settings, seed, device
        self.observed = {id(head.observed): head.observed.to(device) for head in heads}
        batches = epoch_batches(len(inputs), settings, seed, 1)
        members: dict[Setting, list[Head]] = {}
        starts: dict[Setting, list[tuple[Tensor, Tensor]]] = {}
        for head in heads:
            members.setdefault(head.setting, []).append(head)
            starts.setdefault(head.setting, []).append(self._begin(head, *shape))
        self.blocks = {}
        for setting, own in members.items():
            weights, biases = (torch.stack(each).to(device) for each in zip(*starts[setting], strict=True))
            self.blocks[setting] = Block(own, (weights, biases), settings, settings.epochs * len(batches))
        self.positions = {head: at for block in self.blocks.values() for at, head in enumerate(block.heads)}
        self.teams = _share_methods(heads)

    def _begin(self, head: Head, classes: int, width: int) -> tuple[Tensor, Tensor]:
        """Build a head's method.

        Returns:
            The weights (C, D) and biases (C,) that it starts from.
        """
        seeds.seed_torch(self.seed, "network")
        kind = {"kind": "linear", "scale": head.setting.scale}
        network = Network({"backbone": None, "width": width, "classes": classes, "head": kind})
        head.method = head.make_method().to(self.device)
        check_needs(head.recipe, head.method, self.inputs.provides | GIVES)
        head.method.begin_training(self.observed[id(head.observed)])
        state = network.head.state_dict()
        return state["linear.weight"], state["linear.bias"]

    @property
    def heads(self) -> list[Head]:
        """The heads that have not diverged."""
        return [head for block in self.blocks.values() for head in block.heads if head.diverged is None]

    def train_epoch(self, epoch: int) -> None:
        """Take one step on each batch.

        Args:
            epoch: Epoch, from 1. A head whose loss is not finite diverges there, and takes no step on it.
        """
        seeds.seed_torch(self.seed, "epoch", epoch)
        start = _stream(self.device)
        for head in self.heads:
            _put_stream(start, self.device)
            head.method.begin_epoch(epoch, self.settings.epochs)
            head.stream = _stream(self.device)
        for index in epoch_batches(len(self.inputs), self.settings, self.seed, epoch):
            if not self.heads:
                return
            self._step(index, epoch)

    def _step(self, index: np.ndarray, epoch: int) -> None:
        """Take one step on a batch of rows."""
        rows = torch.from_numpy(index).to(self.device)
        features = self.inputs.views(index, ("weak",), self.seed, epoch).to(self.device, torch.get_default_dtype())
        logits = {
            setting: block.logits(scale_features(features, None, str(setting.scale))[0]).unbind()
            for setting, block in self.blocks.items()
        }
        batch = Batch(rows, {key: observed[rows] for key, observed in self.observed.items()}, features)
        active = [[head for head in team if head.diverged is None] for team in self.teams]
        teams = [(team, self._loss(team, logits, batch)) for team in active if team]
        finite = torch.isfinite(torch.stack([loss for _, loss in teams]).detach()).tolist()
        if not all(finite):  # of a team, perhaps one head alone
            doubtful = [team for (team, _), sound in zip(teams, finite, strict=True) if not sound]
            alone = [([head], self._loss([head], logits, batch)) for team in doubtful for head in team]
            teams = [team for team, sound in zip(teams, finite, strict=True) if sound]
            teams += [(team, loss) for team, loss in alone if torch.isfinite(loss)]
            for (head,) in (team for team, loss in alone if not torch.isfinite(loss)):
                head.diverged = epoch
        if teams:
            self._take_step(torch.stack([loss for _, loss in teams]).sum())

    def _take_step(self, loss: Tensor) -> None:
        """Take a step on the sum of the heads' losses, whose gradient in each head is that of its own."""
        for block in self.blocks.values():
            block.optimizer.zero_grad()
        loss.backward()
        for block in self.blocks.values():
            block.step()

    def _loss(self, team: list[Head], logits: dict[Setting, tuple[Tensor, ...]], batch: "Batch") -> Tensor:
        """Return the sum of the losses of a team's heads.

        Args:
            team: The heads.
            logits: (B, C) logits of each head, by setting.
            batch: What they are shown.
        """
        size, head = len(team), team[0]
        own = [logits[each.setting][self.positions[each]] for each in team]
        labels = batch.labels[id(head.observed)]
        if size > 1:
            outputs = Outputs(logits=torch.cat(own)[None])
            terms = head.method(outputs, labels.repeat(size, 1), batch.rows.repeat(size))
            return size * sum(terms.values(), labels.new_zeros((), dtype=own[0].dtype))
        weight = self.blocks[head.setting].weight[self.positions[head]] if "parameters" in head.method.needs else None
        outputs = Outputs(
            logits=own[0][None], features=batch.features[None], parameters=None if weight is None else (weight,)
        )
        _put_stream(head.stream, self.device)
        terms = head.method(outputs, labels, batch.rows)
        head.stream = _stream(self.device)
        return torch.stack(list(terms.values())).sum()

    @torch.no_grad()
    def end_epoch(self, epoch: int, features: Tensor) -> None:
        """Let the methods that ask for it look at the logits of the training images.

        Args:
            epoch: Epoch, from 1. A head whose logits are not finite diverges there.
            features: (N, D) of the training images, without augmentation.
        """
        for head in self.heads:
            if "epoch_logits" in head.method.needs:
                logits = self.predict(head, features, epoch)
                if logits is not None:
                    head.method.end_epoch(logits, self.observed[id(head.observed)])

    @torch.no_grad()
    def predict(self, head: Head, features: Tensor, epoch: int) -> Tensor | None:
        """Return the logits of a head.

        Args:
            head: The head.
            features: (N, D).
            epoch: Epoch, from 1.

        Returns:
            (N, C) float32; None where one is not finite, which makes the head one that diverged.
        """
        weight, bias = self.weights(head)
        logits = F.linear(scale_features(features, None, str(head.setting.scale))[0], weight, bias).float()
        if torch.isfinite(logits).all():
            return logits
        head.diverged = epoch
        return None

    def weights(self, head: Head) -> tuple[Tensor, Tensor]:
        """Return the weights (C, D) and biases (C,) of a head, which go on changing with it."""
        block, position = self.blocks[head.setting], self.positions[head]
        return block.weight.detach()[position], block.bias.detach()[position]


def _share_methods(heads: list[Head]) -> list[list[Head]]:
    """Return teams of heads for which one of their methods answers: most of one head, where it remembers something."""
    teams: dict[Any, list[Head]] = {}
    for head in heads:
        method = head.method
        remembers = set(method.state_dict()) != {"clock"} or method.coupled or not method.needs <= TOLD
        teams.setdefault(head if remembers else (head.recipe, id(head.observed)), []).append(head)
    return list(teams.values())


def _stream(device: torch.device) -> Tensor:
    """Return the state of the random stream that a device draws from."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _put_stream(state: Tensor, device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
