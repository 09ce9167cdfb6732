import io
import pickle
import struct
import threading
import time
import warnings
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pipeline import images
from pipeline.images import ImageError, decode
from pipeline.storage import StorageError, create_hdf5
from pipeline.table import Dataset, Table

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


# ---------------------------------------------------------------------------------------------- packing
def dataset(pictures, names=None) -> Dataset:
    n = len(pictures)
    table = Table(
        classes=("a",),
        paths=tuple(names or (f"{row}.jpg" for row in range(n))),
        truth=np.ones((n, 1), np.int8),
        scored=np.ones((n, 1), bool),
        split=np.zeros(n, np.uint8),
        official=np.zeros(n, np.uint8),
    )
    return Dataset(table, lambda row: pictures[row])


def pack(data: Dataset, size: int, path: Path, **options):
    return images.pack(data, size, path, source="test", **options)


def test_pack_keeps_row_order_and_bytes_whatever_the_threads(tmp_path):
    pictures = [noise(10 + row % 5, 12, seed=row) for row in range(40)]
    slow = dataset(pictures)
    late = Dataset(slow.table, lambda row: (time.sleep(0.01 if row % 7 == 0 else 0), pictures[row])[1])
    for name, workers in (("one.h5", 1), ("many.h5", 7)):
        pack(late, 8, tmp_path / name, workers=workers)
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "many.h5").read_bytes()
    with h5py.File(tmp_path / "one.h5") as file:
        assert file["pixels"].shape == (40, 8, 8, 3) and file["pixels"].chunks == (1, 8, 8, 3)
        assert (file.attrs["size"], file.attrs["source"], file.attrs["complete"]) == (8, "test", 1)
        assert file["pixels"].attrs["axes"] == "image, height, width, channel (RGB)"
        for row, picture in enumerate(pictures):
            assert np.array_equal(file["pixels"][row], images.resize(picture, 8))


def test_pack_reports_sizes_notes_and_equal_pictures(tmp_path):
    pictures = [noise(20, 30), noise(1, 1), noise(20, 30), tmp_path / "grey.jpg", noise(40, 17)]
    (tmp_path / "grey.jpg").write_bytes(encoded(Image.new("L", (50, 60), 5), "JPEG"))
    packed = pack(dataset(pictures), 6, tmp_path / "images.h5")
    assert packed.sizes.tolist() == [[20, 30], [1, 1], [20, 30], [60, 50], [40, 17]]
    assert packed.notes == {"greyscale": [3], "tiny": [1]}
    assert packed.duplicates == [[0, 2]]


