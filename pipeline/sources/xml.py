"""Images of one's own with an XML file each, as labelImg, CVAT and Roboflow write them in the form of PASCAL VOC.

The picture of a file lies beside it under its name, or is the only one of that name at or below the root, so that
folders `Annotations` and `JPEGImages` do too. A class is present where any object of its name is; boxes are not read.
Source: ours; the elements are those of the VOC2012 development kit.
"""

import os
from pathlib import Path
from typing import Literal
from xml.etree.ElementTree import Element, ParseError

from defusedxml import ElementTree

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, normalize_class_name, preview
from pipeline.core.text import check_regular
from pipeline.data import disk, own_data
from pipeline.data.own_data import WORDS, Content, OwnData, Row
from pipeline.data.raw import Files, make_reader


class Settings(OwnData):
    """Settings of `prepare.<dataset>` for pictures with an XML file each, at or below `root`."""

    source: Literal["xml"]
    exhaustive: bool
    """Whether the objects of an image are all that it shows: then a class without one is absent, else unknown."""


def locate(settings: Settings, root: Path) -> Files:
    """Return where the XML files and the pictures are.

    Raises:
        SourceError: there is no XML file.
    """
    files = own_data.locate(settings, root, None)
    names = disk.scan(files.folder, settings.links, (".xml",)).others
    if not names:
        raise SourceError(f"prepare: root: no XML file in {files.folder}")
    files.lists.update({name: files.folder / name for name in names})
    return files


def parse(files: Files, settings: Settings) -> Content:
    """Return what the files say of their pictures; one in a folder called by a split is of that split."""
    found = disk.scan(files.folder, settings.links, (".xml",))
    stems: dict[str, list[str]] = {}
    for picture in found.pictures:
        stem = os.path.splitext(picture)[0]
        for key in {stem, f"*/{stem.rpartition('/')[2]}"}:
            stems.setdefault(key, []).append(picture)
    rows = []
    for name, file in files.lists.items():
        if (content := _read(file, name, files.faults)) is None:
            continue
        labels = [normalize_class_name(thing.findtext("name") or "") for thing in content.findall("object")]
        if not all(labels):
            files.faults.add("objects have no name", f"{name} number {labels.index('') + 1}")
            continue
        picture = _picture(name, content, stems, files.faults)
        top = (picture or "").partition("/")[0].lower()
        if picture is not None:
            rows.append(Row(name, picture, tuple(dict.fromkeys(labels)), (), WORDS.get(top)))
    return Content(
        rows=rows,
        classes=own_data.wanted_classes(settings),
        found=found,
        closed=settings.exhaustive,
        exhaustive=settings.exhaustive,
        report={"rows": len(rows)},
    )


def _read(file: Path, name: str, faults: Faults) -> Element | None:
    """Return the annotation that a file holds; None where there is none, which is noted."""
    try:
        check_regular(file)
        content = ElementTree.fromstring(file.read_bytes())
    except (SourceError, OSError, ParseError, ValueError, LookupError) as error:  # entities, odd encodings
        faults.add("XML files cannot be read", f"{name} ({str(error) or type(error).__name__})")
        return None
    if content.tag != "annotation":
        how = "export as PASCAL VOC, one <annotation> a file"
        faults.add(f"XML files are of another form ({how})", f"{name} (<{content.tag}>)")
        return None
    return content


def _picture(name: str, content: Element, stems: dict[str, list[str]], faults: Faults) -> str | None:
    """Return the picture of an XML file, or the one that it names where none is found; None of several, noted."""
    stem = os.path.splitext(name)[0]
    fit = stems.get(stem) or stems.get(f"*/{stem.rpartition('/')[2]}") or []
    if len(fit) > 1:
        faults.add("XML files have several pictures of their name", f"{name} ({preview(fit)})")
        return None
    folder = name.rpartition("/")[0]
    named = (content.findtext("filename") or "").strip() or f"{stem.rpartition('/')[2]} (no <filename>)"
    return fit[0] if fit else f"{folder}/{named}" if folder else named


read, fingerprint = make_reader(locate, parse, own_data.build)
