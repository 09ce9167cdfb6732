"""Inspect raw data as a whole: read lists and labels, decode every picture, name every fault; nothing is written.

What keeps a dataset from being prepared as it stands is a fault; what a user should know is a warning. Equal pictures
are found by a hash of their decoded pixels, so that a copy in another format is found too.
"""

import filecmp
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pipeline.config import profiles
from pipeline.config.params import Params, read_params
from pipeline.core.errors import ConfigError, SourceError
from pipeline.core.faults import FaultyData, pluralize, preview
from pipeline.core.progress import track
from pipeline.core.text import to_printable
from pipeline.data import disk, published
from pipeline.data.images import ImageError, decode_noting
from pipeline.data.packing import ODD, oddities
from pipeline.data.raw import Pictures, find_root, warn_partial_labels
from pipeline.labels.table import SPLITS, Dataset, Table
from pipeline.sources import base

AHEAD = 1024  # pictures given to the threads at once: what is known of each is small


@dataclass(frozen=True)
class Look:
    """What decoding told of a picture that can be used.

    Attributes:
        notes: What is odd about it.
        digest: Hash of its shape and pixels.
    """

    notes: list[str]
    digest: bytes


def inspect(root: Path, dataset: str, raw: str | None = None, *, progress: bool = True) -> dict[str, Any]:
    """Read everything of a dataset's raw data and list what is wrong with it.

    Args:
        root: Project root.
        dataset: Name of a dataset of `prepare` in params.yaml; or else of a profile, which then need not be applied.
        raw: Folder of the raw data, in place of `prepare.<dataset>.root`; None: as the settings say.
        progress: Whether to show a bar where standard error is a terminal.

    Returns:
        Plain JSON values. `dataset`, `source`; `settings`, the file that these are in; `faults` and `warnings`, a line
        each; `read`, the source's report; `images` and `classes`, how many (0 where lists cannot be read); `notes`,
        what is odd about pictures -> their names; `equal_pictures`, groups with `images` (`path`, `split`, `labels`),
        `across_splits`, `differing_classes` and `same_bytes`; `in_no_row`, names of pictures that no row has;
        `statistics` and `papers`, as `pipeline.data.published` gives them; `protocol`, sentences on what else must
        agree; `not_checked`, what was not and why, or empty.

    Raises:
        ConfigError: params.yaml, the profile or the dataset's block is not valid, or nothing has that name.
    """
    params, name, file = find_settings(root, dataset, raw)
    source, settings = base.load(params.settings("prepare", name), f"prepare.{name}")
    report: dict[str, Any] = {"dataset": name, "source": settings.source, "settings": file, "faults": []}
    report |= {"warnings": other_profile(root, dataset, params) if file == "params.yaml" else []}
    report |= {"read": {}, "images": 0, "classes": 0, "notes": {}, "equal_pictures": [], "in_no_row": []}
    report |= {"statistics": [], "papers": [], "protocol": [], "not_checked": ""}
    on_disk: dict[str, Path] = {}
    max_pixels = getattr(settings, "max_pixels", 0)  # a source that draws its pictures has none to decode
    try:
        if isinstance(settings, Pictures):
            folder = find_root(settings, root)
            on_disk = {picture: folder / picture for picture in disk.scan(folder, settings.links).pictures}
        data = read_lists(source, settings, root, name)
    except SourceError as error:
        lines = error.lines if isinstance(error, FaultyData) else str(error).splitlines()
        names, paths = [to_printable(picture) for picture in on_disk], list(on_disk.values())
        looks = look(names, lambda row: paths[row], max_pixels, progress)
        report["faults"] += [
            *map(to_printable, lines),
            *(str(found) for found in looks if isinstance(found, ImageError)),
        ]
        report["not_checked"] = "counts and equal pictures were not checked, since the lists cannot be read"
        return report

    looks = list(look(data.table.paths, data.image, max_pixels, progress))
    report["faults"] += [str(found) for found in looks if isinstance(found, ImageError)]
    report |= {"images": len(looks), "classes": len(data.table.classes)}
    usable = {row: found for row, found in enumerate(looks) if isinstance(found, Look)}
    if not usable:
        report["not_checked"] = "counts and equal pictures were not checked, since no picture can be used"
        return report
    describe_pictures(report, data, usable)
    used = {str(data.image(row)) for row in range(len(looks))} if on_disk else set()
    report["in_no_row"] = [to_printable(name) for name, path in on_disk.items() if str(path) not in used]
    compare_with_papers(report, settings, params.settings("simulate", name), data.table.take(np.array([*usable])))
    return report


