"""The preflight: each fault that would cost hours is found before anything runs, and named by its key."""

import copy
import hashlib
import itertools
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from ruamel.yaml import YAML

from pipeline.config import preflight, profiles, rules
from pipeline.config.graph import LastRun
from pipeline.config.params import METHODS, PARAMS, TRAINING_STAGES, Params, parse_params
from pipeline.config.plan import plan_run
from pipeline.core import files
from pipeline.core.errors import ConfigError
from pipeline.labels.table import Table, write_table
from pipeline.methods.shared import base
from pipeline.networks import timm_backbone
from pipeline.networks.settings import HEAD_GIVES, SAME_WEIGHTS
from pipeline.sources import cub, voc
from pipeline.training.settings import Training
from tests import tiny
from tests.sources import test_coco, test_cub, test_nus
from tests.trees import PICTURES


@pytest.fixture(scope="session")
def default(repository: Path) -> Any:
    """Content of the default params; under ``methods`` that of the methods' files."""
    yaml = YAML(typ="safe", pure=True)
    methods = {path.stem: yaml.load(path.read_text()) for path in (repository / METHODS).glob("*.yaml")}
    return yaml.load((repository / PARAMS).read_text()) | {"methods": methods}


class Project:
    """An empty project with the default params in memory."""

    def __init__(self, root: Path, content: Any):
        self.root, self.content = root, content

    def edit(self, changes: dict[str, Any]) -> None:
        """Set keys, parted by slashes, those of a method's file below ``methods/<name>``; ``...`` deletes the key."""
        for path, value in changes.items():
            *parents, last = path.split("/")
            block = self.content
            for key in parents:
                block = block.setdefault(key, {})
            if value is ...:
                del block[last]
            else:
                block[last] = copy.deepcopy(value)

    @property
    def params(self) -> Params:
        content = {key: block for key, block in self.content.items() if key != "methods"}
        return parse_params(content, self.content["methods"], whole=True)

    def problems(self) -> list[str]:
        return preflight.check(self.root, self.params, LastRun(self.root))

    def data_problems(self) -> list[str]:
        """Those of datasets, without those of runs on them."""
        last = LastRun(self.root)
        return [
            line
            for dataset in self.content["grid"]["datasets"]
            for line in preflight.check_dataset(self.root, self.params, dataset, last)[0]
        ]


@pytest.fixture
def project(tmp_path: Path, default: Any) -> Project:
    return Project(tmp_path, copy.deepcopy(default))


def test_the_default_passes(project: Project) -> None:
    assert project.problems() == []


AUTO = tiny.BLOCK | {"select": "auto", "learning_rate": "grid"}
AUTO |= {"search": {"values": [0.01, 0.1, 1.0], "epochs": None, "extend": 0}}
BOTTLENECK = tiny.EMBEDDING | {"kind": "bottleneck", "latent": 4, "samples": 2}
del BOTTLENECK["embedding"]
TRANSFORMER = {
    "kind": "label_embedding",
    "dim": 8,
    "heads": 2,
    "feedforward": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "dropout": 0.0,
    "embedding": 4,
}
LINEAR = {"head": {"kind": "linear", "scale": "none"}}
BOOSTED = {"kind": "boosted", "factor": 5.0, "scale": "none"}
BOTH = {"kind": "linear", "scale": ["none", "unit"]}
EVERY = ["an", "em", "em_apl", "iun", "full", "lac"]
FILE = {"source": "timm", "model": "resnet18", "weights": "file", "file": "gone.pth", "mean": None, "std": None}
VARIANT = {"dataset": "digits", "method": "an", "draw": 0, "seed": 0, "set": {"stage": {}, "method": {}}}
PUBLISHED = {"stage": {"protocol": "published"}, "method": {}}
STRONG = {"stage": {"strong": tiny.STRONG}, "method": {}}


