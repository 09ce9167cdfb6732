"""``spml init``: write a profile for a folder of one's own images.

It is a start to edit: linear heads on a packaged backbone that score images by the places of its maps, chosen by the
truth where val has it, else by the labels that are given.
"""

import argparse
import json
import math
import re
import shutil
from collections.abc import Collection, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pipeline.cli.label_files import NONE, SPLIT, Declared, Named
from pipeline.cli.label_trees import describe_tree
from pipeline.cli.recognise import find_folder, recognise
from pipeline.cli.verbs import Verbs
from pipeline.config import rules
from pipeline.config.params import METHODS, PUBLISHED
from pipeline.core import files
from pipeline.core.errors import ConfigError
from pipeline.core.faults import pluralize, preview
from pipeline.core.strict import NAME
from pipeline.core.yaml import parse_yaml
from pipeline.data.own_data import WORDS
from pipeline.labels.table import SPLITS, Dataset, Table
from pipeline.sources import base

SIZE = 224  # pixels of the packaged backbone
MODEL = "tf_efficientnet_lite0"
MAP = (1280, 7, 7)
"""Channels, height and width of its maps at that size."""
PARTIAL = ("an", "wan", "em", "gr", "reckon", "ridge")
"""Methods that know nothing but one label an image."""
FULL = (*PARTIAL, "full", "ridge_full")
KINDS = {"map": "of each path", "coco": "categories of COCO's annotations", "fiftyone_labels": "of FiftyOne's labels"}
KINDS |= {"label_studio": "{control} of Label Studio's tasks", "fiftyone_samples": "{field} of FiftyOne's samples"}
"""What holds the labels, by the kind of a JSON file."""
YAML_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
"""What some reader of YAML takes for something else than a name."""


def add_parser(verbs: Verbs) -> argparse.ArgumentParser:
    """Return the verb's parser, which joins the others."""
    parser = verbs.add_parser(
        "init",
        help="write a profile for a folder of your own images",
        description="Look at a folder of images, with one folder for each class, with XML files, or with a .csv, .tsv, "
        ".json or .jsonl of labels, and write profiles/NAME.yaml for it. No picture is opened, nothing is copied. "
        "Columns (of JSON: keys) that are not recognised can be named.",
    )
    add_options(parser)
    return parser


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add to a parser what a folder of images is told by."""
    parser.add_argument("folder", type=Path, help="folder of the images, or the file of labels that lies there")
    parser.add_argument("--name", help="name of the dataset (default: made of the folder's)")
    parser.add_argument(
        "--exhaustive", action="store_true", help="the labels of an image are all that apply to it, not just some"
    )
    parser.add_argument("--path", metavar="COLUMN", help="column or key of the picture files")
    parser.add_argument("--labels", metavar="COLUMN", help="column or key of the label names")
    parser.add_argument("--split", metavar="COLUMN", help="column or key of the words train, val and test")
    parser.add_argument("--group", metavar="COLUMN", help="column or key of groups of images that no split may cut")
    parser.add_argument(
        "--separator", metavar="MARK", help=f"what stands between label names in a text; {NONE}: a text is one name"
    )
    for option, what in (("zero", "0"), ("minus-one", "-1"), ("empty", "nothing")):
        parser.add_argument(
            f"--{option}",
            choices=("absent", "unknown"),
            help=f"what {what} means in the column of a class"
            + (", or a label file or task without a label" if option == "empty" else ""),
        )
    parser.add_argument(
        "--missing", choices=("absent", "unknown"), help="what a picture without a label file of YOLO means"
    )
    parser.add_argument(
        "--disagreement",
        choices=("stop", "unknown"),
        help="what labels are that some annotators give and others do not",
    )
    parser.add_argument(
        "--unlabelled", metavar="FOLDER", help="folder within the first, of pictures of which nothing is known"
    )
    parser.add_argument(
        "--links", choices=("inside", "follow"), default="inside", help="follow: read linked folders too"
    )


def run(options: argparse.Namespace) -> Iterator[str]:
    """Write a profile.

    Args:
        options: What the parser read.

    Yields:
        What was understood, warnings, and what to do next.

    Raises:
        ConfigError: The folder's labels are not understood or too few, or the name is in use.
    """
    named = Named(options.path, options.labels, options.split, options.group)
    declared = Declared(**{field.name: getattr(options, field.name) for field in fields(Declared)})
    if declared.unlabelled is not None:
        declared = replace(declared, unlabelled=_find_pool(options.folder, declared.unlabelled))
    block = recognise(options.folder, options.exhaustive, named, declared)
    folder = find_folder(options.folder).resolve()
    name = name_dataset(options.folder, options.name)
    profile = Path("profiles") / f"{name}.yaml"
    if profile.exists():
        raise ConfigError(f"{profile} is there; give another name by --name, or delete it")
    used = list_names(Path(), str(folder))
    data = read(name, str(folder), block)
    need = 2 * 2 * len(data.table.paths) * math.prod(MAP)  # of two bytes, here and in DVC's cache
    cramped = rules.room_for_places(name, need, shutil.disk_usage(".").free)
    files.write_text(profile, format_profile(name, str(folder), block, data.table, used, places=not cramped))
    yield f"{profile}: source {block['source']}, labels {'' if options.exhaustive else 'not '}exhaustive"
    yield from describe(block, data)
    warnings = find_warnings(block, data) + [f"{line}, and is what the profile says" for line in cramped]
    yield from (f"warning: {warning}" for warning in warnings)
    heed = f"look at the warning{'' if len(warnings) == 1 else 's'} above, then: " if warnings else ""
    yield f"next: {heed}make repro PROFILE={name}"


def name_dataset(place: Path, name: str | None) -> str:
    """Return the name of the dataset in a folder: the one that is given, or one made of the folder's."""
    return name or re.sub("[^a-z0-9]+", "_", find_folder(place).resolve().name.lower()).strip("_")


