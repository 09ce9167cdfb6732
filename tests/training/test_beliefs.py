from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit

from pipeline.audits.metrics import average_precision, mean_average_precision
from pipeline.labels.observed import mark_not_shown
from pipeline.labels.table import Table
from pipeline.methods.shared.draw_likelihood import CountDraw, ShareDraw
from pipeline.training import beliefs, ridge
from pipeline.training.beliefs import Sampling, believe
from pipeline.training.calibrate import calibrate


def sample(n: int = 300, d: int = 12, c: int = 5, shown: int = 1, seed: int = 0) -> dict[str, np.ndarray]:
    """Features, truth of one to some labels an image, and labels of which so many are shown."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(n, d))
    logits = 2 * features @ np.random.default_rng(99).normal(size=(d, c)) / np.sqrt(d) - 1
    truth = generator.random((n, c)) < expit(logits)
    truth[~truth.any(axis=1), 0] = True
    observed = np.zeros((n, c), np.int8)
    for row, labels in zip(observed, truth, strict=True):
        row[generator.permutation(np.flatnonzero(labels))[:shown]] = 1
    return {"features": features, "truth": truth, "observed": observed}


def tiny_table(truth: np.ndarray, exhaustive: bool) -> Table:
    n, c = truth.shape
    paths, classes = tuple(map(str, range(n))), tuple(f"class {column}" for column in range(c))
    return Table(classes, paths, truth, truth == 1, np.zeros(n, np.uint8), np.zeros(n, np.uint8), exhaustive)


def test_with_all_labels_shown_it_is_ridge_by_leaving_each_image_out() -> None:
    given = sample(n=40, d=6, c=3)
    full = given["truth"].astype(np.int8)
    found = believe(given["features"], full, draw=ShareDraw(1.0), fits=1)
    penalties = np.array(ridge.LAMBDAS) * np.trace(np.cov(given["features"].T, ddof=0)) / 6
    scores, precision = [], []
    for penalty in penalties:  # by hand: refit without each image, its penalty that of 40 images
        rows = []
        for i in range(40):
            kept = np.arange(40) != i
            x, y = given["features"][kept], full[kept].astype(float)
            centred = x - x.mean(0)
            weights = np.linalg.solve(centred.T @ centred + 40 * penalty * np.eye(6), centred.T @ (y - y.mean(0)))
            rows.append((given["features"][i] - x.mean(0)) @ weights + full.mean(0))  # the mean of all 40
        scores.append(np.array(rows))
        precision.append(np.mean(np.array(average_precision(full, scores[-1]), float)))
    best = ridge.LAMBDAS.index(found.fits[0].penalty)
    assert found.fits[0].precision == pytest.approx(precision[best])
    assert best >= np.argmax(precision)
    assert max(precision) - precision[best] < 0.03  # a standard error of 50 positives' precision, paired
    logits = calibrate(scores[best], full, ShareDraw(1.0)).logits(scores[best])
    assert np.allclose(found.logits, logits, atol=1e-4)
    assert (found.present == full).all()
    assert found.labels.value == pytest.approx(full.sum(1).mean(), abs=1e-3)


def test_the_head_carries_centring_slope_and_bias() -> None:
    given = sample()
    found = believe(given["features"] * 3 + 5, given["observed"])
    head = ridge.score(given["features"] * 3 + 5, found.weights, found.bias)
    assert np.abs(head - found.logits).mean() < 0.5  # with four fifths of them, 300 images say much the same
    assert np.abs((head - found.logits).mean(axis=0)).max() < 0.2
    assert np.corrcoef(head.ravel(), found.logits.ravel())[0, 1] > 0.97
    other = believe(given["features"], given["observed"])
    assert np.allclose(other.weights, found.weights * 3, atol=1e-3)
    assert np.allclose(other.bias, found.bias + found.weights.sum(1) * 5, atol=1e-2)


@pytest.mark.parametrize("shown", [1, 2])
def test_beliefs_find_hidden_labels_and_their_number(shown: int) -> None:
    train, test = sample(n=600, shown=shown), sample(n=1000, seed=1)
    observed, truth = train["observed"], train["truth"]
    observed[(np.random.default_rng(0).random(truth.shape) < 0.02) & ~truth] = -1
    draw = CountDraw(torch.full((600,), shown))  # whoever shows fewer has no more
    found = believe(train["features"], observed, draw=draw)
    assert (found.present[observed == 1] == 1).all()
    assert (found.present[observed == -1] == 0).all()
    hidden = observed == 0
    assert found.present[hidden & truth].mean() > 1.9 * found.present[hidden & ~truth].mean()
    assert found.labels.low < found.labels.value < found.labels.high
    assert found.labels.value == pytest.approx(truth.sum(1).mean(), rel=0.3)  # too high where features say little
    plain = believe(train["features"], np.maximum(observed, 0), draw=draw)
    assert found.labels.value == pytest.approx(plain.labels.value, rel=0.02)  # absences tell of their own cells
    assert np.abs(np.array(found.shares)[:, 0] - truth.mean(0)).max() < 0.2
    one = believe(train["features"], observed, draw=draw, fits=1)
    full = believe(train["features"], truth.astype(np.int8), draw=ShareDraw(1.0), fits=1)
    scores = [
        mean_average_precision(test["truth"].astype(int), ridge.score(test["features"], each.weights, each.bias))["map"]
        for each in (one, found, full)
    ]
    assert scores[0] < scores[1] < scores[2]


def test_lambda_is_not_fooled_by_targets_that_have_seen_the_labels() -> None:
    generator = np.random.default_rng(4)
    weights = np.zeros((300, 6))
    weights[:10] = generator.normal(size=(10, 6))  # 10 of more features than images tell anything
    features = generator.normal(size=(1200, 300)) * np.where(np.arange(300) < 10, 1, 0.6)
    truth = generator.random((1200, 6)) < expit(features @ weights - 1.2)
    truth[~truth.any(axis=1), 0] = True
    observed = np.array([np.eye(6, dtype=np.int8)[generator.choice(np.flatnonzero(row))] for row in truth[:200]])
    found = believe(features[:200], observed)
    assert all(fit.penalty > 10 for fit in found.fits)  # test mAP rises up to 100
    score = ridge.score(features[200:], found.weights, found.bias)
    assert mean_average_precision(truth[200:].astype(int), score)["map"] > 63


def test_mirrored_views_and_float16_are_taken() -> None:
    given = sample(n=80, d=100)
    narrow = given["features"].astype(np.float16)
    plain = believe(narrow, given["observed"], fits=1)
    found = believe(narrow, given["observed"], narrow, fits=1)
    assert np.allclose(found.logits, plain.logits, atol=1e-9)  # a mirror that changes nothing
    assert np.isfinite(believe(narrow, given["observed"], narrow[::-1]).logits).all()


def test_the_same_seed_gives_the_same_bytes() -> None:
    given = sample(n=60)
    one, other = (believe(given["features"], given["observed"], sampling=Sampling(3)) for _ in range(2))
    assert one.present.tobytes() == other.present.tobytes()
    assert one.weights.tobytes() == other.weights.tobytes()
    assert (one.labels, one.shares) == (other.labels, other.shares)


@pytest.mark.parametrize("fits", [1, 3])
def test_images_that_show_nothing_are_believed_in_and_not_fitted(fits: int) -> None:
    given = sample(n=100)
    more = sample(n=30, seed=5)
    features = np.vstack([given["features"], more["features"]])
    found = believe(features, np.vstack([given["observed"], np.zeros((30, 5), np.int8)]), fits=fits)
    if fits == 1:
        alone = believe(given["features"], given["observed"], fits=1)
        assert (found.fits[0].penalty, found.fits[0].precision) == (
            alone.fits[0].penalty,
            pytest.approx(alone.fits[0].precision),
        )
        assert np.allclose(found.weights, alone.weights, atol=1e-9)
        assert found.labels.value == pytest.approx(alone.labels.value, abs=1e-9)
    assert np.allclose(found.present[100:], expit(found.logits[100:]))
    assert np.allclose(found.logits[100:], ridge.score(more["features"], found.weights, found.bias))


def test_a_class_that_shows_nothing_or_little_is_told() -> None:
    given = sample(n=100)
    given["observed"] = np.hstack([given["observed"], np.zeros((100, 2), np.int8)])
    given["observed"][:3, 6] = 1
    found = believe(given["features"], given["observed"])
    assert (found.unseen, found.seldom) == ((5,), (6,))
    assert not found.weights[5].any()
    assert expit(found.bias[5]) == pytest.approx(0.5 / 101)
    assert found.shares[5].value < 0.01
    assert np.isfinite(found.logits).all()
    few = {**given, "observed": given["observed"][:, 5:]}  # now no class shows enough
    found = believe(few["features"], few["observed"])
    assert (found.unseen, found.seldom) == ((0,), (1,))
    assert np.isfinite(found.logits).all()


SMALL: dict[str, tuple[Any, Any]] = {
    "one class": (np.random.default_rng(0).normal(size=(20, 4)), np.ones((20, 1), np.int8)),
    "one class, shown now and then": (
        np.random.default_rng(0).normal(size=(20, 4)),
        (np.arange(20)[:, None] % 3 == 0).astype(np.int8),
    ),
    "fewer images than classes": (np.random.default_rng(0).normal(size=(6, 4)), np.eye(6, 9, dtype=np.int8)),
    "two images": (np.random.default_rng(0).normal(size=(2, 4)), np.eye(2, dtype=np.int8)),
    "collinear": (np.outer(np.arange(30.0), [1, 2, 0, 1]), np.eye(3, dtype=np.int8)[np.arange(30) % 3]),
    "every label of every image": (np.random.default_rng(0).normal(size=(20, 4)), np.ones((20, 3), np.int8)),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("draw", [CountDraw(), ShareDraw(0.5)])
def test_small_and_flat_data_give_finite_beliefs(name: str, draw: CountDraw | ShareDraw) -> None:
    features, observed = SMALL[name]
    found = believe(features, observed, draw=draw)
    for values in (found.present, found.logits, found.weights, found.bias, [found.labels.value]):
        assert np.isfinite(values).all()
    assert ((found.present >= 0) & (found.present <= 1)).all()


FAULTS: dict[str, tuple[Any, Any, str]] = {
    "nan": (np.array([[1.0], [np.nan]]), np.eye(2, dtype=np.int8), "features: nan at row 1, feature 0"),
    "constant": (np.ones((4, 3)), np.eye(4, dtype=np.int8), "no feature varies"),
    "unlabelled": (np.eye(3), np.array([[0, -1]] * 3, np.int8), "no label is shown"),
    "no row": (np.ones((0, 3)), np.ones((0, 2), np.int8), "no label is shown"),
    "a value": (np.eye(2), np.array([[1, 0], [3, 0]], np.int8), "observed: 3 at row 1, class 0"),
    "other rows": (np.eye(3), np.eye(2, dtype=np.int8), r"observed \(2, 2\) must be \(N, C\), of the 3 rows"),
    "one labelled": (np.eye(3), np.eye(3, 2, dtype=np.int8)[[0, 2, 2]], "two rows with weight"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_believed_is_an_error(name: str) -> None:
    features, observed, message = FAULTS[name]
    with pytest.raises(ValueError, match=message):
        believe(features, observed)


def test_folds_cover_each_image_once() -> None:
    seen = np.arange(23) < 20
    assert sorted(np.concatenate(beliefs._folds(seen, Sampling())).tolist()) == list(range(23))
    assert beliefs._folds(np.arange(23) < 9, Sampling()) == []


def test_fits_without_a_fold_believe_as_many_labels_as_that_of_all_images() -> None:
    """A fold's mean target is a little off, which under a large lambda is more than all that scores differ by."""
    generator = np.random.default_rng(2)
    features = generator.normal(size=(300, 64)) * np.exp(-np.arange(64) / 20)
    weights = generator.normal(size=(8, 64)) * 2 * np.exp(-np.arange(64) / 5)
    truth = features @ weights.T - 1.5 + generator.logistic(size=(300, 8)) > 0
    truth[~truth.any(axis=1), 0] = True
    observed = np.zeros(truth.shape, np.int8)
    for row, present in enumerate(truth):
        observed[row, generator.choice(np.flatnonzero(present))] = 1
    found = believe(features, observed)
    head = features @ found.weights.T + found.bias
    slopes = [np.polyfit(head[:, column], found.logits[:, column], 1)[0] for column in range(8)]
    assert min(slopes) > 0.8, slopes


