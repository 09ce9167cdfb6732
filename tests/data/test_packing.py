import errno
import fcntl
import io
import os
import pickle
import shutil
import signal
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from pipeline.core import hdf5, seal
from pipeline.core.errors import FileError, SourceError
from pipeline.core.files import link_or_copy, write_torch
from pipeline.core.hdf5 import create
from pipeline.core.resume import Checkpoint
from pipeline.data import images, packing
from pipeline.data.images import ImageError
from pipeline.data.packing import Packed
from pipeline.labels.table import Dataset, Table

RED, BLUE = (255, 0, 0), (0, 0, 255)


def encoded(image: Image.Image, form: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form)
    return buffer.getvalue()


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def photo() -> bytes:
    return encoded(Image.fromarray(noise(40, 60)), "JPEG")


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


def pack(data: Dataset, size: int, path: Path, interval: float = 60.0, bad_images: Any = "stop", **options) -> Packed:
    """Pack as prepare does, which puts the file in place and then lets go of the resume point."""
    with Checkpoint(path.parent / "scratch" / "point", interval) as point:
        limits = packing.Limits(bad_images, 10**8)
        packed = packing.pack(data, size, source="test", limits=limits, checkpoint=point, **options)
        seal.append(packed.file, lies_at=path)
        link_or_copy(packed.file, path)
        point.delete()
    return packed


def test_pack_keeps_row_order_and_bytes_whatever_the_threads(tmp_path):
    pictures = [noise(10 + row % 5, 12, seed=row) for row in range(40)]
    slow = dataset(pictures)
    late = Dataset(slow.table, lambda row: (time.sleep(0.01 if row % 7 == 0 else 0), pictures[row])[1])
    for name, workers in (("one.h5", 1), ("many.h5", 7)):
        pack(late, 8, tmp_path / name, workers=workers)
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "many.h5").read_bytes()
    with h5py.File(tmp_path / "one.h5") as file:
        assert file["pixels"].shape == (40, 8, 8, 3) and file["pixels"].chunks is None
        assert (file.attrs["size"], file.attrs["source"]) == (8, "test")
        assert file["pixels"].attrs["axes"] == "image, height, width, channel (RGB)"
        for row, picture in enumerate(pictures):
            assert np.array_equal(file["pixels"][row], images.resize(picture, 8))


def test_pack_reports_sizes_notes_and_equal_pictures(tmp_path):
    pictures = [noise(20, 30), noise(1, 1), noise(20, 30), tmp_path / "grey.jpg", noise(40, 17)]
    (tmp_path / "grey.jpg").write_bytes(encoded(Image.new("L", (50, 60), 5), "JPEG"))
    packed = pack(dataset(pictures), 6, tmp_path / "images.h5")
    assert packed.sizes.tolist() == [[20, 30], [1, 1], [20, 30], [60, 50], [40, 17]]
    assert packed.notes == {"greyscale": [3], "one colour": [3], "tiny": [1]}
    assert packed.duplicates == [[0, 2]]


def test_odd_shapes_are_noted(tmp_path):
    shapes = [(1, 1), (1, 5000), (5000, 1), (20, 160), (20, 161), (161, 20), (16, 16), (15, 40)]
    packed = pack(dataset([noise(*shape) for shape in shapes]), 8, tmp_path / "images.h5")
    assert packed.notes == {"extreme shape": [1, 2, 4, 5], "tiny": [0, 1, 2, 7]}
    assert images.Pixels(tmp_path / "images.h5").shape == (8, 8, 8, 3)


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
    picture = Image.new("RGB", (20, 20), BLUE)
    picture.paste(RED, (0, 0, 9, 9))
    picture.save(tmp_path / name, **options)
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
    assert {path.name for path in tmp_path.iterdir()} == {
        *("images.h5", "empty.jpg", "page.jpg", "half.jpg", "good.jpg", "scratch")
    }


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


