"""The folder of a training run: weights, logits, labels, tables, metrics, provenance and summary."""

import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.audits.metrics import mean_average_precision
from pipeline.core import files, hdf5
from pipeline.core.device import choose_device
from pipeline.core.manifest import write_manifest
from pipeline.core.summary import write_summary
from pipeline.labels.table import Table
from pipeline.methods.shared.base import Method
from pipeline.networks.network import Network
from pipeline.training.loop import History
from pipeline.training.run import Run
from pipeline.training.score import SHOWN, name_score, score_splits
from pipeline.training.search import Setting, are_tied, is_edge
from pipeline.training.selection import Comparison, Judge
from pipeline.training.thresholds import set_thresholds

SUMMARY = Path(__file__).parent / "templates" / "run.md.j2"


@dataclass(frozen=True)
class Trained:
    """A network and its method, trained at one setting."""

    network: Network
    method: Method
    history: History


@dataclass(frozen=True)
class Result:
    """What a run stores."""

    trained: Trained
    """Network and method at the chosen epoch."""
    setting: Setting | None
    """None where the head has a closed form."""
    trials: list[dict[str, Any]]
    """One row a trial."""
    logits: dict[str, np.ndarray]
    """(N_split, C) logits of train, val and test at the chosen epoch."""
    observed: np.ndarray
    """(N, C) int8 training labels as the method was given them."""
    reads: list[Path]
    """Files that decide the result."""
    comparison: Comparison | None = None
    """The best choice beside the fixed recipe, where shown labels choose."""
    left_out: np.ndarray | None = None
    """(N, C) logits of training images by heads that their labels did not train, where there are some."""
    before: dict[str, np.ndarray] | None = None
    """Logits of the splits by the network as it was trained, where its head was fitted anew."""


def store_run(run: Run, result: Result) -> None:
    """Write all files of a run.

    Args:
        run: The run.
        result: Its result.
    """
    folder, history, method = run.folder, result.trained.history, result.trained.method
    splits, per_class = score_splits(run.table, {split: result.logits[split] for split in ("val", "test")})
    files.write_torch(folder / "weights.pt", result.trained.network.content(), result.reads)
    files.write_torch(folder / "method.pt", dict(method.state_dict()), result.reads)
    _store_logits(run, result)
    _store_labels(folder / "labels.h5", result)
    files.write_tsv(folder / "epochs.tsv", _epoch_rows(run.table, history))
    files.write_tsv(folder / "search.tsv", result.trials)
    files.write_tsv(folder / "per_class.tsv", per_class)
    metrics = {
        "epoch": history.epoch,
        "epochs": len(history.rows),
        "learning_rate": result.setting and result.setting.rate,
        "weight_decay": result.setting and result.setting.decay,
        "scale": result.trained.network.architecture["head"].get("scale"),
        "rate_at_edge": is_edge(result.trials),
        "weights": history.rows[history.epoch - 1]["weights"],
        "selection": result.comparison.describe() if result.comparison else None,
        "shown_labels": _score_shown(run, result),
        "before_readout": _score_before(run, result),
        **splits,
    }
    files.write_json(folder / "metrics.json", metrics)
    thresholds = set_thresholds(run, result.logits, None if _only_ranks(run, result) else result.left_out)
    files.write_json(folder / "thresholds.json", thresholds)
    files.write_json(folder.with_name(f"{run.key}.json"), _name_compared(metrics))
    files.write_json(folder / "provenance.json", _provenance(run, result))
    context = {
        "stage": run.stage,
        "key": run.key,
        "method": run.method,
        "dataset": run.dataset,
        "draw": run.draw,
        "seed": run.seed,
        "select": run.settings.select,
        "measure": name_score(run.table, run.settings.select if result.setting else "clean"),  # of `make_scorer`
        "classes": len(run.table.classes),
        "counts": {split: len(logits) for split, logits in result.logits.items()},
        "given": [split for split, labels in splits["labels"].items() if labels == "given"],
        "metrics": metrics,
        "trials": result.trials,
        "decays_searched": isinstance(run.settings.weight_decay, list),
        "scales_searched": len({trial["scale"] for trial in result.trials}) > 1,
        "thresholds": thresholds,
        "rates_tied": are_tied(result.trials),
        "epochs_tied": history.is_tied() and run.settings.select != "auto",
    }
    write_summary(folder / "summary.md", SUMMARY, context)
    write_manifest(folder, [*result.reads, *({run.beliefs_file} - set(result.reads))])


def _name_compared(metrics: dict[str, Any]) -> dict[str, float | None]:
    """Return what `dvc metrics` and `dvc exp show` tell of a run, each figure by a name that says by which labels."""
    given = [split for split in ("test", "val") if metrics["labels"][split] == "given"]
    named = {f"{split}_map" + "_by_given_labels" * (split in given): metrics[split]["map"] for split in ("test", "val")}
    return named | ({SHOWN.replace(" ", "_"): metrics["shown_labels"]["val"]} if given else {})


def _only_ranks(run: Run, result: Result) -> bool:
    """Return whether logits of images that were left out are means of two scores by places, not scores of the head."""
    return result.before is not None and run.settings.head.kind == "places"


