"""Pictures: decode any image file to RGB, resize it exactly, read packed ones by row.

Decoding follows what a picture looks like in a viewer, not what its bytes say first: orientation tags are applied,
transparency is laid on white, 16-bit and float greys are scaled. What cannot be shown faithfully is an error with a
reason, never a grey rectangle.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from pipeline import storage
from pipeline.table import SourceError

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")  # told by content; JPEG includes MPO, several in one file
BACKGROUND = (255, 255, 255)  # under transparent pixels: cut-outs and drawings are mostly made to lie on a white page

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
    return decode_noting(source, name)[0]


def decode_noting(source: Path | str | bytes, name: str | None = None) -> tuple[np.ndarray, list[str]]:
    """Decode one image file and say what was done to it.

    Args:
        source: As in `decode`.
        name: As in `decode`.

    Returns:
        (h, w, 3) uint8 RGB, and notes in words: "turned upright", "greyscale", ...

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


class Pixels:
    """The packed pictures of one file, by row.

    A small file is held in memory whole. A large one is mapped anew by each process, so that nothing but its name ever
    crosses a fork or is pickled into a worker.

    Args:
        path: File of `packing.pack`.
        memory: Bytes up to which the file is held in memory.

    Raises:
        StorageError: the file is absent, damaged or incomplete, or holds no packed pictures.
    """

    def __init__(self, path: Path | str, memory: int = 1 << 30):
        self.path = Path(path)
        pixels = self._map()
        self.shape: tuple[int, int, int, int] = pixels.shape
        self._held = np.array(pixels) if pixels.nbytes <= memory else None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        rows = np.asarray(rows, dtype=np.int64).reshape(-1)
        if len(wrong := rows[(rows < 0) | (rows >= len(self))]):
            raise IndexError(f"{self.path}: row {wrong[0]} of {len(self)}")
        return np.asarray((self._map() if self._held is None else self._held)[rows])

    def _map(self) -> np.memmap:
        pixels = storage.map_hdf5(self.path, "pixels")
        if pixels.ndim != 4 or pixels.shape[3] != 3:
            raise storage.StorageError(f"{self.path}: `pixels` is {pixels.shape}, expected (N, size, size, 3)")
        return pixels


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
