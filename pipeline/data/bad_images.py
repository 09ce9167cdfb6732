"""Pictures that cannot be used: errors that say how to go on without them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from pipeline.core.errors import SourceError
from pipeline.data.corrected import read_corrected
from pipeline.data.images import ImageError
from pipeline.data.packing import NothingUsable
from pipeline.labels.table import Dataset


def read_dataset(source: ModuleType, settings: Any, root: Path, dataset: str) -> Dataset:
    """Read lists and labels of a dataset, with the corrections of these.

    Args:
        source: Module of the source.
        settings: Its settings.
        root: Project root.
        dataset: Name of the dataset.

    Returns:
        The dataset.

    Raises:
        SourceError: Lists are faulty, or pictures are missing; where those alone are, the message says how to go on.
    """

    def read(asked: Any) -> Dataset:
        return read_corrected(lambda wanted: source.read(wanted, root), asked, root, dataset)

    try:
        return read(settings)
    except SourceError as error:
        if getattr(settings, "bad_images", "drop") == "drop":
            raise
        try:
            read(settings.model_copy(update={"bad_images": "drop"}))
        except SourceError:
            raise error from None
        raise SourceError(f"{error}\n{_remedy(dataset, some_usable=True)}") from error


@contextmanager
def suggest_remedy(dataset: str) -> Iterator[None]:
    """Add to the error of pictures that cannot be packed how to go on.

    Args:
        dataset: Name of the dataset.

    Yields:
        Nothing; the block packs.

    Raises:
        ImageError: As the block raised it, with one more line.
    """
    try:
        yield
    except ImageError as error:
        some_usable = not isinstance(error, NothingUsable)
        raise ImageError(f"{error}\n{_remedy(dataset, some_usable)}") from error


def _remedy(dataset: str, some_usable: bool) -> str:
    """Return what to do about pictures that cannot be used."""
    drop = f"leave them out: prepare.{dataset}.bad_images: drop; " if some_usable else ""
    return f"{drop}see all: spml check-data {dataset}"