def _find_pool(place: Path, pool: str) -> str:
    """Return the folder of pictures of which nothing is known, from that of the pictures.

    Raises:
        ConfigError: It is no folder within that.
    """
    top = find_folder(place).resolve()
    if (top / pool).is_dir() and not Path(pool).is_absolute() and ".." not in Path(pool).parts:
        return Path(pool).as_posix()
    for above in (top, Path().resolve()):
        folder = (above / Path(pool).expanduser()).resolve()
        if folder.is_dir() and folder.is_relative_to(top) and folder != top:
            return folder.relative_to(top).as_posix()
    raise ConfigError(
        f"--unlabelled: {pool} is no folder within {top}: move it there, or link it and say --links follow"
    )


def read(name: str, root: str, block: dict[str, Any]) -> Dataset:
    """Read a dataset as the pipeline will, but for the pictures, so that a wrong guess is seen at once.

    Args:
        name: Name of the dataset, for messages.
        root: Folder of the images.
        block: What `recognise` returned.

    Returns:
        The dataset.

    Raises:
        ConfigError: The images, or those with a label, are too few for three splits.
        SourceError: As the source's `read`.
    """
    source, settings = base.load({"root": root, "size": SIZE, **block}, f"prepare.{name}")
    data = source.read(settings, Path())
    rules.raise_if_any(rules.empty_splits(name, data.table) or rules.validation_without_positives(name, data.table))
    return data


# ---------------------------------------------------------------------------------------------- what was understood
def describe(block: dict[str, Any], data: Dataset) -> Iterator[str]:
    """Describe a dataset.

    Args:
        block: What `recognise` returned.
        data: What `read` returned.

    Yields:
        Lines: columns or keys, images, classes, labels, splits.
    """
    table, report = data.table, data.report
    if block["source"] in ("yolo", "open_images"):
        yield describe_tree(block, report)
    elif "file" in block:
        yield _describe_file(block)
    for what in ("columns", "keys"):
        if ignored := report.get(f"{what}_not_read"):
            yield f"{what} not read: {preview(ignored)}"
    yield from report.get("paths_read_as", ())
    support, labels = table.truth.sum(axis=0), table.truth.sum(axis=1)
    classes = preview([f"{label} ({count})" for label, count in zip(table.classes, support, strict=True)])
    yield f"{pluralize(len(labels), 'image')}; {pluralize(len(support), 'class', 'classes')}: {classes}"
    many = f"{labels.min()} to {labels.max()}, {labels.mean():.2f} on average"
    yield f"labels an image: {many if labels.min() < labels.max() else labels[0]}"
    bare, absent, drawn = report["without_positive"], report["cells"]["absent"], report["split"]["drawn"]
    if bare["count"]:
        pool = f", {report['unlabelled']} of them trained on as unlabelled" if report["unlabelled"] else ""
        yield f"images without a label: {bare['count']} ({_first(bare)}){pool}"
    if absent and not table.exhaustive:
        yield f"labels known to be absent: {absent}"
    if copies := report.get("same_name", {}).get("of_equal_size"):
        lie = "lies" if copies == 1 else "lie"
        yield (
            f"{pluralize(copies, 'file name')} {lie} in several class folders, with files of equal size; if each is "
            "one photo: same_name: merge"
        )
    counts = ", ".join(f"{len(table.rows(split))} {split}" for split in SPLITS)
    yield f"splits: {counts}" + (f"; drawn: {' and '.join(drawn)}" if drawn else "")
    if groups := report.get("groups"):
        most = groups["largest"] and f"; the largest, {groups['largest']['name']}, has {groups['largest']['images']}"
        yield f"groups of several images: {groups['of_several_images']}{most or ''}; no split cuts one"
    if table.measurable("val") and not table.exhaustive:
        yield "val is labelled in full: epochs and learning rates are chosen by its truth (select: clean)"


