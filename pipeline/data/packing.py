"""Pack a dataset: every picture decoded and resized once, into one HDF5 file that training reads by row.

What is packed so far lies beside the outputs until the file is whole, so that an interrupted run goes on where it
stopped; of what is packed, only pictures whose files have changed are decoded again. Pictures stream through a few
threads; the bytes of the file do not depend on them.
"""

import hashlib
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import PIL
from tqdm import tqdm

from pipeline.core import hdf5
from pipeline.core.errors import ConfigError, SourceError
from pipeline.core.files import sha256
from pipeline.core.progress import track
from pipeline.core.resume import Checkpoint
from pipeline.data import disk, images
from pipeline.data.images import ImageError, decode_noting, resize
from pipeline.labels.table import Dataset

TINY = 16
"""Pixels; a side below this is worth a look (placeholders of dead links are 1 x 1)."""
EXTREME = 8
"""A picture that is more than so many times as long as wide shows little, squeezed to a square."""
ODD = {
    "tiny": f"with a side below {TINY} pixels, as placeholders have",
    "extreme shape": f"of one side more than {EXTREME} times the other, packed as a square all the same",
    "one colour": "of one colour throughout",
    "ends in plain grey": "ending in plain grey, as files do that were cut short",
}
"""Notes that a person must see -> such pictures in words."""


class NothingUsable(ImageError):
    """None of a dataset's pictures can be used."""


@dataclass(frozen=True)
class Limits:
    """Which pictures cannot be used, and what they do.

    Args:
        bad_images: `stop` the run, all of them listed, or `drop` out.
        max_pixels: Width times height above which a picture cannot be used.
    """

    bad_images: Literal["stop", "drop"]
    max_pixels: int


@dataclass(frozen=True)
class Packed:
    """The M pictures that `pack` packed.

    Args:
        file: The whole file, beside the resume point and gone with it.
        rows: (M,) int64, which rows of the dataset they are, ascending: all, or those that could be used.
        sizes: (M, 2) int64, height and width before resizing, in pixels.
        notes: What was done or is odd -> the packed pictures concerned, ascending: "several frames, first used",
            "turned upright", "transparency laid on white", "greyscale", "tiny", "extreme shape", ...
        duplicates: Groups of two or more packed pictures with equal pixels, each ascending.
        unusable: The rows left out -> the reason, which names the picture.
    """

    file: Path
    rows: np.ndarray
    sizes: np.ndarray
    notes: dict[str, list[int]]
    duplicates: list[list[int]]
    unusable: dict[int, str]


@dataclass(frozen=True)
class _Picture:
    """One packed picture: its pixels, size before resizing, notes, digest of its pixels and state of its file."""

    pixels: np.ndarray
    size: tuple[int, int]
    notes: list[str]
    digest: bytes
    file: tuple[int, int, int, int]