def started(start: str, **stage: Any) -> dict[str, Any]:
    """Variant of finetune that starts from a method's linear head."""
    return {"variants/finetune/digits-an-0-0-x": VARIANT | {"start": start, "set": {"stage": stage, "method": {}}}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # schema
        ({"finetune/default/epoch": 3}, r"finetune\.\w+\.epoch: "),
        ({"finetune/default/epochs": ...}, r"finetune\.\w+\.epochs: "),
        ({"finetune/default/epochs": "8"}, r"finetune\.\w+\.epochs: "),
        ({"grid/datasets": ["dig-its"]}, r"grid\.datasets: .*dig-its"),
        # methods
        (
            {
                "grid/linear_init": ["an", "emm"],
                "methods/emm": {"default": {}},
                "grid/finetune": [],
                "grid/landscape": [],
            },
            r"grid\.linear_init: unknown method: no file pipeline/methods/emm\.py; there are an, .*\bem, em_apl, ",
        ),
        (
            {"grid/end_to_end": ["plc", "base"], "methods/base": {"default": {}}},
            r"grid\.end_to_end: unknown method: no file pipeline/methods/base\.py",
        ),
        ({"methods/em": ...}, r"^params/methods/em\.yaml: no such file; there are an, "),
        ({"methods/l1r": ...}, r"^params/methods/l1r\.yaml: no such file, and there is pipeline/methods/l1r\.py$"),
        (
            {"methods/emm": {"default": {}}},
            r"^params/methods/emm\.yaml: unknown method: no file pipeline/methods/emm\.py; ",
        ),
        ({"methods/em/default/alpha": "high"}, r"params/methods/em\.yaml:default\.alpha: "),
        ({"linear_init/digit": {"epochs": 3}}, r"linear_init\.digit: no dataset of that name"),
        ({"methods/em/voc": {"alfa": 0.1}}, r"em\.yaml:voc\.alfa: "),  # a dataset that the grid does not run
        # what a stage can give
        ({"grid/linear_init": EVERY}, r"grid\.linear_init: `lac` compares 2 views"),
        (
            {"grid/linear_init": EVERY},
            r"grid\.linear_init: `lac` needs embeddings, which linear_init\.default\.head `linear` does not give",
        ),
        # scale of features
        (
            {"linear_init/default/head/scale": "unit", "finetune/default/head/scale": "unit"},
            r"^linear_init\.default\.head\.scale: unit, but `ridge` \(grid\.linear_init\) is fitted to features as "
            r"they are; set it to none, or to \[none, unit\] beside methods that search it$",
        ),
        (
            {"end_to_end/default/head": BOTH},
            r"^end_to_end\.default\.head\.scale: a list is tried with the rates of `learning_rate: grid`; name one "
            r"\(grid\.end_to_end\)$",
        ),
        (
            {"linear_init/default/head": BOTH},
            r"^finetune\.default\.head: differs from linear_init\.default\.head, whose weights it starts from ",
        ),
        (
            {"finetune/default/head": BOTH},
            r"^finetune\.default\.head: differs from linear_init\.default\.head, whose weights it starts from ",
        ),
        (
            {"finetune/default/head/scale": "unit"},
            r"^finetune\.default\.head: differs from linear_init\.default\.head, whose weights it starts from ",
        ),
        (
            {"lac/default/strong": None},
            r"lac\.default\.strong: is null, and `lac` \(grid\.lac\) asks for a strong view",
        ),
        (
            {"finetune/default/strong": tiny.STRONG, "grid/finetune": ["an", "em"]},
            r"^finetune\.default\.strong: is set, and compared by none of an, em; set it to null$",
        ),
        (
            {"variants/lac/digits-an-0-0-x": VARIANT | {"method": "an", "set": STRONG}},
            r"^variants\.lac\.digits-an-0-0-x\.set\.stage\.strong: is set, and compared by none of an; set it to null$",
        ),
        (
            {"finetune/default/protocol": "published"}
            | {"methods/iun/published/default": {"finetune": {"strong": tiny.STRONG}}},
            r"^params/methods/iun\.yaml:published\.default\.finetune\.strong: is set, and compared by none of iun; ",
        ),
        ({"linear_init/default/head": TRANSFORMER}, r"linear_init\.default\.head: `label_embedding` reads maps"),
        ({"linear_init/default/head": BOOSTED}, r"linear_init\.default\.head: `boosted` reads maps"),
        (
            {"grid/linear_init": [*EVERY[:-1], "scl"]},
            r"^grid\.linear_init: `scl` needs geometry and maps of pictures; cached features hold none$",
        ),
        (
            {"grid/end_to_end": ["plc", "scl"]},
            r"^grid\.end_to_end: `scl` needs maps, which end_to_end\.default\.head `label_embedding` does not give$",
        ),
        (
            {"grid/end_to_end": ["plc", "mime"]},
            r"^grid\.end_to_end: `mime` needs posterior, which end_to_end\.default\.head `label_embedding` does not",
        ),
        # published recipes
        (
            {"finetune/default/protocol": "published", "methods/iun/published": {"voc": {"finetune": {"epochs": 2}}}},
            r"^params/methods/iun\.yaml:published: has no recipe of finetune for digits, which `protocol: published` ",
        ),
        (
            {
                "variants/lac/digits-plc-0-0-x": VARIANT | {"method": "plc", "set": PUBLISHED},
                "methods/plc/published": {},
            },
            r"^params/methods/plc\.yaml:published: has no recipe of lac for digits",
        ),
        (
            {"variants/lac/digits-plc-0-0-x": VARIANT | {"method": "plc", "set": PUBLISHED}}
            | {"methods/plc/published/default/lac": {"strong": None}},
            r"^params/methods/plc\.yaml:published\.default\.lac\.strong: is null, and `plc` \(variants\.lac\.digits",
        ),
        ({"methods/em/published/voc": {"finetune": {"epoch": 3}}}, r"/em\.yaml:published\.voc\.finetune\.epoch: "),
        ({"methods/em/published/vocc": {"finetune": {}}}, r"/em\.yaml:published\.vocc: no dataset of that name"),
        (  # the second stage goes on from plc's network, whatever else fits
            {
                "grid/end_to_end": ["plc", "an"],
                "lac/default/head": TRANSFORMER,
                "end_to_end/default/head": TRANSFORMER,
                "end_to_end/default/protocol": "published",
                "methods/plc/published": {"default": {"end_to_end": {"head": TRANSFORMER | {"embedding": 5}}}},
                "methods/an/published": {"default": {"end_to_end": {"head": TRANSFORMER}}},
            },
            r"^lac\.default\.head: differs from params/methods/plc\.yaml:published\.default\.end_to_end\.head, whose",
        ),
        (
            {"linear_init/default/crop": 0.5},
            r"^linear_init\.default\.crop: concerns images .* \(grid\.linear_init\)$",
        ),
        (
            {"linear_init/default/freeze": ["conv1"]},
            r"^linear_init\.default\.freeze: concerns images .* \(grid\.linear_init\)$",
        ),
        (
            {"linear_init/default/readout": {"pools": ["mean"], "sharpness": None, "share": 1.0}},
            r"^linear_init\.default\.readout\.share: 1 makes of every method .* name a share below 1 ",
        ),
        (
            {"linear_init/default/readout": {"pools": ["sqrt"], "sharpness": None, "share": 0.5}},
            r"^linear_init\.default\.readout\.pools: differ from \['mean'\], .*; name these, or set readout to null$",
        ),
        (
            {"linear_init/default/readout": {"pools": ["mean"], "sharpness": 0.2, "share": 0.5}},
            r"^linear_init\.default\.readout\.sharpness: is to be one, .* linear_init\.default\.head, ",
        ),
        (
            {"finetune/default/readout": {"pools": ["sqrt"], "sharpness": None, "share": 0.5}},
            r"^finetune\.default\.readout\.pools: differ from \['mean'\], .*; name these, or set share to 1$",
        ),
        (
            {
                "linear_init/default/readout": {"pools": ["mean"], "sharpness": None, "share": 0.5},
                "linear_init/default/head": {"kind": "linear", "scale": ["none", "unit"]},
            },
            r"^linear_init\.default\.readout\.share: below 1 mixes .* scale none, .*; set readout to null$",
        ),
        ({"linear_init/default/flip": True}, r"linear_init\.default\.flip: .*features\.digits\.mirrored"),
        (
            {"linear_init/default/head": {"kind": "places", "sharpness": 0.2}},
            r"linear_init\.default\.head: `places` .*features\.digits\.places",
        ),
        (
            {"linear_init/default/head": {"kind": "places", "sharpness": 0.2}, "features/default/places": True},
            r"linear_init\.default\.head: `ridge` takes the linear head of beliefs\.digits, whose kind is `linear`",
        ),
        (
            {"beliefs/default/sharpness": 0.3, "features/default/places": True},
            r"linear_init\.default\.head: `ridge` takes .*beliefs\.digits, whose kind is `places, sharpness: 0\.3`",
        ),
        ({"beliefs/default/sharpness": 0.3}, r"beliefs\.digits\.sharpness: .*features\.digits\.places"),
        (
            {"finetune/default/head": BOOSTED, "features/default/pools": ["mean", "top4"]},
            r"^finetune\.default\.head: `boosted` takes the mean .*, which top4 of features\.digits\.pools is not",
        ),
        (
            {"finetune/digits": {"readout": {"pools": ["mean"], "sharpness": None, "share": 1.0}}},
            r"^finetune\.digits\.readout: fits the head of grid\.finetune anew, .* take `an` from grid\.landscape\n",
        ),
        (
            {"finetune/default/readout": {"pools": ["mean", "mean"], "sharpness": None, "share": 1.0}},
            r"finetune\.default\.readout\.pools: names an entry twice \(given: \[mean, mean\]\)",
        ),
        (
            {"finetune/default/readout": {"pools": ["mean"], "sharpness": 1e-5, "share": 1.0}},
            r"finetune\.default\.readout\.sharpness: .*0\.001 \(given: 1\.0e-05\)",
        ),
        (
            {"linear_init/default/head": {"kind": "places", "sharpness": 1e-5}},
            r"linear_init\.default\.head\.(places\.)?sharpness: .*0\.001 \(given: 1\.0e-05\)",
        ),
        ({"beliefs/default/sharpness": 1e-5}, r"beliefs\.default\.(fits\.)?sharpness: .*0\.001 \(given: 1\.0e-05\)"),
        ({"linear_init/digits": {"flip": True}}, r"^linear_init\.digits\.flip: .*features\.digits\.mirrored"),
        (
            {"linear_init/default/protocol": "published", "methods/em/published/default/linear_init": {"crop": 0.5}}
            | {"methods/em/published/digits": {"linear_init": {"freeze": ["conv1"]}}, "grid/linear_init": ["em"]},
            r"^params/methods/em\.yaml:published\.default\.linear_init\.crop: concerns .*\n"
            r"params/methods/em\.yaml:published\.digits\.linear_init\.freeze: concerns images",
        ),
        (  # not its recipe, which this protocol leaves aside
            {"linear_init/default/crop": 0.5, "methods/em/published/default/linear_init": {"crop": 0.5}},
            r"^linear_init\.default\.crop: concerns ",
        ),
        (
            {
                "variants/linear_init/digits-an-0-0-x": VARIANT
                | {"set": {"stage": {"head": BOOSTED, "flip": True}, "method": {}}}
            },
            r"^variants\.linear_init\.digits-an-0-0-x\.set\.stage\.head: `boosted` reads maps.*\n"
            r"variants\.linear_init\.digits-an-0-0-x\.set\.stage\.flip: needs",
        ),
        ({"lac/default/head": TRANSFORMER}, r"^lac\.default\.head: differs from end_to_end\.default\.head, "),
        (  # the recipe's head is the one that is compared, on either side
            {"end_to_end/default/protocol": "published", "methods/plc/published": {"default": {"end_to_end": LINEAR}}},
            r"^lac\.default\.head: differs from params/methods/plc\.yaml:published\.default\.end_to_end\.head, "
            r".* \(`label_embedding` from `linear`, grid\.lac\)$",
        ),
        (
            {"lac/default/protocol": "published", "methods/plc/published": {"default": {"lac": LINEAR}}}
            | {"methods/lac/published": {"default": {"lac": {}}}},
            r"^params/methods/plc\.yaml:published\.default\.lac\.head: differs from end_to_end\.default\.head, "
            r".* \(`linear` from `label_embedding`, grid\.lac\)$",
        ),
        (  # lac goes on with the very network
            {"end_to_end/default/head": BOOSTED, "lac/default/head": LINEAR["head"]},
            r"^lac\.default\.head: differs .* \(`linear` from `boosted`, grid\.lac\)$",
        ),
        (
            {"finetune/default/head": TRANSFORMER},
            r"^finetune\.default\.head: differs .* \(`label_embedding` from `linear`, grid\.finetune\)$",
        ),
        (
            started("em", head=TRANSFORMER),
            r"^variants\.finetune\.digits-an-0-0-x\.set\.stage\.head: differs from linear_init\.default\.head, ",
        ),
        (  # the start's head, not the one that the method would train itself, had it a recipe
            {"linear_init/default/protocol": "published", "methods/an/published/default/linear_init": {}}
            | {"grid/linear_init": ["an"], "grid/finetune": [], "grid/landscape": []}
            | {
                "variants/finetune/digits-plc-0-0-x": VARIANT
                | {"method": "plc", "start": "an", "set": {"stage": {"head": TRANSFORMER}, "method": {}}}
            },
            r"^variants\.finetune\.digits-plc-0-0-x\.set\.stage\.head: differs from linear_init\.default\.head, ",
        ),
        # runs that others start from
        (
            started("nope"),
            r"^variants\.finetune\.digits-an-0-0-x\.start: `nope` has no file params/methods/nope\.yaml$",
        ),
        ({"grid/finetune": ["an", "em"]}, r"grid\.landscape: `full` is not in grid\.finetune"),
        ({"grid/landscape_stage": "end_to_end"}, r"grid\.landscape: `full` is not in grid\.end_to_end"),
        (
            {"expected_positives": {}, "grid/finetune": ["an", "em_apl", "full", "role"]},
            r'digits: is missing, and `\w+` [\s\S]*\n  expected_positives:\n    digits: \{value: 2\.0, source: "',
        ),
        # variants
        (
            {"variants/linear_init/digits-an-0-0-twice": VARIANT | {"seed": 1}},
            r"the key must be <dataset>-<method>-<draw>-<seed>-<what>",
        ),
        (
            {"variants/linear_init/digits-an-0-7-twice": VARIANT | {"seed": 7}},
            r"variants\.linear_init\.digits-an-0-7-twice: 7 is not in grid\.seeds",
        ),
        (
            {"variants/linear_init/digits-an-7-0-twice": VARIANT | {"draw": 7}},
            r"variants\.linear_init\.digits-an-7-0-twice: 7 is not in grid\.draws",
        ),
        (
            {"variants/lac/digits-lac-0-0-no_queue/set": {"stage": {}, "method": {"queue": 0}}},
            r"variants\.lac\.digits-lac-0-0-no_queue\S*\.queue: ",
        ),
        # data
        (
            {"prepare/digits/source": "digit"},
            r"prepare\.digits\.source: no file pipeline/sources/digit\.py; there are .*digits",
        ),
        ({"prepare/digits/train": "many"}, r"prepare\.digits\.train: "),
        ({"backbone/digits": FILE}, r"backbone\.digits\.file: no file gone\.pth"),
        ({"backbone/digits/size": 32}, r"backbone\.digits\.size: 32 is not prepare\.digits\.size, 48"),
        # choice without truth
        *(
            (
                {f"{stage}/default": AUTO, f"grid/{stage}": ["an"]},
                rf"^{stage}\.default\.learning_rate: grid, but `select: auto` tells rates apart on cached features "
                rf"only; name a number, and set search to null \(grid\.{stage}\)$",
            )
            for stage in ("finetune", "end_to_end", "lac")
        ),
        (
            {"finetune/default/select": "auto", "finetune/default/early_stop": {"rule": "drop", "amount": 2.0}},
            r"^finetune\.default\.early_stop: stops by a score, and `select: auto` compares all epochs; set its ",
        ),
        (
            {
                "end_to_end/default/select": "auto",
                "end_to_end/default/protocol": "published",
                "grid/end_to_end": ["em"],
            },
            r"^params/methods/em\.yaml:published\.default\.end_to_end\.early_stop: stops by .* \(grid\.end_to_end\)$",
        ),
        (
            {"linear_init/default/select": "auto", "linear_init/default/search/epochs": 2},
            r"^linear_init\.default\.search: `epochs` cuts trials short, and `select: auto` compares whole runs",
        ),
        (
            {"beliefs/default": {"kind": "file", "file": "gone.csv", "draw": {"kind": "count"}}},
            r"^beliefs\.digits\.file: no file gone\.csv$",
        ),
        ({"beliefs/default/fits": 0}, r"^beliefs\.default.*fits: Input should be greater"),
        (
            {"expected_positives/digits": {"value": "estimated"}},
            r"^params\.yaml\.expected_positives\.digits\.at_most: ",
        ),
        (
            {"expected_positives/digits": {"value": "guessed", "source": "x"}},
            r"^params\.yaml\.expected_positives\.digits\.value: ",
        ),
    ],
)
def test_a_fault_is_named(project: Project, changes: dict[str, Any], message: str) -> None:
    project.edit(changes)
    try:
        params = project.params
    except ConfigError as error:
        problems = str(error).splitlines()
    else:
        problems = preflight.check(project.root, params, LastRun(project.root))
    assert re.search(message, "\n".join(problems), re.MULTILINE), problems
    assert len(set(problems)) == len(problems)


