"""The rules that settings and data must meet, each stated once: the preflight and the stages call the same functions.

Each rule returns one line for each problem, which names the key of params.yaml or of a method's file; none where all
is well.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config.params import Params
from pipeline.core.errors import ConfigError
from pipeline.core.faults import SHOWN, pluralize
from pipeline.labels.settings import Simulate
from pipeline.labels.table import SPLITS, Table
from pipeline.networks.settings import HEAD_GIVES, SAME_WEIGHTS, DigitsBackbone, Head, LinearHead, list_scales
from pipeline.training.settings import SMALLER_PLACES, BeliefFits, Features, GivenBeliefs, Training

CONTINUES_CACHE = ("linear_init", "finetune")
"""Training stages whose head reads pools of the feature cache."""
CONTINUES = {"finetune": "linear_init", "lac": "end_to_end"}
"""Training stages that start from another stage's network."""
OF_PICTURES = frozenset({"maps", "geometry"})
"""Needs that cached features cannot meet, whatever the head."""
BUDGET = 1 << 28
"""Values of epoch logits that a run may keep; a gigabyte of float32."""


def raise_if_any(problems: Iterable[str]) -> None:
    """Go on only without problems.

    Args:
        problems: Lines of the rules.

    Raises:
        ConfigError: There is at least one line; the message holds them all.
    """
    if lines := list(dict.fromkeys(problems)):
        raise ConfigError("\n".join(lines))


# ---------------------------------------------------------------------------------------------- data and labels
def empty_splits(dataset: str, table: Table) -> list[str]:
    """Return a problem where a split has no image."""
    counts = {split: len(table.rows(split)) for split in SPLITS}
    if not (empty := [split for split, count in counts.items() if not count]):
        return []
    found = ", ".join(f"{count} {split}" for split, count in counts.items())
    return [f"prepare.{dataset}: no image in {' and '.join(empty)} ({found})"]


def validation_without_positives(dataset: str, table: Table) -> list[str]:
    """Return a problem where no epoch can be chosen by the validation split."""
    if table.truth[table.rows("val")].any():
        return []
    return [f"prepare.{dataset}: no val image has a positive label, so no epoch can be chosen by it"]


def raw_folder(dataset: str, block: dict[str, Any], root: Path) -> list[str]:
    """Return a problem where the folder of the raw data is absent."""
    raw = block.get("root")
    if not isinstance(raw, str) or (root / Path(raw).expanduser()).is_dir():
        return []
    return [f"prepare.{dataset}.root: no folder {raw}; name it with `make repro PROFILE=... ROOT=folder`"]


def label_protocol(dataset: str, settings: Simulate, table: Table) -> list[str]:
    """Return a problem where the protocol does not suit labels that are, or are not, exhaustive."""
    if (settings.protocol == "given") != table.exhaustive:
        return []
    are, use = ("", "literature or seeded") if table.exhaustive else (" not", "given")
    return [f"simulate.protocol: {settings.protocol}, but the labels of {dataset} are{are} exhaustive; set it to {use}"]


def label_draws(dataset: str, settings: Simulate, draws: Iterable[int], key: str = "grid.draws") -> list[str]:
    """Return a problem where labels that cannot be drawn again are asked for, by a key, under a number of their own."""
    if settings.protocol == "seeded" or list(draws) == [0]:
        return []
    why = {
        "literature": "the published recipe has one draw; set it to [0], or simulate.protocol to seeded",
        "given": "nothing is drawn where labels are given; set it to [0]",
    }[settings.protocol]
    return [f"{key}: {list(draws)}, but simulate.protocol of {dataset} is {settings.protocol}: {why}"]


def empty_rows(dataset: str, settings: Simulate, table: Table) -> list[str]:
    """Return a problem where training or validation images have no positive and the settings refuse that."""
    rows = np.flatnonzero((table.official == 0) & ~table.truth.any(axis=1))
    if not len(rows) or settings.empty_rows != "error":
        return []
    names = ", ".join(table.paths[row] for row in rows[:SHOWN])
    have = "has" if len(rows) == 1 else "have"
    images = pluralize(len(rows), "training or val image")
    return [f"simulate.empty_rows: error, and {images} of {dataset} {have} no positive label: {names}"]


def bias_file(settings: Simulate, root: Path) -> list[str]:
    """Return a problem where the table of weights is absent."""
    bias = settings.bias
    if bias.kind != "table" or bias.path(root).is_file():
        return []
    return [f"simulate.bias.file: no file {bias.file}"]


