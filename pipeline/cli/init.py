"""A profile for a folder of one's own images: what lies there decides the source, the rest is what suits such data.

Source: ours. It is a start to edit: linear heads on a packaged backbone, chosen by the truth where val has it, else by
the labels that are given.
"""

import importlib
import json
import shlex
from collections.abc import Collection, Iterable
from csv import reader
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, YAMLError

from pipeline.config.params import PUBLISHED
from pipeline.core import text
from pipeline.core.errors import ConfigError, SourceError
from pipeline.core.faults import Faults, number, some
from pipeline.core.strict import NAME
from pipeline.data import raw
from pipeline.data.own_data import NO_CLASS, SEPARATORS, WORDS, separates
from pipeline.labels.table import SPLITS, Dataset, Table
from pipeline.sources import csv as tables
from pipeline.sources import json as objects

SIZE = 224  # pixels of the packaged backbone
LOOKED_AT = 50  # lines of a table, which are enough to tell its delimiter
READ = ("file", "delimiter", "path_column", "column", "separator", "kind", "zero", "minus_one", "empty", "split_column")
READ += ("path_key", "labels_key", "absent_key", "split_key")
"""Settings that `told` shows: what was guessed of columns and keys."""
PARTIAL = ("an", "wan", "em", "gr")
"""Methods that know nothing but one label an image."""
FULL = (*PARTIAL, "full")
FILES = (".csv", ".tsv", ".json", ".jsonl")
"""Endings of files of labels."""
LABELS = NO_CLASS - {"image", "images"}
"""What people call the labels of an image, compared without case."""
SPLIT = {"split", "splits", "subset", "partition"}
"""What people call the column of splits, compared without case."""
YAML_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
"""What some reader of YAML takes for something else than a name."""


def find(place: Path, exhaustive: bool) -> dict[str, Any]:
    """Tell how the images of a folder are labelled.

    Args:
        place: A folder of pictures with one CSV, TSV, JSON or JSON-lines file, or with one folder for each class; or
            that file, where there are several.
        exhaustive: Whether the labels of an image are all that apply to it.

    Returns:
        The block of `prepare` without `root` and `size`.

    Raises:
        ConfigError: There is no such folder, or it is not clear how its images are labelled; the message says what was
            found.
        SourceError: A folder or the file of labels cannot be read.
    """
    folder = place.parent if place.is_file() else place
    if not folder.is_dir():
        raise ConfigError(f"{place}: no such folder or file")
    if place.is_file() and place.suffix.lower() not in FILES:
        raise ConfigError(f"{place}: not a file of labels ({', '.join(FILES)})")
    pictures = raw.pictures(folder)
    if not pictures:
        other = f"; not read: {some(unread)}" if (unread := raw.unread(folder)) else ""
        raise ConfigError(f"{folder}: holds no picture ({', '.join(raw.ENDINGS)}){other}")
    files = sorted(path for path in folder.glob("[!.]*") if path.suffix.lower() in FILES and path.is_file())
    files = [place] if place.is_file() else files
    if len(files) > 1:
        names = ", ".join(path.name for path in files)
        raise ConfigError(
            f"{folder}: which of {names} holds the labels? name it: spml init {shlex.quote(str(files[0]))}"
        )
    common: dict[str, Any] = {"bad_images": "stop", "classes": None}
    common |= {"val_fraction": 0.2, "test_fraction": 0.2, "split_seed": 0}
    if files and files[0].suffix.lower() in (".csv", ".tsv"):
        return {"source": "csv", **_columns(files[0], exhaustive), "exhaustive": exhaustive, **common}
    if files:
        return {"source": "json", **_keys(files[0]), "exhaustive": exhaustive, **common}
    tops = {picture.split("/")[0] for picture in pictures if "/" in picture}
    if not tops:
        found = number(len(pictures), "picture")
        raise ConfigError(f"{folder}: {found}, but neither class folders nor a .csv or .json of labels")
    if exhaustive:
        raise ConfigError(f"{folder}: a folder for each class gives one label an image, which is not exhaustive")
    split = all(top.lower() in WORDS for top in tops)
    if len(tops) == 1 and not split:
        (top,) = tops
        raise ConfigError(
            f"{folder}: all folders with pictures lie in {top}, which would be the one class; if the folders of the "
            f"classes lie in it: spml init {shlex.quote(str(folder / top))}"
        )
    return {"source": "folder", "split_folders": split, "same_name": "separate", **common}


