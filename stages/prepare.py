"""Bring a raw dataset into the project's one form: ``python -m stages.prepare DATASET``.

Reads what ``prepare.<dataset>`` in params.yaml names; writes data/prepare/<dataset>/: table.h5 (paths, class names,
truth, splits), images.h5 (packed pixels), report.json (what was read, skipped and why, counts) and summary.md. Nothing
is written before everything was read and found good.
"""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import checkpoint, config, packing, storage
from pipeline.sources.base import load
from pipeline.table import SPLITS, Dataset, SourceError, Table, write_table
from stages import entry

SHOWN = 20  # of many images, this many are named
FEW = 10  # positives; below this a class's average precision says little
MANY = 10  # equal pictures are no mere duplicates, but what a server sends for pictures that are gone
SUSPICIOUS = {
    "tiny": f"have a side below {packing.TINY} pixels: placeholders?",
    "extreme shape": f"have a side more than {packing.EXTREME} times the other: squeezed to a square, they show little",
    "ends in plain grey": "have a plain grey corner where files cut short have it: are they whole?",
}
"""Notes of `packing.pack` that a person must see -> what is said of the pictures."""


def prepare(root: Path, dataset: str) -> None:
    """Read, check and pack one dataset.

    Args:
        root: Project root.
        dataset: Name of a dataset.

    Raises:
        ConfigError: the settings name no source, or do not suit it.
        SourceError: the raw data is not what the source expects, or a split is empty.
    """
    source, settings = load(config.load(root / "params.yaml"), dataset)

    raw = source.fingerprint(
        settings, root
    )  # before the lists are read: what changes meanwhile is told by the next check
    data = source.read(settings, root)
    _refuse_an_empty_split(dataset, data.table)
    folder = root / "data" / "prepare" / dataset
    same = {**settings.model_dump(exclude={"bad_images"}), "paths": data.table.paths}
    print_ = checkpoint.fingerprint([same, packing.stamp(data, raw)], [])
    place = checkpoint.scratch(root) / f"prepare-{dataset}"
    checkpoint.sort_out(place, print_, f"prepare {dataset}")
    with checkpoint.Checkpoint(place / print_) as point:
        packed = packing.pack(
            data,
            settings.size,
            source=settings.source,
            bad_images=getattr(settings, "bad_images", "stop"),  # a source that draws its pictures has no bad ones
            checkpoint=point,
            workers=_workers(),
        )
        kept = None if data.objects is None else data.objects.take(packed.rows)
        data = replace(data, table=data.table.take(packed.rows), objects=kept)
        _refuse_an_empty_split(dataset, data.table)
        storage.place(packed.file, folder / "images.h5")
        write_table(folder / "table.h5", data.table, data.objects)
        report = {"dataset": dataset, "source": settings.source, "size": settings.size, "raw_sha256": raw}
        report |= _report(data, packed)
        storage.write_json(folder / "report.json", report)
        storage.write_summary(folder / "summary.md", f"Dataset {dataset}", _summary(report, data.table))
        point.discard()


def _refuse_an_empty_split(dataset: str, table: Table) -> None:
    """Refuse a table that leaves nothing to train on, choose by or test on.

    Raises:
        SourceError: As said.
    """
    counts = {name: len(table.rows(name)) for name in SPLITS}
    if empty := [name for name, count in counts.items() if not count]:
        found = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise SourceError(f"prepare.{dataset}: no image in {' and '.join(empty)} ({found})")


def _workers() -> int | None:
    """Return the number of decoding threads that the environment asks for.

    Raises:
        ConfigError: it is no whole number.
    """
    text = os.environ.get("SPML_WORKERS", "")
    if text and not text.isdecimal():
        raise config.ConfigError(f"SPML_WORKERS={text!r} is no whole number")
    return int(text) if text else None


