"""Runs that choose by shown labels: the choice by hand, what is taken when nothing is told apart, and bad input."""
# ruff: noqa: F811  fixtures

import re
import shutil
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.core.errors import ConfigError, FileError, TrainingError
from pipeline.core.files import read_json, read_torch, read_tsv
from pipeline.core.progress import Pace
from pipeline.core.resume import Checkpoint
from pipeline.core.seeds import seed_torch
from pipeline.labels.beliefs import Beliefs, beliefs_file, read_beliefs
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import describe
from pipeline.networks.network import Network
from pipeline.training import choice, inputs, selection
from pipeline.training import trials as trials_of
from pipeline.training.beliefs import believe
from pipeline.training.features import read_features
from pipeline.training.inputs import FeatureInputs
from pipeline.training.loop import Data, Plan, Trainer
from pipeline.training.place_scores import Places
from stages.finetune import finetune
from stages.linear_init import linear_init
from tests import tiny
from tests.stages import finished_runs as finished
from tests.training.test_run import Killed, Project, arrays, checkpoints, project, put_beliefs, release  # noqa: F401

RATES = [0.01, 0.1, 0.5]


def set_auto(project: Project, values: list[float] | float = RATES, stage: str = "linear_init", **changes: Any) -> None:
    grid = isinstance(values, list)
    search = {"values": values, "epochs": None, "extend": 0} if grid else None
    rate = "grid" if grid else values
    project.set(stage, select="auto", learning_rate=rate, search=search, **{"epochs": 3, **changes})


def trials(project: Project, key: str = "digits-an-0-0") -> list[dict[str, str]]:
    return read_tsv(project.folder("linear_init", key) / "search.tsv")


def metrics(project: Project, stage: str = "linear_init", key: str = "digits-an-0-0") -> dict[str, Any]:
    return read_json(project.folder(stage, key) / "metrics.json")


def summary(project: Project, stage: str = "linear_init") -> str:
    return (project.folder(stage, "digits-an-0-0") / "summary.md").read_text()


# ---------------------------------------------------------------------------------------------- the choice, by hand
def by_hand(project: Project, rate: float) -> tuple[list[float], np.ndarray]:
    """Score of each epoch in percent, and (epochs, N, C) logits of heads that did not see their row's part."""
    rows = project.table.rows("train")
    features, single = project.features[rows], project.observed["single"][rows]
    settings = tiny.training(epochs=3, batch_size=8, learning_rate=rate, select="last", keep_epoch_logits=False)
    together = np.empty((3, len(rows), 3), np.float32)
    for others, own in selection.split_folds(len(rows), 0):
        seed_torch(0, "network")
        network = Network({"backbone": None, "width": 5, "classes": 3, "head": tiny.LINEAR})
        method = base.build("an", tiny.AN, describe(finished.CLASSES, single[others], 2.94, 5))
        data = Data(
            FeatureInputs(features[others], None, False),
            torch.from_numpy(single[others]),
            FeatureInputs(features[own], None, False),
            None,
        )
        history = Trainer(network, method, data, Plan("by hand", settings, rate, 3, 0, torch.device("cpu"))).fit()
        together[:, own] = torch.stack(history.val).numpy()
    belief = read_beliefs(beliefs_file(project.root, "digits", 0), project.table).belief[rows].astype(np.float64)
    scores = []
    for logits in together:
        won = mass = 0.0
        for row, column in np.argwhere(single == 1):
            weight = belief[row].sum() / single[row].sum()
            others = np.delete(logits[:, column], row)
            better, equal = np.mean(logits[row, column] > others), np.mean(logits[row, column] == others)
            won, mass = won + weight * (better + equal / 2), mass + weight
        scores.append(100 * won / mass)
    return scores, together


def test_the_choice_is_the_one_made_again_by_hand(project: Project) -> None:
    put_beliefs(project)
    set_auto(project)
    linear_init(project.root, "digits", "an", 0, 0)
    found = {rate: by_hand(project, rate) for rate in RATES}
    for row, rate in zip(trials(project), RATES, strict=True):
        scores = found[rate][0]
        assert (float(row["learning_rate"]), int(row["epoch"])) == (rate, int(np.argmax(scores)) + 1)
        assert float(row["score"]) == pytest.approx(max(scores))
    best = max(RATES, key=lambda rate: max(found[rate][0]))
    gain = max(found[best][0]) - found[0.1][0][-1]
    told = metrics(project)["selection"]
    assert told["gain"]["value"] == pytest.approx(gain) and told["gain"]["low"] <= gain <= told["gain"]["high"]
    expected = (best, int(np.argmax(found[best][0])) + 1) if told["taken"] == "best" else (0.1, 3)
    assert (metrics(project)["learning_rate"], metrics(project)["epoch"]) == expected
    assert told["taken"] == ("best" if told["gain"]["low"] > 0 else "fixed")
    assert [int(row["chosen"]) for row in trials(project)] == [int(rate == expected[0]) for rate in RATES]


