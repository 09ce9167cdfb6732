"""Pictures on disk: finding them below a folder, and telling one state of raw data from another.

A real folder is read once, whatever links lead to it; what is no regular file, such as a pipe, is never opened; and
links out of the folder are followed only where a setting says so. Folders that systems make beside one's own
(thumbnails, bins, checkpoints) hold copies, which would be classes of their own and the same picture in two splits:
they are passed over and counted.
Source: ours. Names are compared in unicode form NFC: archives made on macOS hold names in NFD.
"""

import hashlib
import os
import stat
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pipeline.core import files as storage
from pipeline.core.errors import FileError, SourceError
from pipeline.core.faults import pluralize, preview
from pipeline.core.progress import track
from pipeline.core.text import check_regular
from pipeline.data.formats import ENDINGS, UNREAD, name_remedies

SERVICE = {"@eadir", "@tmp", "@recycle", "@recently-snapshot", "#recycle", "#snapshot", "$recycle.bin", "recycler"}
SERVICE |= {"lost+found", "system volume information", "found.000", "__macosx", "thumbnails", "_thumbnails", "_thumbs"}
SERVICE |= {
    "@__thumb",
    ".ipynb_checkpoints",
    ".thumbnails",
    ".thumbs",
    ".@__thumb",
    ".trash",
    ".trashes",
    ".trash-1000",
}
"""Folders of systems and tools, compared without case; of hidden folders, those that hold copies of pictures."""
Links = Literal["inside", "follow"]
"""`inside`: links that lead out of the folder are an error; `follow`: they are read too."""
RACY = 2_000_000_000  # nanoseconds; a file this young may change again without its times moving

State = tuple[int, int, int, int]


@dataclass(frozen=True)
class Found:
    """What lies in a folder and the folders below it, by paths relative to it with forward slashes, sorted.

    Args:
        pictures: Picture files, as they are on disk (not NFC); a link that leads nowhere is one too.
        unread: Picture files of endings that are not read.
        service: Folders of systems and tools -> number of pictures in them, where there are some.
        odd: Names of pictures that are no regular files, such as pipes.
        again: Links to folders that are read elsewhere.
        others: Files of other endings that were asked for.
    """

    pictures: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    service: dict[str, int] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def warnings(self) -> list[str]:
        """Return a warning for each kind of what was left out."""
        warnings = []
        if self.unread:
            were = "was" if len(self.unread) == 1 else "were"
            count = pluralize(len(self.unread), "picture")
            how = f"; {remedy}" if (remedy := name_remedies(self.unread)) else ""
            warnings.append(f"{count} of endings that are not read {were} left out: {preview(self.unread)}{how}")
        if self.service:
            count = pluralize(sum(self.service.values()), "picture")
            names = preview([f"{name} ({number})" for name, number in self.service.items()])
            warnings.append(f"{count} in folders of systems and tools left out: {names}")
        if self.odd:
            warnings.append(f"no regular files, left out: {preview(self.odd)}")
        if self.again:
            warnings.append(f"links to folders that are read elsewhere, left out: {preview(self.again)}")
        return warnings


def scan(folder: Path, links: Links, also: tuple[str, ...] = ()) -> Found:
    """Return the pictures in a folder and the folders below it; hidden names are passed over.

    Args:
        folder: The folder, which may itself be a link.
        links: What to do about links that lead out of it.
        also: Endings of other files to find, in small letters.

    Raises:
        SourceError: a folder cannot be read, or links lead out of it, which the setting forbids.
    """
    walk = _Walk(folder, links, also)
    walk.read_all()
    if walk.outside:
        raise SourceError(
            f"{folder.name}: {pluralize(len(walk.outside), 'link leads', 'links lead')} out of the folder: "
            f"{preview(sorted(walk.outside))}; to read what lies there: prepare: links: follow (spml init: --links "
            "follow)"
        )
    found = walk.found
    for names in (found.pictures, found.unread, found.odd, found.again, found.others):
        names.sort()
    return replace(found, service=dict(sorted(found.service.items())))


def is_service(name: str) -> bool:
    """Return whether a folder of this name is passed over: hidden, or of a system or tool."""
    return name.startswith(".") or name.casefold() in SERVICE


