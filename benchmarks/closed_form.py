"""Seconds of the closed form: ``python -m benchmarks.closed_form [--images N] [--places]``.

A cache of made features, as wide as those of the photographs, with one label an image; then the stages beliefs and
linear_init of `ridge`, each in a process of its own as `make repro` starts them, TIMES times. Printed are all, with the
load of the machine, and the least. It needs params.yaml of the default profile; all is made in a temporary folder.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from ruamel.yaml import YAML

from pipeline.config.params import read_params
from pipeline.core import hdf5, seal
from pipeline.labels.table import Table, write_table
from pipeline.training.features import write_features
from stages.simulate import simulate

WIDTH, CLASSES, SIDE = 1280, 20, 7
"""Features of an image, classes, and places along a side of its map."""
REST = 0.125
"""Images of val, and of test, by those of training."""
TIMES = 3
DATASET = "digits"
"""A name that params.yaml knows; its blocks are changed."""


def make_table(images: int) -> Table:
    """Return the table of images with one to three labels."""
    generator, rest = np.random.default_rng(0), round(REST * images)
    split = np.repeat(np.arange(3), (images, rest, rest)).astype(np.uint8)
    order = generator.random((len(split), CLASSES)).argsort(axis=1)
    truth = (order < generator.integers(1, 4, (len(split), 1))).astype(np.int8)
    paths = tuple(f"{number:06d}.jpg" for number in range(len(split)))
    classes = tuple(f"class {number}" for number in range(CLASSES))
    return Table(classes, paths, truth, np.ones(truth.shape, bool), split, (split == 2).astype(np.uint8))


def make_project(root: Path, images: int, places: bool) -> None:
    """Make what the two stages read: params, table, labels and a feature cache with the mirrored images.

    Args:
        root: The folder.
        images: Training images.
        places: Whether the cache holds places, and images are scored by them.
    """
    yaml = YAML(typ="safe", pure=True)
    content = yaml.load(Path("params.yaml").read_text(encoding="utf-8"))
    content["features"][DATASET] = {"mirrored": True, "places": places, "pools": ["sqrt" if places else "mean"]}
    content["linear_init"][DATASET] = {"flip": True}
    content["expected_positives"][DATASET] = {"value": 2.0, "source": "made"}
    if places:
        content["beliefs"][DATASET] = {"sharpness": 0.2}
        content["linear_init"][DATASET]["head"] = {"kind": "places", "sharpness": 0.2}
    with open(root / "params.yaml", "w", encoding="utf-8") as file:
        yaml.dump(content, file)
    (root / "params").symlink_to(Path("params").resolve())
    table, generator = make_table(images), np.random.default_rng(1)
    file = root / "data" / "prepare" / DATASET / "table.h5"
    file.parent.mkdir(parents=True)
    write_table(file, table)
    simulate(root, DATASET, 0)
    prototypes = 2 * generator.standard_normal((CLASSES, WIDTH))

    def view(rows: int) -> np.ndarray:
        noise = generator.standard_normal((rows, WIDTH), np.float32)
        return np.maximum(table.truth[:rows] @ prototypes / 3 + noise, 0).astype(np.float32)

    arrays = {"features": view(len(table.paths)), "features_mirrored": view(images)}
    cache = root / "data" / "features" / DATASET / "features.h5"
    cache.parent.mkdir(parents=True)
    write_features(cache, [file], arrays, read_params(root / "params.yaml").settings("features", DATASET), DATASET)
    if places:
        beside = cache.with_name("places.h5")
        hdf5.allocate(beside, "places", (len(table.paths), WIDTH, SIDE, SIDE), "float32", axes="", units="")
        mapped = hdf5.map_array(beside, "places")
        for row, pooled in enumerate(arrays["features"]):
            mapped[row] = pooled[:, None, None] * generator.random((WIDTH, SIDE, SIDE), np.float32)
        mapped.flush()
        seal.append(beside, [cache])


def run(root: Path, *words: str) -> tuple[float, float]:
    """Return wall seconds and processor seconds of a stage.

    Raises:
        SystemExit: It failed.
    """
    started = time.perf_counter()
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    process = subprocess.Popen([sys.executable, "-m", *words], cwd=root, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{words[0]} failed")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime


def main() -> None:
    """Make the cache and print the seconds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--images", type=int, default=2000, metavar="N", help="training images")
    parser.add_argument("--places", action="store_true", help="score images by the places of their maps")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root, seconds = Path(name), []
        make_project(root, options.images, options.places)
        for _ in range(TIMES):
            each = (
                run(root, "stages.beliefs", DATASET, "0"),
                run(root, "stages.linear_init", DATASET, "ridge", "0", "0"),
            )
            seconds.append([sum(part) for part in zip(*each, strict=True)] + [part[0] for part in each])
            load = os.getloadavg()[0]
            told = f"beliefs {seconds[-1][2]:.1f}, linear_init {seconds[-1][3]:.1f}"
            print(f"{seconds[-1][0]:.1f} s ({told}), {seconds[-1][1]:.1f} s of CPU, load {load:.1f}", flush=True)
    print(f"least: {min(each[0] for each in seconds):.1f} s, {min(each[1] for each in seconds):.1f} s of CPU")


if __name__ == "__main__":
    main()
