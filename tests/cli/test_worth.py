"""How good a run is said to be: the measure that the labels allow, its value, and images."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from pipeline.cli import worth
from pipeline.core import hdf5
from pipeline.labels.table import Table

N, C = 40, 2
TRUTH = np.random.default_rng(0).integers(0, 2, (N, C)).astype(np.int8)
LOGITS = np.random.default_rng(1).normal(size=(N, C)).astype(np.float32) + TRUTH
SPLIT = np.repeat(np.array([0, 1, 2], np.uint8), (10, 14, 16))
NAME = "finetune/pets-em-3-0"


def table(known: tuple[int, ...], groups: tuple[str, ...] | None = None) -> Table:
    """A table of which some splits are labelled in full."""
    return Table(
        paths=tuple(map(str, range(N))),
        classes=("a", "b"),
        truth=TRUTH,
        scored=np.isin(SPLIT, known)[:, None] | (TRUTH == 1),
        split=SPLIT,
        official=np.zeros(N, np.uint8),
        exhaustive=False,
        groups=groups,
    )


def say(monkeypatch: pytest.MonkeyPatch, root: Path, data: Table, shown: np.ndarray) -> list[str]:
    """What is said of a run whose inputs these are."""
    (root / "runs" / NAME).mkdir(parents=True)
    with hdf5.create(root / "runs" / NAME / "logits.h5") as file:
        for number, split in enumerate(("train", "val", "test")):
            hdf5.write_array(file, split, LOGITS[number == data.split], axes="image, class", units="logit")
    weights = SimpleNamespace(stands_for=lambda observed: np.arange(1.0, N + 1))
    monkeypatch.setattr(worth, "read_table", lambda path: data)
    monkeypatch.setattr(worth, "read_shown", lambda path, table: shown)
    monkeypatch.setattr(worth, "read_beliefs", lambda path, table: weights)
    return worth.describe_worth(root, NAME)


def outranked(rows: np.ndarray, shown: np.ndarray) -> float:
    """Chance in percent that a shown label outranks another image, each counted as often as its row's number says."""
    won = total = 0.0
    for row in rows:
        for column in np.flatnonzero(shown[row] == 1):
            others = [LOGITS[row, column] > LOGITS[other, column] for other in rows if other != row]
            won, total = won + (row + 1) * np.mean(others), total + row + 1
    return 100 * won / total


@pytest.mark.parametrize(
    ("known", "split", "what"),
    [((2,), 2, "test mAP"), ((1, 2), 2, "test mAP"), ((1,), 1, "val mAP")],
)
def test_full_labels_give_map(known, split, what, monkeypatch, tmp_path) -> None:
    (line,) = say(monkeypatch, tmp_path, table(known), np.zeros((N, C), np.int8))
    rows = np.flatnonzero(split == SPLIT)
    value = 100 * np.mean([average_precision_score(TRUTH[rows, c], LOGITS[rows, c]) for c in range(C)])
    chose = "chose nothing" if split == 2 else "chose the run too, which flatters it"
    assert line.startswith(f"{what} {value:.1f} (95 %: ")
    assert line.endswith(f"), by full labels of {len(rows)} images that {chose}")


def test_without_them_shown_labels_are_ranked(monkeypatch, tmp_path) -> None:
    shown = np.where(TRUTH.cumsum(axis=1) == 1, TRUTH, 0)
    line, more = say(monkeypatch, tmp_path, table(()), shown)
    value = outranked(np.flatnonzero(SPLIT == 2), shown)
    assert line.startswith(f"test score by shown labels {value:.1f} (95 %: ")
    assert line.endswith("), of 16 images that chose nothing; 50 is chance") and "nobody knows" in more


def test_val_stands_in_where_test_shows_none_and_nobody_knows_without(monkeypatch, tmp_path) -> None:
    shown = np.where(SPLIT[:, None] == 1, TRUTH, 0)
    line, _ = say(monkeypatch, tmp_path / "a", table(()), shown)
    assert line.startswith(f"val score by shown labels {outranked(np.flatnonzero(SPLIT == 1), shown):.1f} (")
    assert say(monkeypatch, tmp_path / "b", table(()), np.zeros_like(shown)) == [
        "nobody knows: no test or val image shows a label"
    ]


def test_one_group_gives_no_interval(monkeypatch, tmp_path) -> None:
    data = replace(table((2,)), groups=tuple(map(str, SPLIT)))
    (line,) = say(monkeypatch, tmp_path, data, np.zeros((N, C), np.int8))
    assert "(no interval: samples of its images score alike)" in line
