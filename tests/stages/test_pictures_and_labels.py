"""Pictures and what is made of them outlive other labels; they do not outlive other pictures, sizes, rows or splits."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.core.errors import FileError
from pipeline.core.files import sha256, write_torch
from pipeline.labels.table import read_split_rows, read_table
from pipeline.networks.small import SmallBackbone
from pipeline.training.features import read_features
from stages.features import features
from stages.prepare import prepare
from tests import tiny
from tests.sources.test_csv import settings
from tests.stages import finished_runs
from tests.trees import write_files

Rows = dict[str, list[str]]
"""Name of a picture -> its labels and its split, as labels.csv has them."""
COLUMNS = {"kind": "columns", "zero": "absent", "minus_one": "absent", "empty": "unknown"}
ROWS: Rows = {
    f"{number:02d}.png": [str(number % 2), str(number % 3 // 2), "1" if number < 2 else "0", split]
    for number, split in enumerate(["train"] * 6 + ["val"] * 3 + ["test"] * 3)
}


class Pets:
    """A project with twelve pictures and a backbone."""

    def __init__(self, root: Path, repository: Path) -> None:
        self.root, self.repository, self.folder = root, repository, root / "data" / "prepare" / "pets"
        (root / "raw").mkdir()
        for number, name in enumerate(ROWS):
            self.draw(name, number)
        torch.manual_seed(0)
        state = SmallBackbone(8).state_dict()
        write_torch(root / "weights" / "pets" / "backbone.pt", {"architecture": tiny.BACKBONE, "state": state})

    def draw(self, name: str, seed: int) -> None:
        Image.fromarray(tiny.pixels(1, seed)[0]).save(self.root / "raw" / name)

    def correct(self, *answers: str) -> None:
        text = "\n".join(["path,class,value", *filter(None, answers)])
        write_files(self.root, "corrections/pets.csv", content=f"{text}\n")

    def prepare(self, rows: Rows, **changes: Any) -> None:
        named = changes.get("split_column", "split") is not None
        lines = [["image", "cat", "dog", "owl", "split"], *([name, *row] for name, row in rows.items())]
        text = io.StringIO()
        csv.writer(text).writerows(line if named else line[:-1] for line in lines)
        (self.root / "raw" / "labels.csv").write_text(text.getvalue())
        asked = {"root": "raw", "size": 16, "labels": COLUMNS, "split_column": "split"} | changes
        block = settings(**asked).model_dump(mode="json")
        shipped = finished_runs.shipped(self.repository)
        caching = {"dtype": "float32", "pools": ["mean"], "places": True, "mirrored": True, "batch_size": 4}
        sections = {name: shipped[name] | {"pets": made} for name, made in (("prepare", block), ("features", caching))}
        finished_runs.write_params(self.root, self.repository, **sections)
        prepare(self.root, "pets")

    def digests(self, *names: str) -> list[str]:
        return [sha256(self.folder / name) for name in names]

    def read_cached(self) -> Any:
        return read_features(self.root / "data/features/pets/features.h5", read_table(self.folder / "table.h5"), True)


@pytest.fixture
def pets(tmp_path: Path, repository: Path) -> Pets:
    return Pets(tmp_path, repository)


def put(name: str, *row: str) -> Rows:
    """Rows of which one has other labels, and another split where that is named."""
    return ROWS | {name: [*row, *ROWS[name][len(row) :]]}


LABELS: dict[str, tuple[str, Rows, dict[str, Any]]] = {
    "an answer that overturns": ("01.png,cat,absent", ROWS, {}),
    "an answer about a test picture": ("11.png,owl,present", ROWS, {}),
    "a label more": ("", put("00.png", "1", "1", "1"), {}),
    "no label": ("", put("07.png", "0", "0", "0"), {}),
    "an unknown label": ("", put("00.png", ""), {"exhaustive": False}),
    "not exhaustive": ("", ROWS, {"exhaustive": False}),
    "rules": ("", ROWS, {"parents": {"owl": ["dog"]}}),
    "classes in another order": ("", ROWS, {"classes": ["owl", "cat", "dog"]}),
}
"""Answers, rows and settings that change the table alone."""


@pytest.mark.parametrize("change", LABELS)
def test_other_labels_leave_pictures_and_their_features(pets: Pets, change: str) -> None:
    pets.prepare(ROWS)
    features(pets.root, "pets")
    table, before = pets.digests("table.h5"), pets.digests("images.h5", "splits.h5")
    cache = pets.read_cached()
    answer, rows, changes = LABELS[change]
    pets.correct(answer)
    pets.prepare(rows, **changes)
    assert pets.digests("table.h5") != table and pets.digests("images.h5", "splits.h5") == before
    again = pets.read_cached()
    assert np.array_equal(again.plain, cache.plain) and np.array_equal(again.mirrored, cache.mirrored)
    assert again.places[np.arange(12)].tobytes() == cache.places[np.arange(12)].tobytes()


def test_answers_move_no_image_of_a_drawn_split_and_given_labels_do(pets: Pets) -> None:
    drawn = {"split_column": None, "val_fraction": 0.25, "test_fraction": 0.25}
    other = {name: [*row[:2], str(1 - int(row[2])), row[3]] for name, row in ROWS.items()}
    pets.prepare(ROWS, **drawn)
    before = pets.digests("images.h5", "splits.h5")
    pets.correct(*(f"{name},owl,{'present' if row[2] == '1' else 'absent'}" for name, row in other.items()))
    pets.prepare(ROWS, **drawn)
    assert pets.digests("images.h5", "splits.h5") == before
    pets.correct()
    pets.prepare(other, **drawn)
    assert all(new != old for new, old in zip(pets.digests("images.h5", "splits.h5"), before, strict=True))


OTHERS: dict[str, tuple[str, Rows, dict[str, Any]]] = {
    "a picture": ("images.h5", ROWS, {}),
    "the size": ("images.h5", ROWS, {"size": 24}),
    "a split": ("splits.h5", put("00.png", *ROWS["00.png"][:-1], "val"), {}),
    "two splits that keep their counts": (
        "splits.h5",
        put("00.png", *ROWS["00.png"][:-1], "val") | {"06.png": [*ROWS["06.png"][:-1], "train"]},
        {},
    ),
    "a row less": ("images.h5", dict(list(ROWS.items())[1:]), {}),
    "a name": ("splits.h5", {name.replace("03", "03a"): row for name, row in ROWS.items()}, {}),
}
"""The file that no longer matches; rows and settings."""


@pytest.mark.parametrize("change", OTHERS)
def test_features_of_other_pictures_rows_and_splits_are_refused(pets: Pets, change: str) -> None:
    pets.prepare(ROWS)
    features(pets.root, "pets")
    (before,) = pets.digests("images.h5")
    named, rows, changes = OTHERS[change]
    pets.draw("03.png", 99 if change == "a picture" else 3)
    pets.draw("03a.png", 3)
    pets.prepare(rows, **changes)
    assert pets.digests("images.h5")[0] != before  # by which DVC runs the stage features again
    with pytest.raises(FileError, match=rf"another data/prepare/pets/{named} than lies there; run features@pets"):
        pets.read_cached()
    features(pets.root, "pets")
    table = read_table(pets.folder / "table.h5")
    assert len(pets.read_cached().mirrored) == len(table.rows("train"))
    assert np.array_equal(read_split_rows(pets.folder / "splits.h5", "train"), table.rows("train"))


@pytest.mark.parametrize("name, words", [("table.h5", "table.h5: made"), ("images.h5", "images.h5: made")])
def test_a_table_and_pictures_of_other_splits_than_lie_there_are_refused(pets: Pets, name: str, words: str) -> None:
    pets.prepare(ROWS)
    old = (pets.folder / name).read_bytes()
    pets.prepare(ROWS | {"00.png": [*ROWS["00.png"][:-1], "val"]})
    (pets.folder / name).write_bytes(old)
    with pytest.raises(
        FileError, match=f"{words} from another data/prepare/pets/splits.h5 than lies there; run prepare"
    ):
        read_table(pets.folder / name) if name == "table.h5" else features(pets.root, "pets")
