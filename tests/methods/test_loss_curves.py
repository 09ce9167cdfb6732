"""The first 20 losses of a tiny run of every method, equal to those stored in tests/losses.

Exactly on the platform that a file names, to 1e-6 elsewhere. ``python -m tests.methods.test_loss_curves --write`` adds
what is missing. It refuses a curve that changed, unless an entry of CHANGELOG.md's first section holds the words "loss
curve" and the method's name in backticks.
"""

import argparse
import contextlib
import io
import json
import math
import platform
import re
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pipeline.core.resume import Checkpoint
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import Problem
from pipeline.networks.network import Network
from pipeline.training.inputs import ImageInputs, Inputs
from pipeline.training.loop import Data, Trainer
from tests import tiny
from tests.methods.cases import ROOT, method_cases

FOLDER = ROOT / "tests" / "losses"
PLATFORM = f"python {platform.python_version()}, torch {torch.__version__}, {platform.machine()}" + (
    f" {torch.backends.cpu.get_cpu_capability()}"
)
N, BATCH, EPOCHS = 18, 4, 4  # five steps an epoch, the last of two images
ELSEWHERE = 1e-6
"""Relative difference that another platform may make."""
AUGMENTED = "augmented images"
"""Path of which only this platform's losses are compared: 8-bit views differ by more between machines."""
_TRANSFORMER = {name: value for name, value in tiny.EMBEDDING.items() if name not in ("kind", "embedding")}
HEADS = (tiny.LINEAR, tiny.EMBEDDING, {"kind": "bottleneck", "latent": 4, "samples": 2, **_TRANSFORMER})
Curves = dict[str, list[str]]
"""Losses as `repr` gives them, by path, labels and settings."""


# ---------------------------------------------------------------------------------------------- the runs
def labels(kind: str) -> Tensor:
    """(N, C) int8: one positive a row; all labels; one positive and the true negatives; or labels of every kind."""
    single = tiny.observed(N)
    drawn = torch.from_numpy(np.random.default_rng(1).random((N, tiny.C)))
    truth = torch.where(drawn < 0.4, 1, single)
    mixed = (drawn < 0.4).to(torch.int8) - (drawn > 0.8).to(torch.int8)
    return {"single": single, "all": 2 * truth - 1, "negatives": torch.where(truth == 0, -1, single), "mixed": mixed}[
        kind
    ].to(torch.int8)


def beliefs() -> Tensor:
    """(N, C) chances."""
    return torch.from_numpy(np.random.default_rng(2).random((N, tiny.C)).astype(np.float32))


def needs_of_network(method: type[base.Method]) -> set[str]:
    return set(method.needs) - {"epoch_logits", "expected_positives", "beliefs", "disk"}


def runs_on_features(method: type[base.Method]) -> bool:
    return method.views == ("weak",) and needs_of_network(method) <= tiny.network().provides()


def image_network(method: type[base.Method]) -> Network:
    """The network of the first head that gives the method what it reads."""
    networks = (tiny.network(head, on_images=True) for head in HEADS)
    return next(network for network in networks if needs_of_network(method) - {"geometry"} <= network.provides())


class IndexedImages:
    """Images in double precision whose views are cut by index alone, so that they are the same on every machine.

    What the product resamples and recolours is 8-bit, and rounds by machine. The strong view swaps the colours.
    """

    provides = frozenset({"geometry"})

    def __init__(self, inputs: ImageInputs) -> None:
        self.inputs, self.geometry = inputs, inputs.geometry

    def __len__(self) -> int:
        return len(self.inputs)

    def plain(self, index: np.ndarray) -> Tensor:
        return self.inputs.plain(index).double()

    def views(self, index: np.ndarray, names: tuple[str, ...], seed: int, epoch: int) -> Tensor:
        grid, cut = (torch.arange(tiny.SIDE) + 0.5) / tiny.SIDE, []
        for name, places in zip(names, self.geometry(index, names, seed, epoch), strict=True):
            for image, (left, top, right, bottom, mirrored) in zip(self.plain(index), places, strict=True):
                rows, columns = (
                    ((first + grid * (last - first)) * tiny.SIDE).long()
                    for first, last in ((top, bottom), (left, right))
                )
                view = image[:, rows][:, :, columns.flip(0) if mirrored else columns]
                cut.append(view[[2, 0, 1]] if name == "strong" else view)
        return torch.stack(cut)


