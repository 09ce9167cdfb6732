"""The strict schema of params.yaml and params/methods: read as DVC reads them, checked before anything is trained.

params.yaml is complete: no setting has a default in code, so that the file says what a run did. A stage section maps
``default`` to a full block and a dataset's name to what differs there; ``prepare`` and ``backbone`` hold one full
block a dataset. Each method has a file of its own, which its runs alone read.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidationError, model_validator

from pipeline.audits.settings import Audit, Landscape, Report
from pipeline.core.errors import ConfigError
from pipeline.core.strict import NAME, Positive, Strict, explain, given, merge, show_value
from pipeline.core.yaml import parse_yaml
from pipeline.labels.settings import Simulate
from pipeline.networks.settings import DigitsBackbone, TimmBackbone
from pipeline.training.settings import BeliefFits, Features, GivenBeliefs, SettingsSearch, Training

TRAINING_STAGES = ("linear_init", "finetune", "end_to_end", "lac")
BY_DATASET = ("prepare", "backbone")
"""Sections without ``default``: DVC tracks the dataset's block alone."""
BENCHMARKS = ("voc", "coco", "nus", "cub")
"""Datasets of the papers: a method may hold published settings for one that ``prepare`` does not hold yet."""
PUBLISHED = "published"
"""Key of a method's file that holds training recipes by dataset, not a block of its settings."""
PARAMS = "params.yaml"
METHODS = "params/methods"
"""Folder of the methods' files, one a method."""


# ---------------------------------------------------------------------------------------------- stage settings


class KnownDensity(Strict):
    """Labels per image, for methods that must know it."""

    value: Positive
    source: str
    """Where the number comes from, in words."""


class EstimatedDensity(Strict):
    """Labels per image as the stage beliefs estimates them, without truth."""

    value: Literal["estimated"]
    at_most: Positive | None
    """The most that it can be, where somebody knows; null: any."""

    def limit(self, estimate: float) -> float:
        """Return an estimate, at most what it can be."""
        return estimate if self.at_most is None else min(estimate, self.at_most)


ExpectedPositives = Annotated[
    Annotated[EstimatedDensity, Tag("[estimated]")] | Annotated[KnownDensity, Tag("[known]")],
    Discriminator(lambda block: "[estimated]" if _value(block) == "estimated" else "[known]"),
]


def _value(block: Any) -> Any:
    return block.get("value") if isinstance(block, dict) else getattr(block, "value", None)


# ---------------------------------------------------------------------------------------------- the whole file
class Grid(Strict):
    """The axes of the DVC matrix."""

    datasets: Annotated[list[str], Field(min_length=1)]
    draws: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    """Numbers of label draws; of ``protocol: seeded`` alone others than 0."""
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    """Training seeds."""
    linear_init: Annotated[list[str], Field(min_length=1)]
    finetune: list[str]
    end_to_end: list[str]
    lac: list[str]
    lac_start: str
    """Method of end_to_end whose network lac goes on from; no axis."""
    search: list[str]
    """Datasets whose settings are searched (stage search); no axis of runs."""
    landscape: list[str]
    landscape_stage: Literal["linear_init", "finetune", "end_to_end", "lac"]
    """Training stage whose networks landscapes are taken of; no axis."""

    @model_validator(mode="after")
    def _names_once(self) -> Self:
        for axis, value in self:
            names = [value] if isinstance(value, str) else value
            if len(set(names)) != len(names):
                raise ValueError(f"{axis}: names an entry twice {given(names)}")
            bad = [name for name in names if isinstance(name, str) and not NAME.fullmatch(name)]
            if bad:
                raise ValueError(f"{axis}: {show_value(bad)} are not names of [a-z0-9_]")
        return self


class Override(Strict):
    """What a variant changes: keys of the stage's block and of the method's block."""

    stage: dict[str, Any]
    method: dict[str, Any]