# ---------------------------------------------------------------------------------------------- dropping and resuming
def test_bad_pictures_drop_out_where_that_is_asked(tmp_path):
    (tmp_path / "page.jpg").write_text("<html></html>")
    pictures = [noise(20, 30), tmp_path / "page.jpg", noise(1, 1), noise(20, 30), np.zeros((0, 3, 3), np.uint8)]
    packed = pack(dataset(pictures), 6, tmp_path / "images.h5", bad_images="drop")
    assert packed.rows.tolist() == [0, 2, 3]
    assert packed.sizes.tolist() == [[20, 30], [1, 1], [20, 30]]
    assert (packed.notes, packed.duplicates) == ({"tiny": [1]}, [[0, 2]])
    assert list(packed.unusable) == [1, 4] and packed.unusable[1].startswith("1.jpg: a web page")
    wanted = np.stack([images.resize(pictures[row], 6) for row in (0, 2, 3)])
    assert np.array_equal(images.Pixels(tmp_path / "images.h5")[[0, 1, 2]], wanted)
    assert not (tmp_path / "scratch").exists()
    whole = pack(dataset([pictures[row] for row in (0, 2, 3)]), 6, tmp_path / "whole.h5")
    assert whole.unusable == {} and (tmp_path / "whole.h5").read_bytes() == (tmp_path / "images.h5").read_bytes()


def test_pictures_that_are_all_bad_are_an_error_even_so(tmp_path):
    with pytest.raises(ImageError, match="2 of 2 images cannot be used"):
        pack(dataset([tmp_path / "no.jpg", tmp_path / "none.jpg"]), 6, tmp_path / "images.h5", bad_images="drop")


