"""Resume points of a training run, outside DVC's outs (DVC removes outs before a stage starts).

A checkpoint is named by a fingerprint of all that the run depends on, so a changed setting never resumes an old run.
It is written at most every so many seconds, locked against a second process, and deleted when the run has succeeded.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline import storage

LARGE = 64 << 20  # bytes; a larger file enters a fingerprint by size and time, since hashing it takes seconds


def scratch(root: Path) -> Path:
    """Return the folder of checkpoints: the environment's SPML_SCRATCH, or ``.pipeline/checkpoints``."""
    return Path(os.environ.get("SPML_SCRATCH", root / ".pipeline" / "checkpoints"))


def fingerprint(settings: Any, files: Iterable[Path]) -> str:
    """Return a hash of settings and file contents.

    Args:
        settings: JSON values.
        files: What the run reads, its code included.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for path in sorted(files):
        status = path.stat()
        content = f"{status.st_size} {status.st_mtime_ns}" if status.st_size > LARGE else storage.sha256(path)
        digest.update(f"{path.name} {content}\n".encode())
    return digest.hexdigest()[:16]


class Checkpoint:
    """One run's resume point.

    Args:
        path: The file; its folder is made.
        interval: Seconds between two writes.

    Raises:
        StorageError: Another process trains the same run.
    """

    def __init__(self, path: Path, interval: float = 20.0) -> None:
        self.path, self.interval = path, interval
        self.written = time.monotonic()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock_path = path.with_suffix(".lock")
        self._lock = open(self._lock_path, "w")  # held as long as the run
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise storage.StorageError(f"{path}: another process is training this run") from error

    def load(self) -> dict[str, Any] | None:
        """Return what was saved last, or None."""
        return storage.read_torch(self.path) if self.path.exists() else None

    @property
    def folder(self) -> Path:
        """A folder beside the file for state too large for it; made when asked for."""
        path = self.path.with_suffix("")
        path.mkdir(exist_ok=True)
        return path

    def save(self, content: dict[str, Any], *, at_once: bool = False) -> None:
        """Save tensors and plain values, unless the last write was less than ``interval`` seconds ago.

        Args:
            content: What `load` will return.
            at_once: Whether to save whatever the time.
        """
        if at_once or time.monotonic() - self.written >= self.interval:
            storage.write_torch(self.path, content)
            self.written = time.monotonic()

    def empty(self) -> None:
        """Delete the folder: no epoch follows that would read it."""
        shutil.rmtree(self.path.with_suffix(""), ignore_errors=True)

    def discard(self) -> None:
        """Delete the file and the folder: the run has succeeded."""
        self.path.unlink(missing_ok=True)
        self.empty()
        self._lock_path.unlink(missing_ok=True)
        self._lock.close()