def beliefs_file(dataset: str, settings: BeliefFits | GivenBeliefs, root: Path) -> list[str]:
    """Return a problem where the table of somebody's beliefs is absent."""
    if isinstance(settings, BeliefFits) or settings.path(root).is_file():
        return []
    return [f"beliefs.{dataset}.file: no file {settings.file}"]


def backbone(params: Params, dataset: str, root: Path) -> list[str]:
    """Return a problem where the weights' file is absent, or pictures are not of the size that the backbone learns."""
    key, settings = f"backbone.{dataset}", params.settings("backbone", dataset)
    if isinstance(settings, DigitsBackbone):
        size = params.settings("prepare", dataset).get("size")
        return [f"{key}.size: {settings.size} is not prepare.{dataset}.size, {size}"] if settings.size != size else []
    if settings.file is not None and not (root / settings.file).is_file():
        return [f"{key}.file: no file {settings.file}"]
    return []


def changed(what: str, stage: str, recorded: str | None, now: str | None) -> list[str]:
    """Return a problem where an input that DVC does not track is no longer what a stage read.

    Args:
        what: Key and name of the input.
        stage: Name of the DVC stage, as in ``prepare@digits``.
        recorded: Hash that the stage's report holds; None without a report.
        now: Hash of the input at hand; it may be None where the report is.
    """
    if recorded in (None, now):
        return []
    return [f"{what} changed since {stage.partition('@')[0]} ran: dvc repro -f {stage}"]


def raw_data_changed(dataset: str, recorded: str | None, now: str | None) -> list[str]:
    """Return a problem where the raw data of a dataset are no longer what `prepare` read; hashes as in `changed`."""
    return changed(f"prepare.{dataset}: raw data of {dataset}", f"prepare@{dataset}", recorded, now)


# ---------------------------------------------------------------------------------------------- training runs
def key_of(stage: str, variant: str | None) -> str:
    """Return the key of params.yaml that asks for a run of a stage."""
    return f"variants.{stage}.{variant}" if variant else f"grid.{stage}"


@dataclass(frozen=True)
class PlannedRun:
    """A training run as params.yaml asks for it, and what its method declares."""

    params: Params
    stage: str
    dataset: str
    method: str
    variant: str | None
    settings: Training
    views: tuple[str, ...]
    """Augmented views of an image that the method compares."""
    needs: AbstractSet[str]
    """What the method reads beside logits."""
    labels: str
    """Label set that the method is given, of `LABEL_SETS`."""
    closed_form: bool = False
    """Whether the method's head on cached features is fitted in closed form."""

    @property
    def where(self) -> str:
        """Key of params.yaml that asks for the run."""
        return key_of(self.stage, self.variant)

    @property
    def start(self) -> str:
        """Method of the run whose network a stage of `CONTINUES` starts from."""
        if self.stage == "finetune" and self.variant:
            return self.params.variants.finetune[self.variant].start
        return self.params.grid.lac_start if self.stage == "lac" else self.method

    def origin(self, key: str) -> str:
        """Return the dotted path of one of its settings in params.yaml, or in the method's file."""
        return self.params.origin(self.stage, self.dataset, self.method, self.variant, key)


def training_run(run: PlannedRun) -> list[str]:
    """Return what keeps a run from starting, whatever the data."""
    cached = run.stage == "linear_init"
    problems = cached_features(run) if cached else strong_view(run)
    problems += [*boosted_pools(run), *([] if cached else mixed_heads(run))]
    return [*problems, *unmet_needs(run), *searched_scale(run), *label_density(run), *choice_without_truth(run)]


def training_data(run: PlannedRun, table: Table) -> list[str]:
    """Return what keeps a run from learning from the data of its dataset."""
    problems = [*selection(run, table), *validation_without_positives(run.dataset, table), *epoch_logits(run, table)]
    return [*problems, *oracle(run.where, run, run.dataset, table), *group_consistency(run, table)]


