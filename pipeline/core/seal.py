"""Seals: what stands behind the content of each binary file that stages exchange, and what readers compare with it.

A seal says which output the file is, which inputs it was made from, and holds a SHA-256 of each MiB of the content. So
damage, a file that lies at another's place, and one whose inputs are others by now are told before a library parses a
byte. HDF5 and torch read a sealed file as any other: they pass over what follows their content.

Layout: content, digests (32 bytes a chunk), JSON, and a footer of 64 bytes: magic, three sizes, SHA-256 of all of the
seal before it. Source: ours.
"""

import hashlib
import json
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pipeline.core.errors import FileError

CHUNK = 1 << 20
"""Bytes of content that one digest covers."""
_MAGIC = b"SPMLSEAL"
_SIZES = struct.Struct("<8sQQQ")
_FOOTER = _SIZES.size + 32
_STAGES = {
    "data": ("prepare", "simulate", "features", "beliefs"),
    "runs": ("linear_init", "finetune", "end_to_end", "lac"),
    "analyses": ("audit", "wasserstein", "landscape"),
}
"""Folders of outputs below the project root, and those in them; a project's own folder may have any name."""


@dataclass(frozen=True)
class Seal:
    """What a seal says.

    Args:
        path: The output's path below the project root; empty where it is no stage's output.
        inputs: Digest of each input that the output was made from, by path below the project root.
        size: Bytes of content.
        digests: SHA-256 of each chunk of the content, one after the other.
    """

    path: str
    inputs: dict[str, str]
    size: int
    digests: bytes

    @cached_property
    def digest(self) -> str:
        """Hexadecimal SHA-256 that stands for the content."""
        return hashlib.sha256(self.digests).hexdigest()

    def is_chunk(self, number: int, content: bytes | memoryview) -> bool:
        """Return whether these bytes are a chunk of the content."""
        return hashlib.sha256(content).digest() == self.digests[32 * number : 32 * number + 32]


def place(path: str | Path) -> str:
    """Return where an output lies below the project root; nothing of a file that is no stage's output."""
    parts = Path(path).absolute().parts
    if len(parts) > 4 and parts[-3] in _STAGES.get(parts[-4], ()):  # data/prepare/<dataset>/<file>
        return "/".join(parts[-4:])
    return "/".join(parts[-3:]) if len(parts) > 3 and parts[-3] == "weights" else ""


def identify(path: str | Path, inputs: Iterable[str | Path]) -> dict[str, Any]:
    """Return which output a file is, and the digests of what it is made from.

    Args:
        path: Where the file lies, or will lie.
        inputs: Sealed files that it is made from.

    Returns:
        ``path`` and ``inputs``, as `Seal` has them.

    Raises:
        FileError: An input is absent, or has no sound seal.
    """  # noqa: DOC502  raised by `read`
    return {"path": place(path), "inputs": {place(each): read(each).digest for each in inputs}}


def append(path: str | Path, inputs: Iterable[str | Path] = (), lies_at: str | Path | None = None) -> None:
    """Seal a file; another seal of it is replaced, and one that says the same is left, since the file may be linked.

    Args:
        path: The file, whole.
        inputs: Sealed files that it was made from.
        lies_at: Where it will lie; None: where it does.

    Raises:
        FileError: An input is absent, or has no seal.
        OSError: The file cannot be written.
    """  # noqa: DOC502  raised by `read`
    about = identify(lies_at or path, inputs)
    content = json.dumps(about, sort_keys=True).encode()
    with open(path, "r+b") as file:
        earlier = _parse(file)
        size = file.seek(0, os.SEEK_END) if earlier is None else earlier.size
        file.seek(0)
        chunks = (file.read(min(CHUNK, size - start)) for start in range(0, size, CHUNK))
        digests = b"".join(hashlib.sha256(chunk).digest() for chunk in chunks)
        if earlier == Seal(about["path"], about["inputs"], size, digests):
            return
        sizes = _SIZES.pack(_MAGIC, size, len(digests), len(content))
        file.truncate(size)
        file.seek(size)
        file.write(digests + content + sizes + hashlib.sha256(digests + content + sizes).digest())


def read(path: str | Path) -> Seal:
    """Return the seal of a file; its content is not looked at.

    Args:
        path: The file.

    Returns:
        The seal.

    Raises:
        FileError: The file is absent, or has no sound seal.
    """
    if not Path(path).is_file():
        raise FileError(f"{path}: no such file; run the stage that makes it")
    try:
        with open(path, "rb") as file:
            seal = _parse(file)
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror or error}); run the stage that makes it") from error
    if seal is None:
        reason = "its end is damaged, or it was not finished, or another version or program wrote it"
        raise FileError(f"{path}: no sound seal ({reason}); delete it and run the stage that makes it")
    return seal