def _report(data: Dataset, packed: packing.Packed) -> dict[str, Any]:
    """Return what report.json says beside the settings."""
    table = data.table
    splits, warnings = {}, list(data.report.get("warnings", []))
    if not table.exhaustive:
        told = "val and test are labelled in full, so their scores are true ones"
        if not (table.measurable("val") and table.measurable("test")):
            told = "no score is against the truth; a sample labelled in full, as val and test, would tell"
        warnings.append(f"the labels are not exhaustive: what is not given is unknown; {told}")
    support = {}
    for name in SPLITS:
        rows = table.rows(name)
        labels = table.truth[rows].sum(axis=1)
        support[name] = table.truth[rows].sum(axis=0)
        splits[name] = {
            "images": len(rows),
            "official_train": int((table.official[rows] == 0).sum()),
            "labels_per_image": float(labels.mean()),
            "images_by_labels": np.bincount(labels).tolist(),
            "without_positive": int((labels == 0).sum()),
            "classes_present": int((support[name] > 0).sum()),
            "cells_unscored": int((~table.scored[rows]).sum()),
        }
        if absent := [table.classes[column] for column in np.flatnonzero(support[name] == 0)]:
            warnings.append(
                f"{name} has no positive of {', '.join(absent)}: their average precision is undefined there"
            )
        if splits[name]["without_positive"]:
            warnings.append(f"{name}: {splits[name]['without_positive']} images have no positive label at all")
    if packed.unusable:
        warnings.append(
            f"{len(packed.unusable)} images are left out, because their files cannot be used; a published draw of"
            " labels is that of the whole list, so these labels are others"
        )
    duplicates = _duplicates(table, packed.duplicates)
    if duplicates["across_splits"]:
        warnings.append(f"{duplicates['across_splits']} groups of equal pictures lie across splits: test is not unseen")
    if duplicates["with_different_labels"]:
        warnings.append(f"{duplicates['with_different_labels']} groups of equal pictures have different labels")
    many = sorted((group for group in packed.duplicates if len(group) >= MANY), key=len, reverse=True)
    warnings += [
        f"{len(group)} pictures are equal to {table.paths[group[0]]}: a placeholder of pictures that are gone?"
        for group in many[:SHOWN]
    ]
    warnings += [
        f"{len(packed.notes[note])} pictures {text}" for note, text in SUSPICIOUS.items() if note in packed.notes
    ]
    return {
        "read": {key: value for key, value in data.report.items() if key != "warnings"},
        "exhaustive": table.exhaustive,
        "unusable": {"count": len(packed.unusable), "first": list(packed.unusable.values())[:SHOWN]},
        "splits": splits,
        "classes": [
            {"name": name}
            | {split: int(support[split][column]) for split in SPLITS}
            | {"unscored": int((~table.scored[:, column]).sum())}
            for column, name in enumerate(table.classes)
        ],
        "images": {
            side: {"least": int(values.min()), "median": float(np.median(values)), "most": int(values.max())}
            for side, values in (("height", packed.sizes[:, 0]), ("width", packed.sizes[:, 1]))
        },
        "notes": {note: _named(table, rows) for note, rows in packed.notes.items()},
        "duplicates": duplicates,
        "warnings": warnings,
    }


def _named(table: Table, rows: list[int]) -> dict[str, Any]:
    return {"count": len(rows), "first": [table.paths[row] for row in rows[:SHOWN]]}


def _duplicates(table: Table, groups: list[list[int]]) -> dict[str, Any]:
    """Return counts of groups of equal pictures, those that matter named first."""
    across = [len(set(table.split[rows].tolist())) > 1 for rows in groups]
    differ = [bool((table.truth[rows] != table.truth[rows[0]]).any()) for rows in groups]
    order = sorted(range(len(groups)), key=lambda group: not (across[group] or differ[group]))
    return {
        "groups": len(groups),
        "across_splits": sum(across),
        "with_different_labels": sum(differ),
        "first": [[table.paths[row] for row in groups[group][:SHOWN]] for group in order[:SHOWN]],
    }


def _summary(report: dict[str, Any], table: Table) -> list[str]:
    size, sides = report["size"], report["images"]
    least = {row["name"]: min(row[split] for split in SPLITS) for row in report["classes"]}
    few = [name for name, count in least.items() if count < FEW]
    return [
        f"{len(table.paths)} images and {len(table.classes)} classes from the source `{report['source']}`, packed as"
        f" {size} x {size} pixels (aspect ratio not kept).",
        f"Before that: height {sides['height']['least']} to {sides['height']['most']}, width"
        f" {sides['width']['least']} to {sides['width']['most']} pixels.",
        "",
        "## Warnings",
        "",
        *([f"- {text}" for text in report["warnings"]] or ["- none"]),
        "",
        "## Splits",
        "",
        *_table(
            (
                "split",
                "images",
                f"labels per image{'' if table.exhaustive else ' (given)'}",
                "without a positive",
                "classes present",
                "cells of unknown truth",
            ),
            (
                (
                    name,
                    row["images"],
                    f"{row['labels_per_image']:.3f}",
                    row["without_positive"],
                    row["classes_present"],
                    row["cells_unscored"],
                )
                for name, row in report["splits"].items()
            ),
        ),
        "",
        "## Positives by class",
        "",
        f"{len(few)} classes have fewer than {FEW} positives in some split" + (f": {', '.join(few)}." if few else "."),
        "",
        *_table(("class", *SPLITS), ((row["name"], *(row[split] for split in SPLITS)) for row in report["classes"])),
        "",
        "## What was read",
        "",
        *_nested(report["read"]),
        "",
        "## Pictures",
        "",
        *([f"- {note}: {found['count']}" for note, found in report["notes"].items()] or ["- nothing odd"]),
        f"- groups of equal pictures: {report['duplicates']['groups']}",
        *(f"- left out: {reason}" for reason in report["unusable"]["first"]),
        "",
        "## Files",
        "",
        "- `table.h5`: `paths`, `classes`, `truth` (image, class), `scored` (False: truth not known, left out of"
        " metrics), `split` (0 train, 1 val, 2 test), `official` (0 official training part, 1 official test part).",
        "- `images.h5`: `pixels` (image, height, width, RGB) uint8, in the same row order.",
        "- `report.json`: these figures and the names behind them.",
    ]


def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> list[str]:
    cells = [head, ("---",) * len(head), *rows]
    return ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in cells]


def _nested(content: dict[str, Any], indent: str = "") -> list[str]:
    """Return a nested mapping as a Markdown list."""
    lines = []
    for key, value in content.items():
        if isinstance(value, dict):
            lines += [f"{indent}- {key}:", *_nested(value, indent + "  ")]
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list) else value
            lines.append(f"{indent}- {key}: {text if text != '' else 'none'}")
    return lines


if __name__ == "__main__":
    entry.run(prepare)
