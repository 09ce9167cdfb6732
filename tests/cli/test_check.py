"""The preflight: each fault that would cost hours is found before anything runs, and named by its key."""

import hashlib
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path, PurePath
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline.cli import check, profile
from pipeline.config.params import TRAINING_STAGES, read_params
from pipeline.core import files
from pipeline.core.errors import ConfigError
from pipeline.labels.table import write_table
from pipeline.methods.shared import base
from pipeline.networks.settings import HEAD_GIVES, SAME_WEIGHTS
from pipeline.sources import voc
from pipeline.training.settings import Training
from tests import copies, tiny
from tests.sources import test_coco, test_cub, test_nus


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A copy of the project with its default params."""
    root = tmp_path_factory.mktemp("original")
    copies.project(repository, root)
    return root


@pytest.fixture
def project(original: Path, tmp_path: Path) -> Path:
    """A copy to alter."""
    return Path(shutil.copytree(original, tmp_path / "project"))


def edit(project: Path, changes: dict[str, Any]) -> None:
    """Set dotted keys of params.yaml; ``...`` deletes the key."""
    path, yaml = project / "params.yaml", YAML()
    content = yaml.load(path)
    for dotted, value in changes.items():
        *parents, last = dotted.split("/")
        block = content
        for key in parents:
            block = block.setdefault(key, {})
        if value is ...:
            del block[last]
        else:
            block[last] = value
    yaml.dump(content, path)


def test_the_default_passes(project: Path) -> None:
    assert check.check(project) == ([], [])


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
LINEAR = {"head": {"kind": "linear"}}
BOOSTED = {"kind": "boosted", "factor": 5.0}
EVERY = ["an", "em", "em_apl", "iun", "full", "lac"]
NEVER = "is no stage's out"
FILE = {"source": "timm", "model": "resnet18", "weights": "file", "file": "gone.pth", "mean": None, "std": None}
VARIANT = {"dataset": "digits", "method": "an", "seed": 0, "set": {"stage": {}, "method": {}}}
PUBLISHED = {"stage": {"protocol": "published"}, "method": {}}


def started(start: str, **stage: Any) -> dict[str, Any]:
    """Variant of finetune that starts from a method's linear head."""
    return {"variants/finetune/digits-an-0-x": VARIANT | {"start": start, "set": {"stage": stage, "method": {}}}}


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
            r"grid\.linear_init: `emm` has no file pipeline/methods/emm\.py; there are an, .*\bem, em_apl, ",
        ),
        (
            {"grid/end_to_end": ["plc", "base"], "methods/base": {"default": {}}},
            r"grid\.end_to_end: `base` has no file",
        ),
        ({"methods/em": ...}, r"methods\.em: no such section"),
        ({"methods/em/default/alpha": "high"}, r"methods\.em\.default\.alpha: "),
        ({"linear_init/digit": {"epochs": 3}}, r"linear_init\.digit: no dataset of that name"),
        ({"methods/em/voc": {"alfa": 0.1}}, r"methods\.em\.voc\.alfa: "),  # a dataset that the grid does not run
        # what a stage can give
        ({"grid/linear_init": EVERY}, r"grid\.linear_init: `lac` compares 2 views"),
        (
            {"grid/linear_init": EVERY},
            r"grid\.linear_init: `lac` needs embeddings, which linear_init\.default\.head `linear` does not give",
        ),
        (
            {"lac/default/strong": None},
            r"lac\.default\.strong: is null, and `lac` \(grid\.lac\) asks for a strong view",
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
            r"^methods\.iun\.published: has no recipe of finetune for digits, which `protocol: published` of finetune",
        ),
        (
            {"variants/lac/digits-plc-0-x": VARIANT | {"method": "plc", "set": PUBLISHED}, "methods/plc/published": {}},
            r"^methods\.plc\.published: has no recipe of lac for digits",
        ),
        (
            {"variants/lac/digits-plc-0-x": VARIANT | {"method": "plc", "set": PUBLISHED}}
            | {"methods/plc/published/default/lac": {"strong": None}},
            r"^methods\.plc\.published\.default\.lac\.strong: is null, and `plc` \(variants\.lac\.digits-plc-0-x\)",
        ),
        ({"methods/em/published/voc": {"finetune": {"epoch": 3}}}, r"^methods\.em\.published\.voc\.finetune\.epoch: "),
        ({"methods/em/published/vocc": {"finetune": {}}}, r"^methods\.em\.published\.vocc: no dataset of that name"),
        (  # the second stage goes on from plc's network, whatever else fits
            {
                "grid/end_to_end": ["plc", "an"],
                "lac/default/head": TRANSFORMER,
                "end_to_end/default/head": TRANSFORMER,
                "end_to_end/default/protocol": "published",
                "methods/plc/published": {"default": {"end_to_end": {"head": TRANSFORMER | {"embedding": 5}}}},
                "methods/an/published": {"default": {"end_to_end": {"head": TRANSFORMER}}},
            },
            r"^lac\.default\.head: differs from methods\.plc\.published\.default\.end_to_end\.head, whose",
        ),
        (
            {"linear_init/default/crop": 0.5},
            r"^linear_init\.default\.crop: concerns images .* \(grid\.linear_init\)$",
        ),
        (
            {"linear_init/default/freeze": ["conv1"]},
            r"^linear_init\.default\.freeze: concerns images .* \(grid\.linear_init\)$",
        ),
        ({"linear_init/default/flip": True}, r"linear_init\.default\.flip: .*features\.digits\.mirrored"),
        ({"linear_init/digits": {"flip": True}}, r"^linear_init\.digits\.flip: .*features\.digits\.mirrored"),
        (
            {"linear_init/default/protocol": "published", "methods/em/published/default/linear_init": {"crop": 0.5}}
            | {"methods/em/published/digits": {"linear_init": {"freeze": ["conv1"]}}, "grid/linear_init": ["em"]},
            r"^methods\.em\.published\.default\.linear_init\.crop: concerns .*\n"
            r"methods\.em\.published\.digits\.linear_init\.freeze: concerns images",
        ),
        (  # not its recipe, which this protocol leaves aside
            {"linear_init/default/crop": 0.5, "methods/em/published/default/linear_init": {"crop": 0.5}},
            r"^linear_init\.default\.crop: concerns ",
        ),
        (
            {
                "variants/linear_init/digits-an-0-x": VARIANT
                | {"set": {"stage": {"head": BOOSTED, "flip": True}, "method": {}}}
            },
            r"^variants\.linear_init\.digits-an-0-x\.set\.stage\.head: `boosted` reads maps.*\n"
            r"variants\.linear_init\.digits-an-0-x\.set\.stage\.flip: needs",
        ),
        ({"lac/default/head": TRANSFORMER}, r"^lac\.default\.head: differs from end_to_end\.default\.head, "),
        (  # the recipe's head is the one that is compared, on either side
            {"end_to_end/default/protocol": "published", "methods/plc/published": {"default": {"end_to_end": LINEAR}}},
            r"^lac\.default\.head: differs from methods\.plc\.published\.default\.end_to_end\.head, "
            r".* \(`label_embedding` from `linear`, grid\.lac\)$",
        ),
        (
            {"lac/default/protocol": "published", "methods/plc/published": {"default": {"lac": LINEAR}}}
            | {"methods/lac/published": {"default": {"lac": {}}}},
            r"^methods\.plc\.published\.default\.lac\.head: differs from end_to_end\.default\.head, "
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
            r"^variants\.finetune\.digits-an-0-x\.set\.stage\.head: differs from linear_init\.default\.head, ",
        ),
        (  # the start's head, not the one that the method would train itself, had it a recipe
            {"linear_init/default/protocol": "published", "methods/an/published/default/linear_init": {}}
            | {"grid/linear_init": ["an"], "grid/finetune": [], "grid/landscape": []}
            | {
                "variants/finetune/digits-plc-0-x": VARIANT
                | {"method": "plc", "start": "an", "set": {"stage": {"head": TRANSFORMER}, "method": {}}}
            },
            r"^variants\.finetune\.digits-plc-0-x\.set\.stage\.head: differs from linear_init\.default\.head, ",
        ),
        # runs that others start from
        (
            {"grid/linear_init": ["an", "em_apl", "iun", "full"]},
            rf"finetune@digits-em-0: dep runs/linear_init/digits-em-0/\S+ {NEVER}; add em to grid\.linear_init",
        ),
        (
            started("wan") | {"methods/wan": {"default": {}}},
            rf"finetune_variant@digits-an-0-x: dep \S+/digits-wan-0/\S+ {NEVER}; add wan to grid\.linear_init",
        ),
        (started("nope"), r"^variants\.finetune\.digits-an-0-x\.start: `nope` is no section of `methods`$"),
        ({"grid/finetune": ["an", "em"]}, r"grid\.landscape: `full` is not in grid\.finetune"),
        (
            {"grid/end_to_end": ["an"]},
            rf"lac@digits-lac-0.*: dep runs/end_to_end/digits-plc-0/\S+ {NEVER}; add plc to grid\.end_to_end",
        ),
        # variants
        (
            {"variants/linear_init/digits-an-0-twice": VARIANT | {"seed": 1}},
            r"the key must be <dataset>-<method>-<seed>-<what>",
        ),
        (
            {"variants/linear_init/digits-an-7-twice": VARIANT | {"seed": 7}},
            r"variants\.linear_init\.digits-an-7-twice: 7 is not in grid\.seeds",
        ),
        (
            {"variants/lac/digits-lac-0-no_queue/set": {"stage": {}, "method": {"queue": 0}}},
            r"variants\.lac\.digits-lac-0-no_queue\S*\.queue: ",
        ),
        # data
        (
            {"prepare/digits/source": "digit"},
            r"prepare\.digits\.source: `digit` has no file pipeline/sources/digit\.py",
        ),
        ({"prepare/digits/train": "many"}, r"prepare\.digits\.train: "),
        ({"backbone/digits": FILE}, r"backbone\.digits\.file: no file gone\.pth"),
        ({"backbone/digits/size": 32}, r"backbone\.digits\.size: 32 is not prepare\.digits\.size, 48"),
    ],
)
def test_a_fault_is_named(project: Path, changes: dict[str, Any], message: str) -> None:
    edit(project, changes)
    try:
        params = read_params(project / "params.yaml")
    except ConfigError as error:
        problems = str(error).splitlines()
        assert check.check(project) == (problems, [])
    else:
        problems = (
            check.graph_problems(project, params)[0] if NEVER in message else check.params_problems(project, params)
        )
    assert re.search(message, "\n".join(problems), re.MULTILINE), problems
    assert len(set(problems)) == len(problems)