class Variant(Strict):
    """One run that differs from the grid's in a few values."""

    dataset: str
    method: str
    draw: Annotated[int, Field(ge=0)]
    seed: Annotated[int, Field(ge=0)]
    set: Override

    @property
    def prefix(self) -> str:
        """What its key starts with."""
        return run_key(self.dataset, self.method, self.draw, self.seed) + "-"

    def what(self, key: str) -> str:
        """Return the ``<what>`` of its key."""
        return key.removeprefix(self.prefix)


class FinetuneVariant(Variant):
    """A variant of finetune, which may start from another method's linear head."""

    start: str
    """Method of linear_init whose head it starts from: its own, or another's, as for a method that cannot run on cached
    features. What a method ``carries`` crosses from its own head only."""


class Variants(Strict):
    """Variants of each training stage, by run key ``<dataset>-<method>-<draw>-<seed>-<what>``."""

    linear_init: dict[str, Variant]
    finetune: dict[str, FinetuneVariant]
    end_to_end: dict[str, Variant]
    lac: dict[str, Variant]


_SECTIONS: dict[str, TypeAdapter] = {
    "prepare": TypeAdapter(dict[str, Any]),
    "simulate": TypeAdapter(Simulate),
    "backbone": TypeAdapter(Annotated[DigitsBackbone | TimmBackbone, Field(discriminator="source")]),
    "features": TypeAdapter(Features),
    "beliefs": TypeAdapter(Annotated[BeliefFits | GivenBeliefs, Field(discriminator="kind")]),
    **{stage: TypeAdapter(Training) for stage in TRAINING_STAGES},
    "search": TypeAdapter(SettingsSearch),
    "audit": TypeAdapter(Audit),
    "landscape": TypeAdapter(Landscape),
    "report": TypeAdapter(Report),
}

Section = dict[str, dict[str, Any]]
_METHOD = TypeAdapter(Section)
_RECIPES = TypeAdapter(dict[str, dict[Literal["linear_init", "finetune", "end_to_end", "lac"], dict[str, Any]]])
"""What a method holds under PUBLISHED: by dataset and training stage, keys of the stage's block."""


def run_key(dataset: str, method: str, draw: int, seed: int) -> str:
    """Return the key of a run of the grid, which is that of DVC's matrix."""
    return f"{dataset}-{method}-{draw}-{seed}"


def method_file(name: str) -> str:
    """Return the path of a method's file below the project root."""
    return f"{METHODS}/{name}.yaml"


def method_key(name: str, *keys: str) -> str:
    """Return how messages name a key of a method's file, which is how ``dvc exp run -S`` takes it."""
    return f"{method_file(name)}:{'.'.join(keys)}"


