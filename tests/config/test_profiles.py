"""The experiments in profiles/: that each can start, and that the published ones hold the published numbers."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline.config import profiles, rules
from pipeline.config.params import BENCHMARKS, PUBLISHED, TRAINING_STAGES, Params
from pipeline.config.plan import plan_run
from pipeline.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
NAMES = profiles.names(ROOT)
ROWS = {"voc": (4574, 20), "coco": (65665, 80), "nus": (120000, 81), "cub": (4795, 312)}
"""Training images after the cut, and classes: Zhou 2022, Table 5."""


@cache
def params(name: str) -> Params:
    return profiles.params(ROOT, name)


def runs(stage: str, name: str) -> list[tuple[str, str, str | None]]:
    """(dataset, method, variant) of each run of a training stage."""
    given = params(name)
    found: list[tuple[str, str, str | None]] = [
        (dataset, method, None) for dataset in given.grid.datasets for method in getattr(given.grid, stage)
    ]
    return found + [(each.dataset, each.method, key) for key, each in getattr(given.variants, stage).items()]


def plain(base: Any, change: Any) -> Any:
    """What a profile means, on plain mappings."""
    result = dict(base)
    for key, value in change.items():
        old = base.get(key)
        alike = isinstance(old, dict) and isinstance(value, dict) and value
        if alike and all(value.get(tag, old.get(tag)) == old.get(tag) for tag in ("kind", "source")):
            value = plain(old, value)
        result[key] = value
    return result


def whole(texts: dict[str, str]) -> dict[str, Any]:
    """Content of params.yaml, and under ``methods`` that of the methods' files."""
    read = {Path(file).stem: YAML(typ="safe", pure=True).load(text) for file, text in texts.items()}
    return read.pop("params") | {"methods": read}


@pytest.mark.parametrize("name", [name for name in NAMES if name != profiles.DEFAULT])
def test_a_profile_is_the_default_but_for_what_it_names(name: str) -> None:
    default, composed = whole(profiles.default_texts(ROOT)), whole(profiles.compose(ROOT, name))
    change = YAML(typ="safe", pure=True).load((ROOT / f"profiles/{name}.yaml").read_text())
    expected = plain(default, change | {"profile": name})
    for variants in expected["variants"].values():
        for key in [key for key in variants if variants[key]["dataset"] not in expected["grid"]["datasets"]]:
            del variants[key]
    assert composed == expected


def test_every_method_has_a_file_of_settings_and_no_other_has() -> None:
    files = {path.stem for path in (ROOT / "pipeline/methods").glob("*.py")} - {"__init__"}
    assert set(params("default").methods) == files


def test_no_dataset_repeats_what_default_holds() -> None:
    for name, section in params("default").methods.items():
        default, recipes = section["default"], section.get(PUBLISHED, {})
        blocks = [(default, block) for dataset, block in section.items() if dataset not in ("default", PUBLISHED)]
        for stage, recipe in recipes.get("default", {}).items():
            blocks += [(recipe, recipes[key][stage]) for key in recipes if key != "default" and stage in recipes[key]]
        for below, block in blocks:
            assert block and not [key for key in block if key in below and below[key] == block[key]], name


@pytest.mark.parametrize("name", ["methods", "voc_photos"])
def test_the_methods_with_a_linear_head_there_can_have_one(name: str) -> None:
    given = params(name)
    can = {method for method in given.methods if not _problems(given, "linear_init", given.grid.datasets[0], method)}
    assert set(given.grid.linear_init) <= can and len(given.grid.linear_init) > 20
    if name == "methods":
        heads_only = {"draw", "ridge", "ridge_full"}  # what they are worth linear heads show
        assert given.grid.finetune == [each for each in given.grid.linear_init if each not in heads_only]
        others = {variant.method for variant in given.variants.finetune.values()}
        assert others == {"plc", "lasd", "scl"} and not others & can


