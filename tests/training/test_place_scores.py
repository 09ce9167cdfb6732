"""Scores by places: the formula, and beliefs that find small objects by them."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import expit

from pipeline.audits.metrics import mean_average_precision
from pipeline.core import hdf5, seal
from pipeline.methods.shared.draw_likelihood import CountDraw, ShareDraw
from pipeline.networks import places as network_places
from pipeline.training import place_scores
from pipeline.training.beliefs import believe
from pipeline.training.calibrate import calibrate
from pipeline.training.place_scores import Places, calibrate_places, log_mean_exp


def small_objects(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(N, D, 3, 3) features of places, and (N, C) truth: each object leaves its mark at one place alone."""
    generator = np.random.default_rng(seed)
    truth = generator.random((n, 6)) < 0.3
    truth[~truth.any(axis=1), 0] = True
    places = generator.normal(size=(n, 12, 9))
    for row, column in np.argwhere(truth):
        places[row, column, generator.integers(9)] += 5
    return places.reshape(n, 12, 3, 3).astype(np.float32), truth


def one_shown(truth: np.ndarray, seed: int) -> np.ndarray:
    generator, observed = np.random.default_rng(seed), np.zeros(truth.shape, np.int8)
    for row, labels in zip(observed, truth, strict=True):
        row[generator.choice(np.flatnonzero(labels))] = 1
    return observed


def test_scores_are_the_log_mean_exp_of_the_head_at_each_place() -> None:
    features, _ = small_objects(700, 0)
    generator = np.random.default_rng(1)
    weights, bias = generator.normal(size=(6, 12)), generator.normal(size=6)
    rows = generator.permutation(700)[:600]  # more than are in memory at a time
    found = Places(features, rows, 0.7).scores(weights, bias)
    for position in (0, 299, 599):
        for column in range(6):
            flat = features[rows[position]].reshape(12, 9)
            logits = [float(weights[column] @ flat[:, place] + bias[column]) for place in range(9)]
            expected = math.log(sum(math.exp(0.7 * z) for z in logits) / 9) / 0.7
            assert found[position, column] == pytest.approx(expected, abs=1e-4)
    maps = torch.from_numpy(Places(features, rows, 0.7).logits(np.arange(5), weights, bias))[..., None]
    assert np.allclose(network_places.log_mean_exp(maps, 0.7).numpy(), found[:5], atol=1e-4)


def test_a_calibrated_head_scores_in_logits() -> None:
    """Its own calibration finds nothing left to do; classes that show nothing stay flat."""
    features, truth = small_objects(500, 0)
    observed = one_shown(truth, 0)
    observed[observed[:, 5] == 1, 5] = 0
    raw = features[:, :6].reshape(500, 6, 9) * np.array([0.1, 1, 1, 2, 3, 1])[:, None]
    draw = CountDraw()
    found = calibrate_places(raw, calibrate(raw.mean(axis=2), observed, draw), 0.5, observed, draw)
    assert np.allclose(found.scores, log_mean_exp(raw * found.slope[:, None] + found.bias[:, None], 0.5))
    assert np.abs(found.last.slope[:5] - 1).max() < 0.05 and np.abs(found.last.bias[:5]).max() < 0.05
    assert found.slope[5] == 0
    shares = expit(found.scores[observed.any(axis=1)][:, :5]).mean(axis=0)
    assert np.abs(shares - truth[observed.any(axis=1), :5].mean(axis=0)).max() < 0.1