class Params(Strict):
    """params.yaml, with the files of the methods that were read."""

    profile: str
    """The profile that params.yaml was written from; ``default``: it is the file that profiles are laid over."""
    grid: Grid
    prepare: Section
    simulate: Section
    backbone: Section
    features: Section
    beliefs: Section
    expected_positives: dict[str, ExpectedPositives]
    linear_init: Section
    finetune: Section
    end_to_end: Section
    lac: Section
    search: Section
    audit: Section
    landscape: Section
    report: Section
    variants: Variants
    methods: dict[str, Section]
    """Content of the methods' files, of those that were read."""

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

    def density(self, dataset: str) -> KnownDensity | EstimatedDensity | None:
        """Return what is said of a dataset's labels per image, None where ``expected_positives`` does not name it."""
        return self.expected_positives.get(dataset)

    def method(self, name: str, dataset: str) -> dict[str, Any]:
        """Return a method's settings for a dataset, to be checked by the method's own schema.

        Args:
            name: Name of the method.
            dataset: Name of a dataset.

        Returns:
            ``default`` of the method's file overlaid with the dataset's block.

        Raises:
            ConfigError: The method has no file, or no block that serves the dataset.
        """
        return _block(self._method(name), dataset, method_file(name))

    def published(self, name: str, dataset: str, stage: str) -> dict[str, Any]:
        """Return what a method's source changes in a training stage.

        Args:
            name: Name of the method.
            dataset: Name of a dataset.
            stage: A training stage.

        Returns:
            Keys of the stage's block: ``published.default.<stage>`` of the method's file overlaid with the dataset's.

        Raises:
            ConfigError: The method has no file, or its source has no recipe for that stage and dataset.
        """
        recipes = self._method(name).get(PUBLISHED, {})
        found = [recipes[key][stage] for key in ("default", dataset) if stage in recipes.get(key, {})]
        if not found:
            raise ConfigError(
                f"{method_key(name, PUBLISHED)}: has no recipe of {stage} for {dataset}, which `protocol: published` "
                f"of {stage} asks for"
            )
        return merge(found[0], found[-1])

    def _method(self, name: str) -> Section:
        if name not in self.methods:
            raise ConfigError(
                f"{method_file(name)}: no such file; there are {', '.join(sorted(self.methods)) or 'none'}"
            )
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
        change = Override(stage={}, method={}) if what is None else self._variant(stage, dataset, method, what).set
        own = merge(self.method(method, dataset), change.method)
        return self._training(stage, dataset, method, what, change.stage), own

    def _variant(self, stage: str, dataset: str, method: str, what: str) -> Variant:
        variants = getattr(self.variants, stage)
        if what not in variants:
            raise ConfigError(f"variants.{stage}.{what}: no such variant")
        if (found := (variants[what].dataset, variants[what].method)) != (dataset, method):
            raise ConfigError(f"variants.{stage}.{what}: is a variant of {found}, not of {(dataset, method)}")
        return variants[what]

    def _training(
        self, stage: str, dataset: str, method: str, what: str | None, change: dict[str, Any], *, recipe: bool = True
    ) -> Training:
        """Return a stage's settings with a variant's change; ``recipe``: with the published one, where it is asked."""
        block = _block(getattr(self, stage), dataset, stage)
        if recipe and merge(block, change).get("protocol") == "published":
            block = merge(block, self.published(method, dataset, stage))
        key = f"{stage}.{dataset}" if what is None else f"variants.{stage}.{what}.set.stage"
        return _validated(_SECTIONS[stage], merge(block, change), key)

    def origin(self, stage: str, dataset: str, method: str, what: str | None, key: str) -> str:
        """Tell where a setting of a training run comes from, for messages.

        Args:
            stage: A training stage.
            dataset: Name of a dataset.
            method: Name of a method.
            what: Key of a variant of that stage, or None for a run of the grid.
            key: Key of the stage's block.

        Returns:
            The setting's key in params.yaml or in the method's file: in the last of the blocks that `run` overlays to
            hold it.
        """
        section, recipes = getattr(self, stage), self._method(method).get(PUBLISHED, {})
        blocks = {f"{stage}.{name}": section[name] for name in ("default", dataset) if name in section}
        if self.run(stage, dataset, method, what)[0].protocol == "published":
            names = [name for name in ("default", dataset) if stage in recipes.get(name, {})]
            blocks |= {method_key(method, PUBLISHED, name, stage): recipes[name][stage] for name in names}
        if what is not None:
            blocks[f"variants.{stage}.{what}.set.stage"] = getattr(self.variants, stage)[what].set.stage
        return [f"{name}.{key}" for name, block in blocks.items() if key in block][-1]

    def keys(self, stage: str, dataset: str, draw: int, seed: int) -> list[tuple[str, str, str | None]]:
        """List the runs of a training stage at one label draw and seed: the grid's first, then variants.

        Args:
            stage: A training stage.
            dataset: Name of a dataset.
            draw: Number of the label draw.
            seed: Training seed.

        Returns:
            (run key, method, variant key or None) for each run.
        """
        runs: list[tuple[str, str, str | None]] = [
            (run_key(dataset, method, draw, seed), method, None) for method in getattr(self.grid, stage)
        ]
        for key, variant in getattr(self.variants, stage).items():
            if (variant.dataset, variant.draw, variant.seed) == (dataset, draw, seed):
                runs.append((key, variant.method, key))
        return runs


def _block(section: Section, dataset: str, name: str) -> dict[str, Any]:
    if "default" not in section and dataset not in section:
        raise ConfigError(f"{name}: neither `default` nor `{dataset}`; it holds {', '.join(section) or 'nothing'}")
    return merge(section.get("default", {}), section.get(dataset, {}))


