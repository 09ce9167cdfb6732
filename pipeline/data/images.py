"""Pictures: decode any image file to RGB, resize it exactly, read packed ones by row.

Decoding follows what a picture looks like in a viewer, not what its bytes say first: orientation tags are applied,
transparency is laid on white, 16-bit and float greys are scaled. What cannot be shown faithfully is an error with a
reason, never a grey rectangle. Nothing else in the project opens a raw picture.

Where HEIC says how to turn a picture its decoder does, and clears the tag; of AVIF Pillow makes a tag of it.

Colour profiles are not applied, since networks were pretrained on pictures read without; a picture with a profile other
than sRGB is noted. Every CMYK JPEG is taken to hold inverted values, as Adobe writes and viewers read them. Of 16-bit
colour the high byte is kept, which is at most 1 off. A JPEG that was cut short and closed again decodes without a
complaint: one whose last corner is plain grey, as decoders fill what is missing, is noted.
"""

import io
import os
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from pipeline.core import hdf5
from pipeline.core.errors import FileError, SourceError
from pipeline.data.formats import FORMATS, explain_unread

Image.MAX_IMAGE_PIXELS = None  # the limit is a setting, held to right after the header is read, before a pixel is

BACKGROUND = (255, 255, 255)  # under transparent pixels: cut-outs and drawings are mostly made to lie on a white page

_PNG = b"\x89PNG\r\n\x1a\n"
_TEXTS = (b"tEXt", b"zTXt", b"iTXt", b"iCCP")  # chunks of a PNG whose length Pillow limits
_SRGB = re.compile(b"sRGB|\0s\0R\0G\0B")  # in a profile's name, of version 2 or 4
_KEY_STEPS = {"L;2": 85, "L;4": 17}  # Pillow stretches grey of few bits to 8, but not the value that is transparent
_PHOTOMETRIC = 262  # TIFF tag; 0: white is zero, which Pillow heeds up to 8 bits

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


def decode(source: Path | str | bytes, max_pixels: int, name: str | None = None) -> np.ndarray:
    """Decode one image file.

    Args:
        source: A file, or the bytes of one.
        max_pixels: Width times height above which it is not decoded.
        name: Its name in messages; by default the path.

    Returns:
        (h, w, 3) uint8 RGB: first frame, turned upright by its orientation tag, transparency laid on white (but where
        nothing at all is visible, which is no transparency but a channel that nobody filled), 16-bit
        grey divided by 257 (12-bit by 4095 / 255), float grey in [0, 1] times 255; all rounded to the nearest.

    Raises:
        ImageError: The file is unreadable, empty, of a format that is not allowed, damaged, truncated, larger than
            `max_pixels`, or its values have no known range.
    """  # noqa: DOC502  raised by `decode_noting`
    return decode_noting(source, max_pixels, name)[0]


def decode_noting(source: Path | str | bytes, max_pixels: int, name: str | None = None) -> tuple[np.ndarray, list[str]]:
    """Decode one image file and note what was done to it.

    Args:
        source: As in `decode`.
        max_pixels: As in `decode`.
        name: As in `decode`.

    Returns:
        (h, w, 3) uint8 RGB, and notes in words: "turned upright", "greyscale", ...

    Raises:
        ImageError: As `decode` says.
    """
    if name is None:
        name = "<bytes>" if isinstance(source, bytes) else str(source)
    data = source if isinstance(source, bytes) else _read_bytes(Path(source), name)
    if not data:
        raise ImageError(f"{name}: empty file")
    try:
        return _decode_bytes(data, max_pixels)
    except UnidentifiedImageError as error:
        content = "a web page or XML" if data.lstrip()[:1] == b"<" else "no picture"
        other = f"a format other than {', '.join(FORMATS)}, or of a kind of these that is not read"
        raise ImageError(f"{name}: {explain_unread(data) or f'{content}, or of {other}'}") from error
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from error
    except Exception as error:  # decoders raise nearly anything on damaged bytes
        raise ImageError(f"{name}: {str(error) or type(error).__name__}") from error


