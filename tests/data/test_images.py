import io
import os
import re
import struct
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from pipeline.data import images
from pipeline.data.images import ImageError

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)

LIMIT = 10**8  # pixels


def decode(source, name=None, max_pixels=LIMIT) -> np.ndarray:
    return images.decode(source, max_pixels, name)


def decode_noting(source, max_pixels=LIMIT) -> tuple[np.ndarray, list[str]]:
    return images.decode_noting(source, max_pixels)


def encoded(image: Image.Image, form: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def photo(height: int = 40, width: int = 60) -> bytes:
    return encoded(Image.fromarray(noise(height, width)), "JPEG", quality=90)


def png(width: int, height: int, bits: int, kind: int, rows: bytes, transparent: bytes | None = None) -> bytes:
    """A PNG by its parts (ISO/IEC 15948): `rows` each begin with filter 0, `transparent` is the tRNS chunk."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0))]
    parts += [(b"tRNS", transparent)] if transparent is not None else []
    parts += [(b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data)) for tag, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def bomb(side: int) -> bytes:
    """A 1-bit PNG of side x side zeros: a few kB that decode to side * side pixels."""
    return png(side, side, 1, 0, bytes(1 + (side + 7) // 8) * side)


def tiff(
    width: int, data: bytes, *, bits: int, meaning: int, samples: int = 1, kind: int = 1, alpha: int = -1
) -> bytes:
    """A TIFF of one row (TIFF 6.0), little endian, uncompressed.

    Args:
        width: Pixels.
        data: The row.
        bits: Bits a sample.
        meaning: PhotometricInterpretation: 0 white is zero, 1 black is zero, 2 RGB.
        samples: Samples a pixel.
        kind: SampleFormat: 1 unsigned, 3 float.
        alpha: ExtraSamples, where 0 or more: 1 premultiplied alpha.
    """
    tags = [
        (256, 4, width),
        (257, 4, 1),
        (258, 3, bits),
        (259, 3, 1),
        (262, 3, meaning),
        (273, 4, 0),
        (277, 3, samples),
    ]
    tags += [(278, 4, 1), (279, 4, len(data)), *([(338, 3, alpha)] if alpha >= 0 else []), (339, 3, kind)]
    end = 8 + 2 + 12 * len(tags) + 4
    several = struct.pack(f"<{samples}H", *[bits] * samples) + struct.pack(f"<{samples}H", *[kind] * samples)
    entries = b""
    for tag, size, value in tags:
        count, value = (samples, end + 2 * samples * (tag == 339)) if tag in (258, 339) and samples > 2 else (1, value)
        entries += struct.pack("<HHII", tag, size, count, end + len(several) if tag == 273 else value)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + several + data


def noted(data: bytes) -> tuple[list, list[str]]:
    found, notes = decode_noting(data)
    return found.tolist(), notes


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
        (bomb(14_000), "x.jpg: 14000 x 14000 pixels, more than the limit of 100000000"),
        (encoded(Image.fromarray(np.array([[0.0, 2.0]], np.float32)), "TIFF"), r"x.jpg: float values from 0 to 2"),
        (encoded(Image.fromarray(np.array([[0.0, np.nan]], np.float32)), "TIFF"), "x.jpg: float values"),
        (encoded(Image.fromarray(np.array([[0, 1 << 20]], np.int32)), "TIFF"), "x.jpg: 32-bit"),
        (
            tiff(1, struct.pack("<3f", 0, 0.5, 1), bits=32, meaning=2, samples=3, kind=3),
            "x.jpg: no picture, or .* kind",
        ),
        (png(1, 1, 16, 2, bytes(7), bytes(6)), "x.jpg: 16-bit colour of which one colour is transparent"),
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


def test_the_limit_of_pixels_is_the_one_that_is_asked_for():
    assert decode(bomb(10), max_pixels=100).shape == (10, 10, 3)
    with pytest.raises(
        ImageError, match=r"<bytes>: 12 x 12 pixels, more than the limit of 100 \(prepare: max_pixels\)$"
    ):
        decode(bomb(12), max_pixels=100)
    # more than Pillow itself allows: read where it is allowed, and refused unread where it is not
    assert decode(bomb(10_400), max_pixels=110_000_000).shape == (10_400, 10_400, 3)
    with pytest.raises(ImageError, match="14000 x 14000 pixels"):
        decode(bomb(14_000))


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


def test_16_bit_colour_keeps_its_high_byte():
    """At most 1 from v / 257; the same of 16-bit alpha."""
    values = [0, 255, 256, 0x80FF, 0xFEFF, 0xFFFF]
    for kind, samples in ((2, 3), (4, 2), (6, 4)):
        rows = b"\0" + b"".join(
            struct.pack(f">{samples}H", *[v] * (samples - (kind != 2)), *[0xFFFF] * (kind != 2)) for v in values
        )
        found = decode(png(len(values), 1, 16, kind, rows)).astype(int)
        assert found.tolist() == [[[v >> 8] * 3 for v in values]]
        assert np.abs(found[0, :, 0] - np.array(values) / 257).max() < 1
    data = tiff(2, struct.pack("<6H", *[0x80FF] * 3, *[0xFF00] * 3), bits=16, meaning=2, samples=3)
    assert decode(data).tolist() == [[[128] * 3, [255] * 3]]


def test_12_bit_grey_spans_the_whole_range():
    pairs = [0, 4095, 2048, 1000]
    bits = "".join(f"{value:012b}" for value in pairs)
    found, notes = noted(tiff(4, int(bits, 2).to_bytes(6, "big"), bits=12, meaning=1))
    assert found == [[[round(value * 255 / 4095)] * 3 for value in pairs]] and notes == ["12-bit greyscale, scaled"]


@pytest.mark.parametrize("bits, form, kind", [(8, "B", 1), (16, "H", 1), (32, "f", 3)])
def test_where_white_is_zero_it_stays_white(bits, form, kind):
    values = {"B": [0, 255, 51], "H": [0, 65535, 51 * 257], "f": [0.0, 1.0, 0.2]}[form]
    found = decode(tiff(3, struct.pack(f"<3{form}", *values), bits=bits, meaning=0, kind=kind))
    assert found.tolist() == [[[255] * 3, [0] * 3, [204] * 3]]


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_a_transparent_grey_becomes_white_at_any_depth(bits):
    """The key is a stored value (ISO/IEC 15948, 11.3.2.1), of which decoders see the stretched one."""
    most = 2**bits - 1
    for key in {0, 1, most // 2, most}:
        other = most - key if most - key != key else 0
        row = int(f"{key:0{bits}b}{other:0{bits}b}".ljust(8 * -(-2 * bits // 8), "0"), 2).to_bytes(
            -(-2 * bits // 8), "big"
        )
        found, notes = noted(png(2, 1, bits, 0, b"\0" + row, struct.pack(">H", key)))
        assert found == [[[255] * 3, [round(other * 255 / most)] * 3]], (bits, key)
        assert "transparency laid on white" in notes


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


def bmp_v4(pixels: np.ndarray) -> bytes:
    """A 32-bit BMP with masks for all four channels (BITMAPV4HEADER), top row first; pixels (h, w, 4) are RGBA."""
    height, width, _ = pixels.shape
    head = struct.pack("<IiiHHIIiiII", 108, width, -height, 1, 32, 3, pixels.size, 2835, 2835, 0, 0)
    head += struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000) + b"BGRs" + bytes(48)
    return b"BM" + struct.pack("<IHHI", 122 + pixels.size, 0, 0, 122) + head + pixels[..., [2, 1, 0, 3]].tobytes()


def unfilled(colours: np.ndarray) -> dict[str, bytes]:
    """Files of a picture whose alpha is 0 in each pixel; colours are (1, w, 3)."""
    pixels = np.dstack([colours, np.zeros(colours.shape[:2], np.uint8)])
    image, indexed = Image.fromarray(pixels), Image.fromarray(colours).quantize(4)
    return {
        "BMP": bmp_v4(pixels),
        "PNG": encoded(image),
        "WEBP": encoded(image, "WEBP", lossless=True, exact=True),
        "TIFF": encoded(image, "TIFF"),
        "TIFF of four samples": tiff(len(colours[0]), pixels.tobytes(), bits=8, meaning=2, samples=4),
        "palette": encoded(indexed, transparency=bytes(4)),
    }


@pytest.mark.parametrize("form", unfilled(noise(1, 3)))
def test_alpha_that_is_nowhere_filled_hides_nothing(form):
    colours = np.array([[RED, GREEN, BLUE]], np.uint8)
    found, notes = decode_noting(unfilled(colours)[form])
    assert found.tolist() == colours.tolist() and notes == ["transparent throughout, ignored"]


def test_a_bmp_with_filled_alpha_is_laid_on_white():
    pixels = np.array([[[*RED, 0], [*GREEN, 255]]], np.uint8)
    assert decode(bmp_v4(pixels)).tolist() == [[[*WHITE], [*GREEN]]]


def test_grey_of_one_value_that_is_the_transparent_one_stays():
    assert decode(png(2, 1, 16, 0, b"\0" + b"\x80\x80" * 2, b"\x80\x80")).tolist() == [[[128] * 3] * 2]


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


LONG = {
    "tEXt": [chunk(b"tEXt", b"Comment\0" + b"x" * 3_000_000)],
    "zTXt": [chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"x" * 3_000_000))],
    "iTXt": [chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(b"x" * 3_000_000))],
    "iCCP": [chunk(b"iCCP", b"mine\0\0" + zlib.compress(b"x" * 3_000_000))],
    "many texts": [chunk(b"zTXt", b"Comment%d\0\0" % n + zlib.compress(b"x" * 1_000_000)) for n in range(70)],
}


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("kind", LONG)
def test_a_sound_png_with_long_texts_is_read(kind, behind):
    whole = encoded(
        Image.fromarray(noise(5, 6)), exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x03\0\0\0\0\0\0"
    )
    at = whole.rindex(b"IEND") - 4 if behind and kind != "iCCP" else whole.index(b"IDAT") - 4
    found, notes = decode_noting(whole[:at] + b"".join(LONG[kind]) + whole[at:])
    assert np.array_equal(found, noise(5, 6)[::-1, ::-1]) and "turned upright" in notes
    assert "long text or colour profile passed over" in notes or kind == "tEXt"  # which Pillow itself takes


def test_a_damaged_png_with_long_texts_is_refused():
    whole = encoded(Image.fromarray(noise(40, 60)))
    at = whole.index(b"IDAT") - 4
    with pytest.raises(ImageError, match="truncated|broken"):
        decode(whole[:at] + b"".join(LONG["zTXt"]) + whole[at:-2000])


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_is_never_waited_for(tmp_path, kind):
    if kind == "pipe":
        os.mkfifo(tmp_path / "x.jpg")
    else:
        (tmp_path / "x.jpg").symlink_to("/dev/zero")
    with pytest.raises(ImageError, match=r"x\.jpg: cannot be read \(no regular file\)"):
        decode(tmp_path / "x.jpg")


def test_a_transparent_key_colour_becomes_white():
    image = Image.fromarray(np.array([[RED, GREEN]], np.uint8))
    assert decode(encoded(image, transparency=RED)).tolist() == [[[*WHITE], [*GREEN]]]


def test_premultiplied_and_palette_alpha_are_laid_on_white():
    found = decode(tiff(2, bytes([0, 0, 128, 128, 0, 255, 0, 255]), bits=8, meaning=2, samples=4, alpha=1))
    assert found.tolist() == [[[127, 127, 255], [*GREEN]]]
    pixels = Image.new("PA", (2, 1))
    pixels.putpalette([*RED, *GREEN])
    pixels.putdata([(0, 0), (1, 255)])
    assert decode(encoded(pixels, "TIFF")).tolist() == [[[*WHITE], [*GREEN]]]
    assert decode(encoded(palette(RED, GREEN), "GIF", transparency=0)).tolist() == [[[*WHITE], [*GREEN]]]


def test_cmyk_becomes_rgb():
    red = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    for form, options in (("JPEG", {"quality": 95}), ("TIFF", {})):
        found, notes = decode_noting(encoded(red, form, **options))
        assert found.shape == (16, 16, 3) and notes == ["CMYK, colours approximate"]
        assert np.abs(found.astype(int) - RED).max() <= (8 if form == "JPEG" else 0)  # JPEG loses a little
    half_black = encoded(Image.new("CMYK", (16, 16), (0, 0, 0, 128)), "JPEG", quality=95)
    assert np.abs(decode(half_black).astype(int) - 127).max() <= 2


@pytest.mark.parametrize("transform", [0, 2, None])
def test_cmyk_jpegs_hold_inverted_values_whatever_their_mark(transform):
    """0: CMYK as stored. 2: YCCK. None: no Adobe mark; viewers take that for inverted, too."""
    ink = (55, 127, 127, 0) if transform == 2 else (200, 200, 200, 0)
    data = encoded(Image.new("CMYK", (16, 16), ink), "JPEG")
    mark = data.index(b"Adobe") - 4
    assert data[mark : mark + 4] == b"\xff\xee\x00\x0e" and data[mark + 15] == 0
    marked = b"" if transform is None else data[mark : mark + 15] + bytes([transform])
    # As stored: 55 of each colour, 255 of black. Or Y 200, Cb 128, Cr 128, which are 200 of each ink.
    found = decode(data[:mark] + marked + data[mark + 16 :])
    assert np.abs(found.astype(int) - 55).max() <= 3


def test_lab_and_ycbcr_become_rgb():
    grey = Image.new("LAB", (2, 2), (round(255 * 0.5), 128, 128))  # L* = 50: Y = 0.184, sRGB 119
    assert np.abs(decode(encoded(grey, "TIFF")).astype(int) - 119).max() <= 1
    red = Image.new("YCbCr", (2, 2), (76, 85, 255))  # BT.601, full range
    assert np.abs(decode(encoded(red, "TIFF")).astype(int) - RED).max() <= 2


def test_a_foreign_colour_profile_is_noted_and_nothing_else(recwarn):
    from PIL import ImageCms

    picture = Image.fromarray(noise(4, 4))
    common = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    other = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    for profile, notes in (
        (common, []),
        (other, ["colour profile not applied"]),
        (b"junk", ["colour profile not applied"]),
    ):
        assert noted(encoded(picture, icc_profile=profile)) == (noise(4, 4).tolist(), notes)


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
def test_of_several_frames_the_first_is_used_and_that_is_noted(form):
    frames = [Image.new("RGB", (6, 4), colour) for colour in (RED, BLUE)]
    options = {"lossless": True} if form == "WEBP" else {}
    found, notes = noted(encoded(frames[0], form, save_all=True, append_images=frames[1:], **options))
    assert found == [[[*RED]] * 6] * 4 and notes == ["several frames, first used"]


def test_the_content_decides_not_the_name(tmp_path):
    (tmp_path / "a.jpg").write_bytes(encoded(Image.new("RGB", (2, 2), GREEN), "PNG"))
    assert decode(tmp_path / "a.jpg").tolist() == [[[*GREEN]] * 2] * 2
    frames = [Image.new("RGB", (16, 16), colour) for colour in (RED, BLUE)]
    (tmp_path / "b.jpg").write_bytes(encoded(frames[0], "MPO", save_all=True, append_images=frames[1:]))
    found, notes = decode_noting(tmp_path / "b.jpg")
    assert np.abs(found.astype(int) - RED).max() <= 3 and notes == ["several frames, first used"]


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_jpeg_cut_short_and_closed_again_is_noted(mode):
    """Decoders fill what is missing with grey and say nothing; whole pictures are not noted."""
    whole = encoded(Image.fromarray(noise(64, 48)).convert(mode), "JPEG", quality=90)
    note = "ends in plain grey"
    assert note not in noted(whole)[1]
    for share in (0.3, 0.6, 0.9):
        found, notes = decode_noting(whole[: int(share * len(whole))] + b"\xff\xd9")
        assert note in notes and (found[-8:, -8:] == 128).all()
    assert note not in noted(encoded(Image.new("RGB", (9, 9), (127, 128, 129)), "PNG"))[1]


def test_nothing_lets_damaged_files_pass():
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


def test_there_is_one_way_to_decode_a_picture(repository):
    ours = [path for part in ("pipeline", "stages", "benchmarks") for path in (repository / part).rglob("*.py")]
    assert len(ours) > 80
    other = re.compile(
        r"Image\.open|\bImageFile\b|MAX_IMAGE_PIXELS|torchvision\.io|(decode|read)_(image|jpeg|png)|\bcv2\b|imageio|imread"
        r"|default_loader|ImageFolder"
    )
    found = {path.name for path in ours if other.search(path.read_text(encoding="utf-8"))}
    assert found == {"images.py", "standalone.py"}  # which repeats it, since it needs none of ours (tests/bundles)


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