# ---------------------------------------------------------------------------------------------- groups
def test_no_fold_cuts_a_group() -> None:
    seen = np.ones(60, bool)
    seen[:6] = False
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(20), 3))
    folds = beliefs._folds(seen, Sampling(0, groups))
    assert sorted(np.concatenate(folds)) == list(range(60))
    for held in folds:
        others = np.setdiff1d(np.flatnonzero(seen), held)
        assert not set(groups[others]) & set(groups[held[seen[held]]])
    for count, n in ((4, 60), (2, 60), (2, 4), (3, 7)):  # fewer groups than folds, few images
        few = np.arange(n) % count
        folds = beliefs._folds(np.ones(n, bool), Sampling(0, few))
        assert sorted(set(few[held].tolist()).pop() for held in folds) == list(range(count)), (count, n)
        assert all(len(set(few[held].tolist())) == 1 for held in folds)
    plain = [fold.tolist() for fold in beliefs._folds(np.ones(12, bool), Sampling(3))]
    assert plain == [[5, 3, 8], [0, 9, 10], [2, 1], [6, 11], [4, 7]]  # as before there were groups


@pytest.mark.parametrize("fits", [1, 3])
def test_copies_of_an_image_do_not_judge_each_other(fits: int) -> None:
    """Features are noise, and each image is there three times: what a head knows of a copy it knows by heart."""
    generator = np.random.default_rng(0)
    once, label = generator.normal(size=(60, 40)), generator.integers(5, size=60)
    features, observed = np.tile(once, (3, 1)), np.tile(np.eye(5, dtype=np.int8)[label], (3, 1))
    draw = ShareDraw(1.0) if fits == 1 else None
    apart = believe(features, observed, draw=draw, fits=fits)
    found = believe(features, observed, draw=draw, fits=fits, sampling=Sampling(0, np.tile(np.arange(60), 3)))
    assert apart.fits[0].precision > 0.9  # by heart
    assert found.fits[0].precision < 0.35  # 0.2 by chance
    assert found.fits[0].penalty > apart.fits[0].penalty