# ---------------------------------------------------------------------------------------------- find and read
def find_settings(root: Path, name: str, raw: str | None) -> tuple[Params, str, str]:
    """Find the parameters that hold a dataset: those of params.yaml, or of the profile of that name.

    Args:
        root: Project root.
        name: Name of a dataset or a profile.
        raw: Folder of the raw data that replaces the one of the settings, or None.

    Returns:
        The parameters, the dataset's name, and the file that they are from.

    Raises:
        ConfigError: Neither holds it or is valid, or the profile does not say where the raw data lie.
    """
    params = read_params(root / "params.yaml")
    if name in params.prepare or name in params.grid.datasets:
        block = params.prepare.get(name, {})
        if raw is not None and "root" not in block:
            raise ConfigError(f"prepare.{name}: its pictures are drawn and lie in no folder: leave out --root")
        if raw is not None:
            params.prepare[name] = block | {"root": raw}
        return params, name, "params.yaml"
    if name not in (known := profiles.names(root)):
        datasets, known = ", ".join(params.prepare), ", ".join(known) or "none"
        raise ConfigError(f"no dataset {name!r}: params.yaml has {datasets}, and profiles are {known}")
    file, params = f"profiles/{name}.yaml", profiles.params(root, name, raw)
    datasets = [name] if name in params.prepare else params.grid.datasets
    if len(datasets) > 1:
        raise ConfigError(f"{file} runs {', '.join(datasets)}: spml profile {name} --root FOLDER, then check one")
    folder = params.prepare[datasets[0]].get("root")
    if isinstance(folder, str) and not (root / Path(folder).expanduser()).is_dir():
        raise ConfigError(
            f"{file}: prepare.{datasets[0]}.root: {folder} is not a folder; name that of the raw data: "
            f"spml check-data {name} --root FOLDER"
        )
    return params, datasets[0], file


def other_profile(root: Path, name: str, params: Params) -> list[str]:
    """Return a warning where a profile reads the dataset otherwise than params.yaml, which counts."""
    try:
        other = profiles.params(root, name).prepare.get(name) if name in profiles.names(root) else None
    except ConfigError:  # `spml profile` says what is wrong with it
        return []
    mine = params.prepare.get(name)
    if other is None or mine is None or {**other, "root": ""} == {**mine, "root": ""}:
        return []
    return [f"profiles/{name}.yaml has other settings than params.yaml, which count: spml profile {name}"]


def read_lists(source: ModuleType, settings: Any, root: Path, dataset: str) -> Dataset:
    """Read lists and corrected labels; missing pictures are left to be named with those that cannot be decoded.

    Args:
        source: The dataset's source.
        settings: Its settings.
        root: Project root.
        dataset: Name of the dataset.

    Returns:
        The dataset.

    Raises:
        SourceError: The lists or the corrections are faulty.
    """

    def read(**changes: str) -> Dataset:
        return base.read(source, settings.model_copy(update=changes), root, dataset)

    if not isinstance(settings, Pictures):
        return read()
    try:
        return read(bad_images="drop")
    except SourceError:
        read(bad_images="stop")  # tells missing pictures too
        raise


def look(
    names: Sequence[str], picture: Callable[[int], np.ndarray | Path], max_pixels: int, progress: bool
) -> Iterator[Look | ImageError]:
    """Decode pictures in a few threads.

    Args:
        names: Their names, for messages.
        picture: Returns the file or the pixels of a row.
        max_pixels: Width times height above which a picture cannot be used.
        progress: Whether to show a bar where standard error is a terminal.

    Yields:
        What each told, in order, or why it cannot be used.
    """

    def decode(row: int) -> Look | ImageError:
        pixels = picture(row)
        notes: list[str] = []
        if not isinstance(pixels, np.ndarray):
            try:
                pixels, notes = decode_noting(pixels, max_pixels, names[row])
            except ImageError as error:
                return error
        notes += oddities(pixels)
        digest = hashlib.blake2b(str(pixels.shape).encode(), digest_size=16)
        digest.update(pixels.tobytes())
        return Look(notes, digest.digest())

    with ThreadPoolExecutor(max(1, min(os.cpu_count() or 1, 8))) as pool:
        starts = range(0, len(names), AHEAD)
        found = (each for at in starts for each in pool.map(decode, range(at, min(at + AHEAD, len(names)))))
        yield from track(found, "check", len(names), "image", quiet=not progress)