@pytest.mark.parametrize(("select", "score"), [("auto", "val score by shown labels"), ("clean", "val mAP")])
def test_each_line_names_the_score_of_val_as_what_it_is(project: Project, select, score, monkeypatch, capsys) -> None:
    monkeypatch.setattr(Pace, "is_due", lambda _: True)
    put_beliefs(project)
    set_auto(project, 0.1, epochs=2)
    project.set("linear_init", select=select)
    linear_init(project.root, "digits", "an", 0, 0)
    lines = [line for line in capsys.readouterr().out.splitlines() if " part " not in line]
    assert len(lines) == 3 and all(re.search(rf"(  |taken, ){score} \d+\.\d\d$", line) for line in lines)
    assert f"`val_score` is the {score}\n" in summary(project)


@pytest.mark.parametrize("method", ["an", "reckon"])
def test_what_judges_an_image_knows_its_label_from_nowhere(project: Project, method: str, monkeypatch) -> None:
    """Not from beliefs about other images either, which were fitted with all labels."""
    put_beliefs(project)
    set_auto(project, 0.1)
    parts: list[list[np.ndarray]] = []
    found = selection.cross_fit
    monkeypatch.setattr(selection, "cross_fit", lambda judge, folds, own: parts.append(own) or found(judge, folds, own))
    linear_init(project.root, "digits", method, 0, 0)
    single, rows = project.observed["single"].copy(), project.table.rows("train")
    own = selection.split_folds(len(rows), 0)[0][1]
    single[rows[own]] = np.roll(single[rows[own]], 1, axis=1)
    project.observed["single"] = single
    project.put(project.labels, **project.observed)
    put_beliefs(project, logits=tiny.numbers(*single.shape, seed=9))
    linear_init(project.root, "digits", method, 0, 0)
    first, second = parts
    np.testing.assert_array_equal(first[0], second[0])
    assert all((before != after).any() for before, after in zip(first[1:], second[1:], strict=True))


@pytest.mark.parametrize("learns", ["nothing is shown", "one image shows a label"])
def test_parts_that_show_too_little_are_told_before_anything_is_trained(project: Project, learns, monkeypatch) -> None:
    single, rows = project.observed["single"].copy(), project.table.rows("train")
    others, own = selection.split_folds(len(rows), 0)[-1]
    single[rows[others[learns != "nothing is shown" :]]] = 0
    assert (single[rows[own]] == 1).any()
    project.put(project.labels, **project.observed | {"single": single})
    put_beliefs(project)
    set_auto(project)
    monkeypatch.setattr(Trainer, "fit", lambda _: pytest.fail("trains"))
    with pytest.raises(ConfigError, match=rf"learned from the {len(others)} others.*; choose by `last` or `clean`$"):
        linear_init(project.root, "digits", "reckon", 0, 0)


def test_beliefs_by_places_are_fitted_anew_by_places_whatever_the_head(project: Project, monkeypatch) -> None:
    project.put_places(project.features[:, :, None, None] * np.array([[0.5, 1.5], [0.8, 1.2]], np.float32))
    project.sections["beliefs"] = {"default": {"kind": "fits", "fits": 3, "draw": {"kind": "count"}, "sharpness": 0.5}}
    set_auto(project, 0.1)
    put_beliefs(project)
    given: list[np.ndarray] = []
    fit = trials_of.fit_beliefs_of
    monkeypatch.setattr(trials_of, "fit_beliefs_of", lambda *words: given.append(fit(*words)) or given[-1])
    linear_init(project.root, "digits", "reckon", 0, 0)
    rows = project.table.rows("train")
    cached = read_features(project.cache, project.table, True)
    for belief, (others, _) in zip(given, selection.split_folds(len(rows), 0), strict=True):
        places = Places(cached.places, rows[others], 0.5)
        by_hand = believe(project.features[rows][others], project.observed["single"][rows][others], places=places)
        np.testing.assert_allclose(belief, by_hand.present, atol=1e-6)


