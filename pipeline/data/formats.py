"""Formats of pictures: which are read here, by their endings and by Pillow's names, and what reads the others.

AVIF is read where Pillow was built with it, as its wheels are from 11.3 on; HEIC where the extra `heic` is installed.
Source: ours.
"""

from collections.abc import Sequence

from PIL import features

try:
    import pillow_heif  # pyright: ignore[reportMissingImports]
except ImportError:
    HEIC = False
else:
    pillow_heif.register_heif_opener()
    HEIC = True
AVIF: bool = features.check("avif") is True
_READ = {"HEIC": HEIC, "AVIF": AVIF}
_ENDINGS = {"HEIC": (".heic", ".heif", ".hif"), "AVIF": (".avif",)}
_BRANDS = {b"heic": "HEIC", b"heix": "HEIC", b"heim": "HEIC", b"heis": "HEIC", b"mif1": "HEIC", b"msf1": "HEIC"}
_BRANDS |= {b"avif": "AVIF", b"avis": "AVIF"}
"""What stands in the first box of a file, `ftyp`, after its length and name -> format."""
_REMEDIES = {
    "HEIC": "HEIC is read once its extra is installed: pip install 'spml[heic]'",
    "AVIF": "AVIF is read by a Pillow that was built with it: pip install --upgrade pillow",
}

FORMATS: tuple[str, ...] = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", *(["AVIF"] * AVIF), *(["HEIF"] * HEIC))
"""Pillow's names, by content; JPEG includes MPO, several in one file."""
ENDINGS: tuple[str, ...] = (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff")
ENDINGS += tuple(ending for kind, endings in _ENDINGS.items() if _READ[kind] for ending in endings)
"""Of picture files, compared without case. What a file holds is told by its content, when it is decoded."""
UNREAD: tuple[str, ...] = tuple(ending for kind, all_ in _ENDINGS.items() if not _READ[kind] for ending in all_)
UNREAD += (".jxl", ".jp2", ".j2k", ".jpx", ".svg", ".psd", ".tga", ".ppm", ".pgm", ".pbm")
UNREAD += (".raw", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".raf", ".rw2", ".pef", ".srw")
"""Of picture files that are not read: sources say how many lie beside the others, so that none vanishes unseen."""


def name_remedies(names: Sequence[str]) -> str:
    """Return what reads pictures that are not read here, by their names; empty where nothing does."""
    kinds = [
        kind for kind, endings in _ENDINGS.items() if any(name.lower().endswith(endings) for name in names)
    ]  # fmt: skip
    return "; ".join(_REMEDIES[kind] for kind in kinds if not _READ[kind])


def explain_unread(data: bytes) -> str:
    """Return why a picture of HEIC or AVIF was not read, by the bytes of its file; empty where it is neither."""
    kind = _BRANDS.get(data[8:12]) if data[4:8] == b"ftyp" else None
    if kind is None:
        return ""
    return f"damaged {kind}, or of a kind that is not read" if _READ[kind] else _REMEDIES[kind]
