import copy
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline.config import params as config
from pipeline.config.params import TRAINING_STAGES, Params, read_params, read_project
from pipeline.core.errors import ConfigError
from pipeline.core.strict import merge
from pipeline.training.settings import Average

TIMM = {"source": "timm", "model": "resnet18", "weights": "hub", "file": None, "mean": None, "std": None}
VARIANT = {"dataset": "digits", "method": "an", "draw": 0, "seed": 0, "start": "an"}


@pytest.fixture(scope="module")
def shipped(repository: Path) -> dict[str, Any]:
    """The project's params.yaml, with the methods' files under ``methods``."""
    read = YAML(typ="safe", pure=True).load
    methods = {file.stem: read(file) for file in (repository / "params/methods").glob("*.yaml")}
    return read(repository / "params.yaml") | {"methods": methods}


@pytest.fixture
def content(shipped: dict[str, Any]) -> dict[str, Any]:
    """The default params without variants, to be altered."""
    altered = copy.deepcopy(shipped)
    altered["variants"] = {stage: {} for stage in TRAINING_STAGES}
    altered["grid"]["linear_init"] = ["an", "em"]
    return altered


def parse_params(content: dict[str, Any], whole: bool = True) -> Params:
    """What is read of files with this content, the methods' under ``methods``."""
    return config.parse_params(
        {key: value for key, value in content.items() if key != "methods"}, content["methods"], whole=whole
    )