def _problems(given: Params, stage: str, dataset: str, method: str) -> list[str]:
    run = plan_run(given, stage, dataset, method, None)
    return [*rules.training_run(run), *rules.start_weights(run)]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_epoch_logits_that_are_kept_fit_the_budget(name: str) -> None:
    images, classes = ROWS[name]
    for stage in TRAINING_STAGES:
        for dataset, method, variant in runs(stage, name):
            settings, _ = params(name).run(stage, dataset, method, variant)
            assert not settings.keep_epoch_logits or settings.epochs * images * classes <= rules.BUDGET, (stage, method)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_published_experiment_is_run_as_published(name: str) -> None:
    given = params(name)
    assert given.grid.datasets == [name] and given.grid.seeds == [0, 1, 2]
    assert given.settings("simulate", name).model_dump(include={"protocol", "seed"}) == {
        "protocol": "literature",
        "seed": 1200,
    }
    expected = {"model": "resnet50.tv_in1k", "weights": "hub", "mean": None}
    assert given.settings("backbone", name).model_dump(include={*expected}) == expected
    expected = {"root": "ROOT", "size": 448, "val_fraction": 0.2, "split_seed": 1200}
    assert given.prepare[name].items() >= expected.items()
    assert given.expected_positives[name].value == {"voc": 1.46, "coco": 2.94, "nus": 1.89, "cub": 31.4}[name]
    for stage in TRAINING_STAGES:
        for method in getattr(given.grid, stage):
            settings, _ = given.run(stage, name, method)
            assert (settings.protocol, settings.select, settings.flip) == ("published", "clean", stage != "linear_init")
    assert given.grid.linear_init == given.grid.finetune == ["ls", "role"]
    assert {head.kind for head in (given.run("end_to_end", name, each)[0].head for each in ("an", "em"))} == {"linear"}