def _validated(adapter: TypeAdapter, block: dict[str, Any], prefix: str) -> Any:
    try:
        return adapter.validate_python(block)
    except ValidationError as error:
        raise ConfigError(explain(error, prefix)) from error


def _misplaced(params: Params) -> list[str]:
    """Return one line for each key of a block that is no dataset's, and for each ``default`` that has no effect."""
    faults = [
        f"{stage}.default: DVC would not notice its edits; give each dataset its full block {stage}.<dataset>"
        for stage in BY_DATASET
        if "default" in getattr(params, stage)
    ]
    faults += [f"prepare.{name}: no dataset may be called so" for name in params.prepare if name == PUBLISHED]
    datasets = [name for name in params.prepare if name != "default"]
    sections: dict[str, Iterable[str]] = {stage: getattr(params, stage) for stage in _SECTIONS if stage != "prepare"}
    sections["expected_positives"] = params.expected_positives
    strangers = [
        f"{section}.{key}"
        for section, keys in sections.items()
        for key in keys
        if key not in datasets and (key != "default" or section == "expected_positives")
    ]
    known = {*datasets, *BENCHMARKS, PUBLISHED, "default"}
    strangers += [method_key(name, key) for name, own in params.methods.items() for key in own if key not in known]
    there = ", ".join(datasets) or "none"
    return [*faults, *(f"{key}: no dataset of that name; `prepare` holds {there}" for key in strangers)]


def _recipe_faults(params: Params) -> list[str]:
    """Return one line for each fault of the published recipes, laid over the stage's block for the dataset."""
    faults = []
    known = list(dict.fromkeys(("default", *params.prepare, *BENCHMARKS)))
    for name, settings in params.methods.items():
        recipes = settings.get(PUBLISHED, {})
        for dataset in (key for key in recipes if key not in known):
            faults.append(
                f"{method_key(name, PUBLISHED, dataset)}: no dataset of that name; there are {', '.join(known)}"
            )
        faulty: set[str] = set()  # stages whose default recipe is: each dataset's would repeat its faults
        for dataset in (key for key in known if key in recipes):
            for stage, recipe in recipes[dataset].items():
                key, section = method_key(name, PUBLISHED, dataset, stage), getattr(params, stage)
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
    """Return one line for each variant that changes other values than its namesake at another draw or seed."""
    first: dict[tuple[str, str, str], tuple[str, Variant]] = {}
    faults = []
    for key, variant in getattr(params.variants, stage).items():
        what = variant.what(key)
        other, found = first.setdefault((variant.dataset, variant.method, what), (key, variant))
        if (variant.set, getattr(variant, "start", None)) != (found.set, getattr(found, "start", None)):
            faults.append(
                f"variants.{stage}.{key}: differs from {other}, with which it is pooled as another draw or seed"
            )
    return faults


def _variant_faults(params: Params, stage: str) -> list[str]:
    """Return one line for each fault of a stage's variants; of those whose method was not read, without its part."""
    faults = []
    for key, variant in getattr(params.variants, stage).items():
        try:
            if variant.method in params.methods:
                params.run(stage, variant.dataset, variant.method, key)
            elif not _is_published(params, stage, variant):  # which may change what only a recipe holds
                params._training(stage, variant.dataset, variant.method, key, variant.set.stage, recipe=False)
        except ConfigError as error:
            faults.append(str(error))
        if not re.fullmatch(rf"{variant.prefix}[a-z0-9_]+", key):
            faults.append(f"variants.{stage}.{key}: the key must be <dataset>-<method>-<draw>-<seed>-<what>")
    return faults + _unequal_seeds(params, stage)


def _is_published(params: Params, stage: str, variant: Variant) -> bool:
    """Return whether a method's own recipe lies below a variant."""
    block = _block(getattr(params, stage), variant.dataset, stage) | variant.set.stage
    return block.get("protocol") == PUBLISHED