def read(root: str, block: dict[str, Any]) -> Dataset:
    """Read what `find` found as the pipeline will, but for the pictures, so that a wrong guess is seen at once.

    Args:
        root: Folder of the images.
        block: What `find` returned.

    Returns:
        The dataset.

    Raises:
        SourceError: As the source's `read`; or the images, or those with a label, are too few for three splits.
    """
    name = block["source"]
    source = importlib.import_module(f"pipeline.sources.{name}")
    data = source.read(source.Settings.model_validate({"root": root, "size": SIZE, **block}), Path())
    if empty := [split for split in SPLITS if not len(data.table.rows(split))]:
        raise SourceError(f"no image in {' and '.join(empty)} ({_counts(data.table)})")
    if not data.table.truth[data.table.rows("val")].any():
        raise SourceError(f"no val image has a label, so nothing can be chosen by val ({_counts(data.table)})")
    return data


def told(block: dict[str, Any], data: Dataset) -> tuple[list[str], list[str]]:
    """Tell what was found.

    Args:
        block: What `find` returned.
        data: What `read` returned.

    Returns:
        Lines: settings, images, classes, labels, splits; and what the pipeline will warn of, a line each.
    """
    table, report = data.table, data.report
    said = {key: value for key, value in {**block, **block.get("labels", {})}.items() if key in READ and value}
    support, labels = table.truth.sum(axis=0), table.truth.sum(axis=1)
    classes = some([f"{label} ({count})" for label, count in zip(table.classes, support, strict=True)])
    bare, absent, drawn = report["without_positive"], report["cells"]["absent"], report["split"]["drawn"]
    lines = [", ".join(f"{key}: {value!r}" for key, value in said.items())] if said else []
    for what in ("columns", "keys"):
        if ignored := report.get(f"{what}_not_read"):
            lines.append(f"{what} not read: {some(ignored)}")
    images = number(len(labels), "image")
    lines.append(f"{images}; {number(len(support), 'class', 'classes')}: {classes}")
    many = f"{labels.min()} to {labels.max()}, {labels.mean():.2f} on average"
    lines.append(f"labels an image: {many if labels.min() < labels.max() else labels[0]}")
    if bare["count"]:
        lines.append(f"images without a label: {bare['count']} ({_first(bare)})")
    if absent and not table.exhaustive:
        lines.append(f"labels known to be absent: {absent}")
    if copies := report.get("same_name", {}).get("of_equal_size"):
        lie = "lies" if copies == 1 else "lie"
        lines.append(
            f"{number(copies, 'file name')} {lie} in several class folders, with files of equal size; if "
            "each is one photo: same_name: merge"
        )
    lines.append(f"splits: {_counts(table)}" + (f"; drawn: {' and '.join(drawn)}" if drawn else ""))
    if table.measurable("val") and not table.exhaustive:
        lines.append("val is labelled in full: epochs and learning rates are chosen by its truth (select: clean)")

    warnings = list(report["warnings"])
    for name in (*report.get("columns_not_read", ()), *report.get("keys_not_read", ())):
        if name.lower() in SPLIT and not (block.get("split_column") or block.get("split_key")):
            warnings.append(f"{name} is not read: a split is written as train, val or test")
    for split in SPLITS:
        counts = table.truth[table.rows(split)].sum(axis=0)
        if lacks := [label for label, count in zip(table.classes, counts, strict=True) if not count]:
            warnings.append(f"{split} has no image of {some(lacks)}")
    left = report["pictures_in_no_row"]
    if left["count"] and block["source"] != "folder":
        are = "is" if left["count"] == 1 else "are"
        warnings.append(f"{number(left['count'], 'picture')} {are} in no row: {_first(left)}")
    return lines, warnings


def taken(project: Path, root: str) -> set[str]:
    """List the names that a dataset cannot have beside what params.yaml and the profiles hold.

    Args:
        project: Folder of the project.
        root: Folder of the images; the name of a dataset of params.yaml that lies there is free.

    Returns:
        Names of datasets, and words of the stages' and methods' blocks.

    Raises:
        ConfigError: There is no params.yaml, or a file is not YAML.
    """
    params, names = project / "params.yaml", set()
    if not params.is_file():
        raise ConfigError("no params.yaml here: run this in the project's folder")
    for path in (params, *sorted((project / "profiles").glob("*.yaml"))):
        try:
            content = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
        except (YAMLError, UnicodeDecodeError, OSError) as error:
            raise ConfigError(f"{path}: not YAML 1.2: {' '.join(str(error).split())}") from error
        sections = content if isinstance(content, dict) else {}
        mine = {
            name for name, block in _keys_of(sections.get("prepare")).items() if _keys_of(block).get("root") == root
        }
        found = {name for key in sections.keys() - {"grid", "variants", "methods"} for name in _keys_of(sections[key])}
        for method in _keys_of(sections.get("methods")).values():
            found |= {*_keys_of(method), *_keys_of(_keys_of(method).get(PUBLISHED))}
        names |= found - mine
    return names


