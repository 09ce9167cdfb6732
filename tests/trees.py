"""Small trees of files on disk, and the settings that every source shares which reads pictures."""

from pathlib import Path
from typing import Any

PICTURES: dict[str, Any] = {
    "bad_images": "stop",
    "links": "inside",
    "max_pixels": 10**8,
    "parents": {},
    "exclusive": [],
}


def write_files(root: Path, *names: str, content: str | bytes = b"x") -> None:
    """Write files of one content, with the folders above them; for sources that open no picture any will do."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content.encode() if isinstance(content, str) else content)
