import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.datasets import load_digits

from pipeline.core import seeds
from pipeline.labels.table import Dataset
from pipeline.sources import digits

SIZES = {"source": "digits", "train": 60, "val": 25, "test": 35, "size": 48, "seed": 0}


def read(**changes: int) -> Dataset:
    return digits.read(digits.Settings.model_validate(SIZES | changes), Path("."))


def pictures(data: Dataset, rows: Iterable[int]) -> np.ndarray:
    drawn = [data.image(row) for row in rows]
    return np.stack([picture for picture in drawn if isinstance(picture, np.ndarray)])


# ---------------------------------------------------------------------------------------------- handwriting
def test_splits_share_no_handwriting() -> None:
    source = load_digits()
    inks = [(image / 16).astype(np.float32).tobytes() for image in source.images]
    label = dict(zip(inks, source.target, strict=True))
    assert len(label) == len(inks) == 1797
    pools = {split: digits.pool(split) for split in ("train", "val", "test")}
    assert [len(classes) for _, classes in pools.values()] == [1078, 270, 449]  # 60, 15 and 25 %
    assert sorted(ink.tobytes() for images, _ in pools.values() for ink in images) == sorted(inks)
    for images, classes in pools.values():
        assert images.dtype == np.float32 and images.min() == 0 and images.max() == 1
        assert all(label[ink.tobytes()] == value for ink, value in zip(images, classes, strict=True))
        assert set(classes) == set(range(10))
    order = seeds.numpy_generator(0, "digits", "pools").permutation(1797)  # the partition of seed 0, for every seed
    assert np.array_equal(pools["test"][0], (source.images[np.sort(order[1348:])] / 16).astype(np.float32))


def test_no_seed_lets_pretraining_see_handwriting_of_the_test_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[set[bytes]] = []
    compose = digits.compose

    def seen(ink: np.ndarray, *rest: Any) -> np.ndarray:
        given.append({image.tobytes() for image in ink})
        return compose(ink, *rest)

    monkeypatch.setattr(digits, "compose", seen)
    for seed in (3, 7):
        digits.single(1, 24, seed, "train")
    pretrained = given[0] | given[1]
    for seed in (0, 3, 11):
        del given[:]
        pictures(read(seed=seed), (60, 85))  # the first val and the first test scene
        assert len(given) == 2 and not pretrained & (given[0] | given[1])


def test_there_is_no_raw_data_to_change() -> None:
    assert digits.fingerprint(digits.Settings.model_validate(SIZES), Path(".")) is None


# ---------------------------------------------------------------------------------------------- labels
def rates_given_one_to_five() -> np.ndarray:
    """Probability of each digit in a scene, over all sets of one to five digits."""
    rates = np.linspace(0.45, 0.16, 10)
    total, present = 0.0, np.zeros(10)
    for bits in itertools.product((0, 1), repeat=10):
        if 1 <= sum(bits) <= 5:
            chance = np.prod(np.where(bits, rates, 1 - rates))
            total += chance
            present += chance * np.array(bits)
    return present / total


def test_rates_fall_as_the_formula_says() -> None:
    n = 30_000
    truth = read(train=n).table.truth[:n]
    expected = rates_given_one_to_five()
    assert np.all(np.diff(expected) < 0) and expected[[0, -1]] == pytest.approx([0.44, 0.15], abs=0.01)
    deviation = np.sqrt(expected * (1 - expected) / n)
    assert (np.abs(truth.mean(0) - expected) < 4 * deviation).all()
    counts = np.bincount(truth.sum(1), minlength=11)
    assert counts[0] == 0 and counts[6:].sum() == 0 and (counts[1:6] > 0).all()


def test_table() -> None:
    table = read().table
    assert table.classes == tuple(f"digit_{value}" for value in range(10))
    assert [len(table.rows(split)) for split in ("train", "val", "test")] == [60, 25, 35]
    assert np.array_equal(table.official == 1, table.split == 2) and table.scored.all()
    assert table.paths[0] == "train/00000" and table.paths[60] == "val/00000" and table.paths[-1] == "test/00034"