# Rows are VOC, COCO, NUS, CUB. A key with a stage is one of the training, the others are the method's own.
RECIPES: dict[tuple[str, str], tuple[Any, ...]] = {
    # Zhou 2022, Table 6 and main.py
    ("em_apl", "alpha"): (0.2, 0.1, 0.1, 0.01),
    ("em_apl", "beta"): (0.02, 0.9, 0.2, 0.4),
    ("em_apl", "proportion"): (0.9,) * 4,
    ("em_apl", "warmup"): (0.5, 0.5, 0.4, 0.3),
    ("em_apl", "target"): ("soft",) * 4,
    ("em_apl", "positive"): (0.0,) * 4,
    ("em", "alpha"): (0.2, 0.1, 0.1, 0.01),
    **{
        (method, f"end_to_end.{key}"): values
        for method in ("full", "iun", "an", "em", "em_apl")
        for key, values in {
            "batch_size": (8, 16, 16, 8),
            "learning_rate": (1e-5, 1e-5, 1e-5, 1e-4),
            "epochs": (10,) * 4,
            "optimizer": ("adam",) * 4,
            "head_factor": (1.0,) * 4,
            "schedule": ("constant",) * 4,
            "batch_norm": ("train",) * 4,
            "early_stop.rule": ("first_dip",) * 4,
        }.items()
    },
    # Zhou 2022, B.2
    ("dw", "weight"): (0.1, 0.1, 0.1, 0.02),
    ("l1r", "weight"): (1e-6, 1e-7, 1e-7, 1e-9),
    ("l2r", "weight"): (1e-6, 1e-7, 1e-6, 1e-8),
    ("ls", "eps"): (0.1,) * 4,
    ("n_ls", "eps"): (0.3, 0.1, 0.1, 0.1),
    ("entmin", "weight"): (0.01, 0.9, 0.4, 0.4),
    ("focal", "gamma"): (2.0,) * 4,
    ("focal", "alpha"): (0.75,) * 4,
    ("asl", "gamma_pos"): (0.0,) * 4,
    ("asl", "gamma_neg"): (2.0, 2.0, 2.0, 1.0),
    ("asl", "shift"): (0.2, 0.2, 0.2, 0.0),
    **{
        (method, f"end_to_end.{key}"): (value,) * 4
        for method in ("dw", "l1r", "l2r", "n_ls", "entmin", "focal", "asl")
        for key, value in {
            "learning_rate": "grid",
            "search.values": [1e-5, 1e-4, 1e-3, 1e-2],
            "search.epochs": None,
            "search.extend": 0,
            "epochs": 10,
            "early_stop.rule": "first_dip",
        }.items()
    },
    # Cole 2021, code
    ("epr", "weight"): (1.0,) * 4,
    ("role", "factor"): (10.0,) * 4,
    ("ls", "half"): (False,) * 4,
    ("ls", "linear_init.learning_rate"): (1e-4,) * 4,
    ("ls", "linear_init.batch_size"): (8, 8, 16, 8),
    ("role", "linear_init.learning_rate"): (1e-3,) * 4,
    ("role", "linear_init.batch_size"): (16, 16, 16, 8),
    **{
        (method, key): (value,) * 4
        for method in ("ls", "role")
        for key, value in {
            "linear_init.epochs": 25,
            "linear_init.early_stop.rule": "none",
            "finetune.epochs": 10,
            "finetune.learning_rate": "grid",
            "finetune.search.values": [1e-5, 1e-4, 1e-3, 1e-2],
            "finetune.search.extend": 0,
            "finetune.head_factor": 1.0,
            "finetune.early_stop.rule": "none",
            "end_to_end.early_stop.rule": "none",
        }.items()
    },
    ("wan", "end_to_end.early_stop.rule"): ("none",) * 4,
    ("epr", "end_to_end.early_stop.rule"): ("none",) * 4,
    # GR 2024, Table 6; first values, q1 and what is below `learning_rate`: its code
    ("gr", "belief.weight"): ([0.0, 2.0], [0.0, 10.0], [0.0, 10.0], [0.0, 10.0]),
    ("gr", "belief.bias"): ([-2.0, -2.0], [-2.0, -8.0], [-2.0, -8.0], [-2.0, -8.0]),
    ("gr", "weight.mu"): ([0.5, 0.8],) * 4,
    ("gr", "weight.sigma"): ([2.0, 0.5],) * 4,
    ("gr", "q1"): (0.0,) * 4,
    ("gr", "q2"): (0.01,) * 4,
    ("gr", "q3"): (1.0, 1.0, 1.0, 1.5),
    ("gr", "schedule"): ("code",) * 4,
    ("gr", "hold"): (0.0,) * 4,
    ("gr", "end_to_end.batch_size"): (8, 16, 16, 8),
    ("gr", "end_to_end.epochs"): (8, 8, 10, 10),
    ("gr", "end_to_end.learning_rate"): (1e-5, 1e-5, 1e-5, 5e-5),
    ("gr", "end_to_end.optimizer"): ("adam",) * 4,
    ("gr", "end_to_end.head_factor"): (10.0,) * 4,
    ("gr", "end_to_end.early_stop"): ({"rule": "drop", "amount": 2.0},) * 4,
    # LASD, Table 4
    ("lasd", "lambda_plus"): (0.1, 0.03, 0.015, 0.005),
    ("lasd", "lambda_minus"): (None,) * 4,
    ("lasd", "threshold"): (0.9, 0.9, 0.95, 0.93),
    ("lasd", "alpha"): (0.7, 0.1, 0.15, 0.03),
    ("lasd", "gamma_pos"): (0.0,) * 4,
    ("lasd", "gamma_neg"): (4.0,) * 4,
    ("lasd", "end_to_end.epochs"): (10,) * 4,
    ("lasd", "end_to_end.search.values"): ([1e-5, 1e-4, 1e-3, 1e-2],) * 4,
    # large losses: the authors' issue 4, in percent there
    ("ll_r", "delta"): (0.002, 0.004, 0.004, 0.004),
    ("ll_ct", "delta"): (0.002, 0.002, 0.002, 0.004),
    ("ll_cp", "delta"): (0.001, 0.002, 0.002, 0.002),
    **{
        (method, f"end_to_end.{key}"): values
        for method in ("ll_r", "ll_ct", "ll_cp")
        for key, values in {
            "optimizer": ("sgd", "adam", "adam", "adam"),
            "momentum": (0.9, 0.9, 0.9, 0.9),
            "weight_decay": (1e-3, 0.0, 0.0, 0.0),
            "learning_rate": (5e-3, 1e-5, 1e-5, 7.5e-5),
            "batch_size": (16,) * 4,
            "epochs": (10,) * 4,
            "head_factor": (10.0,) * 4,
            "early_stop": ({"rule": "drop", "amount": 3.0},) * 4,
        }.items()
    },
    # Zhang 2021, code
    ("hill", "lamb"): (1.5,) * 4,
    ("hill", "positive.margin"): (1.0,) * 4,
    ("hill", "positive.gamma"): (2.0,) * 4,
    ("splc", "threshold"): (0.6,) * 4,
    ("splc", "margin"): (1.0,) * 4,
    ("splc", "gamma"): (2.0,) * 4,
    ("splc", "negative.kind"): ("focal",) * 4,
    ("splc", "corrected_margin"): (False,) * 4,
    # MIME, code
    ("mime", "theta"): (0.95,) * 4,
    ("mime", "beta"): (1e-4,) * 4,
    ("mime", "warmup"): (0.2, 0.2, 0.2, 0.5),
    ("mime", "end_to_end.optimizer"): ("adamax",) * 4,
    ("mime", "end_to_end.learning_rate"): (1e-4,) * 4,
    ("mime", "end_to_end.head_factor"): (10.0,) * 4,
    ("mime", "end_to_end.weight_decay"): (0.0,) * 4,
    ("mime", "end_to_end.epochs"): (10,) * 4,
    ("mime", "end_to_end.batch_size"): (32, 32, 16, 16),
    ("mime", "end_to_end.early_stop.rule"): ("none",) * 4,
    ("mime", "end_to_end.batch_norm"): ("frozen",) * 4,
    ("mime", "end_to_end.schedule"): ("constant",) * 4,
    ("mime", "end_to_end.ema"): (None,) * 4,
    ("mime", "end_to_end.head.kind"): ("bottleneck",) * 4,
    ("mime", "end_to_end.head.latent"): (256,) * 4,
    ("mime", "end_to_end.head.samples"): (10,) * 4,
    # Xie 2022: the authors' README (COCO) and issue 2 (CUB)
    ("plc", "threshold"): (0.6, 0.6, 0.6, 0.5),
    ("lac", "threshold"): (0.9,) * 4,
    ("lac", "temperature"): (0.5,) * 4,
    ("lac", "queue_size"): (512, 512, 512, 2048),
    ("lac", "wrap"): ("published",) * 4,
    **{
        (method, f"{stage}.{key}"): (value,) * 4
        for method, stage in (("plc", "end_to_end"), ("lac", "lac"))
        for key, value in {
            "optimizer": "adamw",
            "weight_decay": 0.01,
            "learning_rate": 1e-4,
            "schedule": "onecycle",
            "warmup": 0.2,
            "epochs": 40,
            "batch_size": 32,
            "ema": {"decay": 0.9997, "rule": "published"},
            "early_stop": {"rule": "patience", "amount": 8.0},
            "batch_norm": "frozen",
            "freeze": ["conv1", "bn1", "layer1"],
            "head_factor": 1.0,
            "head.kind": "label_embedding",
            "head.dim": None,
            "head.heads": 4,
            "head.feedforward": 8192,
            "head.encoder_layers": 1,
            "head.decoder_layers": 2,
            "head.dropout": 0.1,
            "head.embedding": 128,
            "strong.cutout": 0.5,
            "strong.jitter": 0.8,
            "strong.grayscale": 0.2,
            "strong.crop": 1.0,
        }.items()
    },
}