def test_shown_labels_may_choose_in_every_stage(project: Project) -> None:
    """Though recipes, which nobody asks for, stop early."""
    project.edit({f"{stage}/default/select": "auto" for stage in TRAINING_STAGES})
    assert project.problems() == []


def test_all_faults_are_listed_at_once(project: Project) -> None:
    project.edit({"methods/em/default/alpha": "high", "prepare/digits/train": "many", "grid/finetune": []})
    text = "\n".join(project.problems())
    assert all(part in text for part in ("em.yaml:default.alpha", "prepare.digits.train", "grid.landscape: `full`"))


def test_a_method_that_cannot_be_imported_is_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> type[base.Method]:
        if name == "em":
            raise SyntaxError("invalid syntax")
        return base_load(name)

    base_load = base.load
    monkeypatch.setattr(base, "load", load)
    cause = "pipeline/methods/em.py: cannot be imported (SyntaxError: invalid syntax)"
    assert project.problems() == [
        f"grid.linear_init: {cause}",
        f"grid.finetune: {cause}",
        f"params/methods/em.yaml: {cause}",
    ]


def test_the_folder_of_raw_data_must_exist(project: Project) -> None:
    project.edit({"prepare/digits": {"source": "voc", "root": "photos", "size": 32}})
    assert "prepare.digits.root: no folder photos" in "\n".join(project.problems())
    (project.root / "photos").mkdir()
    assert "prepare.digits.root" not in "\n".join(project.problems())