def test_all_faults_are_listed_at_once(project: Path) -> None:
    edit(project, {"methods/em/default/alpha": "high", "prepare/digits/train": "many", "grid/end_to_end": []})
    text = "\n".join(check.check(project)[0])
    assert all(part in text for part in ("methods.em.default.alpha", "prepare.digits.train", "digits-plc-0"))


def test_the_folder_of_raw_data_must_exist(project: Path) -> None:
    edit(project, {"prepare/digits": {"source": "voc", "root": "photos", "size": 32}})
    assert "prepare.digits.root: no folder photos" in "\n".join(check.check(project)[0])
    (project / "photos").mkdir()
    assert "prepare.digits.root" not in "\n".join(check.check(project)[0])


VOC = {"source": "voc", "labels": "lists", "difficult": "negative", "classes": None, "size": 48, "bad_images": "stop"}
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
def test_lists_that_cannot_be_read_are_told_before_dvc_deletes_anything(
    project: Path, monkeypatch: pytest.MonkeyPatch, home: bool
) -> None:
    monkeypatch.setenv("HOME", str(project))
    edit(project, {"prepare/digits": VOC | {"root": "~/raw" if home else "raw"}})
    raw_data(project / "raw")
    params = read_params(project / "params.yaml")
    assert check.data_problems(project, params) == []
    (project / "raw/ImageSets/Main/cat_val.txt").write_text("val_0 1\nval_1 5\n")
    label, ids = check.data_problems(project, params)
    assert label == "prepare.digits: cat_val.txt: labels are not 1, 0 or -1: line 2 val_1 '5'"
    assert ids.startswith("prepare.digits: cat_val.txt: 8 of the 10 ids of val.txt are missing: val_2, ")
    edit(project, {"prepare/digits/val_fraction": 0.01})
    shutil.rmtree(project / "raw")
    raw_data(project / "raw")
    problems = check.data_problems(project, read_params(project / "params.yaml"))
    assert problems == ["prepare.digits: no image in val"]


