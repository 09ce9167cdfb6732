"""A tiny project whose training stages seem to have run: what the analysis stages read, written by storage."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core import hdf5
from pipeline.labels.table import Table, write_table
from tests import copies

DATASET, SEED = "digits", 0
CLASSES = ("cat", "dog | wolf", "owl")
TRAIN, VAL, TEST = 20, 12, 4
EPOCHS, CHOSEN = 3, 2


def write_params(root: Path, repository: Path, **sections: Any) -> None:
    """Write the repository's params with other values in some sections; ``methods`` are all methods' files."""
    copies.write_params(root, {**shipped(repository), **sections})


@cache
def shipped(repository: Path) -> dict[str, Any]:
    """Return the content of the repository's params, all methods' files under ``methods``."""
    return copies.read_params(repository)


def grid(**stages: list[str]) -> dict[str, Any]:
    """Return a grid of one dataset and seed with some methods, none where a stage is not named."""
    names = {
        "linear_init": ["an"],
        "finetune": [],
        "end_to_end": [],
        "lac": [],
        "lac_start": "plc",
        "search": [],
        "landscape": [],
        "landscape_stage": "finetune",
    }
    return {"datasets": [DATASET], "draws": [0], "seeds": [SEED], **names, **stages}


def no_variants(**stages: dict[str, Any]) -> dict[str, Any]:
    """Return an empty section of variants, but for the stages that are given."""
    return {"linear_init": {}, "finetune": {}, "end_to_end": {}, "lac": {}, **stages}


def write_data(root: Path) -> tuple[Table, dict[str, np.ndarray]]:
    """Write table and observed labels; rows of the splits are mixed, and some cells are not scored."""
    generator = np.random.default_rng(0)
    n = TRAIN + VAL + TEST
    split = generator.permutation(np.repeat([0, 1, 2], [TRAIN, VAL, TEST])).astype(np.uint8)
    truth = (generator.random((n, len(CLASSES))) < 0.45).astype(np.int8)
    truth[np.arange(n), generator.integers(0, 2, n)] = 1  # a positive in every row
    scored = (generator.random(truth.shape) < 0.9) | (truth == 1)
    paths = tuple(f"{row}.png" for row in range(n))
    table = Table(CLASSES, paths, truth, scored, split, (split == 2).astype(np.uint8))
    write_table(root / "data" / "prepare" / DATASET / "table.h5", table)
    single = np.zeros_like(truth)
    for row in range(n):
        single[row, generator.choice(np.flatnonzero(truth[row]))] = 1
    everything = np.where(scored, 2 * truth - 1, 0).astype(np.int8)
    negatives = np.where(scored & (truth == 0), -1, single).astype(np.int8)
    observed = {"single": single, "all": everything, "negatives": negatives}
    with hdf5.create(root / "data" / "simulate" / f"{DATASET}-0" / "observed.h5") as file:
        for name, labels in observed.items():
            hdf5.write_array(file, name, labels, axes="image, class", units="label")
    return table, observed


def write_given(root: Path) -> tuple[Table, np.ndarray, np.ndarray]:
    """Write table and labels of the same images where only some labels are given; return both, and the truth."""
    table, observed = write_data(root)
    known = (observed["single"] == 1) | (table.scored & (np.random.default_rng(1).random(table.truth.shape) < 0.2))
    given = replace(table, truth=(table.truth * known).astype(np.int8), scored=known, exhaustive=False)
    write_table(root / "data" / "prepare" / DATASET / "table.h5", given)
    labels = np.where(known, 2 * table.truth - 1, 0).astype(np.int8)
    with hdf5.create(root / "data" / "simulate" / f"{DATASET}-0" / "observed.h5") as file:
        for name in ("single", "all", "negatives"):
            hdf5.write_array(file, name, labels, axes="image, class", units="label")
    return given, labels, table.truth


def write_run(
    root: Path, stage: str, key: str, table: Table, observed: np.ndarray, *, seed: int, labelled: bool, **attrs: str
) -> dict[str, np.ndarray]:
    """Write logits.h5 and labels.h5 of a run and return what they hold.

    ``labelled`` runs hold one round of pseudo-labels an epoch, which grow, and in the last round one is taken back.
    """
    generator = np.random.default_rng(seed)
    shape = (TRAIN, len(CLASSES))
    held: dict[str, np.ndarray] = {}
    for name, rows in (("train", TRAIN), ("val", VAL), ("test", TEST)):
        held[name] = generator.normal(size=(rows, len(CLASSES))).astype(np.float32) * 3
    held["epochs_val"] = generator.normal(size=(EPOCHS, VAL, shape[1])).astype(np.float32)
    held["epochs_val"][CHOSEN - 1] = held["val"]
    if labelled:
        held["epochs_train"] = generator.normal(size=(EPOCHS, *shape)).astype(np.float32)
    folder = root / "runs" / stage / key
    with hdf5.create(folder / "logits.h5") as file:
        for name, values in held.items():
            hdf5.write_array(file, name, values, axes="image, class", units="logit")
        file.attrs["epoch"] = CHOSEN
    unknown = observed[table.rows("train")] == 0
    first = np.where(generator.random(shape) < 0.4, -1, 0) * unknown
    second = np.where((first == 0) & (generator.random(shape) < 0.3), 1, first) * unknown
    third = second.copy()
    third[tuple(np.argwhere(third)[0])] = 0
    held["pseudo_label"] = np.array([first, second, third] if labelled else np.zeros((0, *shape)), dtype=np.int8)
    held["belief"] = generator.random(shape).astype(np.float32)
    held["weight"] = np.full(shape, -0.2, dtype=np.float32)
    with hdf5.create(folder / "labels.h5") as file:
        for name in ("belief", "weight", "pseudo_label"):
            hdf5.write_array(file, name, held[name], axes="image, class", units="label")
        rounds = np.arange(1, len(held["pseudo_label"]) + 1)
        hdf5.write_array(file, "round_epoch", rounds, axes="round", units="epoch")
        if not labelled:
            file.attrs["reason"] = "the method labels no unknown cell"
        file.attrs.update(attrs)
    return held