VOC = {
    "source": "voc",
    "labels": "lists",
    "difficult": "negative",
    "classes": None,
    "size": 48,
    **PICTURES,
}
VOC |= {"val_fraction": 0.2, "split_seed": 1200}


def raw_data(folder: Path) -> None:
    """Lists of 20 images in VOC layout; each picture is there, but none can be decoded."""
    lists, pictures = folder / "ImageSets/Main", folder / "JPEGImages"
    lists.mkdir(parents=True)
    pictures.mkdir()
    for part in ("train", "val"):
        names = [f"{part}_{number}" for number in range(10)]
        (lists / f"{part}.txt").write_text("\n".join(names))
        (lists / f"cat_{part}.txt").write_text("\n".join(f"{name} 1" for name in names))
        for name in names:
            (pictures / f"{name}.jpg").write_bytes(b"jpeg")


@pytest.mark.parametrize("home", [False, True])
def test_lists_that_cannot_be_read_are_named_before_dvc_deletes_anything(
    project: Project, monkeypatch: pytest.MonkeyPatch, home: bool
) -> None:
    monkeypatch.setenv("HOME", str(project.root))
    project.edit({"prepare/digits": VOC | {"root": "~/raw" if home else "raw"}})
    raw_data(project.root / "raw")
    assert project.data_problems() == []
    (project.root / "raw/ImageSets/Main/cat_val.txt").write_text("val_0 1\nval_1 5\n")
    label, ids = project.data_problems()
    assert label == "prepare.digits: cat_val.txt: labels are not 1, 0 or -1: line 2 val_1 '5'"
    assert ids.startswith("prepare.digits: cat_val.txt: 8 of the 10 ids of val.txt are missing: val_2, ")
    project.edit({"prepare/digits/val_fraction": 0.01})
    shutil.rmtree(project.root / "raw")
    raw_data(project.root / "raw")
    problems = project.data_problems()
    assert problems == ["prepare.digits: no image in val (10 train, 0 val, 10 test)"]


