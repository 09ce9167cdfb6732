"""What the four training stages share: read labels, train at each learning rate, store a run's folder."""

import json
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from pipeline.audits.metrics import mean_average_precision
from pipeline.core import files, hdf5, resume, seeds
from pipeline.core.device import choose_device
from pipeline.core.errors import ConfigError, FileError, TrainingError
from pipeline.core.resume import Checkpoint
from pipeline.data import images
from pipeline.labels.table import Table
from pipeline.methods.shared import base
from pipeline.methods.shared.problem import describe
from pipeline.networks.network import Network
from pipeline.training import search
from pipeline.training.inputs import ImageInputs, Inputs, predict
from pipeline.training.loop import History, train
from pipeline.training.score import scores
from pipeline.training.settings import Training

GIVEN = (
    " are against the given labels, which are not exhaustive: what was not given counts as absent. They are no"
    " measure of the network's worth; they tell networks on the same labels apart, roughly."
)
BUDGET = 1 << 28  # values of epoch logits a run may keep; a gigabyte of float32


@dataclass(frozen=True)
class Job:
    """One training run, resolved."""

    root: Path
    stage: str
    dataset: str
    method: str
    seed: int
    key: str
    settings: Training
    own: dict[str, Any]
    """The method's settings."""
    expected_positives: float | None
    """Labels per image, where params.yaml names them."""
    table: Table

    @property
    def folder(self) -> Path:
        """Where the run is stored."""
        return self.root / "runs" / self.stage / self.key


def image_inputs(run: Job, network: Network) -> dict[str, Inputs]:
    """Return packed images of the three splits, normalised as the network's backbone wants them."""
    pixels = images.Pixels(run.root / "data" / "prepare" / run.dataset / "images.h5")
    common = {"flip": run.settings.flip, "crop": run.settings.crop, "strong": run.settings.strong}
    return {
        split: ImageInputs(
            pixels, run.table.rows(split), network.mean, network.std, **(common if split == "train" else {})
        )
        for split in ("train", "val", "test")
    }


def execute(
    run: Job,
    make: Callable[[], Network],
    inputs: Callable[[Network], dict[str, Inputs]],
    reads: list[Path],
    inherited: Path | None = None,
) -> None:
    """Train a run, score it, and store its folder.

    Args:
        run: The run.
        make: Builds the network before training; called once for each learning rate, from the same random stream.
        inputs: Gives the three splits as the network reads them.
        reads: Files that decide the result, for the fingerprint of checkpoints.
        inherited: State dict of the method in an earlier stage, whose ``carries`` this run takes over.

    Raises:
        FileError: The observed labels are not those of the table.
        TrainingError: A loss is not finite, at every rate where a grid is searched.
    """
    device = choose_device()
    kind = base.load(run.method)
    with hdf5.read(run.root / "data" / "simulate" / run.dataset / "observed.h5") as file:
        observed = {name: file[name][()] for name in {kind.labels, "single"}}
        if any(labels.shape != run.table.truth.shape for labels in observed.values()):
            raise FileError(f"{file.filename}: its rows or classes are not the table's; run simulate again")
    at = {split: run.table.rows(split) for split in ("train", "val", "test")}
    labels = observed[kind.labels][at["train"]]
    _refuse_too_much(run, len(at["train"]), len(run.table.classes))
    score = scorer(run, observed["single"])
    network = _fresh(run, make)
    known = describe(run.table.classes, labels, run.expected_positives, network.architecture["width"])
    base.build(run.method, run.own, known)  # bad settings stop here
    splits = inputs(network)
    base.check_needs(run.method, kind, network.provides() | splits["train"].provides | {"epoch_logits", "disk"})
    also = [run.root / "data" / "prepare" / run.dataset / "table.h5", *([inherited] if inherited else [])]
    values = [run.settings.model_dump(), run.own, known.expected_positives, run.seed, run.stage]
    print_ = resume.fingerprint(values, [*reads, *also, *code(run.stage, run.method)])
    place = resume.scratch(run.root) / f"{run.stage}-{run.key}"
    resume.sort_out(place, print_, f"{run.stage} {run.key}")

    checkpoints: list[Checkpoint] = []

    def fit(rate: float, epochs: int | None) -> tuple[History, Network, base.Method]:
        network, method = _fresh(run, make), base.build(run.method, run.own, known)
        checkpoints.append(Checkpoint(place / f"{print_}-{rate:g}-{epochs}"))
        try:
            history = train(
                network,
                method,
                splits["train"],
                torch.from_numpy(labels),
                splits["val"],
                score,
                run.settings,
                lr=rate,
                seed=run.seed,
                device=device,
                name=f"{run.stage} {run.key} lr {rate:g}",
                epochs=epochs,
                inherited=files.read_torch(inherited) if inherited else None,
                checkpoint=checkpoints[-1],
            )
        except TrainingError as error:
            checkpoints[-1].discard()  # from there it would diverge again; an interrupted search repeats it whole
            if run.settings.learning_rate != "grid":
                raise
            tqdm.write(f"{error}; the search goes on without this rate")
            history = History()  # no epoch, and a score below any other
        checkpoints[-1].empty()  # a finished trial's, before the next one fills another
        return history, network, method

    rate, (history, network, method), trials = search.choose(
        run.settings, fit, lambda found: (found[0].best, found[0].epoch)
    )
    if not history.epoch:
        raise TrainingError(f"{run.stage} {run.key}: training diverged at every rate of search.values")
    network.load_state_dict(history.state)
    method.load_state_dict(history.method)
    method.eval()  # what is stored of its cells is what it holds, not what one more step would make of them
    logits = {split: predict(network, splits[split], run.settings.batch_size * 8, device) for split in at}
    _store(run, network, method, history, rate, trials, logits, labels, reads)
    for each in checkpoints:
        each.discard()