@pytest.mark.parametrize("count", [2, 3, 4])
def test_copies_in_few_groups_do_not_judge_each_other(count: int) -> None:
    """Fewer groups than folds: what a head knows of a copy it knew by heart before, with every lambda."""
    generator = np.random.default_rng(0)
    once, label = generator.normal(size=(40, 80)), generator.integers(4, size=40)
    features, observed = np.tile(once, (3, 1)), np.tile(np.eye(4, dtype=np.int8)[label], (3, 1))
    found = believe(features, observed, sampling=Sampling(0, np.tile(np.arange(40) % count, 3)))
    assert found.groups == count
    assert found.fits[0].precision < 0.45  # 0.25 by chance
    ranked = np.nanmean(np.array(average_precision(observed, found.logits), float))
    assert ranked < 0.5
    assert np.isnan([found.labels[1:], *(share[1:] for share in found.shares)]).all()  # so few groups tell no interval


@pytest.mark.parametrize("n", [4, 9, 30])
def test_one_group_alone_is_judged_by_folds_of_its_images_and_has_no_interval(n: int) -> None:
    given = sample(n=n)
    found = believe(given["features"], given["observed"], sampling=Sampling(0, np.zeros(n, int)))
    plain = believe(given["features"], given["observed"])
    assert (found.groups, plain.groups) == (1, None)
    assert np.array_equal(found.present, plain.present) and found.fits == plain.fits
    assert np.isfinite(found.labels.value) and np.isnan(found.labels[1:]).all()
    assert all(np.isnan(share[1:]).all() for share in found.shares)
    assert np.isnan(plain.labels.low) == (n < 5)