def cached_features(run: PlannedRun) -> list[str]:
    """Return what a run on cached features asks for that only images give."""
    settings, problems = run.settings, []
    if len(run.views) > 1:
        problems.append(
            f"{run.where}: `{run.method}` compares {len(run.views)} views of an image; cached features hold no views"
        )
    cache = run.params.settings("features", run.dataset)
    if settings.head.kind not in ("linear", "places"):
        problems.append(f"{run.origin('head')}: `{settings.head.kind}` reads maps; cached features hold none")
    if settings.head.kind == "places" and not cache.places:
        needs = f"needs features of places in the cache (features.{run.dataset}.places)"
        problems.append(f"{run.origin('head')}: `places` {needs}")
    void = {
        "crop": settings.crop < 1,
        "strong": settings.strong is not None,
        "freeze": settings.freeze,
        "batch_norm": settings.batch_norm == "frozen",
    }
    for key in (key for key, asked in void.items() if asked):
        problems.append(f"{run.origin(key)}: concerns images or backbone; cached features have neither ({run.where})")
    if settings.flip and not cache.mirrored:
        needs = f"needs the mirrored view in the feature cache (features.{run.dataset}.mirrored)"
        problems.append(f"{run.origin('flip')}: {needs}")
    if run.closed_form and list_scales(settings.head) == ["unit"]:
        problems.append(
            f"{run.origin('head')}.scale: unit, but `{run.method}` ({run.where}) is fitted to features as they are; "
            "set it to none, or to [none, unit] beside methods that search it"
        )
    problems += [*head_of_beliefs(run), *readout_of_cache(run)]
    if pictures := sorted(run.needs & OF_PICTURES):
        problems.append(
            f"{run.where}: `{run.method}` needs {' and '.join(pictures)} of pictures; cached features hold none"
        )
    return problems


def head_of_beliefs(run: PlannedRun) -> list[str]:
    """Return what keeps a run from taking the linear head of the beliefs."""
    mixes = run.settings.readout is not None and run.labels == "single"
    if not (mixes or (run.closed_form and "beliefs" in run.needs)):
        return []
    beliefs, taken = run.params.settings("beliefs", run.dataset), f"`{run.method}` takes the linear head of beliefs"
    if beliefs.kind == "file":
        return [f"{run.where}: {taken}.{run.dataset}, and a file gives none; set its kind to fits"]
    if scores_alike(run.settings.head, beliefs.sharpness):
        return []
    kind = "linear" if beliefs.sharpness is None else f"places, sharpness: {beliefs.sharpness}"
    return [
        f"{run.origin('head')}: {taken}.{run.dataset}, whose kind is `{kind}`; set one like the other ({run.where})"
    ]


def readout_of_cache(run: PlannedRun) -> list[str]:
    """Return what keeps a head that was trained on cached features from being mixed with the closed form on them."""
    if run.settings.readout is None or run.settings.readout.share < 1:
        return mixed_heads(run)
    alone = "1 makes of every method the closed form, which `ridge` is"
    return [f"{run.origin('readout')}.share: {alone}; name a share below 1 ({run.where})"]


def mixed_heads(run: PlannedRun) -> list[str]:
    """Return what keeps a trained head and a closed form from being one head."""
    readout, head, origin = run.settings.readout, run.settings.head, run.origin("readout")
    if readout is None or readout.share == 1:
        return []
    instead = "set readout to null" if run.stage == "linear_init" else "set share to 1"
    if head.kind not in ("linear", "places") or (head.kind == "linear" and list_scales(head) != ["none"]):
        kinds = "a head on features as they are: linear, scale none, or places"
        return [f"{origin}.share: below 1 mixes the closed form with {kinds} ({run.where}); {instead}"]
    problems = []
    if not scores_alike(head, readout.sharpness):
        both = f"of the closed form, and of {run.origin('head')}, which it is mixed with (share below 1)"
        problems.append(f"{origin}.sharpness: is to be one, {both}")
    trained = run.params.settings("features", run.dataset).pools if run.stage in CONTINUES_CACHE else ["mean"]
    if readout.pools != trained:
        problems.append(f"{origin}.pools: differ from {trained}, of which the head is; name these, or {instead}")
    return problems


def scores_alike(head: Head, sharpness: float | None) -> bool:
    """Return whether a head on cached features scores images as beliefs of some sharpness do."""
    return sharpness == (head.sharpness if head.kind == "places" else None)


def beliefs_by_places(dataset: str, beliefs: BeliefFits | GivenBeliefs, cache: Features) -> list[str]:
    """Return a problem where beliefs score images by places that are not cached."""
    if beliefs.kind == "file" or beliefs.sharpness is None or cache.places:
        return []
    return [f"beliefs.{dataset}.sharpness: needs features of places in the cache (features.{dataset}.places)"]


def room_for_places(dataset: str, need: int, free: int) -> list[str]:
    """Return a problem where a disk has less room than features of places take, in data/ and in DVC's cache.

    Args:
        dataset: Name of a dataset.
        need: Bytes that they take.
        free: Bytes that are free.
    """
    if need <= free:
        return []
    takes = f"takes {need / 1e9:.3g} GB, half of them in DVC's cache, and {free / 1e9:.3g} GB are free"
    return [f"features.{dataset}.places: {takes}; {SMALLER_PLACES}"]


