"""The thresholds that runs store: by hand from the run's own logits, and what is said where there is none."""
# ruff: noqa: F811  fixtures

from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from pipeline.core.errors import FileError
from pipeline.core.files import read_json
from pipeline.labels.beliefs import Beliefs, beliefs_file, read_beliefs, write_beliefs
from pipeline.training import thresholds
from stages.finetune import finetune
from stages.linear_init import linear_init
from tests import tiny
from tests.stages import finished_runs as finished
from tests.training.test_auto import set_auto
from tests.training.test_run import Project, arrays, asked_of, project, put_beliefs  # noqa: F401


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "FEWEST", 3)


def stored(project: Project, stage: str = "linear_init", key: str = "digits-an-0-0") -> dict[str, Any]:
    return read_json(project.folder(stage, key) / "thresholds.json")


def logits(project: Project, split: str, stage: str = "linear_init") -> np.ndarray:
    return arrays(project.folder(stage, "digits-an-0-0") / "logits.h5")[0][split]


@pytest.mark.parametrize("stage", ["linear_init", "finetune"])
def test_shares_are_matched_on_validation_images(project: Project, stage: str) -> None:
    n = len(project.table.paths)
    project.put(project.cache, features=tiny.numbers(n, 8))  # as wide as the backbone
    linear_init(project.root, "digits", "an", 0, 0)
    if stage == "finetune":
        finetune(project.root, "digits", "an", 0, 0)
    shares = read_beliefs(beliefs_file(project.root, "digits", 0), project.table).shares
    found, val = stored(project, stage), logits(project, "val", stage)
    assert found["images"] == {
        "matching": {"train": 0, "val": finished.VAL},
        "conformal": {"train": 0, "val": finished.VAL},
        "trained_on": False,
    }
    for column, name in enumerate(project.table.classes):
        entry = found["classes"][name]
        assert [entry["share"][end] for end in ("value", "low", "high")] == pytest.approx(shares[column])
        cuts = entry["matching"]
        assert cuts["low"] <= cuts["value"] <= cuts["high"]  # a larger share has a lower threshold
        for share, cut in ((shares[column, 0], "value"), (shares[column, 2], "low"), (shares[column, 1], "high")):
            assert abs((val[:, column] >= cuts[cut]).sum() - share * finished.VAL) <= 0.5 + 1e-6, (name, cut)


def test_shown_labels_are_weighted_by_the_labels_of_their_images(project: Project) -> None:
    linear_init(project.root, "digits", "an", 0, 0)
    found, rows, val = stored(project), project.table.rows("val"), logits(project, "val")
    belief = read_beliefs(beliefs_file(project.root, "digits", 0), project.table).belief[rows]
    shown = project.observed["single"][rows] == 1
    told = 0
    for column, name in enumerate(project.table.classes):
        pairs = sorted(zip(val[shown[:, column], column], belief[shown[:, column]].sum(axis=1), strict=True))[::-1]
        assert found["classes"][name]["shown"] == len(pairs)
        total = sum(weight for _, weight in pairs) + max((weight for _, weight in pairs), default=0)
        for share, cut in found["classes"][name]["conformal"].items():
            above, expected = 0.0, None
            for score, weight in pairs:
                above += weight
                if above >= float(share) * total:
                    expected = float(score)
                    break
            assert cut == (None if expected is None else pytest.approx(expected))
            told += cut is not None
            if cut is None:
                assert f"{len(pairs)} held-out images show it: too few to find" in found["classes"][name]["reason"]
    assert told


