"""The search of settings against runs of linear_init, simulate and beliefs: each row is the run of its own."""

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audits.paired import compare_paired
from pipeline.core.errors import ConfigError, FileError
from pipeline.core.files import read_json, read_tsv
from pipeline.training import settings_search
from pipeline.training.selection import split_folds
from pipeline.training.settings_search import choose_best
from stages.beliefs import beliefs
from stages.linear_init import linear_init
from stages.search import search
from stages.simulate import simulate
from tests import tiny
from tests.stages import finished_runs as finished
from tests.training.test_run import Project

METHODS: dict[str, Any] = {"an": [{}], "em_apl": [{}, {"alpha": 0.4}], "full": [{}], "reckon": [{}]}
SEARCH: dict[str, Any] = {
    "methods": METHODS,
    "learning_rates": [0.5, 0.05],
    "weight_decays": [0.0, 0.1],
    "scales": ["none", "unit"],
    "draws": [3, 4],
    "seeds": [1],
    "scores": ["clean", "auto"],
}


@pytest.fixture
def project(tmp_path: Path, repository: Path) -> Project:
    made = Project(tmp_path, repository)
    made.sections["search"] = {"default": dict(SEARCH)}
    made.sections["simulate"] = {"default": made_of_one_label()}
    made.sections["beliefs"] = copy.deepcopy(finished.shipped(repository)["beliefs"])
    made.set("linear_init", epochs=3, optimizer="adam", momentum=0.9)
    return made


def made_of_one_label() -> dict[str, Any]:
    count = {"kind": "count", "value": 1}
    block = {"protocol": "seeded", "seed": 1200, "empty_rows": "keep", "positives": count}
    return block | {"negatives": {"kind": "count", "value": 0}, "bias": {"kind": "uniform"}}


def folder(project: Project) -> Path:
    return project.root / "analyses" / "search" / "digits"


def rows(project: Project) -> list[dict[str, str]]:
    return read_tsv(folder(project) / "search.tsv")


def run_alone(project: Project, row: dict[str, str], select: str) -> tuple[dict[str, Any], dict[str, str]]:
    """metrics.json and the trial of the stage's own run of a row."""
    draw, seed, method = int(row["draw"]), int(row["seed"]), row["method"]
    own = dict(project.sections["methods"][method]["default"])
    project.set_method(method, **json.loads(row["settings"]))
    values = {"values": [float(row["learning_rate"])], "epochs": None, "extend": 0}
    changes = {"weight_decay": float(row["weight_decay"]), "head": tiny.LINEAR | {"scale": row["scale"]}}
    project.set("linear_init", learning_rate="grid", search=values, select=select, **changes)
    linear_init(project.root, "digits", method, draw, seed)
    project.sections["methods"][method]["default"] = own
    stored = project.folder("linear_init", f"digits-{method}-{draw}-{seed}")
    (trial,) = read_tsv(stored / "search.tsv")
    return read_json(stored / "metrics.json"), trial


@pytest.mark.slow
@pytest.mark.parametrize("draw_of_labels", [{"kind": "count"}, {"kind": "share", "value": 0.4}], ids=["count", "share"])
def test_each_row_is_the_run_of_linear_init_on_its_own(project: Project, draw_of_labels: dict[str, Any]) -> None:
    project.sections["beliefs"]["default"]["draw"] = draw_of_labels
    project.write_params()
    search(project.root, "digits")
    found = rows(project)
    tried = [(name, json.dumps(change)) for name, changes in METHODS.items() for change in changes]
    places = list(itertools.product(tried, [3, 4], [1], [0.0, 0.1], ["none", "unit"], [0.5, 0.05]))
    assert [((row["method"], row["settings"]), int(row["draw"]), int(row["seed"])) for row in found] == [
        (one, draw, seed) for one, draw, seed, *_ in places
    ]
    told = [(float(row["weight_decay"]), row["scale"], float(row["learning_rate"])) for row in found]
    assert told == [tuple(place[-3:]) for place in places]
    for draw in (3, 4):
        simulate(project.root, "digits", draw)
        beliefs(project.root, "digits", draw)
    assert not any(row["diverged"] or row["auto_diverged"] for row in found)
    for row in found[::9]:
        metrics, trial = run_alone(project, row, "clean")
        assert float(row["clean_score"]) == pytest.approx(float(trial["score"]), abs=1e-9)
        assert int(row["clean_epoch"]) == metrics["epoch"]
        assert float(row["clean_test_map"]) == pytest.approx(metrics["test"]["map"], abs=1e-9)
        _, trial = run_alone(project, row, "auto")
        assert float(row["auto_score"]) == pytest.approx(float(trial["score"]), abs=1e-9)
        assert int(row["auto_epoch"]) == int(trial["epoch"])


