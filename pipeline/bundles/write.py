"""Bundles written: one folder of what a run learned, which neither the run nor the project is needed for."""

import json
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from pipeline.bundles.choose import read_text
from pipeline.bundles.export import export
from pipeline.bundles.layout import (
    CARD,
    CLASSES,
    FILES,
    FORMAT,
    MAX_SIDE,
    MODEL,
    ONNX,
    SCRIPT,
    SUMS,
    WEIGHTS,
    Description,
)
from pipeline.bundles.read import read_model, read_sums
from pipeline.core import files, hdf5
from pipeline.core.errors import ConfigError, FileError
from pipeline.core.faults import preview
from pipeline.core.manifest import check_folder, raise_if_changed
from pipeline.core.summary import write_summary
from pipeline.data.images import Pixels
from pipeline.networks.network import Network, cpu_state, on_backbone, restore

TEMPLATE = Path(__file__).parent / "templates" / "card.md.j2"
STANDALONE = Path(__file__).with_name("standalone.py")
"""Copied and never imported: it needs onnxruntime."""
PACKAGES = ("numpy", "pillow", "safetensors", "spml", "timm", "torch")
"""Whose versions a bundle names."""
COMPARED = 16
"""Pictures of the dataset by which an ONNX file is compared with torch."""
HOW = {
    "clean": "highest F1 by the exhaustive labels of the val split",
    "matching": "as many images above it as the class is believed to be present in, without truth",
    "zero": "a probability of one half",
}


@dataclass(frozen=True)
class Source:
    """A run that lies in a project."""

    root: Path
    name: str
    """Stage and run."""

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.root / "runs" / self.name

    @property
    def dataset(self) -> str:
        """Name of its dataset: names have no dash."""
        return self.name.split("/")[1].split("-")[0]

    @property
    def pictures(self) -> Pixels:
        """The packed pictures of its dataset, none of them in memory."""
        return Pixels(self.root / "data" / "prepare" / self.dataset / "images.h5", memory=0)


def write_bundle(root: Path, name: str, folder: Path, onnx: bool) -> list[str]:
    """Bundle a run.

    Args:
        root: Project root.
        name: ``<stage>/<run>``.
        folder: Where; a bundle that lies there, as it was written, is replaced, files beside it stay.
        onnx: Whether to write ``model.onnx`` too.

    Returns:
        Lines that say what was written.

    Raises:
        FileError: The run is absent or damaged, or another thing lies in the folder.
        ConfigError: The packages that ONNX needs are not installed, or the pictures are too large.
    """  # noqa: DOC502  ConfigError comes from `export` and `_describe`
    _raise_if_taken(folder)
    source = Source(root, name)
    network = _restore(source)
    about = _describe(source, network)
    folder.parent.mkdir(parents=True, exist_ok=True)
    pictures = source.pictures
    compared = pictures[np.arange(min(COMPARED, len(pictures)))] if onnx else None
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as new:
        difference = write_files(Path(new), network, about, compared)
        _move(Path(new), folder)
    size = sum(file.stat().st_size for file in folder.iterdir() if file.name in FILES)
    said = f"{folder}: {len(about.classes)} classes, {size / 1e6:,.1f} MB, thresholds {_chosen(about)}"
    if difference is None:
        return [said]
    return [f"{ONNX}: its probabilities differ from torch's by {difference:.1g} at most", said]


def write_files(folder: Path, network: Network, about: Description, pictures: np.ndarray | None) -> float | None:
    """Write the files of a bundle.

    Args:
        folder: An empty folder.
        network: What was learned.
        about: What is said of it.
        pictures: (B, size, size, 3) uint8 by which ``model.onnx`` is compared with torch; None: none is written.

    Returns:
        The largest difference of a probability between the two.

    Raises:
        FileError: The network cannot be exported, or scores differently there.
        ConfigError: The packages that ONNX needs are not installed.
    """  # noqa: DOC502  raised by `export`
    state = {key: value.contiguous() for key, value in cpu_state(network).items()}
    files.write_bytes(folder / WEIGHTS, safetensors.torch.save(state, {"format": "pt"}))
    files.write_json(folder / MODEL, about.model_dump(mode="json"))
    files.write_text(folder / CLASSES, "\n".join(about.classes))
    shutil.copyfile(STANDALONE, folder / SCRIPT)
    _write_sums(folder)
    difference = None if pictures is None else export(read_model(folder), folder / ONNX, pictures)
    context = about.model_dump() | {"onnx": difference is not None, "difference": difference}
    write_summary(folder / CARD, TEMPLATE, context)
    _write_sums(folder)
    return difference


