"""What a bundle is: the names of its files, and model.json, which is checked as strictly as params.yaml."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from pipeline.core import files
from pipeline.core.errors import ConfigError, FileError
from pipeline.core.strict import Count, Positive, Strict, each_once, explain
from pipeline.networks.settings import Head, Pools

FORMAT = 1
"""Of bundles; another number is another meaning of model.json or of the weights."""
MODEL, WEIGHTS, CLASSES, CARD = "model.json", "model.safetensors", "classes.txt", "MODEL_CARD.md"
SCRIPT, ONNX, SUMS = "predict.py", "model.onnx", "SHA256SUMS"
FILES = (CARD, CLASSES, MODEL, ONNX, WEIGHTS, SCRIPT)
"""All but the sums of them; ``model.onnx`` where it was asked for."""
MAX_SIDE = 4096
"""Of what a network sees, in pixels: a batch of 64 such pictures takes 3 GB as bytes."""


def require_onnx() -> None:
    """Require the packages that writing and comparing an ONNX file needs.

    Raises:
        ConfigError: One is not installed.
    """
    for name in ("onnx", "onnxruntime", "onnxscript"):  # torch needs the last one
        if find_spec(name) is None:
            raise ConfigError(f"--onnx: needs {name}; pip install 'spml[onnx]'")


class Small(Strict):
    """The small convolutional backbone."""

    source: Literal["small"]
    width: Count


class Timm(Strict):
    """A backbone of timm; of what builds it only what cannot make timm fetch or unpickle anything."""

    source: Literal["timm"]
    model: Annotated[str, Field(pattern=r"^\w[\w.-]*$")]
    options: dict[Literal["dynamic_img_size", "img_size"], bool | int]
    width: Count
    own_pool: bool


class Input(Strict):
    """What is done to a picture before the network sees it, after it was decoded to RGB."""

    size: Annotated[int, Field(ge=1, le=MAX_SIDE)]
    """Side of the square that it is resized to, in pixels."""
    resize: Literal["bilinear"]
    """With antialiasing where it shrinks; the aspect ratio is not kept."""
    colour: Literal["RGB"]
    """First frame, turned upright, transparency on white, grey of more bits scaled; in [0, 1]."""
    mean: Annotated[list[float], Field(min_length=3, max_length=3)]
    std: Annotated[list[Positive], Field(min_length=3, max_length=3)]
    """Then each channel has its mean taken away and is divided by its deviation."""


class Architecture(Strict):
    """How the network is built."""

    backbone: Annotated[Small | Timm, Field(discriminator="source")]
    pools: Pools
    head: Head


class Rule(Strict):
    """One way to cut logits into present and absent."""

    how: str
    logits: dict[str, float | None]
    """By class; None where the class has no threshold, and is never said to be present."""
    test: dict[str, float | None] | None
    """Percent on test: ``macro_f1``, ``micro_f1`` and the share ``found``; None where nobody knows."""


class Thresholds(Strict):
    """The thresholds of a run. A class counts as present where its logit is at least its threshold."""

    chosen: str
    why: str
    rules: dict[str, Rule]


class Description(Strict):
    """model.json."""

    format: Literal[1]
    name: str
    """Stage and run that it was made from."""
    classes: Annotated[list[str], Field(min_length=1), AfterValidator(each_once)]
    input: Input
    network: Architecture
    thresholds: Thresholds
    scores: dict[str, Any]
    provenance: dict[str, Any]

    @model_validator(mode="after")
    def _rules_are_of_the_classes(self) -> Self:
        if self.thresholds.chosen not in self.thresholds.rules:
            raise ValueError(f"thresholds.chosen: {self.thresholds.chosen!r} is none of thresholds.rules")
        for name, rule in self.thresholds.rules.items():
            if rule.logits.keys() != set(self.classes):
                raise ValueError(f"thresholds.rules.{name}: its classes are not those of `classes`")
        return self

    def architecture(self) -> dict[str, Any]:
        """Return the network as `pipeline.networks.network.Network` is told of it."""
        backbone = self.network.backbone.model_dump() | {"mean": self.input.mean, "std": self.input.std}
        sizes = {"width": self.network.backbone.width * len(self.network.pools), "classes": len(self.classes)}
        head = self.network.head.model_dump()
        return {"backbone": backbone, "pools": list(self.network.pools), "head": head, **sizes}


def read_description(path: Path) -> Description:
    """Return what model.json says.

    Args:
        path: The file.

    Returns:
        Its content, checked.

    Raises:
        FileError: It is of another format, or says what no bundle says; a line for each fault.
    """
    content = files.read_json(path)
    version = content.get("format") if isinstance(content, dict) else None
    if version is None:
        raise FileError(f"{path}: not of a bundle (it names no `format`); `spml model` writes one")
    if version != FORMAT:
        wrote: Any = content
        for key in ("provenance", "versions", "spml"):  # of another format nothing is known
            wrote = wrote.get(key) if isinstance(wrote, dict) else None
        use = f"spml {wrote}, which wrote it" if isinstance(wrote, str) else "the version of spml that wrote it"
        raise FileError(
            f"{path}: format {version}, and this version reads {FORMAT}; use {use}, or bundle the run again with "
            "`spml model`"
        )
    try:
        return Description.model_validate(content)
    except ValidationError as error:
        raise FileError(f"{explain(error, f'{path}: model')}; bundle the run again with `spml model`") from error
