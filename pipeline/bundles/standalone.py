"""Predict by model.onnx beside this file, with onnxruntime and Pillow: ``python predict.py IMAGES... > scores.csv``.

Pictures are decoded as in training: first frame, turned upright, transparency on white, grey of many bits scaled.
One row an image, in the order given, of a folder all pictures by name; a broken picture is a row with an error.
"""

import csv
import json
import math
import os
import re
import sys
from pathlib import Path

try:
    import numpy as np
    import onnxruntime
    from PIL import Image, PngImagePlugin, features
except ImportError as missing:
    sys.exit(f"predict.py needs {missing.name}: pip install onnxruntime pillow")

HERE = Path(__file__).resolve().parent
FORMATS = ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", *(["AVIF"] * (features.check("avif") is True))]
try:  # HEIC where pip install pillow-heif brought it
    import pillow_heif  # pyright: ignore[reportMissingImports]

    pillow_heif.register_heif_opener()
    FORMATS.append("HEIF")
except ImportError:
    pass
ENDINGS = (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff")
ENDINGS += (".avif", ".heic", ".heif", ".hif")
SERVICE = {"@eadir", "@tmp", "@recycle", "@recently-snapshot", "#recycle", "#snapshot", "$recycle.bin", "recycler"}
SERVICE |= {"lost+found", "system volume information", "found.000", "__macosx", "thumbnails", "_thumbnails", "_thumbs"}
SERVICE |= {"@__thumb"}  # folders of systems and tools
MAX_PIXELS = 200_000_000
UPRIGHT = dict(zip(range(2, 9), (Image.Transpose(turn) for turn in (0, 3, 1, 5, 4, 6, 2)), strict=True))  # by EXIF
Image.MAX_IMAGE_PIXELS = None  # the limit above is held to before a pixel is read
PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY = 1 << 28  # long texts spoil no picture


def decode(path: Path, size: int) -> np.ndarray:
    """Decode a picture.

    Args:
        path: Its file.
        size: Side of the square that it is resized to, in pixels.

    Returns:
        (size, size, 3) uint8 RGB.

    Raises:
        ValueError: Its values have no known range.
    """
    with Image.open(path, formats=FORMATS) as image:
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"{image.width} x {image.height} pixels, more than the limit of {MAX_PIXELS}")
        stored = image.tile[0].args if image.tile else ""  # how the file holds the values
        stored = stored[0] if isinstance(stored, tuple) and stored else stored
        image.load()
    try:
        turn = image.getexif().get(0x0112)
    except Exception:  # a damaged tag block says nothing about the pixels
        turn = None
    key = image.info.get("transparency")
    if image.mode.startswith("I;16") or image.mode == "F":
        rgb = scale_grey(image, stored, key).convert("RGB")
    elif image.mode == "I" or (str(stored).startswith("RGB;16") and key is not None):
        raise ValueError("32-bit integers, or 16-bit colour with a transparent one, have no known range")
    else:
        if stored in ("L;2", "L;4") and isinstance(key, int):  # Pillow stretches such grey, but not its key
            image.info["transparency"] = key * {"L;2": 85, "L;4": 17}[stored]
        rgb = image
        if image.has_transparency_data:
            rgb = image.convert("RGBA")
            if rgb.getchannel("A").getextrema() != (0, 0):  # else a fourth channel that nobody filled
                page = Image.new("RGBA", rgb.size, "white")
                page.alpha_composite(rgb)
                rgb = page
        rgb = rgb.convert("RGB")
    rgb = rgb.transpose(UPRIGHT[turn]) if turn in UPRIGHT else rgb
    return np.asarray(rgb if rgb.size == (size, size) else rgb.resize((size, size), Image.Resampling.BILINEAR))


