"""``spml model``: bundle a run into a folder that predicts without this project."""

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from pipeline.cli.verbs import Verbs
from pipeline.config.params import PARAMS, TRAINING_STAGES, Params, read_params
from pipeline.core.errors import ConfigError

MODELS = Path("models")
"""Where bundles go that nobody names a folder for; Git ignores it."""


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser(
        "model",
        help="bundle a run: weights, classes, preprocessing, thresholds, scores, card",
        description="Bundle a run into a folder from which `spml predict` labels pictures anywhere: weights, class "
        "names, preprocessing, thresholds, scores, provenance and a card; with --onnx also without this package.",
    )
    parser.add_argument(
        "run_name",
        metavar="RUN",
        nargs="?",
        help="as in finetune/digits-em-0-0; by default the run of params.yaml with the highest validation mAP, or "
        "where validation is not labelled in full, the one that ranks its shown labels best",
    )
    parser.add_argument("--to", metavar="FOLDER", type=Path, help="default: models/<stage>-<run>")
    add_onnx(parser)
    return parser


def add_onnx(parser: argparse.ArgumentParser) -> None:
    """Add to a parser the option that asks for ONNX."""
    parser.add_argument("--onnx", action="store_true", help="write model.onnx too, and compare it with torch")


def run(options: argparse.Namespace) -> Iterator[str]:
    """Bundle a run.

    Args:
        options: What the parser read.

    Yields:
        Which run was taken and why, and what was written.
    """
    bundled = bundle(Path(), options.run_name, options.to, options.onnx)
    yield from bundled.lines
    yield f"next: {bundled.command}"


@dataclass(frozen=True)
class Bundled:
    """A run that was bundled."""

    name: str
    """Stage and run."""
    folder: Path
    lines: tuple[str, ...]
    """Why it was taken, and what was written."""

    @property
    def command(self) -> str:
        """How it labels pictures."""
        return f"spml predict {shlex.quote(str(self.folder))} IMAGES --to scores.csv"


def bundle(root: Path, run_name: str | None, folder: Path | None, onnx: bool) -> Bundled:
    """Bundle a run.

    Args:
        root: Project root.
        run_name: What somebody wrote for it; None: the best.
        folder: Where; None: in `MODELS`, under its name.
        onnx: Whether ``model.onnx`` is asked for.

    Returns:
        What was bundled.
    """
    from pipeline.bundles.choose import choose_run  # both load torch
    from pipeline.bundles.write import write_bundle

    if run_name is None:
        choice = choose_run(root, list_runs(read_params(root / PARAMS)))
        name, reasons = choice.name, choice.reasons
    else:
        name, reasons = name_run(run_name), ()
    folder = folder or MODELS / name.replace("/", "-")
    return Bundled(name, folder, (*reasons, *write_bundle(root, name, folder, onnx)))


def name_run(text: str) -> str:
    """Return ``<stage>/<run>`` of what somebody wrote for a run.

    Args:
        text: That, or a path of the run's folder.

    Raises:
        ConfigError: It names none.
    """
    stage, _, key = text.removesuffix("/").removeprefix("./").removeprefix("runs/").partition("/")
    if stage not in TRAINING_STAGES or key.count("-") < 3 or "/" in key or "." in key:
        raise ConfigError(f"{text}: names no run; as in finetune/digits-em-0-0, of {', '.join(TRAINING_STAGES)}")
    return f"{stage}/{key}"


def list_runs(params: Params) -> list[str]:
    """Return ``<stage>/<run>`` of each run that params.yaml asks for.

    Args:
        params: The checked parameters.

    Raises:
        ConfigError: They are of several datasets, whose scores do not compare.
    """
    grid = params.grid
    if len(grid.datasets) > 1:
        raise ConfigError(f"grid.datasets: runs of {', '.join(grid.datasets)} do not compare; name one: spml model RUN")
    return [
        f"{stage}/{key}"
        for stage in TRAINING_STAGES
        for draw, seed in product(grid.draws, grid.seeds)
        for key, _, _ in params.keys(stage, grid.datasets[0], draw, seed)
    ]
