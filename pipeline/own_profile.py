"""A profile for a folder of one's own images: what lies there decides the source, the rest is what suits such data.

Source: ours. It is a start to edit: linear heads on a packaged backbone, chosen without any image that is fully
labelled unless the labels are said to be exhaustive.
"""

import csv
import json
import re
from pathlib import Path
from typing import Any

from pipeline import layout
from pipeline.config import ConfigError
from pipeline.own_data import WORDS

DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon"}
SEPARATORS = (";", "|", ",")
PARTIAL = ("an", "wan", "em", "gr")
"""Methods that know nothing but one label an image."""
FULL = (*PARTIAL, "full")
RESERVED = {"default", "digits", "voc", "coco", "nus", "cub", "null", "true", "false", "yes", "no", "on", "off"}
"""Blocks that the default profile has, and words that YAML takes for something else."""


def find(folder: Path, exhaustive: bool) -> dict[str, Any]:
    """Tell how the images of a folder are labelled.

    Args:
        folder: Holds one CSV, TSV, JSON or JSON-lines file and pictures, or one folder of pictures for each class.
        exhaustive: Whether the labels of an image are all that apply to it.

    Returns:
        The block of `prepare` without `root` and `size`.

    Raises:
        ConfigError: There is no such folder, or it is not clear how its images are labelled; the message says what was
            found.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    pictures = layout.pictures(folder)
    if not pictures:
        raise ConfigError(f"{folder}: holds no picture ({', '.join(layout.ENDINGS)})")
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".csv", ".tsv", ".json", ".jsonl"))
    if len(files) > 1:
        names = ", ".join(path.name for path in files)
        raise ConfigError(f"{folder}: which of {names} holds the labels? leave one, or write profiles/<name>.yaml")
    common: dict[str, Any] = {"bad_images": "stop", "classes": None}
    common |= {"val_fraction": 0.2, "test_fraction": 0.2, "split_seed": 0}
    if files and files[0].suffix.lower() in (".csv", ".tsv"):
        return {"source": "csv", **_columns(files[0], exhaustive), "exhaustive": exhaustive, **common}
    if files:
        return {"source": "json", **_keys(files[0]), "exhaustive": exhaustive, **common}
    tops = {picture.split("/")[0] for picture in pictures if "/" in picture}
    if not tops:
        raise ConfigError(
            f"{folder}: {len(pictures)} pictures, but neither class folders nor a .csv or .json of labels"
        )
    if exhaustive:
        raise ConfigError(f"{folder}: a folder for each class gives one label an image, which is not exhaustive")
    split = all(top.lower() in WORDS for top in tops)
    return {"source": "folder", "split_folders": split, "same_name": "separate", **common}


def write(name: str, root: str, block: dict[str, Any], exhaustive: bool) -> str:
    """Write the profile of a dataset.

    Args:
        name: Name of the dataset and of its profile.
        root: Folder of its images, as the pipeline will be told.
        block: What `find` returned.
        exhaustive: Whether the labels of an image are all that apply to it.

    Returns:
        The text of `profiles/<name>.yaml`.

    Raises:
        ConfigError: The name is no name for a dataset.
    """
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or name in RESERVED:
        raise ConfigError(
            f"{name}: a dataset's name is small letters, digits and _, a letter first, and none of "
            f"{', '.join(sorted(RESERVED))}; give one by --name"
        )
    methods = FULL if exhaustive else PARTIAL
    mean = "[0.5, 0.5, 0.5]"
    protocol, select = ("seeded", "clean") if exhaustive else ("given", "observed")
    lines = [
        f"# Images of {name}, 224 px, the packaged ImageNet weights, linear heads:",
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
        "    size: 224",
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


def _columns(file: Path, exhaustive: bool) -> dict[str, Any]:
    """Return what the columns of a table say.

    Raises:
        ConfigError: No column names pictures, or it is not clear which hold labels.
    """
    text = layout.read_text(file)
    delimiter = max(DELIMITERS, key=text.split("\n", 1)[0].count)
    reader = csv.DictReader(text.splitlines(), delimiter=delimiter)
    rows, names = list(reader), [name for name in reader.fieldnames or [] if name]
    values = {name: [(row.get(name) or "").strip() for row in rows] for name in names}
    paths = [name for name in names if any(value.lower().endswith(layout.ENDINGS) for value in values[name])]
    splits = [name for name in names if values[name] and {value.lower() for value in values[name]} <= {*WORDS, ""}]
    splits = [name for name in splits if any(values[name])]
    rest = [name for name in names if name not in paths and name not in splits]
    cells = [name for name in rest if {*values[name]} <= {"1", "0", "-1", "", "1.0", "0.0", "-1.0"}]
    if len(paths) != 1 or len(splits) > 1 or not rest or (len(rest) > 1 and len(cells) < len(rest)):
        raise ConfigError(
            f"{file.name}: expected one column of picture files, at most one of train, val and test, and one of label "
            f"names or one of 1, 0, -1 and nothing for each class; has {', '.join(names)}"
        )
    if len(rest) == 1 and not cells:
        marks = [mark for mark in SEPARATORS if _separates(mark, values[rest[0]])]
        marks += [mark for mark in (*SEPARATORS, "||") if not any(mark in value for value in values[rest[0]])]
        labels: dict[str, Any] = {"kind": "names", "column": rest[0], "separator": marks[0]}
    else:
        unknown = "absent" if exhaustive else "unknown"
        minus = any(value.startswith("-1") for name in cells for value in values[name])
        labels = {"kind": "columns", "zero": unknown if minus else "absent", "minus_one": "absent", "empty": "unknown"}
        ticks = {value.partition(".")[0] for name in cells for value in values[name]}
        if not exhaustive and ticks <= {"1", "0"}:
            labels["zero"] = "unknown"  # what is not ticked is not known
        if exhaustive and ticks <= {"1", ""}:
            labels["empty"] = "absent"  # nothing else could say so
    return {
        "file": file.name,
        "delimiter": DELIMITERS[delimiter],
        "path_column": paths[0],
        "labels": labels,
        "split_column": splits[0] if splits else None,
    }


def _separates(mark: str, values: list[str]) -> bool:
    """Tell whether a mark stands between names, not within one.

    Returns:
        Whether some part of a value that it parts is in a value with other parts too.
    """
    split = [{part.strip() for part in value.split(mark)} for value in values]
    several = {frozenset(parts) for parts in split if len(parts) > 1}
    return any(parts & other for parts in several for other in split if other != parts)


def _keys(file: Path) -> dict[str, Any]:
    """Return what the keys of a list of objects say.

    Raises:
        ConfigError: It is no list of objects, or it is not clear which key holds what.
    """
    text = layout.read_text(file)
    try:
        rows = (
            json.loads(text)
            if text.lstrip()[:1] == "["
            else [json.loads(line) for line in text.split("\n") if line.strip()]
        )
    except ValueError as error:
        raise ConfigError(f"{file.name}: neither a JSON list nor JSON lines ({error})") from error
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    keys = list(dict.fromkeys(key for row in rows for key in row))
    paths = [key for key in keys if any(str(row.get(key, "")).lower().endswith(layout.ENDINGS) for row in rows)]
    splits = [key for key in keys if key not in paths and all(str(row.get(key, "")).lower() in WORDS for row in rows)]
    lists = [key for key in keys if key not in paths + splits and any(isinstance(row.get(key), list) for row in rows)]
    absent = [key for key in lists if key in ("absent", "negatives", "negative")]
    present = [key for key in lists if key not in absent]
    if len(paths) != 1 or len(present) != 1 or len(splits) > 1 or len(absent) > 1:
        raise ConfigError(
            f"{file.name}: expected one key of picture files and one of label lists; has {', '.join(keys)}"
        )
    return {
        "file": file.name,
        "path_key": paths[0],
        "labels_key": present[0],
        "absent_key": absent[0] if absent else None,
        "split_key": splits[0] if splits else None,
    }