def test_what_is_stored_was_trained_on_all_images(project: Project) -> None:
    put_beliefs(project)
    set_auto(project)
    linear_init(project.root, "digits", "an", 0, 0)
    auto, _ = arrays(project.folder("linear_init", "digits-an-0-0") / "logits.h5")
    rate, epoch = metrics(project)["learning_rate"], metrics(project)["epoch"]
    project.set("linear_init", select="last", learning_rate=rate, search=None, epochs=3)
    linear_init(project.root, "digits", "an", 0, 0)
    last, _ = arrays(project.folder("linear_init", "digits-an-0-0") / "logits.h5")
    np.testing.assert_array_equal(auto["epochs_val"], last["epochs_val"])
    np.testing.assert_array_equal(auto["val"], last["epochs_val"][epoch - 1])


def test_a_clear_gain_is_taken_and_said(project: Project) -> None:
    put_beliefs(project)
    set_auto(project, [1e-31, 1e-30, 0.5])  # the middle rate learns nothing
    linear_init(project.root, "digits", "an", 0, 0)
    assert metrics(project)["selection"]["taken"] == "best" and metrics(project)["learning_rate"] == 0.5
    low, high = (metrics(project)["selection"]["gain"][name] for name in ("low", "high"))
    assert 0 < low < high
    assert "of 3 was chosen by shown labels" in summary(project)
    assert (
        f"points beside the fixed recipe (95 % interval {low:+.2f} to {high:+.2f}, for the best of all tried)."
        in summary(project)
    )


def test_the_fixed_recipe_is_taken_where_nothing_is_told_apart(project: Project) -> None:
    project.put(project.cache, features=tiny.numbers(36, 5, seed=11))  # they know nothing
    put_beliefs(project)
    set_auto(project)
    linear_init(project.root, "digits", "an", 0, 0)
    assert metrics(project)["selection"]["taken"] == "fixed"
    assert (metrics(project)["learning_rate"], metrics(project)["epoch"]) == (0.1, 3)
    assert "Epoch 3 of 3 is that of the fixed recipe: the last one, at the middle rate" in summary(project)
    assert "not enough to tell them apart, so the recipe was taken" in summary(project)


def test_truth_decides_nothing(project: Project) -> None:
    put_beliefs(project)
    set_auto(project)
    linear_init(project.root, "digits", "an", 0, 0)
    first = project.bytes("linear_init", "digits-an-0-0")
    truth = np.roll(project.table.truth, 1, axis=1) & project.table.scored
    truth[0] = project.table.truth[0]
    project.write_table(truth=truth)
    put_beliefs_again(project)
    linear_init(project.root, "digits", "an", 0, 0)
    second = project.bytes("linear_init", "digits-an-0-0")
    same = {name for name in first if first[name] == second[name]}
    assert same >= {"weights.pt", "method.pt", "labels.h5", "search.tsv", "logits.h5"}


def put_beliefs_again(project: Project) -> None:
    """Write the same beliefs beside another table."""
    logits = read_beliefs(beliefs_file(project.root, "digits", 0), project.table).logits
    put_beliefs(project, logits=logits)


