"""Pictures: decode any image file to RGB, resize it exactly, pack a dataset into one HDF5 file, read it by row.

Decoding follows what a picture looks like in a viewer, not what its bytes say first: orientation tags are applied,
transparency is laid on white, 16-bit and float greys are scaled. What cannot be shown faithfully is an error with a
reason, never a grey rectangle.
"""

import hashlib
import io
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError
from tqdm import tqdm

from pipeline import storage
from pipeline.table import Dataset, SourceError

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")  # told by content; JPEG includes MPO, several in one file
BACKGROUND = (255, 255, 255)  # under transparent pixels: cut-outs and drawings are mostly made to lie on a white page
TINY = 16  # pixels; a side below this is worth a look (placeholders of dead links are 1 x 1)

_UPRIGHT = {  # EXIF orientation -> what turns the stored picture upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class ImageError(SourceError):
    """A picture cannot be used; the message names it and says why."""


@dataclass(frozen=True)
class Packed:
    """What `pack` found out about the N pictures it packed.

    Args:
        sizes: (N, 2) int64, height and width before resizing, in pixels.
        notes: What was done or is odd -> the rows concerned, ascending: "several frames, first used", "turned upright",
            "transparency laid on white", "greyscale", "tiny", ...
        duplicates: Groups of two or more rows with equal packed pixels, each ascending.
    """

    sizes: np.ndarray
    notes: dict[str, list[int]]
    duplicates: list[list[int]]


def decode(source: Path | str | bytes, name: str | None = None) -> np.ndarray:
    """Decode one image file.

    Args:
        source: A file, or the bytes of one.
        name: How messages call it; by default the path.

    Returns:
        (h, w, 3) uint8 RGB: first frame, turned upright by its orientation tag, transparency laid on white, 16-bit
        grey divided by 257, float grey in [0, 1] times 255.

    Raises:
        ImageError: the file is unreadable, empty, of a format that is not allowed, damaged, truncated, larger than
            Pillow's `MAX_IMAGE_PIXELS`, or its values have no known range.
    """
    return _decode(source, name)[0]


def resize(array: np.ndarray, size: int) -> np.ndarray:
    """Resize a picture to an exact square: bilinear, with antialiasing where it shrinks; the aspect ratio is not kept.

    Args:
        array: (h, w, 3) uint8.
        size: Side of the square, in pixels, at least 1.

    Returns:
        (size, size, 3) uint8.
    """
    if array.shape[:2] == (size, size):
        return np.ascontiguousarray(array)
    return np.asarray(Image.fromarray(array).resize((size, size), Image.Resampling.BILINEAR))


def pack(
    dataset: Dataset, size: int, path: Path | str, *, source: str, progress: bool = True, workers: int | None = None
) -> Packed:
    """Decode and resize every picture of a dataset and write them to one file, in row order.

    The file holds `pixels`, (N, size, size, 3) uint8, one chunk per picture, with attributes `size` and `source`.
    Pictures stream through a few threads: at most two per thread are held, and the bytes do not depend on the number
    of threads.

    Args:
        dataset: The dataset.
        size: Side of the packed pictures, in pixels.
        path: The HDF5 file; an earlier one is replaced only when the new one is complete.
        source: Name of the source, kept in the file.
        progress: Whether to show a bar where the output is a terminal.
        workers: Decoding threads; by default one per core, at most 8.

    Returns:
        Sizes, notes and duplicates, for the report.

    Raises:
        ImageError: pictures cannot be used; all of them are listed, each with its reason, and nothing was written.
    """
    paths = dataset.table.paths

    def work(row: int) -> tuple[np.ndarray, tuple[int, int], list[str], bytes]:
        picture = dataset.image(row)
        if isinstance(picture, np.ndarray):
            notes: list[str] = []
            if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or picture.size == 0:
                shape = f"{picture.dtype} array of shape {picture.shape}"
                raise ImageError(f"{paths[row]}: {shape}, expected (h, w, 3) uint8")
        else:
            picture, notes = _decode(picture, paths[row])
        height, width = picture.shape[:2]
        if min(height, width) < TINY:
            notes.append("tiny")
        small = resize(picture, size)
        return small, (height, width), notes, hashlib.blake2b(small.tobytes(), digest_size=16).digest()

    n = len(paths)
    workers = max(1, min(os.cpu_count() or 1, 8) if workers is None else workers)
    sizes = np.zeros((n, 2), np.int64)
    notes: dict[str, list[int]] = {}
    same: dict[bytes, list[int]] = {}
    bad: list[str] = []
    with storage.create_hdf5(path) as file, ThreadPoolExecutor(workers) as pool:
        pixels = file.create_dataset("pixels", (n, size, size, 3), np.uint8, chunks=(1, size, size, 3))
        pixels.attrs["axes"], pixels.attrs["units"] = "image, height, width, channel (RGB)", "0 to 255"
        file.attrs["size"], file.attrs["source"] = size, source
        waiting: deque[tuple[int, Future]] = deque()
        for step in tqdm(range(n), desc="pack", unit="image", disable=None if progress else True):
            while len(waiting) < 2 * workers and (row := step + len(waiting)) < n:
                waiting.append((row, pool.submit(work, row)))
            row, future = waiting.popleft()
            try:
                small, sizes[row], found, digest = future.result()
            except ImageError as error:
                bad.append(str(error))
                continue
            if not bad:  # the file is given up once one picture is bad; the others are still looked at
                pixels[row] = small
            for note in found:
                notes.setdefault(note, []).append(row)
            same.setdefault(digest, []).append(row)
        if bad:
            raise ImageError("\n".join([f"{len(bad)} of {n} images cannot be used:", *bad]))
    return Packed(sizes, dict(sorted(notes.items())), [rows for rows in same.values() if len(rows) > 1])


class Pixels:
    """The packed pictures of one file, by row.

    A small file is held in memory whole. A large one is opened anew for each read, so that no HDF5 handle ever
    crosses a fork or is pickled into a worker process.

    Args:
        path: File of `pack`.
        memory: Bytes up to which the file is held in memory.

    Raises:
        StorageError: the file is absent, damaged or incomplete.
    """

    def __init__(self, path: Path | str, memory: int = 1 << 30):
        self.path = Path(path)
        with _opened(path) as pixels:
            self.shape: tuple[int, int, int, int] = pixels.shape
            self._held = _fetch(pixels, None) if pixels.nbytes <= memory else None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        rows = _row_numbers(rows, len(self), self.path)
        return read(self.path, rows) if self._held is None else self._held[rows]


def read(path: Path | str, rows: Sequence[int] | np.ndarray) -> np.ndarray:
    """Read some pictures of a packed file.

    Args:
        path: File of `pack`.
        rows: R row numbers, in any order, also repeated.

    Returns:
        (R, size, size, 3) uint8, in the order of `rows`.

    Raises:
        StorageError: the file is absent, damaged or incomplete.
        IndexError: there is no such row.
    """
    with _opened(path) as pixels:
        return _fetch(pixels, _row_numbers(rows, len(pixels), path))


@contextmanager
def _opened(path: Path | str) -> Iterator[Any]:
    """Yield the dataset `pixels` of a packed file.

    Raises:
        StorageError: the file is absent, damaged or incomplete, or holds no packed pictures.
    """
    with storage.open_hdf5(path) as file:
        pixels = file.get("pixels")
        if pixels is None or pixels.ndim != 4 or pixels.shape[3] != 3 or pixels.dtype != np.uint8:
            raise storage.StorageError(f"{path}: holds no `pixels` of (N, size, size, 3) uint8")
        try:
            yield pixels
        except OSError as error:
            raise storage.StorageError(f"{path}: damaged ({error})") from error


def _row_numbers(rows: Sequence[int] | np.ndarray, n: int, path: Path | str) -> np.ndarray:
    rows = np.asarray(rows, dtype=np.int64).reshape(-1)
    wrong = rows[(rows < 0) | (rows >= n)]
    if len(wrong):
        raise IndexError(f"{path}: row {wrong[0]} of {n}")
    return rows


def _decode(source: Path | str | bytes, name: str | None) -> tuple[np.ndarray, list[str]]:
    """Decode a picture and say what was done to it.

    Returns:
        (h, w, 3) uint8 RGB, and notes in words.

    Raises:
        ImageError: as `decode` says.
    """
    if name is None:
        name = "<bytes>" if isinstance(source, bytes) else str(source)
    try:
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
    except OSError as error:
        raise ImageError(f"{name}: cannot be read ({error.strerror or error})") from error
    if not data:
        raise ImageError(f"{name}: empty file")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            limit = Image.MAX_IMAGE_PIXELS
            if limit is not None and image.width * image.height > limit:  # Pillow only warns below twice the limit
                raise ImageError(f"{image.width} x {image.height} pixels, more than the limit of {limit}")
            image.load()
            notes = ["several frames, first used"] if getattr(image, "is_animated", False) else []
            orientation = _orientation(image)
            rgb = _rgb(image, notes)
    except UnidentifiedImageError as error:
        what = "a web page or XML" if data.lstrip()[:1] == b"<" else "no picture"
        raise ImageError(f"{name}: {what}, or of a format other than {', '.join(FORMATS)}") from error
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from error
    except Exception as error:  # decoders raise nearly anything on damaged bytes
        raise ImageError(f"{name}: {str(error) or type(error).__name__}") from error
    if orientation in _UPRIGHT:
        notes.append("turned upright")
        rgb = rgb.transpose(_UPRIGHT[orientation])
    return np.array(rgb), notes


def _orientation(image: Image.Image) -> int | None:
    # Asked after load(): a PNG may carry the tag behind its pixels; a TIFF's own is applied and dropped while loading.
    try:
        return image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # a damaged tag block says nothing about the pixels
        return None


def _rgb(image: Image.Image, notes: list[str]) -> Image.Image:
    """Bring a loaded picture of any mode to RGB, appending to `notes` what a reader may want to know.

    Returns:
        The picture in mode RGB.

    Raises:
        ImageError: the range of the values is not known; the message is the bare reason.
    """
    if image.mode.startswith("I;16"):
        notes.append("16-bit greyscale, divided by 257")
        values = np.asarray(image).astype(np.uint32)
        return Image.fromarray(((values + 128) // 257).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        values = np.asarray(image)
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
            raise ImageError(f"float values from {values.min():g} to {values.max():g}; only [0, 1] has a known meaning")
        notes.append("float greyscale, times 255")
        return Image.fromarray(np.round(values * 255).astype(np.uint8)).convert("RGB")
    if image.mode == "I":
        raise ImageError("32-bit integer values have no known range")
    if image.has_transparency_data:
        notes.append("transparency laid on white")
        page = Image.new("RGBA", image.size, (*BACKGROUND, 255))
        page.alpha_composite(image.convert("RGBA"))
        return page.convert("RGB")
    if image.mode in ("1", "L"):
        notes.append("greyscale")
    return image.convert("RGB")


def _fetch(pixels: Any, rows: np.ndarray | None) -> np.ndarray:
    if rows is None:
        return pixels[()]
    result = np.empty((len(rows), *pixels.shape[1:]), np.uint8)
    for place, row in enumerate(rows):  # one chunk each; HDF5's own index lists are slower and must ascend
        pixels.read_direct(result, np.s_[int(row)], np.s_[place])
    return result
