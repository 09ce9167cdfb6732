"""``spml model``: bundle a run into a folder that predicts without this project."""

import argparse
import shlex
from collections.abc import Iterator
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
    parser.add_argument("--onnx", action="store_true", help="write model.onnx too, and compare it with torch")
    return parser


def run(options: argparse.Namespace) -> Iterator[str]:
    """Bundle a run.

    Args:
        options: What the parser read.

    Yields:
        Which run was taken and why, and what was written.
    """
    from pipeline.bundles.choose import choose_run  # both load torch
    from pipeline.bundles.write import write_bundle

    if options.run_name is None:
        choice = choose_run(Path(), list_runs(read_params(Path(PARAMS))))
        name = choice.name
        yield from choice.reasons
    else:
        name = name_run(options.run_name)
    folder = options.to or MODELS / name.replace("/", "-")
    yield from write_bundle(Path(), name, folder, options.onnx)
    yield f"next: spml predict {shlex.quote(str(folder))} IMAGES --to scores.csv"


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
