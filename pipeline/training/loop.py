"""The training loop of linear_init, finetune, end_to_end and lac, which differ in what they hand to it.

It never sees truth: the stage passes a function that scores validation logits. Random draws come from (seed, epoch),
so a run that is resumed ends with the same bytes as one that was not interrupted.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from pipeline.core import seeds
from pipeline.core.errors import ConfigError, TrainingError
from pipeline.core.progress import Pace, track
from pipeline.core.resume import Checkpoint
from pipeline.methods.shared.base import Method, check_needs
from pipeline.networks.interface import Outputs
from pipeline.networks.network import Network, cpu_state
from pipeline.training.groups import batch_groups, deviation_within
from pipeline.training.inputs import Inputs, batches, predict
from pipeline.training.optimization import MovingAverage, make_optimizer, make_scheduler
from pipeline.training.settings import EarlyStop, Training


@dataclass(frozen=True)
class Data:
    """Images and labels of a run."""

    train: Inputs
    """The N training images."""
    observed: Tensor
    """(N, C) int8 labels as the method may see them; never written."""
    validation: Inputs
    """The validation images."""
    score: Callable[[np.ndarray], float] | None
    """Maps (N_val, C) logits to the selection score, in points; higher is better. None: nothing is scored, and all
    epochs tie at 0."""
    is_better: Callable[[Sequence[np.ndarray], int], bool] | None = None
    """Whether, of (N_val, C) logits by epoch, those at a position rank better than the last, beyond noise: the best
    epoch is taken only if they do. None: the score decides."""
    groups: np.ndarray | None = None
    """(N,) numbers of groups of training images, as `number_groups` gives them; None: the data name none."""
    measure: str = "val score"
    """What the score is, in words."""


@dataclass(frozen=True)
class Plan:
    """How a run trains."""

    name: str
    """The run's name, for progress and errors."""
    settings: Training
    """The stage's settings."""
    learning_rate: float
    epochs: int
    """Epochs: the stage's, or those of a trial of the learning-rate search."""
    seed: int
    device: torch.device
    keep: int | None = None
    """Epoch that is taken whatever the scores; None: as ``select`` says."""
    record: Callable[[dict[str, Any]], None] | None = None
    """Is told each epoch's row, those of a resume point too; nothing depends on it."""


@dataclass
class History:
    """Results of a run, besides the weights in the network that it was given."""

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

    diverged: int | None = None
    """Epoch in which training diverged, where a search goes on without the trial."""

    def is_tied(self) -> bool:
        """Return whether several epochs, with raw and averaged weights, all scored the same: val chooses none."""
        scores = {row.get(key, row["score"]) for row in self.rows for key in ("score", "score_average")}
        return len(self.rows) > 1 and len(scores) == 1

    def scores(self) -> list[float]:
        """Return the selection score of each epoch: the better one of raw and averaged weights."""
        return [max(row["score"], row.get("score_average", -math.inf)) for row in self.rows]


def epoch_batches(
    n: int, settings: Training, seed: int, epoch: int, fewest: int = 1, groups: np.ndarray | None = None
) -> list[np.ndarray]:
    """Return an epoch's shuffled rows, cut into batches.

    Args:
        n: Training images.
        settings: The stage's settings.
        seed: The run's seed.
        epoch: Epoch, from 1.
        fewest: Rows that a step needs.
        groups: (n,) numbers of groups, which batches hold together where the settings ask for consistency within them.

    Returns:
        Batches of rows. Without groups a shorter last batch of fewer than the fewest is left out; the next epoch
        shuffles anew.
    """
    if settings.group_consistency and groups is not None:
        return batch_groups(groups, settings.batch_size, fewest, seeds.numpy_generator(seed, "groups", epoch))
    order = seeds.numpy_generator(seed, "order", epoch).permutation(n)
    cut = list(batches(n, settings.batch_size, order))
    return cut[:-1] if len(cut) > 1 and len(cut[-1]) < min(fewest, settings.batch_size) else cut


