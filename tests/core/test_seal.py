"""Seals and manifests: damage, misplaced files and other inputs are told before anything is read."""

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from pipeline.core import files, hdf5, manifest, seal
from pipeline.core.errors import FileError

DAMAGES = 1000


def write_h5(path: Path, inputs: Any = ()) -> None:
    with hdf5.create(path, inputs) as file:
        hdf5.write_array(file, "classes", ["cat", "dög"], axes="class", units="name")
        hdf5.write_array(file, "truth", np.arange(60, dtype=np.int8) % 2, axes="image", units="label", compress=True)
        hdf5.write_array(file, "logits", np.linspace(-3, 3, 900), axes="image", units="logit")
        file.attrs["run"] = "a text of variable length"


def read_h5(path: Path) -> None:
    with hdf5.read(path) as file:
        hdf5.read_strings(file["classes"])
        assert [file[name][()] for name in ("truth", "logits")] and dict(file.attrs)


def write_pt(path: Path, inputs: Any = ()) -> None:
    files.write_torch(path, {"state": {"weight": torch.arange(400.0)}, "kind": "linear"}, inputs)


def write_texts(path: Path, inputs: Any = ()) -> None:
    text = files.write_tsv if path.suffix == ".tsv" else files.write_json
    text(path, [{"epoch": 1, "loss": 0.25}, {"epoch": 2, "loss": 0.125}])
    manifest.write_manifest(path.parent, inputs)


def read_text(path: Path) -> None:
    manifest.raise_if_changed(path, manifest.check_folder(path.parent))


def read_manifest(path: Path) -> None:
    read_text(path.with_name("epochs.tsv"))


def write_manifest(path: Path, inputs: Any = ()) -> None:
    write_texts(path.with_name("epochs.tsv"), inputs)


def write_pixels(path: Path, inputs: Any = ()) -> None:
    hdf5.allocate(path, "pixels", (64, 40, 40, 3), axes="image, height, width, channel", units="0 to 255", size=40)
    pixels = hdf5.map_array(path, "pixels")
    pixels[:] = np.random.default_rng(0).integers(0, 256, pixels.shape)
    pixels.flush()
    seal.append(path, inputs)


def read_pixels(path: Path) -> None:
    pixels = hdf5.Mapped(path, "pixels")
    assert pixels[np.arange(pixels.shape[0])].any()


KINDS: dict[str, tuple[Callable[..., None], Callable[[Path], Any]]] = {
    "runs/finetune/a/logits.h5": (write_h5, read_h5),
    "data/prepare/digits/images.h5": (write_pixels, read_pixels),
    "weights/digits/backbone.pt": (write_pt, files.read_torch),
    "runs/finetune/a/metrics.json": (write_texts, read_text),
    "runs/finetune/a/epochs.tsv": (write_texts, read_text),
    "runs/finetune/a/manifest.json": (write_manifest, read_manifest),
}


def damage(data: bytes, chance: random.Random) -> bytes:
    """One of the ways in which disks, copies and editors change a file."""
    kind, at = chance.choice(("bit", "byte", "zeros", "cut", "swap", "more", "gap")), chance.randrange(len(data))
    if kind == "bit":
        return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
    if kind == "byte":
        return data[:at] + chance.randbytes(1) + data[at + 1 :]
    if kind == "zeros":
        return data[:at] + bytes(len(data[at : at + 512])) + data[at + 512 :]
    if kind == "cut":
        return data[:at]
    if kind == "swap":
        return data[at:] + data[:at]
    return data + chance.randbytes(9) if kind == "more" else data[:at] + data[at + 1 :]


@pytest.mark.parametrize("name", KINDS)
def test_no_damage_is_silent_hangs_or_ends_in_a_traceback(tmp_path: Path, name: str) -> None:
    write, read = KINDS[name]
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    write(path)
    read(path)
    whole, chance, silent = path.read_bytes(), random.Random(name), []
    for number in range(DAMAGES):
        broken = damage(whole, chance)
        path.write_bytes(broken)
        if broken == whole or (path.suffix == ".json" and is_equal_json(broken, whole)):
            continue
        try:
            read(path)
            silent.append(number)
        except FileError as error:
            assert str(error).startswith(f"{tmp_path}/{name.rpartition('/')[0]}/") and "\n" not in str(error)
    assert not silent