def _chosen(about: Description) -> str:
    return f"`{about.thresholds.chosen}` ({about.thresholds.why})"


def _raise_if_taken(folder: Path) -> None:
    """Raise where something other than a bundle, as it was written, would be overwritten.

    Raises:
        FileError: As said.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        sums = read_sums(folder)
    except FileError as error:
        raise FileError(
            f"{folder}: is there and is no bundle, so nothing is written; name another folder by --to"
        ) from error
    for name in FILES:
        file = folder / name
        if file.is_file() and files.sha256(file) != sums.get(name):
            raise FileError(
                f"{file}: was edited since it was written; delete or move it, or name another folder by --to"
            )


def _move(new: Path, folder: Path) -> None:
    """Put finished files in place one after the other, their sums last; a bundle is whole when these are."""
    folder.mkdir(exist_ok=True)
    for name in (*FILES, SUMS):
        if (new / name).exists():
            os.replace(new / name, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)


def _write_sums(folder: Path) -> None:
    """Write the digests of a bundle's files, in the form of ``sha256sum -c``."""
    present = [name for name in FILES if (folder / name).exists()]
    files.write_text(folder / SUMS, "\n".join(f"{files.sha256(folder / name)}  {name}" for name in present))


# ---------------------------------------------------------------------------------------------- what was learned
def _restore(source: Source) -> Network:
    """Return the network of a run, on its dataset's backbone where the run was trained on cached features.

    Raises:
        FileError: The run is absent, damaged, or made from other inputs than those that lie there.
    """
    weights = source.folder / "weights.pt"
    if not weights.is_file():
        raise FileError(f"{source.folder}: no run of a training stage lies there; `spml show runs` lists them")
    head = restore(weights)
    if head.backbone is not None:
        return head
    about = head.architecture
    backbone = source.root / "weights" / source.dataset / "backbone.pt"
    with torch.random.fork_rng(devices=[]):
        network = on_backbone(backbone, about["head"], about["classes"], head.pools)
    if network.architecture["width"] != about["width"]:
        wide = f"{about['width']} features, the backbone gives {network.architecture['width']}"
        raise FileError(f"{weights}: its head reads {wide}; run the stage features and this one again")
    network.head.load_state_dict(head.head.state_dict())
    return network.eval()


def _describe(source: Source, network: Network) -> Description:
    """Return model.json.

    Raises:
        ConfigError: The pictures are larger than a bundle's may be.
    """
    side = source.pictures.shape[1]
    if side > MAX_SIDE:
        raise ConfigError(
            f"{source.name}: its pictures have {side} pixels a side, those of a bundle at most {MAX_SIDE}"
        )
    built = network.architecture
    backbone = {name: value for name, value in built["backbone"].items() if name not in ("mean", "std")}
    with hdf5.read(source.folder / "logits.h5") as file:
        classes = json.loads(str(file.attrs["classes"]))
    pixels = {"size": side, "resize": "bilinear", "colour": "RGB", "mean": list(network.mean), "std": list(network.std)}
    return Description.model_validate({
        "format": FORMAT,
        "name": source.name,
        "classes": classes,
        "input": pixels,
        "network": {"backbone": backbone, "pools": network.pools, "head": built["head"]},
        "thresholds": describe_thresholds(read_text(source.folder, "thresholds.json"), classes),
        "scores": _describe_scores(source),
        "provenance": _describe_provenance(source),
    })  # fmt: skip