def looked_up(name: str, method: str, key: str, variant: str | None = None, stage: str = "end_to_end") -> Any:
    """The value of a dotted key of a run; a stage's name before it leads to the training."""
    first, _, rest = key.partition(".")
    inside = first in TRAINING_STAGES
    training, own = params(name).run(first if inside else stage, name, method, variant)
    value: Any = training.model_dump() if inside else own
    for part in (rest if inside else key).split("."):
        value = value[part]
    return value


@pytest.mark.parametrize(("method", "key"), RECIPES)
def test_a_published_number(method: str, key: str) -> None:
    assert tuple(looked_up(name, method, key) for name in BENCHMARKS) == RECIPES[method, key]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_recipe_says_whether_pictures_are_mirrored(name: str) -> None:
    """As in the code of Cole 2021, from which the others come, and of Xie 2022; LinearInit's features were not."""
    given, found = params(name), []
    for method in given.methods:
        for stage in TRAINING_STAGES:
            try:
                recipe = given.published(method, name, stage)
            except ConfigError:
                continue  # none of that stage
            assert recipe["flip"] is (stage != "linear_init"), (method, stage)
            found.append(stage)
    assert {stage: found.count(stage) for stage in TRAINING_STAGES} == {
        "linear_init": 2,
        "finetune": 2,
        "end_to_end": sum(PUBLISHED in section for section in given.methods.values()),
        "lac": 1,
    }