# ---------------------------------------------------------------------------------------------- compare
def describe_pictures(report: dict[str, Any], data: Dataset, usable: dict[int, Look]) -> None:
    """Add to a report what the pictures and labels that can be used tell.

    Args:
        report: What `inspect` returns; altered.
        data: The dataset.
        usable: What was seen of each row whose picture can be used.
    """
    table = data.table.take(np.array([*usable]))
    notes: dict[str, list[str]] = {}
    alike: dict[bytes, list[int]] = {}
    for row, found in usable.items():
        alike.setdefault(found.digest, []).append(row)
        for note in found.notes:
            notes.setdefault(note, []).append(data.table.paths[row])
    groups = [_group(data, rows) for rows in alike.values() if len(rows) > 1]
    report["faults"] += _empty(table)
    report["warnings"] += [
        *data.report.get("warnings", []),
        *warn_partial_labels(table),
        *_warnings(table, notes, groups),
    ]
    report["read"] = {key: value for key, value in data.report.items() if key != "warnings"}
    report |= {"notes": dict(sorted(notes.items())), "equal_pictures": groups}


def compare_with_papers(report: dict[str, Any], settings: Any, simulate: Any, table: Table) -> None:
    """Add to a report how the counts and settings compare with the published ones.

    Args:
        report: What `inspect` returns; altered.
        settings: Settings of the source.
        simulate: Settings of the draw of labels.
        table: The rows that can be used.
    """
    name = settings.source
    report["statistics"] = [asdict(row) for row in published.compare_counts(name, table)]
    report["papers"] = [asdict(verdict) for verdict in published.judge(name, settings, table)]
    if report["papers"]:
        report["protocol"] = [published.describe_pictures(settings.size), published.describe_draw(simulate)]


def _group(data: Dataset, rows: list[int]) -> dict[str, Any]:
    """Return what is known of rows with equal pictures."""
    table, first = data.table, data.image(rows[0])
    differ = (table.truth[rows] != table.truth[rows[0]]).any(axis=0)
    others = [data.image(row) for row in rows[1:]]
    return {
        "images": [
            {
                "path": table.paths[row],
                "split": SPLITS[table.split[row]],
                "labels": [table.classes[column] for column in np.flatnonzero(table.truth[row])],
            }
            for row in rows
        ],
        "across_splits": len(set(table.split[rows].tolist())) > 1,
        "differing_classes": [table.classes[column] for column in np.flatnonzero(differ)],
        "same_bytes": isinstance(first, Path)
        and all(isinstance(other, Path) and filecmp.cmp(first, other, shallow=False) for other in others),
    }


def _empty(table: Table) -> list[str]:
    """Return which splits leave nothing to train on, to choose an epoch by, or to test on."""
    rows = {name: table.rows(name) for name in SPLITS}
    faults = [f"{name}: no image can be used" for name in SPLITS if not len(rows[name])]
    for name in ("train", "val"):
        if len(rows[name]) and not table.truth[rows[name]].any():
            faults.append(f"{name}: no image has a positive label")
    return faults


def _warnings(table: Table, notes: dict[str, list[str]], groups: list[dict[str, Any]]) -> list[str]:
    """Return what a user should know although the data can be prepared."""
    warnings = []
    for name in SPLITS:
        truth = table.truth[table.rows(name)]
        if not len(truth):
            continue
        if absent := [table.classes[column] for column in np.flatnonzero(~truth.any(axis=0))]:
            warnings.append(f"{name}: no positive of {preview(absent)}")
        if bare := int((~truth.any(axis=1)).sum()):
            warnings.append(f"{name}: {pluralize(bare, 'image')} without a positive label")
    if across := sum(group["across_splits"] for group in groups):
        warnings.append(f"{pluralize(across, 'group')} of equal pictures across splits: what is tested was seen before")
    if differ := sum(bool(group["differing_classes"]) for group in groups):
        warnings.append(f"{pluralize(differ, 'group')} of equal pictures with different labels")
    for note, words in ODD.items():
        if found := notes.get(note):
            warnings.append(f"{pluralize(len(found), 'picture')} {words}: {', '.join(found)}")
    return warnings