def strong_view(run: PlannedRun) -> list[str]:
    """Return a problem where a method compares a strong view and the settings give none."""
    if "strong" not in run.views or run.settings.strong is not None:
        return []
    return [f"{run.origin('strong')}: is null, and `{run.method}` ({run.where}) asks for a strong view"]


def unused_strong_views(runs: list[PlannedRun]) -> list[str]:
    """Return a problem for each strong view that no run compares.

    For the preflight: a stage's block serves all methods of its grid, of which one that compares views is enough; a
    recipe or a variant serves the runs that read it.

    Args:
        runs: All runs of params.yaml; those on cached features have a rule of their own.
    """
    comparing = {(run.stage, run.dataset) for run in runs if "strong" in run.views}
    unused: dict[str, set[str]] = {}
    for run in runs:
        if run.stage == "linear_init" or run.settings.strong is None or "strong" in run.views:
            continue
        key = run.origin("strong")
        if not key.startswith(f"{run.stage}.") or (run.stage, run.dataset) not in comparing:
            unused.setdefault(key, set()).add(run.method)
    return [
        f"{key}: is set, and compared by none of {', '.join(sorted(names))}; set it to null"
        for key, names in unused.items()
    ]


def available(stage: str, head: Head) -> frozenset[str]:
    """Return the needs of methods that a training stage can meet with a head.

    Args:
        stage: A training stage.
        head: Settings of the head.

    Returns:
        Words of pipeline.methods.shared.base.NEEDS.
    """
    words = HEAD_GIVES[head.kind] | {"epoch_logits", "expected_positives", "beliefs", "parameters", "disk"}
    return words - {"maps"} if stage == "linear_init" else words | {"geometry"}


def unmet_needs(run: PlannedRun) -> list[str]:
    """Return a problem where the head does not give what a method reads."""
    head = run.settings.head
    unmet = run.needs - available(run.stage, head) - (OF_PICTURES if run.stage == "linear_init" else set())
    if not unmet:
        return []
    needs = f"`{run.method}` needs {', '.join(sorted(unmet))}"
    return [f"{run.where}: {needs}, which {run.origin('head')} `{head.kind}` does not give"]


def searched_scale(run: PlannedRun) -> list[str]:
    """Return a problem where scales of features are to be searched and no rate is; what goes on from a head has its."""
    settings = run.settings
    if len(list_scales(settings.head)) == 1 or settings.learning_rate == "grid" or run.stage in CONTINUES:
        return []
    tried = "a list is tried with the rates of `learning_rate: grid`; name one"
    return [f"{run.origin('head')}.scale: {tried} ({run.where})"]


def label_density(run: PlannedRun) -> list[str]:
    """Return a problem where a method must know the labels per image and params.yaml does not say."""
    if "expected_positives" not in run.needs or run.params.density(run.dataset) is not None:
        return []
    return [
        f"expected_positives.{run.dataset}: is missing, and `{run.method}` ({run.where}) needs it: the labels that an "
        "image has on average, known and unknown. Write in params.yaml, with a number of yours:\n"
        f'  expected_positives:\n    {run.dataset}: {{value: 2.0, source: "counted on 100 images"}}\n'
        f"or have it estimated: {run.dataset}: {{value: estimated, at_most: null}}"
    ]


def choice_without_truth(run: PlannedRun) -> list[str]:
    """Return what keeps shown labels from choosing rate and epoch: settings of the run, recipe included."""
    settings = run.settings
    if settings.select != "auto":
        return []
    lines = {
        "early_stop": (
            settings.early_stop.rule != "none",
            "stops by a score, and {auto} compares all epochs; set its rule to none",
        ),
        "search": (
            settings.search is not None and settings.search.epochs is not None,
            "`epochs` cuts trials short, and {auto} compares whole runs; set them to null",
        ),
        "learning_rate": (
            settings.learning_rate == "grid" and run.stage != "linear_init",
            "grid, but {auto} tells rates apart on cached features only; name a number, and set search to null",
        ),
    }
    auto = "`select: auto`"
    return [
        f"{run.origin(key)}: {line.format(auto=auto)} ({run.where})" for key, (broken, line) in lines.items() if broken
    ]