def code(stage: str, method: str) -> list[Path]:
    """List the source files that may decide a run.

    Args:
        stage: Training stage.
        method: Name of the method.

    Returns:
        What a training stage may import: no other stage or method, no source of data or report.
    """
    pipeline = Path(__file__).parents[1]
    rooms = ("core", "labels", "networks", "data", "methods/shared", "training")
    named = [pipeline.parent / "stages" / f"{name}.py" for name in (stage, "entry")]
    named += [pipeline / "methods" / f"{method}.py", pipeline / "audits" / "metrics.py"]
    return [*named, *(file for room in rooms for file in (pipeline / room).glob("*.py"))]


def scorer(run: Job, single: np.ndarray) -> Callable[[np.ndarray], float]:
    """Return the closure that scores validation logits: mAP in percent, by full or by observed labels.

    Args:
        run: The run.
        single: (N, C) observed labels of all rows.

    Returns:
        Maps (N_val, C) logits to points.

    Raises:
        ConfigError: No class has a positive in the validation split, so no epoch can be chosen by it.
    """
    if run.settings.select == "clean" and not run.table.measurable("val"):
        raise ConfigError(
            f"{run.stage}.select: clean, but the labels of {run.dataset} are not exhaustive; set it to observed or last"
        )
    truth, scored = run.table.reference("val")
    if run.settings.select == "observed":
        truth, scored = (single[run.table.rows("val")] == 1).astype(np.int8), None
    if not truth.any():
        raise ConfigError(f"{run.stage}.select: the validation split of {run.dataset} has no positive label")

    def score(logits: np.ndarray) -> float:
        return float(mean_average_precision(truth, logits, scored)["map"])

    return score


def _fresh(run: Job, make: Callable[[], Network]) -> Network:
    seeds.fix_torch(run.seed, "network")
    return make()


def _refuse_too_much(run: Job, images_: int, classes: int) -> None:
    values = run.settings.epochs * images_ * classes
    if run.settings.keep_epoch_logits and values > BUDGET:
        raise ConfigError(
            f"{run.stage}.keep_epoch_logits: {run.settings.epochs} epochs of {images_} x {classes} logits are "
            f"{values * 4 / 1e9:.1f} GB a run; set it to false for {run.dataset}"
        )


def _store(
    run: Job,
    network: Network,
    method: base.Method,
    history: History,
    rate: float,
    trials: list[dict[str, Any]],
    logits: dict[str, np.ndarray],
    labels: np.ndarray,
    reads: list[Path],
) -> None:
    folder = run.folder
    found, per_class = scores(run.table, {split: logits[split] for split in ("val", "test")})
    files.write_torch(folder / "weights.pt", network.content())
    files.write_torch(folder / "method.pt", dict(method.state_dict()))
    with hdf5.create(folder / "logits.h5") as file:
        for split, values in logits.items():
            hdf5.put(file, split, values, axes="image, class", units="logit")
        for name, kept in (("epochs_val", history.val), ("epochs_train", history.train)):
            if kept:
                hdf5.put(file, name, torch.stack(kept).numpy(), axes="epoch, image, class", units="logit")
        file.attrs["epoch"] = history.epoch
        file.attrs["weights"] = history.rows[history.epoch - 1]["weights"]  # of train, val, test; epochs_* are raw
        file.attrs["classes"] = json.dumps(run.table.classes, ensure_ascii=False)
        file.attrs["run"] = f"{run.stage}/{run.key}"
    _store_labels(folder / "labels.h5", method, history, logits["train"], labels)
    files.write_tsv(folder / "epochs.tsv", _epoch_rows(run, history))
    files.write_tsv(folder / "search.tsv", trials)
    files.write_tsv(folder / "per_class.tsv", per_class)
    weights = history.rows[history.epoch - 1]["weights"]
    metrics = {"epoch": history.epoch, "epochs": len(history.rows), "learning_rate": rate, "weights": weights, **found}
    files.write_json(folder / "metrics.json", metrics)
    files.write_json(
        folder / "provenance.json",
        {
            "inputs": {path.relative_to(run.root).as_posix(): files.sha256(path) for path in reads},
            "method": run.own,
            "needs": sorted(method.needs),
            "settings": run.settings.model_dump(mode="json"),
            "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
            "device": choose_device().type,
            "threads": torch.get_num_threads(),
        },
    )
    lines = _summary(run, history, rate, metrics, trials)
    files.write_summary(folder / "summary.md", f"{run.stage} {run.key}", lines)


