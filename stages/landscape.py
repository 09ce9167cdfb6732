"""Take the loss landscape around one trained network: ``python -m stages.landscape DATASET METHOD DRAW SEED``.

Reads images (of linear_init features), labels and {weights.pt, method.pt, logits.h5} of
runs/<stage>/<dataset>-<method>-<draw>-<seed>/, where ``grid.landscape_stage`` names the stage; writes
analyses/landscape/<dataset>-<method>-<draw>-<seed>/. The loss is the method's own, with the state that the run left in
method.pt: labels that it stored enter.
"""

from stages import entry  # isort: split

from pathlib import Path

from pipeline.config import rules
from pipeline.config.params import read_params
from pipeline.config.plan import plan_run
from pipeline.config.runs import read_run
from pipeline.core import files
from pipeline.core.device import choose_device
from pipeline.core.manifest import write_manifest
from pipeline.core.summary import write_summary
from pipeline.training.landscape import compute_curves, read_point, summarise_curves, write_landscape


def landscape(root: Path, dataset: str, method: str, draw: int, seed: int) -> None:
    """Evaluate the 1-D and 2-D landscapes of a trained network.

    Args:
        root: Project root.
        dataset: Name of a dataset.
        method: Name of the method that trained the network.
        draw: Number of the label draw.
        seed: Training seed.

    Raises:
        ConfigError: The run's head was fitted anew, so that the network is not the one that was trained.
    """  # noqa: DOC502  raised by the rules
    params = read_params(root / "params.yaml", method)
    stage, settings = params.grid.landscape_stage, params.settings("landscape", dataset)
    rules.raise_if_any(rules.landscape(plan_run(params, stage, dataset, method, None)))
    run = read_run(root, stage, dataset, method, draw, seed, None)
    point = read_point(run, settings, choose_device())
    curves = compute_curves(point, settings)
    folder = root / "analyses" / "landscape" / run.key
    attributes = {
        "direction_seed": settings.direction_seed,
        "images": len(point.index),
        "method": method,
        "stage": stage,
        "stored_state": ", ".join(point.state),
    }
    inputs = [run.folder / name for name in ("weights.pt", "method.pt", "logits.h5")]
    inputs += [run.table_file, run.table_file.with_name("images.h5"), run.observed_file]
    inputs += [run.beliefs_file] if run.reads_beliefs() else []
    write_landscape(folder / "landscape.h5", inputs, point, curves, attributes)
    metrics = summarise_curves(curves)
    metrics |= {"images": len(point.index), "stored_logits_difference": point.stored_difference}
    files.write_json(folder / "metrics.json", metrics)
    context = {
        "run": f"{stage}/{run.key}",
        "training_images": len(run.table.rows("train")),
        "method": point.method,
        "state": list(point.state),
        "settings": settings,
        "grouped": run.settings.group_consistency is not None,
        "metrics": metrics,
    }
    write_summary(folder / "summary.md", entry.TEMPLATES / "landscape.md.j2", context)
    write_manifest(folder, inputs)


if __name__ == "__main__":
    entry.run(landscape)
