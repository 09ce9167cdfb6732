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
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

from tqdm import tqdm

from pipeline.core.errors import FileError
from pipeline.core.files import read_torch, sha256, write_torch

TRIES = 100
"""A folder that is gone whenever it has just been made is not deleted by other processes: it cannot be there."""
LARGE = 64 << 20  # bytes; a larger file enters a fingerprint by size and time, since hashing it takes seconds


def scratch_folder(root: Path) -> Path:
    """Return the folder of a project's resume points.

    Args:
        root: Project root.

    Returns:
        ``.pipeline/checkpoints`` of the project; or, in the environment's SPML_SCRATCH, which several projects may
        share, a folder named after the project and a hash of its path.
    """
    if not (shared := os.environ.get("SPML_SCRATCH")):
        return root / ".pipeline" / "checkpoints"
    project = root.resolve()
    return Path(shared) / f"{project.name}-{hashlib.sha256(str(project).encode()).hexdigest()[:8]}"


def check_scratch() -> None:
    """Make the folder that SPML_SCRATCH names, where it is set.

    Raises:
        FileError: It cannot be made, or this user may not write there.
    """
    if not (shared := os.environ.get("SPML_SCRATCH")):
        return
    try:
        Path(shared).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"SPML_SCRATCH: {shared} cannot be made ({error.strerror or error})") from error
    if not os.access(shared, os.W_OK | os.X_OK):
        raise FileError(f"SPML_SCRATCH: {shared} is a folder that you may not write to")


def list_abandoned(run_folder: Path) -> list[Path]:
    """Return the resume points of one run that no process is using.

    Args:
        run_folder: The run's folder in the scratch folder; it may be absent.

    Returns:
        Their folders, sorted.
    """
    free = []
    for path in _list_folder(run_folder):
        if path.is_dir() and (lock := _try_lock(path)):
            lock.close()
            free.append(path)
    return free


def list_resume_points(scratch: Path) -> dict[str, list[Path]]:
    """Return all resume points that no process is using.

    Args:
        scratch: The scratch folder; it may be absent.

    Returns:
        Their folders by run, sorted; runs without any are left out.
    """
    points = {path.name: list_abandoned(path) for path in _list_folder(scratch)}
    return {run: paths for run, paths in points.items() if paths}


def delete_resume_points(paths: Iterable[Path]) -> None:
    """Delete resume points, but for those that a process is using.

    Args:
        paths: Their folders.
    """
    for path in paths:
        if lock := _try_lock(path):
            _delete_locked(path, lock)


def delete_stale(run_folder: Path, fingerprint: str, run: str) -> None:
    """Delete the resume points of a run that cannot be resumed; print what is deleted and what is resumed.

    Args:
        run_folder: The run's folder in the scratch folder; it may be absent.
        fingerprint: The fingerprint of the run as it is now.
        run: Name of the run, for the messages.
    """
    abandoned = list_abandoned(run_folder)
    stale = [path for path in abandoned if path.name.partition("-")[0] != fingerprint]
    if stale:
        tqdm.write(
            f"{run}: deleting {describe_resume_points(stale)}, left by an interrupted run with other settings, inputs "
            f"or code in {run_folder}"
        )
    if kept := [path for path in abandoned if path not in stale]:
        tqdm.write(f"{run}: going on with an interrupted run ({describe_resume_points(kept)})")
    delete_resume_points(stale)


def describe_resume_points(paths: Iterable[Path]) -> str:
    """Return the size and the age of resume points in words.

    Args:
        paths: Their folders; what vanishes meanwhile does not count.

    Returns:
        Space on disk and time since the last write.
    """
    status: list[os.stat_result] = []
    for path in paths:
        for file in [Path(folder, name) for folder, _, names in os.walk(path) for name in names]:
            with suppress(OSError):
                status.append(file.stat())
    size = sum(file.st_blocks for file in status) * 512  # a file of heat maps is sparse
    hours = max(0.0, time.time() - max((file.st_mtime for file in status), default=time.time())) / 3600
    space = f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"
    return f"{space}, last written {f'{hours / 24:.0f} days' if hours >= 48 else f'{hours:.1f} hours'} ago"