def test_the_choice_is_of_the_highest_mean_over_draws(project: Project) -> None:
    search(project.root, "digits")
    found, choice = rows(project), read_json(folder(project) / "choice.json")
    assert choice["draws"] == [3, 4] and choice["seeds"] == [1]
    for score in ("clean", "auto"):
        means: dict[tuple[str, ...], list[float]] = {}
        for row in found:
            arm = tuple(row[key] for key in ("method", "settings", "learning_rate", "weight_decay", "scale"))
            means.setdefault(arm, []).append(float(row[f"{score}_score"]))
        top = max(means, key=lambda arm: np.mean(means[arm]))
        best = choice[score]["best"]
        told = (best["method"], json.dumps(best["settings"]), str(best["learning_rate"]), str(best["weight_decay"]))
        assert (*told, best["scale"]) == top and best["score"] == pytest.approx(np.mean(means[top]))
        assert len(choice[score]["others"]) == 4  # one a method and change, at its own best rate and decay
        for other in choice[score]["others"]:
            own = {arm: np.mean(values) for arm, values in means.items() if arm[0] == other["method"]
                   and json.loads(arm[1]) == other["settings"]}  # fmt: skip
            assert other["score"] == pytest.approx(max(own.values()))
            assert other["difference"]["mean"] == pytest.approx(best["score"] - other["score"])
            assert other["difference"]["low"] is None and not other["difference"]["apart"]  # of two draws
    assert "## clean" in (told := (folder(project) / "summary.md").read_text()) and "## auto" in told


@pytest.mark.parametrize("methods", [("an", "full", "reckon"), ("an", "full")], ids=lambda names: names[-1])
def test_beliefs_are_fitted_once_without_each_part_where_a_method_reads_them(project: Project, methods, monkeypatch):
    one = {"learning_rates": [0.05], "weight_decays": [0.0], "scales": ["none"], "draws": [3], "scores": ["auto"]}
    project.sections["search"]["default"] |= one | {"methods": dict.fromkeys(methods, [{}])}
    project.set("linear_init", epochs=1)
    parts: list[int] = []

    def fit(*words: Any) -> np.ndarray:
        parts.append(len(words[-1]))
        return np.full((len(words[-1]), 3), 0.5, np.float32)

    monkeypatch.setattr(settings_search, "fit_beliefs_of", fit)
    search(project.root, "digits")
    folds = split_folds(len(project.table.rows("train")), 1)
    assert parts == [len(others) for others, _ in folds] * ("reckon" in methods)


def row_of(method: str, draw: int, value: float | None, rate: float = 0.1, seed: int = 0) -> dict[str, Any]:
    tried = {"method": method, "settings": "{}", "learning_rate": rate, "weight_decay": 0.0, "scale": "none"}
    scores = {"clean_epoch": 2, "clean_score": value, "clean_test_map": None}
    return tried | {"draw": draw, "seed": seed} | scores


def test_differences_are_paired_by_draw_and_seed() -> None:
    values = {"an": [60.0, 70.0, 50.0], "em": [62.0, 73.0, 51.0]}
    table = [row_of(name, draw, value) for name, own in values.items() for draw, value in enumerate(own)]
    table += [row_of("an", draw, 10.0, rate=0.2) for draw in range(3)]
    table += [row_of("gr", draw, None if draw == 1 else 99.0) for draw in range(3)]  # diverged on a draw
    found = choose_best(table[::-1], "clean")
    assert found["best"]["method"] == "em" and found["best"]["score"] == 62.0
    (other,) = found["others"]
    assert (other["method"], other["learning_rate"]) == ("an", 0.1)
    paired = compare_paired(np.arange(3), np.array([2.0, 3.0, 1.0]))
    assert other["difference"]["mean"] == 2.0 and other["difference"]["won"] == 3
    assert (other["difference"]["low"], other["difference"]["high"]) == (paired["low"], paired["high"])
    assert choose_best([row_of("an", 0, None)], "clean") == {"best": None, "others": []}


def test_clean_or_auto_alone_leave_the_others_columns_empty(project: Project) -> None:
    for score, other in (("clean", "auto"), ("auto", "clean")):
        project.set("search", scores=[score], methods={"an": [{}]}, draws=[3])
        search(project.root, "digits")
        assert all(row[f"{score}_score"] and not row[f"{other}_score"] for row in rows(project))
        assert [key for key in read_json(folder(project) / "choice.json") if key in ("clean", "auto")] == [score]


