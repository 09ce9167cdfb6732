"""Find a source by the name that a dataset's settings give, and check them against its schema.

Each other module of this folder reads one layout of raw data: `Settings`, `read` and `fingerprint`.
Source: ours.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from pipeline.core.errors import ConfigError
from pipeline.core.strict import explain


def names() -> list[str]:
    """List the sources.

    Returns:
        Module names in this folder, sorted.
    """
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in ("__init__", "base"))


def load(block: dict[str, Any], key: str) -> tuple[ModuleType, Any]:
    """Find the source of a dataset, and its settings.

    Args:
        block: Settings of `prepare` for a dataset.
        key: Their dotted path, `prepare.<dataset>`, for messages.

    Returns:
        The source's module, and the settings as an object of its `Settings`.

    Raises:
        ConfigError: it names no source, or does not suit the one that it names.
    """
    name = block.get("source")
    if name not in names():
        raise ConfigError(f"{key}.source: no source {name!r}; there are {', '.join(names())}")
    source = import_module(f"pipeline.sources.{name}")
    try:
        return source, source.Settings.model_validate(block)
    except ValidationError as error:
        raise ConfigError(explain(error, key)) from error