class _Walk:
    """Reads each real folder below a folder once: those that no link leads to first, so that names are stable."""

    def __init__(self, top: Path, links: Links, also: tuple[str, ...]):
        self.found, self.outside = Found(), list[str]()
        self._kinds: dict[str, list[str]] = dict.fromkeys(ENDINGS, self.found.pictures) | dict.fromkeys(
            UNREAD, self.found.unread
        )
        self._kinds |= dict.fromkeys(also, self.found.others)
        self._top, self._follow = top, links == "follow"
        self._inside = os.path.join(os.path.realpath(top), "")
        self._seen: set[tuple[int, int]] = set()
        self._waiting: list[tuple[str, str]] = [("", str(top))]
        self._linked: list[tuple[str, str]] = []

    def read_all(self) -> None:
        """Fill `found` and `outside`."""
        while self._waiting or self._linked:
            if self._waiting:
                self._read(*self._waiting.pop())
            else:
                self._linked.sort(reverse=True)
                self._read(*self._linked.pop(), linked=True)

    def _read(self, prefix: str, path: str, linked: bool = False) -> None:
        try:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in self._seen:
                if linked:
                    self.found.again.append(prefix.rstrip("/"))
                return
            self._seen.add((status.st_dev, status.st_ino))
            with os.scandir(path) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise SourceError(f"{prefix or self._top.name}: cannot be read ({error})") from error
        for entry in found:
            name = prefix + entry.name
            ending = os.path.splitext(entry.name)[1].lower()
            if _is_folder(entry):
                self._enter(name, entry)
            elif entry.name.startswith(".") or ending not in self._kinds:
                continue
            elif entry.is_symlink() and not self._may_follow(entry):
                self.outside.append(name)
            elif not _is_regular(entry):
                self.found.odd.append(name)
            else:
                self._kinds[ending].append(name)

    def _enter(self, name: str, entry: os.DirEntry[str]) -> None:
        if is_service(entry.name):
            if entry.name.casefold() in SERVICE and not entry.is_symlink() and (count := _count(entry.path)):
                self.found.service[name] = count
        elif not entry.is_symlink():
            self._waiting.append((f"{name}/", entry.path))
        elif self._may_follow(entry):
            self._linked.append((f"{name}/", entry.path))
        else:
            self.outside.append(name)

    def _may_follow(self, entry: os.DirEntry[str]) -> bool:
        return self._follow or os.path.join(os.path.realpath(entry.path), "").startswith(self._inside)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _is_regular(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a file with an end; a link that leads nowhere is left to whoever opens it."""
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return True


def _count(folder: str) -> int:
    """Return the number of pictures in a folder and below it, as far as they can be seen."""
    names = (name for _, _, files in os.walk(folder) for name in files)
    return sum(os.path.splitext(name)[1].lower() in ENDINGS for name in names)


# ---------------------------------------------------------------------------------------------- states
def digest(lists: dict[str, Path], folders: dict[str, Path], links: Links, root: Path) -> str:
    """Return what tells one state of raw data from another: names and bytes of all lists and pictures.

    A picture is read only where its time, size or inode is another than when it was last read in this project: what is
    known of each lies in `.pipeline/raw`, and is no output, so no time is in one.

    Args:
        lists: Lists and labels, by the name under which they count.
        folders: Folders of pictures, by the name under which they count.
        links: As in `scan`.
        root: Project root.

    Returns:
        SHA-256 as 64 hexadecimal digits; where the data lie does not count.

    Raises:
        SourceError: a file or folder is missing or cannot be read.
    """
    facts: list[tuple[str, str]] = []
    for name, path in lists.items():
        check_regular(path)
        facts.append((name, _hash(path, path.name)))
    for prefix, folder in folders.items():
        names = scan(folder, links).pictures
        hashes = _hash_pictures(folder, names, prefix, root)
        facts += [(f"{prefix}/{name}", value) for name, value in zip(names, hashes, strict=True)]
    named = sorted((unicodedata.normalize("NFC", name), value) for name, value in facts)
    text = "".join(f"{name}\0{value}\n" for name, value in named)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def file_state(path: Path) -> State:
    """Return what changes with a file: time of writing, bytes, inode, time of change.

    Archives and copies set the first two at will; a rename, a copy or a write changes one of the others. Where inodes
    are not stable, as on some network disks, files are read once more for nothing.

    Raises:
        OSError: it cannot be looked at.
    """  # noqa: DOC502  raised by the system
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino & (2**63 - 1), status.st_ctime_ns


def _hash_pictures(folder: Path, names: list[str], prefix: str, root: Path) -> list[str]:
    """Return the hash of each picture, read anew where its file moved since it was last read."""
    place = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    cache = root / ".pipeline" / "raw" / f"{place}.json"
    known = _read_cache(cache)
    fresh: dict[str, list[int | str]] = {}

    def find(name: str) -> str:
        try:
            state = file_state(folder / name)
        except OSError as error:
            raise SourceError(f"{prefix}/{name}: cannot be read ({error.strerror or error})") from error
        entry = known.get(key := _key(name), [])
        same = entry[:-1] == list(state)
        value = str(entry[-1]) if same else _hash(folder / name, f"{prefix}/{name}")
        if same or max(state[0], state[3]) < time.time_ns() - RACY:
            fresh[key] = [*state, value]
        return value

    with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        hashes = list(track(pool.map(find, names), "state of the raw data", len(names), "image"))
    if fresh != known:
        with suppress(OSError, FileError):  # it saves time, no more
            storage.write_json(cache, fresh)
    return hashes


def _key(name: str) -> str:
    """Return a name so that JSON can hold it, whatever bytes it has on disk."""
    return os.fsencode(name).decode("latin-1")


def _read_cache(path: Path) -> dict[str, list[int | str]]:
    """Return what is known of files; nothing where that cannot be read."""
    try:
        content = storage.read_json(path) if path.is_file() else {}
    except (FileError, OSError):
        return {}
    usable = isinstance(content, dict) and all(
        isinstance(entry, list) and len(entry) == 5 for entry in content.values()
    )
    return content if usable else {}


def _hash(path: Path, name: str) -> str:
    """Return the SHA-256 of a file's bytes.

    Raises:
        SourceError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SourceError(f"{name}: cannot be read in {path.parent} ({error.strerror or error})") from error