def inputs_of(path: str, n: int, seed: int = 0) -> Inputs:
    if path == "features":
        return tiny.features(n, seed)
    images = tiny.images(n, seed, flip=True, crop=0.5, strong=tiny.strong())
    return IndexedImages(images) if path == "images" else images


@torch.no_grad()
def start_everywhere_alike(module: nn.Module) -> None:
    """Round the drawn weights, of which the last bit differs between machines; training would widen the difference."""
    for weights in module.parameters():
        weights.copy_((weights * 256).round() / 256)


def losses(path: str, kind: str, name: str, settings: dict[str, Any]) -> list[str]:
    """Train by the product's own loop and return the loss of each step."""
    observed, network = labels(kind), tiny.network() if path == "features" else image_network(base.load(name))
    counts, absences = (observed == 1).sum(0, dtype=torch.int64), int((observed == -1).sum())
    torch.manual_seed(2)
    width = network.architecture["width"]
    method = base.build(name, settings, Problem(N, ("a", "b", "c"), counts, 1.5, width, absences, beliefs()))
    for module in (network, method):
        start_everywhere_alike(module.double() if path == "images" else module)
    steps: list[str] = []
    method.register_forward_hook(
        lambda _, given, terms: steps.append(repr(float(torch.stack(list(terms.values())).sum().detach())))
    )
    data = Data(inputs_of(path, N), observed, inputs_of(path, 4, seed=9), lambda _: 0.0)
    plan = tiny.plan(
        tiny.training(batch_size=BATCH, epochs=EPOCHS, optimizer="adam", momentum=0.9), 0.01, seed=3, name=name
    )
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Checkpoint(Path(folder) / "run.pt") if "disk" in method.needs else None
        Trainer(network, method, data, plan, checkpoint).fit()
        if checkpoint:
            checkpoint.delete()
    return steps


@cache
def curves(name: str) -> Curves:
    """Every settings of the shared suite on features, or on images; the first ones also on other labels and inputs."""
    method = base.load(name)
    first, *others = [settings for known, settings in method_cases() if known == name]
    path, other = ("features", "images") if runs_on_features(method) else ("images", AUGMENTED)
    runs = [(path, method.labels, first), (path, "mixed", first), (other, method.labels, first)]
    runs += [(path, method.labels, settings) for settings in others]
    return {
        f"{path}, {kind}, {json.dumps(settings)}": losses(path, kind, name, settings) for path, kind, settings in runs
    }


# ---------------------------------------------------------------------------------------------- the files
def text_of(found: Curves) -> str:
    lines = [f"# {PLATFORM}"]
    for title, steps in found.items():
        width = len(steps) // EPOCHS
        lines += ["", title, *(" ".join(steps[at : at + width]) for at in range(0, len(steps), width))]
    return "\n".join(lines) + "\n"


def read(text: str) -> tuple[str, Curves]:
    """Platform and curves of a file."""
    header, *blocks = text.split("\n\n")
    parts = [block.strip().split("\n") for block in blocks]
    return header.removeprefix("# ").strip(), {title: " ".join(rows).split() for title, *rows in parts}


def near(title: str, old: str, new: str) -> bool:
    """Whether another platform may give this loss."""
    return title.startswith(AUGMENTED) or math.isclose(float(old), float(new), rel_tol=ELSEWHERE)


def changes(text: str, found: Curves) -> list[str]:
    """What differs from a file's curves, one line a curve; a curve that the file lacks is no difference."""
    where, stored = read(text)
    exact = where == PLATFORM
    lines = [f"{title}: no longer run" for title in stored.keys() - found.keys()]
    for title in stored.keys() & found.keys():
        assert len(found[title]) == len(stored[title]) == 20
        for step, (old, new) in enumerate(zip(stored[title], found[title], strict=True), 1):
            if old != new and (exact or not near(title, old, new)):
                lines.append(f"{title}: step {step}: {old} stored on {where}, {new} now")
                break
    return sorted(lines)