def test_raw_data_that_changed_since_prepare_ran_are_named(project: Project) -> None:
    project.edit({"prepare/digits": VOC | {"root": "raw"}})
    raw_data(project.root / "raw")
    settings = voc.Settings.model_validate(VOC | {"root": "raw"})
    report = project.root / "data/prepare/digits/report.json"
    files.write_json(report, {"raw_sha256": voc.fingerprint(settings, project.root)})
    assert project.data_problems() == []
    (project.root / "raw/JPEGImages/val_3.jpg").write_bytes(b"another")
    lines = ["prepare.digits: raw data of digits changed since prepare ran: dvc repro -f prepare@digits"]
    assert project.data_problems() == lines

    def lock(block: dict[str, Any]) -> None:
        stage = {"cmd": "x", "params": {"params.yaml": {"prepare.digits": block}}}
        files.write_json(project.root / "dvc.lock", {"schema": "2.0", "stages": {"prepare@digits": stage}})

    lock(VOC | {"root": "raw"})
    assert project.data_problems() == lines
    lock(VOC | {"root": "elsewhere"})  # DVC runs it again by itself
    assert project.data_problems() == []
    (project.root / "dvc.lock").unlink()
    files.write_json(report, {})
    assert project.data_problems() == []


def test_a_backbones_file_that_changed_is_named(project: Project) -> None:
    project.edit({"backbone/digits": FILE | {"file": "resnet.pth"}})
    (project.root / "resnet.pth").write_bytes(b"weights")
    files.write_json(
        project.root / "weights/digits/provenance.json", {"file_sha256": hashlib.sha256(b"weights").hexdigest()}
    )
    assert project.data_problems() == []
    (project.root / "resnet.pth").write_bytes(b"others")
    lines = ["backbone.digits.file: resnet.pth changed since backbone ran: dvc repro -f backbone@digits"]
    assert project.data_problems() == lines


@pytest.mark.parametrize("stage", TRAINING_STAGES)
@pytest.mark.parametrize("head", [tiny.LINEAR, BOOSTED, tiny.EMBEDDING, BOTTLENECK], ids=lambda head: head["kind"])
def test_what_the_preflight_grants_is_what_network_and_inputs_provide(stage: str, head: dict[str, Any]) -> None:
    on_images = stage != "linear_init"
    network, inputs = tiny.network(head, on_images), tiny.images(2) if on_images else tiny.features(2)
    granted = network.provides() | inputs.provides | {"epoch_logits", "expected_positives", "beliefs", "disk"}
    assert rules.available(stage, tiny.training(head=head).head) == granted <= base.NEEDS


def test_every_kind_of_head_is_known_to_the_preflight() -> None:
    schema = Training.model_json_schema()
    kinds = {
        block["properties"]["kind"]["const"] for block in schema["$defs"].values() if "kind" in block["properties"]
    }
    assert kinds == set(HEAD_GIVES) and set().union(*SAME_WEIGHTS) <= kinds


@pytest.mark.parametrize(("kind", "start"), [("linear", "boosted"), ("boosted", "linear")])
def test_heads_of_the_same_weights_start_from_each_other(kind: str, start: str) -> None:
    heads = {"linear": LINEAR["head"], "boosted": BOOSTED}
    first, then = heads[start], heads[kind]
    assert rules.may_start("finetune", then, first) and not rules.may_start("lac", then, first)
    tiny.network(heads[kind]).load_state_dict(tiny.network(heads[start]).state_dict())  # as finetune does


@pytest.mark.parametrize("kind", ["linear", "boosted"])
def test_heads_start_from_those_of_their_own_scale_alone(kind: str) -> None:
    heads = [tiny.LINEAR | {"scale": scale} for scale in ("none", "unit")]
    then = {"linear": LINEAR["head"], "boosted": BOOSTED}[kind]
    for scale, first in itertools.product(("none", "unit"), heads):
        assert rules.may_start("finetune", then | {"scale": scale}, first) == (first["scale"] == scale)


def test_a_searched_scale_is_that_of_the_head_that_is_started_from(project: Project) -> None:
    project.edit({"linear_init/default/head": BOTH, "finetune/default/head": BOTH})  # ridge among them: its is none
    assert project.problems() == []


def test_a_boosted_head_may_start_from_linear_init(project: Project) -> None:
    project.edit({"finetune/default/head": BOOSTED} | started("em"))
    assert project.problems() == []


def test_a_method_without_a_linear_head_may_start_from_anothers(project: Project) -> None:
    run = {"dataset": "digits", "method": "plc", "draw": 0, "seed": 0, "start": "an"}
    strong = project.content["lac"]["default"]["strong"]
    change = {"stage": {"strong": strong}, "method": {}}
    project.edit({"variants/finetune/digits-plc-0-0-from_an": run | {"set": change}})
    assert project.problems() == []
    project.edit({"variants/finetune/digits-plc-0-0-from_an": run | {"set": {"stage": {}, "method": {}}}})
    line = (
        "finetune.default.strong: is null, and `plc` (variants.finetune.digits-plc-0-0-from_an) asks for a strong view"
    )
    assert project.problems() == [line]


def test_labels_that_are_not_exhaustive_ask_for_settings_of_their_own(project: Project) -> None:
    """One folder for each class: a label an image, and nothing to choose epochs by or to draw."""
    for number in range(12):
        path = project.root / "raw" / ("cat", "dog")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"jpeg")
    block = {
        "source": "folder",
        "root": "raw",
        "size": 48,
        **PICTURES,
        "classes": None,
        "split_seed": 0,
        "unlabelled": None,
    }
    block |= {"split_folders": False, "same_name": "separate", "val_fraction": 0.25, "test_fraction": 0.25}
    project.edit({"prepare/digits": block})
    found = project.problems()
    oracles = [line for line in found if " is an oracle, " in line]
    assert [line for line in found if line not in oracles] == [
        "simulate.protocol: seeded, but the labels of digits are not exhaustive; set it to given",
        *(
            f"{stage}.default.select: clean, but the labels of digits are not exhaustive; set it to auto or last"
            for stage in TRAINING_STAGES
        ),
    ]
    assert [line.partition(" is an")[0] for line in oracles] == [
        *(f"grid.linear_init: `{method}`" for method in ("iun", "full", "ridge_full")),
        *(f"grid.finetune: `{method}`" for method in ("iun", "full")),
    ]
    project.edit({"simulate/default/protocol": "given", "grid/landscape": []})
    project.edit({f"grid/{stage}": ["an", "ridge"] for stage in ("linear_init", "finetune")})
    project.edit({f"{stage}/default/select": "last" for stage in TRAINING_STAGES})
    assert project.problems() == []
    project.edit({"prepare/digits": VOC | {"root": "voc"}})
    raw_data(project.root / "voc")
    assert project.problems() == [
        "simulate.protocol: given, but the labels of digits are exhaustive; set it to literature or seeded"
    ]


