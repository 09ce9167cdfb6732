"""Real photographs in VOC and COCO layout through six stages; what they hold is counted here from the raw files."""

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image
from ruamel.yaml import YAML
from sklearn.metrics import average_precision_score

from pipeline.config import profiles
from pipeline.labels.table import SPLITS, read_table
from stages.backbone import backbone
from stages.beliefs import beliefs
from stages.features import features
from stages.linear_init import linear_init
from stages.prepare import prepare
from stages.simulate import simulate
from tests.trees import PICTURES

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
VOC = DATA / "voc_photos" / "VOCdevkit" / "VOC2012"
COCO = DATA / "coco_sample"
COCO_BLOCK = {
    "source": "coco",
    "root": str(COCO),
    "year": 2017,
    "unannotated": "drop",
    "crowd": "count",
    "order": "string",
    "test_fraction": 0.4,
    "size": 160,
    **PICTURES,
    "val_fraction": 0.3,
    "split_seed": 1200,
}


def run(root: Path, repository: Path, dataset: str, change: dict[str, Any], epochs: int) -> None:
    """Run the stages by the profile of the photographs; a change of the source replaces its whole block."""
    yaml = YAML(typ="safe", pure=True)
    params = yaml.load(profiles.compose(repository, "voc_photos", str(DATA))["params.yaml"])
    params["grid"] |= {"datasets": [dataset], "draws": [0], "seeds": [0], "linear_init": ["em"]}
    for section in ("prepare", "simulate", "backbone", "features", "expected_positives", "linear_init"):
        params[section][dataset] = params[section].pop("voc_photos")
    params["prepare"][dataset] = change if "source" in change else params["prepare"][dataset] | change
    params["features"][dataset] |= {"mirrored": False}
    params["linear_init"][dataset] |= {"flip": False, "epochs": epochs, "learning_rate": 3e-3, "search": None}
    with open(root / "params.yaml", "w", encoding="utf-8") as file:
        yaml.dump(params, file)
    shutil.copytree(repository / "params", root / "params")
    for stage in (prepare, backbone, features):
        stage(root, dataset)
    simulate(root, dataset, 0)
    beliefs(root, dataset, 0)
    linear_init(root, dataset, "em", 0, 0)