def is_announced(name: str, changelog: str) -> bool:
    """Whether an entry of the first section tells of the method's loss curve."""
    section = re.split(r"^## ", changelog, flags=re.MULTILINE)[1]
    entries = [" ".join(entry.split()) for entry in section.split("\n- ")[1:]]
    return any("loss curve" in entry and f"`{name}`" in entry for entry in entries)


def write(names: list[str], folder: Path, changelog: str) -> list[str]:
    """Write the files of some methods; return those that changed without a word in the changelog, left as they are."""
    refused = []
    for name in names:
        path, found = folder / f"{name}.txt", curves(name)
        changed = changes(path.read_text(encoding="utf-8"), found) if path.exists() else []
        if changed and not is_announced(name, changelog):
            refused += [f"{path.name}: {line}" for line in changed]
        else:
            path.write_text(text_of(found), encoding="utf-8")
    return refused


# ---------------------------------------------------------------------------------------------- the tests
def test_every_method_has_its_curves_and_nothing_else_does():
    assert {path.stem for path in FOLDER.iterdir()} == set(base.names())


@pytest.mark.parametrize("name", base.names())
def test_the_first_losses_are_the_stored_ones(name: str):
    path = FOLDER / f"{name}.txt"
    assert path.is_file(), f"no curve: python -m tests.methods.test_loss_curves --write {name}"
    text, found = path.read_text(encoding="utf-8"), curves(name)
    assert not (lines := changes(text, found)), "\n".join(lines)
    assert read(text)[1].keys() == found.keys(), "a curve is missing: --write"
    assert all(len(set(steps)) > 15 for steps in found.values()), "a loss that stands still shows nothing"


def moved(found: Curves, factor: float) -> Curves:
    """The curves with the last loss of the first one changed."""
    (title, steps), *rest = found.items()
    return dict([(title, [*steps[:-1], repr(float(steps[-1]) * factor)]), *rest])


def test_a_change_in_the_last_bit_is_seen_here_and_one_above_1e_6_elsewhere():
    text = (FOLDER / "an.txt").read_text(encoding="utf-8")
    found = read(text)[1]
    title = next(iter(found))
    here = text.replace(read(text)[0], PLATFORM)
    assert changes(here, found) == [] and changes(here, moved(found, 1 + 2e-7))[0].startswith(f"{title}: step 20: ")
    there = text.replace(read(text)[0], "another machine")
    assert changes(there, moved(found, 1 + 9e-7)) == [] and len(changes(there, moved(found, 1 + 1.1e-6))) == 1
    assert changes(here, dict(list(found.items())[1:])) == [f"{title}: no longer run"]


def test_a_changed_curve_is_written_only_if_the_changelog_tells_of_it(tmp_path: Path):
    stored = text_of(moved(curves("an"), 1.01))
    (tmp_path / "an.txt").write_text(stored, encoding="utf-8")
    told = "# Changelog\n\n## [Unreleased]\n- One.\n- New loss\n  curve of `an`: {}.\n\n## [0.1]\n- loss curve of `an`"
    for silent in (told.replace("of `an`: ", "of `en`: "), told.replace("New loss", "New"), "## [2]\n\n" + told):
        assert len(write(["an"], tmp_path, silent)) == 1
        assert (tmp_path / "an.txt").read_text(encoding="utf-8") == stored
    assert write(["an"], tmp_path, told) == []
    assert changes((tmp_path / "an.txt").read_text(encoding="utf-8"), curves("an")) == []


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", required=True, help="write tests/losses")
    parser.add_argument("methods", nargs="*", default=base.names(), help="methods; default: all")
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    wanted, changelog = parser.parse_args().methods, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()):  # the loop's line an epoch
        lines = write(wanted, FOLDER, changelog)
    if lines:
        sys.exit("\n".join([*lines, "CHANGELOG.md does not tell of these loss curves: left as they are"]))
