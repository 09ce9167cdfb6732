"""The settings of a label draw as a report holds them, and in words."""

from pathlib import Path
from typing import Any

from pipeline.core.files import sha256
from pipeline.labels.settings import Simulate

_GIVEN = (
    "Nothing is drawn: the labels that the data give are what is observed. They are not exhaustive, so a label that is"
    " not given is unknown."
)
_IN_PROPORTION_TO = {
    "frequency": "how often its class occurs",
    "size": "the size of its largest box",
    "centre": "how close its most central box lies to the centre",
}


def describe_settings(root: Path, settings: Simulate, draw: int) -> dict[str, Any]:
    """Return the settings that count, with `how` in words; null for those that the protocol does not read.

    Args:
        root: Project root, from which the name of a table of weights counts.
        settings: The settings.
        draw: Number of the draw.

    Returns:
        JSON values; `bias` names a table of weights by its hash too.
    """
    drawn, bias = settings.protocol != "given", settings.bias.model_dump()
    if settings.bias.kind == "table":
        bias["file_sha256"] = sha256(settings.bias.path(root))
    return {
        "how": describe(settings),
        "protocol": settings.protocol,
        "draw": draw if settings.protocol == "seeded" else None,
        "seed": settings.seed if settings.protocol == "literature" else None,
        "empty_rows": settings.empty_rows,
        "positives": settings.positives.model_dump() if drawn else None,
        "negatives": settings.negatives.model_dump() if drawn else None,
        "bias": bias if drawn else None,
    }


def describe(settings: Simulate) -> str:
    """Return in words what stays known.

    Args:
        settings: The settings of a draw.
    """
    if settings.protocol == "given":
        return _GIVEN
    recipe = "Labels are drawn from named generators"
    if settings.protocol == "literature":
        recipe = f"The published recipe is followed bit for bit (seed {settings.seed})"
    kept = f"every image keeps {_positives(settings)}{_negatives(settings)}; everything else becomes unknown."
    return f"{recipe}: {kept} {_bias(settings)}"


def _positives(settings: Simulate) -> str:
    kept = settings.positives
    if kept.kind == "share":
        return f"each of its positive labels or not, {100 * kept.value:g}% of all"
    if kept.kind == "table":
        return "each of its positive labels with the probability that a table gives it"
    if kept.value == 1:
        return "one of its positive labels"
    return f"{kept.value} of its positive labels, or all that it has"


def _negatives(settings: Simulate) -> str:
    kept = settings.negatives
    if not kept.value:
        return ""
    if kept.kind == "count":
        return f", and {kept.value} of its absent ones as known absences"
    return f", and {100 * kept.value:g}% of all absent ones as known absences"


def _bias(settings: Simulate) -> str:
    bias = settings.bias
    if bias.kind == "uniform":
        return "The positives of an image are as likely as each other."
    if bias.kind != "table":
        return f"A positive is kept in proportion to {_IN_PROPORTION_TO[bias.kind]}, to the power {bias.power:g}."
    if settings.positives.kind == "table":
        return f"The table is {bias.file}."
    return f"A positive is kept in proportion to its weight in {bias.file}."
