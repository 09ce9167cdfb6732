"""Curves and final figures of runs, sent to TensorBoard, MLflow or Weights & Biases where the environment asks for one.

``SPML_TRACK=tensorboard``, ``mlflow`` or ``wandb``, or with a place behind a colon, ``tensorboard:logs``. What is
stored of a run does not depend on it: nothing is read back, and where a tracker fails midway, training goes on.
Source: ours, by the public functions of the three packages.
"""

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from pipeline.core.errors import ConfigError
from pipeline.core.files import read_json
from pipeline.core.text import show_text
from pipeline.training.run import Run

VARIABLE = "SPML_TRACK"
FOLDER = Path(".pipeline") / "tracking"
"""Where logs lie that nobody names a place for: no output of a stage, and known neither to DVC nor to Git."""
PROJECT = "spml"
Record = Callable[[dict[str, Any]], None]
"""Takes the row of an epoch."""


class Backend(Protocol):
    """What a tracker needs of a package."""

    def log(self, prefix: str, values: dict[str, float], epoch: int) -> None:
        """Add an epoch's values to the curves whose names begin with the prefix."""
        ...

    def finish(self, values: dict[str, float]) -> None:
        """Add the final figures."""
        ...

    def close(self, failed: bool) -> None:
        """Write what is left, and end the run."""
        ...


class TensorBoard:
    """Event files in a folder a run: `tensorboard --logdir FOLDER` shows them."""

    def __init__(self, run: Run, place: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = (run.root / place if place else run.root / FOLDER / "tensorboard") / run.stage / run.key
        self._writer = SummaryWriter(str(folder), purge_step=0)  # of a run that is repeated the last counts

    def log(self, prefix: str, values: dict[str, float], epoch: int) -> None:
        """Add an epoch's values."""
        for key, value in values.items():
            self._writer.add_scalar(prefix + key, value, epoch)

    def finish(self, values: dict[str, float]) -> None:
        """Add the final figures."""
        for key, value in values.items():
            self._writer.add_scalar(f"final/{key}", value, 0)

    def close(self, failed: bool) -> None:
        """Write what is left."""
        self._writer.close()


class MLflow:
    """A run of the experiment `spml`; the place is an address of a server or a store."""

    def __init__(self, run: Run, place: str) -> None:
        import mlflow  # pyright: ignore[reportMissingImports]

        self._mlflow = mlflow
        if place:
            mlflow.set_tracking_uri(place)
        mlflow.set_experiment(PROJECT)
        mlflow.start_run(run_name=run.name)
        mlflow.log_params(_facts(run))

    def log(self, prefix: str, values: dict[str, float], epoch: int) -> None:
        """Add an epoch's values."""
        self._mlflow.log_metrics({prefix + key: value for key, value in values.items()}, step=epoch)

    def finish(self, values: dict[str, float]) -> None:
        """Add the final figures."""
        self._mlflow.log_metrics({f"final/{key}": value for key, value in values.items()})

    def close(self, failed: bool) -> None:
        """End the run."""
        self._mlflow.end_run(status="FAILED" if failed else "FINISHED")


class Wandb:
    """A run of a project of Weights & Biases; the place is the project's name."""

    def __init__(self, run: Run, place: str) -> None:
        import wandb  # pyright: ignore[reportMissingImports]

        folder = run.root / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(project=place or PROJECT, name=run.name, config=_facts(run), dir=str(folder))
        self._known: set[str] = set()

    def log(self, prefix: str, values: dict[str, float], epoch: int) -> None:
        """Add an epoch's values, drawn over the epochs of their own trial."""
        if prefix not in self._known:
            self._known.add(prefix)
            self._run.define_metric(f"{prefix}*", step_metric=f"{prefix}epoch")
        self._run.log({f"{prefix}{key}": value for key, value in values.items()} | {f"{prefix}epoch": epoch})

    def finish(self, values: dict[str, float]) -> None:
        """Add the final figures."""
        self._run.summary.update({f"final/{key}": value for key, value in values.items()})

    def close(self, failed: bool) -> None:
        """End the run."""
        self._run.finish(exit_code=int(failed))


BACKENDS = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": Wandb}
"""Name in the environment, which is that of the package too."""


class Tracker:
    """Sends what is known of one run, while it is open, to what the environment names; to nothing by default.

    Args:
        run: The run.

    Raises:
        ConfigError: As `check_tracking`, or the package cannot begin a run.
    """  # noqa: DOC502  the first from there

    def __init__(self, run: Run) -> None:
        self._run, self._backend = run, None
        if (named := check_tracking()) is None:
            return
        kind, place = named
        try:
            self._backend: Backend | None = BACKENDS[kind](run, place)
        except Exception as error:  # whatever the package raises
            raise ConfigError(f"{VARIABLE}: {kind} cannot begin a run ({_short(error)})") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._backend is not None:
            self._send(lambda backend: backend.close(kind is not None))

    def follow(self, trial: str) -> Record | None:
        """Return what takes the epochs of a trial; None where nobody asks.

        Args:
            trial: What tells it from the run's others; empty: it is the only one.
        """
        if self._backend is None:
            return None
        prefix = f"{trial}/" if trial else ""
        return lambda row: self._send(lambda backend: backend.log(prefix, flatten(row), row["epoch"]))

    def finish(self) -> None:
        """Add the figures of the run as they were stored."""
        if self._backend is not None:
            metrics = read_json(self._run.folder / "metrics.json")
            given = [split for split, labels in metrics["labels"].items() if labels == "given"]
            named = {f"{key}_by_given_labels" if key in given else key: value for key, value in metrics.items()}
            self._send(lambda backend: backend.finish(flatten(named)))

    def _send(self, use: Callable[[Backend], None]) -> None:
        """Use the backend, and give it up where it fails: a run must not end for want of its curves."""
        if self._backend is None:
            return
        try:
            use(self._backend)
        except Exception as error:  # whatever the package raises
            self._backend = None
            print(show_text(f"{VARIABLE}: given up ({_short(error)}); training goes on"), file=sys.stderr)


def check_tracking() -> tuple[str, str] | None:
    """Check what the environment asks for.

    Returns:
        The backend, and the place or nothing; None where nothing is asked for.

    Raises:
        ConfigError: It is none of the three, or its package is absent.
    """
    if not (value := os.environ.get(VARIABLE)):
        return None
    kind, _, place = value.partition(":")
    if kind not in BACKENDS:
        raise ConfigError(f"{VARIABLE}: {', '.join(BACKENDS)}, or one of them and :PLACE (given: {value!r})")
    if find_spec(kind) is None:
        raise ConfigError(f"{VARIABLE}: the package {kind} is not installed: pip install {kind}")
    return kind, place


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers of nested figures by their paths, without the epoch that a row is of."""
    found: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= flatten(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and prefix + key != "epoch":
            found[prefix + key] = float(value)
    return found


def _facts(run: Run) -> dict[str, Any]:
    """Return what a run is called by."""
    return {key: getattr(run, key) for key in ("stage", "key", "dataset", "method", "draw", "seed")}


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