def is_equal_json(one: bytes, other: bytes) -> bool:
    """Whether a manifest says the same though its bytes differ, as by a blank for a line feed."""
    try:
        return json.loads(one) == json.loads(other) and b"manifest" in other
    except ValueError:
        return False


def test_a_digest_is_the_sha256_of_the_sha256_of_each_mib(tmp_path: Path) -> None:
    path, data = tmp_path / "weights/digits/backbone.pt", random.Random(0).randbytes((2 << 20) + 5)
    files.write_bytes(path, data)
    seal.append(path)
    chunks = [data[: 1 << 20], data[1 << 20 : 2 << 20], data[2 << 20 :]]
    expected = hashlib.sha256(b"".join(hashlib.sha256(chunk).digest() for chunk in chunks)).hexdigest()
    found = seal.verify(path)
    assert (found.digest, found.size, found.path, found.inputs) == (
        expected,
        len(data),
        "weights/digits/backbone.pt",
        {},
    )
    sealed = path.read_bytes()
    assert sealed[: len(data)] == data
    os.utime(path, ns=(0, 0))
    seal.append(path)  # says the same: a file that may be linked is not touched
    assert path.read_bytes() == sealed and path.stat().st_mtime_ns == 0
    seal.append(path, lies_at=path.with_name("other.pt"))  # anew, not on top
    assert len(path.read_bytes()) == len(sealed) - len("backbone") + len("other")
    assert seal.verify(path).path == "weights/digits/other.pt"


def test_other_programs_read_what_is_sealed(tmp_path: Path) -> None:
    write_h5(tmp_path / "a.h5")
    write_pt(tmp_path / "a.pt")
    with h5py.File(tmp_path / "a.h5") as file:
        assert len(file["logits"]) == 900  # pyright: ignore
    assert torch.load(tmp_path / "a.pt", weights_only=True)["kind"] == "linear"


def test_a_large_array_is_verified_where_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "data/prepare/digits/images.h5"
    path.parent.mkdir(parents=True)
    hdf5.allocate(path, "pixels", (40, 300, 300, 3), axes="image", units="0 to 255")
    seal.append(path)
    data = bytearray(path.read_bytes())
    data[5 << 20] ^= 1
    path.write_bytes(data)
    pixels = hdf5.Mapped(path, "pixels")
    row = 5 * (1 << 20) // (300 * 300 * 3)  # whose bytes, after a header of less than a row, hold that byte
    assert not pixels[np.array([0, 1, 39])].any()
    with pytest.raises(FileError, match=r"images\.h5: damaged between bytes 5,242,880 and 6,291,456"):
        pixels[np.array([row - 1, row])]


def resident() -> int:
    """MiB of mapped files that this process holds."""
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line.split()[1] for line in status if line.startswith("RssFile"))) >> 10


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_mapped_array_leaves_no_memory_behind(tmp_path: Path) -> None:
    """Written and read by blocks, whatever its type; 64 MiB."""
    path, before = tmp_path / "places.h5", resident()
    hdf5.allocate(path, "places", (64, 512, 256), "float16", axes="image", units="none")
    array = hdf5.map_array(path, "places")
    for row in range(64):
        array[row] = row / 8
        hdf5.release(array)
    assert resident() < before + 16
    array.flush()
    seal.append(path)
    mapped = hdf5.Mapped(path, "places")
    for row in range(64):
        assert (mapped[np.array([row])] == row / 8).all()
    assert resident() < before + 16
    assert mapped.dtype == np.float16 and mapped.shape == (64, 512, 256) and len(mapped) == 64


def chain(root: Path) -> dict[str, Path]:
    """Outputs that are each made from the one before."""
    names = (
        "data/prepare/digits/table.h5",
        "data/features/digits/features.h5",
        "runs/linear_init/digits-an-0-0/weights.pt",
    )
    paths = {name.split("/")[1]: root / name for name in names}
    write_h5(paths["prepare"])
    write_h5(paths["features"], [paths["prepare"]])
    write_pt(paths["linear_init"], [paths["features"]])
    return paths


