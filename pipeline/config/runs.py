"""Runs of the training stages, resolved from params.yaml."""

from pathlib import Path

from pipeline.config import rules
from pipeline.config.params import EstimatedDensity, KnownDensity, read_params, run_key
from pipeline.config.plan import plan_run
from pipeline.labels.beliefs import beliefs_file, read_beliefs
from pipeline.labels.table import Table, read_table
from pipeline.training.run import Run


def read_run(root: Path, stage: str, dataset: str, method: str, draw: int, seed: int, variant: str | None) -> Run:
    """Return a run as params.yaml and the method's file have it, with the dataset's table.

    Args:
        root: Project root.
        stage: Training stage.
        dataset: Name of a dataset.
        method: Name of a method.
        draw: Number of the label draw.
        seed: Training seed.
        variant: Key of a variant, or None.

    Returns:
        The run.

    Raises:
        ConfigError: The run's settings are not valid, or break a rule; the key is named.
    """
    params = read_params(root / "params.yaml", method)
    plan = plan_run(params, stage, dataset, method, variant)
    rules.raise_if_any(rules.training_run(plan))
    table = read_table(root / "data" / "prepare" / dataset / "table.h5")
    rules.raise_if_any(rules.training_data(plan, table))
    density = params.density(dataset)
    known = density.value if isinstance(density, KnownDensity) else None
    if isinstance(density, EstimatedDensity) and "expected_positives" in plan.needs:
        known = _estimate(density, beliefs_file(root, dataset, draw), table)
    return Run(
        root,
        stage,
        dataset,
        method,
        draw,
        seed,
        key=variant or run_key(dataset, method, draw, seed),
        settings=plan.settings,
        method_settings=params.run(stage, dataset, method, variant)[1],
        expected_positives=known,
        estimated=known is not None and isinstance(density, EstimatedDensity),
        start=plan.start,
        believing=params.settings("beliefs", dataset).model_dump(mode="json"),
        table=table,
    )


def _estimate(density: EstimatedDensity, beliefs: Path, table: Table) -> float:
    """Return labels per image as beliefs estimate them.

    Raises:
        FileError: The beliefs are absent, damaged, or not those of the table.
    """  # noqa: DOC502  raised by `read_beliefs`
    return density.limit(read_beliefs(beliefs, table).labels_per_image)