def _unknown_methods(params: Params) -> list[str]:
    """Return one line for each variant that names a method without a file."""
    faults = []
    for stage in TRAINING_STAGES:
        for key, variant in getattr(params.variants, stage).items():
            names = {"method": variant.method}
            if isinstance(variant, FinetuneVariant):
                names["start"] = variant.start
            faults += [
                f"variants.{stage}.{key}.{field}: `{name}` has no file {method_file(name)}"
                for field, name in names.items()
                if name not in params.methods
            ]
    return faults


def _setting_faults(params: Params) -> list[str]:
    """Return one line for each fault of a stage's blocks, and for each dataset of the grid that has none."""
    faults = []
    for stage in _SECTIONS:
        section = getattr(params, stage)
        blocks = [key for key in section if key != "default" or stage not in BY_DATASET]
        absent = [] if "default" in blocks else [name for name in params.grid.datasets if name not in section]
        for dataset in [*blocks, *absent]:
            try:
                params.settings(stage, dataset)
            except ConfigError as error:
                faults.append(str(error))
    return faults


def _parse_method(name: str, content: Any) -> Section:
    """Return a method's file once its form is checked; of the settings the method's own schema is.

    Raises:
        ConfigError: One line for each fault found.
    """
    recipes = content.get(PUBLISHED, {}) if isinstance(content, dict) else {}
    for adapter, part, key in ((_METHOD, content, ""), (_RECIPES, recipes, PUBLISHED)):
        try:
            adapter.validate_python(part)
        except ValidationError as error:
            lines = explain(error, key).splitlines()
            raise ConfigError("\n".join(f"{method_file(name)}:{line.removeprefix(':')}" for line in lines)) from error
    return content


def parse_params(content: Any, methods: Mapping[str, Any], name: str = PARAMS, *, whole: bool = False) -> Params:
    """Check the content of params.yaml and of methods' files.

    Args:
        content: What the YAML reader returned of params.yaml.
        methods: The same of the methods' files, by method.
        name: The name of params.yaml, for messages.
        whole: Whether ``methods`` are all there are, so that naming another one is a fault.

    Returns:
        The checked parameters.

    Raises:
        ConfigError: One line for each fault found.
    """
    if isinstance(content, dict):
        if "methods" in content:
            raise ConfigError(f"{name}.methods: each method has a file of its own, {method_file('<name>')}")
        content = content | {"methods": {key: _parse_method(key, section) for key, section in methods.items()}}
    try:
        params = Params.model_validate(content)
    except ValidationError as error:
        raise ConfigError(explain(error, name)) from error
    faults = [*_misplaced(params), *_setting_faults(params)]
    for stage in TRAINING_STAGES:
        faults += _variant_faults(params, stage)
    faults += [*(_unknown_methods(params) if whole else ()), *_recipe_faults(params)]
    if faults:
        raise ConfigError("\n".join(dict.fromkeys(faults)))
    return params


def _load(path: Path, name: str) -> Any:
    """Return the content of a YAML file.

    Raises:
        ConfigError: It is absent or not YAML 1.2.
    """
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), name)
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not YAML 1.2: {error}") from error


def read_params(path: str | Path = PARAMS, *methods: str) -> Params:
    """Read and check params.yaml and the files of some methods: what a stage does, which reads no other method's.

    Args:
        path: params.yaml, beside which the folder of methods lies.
        methods: Names of methods.

    Returns:
        The checked parameters.

    Raises:
        ConfigError: A file is absent, not YAML 1.2, or does not meet the schema.
    """
    own = {name: _load(Path(path).parent / method_file(name), method_file(name)) for name in methods}
    return parse_params(_load(Path(path), str(path)), own, str(path))


def read_project(root: Path) -> Params:
    """Read and check params.yaml and the files of all methods.

    Args:
        root: Project root.

    Returns:
        The checked parameters.

    Raises:
        ConfigError: As `read_params`; also where a variant names a method without a file.
    """
    own = {path.stem: _load(path, method_file(path.stem)) for path in sorted((root / METHODS).glob("*.yaml"))}
    return parse_params(_load(root / PARAMS, PARAMS), own, whole=True)
