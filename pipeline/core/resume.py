"""Resume points of training runs and of packing, outside DVC's outs (DVC removes outs before a stage starts).

Each lies in a folder ``<scratch>/<stage>-<run key>/<fingerprint>``; training adds ``-<learning rate>-<epochs>``. The
fingerprint is of all that the run depends on, so a changed setting never resumes an old run. A resume point is written
at most every so many seconds, locked against a second process, and deleted when the run has succeeded; what interrupted
runs left can be listed and deleted, whatever their state.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

from tqdm import tqdm

from pipeline.core.errors import FileError
from pipeline.core.files import read_torch, sha256, write_torch

LARGE = 64 << 20  # bytes; a larger file enters a fingerprint by size and time, since hashing it takes seconds
_FORMER = re.compile(
    r"\.?(?P<point>(?P<run>.+)-[0-9a-f]{16}-[^/]+-(?:None|\d+))(?:\.pt|\.lock|\.pt\.\d+\.tmp)?"
)  # files and folders of a resume point as they lay side by side, before each run had a folder


def scratch(root: Path) -> Path:
    """Return the folder of a project's checkpoints.

    Args:
        root: Project root.

    Returns:
        ``.pipeline/checkpoints`` of the project; or, in the environment's SPML_SCRATCH, which several projects may
        share, a folder named after the project and a hash of its path.
    """
    if not (shared := os.environ.get("SPML_SCRATCH")):
        return root / ".pipeline" / "checkpoints"
    place = root.resolve()
    return Path(shared) / f"{place.name}-{hashlib.sha256(str(place).encode()).hexdigest()[:8]}"


def abandoned(folder: Path) -> list[Path]:
    """List the resume points of one run that no process is using.

    Args:
        folder: The run's folder in the scratch folder; it may be absent.

    Returns:
        Their folders, sorted.
    """
    free = []
    for path in _entries(folder):
        if path.is_dir() and (lock := _lock(path)):
            lock.close()
            free.append(path)
    return free


def left(place: Path) -> dict[str, list[Path]]:
    """List all resume points that no process is using, those in the form of earlier versions too.

    Args:
        place: The scratch folder; it may be absent.

    Returns:
        By run, sorted, what `describe` and `remove` take.
    """
    found: dict[str, list[Path]] = {}
    for path in _entries(place):
        if former := _FORMER.fullmatch(path.name):
            if _free(place / f"{former['point']}.lock"):
                found.setdefault(former["run"], []).append(path)
        elif points := abandoned(path):
            found.setdefault(path.name, []).extend(points)
    return dict(sorted(found.items()))


def remove(paths: Iterable[Path]) -> None:
    """Delete resume points, but for those that a process is using.

    Args:
        paths: Their folders, or what `left` found of earlier versions.
    """
    for path in paths:
        if not _FORMER.fullmatch(path.name):
            if lock := _lock(path):
                _delete(path, lock)
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def sort_out(folder: Path, fingerprint: str, run: str) -> None:
    """Delete what interrupted runs of one key left that cannot be resumed, and say what there is.

    Args:
        folder: The run's folder in the scratch folder; it may be absent.
        fingerprint: The fingerprint of the run as it is now.
        run: How to call it.
    """
    left = abandoned(folder)
    stale = [path for path in left if path.name.partition("-")[0] != fingerprint]
    if stale:
        tqdm.write(
            f"{run}: deleting {describe(stale)}, left by an interrupted run with other settings, inputs or code in "
            f"{folder}"
        )
    if kept := [path for path in left if path not in stale]:
        tqdm.write(f"{run}: going on with an interrupted run ({describe(kept)})")
    remove(stale)


def describe(paths: Iterable[Path]) -> str:
    """Say what resume points take and how old they are.

    Args:
        paths: Their folders, or what `left` found; what vanishes meanwhile does not count.

    Returns:
        Space on disk and time since the last write, in words.
    """
    found: list[os.stat_result] = []
    for path in paths:
        inside = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
        for file in inside if path.is_dir() else [path]:
            with suppress(OSError):
                found.append(file.stat())
    size = sum(each.st_blocks for each in found) * 512  # a file of heat maps is sparse
    hours = max(0.0, time.time() - max((each.st_mtime for each in found), default=time.time())) / 3600
    space = f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"
    return f"{space}, last written {f'{hours / 24:.0f} days' if hours >= 48 else f'{hours:.1f} hours'} ago"


def _entries(folder: Path) -> list[Path]:
    """Return what a folder holds, sorted; nothing where it is absent, gone meanwhile or a file."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _free(file: Path) -> bool:
    """Return whether no process holds a lock on a file."""
    try:
        with open(file, "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _delete(path: Path, lock: IO[str]) -> None:
    """Delete a resume point whose lock is held, and the folder that it lies in once that is empty."""
    if lock.closed:  # it is no longer ours
        return
    gone = path.with_name(f".{path.name}.{os.getpid()}")  # no fingerprint: what a killed process leaves of it is stale
    with suppress(OSError):  # deleted by hand
        path.rename(gone)  # deleting takes a while, and a process that opened it meanwhile would lose its state
        shutil.rmtree(gone, ignore_errors=True)
    with suppress(OSError):  # it holds others
        path.parent.rmdir()
    lock.close()


def _lock(path: Path, *, make: bool = False) -> IO[str] | None:
    """Return the lock of a resume point, held until it is closed; None where another process holds or deleted it.

    Args:
        path: Its folder.
        make: Whether to make the folder.
    """
    while True:
        try:
            if make:
                path.mkdir(parents=True, exist_ok=True)
            file = open(path / "lock", "a")  # held as long as the run
        except FileNotFoundError:
            if make:
                continue
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path / "lock")):
                return file
        except FileNotFoundError:  # deleted between open and flock: the lock is of a file that nobody finds
            pass
        except OSError:
            file.close()
            return None
        file.close()


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
        content = f"{status.st_size} {status.st_mtime_ns}" if status.st_size > LARGE else sha256(path)
        digest.update(f"{path.name} {content}\n".encode())
    return digest.hexdigest()[:16]