@pytest.mark.parametrize("stage", TRAINING_STAGES)
def test_oracles_ask_for_labels_that_somebody_knows(project: Project, stage: str) -> None:
    """Whatever their names are: by the label set that a method declares."""
    truth = np.eye(3, dtype=np.int8)[np.arange(9) % 3]
    known = truth == 1
    split = np.arange(9, dtype=np.uint8) % 3
    paths = tuple(f"{row}.png" for row in range(9))
    given = Table(("a", "b", "c"), paths, truth, known, split, np.zeros(9, np.uint8), exhaustive=False)
    in_full = replace(given, scored=known | (split == 0)[:, None])  # nobody wonders about a training label
    names = base.names()
    for name in names:
        run = SimpleNamespace(method=name, labels=base.load(name).labels)
        known_to_it = {"single": None, "all": "every label", "negatives": "every absence"}[run.labels]
        lines = rules.oracle(f"grid.{stage}", cast(Any, run), "mine", given)
        assert lines == bool(known_to_it) * [
            f"grid.{stage}: `{name}` is an oracle, which is given {known_to_it}, and nobody knows 6 of the 9 training "
            "labels of mine, which are not exhaustive; take it out, or label them in full"
        ]
        assert rules.oracle(f"grid.{stage}", cast(Any, run), "mine", replace(given, exhaustive=True)) == []
        assert rules.oracle(f"grid.{stage}", cast(Any, run), "mine", in_full) == []
    run = {"dataset": "digits", "method": "full", "draw": 0, "seed": 0, "set": {"stage": {}, "method": {}}}
    run |= {"start": "an"} if stage == "finetune" else {}
    project.edit({f"variants/{stage}": {"digits-full-0-0-x": run}, "grid/search": ["digits"]})
    project.edit({"search/default/methods": {"an": [{}], "full": [{}], "iun": [{}]}})
    tables = {"digits": given}
    found = [
        line.partition("`")[0] for line in preflight.check_runs(project.params, tables) if " is an oracle, " in line
    ]
    assert f"variants.{stage}.digits-full-0-0-x: " in found
    searched = preflight.check_searches(project.params, tables)
    assert [line.partition("`")[0] for line in searched if " is an oracle, " in line] == [
        f"search.digits.methods.{name}: " for name in ("full", "iun")
    ]


def test_one_group_alone_cannot_be_cut_in_parts(project: Project) -> None:
    """Nor does a search score by heads that left a part out."""
    truth = np.eye(3, dtype=np.int8)[np.arange(12) % 3]
    split = np.repeat(np.array([0, 1, 2], np.uint8), 4)
    paths = tuple(f"{row}.png" for row in range(12))
    table = Table(("a", "b", "c"), paths, truth, truth >= 0, split, (split == 2).astype(np.uint8))
    project.edit({"grid/search": ["digits"], "linear_init/default/select": "auto"})
    for names, count in (("aaaabbbbcccc", 1), ("aaxxbbbbcccc", 2), (None, 4)):
        tables = {"digits": replace(table, groups=None if names is None else tuple(names))}
        found = preflight.check_runs(project.params, tables) + preflight.check_searches(project.params, tables)
        lacks = "auto trains heads without a part of the training images, and digits has one group of them; set it to"
        lines = [f"linear_init.default.select: {lacks} last", f"search.digits.scores: {lacks} [clean]"]
        assert sorted(set(found)) == lines * (count == 1)


def test_rows_that_simulate_or_training_would_refuse_are_named_first(project: Project) -> None:
    test_cub.tree(project.root / "raw")  # its val image, one of four, has no attribute
    block = {
        "source": "cub",
        "root": "raw",
        "least_certainty": 1,
        "size": 48,
        **PICTURES,
    }
    project.edit({"prepare/digits": block | {"val_fraction": 0.2, "split_seed": 1200}})
    bare = "prepare.digits: no val image has a positive label, so no epoch can be chosen by it"
    assert project.data_problems() == [bare]
    project.edit({"simulate/default/empty_rows": "error"})
    settings = cub.Settings.model_validate(project.content["prepare"]["digits"])
    table = cub.read(settings, project.root).table
    (name,) = [table.paths[row] for row in table.rows("val")]
    assert project.data_problems() == [
        f"simulate.empty_rows: error, and 1 training or val image of digits has no positive label: {name}",
        bare,
    ]


@pytest.mark.parametrize("draws", [[0, 1], [1], [0, 1, 2]])
def test_labels_that_are_drawn_once_are_asked_for_once(project: Project, draws: list[int]) -> None:
    project.edit({"grid/draws": draws})
    assert project.data_problems() == []  # `seeded`: of as many as are asked for
    project.edit({"simulate/default/protocol": "literature"})
    once = f"grid.draws: {draws}, but simulate.protocol of digits is"
    published = f"{once} literature: the published recipe has one draw; set it to [0], or simulate.protocol to seeded"
    assert project.data_problems() == [published]
    project.edit({"simulate/default/protocol": "given"})
    assert f"{once} given: nothing is drawn where labels are given; set it to [0]" in project.data_problems()
    for protocol in ("literature", "given"):
        project.edit({"grid/draws": [0], "simulate/default/protocol": protocol})
        assert not any(line.startswith("grid.draws") for line in project.data_problems())


def test_each_draw_by_a_table_that_changed_since_is_named(project: Project) -> None:
    (project.root / "w.csv").write_text("class,weight\n" + "".join(f"digit_{digit},1\n" for digit in range(10)))
    project.edit({"grid/draws": [0, 1, 2], "simulate/default/bias": {"kind": "table", "file": "w.csv"}})
    for draw in (0, 2):  # draw 1 was not made yet
        report = project.root / "data" / "simulate" / f"digits-{draw}" / "report.json"
        files.write_json(report, {"bias": {"kind": "table", "file_sha256": "0" * 64}})
    changed = "simulate.bias.file: w.csv changed since simulate ran: dvc repro -f simulate@digits"
    assert project.data_problems() == [f"{changed}-0", f"{changed}-2"]


