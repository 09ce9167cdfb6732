"""Files of text, JSON, TSV and tensors between stages: written atomically, strict, equal bytes for equal content.

Every writer fills a temporary name in the target's folder, fsyncs it and renames it over the target, so that an
interrupted run leaves the earlier file as it was.
"""

import csv
import hashlib
import io
import json
import math
import os
import platform
import re
import shutil
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core import seal
from pipeline.core.errors import FileError
from pipeline.core.text import FIELD

DAY = 86400  # seconds
FORMULA = re.compile("'*[=+@\t\r-]")
"""How a text begins that a spreadsheet takes for a formula, apostrophes before it included."""


# ---------------------------------------------------------------------------------------------- bytes and text
@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; rename it over ``path`` when the block ends without an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _delete_stale_temporaries(path)
    temporary = path.with_name(f".{path.name}.{_host()}-{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _delete_stale_temporaries(path: Path) -> None:
    """Delete temporary files of ``path`` whose writers were killed; those of living processes stay.

    Whether a process lives is known of this host's; another's file goes when nobody has written to it for a day.
    """
    form = re.compile(rf"\.{re.escape(path.name)}\.([0-9a-f]{{8}})-(\d+)\.tmp")
    for name in os.listdir(path.parent):
        if match := form.fullmatch(name):
            file = path.parent / name
            with suppress(OSError, OverflowError):  # gone meanwhile, another user's, or no number of a process
                if match[1] == _host():
                    stale = not _is_alive(int(match[2]))
                else:
                    stale = time.time() - file.stat().st_mtime > DAY
                if stale:
                    file.unlink()


@cache
def _host() -> str:
    """Return 8 hexadecimal digits of this host, since it was started, and this container: process numbers are theirs.

    Where the system tells less, as outside Linux, they are of the host's name.
    """
    known = [platform.node()]
    with suppress(OSError):
        known.append(Path("/proc/sys/kernel/random/boot_id").read_text())
    with suppress(OSError):
        known.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:8]


def _is_alive(process: int) -> bool:
    """Return whether a process of this host lives.

    Raises:
        PermissionError: It is another user's, or the system cannot be asked.
        OverflowError: It is no number of a process.
    """
    if os.name == "nt":
        raise PermissionError("there, the call below ends the process")
    try:
        os.kill(process, 0)  # sends nothing
    except ProcessLookupError:
        return False
    return True


def link_or_copy(source: str | Path, path: str | Path) -> None:
    """Put a finished file in place atomically; it stays where it lies, too, so that what follows may fail.

    Args:
        source: The file, whole and never changed again: on one disk both names are of the same file.
        path: Where it goes; an earlier one there is replaced.

    Raises:
        FileError: It cannot be written there, as on a full disk.
    """
    try:
        with replacing(path) as temporary:
            try:
                os.link(source, temporary)
            except OSError:  # another disk, or one without links
                shutil.copyfile(source, temporary)
    except OSError as error:
        size = Path(source).stat().st_size if Path(source).exists() else 0
        raise FileError(unwritable(path, size, error)) from error


def unwritable(path: str | Path, size: int, error: OSError) -> str:
    """Return the message of a file that cannot be written, as on a full disk."""
    return f"{path}: {size:,} bytes cannot be written there ({error.strerror or error})"


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically, creating parent folders.

    Raises:
        FileError: It cannot be written, as on a full disk; an earlier file there stays.
    """
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise FileError(unwritable(path, len(data), error)) from error


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text to ``path`` atomically, with a final line feed."""
    write_bytes(path, (text.rstrip("\n") + "\n").encode())


def read_bytes(path: str | Path) -> bytes:
    """Return the content of an output.

    Raises:
        FileError: It is absent or cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise FileError(f"{path}: no such file; run the stage that makes it") from error
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror or error}); run the stage that makes it") from error


def sha256(path: str | Path) -> str:
    """Return the hexadecimal SHA-256 of a file's content.

    Raises:
        FileError: The file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as handle:
            while block := handle.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror or error})") from error
    return digest.hexdigest()


# ---------------------------------------------------------------------------------------------- JSON and TSV
def _plain(value: Any, where: str) -> Any:
    """Return plain Python of numpy scalars and arrays, at any depth.

    Raises:
        ValueError: Strict JSON cannot hold a value; ``where`` it is is named.
    """
    if isinstance(value, dict):
        return {str(key): _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{position}]") for position, item in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where}: {value} has no place in strict JSON; write null and a reason")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"{where}: {type(value).__name__} has no JSON form")


def write_json(path: str | Path, content: Any) -> None:
    """Write strict JSON (sorted keys, no NaN).

    Args:
        path: Target file.
        content: Nested dicts, lists, numpy arrays and scalars.

    Raises:
        ValueError: ``content`` holds NaN, an infinity or an object without JSON form; the key is named.
    """
    text = json.dumps(_plain(content, "$"), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text)


