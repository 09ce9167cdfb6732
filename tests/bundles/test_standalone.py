"""predict.py of a bundle, by itself: it decodes as training does, and says what `spml predict` says."""

import csv
import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from pipeline.bundles.write import STANDALONE
from pipeline.cli import main
from pipeline.data import disk, formats, images
from tests import tiny
from tests.bundles import made
from tests.data import test_images as odd

LOAD = """
import importlib.util, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("standalone", sys.argv[1])
standalone = importlib.util.module_from_spec(spec)
spec.loader.exec_module(standalone)
for path in sorted(Path(sys.argv[2]).iterdir()):
    try:
        Path(sys.argv[3], path.name).write_bytes(standalone.decode(path, 16).tobytes())
    except Exception as error:
        Path(sys.argv[3], path.name).write_text("refused")
assert not any(name.startswith("pipeline") or name == "torch" for name in sys.modules)
"""


def turned(form: str, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return odd.encoded(Image.fromarray(odd.noise(20, 31)), form, exif=exif)


def heic() -> dict[str, bytes]:
    """A turned picture of HEIC, where its extra is installed."""
    return {"heic": turned("HEIF", 6)} if formats.HEIC else {}


def odd_pictures() -> dict[str, bytes]:
    """Pictures of each kind that decoding treats apart."""
    grey16 = np.random.default_rng(1).integers(0, 65536, (9, 16)).astype(np.uint16)
    alpha = np.dstack([odd.noise(16, 16), odd.noise(16, 16, 2)[..., 0]])
    rgb = Image.fromarray(odd.noise(20, 31))
    indexed = rgb.quantize(7)
    frames = [Image.fromarray(odd.noise(16, 16, seed)) for seed in (1, 2)]
    grey = np.random.default_rng(2).random((8, 8)).astype(np.float32)
    return {
        **{
            f"turned-{form}-{n}": turned(form, n)
            for form in ("PNG", "JPEG", "TIFF", "AVIF")
            for n in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
        },
        **heic(),
        "photo": odd.photo(),
        "damaged-tags": odd.encoded(Image.fromarray(odd.noise(3, 5)), exif=b"Exif\x00\x00II*\x00\xff\xff\xff\x7f"),
        "palette": odd.encoded(indexed),
        "palette-key": odd.encoded(indexed, transparency=2),
        "palette-alpha": odd.encoded(indexed, transparency=b"\x00\xff\x80"),
        "rgba": odd.encoded(Image.fromarray(alpha)),
        "rgba-webp": odd.encoded(Image.fromarray(alpha), "WEBP", lossless=True, exact=True),
        "la": odd.encoded(Image.fromarray(alpha).convert("LA")),
        **{f"unfilled-{name}": data for name, data in odd.unfilled(odd.noise(1, 3)).items()},
        "bmp-alpha": odd.bmp_v4(alpha),
        "grey16": odd.encoded(Image.fromarray(grey16)),
        "grey16-tiff": odd.encoded(Image.fromarray(grey16), "TIFF"),
        "grey16-key": odd.png(2, 1, 16, 0, b"\0" + b"\x80\x80\x10\x10", b"\x80\x80"),
        "grey2-key": odd.png(4, 1, 2, 0, b"\0\x1b", b"\0\2"),
        "grey4-key": odd.png(2, 1, 4, 0, b"\0\x5a", b"\0\5"),
        "rgb16": odd.png(2, 1, 16, 2, b"\0" + bytes(range(12))),
        "rgb16-key": odd.png(1, 1, 16, 2, bytes(7), bytes(6)),
        "white-is-zero": odd.tiff(3, b"\0\0\xff\x7f\xff\xff", bits=16, meaning=0),
        "grey12": odd.tiff(2, b"\xff\xf8\x00", bits=12, meaning=1),
        "float": odd.encoded(Image.fromarray(grey), "TIFF"),
        "float-large": odd.encoded(Image.fromarray(grey * 300), "TIFF"),
        "int32": odd.encoded(Image.fromarray(np.array([[0, 1 << 20]], np.int32)), "TIFF"),
        "one-bit": odd.encoded(rgb.convert("1")),
        "cmyk": odd.encoded(rgb.convert("CMYK"), "JPEG"),
        "lab": odd.encoded(rgb.convert("LAB"), "TIFF"),
        "gif": odd.encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "long-text": odd.encoded(rgb)[:33] + b"".join(odd.LONG["zTXt"]) + odd.encoded(rgb)[33:],
        "exact": odd.encoded(Image.fromarray(odd.noise(16, 16))),
        "truncated": odd.photo()[:600],
        "page": b"<!DOCTYPE html>",
        "ppm": odd.encoded(rgb, "PPM"),
        "bomb": odd.bomb(15_000),
    }


def test_it_decodes_as_training_does(tmp_path: Path) -> None:
    pictures = odd_pictures()
    for folder in ("odd", "found"):
        (tmp_path / folder).mkdir()
    for name, data in pictures.items():
        (tmp_path / "odd" / name).write_bytes(data)
    words = [sys.executable, "-c", LOAD, str(STANDALONE), str(tmp_path / "odd"), str(tmp_path / "found")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    differing, refused = [], 0
    for name, data in pictures.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Pillow may warn of a damaged tag block
                wanted = images.resize(images.decode(data, 200_000_000), 16).tobytes()
        except images.ImageError:
            wanted, refused = b"refused", refused + 1
        if (tmp_path / "found" / name).read_bytes() != wanted:
            differing.append(name)
    assert differing == [] and refused == 7


def test_without_its_file_it_says_how_to_get_it(tmp_path: Path) -> None:
    folder = made.bundle(tmp_path / "m")
    done = subprocess.run([sys.executable, folder / "predict.py", "x.png"], capture_output=True, text=True)
    assert done.returncode == 1
    assert (
        done.stderr
        == "predict.py: model.onnx is not here; `spml model --onnx` writes it, `spml predict` does without\n"
    )


class Sure:
    """A network that says the same of all pictures."""

    def run(self, _names: list[str], inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [np.full((len(inputs["images"]), 2), 5.0)]


def load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return predict.py of a bundle, with a network that is sure of both classes."""
    (folder / "model.onnx").touch()
    spec = importlib.util.spec_from_file_location("standalone", folder / "predict.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script.onnxruntime, "InferenceSession", lambda *_, **__: Sure())
    return script


def test_it_lists_pictures_as_spml_predict_does_and_writes_no_formula(tmp_path: Path, monkeypatch, capsys) -> None:
    script = load(made.bundle(tmp_path / "m", classes=["=cmd", "@x"]), monkeypatch)
    monkeypatch.chdir(tmp_path)
    names = ["=cmd.png", "p/-a.png", "p/B/@b.jpg", "p/a b.png", "p/b/c.png", "p/B.png/d.png"]
    for name in [*names, "p/.thumbs/h.png", "p/.h.png", "p/@eaDir/h.png", "p/x/__MACOSX/y/h.png", "p/notes.txt"]:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(odd.encoded(Image.fromarray(odd.noise(3, 5))))
    os.rename("p/a b.png", b"p/\xff.png")
    assert script.main(["=cmd.png", "p", "@gone.png"]) == 1
    mine = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert main.main(["predict", "m", "=cmd.png", "p", "@gone.png"]) == 1
    theirs = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["path"] for row in mine] == [row["path"] for row in theirs]
    assert [mine[0]["path"], mine[-1]["path"], len(mine)] == ["'=cmd.png", "'@gone.png", 7]
    assert [row["labels"] for row in mine] == ["'=cmd;@x"] * 6 + [""]


def test_it_passes_over_the_same_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = load(made.bundle(tmp_path / "m"), monkeypatch)
    assert all(map(script.is_passed_over, disk.SERVICE)) and all(map(disk.is_service, script.SERVICE))


def test_it_refuses_a_class_that_its_csv_cannot_tell_from_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = load(made.bundle(tmp_path / "m", classes=["a;b", "c"]), monkeypatch)
    with pytest.raises(SystemExit, match="^predict.py: class 'a;b' holds a `;`, which stands between labels; use spml"):
        script.main(["x.png"])


@pytest.mark.slow
def test_it_says_what_spml_predict_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made.bundle(
        tmp_path / "m", onnx=True, network={"backbone": made.SMALL, "pools": ["mean"], "head": tiny.LINEAR}
    )
    (tmp_path / "pictures").mkdir()
    for name in ("turned-JPEG-6", "rgba", "grey16", "cmyk", "photo", "page"):
        (tmp_path / "pictures" / f"{name}.png").write_bytes(odd_pictures()[name])
    words = [sys.executable, folder / "predict.py", tmp_path / "pictures"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == "6 images, 1 broken\n"
    assert main.main(["predict", str(folder), str(tmp_path / "pictures")]) == 1
    mine, theirs = (list(csv.DictReader(text.splitlines())) for text in (done.stdout, capsys.readouterr().out))
    assert [row["path"] for row in mine] == [row["path"] for row in theirs] and len(mine) == 6
    for one, other in zip(mine, theirs, strict=True):
        assert one["labels"] == other["labels"] and bool(one["error"]) == bool(other["error"])
        for name in made.CLASSES:
            assert one["error"] or float(one[f"score_{name}"]) == pytest.approx(float(other[f"score_{name}"]), abs=1e-5)