def _describe_file(block: dict[str, Any]) -> str:
    """Return which columns or keys of the file of labels hold what."""
    content = block.get("content", {})
    said = {"file": block["file"], "delimiter": block.get("delimiter")}
    said["path"] = block.get("path_column") or content.get("path_key")
    labels = block.get("labels", {"column": content.get("labels_key"), "separator": content.get("separator")})
    kind = labels.get("kind") or content.get("kind")
    if kind == "columns":
        meanings = (f"{mark} {labels[key]}" for mark, key in (("0", "zero"), ("-1", "minus_one"), ("empty", "empty")))
        said["labels"] = f"a column for each class (1 present, {', '.join(meanings)})"
    elif kind in KINDS:
        said["labels"] = KINDS[kind].format(**content)
        said |= {key: content.get(key) for key in ("disagreement", "empty")}
    else:
        said["labels"] = labels["column"] + (f" (separator {labels['separator']})" if labels.get("separator") else "")
        said["labels"] += " (lists)" if kind == "lists" else ""
        said["labels"] += " (one label a row, rows of an image joined)" if kind == "rows" else ""
        said["applies"] = labels.get("present")
    said["absent"] = content.get("absent_key")
    said["split"] = block.get("split_column") or content.get("split_key") or "none"
    said["split"] = "by folder" if "*" in block["file"] else said["split"]
    said["group"] = block.get("group_column") or content.get("group_key")
    return ", ".join(f"{key}: {value}" for key, value in said.items() if value)


def find_warnings(block: dict[str, Any], data: Dataset) -> list[str]:
    """Return what the pipeline will warn of, and what may be a mistake, a line each.

    Args:
        block: What `recognise` returned.
        data: What `read` returned.
    """
    table, report = data.table, data.report
    warnings = list(report["warnings"])
    for name in (*report.get("columns_not_read", ()), *report.get("keys_not_read", ())):
        if name.lower() in SPLIT and not (block.get("split_column") or block.get("content", {}).get("split_key")):
            warnings.append(f"{name} is not read: a split is written as train, val or test")
    tops = {path.partition("/")[0].lower() for path in table.paths if "/" in path}
    listed = block["source"] in ("csv", "json") and "*" not in block["file"]
    if listed and len(tops) > 1 and tops <= set(WORDS) and not report["split"]["given"]:
        what = "column" if block["source"] == "csv" else "key"
        warnings.append(
            f"all pictures lie in folders called as splits ({', '.join(sorted(tops))}), and no {what} names splits: "
            "they are drawn"
        )
    for split in SPLITS:
        counts = table.truth[table.rows(split)].sum(axis=0)
        if lacks := [label for label, count in zip(table.classes, counts, strict=True) if not count]:
            warnings.append(f"{split} has no image of {preview(lacks)}")
    left = report["pictures_in_no_row"]
    if left["count"] and block["source"] != "folder":
        are = "is" if left["count"] == 1 else "are"
        warnings.append(f"{pluralize(left['count'], 'picture')} {are} in no row: {_first(left)}")
    return warnings


def _first(counted: dict[str, Any]) -> str:
    return ", ".join(counted["first"]) + (", ..." if counted["count"] > len(counted["first"]) else "")