def boosted_pools(run: PlannedRun) -> list[str]:
    """Return a problem where a head boosts places whose mean is not what the head before it was trained on."""
    if run.stage != "finetune" or run.settings.head.kind != "boosted":
        return []
    if "top4" not in run.params.settings("features", run.dataset).pools:
        return []
    means = f"`boosted` takes the mean over places, which top4 of features.{run.dataset}.pools is not; name others"
    return [f"{run.origin('head')}: {means} ({run.where})"]


def landscape(run: PlannedRun) -> list[str]:
    """Return a problem where a landscape is to be taken of a network that was not trained."""
    if run.settings.readout is None:
        return []
    fitted = f"fits the head of {run.where} anew, and grid.landscape wants the network that `{run.method}` trained"
    return [f"{run.origin('readout')}: {fitted}; set it to null, or take `{run.method}` from grid.landscape"]


def start_weights(run: PlannedRun) -> list[str]:
    """Return a problem where a run starts from the network of an earlier stage whose head has other weights.

    For the preflight: a stage compares the stored network itself, and reads no other run's settings.
    """
    if run.stage not in CONTINUES:
        return []
    before, start = CONTINUES[run.stage], run.start
    try:
        head = run.params.run(before, run.dataset, start)[0].head
    except ConfigError:  # that run is named itself
        return []
    if before != "linear_init" and run.params.run(before, run.dataset, start)[0].readout is not None:
        origin = run.params.origin(before, run.dataset, start, None, "readout")
        return [f"{origin}: takes the trained head from the network that {run.where} starts from; set it to null"]
    if may_start(run.stage, run.settings.head.model_dump(), head.model_dump()):
        return []
    kinds = f"`{run.settings.head.kind}` from `{head.kind}`, {run.where}"
    origin = run.params.origin(before, run.dataset, start, None, "head")
    return [f"{run.origin('head')}: differs from {origin}, whose weights it starts from ({kinds})"]


def may_start(stage: str, head: dict[str, Any], before: dict[str, Any]) -> bool:
    """Return whether a stage can start a head from another's weights: lac goes on with the very network.

    Args:
        stage: A training stage.
        head: Settings of its head.
        before: Settings of the head that was trained before.
    """
    same = {head["kind"], before["kind"]} in SAME_WEIGHTS and head.get("scale", "none") == before.get("scale", "none")
    return head == before or (stage == "finetune" and same)


def selection(run: PlannedRun, table: Table) -> list[str]:
    """Return a problem where the labels of a split cannot choose as they are asked to."""
    if run.settings.select == "auto" and run.stage == "linear_init" and (lacks := _lacks_parts(run.dataset, table)):
        return [f"{run.origin('select')}: auto {lacks}; set it to last"]
    if run.settings.select != "clean" or table.measurable("val"):
        return []
    but = f"the labels of {run.dataset} are not exhaustive; set it to auto or last"
    return [f"{run.origin('select')}: clean, but {but}"]


def _lacks_parts(dataset: str, table: Table) -> str:
    """Return what keeps training images from being cut in parts, no group in two of them; empty where nothing does."""
    groups = table.group_numbers("train")
    n = len(table.rows("train")) if groups is None else len(np.unique(groups))
    has = f"{n}" if groups is None else "one group of them"
    return "" if n > 1 else f"trains heads without a part of the training images, and {dataset} has {has}"


def oracle(key: str, asked: "PlannedRun | Searched", dataset: str, table: Table) -> list[str]:
    """Return a problem where a method is to be given labels that nobody knows.

    Args:
        key: Key of params.yaml that asks for the method.
        asked: The method, with the label set that it is given.
        dataset: Name of a dataset.
        table: Its table.
    """
    rows = table.rows("train")
    unknown = np.count_nonzero(~table.scored[rows])
    if asked.labels == "single" or table.exhaustive or not unknown:
        return []
    given = {"all": "every label", "negatives": "every absence"}[asked.labels]
    return [
        f"{key}: `{asked.method}` is an oracle, which is given {given}, and nobody knows {unknown:,} of the "
        f"{table.scored[rows].size:,} training labels of {dataset}, which are not exhaustive; take it out, or label "
        "them in full"
    ]


def group_consistency(run: PlannedRun, table: Table) -> list[str]:
    """Return a problem where consistency within groups is asked for and no two training images are of one group."""
    groups = table.group_numbers("train")
    if run.settings.group_consistency is None or (groups is not None and len(np.unique(groups)) < len(groups)):
        return []
    why = f"{run.dataset} names no groups (group_column of csv, group_key of json)"
    if groups is not None:
        why = f"no two training images of {run.dataset} are of one group"
    return [f"{run.origin('group_consistency')}: is set, and {why}; set it to null"]