def test_truth_is_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One digit's ink is a full square here and the others' is blank, so that a large bright square tells its class."""
    pool = digits.pool
    truth = read().table.truth
    rows = range(0, 120, 3)
    for value in range(10):

        def squares(split: str, value: int = value) -> tuple[np.ndarray, np.ndarray]:
            images, classes = pool(split)
            return np.ones_like(images) * (classes == value)[:, None, None], classes

        monkeypatch.setattr(digits, "pool", squares)
        drawn = pictures(read(), rows) / 255
        windows = np.lib.stride_tricks.sliding_window_view(drawn, (10, 10), axis=(1, 2))  # clutter is 5 x 5
        bright = windows.mean((-2, -1)).min(-1).max((1, 2)) > 0.5  # ground is up to 0.3, ink from 0.55, in all channels
        assert np.array_equal(bright, truth[list(rows), value] == 1), f"digit {value}"


# ---------------------------------------------------------------------------------------------- pictures
def test_scenes_repeat_and_each_is_drawn_by_itself() -> None:
    data, again = read(), read()
    drawn = pictures(data, range(120))
    assert drawn.shape == (120, 48, 48, 3) and drawn.dtype == np.uint8
    assert np.array_equal(pictures(again, range(119, -1, -1)), drawn[::-1])
    assert np.array_equal(data.table.truth, again.table.truth)
    assert len({picture.tobytes() for picture in drawn}) == 120
    truth = data.table.truth
    assert not np.array_equal(truth[:25], truth[60:85]) and not np.array_equal(truth[60:85], truth[85:110])
    assert drawn.std() > 20


def test_more_scenes_of_a_split_change_no_other_scene() -> None:
    data, more = read(), read(train=80)
    assert np.array_equal(data.table.truth[:60], more.table.truth[:60])
    assert np.array_equal(data.table.truth[60:], more.table.truth[80:])
    assert np.array_equal(pictures(data, range(55, 65)), pictures(more, [*range(55, 60), *range(80, 85)]))
    other = read(seed=1)
    assert not np.array_equal(data.table.truth, other.table.truth)
    assert read(size=30).image(0).shape == (30, 30, 3)  # type: ignore[union-attr]


def test_enlarged_ink_is_bilinear_and_keeps_its_range() -> None:
    ink = np.zeros((8, 8), np.float32)
    ink[2:6, 2:6] = 1
    assert np.array_equal(digits._enlarge(ink, 8), ink)
    for side in (5, 13, 16):
        large = digits._enlarge(ink, side)
        assert large.shape == (side, side) and 0 <= large.min() and large.max() == pytest.approx(1)
    # twice as large: centres lie a quarter of a pixel beside the old ones; the border repeats
    row = np.array([0, 1, 2, 3, 4, 5, 6, 7], np.float32) / 7
    expected = np.interp((np.arange(16) - 0.5) / 2, np.arange(8), row)
    np.testing.assert_allclose(digits._enlarge(np.tile(row, (8, 1)), 16)[5], expected, atol=1e-6)


def test_ink_is_cut_at_the_border() -> None:
    for top, left in ((-3, 0), (0, -3), (9, 2), (2, 9), (-3, 9), (3, 3)):
        canvas, colour = np.full((12, 12, 3), 0.25, np.float32), np.array([1.0, 0.5, 0.0])
        digits._paint(canvas, np.full((5, 5), 0.5, np.float32), top, left, colour)
        expected = np.full((12, 12, 3), 0.25)
        for row in range(max(top, 0), min(top + 5, 12)):
            for column in range(max(left, 0), min(left + 5, 12)):
                expected[row, column] = 0.5 * expected[row, column] + 0.5 * colour
        np.testing.assert_allclose(canvas, expected, rtol=1e-6)


def test_single_digits_for_pretraining() -> None:
    drawn, shown = digits.single(400, 24, 0, "train")
    again, _ = digits.single(400, 24, 0, "train")
    other, labels = digits.single(400, 24, 0, "check")
    assert drawn.shape == (400, 24, 24, 3) and drawn.dtype == np.uint8 and np.array_equal(drawn, again)
    assert not np.array_equal(drawn, other) and not np.array_equal(shown, labels)
    assert np.bincount(shown, minlength=10).min() > 400 / 10 - 5 * 6  # each digit as often, sqrt(400 * 0.09) = 6


@pytest.mark.parametrize(
    "change", [{"train": 5}, {"size": 10}, {"seed": -1}, {"train": 60.0}, {"source": "voc"}, {"more": 1}]
)
def test_settings_that_make_no_sense(change: dict) -> None:
    with pytest.raises(ValidationError, match=next(iter(change))):
        digits.Settings.model_validate(SIZES | change)