def test_images_of_one_group_count_as_one(project: Project) -> None:
    """Conformal thresholds of validation images in few groups, against loops over groups."""
    at = {split: project.table.rows(split) for split in ("train", "val", "test")}
    names = [""] * len(project.table.paths)
    for split, rows in at.items():
        for place, row in enumerate(rows):
            names[row] = "" if place % 5 == 4 else f"{split}{place // 3}"
    project.write_table(groups=tuple(names))
    put_beliefs(project)
    linear_init(project.root, "digits", "an", 0, 0)
    found, rows, val = stored(project), at["val"], logits(project, "val")
    belief = read_beliefs(beliefs_file(project.root, "digits", 0), project.table).belief[rows]
    told = 0
    for column, name in enumerate(project.table.classes):
        by_group: dict[str, list[tuple[float, float]]] = {}
        for place, row in enumerate(rows):
            if project.observed["single"][row, column] == 1:
                own = by_group.setdefault(names[row] or f"alone {row}", [])
                own.append((float(val[place, column]), float(belief[place].sum())))
        pairs = [(score, weight / len(own)) for own in by_group.values() for score, weight in own]
        heaviest = max((sum(weight for _, weight in own) / len(own) for own in by_group.values()), default=0)
        total = sum(weight for _, weight in pairs) + heaviest
        for share, cut in found["classes"][name]["conformal"].items():
            above, expected = 0.0, None
            for score, weight in sorted(pairs)[::-1]:
                above += weight
                if above >= float(share) * total:
                    expected = score
                    break
            assert cut == (None if expected is None else pytest.approx(expected))
            told += cut is not None
            if cut is None:
                words = f"{len(pairs)} held-out images of {len(by_group)} groups show it: too few to find"
                assert words in found["classes"][name]["reason"]
    assert told


def test_heads_that_leave_images_out_give_training_images_too(project: Project) -> None:
    put_beliefs(project)
    set_auto(project)
    linear_init(project.root, "digits", "an", 0, 0)
    found = stored(project)
    assert found["images"]["conformal"] == {"train": finished.TRAIN, "val": finished.VAL}
    single = project.observed["single"]
    rows = np.append(project.table.rows("train"), project.table.rows("val"))
    counted = {name: entry["shown"] for name, entry in found["classes"].items()}
    assert counted == dict(zip(project.table.classes, (single[rows] == 1).sum(axis=0).tolist(), strict=True))


def test_too_few_images_are_joined_by_those_that_were_trained_on(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "FEWEST", finished.VAL + 1)
    linear_init(project.root, "digits", "an", 0, 0)
    found = stored(project)
    assert found["images"] == {
        "matching": {"train": finished.TRAIN, "val": finished.VAL},
        "conformal": {"train": 0, "val": finished.VAL},
        "trained_on": True,
    }
    assert (
        "some of which were trained on" in (project.folder("linear_init", "digits-an-0-0") / "summary.md").read_text()
    )
    every = np.concatenate([logits(project, "train"), logits(project, "val")])
    for column, entry in enumerate(found["classes"].values()):
        above = (every[:, column] >= entry["matching"]["value"]).sum()
        assert abs(above - entry["share"]["value"] * len(every)) <= 0.5 + 1e-6


def test_a_class_that_no_training_image_shows_has_a_reason(project: Project) -> None:
    single = project.observed["single"].copy()
    single[:, 1] = 0
    single[:, 0] = 1  # every image shows one label
    project.put(project.labels, **project.observed | {"single": single})
    put_beliefs(project)
    linear_init(project.root, "digits", "an", 0, 0)
    entry = stored(project)["classes"][project.table.classes[1]]
    assert entry["matching"] == {"value": None, "low": None, "high": None}
    assert entry["reason"].startswith("no training image shows it, so none tells where it begins")
    assert stored(project)["test"]["matching"]["classes"] == len(project.table.classes) - 1


def test_a_class_that_is_known_by_rules_alone_has_a_share_to_match(project: Project) -> None:
    single, rows = project.observed["single"].copy(), project.table.rows("train")
    single[:, 1] = 0
    single[:, 0] = 1
    implied = np.zeros(single.shape, bool)
    implied[rows[:3], 1] = True
    single[implied] = 1
    project.put(project.labels, **project.observed | {"single": single, "implied": implied})
    put_beliefs(project)
    linear_init(project.root, "digits", "an", 0, 0)
    entry = stored(project)["classes"][project.table.classes[1]]
    val, share = logits(project, "val")[:, 1], entry["share"]["value"]
    assert abs((val >= entry["matching"]["value"]).sum() - share * finished.VAL) <= 0.5 + 1e-6
    assert "guess" not in entry["reason"] and entry["shown"] == 0