def test_every_published_run_of_the_papers_tables_is_asked_for() -> None:
    zhou = {"full", "iun", "an", "dw", "l1r", "l2r", "ls", "n_ls", "entmin", "focal", "asl", "role", "em", "em_apl"}
    gr = {"an", "ls", "focal", "hill", "splc", "ll_r", "ll_ct", "ll_cp", "role", "em", "em_apl", "smile", "mime", "gr"}
    lasd = {"asl", "epr", "ll_r", "ll_ct", "ll_cp", "lasd"}
    lac = {"wan", "epr", "an", "ls", "role", "em", "em_apl", "plc"}
    consistent = {"cl", "scl"}  # quoted on VOC and COCO by Xie 2022
    for name in BENCHMARKS:
        expected = zhou | gr | lasd | lac | (consistent if name in ("voc", "coco") else set())
        grid = params(name).grid
        assert set(grid.end_to_end) == expected and grid.lac == ["lac"]
        column = {each.method for key, each in params(name).variants.end_to_end.items() if key.endswith("-lem")}
        assert column == lac - {"plc"}


def variants(name: str, stage: str, method: str) -> dict[str, dict[str, Any]]:
    """What variants of a method change, by name; each is there at every seed of the grid."""
    found: dict[str, dict[int, Any]] = {}
    for key, each in getattr(params(name).variants, stage).items():
        if each.method == method and not key.endswith("-lem"):
            found.setdefault(key.split("-", 4)[4], {})[each.seed] = each.set.model_dump()
    assert all(sorted(seeds) == params(name).grid.seeds for seeds in found.values())
    return {what: seeds[0] for what, seeds in found.items()}


def method_changes(name: str, stage: str, method: str) -> dict[str, dict[str, Any]]:
    """The same for variants that change the method alone."""
    found = variants(name, stage, method)
    assert all(change["stage"] == {} for change in found.values())
    return {what: change["method"] for what, change in found.items()}


def test_ablation_of_apl() -> None:
    assert method_changes("cub", "end_to_end", "em_apl") == {
        "low_proportion": {"proportion": 0.1},
        "hard": {"target": "hard"},
        "full_weight": {"beta": 1.0},
        "positive": {"positive": 0.1},
    }
    for name in set(BENCHMARKS) - {"cub"}:
        assert variants(name, "end_to_end", "em_apl") == {}