def put(content: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for name in parents:
        content = content.setdefault(name, {})
    content[last] = value


# ---------------------------------------------------------------------------------------------- reading
def load(folder: Path, text: str | bytes) -> Params:
    path = folder / "p.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_params(path)


def test_the_shipped_file_is_valid_and_read_as_yaml_1_2(tmp_path: Path, repository: Path) -> None:
    text = (repository / "params.yaml").read_text()
    params = load(tmp_path, text)
    assert params.profile == "default" and params.grid.datasets == ["digits"]
    short = re.sub(r"(\d)\.0e-", r"\1e-", text)  # 1e-4 is text by YAML 1.1
    assert short != text and load(tmp_path, short) == params
    named = load(tmp_path, text.replace("[digits]", "[no]").replace("  digits:", "  no:"))
    assert named.grid.datasets == ["no"]  # false, by YAML 1.1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "p.yaml: not YAML 1.2"),
        ("a: 1\na: 2", "p.yaml: not YAML 1.2.*duplicate key"),
        (b"a: \xff", "p.yaml: not YAML 1.2"),
        ("!!python/object/apply:os.getcwd []", "p.yaml: not YAML 1.2"),
        ("", "p.yaml: Input should be a block of keys"),
        ("[]", "p.yaml: Input should be a block of keys"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        load(tmp_path, text)


def test_a_file_that_is_absent_is_named(tmp_path: Path, repository: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone.yaml: cannot be read \(No such file"):
        read_params(tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match=r"^params/methods/gone.yaml: cannot be read \(No such file"):
        read_params(repository / "params.yaml", "gone")


@pytest.fixture
def project(tmp_path: Path, repository: Path) -> Path:
    """params.yaml and the methods' files, to be altered."""
    shutil.copy(repository / "params.yaml", tmp_path)
    shutil.copytree(repository / "params", tmp_path / "params")
    return tmp_path


def test_a_stage_reads_the_file_of_its_own_method_alone(project: Path) -> None:
    whole = read_project(project)
    for path in (project / "params/methods").glob("*.yaml"):
        if path.stem != "em":
            path.write_text("broken: [")
    params = read_params(project / "params.yaml", "em")
    assert params.methods == {"em": whole.methods["em"]}
    for stage in ("linear_init", "finetune"):
        assert params.run(stage, "digits", "em") == whole.run(stage, "digits", "em")
    with pytest.raises(ConfigError, match=r"^params/methods/.*\.yaml: not YAML 1.2"):
        read_project(project)


def test_a_fault_of_a_variant_of_another_method_is_named_without_its_file(content: dict[str, Any]) -> None:
    content["variants"]["finetune"]["digits-em-0-0-x"] = VARIANT | {
        "method": "em",
        "set": {"stage": {"epoch": 3}, "method": {}},
    }
    content["methods"] = {"an": content["methods"]["an"]}
    with pytest.raises(ConfigError, match=r"^variants\.finetune\.digits-em-0-0-x\.set\.stage\.epoch: Extra .*$"):
        parse_params(content, whole=False)
    change = {"protocol": "published", "strong": {"magnitude": 5}}  # `strong` is whole in a recipe alone
    content["variants"]["finetune"]["digits-em-0-0-x"]["set"]["stage"] = change
    parse_params(content, whole=False)  # whether the recipe holds it is seen where the method's file is read


def test_a_section_of_methods_in_params_is_a_fault_that_says_where_they_lie(content: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^params\.yaml\.methods: .* params/methods/<name>\.yaml$"):
        config.parse_params(content, {})


def test_a_methods_file_is_named_as_dvc_names_it(project: Path) -> None:
    """What a message calls a setting is what `dvc exp run -S` takes."""
    from dvc.utils.hydra import apply_overrides

    file, key = config.method_key("em", "default", "alpha").split(":")
    apply_overrides(project / file, [f"{key}=0.7"])
    assert read_params(project / "params.yaml", "em").method("em", "digits")["alpha"] == 0.7


# ---------------------------------------------------------------------------------------------- the schema
BOTTLENECK = {"kind": "bottleneck", "dim": 8, "heads": 2, "feedforward": 8, "encoder_layers": 1, "decoder_layers": 1}
BOTTLENECK |= {"dropout": 0.1, "latent": 4, "samples": 2}
SIMULATE = {"seed": 0, "empty_rows": "keep", "positives": {"kind": "count", "value": 1}}
SIMULATE |= {"negatives": {"kind": "count", "value": 0}, "bias": {"kind": "uniform"}}
FAULTS: list[tuple[str, Any, str]] = [
    ("finetune.default.momentun", 0.9, "finetune.default.momentun: Extra inputs are not permitted"),
    ("unknown_section", {}, "params.yaml.unknown_section: Extra inputs"),
    ("prepare.published", {"source": "digits"}, "prepare.published: no dataset may be called so"),
    ("finetune.default", None, "params.yaml.finetune.default"),
    ("finetune.default.epochs", 0, "finetune.default.epochs: .*greater than or equal to 1"),
    ("finetune.default.epochs", 2.5, "finetune.default.epochs: .*valid integer"),
    ("finetune.default.epochs", True, "finetune.default.epochs: .*valid integer"),
    ("finetune.default.epochs", "8", "finetune.default.epochs: .*valid integer"),
    ("finetune.default.flip", 1, "finetune.default.flip: .*valid boolean"),
    ("finetune.default.learning_rate", "1e-3", "finetune.default.learning_rate"),
    ("finetune.default.learning_rate", 0.0, "finetune.default.learning_rate"),
    ("finetune.default.learning_rate", float("inf"), "finetune.default.learning_rate.*finite"),
    ("finetune.default.weight_decay", float("nan"), "finetune.default.weight_decay.*finite"),
    ("finetune.default.weight_decay", -0.1, "finetune.default.weight_decay: .*greater than or equal to 0"),
    ("linear_init.default.weight_decay", [0.0, -0.1], "linear_init.default.weight_decay.1: .*greater than or equal to"),
    ("linear_init.default.weight_decay", [0.0], "linear_init.default.weight_decay: .*at least 2 items"),
    (
        "linear_init.default.weight_decay",
        [0.0, 0.1, 0.0],
        r"^linear_init.default.weight_decay: names one twice \(given: \[0.0, 0.1, 0.0\]\)$",
    ),
    (
        "finetune.default.weight_decay",
        [0.0, 0.1],
        r"^finetune.default.weight_decay: a list is tried with the rates of `learning_rate: grid`; name one \(given: ",
    ),
    ("linear_init.default.head", {"kind": "linear"}, "linear_init.default.head.linear.scale: Field required"),
    ("linear_init.default.head.scale", "l2", "linear_init.default.head.linear.scale: .*'none' or 'unit'"),
    ("linear_init.default.head.scale", ["none"], "linear_init.default.head.linear.scale: .*at least 2 items"),
    (
        "linear_init.default.head.scale",
        ["unit", "unit"],
        r"linear_init.default.head.linear.scale: names an entry twice \(given: \[unit, unit\]\)",
    ),
    ("linear_init.default.search.values", [], "linear_init.default.search.values"),
    ("linear_init.default.search.values", [1e-3, -1e-3], "linear_init.default.search.values.1"),
    ("finetune.default.optimizer", "lion", "finetune.default.optimizer: .*'adam'"),
    ("finetune.default.schedule", "cosine", "finetune.default.schedule"),
    ("finetune.default.warmup", 1.0, "finetune.default.warmup: .*less than 1"),
    ("finetune.default.ema", {"decay": 1.0, "rule": "warmup"}, "finetune.default.ema.decay: .*less than 1"),
    ("finetune.default.ema", 0.9997, "finetune.default.ema: "),
    ("finetune.default.batch_norm", "eval", "finetune.default.batch_norm"),
    ("finetune.default.select", "test", "finetune.default.select: .*'clean', 'auto' or 'last'"),
    (
        "finetune.default.early_stop",
        {"rule": "patience", "amount": 0.0},
        r"^finetune.default.early_stop.amount: .*at least 1 \(given: 0.0\)$",
    ),
    ("finetune.default.head", {"kind": "linear", "dim": 4}, "finetune.default.head.linear.dim: Extra inputs"),
    ("finetune.default.head", {"kind": "conv"}, r"finetune.default.head: .*'kind'.* \(given: {kind: conv}\)"),
    ("lac.default.head.kind", "conv", "^lac.default.head: [^{]*$"),  # nothing of the block's other keys
    ("finetune.default.head", None, "finetune.default.head"),
    ("finetune.digits", {"epoch": 3}, "finetune.digits.epoch: Extra inputs"),
    ("prepare.other", None, "params.yaml.prepare.other"),
    ("linear_init.digit", {"epochs": 3}, "linear_init.digit: no dataset of that name; `prepare` holds digits"),
    ("linear_init.voc", {"epochs": 3}, "linear_init.voc: no dataset of that name"),  # of the papers, but not prepared
    ("report.digit", {}, "report.digit: no dataset of that name"),
    ("backbone.digit", {**TIMM}, "backbone.digit: no dataset of that name"),
    (
        "methods.em.vocc",
        {"alpha": 0.1},
        "^params/methods/em.yaml:vocc: no dataset of that name; `prepare` holds digits$",
    ),
    ("expected_positives.digit", {"value": 2.0, "source": "x"}, "expected_positives.digit: no dataset of that name"),
    ("expected_positives.default", {"value": 2.0, "source": "x"}, "expected_positives.default: no dataset"),
    ("prepare.default", {"seed": 1}, "prepare.default: DVC would not notice"),
    ("backbone.default", {"seed": 1}, "backbone.default: DVC would not notice"),
    (
        "linear_init.default.search.values",
        [1e-3, 3e-3, 1e-3],
        r"^linear_init.default.search.values: .*twice \(given: \[.*\]\)$",
    ),
    (
        "linear_init.default.search",
        {"values": [1e-3], "epochs": None, "extend": 2},
        r"^linear_init.default.search.extend: has no effect beside one value; set it to 0 \(given: 2\)$",
    ),
    ("linear_init.default.search.extend", -1, "linear_init.default.search.extend: .*greater than or equal to 0"),
    ("lac.default.head.dim", 126, "lac.default.head.label_embedding.dim: .*multiple of 4"),
    ("lac.default.head.heads", 3, r"lac.default.head.label_embedding.dim: .*of heads \(3\)"),
    ("backbone.digits", {**TIMM, "weights": "file"}, r"^backbone.digits.timm.file: names .* \(given: null\)$"),
    ("backbone.digits", {**TIMM, "file": "a.pt"}, r"^backbone.digits.timm.file: names .* \(given: a.pt\)$"),
    ("backbone.digits", {**TIMM, "mean": [0.5, 0.5]}, "backbone.digits.timm.mean"),
    ("backbone.digits", {**TIMM, "mean": ["0.5", 0.5, 0.5]}, "backbone.digits.timm.mean.0"),
    ("backbone.digits", {**TIMM, "std": [0.5, 0.0, 0.5]}, "backbone.digits.timm.std.1: .*greater than 0"),
    ("backbone.digits.width", 6, "backbone.digits.digits.width: .*multiple of 4"),
    (
        "backbone.digits.batch_size",
        10**6,
        r"^backbone.digits.digits.images: 6000 do not fill one batch of batch_size 1000000$",
    ),
    ("features.default.dtype", "bfloat16", "features.default.dtype"),
    ("landscape.default.points_2d", 4, r"^landscape.default.points_2d: must be odd.* \(given: 4\)$"),
    ("landscape.default.radius", 0, "landscape.default.radius: .*greater than 0"),
    ("landscape.default.radius", 1e30, r"landscape.default.radius: .*less than or equal to 1000 \(given: 1.0e\+30\)"),
    ("grid.landscape_stage", "prepare", "grid.landscape_stage: Input should be 'linear_init', 'finetune', 'end_to_en"),
    ("simulate", {}, "simulate: neither `default` nor `digits`; it holds nothing"),
    (
        "simulate.default.positives",
        {"kind": "count", "value": -1},
        "positives.count.value: .*equal to 0",
    ),
    ("simulate.default.positives", {"kind": "share", "value": 1.5}, "positives.share.value: .*equal to 1"),
    ("simulate.default.positives", 1, "simulate.default.positives"),
    ("simulate.default.positives", {"kind": "table"}, "positives: `table` keeps .* \\(given: bias uniform\\)"),
    ("simulate.default.negatives", {"kind": "table"}, "simulate.default.negatives: .*'count', 'share'"),
    ("simulate.default.bias", {"kind": "size"}, "simulate.default.bias.size.power: Field required"),
    ("simulate.default.bias", {"kind": "size", "power": float("inf")}, "bias.size.power.*finite"),
    ("simulate.default.bias", {"kind": "size", "power": 21.0}, "bias.size.power: .*less than or equal to 20"),
    ("simulate.default.positives", {"kind": "count", "value": 0}, "^simulate.default.positives: none would stay known"),
    ("simulate.default.positives", {"kind": "share", "value": 0.0}, "^simulate.default.positives: none would stay"),
    ("simulate.default.bias", {"kind": "colour"}, "simulate.default.bias: .*'kind'"),
    *(
        ("simulate.default", SIMULATE | {"protocol": protocol} | change, f"simulate.default.protocol: .*{words}")
        for protocol, words in (("literature", "draws counts without bias"), ("given", "draws nothing"))
        for change in (
            {"positives": {"kind": "share", "value": 0.5}},
            {"negatives": {"kind": "share", "value": 0.5}},
            {"bias": {"kind": "frequency", "power": 1.0}},
        )
    ),
    ("simulate.default", SIMULATE | {"protocol": "given", "positives": {"kind": "count", "value": 2}}, "draws nothing"),
    ("backbone", {}, "backbone: neither `default` nor `digits`; it holds nothing"),
    ("grid.datasets", [], "grid.datasets"),
    ("grid.draws", [1, 1], r"^params.yaml.grid.draws: names an entry twice \(given: \[1, 1\]\)$"),
    ("grid.draws", [], "grid.draws: "),
    ("grid.draws", [-1], "grid.draws.0"),
    ("simulate.default.draw", 0, "simulate.default.draw: Extra inputs"),
    ("grid.seeds", [0, 0], r"^params.yaml.grid.seeds: names an entry twice \(given: \[0, 0\]\)$"),
    ("grid.seeds", [-1], "grid.seeds.0"),
    ("grid.finetune", ["an", "an"], "grid.finetune: names an entry twice"),
    ("grid.finetune", ["../an"], r'grid.finetune: \["../an"\] are not names of'),
    ("grid.datasets", ["Digits"], "not names of"),
    ("grid.lac_start", "../plc", r'grid.lac_start: \["../plc"\] are not names of'),
    ("grid.lac_start", ["plc"], "grid.lac_start: .*valid string"),
    ("profile", None, "params.yaml.profile: .*valid string"),
    ("expected_positives.digits.value", 0.0, "expected_positives.digits.value"),
    ("methods.an", None, "^params/methods/an.yaml:.*block of keys"),
    ("methods.an", {"default": 3}, "^params/methods/an.yaml:default: .*block of keys"),
    ("variants.finetune.digits-an-0-0", {**VARIANT, "set": {"stage": {}, "method": {}}}, "the key must be"),
    ("variants.finetune.digits-an-0-0-x", {**VARIANT, "set": {"stage": {}}}, "digits-an-0-0-x.set.method: .*required"),
    (
        "variants.finetune.digits-an-0-0-x",
        {**VARIANT, "set": {"stage": {"epoch": 3}, "method": {}}},
        "variants.finetune.digits-an-0-0-x.set.stage.epoch: Extra inputs",
    ),
    (
        "variants.finetune.digits-nope-0-0-x",
        {**VARIANT, "method": "nope", "set": {"stage": {}, "method": {}}},
        "^variants.finetune.digits-nope-0-0-x.method: `nope` has no file params/methods/nope.yaml$",
    ),
    (
        "variants.finetune.digits-an-0-0-x",
        {"dataset": "digits", "method": "an", "draw": 0, "seed": 0, "set": {"stage": {}, "method": {}}},
        "variants.finetune.digits-an-0-0-x.start: Field required",
    ),
    (
        "variants.finetune.digits-an-0-0-x",
        {**VARIANT, "start": "nope", "set": {"stage": {}, "method": {}}},
        r"^variants\.finetune\.digits-an-0-0-x\.start: `nope` has no file params/methods/nope\.yaml$",
    ),
    ("variants.end_to_end.digits-an-0-0-x", {**VARIANT, "set": {"stage": {}, "method": {}}}, "x.start: Extra inputs"),
    ("finetune.default.protocol", "own", "finetune.default.protocol: .*'common' or 'published'"),
    ("finetune.default.crop", 0.0, "finetune.default.crop: .*greater than 0"),
    ("finetune.default.crop", 1.5, "finetune.default.crop: .*less than or equal to 1"),
    ("lac.default.strong.crop", 0, "lac.default.strong.crop: .*greater than 0"),
    ("finetune.default.head", {"kind": "boosted"}, "finetune.default.head.boosted.factor: Field required"),
    (
        "finetune.default.head",
        {"kind": "boosted", "factor": 0.5, "scale": "none"},
        "head.boosted.factor: .*greater than or equal to 1",
    ),
    ("finetune.default.head", BOTTLENECK | {"latent": 0}, "head.bottleneck.latent: .*greater than or equal to 1"),
    ("finetune.default.head", BOTTLENECK | {"samples": 0}, "head.bottleneck.samples: .*greater than or equal to 1"),
    ("finetune.default.head", BOTTLENECK | {"embedding": 4}, "head.bottleneck.embedding: Extra inputs"),
    ("finetune.default.head", BOTTLENECK | {"heads": 3}, r"finetune.default.head.bottleneck.dim: .*of heads \(3\)"),
    # published recipes; the whole message, since no other key is at fault
    ("methods.an.published", None, r"^params/methods/an.yaml:published: .*block of keys"),
    ("methods.an.published", 3, r"^params/methods/an.yaml:published: .*block of keys"),
    ("methods.an.published.voc", 3, r"^params/methods/an.yaml:published.voc: .*block of keys \(given: 3\)$"),
    (
        "methods.an.published.default.finetune",
        None,
        r"^params/methods/an.yaml:published.default.finetune: .*block of keys",
    ),
    (
        "methods.an.published.voc.tune",
        {},
        "^params/methods/an.yaml:published.voc.tune: .*'linear_init', 'finetune', 'end_to_end' or",
    ),
    (
        "methods.an.published.vocc.finetune",
        {},
        "^params/methods/an.yaml:published.vocc: no dataset of that name; there are default, ",
    ),
    (
        "methods.an.published.voc.finetune.protocol",
        "published",
        "^params/methods/an.yaml:published.voc.finetune.protocol: a recipe does not choose the protocol$",
    ),
    (
        "methods.an.published.voc.finetune.epoch",
        3,
        r"^params/methods/an.yaml:published.voc.finetune.epoch: Extra .* \(given: 3\)$",
    ),
    (
        "methods.an.published.voc.finetune.flip",
        1,
        "^params/methods/an.yaml:published.voc.finetune.flip: .*valid boolean",
    ),
    (
        "methods.an.published.voc.finetune.epochs",
        "3",
        "^params/methods/an.yaml:published.voc.finetune.epochs: .*valid integer.*$",
    ),
    (
        "methods.an.published.voc.finetune.early_stop.rul",
        "none",
        "^params/methods/an.yaml:published.voc.finetune.early_stop.rul: Ex",
    ),
    ("methods.an.published.voc.lac.head", {"kind": "conv"}, "^params/methods/an.yaml:published.voc.lac.head: .*'kind'"),
    # named once, though three datasets share it
    (
        "methods.an.published",
        {"default": {"lac": {"epoch": 3}}, "voc": {"lac": {"epochs": 9}}, "cub": {"lac": {"epochs": 8}}},
        r"^params/methods/an.yaml:published.default.lac.epoch: Extra .* \(given: 3\)$",
    ),
    (  # but not where it is sound
        "methods.an.published",
        {"default": {"lac": {"epochs": 3}}, "voc": {"lac": {"epoch": 9}}, "digits": {"lac": {"epoch": 8}}},
        r"^params/methods/an.yaml:published.digits.lac.epoch: .+\nparams/methods/an.yaml:published.voc.lac.epoch: .+$",
    ),
]


def test_a_message_is_short(content: dict[str, Any]) -> None:
    for key, value, _ in FAULTS:
        altered = copy.deepcopy(content)
        put(altered, key, value)
        with pytest.raises(ConfigError) as caught:
            parse_params(altered)
        assert all(len(line) < 260 for line in str(caught.value).splitlines()), str(caught.value)


@pytest.mark.parametrize(("key", "value", "message"), FAULTS, ids=[f"{key}={value}" for key, value, _ in FAULTS])
def test_a_fault_is_named_by_its_key(content: dict[str, Any], key: str, value: Any, message: str) -> None:
    put(content, key, value)
    with pytest.raises(ConfigError, match=message):
        parse_params(content)


def test_the_altered_file_is_valid_before_it_is_altered(content: dict[str, Any]) -> None:
    parse_params(content)


def test_no_setting_has_a_default_in_code(shipped: dict[str, Any]) -> None:
    for stage in TRAINING_STAGES:
        for key in shipped[stage]["default"]:
            altered = copy.deepcopy(shipped)
            del altered[stage]["default"][key]
            with pytest.raises(ConfigError, match=rf"{stage}.default.{key}: Field required"):
                parse_params(altered)
    for section in shipped.keys() - {"methods"}:
        altered = copy.deepcopy(shipped)
        del altered[section]
        with pytest.raises(ConfigError, match=rf"params.yaml.{section}: Field required"):
            parse_params(altered)


def test_all_faults_are_told_at_once(content: dict[str, Any]) -> None:
    put(content, "finetune.default.epochs", 0)
    put(content, "audit.default.bins", 0)
    with pytest.raises(ConfigError) as caught:
        parse_params(content)
    lines = str(caught.value).splitlines()
    assert any(line.startswith("finetune.default.epochs") for line in lines)
    assert any(line.startswith("audit.default.bins") for line in lines)
    assert len(lines) == len(set(lines))


def test_settings_cannot_be_changed_once_read(content: dict[str, Any]) -> None:
    settings = parse_params(content).settings("finetune", "digits")
    with pytest.raises(ValueError, match="frozen"):
        settings.epochs = 3


# ---------------------------------------------------------------------------------------------- looking up
def test_a_datasets_block_overlays_the_default(content: dict[str, Any]) -> None:
    put(content, "prepare.voc", {})
    put(content, "backbone.voc", content["backbone"]["digits"])
    put(content, "linear_init.voc", {"epochs": 3, "search": {"epochs": 2}})
    put(content, "methods.em", {"default": {"alpha": 0.2}, "voc": {"alpha": 0.1}})
    params = parse_params(content)
    own, other = params.settings("linear_init", "digits"), params.settings("linear_init", "voc")
    assert (other.epochs, other.search.epochs) == (3, 2)
    assert other.search.values == own.search.values and own.epochs == content["linear_init"]["default"]["epochs"]
    assert (params.method("em", "digits"), params.method("em", "voc")) == ({"alpha": 0.2}, {"alpha": 0.1})
    with pytest.raises(ConfigError, match="^params/methods/nope.yaml: no such file; there are an, "):
        params.method("nope", "digits")
    put(content, "methods.em", {"voc": {"alpha": 0.1}})
    with pytest.raises(ConfigError, match="^params/methods/em.yaml: neither `default` nor `digits`; it holds voc"):
        parse_params(content).method("em", "digits")


def test_mean_and_deviation_come_as_yaml_lists(content: dict[str, Any]) -> None:
    put(content, "backbone.digits", {**TIMM, "mean": [0.5, 0.4, 1], "std": [0.2, 0.2, 0.3]})
    settings = parse_params(content).settings("backbone", "digits")
    assert settings.mean == (0.5, 0.4, 1.0) and settings.std == (0.2, 0.2, 0.3)


def test_a_variant_changes_a_run_and_lies_beside_it(content: dict[str, Any]) -> None:
    change = {"stage": {"epochs": 77}, "method": {"alpha": 0.9}}
    put(content, "variants.finetune.digits-em-0-0-x", {**VARIANT, "method": "em", "set": change})
    put(content, "grid.seeds", [0, 1])
    put(content, "grid.finetune", ["em", "an"])
    params = parse_params(content)
    plain, own = params.run("finetune", "digits", "em")
    changed, other = params.run("finetune", "digits", "em", "digits-em-0-0-x")
    assert (changed.epochs, other["alpha"]) == (change["stage"]["epochs"], change["method"]["alpha"])
    assert plain.epochs == content["finetune"]["default"]["epochs"] != changed.epochs
    assert own == content["methods"]["em"]["default"] != other
    assert changed.model_copy(update={"epochs": plain.epochs}) == plain
    ordinary = [("digits-em-0-0", "em", None), ("digits-an-0-0", "an", None)]
    assert params.keys("finetune", "digits", 0, 0) == [*ordinary, ("digits-em-0-0-x", "em", "digits-em-0-0-x")]
    assert params.keys("finetune", "digits", 0, 1) == [("digits-em-0-1", "em", None), ("digits-an-0-1", "an", None)]
    with pytest.raises(ConfigError, match="variants.finetune.nope: no such variant"):
        params.run("finetune", "digits", "em", "nope")
    for dataset, method in (("digits", "an"), ("voc", "em")):  # the folder's name would not say what was run
        with pytest.raises(ConfigError, match=r"digits-em-0-0-x: is a variant of \('digits', 'em'\)"):
            params.run("finetune", dataset, method, "digits-em-0-0-x")


def test_a_block_of_a_dataset_that_the_grid_does_not_run_is_checked_too(content: dict[str, Any]) -> None:
    put(content, "prepare.other", {})
    put(content, "finetune.other", {"epochs": 0})
    with pytest.raises(ConfigError, match="finetune.other.epochs: .*greater than or equal to 1"):
        parse_params(content)


@pytest.mark.parametrize("benchmark", ["voc", "coco", "nus", "cub"])
def test_published_settings_may_wait_for_their_dataset(content: dict[str, Any], benchmark: str) -> None:
    put(content, f"methods.em.{benchmark}", {"alpha": 0.1})
    assert parse_params(content).method("em", benchmark)["alpha"] == 0.1


def test_a_head_without_projection_is_judged_when_it_is_built(content: dict[str, Any]) -> None:
    put(content, "lac.default.head", content["lac"]["default"]["head"] | {"dim": None, "heads": 3})
    assert parse_params(content).settings("lac", "digits").head.dim is None


def test_variants_that_are_pooled_as_seeds_change_the_same_values(content: dict[str, Any]) -> None:
    def variant(method: str, seed: int, epochs: int) -> dict[str, Any]:
        change = {"stage": {"epochs": epochs}, "method": {}}
        return {"dataset": "digits", "method": method, "draw": 0, "seed": seed, "start": "an", "set": change}

    content["variants"]["finetune"] = {
        "digits-an-0-0-x": variant("an", 0, 3),
        "digits-an-0-1-x": variant("an", 1, 3),
        "digits-an-0-1-y": variant("an", 1, 4),  # another name
        "digits-em-0-1-x": variant("em", 1, 5),  # another method
    }
    another = variant("an", 1, 6)
    del another["start"]
    content["variants"]["lac"] = {"digits-an-0-1-x": another}  # another stage
    parse_params(content)
    for differing in (variant("an", 1, 7), variant("an", 1, 3) | {"start": "em"}):
        content["variants"]["finetune"]["digits-an-0-1-x"] = differing
        with pytest.raises(
            ConfigError, match=r"^variants\.finetune\.digits-an-0-1-x: differs from digits-an-0-0-x, .*$"
        ):
            parse_params(content)


# ---------------------------------------------------------------------------------------------- published recipes
EMA = {"rule": "warmup"}


def test_the_order_is_stage_then_recipe_then_its_dataset_then_variant(content: dict[str, Any]) -> None:
    put(
        content,
        "finetune.default",
        content["finetune"]["default"]
        | {"protocol": "published", "epochs": 1, "batch_size": 1, "schedule": "onecycle"},
    )
    put(content, "finetune.digits", {"weight_decay": 0.1, "momentum": 0.1})
    put(
        content,
        "methods.em.published.default.finetune",
        {"weight_decay": 0.2, "batch_size": 2, "warmup": 0.2, "ema": EMA | {"decay": 0.2}},
    )
    put(content, "methods.em.published.digits.finetune", {"warmup": 0.3, "ema": {"decay": 0.3}})
    put(content, "methods.em.published.voc.finetune", {"warmup": 0.5, "flip": True})
    change = {"stage": {"ema": {"decay": 0.4}}, "method": {}}
    put(content, "variants.finetune.digits-em-0-0-x", {**VARIANT, "method": "em", "set": change})
    params = parse_params(content)
    settings, own = params.run("finetune", "digits", "em", "digits-em-0-0-x")
    found = {
        key: getattr(settings, key) for key in ("epochs", "momentum", "weight_decay", "batch_size", "warmup", "ema")
    }
    assert found == {
        "epochs": 1,
        "momentum": 0.1,
        "weight_decay": 0.2,
        "batch_size": 2,
        "warmup": 0.3,
        "ema": Average(decay=0.4, rule="warmup"),
    }
    assert settings.flip is content["finetune"]["default"]["flip"]
    assert params.run("finetune", "digits", "em")[0] == settings.model_copy(
        update={"ema": Average(decay=0.3, rule="warmup")}
    )
    assert own == params.method("em", "digits") == content["methods"]["em"]["default"]  # the recipe is no setting of it
    with pytest.raises(
        ConfigError, match=r"^params/methods/an\.yaml:published: has no recipe of finetune for digits, .*$"
    ):
        params.run("finetune", "digits", "an")


def test_a_recipe_is_read_under_its_protocol_only(content: dict[str, Any]) -> None:
    put(content, "methods.em.published.default.finetune", {"epochs": 77})
    for what, change in (("x", {"protocol": "published"}), ("y", {"protocol": "published", "epochs": 78})):
        chosen = {"stage": change, "method": {}}
        put(content, f"variants.finetune.digits-em-0-0-{what}", {**VARIANT, "method": "em", "set": chosen})
    params = parse_params(content)
    assert params.run("finetune", "digits", "em")[0] == params.settings("finetune", "digits")
    assert params.run("finetune", "digits", "em", "digits-em-0-0-x")[0].epochs == 77
    assert params.run("finetune", "digits", "em", "digits-em-0-0-y")[0].epochs == 78
    put(content, "finetune.default.protocol", "published")
    content["variants"]["finetune"] = {}
    put(
        content,
        "variants.finetune.digits-an-0-0-z",
        {**VARIANT, "set": {"stage": {"protocol": "common"}, "method": {}}},
    )
    common = parse_params(content).run("finetune", "digits", "an", "digits-an-0-0-z")[0]  # without a recipe
    assert (common.protocol, common.epochs) == ("common", content["finetune"]["default"]["epochs"])


def test_a_recipe_merges_as_any_block_does(content: dict[str, Any]) -> None:
    grid = {"learning_rate": "grid", "search": {"values": [1e-3], "epochs": None, "extend": 0}}
    content["lac"]["default"] |= {"protocol": "published", **grid}
    put(
        content,
        "methods.lac.published.default.lac",
        {"head": {"dim": 64}, "strong": {"cutout": 0.25}, "freeze": ["conv1"]},
    )
    put(content, "methods.lac.published.digits.lac", {"search": {"epochs": 2}, "freeze": ["bn1"]})
    block, settings = content["lac"]["default"], parse_params(content).run("lac", "digits", "lac")[0]
    assert settings.head.model_dump() == block["head"] | {"dim": 64}
    assert settings.strong and settings.strong.model_dump() == block["strong"] | {"cutout": 0.25}
    assert settings.search and settings.search.model_dump() == block["search"] | {"epochs": 2}
    assert settings.freeze == ["bn1"]
    put(
        content, "methods.lac.published.default.lac.head", {"kind": "linear", "scale": "none"}
    )  # another kind replaces it whole
    assert parse_params(content).run("lac", "digits", "lac")[0].head.model_dump() == {"kind": "linear", "scale": "none"}


def test_a_recipe_says_how_pictures_are_augmented_and_a_variant_may_say_otherwise(content: dict[str, Any]) -> None:
    content["finetune"]["default"] |= {"protocol": "published", "flip": False, "crop": 1.0}
    put(content, "methods.em.published.default.finetune", {"flip": True, "crop": 0.5})
    kept = {"stage": {"flip": False}, "method": {}}
    put(content, "variants.finetune.digits-em-0-0-x", {**VARIANT, "method": "em", "set": kept})
    params = parse_params(content)
    found = [params.run("finetune", "digits", "em", what)[0] for what in (None, "digits-em-0-0-x")]
    assert [(each.flip, each.crop) for each in found] == [(True, 0.5), (False, 0.5)]


def test_a_variant_that_asks_for_a_recipe_that_is_missing_is_named(content: dict[str, Any]) -> None:
    put(content, "methods.an.published.voc.finetune", {"epochs": 3})  # of another dataset
    put(content, "methods.an.published.default.lac", {"epochs": 3})  # of another stage
    put(
        content,
        "variants.finetune.digits-an-0-0-x",
        {**VARIANT, "set": {"stage": {"protocol": "published"}, "method": {}}},
    )
    with pytest.raises(
        ConfigError, match=r"^params/methods/an\.yaml:published: has no recipe of finetune for digits, .*$"
    ):
        parse_params(content)


def test_a_recipe_may_wait_for_its_stage_to_have_a_block(content: dict[str, Any]) -> None:
    content["lac"] = {"digits": content["lac"]["default"]}
    put(content, "methods.an.published.default.lac", {"epochs": 3})
    put(content, "methods.an.published.voc.lac", {"epochs": 4})
    put(content, "methods.an.published.digits.lac", {"epochs": 5})
    params = parse_params(content)
    assert [params.published("an", name, "lac")["epochs"] for name in ("digits", "voc", "cub")] == [5, 4, 3]


def tree(*leaves: Any) -> dict[str, Any]:
    return {"a": leaves[0], "deep": {"b": leaves[1], "c": leaves[2]}}


def test_merge() -> None:
    base, change = tree(1, 2, [3]), {"deep": {"c": [4, 5]}, "new": {"d": None}}
    kept = copy.deepcopy(base), copy.deepcopy(change)
    assert merge(base, change) == {**tree(1, 2, [4, 5]), "new": {"d": None}}
    assert (base, change) == kept
    assert merge(base, {"deep": None}) == {"a": 1, "deep": None}
    assert merge(base, {"a": {"x": 1}})["a"] == {"x": 1}


@pytest.mark.parametrize("tag", ["kind", "source"])
def test_merge_replaces_a_block_of_another_kind_whole(tag: str) -> None:
    base = {"block": {tag: "old", "width": 1}}
    assert merge(base, {"block": {tag: "new", "depth": 2}}) == {"block": {tag: "new", "depth": 2}}
    assert merge(base, {"block": {tag: "old", "depth": 2}}) == {"block": {tag: "old", "width": 1, "depth": 2}}
    assert merge(base, {"block": {"depth": 2}}) == {"block": {tag: "old", "width": 1, "depth": 2}}


def test_parsing_alters_nothing(content: dict[str, Any]) -> None:
    put(content, "finetune.digits", {"epochs": 3})
    before = copy.deepcopy(content)
    read: Callable[[], Params] = lambda: parse_params(content)  # noqa: E731
    assert read().settings("finetune", "digits") == read().settings("finetune", "digits")
    assert content == before
