"""Pack a dataset: every picture decoded and resized once, into one HDF5 file that training reads by row.

What is packed so far lies beside the outputs until the file is whole, so that an interrupted run goes on where it
stopped. Pictures stream through a few threads; the bytes of the file do not depend on them.
"""

import hashlib
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import PIL
from tqdm import tqdm

from pipeline import images, storage
from pipeline.checkpoint import Checkpoint
from pipeline.images import ImageError, decode_noting, resize
from pipeline.table import Dataset, SourceError

TINY = 16  # pixels; a side below this is worth a look (placeholders of dead links are 1 x 1)


@dataclass(frozen=True)
class Packed:
    """What `pack` found out about the M pictures it packed.

    Args:
        file: The whole file, beside the resume point and gone with it.
        rows: (M,) int64, which rows of the dataset they are, ascending: all, or those that could be used.
        sizes: (M, 2) int64, height and width before resizing, in pixels.
        notes: What was done or is odd -> the packed pictures concerned, ascending: "several frames, first used",
            "turned upright", "transparency laid on white", "greyscale", "tiny", ...
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
    """What is known of the first ``done`` rows; the rest of each array waits."""

    done: int
    sizes: np.ndarray
    digests: np.ndarray
    notes: dict[str, list[int]] = field(default_factory=dict)
    unusable: dict[int, str] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        """Return it as plain values."""
        arrays = {name: getattr(self, name)[: self.done].tobytes().hex() for name in ("sizes", "digests")}
        return {"done": self.done, "notes": self.notes, "unusable": self.unusable, **arrays}

    @classmethod
    def of(cls, found: dict[str, Any] | None, n: int) -> "_Progress":
        """Return what `content` gave, for n rows; nothing done where that is None."""
        new = cls(0, np.zeros((n, 2), np.int64), np.zeros((n, 16), np.uint8))
        if found:
            new.done, new.notes, new.unusable = found["done"], found["notes"], found["unusable"]
            for name in ("sizes", "digests"):
                array = getattr(new, name)
                array[: new.done] = np.frombuffer(bytes.fromhex(found[name]), array.dtype).reshape(-1, array.shape[1])
        return new


def stamp(dataset: Dataset) -> list[Any]:
    """Return what packed pixels depend on beside the raw data's names and sizes, for the key of a resume point.

    Args:
        dataset: A dataset whose pictures are all files, or all drawn by the source.

    Returns:
        JSON values: when each file was last written, in nanoseconds (None where there is none; nothing of drawn
        pictures), hashes of the code that decodes, and Pillow's version.
    """
    times: list[int | None] = []
    for row in range(len(dataset.table.paths)):
        picture = dataset.image(row)
        if isinstance(picture, np.ndarray):
            break
        try:
            times.append(picture.stat().st_mtime_ns)
        except OSError:
            times.append(None)
    return [times, storage.sha256(__file__), storage.sha256(images.__file__), PIL.__version__]


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
            again, those that could not be used are; the caller discards it once the file is in place.
        progress: Whether to show a bar where the output is a terminal.
        workers: Decoding threads; by default one per core, at most 8.

    Returns:
        The file; rows, sizes, notes, duplicates and what was left out, for the report.

    Raises:
        ImageError: pictures cannot be used and stop the run, or none can; all are listed, each with its reason.
        SourceError: the disk has too little room.
    """
    partial = checkpoint.folder / "images.h5"
    n = len(dataset.table.paths)
    state = _Progress.of(checkpoint.load() if partial.exists() else None, n)
    if not partial.exists():
        _allocate(partial, n, size, source)
    pixels = storage.map_hdf5(partial, "pixels", write=True)
    _fill(dataset, pixels, state, checkpoint, progress, workers)
    if state.unusable and (bad_images == "stop" or len(state.unusable) == n):
        raise ImageError("\n".join([f"{len(state.unusable)} of {n} images cannot be used:", *state.unusable.values()]))
    rows = np.array([row for row in range(n) if row not in state.unusable], np.int64)
    whole = partial
    if len(rows) < n:
        whole = partial.with_name("kept.h5")
        _allocate(whole, len(rows), size, source)
        kept = storage.map_hdf5(whole, "pixels", write=True)
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


def _fill(
    dataset: Dataset, pixels: np.memmap, state: _Progress, checkpoint: Checkpoint, progress: bool, workers: int | None
) -> None:
    """Pack the rows that are not done or could not be used, noting now and then how far it is."""
    paths, size, n = dataset.table.paths, pixels.shape[1], len(pixels)
    rows = [*sorted(state.unusable), *range(state.done, n)]  # a file may be readable again

    def work(row: int) -> tuple[np.ndarray, tuple[int, int], list[str], bytes]:
        picture = dataset.image(row)
        if isinstance(picture, np.ndarray):
            notes: list[str] = []
            if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or picture.size == 0:
                shape = f"{picture.dtype} array of shape {picture.shape}"
                raise ImageError(f"{paths[row]}: {shape}, expected (h, w, 3) uint8")
        else:
            picture, notes = decode_noting(picture, paths[row])
        height, width = picture.shape[:2]
        if min(height, width) < TINY:
            notes.append("tiny")
        small = resize(picture, size)
        return small, (height, width), notes, hashlib.blake2b(small.tobytes(), digest_size=16).digest()

    workers = max(1, min(os.cpu_count() or 1, 8) if workers is None else workers)
    waiting: deque[Future[Any]] = deque()
    shown = tqdm(rows, "pack", n, initial=n - len(rows), unit="image", disable=None if progress else True)
    with ThreadPoolExecutor(workers) as pool:
        try:
            for position, row in enumerate(shown):
                while len(waiting) < 2 * workers and (ahead := position + len(waiting)) < len(rows):
                    waiting.append(pool.submit(work, rows[ahead]))
                try:
                    pixels[row], state.sizes[row], found, digest = waiting.popleft().result()
                    state.digests[row] = np.frombuffer(digest, np.uint8)
                    for note in found:
                        state.notes.setdefault(note, []).append(row)
                    state.unusable.pop(row, None)
                except ImageError as error:
                    state.unusable[row] = str(error)
                state.done = max(state.done, row + 1)
                if checkpoint.due:
                    pixels.flush()
                    checkpoint.save(state.content())
        finally:  # an interrupt keeps what is done
            pool.shutdown(cancel_futures=True)
            pixels.flush()
            checkpoint.save(state.content(), at_once=True)


def _allocate(path: Path, n: int, size: int, source: str) -> None:
    """Make the file, with all the room that it will take.

    Raises:
        SourceError: There is too little.
    """
    axes, units, shape = "image, height, width, channel (RGB)", "0 to 255", (n, size, size, 3)
    try:
        storage.allocate_hdf5(path, "pixels", shape, axes=axes, units=units, size=size, source=source)
    except OSError as error:
        need = f"{n * size * size * 3 / 1e9:.3g} GB"
        raise SourceError(f"packed pictures need {need} in {path.parent}: {error.strerror or error}") from error
