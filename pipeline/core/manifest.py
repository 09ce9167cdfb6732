"""Manifests: whose the text files of an output folder are, what they were made from, and SHA-256 of each.

Binary files carry a seal of their own (`pipeline.core.seal`); for JSON, TSV and Markdown ``manifest.json`` beside them
says the same. Source: ours.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from pipeline.core import files, seal
from pipeline.core.errors import FileError

NAME = "manifest.json"
TEXT = (".json", ".md", ".tsv")
"""Endings of the files that a manifest covers."""


def write_manifest(folder: Path, inputs: Iterable[str | Path]) -> None:
    """Write the manifest of an output folder whose other files are all written.

    Args:
        folder: The folder.
        inputs: Sealed files that it was made from.

    Raises:
        FileError: An input is absent, or has no seal.
    """  # noqa: DOC502  raised by `identify`
    texts = [file for file in sorted(folder.iterdir()) if file.suffix in TEXT and file.name != NAME]
    digests = {file.name: files.sha256(file) for file in texts}
    files.write_json(folder / NAME, {**seal.identify(folder / NAME, inputs), "files": digests})


def check_folder(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each text file of an output folder that is the one that belongs there.

    Args:
        folder: The folder.

    Returns:
        Digests by name.

    Raises:
        FileError: It has no manifest, is another output, or was made from other inputs than those that lie there.
    """
    manifest = files.read_json(folder / NAME)
    try:
        path, inputs, digests = (manifest[key] for key in ("path", "inputs", "files"))
        seal.raise_if_misplaced(folder / NAME, path, inputs)
        return dict(digests)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{folder / NAME}: damaged; run the stage that makes it again") from error


def raise_if_changed(file: Path, digests: dict[str, str]) -> None:
    """Raise where a text file is not what its stage wrote.

    Args:
        file: The file.
        digests: What `check_folder` returned of its folder.

    Raises:
        FileError: It cannot be read, or is another.
    """
    if hashlib.sha256(files.read_bytes(file)).hexdigest() != digests.get(file.name):
        raise FileError(f"{file}: not what its stage wrote; `spml verify --fix` removes it, `dvc repro` makes it again")
