"""Settings of the feature cache, of beliefs about hidden labels, and of the training stages."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from pipeline.core.strict import Count, Fraction, Positive, Strict, each_once, given
from pipeline.networks.settings import Head, Pools, Scale, Sharpness, at_scale

Momentum = Annotated[float, Field(ge=0, lt=1)]
Decay = Annotated[float, Field(ge=0)]
T = TypeVar("T")


SMALLER_PLACES = "`dtype: float16` and a smaller prepare size take less, `places: false` none"
"""What to do where features of places take too much room."""


class Features(Strict):
    """What the feature cache holds."""

    dtype: Literal["float32", "float16"]
    pools: Pools
    places: bool
    """Whether the features of each place are cached too, for beliefs and heads that score by places: as many times the
    disk of the cache as a map has places; they are read by blocks, so that memory does not grow."""
    mirrored: bool
    """Whether the left-right mirrored view is cached too (and used as augmentation by linear_init)."""
    batch_size: Count


class CountDraw(Strict):
    """As many labels of an image as are shown were picked at random of those present."""

    kind: Literal["count"]


class ShareDraw(Strict):
    """Each present label was shown with one chance, apart from the others."""

    kind: Literal["share"]
    value: Annotated[float, Field(gt=0, lt=1)]
    """The chance."""


LabelDraw = Annotated[CountDraw | ShareDraw, Field(discriminator="kind")]
"""How labels are taken to have come to be shown."""


class BeliefFits(Strict):
    """Beliefs about hidden labels from closed-form fits on the cached features."""

    kind: Literal["fits"]
    fits: Annotated[int, Field(ge=1, le=10)]
    """How often the beliefs of the fit before are fitted anew; a fourth does not help."""
    draw: LabelDraw
    sharpness: Sharpness | None
    """Of the score by places (the head `places`) after the last fit, which needs them in the feature cache; null: by
    pooled features."""


class GivenBeliefs(Strict):
    """Beliefs that somebody else has: a second backbone, a foundation model, a person."""

    kind: Literal["file"]
    file: str
    """Table of text with the columns ``image`` and every class, from the project's root: chances before the
    shown labels are looked at."""
    draw: LabelDraw

    def path(self, root: Path) -> Path:
        """Return where the file lies.

        Args:
            root: Project root.
        """
        return root / Path(self.file).expanduser()


class StrongView(Strict):
    """Augmentation of the strong view (LAC's code): cutout, RandAugment, colour jitter, greyscale; a crop before."""

    crop: Annotated[float, Field(gt=0, le=1)]
    """Smallest area of the random resized crop, as a fraction of the image's; 1: none, as in LAC."""
    cutout: Fraction
    """Side of the square as a fraction of the image's."""
    operations: Annotated[int, Field(ge=0)]
    """RandAugment operations an image."""
    magnitude: Annotated[int, Field(ge=0, le=30)]
    """Strength of those operations; 0 without any."""
    jitter: Fraction
    """Probability of ColorJitter(0.4, 0.4, 0.4, 0.1)."""
    grayscale: Fraction
    """Probability of greyscale."""

    @model_validator(mode="after")
    def _strength_of_something(self) -> Self:
        if self.magnitude and not self.operations:
            raise ValueError(f"magnitude: has no effect without operations; set it to 0 {given(self.magnitude)}")
        return self


class Search(Strict):
    """The learning rates that ``learning_rate: grid`` tries, each judged by val mAP; the middle one where all tie.

    Each is tried at each ``weight_decay`` and each ``scale`` of the head, where these are lists.
    """

    values: Annotated[list[Positive], Field(min_length=1)]
    epochs: Count | None
    """Epochs of a trial; null: as the run, and then the best trial is the run."""
    extend: Annotated[int, Field(ge=0)]
    """While the best rate is the lowest or highest tried, the next one is tried too, in the ratio of the two that lie
    outermost there and at the best one's weight decay and scale: at most so many in all; 0: none."""

    @model_validator(mode="after")
    def _values_once(self) -> Self:
        if len(set(self.values)) != len(self.values):
            raise ValueError(f"values: names a learning rate twice {given(self.values)}")
        if self.extend and len(self.values) < 2:
            raise ValueError(f"extend: has no effect beside one value; set it to 0 {given(self.extend)}")
        return self


Each = Annotated[list[T], Field(min_length=1), AfterValidator(each_once)]
"""A list of what is tried, each once."""


class SettingsSearch(Strict):
    """Settings of methods that are tried as linear heads on the cached features, all in one process.

    Epochs, batches, optimiser and schedule are those of linear_init.
    """

    methods: Annotated[dict[str, Each[dict[str, Any]]], Field(min_length=1)]
    """For each method a list of changes of its own settings; ``{}`` changes none."""
    learning_rates: Each[Positive]
    weight_decays: Each[Decay]
    scales: Each[Scale]
    """Scales of the features in the head."""
    draws: Each[Annotated[int, Field(ge=0)]]
    """Numbers of label draws, which are drawn and believed here: choose on draws that no reported run uses."""
    seeds: Each[Annotated[int, Field(ge=0)]]
    """Training seeds."""
    scores: Each[Literal["clean", "auto"]]
    """What scores a head: val mAP by full labels; or shown labels of images that it was not trained on."""


class EarlyStop(Strict):
    """When training ends before its last epoch, on the selection score."""

    rule: Literal["none", "first_dip", "drop", "patience"]
    """``first_dip``: the first epoch that is no new best (EM+APL's code); ``drop``: best minus current above
    ``amount`` points (LL 3, GR 2); ``patience``: ``amount`` epochs without a new best (LAC 8)."""
    amount: Annotated[float, Field(ge=0)]
    """0 where the rule does not read it."""

    @model_validator(mode="after")
    def _amount_of_the_rule(self) -> Self:
        found = given(self.amount)
        if self.rule == "patience" and (self.amount < 1 or self.amount % 1):
            raise ValueError(f"amount: counts epochs under `patience`, a whole number of at least 1 {found}")
        if self.rule in ("none", "first_dip") and self.amount:
            raise ValueError(f"amount: has no effect under `{self.rule}`; set it to 0.0 {found}")
        return self


class Average(Strict):
    """Moving average of the weights; averaged and raw ones compete on val."""

    decay: Annotated[float, Field(gt=0, lt=1)]
    """d: the share of the average that a step keeps."""
    rule: Literal["published", "warmup"]
    """``published``: d from the first step, as in LAC's code: 0.9997 holds on to the first weights for thousands of
    steps; ``warmup``: min(d, (1 + t) / (10 + t)) at step t, for shorter runs."""


class Readout(Strict):
    """A head in closed form on the features that a trained network ends with (`pipeline.training.readout`)."""

    pools: Pools
    sharpness: Sharpness | None
    """Of the score by places (the head `places`); null: by pooled features."""
    share: Annotated[float, Field(gt=0, le=1)]
    """Of the closed form in the head; the rest is the trained head, scaled to logits of the same spread. 1: the closed
    form alone."""


class GroupConsistency(Strict):
    """A term of the loss that draws the predictions for images of one group together (`pipeline.training.groups`)."""

    weight: Positive
    """Its factor."""


class Training(Strict):
    """One training stage: linear_init, finetune, end_to_end or lac."""

    protocol: Literal["common", "published"]
    """``common``: this block for every method, so that rows compare; ``published``: the recipe of the method's own
    source, ``published`` in ``params/methods/<method>.yaml``, lies over it, augmentation included."""
    head: Head
    epochs: Count
    batch_size: Count
    optimizer: Literal["adam", "adamw", "adamax", "sgd"]
    momentum: Momentum | Annotated[tuple[Momentum, Momentum], Field(strict=False)]  # YAML has lists only
    """SGD's momentum, and the first beta of the others. A pair [lowest, highest] is cycled by ``onecycle`` against the
    rate, highest where that is lowest (LAC's code: [0.85, 0.95])."""
    weight_decay: Decay | Annotated[list[Decay], Field(min_length=2)]
    """A list is searched with the rates of ``learning_rate: grid``."""
    learning_rate: Positive | Literal["grid"]
    search: Search | None
    """null where the rate is a number."""
    group_consistency: GroupConsistency | None
    """null: none. Else batches hold the images of a group together. A head in closed form has neither."""
    head_factor: Positive
    """Learning rate of the head as a multiple of the backbone's: 1 (Cole, Zhou) or 10 (LL, GR)."""
    schedule: Literal["constant", "onecycle", "falling"]
    """``falling``: constant over the first half of all steps, then in a line towards 0."""
    warmup: Annotated[float, Field(ge=0, lt=1)]
    """OneCycle's rising part, as a fraction of all steps; a run of one step is taken at the peak."""
    batch_norm: Literal["train", "frozen"]
    """``frozen``: running statistics and affine parameters stay as loaded. One block serves every backbone: one without
    batch norm, such as a transformer, trains alike under both."""
    freeze: list[str]
    """Backbone modules that are not trained, by their whole names, with all that is in them (LAC: conv1, bn1, layer1):
    ``layer1`` is neither ``layer10`` nor ``layer2.0.layer1``."""
    ema: Average | None
    """null: raw weights alone."""
    early_stop: EarlyStop
    select: Literal["clean", "auto", "last"]
    """Choice of epoch and rate: val mAP by full labels (the papers); without truth, by shown labels (`selection`); or
    the last epoch. Under the last two raw weights are taken, since choosing the averaged ones would need a score that
    tells them apart; those are scored for the log."""
    flip: bool
    """Left-right flip with probability 0.5 in the weak view."""
    crop: Annotated[float, Field(gt=0, le=1)]
    """Smallest area of the weak view's random resized crop, as a fraction of the image's; 1: none."""
    strong: StrongView | None
    """The strong view; null where no method of the block's runs asks for one."""
    readout: Readout | None
    """null: the trained network is the run. Else the run is the network under a head fitted to its final features, or
    under the mean of that head and the trained one. A head that has a closed form alone is it already."""
    keep_epoch_logits: bool
    """Whether eval-mode train logits of every epoch are stored (audits by round, Wasserstein by epoch)."""

    @model_validator(mode="after")
    def _each_value_has_an_effect(self) -> Self:
        pair = self.momentum if isinstance(self.momentum, tuple) else None
        lines = {
            "momentum: cycles under `schedule: onecycle` alone; set one number": pair is not None
            and self.schedule != "onecycle",
            "momentum: a pair is [lowest, highest]": pair is not None and pair[0] >= pair[1],
            f"momentum: is the first beta of {self.optimizer}, so above 0; 0.9 is usual": self.optimizer != "sgd"
            and self.momentum == 0,
            "warmup: has no effect but under `schedule: onecycle`; set it to 0.0": self.schedule != "onecycle"
            and self.warmup > 0,
            "search: has no effect unless `learning_rate: grid`; set it to null": self.learning_rate != "grid"
            and self.search is not None,
            "search: is null, and `learning_rate: grid` tries its values": self.learning_rate == "grid"
            and self.search is None,
            "weight_decay: a list is tried with the rates of `learning_rate: grid`; name one": self.learning_rate
            != "grid"
            and isinstance(self.weight_decay, list),
            "weight_decay: names one twice": isinstance(self.weight_decay, list)
            and len(set(self.weight_decay)) != len(self.weight_decay),
        }
        for line in (line for line, broken in lines.items() if broken):
            found = getattr(self, line.partition(":")[0])
            raise ValueError(f"{line} {given(found)}" if found is not None else line)
        return self

    def at(self, decay: float | list[float], scale: Scale | None) -> Self:
        """Return the settings of a trial.

        Args:
            decay: Its weight decay.
            scale: The scale of its head; None of a head that has none.
        """
        return self.model_copy(update={"weight_decay": decay, "head": at_scale(self.head, scale)})
