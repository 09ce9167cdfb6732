"""``spml train FOLDER``: from a folder of pictures to a report and a model: init, profile, check, repro, model.

Each step is a verb of its own. A profile that is there is kept, with what was edited in it, and DVC runs what is stale:
the same command goes on where it stopped.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

from pipeline.bundles.layout import require_onnx
from pipeline.cli import check, init, model, profile
from pipeline.cli.repro import LOG, repro
from pipeline.cli.verbs import Verbs, align
from pipeline.cli.worth import describe_worth
from pipeline.config import rules
from pipeline.core.errors import ConfigError
from pipeline.core.faults import pluralize
from pipeline.core.yaml import parse_yaml
from pipeline.labels.table import read_splits

PROJECT = ("dvc.yaml", "params.yaml", ".dvc")
"""What only the project's folder holds together."""


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser(
        "train",
        help="from a folder of your own images to a report and a model, in one command",
        description="Write a profile for a folder of images (init), put it in force (profile), check all settings and "
        "lists (check), run what is stale (dvc repro) and bundle the best run (model). After a stop, or an edit of "
        f"profiles/NAME.yaml, the same command goes on from there. All that the stages say goes to {LOG}.",
    )
    init.add_options(parser)
    model.add_onnx(parser)
    parser.add_argument("--verbose", action="store_true", help="show all that DVC and the stages say, as they say it")
    return parser


def run(options: argparse.Namespace) -> Iterator[str]:
    """Run all steps in the project in the current folder.

    Args:
        options: What the parser read; those of `spml init` among them.

    Yields:
        A line before each step, what the step says, and at the end where report and model lie, how good that is, and
        what to do next.

    Raises:
        ConfigError: This is no project, the folder is not understood, or ``--onnx`` wants what is not installed.
        Failed: A step found faults, or a stage stopped.
    """  # noqa: DOC502  some raised by the steps
    require_project(Path())
    if options.onnx:
        require_onnx()  # told before hours of training
    began = time.monotonic()
    name = init.name_dataset(options.folder, options.name)
    file = Path("profiles") / f"{name}.yaml"
    if file.exists():
        require_same_folder(file, name, init.find_folder(options.folder).resolve())
        yield f"[1/5] init: {file} is there and stays as it is; delete it to have it written anew"
    else:
        init.find_folder(options.folder)  # a name that is mistyped is told before anything
        yield f"[1/5] init: write {file}"
        yield from (line for line in init.run(options) if not line.startswith("next: "))
    yield f"[2/5] profile: put {name} in force"
    yield from profile.run(argparse.Namespace(name=name, root=None, force=False))
    yield "[3/5] check: settings, graph and lists of the data"
    yield from _check(name, options.verbose)
    yield f"[4/5] repro: run what is stale, from pictures to report; {LOG} has all that is said"
    yield from repro(options.verbose)
    yield "[5/5] model: bundle the best run"
    bundled = model.bundle(Path(), None, model.MODELS / name, options.onnx)
    yield from bundled.lines
    yield ""
    score, *more = describe_worth(Path(), bundled.name)
    told = [("report:", Path("report/index.html").resolve()), ("model:", bundled.folder.resolve()), ("score:", score)]
    told += [("", line) for line in more]
    told += [("next:", bundled.command), ("", f"spml review {name}   # asks about the labels that teach most")]
    yield from align(told)
    yield f"{time.monotonic() - began:,.0f} s"


def _check(name: str, verbose: bool) -> Iterator[str]:
    """Check the project; where raw data of the dataset changed and nothing else is wrong, pack them again first.

    DVC does not see them, since a folder of pictures is no output of a stage.
    """
    options = argparse.Namespace(remove_leftovers=False, yes=False)
    problems, leftovers = check.find_problems(Path())
    changed = rules.raw_data_changed(name, "then", "now")
    if problems == changed:
        yield f"pictures or labels of {name} are no longer those that were packed; they are packed again"
        splits = Path("data") / "prepare" / name / "splits.h5"
        before = read_splits(splits) if splits.exists() else {}
        yield from repro(verbose, forced=f"prepare@{name}")
        yield from _compare_splits(before, read_splits(splits) if splits.exists() else {})
        problems, leftovers = check.find_problems(Path())
    yield from check.tell(problems, leftovers, options)


def _compare_splits(before: dict[str, int], after: dict[str, int]) -> Iterator[str]:
    """Yield a line where images that stayed are in another split than before: drawn splits depend on all images."""
    stayed = before.keys() & after.keys()
    if moved := sum(before[path] != after[path] for path in stayed):
        yield (
            f"note: splits were drawn anew, and {moved} of {pluralize(len(stayed), 'image')} changed theirs: scores do "
            "not compare with those before; splits that the data name stay (docs/own-images.md)"
        )


def require_project(root: Path) -> None:
    """Require the project's folder, in which DVC keeps what it makes.

    Args:
        root: The current folder.

    Raises:
        ConfigError: It is another one.
    """
    if lacking := [name for name in PROJECT if not (root / name).exists()]:
        raise ConfigError(
            f"no {lacking[0]} here: `spml train` runs the pipeline of the project's folder; clone the project, go "
            "there (cd), and name the pictures by their path"
        )


def require_same_folder(file: Path, name: str, folder: Path) -> None:
    """Require that a profile reads a folder.

    Args:
        file: The profile.
        name: Name of the dataset and the profile.
        folder: Folder of the images.

    Raises:
        ConfigError: It reads another one, or is no profile of such a dataset.
    """
    try:
        content = parse_yaml(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not YAML 1.2: {error}") from error
    prepare = content.get("prepare") if isinstance(content, dict) else None
    block = prepare.get(name) if isinstance(prepare, dict) else None
    root = block.get("root") if isinstance(block, dict) else None
    if not isinstance(root, str) or Path(root).expanduser().resolve() != folder:
        raise ConfigError(f"{file} is there and reads {root or 'no folder'}, not {folder}: give another name by --name")
