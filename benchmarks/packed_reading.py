"""How fast packed pictures reach training: ``python -m benchmarks.packed_reading [--sizes 224 448] [--photos FOLDER]``.

Images a second, in random order and batches of 16, that six loops deliver, and that a network eats. The limit is numpy
alone: the same rows of the same file, mapped once. `Pixels` is the product's reader, of a file too large for memory (so
mapped) and of one held in memory; the training input is what finetune asks for, `ImageInputs.views` with mirroring.
Decoding is the usual alternative: every JPEG anew at each epoch. The network is EfficientNet-Lite0 with a linear head,
one training step as in finetune. All alternate, so that a busy machine slows each of them; medians are printed as
Markdown. The file is in the system's cache, as it is from the second epoch on where memory suffices.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from pipeline.core import hdf5
from pipeline.data import images
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from pipeline.networks.network import Network
from pipeline.networks.timm_backbone import describe
from pipeline.training.inputs import ImageInputs, batches

BATCH, CLASSES = 16, 20
MEAN = STD = (0.5, 0.5, 0.5)
BACKBONE = describe("tf_efficientnet_lite0", 224) | {"mean": MEAN, "std": STD}
JPEGS = 64


def write_packed(path: Path, n: int, size: int) -> None:
    """Write a file of n packed pictures of noise."""
    hdf5.allocate(path, "pixels", (n, size, size, 3), axes="image, height, width, channel", units="0 to 255")
    pixels = hdf5.map_array(path, "pixels")
    generator = np.random.default_rng(0)
    for rows in batches(n, 64):
        pixels[rows] = generator.integers(0, 256, (len(rows), size, size, 3), np.uint8)
    pixels.flush()


def jpegs(folder: Path, photos: Path | None) -> list[Path]:
    """Return JPEG files: some of a folder of photographs, or drawn ones of 500 x 375 pixels, as VOC's."""
    if photos:
        return sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))[:JPEGS]
    generator, files = np.random.default_rng(0), []
    for number in range(JPEGS):
        coarse = generator.integers(
            0, 256, (47, 63, 3), np.uint8
        )  # some 80 kB when enlarged: as much detail as a photo
        files.append(folder / f"{number}.jpg")
        Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC).save(files[-1], quality=92)
    return files


def training_step(size: int) -> Callable[[], None]:
    """Return one step of finetune on a batch that is at hand."""
    network = Network(
        {"backbone": BACKBONE, "width": 1280, "classes": CLASSES, "head": {"kind": "linear", "scale": "none"}}
    ).train()
    network.freeze([], True)
    names = tuple(map(str, range(CLASSES)))
    method = base.build("an", {"floor": 0.0}, Problem(BATCH, names, torch.ones(CLASSES, dtype=torch.int64), None))
    optimizer = torch.optim.Adam(network.parameters(), 1e-4)
    pictures, index = torch.randn(BATCH, 3, size, size), torch.arange(BATCH)
    observed = torch.nn.functional.one_hot(index % CLASSES, CLASSES).to(torch.int8)

    def step(count: int = BATCH) -> None:
        answer = {key: value.unflatten(0, (1, count)) for key, value in network(pictures[:count]).items()}
        loss = torch.stack(list(method(Outputs(**answer), observed[:count], index[:count]).values())).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    step(2)  # the first one makes the optimiser's state
    return step


def measure(folder: Path, size: int, megabytes: int, rounds: int, files: list[Path]) -> None:
    """Print the table of one size."""
    path, n = folder / f"{size}.h5", max(BATCH, int(megabytes * 1e6 / (size * size * 3)))
    write_packed(path, n, size)
    mapped, held = images.Pixels(path, memory=0), images.Pixels(path, memory=1 << 40)
    bare = hdf5.map_array(path, "pixels")
    inputs = [ImageInputs(pixels, np.arange(n), MEAN, STD, flip=True) for pixels in (mapped, held)]
    step = training_step(size)

    def rows(pixels: images.Pixels | np.memmap, order: np.ndarray) -> int:
        return sum(len(np.asarray(pixels[index])) for index in batches(n, BATCH, order))

    def views(given: ImageInputs, order: np.ndarray) -> int:
        return sum(len(given.views(index, ("weak",), 0, 1)) for index in batches(n, BATCH, order))

    def decode(_: np.ndarray) -> int:
        return sum(len(images.resize(images.decode(file, 10**9), size)[:1]) for file in files)

    def network(_: np.ndarray) -> int:
        step()
        return BATCH

    loops: dict[str, Callable[[np.ndarray], int]] = {
        "numpy alone, mapped: the limit": partial(rows, bare),
        "`Pixels`, mapped": partial(rows, mapped),
        "`Pixels`, in memory": partial(rows, held),
        "training input, mapped": partial(views, inputs[0]),
        "training input, in memory": partial(views, inputs[1]),
        "decoding JPEGs": decode,
        "network, training": network,
    }
    speeds: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(rounds + 1):
        order = np.random.default_rng(number).permutation(n)
        for name, loop in loops.items():
            if number or loop is not network:  # the first round fills the system's cache and is not counted
                started = time.perf_counter()
                count = loop(order)
                if number:
                    speeds[name].append(count / (time.perf_counter() - started))
    median = {name: statistics.median(values) for name, values in speeds.items()}
    limit, decoding, eaten = (median[name] for name in (list(loops)[0], "decoding JPEGs", "network, training"))
    print(f"\n{size} x {size} pixels, {n} images, {path.stat().st_size / 1e6:.0f} MB:\n")
    print("| loop | images a second | of the limit | x decoding | x the network |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, value in median.items():
        ratios = (value, value / limit, value / decoding, value / eaten)
        print(f"| {name} | " + " | ".join(f"{x:,.0f}" if x >= 100 else f"{x:.3g}" for x in ratios) + " |", flush=True)


def main() -> None:
    """Print a table for each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[224, 448], help="sides of packed pictures in pixels")
    parser.add_argument("--megabytes", type=int, default=300, help="size of the packed file")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each loop")
    parser.add_argument("--photos", type=Path, help="folder of JPEGs to decode; by default drawn ones of 500 x 375")
    arguments = parser.parse_args()
    print(f"batches of {BATCH}, {torch.get_num_threads()} threads, median of {arguments.rounds} rounds")
    with tempfile.TemporaryDirectory() as name:
        files = jpegs(Path(name), arguments.photos)
        print(
            f"{len(files)} JPEGs of {sum(file.stat().st_size for file in files) / len(files) / 1e3:.0f} kB on average"
        )
        for size in arguments.sizes:
            measure(Path(name), size, arguments.megabytes, arguments.rounds, files)


if __name__ == "__main__":
    main()