@pytest.mark.parametrize("draw", ["count", "share"])
def test_a_share_of_all_or_none_has_a_finite_threshold_and_a_reason(project: Project, draw: str) -> None:
    """Rules make a class known in every training image; of another nothing is known, and its share is 0."""
    single = project.observed["single"].copy()
    single[:, 0], single[:, 2] = 1, 0
    implied = np.zeros(single.shape, bool)
    implied[:, 1] = True
    single[:, 1] = 1
    project.put(project.labels, **project.observed | {"single": single, "implied": implied})
    logits_of = 4 * (project.table.truth - 0.5) + tiny.numbers(*single.shape, seed=6)
    logits_of[:, 1], logits_of[:, 2] = 60, -60
    shares = np.array([[0.5, 0.4, 0.6], [1, 1, 1], [0, 0, 0]], float)
    belief = expit(logits_of).astype(np.float32)
    found = Beliefs(belief, logits_of.astype(np.float32), 1.5, shares, draw, belief)
    write_beliefs(beliefs_file(project.root, "digits", 0), found, {}, [project.labels], asked_of(project))
    linear_init(project.root, "digits", "an", 0, 0)
    text = (project.folder("linear_init", "digits-an-0-0") / "thresholds.json").read_text()
    assert "Infinity" not in text and "NaN" not in text
    every, none = (stored(project)["classes"][project.table.classes[column]] for column in (1, 2))
    val = logits(project, "val")[:, 1]
    assert list(every["matching"].values()) == [pytest.approx(float(val.min()))] * 3
    assert "every training image has it, so none tells where it ends" in every["reason"]
    assert set(none["matching"].values()) == {None}
    assert "no training image shows it, so none tells where it begins" in none["reason"]
    assert "every training image" in stored(project)["classes"][project.table.classes[0]]["reason"]  # all show it


def test_f1_on_test_is_that_of_the_stored_thresholds(project: Project) -> None:
    from sklearn.metrics import f1_score

    linear_init(project.root, "digits", "an", 0, 0)
    found, rows, test = stored(project), project.table.rows("test"), logits(project, "test")
    truth, scored = project.table.truth[rows], project.table.scored[rows]
    cuts = np.array([entry["matching"]["value"] for entry in found["classes"].values()])
    for name, cut in (("matching", cuts), ("zero", np.zeros(3))):
        called = test >= cut
        each = [
            f1_score(truth[at, column], called[at, column])
            for column, at in enumerate(scored.T)
            if truth[at, column].any()
        ]
        assert found["test"][name]["macro"] == pytest.approx(100 * np.mean(each))
        assert found["test"][name]["micro"] == pytest.approx(100 * f1_score(truth[scored], called[scored]))
    # the ceiling has its thresholds from val alone
    val, val_rows = logits(project, "val"), project.table.rows("val")
    for column, entry in enumerate(found["classes"].values()):
        at = project.table.scored[val_rows][:, column]
        labels, scores = project.table.truth[val_rows][at, column], val[at, column]
        best = max(f1_score(labels, scores >= cut) for cut in scores)
        assert f1_score(labels, scores >= entry["clean"]) == pytest.approx(best)


def test_truth_chooses_nothing_but_the_clean_threshold(project: Project) -> None:
    project.set("linear_init", select="last")
    linear_init(project.root, "digits", "an", 0, 0)
    first = stored(project)
    truth = np.where(project.table.scored, 1 - project.table.truth, 0).astype(np.int8)
    project.write_table(truth=truth)
    linear_init(project.root, "digits", "an", 0, 0)
    second = stored(project)
    for name, entry in first["classes"].items():
        assert {**entry, "clean": None} == {**second["classes"][name], "clean": None}
    assert first["images"] == second["images"] and first["test"] != second["test"]


def test_without_truth_there_is_no_score(project: Project) -> None:
    scored = project.table.truth == 1
    project.write_table(exhaustive=False, scored=scored)
    project.sections["simulate"] = finished.shipped(project.repository)["simulate"]
    project.set("linear_init", select="last")
    linear_init(project.root, "digits", "an", 0, 0)
    found = stored(project)
    assert found["test"] is None and all(entry["clean"] is None for entry in found["classes"].values())


def test_absent_beliefs_stop_a_run_before_it_trains(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    beliefs_file(project.root, "digits", 0).unlink()
    with pytest.raises(FileError, match=r"beliefs\.h5: no such file"):
        linear_init(project.root, "digits", "an", 0, 0)
    assert "epochs" not in capsys.readouterr().out