def header(path: Path) -> str:
    """Return format, size and mode of a picture file in words, without decoding it.

    Args:
        path: The file.

    Returns:
        As in `JPEG picture, 20 x 16 pixels, RGB`.

    Raises:
        OSError: It cannot be read, or is no picture.
    """
    if not os.path.isfile(path):
        raise OSError("no regular file")
    with Image.open(path, formats=FORMATS) as image:
        return f"{image.format} picture, {image.width} x {image.height} pixels, {image.mode}"


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

    A small file is held in memory whole. A large one is mapped when its first row is asked for, and anew by each
    process that it is sent to, so that nothing but its name is ever pickled into a worker.

    Args:
        path: File of `packing.pack`.
        memory: Bytes up to which the file is held in memory.

    Raises:
        FileError: The file is absent, damaged or incomplete, or holds no packed pictures.
    """

    def __init__(self, path: Path | str, memory: int = 1 << 30):
        self.path = Path(path)
        pixels = self._map()
        self.shape: tuple[int, ...] = pixels.shape
        self._held = pixels[np.arange(len(self))] if pixels.nbytes <= memory else None
        self._mapped: hdf5.Mapped | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        rows = np.asarray(rows, dtype=np.int64).reshape(-1)
        if len(wrong := rows[(rows < 0) | (rows >= len(self))]):
            raise IndexError(f"{self.path}: row {wrong[0]} of {len(self)}")
        if self._held is not None:
            return self._held[rows]
        if self._mapped is None:
            self._mapped = self._map()
        return self._mapped[rows]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the map: pickled, it would be the whole array."""
        return self.__dict__ | {"_mapped": None}

    def _map(self) -> hdf5.Mapped:
        pixels = hdf5.Mapped(self.path, "pixels")
        if len(pixels.shape) != 4 or pixels.shape[3] != 3:
            raise FileError(f"{self.path}: `pixels` is {pixels.shape}, expected (N, size, size, 3)")
        return pixels