def test_a_table_of_beliefs_is_read_before_dvc_deletes_any(project: Project) -> None:
    raw_data(project.root / "raw")
    given = {"kind": "file", "file": "theirs.csv", "draw": {"kind": "count"}}
    project.edit({"prepare/digits": VOC | {"root": "raw"}, "beliefs/default": given, "grid/draws": [0, 1, 2]})
    assert project.data_problems() == ["beliefs.digits.file: no file theirs.csv"]
    theirs = project.root / "theirs.csv"
    source = voc.read(voc.Settings.model_validate(VOC | {"root": str(project.root / "raw")}), project.root).table
    theirs.write_text("\n".join(["image,cat", *(f"{path},0.5" for path in source.paths)]))
    assert project.data_problems() == []
    theirs.write_text("\n".join(["image,cat", *(f"{path},0.5" for path in source.paths[1:])]))
    assert project.data_problems() == [f"beliefs.digits.file: theirs.csv: images have no line: {source.paths[0]}"]
    theirs.write_text("\n".join(["image,cat", *(f"{path},50%" for path in source.paths)]))
    (faulty,) = project.data_problems()
    assert re.match(r"beliefs\.digits\.file: theirs\.csv: 20 chances are no number from 0 to 1: line 2 '50%'", faulty)

    theirs.write_text("\n".join(["image,cat", *(f"{path},0.5" for path in source.paths)]))
    for draw in (0, 2):  # draw 1 was not made yet
        report = project.root / "data" / "beliefs" / f"digits-{draw}" / "report.json"
        files.write_json(report, {"kind": "file", "file_sha256": "0" * 64})
    changed = "beliefs.digits.file: theirs.csv changed since beliefs ran: dvc repro -f beliefs@digits"
    assert project.data_problems() == [f"{changed}-0", f"{changed}-2"]
    files.write_json(report, {"kind": "fits"})  # of another kind: DVC runs it again by itself
    assert project.data_problems() == [f"{changed}-0"]
    stage = {"cmd": "x", "params": {"params.yaml": {"beliefs": {"default": {"kind": "fits"}}}}}
    files.write_json(project.root / "dvc.lock", {"schema": "2.0", "stages": {"beliefs@digits-0": stage}})
    assert project.data_problems() == []


def test_a_table_of_beliefs_of_drawn_pictures_is_read_too(project: Project) -> None:
    project.edit({"beliefs/default": {"kind": "file", "file": "theirs.csv", "draw": {"kind": "count"}}})
    (project.root / "theirs.csv").write_text("image,cat\n")
    (problem,) = project.data_problems()
    assert problem.startswith("beliefs.digits.file: theirs.csv: its header lacks digit_0")


def test_corrections_of_drawn_pictures_are_read_too(project: Project) -> None:
    """Before DVC deletes what prepare has to make anew."""
    file = project.root / "corrections" / "digits.csv"
    file.parent.mkdir()
    file.write_text("path,class,value\nno.png,digit_0,present\n")
    (problem,) = project.data_problems()
    assert problem.startswith("prepare.digits: corrections/digits.csv: images are not in the dataset")
    file.write_text("path,class,value\n")
    assert project.data_problems() == []


