"""Corrections on top of what a source reads, and the rules after them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.core.errors import SourceError
from pipeline.data.bad_images import read_dataset
from pipeline.labels.table import Dataset
from pipeline.sources import csv
from tests.sources.test_csv import settings

ROWS = {"1.jpg": "dog", "2.jpg": "cat", "3.jpg": "animal", "4.jpg": "dog", "5.jpg": "cat", "6.jpg": "tree"}
SPLIT = {"1.jpg": "train", "2.jpg": "train", "3.jpg": "train", "4.jpg": "val", "5.jpg": "test", "6.jpg": "train"}
RULES: dict[str, Any] = {"parents": {"dog": "animal", "cat": "animal"}, "exclusive": [["animal", "tree"]]}


@pytest.fixture
def read(tmp_path):
    """Reads six pictures with a label each, and corrections of them."""

    def reads(answers: str = "", rows: dict[str, str] = ROWS, exhaustive: bool = False, **changes) -> Dataset:
        folder = tmp_path / "raw"
        folder.mkdir(exist_ok=True)
        for number, name in enumerate(rows):
            Image.new("RGB", (9, 8), (number, 0, 0)).save(folder / name)
        lines = "".join(f"{name},{labels},{SPLIT[name]}\n" for name, labels in rows.items())
        (folder / "labels.csv").write_text(f"path,labels,split\n{lines}")
        file = tmp_path / "corrections" / "pets.csv"
        file.parent.mkdir(exist_ok=True)
        file.unlink(missing_ok=True)
        if answers:
            file.write_text("path,class,value,who,when\n" + "".join(f"{line},,\n" for line in answers.split("; ")))
        asked = settings(root="raw", path_column="path", exhaustive=exhaustive, split_column="split", **changes)
        return read_dataset(csv, asked, tmp_path, "pets")

    return reads


def labels(data: Dataset) -> dict[str, dict[str, int]]:
    """Known labels by picture: 1 present, -1 absent."""
    told = np.where(data.table.scored, data.table.truth * 2 - 1, 0)
    names = data.table.classes
    return {
        path: {name: int(value) for name, value in zip(names, row, strict=True) if value}
        for path, row in zip(data.table.paths, told, strict=True)
    }


def test_answers_add_and_overturn_and_nothing_else_moves(read):
    plain, data = read(), read("1.jpg,cat,present; 2.jpg,cat,absent; 4.jpg,dog,present")
    assert data.table.paths == plain.table.paths and (data.table.split == plain.table.split).all()
    assert labels(data) == labels(plain) | {"1.jpg": {"dog": 1, "cat": 1}, "2.jpg": {"cat": -1}}
    assert {key: data.report["corrections"][key] for key in ("cells", "agree", "add", "overturn", "file")} == {
        "cells": 3,
        "agree": 1,
        "add": 1,
        "overturn": 1,
        "file": "corrections/pets.csv",
    }
    known = data.table.corrected
    assert known is not None and np.count_nonzero(known) == 2  # what is given anyway is known without the answer


def test_answers_correct_the_truth_of_exhaustive_labels(read):
    data = read("1.jpg,cat,present; 2.jpg,cat,absent; 4.jpg,dog,present", exhaustive=True)
    assert data.table.scored.all() and data.table.exhaustive
    row = data.table.truth[data.table.paths.index("1.jpg")].tolist()
    assert row == [{"cat": 1, "dog": 1}.get(name, 0) for name in data.table.classes]
    assert data.table.corrected is not None and np.count_nonzero(data.table.corrected) == 3


def test_rules_hold_after_the_answers(read):
    found = labels(read("6.jpg,tree,absent; 6.jpg,cat,present; 3.jpg,dog,absent", **RULES))
    assert found["6.jpg"] == {"cat": 1, "animal": 1, "tree": -1}
    assert found["3.jpg"] == {"animal": 1, "tree": -1, "dog": -1}
    assert found["1.jpg"] == {"dog": 1, "animal": 1, "tree": -1}


def test_what_a_child_that_was_wrong_implied_goes_with_it(read):
    found = labels(read("1.jpg,dog,absent", **RULES))
    assert found["1.jpg"] == {"dog": -1}
    plain = {**ROWS, "1.jpg": "dog"}
    table = read("1.jpg,dog,absent", plain, exhaustive=True, **RULES).table
    row = table.paths.index("1.jpg")
    assert (
        table.scored[row].all() and not table.truth[row].any()
    )  # the data say that there is no animal, and no dog now


def test_an_answer_ends_a_conflict_of_the_data(read):
    rows = {**ROWS, "1.jpg": "dog;tree"}
    with pytest.raises(SourceError, match=r"exclude each other \(prepare: exclusive\): .*1\.jpg.* dog and tree"):
        read("", rows, **RULES)
    assert labels(read("1.jpg,tree,absent", rows, **RULES))["1.jpg"] == {"dog": 1, "animal": 1, "tree": -1}


CONTRADICTIONS = {
    "1.jpg,tree,present": r"exclude each other .*: 1\.jpg dog \(given\) and tree \(line 2\)",
    "3.jpg,dog,present; 3.jpg,tree,present": r"exclude each other .*: 3\.jpg animal|dog \(line 2\) and tree \(line 3\)",
    "1.jpg,animal,absent": r"lack what they imply .*: 1\.jpg animal \(line 2\) is absent and dog \(given\) present",
    "6.jpg,tree,absent; 6.jpg,animal,absent; 6.jpg,cat,present": r"lack .*: 6\.jpg animal \(line 3\) is absent and cat",
}


@pytest.mark.parametrize("answers", CONTRADICTIONS)
def test_a_contradiction_names_both(answers, read):
    with pytest.raises(SourceError, match=rf"corrections/pets\.csv: labels {CONTRADICTIONS[answers]}"):
        read(answers, **RULES)


def test_splits_that_are_drawn_do_not_move(read, tmp_path):
    """They are drawn from the labels of the data, which stay as they are."""
    asked = {"val_fraction": 0.3, "test_fraction": 0.3}

    def drawn(answers: str) -> Dataset:
        data = read(answers)
        del data
        table = settings(root="raw", path_column="path", exhaustive=False, **asked)
        return read_dataset(csv, table, tmp_path, "pets")

    plain, data = drawn(""), drawn("1.jpg,cat,present; 2.jpg,tree,present; 2.jpg,cat,absent")
    assert plain.table.corrected is None and data.table.corrected is not None
    assert (
        replace(data.table, truth=plain.table.truth, scored=plain.table.scored, corrected=None).paths
        == plain.table.paths
    )
    assert (data.table.split == plain.table.split).all()


def test_an_unknown_picture_stops_before_anything_is_packed(read, tmp_path: Path):
    with pytest.raises(SourceError, match=r"corrections/pets\.csv: images are not in the dataset .*: line 2 '9\.jpg'"):
        read("9.jpg,cat,present")
    assert not (tmp_path / "data").exists()