def describe_thresholds(stored: dict[str, Any], classes: list[str]) -> dict[str, Any]:
    """Return the thresholds of a bundle.

    Args:
        stored: Content of a run's thresholds.json.
        classes: C names.

    Returns:
        `Thresholds`. A class without a threshold of a rule has that of ``matching``, as where the rule was measured.
    """
    entries = [stored["classes"][name] for name in classes]
    matching = [entry["matching"]["value"] for entry in entries]
    own = {"clean": [entry["clean"] for entry in entries], "matching": matching}
    own |= {f"conformal_{found}": [entry["conformal"][found] for entry in entries] for found in entries[0]["conformal"]}
    own = {name: cuts for name, cuts in own.items() if any(cut is not None for cut in cuts)}
    rules = {}
    for name, cuts in (own or {"zero": [0.0] * len(classes)}).items():
        taken = [other if cut is None else cut for cut, other in zip(cuts, matching, strict=True)]
        lacking = sum(cut is None for cut in cuts)
        lent = [each for each, cut, last in zip(classes, cuts, taken, strict=True) if cut is None and last is not None]
        share = name.removeprefix("conformal_")
        how = HOW.get(name) or f"finds {100 * float(share):g} % of the present labels, as far as shown ones tell"
        how += f"; {lacking} of {len(cuts)} classes have none of their own" * bool(lacking)
        how += f", of which {preview(lent)} take that of `matching`" * bool(lent)
        worth = (stored["test"] or {}).get(share)
        test = worth and {"macro_f1": worth["macro"], "micro_f1": worth["micro"], "found": worth["found"]}
        rules[name] = {"how": how, "logits": dict(zip(classes, taken, strict=True)), "test": test}
    chosen = next(name for name in ("clean", "matching", *rules) if name in rules)
    return {"chosen": chosen, "why": rules[chosen]["how"], "rules": rules}


def _describe_scores(source: Source) -> dict[str, Any]:
    """Return the scores of a run and by which labels they are."""
    metrics, rows = read_text(source.folder, "metrics.json"), _read_rows(source.folder / "per_class.tsv")
    kinds = {"clean": "exhaustive", "given": "given"}
    scores = {
        split: {"map": metrics[split]["map"], "map_absent_zero": metrics[split]["map_absent_zero"]}
        | {"labels": kinds[metrics["labels"][split]], "classes": metrics[split]["classes_present"]}
        for split in ("val", "test")
    }
    classes = [{key: _number(value) if key != "class" else value for key, value in row.items()} for row in rows]
    return {**scores, "shown_labels": metrics["shown_labels"], "per_class": classes}


def _read_rows(path: Path) -> list[dict[str, str]]:
    """Return a table of a run that is what its stage wrote."""
    raise_if_changed(path, check_folder(path.parent))
    return files.read_tsv(path)


def _number(text: str) -> float | int | None:
    """Return a table's field as a number; None of an empty one."""
    return None if text == "" else float(text) if "." in text or "e" in text else int(text)


def _describe_provenance(source: Source) -> dict[str, Any]:
    """Return what the run was made from and by; no host, path or time."""
    stage, run = source.name.split("/")
    dataset, method, draw, seed, *_ = run.split("-")
    training = read_text(source.folder, "provenance.json")
    with hdf5.read(source.folder / "labels.h5") as file:
        labels = str(file.attrs["labels"])
    weights = source.root / "weights" / dataset
    return {
        "stage": stage,
        "run": run,
        "dataset": dataset,
        "method": method,
        "draw": int(draw),
        "seed": int(seed),
        "labels": labels,
        "backbone": read_text(weights, "provenance.json")["origin"],
        "inputs": files.read_json(source.folder / "manifest.json")["inputs"],
        "training": {key: value for key, value in training.items() if key not in ("device", "threads")},
        "versions": _read_versions(),
    }


def _read_versions() -> dict[str, str]:
    """Return the versions of what wrote the bundle, as far as it is installed."""
    versions = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):  # this project itself, run from its folder
            versions[name] = metadata.version(name)
    return versions
