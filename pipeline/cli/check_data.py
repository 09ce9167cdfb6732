"""Check raw data as a whole: lists and labels read, every picture decoded, every fault named, nothing written.

What keeps a dataset from being prepared as it stands is a fault; what a user should know is a warning. Equal pictures
are found by a hash of their decoded pixels, so that a copy in another format is found too.
Source: ours.
"""

import filecmp
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from tqdm import tqdm

from pipeline.config import profiles
from pipeline.config.params import Params, read_params
from pipeline.core.errors import ConfigError, SourceError
from pipeline.core.faults import FaultyData, number, printable, some
from pipeline.data import published
from pipeline.data.images import ImageError, decode_noting
from pipeline.data.packing import ODD, oddities
from pipeline.data.raw import Pictures, partial, pictures, raw_folder
from pipeline.labels.table import SPLITS, Dataset, Table
from pipeline.sources import base

AHEAD = 1024  # pictures given to the threads at once: what is known of each is small


def check(root: Path, dataset: str, raw: str | None = None, *, progress: bool = True) -> dict[str, Any]:
    """Read everything of a dataset's raw data and say what is wrong with it.

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
    given = dataset
    params, dataset, place = _params(root, dataset, raw)
    source, settings = base.load(params.settings("prepare", dataset), f"prepare.{dataset}")
    simulate = params.settings("simulate", dataset)
    name: str = settings.source
    faults: list[str] = []
    report: dict[str, Any] = {"dataset": dataset, "source": name, "settings": place, "faults": faults, "warnings": []}
    report |= {"read": {}, "images": 0, "classes": 0, "notes": {}, "equal_pictures": [], "in_no_row": []}
    report |= {"statistics": [], "papers": [], "protocol": [], "not_checked": ""}
    differs = _differs(root, given, params) if place == "params.yaml" else []
    report["warnings"] += differs
    on_disk: dict[str, Path] = {}
    try:
        if isinstance(settings, Pictures):
            folder = raw_folder(settings, root)
            on_disk = {file: folder / file for file in pictures(folder)}
        data = _read(source, settings, root)
    except SourceError as error:
        told = error.every if isinstance(error, FaultyData) else str(error).splitlines()
        faults += map(printable, told)
        files = list(on_disk.values())
        looks = _looks([printable(file) for file in on_disk], lambda row: files[row], progress)
        faults += [str(look) for look in looks if isinstance(look, ImageError)]
        report["not_checked"] = "counts and equal pictures were not checked, since the lists cannot be read"
        return report

    looks = list(_looks(data.table.paths, data.image, progress))
    faults += [str(look) for look in looks if isinstance(look, ImageError)]
    good = np.array([row for row, look in enumerate(looks) if not isinstance(look, ImageError)], np.int64)
    report |= {"images": len(looks), "classes": len(data.table.classes)}
    if not len(good):
        report["not_checked"] = "counts and equal pictures were not checked, since no picture can be used"
        return report
    table = data.table.take(good)
    notes: dict[str, list[str]] = {}
    alike: dict[bytes, list[int]] = {}
    for row, look in enumerate(looks):
        if not isinstance(look, ImageError):
            alike.setdefault(look[1], []).append(row)
            for note in look[0]:
                notes.setdefault(note, []).append(data.table.paths[row])
    groups = [_group(data, rows) for rows in alike.values() if len(rows) > 1]
    used = {str(data.image(row)) for row in range(len(looks))} if on_disk else set()
    faults += _empty(table)
    report |= {
        "read": {key: value for key, value in data.report.items() if key != "warnings"},
        "warnings": [
            *differs,
            *data.report.get("warnings", []),
            *partial(table),
            *_warnings(table, notes, groups),
        ],
        "notes": dict(sorted(notes.items())),
        "equal_pictures": groups,
        "in_no_row": [printable(file) for file, path in on_disk.items() if str(path) not in used],
        "statistics": [asdict(row) for row in published.statistics(name, table)],
        "papers": [asdict(verdict) for verdict in published.verdicts(name, settings, table)],
    }
    if report["papers"]:
        report["protocol"] = [published.pictures(settings.size), published.draw(simulate)]
    return report


def _params(root: Path, name: str, raw: str | None) -> tuple[Params, str, str]:
    """Return the parameters that hold a dataset, its name and their file: params.yaml, or the profile of that name.

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
    there = profiles.names(root)
    if name not in there:
        known, there = ", ".join(params.prepare), ", ".join(there) or "none"
        raise ConfigError(f"no dataset {name!r}: params.yaml has {known}, and profiles are {there}")
    file, params = f"profiles/{name}.yaml", profiles.params(root, name, raw)
    datasets = [name] if name in params.prepare else params.grid.datasets
    if len(datasets) > 1:
        raise ConfigError(f"{file} runs {', '.join(datasets)}: spml profile {name} --root FOLDER, then check one")
    place = params.prepare[datasets[0]].get("root")
    if isinstance(place, str) and not (root / Path(place).expanduser()).is_dir():
        raise ConfigError(
            f"{file}: prepare.{datasets[0]}.root: {place} is not a folder; name that of the raw data: "
            f"spml check-data {name} --root FOLDER"
        )
    return params, datasets[0], file


def _differs(root: Path, name: str, params: Params) -> list[str]:
    """Return a warning where a profile reads the dataset otherwise than params.yaml, which counts."""
    try:
        other = profiles.params(root, name).prepare.get(name) if name in profiles.names(root) else None
    except ConfigError:  # `spml profile` says what is wrong with it
        return []
    mine = params.prepare.get(name)
    if other is None or mine is None or {**other, "root": ""} == {**mine, "root": ""}:
        return []
    return [f"profiles/{name}.yaml has other settings than params.yaml, which count: spml profile {name}"]


