import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pipeline import images
from pipeline.images import ImageError, decode

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def encoded(image: Image.Image, form: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def photo(height: int = 40, width: int = 60) -> bytes:
    return encoded(Image.fromarray(noise(height, width)), "JPEG", quality=90)


def bomb(side: int) -> bytes:
    """A 1-bit PNG of side x side zeros: a few kB that decode to side * side pixels."""
    row = bytes(1 + (side + 7) // 8)
    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(row * side, 9)), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data)) for tag, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


# ---------------------------------------------------------------------------------------------- files that are refused
@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "x.jpg: empty file"),
        (b"\n <!DOCTYPE html><html>gone</html>", "x.jpg: a web page or XML"),
        (b"GIF89b not really", "x.jpg: no picture"),
        (photo()[: len(photo()) * 2 // 3], "x.jpg: .*truncated"),
        (encoded(Image.fromarray(noise(40, 60)))[:-2000], "x.jpg: .*truncated"),
        (encoded(Image.fromarray(noise(40, 60)), "WEBP", lossless=True)[:-500], "x.jpg: "),
        (photo()[:30], "x.jpg: "),
        (encoded(Image.fromarray(noise(4, 4)), "PPM"), "x.jpg: no picture, or of a format other than JPEG"),
        (encoded(Image.fromarray(noise(16, 16)), "ICO"), "x.jpg: no picture, or of a format other"),
        (bomb(14_000), "x.jpg: .*pixels"),
        (encoded(Image.fromarray(np.array([[0.0, 2.0]], np.float32)), "TIFF"), r"x.jpg: float values from 0 to 2"),
        (encoded(Image.fromarray(np.array([[0.0, np.nan]], np.float32)), "TIFF"), "x.jpg: float values"),
        (encoded(Image.fromarray(np.array([[0, 1 << 20]], np.int32)), "TIFF"), "x.jpg: 32-bit"),
    ],
)
def test_a_file_that_is_no_good_picture_is_named_with_the_reason(data, words):
    with pytest.raises(ImageError, match=words):
        decode(data, "x.jpg")


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(ImageError, match=r"gone\.jpg: cannot be read"):
        decode(tmp_path / "gone.jpg")
    with pytest.raises(ImageError, match="cannot be read"):
        decode(tmp_path)


def test_bytes_without_a_name_are_called_bytes():
    with pytest.raises(ImageError, match="<bytes>: empty file"):
        decode(b"")


@pytest.mark.parametrize("action", ["error", "ignore"])  # Pillow itself only warns below twice its limit
def test_pictures_above_the_limit_are_refused_even_where_pillow_only_warns(monkeypatch, action):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        assert decode(bomb(10)).shape == (10, 10, 3)
        with pytest.raises(ImageError, match=r"<bytes>: .*pixels"):
            decode(bomb(12))


# ---------------------------------------------------------------------------------------------- what pictures become
def test_a_plain_picture_is_itself(tmp_path):
    array = noise(5, 7)
    (tmp_path / "a.png").write_bytes(encoded(Image.fromarray(array)))
    for source in (tmp_path / "a.png", str(tmp_path / "a.png"), (tmp_path / "a.png").read_bytes()):
        found = decode(source)
        assert found.dtype == np.uint8 and found.flags.writeable and np.array_equal(found, array)


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_16_bit_grey_is_scaled_not_cut(form):
    values = np.array([[0, 128, 129, 257, 32896, 65535]], np.uint16)
    found = decode(encoded(Image.fromarray(values), form))
    assert found.tolist() == [[[v, v, v] for v in (0, 0, 1, 1, 128, 255)]]


def test_big_endian_16_bit_grey_is_scaled_too():
    image = Image.frombytes("I;16B", (2, 1), b"\x80\x80\xff\xff")
    assert decode(encoded(image, "TIFF")).tolist() == [[[128] * 3, [255] * 3]]


def test_float_grey_in_the_unit_interval_is_scaled():
    values = np.array([[0.0, 0.2, 1.0]], np.float32)
    assert decode(encoded(Image.fromarray(values), "TIFF")).tolist() == [[[0] * 3, [51] * 3, [255] * 3]]


def test_one_bit_and_grey_become_rgb():
    assert decode(encoded(Image.fromarray(np.array([[True, False]])))).tolist() == [[[255] * 3, [0] * 3]]
    assert decode(encoded(Image.fromarray(np.array([[9, 200]], np.uint8)), "PNG")).tolist() == [[[9] * 3, [200] * 3]]
    assert decode(encoded(Image.new("L", (8, 8), 77), "JPEG")).tolist() == [[[77] * 3] * 8] * 8


def palette(*colours: tuple[int, int, int]) -> Image.Image:
    image = Image.new("P", (len(colours), 1))
    image.putpalette([value for colour in colours for value in colour])
    image.putdata(range(len(colours)))
    return image


def test_palette_with_and_without_transparency():
    assert decode(encoded(palette(RED, GREEN))).tolist() == [[[*RED], [*GREEN]]]
    assert decode(encoded(palette(RED, GREEN), transparency=0)).tolist() == [[[*WHITE], [*GREEN]]]
    # one opacity for each entry: none, all, about half
    found = decode(encoded(palette(RED, GREEN, BLUE), transparency=b"\x00\xff\x80"))
    assert found.tolist() == [[[*WHITE], [*GREEN], [127, 127, 255]]]


