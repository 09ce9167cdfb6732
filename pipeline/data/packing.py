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
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import PIL
from tqdm import tqdm

from pipeline.core import hdf5
from pipeline.core.errors import SourceError
from pipeline.core.files import sha256
from pipeline.core.resume import Checkpoint
from pipeline.data import images
from pipeline.data.images import ImageError, decode_noting, resize
from pipeline.labels.table import Dataset

TINY = 16  # pixels; a side below this is worth a look (placeholders of dead links are 1 x 1)
EXTREME = 8  # sides; a picture that is more than so many times as long as wide shows little, squeezed to a square
ODD = {
    "tiny": f"with a side below {TINY} pixels, as placeholders have",
    "extreme shape": f"of one side more than {EXTREME} times the other, packed as a square all the same",
    "ends in plain grey": "ending in plain grey, as files do that were cut short",
}
"""Notes that a person must see -> what is said of such pictures."""


class NothingUsable(ImageError):
    """None of a dataset's pictures can be used."""


@dataclass(frozen=True)
class Packed:
    """What `pack` found out about the M pictures it packed.

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


@dataclass
class _Progress:
    """What is known of the first ``done`` rows; the rest of each array waits.

    ``files`` holds the state of each row's file (`_file_state`) before it was read: zeros for a drawn picture, -1 where
    the row is to be packed again or could not be used (its bytes tell: they are never -1 otherwise).
    """

    done: int
    sizes: np.ndarray
    digests: np.ndarray
    files: np.ndarray
    notes: dict[str, list[int]] = field(default_factory=dict)
    unusable: dict[int, str] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        """Return it as plain values."""
        arrays = {name: getattr(self, name)[: self.done].tobytes().hex() for name in ("sizes", "digests", "files")}
        return {"done": self.done, "notes": self.notes, "unusable": self.unusable, **arrays}

    def changed(self, dataset: Dataset) -> list[int]:
        """Return the rows whose file is another than when they were packed."""
        packed = np.flatnonzero((self.files[: self.done] > 0).any(axis=1)).tolist()  # drawn ones are not drawn for this
        return [row for row in packed if tuple(self.files[row]) != _file_state(dataset.image(row))]

    def forget(self, rows: list[int]) -> None:
        """Take rows for those that are to be packed again."""
        gone = set(rows)
        self.files[rows] = -1
        left = {note: [row for row in found if row not in gone] for note, found in self.notes.items()}
        self.notes = {note: found for note, found in left.items() if found}

    @classmethod
    def of(cls, found: dict[str, Any] | None, n: int) -> "_Progress":
        """Return what `content` gave, for n rows; nothing done where that is None."""
        new = cls(0, np.zeros((n, 2), np.int64), np.zeros((n, 16), np.uint8), np.zeros((n, 4), np.int64))
        if found:
            new.done, new.notes, new.unusable = found["done"], found["notes"], found["unusable"]
            for name in ("sizes", "digests", "files"):
                array = getattr(new, name)
                array[: new.done] = np.frombuffer(bytes.fromhex(found[name]), array.dtype).reshape(-1, array.shape[1])
        return new


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


def oddities(height: int, width: int) -> list[str]:
    """Return what is odd about the size of a picture, in pixels: keys of `ODD`."""
    short, long = sorted((height, width))
    return (["tiny"] if short < TINY else []) + (["extreme shape"] if long > EXTREME * short else [])


def _file_state(picture: np.ndarray | Path) -> tuple[int, int, int, int]:
    """Return what changes with a picture's file: time of writing, bytes, inode, time of change; zeros without a file.

    Archives and copies set the first two at will; a rename, a copy or a write changes one of the others. Where inodes
    are not stable, as on some network disks, pictures are decoded once more for nothing.
    """
    try:
        status = None if isinstance(picture, np.ndarray) else picture.stat()
    except OSError:
        status = None
    if status is None:
        return 0, 0, 0, 0
    inode = status.st_ino & (2**63 - 1)  # of 64 bits or more, unsigned
    return status.st_mtime_ns, status.st_size, inode, status.st_ctime_ns


def pack(
    dataset: Dataset,
    size: int,
    *,
    source: str,
    bad_images: Literal["stop", "drop"],
    checkpoint: Checkpoint,
    progress: bool = True,
    workers: int | None = None,
) -> Packed:
    """Decode and resize every picture of a dataset and write them to one file, in row order, within the resume point.

    The file holds `pixels`, (M, size, size, 3) uint8 in one piece, with attributes `size` and `source`. At most two
    pictures per thread are held.

    Args:
        dataset: The dataset.
        size: Side of the packed pictures, in pixels.
        source: Name of the source, kept in the file.
        bad_images: What pictures that cannot be used do: `stop` the run, all of them listed, or `drop` out.
        checkpoint: Resume point for these very pictures and this size (`stamp`). Rows that are packed are not decoded
            again unless their file has changed, those that could not be used are; a damaged one counts for nothing,
            which is said. The caller discards it once the file is in place.
        progress: Whether to show a bar where the output is a terminal.
        workers: Decoding threads; by default one per core, at most 8.

    Returns:
        The file; rows, sizes, notes, duplicates and what was left out, for the report.

    Raises:
        ImageError: pictures cannot be used and stop the run; all are listed, each with its reason.
        NothingUsable: none of them can be used, whatever `bad_images` says.
        KeyboardInterrupt: someone stopped it; what is packed is kept, and that is said.
        SourceError: the disk has too little room.
        FileError: how far it is cannot be saved; what was saved before stays.
    """
    partial = checkpoint.folder / "images.h5"
    n = len(dataset.table.paths)
    state = _resumed(checkpoint, partial, n, size)
    changed = state.changed(dataset)
    if partial.exists() and (not state.done or (changed and partial.stat().st_nlink > 1)):
        partial.unlink()  # it is of no use, or was put in place, where it never changes
        state = _Progress.of(None, n)
    again = np.flatnonzero(state.files[: state.done, 1] < 0).tolist()
    open_rows = sorted({*changed, *again, *range(state.done, n)})
    state.forget(open_rows)
    if not partial.exists():
        checkpoint.forget()  # before there is a file that an earlier note could be taken to be about
        _allocate(partial, n, size, source)
    elif changed:  # noted before a pixel changes, so that no earlier state of a file is ever taken for the new one
        checkpoint.save(state.content(), at_once=True)
    pixels = hdf5.map_array(partial, "pixels", write=True)
    try:
        _fill(dataset, open_rows, pixels, state, checkpoint, progress, workers)
    except KeyboardInterrupt:
        packed = int((state.files[: state.done, 1] >= 0).sum())
        tqdm.write(f"packing was interrupted: {packed} of {n} pictures are packed and kept; start again to go on there")
        raise
    if state.unusable and (bad_images == "stop" or len(state.unusable) == n):
        reasons = [reason for _, reason in sorted(state.unusable.items())]
        kind = NothingUsable if len(reasons) == n else ImageError
        raise kind("\n".join([f"{len(reasons)} of {n} images cannot be used:", *reasons]))
    rows = np.array([row for row in range(n) if row not in state.unusable], np.int64)
    whole = partial
    if len(rows) < n:
        whole = partial.with_name("kept.h5")
        _allocate(whole, len(rows), size, source)
        kept = hdf5.map_array(whole, "pixels", write=True)
        for place, row in enumerate(rows):
            kept[place] = pixels[row]
        kept.flush()
    place = np.full(n, -1)
    place[rows] = np.arange(len(rows))
    same: dict[bytes, list[int]] = {}
    for number, row in enumerate(rows):
        same.setdefault(state.digests[row].tobytes(), []).append(number)
    return Packed(
        file=whole,
        rows=rows,
        sizes=state.sizes[rows],
        notes={note: [int(place[row]) for row in sorted(found)] for note, found in sorted(state.notes.items())},
        duplicates=[group for group in same.values() if len(group) > 1],
        unusable=dict(sorted(state.unusable.items())),
    )


def _resumed(checkpoint: Checkpoint, partial: Path, n: int, size: int) -> _Progress:
    """Return how far an interrupted run came; where its state or its file is damaged, say so and begin anew."""
    found = checkpoint.load() if partial.exists() else None
    try:
        state = _Progress.of(found, n)
        shape = hdf5.map_array(partial, "pixels").shape if state.done else (n, size, size, 3)
        reason = f"{partial}: pictures of shape {shape}" if shape != (n, size, size, 3) else ""
    except Exception as error:  # readers raise nearly anything on damaged bytes
        state, reason = _Progress.of(None, n), str(error) or type(error).__name__
    if reason:
        checkpoint.say_damaged(reason)
        state = _Progress.of(None, n)
    return state


def _fill(
    dataset: Dataset,
    rows: list[int],
    pixels: np.memmap,
    state: _Progress,
    checkpoint: Checkpoint,
    progress: bool,
    workers: int | None,
) -> None:
    """Pack these rows, ascending, noting now and then how far it is."""
    paths, size, n = dataset.table.paths, pixels.shape[1], len(pixels)

    def work(row: int) -> tuple[np.ndarray, tuple[int, int], list[str], bytes, tuple[int, ...]]:
        picture = dataset.image(row)
        file = _file_state(picture)
        if isinstance(picture, np.ndarray):
            notes: list[str] = []
            if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or picture.size == 0:
                shape = f"{picture.dtype} array of shape {picture.shape}"
                raise ImageError(f"{paths[row]}: {shape}, expected (h, w, 3) uint8")
        else:
            picture, notes = decode_noting(picture, paths[row])
        height, width = picture.shape[:2]
        notes += oddities(height, width)
        small = resize(picture, size)
        return small, (height, width), notes, hashlib.blake2b(small.tobytes(), digest_size=16).digest(), file

    workers = max(1, min(os.cpu_count() or 1, 8) if workers is None else workers)
    waiting: deque[Future[Any]] = deque()
    shown = tqdm(rows, "pack", n, initial=n - len(rows), unit="image", disable=None if progress else True)
    with ThreadPoolExecutor(workers) as pool:
        try:
            for position, row in enumerate(shown):
                while len(waiting) < 2 * workers and (ahead := position + len(waiting)) < len(rows):
                    waiting.append(pool.submit(work, rows[ahead]))
                try:
                    pixels[row], state.sizes[row], found, digest, file = waiting.popleft().result()
                    state.digests[row] = np.frombuffer(digest, np.uint8)
                    for note in found:
                        state.notes.setdefault(note, []).append(row)
                    state.unusable.pop(row, None)
                    state.files[row] = file
                except ImageError as error:
                    state.unusable[row] = str(error)
                state.done = max(state.done, row + 1)
                if checkpoint.due:
                    pixels.flush()
                    checkpoint.save(state.content())
        finally:  # an interrupt keeps what is done
            with _uninterrupted():
                pool.shutdown(cancel_futures=True)
                pixels.flush()
                checkpoint.save(state.content(), at_once=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let an interrupt wait until the block has ended.

    Raises:
        KeyboardInterrupt: one came.
    """
    if threading.current_thread() is not threading.main_thread():  # no interrupt ever comes there
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came and before is not signal.SIG_IGN:
        raise KeyboardInterrupt


def _allocate(path: Path, n: int, size: int, source: str) -> None:
    """Make the file, with all the room that it will take.

    Raises:
        SourceError: There is too little.
    """
    axes, units, shape = "image, height, width, channel (RGB)", "0 to 255", (n, size, size, 3)
    try:
        hdf5.allocate(path, "pixels", shape, axes=axes, units=units, size=size, source=source)
    except OSError as error:
        need = f"{n * size * size * 3 / 1e9:.3g} GB"
        raise SourceError(f"packed pictures need {need} in {path.parent}: {error.strerror or error}") from error