def write(name: str, root: str, block: dict[str, Any], table: Table, used: Collection[str] = ()) -> str:
    """Write the profile of a dataset.

    Args:
        name: Name of the dataset and of its profile.
        root: Folder of its images, as the pipeline will be told.
        block: What `find` returned.
        table: That of `read`, which decides what labels are for and by what is chosen.
        used: Names that it cannot have.

    Returns:
        The text of `profiles/<name>.yaml`.

    Raises:
        ConfigError: The name is no name for a dataset, or is in use.
    """
    if not NAME.fullmatch(name) or name in YAML_WORDS:
        raise ConfigError(
            f"{name!r} is no name for a dataset: small letters, digits and _, a letter first, and none of "
            f"{', '.join(sorted(YAML_WORDS))}; give one by --name"
        )
    if name in used:
        raise ConfigError(f"{name!r} is a name in params.yaml or in a profile; give another by --name")
    methods, protocol = (FULL, "seeded") if table.exhaustive else (PARTIAL, "given")
    mean, select = "[0.5, 0.5, 0.5]", "clean" if table.measurable("val") else "observed"
    lines = [
        f"# Images of {name}, {SIZE} px, the packaged ImageNet weights, linear heads:",
        f"#   make repro PROFILE={name}",
        "grid:",
        f"  datasets: [{name}]",
        "  seeds: [0]",
        f"  linear_init: [{', '.join(methods)}] # `spml methods` lists all",
        "  finetune: [] # the same methods, on a GPU",
        "  end_to_end: []",
        "  lac: []",
        "  landscape: []",
        "",
        "prepare:",
        f"  {name}:",
        *(f"    {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in (("root", root), *block.items())),
        f"    size: {SIZE}",
        "",
        "simulate:",
        f"  {name}: {{protocol: {protocol}}}",
        "",
        "backbone:",
        f"  {name}: {{source: timm, model: tf_efficientnet_lite0, weights: package, file: null, "
        f"mean: {mean}, std: {mean}}}",
        "",
        "features:",
        f"  {name}: {{mirrored: true, batch_size: 32}}",
        "",
        "linear_init:",
        f"  {name}: {{batch_size: 16, search: {{values: [3.0e-4, 1.0e-3, 3.0e-3], epochs: null}}, select: {select}, "
        "flip: true}",
        "",
        "variants:",
        "  lac: {}",
        "",
    ]
    return "\n".join(lines)


def _counts(table: Table) -> str:
    return ", ".join(f"{len(table.rows(split))} {split}" for split in SPLITS)


def _keys_of(block: Any) -> dict[str, Any]:
    return block if isinstance(block, dict) else {}


def _first(counted: dict[str, Any]) -> str:
    return ", ".join(counted["first"]) + (", ..." if counted["count"] > len(counted["first"]) else "")


def _columns(file: Path, exhaustive: bool) -> dict[str, Any]:
    """Return what the columns of a table say.

    Raises:
        ConfigError: No column names pictures, or it is not clear which hold labels.
    """
    delimiter = _delimiter(file)
    header, lines = tables.table(file, tables.DELIMITERS[delimiter])
    rows = [fields for _, fields in lines]
    if not rows:
        raise ConfigError(f"{file.name}: no image in it")
    if pictures := [name for name in header if name.lower().endswith(raw.ENDINGS)]:
        raise ConfigError(f"{file.name}: the first line must name the columns, and holds {pictures[0]}")
    values = {
        name: {fields[place] for fields in rows if place < len(fields)} for place, name in enumerate(header) if name
    }
    paths = [name for name in values if any(value.lower().endswith(raw.ENDINGS) for value in values[name])]
    splits = [name for name in values if _holds((value.lower() for value in values[name]), WORDS)]
    marks = [name for name in values if _holds(values[name], tables.VALUES)]  # of a class, whatever it is called
    # by its name: the source names the values that are no splits
    splits = splits or [name for name in values if name.lower() in SPLIT and name not in marks]
    rest = [name for name in values if name not in paths and name not in splits]
    cells = [name for name in rest if values[name] <= tables.VALUES.keys()]
    called = [name for name in rest if name.lower() in LABELS and name not in cells]
    called = [name for name in called if name == "labels"] or called
    marks = [name for name in marks if name in rest]
    rest = called if len(called) == 1 and not marks else rest
    cells = [name for name in cells if name in rest]
    if len(paths) != 1 or len(splits) > 1 or not rest or (len(rest) > 1 and len(cells) < len(rest)):
        found = {"picture files": paths, "train, val and test": splits, "1, 0, -1 and nothing": cells}
        found["something else"] = [name for name in rest if name not in cells]
        advice = "Delete the columns that are none of these"
        if len(called) == 1 and marks:
            advice = (
                f"Either {called[0]} holds label names, or each of these is a class: {some(marks)}. Delete "
                "the columns of the other reading (a split is written as train, val or test)"
            )
        elif "labels" not in called:
            advice = "Call the column of label names labels, or delete the columns that are none of these"
        raise ConfigError(
            f"{file.name}: expected are one column of picture files, at most one of train, val and test, and one of "
            "label names or one of 1, 0, -1 and nothing for each class. Found: "
            + "; ".join(f"{what} in {some(names) or 'none'}" for what, names in found.items())
            + f". {advice}, or write a profile, which names the columns"
        )
    if len(rest) == 1 and not cells:
        names = values[rest[0]]
        marks = [mark for mark in SEPARATORS if separates(mark, names)]
        marks += [mark for mark in (*SEPARATORS, "||") if not any(mark in value for value in names)]
        labels: dict[str, Any] = {"kind": "names", "column": rest[0], "separator": marks[0]}
    else:
        unknown = "absent" if exhaustive else "unknown"
        ticks = {value.partition(".")[0] for name in cells for value in values[name]}
        zero = unknown if "-1" in ticks else "absent"
        labels = {"kind": "columns", "zero": zero, "minus_one": "absent", "empty": "unknown"}
        if not exhaustive and ticks <= {"1", "0"}:
            labels["zero"] = "unknown"  # what is not ticked is not known
        if exhaustive and ticks <= {"1", ""}:
            labels["empty"] = "absent"  # nothing else could say so
    return {
        "file": file.name,
        "delimiter": delimiter,
        "path_column": paths[0],
        "labels": labels,
        "split_column": splits[0] if splits else None,
    }


def _keys(file: Path) -> dict[str, Any]:
    """Return what the keys of objects say.

    Raises:
        ConfigError: It is not clear which key holds what.
    """
    faults = Faults(file.name)  # the source tells them, with all others
    rows = [entry for _, entry in objects.entries(file, faults) if isinstance(entry, dict)]
    if not rows:
        raise ConfigError(f"{file.name}: no object in it, such as one with the path of a picture and its labels")
    keys = list(dict.fromkeys(key for row in rows for key in row))
    paths = [key for key in keys if any(str(row.get(key, "")).lower().endswith(raw.ENDINGS) for row in rows)]
    splits = [key for key in keys if key not in paths and all(str(row.get(key, "")).lower() in WORDS for row in rows)]
    flags = [key for key in keys if key.lower() in SPLIT and all(_is_mark(row.get(key)) for row in rows)]
    splits = splits or [key for key in keys if key.lower() in SPLIT and key not in flags]
    rest = [key for key in keys if key not in (*paths, *splits, *flags)]
    lists = [key for key in rest if any(_is_names(row.get(key)) for row in rows)]
    absent = [key for key in lists if key in ("absent", "negatives", "negative")]
    texts = [key for key in rest if key not in absent and any(isinstance(row.get(key), str) for row in rows)]
    called = [key for key in rest if key.lower() in NO_CLASS]  # of whatever kind: the source says what is wrong with it
    present = [key for key in lists if key not in absent]
    present = [key for key in present if key == "labels"] or present
    present = present or [key for key in texts if key in called] or called or texts
    if len(paths) != 1 or len(present) != 1 or len(splits) > 1 or len(absent) > 1:
        found = {"picture files": paths, "train, val and test": splits, "lists of names": lists, "text": texts}
        raise ConfigError(
            f"{file.name}: expected are one key of picture files, at most one of train, val and test, and one of lists "
            "of label names, or of one name. Found: "
            + "; ".join(f"{what} under {some(names) or 'none'}" for what, names in found.items())
            + ". Delete the keys that are none of these, or write a profile, which names the keys"
        )
    return {
        "file": file.name,
        "path_key": paths[0],
        "labels_key": present[0],
        "absent_key": absent[0] if absent else None,
        "split_key": splits[0] if splits else None,
    }


def _delimiter(file: Path) -> str:
    """Return the delimiter that parts most of the first rows in as many fields as the header, at least two."""
    lines = [line for line in text.read_text(file).split("\n") if line.strip()][:LOOKED_AT]

    def fits(name: str) -> tuple[int, int]:
        header, *rows = [len(fields) for fields in reader(lines, delimiter=tables.DELIMITERS[name])] or [0]
        return (1 + sum(row == header for row in rows), header) if header > 1 else (0, header)

    return max(tables.DELIMITERS, key=fits)


def _holds(values: Iterable[str], words: Iterable[str]) -> bool:
    """Return whether there are values other than blanks, and all of these are such words."""
    return {""} < {"", *values} <= {"", *words}


def _is_mark(value: Any) -> bool:
    return value is None or isinstance(value, bool) or str(value) in tables.VALUES


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
