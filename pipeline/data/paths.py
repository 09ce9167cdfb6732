"""How the paths of a file of labels count: from which folder, with or without ending, or from the root of the disk."""

import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.faults import pluralize
from pipeline.core.text import relative_path
from pipeline.data.formats import ENDINGS, UNREAD


@dataclass(frozen=True)
class Placed:
    """Paths that stand for a file otherwise than as they are written.

    Args:
        paths: Path as written -> path from the folder of the pictures.
        told: What was done, in words.
    """

    paths: dict[str, str]
    told: list[str]


def place_paths(written: Iterable[str], folder: Path, pictures: Sequence[str]) -> Placed:
    """Find what paths stand for that do not count from the folder of the pictures, or lack their ending.

    An absolute path within the folder counts from there; a name without an ending stands for the one picture of that
    name; and where no path has a picture, but one subfolder alone holds them all, they count from it. Whatever is less
    certain is left as it is written, for `raw.match_files` to refuse.

    Args:
        written: The paths, each once.
        folder: The folder of the pictures.
        pictures: Those in it, as `disk.scan` gives them.

    Returns:
        The paths that change.
    """
    forms: dict[str, str] = {}
    tops = [f"{os.path.join(top, '')}" for top in dict.fromkeys((str(folder), os.path.realpath(folder)))]
    for text in written:
        inner = next((text[len(top) :] for top in tops if text.startswith(top)), text)
        try:
            forms[text] = relative_path(inner)
        except ValueError:  # told with its row
            continue
    absolute = [text for text, form in forms.items() if os.path.isabs(text) and form]
    names = _Names(pictures)
    prefix = "" if any(names.find(form) for form in forms.values()) else names.find_prefix(list(forms.values()))
    found = {text: names.find(prefix + form) for text, form in forms.items()}
    bare = [text for text, file in found.items() if file and not file.lower().endswith(_ending(text))]
    paths = {text: (prefix + form if text not in bare else str(found[text])) for text, form in forms.items()}
    told = []
    if absolute:
        told.append(f"{pluralize(len(absolute), 'path')} written from the root of the disk, as {absolute[0]}")
    if prefix:
        told.append(f"paths count from the folder {prefix.rstrip('/')}")
    if bare:
        told.append(f"{pluralize(len(bare), 'name')} without ending, as {bare[0]} for {found[bare[0]]}")
    return Placed({text: path for text, path in paths.items() if path != text} if told else {}, told)


def _ending(path: str) -> tuple[str, ...] | str:
    """Return the ending of a path of a picture; one that none has where there is none."""
    ending = os.path.splitext(path)[1].lower()
    return ending if ending in (*ENDINGS, *UNREAD) else "\0"


class _Names:
    """Picture files by name, compared in NFC and without case, with and without ending."""

    def __init__(self, pictures: Sequence[str]):
        self._whole: dict[str, list[str]] = {}
        self._stems: dict[str, list[str]] = {}
        for picture in pictures:
            form = _form(picture)
            self._whole.setdefault(form, []).append(picture)
            self._stems.setdefault(os.path.splitext(form)[0], []).append(picture)
        self._folders = sorted({part for picture in pictures for part in _above(picture)})

    def find(self, path: str) -> str | None:
        """Return the picture of a path, the first where its case fits several; without an ending, the only one."""
        form = _form(path)
        if exact := self._whole.get(form):
            return exact[0]
        stems = self._stems.get(form, []) if _ending(form) == "\0" else []
        return stems[0] if len(stems) == 1 else None

    def find_prefix(self, paths: list[str]) -> str:
        """Return the one folder, with a slash, from which most paths have a picture, at least half of them; else ""."""
        counts: dict[str, int] = {}
        for folder in self._folders:
            if any(self.find(folder + path) for path in paths[:100]):
                counts[folder] = sum(self.find(folder + path) is not None for path in paths)
        best = [folder for folder, count in counts.items() if count == max(counts.values())]
        return best[0] if len(best) == 1 and 2 * counts[best[0]] >= len(paths) else ""


def _form(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _above(path: str) -> list[str]:
    """Return the folders above a path, each with a slash."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: depth + 1]) + "/" for depth in range(len(parts))]