def _list_folder(folder: Path) -> list[Path]:
    """Return what a folder holds, sorted; nothing where it is absent, gone meanwhile or a file."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _delete_locked(path: Path, lock: IO[bytes]) -> None:
    """Delete a resume point whose lock is held, and the run's folder once that is empty."""
    if lock.closed:  # another process may hold it by now
        return
    doomed = path.with_name(f".{path.name}.{os.getpid()}")  # no fingerprint: a killed process leaves it stale
    with suppress(OSError):  # deleted by hand
        path.rename(doomed)  # deleting takes a while, and a process that opened it meanwhile would lose its state
        shutil.rmtree(doomed, ignore_errors=True)
    with suppress(OSError):  # it holds others
        path.parent.rmdir()
    lock.close()


def _try_lock(path: Path, *, create: bool = False) -> IO[bytes] | None:
    """Lock a resume point; the lock ends when the file is closed or the process dies.

    Args:
        path: Its folder.
        create: Whether to make the folder where it is absent.

    Returns:
        The locked file; None where another process holds it, or where the folder is absent and not to be made.

    Raises:
        FileError: The folder cannot be made or locked.
    """
    for tries_left in reversed(range(TRIES)):
        try:
            if create:
                path.mkdir(parents=True, exist_ok=True)
            return _lock_file(path / "lock")
        except BlockingIOError:  # EWOULDBLOCK alone says that it is taken
            return None
        except OSError as error:  # another user's, no folder, a disk without locks
            if not create:
                return None
            if isinstance(error, FileNotFoundError) and tries_left:  # another process has just deleted it
                continue
            remedy = "SPML_SCRATCH names a folder for resume points, which must be on a disk that knows locks"
            raise FileError(f"{path}: cannot be made and locked ({error.strerror or error}); {remedy}") from error
    return None


def _lock_file(path: Path) -> IO[bytes]:
    """Return a file, opened and locked.

    Raises:
        BlockingIOError: Another process holds it.
        FileNotFoundError: Another process has deleted it meanwhile.
        OSError: It cannot be opened or locked.
    """  # noqa: DOC502  the system raises them
    file = open(path, "ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
            raise FileNotFoundError(path)
    except OSError:
        file.close()
        raise
    return file


def room_files(*rooms: str) -> list[Path]:
    """Return the source files of rooms of the library, for a fingerprint.

    Args:
        rooms: Folders below ``pipeline``.
    """
    pipeline = Path(__file__).parents[1]
    return [file for room in rooms for file in sorted((pipeline / room).glob("*.py"))]


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
        FileError: Another process is at the same run, or the folder cannot be made or locked.
    """

    def __init__(self, path: Path, interval: float = 20.0) -> None:
        self.path, self.interval = path, interval
        self.written = time.monotonic()
        lock = _try_lock(path, create=True)
        if lock is None:
            raise FileError(f"{path}: another process is at this run")
        self._lock = lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock; what was saved stays, for a run that resumes from it."""
        self._lock.close()

    @property
    def _file(self) -> Path:
        return self.path / "state.pt"

    def load(self) -> dict[str, Any] | None:
        """Return what was saved last; None where nothing was, or where the file is damaged, after a warning.

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
            self.warn_damaged(error)
            return None

    def warn_damaged(self, reason: object) -> None:
        """Print in one line that nothing can be resumed from here."""
        tqdm.write(f"the resume point in {self.path} is damaged, so the run starts anew ({reason})")

    def delete_state(self) -> None:
        """Delete what was saved, but for the folder of large state."""
        self._file.unlink(missing_ok=True)

    @property
    def folder(self) -> Path:
        """Folder of state too large for a file that is written anew each time; made on first use."""
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

    def delete_disk(self) -> None:
        """Delete the folder of large state, which no later epoch reads."""
        shutil.rmtree(self.path / "disk", ignore_errors=True)

    def delete(self) -> None:
        """Delete the resume point, and the run's folder once that is empty."""
        _delete_locked(self.path, self._lock)
