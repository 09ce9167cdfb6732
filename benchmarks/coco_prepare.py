"""Time and memory of COCO 2014 at full size: ``python -m benchmarks.coco_prepare LABELS [--images N] [--size S]``.

LABELS is an .npz of the real label matrix: `image` file names, `labels` (N, 80), `category_id`, `category`. From it a
tree in COCO's layout is made in a temporary folder: as many images, images without annotation and annotations as the
official files have, with boxes and with polygons as long as theirs, and pictures that are hard links to a few JPEGs.
Printed are seconds and peak resident memory of reading it, of `prepare` and of `simulate`, each in its own process.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from ruamel.yaml import YAML

BARE = {"train": 702, "val": 367}
"""Images of the official files without an annotation; they are not in the label matrix."""
ANNOTATIONS = {"train": 604_907, "val": 291_875}
POLYGON = 85  # numbers an annotation, so that the train file has its 450 MB
PICTURES = 64  # different ones; a file system may allow some ten thousand links to one file
BLOCK = {
    "source": "coco",
    "year": 2014,
    "unannotated": "drop",
    "crowd": "count",
    "order": "string",
    "test_fraction": None,
    "bad_images": "stop",
    "links": "inside",
    "max_pixels": 200_000_000,
    "parents": {},
    "exclusive": [],
    "val_fraction": 0.2,
    "split_seed": 1200,
}
READ = (
    "from pathlib import Path; from pipeline import config; from pipeline.sources import coco;"
    "block = config.load().settings('prepare', 'coco');"
    "data = coco.read(coco.Settings.model_validate(block), Path('.')); print(data.report['parts'])"
)
FINGERPRINT = READ.partition("data = ")[0] + "coco.fingerprint(coco.Settings.model_validate(block), Path('.'))"


def write_annotations(
    folder: Path, labels: Path, images: int | None = None, polygon: int = POLYGON, repeats: bool = True
) -> list[str]:
    """Write `annotations/instances_{train,val}2014.json` from a label matrix.

    Every positive cell has an annotation; the repeats, up to the official number, take cells at random, and some of
    them are crowds. Images and annotations are in no order, as in the official files.

    Args:
        folder: Gets a folder `annotations`.
        labels: The .npz file.
        images: Images in all, a share of each part; None for all of them.
        polygon: Numbers of an annotation's polygon.
        repeats: Whether there are annotations beyond one for each positive cell.

    Returns:
        Paths of all images, as in `train2014/COCO_train2014_000000000009.jpg`.
    """
    with np.load(labels) as archive:
        every, truth = archive["image"], archive["labels"]
        keys, classes = archive["category_id"].tolist(), archive["category"].tolist()
    generator = np.random.default_rng(0)
    shape = generator.uniform(0, 640, (PICTURES, polygon)).round(2)
    polygons = [json.dumps([row.tolist()]) for row in shape]
    categories = [{"supercategory": "thing", "id": key, "name": name} for key, name in zip(keys, classes, strict=True)]
    (folder / "annotations").mkdir(parents=True)
    paths: list[str] = []
    for part, bare in BARE.items():
        here = np.flatnonzero(np.char.startswith(every, f"COCO_{part}2014_"))
        share = 1.0 if images is None else images / (len(every) + sum(BARE.values()))
        here = here[: round(share * len(here))]
        names = every[here].tolist()
        names += [f"COCO_{part}2014_{900_000 + number:012d}.jpg" for number in range(round(share * bare))]
        ids = np.array([int(name[-16:-4]) for name in names])
        paths += [f"{part}2014/{name}" for name in names]

        rows, columns = np.nonzero(truth[here])
        more = max(round(share * ANNOTATIONS[part]) - len(rows), 0) if repeats else 0
        more = generator.integers(0, len(rows), more)
        crowd = np.concatenate([np.zeros(len(rows), int), (generator.random(len(more)) < 0.02).astype(int)])
        rows, columns = np.concatenate([rows, rows[more]]), np.concatenate([columns, columns[more]])
        with open(folder / "annotations" / f"instances_{part}2014.json", "w", encoding="utf-8") as file:
            file.write('{"info": {"year": 2014}, "images": [')
            for place, row in enumerate(generator.permutation(len(names)).tolist()):
                entry = {"license": 1, "file_name": names[row], "height": 480, "width": 640, "id": int(ids[row])}
                file.write(", " * bool(place) + json.dumps(entry))
            file.write('], "licenses": [], "annotations": [')
            order = generator.permutation(len(rows))
            boxes = generator.uniform((0, 0, 0.01, 0.01), (0.6, 0.6, 0.4, 0.4), (len(rows), 4)) * (640, 480, 640, 480)
            boxes = boxes.round(2).tolist()
            cells = zip(ids[rows[order]].tolist(), columns[order].tolist(), crowd[order].tolist(), strict=True)
            for place, (image, column, of_crowd) in enumerate(cells):
                file.write(
                    f'{", " * bool(place)}{{"segmentation": {polygons[place % PICTURES]}, "area": 2765.1486, '
                    f'"iscrowd": {of_crowd}, "image_id": {image}, "bbox": {boxes[place]}, '
                    f'"category_id": {keys[column]}, "id": {place}}}'
                )
            file.write('], "categories": ' + json.dumps(categories) + "}")
    return paths


def write_pictures(folder: Path, paths: list[str]) -> None:
    """Write pictures of 40 x 30 pixels, hard links to a few files."""
    sources = []
    for number in range(PICTURES):
        buffer = io.BytesIO()
        Image.new("RGB", (40, 30), (3 * number, 255 - 3 * number, 90)).save(buffer, "JPEG")
        sources.append(folder / f"{number}.jpeg")
        sources[-1].write_bytes(buffer.getvalue())
    for part in {Path(path).parent for path in paths}:
        (folder / part).mkdir()
    for number, path in enumerate(paths):
        os.link(sources[number % PICTURES], folder / path)


def measured(what: str, root: Path, *words: str) -> None:
    """Run Python in a project folder and print its seconds and peak resident memory.

    Raises:
        SystemExit: it failed.
    """
    started = time.perf_counter()
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    process = subprocess.Popen([sys.executable, *words], cwd=root, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{what} failed")
    memory = usage.ru_maxrss / (1 << 20 if sys.platform != "darwin" else 1 << 30)
    cpu = usage.ru_utime + usage.ru_stime
    print(f"{what}\t{time.perf_counter() - started:.1f} s\t{cpu:.1f} s of CPU\t{memory:.2f} GiB", flush=True)


def main() -> None:
    """Make the tree and print the measurements."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("labels", type=Path, help="the .npz file")
    parser.add_argument("--images", type=int, help="images in all; by default every one")
    parser.add_argument("--size", type=int, default=32, help="side of the packed pictures in pixels")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        paths = write_annotations(root / "coco", arguments.labels, arguments.images)
        write_pictures(root / "coco", paths)
        sizes = [file.stat().st_size for file in (root / "coco" / "annotations").iterdir()]
        print(f"{len(paths)} images, {sum(sizes) / 1e6:.0f} MB of annotations", flush=True)
        yaml = YAML(typ="safe", pure=True)
        params = yaml.load(Path("params.yaml").read_text(encoding="utf-8"))
        params["prepare"]["coco"] = BLOCK | {"root": "coco", "size": arguments.size}
        with open(root / "params.yaml", "w", encoding="utf-8") as file:
            yaml.dump(params, file)
        measured("read", root, "-c", READ)
        measured("fingerprint", root, "-c", FINGERPRINT)
        measured("prepare", root, "-m", "stages.prepare", "coco")
        measured("simulate", root, "-m", "stages.simulate", "coco", "0")


if __name__ == "__main__":
    main()