def test_beliefs_by_places_find_small_objects() -> None:
    features, truth = small_objects(600, 0)
    observed = one_shown(truth, 0)
    pooled = features.mean(axis=(2, 3))
    plain = believe(pooled, observed)
    found = believe(pooled, observed, places=Places(features, np.arange(600), 0.5))
    hidden = observed == 0
    gap = [each.present[hidden & truth].mean() - each.present[hidden & ~truth].mean() for each in (plain, found)]
    assert gap[1] > 1.5 * gap[0]
    assert found.labels.value == pytest.approx(truth.sum(1).mean(), rel=0.1)
    fresh, reference = small_objects(800, 1)
    by_places = Places(fresh, np.arange(800), 0.5).scores(found.weights, found.bias)
    by_mean = fresh.mean(axis=(2, 3)) @ plain.weights.T + plain.bias
    scores = [mean_average_precision(reference.astype(int), each)["map"] for each in (by_mean, by_places)]
    assert scores[1] > scores[0] + 5
    head = Places(features, np.arange(600), 0.5).scores(found.weights, found.bias)  # of all images, the folds' too
    assert np.abs(head - found.logits).mean() < 0.1 * np.abs(found.logits).mean()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_blocks_of_a_mapped_file_give_what_an_array_in_memory_gives(
    tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, truth = small_objects(90, 0)
    features, observed, rows = features.astype(dtype), one_shown(truth, 0), np.arange(90)
    hdf5.allocate(tmp_path / "places.h5", "places", features.shape, dtype, axes="", units="")
    hdf5.map_array(tmp_path / "places.h5", "places")[:] = features
    seal.append(tmp_path / "places.h5")
    whole = believe(features.mean(axis=(2, 3)), observed, places=Places(features, rows, 0.5))
    monkeypatch.setattr(place_scores, "BATCH", 7)
    mapped = Places(hdf5.Mapped(tmp_path / "places.h5", "places"), rows, 0.5)
    found = believe(features.mean(axis=(2, 3)), observed, places=mapped)
    for name in ("present", "logits", "weights", "bias"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), rtol=0, atol=1e-6)
    logits = np.einsum("ndp,cd->ncp", features.reshape(90, 12, 9).astype(np.float64), found.weights)
    expected = [[np.log(np.mean(np.exp(0.5 * z))) / 0.5 for z in row] for row in logits + found.bias[:, None]]
    np.testing.assert_allclose(mapped.scores(found.weights, found.bias), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("images", [3, 12])
def test_few_images_and_some_without_a_label(images: int) -> None:
    features, truth = small_objects(images, 0)
    observed = one_shown(truth, 0)
    observed[-1] = 0
    found = believe(features.mean(axis=(2, 3)), observed, places=Places(features, np.arange(images), 0.2))
    assert np.isfinite(found.logits).all() and np.isfinite(found.weights).all()


@pytest.mark.parametrize("seed", range(3))
def test_few_images_of_many_show_a_label(seed: int) -> None:
    """A fold may have none of them."""
    features, truth = small_objects(120, 0)
    observed = one_shown(truth, 0)
    observed[np.random.default_rng(seed).permutation(120)[11:]] = 0
    found = believe(features.mean(axis=(2, 3)), observed, places=Places(features, np.arange(120), 0.2))
    assert np.isfinite(found.logits).all() and np.isfinite(found.weights).all()


def test_calibration_ends_where_a_class_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bias of such a class is its logit whatever its scores, and no sign that rounds are missing."""
    features, truth = small_objects(300, 0)
    observed = one_shown(truth, 0)
    raw, draw, rounds = features[:, :6].reshape(300, 6, 9), CountDraw(), list[int]()
    observed[:, 5] = 0
    start = calibrate(raw.mean(axis=2), observed, draw)
    monkeypatch.setattr(place_scores, "calibrate", lambda *given: rounds.append(1) or calibrate(*given))
    found = calibrate_places(raw, start, 0.5, observed, draw)
    assert len(rounds) < place_scores.ROUNDS
    assert found.slope[5] == 0 and found.scores[:, 5] == pytest.approx(found.last.bias[5], abs=0.01)


@pytest.mark.parametrize("sharpness", [0.2, 1.0, 5.0])
def test_a_calibration_is_carried_on_until_its_scores_are_logits(sharpness: float) -> None:
    generator = np.random.default_rng(0)
    places = generator.normal(size=(400, 3, 9)) * 2 - 1.5
    present = generator.random((400, 3)) < expit(log_mean_exp(places, sharpness))
    observed = (present & (generator.random((400, 3)) < 0.3)).astype(np.int8)
    raw, draw = places * np.array([0.05, 1, 3])[:, None] + 0.3, ShareDraw(0.3)
    found = calibrate_places(raw, calibrate(raw.mean(axis=2), observed, draw), sharpness, observed, draw)
    assert np.abs(found.last.slope - 1).max() < 0.02 and np.abs(found.last.bias).max() < 0.02