def _read(source: ModuleType, settings: Any, root: Path) -> Dataset:
    """Read lists and labels; pictures that are missing are left to be told with those that cannot be decoded.

    Returns:
        The dataset.

    Raises:
        SourceError: The lists are faulty.
    """
    if not isinstance(settings, Pictures):
        return source.read(settings, root)
    try:
        return source.read(settings.model_copy(update={"bad_images": "drop"}), root)
    except SourceError:
        source.read(settings.model_copy(update={"bad_images": "stop"}), root)  # tells missing pictures too
        raise


def _looks(
    names: Sequence[str], picture: Callable[[int], np.ndarray | Path], progress: bool
) -> Iterator[tuple[list[str], bytes] | ImageError]:
    """Decode pictures in a few threads; yield of each, in order, notes and hash, or why it cannot be used."""

    def look(row: int) -> tuple[list[str], bytes] | ImageError:
        found = picture(row)
        notes: list[str] = []
        if not isinstance(found, np.ndarray):
            try:
                found, notes = decode_noting(found, names[row])
            except ImageError as error:
                return error
        notes += oddities(*found.shape[:2])
        hashed = hashlib.blake2b(str(found.shape).encode(), digest_size=16)
        hashed.update(found.tobytes())
        return notes, hashed.digest()

    shown = tqdm(total=len(names), desc="check", unit="image", disable=None if progress else True)
    with shown, ThreadPoolExecutor(max(1, min(os.cpu_count() or 1, 8))) as pool:
        for start in range(0, len(names), AHEAD):
            for result in pool.map(look, range(start, min(start + AHEAD, len(names)))):
                shown.update()
                yield result


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
            warnings.append(f"{name}: no positive of {some(absent)}")
        if bare := int((~truth.any(axis=1)).sum()):
            warnings.append(f"{name}: {number(bare, 'image')} without a positive label")
    if across := sum(group["across_splits"] for group in groups):
        warnings.append(f"{number(across, 'group')} of equal pictures across splits: what is tested was seen before")
    if differ := sum(bool(group["differing_classes"]) for group in groups):
        warnings.append(f"{number(differ, 'group')} of equal pictures with different labels")
    for note, words in ODD.items():
        if found := notes.get(note):
            warnings.append(f"{number(len(found), 'picture')} {words}: {', '.join(found)}")
    return warnings


# ---------------------------------------------------------------------------------------------- for a person
def clean(report: dict[str, Any], strict: bool) -> bool:
    """Tell whether a dataset is clean.

    Args:
        report: What `check` returned.
        strict: Whether warnings count too.

    Returns:
        Whether there is nothing that counts.
    """
    return not (report["faults"] or (strict and report["warnings"]))


def told(report: dict[str, Any], strict: bool) -> Iterator[str]:
    """Give a report as text for a terminal.

    Args:
        report: What `check` returned.
        strict: As in `clean`.

    Yields:
        Lines; the last one counts faults and warnings and says whether the dataset is clean.
    """
    faults, warnings, groups = report["faults"], report["warnings"], report["equal_pictures"]
    images, classes = (
        number(report["images"], "image"),
        number(report["classes"], "class", "classes"),
    )
    folder = report["read"].get("folder")
    where = f" in {folder}" if folder else ""
    yield (
        f"{report['dataset']}: source {report['source']}{where}, "
        + (f"{images}, {classes}" if report["images"] else "lists cannot be read")
        + f"; settings: {report['settings']}"
    )
    yield from _section(f"Faults ({len(faults)})", faults)
    yield from _section(f"Warnings ({len(warnings)})", warnings)
    yield from _section(f"Equal pictures ({number(len(groups), 'group')})", map(_told_group, groups))
    notes = report["notes"] | ({"in no row of the table": report["in_no_row"]} if report["in_no_row"] else {})
    yield from _section("Pictures", (f"{note}: {len(names)}, such as {names[0]}" for note, names in notes.items()))
    if rows := report["statistics"]:
        wide = max(len(row["name"]) for row in rows)
        table = [f"{'':{wide}}  published  this copy"]
        for row in rows:
            same = "same" if row["same"] else "differs"
            table.append(f"{row['name']:{wide}}  {row['published']:>9}  {row['found']:>9}  {same}")
        yield from _section("Counts (Zhou 2022, Table 5)", table)
        lines = []
        for verdict in report["papers"]:
            lines += [f"{verdict['answer']}: {', '.join(verdict['papers'])}", *(f"  {why}" for why in verdict["why"])]
        yield from _section("Comparable with the numbers of", lines)
        yield from _section("For numbers that compare, these must agree too", report["protocol"])
    elif not report["not_checked"]:
        yield from _section("Comparable", ["nothing is published on this dataset to compare with"])
    yield from _section("Not checked", [report["not_checked"]] if report["not_checked"] else [])
    yield ""
    count = f"{number(len(faults), 'fault')}, {number(len(warnings), 'warning')}"
    yield f"{report['dataset']}: {count}: {'clean' if clean(report, strict) else 'not clean'}"


def _section(head: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield a heading and its lines; nothing without lines."""
    if lines := list(lines):
        yield from ("", head, *(f"  {line}" for line in lines))


def _told_group(group: dict[str, Any]) -> str:
    """Return one group of equal pictures as a line."""
    images = " = ".join(
        f"{image['path']} ({image['split']}: {', '.join(image['labels']) or 'no label'})" for image in group["images"]
    )
    told = ["the same file" if group["same_bytes"] else "other bytes"]
    told += ["across splits"] if group["across_splits"] else []
    told += [f"labels differ in {', '.join(group['differing_classes'])}"] if group["differing_classes"] else []
    return f"{images}: {', '.join(told)}"
