"""Which run is the best of a project, by a score that all of its runs have of the same images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core import files, hdf5, manifest
from pipeline.core.errors import FileError
from pipeline.core.faults import pluralize

TRUE, SHOWN = "val mAP by full labels", "val score by shown labels"
"""By what runs are compared: where validation is labelled in full, and where it is not."""
LABELS = {"all": "all labels", "negatives": "the true negatives"}
"""What methods are given that see more than the labels that are shown."""


@dataclass(frozen=True)
class Choice:
    """The run that is taken."""

    name: str
    """Stage and run."""
    reasons: tuple[str, ...]
    """Lines that say what was taken, and why."""


def choose_run(root: Path, names: Sequence[str]) -> Choice:
    """Return the best of some runs of one dataset.

    Args:
        root: Project root.
        names: ``<stage>/<run>`` of each that params.yaml asks for.

    Returns:
        The run with the highest validation mAP where validation is labelled in full, else the one that ranks shown
        validation labels best; of equal ones the first.

    Raises:
        FileError: None of them was run, or one is damaged; or they cannot be compared.
    """
    metrics = {name: read_text(root / "runs" / name, "metrics.json") for name in names if _is_there(root, name)}
    if not metrics:
        raise FileError("runs: none of the runs of params.yaml lies there; `make repro` makes them")
    measure = TRUE if all(each["labels"]["val"] == "clean" for each in metrics.values()) else SHOWN
    scores = {name: _score(each, measure) for name, each in metrics.items()}
    known = {name: score for name, score in scores.items() if score is not None}
    if not known:
        raise FileError(f"runs: none has a score to choose by ({measure}); name one: spml model {next(iter(metrics))}")
    ranked = sorted(known, key=lambda name: -known[name])
    best = ranked[0]
    left = len(names) - len(known)
    among = f"the best of {pluralize(len(known), 'run')}" + f"; {left} not run or without a score" * bool(left)
    reasons = [f"{best}: {measure} {known[best]:.2f}, {among}"]
    if seen := LABELS.get(_labels_of(root, best)):
        rival = next((name for name in ranked if _labels_of(root, name) not in LABELS), None)
        other = f"; of those that were not, {rival} is the best, with {known[rival]:.2f}" if rival else ""
        reasons.append(f"it was trained on {seen}, also those that the label draw hides{other}")
    return Choice(best, tuple(reasons))


def read_text(folder: Path, name: str) -> Any:
    """Return a JSON file of a run, once it was compared with the run's manifest.

    Args:
        folder: Folder of the run.
        name: Name of the file.

    Raises:
        FileError: It is absent, damaged, or not what its stage wrote.
    """  # noqa: DOC502  raised by `manifest`
    manifest.raise_if_changed(folder / name, manifest.check_folder(folder))
    return files.read_json(folder / name)


def _is_there(root: Path, name: str) -> bool:
    return (root / "runs" / name / "metrics.json").is_file()


def _score(metrics: dict[str, Any], measure: str) -> float | None:
    if measure == TRUE:
        return metrics["val"]["map"]
    return metrics["shown_labels"].get("val")  # absent in runs of earlier versions


def _labels_of(root: Path, name: str) -> str:
    """Return which labels the method of a run was given."""
    with hdf5.read(root / "runs" / name / "labels.h5") as file:
        return str(file.attrs["labels"])