def test_raw_data_that_changed_since_prepare_ran_is_told(project: Path) -> None:
    edit(project, {"prepare/digits": VOC | {"root": "raw"}})
    raw_data(project / "raw")
    params = read_params(project / "params.yaml")
    settings = voc.Settings.model_validate(VOC | {"root": "raw"})
    report = project / "data/prepare/digits/report.json"
    files.write_json(report, {"raw_sha256": voc.fingerprint(settings, project)})
    assert check.data_problems(project, params) == []
    (project / "raw/JPEGImages/val_3.jpg").write_bytes(b"another")
    told = ["prepare.digits: raw data of digits changed since prepare ran: dvc repro -f prepare@digits"]
    assert check.data_problems(project, params) == told

    def lock(block: dict[str, Any]) -> None:
        stage = {"cmd": "x", "params": {"params.yaml": {"prepare.digits": block}}}
        files.write_json(project / "dvc.lock", {"schema": "2.0", "stages": {"prepare@digits": stage}})

    lock(VOC | {"root": "raw"})
    assert check.data_problems(project, params) == told
    lock(VOC | {"root": "elsewhere"})  # DVC runs it again by itself
    assert check.data_problems(project, params) == []
    (project / "dvc.lock").unlink()
    files.write_json(report, {})
    assert check.data_problems(project, params) == []


