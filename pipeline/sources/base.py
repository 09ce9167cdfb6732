"""What every source is, and how one is found by the name that a dataset's settings give.

Each other module of this folder reads one layout of raw data in three steps:

- `locate(settings, root)` finds the files and folders, `raw.Files`, below `settings.root`, which counts from the
  project's root; what is missing but does not keep the rest from being read joins the faults of the files.
- `parse(files, settings)` reads lists and labels; what is wrong with them joins the faults.
- `build(files, content, settings)` looks pictures up, without opening one, raises all faults at once as `SourceError`,
  whose message names the setting, file, line or id, and returns the `Dataset` with what its report tells.

`raw.make_reader` makes of them `read(settings, root)`, which takes them all, and `fingerprint(settings, root)`, which
returns what tells one state of the raw data from another: `disk.digest` of the files that `read` reads, and of all
pictures. A source that draws its pictures has these two alone.
Source: ours.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from pipeline.core.errors import ConfigError
from pipeline.core.strict import explain
from pipeline.data.corrected import read_corrected
from pipeline.labels.table import Dataset


def names() -> list[str]:
    """Return the names of the sources, which are those of the modules in this folder, sorted."""
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
        raise ConfigError(f"{key}.source: no file pipeline/sources/{name}.py; there are {', '.join(names())}")
    source = import_module(f"pipeline.sources.{name}")
    try:
        return source, source.Settings.model_validate(block)
    except ValidationError as error:
        raise ConfigError(explain(error, key)) from error


def read(source: ModuleType, settings: Any, root: Path, dataset: str) -> Dataset:
    """Read a dataset as `prepare` does: with the corrections of its labels.

    Args:
        source: Module of the source.
        settings: Its settings.
        root: Project root.
        dataset: Name of the dataset.

    Returns:
        The dataset.

    Raises:
        SourceError: The raw data or the corrections are faulty.
    """  # noqa: DOC502  raised by the source
    return read_corrected(lambda wanted: source.read(wanted, root), settings, root, dataset)
