"""Bring a raw dataset into the project's one form: ``python -m stages.prepare DATASET``.

Reads what ``prepare.<dataset>`` in params.yaml names, and people's answers about labels in
corrections/<dataset>.csv, where there is such a file; writes data/prepare/<dataset>/: splits.h5 (paths and splits),
table.h5 (the same, class names and truth), images.h5 (packed pixels), report.json (what was read, skipped and why,
counts) and summary.md. Nothing is written before everything was read and is valid. Pictures and table know each other
by the splits alone, so that other labels leave the bytes of images.h5, and what is made of them.
"""

from stages import entry  # isort: split

from pathlib import Path

from pipeline.config import rules
from pipeline.config.params import read_params
from pipeline.core import files, resume, seal
from pipeline.core.manifest import write_manifest
from pipeline.core.summary import write_summary
from pipeline.data import bad_images, packing, statistics
from pipeline.data.packing import Limits
from pipeline.data.raw import Cut
from pipeline.labels.table import write_splits, write_table
from pipeline.sources.base import load


def prepare(root: Path, dataset: str) -> None:
    """Read, check and pack one dataset.

    Args:
        root: Project root.
        dataset: Name of a dataset.
    """
    source, settings = load(read_params(root / "params.yaml").settings("prepare", dataset), f"prepare.{dataset}")
    raw = source.fingerprint(settings, root)  # before the lists are read: a change meanwhile shows in the next check
    data = bad_images.read_dataset(source, settings, root, dataset)
    rules.raise_if_any(rules.empty_splits(dataset, data.table))

    key = {**settings.model_dump(exclude={"bad_images"}), "paths": data.table.paths}
    fingerprint = resume.fingerprint([key, packing.stamp(data, raw)], [])
    run_folder = resume.scratch_folder(root) / f"prepare-{dataset}"
    resume.delete_stale(run_folder, fingerprint, f"prepare {dataset}")
    with resume.Checkpoint(run_folder / fingerprint) as checkpoint:
        with bad_images.suggest_remedy(dataset):
            packed = packing.pack(
                data,
                settings.size,
                source=settings.source,
                # a source that draws its pictures has no bad ones
                limits=Limits(getattr(settings, "bad_images", "stop"), getattr(settings, "max_pixels", 0)),
                checkpoint=checkpoint,
                workers=packing.count_workers(),
            )
        data = data.take(packed.rows)
        rules.raise_if_any(rules.empty_splits(dataset, data.table))

        folder = root / "data" / "prepare" / dataset
        splits = folder / "splits.h5"
        write_splits(splits, data.table)
        write_table(folder / "table.h5", data.table, data.objects, [splits])
        seal.append(packed.file, [splits], lies_at=folder / "images.h5")
        files.link_or_copy(packed.file, folder / "images.h5")
        report = {"dataset": dataset, "source": settings.source, "size": settings.size, "raw_sha256": raw}
        report |= statistics.summarize_dataset(data, packed, published=isinstance(settings, Cut))
        files.write_json(folder / "report.json", report)
        context = report | {"rare": statistics.rare_classes(report), "few": statistics.FEW}
        write_summary(folder / "summary.md", entry.TEMPLATES / "prepare.md.j2", context)
        write_manifest(folder, [])
        checkpoint.delete()


if __name__ == "__main__":
    entry.run(prepare)
