"""Runs of the training stages, resolved from params.yaml."""

from pathlib import Path

from pipeline.config.params import read_params
from pipeline.labels.table import read_table
from pipeline.training.run import Run


def read_run(root: Path, stage: str, dataset: str, method: str, seed: int, variant: str | None) -> Run:
    """Return a run as params.yaml has it, with the dataset's table.

    Args:
        root: Project root.
        stage: Training stage.
        dataset: Name of a dataset.
        method: Name of a method.
        seed: Training seed.
        variant: Key of a variant, or None.

    Returns:
        The run.

    Raises:
        ConfigError: The run's settings are not valid; the key is named.
    """
    params = read_params(root / "params.yaml")
    settings, method_settings = params.run(stage, dataset, method, variant)
    return Run(
        root,
        stage,
        dataset,
        method,
        seed,
        key=variant or f"{dataset}-{method}-{seed}",
        settings=settings,
        method_settings=method_settings,
        expected_positives=params.density(dataset),
        start=params.variants.finetune[variant].start if variant and stage == "finetune" else method,
        table=read_table(root / "data" / "prepare" / dataset / "table.h5"),
    )