def test_a_head_that_diverges_is_told_and_the_others_go_on(project: Project) -> None:
    project.set(
        "search", learning_rates=[0.05, 2e37], weight_decays=[0.0], scales=["none"], methods={"an": [{}]}, draws=[3]
    )
    search(project.root, "digits")
    sound, lost = rows(project)
    assert sound["diverged"] == sound["auto_diverged"] == "" and sound["clean_score"] and sound["auto_score"]
    assert (lost["diverged"], lost["auto_diverged"]) == ("1", "1")
    assert not lost["clean_score"] and not lost["auto_score"] and not lost["clean_test_map"]
    assert read_json(folder(project) / "choice.json")["clean"]["best"]["learning_rate"] == 0.05


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"methods": {"emm": [{}]}}, r"^search\.digits\.methods\.emm: unknown method: no file pipeline/methods/emm\.py"),
    (
        {"methods": {"plc": [{}]}},
        r"^search\.digits\.methods\.plc: compares 2 views of an image; cached features hold no",
    ),
    ({"methods": {"lac": [{}]}}, r"^search\.digits\.methods\.lac: compares 2 views"),
    ({"methods": {"an": [{"flour": 0.1}]}}, r"^search\.digits\.methods\.an\.0\.flour: Extra inputs"),
    ({"methods": {"an": [{}, {"floor": 2.0}]}}, r"^search\.digits\.methods\.an\.1\.floor: .*less than 1"),
    ({"methods": {"an": [{}, {}]}}, r"search\.default\.methods\.an: names an entry twice"),
    ({"methods": {"an": []}}, r"search\.default\.methods\.an: .*at least 1 item"),
    ({"methods": {}}, r"search\.default\.methods: .*at least 1 item"),
    ({"learning_rates": []}, r"search\.default\.learning_rates: .*at least 1 item"),
    (
        {"learning_rates": [0.1, 0.1]},
        r"search\.default\.learning_rates: names an entry twice \(given: \[0\.1, 0\.1\]\)",
    ),
    ({"draws": []}, r"search\.default\.draws: .*at least 1 item"),
    ({"seeds": [0, 0]}, r"search\.default\.seeds: names an entry twice"),
    ({"scales": ["l2"]}, r"search\.default\.scales\.0: .*'none' or 'unit'"),
    ({"scores": ["test"]}, r"search\.default\.scores\.0: .*'clean' or 'auto'"),
]


@pytest.mark.parametrize(("change", "message"), FAULTS, ids=lambda value: str(value)[:30])
def test_faults_are_named_before_anything_is_read(project: Project, change: dict[str, Any], message: str) -> None:
    project.set("search", **change)
    project.cache.unlink()
    with pytest.raises(ConfigError, match=message):
        search(project.root, "digits")
    assert not folder(project).exists()


STAGES: list[tuple[dict[str, Any], str]] = [
    ({"ema": {"decay": 0.9, "rule": "warmup"}}, r"^linear_init\.digits\.ema: is set, but a search scores raw weights"),
    (
        {"readout": {"pools": ["mean"], "sharpness": None, "share": 0.5}},
        r"^linear_init\.digits\.readout: is set, but a search scores heads as trained",
    ),
    ({"protocol": "published"}, r"linear_init\.digits\.protocol: published, but a search trains all methods alike"),
    ({"early_stop": {"rule": "first_dip", "amount": 0.0}}, r"linear_init\.digits\.early_stop: stops by a score, and "),
    ({"flip": True}, r"^linear_init\.digits\.flip: needs the mirrored view \(features\.digits\.mirrored\)$"),
]


@pytest.mark.parametrize(("change", "message"), STAGES, ids=lambda value: str(value)[:30])
def test_what_linear_init_cannot_give_is_named(project: Project, change: dict[str, Any], message: str) -> None:
    project.set("linear_init", **change)
    with pytest.raises(ConfigError, match=message):
        search(project.root, "digits")


def test_what_the_data_cannot_give_is_named(project: Project) -> None:
    project.sections["methods"]["ridge"] = {"default": {}}
    project.sections["methods"]["epr"] = {"default": {"floor": 0.0, "weight": 1.0}}
    project.sections["expected_positives"] = {}
    project.set("search", methods={"ridge": [{}]})
    with pytest.raises(
        ConfigError, match=r"methods\.ridge: is fitted in closed form, without rate or epochs to search"
    ):
        search(project.root, "digits")
    project.set("search", methods={"epr": [{}]})
    with pytest.raises(ConfigError, match=r"methods\.epr: needs expected_positives\.digits, the labels that an image"):
        search(project.root, "digits")
    project.set("search", methods={"an": [{}]})
    project.set("simulate", protocol="literature")
    with pytest.raises(ConfigError, match=r"^search\.digits\.draws: \[3, 4\], but simulate\.protocol of digits is lit"):
        search(project.root, "digits")
    project.set("simulate", protocol="seeded")
    unknown = project.table.scored.copy()
    unknown[project.table.rows("val")[0]] = False
    project.write_table(exhaustive=False)
    with pytest.raises(
        ConfigError, match=r"^search\.digits\.scores: clean, but the labels of digits are not exhaustive"
    ):
        search(project.root, "digits")
    project.set("search", scores=["auto"], methods={"an": [{}], "iun": [{}]}, draws=[0])
    project.set("simulate", protocol="given")
    with pytest.raises(ConfigError, match=r"^search\.digits\.methods\.iun: `iun` is an oracle, "):
        search(project.root, "digits")
    project.write_table()
    project.set("search", scores=["clean"], methods={"an": [{}]})
    project.set("simulate", protocol="seeded")
    project.cache.unlink()
    with pytest.raises(FileError, match=r"features\.h5: no such file"):
        search(project.root, "digits")