def scale_grey(image: Image.Image, stored: object, key: object) -> Image.Image:
    """Return a picture of grey of more than 8 bits as one of 8.

    Args:
        image: The picture.
        stored: How its file holds the values.
        key: The value that is transparent.

    Raises:
        ValueError: Its values have no known range.
    """
    grey = np.asarray(image)
    if image.mode == "F" and not (np.isfinite(grey).all() and 0 <= grey.min() and grey.max() <= 1):
        raise ValueError("float values outside [0, 1] have no known range")
    most = 1.0 if image.mode == "F" else 4095.0 if stored == "I;12" else 65535.0
    scaled = np.round(grey.astype(np.float32) * np.float32(255 / most)).astype(np.uint8)
    if getattr(image, "tag_v2", {}).get(262) == 0:  # a TIFF whose white is zero
        scaled = 255 - scaled
    if isinstance(key, int) and (grey != key).any():
        scaled[grey == key] = 255
    return Image.fromarray(scaled)


def list_pictures(given: list[str]) -> list[Path]:
    """Return pictures, in order.

    Args:
        given: Files, and folders, of which all pictures count but those in hidden folders and in those of systems.
    """
    paths: list[Path] = []
    for top in map(Path, given):
        inside = [path for path in top.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file()]
        hidden = {path for path in inside for part in path.relative_to(top).parts if is_passed_over(part)}
        paths += sorted(set(inside) - hidden, key=Path.as_posix) if top.is_dir() else [top]
    return paths


def is_passed_over(name: str) -> bool:
    """Return whether a file or folder of this name is passed over."""
    return name.startswith(".") or name.casefold() in SERVICE


def to_field(text: str) -> str:
    """Return a text for a csv, with an apostrophe before what a spreadsheet would run as a formula."""
    text = os.fsencode(text).decode("utf-8", "backslashreplace")  # a path may be no UTF-8
    return f"'{text}" if re.match("'*[=+@\t\r-]", text) else text


def main(arguments: list[str]) -> int:
    """Print a row an image.

    Args:
        arguments: Pictures, and folders of them.

    Returns:
        Exit status: 1 where a picture is broken.
    """
    if not arguments or arguments[0].startswith("-"):
        sys.exit("usage: python predict.py IMAGES... > scores.csv")
    if not (HERE / "model.onnx").is_file():
        sys.exit("predict.py: model.onnx is not here; `spml model --onnx` writes it, `spml predict` does without")
    about = json.loads((HERE / "model.json").read_text(encoding="utf-8"))
    classes, rule = about["classes"], about["thresholds"]["rules"][about["thresholds"]["chosen"]]["logits"]
    if odd := [name for name in classes if ";" in name]:
        sys.exit(
            f"predict.py: class {odd[0]!r} holds a `;`, which stands between labels; use spml predict --to x.jsonl"
        )
    cuts = np.array([math.inf if rule[name] is None else rule[name] for name in classes])
    session = onnxruntime.InferenceSession(str(HERE / "model.onnx"), providers=["CPUExecutionProvider"])
    paths = list_pictures(arguments)
    out, broken = csv.writer(sys.stdout, lineterminator="\n"), 0
    out.writerow(["path", "labels", "error", *(f"score_{name}" for name in classes)])
    for path in paths:
        try:
            picture = decode(path, about["input"]["size"])
            (logits,) = np.asarray(session.run(["logits"], {"images": picture[None]})[0])
        except Exception as error:  # decoders raise nearly anything on damaged bytes
            out.writerow([to_field(str(path)), "", f"{type(error).__name__}: {error}", *[""] * len(classes)])
            broken += 1
            continue
        scores = 1 / (1 + np.exp(-np.clip(logits.astype(np.float64), -700, 700)))
        chosen = [name for name, logit, cut in zip(classes, logits, cuts, strict=True) if logit >= cut]
        out.writerow([to_field(str(path)), to_field(";".join(chosen)), "", *scores.tolist()])
    print(f"{len(paths)} images, {broken} broken", file=sys.stderr)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