@pytest.mark.parametrize(
    "name, options, note",
    [
        (
            "frames.gif",
            {"save_all": True, "append_images": [Image.new("RGB", (20, 20), RED)]},
            "several frames, first used",
        ),
        (
            "turned.png",
            {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"},
            "turned upright",
        ),
    ],
)
def test_pack_notes_what_was_done_to_a_picture(tmp_path, name, options, note):
    Image.new("RGB", (20, 20), BLUE).save(tmp_path / name, **options)
    assert pack(dataset([tmp_path / name]), 4, tmp_path / "images.h5").notes == {note: [0]}


def test_all_bad_pictures_are_listed_and_nothing_is_lost(tmp_path):
    target = tmp_path / "images.h5"
    pack(dataset([noise(3, 3)]), 4, target)
    before = target.read_bytes()
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "page.jpg").write_text("<html></html>")
    (tmp_path / "half.jpg").write_bytes(photo()[: len(photo()) // 2])
    (tmp_path / "good.jpg").write_bytes(photo())
    files = [tmp_path / name for name in ("good.jpg", "empty.jpg", "page.jpg", "good.jpg", "half.jpg", "gone.jpg")]
    names = ["a/good.jpg", "a/empty.jpg", "a/page.jpg", "b/good.jpg", "a/half.jpg", "a/gone.jpg"]
    with pytest.raises(ImageError) as caught:
        pack(dataset([*files, np.zeros((3, 3), np.uint8)], [*names, "flat"]), 4, target)
    first, *lines = str(caught.value).split("\n")
    assert first == "5 of 7 images cannot be used:"
    for line, (name, words) in zip(
        lines,
        [
            ("a/empty.jpg", "empty file"),
            ("a/page.jpg", "web page"),
            ("a/half.jpg", "truncated"),
            ("a/gone.jpg", "cannot be read"),
            ("flat", "expected (h, w, 3) uint8"),
        ],
        strict=True,
    ):
        assert line.startswith(f"{name}: ") and words in line
    assert target.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"images.h5", "empty.jpg", "page.jpg", "half.jpg", "good.jpg"}


def test_pack_holds_few_pictures_at_a_time(tmp_path):
    asked, at_release = [], []
    go_on = threading.Event()

    def image(row: int) -> np.ndarray:
        asked.append(row)
        if row == 0:
            go_on.wait(10)
        return noise(3, 3, seed=row)

    def release() -> None:
        time.sleep(0.3)  # long enough for the other threads to take all that they may
        at_release.append(max(asked))
        go_on.set()

    timer = threading.Thread(target=release)
    timer.start()
    data = dataset([None] * 60)
    pack(Dataset(data.table, image), 4, tmp_path / "images.h5", workers=3)
    timer.join()
    assert at_release == [5]  # two for each of three threads
    assert sorted(asked) == list(range(60))


def test_pack_is_quiet_where_there_is_no_terminal(tmp_path, capfd):
    pack(dataset([noise(3, 3)] * 5), 4, tmp_path / "images.h5")
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------------------------------------- reading
@pytest.fixture
def packed(tmp_path) -> Path:
    pack(dataset([noise(5, 5, seed=row) for row in range(12)]), 5, tmp_path / "images.h5")
    return tmp_path / "images.h5"


@pytest.mark.parametrize("memory", [0, 1 << 30])
@pytest.mark.parametrize("rows", [[3], [11, 0, 5], [2, 2, 7, 2], [], list(range(12))])
def test_rows_come_back_in_the_order_asked(packed, memory, rows):
    wanted = np.stack([noise(5, 5, seed=row) for row in range(12)])[rows]
    pixels = images.Pixels(packed, memory=memory)
    assert np.array_equal(pixels[np.array(rows, int)], wanted) and pixels[rows].shape == (len(rows), 5, 5, 3)
    assert np.array_equal(images.read(packed, rows), wanted)
    assert len(pixels) == 12 and pixels.shape == (12, 5, 5, 3)


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_a_row_that_does_not_exist_is_an_error(packed, memory):
    pixels = images.Pixels(packed, memory=memory)
    for row in (-1, 12):
        with pytest.raises(IndexError, match=rf"images\.h5: row {row} of 12"):
            pixels[[0, row]]


def test_pixels_hold_no_handle_and_travel_to_other_processes(packed):
    pixels = images.Pixels(packed, memory=0)
    first = pixels[[4]]
    with h5py.File(packed, "a"):  # an open reader would hold a lock
        pass
    assert np.array_equal(pickle.loads(pickle.dumps(pixels))[[4]], first)


def test_rows_from_memory_are_copies(packed):
    pixels = images.Pixels(packed)
    pixels[[0]][:] = 0
    assert np.array_equal(pixels[[0]][0], noise(5, 5, seed=0))


def test_interrupted_and_foreign_files_are_refused(packed):
    whole = packed.read_bytes()
    for cut in (0, 100, len(whole) // 2):
        packed.write_bytes(whole[:cut])
        with pytest.raises(StorageError, match=r"images\.h5"):
            images.Pixels(packed)
    with create_hdf5(packed) as file:
        file["other"] = [1]
    with pytest.raises(StorageError, match="holds no `pixels`"):
        images.read(packed, [0])
    packed.unlink()
    with pytest.raises(StorageError, match="no such file"):
        images.Pixels(packed)