def some_photos(root: Path, every: int) -> None:
    """Write the lists of the photographs with each so many-th line only; the pictures stay where they are."""
    lists = root / "VOCdevkit" / "VOC2012" / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists.parent.parent / "JPEGImages").symlink_to(VOC / "JPEGImages")
    for file in (VOC / "ImageSets" / "Main").iterdir():
        lines = file.read_text(encoding="utf-8").splitlines()[::every]
        (lists / file.name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def check(root: Path, dataset: str, wanted: dict[str, set[str]], folder: Path, size: int, learned: str) -> np.ndarray:
    """Check the outputs of all stages against the positives of each picture, by the end of its path.

    Args:
        root: Project root.
        dataset: Name of the dataset.
        wanted: Name of each picture's file -> its classes.
        folder: What paths in the table count from.
        size: Side of the packed pictures.
        learned: The split whose scores must be far above chance.

    Returns:
        Rows of train, val and test.
    """
    out = root / "data" / "prepare" / dataset
    table = read_table(out / "table.h5")
    assert {path.rpartition("/")[2] for path in table.paths} == set(wanted)
    names = np.array(table.classes)
    for row, path in enumerate(table.paths):
        assert set(names[table.truth[row] == 1]) == wanted[path.rpartition("/")[2]], path
    with h5py.File(out / "images.h5") as file:
        pixels = file["pixels"]
        assert pixels.shape == (len(wanted), size, size, 3)
        for row in (0, len(wanted) // 2, len(wanted) - 1):
            with Image.open(folder / table.paths[row]) as picture:
                small = picture.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
            assert np.array_equal(pixels[row], np.asarray(small)), table.paths[row]
    with h5py.File(root / "data" / "simulate" / f"{dataset}-0" / "observed.h5") as file:
        single = file["single"][()]
    assert (single == 1).sum(axis=1).tolist() == [1] * len(wanted) and (single >= 0).all()
    assert (table.truth[single == 1] == 1).all()
    with h5py.File(root / "data" / "features" / dataset / "features.h5") as file:
        assert file["features"].shape == (len(wanted), 1280) and np.isfinite(file["features"][()]).all()

    folder = root / "runs" / "linear_init" / f"{dataset}-em-0-0"
    metrics = json.loads((folder / "metrics.json").read_text())
    with h5py.File(folder / "logits.h5") as file:
        logits = {split: file[split][()] for split in SPLITS}
    truth = {split: table.truth[table.split == number] for number, split in enumerate(SPLITS)}
    for split in ("val", "test"):
        assert metrics[split]["map"] == pytest.approx(score(truth[split], logits[split]), abs=1e-6)
    orders = [np.random.default_rng(seed).permutation(len(truth[learned])) for seed in range(20)]
    chance = np.mean([score(truth[learned], logits[learned][order]) for order in orders])  # of other pictures
    found = score(truth[learned], logits[learned])
    assert found > 1.5 * chance, f"{learned}: {found:.1f}, by chance {chance:.1f}"
    return np.bincount(table.split)


def score(truth: np.ndarray, logits: np.ndarray) -> float:
    """Mean average precision in percent, over the classes with a positive, by scikit-learn."""
    columns = np.flatnonzero(truth.any(axis=0))
    return 100 * float(np.mean([average_precision_score(truth[:, c], logits[:, c]) for c in columns]))


def test_photographs_in_voc_layout(tmp_path: Path, repository: Path) -> None:
    if not VOC.exists():
        pytest.skip("the VOC2012 photographs are not at hand")
    some_photos(tmp_path / "raw", 4)
    run(tmp_path, repository, "photos", {"root": "raw", "size": 128}, 10)

    lists = VOC / "ImageSets" / "Main"
    kept = {part: (lists / f"{part}.txt").read_text().split()[::4] for part in ("train", "val")}
    wanted: dict[str, set[str]] = {f"{name}.jpg": set() for part in kept.values() for name in part}
    for file in lists.glob("*_*.txt"):
        for line in file.read_text().splitlines():
            name, value = line.split()
            if value == "1" and f"{name}.jpg" in wanted:
                wanted[f"{name}.jpg"].add(file.stem.rpartition("_")[0])
    assert all(wanted.values())
    rows = check(tmp_path, "photos", wanted, tmp_path / "raw" / "VOCdevkit" / "VOC2012", 128, "test")
    val = round(0.2 * len(kept["train"]))
    assert rows.tolist() == [len(kept["train"]) - val, val, len(kept["val"])] == [132, 33, 110]


def test_photographs_in_coco_layout(tmp_path: Path, repository: Path) -> None:
    """Twice, since they are few: the same bytes."""
    if not COCO.exists():
        pytest.skip("the COCO photographs are not at hand")
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        root.mkdir()
        run(root, repository, "coco", COCO_BLOCK, 20)

    content = json.loads((COCO / "annotations" / "instances_train2017.json").read_text())
    files = {image["id"]: image["file_name"] for image in content["images"]}
    categories = {category["id"]: category["name"] for category in content["categories"]}
    wanted: dict[str, set[str]] = {}
    for annotation in content["annotations"]:
        wanted.setdefault(files[annotation["image_id"]], set()).add(categories[annotation["category_id"]])
    assert (len(files), len(wanted), len(categories)) == (36, 35, 80)
    rows = check(roots[0], "coco", wanted, COCO, 160, "train")  # 14 test images tell nothing
    test = round(0.4 * len(wanted))
    val = round(0.3 * (len(wanted) - test))
    assert rows.tolist() == [len(wanted) - test - val, val, test]

    parts = ("data", "weights", "runs")
    made = [sorted(path.relative_to(root) for part in parts for path in (root / part).rglob("*.*")) for root in roots]
    assert made[0] == made[1] and len(made[0]) > 15
    for path in made[0]:
        assert (roots[0] / path).read_bytes() == (roots[1] / path).read_bytes(), path