def epoch_logits(run: PlannedRun, table: Table) -> list[str]:
    """Return a problem where the logits of all epochs, which are kept of val and may be of train, are too large."""
    epochs, classes, keeps = run.settings.epochs, len(table.classes), run.settings.keep_epoch_logits
    val, train = len(table.rows("val")), len(table.rows("train")) * keeps
    if run.settings.select == "auto" and run.stage == "linear_init":
        val, train = len(table.rows("val")) + len(table.rows("train")), 0  # of heads that did not see them
    if epochs * (val + train) * classes <= BUDGET:
        return []
    size = (
        f"{epochs} epochs of {val + train} x {classes} logits are {epochs * (val + train) * classes * 4 / 1e9:.1f} GB"
    )
    if keeps and epochs * val * classes <= BUDGET:
        return [f"{run.origin('keep_epoch_logits')}: {size} a run; set it to false for {run.dataset}"]
    most = BUDGET // max(1, val * classes)
    return [f"{run.origin('epochs')}: {size} a run; set it to {most} or fewer for {run.dataset}, or cut val"]


# ---------------------------------------------------------------------------------------------- search of settings
@dataclass(frozen=True)
class Searched:
    """A method whose settings are searched, and what it declares."""

    method: str
    key: str
    """Key of params.yaml that asks for it."""
    views: tuple[str, ...]
    needs: AbstractSet[str]
    labels: str
    closed_form: bool


def search(params: Params, dataset: str) -> list[str]:
    """Return what a search asks of the stage linear_init, by whose settings it trains, and does not get."""
    training, found = params.settings("linear_init", dataset), params.settings("search", dataset)
    mirrored = params.settings("features", dataset).mirrored
    lines = {
        "protocol": (
            training.protocol != "common",
            "published, but a search trains all methods alike; set it to common",
        ),
        "group_consistency": (
            training.group_consistency is not None,
            "is set, but a search trains heads without it; set it to null",
        ),
        "readout": (training.readout is not None, "is set, but a search scores heads as trained; set it to null"),
        "ema": (training.ema is not None, "is set, but a search scores raw weights; set it to null"),
        "early_stop": (
            training.early_stop.rule != "none" and "auto" in found.scores,
            f"stops by a score, and search.{dataset}.scores auto compares all epochs; set its rule to none",
        ),
        "head": (
            training.head.kind != "linear",
            f"{training.head.kind}, but a search scores linear heads on pooled features; set its kind to linear",
        ),
        "flip": (training.flip and not mirrored, f"needs the mirrored view (features.{dataset}.mirrored)"),
    }
    problems = [f"linear_init.{dataset}.{key}: {line}" for key, (broken, line) in lines.items() if broken]
    simulate = params.settings("simulate", dataset)
    return [*problems, *label_draws(dataset, simulate, found.draws, f"search.{dataset}.draws")]


def searched_method(params: Params, dataset: str, method: Searched) -> list[str]:
    """Return what keeps a method's settings from being searched on cached features."""
    if len(method.views) > 1:
        return [f"{method.key}: compares {len(method.views)} views of an image; cached features hold no views"]
    if method.closed_form:
        return [f"{method.key}: is fitted in closed form, without rate or epochs to search; train it in linear_init"]
    problems, head = [], LinearHead(kind="linear", scale="none")
    if unmet := sorted(method.needs - available("linear_init", head)):
        problems.append(f"{method.key}: needs {', '.join(unmet)}, which linear heads on cached features do not give")
    if "expected_positives" in method.needs and params.density(dataset) is None:
        problems.append(f"{method.key}: needs expected_positives.{dataset}, the labels that an image has on average")
    return problems


def searched_data(params: Params, dataset: str, table: Table, methods: Iterable[Searched]) -> list[str]:
    """Return what keeps a search from training and scoring the heads of some methods on the data of its dataset."""
    scores, key = params.settings("search", dataset).scores, f"search.{dataset}.scores"
    problems = []
    if "clean" in scores and not table.measurable("val"):
        problems.append(f"{key}: clean, but the labels of {dataset} are not exhaustive; set it to [auto]")
    elif "clean" in scores:
        problems += validation_without_positives(dataset, table)
    if "auto" in scores and (lacks := _lacks_parts(dataset, table)):
        problems.append(f"{key}: auto {lacks}; set it to [clean]")
    return problems + [line for each in methods for line in oracle(each.key, each, dataset, table)]