def test_an_output_whose_inputs_are_others_by_now_is_refused_at_any_distance(tmp_path: Path) -> None:
    paths = chain(tmp_path)
    files.read_torch(paths["linear_init"])
    with hdf5.create(paths["prepare"]) as file:
        hdf5.write_array(file, "classes", ["owl"], axes="class", units="name")
    table = "made from another data/prepare/digits/table.h5 than lies there; run features@digits again"
    with pytest.raises(FileError, match=rf"features\.h5: {table}"):
        read_h5(paths["features"])
    with pytest.raises(FileError, match=rf"weights\.pt: its input data/features/digits/features\.h5 was {table}"):
        files.read_torch(paths["linear_init"])
    paths["prepare"].unlink()  # a stage that is run by itself may have no more than its own deps
    files.read_torch(paths["linear_init"])


@pytest.mark.parametrize("name", ["data", "runs", "analyses", "weights", "data/prepare", "runs/finetune"])
def test_the_projects_own_folder_may_have_any_name_and_move(tmp_path: Path, name: str) -> None:
    """Also that of a folder of outputs: a stale input is seen, and nothing is refused once the project has moved."""
    root = tmp_path / name
    write_pt(root / "weights/digits/backbone.pt")
    write_h5(root / "data/features/digits/features.h5", [root / "weights/digits/backbone.pt"])
    assert seal.read(root / "weights/digits/backbone.pt").path == "weights/digits/backbone.pt"
    moved = tmp_path / "elsewhere"
    root.rename(moved)
    files.read_torch(moved / "weights/digits/backbone.pt")
    read_h5(moved / "data/features/digits/features.h5")
    files.write_torch(moved / "weights/digits/backbone.pt", {"state": {}})
    with pytest.raises(FileError, match="made from another weights/digits/backbone.pt than lies there"):
        read_h5(moved / "data/features/digits/features.h5")


def test_an_output_at_anothers_place_is_refused(tmp_path: Path) -> None:
    paths = chain(tmp_path)
    other = tmp_path / "runs/linear_init/digits-em-0-0/weights.pt"
    files.link_or_copy(paths["linear_init"], other)
    words = r"em-0-0/weights\.pt: holds the output runs/linear_init/digits-an-0-0/weights\.pt; run .*@digits-em-0-0"
    with pytest.raises(FileError, match=words):
        files.read_torch(other)
    with hdf5.read(paths["features"], anywhere=True) as file:
        assert "truth" in file


def test_a_manifest_names_other_inputs_and_places(tmp_path: Path) -> None:
    paths = chain(tmp_path)
    folder = tmp_path / "analyses/audit/digits-0-0"
    files.write_json(folder / "audit.json", {"truth": True})
    manifest.write_manifest(folder, [paths["features"]])
    assert set(manifest.check_folder(folder)) == {"audit.json"}
    other = folder.with_name("digits-0-1")
    for name in ("audit.json", "manifest.json"):
        files.link_or_copy(folder / name, other / name)
    with pytest.raises(
        FileError, match="digits-0-1/manifest.json: holds the output analyses/audit/digits-0-0/manifest"
    ):
        manifest.check_folder(other)
    write_pt(paths["features"])
    with pytest.raises(FileError, match="manifest.json: made from another data/features/digits/features.h5"):
        manifest.check_folder(folder)


LIMITED = """
import resource, sys, signal
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from tests.core.test_seal import write_h5, write_pt
from pipeline.core.errors import FileError
for limit in map(int, sys.argv[3:]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1))
    try:
        {"h5": write_h5, "pt": write_pt}[sys.argv[1]](Path(sys.argv[2]))
    except FileError as error:
        print(error)
"""


@pytest.mark.parametrize("kind", ["h5", "pt"])
def test_a_disk_that_fills_up_is_told_in_a_line_and_the_earlier_file_stays(
    tmp_path: Path, repository: Path, kind: str
) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(b"earlier")
    words = [sys.executable, "-c", LIMITED, kind, str(path), "0", "700", "2500"]
    done = subprocess.run(words, cwd=repository, capture_output=True, text=True, env=os.environ)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and all(line.startswith(f"{path}: ") and "cannot be written there" in line for line in lines)
    assert path.read_bytes() == b"earlier" and os.listdir(tmp_path) == [path.name]