def test_intervals_are_those_of_groups() -> None:
    """Of ten copies of each image nothing more is known than of one."""
    given = sample(n=60)
    features, observed = np.tile(given["features"], (10, 1)), np.tile(given["observed"], (10, 1))

    def widths(**sampling: Any) -> tuple[float, float]:
        found = believe(features, observed, fits=1, draw=ShareDraw(0.5), **sampling)
        return found.labels.high - found.labels.low, float(np.mean([share.high - share.low for share in found.shares]))

    single = believe(given["features"], given["observed"], fits=1, draw=ShareDraw(0.5))
    one = single.labels.high - single.labels.low, float(np.mean([share.high - share.low for share in single.shares]))
    grouped, apart = widths(sampling=Sampling(0, np.tile(np.arange(60), 10))), widths()
    for mine, alone, copies in zip(grouped, one, apart, strict=True):
        assert 0.6 < mine / alone < 1.6 and copies / alone < 0.6


# ---------------------------------------------------------------------------------------------- rules
def test_a_class_that_is_known_by_rules_alone_is_learned() -> None:
    """Two classes are shown; the last is present wherever either is, and nobody ever names it."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(400, 6))
    kind = np.where(features[:, 0] > 0, np.where(features[:, 1] > 0, 0, 1), 2)
    observed = np.zeros((400, 4), np.int8)
    observed[np.arange(400), kind] = 1
    observed[kind < 2, 3] = 2
    found = believe(features, observed)
    assert found.unseen == ()
    assert (found.present[kind < 2, 3] == 1).all()
    order = found.logits[:, 3]
    assert (order[kind < 2][:, None] > order[kind == 2]).mean() > 0.9
    # what is known by rules is no label that the draw would have picked: images have no fewer hidden ones for it
    as_shown = believe(features, (observed > 0).astype(np.int8))
    assert found.present[kind < 2, 2].mean() > as_shown.present[kind < 2, 2].mean()


@pytest.mark.parametrize("draw", [CountDraw(), ShareDraw(0.5)])
@pytest.mark.parametrize(("value", "share"), [(2, 1.0), (1, 1.0), (-2, 0.0), (-1, 0.0)])
def test_a_class_that_is_known_in_every_image_has_a_finite_share_that_is_said(
    draw: CountDraw | ShareDraw, value: int, share: float
) -> None:
    given = sample(n=60)
    found = believe(given["features"], np.insert(given["observed"], 5, value, axis=1), draw=draw, fits=2)
    arrays = (found.present, found.logits, found.weights, found.bias, [found.labels], list(found.shares))
    assert all(np.isfinite(array).all() for array in arrays)
    assert found.shares[5].value == pytest.approx(share, abs=0.01)  # absent everywhere: that of a guess
    assert (found.everywhere, found.unseen) == (((5,), ()) if share else ((), (5,)))
    assert (found.present[:, 5] == share).all()


def test_labels_that_rules_imply_of_given_ones_hide_no_others() -> None:
    """Who names a class names its parent with it. Taken as not shown they made 8.0 labels an image of 4.4."""
    given = sample(n=600, c=10)
    parents = np.zeros((10, 2), np.int8)
    parents[:2, 0] = parents[2:4, 1] = 1
    implied = np.hstack([np.zeros(given["truth"].shape, bool), given["observed"] @ parents > 0])
    truth = np.hstack([given["truth"], given["truth"] @ parents > 0])
    labels = np.hstack([given["observed"], (given["observed"] @ parents > 0).astype(np.int8)])
    table = tiny_table(labels, exhaustive=False)
    found = believe(given["features"], mark_not_shown(table, labels, implied))
    shares = np.array([share.value for share in found.shares])
    assert found.labels.value == pytest.approx(truth.sum(axis=1).mean(), rel=0.1)
    assert np.abs(shares - truth.mean(axis=0)).mean() < 0.06


def test_labels_that_rules_imply_of_drawn_ones_change_no_share() -> None:
    """A draw picks among parents too. Counted as present apart from it they made 6.8 labels an image of 4.5."""
    given = sample(n=600, c=10, seed=1)
    truth = np.hstack([given["truth"], given["truth"][:, :2].any(axis=1, keepdims=True)])
    observed = np.zeros(truth.shape, np.int8)
    generator = np.random.default_rng(1)
    for row, labels in zip(observed, truth, strict=True):
        row[generator.choice(np.flatnonzero(labels))] = 1
    drawn = believe(given["features"], observed)
    implied = np.zeros(truth.shape, bool)
    implied[:, 10] = (observed[:, :2] == 1).any(axis=1)
    labels = np.where(implied, 1, observed).astype(np.int8)
    found = believe(given["features"], mark_not_shown(tiny_table(truth.astype(np.int8), True), labels, implied))
    assert (found.present[implied] == 1).all()
    assert found.labels.value == pytest.approx(drawn.labels.value, rel=0.08)
    assert found.shares[10].value == pytest.approx(truth[:, 10].mean(), abs=0.15)


@pytest.mark.parametrize("count", [1, 3])
def test_absences_that_are_given_where_a_class_is_likely_change_no_share(count: int) -> None:
    """Counted as random ones they tell that a class is absent where it is likely, and so nearly everywhere."""
    given = sample(n=600, c=10)
    likely = given["features"] @ np.random.default_rng(99).normal(size=(12, 10))
    observed = given["observed"].copy()
    order = np.argsort(np.where(given["truth"], -np.inf, likely), axis=1)[:, ::-1][:, :count]
    absent = np.take_along_axis(~given["truth"], order, axis=1)
    np.put_along_axis(observed, order, np.where(absent, -1, np.take_along_axis(observed, order, axis=1)), axis=1)
    found = believe(given["features"], observed)
    assert (found.present[observed == -1] == 0).all()
    assert found.labels.value == pytest.approx(given["truth"].sum(axis=1).mean(), rel=0.12)
    shares = np.array([share.value for share in found.shares])
    assert np.abs(shares - given["truth"].mean(axis=0)).mean() < 0.06


def test_an_image_that_is_labelled_in_full_counts_as_it_is() -> None:
    given = sample(n=200)
    full = np.where(given["truth"], 1, -1).astype(np.int8)
    scores = given["features"] @ np.random.default_rng(99).normal(size=(12, 5))
    share = calibrate(scores, full, CountDraw())
    assert expit(share.logits(scores)).mean(axis=0) == pytest.approx(given["truth"].mean(axis=0), abs=1e-4)


@pytest.mark.parametrize("exhaustive", [True, False])
def test_absences_that_rules_imply_hide_no_labels_of_others(exhaustive: bool) -> None:
    """Four classes exclude each other. Counted as absences that somebody told they left 1.4 labels an image of 2.8."""
    given = sample(n=600, c=10)
    truth, generator = given["truth"], np.random.default_rng(0)
    for row in truth:
        if row[:4].any():
            kept = generator.choice(np.flatnonzero(row[:4]))
            row[:4] = np.arange(4) == kept
    observed = np.zeros(truth.shape, np.int8)
    for row, labels in zip(observed, truth, strict=True):
        row[generator.choice(np.flatnonzero(labels))] = 1
    implied = np.zeros(truth.shape, bool)
    implied[:, :4] = (observed[:, :4] == 1).any(axis=1)[:, None] & (observed[:, :4] == 0)
    labels = np.where(implied, -1, observed).astype(np.int8)
    table = tiny_table(truth.astype(np.int8), exhaustive)
    found = believe(given["features"], mark_not_shown(table, labels, implied))
    assert (found.present[implied] == 0).all()
    assert found.labels.value == pytest.approx(truth.sum(axis=1).mean(), rel=0.1)