def test_transparency_is_laid_on_white_and_hides_its_colour():
    pixels = np.array([[[255, 0, 0, 0], [0, 255, 0, 255], [0, 0, 255, 128]]], np.uint8)
    for form, options in (("PNG", {}), ("TIFF", {}), ("WEBP", {"lossless": True, "exact": True})):
        found = decode(encoded(Image.fromarray(pixels), form, **options))
        assert found.tolist() == [[[*WHITE], [*GREEN], [127, 127, 255]]], form
    grey = Image.new("LA", (2, 1))
    grey.putdata([(0, 0), (10, 255)])
    assert decode(encoded(grey)).tolist() == [[[*WHITE], [10, 10, 10]]]


def test_a_transparent_key_colour_becomes_white():
    image = Image.fromarray(np.array([[RED, GREEN]], np.uint8))
    assert decode(encoded(image, transparency=RED)).tolist() == [[[*WHITE], [*GREEN]]]


def test_cmyk_becomes_rgb():
    red = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    found = decode(encoded(red, "JPEG", quality=95))
    assert found.shape == (16, 16, 3)
    assert np.abs(found.astype(int) - RED).max() <= 8  # JPEG loses a little


UPRIGHT = {  # EXIF 2.32, section 4.6.4: where row 0 and column 0 lie -> the upright picture
    1: lambda stored: stored,
    2: np.fliplr,
    3: lambda stored: np.rot90(stored, 2),
    4: np.flipud,
    5: lambda stored: stored.transpose(1, 0, 2),
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: np.rot90(stored, 2).transpose(1, 0, 2),
    8: np.rot90,
}


@pytest.mark.parametrize("form", ["PNG", "TIFF", "WEBP", "JPEG"])
@pytest.mark.parametrize("orientation", UPRIGHT)
def test_orientation_is_applied_once(form, orientation):
    stored = np.zeros((16, 32, 3), np.uint8)
    stored[:8, :16], stored[:8, 16:], stored[8:, :16] = RED, GREEN, BLUE
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if form == "WEBP" else {"quality": 95, "subsampling": 0} if form == "JPEG" else {}
    found = decode(encoded(Image.fromarray(stored), form, exif=exif, **options))
    wanted = UPRIGHT[orientation](stored)
    assert found.shape == wanted.shape
    assert np.abs(found.astype(int) - wanted).max() <= (60 if form == "JPEG" else 0)


@pytest.mark.parametrize("orientation", [0, 9, 77])
def test_an_orientation_that_does_not_exist_changes_nothing(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert np.array_equal(decode(encoded(Image.fromarray(noise(3, 5)), exif=exif)), noise(3, 5))


def test_a_damaged_tag_block_does_not_spoil_the_picture():
    data = encoded(Image.fromarray(noise(3, 5)), exif=b"Exif\x00\x00II*\x00\xff\xff\xff\x7f")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow may warn of the block
        assert np.array_equal(decode(data), noise(3, 5))


@pytest.mark.parametrize("form", ["GIF", "WEBP", "TIFF", "PNG"])
def test_of_several_frames_the_first_is_used(form):
    frames = [Image.new("RGB", (6, 4), colour) for colour in (RED, BLUE)]
    options = {"lossless": True} if form == "WEBP" else {}
    found = decode(encoded(frames[0], form, save_all=True, append_images=frames[1:], **options))
    assert found.tolist() == [[[*RED]] * 6] * 4


def test_the_content_decides_not_the_name(tmp_path):
    (tmp_path / "a.jpg").write_bytes(encoded(Image.new("RGB", (2, 2), GREEN), "PNG"))
    assert decode(tmp_path / "a.jpg").tolist() == [[[*GREEN]] * 2] * 2
    frames = [Image.new("RGB", (16, 16), colour) for colour in (RED, BLUE)]
    (tmp_path / "b.jpg").write_bytes(encoded(frames[0], "MPO", save_all=True, append_images=frames[1:]))
    found = decode(tmp_path / "b.jpg")
    assert np.abs(found.astype(int) - RED).max() <= 3


@given(st.binary(max_size=300), st.sampled_from(["PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP"]), st.integers(0, 400))
@settings(max_examples=150, deadline=None)
def test_damaged_bytes_never_raise_anything_else(tail, form, keep):
    data = encoded(Image.fromarray(noise(6, 5)), form)[:keep] + tail
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = decode(data)
        except ImageError:
            return
    assert found.dtype == np.uint8 and found.ndim == 3 and found.shape[2] == 3


# ---------------------------------------------------------------------------------------------- resizing
def triangle(length: int, size: int) -> np.ndarray:
    """(size, length) weights of a linear filter that widens with the scale where it shrinks."""
    scale = length / size
    width = max(scale, 1)
    centre = (np.arange(size)[:, None] + 0.5) * scale
    weights = np.maximum(0, 1 - np.abs(np.arange(length) + 0.5 - centre) / width)
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("shape", [(20, 30), (7, 3), (1, 1), (1, 500), (64, 16), (16, 64)])
def test_resize_is_bilinear_with_antialiasing(shape):
    array = noise(*shape)
    found = images.resize(array, 16)
    wanted = np.einsum("ih,jw,hwc->ijc", triangle(shape[0], 16), triangle(shape[1], 16), array.astype(float))
    assert found.shape == (16, 16, 3) and found.dtype == np.uint8
    assert np.abs(found - wanted).max() <= 1.01  # Pillow rounds after each of the two passes


def test_a_picture_of_the_right_size_is_not_touched():
    assert np.array_equal(images.resize(noise(9, 9), 9), noise(9, 9))