@dataclass
class _Progress:
    """What is known of the first ``done`` rows; the rest of each array waits.

    ``files`` holds the state of each row's file (`_file_state`) before it was read: zeros for a drawn picture, -1 where
    the row is to be packed again or could not be used (its number of bytes is never -1 otherwise).
    """

    done: int
    sizes: np.ndarray
    digests: np.ndarray
    files: np.ndarray
    notes: dict[str, list[int]] = field(default_factory=dict)
    unusable: dict[int, str] = field(default_factory=dict)

    @classmethod
    def empty(cls, n: int) -> "_Progress":
        """Return that of n rows of which none is packed."""
        return cls(0, np.zeros((n, 2), np.int64), np.zeros((n, 16), np.uint8), np.zeros((n, 4), np.int64))

    @classmethod
    def restore(cls, content: dict[str, Any], n: int) -> "_Progress":
        """Return that of n rows from what `content` returned."""
        result = cls.empty(n)
        result.done, result.notes, result.unusable = content["done"], content["notes"], content["unusable"]
        for name in ("sizes", "digests", "files"):
            array = getattr(result, name)
            values = np.frombuffer(bytes.fromhex(content[name]), array.dtype)
            array[: result.done] = values.reshape(-1, array.shape[1])
        return result

    def content(self) -> dict[str, Any]:
        """Return it as plain values."""
        arrays = {name: getattr(self, name)[: self.done].tobytes().hex() for name in ("sizes", "digests", "files")}
        return {"done": self.done, "notes": self.notes, "unusable": self.unusable, **arrays}

    def changed_rows(self, dataset: Dataset) -> list[int]:
        """Return the rows whose file is another than when they were packed."""
        packed = np.flatnonzero((self.files[: self.done] > 0).any(axis=1)).tolist()  # drawn ones are not drawn for this
        return [row for row in packed if tuple(self.files[row]) != _file_state(dataset.image(row))]

    def reopen(self, changed: list[int]) -> list[int]:
        """Mark changed, unusable and new rows as to be packed.

        Returns:
            These rows, ascending.
        """
        again = np.flatnonzero(self.files[: self.done, 1] < 0).tolist()
        rows = sorted({*changed, *again, *range(self.done, len(self.files))})
        self.files[rows] = -1
        gone = set(rows)
        left = {note: [row for row in noted if row not in gone] for note, noted in self.notes.items()}
        self.notes = {note: noted for note, noted in left.items() if noted}
        return rows

    def add(self, row: int, picture: _Picture) -> None:
        """Enter a packed picture; its file comes last, since it tells that the row is packed."""
        self.sizes[row] = picture.size
        self.digests[row] = np.frombuffer(picture.digest, np.uint8)
        for note in picture.notes:
            self.notes.setdefault(note, []).append(row)
        self.unusable.pop(row, None)
        self.files[row] = picture.file

    def count_packed(self) -> int:
        """Return the number of rows whose pixels are packed."""
        return int((self.files[: self.done, 1] >= 0).sum())


def stamp(dataset: Dataset, raw: str) -> list[Any]:
    """Return what packed pixels depend on beside settings, paths and files, for the key of a resume point.

    Args:
        dataset: A dataset whose pictures are all files, or all drawn by the source.
        raw: The source's fingerprint of the raw data; it counts for drawn pictures. Files are told apart row by row.

    Returns:
        JSON values: hashes of the code that decodes, Pillow's version, and `raw` or None.
    """
    drawn = bool(dataset.table.paths) and isinstance(dataset.image(0), np.ndarray)
    return [sha256(__file__), sha256(images.__file__), PIL.__version__, raw if drawn else None]


def oddities(pixels: np.ndarray) -> list[str]:
    """Return what is odd about a picture, (h, w, 3): keys of `ODD`."""
    short, long = sorted(pixels.shape[:2])
    found = {"tiny": short < TINY, "extreme shape": long > EXTREME * short}
    found["one colour"] = not found["tiny"] and all((row == pixels[0, 0]).all() for row in pixels)
    return [name for name, is_so in found.items() if is_so]


def _file_state(picture: np.ndarray | Path) -> tuple[int, int, int, int]:
    """Return what changes with a picture's file, as `disk.file_state`; zeros without a file."""
    try:
        return (0, 0, 0, 0) if isinstance(picture, np.ndarray) else disk.file_state(picture)
    except OSError:
        return 0, 0, 0, 0


def count_workers() -> int:
    """Return the number of decoding threads: SPML_WORKERS of the environment, else one per core, at most 8.

    Raises:
        ConfigError: SPML_WORKERS is no whole number.
    """
    text = os.environ.get("SPML_WORKERS", "")
    if text and not text.isdecimal():
        raise ConfigError(f"SPML_WORKERS={text!r} is no whole number")
    return int(text) if text else min(os.cpu_count() or 1, 8)


