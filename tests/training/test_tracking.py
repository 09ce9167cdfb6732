"""Each tracker by a module in its place that has the public functions alone; TensorBoard itself where it is there."""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pipeline.config.preflight import check_environment
from pipeline.core.errors import ConfigError
from pipeline.core.files import read_json, read_tsv
from pipeline.training import tracking
from stages.linear_init import linear_init
from tests.training.test_run import Project

KEY = "digits-em_apl-0-0"
SEARCH = {"values": [0.01, 0.1], "epochs": None, "extend": 0}
Calls = list[tuple[Any, ...]]


@pytest.fixture
def project(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.delenv("SPML_TRACK", raising=False)
    return Project(tmp_path, repository)


def install(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> None:
    """Put a module with these functions in the place of a package."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def tensorboard(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls: Calls = []

    class SummaryWriter:
        def __init__(self, log_dir: str, purge_step: int) -> None:
            calls.append(("open", log_dir))

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            calls.append((tag, value, step))

        def close(self) -> None:
            calls.append(("close",))

    install(monkeypatch, "tensorboard")
    install(monkeypatch, "torch.utils.tensorboard", SummaryWriter=SummaryWriter)
    return calls


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls: Calls = []
    install(
        monkeypatch,
        "mlflow",
        set_tracking_uri=lambda place: calls.append(("place", place)),
        set_experiment=lambda name: calls.append(("experiment", name)),
        start_run=lambda run_name: calls.append(("open", run_name)),
        log_params=lambda values: calls.append(("params", values)),
        log_metrics=lambda values, step=None: calls.extend((key, value, step) for key, value in values.items()),
        end_run=lambda status: calls.append(("close", status)),
    )
    return calls


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls: Calls = []

    def init(project: str, name: str, config: dict[str, Any], dir: str) -> SimpleNamespace:
        calls.append(("open", project, name, config, dir))
        return SimpleNamespace(
            define_metric=lambda name, step_metric: calls.append(("axis", name, step_metric)),
            log=lambda values: calls.append(("log", values)),
            summary=SimpleNamespace(update=lambda values: calls.append(("summary", values))),
            finish=lambda exit_code: calls.append(("close", exit_code)),
        )

    install(monkeypatch, "wandb", init=init)
    return calls


def train(project: Project, **changes: Any) -> list[dict[str, Any]]:
    """Train a run, and return the numbers of its epochs as they were stored."""
    project.set("linear_init", epochs=3, **changes)
    linear_init(project.root, "digits", "em_apl", 0, 0)
    return read_tsv(project.folder("linear_init", KEY) / "epochs.tsv")


def curve(calls: Calls, tag: str) -> list[tuple[int, float]]:
    return [(step, value) for name, value, step in (call for call in calls if len(call) == 3) if name == tag]


def stored(rows: list[dict[str, Any]], key: str) -> list[tuple[int, Any]]:
    return [(int(row["epoch"]), pytest.approx(float(row[key]))) for row in rows]


# ---------------------------------------------------------------------------------------------- what each is sent
def test_tensorboard_gets_curves_and_final_figures(project, tensorboard, monkeypatch) -> None:
    monkeypatch.setenv("SPML_TRACK", "tensorboard:logs")
    rows = train(project)
    assert tensorboard[0] == ("open", str(project.root / "logs/linear_init" / KEY)) and tensorboard[-1] == ("close",)
    for key in ("loss", "risk", "learning_rate"):
        assert curve(tensorboard, key) == stored(rows, key)
    assert curve(tensorboard, "val_mAP") == stored(rows, "val_score") and curve(tensorboard, "score") == []
    figures = read_json(project.folder("linear_init", KEY) / "metrics.json")
    assert curve(tensorboard, "final/test/map") == [(0, figures["test"]["map"])]


def test_figures_by_given_labels_are_called_so(project, tensorboard, monkeypatch) -> None:
    monkeypatch.setenv("SPML_TRACK", "tensorboard:logs")
    project.write_table(exhaustive=False, scored=project.table.truth == 1)
    rows = train(project, select="last")
    assert curve(tensorboard, "val_mAP_by_given_labels") == stored(rows, "val_score")
    figures = read_json(project.folder("linear_init", KEY) / "metrics.json")
    assert curve(tensorboard, "final/test_by_given_labels/map") == [(0, figures["test"]["map"])]
    assert curve(tensorboard, "final/test/map") == [] == curve(tensorboard, "val_mAP")


def test_mlflow_gets_them_too(project, mlflow, monkeypatch) -> None:
    monkeypatch.setenv("SPML_TRACK", "mlflow:sqlite:///here.db")
    rows = train(project)
    assert mlflow[:3] == [("place", "sqlite:///here.db"), ("experiment", "spml"), ("open", f"linear_init {KEY}")]
    assert mlflow[3][1] == {
        **{"stage": "linear_init", "key": KEY, "dataset": "digits"},
        **{"method": "em_apl", "draw": 0, "seed": 0},
    }
    assert curve(mlflow, "loss") == stored(rows, "loss") and mlflow[-1] == ("close", "FINISHED")
    assert [value for name, value, *_ in mlflow if name == "final/test/map"]


def test_wandb_gets_them_too(project, wandb, monkeypatch) -> None:
    monkeypatch.setenv("SPML_TRACK", "wandb")
    rows = train(project)
    assert wandb[0][:3] == ("open", "spml", f"linear_init {KEY}") and Path(wandb[0][4]).is_dir()
    logged = [values for kind, values in (call for call in wandb if len(call) == 2) if kind == "log"]
    assert [(values["epoch"], values["loss"]) for values in logged] == stored(rows, "loss")
    assert wandb[1] == ("axis", "*", "epoch") and wandb[-1] == ("close", 0)


def test_each_rate_of_a_search_has_curves_of_its_own(project, tensorboard, monkeypatch) -> None:
    monkeypatch.setenv("SPML_TRACK", "tensorboard")
    train(project, learning_rate="grid", search=SEARCH)
    assert tensorboard[0] == ("open", str(project.root / ".pipeline/tracking/tensorboard/linear_init" / KEY))
    for rate in ("0.01", "0.1"):
        assert [step for step, _ in curve(tensorboard, f"lr {rate}/loss")] == [1, 2, 3]
    assert not curve(tensorboard, "loss")


def test_a_run_that_goes_on_sends_what_went_before_too(project, tensorboard, monkeypatch) -> None:
    monkeypatch.setenv("SPML_TRACK", "tensorboard")
    fit = tracking.Tracker.finish
    monkeypatch.setattr(tracking.Tracker, "finish", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    monkeypatch.setattr("pipeline.training.trials.Trials.delete_resume_points", lambda self: None)
    with pytest.raises(KeyboardInterrupt):
        train(project)
    assert tensorboard[-1] == ("close",)
    tensorboard.clear()
    monkeypatch.setattr(tracking.Tracker, "finish", fit)
    rows = train(project)  # its resume point holds all epochs
    assert curve(tensorboard, "loss") == stored(rows, "loss")


# ---------------------------------------------------------------------------------------------- nothing depends on it
def test_outputs_are_the_same_with_it_and_without(project, tensorboard, monkeypatch) -> None:
    train(project)
    without = project.bytes("linear_init", KEY)
    assert tensorboard == []
    monkeypatch.setenv("SPML_TRACK", "tensorboard")
    train(project)
    assert tensorboard and project.bytes("linear_init", KEY) == without


def test_a_tracker_that_fails_is_given_up_and_the_run_goes_on(project, mlflow, monkeypatch, capsys) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("server\nis gone")

    monkeypatch.setattr(sys.modules["mlflow"], "log_metrics", fail)
    monkeypatch.setenv("SPML_TRACK", "mlflow")
    assert len(train(project)) == 3
    told = [line for line in capsys.readouterr().err.splitlines() if "SPML_TRACK" in line]
    assert told == ["SPML_TRACK: given up (server is gone); training goes on"]


def test_what_cannot_begin_is_told_before_anything_trains(project, mlflow, monkeypatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no such server")

    monkeypatch.setattr(sys.modules["mlflow"], "start_run", fail)
    monkeypatch.setenv("SPML_TRACK", "mlflow:http://nowhere")
    with pytest.raises(ConfigError, match=r"^SPML_TRACK: mlflow cannot begin a run \(no such server\)$"):
        train(project)
    assert not project.folder("linear_init", KEY).exists()


@pytest.mark.parametrize(
    "value, message",
    [
        ("comet", "SPML_TRACK: tensorboard, mlflow, wandb, or one of them and :PLACE (given: 'comet')"),
        ("wandb", "SPML_TRACK: the package wandb is not installed: pip install wandb"),
        ("mlflow:x", "SPML_TRACK: the package mlflow is not installed: pip install mlflow"),
    ],
)
def test_what_is_absent_is_named_by_the_preflight_with_its_command(value, message, monkeypatch) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    monkeypatch.setenv("SPML_TRACK", value)
    assert check_environment() == [message]
    monkeypatch.setenv("SPML_TRACK", "")
    assert check_environment() == []


def test_numbers_are_found_by_their_paths_and_nothing_else() -> None:
    row = {"epoch": 3, "loss": 1, "weights": "raw", "best": True, "score": None, "val": {"map": 2.5, "epoch": 4}}
    assert tracking.flatten(row) == {"loss": 1.0, "val/map": 2.5, "val/epoch": 4.0}


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_reads_what_was_written(project, monkeypatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import (  # pyright: ignore[reportMissingImports]
        EventAccumulator,
    )

    monkeypatch.setenv("SPML_TRACK", "tensorboard:logs")
    for _ in range(2):  # a run that is repeated is there once
        rows = train(project)
    events = EventAccumulator(str(project.root / "logs/linear_init" / KEY)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [
        (int(row["epoch"]), pytest.approx(float(row["loss"]), rel=1e-6)) for row in rows
    ]
    assert events.Scalars("final/test/map")