def _store_labels(path: Path, method: base.Method, history: History, logits: np.ndarray, labels: np.ndarray) -> None:
    """Store what the method believes of every training cell, and the pseudo-labels of each epoch (`History.pseudo`)."""
    device = next(method.buffers()).device
    values, observed = torch.from_numpy(logits).to(device), torch.from_numpy(labels).to(device)
    index = torch.arange(len(labels), device=device)
    with torch.no_grad():
        cells = method.cells(values, observed, index)
        chosen = method.pseudo_labels(values, observed, index)
    rounds, epochs = None, np.zeros(0)
    if chosen is not None and history.pseudo:
        rounds, epochs = torch.stack(history.pseudo).numpy(), np.arange(1, len(history.pseudo) + 1)
        rounds[history.epoch - 1] = chosen.cpu().numpy()  # of the chosen weights, where those are the averaged ones
    elif chosen is not None:
        rounds, epochs = chosen.cpu().numpy()[None], np.array([history.epoch])
    with hdf5.create(path) as file:
        file.attrs["labels"] = method.labels
        for name, cell in (("belief", cells.belief), ("weight", cells.weight)):
            array = cell.float().expand(values.shape).cpu().numpy()
            hdf5.put(file, name, array, axes="image, class", units="of an unknown cell", compress=True)
        if rounds is None:
            file.attrs["reason"] = "the method labels no unknown cell"
            rounds = np.zeros((0, *labels.shape), np.int8)
        units = "1 present, -1 absent, 0 none"
        hdf5.put(file, "pseudo_label", rounds, axes="round, image, class", units=units, compress=True)
        hdf5.put(file, "round_epoch", epochs.astype(np.int64), axes="round", units="epoch")


def _epoch_rows(run: Job, history: History) -> list[dict[str, Any]]:
    truth, scored = run.table.reference("val")
    train_truth, train_scored = run.table.reference("train")
    rows = []
    for position, row in enumerate(history.rows):
        shown = {key: value for key, value in row.items() if not key.startswith("score")}
        found = mean_average_precision(truth, history.val[position].numpy(), scored)
        shown |= {"val_map": found["map"], "val_map_absent_zero": found["map_absent_zero"]}
        shown["val_score"] = row["score"]
        shown["val_score_average"] = row.get("score_average")
        shown["train_map"] = None
        if history.train:
            kept = history.train[position].numpy()
            shown["train_map"] = mean_average_precision(train_truth, kept, train_scored)["map"]
        rows.append({**shown, "selected": int(row["epoch"] == history.epoch)})
    return rows


def _summary(
    run: Job, history: History, rate: float, metrics: dict[str, Any], trials: list[dict[str, Any]]
) -> list[str]:
    counts = {split: len(run.table.rows(split)) for split in ("train", "val", "test")}
    test, val = metrics["test"], metrics["val"]
    shown = {split: "none" if part["map"] is None else f"{part['map']:.2f}"
             for split, part in (("val", val), ("test", test))}  # fmt: skip
    given = [split for split, word in metrics["labels"].items() if word == "given"]
    whose = "Scores" if len(given) > 1 else f"Scores of {' and '.join(given)}"
    tried = ", ".join(
        f"{row['learning_rate']:g}: {'diverged' if row['val_map'] is None else format(row['val_map'], '.2f')}"
        for row in trials
    )
    return [
        f"Method `{run.method}` on `{run.dataset}`, seed {run.seed}: {counts['train']} training images, "
        f"{counts['val']} validation, {counts['test']} test, {len(run.table.classes)} classes.",
        "",
        "| split | mAP over present classes | mAP, absent classes 0 | classes present |",
        "| --- | --- | --- | --- |",
        f"| val | {shown['val']} | {val['map_absent_zero']:.2f} | {val['classes_present']} |",
        f"| test | {shown['test']} | {test['map_absent_zero']:.2f} | {test['classes_present']} |",
        "",
        *([whose + GIVEN, ""] if given else []),
        f"Epoch {history.epoch} of {len(history.rows)} was chosen ({run.settings.select} labels), with its "
        f"{metrics['weights']} weights; learning rate {rate:g} (val mAP by rate: {tried}).",
        "",
        "- `logits.h5`: logits of train, val and test at the chosen epoch; `epochs_val`, `epochs_train` by epoch",
        "- `labels.h5`: belief and weight of every training cell; pseudo-labels of each epoch. A method that stores "
        "them was trained by these; of one that makes them anew at each step, they are what the epoch's last weights "
        "would label",
        "- `epochs.tsv`, `search.tsv`, `per_class.tsv`, `metrics.json`: tables and scores; mAP in percent, "
        "AP in [0, 1]",
        "- `weights.pt`, `method.pt`: network and method state; `provenance.json`: inputs, settings, versions",
        "",
        f"Read any of them with `spml show runs/{run.stage}/{run.key}/<file>`.",
    ]