def pack(
    dataset: Dataset,
    size: int,
    *,
    source: str,
    limits: Limits,
    checkpoint: Checkpoint,
    workers: int = 1,
) -> Packed:
    """Decode and resize every picture of a dataset and write them to one file, in row order, within the resume point.

    The file holds `pixels`, (M, size, size, 3) uint8 in one piece, with attributes `size` and `source`. At most two
    pictures per thread are held.

    Args:
        dataset: The dataset.
        size: Side of the packed pictures, in pixels.
        source: Name of the source, kept in the file.
        limits: Which pictures cannot be used, and what they do.
        checkpoint: Resume point for these very pictures and this size (`stamp`). Rows that are packed are not decoded
            again unless their file has changed, those that could not be used are; a damaged one counts for nothing,
            which is printed. The caller deletes it once the file is in place.
        workers: Decoding threads; none counts as one.

    Returns:
        The file; rows, sizes, notes, duplicates and what was left out, for the report.

    Raises:
        ImageError: Pictures cannot be used and stop the run; all are listed, each with its reason.
        NothingUsable: None of them can be used, whatever `limits` say.
        KeyboardInterrupt: Someone stopped it; what is packed is kept, and that is printed.
        SourceError: The disk has too little room.
        FileError: The state cannot be saved; what was saved before stays.
    """  # noqa: DOC502  raised by the functions below
    path, n = checkpoint.folder / "images.h5", len(dataset.table.paths)
    progress, rows = _resume(dataset, path, size, source, checkpoint)
    pixels = hdf5.map_array(path, "pixels")
    try:
        _fill(dataset, rows, pixels, progress, checkpoint, limits.max_pixels, max(1, workers))
    except KeyboardInterrupt:
        kept = f"{progress.count_packed()} of {n} pictures are packed and kept"
        tqdm.write(f"packing was interrupted: {kept}; start again to go on there")
        raise
    _raise_if_unusable(progress.unusable, n, limits.bad_images)
    usable = np.array([row for row in range(n) if row not in progress.unusable], np.int64)
    if len(usable) < n:
        path = _copy_rows(pixels, usable, path.with_name("kept.h5"), source)
    return _describe(path, usable, progress)


def _resume(
    dataset: Dataset, path: Path, size: int, source: str, checkpoint: Checkpoint
) -> tuple[_Progress, list[int]]:
    """Open the file of an interrupted run, or allocate it.

    Returns:
        How far the run came, and the rows that are to be packed, ascending.
    """
    n = len(dataset.table.paths)
    progress = _load_progress(checkpoint, path, n, size)
    changed = progress.changed_rows(dataset)
    if path.exists() and (not progress.done or (changed and path.stat().st_nlink > 1)):
        path.unlink()  # it is of no use, or was put in place, where it never changes
        progress = _Progress.empty(n)
    rows = progress.reopen(changed)
    if not path.exists():
        checkpoint.delete_state()  # before there is a file that an earlier state could be taken to be about
        _allocate(path, n, size, source)
    elif changed:  # saved before a pixel changes, so that no earlier state of a file is ever taken for the new one
        checkpoint.save(progress.content(), at_once=True)
    return progress, rows


def _load_progress(checkpoint: Checkpoint, path: Path, n: int, size: int) -> _Progress:
    """Return how far an interrupted run came; where its state or its file is damaged, warn and begin anew."""
    content = checkpoint.load() if path.exists() else None
    if not content:
        return _Progress.empty(n)
    try:
        progress = _Progress.restore(content, n)
        shape = hdf5.map_array(path, "pixels").shape if progress.done else (n, size, size, 3)
        reason = f"{path}: pictures of shape {shape}" if shape != (n, size, size, 3) else ""
    except Exception as error:  # readers raise nearly anything on damaged bytes
        progress, reason = _Progress.empty(n), str(error) or type(error).__name__
    if reason:
        checkpoint.warn_damaged(reason)
        return _Progress.empty(n)
    return progress


def _fill(
    dataset: Dataset,
    rows: list[int],
    pixels: np.memmap,
    progress: _Progress,
    checkpoint: Checkpoint,
    max_pixels: int,
    workers: int,
) -> None:
    """Pack these rows, ascending, and save now and then how far it is."""
    n, size = pixels.shape[:2]
    waiting = track(rows, "pack", n, "image", done=n - len(rows))
    with ThreadPoolExecutor(workers) as pool:
        futures = _submit_ahead(pool, lambda row: _pack_picture(dataset, row, size, max_pixels), rows, 2 * workers)
        try:
            for row, future in zip(waiting, futures, strict=True):
                try:
                    picture = future.result()
                    pixels[row] = picture.pixels
                    progress.add(row, picture)
                except ImageError as error:
                    progress.unusable[row] = str(error)
                progress.done = max(progress.done, row + 1)
                if checkpoint.due:
                    pixels.flush()
                    checkpoint.save(progress.content())
        finally:  # an interrupt keeps what is done
            with _uninterrupted():
                pool.shutdown(cancel_futures=True)
                pixels.flush()
                checkpoint.save(progress.content(), at_once=True)