def _score_before(run: Run, result: Result) -> dict[str, float | None] | None:
    """Return the mAP of val and test by the network as it was trained; None where that is the run."""
    if result.before is None:
        return None
    splits, _ = score_splits(run.table, {split: result.before[split] for split in ("val", "test")})
    return {split: splits[split]["map"] for split in ("val", "test")}


def _score_shown(run: Run, result: Result) -> dict[str, Any]:
    """Return how well shown labels are ranked, the one score without truth that compares runs.

    Returns:
        ``score``, the `Judge`'s, in percent, None where no label is shown; of which ``images``: ``train`` where
        there are logits that their labels did not train, else ``val``; and under ``val`` the score of that split, which
        all runs have.
    """
    stands_for = run.beliefs.stands_for(run.single)

    def score(split: str, logits: np.ndarray) -> float | None:
        rows = run.table.rows(split)
        shown = run.single[rows] == 1
        return Judge(shown, stands_for[rows], run.seed).score(logits) if shown.any() else None

    val = score("val", result.logits["val"])
    if result.left_out is None:
        return {"score": val, "images": "val", "val": val}
    return {"score": score("train", result.left_out), "images": "train", "val": val}


def _store_logits(run: Run, result: Result) -> None:
    history = result.trained.history
    with hdf5.create(run.folder / "logits.h5", result.reads) as file:
        for split, values in result.logits.items():
            hdf5.write_array(file, split, values, axes="image, class", units="logit")
        for name, kept in (("epochs_val", history.val), ("epochs_train", history.train)):
            if kept:
                array = torch.stack(kept).numpy()
                hdf5.write_array(file, name, array, axes="epoch, image, class", units="logit")
        file.attrs["epoch"] = history.epoch
        file.attrs["weights"] = history.rows[history.epoch - 1]["weights"]  # of train, val, test; epochs_* are raw
        file.attrs["classes"] = json.dumps(run.table.classes, ensure_ascii=False)
        file.attrs["run"] = f"{run.stage}/{run.key}"


def _store_labels(path: Path, result: Result) -> None:
    """Write what the method believes of every training cell, and the pseudo-labels of each epoch (`History.pseudo`)."""
    method = result.trained.method
    device = next(method.buffers()).device
    logits, observed = (torch.from_numpy(array).to(device) for array in (result.logits["train"], result.observed))
    index = torch.arange(len(observed), device=device)
    with torch.no_grad():
        cells = method.cells(logits, observed, index)
        chosen = method.pseudo_labels(logits, observed, index)
    with hdf5.create(path, result.reads) as file:
        file.attrs["labels"] = method.labels
        for name, cell in (("belief", cells.belief), ("weight", cells.weight)):
            array = cell.float().expand(logits.shape).cpu().numpy()
            hdf5.write_array(file, name, array, axes="image, class", units="of an unknown cell", compress=True)
        if chosen is None:
            file.attrs["reason"] = "the method labels no unknown cell"
            rounds, epochs = np.zeros((0, *observed.shape), np.int8), np.zeros(0, np.int64)
        else:
            rounds, epochs = _rounds(result.trained.history, chosen)
        units = "1 present, -1 absent, 0 none"
        hdf5.write_array(file, "pseudo_label", rounds, axes="round, image, class", units=units, compress=True)
        hdf5.write_array(file, "round_epoch", epochs, axes="round", units="epoch")


def _rounds(history: History, chosen: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return the pseudo-labels of each kept epoch, and their epochs.

    Args:
        history: The run's history.
        chosen: (N, C) pseudo-labels by the chosen weights.

    Returns:
        (rounds, N, C) int8 and (rounds,) int64; the chosen epoch alone where no other was kept.
    """
    if not history.pseudo:
        return chosen.cpu().numpy()[None], np.array([history.epoch], np.int64)
    rounds = torch.stack(history.pseudo).numpy()
    rounds[history.epoch - 1] = chosen.cpu().numpy()  # of the chosen weights, where those are the averaged ones
    return rounds, np.arange(1, len(rounds) + 1, dtype=np.int64)


def _epoch_rows(table: Table, history: History) -> list[dict[str, Any]]:
    """Return the rows of epochs.tsv: the log, with the mAP of each epoch by the table's labels."""
    truth, scored = table.reference("val")
    train_truth, train_scored = table.reference("train")
    rows = []
    for position, logged in enumerate(history.rows):
        row = {key: value for key, value in logged.items() if not key.startswith("score")}
        precision = mean_average_precision(truth, history.val[position].numpy(), scored)
        row |= {"val_map": precision["map"], "val_map_absent_zero": precision["map_absent_zero"]}
        row |= {"val_score": logged["score"], "val_score_average": logged.get("score_average"), "train_map": None}
        if history.train:
            kept = history.train[position].numpy()
            row["train_map"] = mean_average_precision(train_truth, kept, train_scored)["map"]
        rows.append({**row, "selected": int(logged["epoch"] == history.epoch)})
    return rows


def _provenance(run: Run, result: Result) -> dict[str, Any]:
    return {
        "method": run.method_settings,
        "needs": sorted(needs := result.trained.method.needs),
        "expected_positives": {"value": run.expected_positives, "estimated": run.estimated}
        if "expected_positives" in needs
        else None,
        "settings": run.settings.model_dump(mode="json"),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        "device": choose_device().type,
        "threads": torch.get_num_threads(),
    }