# ---------------------------------------------------------------------------------------------- the profile
def list_names(project: Path, root: str) -> set[str]:
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
    methods = sorted((project / METHODS).glob("*.yaml"))
    for path in (params, *sorted((project / "profiles").glob("*.yaml")), *methods):
        try:
            content = parse_yaml(path.read_text(encoding="utf-8"), str(path))
        except (UnicodeDecodeError, OSError) as error:
            raise ConfigError(f"{path}: not YAML 1.2: {error}") from error
        sections = {"methods": {path.stem: content}} if path in methods else _mapping(content)
        mine = {
            name for name, block in _mapping(sections.get("prepare")).items() if _mapping(block).get("root") == root
        }
        found = {name for key in sections.keys() - {"grid", "variants", "methods"} for name in _mapping(sections[key])}
        for method in _mapping(sections.get("methods")).values():
            found |= {*_mapping(method), *_mapping(_mapping(method).get(PUBLISHED))}
        names |= found - mine
    return names


def _check_name(name: str, used: Collection[str]) -> None:
    """Refuse a name that a dataset cannot have.

    Raises:
        ConfigError: It is no name for a dataset, or is in use.
    """
    if not NAME.fullmatch(name) or name in YAML_WORDS:
        raise ConfigError(
            f"{name!r} is no name for a dataset: small letters, digits and _, a letter first, and none of "
            f"{', '.join(sorted(YAML_WORDS))}; give one by --name"
        )
    if name in used:
        raise ConfigError(f"{name!r} is a name in params.yaml or in a profile; give another by --name")


def format_profile(
    name: str, root: str, block: dict[str, Any], table: Table, used: Collection[str] = (), places: bool = True
) -> str:
    """Format the profile of a dataset.

    Args:
        name: Name of the dataset and of its profile.
        root: Folder of its images, as the pipeline will be told.
        block: What `recognise` returned.
        table: That of `read`, which decides what labels are for and by what is chosen.
        used: Names that it cannot have.
        places: Whether images are scored by places.

    Returns:
        The text of `profiles/<name>.yaml`.

    Raises:
        ConfigError: The name is no name for a dataset, or is in use.
    """  # noqa: DOC502  from the check of the name
    _check_name(name, used)
    methods, protocol = (FULL, "seeded") if table.exhaustive else (PARTIAL, "given")
    mean, select = "[0.5, 0.5, 0.5]", "clean" if table.measurable("val") else "auto"
    lines = [
        f"# Images of {name}, {SIZE} px, the packaged ImageNet weights, linear heads. Start from `ridge`: of the heads",
        "# that see no truth it was the best on digits and on photographs, and it has neither rate nor epochs:",
        f"#   make repro PROFILE={name}",
        "grid:",
        f"  datasets: [{name}]",
        "  seeds: [0]",
        f"  linear_init: [{', '.join(methods)}] # `spml methods` lists all",
        "  finetune: [] # those but ridge, on a GPU: reckon was the best",
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
        f"  {name}: {{source: timm, model: {MODEL}, weights: package, file: null, mean: {mean}, std: {mean}}}",
        "",
        *_format_training(name, select, places),
        "variants:",
        "  lac: {}",
        "",
    ]
    return "\n".join(lines)


def _format_training(name: str, select: str, places: bool) -> list[str]:
    """Return the lines of a profile's blocks from features to finetune."""
    head, sharpness = ("{kind: places, sharpness: 0.2}", "0.2") if places else ("{kind: linear, scale: none}", "null")
    pools = f"dtype: float16, pools: [sqrt], places: {'true' if places else 'false'}"
    return [
        "features:",
        f"  {name}: {{{pools}, mirrored: true, batch_size: 4}}",  # whose activations malloc keeps, on a CPU
        "",
        *(["beliefs:", f"  {name}: {{sharpness: {sharpness}}}", ""] if places else []),
        "linear_init:",
        f"  {name}: {{head: {head}, batch_size: 16, "
        f"search: {{values: [3.0e-4, 1.0e-3, 3.0e-3], epochs: null, extend: 3}}, select: {select}, flip: true}}",
        "",
        "finetune:",
        f"  {name}: {{head: {head}, schedule: falling, select: last, flip: true, "
        f"readout: {{pools: [sqrt], sharpness: {sharpness}, share: 0.5}}}}",
        "",
    ]


def _mapping(block: Any) -> dict[str, Any]:
    return block if isinstance(block, dict) else {}
