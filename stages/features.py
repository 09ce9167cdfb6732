"""Run every packed image through the frozen backbone: ``python -m stages.features DATASET``."""

from stages import entry  # isort: split

from pathlib import Path

import numpy as np

from pipeline.config.params import read_params
from pipeline.core import files, resume, seal
from pipeline.core.device import choose_device
from pipeline.core.manifest import write_manifest
from pipeline.core.summary import write_summary
from pipeline.data import images
from pipeline.labels.table import read_split_rows
from pipeline.networks import backbone as backbones
from pipeline.training.features import FILE, PLACES, PLACES_FILE, Extractor, compute_features, write_features
from pipeline.training.inputs import ImageInputs


def features(root: Path, dataset: str) -> None:
    """Write the HDF5 feature cache: one row an image, in table order, eval mode, no augmentation.

    Pooled features are features.h5; those of places, where they are wanted, places.h5. An interrupted run goes on where
    it stopped.

    Args:
        root: Project root.
        dataset: Name of a dataset.

    Raises:
        ConfigError: A feature does not fit float16.
        FileError: The disk has too little room.
    """  # noqa: DOC502  raised by the functions below
    settings = read_params(root / "params.yaml").settings("features", dataset)
    weights = root / "weights" / dataset / "backbone.pt"
    packed = root / "data" / "prepare" / dataset / "images.h5"
    splits = packed.with_name("splits.h5")
    device = choose_device()
    module, description = backbones.load(weights)
    pixels = images.Pixels(packed)
    inputs = ImageInputs(pixels, np.arange(len(pixels)), description["mean"], description["std"])
    reads = [packed, splits, weights]
    mirrored = read_split_rows(splits, "train") if settings.mirrored else None
    folder = root / "data" / "features" / dataset
    code = resume.room_files("core", "labels", "networks", "data", "training")
    fingerprint = resume.fingerprint(settings.model_dump(), [*reads, *code, Path(__file__)])
    run_folder = resume.scratch_folder(root) / f"features-{dataset}"
    resume.delete_stale(run_folder, fingerprint, f"features {dataset}")
    with resume.Checkpoint(run_folder / fingerprint) as checkpoint:
        extractor = Extractor(module, settings.pools, settings.batch_size, device, dataset)
        arrays = compute_features(extractor, inputs, mirrored, settings, checkpoint)
        about = {name: description[name] for name in ("mean", "std")}
        write_features(folder / FILE, reads, arrays, settings, dataset, **about)
        (folder / PLACES_FILE).unlink(missing_ok=True)  # of a run that wanted them
        if settings.places:
            made = checkpoint.folder / PLACES_FILE
            seal.append(made, [*reads, folder / FILE], lies_at=folder / PLACES_FILE)
            files.link_or_copy(made, folder / PLACES_FILE)
        checkpoint.delete()
    context = {
        "dataset": dataset,
        "images": len(pixels),
        "width": module.width * len(settings.pools),
        "pools": settings.pools,
        "dtype": settings.dtype,
        "views": [*arrays, *([PLACES] if settings.places else [])],
    }
    write_summary(folder / "summary.md", entry.TEMPLATES / "features.md.j2", context)
    write_manifest(folder, reads)


if __name__ == "__main__":
    entry.run(features)