def _submit_ahead(
    pool: ThreadPoolExecutor, function: Callable[[int], _Picture], rows: list[int], most: int
) -> Iterator[Future[_Picture]]:
    """Yield the future of each row in order, of which at most so many are under way."""
    waiting: deque[Future[_Picture]] = deque()
    for position in range(len(rows)):
        while len(waiting) < most and (ahead := position + len(waiting)) < len(rows):
            waiting.append(pool.submit(function, rows[ahead]))
        yield waiting.popleft()


def _pack_picture(dataset: Dataset, row: int, size: int, max_pixels: int) -> _Picture:
    """Return a row's picture, decoded and resized.

    Raises:
        ImageError: It cannot be used.
    """
    picture, name = dataset.image(row), dataset.table.paths[row]
    file = _file_state(picture)
    notes: list[str] = []
    if isinstance(picture, Path):
        picture, notes = decode_noting(picture, max_pixels, name)
    elif picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or picture.size == 0:
        array = f"{picture.dtype} array of shape {picture.shape}"
        raise ImageError(f"{name}: {array}, expected (h, w, 3) uint8")
    height, width = picture.shape[:2]
    odd = oddities(picture)
    small = resize(picture, size)
    digest = hashlib.blake2b(small.tobytes(), digest_size=16).digest()
    return _Picture(small, (height, width), notes + odd, digest, file)


def _raise_if_unusable(unusable: dict[int, str], n: int, bad_images: Literal["stop", "drop"]) -> None:
    """Raise where pictures that cannot be used stop the run.

    Raises:
        ImageError: As `pack` says.
    """
    if unusable and (bad_images == "stop" or len(unusable) == n):
        reasons = [reason for _, reason in sorted(unusable.items())]
        kind = NothingUsable if len(reasons) == n else ImageError
        raise kind("\n".join([f"{len(reasons)} of {n} images cannot be used:", *reasons]))


def _copy_rows(pixels: np.memmap, rows: np.ndarray, path: Path, source: str) -> Path:
    """Copy some pictures to a file of their own.

    Returns:
        That file.
    """
    _allocate(path, len(rows), pixels.shape[1], source)
    copy = hdf5.map_array(path, "pixels")
    for position, row in enumerate(rows):
        copy[position] = pixels[row]
    copy.flush()
    return path


def _describe(path: Path, rows: np.ndarray, progress: _Progress) -> Packed:
    """Return what is known of the pictures of a file, which are these rows of the dataset."""
    position = np.full(len(progress.sizes), -1)
    position[rows] = np.arange(len(rows))
    equal: dict[bytes, list[int]] = {}
    for number, row in enumerate(rows):
        equal.setdefault(progress.digests[row].tobytes(), []).append(number)
    return Packed(
        file=path,
        rows=rows,
        sizes=progress.sizes[rows],
        notes={note: [int(position[row]) for row in sorted(noted)] for note, noted in sorted(progress.notes.items())},
        duplicates=[group for group in equal.values() if len(group) > 1],
        unusable=dict(sorted(progress.unusable.items())),
    )


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay an interrupt until the block has ended.

    Raises:
        KeyboardInterrupt: One came.
    """
    if threading.current_thread() is not threading.main_thread():  # no interrupt ever comes there
        yield
        return
    received: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if received and handler is not signal.SIG_IGN:
        raise KeyboardInterrupt


def _allocate(path: Path, n: int, size: int, source: str) -> None:
    """Make a file for n pictures, with all the room that they will take.

    Raises:
        SourceError: There is too little.
    """
    axes, units, shape = "image, height, width, channel (RGB)", "0 to 255", (n, size, size, 3)
    try:
        hdf5.allocate(path, "pixels", shape, axes=axes, units=units, size=size, source=source)
    except OSError as error:
        need = f"{n * size * size * 3 / 1e9:.3g} GB"
        raise SourceError(f"packed pictures need {need} in {path.parent}: {error.strerror or error}") from error
