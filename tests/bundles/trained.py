"""A tiny project whose runs were really trained, on images of which there are picture files, too."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from pipeline.core.manifest import write_manifest
from pipeline.data.images import Pixels
from pipeline.networks import backbone as backbones
from stages.end_to_end import end_to_end
from stages.finetune import finetune
from stages.lac import lac
from stages.linear_init import linear_init
from tests import tiny
from tests.training.test_run import Project

RUNS = ("linear_init/digits-an-0-0", "finetune/digits-an-0-0", "end_to_end/digits-plc-0-0", "lac/digits-lac-0-0")


def train(root: Path, repository: Path) -> Project:
    """Train a run of each stage on the features that the backbone has of the images."""
    made = Project(root, repository)
    made.sections["grid"] |= {"finetune": ["an"], "end_to_end": ["plc"], "lac": ["lac"]}
    made.write_params()
    module, _ = backbones.load(made.backbone)
    images = tiny.ImageInputs(
        Pixels(root / "data/prepare/digits/images.h5"), np.arange(len(made.table.paths)), tiny.MEAN, tiny.STD
    )
    with torch.inference_mode():
        maps = module.eval()(images.plain(np.arange(len(images))))
        made.put(made.cache, features=module.pool(maps).numpy())
    (root / "weights/digits/provenance.json").write_text('{"origin": "made by a test"}')
    write_manifest(root / "weights/digits", [])
    linear_init(root, "digits", "an", 0, 0)
    finetune(root, "digits", "an", 0, 0)
    end_to_end(root, "digits", "plc", 0, 0)
    lac(root, "digits", "lac", 0, 0)
    return made


def write_pictures(made: Project, folder: Path, split: str) -> list[Path]:
    """Write the images of a split as PNG files, named so that their order is that of the rows."""
    pixels = Pixels(made.root / "data/prepare/digits/images.h5")
    folder.mkdir()
    paths = []
    for row in made.table.rows(split):
        paths.append(folder / f"{row:03}.png")
        Image.fromarray(pixels[[row]][0]).save(paths[-1])
    return paths
