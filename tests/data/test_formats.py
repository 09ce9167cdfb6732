"""HEIC and AVIF, of files that are made here; HEIC where its extra is installed."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from pipeline.data import disk, formats, images

PICTURE = Image.fromarray(
    np.kron(np.arange(6, dtype=np.uint8).reshape(2, 3)[..., None] * 40, np.ones((32, 32, 3))).astype(np.uint8)
)
"""Six squares of different greys, which no turn and no mirror leaves where they are."""
KINDS = [
    pytest.param("HEIF", marks=pytest.mark.skipif(not formats.HEIC, reason="pillow-heif is not installed")),
    pytest.param("AVIF", marks=pytest.mark.skipif(not formats.AVIF, reason="Pillow was built without AVIF")),
]
every_kind = pytest.mark.parametrize("kind", KINDS)
HEIC_HEAD = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64)
AVIF_HEAD = b"\0\0\0\x18ftypavif\0\0\0\0mif1avif" + bytes(64)


def encoded(kind: str, orientation: int = 1, picture: Image.Image = PICTURE) -> bytes:
    """A file whose viewer is to turn it as EXIF orientation says."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    file = io.BytesIO()
    picture.save(file, kind, exif=exif.tobytes(), quality=95)
    return file.getvalue()


def upright(orientation: int) -> np.ndarray:
    """By rotations and mirrors of arrays, from the EXIF standard's own words for each number."""
    stored = np.asarray(PICTURE)
    turned = {
        1: stored,
        2: stored[:, ::-1],  # the 0th column is at the right
        3: stored[::-1, ::-1],
        4: stored[::-1],
        5: stored.swapaxes(0, 1),  # the 0th row is at the left, the 0th column at the top
        6: stored.swapaxes(0, 1)[:, ::-1],
        7: stored.swapaxes(0, 1)[::-1, ::-1],
        8: stored.swapaxes(0, 1)[::-1],
    }
    return turned[orientation]


@every_kind
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_once(kind: str, orientation: int) -> None:
    pixels = images.decode(encoded(kind, orientation), 10**6)
    expected = upright(orientation)
    assert pixels.shape == expected.shape
    assert np.abs(pixels.astype(int) - expected).mean() < 4


@pytest.mark.skipif(not formats.HEIC, reason="pillow-heif is not installed")
def test_a_tag_beside_the_turn_of_heic_turns_nothing() -> None:
    """As phones write it: the box turns the picture, and EXIF says the same once more."""
    data = encoded("HEIF", 6)
    assert b"irot" in data and b"\x01\x12\0\x03\0\0\0\x01\0\x06" in data  # orientation, a short, one value: 6
    pixels, notes = images.decode_noting(data, 10**6)
    assert np.abs(pixels.astype(int) - upright(6)).mean() < 4 and notes == []


@every_kind
def test_limits_and_damage_are_those_of_every_picture(kind: str) -> None:
    data = encoded(kind)
    with pytest.raises(images.ImageError, match="96 x 64 pixels, more than the limit of 6143"):
        images.decode(data, 96 * 64 - 1, "x")
    for end in (40, len(data) // 2, len(data) - 30):
        with pytest.raises(images.ImageError, match="^x: "):
            images.decode(data[:end], 10**6, "x")
    clear = PICTURE.convert("RGBA")
    clear.putalpha(Image.fromarray(np.array([[0, 255, 255]], np.uint8).repeat(32, axis=1).repeat(64, axis=0)))
    pixels, notes = images.decode_noting(encoded(kind, picture=clear), 10**6)
    assert notes == ["transparency laid on white"] and pixels[:, :28].min() > 250


@every_kind
def test_a_folder_of_them_is_read(kind: str, tmp_path: Path) -> None:
    name = {"HEIF": "a.HEIC", "AVIF": "a.avif"}[kind]
    (tmp_path / name).write_bytes(encoded(kind))
    assert disk.scan(tmp_path, "inside").pictures == [name]


# ---------------------------------------------------------------------------------------------- where they are not read
@pytest.fixture
def neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_READ", {"HEIC": False, "AVIF": False})


def test_the_message_that_counts_them_names_what_reads_them(neither: None) -> None:
    found = disk.Found(unread=["b.AVIF", "a.heic", "c.dng"])
    (line,) = found.warnings()
    assert line == (
        "3 pictures of endings that are not read were left out: b.AVIF, a.heic, c.dng; HEIC is read once its extra is "
        "installed: pip install 'spml[heic]'; AVIF is read by a Pillow that was built with it: pip install --upgrade "
        "pillow"
    )
    (line,) = disk.Found(unread=["c.dng"]).warnings()
    assert line.endswith("left out: c.dng")


def test_one_by_another_name_is_known_by_its_content(neither: None) -> None:
    with pytest.raises(
        images.ImageError, match=r"^x\.jpg: HEIC is read once its extra is installed: pip install 'spml"
    ):
        images.decode(HEIC_HEAD, 10**6, "x.jpg")
    assert "AVIF is read by a Pillow" in formats.explain_unread(AVIF_HEAD)
    assert formats.explain_unread(b"\0\0\0\x18ftypisom") == formats.explain_unread(b"") == ""


def test_endings_are_read_or_told_and_never_both() -> None:
    assert not set(formats.ENDINGS) & set(formats.UNREAD)
    told = {*formats.ENDINGS, *formats.UNREAD}
    assert {".heic", ".heif", ".avif", ".jpg", ".dng"} <= told