def test_a_backbones_file_that_changed_is_told(project: Path) -> None:
    edit(project, {"backbone/digits": FILE | {"file": "resnet.pth"}})
    (project / "resnet.pth").write_bytes(b"weights")
    params = read_params(project / "params.yaml")
    files.write_json(
        project / "weights/digits/provenance.json", {"file_sha256": hashlib.sha256(b"weights").hexdigest()}
    )
    assert check.data_problems(project, params) == []
    (project / "resnet.pth").write_bytes(b"others")
    told = ["backbone.digits.file: resnet.pth changed since backbone ran: dvc repro -f backbone@digits"]
    assert check.data_problems(project, params) == told


def test_a_source_file_that_dvc_needs_must_exist(project: Path) -> None:
    (project / "pipeline/core/seeds.py").unlink()
    problems = check.check(project)[0]
    assert [problem for problem in problems if "dep pipeline/core/seeds.py does not exist" in problem]


def test_what_a_removed_run_left_meets_no_dep(project: Path) -> None:
    weights = project / "runs/end_to_end/digits-plc-0/weights.pt"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"old")
    edit(project, {"grid/end_to_end": []})
    problems, leftovers = check.check(project)
    assert "runs/end_to_end/digits-plc-0/weights.pt is no stage's out" in "\n".join(problems)
    assert leftovers == [Path("runs/end_to_end")]