@pytest.mark.parametrize("stop", [0, 1, 17, 39])
@pytest.mark.parametrize("interval", [0.0, 60.0])
def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, stop, interval):
    """Bytes, sizes, notes and duplicates are those of a run in one go, and no picture is decoded twice."""
    pictures = [noise(10 + row % 3, 12, seed=row % 30) for row in range(40)]
    whole = pack(dataset(pictures), 8, tmp_path / "whole.h5")
    asked: list[int] = []

    def image(row: int) -> np.ndarray:
        asked.append(row)
        if row == stop and asked.count(row) == 1:
            raise KeyboardInterrupt
        return pictures[row]

    data = Dataset(dataset(pictures).table, image)
    with pytest.raises(KeyboardInterrupt):
        pack(data, 8, tmp_path / "images.h5", interval, workers=1)
    assert not (tmp_path / "images.h5").exists()
    before = len(asked)
    again = pack(data, 8, tmp_path / "images.h5", interval, workers=1)
    assert asked[before:] == list(range(stop, 40))
    assert (tmp_path / "images.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()
    assert np.array_equal(again.sizes, whole.sizes) and again.duplicates == whole.duplicates
    assert (again.notes, again.unusable) == (whole.notes, {})
    assert not (tmp_path / "scratch").exists()


def test_a_killed_run_goes_on_from_its_last_note(tmp_path, monkeypatch):
    """What was written after that note is written again."""
    pictures = [noise(9, 9, seed=row) for row in range(12)]
    pack(dataset(pictures), 4, tmp_path / "whole.h5")
    saved: list[dict] = []
    monkeypatch.setattr(Checkpoint, "save", lambda self, content, **_: saved.append(content))
    monkeypatch.setattr(Checkpoint, "delete", lambda self: None)

    def image(row: int) -> np.ndarray:
        if row == 9:
            raise MemoryError
        return pictures[row]

    broken = Dataset(dataset(pictures).table, image)
    with pytest.raises(MemoryError):
        pack(broken, 4, tmp_path / "images.h5", 0.0, workers=1)
    monkeypatch.undo()
    early = next(content for content in saved if content["done"] == 5)
    with Checkpoint(tmp_path / "scratch" / "point") as point:
        point.save(early, at_once=True)
    pack(dataset(pictures), 4, tmp_path / "images.h5")
    assert (tmp_path / "images.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_after_a_stop_only_unusable_pictures_are_decoded_again(tmp_path):
    pictures: list[Any] = [noise(9, 9), tmp_path / "no.jpg", noise(5, 5), tmp_path / "late.jpg"]
    with pytest.raises(ImageError):
        pack(dataset(pictures), 4, tmp_path / "images.h5")
    asked: list[int] = []
    data = Dataset(dataset(pictures).table, lambda row: (asked.append(row), pictures[row])[1])
    (tmp_path / "late.jpg").write_bytes(photo())  # mended, or readable again
    packed = pack(data, 4, tmp_path / "images.h5", bad_images="drop")
    assert sorted(asked) == [1, 3] and packed.rows.tolist() == [0, 2, 3] and list(packed.unusable) == [1]
    wanted = images.resize(images.decode(photo(), 10**8), 4)
    assert np.array_equal(images.Pixels(tmp_path / "images.h5")[[2]][0], wanted)


@pytest.mark.parametrize("interrupt", [False, True])
def test_a_picture_that_can_be_read_again_is_packed(tmp_path, interrupt):
    """As from a disk that was away; also where the second try is interrupted between two such pictures."""
    greys = {row: encoded(Image.new("L", (20, 20), 10 * row), "PNG") for row in (1, 3, 4)}
    files = {row: tmp_path / f"{row}.png" for row in greys}
    files[4].write_bytes(greys[4])
    pictures: list[Any] = [noise(9, 9), files[1], noise(5, 5), files[3], files[4]]
    with pytest.raises(ImageError, match="2 of 5"):
        pack(dataset(pictures), 4, tmp_path / "images.h5", workers=1)
    for row in (1, 3):
        files[row].write_bytes(greys[row])
    if interrupt:

        def broken(row: int) -> Any:
            if row == 3:
                raise KeyboardInterrupt
            return pictures[row]

        with pytest.raises(KeyboardInterrupt):
            pack(Dataset(dataset(pictures).table, broken), 4, tmp_path / "images.h5", workers=1)
    again = pack(dataset(pictures), 4, tmp_path / "images.h5", workers=1)
    whole = pack(dataset(pictures), 4, tmp_path / "whole.h5")
    assert again.unusable == {} and again.rows.tolist() == [0, 1, 2, 3, 4]
    assert again.notes == whole.notes == {"greyscale": [1, 3, 4], "one colour": [1, 3, 4], "tiny": [0, 2]}
    assert np.array_equal(again.sizes, whole.sizes)
    assert (tmp_path / "images.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


@pytest.fixture
def decoded(monkeypatch) -> list[str]:
    """Names of the pictures that are decoded, as they are."""
    names, decode = [], packing.decode_noting
    monkeypatch.setattr(
        packing, "decode_noting", lambda file, most, name: (names.append(name), decode(file, most, name))[1]
    )
    return names


def grey(value: int) -> bytes:
    return encoded(Image.new("L", (20, 20), value), "BMP")  # of one size


def grey_files(folder: Path, n: int) -> list[Path]:
    files = [folder / f"{row}.bmp" for row in range(n)]
    for row, file in enumerate(files):
        file.write_bytes(grey(10 * row))
        os.utime(file, ns=(10**18, 10**18 + row))
    return files


def shades(path: Path) -> list[int]:
    pixels = images.Pixels(path)
    return pixels[range(len(pixels))][:, 0, 0, 0].tolist()


def test_after_a_stop_only_files_that_changed_are_decoded_again(tmp_path, decoded):
    files = grey_files(tmp_path, 6)
    files[4].write_bytes(b"")
    with pytest.raises(ImageError, match="1 of 6"):
        pack(dataset(files), 4, tmp_path / "images.h5")
    assert len(decoded) == 6
    del decoded[:]
    files[4].write_bytes(encoded(Image.new("RGB", (30, 20), (77, 77, 77)), "PNG"))  # mended
    files[1].write_bytes(grey(200))  # of the same size, at another time
    files[2].write_bytes(encoded(Image.new("RGB", (5, 20), (99, 99, 99)), "PNG"))  # at the same time, of another size
    os.utime(files[2], ns=(10**18, 10**18 + 2))
    packed = pack(dataset(files), 4, tmp_path / "images.h5", workers=1)
    assert decoded == ["1.jpg", "2.jpg", "4.jpg"]
    assert shades(tmp_path / "images.h5") == [0, 200, 99, 30, 77, 50]
    assert (
        packed.notes == {"greyscale": [0, 1, 3, 5], "one colour": [0, 1, 3, 4, 5], "tiny": [2]}
        and packed.unusable == {}
    )
    assert packed.sizes[[2, 4]].tolist() == [[20, 5], [20, 30]] and packed.duplicates == []
    pack(dataset(files), 4, tmp_path / "whole.h5")
    assert (tmp_path / "images.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


@pytest.mark.parametrize("drop", [False, True])
def test_a_packed_file_that_went_bad_is_unusable(tmp_path, drop):
    files = grey_files(tmp_path, 4)
    files[3].unlink()
    with pytest.raises(ImageError, match="1 of 4"):
        pack(dataset(files), 4, tmp_path / "images.h5")
    files[0].write_bytes(b"<html>")
    files[3].write_bytes(grey(30))
    if not drop:
        with pytest.raises(ImageError, match=r"1 of 4 images cannot be used:\n0\.jpg: a web page"):
            pack(dataset(files), 4, tmp_path / "images.h5")
        files[0].write_bytes(grey(7))
    packed = pack(dataset(files), 4, tmp_path / "images.h5", bad_images="drop")
    assert shades(tmp_path / "images.h5") == ([10, 20, 30] if drop else [7, 10, 20, 30])
    assert packed.rows.tolist() == ([1, 2, 3] if drop else [0, 1, 2, 3])


def test_a_file_that_changes_and_changes_back_around_a_kill_is_what_it_is(tmp_path, monkeypatch):
    files = grey_files(tmp_path, 3)
    files[2].write_bytes(b"")
    with pytest.raises(ImageError):
        pack(dataset(files), 4, tmp_path / "images.h5")
    files[0].write_bytes(grey(200))
    save, notes = Checkpoint.save, []

    def first(self: Checkpoint, content: dict[str, Any], **options: Any) -> None:
        """Save the first note only: the process dies before the second."""
        notes.append(content)
        if len(notes) == 1:
            save(self, content, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", first)
        with pytest.raises(ImageError):
            pack(dataset(files), 4, tmp_path / "images.h5")
    files[0].write_bytes(grey(0))
    os.utime(files[0], ns=(10**18, 10**18))
    files[2].write_bytes(grey(20))
    pack(dataset(files), 4, tmp_path / "images.h5")
    assert shades(tmp_path / "images.h5") == [0, 10, 20]


def test_a_file_in_place_never_changes(tmp_path, monkeypatch):
    """Where what follows packing failed, both names are of one file; a kill on the way to the next one does no harm."""
    files, target = grey_files(tmp_path, 3), tmp_path / "images.h5"
    point = tmp_path / "scratch" / "point"
    with Checkpoint(point) as held:
        limits = packing.Limits("stop", 10**8)
        packed = packing.pack(dataset(files), 4, source="t", limits=limits, checkpoint=held)
        seal.append(packed.file, lies_at=target)
        link_or_copy(packed.file, target)
    files[1].write_bytes(grey(200))
    with monkeypatch.context() as patch, Checkpoint(point) as held:
        patch.setattr(packing, "_fill", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            packing.pack(dataset(files), 4, source="t", limits=packing.Limits("stop", 10**8), checkpoint=held)
    assert shades(target) == [0, 10, 20]
    pack(dataset(files), 4, tmp_path / "again.h5")
    assert shades(target) == [0, 10, 20] and shades(tmp_path / "again.h5") == [0, 200, 20]


def swap(files: list[Path], spare: Path) -> None:
    files[0].rename(spare)
    files[1].rename(files[0])
    spare.rename(files[1])


def exchange(files: list[Path], spare: Path) -> None:
    """Write each other's content into two files, in place."""
    first, second = (file.read_bytes() for file in files[:2])
    files[0].write_bytes(second)
    files[1].write_bytes(first)


def copy_over(files: list[Path], spare: Path) -> None:
    """Put new files in two places, as `cp -p` and a rename do."""
    exchange(files, spare)
    for file in files[:2]:
        shutil.copy2(file, spare)
        spare.rename(file)


@pytest.mark.parametrize("change", [swap, exchange, copy_over])
def test_files_of_equal_times_and_sizes_are_told_apart(tmp_path, decoded, change):
    """As archives leave them, which set the times that they hold; the run stopped at a picture that was then mended."""
    files = grey_files(tmp_path, 4)

    def set_times() -> None:
        for file in files:
            os.utime(file, ns=(10**18, 10**18))

    files[3].write_bytes(b"")
    set_times()
    with pytest.raises(ImageError, match="1 of 4"):
        pack(dataset(files), 4, tmp_path / "images.h5")
    del decoded[:]
    change(files, tmp_path / "spare")
    files[3].write_bytes(grey(30))
    if change is not swap:
        for file in (*files[:2], files[3]):
            os.utime(file, ns=(10**18, 10**18))
    assert len({(file.stat().st_mtime_ns, file.stat().st_size) for file in files[:3]}) == 1
    pack(dataset(files), 4, tmp_path / "images.h5", workers=1)
    assert shades(tmp_path / "images.h5") == [10, 0, 20, 30] and decoded == ["0.jpg", "1.jpg", "3.jpg"]


def test_a_swap_is_told_where_a_rename_leaves_the_time_of_change(tmp_path, monkeypatch):
    """POSIX lets a disk do so."""
    files, stat = grey_files(tmp_path, 2), Path.stat

    def timeless(path: Path) -> SimpleNamespace:
        return SimpleNamespace(st_size=stat(path).st_size, st_ino=stat(path).st_ino, st_mtime_ns=1, st_ctime_ns=1)

    monkeypatch.setattr(Path, "stat", timeless)
    before = list(map(packing._file_state, files))
    swap(files, tmp_path / "spare")
    assert list(map(packing._file_state, files)) == before[::-1] and before[0] != before[1]


@pytest.mark.parametrize("inode", [0, 2**63 + 5, 2**64 - 1])
@pytest.mark.parametrize("time_ns", [0, -(10**18), 10**18])
def test_any_inode_and_any_time_tell_a_file(tmp_path, decoded, monkeypatch, inode, time_ns):
    """Some disks number files by 64 bits, or by none; archives hold times before 1970."""
    files, stat = grey_files(tmp_path, 3), Path.stat
    for file in files:
        os.utime(file, ns=(time_ns, time_ns))

    def numbered(path: Path, **options: Any) -> os.stat_result:
        found = stat(path, **options)
        if path.suffix != ".bmp":
            return found
        times = {name: getattr(found, name) for name in ("st_mtime_ns", "st_ctime_ns", "st_size")}
        return SimpleNamespace(**times, st_ino=inode)  # type: ignore[return-value]

    monkeypatch.setattr(Path, "stat", numbered)
    files[2].write_bytes(b"")
    for _ in range(2):
        with pytest.raises(ImageError, match="1 of 3"):
            pack(dataset(files), 4, tmp_path / "images.h5", workers=1)
    assert decoded == ["0.jpg", "1.jpg", "2.jpg", "2.jpg"]


def test_bad_pictures_are_listed_in_row_order_after_a_resume(tmp_path):
    files = grey_files(tmp_path, 12)
    for rows in ([10], [10, 3, 7]):
        for row in rows:
            files[row].write_bytes(b"")
        with pytest.raises(ImageError) as caught:
            pack(dataset(files), 4, tmp_path / "images.h5", workers=1)
        assert str(caught.value).split("\n")[1:] == [f"{row}.jpg: empty file" for row in sorted(rows)]


def other_shape(path: Path) -> None:
    hdf5.allocate(path, "pixels", (3, 5, 5, 3), axes="", units="")


def no_array(path: Path) -> None:
    with create(path) as file:
        file["other"] = [1]


def junk(path: Path) -> None:
    path.write_bytes(b"junk" * 50)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def bad_header(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"OHDR", b"OHDX"))


def other_content(path: Path) -> None:
    write_torch(path, {"done": 2, "notes": {}})


@pytest.mark.parametrize(
    "name, damage",
    [
        *(("disk/images.h5", damage) for damage in (junk, cut, no_array, other_shape, bad_header)),
        *(("state.pt", damage) for damage in (junk, cut, other_content)),
    ],
)
def test_a_damaged_resume_point_is_said_and_packing_starts_anew(tmp_path, capsys, decoded, name, damage):
    files, point = grey_files(tmp_path, 3), tmp_path / "scratch" / "point"
    files[2].write_bytes(b"")
    with pytest.raises(ImageError):
        pack(dataset(files), 4, tmp_path / "images.h5")
    del decoded[:]
    damage(point / name)
    files[2].write_bytes(grey(20))
    pack(dataset(files), 4, tmp_path / "images.h5", workers=1)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"the resume point in {point} is damaged, so the run starts anew (")
    assert shades(tmp_path / "images.h5") == [0, 10, 20] and decoded == ["0.jpg", "1.jpg", "2.jpg"]


@pytest.mark.parametrize("lost", ["damaged", "deleted"])
def test_a_kill_before_the_first_note_after_pixels_were_lost_does_no_harm(tmp_path, monkeypatch, lost):
    """An earlier note would take the new file's zeros for what is packed."""
    files, partial = grey_files(tmp_path, 3), tmp_path / "scratch" / "point" / "disk" / "images.h5"
    files[2].write_bytes(b"")
    with pytest.raises(ImageError):
        pack(dataset(files), 4, tmp_path / "images.h5")
    partial.unlink() if lost == "deleted" else junk(partial)
    with monkeypatch.context() as patch:
        patch.setattr(packing, "_fill", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            pack(dataset(files), 4, tmp_path / "images.h5")
    files[2].write_bytes(grey(20))
    pack(dataset(files), 4, tmp_path / "images.h5")
    assert shades(tmp_path / "images.h5") == [0, 10, 20]


def test_a_file_in_place_never_changes_though_the_resume_point_is_damaged(tmp_path):
    files, target, point = grey_files(tmp_path, 3), tmp_path / "images.h5", tmp_path / "scratch" / "point"
    with Checkpoint(point) as held:
        limits = packing.Limits("stop", 10**8)
        packed = packing.pack(dataset(files), 4, source="t", limits=limits, checkpoint=held)
        seal.append(packed.file, lies_at=target)
        link_or_copy(packed.file, target)
    junk(point / "state.pt")
    files[1].write_bytes(grey(200))
    pack(dataset(files), 4, tmp_path / "again.h5")
    assert shades(target) == [0, 10, 20] and shades(tmp_path / "again.h5") == [0, 200, 20]


def test_what_is_odd_about_a_size():
    shapes = {(16, 16): [], (15, 40): ["tiny"], (20, 161): ["extreme shape"], (161, 20): ["extreme shape"]}
    shapes |= {(160, 20): [], (1, 9): ["tiny", "extreme shape"], (9, 1): ["tiny", "extreme shape"]}
    assert {shape: packing.oddities(noise(*shape)) for shape in shapes} == shapes
    assert {note for notes in shapes.values() for note in notes} < packing.ODD.keys()


def test_an_interrupt_keeps_what_is_done_and_says_so(tmp_path, capsys):
    pictures = [noise(9, 9, seed=row) for row in range(9)]

    def image(row: int) -> np.ndarray:
        if row == 6:
            raise KeyboardInterrupt
        return pictures[row] if row != 2 else np.zeros((1, 1), np.uint8)

    with pytest.raises(KeyboardInterrupt):
        pack(Dataset(dataset(pictures).table, image), 4, tmp_path / "images.h5", workers=1)
    told = "packing was interrupted: 5 of 9 pictures are packed and kept; start again to go on there\n"
    assert capsys.readouterr().out == told


@pytest.mark.parametrize("heard", [True, False])
def test_an_interrupt_while_the_last_note_is_written_waits_for_it(tmp_path, capsys, monkeypatch, decoded, heard):
    """As when someone presses twice; a process that does not listen, as in the background, goes on."""
    files, save = grey_files(tmp_path, 3), Checkpoint.save
    handler = signal.default_int_handler if heard else signal.SIG_IGN
    found = signal.signal(signal.SIGINT, handler)

    def interrupted(self: Checkpoint, content: dict[str, Any], **options: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)  # a handler runs between two steps of Python
        save(self, content, **options)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "save", interrupted)
            with pytest.raises(KeyboardInterrupt) if heard else nullcontext():
                pack(dataset(files), 4, tmp_path / "images.h5")
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, found)
    told = "packing was interrupted: 3 of 3 pictures are packed and kept"
    assert capsys.readouterr().out.startswith(told) is heard
    del decoded[:]
    if heard:
        pack(dataset(files), 4, tmp_path / "images.h5")
    assert decoded == [] and shades(tmp_path / "images.h5") == [0, 10, 20]


def test_a_full_disk_while_saving_a_resume_point_is_told_and_loses_nothing(tmp_path, monkeypatch, decoded):
    files, replace, saved = grey_files(tmp_path, 4), os.replace, []

    def full(source: Any, target: Any) -> None:
        saved.append(target)
        if Path(target).name == "state.pt" and len([name for name in saved if name == target]) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        words = r"state\.pt: [\d,]+ bytes cannot be written there \(No space left.*last resume point.*start again"
        with pytest.raises(FileError, match=words):
            pack(dataset(files), 4, tmp_path / "images.h5", 0.0, workers=1)
    del decoded[:]
    pack(dataset(files), 4, tmp_path / "images.h5")
    assert shades(tmp_path / "images.h5") == [0, 10, 20, 30] and decoded == ["2.jpg", "3.jpg"]


def test_what_follows_packing_may_fail_and_costs_no_second_pass(tmp_path):
    bad = tmp_path / "no.jpg"
    for pictures in ([noise(9, 9), noise(5, 5)], [noise(9, 9), bad, noise(5, 5)]):
        with Checkpoint(tmp_path / "scratch" / f"{len(pictures)}") as point:
            packed = packing.pack(
                dataset(pictures), 4, source="test", limits=packing.Limits("drop", 10**8), checkpoint=point
            )
            link_or_copy(packed.file, tmp_path / "images.h5")
        first = (tmp_path / "images.h5").read_bytes()
        data = Dataset(dataset(pictures).table, lambda row: bad if row == 1 else pytest.fail("decoded again"))
        with Checkpoint(tmp_path / "scratch" / f"{len(pictures)}") as point:
            again = packing.pack(data, 4, source="test", limits=packing.Limits("drop", 10**8), checkpoint=point)
            assert again.file.read_bytes() == first and again.rows.tolist() == packed.rows.tolist()


def test_the_key_of_a_resume_point_holds_the_raw_data_of_drawn_pictures_only(tmp_path):
    """Files are told apart row by row, so that one that is mended does not cost the others."""
    for picture, equal in ((tmp_path / "a.jpg", True), (noise(3, 3), False)):
        data = dataset([picture])
        assert packing.stamp(data, "one") == packing.stamp(data, "one")
        assert (packing.stamp(data, "one") == packing.stamp(data, "two")) == equal


def test_the_key_of_a_resume_point_tells_other_code_that_decodes(tmp_path, monkeypatch):
    data = dataset([noise(3, 3)])
    first, edited = packing.stamp(data, "raw"), tmp_path / "edited.py"
    edited.write_text("# edited\n")
    for where, name, value in (
        (packing, "__file__", str(edited)),
        (images, "__file__", str(edited)),
        (packing.PIL, "__version__", "0"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, value)
            assert packing.stamp(data, "raw") != first
    assert packing.stamp(data, "raw") == first


def test_too_little_room_is_said_before_a_picture_is_decoded(tmp_path, monkeypatch):
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    data = Dataset(dataset([None]).table, lambda row: pytest.fail("a picture was decoded"))
    with pytest.raises(SourceError, match=r"packed pictures need 4.8e-08 GB in .*: No space left on device"):
        pack(data, 4, tmp_path / "images.h5")
    assert not list(tmp_path.rglob("*.h5"))


def test_room_for_the_kept_pictures_is_taken_before_they_are_copied(tmp_path, monkeypatch):
    def full(descriptor: int, offset: int, length: int) -> None:
        if ".kept.h5" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SourceError, match=r"need 9.6e-08 GB in "):
        pack(dataset([noise(9, 9), tmp_path / "no.jpg", noise(5, 5)]), 4, tmp_path / "images.h5", bad_images="drop")


# ---------------------------------------------------------------------------------------------- reading
@pytest.fixture
def packed(tmp_path: Path) -> Path:
    pack(dataset([noise(5, 5, seed=row) for row in range(12)]), 5, tmp_path / "images.h5")
    return tmp_path / "images.h5"


@pytest.mark.parametrize("memory", [0, 1 << 30])
@pytest.mark.parametrize("rows", [[3], [11, 0, 5], [2, 2, 7, 2], [], list(range(12))])
def test_rows_come_back_in_the_order_asked(packed, memory, rows):
    wanted = np.stack([noise(5, 5, seed=row) for row in range(12)])[rows]
    pixels = images.Pixels(packed, memory=memory)
    assert np.array_equal(pixels[np.array(rows, int)], wanted) and pixels[rows].shape == (len(rows), 5, 5, 3)
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
    with open(packed, "r+b") as file:  # an HDF5 file that is open holds a lock
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert np.array_equal(pickle.loads(pickle.dumps(pixels))[[4]], first)


def test_a_mapped_file_is_opened_once(packed, monkeypatch):
    pixels = images.Pixels(packed, memory=0)
    first = pixels[[3]]
    with monkeypatch.context() as patch:
        patch.setattr(hdf5, "Mapped", lambda *_, **__: pytest.fail("mapped again"))
        assert np.array_equal(pixels[[3]], first)
    sent = pickle.dumps(pixels)
    assert len(sent) < 1000 and np.array_equal(pickle.loads(sent)[[3]], first)


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_rows_from_memory_are_copies(packed, memory):
    pixels = images.Pixels(packed, memory=memory)
    pixels[[0]][:] = 0
    assert np.array_equal(pixels[[0]][0], noise(5, 5, seed=0))


def test_interrupted_and_foreign_files_are_refused(packed):
    whole = packed.read_bytes()
    for cut in (0, 100, len(whole) // 2):
        packed.write_bytes(whole[:cut])
        with pytest.raises(FileError, match=r"images\.h5"):
            images.Pixels(packed)
    with create(packed) as file:
        file["other"] = [1]
    with pytest.raises(FileError, match="holds no `pixels`"):
        images.Pixels(packed)
    packed.unlink()
    with pytest.raises(FileError, match="no such file"):
        images.Pixels(packed)