def stops_early(early_stop: EarlyStop, scores: list[float]) -> bool:
    """Return whether training ends after the latest epoch.

    Args:
        early_stop: The rule and its amount.
        scores: Selection score of each epoch so far.

    Returns:
        Whether to stop.
    """
    if not scores:
        return False
    best = int(np.argmax(scores))
    if early_stop.rule == "first_dip":
        return best != len(scores) - 1
    if early_stop.rule == "drop":
        return scores[best] - scores[-1] > early_stop.amount
    return early_stop.rule == "patience" and len(scores) - 1 - best >= early_stop.amount


class Trainer:
    """Trains one network by one method, from the start or from a resume point.

    Args:
        network: The network, on any device; it ends with the last epoch's weights.
        method: The method.
        data: Images and labels.
        plan: How to train.
        checkpoint: Where to save the state after each epoch, or None.
        inherited: State of the method in an earlier stage; what the method's ``carries`` names is taken over.

    Raises:
        ConfigError: The method needs what network, images or resume point do not give, batch norm a larger batch, or
            the settings groups of images.
    """  # noqa: DOC502  ConfigError comes from `check_needs` and `_fewest_rows`

    def __init__(
        self,
        network: Network,
        method: Method,
        data: Data,
        plan: Plan,
        checkpoint: Checkpoint | None = None,
        inherited: dict[str, Tensor] | None = None,
    ) -> None:
        settings = plan.settings
        if settings.group_consistency and data.groups is None:
            raise ConfigError(f"{plan.name}: group_consistency is set, and the data name no groups")
        disk = {"disk"} if checkpoint else set()
        check_needs(plan.name, method, network.provides() | data.train.provides | {"epoch_logits"} | disk)
        self.network, self.method = network.to(plan.device).train(), method.to(plan.device)
        self.data, self.plan, self.checkpoint = data, plan, checkpoint
        self.observed = data.observed.to(plan.device)
        method.begin_training(self.observed)
        if inherited is not None:
            method.inherit(inherited)
        network.freeze(settings.freeze, settings.batch_norm == "frozen")
        self.average = MovingAverage(network, settings.ema) if settings.ema else None
        self.optimizer = make_optimizer(network, method, settings, plan.learning_rate)
        self.fewest = self._fewest_rows()
        self.steps = len(self._batches(1))
        self.scheduler = make_scheduler(self.optimizer, settings, plan.epochs * self.steps)
        self.history, self.pace = History(), Pace()
        self._resume()

    def _fewest_rows(self) -> int:
        """Return how many images a step needs.

        Raises:
            ConfigError: No batch has as many.
        """
        inputs, size = self.data.train, self.plan.settings.batch_size
        if len(self.method.views) > 1:  # all views go through one forward pass
            return 1
        fewest = self.network.fewest_rows(inputs.plain(np.arange(1)).to(self.plan.device))
        if (most := min(size, len(inputs))) < fewest:
            given = f"batch_size: {size}" if most == size else f"{most} training image"
            raise ConfigError(
                f"{self.plan.name}: {given} leaves batch norm one value a channel, which it cannot train on; set "
                f"batch_size to 2 or more, or batch_norm to frozen"
            )
        return fewest

    def _batches(self, epoch: int) -> list[np.ndarray]:
        """Return the rows of an epoch's batches."""
        plan, data = self.plan, self.data
        return epoch_batches(len(data.train), plan.settings, plan.seed, epoch, self.fewest, data.groups)

    def fit(self) -> History:
        """Train until the last epoch, or until early stopping.

        Returns:
            The history, with the chosen epoch's weights.

        Raises:
            TrainingError: A loss, or a logit after an epoch, is not finite.
        """  # noqa: DOC502  TrainingError comes from the steps below
        while not self._has_ended():
            epoch = len(self.history.rows) + 1
            seeds.seed_torch(self.plan.seed, "epoch", epoch)
            row = self._train_epoch(epoch)
            method_state = self._end_epoch()
            winner = self._validate(row)
            self._keep_best(row, winner, method_state)
            self._save()
        history, measure = self.history, self.data.measure
        taken = f", epoch {history.epoch} taken, {measure} {history.best:.2f}" if self.data.score else ""
        tqdm.write(f"{self.plan.name}  {len(self.history.rows)} epochs{taken}")
        return self.history

    def _has_ended(self) -> bool:
        """Return whether no epoch follows; asked before an epoch, so that a resumed run that had stopped stays so."""
        scores = self.history.scores()
        return len(scores) >= self.plan.epochs or stops_early(self.plan.settings.early_stop, scores)

    def _train_epoch(self, epoch: int) -> dict[str, Any]:
        """Take one step on each batch.

        Returns:
            The epoch's row of the log: epoch, learning rate, loss and its terms, as means over images.
        """
        plan = self.plan
        rate = self.optimizer.param_groups[0]["lr"]  # of the epoch's first step
        self.method.begin_epoch(epoch, plan.epochs)
        self.network.train()
        cut = self._batches(epoch)
        sums: dict[str, float] = {}
        for index in track(cut, f"{plan.name} epoch {epoch}/{plan.epochs}", len(cut), "step"):
            for key, value in self._step(index, epoch).items():
                sums[key] = sums.get(key, 0.0) + value * len(index)
        seen = sum(map(len, cut))
        terms = {key: value / seen for key, value in sums.items()}
        return {"epoch": epoch, "learning_rate": rate, "loss": sum(terms.values()), **terms}

    def _step(self, index: np.ndarray, epoch: int) -> dict[str, float]:
        """Take one step on a batch of rows.

        Returns:
            The terms of its loss.

        Raises:
            TrainingError: The loss is not finite; no step was taken on it.
        """
        rows = torch.from_numpy(index).to(self.plan.device)
        outputs = self._outputs(index, epoch)
        terms = self.method(outputs, self.observed[rows], rows) | self._group_term(outputs, index)
        loss = torch.stack(list(terms.values())).sum()
        values = {key: float(value.detach()) for key, value in terms.items()}
        if not torch.isfinite(loss):
            raise TrainingError(f"{self.plan.name}: epoch {epoch}: loss is not finite: {values}")
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if self.scheduler:
            self.scheduler.step()
        if self.average:
            self.average.update(self.network)
        return values

    def _group_term(self, outputs: Outputs, index: np.ndarray) -> dict[str, Tensor]:
        """Return the term of consistency within groups, where the settings ask for it."""
        consistency, groups = self.plan.settings.group_consistency, self.data.groups
        if consistency is None or groups is None:
            return {}
        logits = outputs.logits[0]
        return {
            "group": consistency.weight * deviation_within(logits, torch.from_numpy(groups[index]).to(logits.device))
        }

    def _outputs(self, index: np.ndarray, epoch: int) -> Outputs:
        """Run the network on the views of a batch.

        Returns:
            What the method reads, the axis of views in front.
        """
        names, seed, device = self.method.views, self.plan.seed, self.plan.device
        answer = self.network(self.data.train.views(index, names, seed, epoch).to(device))
        given: dict[str, Any] = {key: value.unflatten(0, (len(names), len(index))) for key, value in answer.items()}
        if "geometry" in self.method.needs:
            given["geometry"] = self.data.train.geometry(index, names, seed, epoch).to(device)
        if "parameters" in self.method.needs:
            given["parameters"] = self.network.weights()
        return Outputs(**given)

    def _end_epoch(self) -> dict[str, Tensor]:
        """Keep training logits and pseudo-labels, and let the method look at them.

        Returns:
            The method's state before it does: what it decides now trains the next epoch.
        """
        keep, asked = self.plan.settings.keep_epoch_logits, "epoch_logits" in self.method.needs
        logits = self._predict(self.network, self.data.train, "training") if keep or asked else None
        if keep and logits is not None:
            self.history.train.append(logits)
            rows = torch.arange(len(self.data.train), device=self.plan.device)
            labels = self.method.pseudo_labels(logits.to(self.plan.device), self.observed, rows)
            if labels is not None:
                self.history.pseudo.append(labels.cpu())
        state = cpu_state(self.method)
        if asked and logits is not None:
            self.method.end_epoch(logits.to(self.plan.device), self.observed)
        return state

    def _validate(self, row: dict[str, Any]) -> Network:
        """Add the validation scores to the epoch's row.

        Returns:
            The better network of raw and averaged weights.
        """
        logits = self._predict(self.network, self.data.validation, "validation")
        self.history.val.append(logits)
        score = self.data.score or (lambda _: 0.0)
        row["score"] = score(logits.numpy())
        winner = self.network
        if self.average:
            averaged = self._predict(self.average.network, self.data.validation, "averaged validation")
            row["score_average"] = score(averaged.numpy())
            if row["score_average"] > row["score"] and self.plan.settings.select == "clean":
                winner = self.average.network
        row["weights"] = "raw" if winner is self.network else "average"
        return winner

    def _keep_best(self, row: dict[str, Any], winner: Network, method_state: dict[str, Tensor]) -> None:
        """Add the epoch's row to the history, and its weights where it is the one to take so far."""
        history, plan = self.history, self.plan
        history.rows.append(row)
        self._record(row)
        score = row["score"] if row["weights"] == "raw" else row["score_average"]
        if self._is_taken(score):
            history.epoch, history.best = row["epoch"], score
            history.state, history.method = cpu_state(winner), method_state
        if self.pace.is_due():
            found = f"  {self.data.measure} {score:.2f}" if self.data.score else ""
            tqdm.write(f"{plan.name}  epoch {row['epoch']}/{plan.epochs}  loss {row['loss']:.4f}{found}")

    def _record(self, row: dict[str, Any]) -> None:
        """Tell an epoch's row to who asked for it, the score by its name; none where nothing was scored."""
        if self.plan.record is None:
            return
        name = self.data.measure.replace(" ", "_")
        named = {key.replace("score", name): value for key, value in row.items() if key.startswith("score")}
        others = {key: value for key, value in row.items() if not key.startswith("score")}
        self.plan.record(others | (named if self.data.score else {}))

    def _is_taken(self, score: float) -> bool:
        """Return whether the latest epoch is the one to take so far: the best, or the last where none is better."""
        history = self.history
        if self.plan.keep is not None:
            return len(history.rows) == self.plan.keep
        if score > history.best or self.plan.settings.select == "last":
            return True
        if not self._has_ended():
            return False
        is_better = self.data.is_better
        noise = is_better and not is_better([logits.numpy() for logits in history.val], history.epoch - 1)
        return history.is_tied() or bool(noise)

    def _predict(self, network: nn.Module, inputs: Inputs, what: str) -> Tensor:
        """Return eval-mode logits of a whole split, on the CPU.

        Raises:
            TrainingError: A logit is not finite.
        """
        values = predict(network, inputs, self.plan.settings.batch_size * 8, self.plan.device)
        if not np.isfinite(values).all():
            epoch = len(self.history.rows) + 1
            raise TrainingError(f"{self.plan.name}: epoch {epoch}: {what} logits are not finite")
        return torch.from_numpy(values)

    def _parts(self) -> dict[str, Any]:
        """Return all that holds state of the run, by its name in the resume point."""
        parts = {"network": self.network, "method": self.method, "optimizer": self.optimizer}
        optional = {"scheduler": self.scheduler, "average": self.average and self.average.network}
        return parts | {name: part for name, part in optional.items() if part is not None}

    def _resume(self) -> None:
        """Load what the checkpoint holds, and open the method's disk where an epoch follows."""
        if not self.checkpoint:
            return
        if saved := self.checkpoint.load():
            for name, part in self._parts().items():
                part.load_state_dict(saved["parts"][name])
            self.history = History(**saved["history"])
            if self.average:
                self.average.steps = len(self.history.rows) * self.steps
            for row in self.history.rows:
                self._record(row)
        if "disk" in self.method.needs and not self._has_ended():
            self.method.open_disk(self.checkpoint.folder)

    def _save(self) -> None:
        """Save the run's state to the checkpoint."""
        if not self.checkpoint:
            return
        self.method.flush()
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        at_once = "disk" in self.method.needs  # what lies on disk is one epoch old at most
        self.checkpoint.save({"parts": parts, "history": vars(self.history)}, at_once=at_once)