def test_leftovers_are_named_and_removed_on_request_only(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = [
        "runs/finetune/digits-em-0/metrics.json",
        "runs/lac/digits-lac-0-no_queue/metrics.json",
        "analyses/audit/digits-0/audit.json",
    ]
    left = [
        "runs/finetune/digits-em-1/metrics.json",
        "runs/lac/digits-lac-0-queue/metrics.json",
        "analyses/maps/a/x.json",
    ]
    for name in kept + left:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("{}")
    folders = ["runs/finetune/digits-em-1", "runs/lac/digits-lac-0-queue", "analyses/maps"]
    monkeypatch.chdir(project)
    assert check.main([]) == 0
    assert ", ".join(folders) in capsys.readouterr().err
    assert all(Path(name).exists() for name in kept + left)
    assert check.main(["--remove-leftovers"]) == 0
    assert all(Path(name).exists() for name in kept)
    assert not any(Path(folder).exists() for folder in folders)
    assert check.main([]) == 0
    assert capsys.readouterr().err == ""


def test_command_line_lists_problems_and_fails(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(project, {"grid/end_to_end": []})
    monkeypatch.chdir(project)
    assert check.main([]) == 1
    assert re.search(r"^error: .*add plc to grid\.end_to_end$", capsys.readouterr().err, re.MULTILINE)


def test_the_reading_of_source_text_agrees_with_the_classes(repository: Path) -> None:
    names = base.names()
    assert names
    for name in names:
        facts, method = check.read_facts(repository / f"pipeline/methods/{name}.py"), base.load(name)
        assert facts.views == method.views, name
        assert facts.needs == method.needs, name
        assert facts.settings.model_json_schema() == method.Settings.model_json_schema(), name


@pytest.mark.parametrize("stage", TRAINING_STAGES)
@pytest.mark.parametrize("head", [tiny.LINEAR, BOOSTED, tiny.EMBEDDING, BOTTLENECK], ids=lambda head: head["kind"])
def test_what_the_preflight_grants_is_what_network_and_inputs_provide(stage: str, head: dict[str, Any]) -> None:
    on_images = stage != "linear_init"
    network, inputs = tiny.network(head, on_images), tiny.images(2) if on_images else tiny.features(2)
    granted = network.provides() | inputs.provides | {"epoch_logits", "expected_positives", "disk"}
    assert check.available(stage, tiny.training(head=head)) == granted <= base.NEEDS


def test_every_kind_of_head_is_known_to_the_preflight() -> None:
    schema = Training.model_json_schema()
    kinds = {
        block["properties"]["kind"]["const"] for block in schema["$defs"].values() if "kind" in block["properties"]
    }
    assert kinds == set(HEAD_GIVES) and set().union(*SAME_WEIGHTS) <= kinds


@pytest.mark.parametrize(("kind", "start"), [("linear", "boosted"), ("boosted", "linear")])
def test_heads_of_the_same_weights_start_from_each_other(kind: str, start: str) -> None:
    heads = {"linear": LINEAR["head"], "boosted": BOOSTED}
    first, then = (tiny.training(head=heads[name]).head for name in (start, kind))
    assert check._may_start("finetune", then, first) and not check._may_start("lac", then, first)
    tiny.network(heads[kind]).load_state_dict(tiny.network(heads[start]).state_dict())  # as finetune does


def test_a_boosted_head_may_start_from_linear_init(project: Path) -> None:
    edit(project, {"finetune/default/head": BOOSTED} | started("em"))
    assert check.check(project) == ([], [])


def test_a_method_without_a_linear_head_may_start_from_anothers(project: Path) -> None:
    run = {"dataset": "digits", "method": "plc", "seed": 0, "start": "an"}
    strong = YAML().load(project / "params.yaml")["lac"]["default"]["strong"]
    change = {"stage": {"strong": dict(strong)}, "method": {}}
    edit(project, {"variants/finetune/digits-plc-0-from_an": run | {"set": change}})
    assert check.check(project) == ([], [])
    edit(project, {"variants/finetune/digits-plc-0-from_an": run | {"set": {"stage": {}, "method": {}}}})
    told = "finetune.default.strong: is null, and `plc` (variants.finetune.digits-plc-0-from_an) asks for a strong view"
    assert check.check(project) == ([told], [])


def test_it_is_quick_and_needs_no_torch(project: Path) -> None:
    script = (
        "import sys\nfrom pipeline.cli import check\ncode = check.main([])\n"
        "assert 'torch' not in sys.modules\nsys.exit(code)"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 10  # 1 s on an idle machine


def test_a_schema_that_needs_torch_is_refused(project: Path) -> None:
    path = project / "pipeline/methods/em.py"
    text = path.read_text().replace(
        "class Settings(Strict):", "import torch\n\n\nclass Settings(Strict, torch.Tensor):"
    )
    path.write_text(text)
    assert "class Settings draws on `torch`" in "\n".join(check.check(project)[0])


def test_without_dvc_it_says_so(project: Path) -> None:
    shutil.rmtree(project / ".dvc")
    assert any(problem.startswith("dvc.yaml: ") for problem in check.check(project)[0])


BIRDS = [" ".join([*line.split()[:2], "1", *line.split()[3:]]) for line in test_cub.LINES]  # none without an attribute
RAW = {"coco": test_coco.tree, "nus": test_nus.formatted, "cub": lambda folder: test_cub.tree(folder, BIRDS)}
"""What writes raw data of the layout that a profile asks for; all others ask for VOC's."""


@pytest.mark.parametrize("name", sorted(path.stem for path in Path(__file__).parents[2].glob("profiles/*.yaml")))
def test_every_profile_passes_once_its_raw_data_is_named(project: Path, name: str) -> None:
    RAW.get(name, raw_data)(project / "raw")
    try:
        profile.apply(project, name, "raw")
    except ConfigError:
        profile.apply(project, name)  # reads no raw data
    assert check.check(project) == ([], [])


def test_labels_that_are_not_exhaustive_ask_for_settings_of_their_own(project: Path) -> None:
    """One folder for each class: a label an image, and nothing to choose epochs by or to draw."""
    for number in range(12):
        path = project / "raw" / ("cat", "dog")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"jpeg")
    block = {"source": "folder", "root": "raw", "size": 48, "bad_images": "stop", "classes": None, "split_seed": 0}
    block |= {"split_folders": False, "same_name": "separate", "val_fraction": 0.25, "test_fraction": 0.25}
    edit(project, {"prepare/digits": block})
    assert check.data_problems(project, read_params(project / "params.yaml")) == [
        "simulate.protocol: seeded, but the labels of digits are not exhaustive; set it to given",
        *(
            f"{stage}.default.select: clean, but the labels of digits are not exhaustive; set it to observed or last"
            for stage in TRAINING_STAGES
        ),
    ]
    edit(project, {"simulate/default/protocol": "given"})
    edit(project, {f"{stage}/default/select": "last" for stage in TRAINING_STAGES})
    assert check.data_problems(project, read_params(project / "params.yaml")) == []
    edit(project, {"prepare/digits": VOC | {"root": "voc"}})
    raw_data(project / "voc")
    assert check.data_problems(project, read_params(project / "params.yaml")) == [
        "simulate.protocol: given, but the labels of digits are exhaustive; set it to literature or seeded"
    ]


def test_rows_that_simulate_or_training_would_refuse_are_told_first(project: Path) -> None:
    test_cub.tree(project / "raw")  # its val image, one of four, has no attribute
    block = {"source": "cub", "root": "raw", "least_certainty": 1, "size": 48, "bad_images": "stop"}
    edit(project, {"prepare/digits": block | {"val_fraction": 0.2, "split_seed": 1200}})
    bare = "prepare.digits: no val image has a positive label, so no epoch can be chosen by it"
    assert check.data_problems(project, read_params(project / "params.yaml")) == [bare]
    edit(project, {"simulate/default/empty_rows": "error"})
    assert check.data_problems(project, read_params(project / "params.yaml")) == [
        "simulate.empty_rows: error, and 1 training and val images of digits have no positive",
        bare,
    ]


def test_a_biased_draw_of_drawn_pictures_is_checked_too(project: Path) -> None:
    def problems(bias: dict[str, Any]) -> list[str]:
        edit(project, {"simulate/default/bias": bias})
        return check.data_problems(project, read_params(project / "params.yaml"))

    assert problems({"kind": "size", "power": 1.0})[0].startswith("simulate.bias: size needs boxes")
    table = {"kind": "table", "file": "w.csv"}
    (project / "w.csv").write_text("class,weight\n" + "".join(f"digit_{digit},1\n" for digit in range(10)))
    assert problems(table) == []
    report = project / "data" / "simulate" / "digits" / "report.json"
    files.write_json(report, {"bias": {"kind": "table", "file_sha256": "0" * 64}})
    assert problems(table) == ["simulate.bias.file: w.csv changed since simulate ran: dvc repro -f simulate@digits"]
    (project / "w.csv").write_text("class,weight\ndigit_0,1\n")
    (problem,) = problems(table)
    assert problem.startswith("simulate.bias: w.csv: 9 classes have no weight")


def test_a_biased_draw_that_cannot_be_made_is_told_first(project: Path) -> None:
    raw_data(project / "raw")
    edit(project, {"prepare/digits": VOC | {"root": "raw"}})

    def problems(bias: dict[str, Any]) -> list[str]:
        edit(project, {"simulate/default/bias": bias})
        return check.data_problems(project, read_params(project / "params.yaml"))

    assert problems({"kind": "frequency", "power": 1.0}) == []
    assert problems({"kind": "size", "power": 1.0}) == [
        "simulate.bias: size needs boxes, and the data gave none (VOC has them in Annotations/, COCO in bbox; or weigh "
        "by frequency or a table)"
    ]
    table = {"kind": "table", "file": "w.csv"}
    assert problems(table) == ["simulate.bias.file: no file w.csv"]
    (project / "w.csv").write_text("class,weight\nzebra,1\n")
    first, *_ = problems(table)
    assert first == "simulate.bias: w.csv: classes are not in the dataset: line 2 'zebra'"

    settings = voc.Settings.model_validate(VOC | {"root": "raw"})
    found = voc.read(settings, project).table
    (project / "w.csv").write_text("class,weight\n" + "".join(f"{name},1\n" for name in found.classes))
    assert problems(table) == []
    report = project / "data" / "simulate" / "digits" / "report.json"
    files.write_json(report, {"bias": {"kind": "table", "file_sha256": files.sha256(project / "w.csv")}})
    assert problems(table) == []
    files.write_json(report, {"bias": {"kind": "table", "file_sha256": "0" * 64}})
    assert problems(table) == ["simulate.bias.file: w.csv changed since simulate ran: dvc repro -f simulate@digits"]
    files.write_json(report, {"bias": None})  # of given labels
    assert problems(table) == []


def test_raw_lists_are_not_read_again_while_nothing_changed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of a large set take a minute; what prepare found in the same files is at hand."""
    raw_data(project / "raw")
    edit(project, {"prepare/digits": VOC | {"root": "raw"}})
    prepared = project / "data" / "prepare" / "digits"
    settings = voc.Settings.model_validate(VOC | {"root": "raw"})
    files.write_json(prepared / "report.json", {"raw_sha256": voc.fingerprint(settings, project)})
    write_table(prepared / "table.h5", voc.read(settings, project).table)
    monkeypatch.setattr(voc, "read", lambda *_: pytest.fail("read again"))
    assert check.data_problems(project, read_params(project / "params.yaml")) == []
    monkeypatch.undo()
    (project / "raw/JPEGImages/train_3.jpg").write_bytes(b"another")
    (problem,) = check.data_problems(project, read_params(project / "params.yaml"))
    assert problem == "prepare.digits: raw data of digits changed since prepare ran: dvc repro -f prepare@digits"


def test_what_lies_in_a_folder_of_outs_is_under_it() -> None:
    outs = {PurePath("report/figures"), PurePath("a.txt")}
    for path, under in (("report/figures/x/1.png", True), ("report/figures", True), ("report", False), ("a", False)):
        assert check._under(PurePath(path), outs) is under