def test_logits_of_the_parts_that_auto_compares_fit_the_budget(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = SimpleNamespace(classes=("a",), rows=lambda split: range({"train": 90, "val": 10}[split]))
    project.edit({"linear_init/default": AUTO | {"epochs": 100, "keep_epoch_logits": False}})
    run = plan_run(project.params, "linear_init", "digits", "an", None)
    monkeypatch.setattr(rules, "BUDGET", 100 * 100 - 1)
    (problem,) = rules.epoch_logits(run, table)  # type: ignore[arg-type]
    assert problem.startswith(
        "linear_init.default.epochs: 100 epochs of 100 x 1 logits are 0.0 GB a run; set it to 99 or"
    )
    monkeypatch.setattr(rules, "BUDGET", 100 * 100)
    assert rules.epoch_logits(run, table) == []  # type: ignore[arg-type]
    project.edit({"linear_init/default/select": "clean"})
    monkeypatch.setattr(rules, "BUDGET", 100 * 10)
    run = plan_run(project.params, "linear_init", "digits", "an", None)
    assert rules.epoch_logits(run, table) == []  # type: ignore[arg-type]


def test_a_biased_draw_of_drawn_pictures_is_checked_too(project: Project) -> None:
    def problems(bias: dict[str, Any]) -> list[str]:
        project.edit({"simulate/default/bias": bias})
        return project.data_problems()

    assert problems({"kind": "size", "power": 1.0})[0].startswith("simulate.bias: size needs boxes")
    table = {"kind": "table", "file": "w.csv"}
    (project.root / "w.csv").write_text("class,weight\n" + "".join(f"digit_{digit},1\n" for digit in range(10)))
    assert problems(table) == []
    report = project.root / "data" / "simulate" / "digits-0" / "report.json"
    files.write_json(report, {"bias": {"kind": "table", "file_sha256": "0" * 64}})
    assert problems(table) == ["simulate.bias.file: w.csv changed since simulate ran: dvc repro -f simulate@digits-0"]
    (project.root / "w.csv").write_text("class,weight\ndigit_0,1\n")
    (problem,) = problems(table)
    assert problem.startswith("simulate.bias: w.csv: 9 classes have no weight")


def test_a_biased_draw_that_cannot_be_made_is_named_first(project: Project) -> None:
    raw_data(project.root / "raw")
    project.edit({"prepare/digits": VOC | {"root": "raw"}})

    def problems(bias: dict[str, Any]) -> list[str]:
        project.edit({"simulate/default/bias": bias})
        return project.data_problems()

    assert problems({"kind": "frequency", "power": 1.0}) == []
    assert problems({"kind": "size", "power": 1.0}) == [
        "simulate.bias: size needs boxes, and the data gave none (VOC has them in Annotations/, COCO in bbox; or weigh "
        "by frequency or a table)"
    ]
    table = {"kind": "table", "file": "w.csv"}
    assert problems(table) == ["simulate.bias.file: no file w.csv"]
    (project.root / "w.csv").write_text("class,weight\nzebra,1\n")
    first, *_ = problems(table)
    assert first == "simulate.bias: w.csv: classes are not in the dataset: line 2 'zebra'"

    settings = voc.Settings.model_validate(VOC | {"root": "raw"})
    found = voc.read(settings, project.root).table
    (project.root / "w.csv").write_text("class,weight\n" + "".join(f"{name},1\n" for name in found.classes))
    assert problems(table) == []
    report = project.root / "data" / "simulate" / "digits-0" / "report.json"
    files.write_json(report, {"bias": {"kind": "table", "file_sha256": files.sha256(project.root / "w.csv")}})
    assert problems(table) == []
    files.write_json(report, {"bias": {"kind": "table", "file_sha256": "0" * 64}})
    assert problems(table) == ["simulate.bias.file: w.csv changed since simulate ran: dvc repro -f simulate@digits-0"]
    files.write_json(report, {"bias": None})  # of given labels
    assert problems(table) == []


def test_raw_lists_are_not_read_again_while_nothing_changed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of a large set take a minute; what prepare found in the same files is at hand."""
    raw_data(project.root / "raw")
    project.edit({"prepare/digits": VOC | {"root": "raw"}})
    prepared = project.root / "data" / "prepare" / "digits"
    settings = voc.Settings.model_validate(VOC | {"root": "raw"})
    files.write_json(prepared / "report.json", {"raw_sha256": voc.fingerprint(settings, project.root)})
    write_table(prepared / "table.h5", voc.read(settings, project.root).table)
    monkeypatch.setattr(voc, "read", lambda *_: pytest.fail("read again"))
    assert project.data_problems() == []
    monkeypatch.undo()
    (project.root / "raw/JPEGImages/train_3.jpg").write_bytes(b"another")
    (problem,) = project.data_problems()
    assert problem == "prepare.digits: raw data of digits changed since prepare ran: dvc repro -f prepare@digits"


PLACES = {
    "features/default": {
        "dtype": "float16",
        "pools": ["mean", "sqrt"],
        "places": True,
        "mirrored": False,
        "batch_size": 1,
    }
}


def test_features_of_places_are_sized_and_need_their_room(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """4,600 digits of 48 px: 6 x 6 places of 128 channels, two pools, two bytes; and as much in DVC's cache."""
    size, told = 4600 * 36 * 256 * 2, list[str]()
    project.edit(PLACES)

    def problems(free: int) -> list[str]:
        monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
        return preflight.check(project.root, project.params, LastRun(project.root), told.append)

    assert problems(2 * size) == []
    (problem,) = problems(2 * size - 1)
    assert problem == (
        "features.digits.places: takes 0.17 GB, half of them in DVC's cache, and 0.17 GB are free; `dtype: float16` "
        "and a smaller prepare size take less, `places: false` none"
    )
    assert set(told) == {
        "features.digits.places: 4600 images of 256 features at 36 places in float16 are 0.0848 GB on disk, and as "
        "much in DVC's cache"
    }
    there = project.root / "data" / "features" / "digits" / "places.h5"
    there.parent.mkdir(parents=True)
    there.write_bytes(b"")
    os.truncate(there, size)
    assert problems(0) == []
    project.edit({"features/default/places": False})
    told.clear()
    assert problems(0) == [] and not told


def test_features_of_one_place_are_refused(project: Project) -> None:
    raw_data(project.root / "raw")
    timm = {"source": "timm", "model": "test_resnet", "weights": "file", "file": "raw/w.pth", "mean": None, "std": None}
    (project.root / "raw" / "w.pth").write_bytes(b"")
    project.edit(PLACES | {"prepare/digits": VOC | {"root": "raw"}, "backbone/digits": timm})
    for size, wanted in ((32, 1), (64, 0)):
        project.edit({"prepare/digits/size": size})
        found = [line for line in project.problems() if line.startswith("features.")]
        assert len(found) == wanted
    project.edit({"prepare/digits/size": 32})
    (line,) = [line for line in project.problems() if line.startswith("features.")]
    assert line.startswith("features.digits.places: true, but the backbone's maps have one place at this size")
    assert line.endswith(
        "set it to false, heads of `places` to linear and beliefs.digits.sharpness to null, or take larger pictures"
    )


def test_logits_of_all_epochs_that_are_too_large_to_keep_are_named(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw_data(project.root / "raw")  # 8 images to train on and 2 of val, one class
    project.edit({"prepare/digits": VOC | {"root": "raw"}, "finetune/digits": {"epochs": 100}})
    monkeypatch.setattr(rules, "BUDGET", 10 * 100 - 1)
    size = "100 epochs of 10 x 1 logits are 0.0 GB a run"
    assert project.problems() == [f"finetune.default.keep_epoch_logits: {size}; set it to false for digits"]
    monkeypatch.setattr(rules, "BUDGET", 10 * 100)
    assert project.problems() == []
    project.edit({"finetune/digits": {"epochs": 100, "keep_epoch_logits": False}})  # val's are kept all the same
    monkeypatch.setattr(rules, "BUDGET", 2 * 100 - 1)
    size = "100 epochs of 2 x 1 logits are 0.0 GB a run"
    assert f"finetune.digits.epochs: {size}; set it to 99 or fewer for digits, or cut val" in project.problems()


BIRDS = [" ".join([*line.split()[:2], "1", *line.split()[3:]]) for line in test_cub.LINES]  # none without an attribute
RAW = {"coco": test_coco.tree, "nus": test_nus.formatted, "cub": lambda folder: test_cub.tree(folder, BIRDS)}
"""What writes raw data of the layout that a profile asks for; all others ask for VOC's."""


@pytest.mark.parametrize("name", sorted(path.stem for path in Path(__file__).parents[2].glob("profiles/*.yaml")))
def test_every_profile_passes_once_its_raw_data_is_named(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(timm_backbone, "ask_hub", lambda model: None)
    RAW.get(name, raw_data)(tmp_path / "raw")
    try:
        params = profiles.params(repository, name, "raw")
    except ConfigError:
        params = profiles.params(repository, name)  # reads no raw data
    assert preflight.check(tmp_path, params, LastRun(tmp_path)) == []