def _parse(file: BinaryIO) -> Seal | None:
    """Return the seal of an open file, None where there is none or it is damaged."""
    total = file.seek(0, os.SEEK_END)
    if total < _FOOTER:
        return None
    file.seek(total - _FOOTER)
    footer = file.read(_FOOTER)
    magic, size, digests_size, content_size = _SIZES.unpack(footer[: _SIZES.size])
    if magic != _MAGIC or size + digests_size + content_size + _FOOTER != total:
        return None
    file.seek(size)
    before = file.read(digests_size + content_size)
    if hashlib.sha256(before + footer[: _SIZES.size]).digest() != footer[_SIZES.size :]:
        return None
    if digests_size != 32 * -(-size // CHUNK):
        return None
    about = json.loads(before[digests_size:])
    return Seal(about["path"], about["inputs"], size, before[:digests_size])


def verify(path: str | Path) -> Seal:
    """Return the seal of a file whose content is what it says.

    Args:
        path: The file.

    Returns:
        The seal.

    Raises:
        FileError: The file is absent or damaged, or has no sound seal.
    """
    seal = read(path)
    with open(path, "rb") as file:
        for number in range(-(-seal.size // CHUNK)):
            if not seal.is_chunk(number, file.read(min(CHUNK, seal.size - number * CHUNK))):
                raise FileError(_damaged(path, number))
    return seal


def _damaged(path: str | Path, number: int) -> str:
    where = f"between bytes {number * CHUNK:,} and {(number + 1) * CHUNK:,}"
    return f"{path}: damaged {where}; `spml verify --fix` removes it, and `dvc repro` makes it again"


def check(path: str | Path) -> Seal:
    """Return the verified seal of an output that is the one that belongs there, made from the inputs that lie there.

    Args:
        path: The output.

    Returns:
        The seal.

    Raises:
        FileError: The file is absent or damaged, is another output, or an input of it, or of those in turn, is another
            than the one that it was made from.
    """
    seal = verify(path)
    raise_if_misplaced(path, seal.path, seal.inputs)
    return seal


def raise_if_misplaced(path: str | Path, output: str, inputs: dict[str, str]) -> None:
    """Raise where an output is not the one that belongs there, made from the inputs that lie there.

    Args:
        path: The output's file.
        output: `Seal.path` of it.
        inputs: `Seal.inputs` of it.

    Raises:
        FileError: As `check`, whatever the content.
    """
    if output != place(path):
        raise FileError(f"{path}: holds the output {output}; run {target(place(path))} again")
    root = Path(path).absolute().parents[output.count("/")]
    pending, seen = [(output, inputs)], {output}
    while pending:
        name, its_inputs = pending.pop()
        for other, digest in its_inputs.items():
            if not (root / other).exists():  # a stage may have less at hand than the stages before it
                continue
            now = read(root / other)
            if now.digest != digest:
                whose = "" if name == output else f"its input {name} was "
                raise FileError(f"{path}: {whose}made from another {other} than lies there; run {target(name)} again")
            if other not in seen:
                seen.add(other)
                pending.append((other, now.inputs))


def target(output: str) -> str:
    """Return the target of DVC that makes an output."""
    top, *rest = output.split("/")
    if top == "weights":
        return f"backbone@{rest[0]}"
    return f"{rest[0]}@{rest[1]}" if len(rest) > 1 else output


class Touched:
    """Verifies the chunks of a mapped file when they are first read.

    Args:
        path: The file, for messages.
        seal: Its seal.
        content: The mapped file, all its bytes.
    """

    def __init__(self, path: str | Path, seal: Seal, content: np.ndarray) -> None:
        self.path, self.seal = path, seal
        self._content = content
        self._verified = np.zeros(-(-seal.size // CHUNK), dtype=bool)

    def verify(self, starts: np.ndarray, length: int) -> None:
        """Verify all chunks that some spans of the content lie in and that no call has verified.

        Args:
            starts: First byte of each span.
            length: Bytes of a span.

        Raises:
            FileError: A chunk is damaged.
        """
        if not len(starts):
            return
        first, last = starts // CHUNK, (starts + length - 1) // CHUNK
        steps = np.arange((last - first).max() + 1)
        numbers = np.unique(np.minimum(first[:, None] + steps, last[:, None]))
        for number in numbers[~self._verified[numbers]].tolist():
            end = min(self.seal.size, (number + 1) * CHUNK)
            if not self.seal.is_chunk(number, self._content[number * CHUNK : end].data):
                raise FileError(_damaged(self.path, number))
            self._verified[number] = True