class Checkpoint:
    """One run's resume point.

    Args:
        path: Its folder, which is made.
        interval: Seconds between two writes.

    Raises:
        FileError: Another process is at the same run.
    """

    def __init__(self, path: Path, interval: float = 20.0) -> None:
        self.path, self.interval = path, interval
        self.written = time.monotonic()
        lock = _lock(path, make=True)
        if lock is None:
            raise FileError(f"{path}: another process is at this run")
        self._lock = lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Leave it to whoever resumes from it."""
        self._lock.close()

    @property
    def _file(self) -> Path:
        return self.path / "state.pt"

    def load(self) -> dict[str, Any] | None:
        """Return what was saved last; None where nothing was, or where the file is damaged, which is said.

        Raises:
            FileError: The disk does not give the file.
        """
        if not self._file.exists():
            return None
        try:
            return read_torch(self._file)
        except FileError as error:
            if isinstance(error.__cause__, OSError):  # what it holds may be sound
                remedy = "`spml scratch --clear` deletes what interrupted runs left"
                raise FileError(f"{self._file}: cannot be read ({error.__cause__}); {remedy}") from error
            self.say_damaged(error)
            return None

    def say_damaged(self, reason: object) -> None:
        """Say in one line that nothing can be resumed from here."""
        tqdm.write(f"the resume point in {self.path} is damaged, so the run starts anew ({reason})")

    def forget(self) -> None:
        """Delete what was saved, but for the folder of large state."""
        self._file.unlink(missing_ok=True)

    @property
    def folder(self) -> Path:
        """A folder for state too large for a file that is written anew each time; made when asked for."""
        path = self.path / "disk"
        path.mkdir(exist_ok=True)
        return path

    @property
    def due(self) -> bool:
        """Whether `save` would write now."""
        return time.monotonic() - self.written >= self.interval

    def save(self, content: dict[str, Any], *, at_once: bool = False) -> None:
        """Save tensors and plain values, unless the last write was less than ``interval`` seconds ago.

        Args:
            content: What `load` will return.
            at_once: Whether to save whatever the time.

        Raises:
            FileError: It cannot be written, as on a full disk; what was saved before stays.
        """
        if at_once or self.due:
            try:
                write_torch(self._file, content)
            except FileError as error:
                stays = "nothing is lost but what followed the last resume point, which stays"
                raise FileError(f"{error}; {stays}: make room and start again") from error
            self.written = time.monotonic()

    def empty(self) -> None:
        """Delete the folder of large state: no epoch follows that would read it."""
        shutil.rmtree(self.path / "disk", ignore_errors=True)

    def discard(self) -> None:
        """Delete it all, and the folder that it lies in once that is empty: nothing will be resumed from here."""
        _delete(self.path, self._lock)
