"""``spml backbones [PATTERN]``: the backbones of timm that we recommend, or all of a name, and how they are read here.

Facts are timm's own; nothing is downloaded. Building the recommended ones takes half a minute, so that their table lies
in docs/, where `benchmarks.backbones` puts it.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pipeline.cli.verbs import Verbs, align
from pipeline.core import files
from pipeline.core.errors import ConfigError
from pipeline.core.faults import preview

RECOMMENDED = (
    "tf_efficientnet_lite0.in1k",
    "resnet18.tv_in1k",
    "resnet50.tv_in1k",
    "resnet50.a1_in1k",
    "convnext_tiny.in12k_ft_in1k",
    "convnextv2_nano.fcmae_ft_in22k_in1k",
    "convnextv2_tiny.fcmae_ft_in22k_in1k",
    "convnext_tiny.dinov3_lvd1689m",
    "vit_small_patch16_dinov3.lvd1689m",
    "vit_base_patch16_dinov3.lvd1689m",
    "vit_large_patch16_dinov3.lvd1689m",
    "vit_small_patch14_reg4_dinov2.lvd142m",
    "vit_base_patch14_reg4_dinov2.lvd142m",
    "vit_base_patch16_siglip_224.v2_webli",
    "vit_so400m_patch14_siglip_224.v2_webli",
)
SIZE = 224
"""Pixels of the profiles that `spml init` writes; a model that does not take it is read at its own size."""
LARGEST = 500_000_000
"""Parameters above which a model is named and not tried."""
COLUMNS = ("model", "parameters", "own size", "read at", "features", "map", "licence of the weights")
TABLE = Path("docs") / "backbones.tsv"
"""The table in the project's folder, with what was measured."""


@dataclass(frozen=True)
class Facts:
    """What is known of a model.

    Args:
        name: timm's name, with that of its weights.
        parameters: How many, without the classifier.
        own: Side of the pictures that it was made for, in pixels.
        licence: Of the weights, as timm states it; None: it does not.
        size: Side of the pictures at which it was tried.
        read: `timm_backbone.describe` at that; a reason where the pipeline cannot read it.
    """

    name: str
    parameters: int
    own: int
    licence: str | None
    size: int
    read: dict[str, Any] | str


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser(
        "backbones",
        help="list backbones of timm: size, width, licence, and whether they can be read",
        description="List the backbones that docs/backbones.md recommends; with a pattern all models of timm whose "
        "names match it, and whether the pipeline reads them.",
    )
    parser.add_argument("pattern", nargs="?", help="part of a name, or a pattern: dinov3, 'resnet50.*'")
    return parser


def run(options: argparse.Namespace) -> Iterator[str]:
    """List backbones.

    Args:
        options: What the parser read.

    Yields:
        Lines of a table.
    """
    if options.pattern is None:
        rows = files.read_tsv(TABLE) if TABLE.is_file() else make_rows()
        yield from align([list(rows[0]), *(list(row.values()) for row in rows)])
        return
    names = find_names(options.pattern)
    width = max(map(len, names))
    for name in names:
        yield describe_line(read_facts(name), width)


def make_rows() -> list[dict[str, str]]:
    """Return the table of the recommended backbones, without what is measured."""
    return [make_row(read_facts(name)) for name in RECOMMENDED]


def find_names(pattern: str) -> list[str]:
    """Return timm's models with weights whose names match.

    Args:
        pattern: Part of a name, or a pattern with `*`.

    Raises:
        ConfigError: There is none.
    """
    import timm

    wanted = pattern if "*" in pattern or "?" in pattern else f"*{pattern}*"
    if names := timm.list_models(wanted, pretrained=True):
        return names
    near = get_close_matches(pattern, timm.list_models(pretrained=True), 5, 0.4)
    hint = f"; near it are {preview(near)}" if near else ""
    raise ConfigError(f"timm has no model with weights of the name {pattern}{hint}")


def read_facts(name: str) -> Facts:
    """Return what timm and the pipeline say of a model.

    Args:
        name: timm's name.
    """
    import timm
    import torch

    from pipeline.networks import timm_backbone

    config = timm.models.get_pretrained_cfg(name)
    own, licence = (config.input_size[1], config.license) if config else (SIZE, None)
    try:
        with torch.device("meta"):
            parameters = sum(each.numel() for each in timm.create_model(name, num_classes=0).parameters())
    except Exception as error:  # some models cannot be built without numbers, or need a package that is not here
        return Facts(name, 0, own, licence, own, (str(error).splitlines() or [type(error).__name__])[0])
    if parameters > LARGEST:
        return Facts(name, parameters, own, licence, own, f"{parameters / 1e9:.1f} billion parameters, not tried")
    reason = ""
    for size in dict.fromkeys((SIZE, own)):
        try:
            return Facts(name, parameters, own, licence, size, timm_backbone.describe(name, size))
        except ConfigError as error:
            reason = str(error).removeprefix("backbone.model: ")
    return Facts(name, parameters, own, licence, own, reason)


def describe_map(read: dict[str, Any], size: int) -> str:
    """Return what a model answers for a picture, in words: places, and a class token where it has one.

    Args:
        read: What `timm_backbone.describe` returned.
        size: Side of the picture.
    """
    import torch

    from pipeline.networks.timm_backbone import TimmBackbone

    with torch.no_grad():
        module = TimmBackbone(read["model"], read["options"], read["width"], read["own_pool"]).eval()
        _, _, height, width = module(torch.zeros(1, 3, size, size)).shape
    token = " + token" if getattr(module.model, "cls_token", None) is not None else ""
    return f"{height} x {width}{token}"


def make_row(facts: Facts) -> dict[str, str]:
    """Return a row of the table, by `COLUMNS`.

    Args:
        facts: Of a model.
    """
    cells = [facts.name, f"{facts.parameters / 1e6:.1f} M", f"{facts.own} px"]
    if isinstance(facts.read, str):
        cells += ["not read", "", facts.read]
    else:
        cells += [f"{facts.size} px", f"{facts.read['width']:,}", describe_map(facts.read, facts.size)]
    return dict(zip(COLUMNS, [*cells, facts.licence or "not stated"], strict=True))


def describe_line(facts: Facts, width: int) -> str:
    """Return a line on a model that a pattern found.

    Args:
        facts: Of the model.
        width: Letters of the longest name.
    """
    head = f"{facts.name:<{width}}  {facts.parameters / 1e6:7.1f} M  {facts.own:4} px"
    if isinstance(facts.read, str):
        return f"{head}  not read: {facts.read}"
    licence = facts.licence or "not stated"
    return f"{head}  read at {facts.size} px: {facts.read['width']:,} features; licence {licence}"