def read_json(path: str | Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        FileError: The file is absent or not JSON.
    """
    data = read_bytes(path)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:  # also bytes that are no UTF-8, and brackets without end
        raise FileError(f"{path}: not JSON ({error})") from error


def write_tsv(path: str | Path, rows: list[dict[str, Any]], columns: list[str] | None = None) -> None:
    """Write a table of tab-separated values; floats keep full precision, None becomes an empty field.

    A text that a spreadsheet would run as a formula gets an apostrophe before it, which `read_tsv` takes away.

    Args:
        path: Target file.
        rows: One dict a row.
        columns: Column order; by default the keys in the order in which the rows bring them up.
    """
    columns = columns or list(dict.fromkeys(key for row in rows for key in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, delimiter="\t", lineterminator="\n", restval="", extrasaction="raise")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: "" if value is None else quote_formula(_plain(value, key)) for key, value in row.items()})
    write_text(path, buffer.getvalue())


def quote_formula(value: Any) -> Any:
    """Return a field of a table so that a spreadsheet takes it as text, where it is one."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def unquote_formula(text: Any) -> Any:
    """Return what `quote_formula` was given."""
    return text[1:] if isinstance(text, str) and text[:1] == "'" and FORMULA.match(text[1:]) else text


def read_tsv(path: str | Path) -> list[dict[str, str]]:
    """Return a table of tab-separated values as strings; an empty field stays an empty string.

    Raises:
        FileError: The file is absent or not UTF-8.
    """
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not a table of text ({error})") from error
    csv.field_size_limit(FIELD)
    try:
        rows = list(csv.DictReader(io.StringIO(text), delimiter="\t"))
    except csv.Error as error:
        raise FileError(f"{path}: not a table of text ({error})") from error
    return [{name: unquote_formula(value) for name, value in row.items()} for row in rows]


# ---------------------------------------------------------------------------------------------- torch
def write_torch(path: str | Path, content: Any, inputs: Iterable[str | Path] = ()) -> None:
    """Save tensors, strings, numbers, lists and dicts with torch.

    The archive is made in memory: torch writes the file's own name into it, so a temporary name would change the bytes.

    Args:
        path: The file.
        content: What `torch.load` with ``weights_only`` reads.
        inputs: Sealed files that it is made from.

    Raises:
        FileError: It cannot be written, as on a full disk; an earlier file there stays.
    """
    import torch

    buffer = io.BytesIO()
    torch.save(content, buffer)
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(buffer.getbuffer())
            seal.append(temporary, inputs, lies_at=path)
    except OSError as error:
        raise FileError(unwritable(path, buffer.tell(), error)) from error


def _damaged_part(data: io.BytesIO) -> str | None:
    """Return the first part of a zip archive that does not meet its checksum; None where there is none to be found.

    A compressed part is none of torch's: a megabyte may stand for gigabytes, and nobody unpacks it to see.
    """
    try:
        with zipfile.ZipFile(data) as parts:
            packed = [part.filename for part in parts.infolist() if part.compress_type != zipfile.ZIP_STORED]
            return packed[0] if packed else parts.testzip()
    except Exception:  # no archive, or one whose frame is damaged: whoever reads it will say so
        return None
    finally:
        data.seek(0)


def read_torch(path: str | Path) -> Any:
    """Return what a file of ``write_torch`` holds.

    Raises:
        FileError: The file is absent, damaged, another stage's, or made from other inputs than those that lie there.
    """
    return load_torch(path, seal.check(path).size)


def load_torch(path: str | Path, size: int | None = None) -> Any:
    """Return what a file of torch holds, whoever wrote it; nothing but tensors and plain data is ever unpickled.

    Args:
        path: The file.
        size: Bytes of its content; None: all.

    Returns:
        The content, on the CPU.

    Raises:
        FileError: The file is absent, damaged or holds other objects.
    """
    import pickle

    import torch

    data = io.BytesIO(read_bytes(path)[:size])
    if (part := _damaged_part(data)) is not None:  # torch would load it with any bit of a tensor turned
        raise FileError(f"{path}: not a file of tensors and plain data ({part} is damaged or compressed)")
    try:
        return torch.load(data, map_location="cpu", weights_only=True)
    except Exception as error:  # the unpickler raises nearly anything on damaged bytes
        # torch's text on forbidden objects explains how to load the file regardless
        lines = [] if isinstance(error, pickle.UnpicklingError) else str(error).splitlines()
        reason = lines[0] if lines else type(error).__name__
        raise FileError(f"{path}: not a file of tensors and plain data ({reason})") from error