def _read_bytes(path: Path, name: str) -> bytes:
    """Return what a file holds.

    Raises:
        ImageError: It cannot be read.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device could be read for ever
        raise ImageError(f"{name}: cannot be read (no regular file)")
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # no file can have a name with NUL, or with half a character
        reason = getattr(error, "strerror", None) or error
        raise ImageError(f"{name}: cannot be read ({reason})") from error


def _decode_bytes(data: bytes, max_pixels: int) -> tuple[np.ndarray, list[str]]:
    """Return pixels and notes of the bytes of a picture.

    Raises:
        ValueError: Pillow cannot read them.
    """
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            return _decode_opened(image, max_pixels)
    except ValueError as error:  # a text of more than 1 MB, or 64 MB of text, for which Pillow refuses sound pixels
        if not data.startswith(_PNG) or not re.search("MAX_TEXT|text chunks", str(error)):
            raise
    with Image.open(io.BytesIO(_without_texts(data)), formats=FORMATS) as image:
        pixels, notes = _decode_opened(image, max_pixels)
    return pixels, ["long text or colour profile passed over", *notes]


def _without_texts(data: bytes) -> bytes:
    """Return a PNG without its texts and colour profile."""
    kept, at = [_PNG], len(_PNG)
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind not in _TEXTS:
            kept.append(data[at : at + 12 + length])
        at += 12 + length
    return b"".join(kept) + data[at:]


def _decode_opened(image: Image.Image, max_pixels: int) -> tuple[np.ndarray, list[str]]:
    """Return pixels and notes of a picture that is opened and not loaded.

    Raises:
        ImageError: It is too large, or the range of its values is not known; the message is the bare reason.
    """
    if image.width * image.height > max_pixels:
        raise ImageError(
            f"{image.width} x {image.height} pixels, more than the limit of {max_pixels} (prepare: max_pixels)"
        )
    raw_mode = _raw_mode(image)
    image.load()
    notes = ["several frames, first used"] if getattr(image, "is_animated", False) else []
    if (profile := image.info.get("icc_profile")) and not _SRGB.search(profile):
        notes.append("colour profile not applied")
    orientation = _orientation(image)
    rgb = _to_rgb(image, raw_mode, notes)
    if image.format == "JPEG" and _ends_grey(rgb):
        notes.append("ends in plain grey")
    if orientation in _UPRIGHT:
        notes.append("turned upright")
        rgb = rgb.transpose(_UPRIGHT[orientation])
    return np.array(rgb), notes


def _raw_mode(image: Image.Image) -> str:
    """Return the name of Pillow's decoders for how an opened picture's values are stored; "" where it is not known."""
    tiles = getattr(image, "tile", None)
    arguments = tiles[0].args if tiles else ""
    first = arguments[0] if isinstance(arguments, tuple) and arguments else arguments
    return first if isinstance(first, str) else ""


def _orientation(image: Image.Image) -> int | None:
    """Return the orientation tag of a loaded picture.

    Loaded, since a PNG may carry the tag behind its pixels, and a TIFF's own is applied and dropped while loading.
    """
    try:
        return image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # a damaged tag block says nothing about the pixels
        return None


def _ends_grey(rgb: Image.Image) -> bool:
    """Return whether the last corner is the plain grey with which decoders fill what is missing."""
    corner = rgb.crop((max(0, rgb.width - 8), max(0, rgb.height - 8), *rgb.size))
    return set(corner.tobytes()) == {128}


def _to_rgb(image: Image.Image, raw_mode: str, notes: list[str]) -> Image.Image:
    """Return a loaded picture of any mode in mode RGB, and append to `notes` what a reader may want to know.

    Raises:
        ImageError: The range of the values is not known; the message is the bare reason.
    """
    key = image.info.get("transparency")
    if image.mode.startswith("I;16") or image.mode == "F":
        return Image.fromarray(_scale_grey(image, raw_mode, key, notes)).convert("RGB")
    if image.mode == "I":
        raise ImageError("32-bit integer values have no known range")
    if raw_mode.startswith("RGB;16") and key is not None:
        raise ImageError("16-bit colour of which one colour is transparent is not read")
    if raw_mode in _KEY_STEPS and isinstance(key, int):
        image.info["transparency"] = key * _KEY_STEPS[raw_mode]
    if image.has_transparency_data:
        picture = image.convert("RGBA")
        if picture.getchannel("A").getextrema() == (0, 0):  # as BMP and TIFF hold a fourth channel that nobody filled
            notes.append("transparent throughout, ignored")
            return picture.convert("RGB")
        notes.append("transparency laid on white")
        page = Image.new("RGBA", image.size, (*BACKGROUND, 255))
        page.alpha_composite(picture)
        return page.convert("RGB")
    if image.mode in ("1", "L"):
        notes.append("greyscale")
    if image.mode == "CMYK":
        notes.append("CMYK, colours approximate")
    return image.convert("RGB")


def _scale_grey(image: Image.Image, raw_mode: str, key: object, notes: list[str]) -> np.ndarray:
    """Return grey of more than 8 bits as (h, w) uint8.

    Raises:
        ImageError: The range of the values is not known; the message is the bare reason.
    """
    values = np.asarray(image)
    if image.mode == "F":
        most, note = 1.0, "float greyscale, times 255"
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
            raise ImageError(f"float values from {values.min():g} to {values.max():g}; only [0, 1] has a known meaning")
    elif raw_mode == "I;12":
        most, note = 4095.0, "12-bit greyscale, scaled"
    else:
        most, note = 65535.0, "16-bit greyscale, divided by 257"
    notes.append(note)
    scaled = np.round(values.astype(np.float32) * np.float32(255 / most)).astype(np.uint8)
    if getattr(image, "tag_v2", {}).get(_PHOTOMETRIC) == 0:
        scaled = 255 - scaled
    if isinstance(key, int) and (values != key).any():
        notes.append("transparency laid on white")
        scaled[values == key] = 255
    return scaled