@pytest.mark.parametrize("name", ["voc", "coco"])
def test_ablation_of_gr(name: str) -> None:
    found = method_changes(name, "end_to_end", "gr")
    trainable = found.pop("trainable")
    assert set(trainable) == {"belief"} and trainable["belief"]["kind"] == "trainable"
    assert set(found) == {"none", "k", "v", "l", "k_v", "k_l", "v_l"}
    for what in found:
        parts = set(what.split("_"))
        run = {
            key: looked_up(name, "gr", key, f"{name}-gr-0-0-{what}") for key in ("belief", "weight", "q1", "q2", "q3")
        }
        whole = {key: looked_up(name, "gr", key) for key in run}
        assert run["belief"] == (whole["belief"] if "k" in parts else {"kind": "constant", "value": 0.0})
        assert run["weight"] == (whole["weight"] if "v" in parts else {"kind": "constant", "value": 1.0})
        powers = {key: whole[key] if "l" in parts else 0.01 for key in ("q1", "q2", "q3")}
        assert {key: run[key] for key in powers} == powers


def test_ablation_of_lasd() -> None:
    assert method_changes("voc", "end_to_end", "lasd") == {
        "disambiguation": {"alpha": 0.0},
        "leverage": {"alpha": 0.0, "threshold": 1.0},
        "none": {"alpha": 0.0, "threshold": 1.0, "gamma_neg": 0.0, "lambda_minus": 1.0},
    }


@pytest.mark.parametrize("name", ["voc", "coco"])
def test_ablation_of_lac(name: str) -> None:
    assert method_changes(name, "end_to_end", "lac") == {"one_stage": {"queue_size": 0}}
    assert method_changes(name, "lac", "lac") == {"no_queue": {"queue_size": 0}}
    both = (f"{name}-an-0-1-lem", None)  # AN alone and AN with PLC, on one network by one recipe
    alone, with_plc = (
        params(name).run("end_to_end", name, method, key)[0].model_dump()
        for method, key in zip(("an", "plc"), both, strict=True)
    )
    assert {key for key in alone if alone[key] != with_plc[key]} == {"protocol"}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_boosted_large_losses(name: str) -> None:
    recipe = {"optimizer": "adam", "learning_rate": 1e-5, "batch_size": 16, "epochs": 10, "head_factor": 10.0}
    recipe |= {"momentum": 0.9, "weight_decay": 0.0, "schedule": "constant", "batch_norm": "train"}
    recipe |= {
        "head": {"kind": "boosted", "factor": 5.0, "scale": "none"},
        "early_stop": {"rule": "none", "amount": 0.0},
    }
    for method, delta in (("ll_r", 0.005), ("ll_ct", 0.002), ("ll_cp", 0.001)):
        assert set(variants(name, "end_to_end", method)) == {"boosted"}
        training, own = params(name).run("end_to_end", name, method, f"{name}-{method}-0-2-boosted")
        assert training.model_dump().items() >= recipe.items() and own["delta"] == delta


def test_backbones_of_zhou() -> None:
    given = params("voc_backbones")
    models = {name: given.settings("backbone", name).model for name in given.grid.datasets}
    assert models == {
        "voc_resnet34": "resnet34.tv_in1k",
        "voc": "resnet50.tv_in1k",
        "voc_resnet101": "resnet101.tv_in1k",
    }
    assert given.grid.end_to_end == ["an", "role", "em"]
    for method in given.grid.end_to_end:
        own = {str(given.run("end_to_end", name, method)) for name in models}
        training, settings = params("voc").run("end_to_end", "voc", method)
        assert own == {str((training.model_copy(update={"strong": None}), settings))}  # no method here compares views
    for section in ("prepare", "expected_positives"):
        assert len({str(getattr(given, section)[name]) for name in models}) == 1