# ---------------------------------------------------------------------------------------------- what diverges
def test_a_rate_that_diverges_is_passed_over(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    put_beliefs(project)
    set_auto(project, [0.01, 0.05, 3e38])
    linear_init(project.root, "digits", "an", 0, 0)
    last = trials(project)[-1]
    assert (last["score"], last["epoch"], last["chosen"]) == ("", "0", "0") and int(last["diverged"]) > 0
    assert metrics(project)["learning_rate"] in (0.01, 0.05)
    assert "lr 3e+38 part 1/3: epoch" in capsys.readouterr().out


def test_the_best_is_taken_where_the_fixed_recipe_diverges(project: Project) -> None:
    put_beliefs(project)
    set_auto(project, [0.05, 3e38, 3.1e38])
    linear_init(project.root, "digits", "an", 0, 0)
    assert metrics(project)["learning_rate"] == 0.05
    assert metrics(project)["selection"] == {"taken": "best", "gain": dict.fromkeys(("value", "error", "low", "high"))}
    assert "The fixed recipe diverged, so nothing could be compared with it." in summary(project)


@pytest.mark.parametrize("values", [3e38, 7e37, [3e38, 3.1e38], [7e37, 8e37]])  # in parts already, or on all images
def test_where_all_diverges_the_run_says_so(project: Project, values: Any) -> None:
    put_beliefs(project)
    set_auto(project, values)
    with pytest.raises(TrainingError, match=r"^linear_init digits-an-0-0"):
        linear_init(project.root, "digits", "an", 0, 0)
    assert not project.folder("linear_init", "digits-an-0-0").exists()


def test_the_fixed_recipe_is_taken_where_the_best_diverges_on_all_images(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Trainer._step

    def late(self: Trainer, index: np.ndarray, epoch: int) -> dict[str, float]:
        if self.plan.learning_rate == 0.5 and "part" not in self.plan.name and epoch == 2:
            raise TrainingError(f"{self.plan.name}: epoch 2: loss is not finite: {{'risk': nan}}")
        return step(self, index, epoch)

    monkeypatch.setattr(Trainer, "_step", late)
    put_beliefs(project)
    set_auto(project, [1e-31, 1e-30, 0.5])
    linear_init(project.root, "digits", "an", 0, 0)
    assert (metrics(project)["learning_rate"], metrics(project)["epoch"]) == (1e-30, 3)
    assert metrics(project)["selection"]["taken"] == "fixed"
    assert [(row["chosen"], row["diverged"]) for row in trials(project)] == [("0", ""), ("1", ""), ("0", "2")]


def test_the_best_is_taken_where_the_fixed_recipe_diverges_on_all_images(project: Project) -> None:
    put_beliefs(project)
    set_auto(project, [0.05, 7e37, 3e38])
    linear_init(project.root, "digits", "an", 0, 0)
    assert metrics(project)["learning_rate"] == 0.05 and metrics(project)["selection"]["taken"] == "best"
    assert [(row["chosen"], row["diverged"]) for row in trials(project)][:2] == [("1", ""), ("0", "2")]


# ---------------------------------------------------------------------------------------------- resumed, and on images
@pytest.mark.parametrize("after", [1, 10, 40, 62])
def test_a_run_that_was_killed_is_resumed(
    project: Project, monkeypatch: pytest.MonkeyPatch, checkpoints: list[Checkpoint], after: int
) -> None:
    """Killed in a part of the first rate, of the third, or on all images."""
    put_beliefs(project)
    set_auto(project)
    linear_init(project.root, "digits", "em_apl", 0, 0)
    expected = project.bytes("linear_init", "digits-em_apl-0-0")
    folder = project.root / ".pipeline" / "checkpoints"
    assert list(folder.iterdir()) == []
    shutil.rmtree(project.folder("linear_init", "digits-em_apl-0-0"))
    steps, views = [], inputs.FeatureInputs.views

    def killing(*arguments: Any) -> Any:
        if len(steps) == after:
            raise Killed
        steps.append(1)
        return views(*arguments)

    monkeypatch.setattr(inputs.FeatureInputs, "views", killing)
    with pytest.raises(Killed):
        linear_init(project.root, "digits", "em_apl", 0, 0)
    release(checkpoints)
    monkeypatch.setattr(inputs.FeatureInputs, "views", views)
    linear_init(project.root, "digits", "em_apl", 0, 0)
    assert project.bytes("linear_init", "digits-em_apl-0-0") == expected
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("ema", [None, {"decay": 0.5, "rule": "warmup"}])
def test_on_images_the_best_epoch_is_taken_where_val_tells_it_from_the_last(project: Project, ema: Any) -> None:
    put_beliefs(project)
    project.put(project.cache, features=tiny.numbers(36, 8))
    linear_init(project.root, "digits", "an", 0, 0)
    set_auto(project, 0.05, "finetune", epochs=4, ema=ema)
    finetune(project.root, "digits", "an", 0, 0)
    found, held = metrics(project, "finetune"), arrays(project.folder("finetune", "digits-an-0-0") / "logits.h5")[0]
    rows = project.table.rows("val")
    belief = read_beliefs(beliefs_file(project.root, "digits", 0), project.table).belief[rows]
    judge = selection.Judge(project.observed["single"][rows] == 1, belief.sum(axis=1, dtype=np.float64), 0)
    scores = [judge.score(logits) for logits in held["epochs_val"]]
    best = int(np.argmax(scores))
    comparison = judge.compare_epochs(list(held["epochs_val"]), best)
    assert found["selection"] == comparison.describe()
    assert found["epoch"] == (best + 1 if comparison.better else 4) and found["weights"] == "raw"
    np.testing.assert_array_equal(held["val"], held["epochs_val"][found["epoch"] - 1])
    epochs = read_tsv(project.folder("finetune", "digits-an-0-0") / "epochs.tsv")
    assert [float(row["val_score"]) for row in epochs] == pytest.approx(scores)


# ---------------------------------------------------------------------------------------------- methods and bad input
def on_features() -> list[str]:
    """Methods that train a linear head on cached features: none whose head has a closed form."""
    kinds = {name: base.load(name) for name in base.names()}
    unmet = {"maps", "geometry", "embeddings", "posterior", "parameters"}
    train = {name: kind for name, kind in kinds.items() if not kind.closed_form}
    return [name for name, kind in train.items() if len(kind.views) == 1 and not unmet & set(kind.needs)]


@pytest.mark.parametrize("method", on_features())
def test_a_part_that_never_shows_a_class_is_scored(project: Project, method: str) -> None:
    split = np.repeat([1, 0, 2], [28, 4, 4]).astype(np.uint8)
    single = np.zeros_like(project.observed["single"])
    single[np.arange(36), np.arange(36) % 2] = 1  # no image shows the third class
    single[28:32] = np.eye(3, dtype=np.int8)[[0, 1, 1, 1]]  # one image shows the first
    truth = single | (project.table.truth & project.table.scored)
    project.write_table(split=split, official=(split == 2).astype(np.uint8), truth=truth)
    everything = np.where(project.table.scored | (truth == 1), 2 * truth - 1, 0).astype(np.int8)
    negatives = np.where(everything == -1, -1, single).astype(np.int8)
    project.observed = {"single": single, "all": everything, "negatives": negatives}
    project.put(project.labels, **project.observed)
    project.sections["methods"][method] = finished.shipped(project.repository)["methods"][method]
    put_beliefs(project)
    set_auto(project, 0.05, epochs=2)
    linear_init(project.root, "digits", method, 0, 0)
    assert metrics(project, key=f"digits-{method}-0-0")["selection"]["taken"] in ("best", "fixed")


def test_beliefs_are_asked_for(project: Project) -> None:
    set_auto(project)
    put_beliefs(project)
    project.put(project.labels, **project.observed | {"single": np.roll(project.observed["single"], 1, axis=0)})
    with pytest.raises(FileError, match=r"beliefs\.h5: made from another data/simulate/digits-0/observed\.h5"):
        linear_init(project.root, "digits", "an", 0, 0)


@pytest.mark.parametrize("draw", ["count", "share"])
def test_a_shown_label_is_weighted_only_where_the_draw_picks_among_those_present(draw: str) -> None:
    belief = np.array([[1.0, 0.5, 0.5], [0.25, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    single = np.array([[1, 0, 0], [0, 1, 1], [1, 0, 0], [1, -1, 0]], np.int8)
    beliefs = Beliefs(belief, belief, 2.0, np.zeros((3, 3)), draw, belief)
    rows = {"train": np.array([0, 1]), "val": np.array([2, 3])}
    table: Any = SimpleNamespace(rows=rows.get, group_numbers=lambda _: None)
    run: Any = SimpleNamespace(settings=SimpleNamespace(select="auto"), beliefs=beliefs, table=table, seed=0)
    judges = choice.read_judges(run, single)
    assert judges is not None
    found = np.concatenate([judges[split].weights for split in ("train", "val")])
    np.testing.assert_allclose(found, [2.0, 1.125, 3.0, 1.0] if draw == "count" else [1.0] * 4)


def test_one_training_image_is_not_parted(project: Project) -> None:
    split = np.ones(36, np.uint8)
    split[0], split[1:5] = 0, 2
    project.write_table(split=split, official=(split == 2).astype(np.uint8))
    put_beliefs(project)
    set_auto(project)
    words = r"linear_init\.default\.select: auto trains heads without a part of .*digits has 1; set it to last"
    with pytest.raises(ConfigError, match=words):
        linear_init(project.root, "digits", "an", 0, 0)


# ---------------------------------------------------------------------------------------------- the estimated density
@pytest.mark.parametrize("at_most", [None, 1.25, 3.0])
def test_the_estimated_density_reaches_the_method(project: Project, at_most: float | None) -> None:
    belief = put_beliefs(project)
    estimate = float(belief.sum(axis=1).mean())
    assert 1.25 < estimate < 3
    project.sections["methods"]["epr"] = finished.shipped(project.repository)["methods"]["epr"]
    project.sections["expected_positives"] = {"digits": {"value": "estimated", "at_most": at_most}}
    project.write_params()
    seen = []
    build = base.build

    def noting(name: str, settings: Any, problem: Any) -> Any:
        seen.append(problem.expected_positives)
        return build(name, settings, problem)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "build", noting)
        linear_init(project.root, "digits", "epr", 0, 0)
    expected = 1.25 if at_most == 1.25 else estimate
    assert seen == pytest.approx([expected] * len(seen))
    provenance = read_json(project.folder("linear_init", "digits-epr-0-0") / "provenance.json")
    assert provenance["expected_positives"] == {"value": pytest.approx(expected), "estimated": True}
    inputs_of = read_json(project.folder("linear_init", "digits-epr-0-0") / "manifest.json")["inputs"]
    assert "data/beliefs/digits-0/beliefs.h5" in inputs_of
    beliefs_file(project.root, "digits", 0).unlink()
    with pytest.raises(FileError, match=r"beliefs\.h5: no such file"):
        linear_init(project.root, "digits", "epr", 0, 0)
    put_beliefs(project)
    linear_init(project.root, "digits", "an", 0, 0)  # which asks for no density
    assert read_json(project.folder("linear_init", "digits-an-0-0") / "provenance.json")["expected_positives"] is None


def test_a_method_that_needs_beliefs_is_given_those_of_its_images(project: Project) -> None:
    rows = project.table.rows("train")
    belief, features, single = put_beliefs(project)[rows], project.features[rows], project.observed["single"][rows]
    seen = []

    class Believer(base.load("an")):
        needs = {"beliefs"}

        def begin_training(self, observed: torch.Tensor) -> None:
            seen.append((self.beliefs.numpy(), observed.numpy()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "load", lambda name: Believer)
        set_auto(project, 0.05)
        linear_init(project.root, "digits", "an", 0, 0)
    folds = selection.split_folds(len(belief), 0)
    *parts, (last, observed) = seen
    np.testing.assert_array_equal(last, belief)
    np.testing.assert_array_equal(observed, single)
    for (found, observed), (others, _) in zip(parts, folds, strict=True):
        np.testing.assert_array_equal(observed, single[others])
        np.testing.assert_allclose(found, believe(features[others], single[others]).present, atol=1e-6)


def test_without_beliefs_a_method_that_needs_them_says_so() -> None:
    with pytest.raises(ConfigError, match="`an` needs the outputs of the stage beliefs"):
        _ = tiny.method("an", 4).beliefs


def test_the_sentence_of_a_summary_is_of_its_rule(project: Project) -> None:
    for select, words in (("clean", r"was chosen \(clean labels\)"), ("last", "is the last one")):
        project.set("linear_init", select=select)
        linear_init(project.root, "digits", "an", 0, 0)
        assert re.search(
            rf"Epoch \d of 2 {words}, with its raw weights; learning rate 0.05 \(val mAP", summary(project)
        )


# ---------------------------------------------------------------------------------------------- decays and scales
def test_the_fixed_recipe_is_the_middle_rate_with_the_decay_and_scale_that_are_named_first(project: Project) -> None:
    put_beliefs(project)
    tried = {"weight_decay": [0.3, 0.0], "head": tiny.LINEAR | {"scale": ["unit", "none"]}}
    set_auto(project, [1e-32, 1e-31, 1e-30], **tried)  # nothing to tell apart
    linear_init(project.root, "digits", "an", 0, 0)
    found = metrics(project)
    assert (found["learning_rate"], found["weight_decay"], found["scale"]) == (1e-31, 0.3, "unit")
    assert found["selection"]["taken"] == "fixed" and found["epoch"] == 3
    assert [int(row["chosen"]) for row in trials(project)] == [int(at == 1) for at in range(12)]
    stored = read_torch(project.folder("linear_init", "digits-an-0-0") / "weights.pt")
    assert stored["architecture"]["head"]["scale"] == "unit"
