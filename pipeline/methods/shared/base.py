"""The one abstraction: how a method answers for the cells nobody labelled, and what the trainer calls on it.

A method file defines ``class Settings(Strict)`` (no defaults: params.yaml is complete), one final subclass of `Method`
and ends with ``METHOD = <that class>``.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from pipeline.core.errors import ConfigError
from pipeline.core.strict import Strict, explain
from pipeline.methods.shared.cells import Cells, cell_risk, in_float32
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs

OUTPUT_NEEDS = frozenset({"features", "embeddings", "maps", "geometry", "posterior", "parameters"})
"""Needs that name a field of Outputs; the network or the views must give it."""
NEEDS = OUTPUT_NEEDS | {"epoch_logits", "expected_positives", "beliefs", "disk"}
"""All words that ``needs`` may hold: ``epoch_logits`` asks for `Method.end_epoch`, ``expected_positives`` for the
label density of the problem, ``beliefs`` for what the stage beliefs believes of the training cells, ``disk`` for a
folder of the run's own (`Method.open_disk`)."""


class Method(nn.Module, ABC):
    """One way to learn from partially observed labels.

    Everything that a method remembers is a buffer or a parameter (float state in torch's default dtype), so device
    moves, checkpoints and resume cost no code. ``observed`` is never written, and no argument carries truth.

    Call a method as ``method(outputs, observed, index)``: the call, not ``forward``, leaves autocast and promotes half
    precision, once for all methods.

    Args:
        settings: The method's own settings.
        problem: What may be known before training.
    """

    Settings: ClassVar[type[Strict]]
    """Schema of the settings in ``params/methods/<name>.yaml``."""
    labels: ClassVar[Literal["single", "all", "negatives"]] = "single"
    """Label set that the method is given."""
    views: ClassVar[tuple[str, ...]] = ("weak",)
    """Augmentations of each image, in the order of the view axis of Outputs."""
    needs: ClassVar[AbstractSet[str]] = frozenset()
    """What must be at hand before the first step; words of NEEDS."""
    coupled: ClassVar[bool] = False
    """Whether the loss is more than the mean over cells of the first view, so that it needs the whole batch at once."""
    closed_form: ClassVar[bool] = False
    """Whether its linear head on cached features is fitted in closed form, without rate or epochs: that of the stage
    beliefs or, where ``labels`` are not single, of ridge regression on these."""
    carries: ClassVar[tuple[str, ...]] = ()
    """Names in the state dict that cross from linear_init to the stage that continues it."""

    clock: Tensor

    def __init__(self, settings: Any, problem: Problem):
        super().__init__()
        self.settings = settings
        self.problem = problem
        self.register_buffer("clock", torch.zeros(2, dtype=torch.int64))

    @property
    def epoch(self) -> int:
        """Current epoch, from 1; 0 before training."""
        return int(self.clock[0])

    @property
    def epochs(self) -> int:
        """Epochs of the stage; 0 before training."""
        return int(self.clock[1])

    @property
    def expected_positives(self) -> float:
        """Labels per image, as `Problem` has them.

        Raises:
            ConfigError: Nobody gave them for this dataset.
        """
        if self.problem.expected_positives is None:
            name = type(self).__module__.rpartition(".")[2]
            raise ConfigError(f"expected_positives: has no entry for this dataset, and `{name}` needs it")
        return self.problem.expected_positives

    @property
    def beliefs(self) -> Tensor:
        """(N, C) chance that each training cell is present, as `Problem` has them.

        Raises:
            ConfigError: Nobody gave them.
        """
        if self.problem.beliefs is None:
            raise ConfigError(f"`{type(self).__module__.rpartition('.')[2]}` needs the outputs of the stage beliefs")
        return self.problem.beliefs

    @abstractmethod
    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Answer for the cells of a batch; pure, so that audits and plots can ask too.

        Args:
            logits: (B, C) logits in float32 or float64.
            observed: (B, C) int8 labels: 1 present, 0 unknown, -1 absent.
            index: (B,) int64 rows of the training split.

        Returns:
            Belief, weight and the three losses, each broadcastable to (B, C).
        """

    def forward(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Return the terms of the loss: here the mean of the cell risk over all B*C cells of the first view.

        Args:
            outputs: What the network answered, in float32 or float64.
            observed: (B, C) int8 labels, B at least 1.
            index: (B,) int64 rows of the training split.

        Returns:
            Named scalars; the loss is their sum.
        """
        return {"risk": cell_risk(self.cells(outputs.logits[0], observed, index), observed).mean()}

    def __call__(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Run `forward` outside autocast on promoted outputs.

        Args:
            outputs: What the network answered, in any precision.
            observed: (B, C) int8 labels.
            index: (B,) int64 rows of the training split.

        Returns:
            The terms of `forward`.
        """
        given = {field.name: getattr(outputs, field.name) for field in fields(outputs)}
        promoted = {
            name: tuple(map(in_float32, value)) if isinstance(value, tuple) else in_float32(value)
            for name, value in given.items()
            if value is not None
        }
        with torch.autocast(outputs.logits.device.type, enabled=False):
            return super().__call__(replace(outputs, **promoted), observed, index)

    def begin_training(self, observed: Tensor) -> None:
        """Look at the labels of the whole training split, once, before anything is inherited or resumed.

        Args:
            observed: (N, C) int8 labels of the training split.
        """

    def open_disk(self, folder: Path) -> None:
        """Take a folder for state too large for memory; called before the first step where ``needs`` has disk.

        Args:
            folder: An existing folder of the run's own: empty, or as the interrupted run left it.

        Raises:
            ConfigError: The disk has too little room.
        """

    def flush(self) -> None:
        """Write through what lies on disk, after an epoch and before its checkpoint, which counts on it."""

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Take note of the time, before the first step of an epoch; an override calls this one too.

        Args:
            epoch: Epoch, from 1.
            epochs: Epochs of the stage. Schedules are fractions of it and are derived anew here, so that a resumed run
                cannot drift.
        """
        self.clock.copy_(torch.tensor([epoch, epochs]))

    def end_epoch(self, logits: Tensor, observed: Tensor) -> None:
        """Look at the whole training split after an epoch's last step; called where ``needs`` has epoch_logits.

        An override calls this one first, which refuses what is no answer for the split.

        Args:
            logits: (N, C) eval-mode logits of the training images, in row order, finite.
            observed: (N, C) int8 labels of the training split, the same at every call.

        Raises:
            ValueError: Another shape than (N, C), or a logit that is not finite.
        """
        split = (self.problem.n, len(self.problem.classes))
        for name, given in (("logits", logits), ("observed", observed)):
            if tuple(given.shape) != split:
                raise ValueError(f"end_epoch: {name} {tuple(given.shape)}, the split is {split}")
        if not torch.isfinite(logits).all():
            raise ValueError("end_epoch: a logit is not finite")

    def pseudo_labels(self, logits: Tensor, observed: Tensor, index: Tensor) -> Tensor | None:
        """Tell which unknown cells the method labels, as of now.

        Args:
            logits: (B, C) logits.
            observed: (B, C) int8 labels.
            index: (B,) int64 rows of the training split.

        Returns:
            (B, C) int8: 1 present, -1 absent, 0 none and on every known cell; None where the method labels nothing.
        """
        return None

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Name the method's own parameters for the optimiser.

        Args:
            lr: Base learning rate of the stage.

        Returns:
            Optimiser groups; empty where the method has no parameter.
        """
        parameters = list(self.parameters())
        return [{"params": parameters, "lr": lr}] if parameters else []

    def inherit(self, state: dict[str, Tensor]) -> None:
        """Take over what ``carries`` names from an earlier stage.

        Args:
            state: State dict of the same method, as that stage left it.

        Raises:
            ConfigError: An entry is missing or has another shape.
        """
        own = self.state_dict()
        for name in self.carries:
            if name not in state or state[name].shape != own[name].shape:
                found = tuple(state[name].shape) if name in state else "nothing"
                raise ConfigError(f"{type(self).__name__}.{name}: needs shape {tuple(own[name].shape)}, found {found}")
            own[name].copy_(state[name])


def names() -> list[str]:
    """List the methods.

    Returns:
        Module names in this folder, sorted.
    """
    return sorted(path.stem for path in Path(__file__).parents[1].glob("*.py") if path.stem != "__init__")


def load(name: str) -> type[Method]:
    """Find a method by its module's name.

    Args:
        name: Module name, e.g. ``em_apl``.

    Returns:
        The class that the module calls METHOD.

    Raises:
        ConfigError: There is no such method, or its module is not complete.
    """
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or name not in names():
        raise ConfigError(f"unknown method: no file pipeline/methods/{name}.py; there are {', '.join(names())}")
    method = getattr(import_module(f"pipeline.methods.{name}"), "METHOD", None)
    if method is None:
        raise ConfigError(f"pipeline/methods/{name}.py: no `METHOD = <the class>` at its end")
    if not issubclass(getattr(method, "Settings", object), Strict):
        raise ConfigError(f"pipeline/methods/{name}.py: the class has no `Settings = Settings`, its schema")
    return method


def build(name: str, settings: dict[str, Any], problem: Problem) -> Method:
    """Make a method from its settings.

    Args:
        name: Module name.
        settings: ``params/methods/<name>.yaml`` as it holds for the dataset.
        problem: What may be known before training.

    Returns:
        The method, ready to train.

    Raises:
        ConfigError: Unknown method, settings that its schema refuses, or a label density that it needs and nobody gave.
    """
    method = load(name)
    try:
        checked = method.Settings.model_validate(settings)
    except ValidationError as error:
        lines = [f"params/methods/{name}.yaml: {line}" for line in explain(error, "").splitlines()]
        raise ConfigError("\n".join(lines)) from error
    made = method(checked, problem)
    if "expected_positives" in method.needs:
        _ = made.expected_positives  # raises where nobody gave it, though the method may read it later only
    return made


def check_needs(name: str, method: Method | type[Method], available: Iterable[str]) -> None:
    """Refuse a run that cannot give a method what it reads, before the first step.

    Args:
        name: The method's name, for the message.
        method: The method.
        available: Words of NEEDS that the stage, its network and its views give.

    Raises:
        ConfigError: A need is unmet.
    """
    missing = sorted(set(method.needs) - set(available) - {"expected_positives", "beliefs"})
    if missing:
        raise ConfigError(f"{name}: needs {', '.join(missing)}, which this stage and its network do not give")
